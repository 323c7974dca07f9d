# An exchange's knowledge of our own items: sums of their shorts, their ids, the places of keys.
#
# It is asked for one place after the other, nearly always upwards: the run of the last answer
# is kept, and so is the sum before the last place in it.

cdef extern from *:
    """
    #define CULM_ID_FIRST 0x9E3779B97F4A7C15ull
    #define CULM_ID_SECOND 0xD6E8FEB86659FD93ull
    """
    const uint64_t ID_FIRST "CULM_ID_FIRST"
    const uint64_t ID_SECOND "CULM_ID_SECOND"


cdef inline uint64_t sum_of(int kind, const uint8_t *shorts, uint64_t count) noexcept nogil:
    cdef uint64_t total = 0, at
    if kind == SUM_KIND:
        for at in range(count):
            total += load_64(shorts + 8 * at)
    else:
        for at in range(count):
            total = plus(kind, total, load_64(shorts + 8 * at))
    return total


cdef inline uint64_t id_of(Exchange self, uint64_t short) noexcept nogil:
    cdef uint64_t mixed = (short + self.salt) * ID_FIRST
    return (mixed ^ mixed >> 32) * ID_SECOND >> 32


cdef void lift_item(
    Exchange self, uint64_t *state, const uint8_t *item, Py_ssize_t size
) noexcept nogil:
    if self.keyed:
        sip_hash(&self.key, state, item, size)
    else:
        lift_into(self.kind, state, item, size)


cdef int take_stock(Exchange self, bytes key) except -1:
    """Find the state of all our items; with a key, that of each."""
    cdef const uint8_t *octets = <const uint8_t *>PyBytes_AS_STRING(key)
    self.kind = self.layout.kind
    self.union_count = self.view.size()
    clear(self.kind, self.union_state)
    if not PyBytes_GET_SIZE(key):
        self.view.add_first(self.union_count, self.union_state)
        return 0
    self.keyed, self.kind = True, SUM_KIND
    self.key.low, self.key.high = load_64(octets), load_64(octets + 8)
    clear(self.kind, self.union_state)
    self.keyed_shorts = <uint8_t *>malloc(8 * self.union_count + 8)
    self.keyed_blocks = <uint64_t *>malloc(8 * (self.union_count >> BLOCK_SHIFT) + 8)
    if self.keyed_shorts == NULL or self.keyed_blocks == NULL:
        raise MemoryError
    hash_all(self)
    return 0


cdef void hash_all(Exchange self) noexcept:
    cdef uint64_t[2] state
    cdef uint64_t rank = 0, size = self.union_count, stop
    cdef const uint8_t *slot
    cdef Run run
    self.keyed_blocks[0] = 0
    while rank < size:
        self.view.piece(rank, size, &run)
        slot = run.slots
        stop = rank + run.count
        while rank < stop:
            sip_hash(&self.key, state, slot, size_in(&self.layout, slot))
            add(SUM_KIND, self.union_state, state)
            store_64(self.keyed_shorts + 8 * rank, state[0])
            slot += self.layout.stride
            rank += 1
            if rank & ((1 << BLOCK_SHIFT) - 1) == 0:
                self.keyed_blocks[rank >> BLOCK_SHIFT] = self.union_state[0]


cdef uint64_t add_to_union(Exchange self, const uint8_t *item, Py_ssize_t size) noexcept:
    """Its short."""
    cdef uint64_t[WORDS_MAX] state
    lift_item(self, state, item, size)
    add(self.kind, self.union_state, state)
    self.union_count += 1
    return state[0]


cdef inline bint is_at_hand(Exchange self, uint64_t rank) noexcept nogil:
    return self.run.rank <= rank < self.run.rank + <uint64_t>self.run.count


cdef void look(Exchange self, uint64_t rank) noexcept:
    """Have the run at hand in which `rank` is, if there is such an item, else the last one."""
    if not is_at_hand(self, rank):
        arrive(self, self.view.walk_to_rank(&self.trail, rank, &self.run))


cdef inline void arrive(Exchange self, uint64_t sum) noexcept:
    """Another run is at hand; the items before it combine to `sum`."""
    self.run_sum = self.last_sum = sum
    self.last_rank = self.run.rank


