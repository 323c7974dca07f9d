# LZFoo's elements, written and measured, a part of lzfoo.pyx.

from libc.stddef cimport ptrdiff_t
from libc.string cimport memcpy

cdef enum:
    # An element's first byte: the top bit, and the meanings of the other seven.
    COPY = 0x80
    LONG = 120
    # The first byte of a VarU64 offset from which on 1..8 bytes follow.
    WIDE = 248

    # Copying some bytes too many in large steps is faster than copying the exact number; where
    # that is done, that number of bytes may be written after the end.
    SPARE = 64


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
    uint8_t *target, const uint8_t *data, size_t length, const uint8_t *end
) noexcept nogil:
    """Write a literal element of bytes before `end`; up to 31 bytes after it are touched."""
    if length == 0:
        return target
    target = put_header(target, length, 0)
    if length <= 32 and end - data >= 32:
        memcpy(target, data, 16)
        memcpy(target + 16, data + 16, 16)
    else:
        memcpy(target, data, length)
    return target + length


cdef inline uint8_t *put_rest(
    uint8_t *target, const uint8_t *limit, const uint8_t *data, const uint8_t *end
) noexcept nogil:
    """Write all up to `end` as a literal element, or return NULL if it would end after `limit`."""
    cdef size_t length = end - data
    cdef ptrdiff_t size = header_size(length) + length if length else 0
    return NULL if limit - target < size else put_literal(target, data, length, end)
