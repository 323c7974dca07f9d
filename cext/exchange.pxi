# Rounds about ranges: their state, and its storage.  Needs the views of tree.pyx.
#
# There is a table of the ranges that we have asked about and one of those we are asked about,
# each with the bytes of its bounds.  Memory that is written to may move: no pointer to it is
# held during a write.

from libc.stdint cimport int64_t
from libc.stdlib cimport qsort, realloc

cdef enum:
    GROUP = 8
    KEYS_MAX = 2048
    RANKS_ROOM = 16384
    LIST_MAX = 512
    LIST_WORDS = 8      # of LIST_MAX bits
    FEW_LISTED = 4
    HALF_FULL = 15
    FULL_SHARE = 4
    CHANCE_BITS = 24
    NAMED_ITEMS_MAX = 262144
    CLAMP = 1048576
    UNIT = 1000
    NUMBER_MAX = 2147483647
    BOUND_SIZE_MAX = 1032
    BLOCK_SHIFT = 6     # a sum is kept for each block of keyed states

cdef extern from *:
    """
    #define CULM_COUNT_MAX ((1ll << 62) - 1)
    """
    const int64_t COUNT_MAX "CULM_COUNT_MAX"

cdef enum Fault:
    NO_FAULT = 0
    CUT_FAULT = 1
    KIND_FAULT = 2
    NUMBER_FAULT = 3
    BOUND_FAULT = 4
    ITEM_FAULT = 5
    RANGES_FAULT = 6
    MORE_FAULT = 7

cdef enum Said:
    SAID_ITEMS = 0
    SAID_ITEMS_MORE = 1
    SAID_KEYS = 2
    SAID_RANKS = 3
    SAID_LIST = 4
    SAID_LIST_PART = 5
    SAID_SUM = 6
    SAID_WANT = 7
    SAID_WANT_MORE = 8

cdef enum:
    # Sets of them.
    ALL_ITEMS = 1 << SAID_ITEMS | 1 << SAID_ITEMS_MORE
    ALL_LISTS = 1 << SAID_LIST | 1 << SAID_LIST_PART
    ALL_WANTS = 1 << SAID_WANT | 1 << SAID_WANT_MORE
    ALL_BUT_WANTS = (1 << SAID_WANT) - 1

cdef enum AskedKind:
    ASKED_SUM = 0
    ASKED_LIST = 1
    ASKED_WANT = 2
    ASKED_ANYTHING = 3

cdef enum HeardKind:
    HEARD_SUM = 0
    HEARD_UNKNOWN = 1
    HEARD_LIST = 2      # its ids and their places are the numbers
    SENDING_BITS = 3    # the numbers' bits say which are wanted
    SENDING = 4         # all items in the range
    SENDING_NAMED = 5   # the numbers are ranks
    SENDING_BESIDES = 6  # the items not in a list
    LISTING = 7

cdef enum Form:
    PLAIN = 0
    ASKING = 1
    ANSWERING = 2

cdef struct Octets:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room

cdef struct Key:
    # Of size -1 if it is the end of all keys.
    const uint8_t *data
    Py_ssize_t size

cdef struct Range:
    # Bounds are where they lie in the table's bytes, or -1 for the end of all keys.
    Py_ssize_t lower
    Py_ssize_t upper
    uint64_t start
    uint64_t count

cdef struct Open:
    Range range
    uint64_t base       # the count to which the answer's is a difference
    int kind

cdef struct Heard:
    Range range
    uint64_t skip       # the number of equal ones before it
    uint64_t sum
    uint64_t theirs
    uint64_t their_sum
    Py_ssize_t numbers  # where they lie among all
    uint64_t number_count
    uint64_t done       # the number of our items, or of the numbers, that are through
    uint64_t left       # the number yet to be said
    int kind
    bint echo           # it answers a sum of ours by their own

cdef struct Cut:
    # Where a range of ours is cut, and all shorts before that, combined.
    uint64_t rank
    uint64_t sum

cdef struct Reader:
    const uint8_t *at
    const uint8_t *end

cdef struct Plan:
    Py_ssize_t size
    uint64_t asked_max
    uint64_t threshold
    uint64_t parts
    uint64_t expected
    uint64_t branching
    bint listing


