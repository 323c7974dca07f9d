# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Fingerprints: the compiled twin of `culm.kernels.pure_fingerprint`, their specification."""

include "monoids.pxi"

SUM = SUM_KIND
XOR = XOR_KIND
LTHASH = LTHASH_KIND
ITEM_SIZE_MAX = SIZE_MAX


cdef inline void lift_more(
    int kind, uint64_t *total, const uint8_t *p, Py_ssize_t size, Py_ssize_t count
) noexcept nogil:
    """Combine `total` with `count` consecutive items.

    Numbers of LtHash are left as they come: `in_order` follows in the end.
    """
    cdef uint64_t[WORDS_MAX] state
    cdef Hash hash
    cdef uint64_t low = total[0], high = total[1]
    cdef Py_ssize_t index
    if kind == SUM_KIND:
        for index in range(count):
            hash = xxh3(p + index * size, size)
            low += hash.low
            high += hash.high + (low < hash.low)
        total[0], total[1] = low, high
        return
    for index in range(count):
        if kind == LTHASH_KIND:
            lift_rows(state, p + index * size, size)
        else:
            lift_into(kind, state, p + index * size, size)
        add(kind, total, state)


cdef bytes pack_lifted(int kind, const uint64_t *total):
    """The result of `lift_more`, as bytes."""
    cdef uint64_t[WORDS_MAX] words
    if kind != LTHASH_KIND:
        return pack(kind, total)
    in_order(words, total)
    return pack(kind, words)


def xxh3_128(data not None):
    cdef const uint8_t[::1] view = data
    cdef uint64_t[2] state
    cdef Hash hash
    hash = xxh3(&view[0], view.shape[0])
    state[0], state[1] = hash.low, hash.high
    return int.from_bytes(pack(SUM_KIND, state), "big")


def neutral(int kind):
    return bytes(8 * words_of(kind))


def lift(int kind, bytes item not None):
    cdef uint64_t[WORDS_MAX] state
    words_of(kind)
    if PyBytes_GET_SIZE(item) > SIZE_MAX:
        raise ValueError(f"an item has at most {SIZE_MAX} bytes")
    lift_into(kind, state, <const uint8_t *>PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item))
    return pack(kind, state)


def lift_many(int kind, data not None, Py_ssize_t size):
    cdef const uint8_t[::1] view = data
    cdef uint64_t[WORDS_MAX] total
    words_of(kind)
    if not 1 <= size <= SIZE_MAX:
        raise ValueError(f"an item has 1 to {SIZE_MAX} bytes")
    if view.shape[0] % size:
        raise ValueError("the items do not fill the buffer")
    clear(kind, total)
    with nogil:
        lift_more(kind, total, &view[0], size, view.shape[0] // size)
    return pack_lifted(kind, total)


def lift_cut(int kind, data not None, offsets not None):
    cdef const uint8_t[::1] view = data
    cdef const uint64_t[::1] cuts = offsets
    cdef uint64_t[WORDS_MAX] total
    cdef Py_ssize_t index
    words_of(kind)
    clear(kind, total)
    for index in range(cuts.shape[0]):
        if cuts[index] > <uint64_t>view.shape[0] or (index and cuts[index] < cuts[index - 1]):
            raise ValueError("offsets ascend and stay inside the buffer")
        if index and cuts[index] - cuts[index - 1] > SIZE_MAX:
            raise ValueError(f"an item has at most {SIZE_MAX} bytes")
    with nogil:
        for index in range(1, cuts.shape[0]):
            lift_more(
                kind, total, &view[0] + cuts[index - 1], cuts[index] - cuts[index - 1], 1
            )
    return pack_lifted(kind, total)


cdef int check_size(int kind, bytes packed) except -1:
    if PyBytes_GET_SIZE(packed) != 8 * words_of(kind):
        raise ValueError(f"a state of this monoid has {8 * words_of(kind)} bytes")
    return 0


cdef bytes merged(int kind, bytes first, bytes second, bint away):
    cdef uint64_t[WORDS_MAX] total, other
    cdef bytes packed
    check_size(kind, first)
    check_size(kind, second)
    if kind == LTHASH_KIND and WORDS_ARE_BYTES:
        packed = PyBytes_FromStringAndSize(NULL, 8 * LTHASH_WORDS)
        (take_numbers if away else add_numbers)(
            PyBytes_AS_STRING(packed), PyBytes_AS_STRING(first), PyBytes_AS_STRING(second)
        )
        return packed
    load_state(kind, total, <const uint8_t *>PyBytes_AS_STRING(first))
    load_state(kind, other, <const uint8_t *>PyBytes_AS_STRING(second))
    if away:
        take_away(kind, total, other)
    else:
        add(kind, total, other)
    return pack(kind, total)


def combine(int kind, bytes first not None, bytes second not None):
    return merged(kind, first, second, False)


def subtract(int kind, bytes first not None, bytes second not None):
    return merged(kind, first, second, True)
