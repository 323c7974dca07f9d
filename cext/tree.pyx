# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fingerprint trees: the compiled twin of `culm.kernels.pure_tree`, their specification."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

include "monoids.pxi"
include "slots.pxi"
include "btree.pxi"
include "trail.pxi"
include "pairs.pxi"
include "sorting.pxi"

WIDTH = WIDTH_USUAL
BLOCK = 64

cdef enum:
    BLOCK_ITEMS = 64
    PAIR_ITEMS_MAX = 16777216

cdef class View:
    cdef Layout layout

    def __cinit__(self, *arguments, **named):
        # No other class fills in the fields that the methods rely on.
        if not isinstance(self, (Tree, Snapshot, Frozen)):
            raise TypeError("only trees, their snapshots and frozen trees are views")

    # The primitives of a store of items; all the rest is made of them.

    cdef uint64_t size(self) noexcept:
        return 0

    cdef void seek(self, const uint8_t *key, Run *run, uint64_t *state) noexcept:
        """The run where `key` is, or would be.

        The states of the items before that run are added to `state` if not NULL.
        """

    cdef void seek_rank(self, uint64_t rank, Run *run, uint64_t *state) noexcept:
        """The run of the item at `rank`, at the end the last one; else as `seek`."""

    # The same for a walk from place to place along `trail`: the result is the combined low
    # words of the states before that run.

    cdef uint64_t walk_to_key(self, Trail *trail, const uint8_t *key, Run *run) noexcept:
        return 0

    cdef uint64_t walk_to_rank(self, Trail *trail, uint64_t rank, Run *run) noexcept:
        return 0

    cdef uint64_t settle(
        self, const Run *run, const uint8_t *key, bint through, uint64_t *state
    ) noexcept:
        """The rank of `key`, once its run is found; `state` becomes that of all below it."""
        cdef Py_ssize_t place = below(&self.layout, run.slots, run.count, key, through)
        if state != NULL:
            add_some(&self.layout, state, run, place)
        return run.rank + place

    cdef void add_first(self, uint64_t rank, uint64_t *state) noexcept:
        """Add the states of the first `rank` items to `state`."""
        cdef Run run
        self.seek_rank(rank, &run, state)
        add_some(&self.layout, state, &run, <Py_ssize_t>(rank - run.rank))

    cdef void piece(self, uint64_t rank, uint64_t stop, Run *run) noexcept:
        """The item at `rank`, and those after it that are at hand, up to `stop`."""
        cdef Py_ssize_t place
        self.seek_rank(rank, run, NULL)
        place = <Py_ssize_t>(rank - run.rank)
        run.slots += place * self.layout.stride
        run.shorts += 8 * place
        run.rank = rank
        run.count = <Py_ssize_t>min(<uint64_t>(run.count - place), stop - rank)

    cdef uint64_t rank_of(self, bytes bound):
        cdef uint8_t[SLOT_SIZE_MAX] slot
        cdef bint through = put_bound(&self.layout, slot, bound)
        cdef Run run
        self.seek(slot, &run, NULL)
        return self.settle(&run, slot, through, NULL)

    # Ranges of keys and of ranks, each a ring.

    cdef int cut(self, start, count, uint64_t *cuts) except -1:
        """Cut a ring's range at its end: items cuts[0]..cuts[1], then cuts[2]..cuts[3]."""
        cdef uint64_t size = self.size()
        if not (0 <= start <= size and 0 <= count <= size):
            raise ValueError(f"no range of {size} items: {count} from {start} on")
        cuts[0] = start
        cuts[1] = cuts[0] + min(size - cuts[0], <uint64_t>count)
        cuts[2] = 0
        cuts[3] = <uint64_t>count - (cuts[1] - cuts[0])
        return 0

    @property
    def kind(self):
        return self.layout.kind

    @property
    def item_size(self):
        return self.layout.item_size

    @property
    def varying(self):
        return self.layout.varying

    def still(self):
        return self

    def __len__(self):
        return self.size()

    def __contains__(self, bytes item not None):
        cdef uint8_t[SLOT_SIZE_MAX] slot
        cdef Py_ssize_t place
        cdef Run run
        put_item(&self.layout, slot, item)
        self.seek(slot, &run, NULL)
        place = below(&self.layout, run.slots, run.count, slot, False)
        return place < run.count and order(
            &self.layout, run.slots + place * self.layout.stride, slot
        ) == 0

    def rank(self, bytes bound not None):
        return self.rank_of(bound)

    def range(self, bytes start not None, bytes stop not None):
        cdef uint64_t first = self.rank_of(start), last = self.rank_of(stop)
        if start < stop:
            return first, last - first
        return first, self.size() - first + last

    def fingerprint(self, bytes start not None, bytes stop not None):
        cdef uint8_t[SLOT_SIZE_MAX] start_slot, stop_slot
        cdef uint64_t[WORDS_MAX] total, before
        cdef Run start_run, stop_run
        cdef uint64_t count
        cdef bint through_start = put_bound(&self.layout, start_slot, start)
        cdef bint through_stop = put_bound(&self.layout, stop_slot, stop)
        clear(self.layout.kind, total)
        clear(self.layout.kind, before)
        # One waits for memory while the other is looked for.
        self.seek(start_slot, &start_run, before)
        self.seek(stop_slot, &stop_run, total)
        count = self.settle(&stop_run, stop_slot, through_stop, total)
        count -= self.settle(&start_run, start_slot, through_start, before)
        if start >= stop:
            count += self.size()
            self.add_first(self.size(), total)
        take_away(self.layout.kind, total, before)
        return count, pack(self.layout.kind, total)

    def sum(self, start, count):
        cdef uint64_t[WORDS_MAX] total, before
        cdef uint64_t[4] cuts
        cdef Run start_run, stop_run
        self.cut(start, count, cuts)
        clear(self.layout.kind, total)
        clear(self.layout.kind, before)
        self.seek_rank(cuts[0], &start_run, before)
        self.seek_rank(cuts[1], &stop_run, total)
        add_some(&self.layout, before, &start_run, <Py_ssize_t>(cuts[0] - start_run.rank))
        add_some(&self.layout, total, &stop_run, <Py_ssize_t>(cuts[1] - stop_run.rank))
        take_away(self.layout.kind, total, before)
        self.add_first(cuts[3], total)
        return pack(self.layout.kind, total)

    def select(self, rank):
        cdef Run run
        if not 0 <= rank < self.size():
            raise IndexError(f"no item has the rank {rank}")
        self.piece(rank, self.size(), &run)
        return item_in(&self.layout, run.slots)

    def read(self, start, count):
        cdef uint64_t[4] cuts
        cdef list items = []
        cdef Run run
        cdef Py_ssize_t at, half
        self.cut(start, count, cuts)
        for half in range(0, 4, 2):
            while cuts[half] < cuts[half + 1]:
                self.piece(cuts[half], cuts[half + 1], &run)
                for at in range(run.count):
                    items.append(item_in(&self.layout, run.slots + at * self.layout.stride))
                cuts[half] += run.count
        return items

    cdef bytes gather(self, start, count, bint shorts):
        cdef uint64_t[4] cuts
        cdef Py_ssize_t stride = 8 if shorts else self.layout.stride, half
        cdef Run run
        cdef bytes data
        cdef uint8_t *target
        self.cut(start, count, cuts)
        data = PyBytes_FromStringAndSize(NULL, count * stride)
        target = <uint8_t *>PyBytes_AS_STRING(data)
        for half in range(0, 4, 2):
            while cuts[half] < cuts[half + 1]:
                self.piece(cuts[half], cuts[half + 1], &run)
                memcpy(target, run.shorts if shorts else run.slots, run.count * stride)
                target += run.count * stride
                cuts[half] += run.count
        return data

    def slots(self, start, count):
        return self.gather(start, count, False)

    def shorts(self, start, count):
        return self.gather(start, count, True)

    def find(self, start, count, uint64_t short, uint64_t mask):
        cdef uint64_t[4] cuts
        cdef Run run
        cdef Py_ssize_t at, half
        self.cut(start, count, cuts)
        for half in range(0, 4, 2):
            while cuts[half] < cuts[half + 1]:
                self.piece(cuts[half], cuts[half + 1], &run)
                for at in range(run.count):
                    if not (load_64(run.shorts + 8 * at) ^ short) & mask:
                        return item_in(&self.layout, run.slots + at * self.layout.stride)
                cuts[half] += run.count
        return None

    def find_pair(self, start, count, uint64_t short, uint64_t mask):
        cdef bytes data
        cdef Py_ssize_t earlier, later
        if count > PAIR_ITEMS_MAX:
            raise ValueError(f"pairs are looked for among at most {PAIR_ITEMS_MAX} items")
        data = self.shorts(start, count)
        if not find_pair(
            self.layout.kind, <const uint8_t *>PyBytes_AS_STRING(data), count, short, mask,
            &earlier, &later,
        ):
            return None
        size = self.size()
        return self.select((start + earlier) % size), self.select((start + later) % size)

    def blocks(self, uint64_t first, uint64_t last):
        cdef uint64_t[WORDS_MAX] state
        cdef uint64_t block
        cdef list lowest = [], states = []
        if not first <= last <= (self.size() + BLOCK_ITEMS - 1) // BLOCK_ITEMS + 1:
            raise ValueError("no such blocks")
        for block in range(first, last):
            if block * BLOCK_ITEMS < self.size():
                lowest.append(self.slots(block * BLOCK_ITEMS, 1))
            clear(self.layout.kind, state)
            self.add_first(min(block * BLOCK_ITEMS, self.size()), state)
            states.append(pack(self.layout.kind, state))
        return b"".join(lowest), b"".join(states)


