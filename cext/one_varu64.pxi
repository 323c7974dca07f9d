# One VarU64, read and written: for the kernel of that name, and for those of formats that
# hold some.  Included as text, after octets.pxi.

cdef enum:
    FAULT_TRUNCATED = -1
    FAULT_NON_CANONICAL = -2
    # First bytes from here on announce 1..8 further bytes.
    WIDE = 248
    ENCODED_SIZE_MAX = 9


cdef inline int size_of(uint64_t value) noexcept nogil:
    return 1 + (value >= WIDE) * octets_of(value)


cdef inline Py_ssize_t decode_one(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t offset, bint canonical, uint64_t *value
) noexcept nogil:
    """Where the value that starts at `offset` ends, or a fault."""
    cdef int octets
    value[0] = 0
    if offset >= size:
        return FAULT_TRUNCATED
    if data[offset] < WIDE:
        value[0] = data[offset]
        return offset + 1
    octets = data[offset] - (WIDE - 1)
    if size - offset > 8:
        value[0] = load_64_be(data + offset + 1) >> (64 - 8 * octets)
    elif size - offset > octets:
        value[0] = load_be(data + offset + 1, octets)
    else:
        return FAULT_TRUNCATED
    if canonical and size_of(value[0]) <= octets:
        value[0] = 0
        return FAULT_NON_CANONICAL
    return offset + 1 + octets


cdef inline uint8_t *encode_one(uint8_t *target, uint64_t value) noexcept nogil:
    """Write `value` where there is room for the longest one; return where it ends."""
    cdef int zeros = 63 - high_bit(value | 1)
    cdef Py_ssize_t octets = 8 - (zeros >> 3)
    cdef Py_ssize_t wide = 0 - <Py_ssize_t>(value >= WIDE)
    target[0] = <uint8_t>(<Py_ssize_t>value & ~wide | (WIDE - 1 + octets) & wide)
    store_64_be(target + 1, value << (zeros & 56))
    return target + 1 + (octets & wide)
