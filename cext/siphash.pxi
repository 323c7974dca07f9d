# SipHash-2-4 with 128 bits (Aumasson and Bernstein 2012; veorq/SipHash).  Needs octets.pxi.

cdef struct SipKey:
    uint64_t low
    uint64_t high


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return value << bits | value >> (64 - bits)


cdef inline void sip_rounds(uint64_t *v, int count) noexcept nogil:
    cdef uint64_t a = v[0], b = v[1], c = v[2], d = v[3]
    cdef int index
    for index in range(count):
        a += b
        b = rotate(b, 13) ^ a
        a = rotate(a, 32)
        c += d
        d = rotate(d, 16) ^ c
        a += d
        d = rotate(d, 21) ^ a
        c += b
        b = rotate(b, 17) ^ c
        c = rotate(c, 32)
    v[0], v[1], v[2], v[3] = a, b, c, d


cdef inline void take_in(uint64_t *v, uint64_t word) noexcept nogil:
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word


cdef void sip_hash(
    const SipKey *key, uint64_t *state, const uint8_t *data, Py_ssize_t size
) noexcept nogil:
    """The low and the high word of the hash, which is little-endian."""
    cdef uint64_t[4] v
    cdef uint64_t last = <uint64_t>size << 56
    cdef Py_ssize_t at
    v[0] = key.low ^ <uint64_t>0x736f6d6570736575
    v[1] = key.high ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    v[2] = key.low ^ <uint64_t>0x6c7967656e657261
    v[3] = key.high ^ <uint64_t>0x7465646279746573
    for at in range(0, size - 7, 8):
        take_in(v, load_64(data + at))
    for at in range(size & 7):
        last |= <uint64_t>data[(size & ~<Py_ssize_t>7) + at] << (8 * at)
    take_in(v, last)
    v[2] ^= 0xee
    sip_rounds(v, 4)
    state[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    sip_rounds(v, 4)
    state[1] = v[0] ^ v[1] ^ v[2] ^ v[3]