cdef class Versioned(View):
    """The live tree or a snapshot of it."""

    cdef Store *store
    cdef Version *version

    def __dealloc__(self):
        if self.store != NULL:
            if self.version != &self.store.live:
                release_snapshot(self.store, self.version)
            leave_store(self.store)

    cdef uint64_t size(self) noexcept:
        return self.version.count

    cdef void seek(self, const uint8_t *key, Run *run, uint64_t *state) noexcept:
        seek_key(self.store, self.version, key, run, state)

    cdef void seek_rank(self, uint64_t rank, Run *run, uint64_t *state) noexcept:
        seek_rank(self.store, self.version, rank, run, state)

    cdef uint64_t walk_to_key(self, Trail *trail, const uint8_t *key, Run *run) noexcept:
        walk_to_key(self.store, self.version, trail, key)
        return leaf_of(self.store, self.version, trail, run)

    cdef uint64_t walk_to_rank(self, Trail *trail, uint64_t rank, Run *run) noexcept:
        walk_to_rank(self.store, self.version, trail, rank)
        return leaf_of(self.store, self.version, trail, run)


@cython.final
cdef class Snapshot(Versioned):
    def __cinit__(self, Tree tree not None):
        self.version = take_snapshot(tree.store)
        self.store = tree.store
        self.store.references += 1
        self.layout = tree.layout


