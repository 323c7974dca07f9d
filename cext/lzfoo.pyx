# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""LZFoo: the compiled twin of `culm.kernels.pure_lzfoo`, its specification."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.string cimport memmove, memset

include "octets.pxi"
include "elements.pxi"
include "match_finder.pxi"
include "chains.pxi"

cdef enum:
    FAULT_LENGTH = 1
    FAULT_ZERO_OFFSET = 2
    FAULT_FAR_OFFSET = 3
    FAULT_TRAILING = 4

    HEADER_SIZE_MAX = 18
    # The most that an element shorter than LONG can touch of the input, and of the output.
    SHORT_SIZE_MAX = 320
    # Copies from so far back need no care for the bytes that they make themselves.
    NEAR = 16

    # From this many bytes on other threads may run meanwhile.
    UNLOCKED_SIZE_MIN = 32768
    # A buffer is not kept if it exceeds the history's needs by that size.
    TRIM_SIZE = 262144

BAD_LENGTH = FAULT_LENGTH
ZERO_OFFSET = FAULT_ZERO_OFFSET
FAR_OFFSET = FAULT_FAR_OFFSET
TRAILING = FAULT_TRAILING
WINDOW_MAX = 1 << 30

# With packets of up to that size no sum of sizes below can overflow.
cdef size_t PACKET_SIZE_MAX = (<size_t>-1) >> 3


cdef size_t window_of(object window) except? 0:
    if not 0 <= window <= WINDOW_MAX:
        raise ValueError(f"a window is 0..{WINDOW_MAX} bytes, not {window}")
    return window


include "compressor.pxi"


cdef inline void repeat(uint8_t *target, size_t distance, size_t size) noexcept nogil:
    """Append `size` bytes that repeat the `distance` bytes before `target`."""
    cdef const uint8_t *source = target - distance
    while size > distance:
        memcpy(target, source, distance)
        target += distance
        size -= distance
        distance *= 2
    memcpy(target, source, size)


cdef inline void copy_loosely(uint8_t *target, const uint8_t *source, size_t size) noexcept nogil:
    """Copy up to 31 bytes more than `size`; the target is 16 bytes after the source or apart."""
    cdef uint8_t *end = target + size
    memcpy(target, source, 16)
    memcpy(target + 16, source + 16, 16)
    while end - target > 32:
        target += 32
        source += 32
        memcpy(target, source, 16)
        memcpy(target + 16, source + 16, 16)


cdef struct Step:
    # The progress of one call: the rest of the input, and the output.
    const uint8_t *input_start
    const uint8_t *input
    const uint8_t *input_end
    uint8_t *output_start
    uint8_t *output
    uint8_t *output_end


cdef extern from *:
    """
    static const uint64_t culm_offset_mask[9] = {
        0xFF, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF, 0
    };
    """
    const uint64_t *OFFSET_MASK "culm_offset_mask"


