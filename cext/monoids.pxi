# The monoids (all of them are groups): a state is an array of 64-bit words.  Two words for
# sums and XORs of XXH3, the low one first; 256 for LtHash, four numbers of 16 bits in each.

include "octets.pxi"
include "xxh3.pxi"
include "lthash.pxi"

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

cdef enum Kind:
    SUM_KIND = 0
    XOR_KIND = 1
    LTHASH_KIND = 2

cdef enum:
    WORDS_MAX = LTHASH_WORDS
    SIZE_MAX = 1024

cdef extern from *:
    """
    static CYTHON_INLINE void culm_store_64(uint8_t *p, uint64_t value) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(p, &value, 8);
    #else
        p[0] = (uint8_t)value;         p[1] = (uint8_t)(value >> 8);
        p[2] = (uint8_t)(value >> 16); p[3] = (uint8_t)(value >> 24);
        p[4] = (uint8_t)(value >> 32); p[5] = (uint8_t)(value >> 40);
        p[6] = (uint8_t)(value >> 48); p[7] = (uint8_t)(value >> 56);
    #endif
    }
    """
    # Little-endian store.
    void store_64 "culm_store_64"(uint8_t *p, uint64_t value) noexcept nogil


cdef int words_of(int kind) except -1:
    if kind == LTHASH_KIND:
        return LTHASH_WORDS
    if kind == SUM_KIND or kind == XOR_KIND:
        return 2
    raise ValueError(f"no monoid has the number {kind}")


cdef inline void clear(int kind, uint64_t *state) noexcept nogil:
    memset(state, 0, 8 * (LTHASH_WORDS if kind == LTHASH_KIND else 2))


cdef inline void add(int kind, uint64_t *into, const uint64_t *other) noexcept nogil:
    if kind == SUM_KIND:
        into[0] += other[0]
        into[1] += other[1] + (into[0] < other[0])
    elif kind == XOR_KIND:
        into[0] ^= other[0]
        into[1] ^= other[1]
    else:
        add_numbers(into, into, other)


cdef inline void take_away(int kind, uint64_t *into, const uint64_t *other) noexcept nogil:
    if kind == SUM_KIND:
        into[1] -= other[1] + (into[0] < other[0])
        into[0] -= other[0]
    elif kind == XOR_KIND:
        into[0] ^= other[0]
        into[1] ^= other[1]
    else:
        take_numbers(into, into, other)


# The low word of a state is a state of its own.

cdef inline uint64_t plus(int kind, uint64_t first, uint64_t second) noexcept nogil:
    """Two shorts, combined."""
    if kind == SUM_KIND:
        return first + second
    if kind == XOR_KIND:
        return first ^ second
    return add_four(first, second)


cdef inline uint64_t partner(int kind, uint64_t short, uint64_t other) noexcept nogil:
    """The short that combined with `other` gives `short`."""
    if kind == SUM_KIND:
        return short - other
    if kind == XOR_KIND:
        return short ^ other
    return take_four(short, other)


cdef inline void lift_into(
    int kind, uint64_t *state, const uint8_t *p, Py_ssize_t size
) noexcept nogil:
    """Make `state` that of one item."""
    cdef Hash hash
    if kind == LTHASH_KIND:
        lift_lthash(state, p, size)
    else:
        hash = xxh3(p, size)
        state[0] = hash.low
        state[1] = hash.high


cdef bytes pack(int kind, const uint64_t *state):
    """The state as bytes: big-endian, or 1024 little-endian numbers of 16 bits."""
    cdef int at, words = words_of(kind)
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, 8 * words)
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(packed)
    if kind == LTHASH_KIND:
        for at in range(words):
            store_64(p + 8 * at, state[at])
    else:
        store_64_be(p, state[1])
        store_64_be(p + 8, state[0])
    return packed


cdef inline void load_state(int kind, uint64_t *state, const uint8_t *p) noexcept nogil:
    cdef int at
    if kind == LTHASH_KIND:
        for at in range(LTHASH_WORDS):
            state[at] = load_64(p + 8 * at)
    else:
        state[1] = load_64_be(p)
        state[0] = load_64_be(p + 8)


cdef inline uint64_t low_word(int kind, const uint8_t *p) noexcept nogil:
    """That of a packed state."""
    return load_64(p) if kind == LTHASH_KIND else load_64_be(p + 8)
