# How an exchange hears the other side's rounds: a result above 0 is a `Fault`.

cdef int read_byte(Reader *reader, int *byte) noexcept nogil:
    if reader.at == reader.end:
        return CUT_FAULT
    byte[0] = reader.at[0]
    reader.at += 1
    return 0


cdef int read_number(Reader *reader, uint64_t *value) noexcept nogil:
    """Up to nine bytes in their shortest form."""
    cdef int byte = 0, place
    value[0] = 0
    for place in range(9):
        if read_byte(reader, &byte):
            return CUT_FAULT
        value[0] |= <uint64_t>(byte & 127) << 7 * place
        if byte < 128:
            return NUMBER_FAULT if byte == 0 and place else 0
    return NUMBER_FAULT


cdef int read_few(Reader *reader, int half, uint64_t *value) noexcept nogil:
    """A number that has begun in half a byte."""
    cdef int fault = 0
    value[0] = half
    if half == HALF_FULL:
        fault = read_number(reader, value)
        value[0] += HALF_FULL
    return fault


cdef int read_count(Reader *reader, uint64_t base, uint64_t *count) noexcept nogil:
    """A count as a difference to `base`."""
    cdef uint64_t value = 0
    cdef int64_t sum
    cdef int fault = read_number(reader, &value)
    sum = <int64_t>base + (-<int64_t>(value >> 1) - 1 if value & 1 else <int64_t>(value >> 1))
    if not fault and not 0 <= sum <= COUNT_MAX:
        fault = NUMBER_FAULT
    count[0] = <uint64_t>sum
    return fault


cdef int read_key(
    Reader *reader, const Key *before, Py_ssize_t size_max, Key *key, uint8_t *room
) noexcept nogil:
    """A bound that is cut against the one before it, which may lie in the same `room`."""
    cdef uint64_t shared = 0, size = 0
    cdef int byte = 0, fault = read_byte(reader, &byte)
    if not fault:
        fault = read_few(reader, byte >> 4, &shared)
    if not fault:
        fault = read_few(reader, byte & 15, &size)
    if fault:
        return fault
    if shared > <uint64_t>before.size or shared + size > <uint64_t>size_max:
        return BOUND_FAULT
    if <uint64_t>(reader.end - reader.at) < size:
        return CUT_FAULT
    memmove(room, before.data, shared)
    memcpy(room + shared, reader.at, size)
    reader.at += size
    key.data, key.size = room, <Py_ssize_t>(shared + size)
    return 0


cdef int read_sum(Exchange self, Reader *reader, uint64_t count, uint64_t *sum) noexcept nogil:
    cdef int at
    sum[0] = 0
    if count == 0:
        return 0
    if reader.end - reader.at < self.width:
        return CUT_FAULT
    for at in range(self.width):
        sum[0] |= <uint64_t>reader.at[at] << 8 * at
    reader.at += self.width
    return 0


cdef inline Open *open_at(Exchange self, uint64_t index) noexcept:
    return <Open *>self.opens.data + index


cdef void enter(Exchange self, const Open *opened) noexcept:
    """Note that the next answers are about that range."""
    cdef Key lower
    self.only = 0
    self.has_last = False
    if opened != NULL:
        lower = key_at(&self.open_keys, opened.range.lower)
        memcpy(self.part_lower, lower.data, lower.size)
        self.part_lower_size = lower.size
        self.part_start = opened.range.start


cdef int hear(Exchange self, Reader *reader, uint64_t until, list items) except -1:
    cdef int fault = 0
    cdef bint is_all = False
    cdef Open *opened
    self.before_size = 0
    while not fault and reader.at < reader.end:
        if self.form == ANSWERING:
            fault = hear_explicit(self, reader, items)
        elif self.heard_group == 0:
            fault = hear_group(self, reader, until)
        else:
            opened = open_at(self, self.heard_answered)
            fault = hear_said(self, reader, opened, items, &is_all)
            if not fault and is_all:
                pass_one(self)
                pass_equal(self)
    return fault


cdef int hear_group(Exchange self, Reader *reader, uint64_t until) noexcept:
    if self.heard_answered >= until:
        return MORE_FAULT
    self.heard_group = min(<uint64_t>GROUP, until - self.heard_answered)
    read_byte(reader, &self.heard_flags)
    if self.heard_flags >> self.heard_group:
        return KIND_FAULT
    pass_equal(self)
    return 0


cdef void pass_one(Exchange self) noexcept:
    self.heard_answered += 1
    self.heard_group -= 1
    self.heard_flags >>= 1


cdef void pass_equal(Exchange self) noexcept:
    while self.heard_group and not self.heard_flags & 1:
        pass_one(self)
    if self.heard_group:
        enter(self, open_at(self, self.heard_answered))