cdef uint64_t sum_before(Exchange self, uint64_t rank) noexcept:
    """The sum of the shorts of all items before `rank`."""
    cdef uint64_t block
    if self.keyed:
        block = rank >> BLOCK_SHIFT
        return self.keyed_blocks[block] + sum_of(
            SUM_KIND, self.keyed_shorts + (8 * block << BLOCK_SHIFT), rank - (block << BLOCK_SHIFT)
        )
    if rank != self.run.rank + <uint64_t>self.run.count:
        # The end of a run is as good as the beginning of the next one.
        look(self, rank)
    if rank < self.last_rank:
        self.last_rank, self.last_sum = self.run.rank, self.run_sum
    self.last_sum = plus(
        self.kind,
        self.last_sum,
        sum_of(
            self.kind,
            self.run.shorts + 8 * (self.last_rank - self.run.rank),
            rank - self.last_rank,
        ),
    )
    self.last_rank = rank
    return self.last_sum


cdef inline uint64_t difference(Exchange self, uint64_t first, uint64_t second) noexcept nogil:
    """The difference of two sums, as far as it travels."""
    return partner(self.kind, first, second) & self.mask


cdef uint64_t rank_of_key(Exchange self, const Key *key) noexcept:
    """How many of our items are below a bound."""
    cdef uint8_t[SLOT_SIZE_MAX] slot
    cdef Layout *layout = &self.layout
    cdef bint through
    if key.size < 0:
        return self.view.size()
    put_slot(layout, slot, key.data, min(key.size, layout.item_size))
    through = key.size > layout.item_size
    if not (
        self.run.count
        and order(layout, self.run.slots, slot) <= 0
        and order(layout, slot, self.run.slots + (self.run.count - 1) * layout.stride) <= 0
    ):
        arrive(self, self.view.walk_to_key(&self.trail, slot, &self.run))
    return self.run.rank + below(layout, self.run.slots, self.run.count, slot, through)


cdef const uint8_t *slot_at(Exchange self, uint64_t rank) noexcept:
    """The item of that rank, of which there is one."""
    look(self, rank)
    return self.run.slots + (rank - self.run.rank) * self.layout.stride


cdef bint has_item(Exchange self, const uint8_t *item, Py_ssize_t size) noexcept:
    cdef uint8_t[SLOT_SIZE_MAX] slot
    cdef uint64_t rank
    cdef Key key
    key.data, key.size = item, size
    rank = rank_of_key(self, &key)
    put_slot(&self.layout, slot, item, size)
    # Where the item would be is in this run, if it is anywhere.
    return rank < self.run.rank + <uint64_t>self.run.count and order(
        &self.layout, slot_at(self, rank), slot
    ) == 0


cdef const uint8_t *shorts_at(Exchange self, uint64_t rank, uint64_t stop, uint64_t *count) noexcept:
    """The shorts of the item at `rank` and of those after it that are at hand, up to `stop`."""
    if self.keyed:
        count[0] = stop - rank
        return self.keyed_shorts + 8 * rank
    look(self, rank)
    count[0] = min(stop, self.run.rank + <uint64_t>self.run.count) - rank
    return self.run.shorts + 8 * (rank - self.run.rank)


cdef bint can_name(Exchange self, uint64_t wanted, uint64_t count) noexcept:
    """Whether `wanted` items can be named among `count` by their combined states."""
    if wanted != 1 and (wanted != 2 or count > NAMED_ITEMS_MAX):
        return False
    return <int>wanted * (high_bit(count) + 1 if count else 0) <= 8 * self.width - CHANCE_BITS


cdef int name_items(
    Exchange self, uint64_t wanted_count, uint64_t wanted, const Range *whole, uint64_t *ranks
) except -1:
    """The ranks of one or two items that combine to `wanted`: how many have been found."""
    cdef uint64_t rank = whole.start, stop = whole.start + whole.count, count, at
    cdef Py_ssize_t earlier, later
    cdef const uint8_t *shorts
    cdef uint8_t *target
    if wanted_count == 1:
        while rank < stop:
            shorts = shorts_at(self, rank, stop, &count)
            for at in range(count):
                if not (load_64(shorts + 8 * at) ^ wanted) & self.mask:
                    ranks[0] = rank + at
                    return 1
            rank += count
        return 0
    self.scratch.size = 0
    reserve(&self.scratch, 8 * whole.count)
    target = self.scratch.data
    while rank < stop:
        shorts = shorts_at(self, rank, stop, &count)
        memcpy(target, shorts, 8 * count)
        target += 8 * count
        rank += count
    if not find_pair(
        self.kind, self.scratch.data, whole.count, wanted, self.mask, &earlier, &later
    ):
        return 0
    ranks[0], ranks[1] = whole.start + earlier, whole.start + later
    return 2