@cython.final
cdef class Tree(Versioned):
    def __cinit__(self, int kind, Py_ssize_t item_size, bint varying=False, Py_ssize_t width=WIDTH_USUAL):
        self.store = new_store(kind, item_size, varying, width)
        self.version = &self.store.live
        self.layout = self.store.layout

    @property
    def memory(self):
        return self.store.memory

    def insert(self, bytes item not None):
        cdef uint8_t[SLOT_SIZE_MAX] slot
        put_item(&self.layout, slot, item)
        return insert(self.store, slot)

    def insert_many(self, data not None):
        cdef const uint8_t[::1] view = data
        cdef uint8_t[SLOT_SIZE_MAX] slot
        cdef Py_ssize_t at, size = self.layout.item_size, before = self.store.live.count
        if self.layout.varying:
            raise ValueError("items of varying size are inserted one by one")
        if view.shape[0] % size:
            raise ValueError("the items do not fill the buffer")
        for at in range(0, view.shape[0] // size):
            put_slot(&self.layout, slot, &view[at * size], size)
            insert(self.store, slot)
        return self.store.live.count - before

    def discard(self, bytes item not None):
        cdef uint8_t[SLOT_SIZE_MAX] slot
        put_item(&self.layout, slot, item)
        return discard(self.store, slot)

    def snapshot(self):
        return Snapshot(self)

    def still(self):
        return self.snapshot()

    def load(self, data not None, offsets=None):
        cdef const uint8_t[::1] view = data
        cdef const uint64_t[::1] cuts
        cdef Py_ssize_t at
        if self.store.live.count:
            raise ValueError("the tree is not empty")
        if offsets is None:
            if self.layout.varying:
                raise ValueError("items of varying size need offsets")
            if view.shape[0] % self.layout.item_size:
                raise ValueError("the items do not fill the buffer")
            load(self.store, &view[0], NULL, view.shape[0] // self.layout.item_size)
            return
        cuts = offsets
        for at in range(cuts.shape[0]):
            if cuts[at] > <uint64_t>view.shape[0] or (at and cuts[at] < cuts[at - 1]):
                raise ValueError("offsets ascend and stay inside the buffer")
            if at and cuts[at] - cuts[at - 1] > <uint64_t>self.layout.item_size:
                raise ValueError(f"an item has at most {self.layout.item_size} bytes")
            if at and not self.layout.varying and (
                cuts[at] - cuts[at - 1] != <uint64_t>self.layout.item_size
            ):
                raise ValueError(f"an item has {self.layout.item_size} bytes")
        load(self.store, &view[0], &cuts[0], max(cuts.shape[0] - 1, 0))


@cython.final
cdef class Frozen(View):
    cdef Py_buffer[4] buffers
    cdef int held
    cdef uint64_t count
    cdef uint64_t blocks_count
    cdef const uint8_t *all_slots
    cdef const uint8_t *all_shorts
    cdef const uint8_t *lowest
    cdef const uint8_t *states

    def __cinit__(
        self, int kind, Py_ssize_t item_size, bint varying, count, slots, shorts, lowest, states
    ):
        lay_out(&self.layout, kind, item_size, varying)
        blocks = (count + BLOCK_ITEMS - 1) // BLOCK_ITEMS
        sizes = (
            count * self.layout.stride,
            count * 8,
            blocks * self.layout.stride,
            (blocks + 1) * 8 * self.layout.words,
        )
        for part, size in zip((slots, shorts, lowest, states), sizes):
            PyObject_GetBuffer(part, &self.buffers[self.held], PyBUF_SIMPLE)
            self.held += 1
            if self.buffers[self.held - 1].len != size:
                raise ValueError("a section has not the size that the count asks for")
        self.count = count
        self.blocks_count = blocks
        self.all_slots = <const uint8_t *>self.buffers[0].buf
        self.all_shorts = <const uint8_t *>self.buffers[1].buf
        self.lowest = <const uint8_t *>self.buffers[2].buf
        self.states = <const uint8_t *>self.buffers[3].buf

    def __dealloc__(self):
        cdef int part
        for part in range(self.held):
            PyBuffer_Release(&self.buffers[part])

    cdef uint64_t size(self) noexcept:
        return self.count

    cdef void seek(self, const uint8_t *key, Run *run, uint64_t *state) noexcept:
        self.seek_block(self.block_for(key), run, state)

    cdef uint64_t block_for(self, const uint8_t *key) noexcept:
        if self.count == 0:
            return 0
        return below(
            &self.layout, self.lowest + self.layout.stride, self.blocks_count - 1, key, True
        )

    cdef uint64_t block_with(self, uint64_t rank) noexcept:
        return min(rank // BLOCK_ITEMS, self.blocks_count - 1) if self.count else 0

    cdef uint64_t walk_to_key(self, Trail *trail, const uint8_t *key, Run *run) noexcept:
        return self.walk_to_block(self.block_for(key), run)

    cdef uint64_t walk_to_rank(self, Trail *trail, uint64_t rank, Run *run) noexcept:
        return self.walk_to_block(self.block_with(rank), run)

    cdef uint64_t walk_to_block(self, uint64_t block, Run *run) noexcept:
        self.seek_block(block, run, NULL)
        return low_word(self.layout.kind, self.states + block * 8 * self.layout.words)

    cdef void seek_rank(self, uint64_t rank, Run *run, uint64_t *state) noexcept:
        self.seek_block(self.block_with(rank), run, state)
        if state == NULL:
            # Without sums, all that follows can be had at once.
            run.count = <Py_ssize_t>(self.count - run.rank)

    cdef void seek_block(self, uint64_t block, Run *run, uint64_t *state) noexcept:
        cdef uint64_t[WORDS_MAX] before
        run.rank = block * BLOCK_ITEMS
        run.count = <Py_ssize_t>min(self.count - run.rank, BLOCK_ITEMS)
        run.slots = self.slot_at(run.rank)
        run.shorts = self.all_shorts + 8 * run.rank
        run.whole = NULL
        if state != NULL and self.count:
            self.load_known(block, before)
            self.load_known(block + 1, run.room)
            add(self.layout.kind, state, before)
            take_away(self.layout.kind, run.room, before)
            run.whole = run.room

    cdef void load_known(self, uint64_t block, uint64_t *state) noexcept:
        load_state(self.layout.kind, state, self.states + block * 8 * self.layout.words)

    cdef const uint8_t *slot_at(self, uint64_t rank) noexcept:
        return self.all_slots + rank * self.layout.stride

    def is_sound(self):
        cdef uint8_t[SLOT_SIZE_MAX] slot
        cdef uint64_t[WORDS_MAX] running, lifted
        cdef uint64_t rank
        clear(self.layout.kind, running)
        for rank in range(self.count):
            if rank % BLOCK_ITEMS == 0 and not self.is_block(rank, running):
                return False
            put_slot(&self.layout, slot, self.slot_at(rank), size_in(&self.layout, self.slot_at(rank)))
            if memcmp(slot, self.slot_at(rank), self.layout.stride):
                return False
            if rank and order(&self.layout, self.slot_at(rank - 1), self.slot_at(rank)) >= 0:
                return False
            lift_slot(&self.layout, lifted, slot)
            if lifted[0] != load_64(self.all_shorts + 8 * rank):
                return False
            add(self.layout.kind, running, lifted)
        self.load_known(self.blocks_count, lifted)
        return memcmp(lifted, running, 8 * self.layout.words) == 0

    cdef bint is_block(self, uint64_t rank, const uint64_t *running) noexcept:
        """Whether the block that starts at `rank` is described rightly."""
        cdef uint64_t[WORDS_MAX] known
        cdef uint64_t block = rank // BLOCK_ITEMS
        self.load_known(block, known)
        return (
            memcmp(known, running, 8 * self.layout.words) == 0
            and memcmp(
                self.lowest + block * self.layout.stride, self.slot_at(rank), self.layout.stride
            ) == 0
        )


def sort(data not None, Py_ssize_t item_size):
    cdef const uint8_t[::1] view = data
    cdef Items items
    cdef Py_ssize_t count, index, kept = 0
    cdef Record *records
    cdef bytes result
    cdef uint8_t *target
    cdef const uint8_t *item
    if not 1 <= item_size <= SIZE_MAX:
        raise ValueError(f"an item has 1 to {SIZE_MAX} bytes")
    if view.shape[0] % item_size:
        raise ValueError("the items do not fill the buffer")
    count = view.shape[0] // item_size
    items.data, items.size = &view[0], item_size
    records = <Record *>malloc(2 * max(count, 1) * sizeof(Record))
    if records == NULL:
        raise MemoryError
    try:
        for index in range(count):
            records[index].part = part_of(&items, index, 0)
            records[index].index = index
        if sort_records(&items, records, records + count, count, 0):
            raise MemoryError
        result = PyBytes_FromStringAndSize(NULL, count * item_size)
        target = <uint8_t *>PyBytes_AS_STRING(result)
        for index in range(count):
            item = items.data + records[index].index * item_size
            # Equal items have come through the same buckets, so that their parts are equal.
            if (
                kept
                and records[index].part == records[index - 1].part
                and memcmp(target + (kept - 1) * item_size, item, item_size) == 0
            ):
                continue
            memcpy(target + kept * item_size, item, item_size)
            kept += 1
    finally:
        free(records)
    return result if kept == count else result[:kept * item_size]


include "siphash.pxi"
include "exchange.pxi"
include "items.pxi"
include "hearing.pxi"
include "saying.pxi"