cdef int hear_explicit(Exchange self, Reader *reader, list items) except -1:
    """One range with its bounds, the lower one cut against the upper one before."""
    cdef Open opened
    cdef Key lower, upper, before
    cdef uint8_t[BOUND_SIZE_MAX] lower_room, upper_room
    cdef Py_ssize_t size_max = self.layout.item_size + 7
    cdef bint is_all = False
    cdef int fault
    before.data, before.size = self.before, self.before_size
    if before.size < 0:
        return BOUND_FAULT
    fault = read_key(reader, &before, size_max, &lower, lower_room)
    if fault:
        return fault
    fault = read_key(reader, &lower, size_max, &upper, upper_room)
    if fault:
        return fault
    if order_keys(&lower, &before) < 0:
        return BOUND_FAULT
    if upper.size == 0:
        upper.size = -1
    if order_keys(&upper, &lower) <= 0:
        return BOUND_FAULT
    if upper.size > 0:
        memcpy(self.before, upper.data, upper.size)
    self.before_size = upper.size
    self.open_keys.size = 0
    opened.range.lower = keep_key(&self.open_keys, &lower)
    opened.range.upper = keep_key(&self.open_keys, &upper)
    opened.range.start = rank_of_key(self, &lower)
    opened.range.count = rank_of_key(self, &upper)
    opened.range.count -= min(opened.range.start, opened.range.count)
    opened.base, opened.kind = 0, ASKED_ANYTHING
    enter(self, &opened)
    while not is_all:
        fault = hear_said(self, reader, &opened, items, &is_all)
        if fault:
            return fault
    return 0


cdef int allowed(Exchange self, const Open *opened) noexcept:
    """The answers allowed for a range, as a set."""
    if self.only:
        return self.only
    if opened.kind == ASKED_LIST:
        return ALL_ITEMS | ALL_WANTS
    if opened.kind == ASKED_WANT:
        return ALL_ITEMS
    return ALL_BUT_WANTS


cdef int hear_said(
    Exchange self, Reader *reader, const Open *opened, list items, bint *is_all
) except -1:
    """One thing that is said of a range."""
    cdef int byte = 0, half, said, fault = read_byte(reader, &byte)
    cdef uint64_t number = 0
    if fault:
        return fault
    said, half = byte & 15, byte >> 4
    if not allowed(self, opened) >> said & 1:
        return KIND_FAULT
    if self.form == ASKING and ALL_LISTS >> said & 1:
        return KIND_FAULT
    is_all[0] = False
    if said == SAID_SUM:
        is_all[0] = True
        return hear_sum(self, reader, half, opened)
    if said == SAID_WANT or said == SAID_WANT_MORE:
        is_all[0] = said == SAID_WANT
        self.only = ALL_ITEMS
        return hear_wanted(self, reader, half, opened)
    fault = read_few(reader, half, &number)
    if fault:
        return fault
    if said == SAID_KEYS or said == SAID_RANKS:
        is_all[0] = True
        return hear_parts(self, reader, number, opened, said == SAID_KEYS)
    if said == SAID_LIST or said == SAID_LIST_PART:
        is_all[0] = said == SAID_LIST
        self.only = ALL_LISTS
        return hear_list(self, reader, number, opened, said == SAID_LIST_PART)
    is_all[0] = said == SAID_ITEMS
    self.only = ALL_ITEMS
    return hear_items(self, reader, number, opened, items)


cdef int hear_items(
    Exchange self, Reader *reader, uint64_t count, const Open *opened, list items
) except -1:
    cdef Key lower = key_at(&self.open_keys, opened.range.lower)
    cdef Key upper = key_at(&self.open_keys, opened.range.upper)
    cdef Py_ssize_t cut = common(&lower, &upper), room = self.layout.item_size - cut
    cdef uint64_t size, index
    cdef uint8_t[SIZE_MAX] item
    cdef Key key, last
    cdef int fault
    if count < 1:
        return NUMBER_FAULT
    key.data = item
    for index in range(count):
        size = <uint64_t>room
        if self.layout.varying:
            fault = read_number(reader, &size)
            if fault:
                return fault
        if room < 0 or size > <uint64_t>room:
            return ITEM_FAULT
        if <uint64_t>(reader.end - reader.at) < size:
            return CUT_FAULT
        memcpy(item, lower.data, cut)
        memcpy(item + cut, reader.at, size)
        reader.at += size
        key.size = cut + <Py_ssize_t>size
        if order_keys(&key, &lower) < 0 or order_keys(&key, &upper) >= 0:
            return ITEM_FAULT
        if self.has_last:
            last.data, last.size = self.last_item, self.last_size
            if order_keys(&key, &last) <= 0:
                return ITEM_FAULT
        memcpy(self.last_item, item, key.size)
        self.last_size, self.has_last = key.size, True
        if not has_item(self, item, key.size):
            add_to_union(self, item, key.size)
            items.append(PyBytes_FromStringAndSize(<const char *>item, key.size))
    return 0