cdef int reserve(Octets *octets, Py_ssize_t size) except -1:
    """Make room for `size` bytes more."""
    cdef Py_ssize_t room
    cdef uint8_t *data
    if octets.room - octets.size >= size:
        return 0
    room = max(2 * octets.room, octets.size + size, 64)
    data = <uint8_t *>realloc(octets.data, room)
    if data == NULL:
        raise MemoryError
    octets.data, octets.room = data, room
    return 0


cdef int put(Octets *octets, const void *data, Py_ssize_t size) except -1:
    reserve(octets, size)
    if size:  # of nothing there may be no address
        memcpy(octets.data + octets.size, data, size)
    octets.size += size
    return 0


cdef int put_byte(Octets *octets, uint8_t byte) except -1:
    reserve(octets, 1)
    octets.data[octets.size] = byte
    octets.size += 1
    return 0


cdef int put_number(Octets *octets, uint64_t value) except -1:
    reserve(octets, 10)
    while value > 127:
        octets.data[octets.size] = <uint8_t>(value & 127 | 128)
        octets.size += 1
        value >>= 7
    octets.data[octets.size] = <uint8_t>value
    octets.size += 1
    return 0


cdef int put_difference(Octets *octets, int64_t value) except -1:
    return put_number(
        octets, <uint64_t>value * 2 if value >= 0 else <uint64_t>(-(value + 1)) * 2 + 1
    )


cdef int put_said(Octets *octets, int said, uint64_t number) except -1:
    put_byte(octets, <uint8_t>(said | min(number, HALF_FULL) << 4))
    if number >= HALF_FULL:
        put_number(octets, number - HALF_FULL)
    return 0


cdef int put_key(Octets *octets, const Key *key, const Key *before) except -1:
    """A bound, cut against the one before it."""
    cdef Py_ssize_t shared = common(before, key), size = max(key.size, 0) - shared
    put_byte(octets, <uint8_t>(min(shared, HALF_FULL) << 4 | min(size, HALF_FULL)))
    if shared >= HALF_FULL:
        put_number(octets, shared - HALF_FULL)
    if size >= HALF_FULL:
        put_number(octets, size - HALF_FULL)
    return put(octets, key.data + shared, size)


cdef Py_ssize_t keep_key(Octets *octets, const Key *key) except? -2:
    """Where the bound lies from now on."""
    cdef Py_ssize_t at = octets.size
    cdef uint8_t[2] size
    if key.size < 0:
        return -1
    size[0], size[1] = <uint8_t>key.size, <uint8_t>(key.size >> 8)
    put(octets, size, 2)
    put(octets, key.data, key.size)
    return at


cdef inline Key key_at(const Octets *octets, Py_ssize_t at) noexcept nogil:
    cdef Key key
    key.data, key.size = NULL, -1
    if at >= 0:
        key.data = octets.data + at + 2
        key.size = octets.data[at] | octets.data[at + 1] << 8
    return key


cdef inline Py_ssize_t common(const Key *first, const Key *second) noexcept nogil:
    """With how many equal bytes two keys begin; none, if one is the end of all keys."""
    cdef Py_ssize_t at = 0, size = min(first.size, second.size)
    while at < size and first.data[at] == second.data[at]:
        at += 1
    return at


cdef inline int order_keys(const Key *first, const Key *second) noexcept nogil:
    """Below, equal to or above 0, as `first` is to `second`."""
    cdef int order
    if first.size < 0 or second.size < 0:
        return (first.size < 0) - (second.size < 0)
    order = memcmp(first.data, second.data, min(first.size, second.size))
    if order:
        return order
    return (first.size > second.size) - (first.size < second.size)


# Equal steps in the keys.

cdef struct Steps:
    Py_ssize_t cut
    uint64_t low
    uint64_t quotient
    uint64_t remainder
    uint64_t parts


cdef inline uint64_t window(const Key *key, Py_ssize_t cut) noexcept nogil:
    """The eight bytes after the first `cut`, zeros after the end."""
    cdef Py_ssize_t left = key.size - cut
    if left >= 8:
        return load_64_be(key.data + cut)
    return load_be(key.data + cut, <int>left) << (64 - 8 * left) if left else 0


