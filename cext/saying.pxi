# How an exchange says its own rounds.

cdef inline Heard *heard_at(Exchange self, uint64_t index) noexcept:
    return <Heard *>self.heards.data + index


cdef inline uint64_t heard_count(Exchange self) noexcept:
    return self.heards.size // sizeof(Heard)


cdef bint is_over(Exchange self) noexcept:
    return self.next == heard_count(self) and (
        self.form == ASKING or self.passed == self.heard_skipped
    )


cdef int say(Exchange self, const Plan *plan) except -1:
    self.before_size = 0
    while self.out.size < plan.size and not is_over(self):
        if self.form != ASKING and self.said_group == 0:
            begin_group(self)
        elif answer(self, heard_at(self, self.next), plan):
            self.next += 1
            if self.form != ASKING:
                self.said_group -= 1
    return 0


cdef int begin_group(Exchange self) except -1:
    """Say of the next ranges which of them are not equal."""
    cdef uint64_t at = self.next, count = heard_count(self)
    cdef int flags = 0, place
    for place in range(GROUP):
        if self.passed < (self.heard_skipped if at == count else heard_at(self, at).skip):
            self.passed += 1
        elif at < count:
            flags |= 1 << place
            self.passed = 0
            at += 1
    self.said_group = at - self.next
    return put_byte(&self.out, <uint8_t>flags)


cdef bint answer(Exchange self, Heard *heard, const Plan *plan) except -1:
    """Say something of a range; whether that is all."""
    if heard.kind == HEARD_LIST:
        if say_wanted(self, heard):
            return True
    elif heard.kind == HEARD_SUM or heard.kind == HEARD_UNKNOWN:
        if answer_sum(self, heard, plan):
            return True
    elif heard.kind == SENDING_BITS and heard.left == 0:
        heard.left = count_bits(self, heard)
    if heard.kind == LISTING:
        return say_list(self, heard)
    return say_items(self, heard, plan)


cdef bint answer_sum(Exchange self, Heard *heard, const Plan *plan) except -1:
    """Answer a sum that is not ours; whether that is all, or else how it goes on."""
    cdef bint is_told = heard.kind == HEARD_SUM
    cdef uint64_t count = heard.range.count, theirs = heard.theirs, more
    cdef uint64_t[2] ranks
    if is_told and theirs == 0:
        heard.kind, heard.left = SENDING, count
        return False
    if count == 0:
        return say_sum(self, heard)
    more = count - theirs if count > theirs else theirs - count
    if is_told and can_name(self, more, max(count, theirs)):
        if count > theirs:
            more = name_items(
                self, more, partner(self.kind, heard.sum, heard.their_sum), &heard.range, ranks
            )
            if more:
                heard.kind, heard.left = SENDING_NAMED, more
                heard.numbers, heard.number_count = self.numbers.size, more
                put(&self.numbers, ranks, 8 * more)
                return False
        elif not (heard.echo or plan.listing):
            return say_sum(self, heard)
    if not (
        plan.listing
        or count <= plan.threshold
        or <uint64_t>self.opens.size // sizeof(Open) > plan.asked_max // FULL_SHARE
    ):
        return say_parts(self, heard, parts_for(heard, plan))
    if self.form == ANSWERING:
        return say_sum(self, heard)
    heard.kind, heard.left = LISTING, count
    return False