cdef int count_ranges(Exchange self, uint64_t count) noexcept nogil:
    """We are asked about `count` ranges more."""
    self.heard_told += count
    return RANGES_FAULT if self.heard_told > self.ranges_max else 0


cdef void begin_heard(
    Exchange self, Heard *heard, int kind, uint64_t start, uint64_t stop
) noexcept nogil:
    """A question about our items from rank `start` up to `stop`."""
    memset(heard, 0, sizeof(Heard))
    heard.kind = kind
    heard.range.start = start
    heard.range.count = stop - start


cdef int ask(Exchange self, Heard *heard, const Key *lower, const Key *upper) except -1:
    """Keep a question for our own round."""
    cdef Heard *before
    heard.skip = self.heard_skipped
    self.heard_skipped = 0
    heard.range.lower = -1
    if self.heards.size:
        # Most ranges begin where the one before has ended.
        before = <Heard *>(self.heards.data + self.heards.size) - 1
        if heard.skip == 0 and before.range.upper >= 0:
            if is_kept(&self.heard_keys, before.range.upper, lower):
                heard.range.lower = before.range.upper
    if heard.range.lower < 0:
        heard.range.lower = keep_key(&self.heard_keys, lower)
    heard.range.upper = keep_key(&self.heard_keys, upper)
    put(&self.heards, heard, sizeof(Heard))
    return 0


cdef inline bint is_kept(const Octets *keys, Py_ssize_t at, const Key *key) noexcept nogil:
    cdef Key kept = key_at(keys, at)
    return kept.size == key.size and memcmp(kept.data, key.data, key.size) == 0


cdef int hear_list(
    Exchange self, Reader *reader, uint64_t count, const Open *opened, bint is_part
) except -1:
    cdef Heard heard
    cdef uint8_t[BOUND_SIZE_MAX] lower_room
    cdef Key upper = key_at(&self.open_keys, opened.range.upper), end = upper, lower
    cdef uint64_t start = self.part_start, stop = opened.range.start + opened.range.count
    cdef uint64_t index, entry
    cdef int fault
    if not 1 <= count <= LIST_MAX:
        return NUMBER_FAULT
    memcpy(lower_room, self.part_lower, self.part_lower_size)
    lower.data, lower.size = lower_room, self.part_lower_size
    if is_part:
        fault = read_key(reader, &lower, self.layout.item_size, &upper, self.part_lower)
        if fault:
            return fault
        if order_keys(&upper, &lower) <= 0 or order_keys(&upper, &end) >= 0:
            return BOUND_FAULT
        self.part_lower_size = upper.size
        stop = min(max(rank_of_key(self, &upper), start), stop)
    if <uint64_t>(reader.end - reader.at) < 4 * count:
        return CUT_FAULT
    fault = count_ranges(self, 1)
    if fault:
        return fault
    begin_heard(self, &heard, HEARD_LIST, start, stop)
    self.part_start = stop
    heard.numbers, heard.number_count = self.numbers.size, count
    for index in range(count):
        entry = <uint64_t>load_32(reader.at) << 32 | index
        put(&self.numbers, &entry, 8)
        reader.at += 4
    ask(self, &heard, &lower, &upper)
    return 0