cdef class Decompressor:
    """One direction's history, and packets decoded with its help, in any pieces."""

    cdef readonly size_t window
    cdef readonly uint64_t remaining
    cdef readonly uint64_t position
    cdef readonly int fault
    cdef readonly uint64_t fault_position

    # The element at hand: the bytes of its length and offset that are there, then the size
    # still to append.
    cdef uint8_t header[HEADER_SIZE_MAX]
    cdef int header_size
    cdef uint64_t header_position
    cdef uint64_t literal
    cdef uint64_t copy
    cdef size_t distance

    # A ring once `capacity` has grown to the window, before that without a wrap:
    # `available` bytes of history end just before index `head`.
    cdef uint8_t *history
    cdef size_t capacity
    cdef size_t available
    cdef size_t head
    cdef bint busy

    def __cinit__(self, window):
        self.window = window_of(window)

    def __dealloc__(self):
        PyMem_Free(self.history)

    @property
    def pending(self):
        """`decode` has something to say without further input."""
        return self.copy > 0 or self.fault != 0

    @property
    def between_elements(self):
        """No element is begun and not complete."""
        return self.header_size == 0 and self.literal == 0 and self.copy == 0

    def begin(self, size):
        """Declare the next packet: `size` bytes, uncompressed, 0..2**64-1."""
        if not 0 <= size < 1 << 64:
            raise ValueError(f"a packet's size is 0..2**64-1, not {size}")
        self.check_idle()
        if self.fault or self.remaining:
            raise ValueError("the packet before is at fault or not complete")
        self.remaining = size
        self.position = 0

    def decode(self, data, Py_ssize_t offset, Py_ssize_t out_max):
        """Decode ``data[offset:]``: the output, and how many bytes were read."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= offset <= view.len:
                raise ValueError("offset is outside the data")
            if out_max < 0:
                raise ValueError("out_max is negative")
            self.check_idle()
            return self.decode_piece(
                <const uint8_t *>view.buf + offset, view.len - offset, out_max
            )
        finally:
            PyBuffer_Release(&view)

    cdef int check_idle(self) except -1:
        if self.busy:
            raise RuntimeError("another thread is decompressing")
        return 0

    cdef object decode_piece(self, const uint8_t *data, size_t size, size_t out_max):
        cdef size_t room = <size_t>min(<uint64_t>out_max, self.remaining)
        cdef PyObject *output
        cdef Step step
        if self.fault:
            return b"", 0
        if self.remaining == 0:
            if size:
                self.fail(FAULT_TRAILING, self.position)
            return b"", 0
        self.reserve(room)
        output = new_bytes(NULL, room)
        step.input_start = step.input = data
        step.input_end = data + size
        step.output_start = step.output = <uint8_t *>bytes_data(output)
        step.output_end = step.output_start + room
        if size + room < UNLOCKED_SIZE_MIN:
            self.run(&step)
        else:
            self.busy = True
            with nogil:
                self.run(&step)
            self.busy = False
        return shrink(output, step.output - step.output_start), step.input - step.input_start

    cdef void run(self, Step *step) noexcept nogil:
        """Go on until input or room is out or a fault is found, then remember the output."""
        while True:
            if self.literal:
                if step.input == step.input_end or step.output == step.output_end:
                    break
                self.append_literal(step)
            elif self.copy:
                if step.output == step.output_end:
                    break
                self.append_copy(step)
            elif step.output == step.output_end:
                break
            else:
                if self.header_size == 0:
                    self.append_short_elements(step)
                if not self.read_header(step):
                    break
        self.position += <uint64_t>(step.input - step.input_start)
        self.remaining -= <uint64_t>(step.output - step.output_start)
        self.remember(step.output_start, step.output - step.output_start)

    cdef void append_short_elements(self, Step *step) noexcept nogil:
        """Decode short elements while none can reach the end of the input or of the room.

        Leaves long elements, faulty ones, and copies cut in the history to the careful way.
        How wide an offset is and whether it points into the history cannot be foreseen, so no
        branch depends on either.  Addresses are integers, because those before the output's
        start are of another object.
        """
        cdef const uint8_t *source = step.input
        cdef const uint8_t *source_limit = step.input_end - SHORT_SIZE_MAX
        cdef uint8_t *target = step.output
        cdef uint8_t *target_limit = step.output_end - SHORT_SIZE_MAX
        cdef uint8_t *start = step.output_start
        cdef size_t gap = <size_t>self.history + self.head - <size_t>start
        cdef size_t capacity = self.capacity
        cdef size_t length, made, reach, wanted
        cdef ptrdiff_t octets, back, wrapped, head = self.head
        cdef uint64_t distance, span = 0
        cdef bint recalling = True
        if step.input_end - source < SHORT_SIZE_MAX or step.output_end - target < SHORT_SIZE_MAX:
            return
        while source <= source_limit and target <= target_limit:
            if source[0] < COPY:
                length = source[0]
                if length >= LONG:
                    break
                copy_loosely(target, source + 1, length)
                source += 1 + length
                target += length
                if source[0] < COPY:
                    continue
            length = source[0] & (COPY - 1)
            octets = <ptrdiff_t>source[1] - (WIDE - 1)
            octets = 0 if octets < 0 else octets
            distance = load_64_be(source + 1) >> (8 * (7 - octets) & 63) & OFFSET_MASK[octets]
            if length >= LONG:
                break
            if distance - NEAR >= span:
                # Very near, or beyond the reach as it was last computed.
                made = target - start
                reach = self.reach(made)
                if distance - 1 >= reach:
                    break
                span = max(reach, <size_t>NEAR - 1) - (NEAR - 1)
                recalling = made < self.window and self.available > 0
                if distance < NEAR:
                    if distance > made:
                        break
                    repeat(target, <size_t>distance, length)
                    source += 2 + octets
                    target += length
                    continue
            wanted = <size_t>target - <size_t>distance
            if recalling:
                # So far before the output's start, and before the history's index 0.
                back = <ptrdiff_t>distance - (target - start)
                wrapped = back - head
                wanted += gap & (0 - <size_t>(back > 0))
                wanted += capacity & (0 - <size_t>(wrapped > 0))
                if <size_t>(back - 1) < length - 1 or <size_t>(wrapped - 1) < length - 1:
                    break
            copy_loosely(target, <const uint8_t *>wanted, length)
            source += 2 + octets
            target += length
        step.input = source
        step.output = target

    cdef inline size_t reach(self, size_t made) noexcept nogil:
        """How far back a copy may point when this call has made `made` bytes."""
        return min(self.window, self.available + made)

    cdef inline size_t history_index(self, size_t back) noexcept nogil:
        """Index of the byte so far before the end of the history."""
        return self.head - back if self.head >= back else self.head + self.capacity - back

    cdef void append_literal(self, Step *step) noexcept nogil:
        cdef size_t size = min(
            <size_t>(step.input_end - step.input), <size_t>(step.output_end - step.output)
        )
        size = <size_t>min(<uint64_t>size, self.literal)
        memcpy(step.output, step.input, size)
        step.input += size
        step.output += size
        self.literal -= size

    cdef void append_copy(self, Step *step) noexcept nogil:
        """Append as much of the copy as comes from one stretch of memory."""
        cdef size_t made = step.output - step.output_start
        cdef size_t size = <size_t>min(<uint64_t>(step.output_end - step.output), self.copy)
        cdef size_t index
        if self.distance <= made:
            repeat(step.output, self.distance, size)
        else:
            index = self.history_index(self.distance - made)
            size = min(size, self.distance - made, self.capacity - index)
            memcpy(step.output, self.history + index, size)
        step.output += size
        self.copy -= size

    cdef bint read_header(self, Step *step) noexcept nogil:
        """Read an element up to its data; False if input is missing or at fault."""
        cdef int length_end = 1
        cdef uint64_t length, distance
        if self.header_size == 0:
            self.header_position = self.position + <uint64_t>(step.input - step.input_start)
        if not self.fill_header(step, 1):
            return False
        length = self.header[0] & (COPY - 1)
        if length >= LONG:
            length_end = <int>length - LONG + 2
            if not self.fill_header(step, length_end):
                return False
            length = load_be(self.header + 1, length_end - 1)
        if length > self.remaining - <uint64_t>(step.output - step.output_start):
            return self.fail(FAULT_LENGTH, self.header_position)
        if self.header[0] < COPY:
            self.literal = length
        else:
            if not self.read_offset(step, length_end):
                return False
            self.copy = length
        self.header_size = 0
        return True

    cdef bint read_offset(self, Step *step, int start) noexcept nogil:
        """Read a copy's offset, which starts at index `start` of the header."""
        cdef uint64_t distance
        if not self.fill_header(step, start + 1):
            return False
        distance = self.header[start]
        if distance >= WIDE:
            if not self.fill_header(step, start + <int>distance - WIDE + 2):
                return False
            distance = load_be(self.header + start + 1, <int>distance - WIDE + 1)
        if distance == 0:
            return self.fail(FAULT_ZERO_OFFSET, self.header_position + start)
        if distance > self.reach(step.output - step.output_start):
            return self.fail(FAULT_FAR_OFFSET, self.header_position + start)
        self.distance = <size_t>distance
        return True

    cdef inline bint fill_header(self, Step *step, int size) noexcept nogil:
        """Read on until there are `size` bytes of the header; False if input is missing."""
        while self.header_size < size:
            if step.input == step.input_end:
                return False
            self.header[self.header_size] = step.input[0]
            self.header_size += 1
            step.input += 1
        return True

    cdef bint fail(self, int fault, uint64_t position) noexcept nogil:
        self.fault = fault
        self.fault_position = position
        return False

    cdef int reserve(self, size_t room) except -1:
        """Let the history have room for `room` more bytes, as far as the window goes."""
        cdef size_t capacity = min(self.window, self.available + room)
        cdef uint8_t *history
        if capacity <= self.capacity:
            return 0
        capacity = min(self.window, max(capacity, 2 * self.capacity))
        history = <uint8_t *>PyMem_Realloc(self.history, capacity + SPARE)
        if history == NULL:
            raise MemoryError
        self.history = history
        self.capacity = capacity
        self.head = self.available
        return 0

    cdef void remember(self, const uint8_t *data, size_t size) noexcept nogil:
        """Append output to the history; the oldest bytes make way."""
        cdef size_t first
        if size == 0 or self.window == 0:
            return
        if size > self.capacity:
            data += size - self.capacity
            size = self.capacity
        first = min(size, self.capacity - self.head)
        memcpy(self.history + self.head, data, first)
        memcpy(self.history, data + first, size - first)
        self.head = (self.head + size) % self.capacity
        self.available = min(self.available + size, self.capacity)