cdef uint64_t parts_for(const Heard *heard, const Plan *plan) noexcept:
    """Into how many parts a range is split, if that can be."""
    cdef uint64_t parts = plan.branching, more = 0
    if not parts:
        if heard.kind == HEARD_SUM:
            more = max(heard.range.count, heard.theirs) - min(heard.range.count, heard.theirs)
            more = min(more, <uint64_t>CLAMP)
        more = max(more, <uint64_t>(3 if more & 1 else 2))
        parts = plan.parts * max(plan.expected, UNIT * more)
        parts = (parts + UNIT * UNIT - 1) // (UNIT * UNIT)
    parts = min(parts, 2 * heard.range.count // plan.threshold)
    parts = min(parts, plan.asked_max // FULL_SHARE, <uint64_t>KEYS_MAX)
    return max(parts, <uint64_t>2)


cdef int enter_explicitly(Exchange self, const Key *lower, const Key *upper) except -1:
    """Note that the next answers are about that range."""
    cdef Key before
    if self.form != ASKING:
        return 0
    before.data, before.size = self.before, self.before_size
    put_key(&self.out, lower, &before)
    put_key(&self.out, upper, lower)
    self.before_size = upper.size
    if upper.size > 0:
        memcpy(self.before, upper.data, upper.size)
    return 0


cdef inline uint64_t base_of(Exchange self, const Heard *heard) noexcept:
    """The base of counts that are told as differences."""
    return 0 if self.form == ASKING else heard.theirs


cdef int put_sum(Exchange self, uint64_t count, uint64_t sum) except -1:
    cdef uint8_t[8] packed
    if not count:
        return 0
    store_64(packed, sum)
    return put(&self.out, packed, self.width)


cdef int keep_open(
    Exchange self, const Key *lower, const Key *upper, uint64_t start, uint64_t count, int kind
) except -1:
    """We have asked about a range."""
    cdef Open opened
    cdef Open *before
    opened.range.lower = -1
    if self.opens.size:
        before = <Open *>(self.opens.data + self.opens.size) - 1
        if before.range.upper >= 0 and is_kept(&self.open_keys, before.range.upper, lower):
            opened.range.lower = before.range.upper
    if opened.range.lower < 0:
        opened.range.lower = keep_key(&self.open_keys, lower)
    opened.range.upper = keep_key(&self.open_keys, upper)
    opened.range.start, opened.range.count, opened.base = start, count, count
    opened.kind = kind
    return put(&self.opens, &opened, sizeof(Open))


cdef bint say_sum(Exchange self, const Heard *heard) except -1:
    cdef Key lower = key_at(&self.heard_keys, heard.range.lower)
    cdef Key upper = key_at(&self.heard_keys, heard.range.upper)
    cdef uint64_t start = heard.range.start, count = heard.range.count, sum
    enter_explicitly(self, &lower, &upper)
    put_said(&self.out, SAID_SUM, 0)
    put_difference(&self.out, <int64_t>count - <int64_t>base_of(self, heard))
    sum = sum_before(self, start)
    put_sum(self, count, difference(self, sum_before(self, start + count), sum))
    keep_open(self, &lower, &upper, start, count, ASKED_SUM)
    return True


cdef bint say_parts(Exchange self, const Heard *heard, uint64_t parts) except -1:
    """Split a range: at equal steps in the keys if our items are spread over them."""
    cdef Key lower = key_at(&self.heard_keys, heard.range.lower)
    cdef Key upper = key_at(&self.heard_keys, heard.range.upper)
    cdef uint64_t count = heard.range.count
    cdef Steps steps
    cdef Cut *cuts
    cdef bint by_keys
    self.scratch.size = 0
    reserve(&self.scratch, sizeof(Cut) * (parts + 1))
    cuts = <Cut *>self.scratch.data
    by_keys = can_step(&steps, &lower, &upper, parts, self.layout.item_size) and cut_by_keys(
        self, heard, &steps, &lower, cuts
    )
    if not by_keys:
        parts = min(parts, count, <uint64_t>(RANKS_ROOM // (self.layout.item_size + 24)))
        parts = max(parts, <uint64_t>2)
        cut_by_ranks(self, heard, parts, cuts)
    enter_explicitly(self, &lower, &upper)
    put_said(&self.out, SAID_KEYS if by_keys else SAID_RANKS, parts)
    put_difference(&self.out, <int64_t>count - <int64_t>base_of(self, heard))
    put_parts(self, heard, &steps if by_keys else NULL, cuts, parts)
    return True


cdef inline void cut_at(Exchange self, Cut *cut, uint64_t rank) noexcept:
    cut.rank, cut.sum = rank, sum_before(self, rank)


cdef bint cut_by_keys(
    Exchange self, const Heard *heard, const Steps *steps, const Key *lower, Cut *cuts
) noexcept:
    """Where equal steps are in our items; whether these are spread over them."""
    cdef uint8_t[BOUND_SIZE_MAX] room
    cdef uint64_t part, rank, largest = 0, end = heard.range.start + heard.range.count
    cdef Key key
    cut_at(self, &cuts[0], heard.range.start)
    for part in range(1, steps.parts + 1):
        rank = end
        if part < steps.parts:
            key = step(steps, lower, part, room)
            rank = min(max(rank_of_key(self, &key), cuts[part - 1].rank), end)
        cut_at(self, &cuts[part], rank)
        largest = max(largest, rank - cuts[part - 1].rank)
    return largest < heard.range.count and largest <= 2 * heard.range.count // steps.parts + 16


cdef void cut_by_ranks(Exchange self, const Heard *heard, uint64_t parts, Cut *cuts) noexcept:
    cdef uint64_t part
    for part in range(parts + 1):
        cut_at(
            self, &cuts[part], heard.range.start + before_part(heard.range.count, parts, part)
        )


cdef int put_parts(
    Exchange self, const Heard *heard, const Steps *steps, const Cut *cuts, uint64_t parts
) except -1:
    cdef Key whole_lower = key_at(&self.heard_keys, heard.range.lower)
    cdef Key lower = whole_lower, upper
    cdef uint8_t[2][BOUND_SIZE_MAX] rooms
    cdef uint64_t part, count
    for part in range(parts):
        count = cuts[part + 1].rank - cuts[part].rank
        upper = key_at(&self.heard_keys, heard.range.upper)
        if part < parts - 1:
            if steps == NULL:
                upper = separator(self, cuts[part + 1].rank, rooms[part & 1])
                put_key(&self.out, &upper, &lower)
            else:
                upper = step(steps, &whole_lower, part + 1, rooms[part & 1])
                put_difference(
                    &self.out,
                    <int64_t>count - <int64_t>(
                        before_part(heard.range.count, parts, part + 1)
                        - before_part(heard.range.count, parts, part)
                    ),
                )
        put_sum(self, count, difference(self, cuts[part + 1].sum, cuts[part].sum))
        keep_open(self, &lower, &upper, cuts[part].rank, count, ASKED_SUM)
        lower = upper
    return 0


cdef Key separator(Exchange self, uint64_t rank, uint8_t *room) noexcept:
    """The shortest key above the item before `rank` and not above the one there."""
    cdef const uint8_t *slot = slot_at(self, rank - 1)
    cdef Key key, below_it
    below_it.size = size_in(&self.layout, slot)
    # It may not be at hand any more when the next one is.
    memcpy(room, slot, below_it.size)
    below_it.data = room
    slot = slot_at(self, rank)
    key.data, key.size = slot, size_in(&self.layout, slot)
    key.size = min(key.size, common(&below_it, &key) + 1)
    memcpy(room, slot, key.size)
    key.data = room
    return key


cdef uint64_t count_bits(Exchange self, const Heard *heard) noexcept:
    cdef const uint64_t *words = <const uint64_t *>(self.numbers.data + heard.numbers)
    cdef uint64_t index, word, found = 0
    for index in range(heard.number_count):
        word = words[index]
        while word:
            word &= word - 1
            found += 1
    return found


cdef bint is_listed(Exchange self, const Heard *heard, uint64_t number, uint64_t *found) noexcept:
    """Whether an id is in the list that is sorted; the places of its like are marked."""
    cdef const uint64_t *entries = <const uint64_t *>(self.numbers.data + heard.numbers)
    cdef uint64_t low = 0, high = heard.number_count, middle
    while low < high:
        middle = (low + high) // 2
        if entries[middle] >> 32 < number:
            low = middle + 1
        else:
            high = middle
    if low == heard.number_count or entries[low] >> 32 != number:
        return False
    while found != NULL and low < heard.number_count and entries[low] >> 32 == number:
        found[(entries[low] & 0xFFFFFFFF) // 64] |= <uint64_t>1 << (entries[low] & 63)
        low += 1
    return True


cdef uint64_t next_rank(Exchange self, Heard *heard) noexcept:
    """The rank of the next item to say, of which there is one."""
    cdef const uint64_t *numbers = <const uint64_t *>(self.numbers.data + heard.numbers)
    cdef uint64_t at, count
    while True:
        at = heard.done
        heard.done += 1
        if heard.kind == SENDING_NAMED:
            return numbers[at]
        if heard.kind == SENDING_BITS and not numbers[at // 64] >> (at & 63) & 1:
            continue
        if heard.kind == SENDING_BESIDES and is_listed(
            self,
            heard,
            id_of(self, load_64(shorts_at(self, heard.range.start + at, heard.range.start + at + 1, &count))),
            NULL,
        ):
            continue
        return heard.range.start + at


cdef bint say_items(Exchange self, Heard *heard, const Plan *plan) except -1:
    """Say as many of our items as there is room for; whether they are all."""
    cdef Key lower = key_at(&self.heard_keys, heard.range.lower)
    cdef Key upper = key_at(&self.heard_keys, heard.range.upper)
    cdef uint8_t[BOUND_SIZE_MAX] room
    cdef Py_ssize_t fits = (plan.size - self.out.size) // (self.layout.item_size + 2), cut, size
    cdef uint64_t count = min(heard.left, <uint64_t>max(fits, 1)), index
    cdef const uint8_t *slot
    cdef Heard ahead
    heard.left -= count
    if self.form == ASKING and heard.left:
        ahead = heard[0]
        for index in range(count):
            next_rank(self, &ahead)
        slot = slot_at(self, next_rank(self, &ahead))
        upper.data, upper.size = room, size_in(&self.layout, slot)
        memcpy(room, slot, upper.size)
    enter_explicitly(self, &lower, &upper)
    put_said(
        &self.out,
        SAID_ITEMS if heard.left == 0 or self.form == ASKING else SAID_ITEMS_MORE,
        count,
    )
    cut = common(&lower, &upper)
    for index in range(count):
        slot = slot_at(self, next_rank(self, heard))
        size = max(size_in(&self.layout, slot) - cut, 0)
        if self.layout.varying:
            put_number(&self.out, size)
        put(&self.out, slot + cut, size)
    if self.form == ASKING and heard.left:
        heard.range.lower = keep_key(&self.heard_keys, &upper)
    return heard.left == 0


cdef bint say_list(Exchange self, Heard *heard) except -1:
    """Say the ids of as many of our items as one list has; whether they are all."""
    cdef Key lower = key_at(&self.heard_keys, heard.range.lower)
    cdef Key upper = key_at(&self.heard_keys, heard.range.upper)
    cdef uint8_t[BOUND_SIZE_MAX] room
    cdef uint64_t count = min(heard.left, <uint64_t>LIST_MAX), at_hand, at
    cdef uint64_t start = heard.range.start + heard.done, rank = start, stop = start + count
    cdef const uint8_t *shorts
    cdef uint8_t[4] packed
    cdef uint64_t number
    heard.left -= count
    heard.done += count
    if heard.left:
        upper = separator(self, stop, room)
    enter_explicitly(self, &lower, &upper)
    if heard.left and self.form != ASKING:
        put_said(&self.out, SAID_LIST_PART, count)
        put_key(&self.out, &upper, &lower)
    else:
        put_said(&self.out, SAID_LIST, count)
    while rank < stop:
        shorts = shorts_at(self, rank, stop, &at_hand)
        for at in range(at_hand):
            number = id_of(self, load_64(shorts + 8 * at))
            packed[0], packed[1] = <uint8_t>number, <uint8_t>(number >> 8)
            packed[2], packed[3] = <uint8_t>(number >> 16), <uint8_t>(number >> 24)
            put(&self.out, packed, 4)
        rank += at_hand
    keep_open(self, &lower, &upper, start, count, ASKED_LIST)
    if heard.left:
        heard.range.lower = keep_key(&self.heard_keys, &upper)
    return heard.left == 0


cdef int order_entries(const void *first, const void *second) noexcept nogil:
    cdef uint64_t left = (<const uint64_t *>first)[0], right = (<const uint64_t *>second)[0]
    return (left > right) - (left < right)


cdef bint say_wanted(Exchange self, Heard *heard) except -1:
    """Answer a list: which of its items we lack; whether we have none besides."""
    cdef Key lower, upper
    cdef uint64_t[LIST_WORDS] found
    cdef uint8_t[8 * LIST_WORDS] packed
    cdef uint64_t rank = heard.range.start, stop = rank + heard.range.count, at_hand, at
    cdef uint64_t listed = heard.number_count, besides = 0, wanted = 0
    cdef const uint8_t *shorts
    cdef int said
    qsort(self.numbers.data + heard.numbers, listed, 8, order_entries)
    memset(found, 0, sizeof(found))
    while rank < stop:
        shorts = shorts_at(self, rank, stop, &at_hand)
        for at in range(at_hand):
            besides += not is_listed(self, heard, id_of(self, load_64(shorts + 8 * at)), found)
        rank += at_hand
    for at in range(0, listed, 64):
        found[at // 64] = ~found[at // 64]
        if listed - at < 64:
            found[at // 64] &= ((<uint64_t>1 << (listed - at)) - 1)
        wanted |= found[at // 64]
        store_64(packed + at // 8, found[at // 64])
    heard.kind, heard.left = SENDING_BESIDES, besides
    if besides and not wanted:
        return False
    said = SAID_WANT_MORE if besides else SAID_WANT
    if listed <= FEW_LISTED:
        put_byte(&self.out, <uint8_t>(said | wanted << 4))
    else:
        put_byte(&self.out, <uint8_t>said)
        put(&self.out, packed, (listed + 7) // 8)
    if wanted:
        lower = key_at(&self.heard_keys, heard.range.lower)
        upper = key_at(&self.heard_keys, heard.range.upper)
        keep_open(self, &lower, &upper, heard.range.start, heard.range.count, ASKED_WANT)
    return besides == 0
