# LZFoo's match finder and writer of elements, a part of lzfoo.pyx.

from libc.string cimport memcpy

cdef enum:
    # An element's first byte: the top bit, and what the other seven bits announce.
    COPY = 0x80
    LONG = 120
    # The first byte of a VarU64 offset from which on 1..8 bytes follow.
    WIDE = 248

    # To copy some bytes too many in large steps is faster than to copy the exact number;
    # where that is done, so many bytes may be read and written after the end.
    SPARE = 64

    # The pure twin says what these mean.
    SEQUENCE = 6
    STEP_BITS = 6


cdef struct Finder:
    # Where sequences were seen last, and the bytes that can be looked at: from `low` on,
    # which is byte `base` of the stream (modulo 2**32), up to `end`.
    uint32_t *table
    int shift
    uint32_t window
    uint32_t base
    const uint8_t *low
    const uint8_t *end


cdef inline uint32_t *slot(const Finder *finder, const uint8_t *here) noexcept nogil:
    """The table entry of the six bytes at `here`."""
    return &finder.table[
        ((load_64(here) << 16) * <uint64_t>0x9E3779B185EBCA87) >> finder.shift
    ]


cdef inline size_t places(size_t size) noexcept nogil:
    """At how many places of so many bytes a sequence starts."""
    return size - SEQUENCE + 1 if size >= SEQUENCE else 0


cdef inline void index_at(const Finder *finder, const uint8_t *here) noexcept nogil:
    slot(finder, here)[0] = finder.base + <uint32_t>(here - finder.low)


cdef inline size_t common(
    const uint8_t *one, const uint8_t *other, const uint8_t *end
) noexcept nogil:
    """How many bytes at `one` and at `other`, the later of the two, are equal before `end`."""
    cdef const uint8_t *start = other
    cdef uint64_t difference
    while end - other >= 8:
        difference = load_64(one) ^ load_64(other)
        if difference:
            return <size_t>(other - start) + (low_bit(difference) >> 3)
        one += 8
        other += 8
    while other < end and one[0] == other[0]:
        one += 1
        other += 1
    return <size_t>(other - start)


cdef inline int offset_size(uint32_t distance) noexcept nogil:
    return 1 if distance < WIDE else 1 + octets_of(distance)


cdef inline size_t match(
    const Finder *finder, const uint8_t *here, uint32_t *distance
) noexcept nogil:
    """Length of the match for `here`, 0 if none pays; and enter `here` into the table."""
    cdef uint32_t *entry = slot(finder, here)
    cdef uint32_t position = finder.base + <uint32_t>(here - finder.low)
    cdef uint32_t away = position - entry[0]
    cdef size_t length
    entry[0] = position
    if <uint32_t>(away - 1) >= finder.window or away > <size_t>(here - finder.low):
        return 0
    if load_32(here) != load_32(here - away):
        return 0
    length = 4 + common(here + 4 - away, here + 4, finder.end)
    distance[0] = away
    return length if length >= <size_t>(3 + offset_size(away)) else 0


cdef inline int header_size(size_t length) noexcept nogil:
    return 1 if length < LONG else 1 + octets_of(length)


cdef inline uint8_t *put_header(uint8_t *target, size_t length, int kind) noexcept nogil:
    """Write an element's first byte and length; up to 9 bytes are touched."""
    cdef int octets
    if length < LONG:
        target[0] = <uint8_t>(kind | <int>length)
        return target + 1
    octets = octets_of(length)
    target[0] = <uint8_t>(kind | (LONG - 1 + octets))
    store_64_be(target + 1, <uint64_t>length << (64 - 8 * octets))
    return target + 1 + octets


cdef inline uint8_t *put_copy(uint8_t *target, size_t length, uint32_t distance) noexcept nogil:
    """Write a copy element; up to 18 bytes are touched."""
    cdef int octets
    target = put_header(target, length, COPY)
    if distance < WIDE:
        target[0] = <uint8_t>distance
        return target + 1
    octets = octets_of(distance)
    target[0] = <uint8_t>(WIDE - 1 + octets)
    store_64_be(target + 1, <uint64_t>distance << (64 - 8 * octets))
    return target + 1 + octets


cdef inline uint8_t *put_literal(
    uint8_t *target, const uint8_t *limit, const uint8_t *data, size_t length
) noexcept nogil:
    """Write a literal element, or return NULL if it would end after `limit`.

    Up to SPARE bytes after its end are touched, in the source as in the target.
    """
    if length == 0:
        return target
    if <size_t>(limit - target) < header_size(length) + length:
        return NULL
    target = put_header(target, length, 0)
    if length <= 32:
        memcpy(target, data, 16)
        memcpy(target + 16, data + 16, 16)
    else:
        memcpy(target, data, length)
    return target + length


cdef uint8_t *write_elements(
    const Finder *finder, const uint8_t *here, uint8_t *target, const uint8_t *limit
) noexcept nogil:
    """Write the elements for the bytes from `here` to the finder's end.

    Returns the end of what was written, NULL if that would be after `limit`.
    """
    cdef const uint8_t *end = finder.end
    cdef const uint8_t *pending = here
    cdef size_t length, longer, effort = 1 << STEP_BITS
    cdef uint32_t distance = 0, other = 0
    while end - here >= SEQUENCE:
        length = match(finder, here, &distance)
        if length == 0:
            if <size_t>(end - here) < effort >> STEP_BITS:
                break
            here += effort >> STEP_BITS
            effort += 1
            continue
        effort = 1 << STEP_BITS
        while end - here > SEQUENCE:
            longer = match(finder, here + 1, &other)
            if longer <= length:
                break
            here += 1
            length = longer
            distance = other
        while (
            here > pending
            and <size_t>(here - finder.low) > distance
            and (here - 1)[0] == (here - 1 - distance)[0]
        ):
            here -= 1
            length += 1
        target = put_literal(target, limit, pending, here - pending)
        if target == NULL:
            return NULL
        target = put_copy(target, length, distance)
        if target > limit:
            return NULL
        pending = here + length
        if end - pending >= SEQUENCE:
            index_at(finder, here + 1)
            index_at(finder, here + 3)
            index_at(finder, pending - 4)
            index_at(finder, pending - 2)
        here = pending
    return put_literal(target, limit, pending, end - pending)