cdef bint can_step(
    Steps *steps, const Key *lower, const Key *upper, uint64_t parts, Py_ssize_t item_size
) noexcept nogil:
    cdef uint64_t high = 0
    steps.cut = common(lower, upper)
    if steps.cut >= item_size:
        return False
    steps.low = window(lower, steps.cut)
    if upper.size >= 0:
        high = window(upper, steps.cut)
        if high <= steps.low:
            return False
    # Without an upper bound this is 2**64, one less fits.
    high -= steps.low + 1
    if high < parts - 1:
        return False
    steps.parts = parts
    steps.quotient = high // parts
    steps.remainder = high % parts + 1
    if steps.remainder == parts:
        steps.quotient += 1
        steps.remainder = 0
    return True


cdef Key step(const Steps *steps, const Key *lower, uint64_t part, uint8_t *room) noexcept nogil:
    """The bound before that part, which lies in `room`."""
    cdef Key key
    memcpy(room, lower.data, steps.cut)
    store_64_be(
        room + steps.cut,
        steps.low + steps.quotient * part + steps.remainder * part // steps.parts,
    )
    key.data, key.size = room, steps.cut + 8
    while key.size > steps.cut and room[key.size - 1] == 0:
        key.size -= 1
    return key


cdef inline uint64_t before_part(uint64_t count, uint64_t parts, uint64_t part) noexcept nogil:
    """How much of `count` the parts before that one have."""
    return count // parts * part + count % parts * part // parts


# One side.

