# Slots: how items lie in memory and in files, so that comparing eight bytes at a time orders
# them as byte strings.  A slot is the item, zeros up to the largest size, for items of varying
# size the size itself (two bytes, big-endian), and zeros up to a multiple of eight.
# Needs monoids.pxi.

from libc.string cimport memcmp, memcpy, memmove, memset

cdef enum:
    SLOT_SIZE_MAX = 1032

cdef struct Layout:
    int kind
    int words           # of a state
    bint varying
    Py_ssize_t item_size  # the largest one, if sizes vary
    Py_ssize_t stride   # bytes of a slot

cdef struct Run:
    # Consecutive items: all that is known of them without touching them.
    uint64_t rank       # of the first one
    Py_ssize_t count
    const uint8_t *slots
    const uint8_t *shorts
    const uint64_t *whole  # the state of them all, or NULL
    uint64_t[WORDS_MAX] room  # where that may lie


cdef int lay_out(Layout *layout, int kind, Py_ssize_t item_size, bint varying) except -1:
    layout.words = words_of(kind)
    if not 1 <= item_size <= SIZE_MAX:
        raise ValueError(f"an item has 1 to {SIZE_MAX} bytes")
    layout.kind = kind
    layout.varying = varying
    layout.item_size = item_size
    layout.stride = (item_size + (2 if varying else 0) + 7) & ~<Py_ssize_t>7
    return 0


cdef inline void put_slot(
    const Layout *layout, uint8_t *slot, const uint8_t *item, Py_ssize_t size
) noexcept nogil:
    memset(slot + layout.stride - 8, 0, 8)
    memcpy(slot, item, size)
    if layout.varying:
        memset(slot + size, 0, layout.item_size - size)
        slot[layout.item_size] = <uint8_t>(size >> 8)
        slot[layout.item_size + 1] = <uint8_t>size
    elif size < layout.item_size:
        memset(slot + size, 0, layout.item_size - size)


cdef inline Py_ssize_t size_in(const Layout *layout, const uint8_t *slot) noexcept nogil:
    """The size of the item, never more than there is room for."""
    cdef Py_ssize_t size
    if not layout.varying:
        return layout.item_size
    size = slot[layout.item_size] << 8 | slot[layout.item_size + 1]
    return min(size, layout.item_size)


cdef inline void lift_slot(
    const Layout *layout, uint64_t *state, const uint8_t *slot
) noexcept nogil:
    lift_into(layout.kind, state, slot, size_in(layout, slot))


cdef inline bytes item_in(const Layout *layout, const uint8_t *slot):
    return PyBytes_FromStringAndSize(<const char *>slot, size_in(layout, slot))


cdef inline int order(const Layout *layout, const uint8_t *a, const uint8_t *b) noexcept nogil:
    """Below, equal to or above 0, as `a` is to `b`."""
    cdef uint64_t first, second
    cdef Py_ssize_t at
    for at in range(0, layout.stride, 8):
        first, second = load_64_be(a + at), load_64_be(b + at)
        if first != second:
            return -1 if first < second else 1
    return 0


cdef inline Py_ssize_t below(
    const Layout *layout, const uint8_t *slots, Py_ssize_t count, const uint8_t *key, bint through
) noexcept nogil:
    """How many of `count` ascending slots are below `key`, or, with `through`, not above it."""
    cdef uint64_t first = load_64_be(key)
    cdef Py_ssize_t low = 0, left = count, half, middle
    # Without branches, for which way it goes cannot be foretold.
    while left > 1:
        half = left >> 1
        low += half & -<Py_ssize_t>(load_64_be(slots + (low + half - 1) * layout.stride) < first)
        left -= half
    if left:
        low += load_64_be(slots + low * layout.stride) < first
    if low == count or load_64_be(slots + low * layout.stride) != first:
        return low
    # Of those that begin as the key does, all the bytes are looked at.
    left = count
    while low < left:
        middle = (low + left) >> 1
        if order(layout, slots + middle * layout.stride, key) < <int>through:
            low = middle + 1
        else:
            left = middle
    return low


cdef int put_item(const Layout *layout, uint8_t *slot, bytes item) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(item)
    if size > layout.item_size or (size < layout.item_size and not layout.varying):
        most = "at most " if layout.varying else ""
        raise ValueError(f"an item has {most}{layout.item_size} bytes, not {size}")
    put_slot(layout, slot, <const uint8_t *>PyBytes_AS_STRING(item), size)
    return 0


cdef bint put_bound(const Layout *layout, uint8_t *slot, bytes bound) noexcept:
    """Whether an item equal to the slot is below `bound`: it is where that is longer."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(bound)
    put_slot(
        layout, slot, <const uint8_t *>PyBytes_AS_STRING(bound), min(size, layout.item_size)
    )
    return size > layout.item_size


cdef void add_items(
    const Layout *layout, uint64_t *state, const uint8_t *slots, Py_ssize_t count
) noexcept nogil:
    cdef uint64_t[WORDS_MAX] lifted
    cdef Py_ssize_t place
    for place in range(count):
        lift_slot(layout, lifted, slots + place * layout.stride)
        add(layout.kind, state, lifted)


cdef void take_items_away(
    const Layout *layout, uint64_t *state, const uint8_t *slots, Py_ssize_t count
) noexcept nogil:
    cdef uint64_t[WORDS_MAX] lifted
    cdef Py_ssize_t place
    for place in range(count):
        lift_slot(layout, lifted, slots + place * layout.stride)
        take_away(layout.kind, state, lifted)


cdef void add_some(
    const Layout *layout, uint64_t *state, const Run *run, Py_ssize_t count
) noexcept nogil:
    """Add the first `count` items of a run."""
    if run.whole != NULL and 2 * count > run.count:
        add(layout.kind, state, run.whole)
        take_items_away(
            layout, state, run.slots + count * layout.stride, run.count - count
        )
    else:
        add_items(layout, state, run.slots, count)
