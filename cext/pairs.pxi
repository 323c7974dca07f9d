# Two items whose low words combine to one that is wanted.  Needs monoids.pxi.

from libc.stdlib cimport calloc, free, malloc, qsort

cdef enum:
    # So many steps for each item, in the mean, are far more than chance asks for.
    STEPS_MAX = 16

cdef struct Entry:
    uint64_t short
    uint64_t place


cdef inline uint64_t bucket_for(uint64_t short, int bits) noexcept nogil:
    return short * P64_1 >> (64 - bits)


cdef bint find_pair(
    int kind, const uint8_t *shorts, Py_ssize_t count, uint64_t short, uint64_t mask,
    Py_ssize_t *earlier, Py_ssize_t *later,
) except -1:
    """The first item that has a partner before it, and the first such partner.

    Shorts that were made to fall into the same buckets are sorted instead.
    """
    cdef int bits = high_bit(count | 1) + 2
    cdef uint64_t room = (<uint64_t>1 << bits) - 1, bucket, wanted, steps = 0
    cdef uint32_t *table = <uint32_t *>calloc(room + 1, sizeof(uint32_t))
    cdef Py_ssize_t at
    if table == NULL:
        raise MemoryError
    for at in range(count):
        wanted = partner(kind, short, load_64(shorts + 8 * at)) & mask
        bucket = bucket_for(wanted, bits)
        while table[bucket]:
            if load_64(shorts + 8 * (table[bucket] - 1)) & mask == wanted:
                earlier[0], later[0] = table[bucket] - 1, at
                free(table)
                return True
            bucket = (bucket + 1) & room
            steps += 1
        wanted = load_64(shorts + 8 * at) & mask
        bucket = bucket_for(wanted, bits)
        while table[bucket] and load_64(shorts + 8 * (table[bucket] - 1)) & mask != wanted:
            bucket = (bucket + 1) & room
            steps += 1
        if not table[bucket]:
            table[bucket] = <uint32_t>(at + 1)
        if steps > <uint64_t>(STEPS_MAX * count):
            free(table)
            return find_pair_sorted(kind, shorts, count, short, mask, earlier, later)
    free(table)
    return False


cdef int order_by_short(const void *first, const void *second) noexcept nogil:
    cdef const Entry *left = <const Entry *>first
    cdef const Entry *right = <const Entry *>second
    if left.short != right.short:
        return 1 if left.short > right.short else -1
    return (left.place > right.place) - (left.place < right.place)


cdef bint find_pair_sorted(
    int kind, const uint8_t *shorts, Py_ssize_t count, uint64_t short, uint64_t mask,
    Py_ssize_t *earlier, Py_ssize_t *later,
) except -1:
    """The same, in as many steps whatever the shorts are."""
    cdef Entry *entries = <Entry *>malloc(count * sizeof(Entry))
    cdef Py_ssize_t at, low, high, middle
    cdef uint64_t wanted
    cdef bint found = False
    if entries == NULL:
        raise MemoryError
    for at in range(count):
        entries[at].short, entries[at].place = load_64(shorts + 8 * at) & mask, at
    qsort(entries, count, sizeof(Entry), order_by_short)
    for at in range(count):
        wanted = partner(kind, short, load_64(shorts + 8 * at)) & mask
        low, high = 0, count
        while low < high:
            middle = (low + high) >> 1
            if entries[middle].short < wanted:
                low = middle + 1
            else:
                high = middle
        found = low < count and entries[low].short == wanted and (
            entries[low].place < <uint64_t>at
        )
        if found:
            earlier[0], later[0] = entries[low].place, at
            break
    free(entries)
    return found
