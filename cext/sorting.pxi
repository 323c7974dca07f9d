# Sorting items of one size: the first eight bytes of each, as a number, go with its index
# through buckets of equal width between the lowest and the highest; small ones are sorted by
# insertion, and where the numbers are all the same the next eight bytes take their place.
# Needs monoids.pxi.

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

cdef enum:
    FEW = 24            # up to that number are sorted by insertion
    BUCKET_BITS_MIN = 4
    BUCKET_BITS_MAX = 10

cdef struct Record:
    uint64_t part
    Py_ssize_t index

cdef struct Items:
    const uint8_t *data
    Py_ssize_t size


cdef inline uint64_t part_of(const Items *items, Py_ssize_t index, Py_ssize_t at) noexcept nogil:
    """The eight bytes of an item at `at`, zeros after its end."""
    cdef const uint8_t *item = items.data + index * items.size
    cdef Py_ssize_t left = items.size - at
    if left >= 8:
        return load_64_be(item + at)
    return load_be(item + at, <int>left) << (64 - 8 * left)


cdef inline bint is_less(
    const Items *items, const Record *a, const Record *b, Py_ssize_t at
) noexcept nogil:
    if a.part != b.part:
        return a.part < b.part
    if items.size - at <= 8:
        return False
    return memcmp(
        items.data + a.index * items.size + at + 8,
        items.data + b.index * items.size + at + 8,
        items.size - at - 8,
    ) < 0


cdef void sort_few(
    const Items *items, Record *records, Py_ssize_t count, Py_ssize_t at
) noexcept nogil:
    cdef Py_ssize_t index, place
    cdef Record record
    for index in range(1, count):
        record = records[index]
        place = index
        while place and is_less(items, &record, records + place - 1, at):
            records[place] = records[place - 1]
            place -= 1
        records[place] = record


cdef int sort_records(
    const Items *items, Record *records, Record *room, Py_ssize_t count, Py_ssize_t at
) noexcept nogil:
    """Sort by the bytes from `at` on, of which each record holds eight; -1: out of memory."""
    cdef uint64_t low, high
    cdef Py_ssize_t index, start, stop, buckets
    cdef Py_ssize_t *ends
    cdef int bits, shift, failed = 0
    while count > FEW:
        low = high = records[0].part
        for index in range(1, count):
            low = min(low, records[index].part)
            high = max(high, records[index].part)
        if low != high:
            break
        at += 8
        if at >= items.size:
            return 0
        for index in range(count):
            records[index].part = part_of(items, records[index].index, at)
    if count <= FEW:
        sort_few(items, records, count, at)
        return 0
    bits = min(max(high_bit(count) - 1, BUCKET_BITS_MIN), BUCKET_BITS_MAX)
    shift = max(high_bit(high - low) + 1 - bits, 0)
    buckets = <Py_ssize_t>((high - low) >> shift) + 1
    ends = <Py_ssize_t *>calloc(buckets, sizeof(Py_ssize_t))
    if ends == NULL:
        return -1
    for index in range(count):
        ends[(records[index].part - low) >> shift] += 1
    start = 0
    for index in range(buckets):
        stop = start + ends[index]
        ends[index] = start
        start = stop
    memcpy(room, records, count * sizeof(Record))
    for index in range(count):
        start = (room[index].part - low) >> shift
        records[ends[start]] = room[index]
        ends[start] += 1
    start = 0
    for index in range(buckets):
        stop = ends[index]
        if stop - start > 1 and not failed:
            failed = sort_records(items, records + start, room + start, stop - start, at)
        start = stop
    free(ends)
    return failed