cdef int hear_wanted(Exchange self, Reader *reader, int half, const Open *opened) except -1:
    cdef Heard heard
    cdef Key lower = key_at(&self.open_keys, opened.range.lower)
    cdef Key upper = key_at(&self.open_keys, opened.range.upper)
    cdef uint64_t listed = opened.range.count, at, word = half, wanted = 0
    cdef Py_ssize_t numbers = self.numbers.size
    cdef int fault
    if listed <= FEW_LISTED:
        if half >> listed:
            return NUMBER_FAULT
        put(&self.numbers, &word, 8)
        wanted = half
    else:
        if half:
            return NUMBER_FAULT
        if <uint64_t>(reader.end - reader.at) < (listed + 7) // 8:
            return CUT_FAULT
        for at in range(0, listed, 64):
            word = load_some(reader.at + at // 8, min(listed - at + 7, <uint64_t>64) // 8)
            if listed - at < 64 and word >> (listed - at):
                return NUMBER_FAULT
            put(&self.numbers, &word, 8)
            wanted |= word
        reader.at += (listed + 7) // 8
    if not wanted:
        self.numbers.size = numbers
        return 0
    fault = count_ranges(self, 1)
    if fault:
        return fault
    begin_heard(
        self, &heard, SENDING_BITS, opened.range.start, opened.range.start + opened.range.count
    )
    heard.numbers, heard.number_count = numbers, (listed + 63) // 64
    return ask(self, &heard, &lower, &upper)


cdef inline uint64_t load_some(const uint8_t *data, uint64_t size) noexcept nogil:
    """A little-endian number of up to eight bytes."""
    cdef uint64_t value = 0, at
    for at in range(size):
        value |= <uint64_t>data[at] << 8 * at
    return value


cdef int hear_sum(Exchange self, Reader *reader, int half, const Open *opened) except -1:
    cdef Key lower = key_at(&self.open_keys, opened.range.lower)
    cdef Key upper = key_at(&self.open_keys, opened.range.upper)
    cdef uint64_t theirs = 0, their_sum = 0, start = opened.range.start, mine
    cdef uint64_t stop = start + opened.range.count
    cdef int fault
    if half:
        return NUMBER_FAULT
    fault = read_count(reader, opened.base, &theirs)
    if not fault:
        fault = count_ranges(self, 1)
    if not fault:
        fault = read_sum(self, reader, theirs, &their_sum)
    if fault:
        return fault
    mine = sum_before(self, start)
    mine = difference(self, sum_before(self, stop), mine)
    return compare(
        self, &lower, &upper, start, stop, mine, theirs, their_sum, opened.kind == ASKED_SUM
    )


cdef int compare(
    Exchange self, const Key *lower, const Key *upper, uint64_t start, uint64_t stop,
    uint64_t mine, uint64_t theirs, uint64_t their_sum, bint echo,
) except -1:
    """They have told us of their items in a range, in which we have something else or not."""
    cdef Heard heard
    cdef int64_t more = <int64_t>(stop - start) - <int64_t>theirs
    cdef bint is_equal = more == 0 and mine == their_sum
    more = max(<int64_t>-CLAMP, min(more, <int64_t>CLAMP))
    self.estimated[0] += 1
    self.estimated[1] += not is_equal
    self.estimated[2] += <uint64_t>more
    self.estimated[3] += <uint64_t>(more * more)
    if is_equal:
        self.heard_skipped += 1
        return 0
    begin_heard(self, &heard, HEARD_SUM, start, stop)
    heard.sum, heard.theirs, heard.their_sum, heard.echo = mine, theirs, their_sum, echo
    return ask(self, &heard, lower, upper)


cdef int hear_parts(
    Exchange self, Reader *reader, uint64_t parts, const Open *opened, bint by_keys
) except -1:
    cdef Key whole_lower = key_at(&self.open_keys, opened.range.lower)
    cdef Key whole_upper = key_at(&self.open_keys, opened.range.upper)
    cdef Key lower = whole_lower, upper
    cdef uint8_t[2][BOUND_SIZE_MAX] rooms
    cdef uint64_t theirs = 0, their_sum = 0, left, count = 0, part
    cdef uint64_t start = opened.range.start, stop, end = start + opened.range.count
    cdef uint64_t before, after
    cdef Steps steps
    cdef int fault
    if not 2 <= parts <= KEYS_MAX:
        return NUMBER_FAULT
    if by_keys and not can_step(
        &steps, &whole_lower, &whole_upper, parts, self.layout.item_size
    ):
        return BOUND_FAULT
    fault = read_count(reader, opened.base, &theirs)
    if not fault and theirs < parts and not by_keys:
        fault = NUMBER_FAULT
    if not fault:
        fault = count_ranges(self, parts)
    if fault:
        return fault
    left = theirs
    before = sum_before(self, start)
    for part in range(parts):
        if part == parts - 1:
            count, upper, stop = left, whole_upper, end
        else:
            count = before_part(theirs, parts, part + 1) - before_part(theirs, parts, part)
            if by_keys:
                fault = read_count(reader, count, &count)
                upper = step(&steps, &whole_lower, part + 1, rooms[part & 1])
            else:
                fault = read_key(
                    reader, &lower, self.layout.item_size, &upper, rooms[part & 1]
                )
                if not fault and (
                    order_keys(&upper, &lower) <= 0 or order_keys(&upper, &whole_upper) >= 0
                ):
                    fault = BOUND_FAULT
            if not fault and count > left:
                fault = NUMBER_FAULT
            if fault:
                return fault
            stop = min(max(rank_of_key(self, &upper), start), end)
        left -= count
        fault = read_sum(self, reader, count, &their_sum)
        if fault:
            return fault
        after = sum_before(self, stop)
        compare(
            self, &lower, &upper, start, stop, difference(self, after, before), count,
            their_sum, False,
        )
        lower, start, before = upper, stop, after
    return 0
