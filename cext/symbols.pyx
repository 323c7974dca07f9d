# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Coded symbols: the compiled twin of `culm.kernels.pure_symbols`, its specification."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

include "octets.pxi"

SYMBOLS_MAX = 1 << 24

cdef enum:
    ROW_MAX = 1 << 24
    CHECK_BITS = 20
    CHECK_MASK = (1 << 20) - 1
    STEP_COUNT = 4096
    NUMBER_SIZE_MAX = 9
    SYMBOL_SIZE_MAX = 17
    CUT_FAULT = 1
    NUMBER_FAULT = 3

cdef extern from *:
    """
    #define CULM_MULTIPLIER 0xD6E8FEB86659FD93ull
    #define CULM_GENERATOR 0xD1342543DE82EF95ull
    #define CULM_COUNT_MAX ((1ll << 62) - 1)
    """
    const uint64_t MULTIPLIER "CULM_MULTIPLIER"
    const uint64_t GENERATOR "CULM_GENERATOR"
    const int64_t COUNT_MAX "CULM_COUNT_MAX"

cdef uint32_t[STEP_COUNT] STEPS


cdef uint64_t root(uint64_t square) noexcept:
    """The whole part of the square root, bit by bit."""
    cdef uint64_t found = 0
    cdef int shift
    for shift in range(31, -1, -1):
        if (found | <uint64_t>1 << shift) * (found | <uint64_t>1 << shift) <= square:
            found |= <uint64_t>1 << shift
    return found