@cython.final
cdef class Exchange:
    cdef View view
    cdef Layout layout
    cdef int form
    cdef int width
    cdef uint64_t mask
    cdef uint64_t salt
    cdef uint64_t ranges_max

    # Our items: see items.pxi.
    cdef int kind
    cdef bint keyed
    cdef SipKey key
    cdef uint8_t *keyed_shorts
    cdef uint64_t *keyed_blocks
    cdef uint64_t union_count
    cdef uint64_t[WORDS_MAX] union_state
    cdef Run run            # where we have looked last, if it has items
    cdef Trail trail        # the way there
    cdef uint64_t run_sum   # of the shorts before it
    cdef uint64_t last_rank  # in the run, or keyed anywhere
    cdef uint64_t last_sum
    cdef Octets scratch

    # Our questions.
    cdef Octets opens
    cdef Octets open_keys

    # Answers from the other side: see hearing.pxi.
    cdef Octets heards
    cdef Octets heard_keys
    cdef Octets numbers
    cdef uint64_t heard_skipped
    cdef uint64_t heard_answered
    cdef uint64_t heard_told
    cdef uint64_t heard_group
    cdef int heard_flags
    cdef int only           # a set of `Said`, or 0
    cdef bint has_last
    cdef Py_ssize_t last_size
    cdef uint8_t[SIZE_MAX] last_item
    cdef uint64_t part_start
    cdef Py_ssize_t part_lower_size
    cdef uint8_t[BOUND_SIZE_MAX] part_lower
    cdef uint64_t[4] estimated

    # Our answers: see saying.pxi.
    cdef Octets out
    cdef uint64_t next
    cdef uint64_t passed
    cdef uint64_t said_group
    cdef Py_ssize_t before_size
    cdef uint8_t[BOUND_SIZE_MAX] before

    def __cinit__(
        self, View view not None, int width, uint64_t salt, uint64_t ranges_max,
        bytes key not None=b"", int form=0,
    ):
        if not 1 <= width <= 8:
            raise ValueError("1 to 8 bytes of a sum travel")
        if len(key) not in (0, 16):
            raise ValueError("a key has 16 bytes")
        if form not in (PLAIN, ASKING, ANSWERING):
            raise ValueError(f"{form} is no form of rounds")
        # Pointers into a tree that changes would not last.
        self.view = view.still()
        self.layout = self.view.layout
        self.form, self.width = form, width
        self.mask = <uint64_t>-1 >> (64 - 8 * width)
        self.salt, self.ranges_max = salt, ranges_max
        take_stock(self, key)

    def __dealloc__(self):
        free(self.keyed_shorts)
        free(self.keyed_blocks)
        free(self.scratch.data)
        free(self.opens.data)
        free(self.open_keys.data)
        free(self.heards.data)
        free(self.heard_keys.data)
        free(self.numbers.data)
        free(self.out.data)

    def __sizeof__(self):
        cdef Py_ssize_t rooms = (
            self.scratch.room + self.opens.room + self.open_keys.room + self.heards.room
            + self.heard_keys.room + self.numbers.room + self.out.room
        )
        if self.keyed:
            rooms += 8 * self.view.size() + 8 * (self.view.size() >> BLOCK_SHIFT) + 16
        return object.__sizeof__(self) + rooms

    cdef int clear_questions(self) except -1:
        self.heards.size = self.heard_keys.size = self.numbers.size = 0
        self.heard_skipped = self.heard_answered = self.heard_told = self.heard_group = 0
        memset(self.estimated, 0, sizeof(self.estimated))
        self.next = self.passed = self.said_group = 0
        return 0

    cdef int clear_asked(self) except -1:
        self.opens.size = self.open_keys.size = 0
        self.next = self.passed = self.said_group = 0
        return 0

    cdef Range everything(self, Octets *keys) except *:
        cdef Range whole
        cdef Key lowest
        lowest.data, lowest.size = NULL, 0
        whole.lower, whole.upper = keep_key(keys, &lowest), -1
        whole.start, whole.count = 0, self.view.size()
        return whole

    def begin(self):
        cdef Heard heard
        memset(&heard, 0, sizeof(Heard))
        self.clear_asked()
        self.clear_questions()
        heard.range = self.everything(&self.heard_keys)
        heard.kind = HEARD_UNKNOWN
        put(&self.heards, &heard, sizeof(Heard))

    def expect(self):
        cdef Open opened
        self.clear_asked()
        self.clear_questions()
        opened.range = self.everything(&self.open_keys)
        opened.base, opened.kind = 0, ASKED_SUM
        put(&self.opens, &opened, sizeof(Open))
        enter(self, NULL)

    def listen(self):
        self.clear_questions()
        enter(self, NULL)

    def speak(self):
        self.clear_asked()

    @property
    def asked(self):
        return self.opens.size // sizeof(Open)

    @property
    def answered(self):
        return self.heard_answered

    @property
    def left(self):
        return self.heards.size // sizeof(Heard) - self.next

    @property
    def is_over(self):
        return is_over(self)

    @property
    def estimate(self):
        return (
            self.estimated[0],
            self.estimated[1],
            <int64_t>self.estimated[2],
            self.estimated[3],
        )

    @property
    def union(self):
        return self.union_count, pack(self.kind, self.union_state)

    def shorts(self, uint64_t start, uint64_t count):
        cdef uint64_t size = self.view.size(), stop = start + count, got
        cdef PyObject *shorts
        cdef const uint8_t *some
        cdef uint8_t *target
        if start > size or count > size - start:
            raise ValueError("no such items")
        shorts = new_bytes(NULL, 8 * <Py_ssize_t>count)
        target = <uint8_t *>bytes_data(shorts)
        while start < stop:
            some = shorts_at(self, start, stop, &got)
            memcpy(target, some, 8 * got)
            target += 8 * got
            start += got
        result = <object>shorts
        Py_DECREF(result)
        return result

    def add(self, bytes item not None):
        if PyBytes_GET_SIZE(item) > self.layout.item_size:
            raise ValueError("an item that is too large")
        return add_to_union(
            self, <const uint8_t *>PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item)
        )

    def hear(self, bytes data not None, uint64_t until):
        cdef Reader reader
        cdef list items = []
        cdef int fault
        if until > <uint64_t>self.opens.size // sizeof(Open):
            raise ValueError("fewer ranges were asked about")
        reader.at = <const uint8_t *>PyBytes_AS_STRING(data)
        reader.end = reader.at + PyBytes_GET_SIZE(data)
        fault = hear(self, &reader, until, items)
        return (fault, []) if fault else (0, items)

    def say(
        self, Py_ssize_t size, uint64_t asked_max, uint64_t threshold, uint64_t parts,
        uint64_t expected, uint64_t branching=0, bint listing=False,
    ):
        cdef Plan plan
        if threshold < 1:
            raise ValueError("a threshold is at least 1")
        if parts > NUMBER_MAX or expected > NUMBER_MAX or branching > NUMBER_MAX:
            raise OverflowError("more than 31 bits")
        plan.size, plan.threshold, plan.parts, plan.expected = size, threshold, parts, expected
        plan.branching, plan.listing, plan.asked_max = branching, listing, asked_max
        self.out.size = 0
        say(self, &plan)
        return PyBytes_FromStringAndSize(<const char *>self.out.data, self.out.size)
