# LZFoo's first level, one look at a table for each place: a part of lzfoo.pyx.

cdef enum:
    # The pure twin explains these.
    SEQUENCE = 6
    PLACE = 8
    STEP_BITS = 6
    LATER = 2
    GOOD = 20


ctypedef fused entry_t:
    uint16_t
    uint32_t


cdef struct Finder:
    # The bytes that can be looked at: from `low` on, which is byte `base` of the stream
    # (modulo 2**32), up to `end`; how far back copies may point; and 2**bits entries.
    const uint8_t *low
    const uint8_t *end
    uint32_t base
    uint32_t window
    int bits


cdef inline size_t slot_of(int bits, uint64_t octets) noexcept nogil:
    """Index in the table for six bytes, given with the two that follow them."""
    return <size_t>(((octets << 16) * <uint64_t>0x9E3779B185EBCA87) >> (64 - bits))


cdef inline void enter(
    const Finder *finder, entry_t *table, const uint8_t *here
) noexcept nogil:
    table[slot_of(finder.bits, load_64(here))] = <entry_t>(
        finder.base + <uint32_t>(here - finder.low)
    )


cdef inline size_t places(size_t size) noexcept nogil:
    """The number of places in `size` bytes at which a match may start."""
    return size - PLACE + 1 if size >= PLACE else 0


cdef void save_entries(
    int bits, const entry_t *table, entry_t *saved, const uint8_t *data, size_t size
) noexcept:
    """Copy the entries that the finder can touch when it looks at `data`."""
    cdef size_t index
    for index in range(places(size)):
        saved[index] = table[slot_of(bits, load_64(data + index))]


cdef void restore_entries(
    int bits, entry_t *table, const entry_t *saved, const uint8_t *data, size_t size
) noexcept:
    cdef size_t index
    for index in range(places(size)):
        table[slot_of(bits, load_64(data + index))] = saved[index]


cdef inline uint32_t reach_at(const Finder *finder, const uint8_t *here) noexcept nogil:
    """How far back a copy at `here` may point."""
    cdef size_t before = here - finder.low
    return <uint32_t>before if before < finder.window else finder.window


cdef inline size_t match(
    const uint8_t *before, uint64_t octets, const uint8_t *here, const uint8_t *end
) noexcept nogil:
    """How many bytes at `before` are those at `here`, 0 if not a sequence; eight are `octets`."""
    cdef uint64_t difference = load_64(before) ^ octets
    if difference << 16:
        return 0
    if difference:
        return low_bit(difference) >> 3
    return 8 + common(before + 8, here + 8, end)


cdef inline int far(uint32_t distance) noexcept nogil:
    """How many bytes a copy from there takes more than one from near by."""
    return 0 if distance < WIDE else 2


cdef inline size_t pays(entry_t kind, size_t length, uint32_t distance) noexcept nogil:
    """The length if a copy of it saves at least two bytes, else 0."""
    if entry_t is uint32_t:
        return length if length >= <size_t>(3 + offset_size(distance)) else 0
    else:
        return length


cdef uint8_t *write_quickly(
    const Finder *given,
    entry_t *table,
    const uint8_t *here,
    uint8_t *target,
    const uint8_t *limit,
) noexcept nogil:
    """Write the elements for the bytes from `here` to the finder's end.

    Returns the end of the output, NULL if that would be after `limit`.  Up to SPARE bytes after
    the limit are touched, and none after the finder's end.
    """
    cdef Finder own = given[0]
    cdef const Finder *finder = &own
    cdef const uint8_t *end = finder.end
    cdef const uint8_t *low = finder.low
    cdef const uint8_t *last = end - PLACE
    cdef const uint8_t *pending = here
    cdef const uint8_t *following
    cdef size_t length, longer, wanted, slot, effort = 1 << STEP_BITS
    cdef uint64_t octets, ahead
    cdef uint32_t position, distance, other
    cdef int later
    if end - here < PLACE:
        return put_rest(target, limit, pending, end)
    ahead = load_64(here)
    slot = slot_of(finder.bits, ahead)
    while True:
        while True:
            octets = ahead
            position = finder.base + <uint32_t>(here - low)
            distance = <entry_t>(position - table[slot])
            table[slot] = <entry_t>position
            following = here + (effort >> STEP_BITS)
            if following > last:
                return put_rest(target, limit, pending, end)
            # The next place is hashed before it is known whether it is wanted: so no
            # time is lost waiting for the table.
            ahead = load_64(following)
            slot = slot_of(finder.bits, ahead)
            if distance - 1 < reach_at(finder, here):
                length = match(here - distance, octets, here, end)
                if length and pays(<entry_t>0, length, distance):
                    break
            effort += 1
            here = following
        effort = 1 << STEP_BITS
        later = 1
        while length < GOOD and later <= LATER and here + later <= last:
            following = here + later
            octets = load_64(following)
            slot = slot_of(finder.bits, octets)
            position = finder.base + <uint32_t>(following - low)
            other = <entry_t>(position - table[slot])
            table[slot] = <entry_t>position
            # So long a copy would be shorter by a byte, with the literals before it.
            wanted = length + later - far(distance) + far(other)
            later += 1
            if (
                other - 1 < reach_at(finder, following)
                and <ptrdiff_t>wanted <= end - following
                and load_32(following + wanted - 4) == load_32(following + wanted - 4 - other)
            ):
                longer = match(following - other, octets, following, end)
                if longer >= wanted and pays(<entry_t>0, longer, other):
                    here = following
                    length = longer
                    distance = other
                    later = 1
        while (
            here > pending
            and <size_t>(here - low) > distance
            and (here - 1)[0] == (here - 1 - distance)[0]
        ):
            here -= 1
            length += 1
        if here - pending > limit - target:
            return NULL
        target = put_literal(target, pending, here - pending, end)
        target = put_copy(target, length, distance)
        pending = here + length
        if pending > last:
            return put_rest(target, limit, pending, end)
        enter(finder, table, here + 1)
        enter(finder, table, here + 3)
        enter(finder, table, pending - 4)
        enter(finder, table, pending - 2)
        here = pending
        ahead = load_64(here)
        slot = slot_of(finder.bits, ahead)