cdef void make_steps() noexcept:
    cdef int part
    for part in range(STEP_COUNT):
        STEPS[part] = <uint32_t>(root((<uint64_t>1 << 45) // <uint64_t>(2 * part + 1)) - 65536)


make_steps()

cdef struct Symbol:
    uint64_t words
    int64_t count

cdef struct Row:
    Symbol *symbols
    uint64_t size
    uint64_t salt


cdef inline uint64_t mix(uint64_t number) noexcept nogil:
    number = (number ^ number >> 32) * MULTIPLIER
    number = (number ^ number >> 32) * MULTIPLIER
    return number ^ number >> 32


cdef inline uint64_t id_of(uint64_t salt, uint64_t short) noexcept nogil:
    return mix(short + salt) >> CHECK_BITS


cdef inline uint64_t place_after(uint64_t place, uint64_t *state) noexcept nogil:
    state[0] = state[0] * GENERATOR + 1
    return place + 1 + ((2 * place + 3) * STEPS[state[0] >> 52] >> 17)


cdef inline void change(Row *row, uint64_t identifier, int64_t by, uint64_t start) noexcept nogil:
    """Put an id in, or take it out, from symbol `start` on."""
    cdef uint64_t state = mix(identifier + row.salt), place = 0
    cdef uint64_t word = identifier << CHECK_BITS | state & CHECK_MASK
    while place < row.size:
        if place >= start:
            row.symbols[place].words ^= word
            row.symbols[place].count += by
        place = place_after(place, &state)


cdef void put_in(Row *row, const uint8_t *shorts, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(count):
        change(row, id_of(row.salt, load_64(shorts + 8 * at)), 1, 0)


cdef Py_ssize_t count_of(bytes shorts) except -1:
    if PyBytes_GET_SIZE(shorts) % 8:
        raise ValueError("shorts have 8 bytes each")
    return PyBytes_GET_SIZE(shorts) // 8


cdef inline int64_t usual(int64_t total, uint64_t at) noexcept nogil:
    """The usual number of ids in a symbol, of `total`; 0 for the first, which says how many."""
    return total * 2 // <int64_t>(at + 2) if at else 0


@cython.final
cdef class Symbols:
    cdef Row row

    def __cinit__(self, uint64_t salt, uint64_t size):
        if not 1 <= size <= ROW_MAX:
            raise ValueError(f"1 to {SYMBOLS_MAX} symbols")
        self.row.symbols = <Symbol *>calloc(size, sizeof(Symbol))
        if self.row.symbols == NULL:
            raise MemoryError
        self.row.size, self.row.salt = size, salt

    def __dealloc__(self):
        free(self.row.symbols)

    def __sizeof__(self):
        return object.__sizeof__(self) + self.row.size * sizeof(Symbol)

    @property
    def size(self):
        return self.row.size

    def add(self, bytes shorts not None):
        put_in(&self.row, <const uint8_t *>PyBytes_AS_STRING(shorts), count_of(shorts))

    def encode(self, uint64_t start, uint64_t stop):
        cdef PyObject *encoded
        cdef uint8_t *out
        cdef uint8_t *first
        cdef uint64_t at, number
        cdef int64_t apart
        if not start <= stop <= self.row.size:
            raise ValueError("no such symbols")
        encoded = new_bytes(NULL, <Py_ssize_t>(stop - start) * SYMBOL_SIZE_MAX)
        first = out = <uint8_t *>bytes_data(encoded)
        for at in range(start, stop):
            apart = self.row.symbols[at].count - usual(self.row.symbols[0].count, at)
            number = <uint64_t>apart * 2 if apart >= 0 else <uint64_t>(-(apart + 1)) * 2 + 1
            while number > 127:
                out[0] = <uint8_t>(number & 127 | 128)
                out += 1
                number >>= 7
            out[0] = <uint8_t>number
            store_64_be(out + 1, self.row.symbols[at].words)
            out += 9
        return shrink(encoded, out - first)

    def cell(self, uint64_t at):
        if at >= self.row.size:
            raise IndexError("no such symbol")
        return self.row.symbols[at].count, self.row.symbols[at].words


cdef struct Found:
    uint64_t identifier
    int64_t side


@cython.final
cdef class Difference:
    cdef Row row
    cdef uint64_t room
    cdef int64_t said
    cdef uint64_t ready
    cdef Found *finds
    cdef uint64_t find_count
    cdef uint64_t find_room

    def __cinit__(self, uint64_t salt):
        self.row.salt = salt

    def __dealloc__(self):
        free(self.row.symbols)
        free(self.finds)

    def __sizeof__(self):
        return (
            object.__sizeof__(self)
            + self.room * sizeof(Symbol) + self.find_room * sizeof(Found)
        )

    @property
    def size(self):
        return self.row.size

    @property
    def total(self):
        return self.said

    def hear(self, bytes data not None):
        cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef const uint8_t *end = at + PyBytes_GET_SIZE(data)
        # No symbol has fewer than nine bytes.
        self.make_room(self.row.size + <uint64_t>PyBytes_GET_SIZE(data) // 9)
        return self.take(at, end)

    cdef int make_room(self, uint64_t size) except -1:
        cdef Symbol *symbols
        cdef uint64_t room
        if size <= self.room:
            return 0
        room = max(size, self.room + self.room // 2)
        symbols = <Symbol *>realloc(self.row.symbols, room * sizeof(Symbol))
        if symbols == NULL:
            raise MemoryError
        self.row.symbols, self.room = symbols, room
        return 0

    cdef int take(self, const uint8_t *at, const uint8_t *end) noexcept:
        cdef uint64_t place = self.row.size, number
        cdef int64_t total = self.said, count
        cdef int shift
        cdef uint8_t byte
        while at < end:
            number, shift, byte = 0, 0, 128
            while byte > 127:
                if shift == 7 * NUMBER_SIZE_MAX:
                    return NUMBER_FAULT
                if at >= end:
                    return CUT_FAULT
                byte = at[0]
                number |= <uint64_t>(byte & 127) << shift
                at += 1
                shift += 7
            if shift > 7 and byte == 0:
                return NUMBER_FAULT
            count = <int64_t>(number >> 1)
            count = usual(total, place) + (-count - 1 if number & 1 else count)
            if place == 0:
                total = count
            if not 0 <= count <= min(total, COUNT_MAX) or place >= ROW_MAX:
                return NUMBER_FAULT
            if end - at < 8:
                return CUT_FAULT
            self.row.symbols[place].count = count
            self.row.symbols[place].words = load_64_be(at)
            place += 1
            at += 8
        self.said, self.row.size = total, place
        return 0

    def peel(self, Symbols symbols not None):
        cdef uint64_t at
        if symbols.row.size < self.row.size:
            raise ValueError("fewer symbols than the other side's")
        for at in range(self.ready, self.row.size):
            self.row.symbols[at].count -= symbols.row.symbols[at].count
            self.row.symbols[at].words ^= symbols.row.symbols[at].words
        for at in range(self.find_count):
            change(&self.row, self.finds[at].identifier, -self.finds[at].side, self.ready)
        self.follow()
        self.ready = self.row.size
        for at in range(self.row.size):
            if self.row.symbols[at].count or self.row.symbols[at].words:
                return False
        return True

    cdef int follow(self) except -1:
        """Find the ids in pure symbols, and those in symbols that become pure."""
        cdef uint64_t size = self.row.size
        cdef uint64_t *queue
        cdef uint8_t *waiting
        if size == self.ready:
            return 0
        self.make_finds(size)
        queue = <uint64_t *>malloc(8 * size)
        waiting = <uint8_t *>malloc(size)
        if queue == NULL or waiting == NULL:
            free(queue)
            free(waiting)
            raise MemoryError
        self.follow_in(queue, waiting)
        free(queue)
        free(waiting)
        return 0

    cdef int make_finds(self, uint64_t size) except -1:
        cdef Found *finds
        if size <= self.find_room:
            return 0
        finds = <Found *>realloc(self.finds, size * sizeof(Found))
        if finds == NULL:
            raise MemoryError
        self.finds, self.find_room = finds, size
        return 0

    cdef void follow_in(self, uint64_t *queue, uint8_t *waiting) noexcept nogil:
        """The queue is a ring: a symbol stands in it once, so there is room for all."""
        cdef uint64_t size = self.row.size, first = 0, count = 0, at, identifier, state, word
        cdef int64_t side
        memset(waiting, 0, size)
        for at in range(self.ready, size):
            queue[count] = at
            waiting[at] = 1
            count += 1
        while count and self.find_count < size:
            at = queue[first]
            first = first + 1 if first + 1 < size else 0
            count -= 1
            waiting[at] = 0
            if not self.is_pure(at):
                continue
            side, identifier = self.row.symbols[at].count, self.row.symbols[at].words >> CHECK_BITS
            self.finds[self.find_count].identifier = identifier
            self.finds[self.find_count].side = side
            self.find_count += 1
            state = mix(identifier + self.row.salt)
            word = identifier << CHECK_BITS | state & CHECK_MASK
            at = 0
            while at < size:
                self.row.symbols[at].count -= side
                self.row.symbols[at].words ^= word
                if not waiting[at]:
                    waiting[at] = 1
                    queue[first + count if first + count < size else first + count - size] = at
                    count += 1
                at = place_after(at, &state)

    cdef bint is_pure(self, uint64_t at) noexcept nogil:
        cdef uint64_t words = self.row.symbols[at].words, state, place = 0
        if self.row.symbols[at].count != 1 and self.row.symbols[at].count != -1:
            return False
        state = mix((words >> CHECK_BITS) + self.row.salt)
        if (words ^ state) & CHECK_MASK:
            return False
        while place < at:
            place = place_after(place, &state)
        return place == at

    @property
    def found(self):
        return self.find_count

    cdef list side(self, int64_t side):
        cdef uint64_t at
        cdef list ids = []
        for at in range(self.find_count):
            if self.finds[at].side == side:
                ids.append(self.finds[at].identifier)
        ids.sort()
        return ids

    @property
    def theirs(self):
        return self.side(1)

    @property
    def ours(self):
        return self.side(-1)

    def counts(self, uint64_t stop):
        cdef uint64_t at
        cdef list counts = []
        for at in range(min(stop, self.ready)):
            counts.append(self.row.symbols[at].count)
        return counts


@cython.final
cdef class Ids:
    # A table with open addresses, half empty at least; 0 is no key in it: keys are ids plus 1.
    cdef uint64_t *slots
    cdef uint64_t mask
    cdef uint64_t salt

    def __cinit__(self, uint64_t salt, ids):
        cdef list held = list(ids)
        cdef uint64_t room = 4, identifier
        self.salt = salt
        while room < 2 * <uint64_t>len(held):
            room *= 2
        self.mask = room - 1
        self.slots = <uint64_t *>calloc(room, 8)
        if self.slots == NULL:
            raise MemoryError
        for identifier in held:
            if identifier >> 44:
                raise OverflowError("an id has 44 bits")
            self.slots[self.slot_of(identifier)] = identifier + 1

    def __dealloc__(self):
        free(self.slots)

    def __sizeof__(self):
        return object.__sizeof__(self) + 8 * (self.mask + 1)

    cdef inline uint64_t slot_of(self, uint64_t identifier) noexcept nogil:
        """Where the id stands, or would stand."""
        cdef uint64_t slot = mix(identifier) & self.mask
        while self.slots[slot] and self.slots[slot] != identifier + 1:
            slot = slot + 1 & self.mask
        return slot

    def places(self, bytes shorts not None):
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(shorts)
        cdef Py_ssize_t at
        cdef list found = []
        for at in range(count_of(shorts)):
            if self.slots[self.slot_of(id_of(self.salt, load_64(data + 8 * at)))]:
                found.append(at)
        return found
