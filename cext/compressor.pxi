# LZFoo's compressor: its state from packet to packet.  A part of lzfoo.pyx.

cdef enum:
    # The table of the match finder, and the packets that are cut: see the pure twin.
    TABLE_BITS_MIN = 8
    TABLE_BITS_MAX = 17
    CHAINS_BITS_MAX = 19
    NARROW = 65536
    CUT_SIZE_MIN = 32768
    QUICK = 1
    THOROUGH = 2


cdef class Compressor:
    """One direction's history, and packets made with its help."""

    cdef readonly size_t window
    cdef readonly int level
    cdef int table_bits
    # Where sequences were seen last, in as many bits of their positions as the window needs;
    # for the second level, where each chain begins, and then their links.
    cdef void *table
    # The history and then the packet at hand: `size` bytes, the first of which is
    # byte `base` of the stream (modulo 2**32).
    cdef uint8_t *buffer
    cdef size_t capacity
    cdef size_t size
    cdef uint32_t base
    cdef bint busy

    def __cinit__(self, window, level=QUICK):
        self.window = window_of(window)
        if level not in (QUICK, THOROUGH):
            raise ValueError(f"a level is 1 or 2, not {level}")
        self.level = level

    def __dealloc__(self):
        PyMem_Free(self.table)
        PyMem_Free(self.buffer)

    def compress(self, data, size_max=None):
        """The elements for `data`; ``None``, and no change, if larger than `size_max`."""
        cdef Py_buffer view
        if size_max is not None and size_max < 0:
            raise ValueError("size_max is negative")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self.busy:
                raise RuntimeError("another thread is compressing")
            if view.len == 0:
                return b""
            return self.compress_packet(<const uint8_t *>view.buf, view.len, size_max)
        finally:
            PyBuffer_Release(&view)

    def rest(self):
        """Give back all memory but that of the history; the next packet makes the table anew."""
        if self.busy:
            raise RuntimeError("another thread is compressing")
        PyMem_Free(self.table)
        self.table = NULL
        if self.buffer != NULL:
            self.move_history(0)

    cdef object compress_packet(self, const uint8_t *data, size_t size, size_max):
        cdef size_t room = size + (size >> 8) + 2
        cdef void *table = self.table
        cdef int bits = self.table_bits
        cdef void *saved = NULL
        cdef Weighed *places = NULL
        cdef PyObject *packet
        cdef uint8_t *end
        if size > PACKET_SIZE_MAX:
            raise MemoryError
        if size_max is not None and size_max < room:
            room = size_max
        packet = new_bytes(NULL, room + SPARE)
        try:
            if self.window:
                self.prepare(size)
                places = self.new_places(size)
                if self.table == table and size_max is not None:
                    saved = self.save_table(data, size)
            end = self.run(data, size, places, <uint8_t *>bytes_data(packet), room)
        except:
            Py_DECREF(<object>packet)
            raise
        finally:
            PyMem_Free(places)
        if end == NULL:
            Py_DECREF(<object>packet)
            if self.table == table:
                self.restore_table(saved, data, size)
            else:
                PyMem_Free(self.table)
                self.table = table
                self.table_bits = bits
            PyMem_Free(saved)
            return None
        if self.table != table:
            PyMem_Free(table)
        PyMem_Free(saved)
        self.remember(data, size)
        return shrink(packet, end - <uint8_t *>bytes_data(packet))

    cdef int prepare(self, size_t size) except -1:
        """Allocate all the memory for compressing `size` bytes and remembering them."""
        self.reserve(min(size, self.window) if self.looks_in_place(size) else size)
        self.grow_table(size)
        return 0

    cdef Weighed *new_places(self, size_t size) except? NULL:
        """Room for the places that the second level weighs."""
        cdef Weighed *places
        if self.level != THOROUGH:
            return NULL
        places = <Weighed *>PyMem_Malloc((min(size, BLOCK) + PLACE) * sizeof(Weighed))
        if places == NULL:
            raise MemoryError
        return places

    cdef bint is_narrow(self) noexcept nogil:
        """Whether 16 bits of a position are enough."""
        return self.level == QUICK and self.window <= NARROW

    cdef size_t table_size(self, int bits) noexcept:
        cdef size_t entries = <size_t>(3 if self.level == THOROUGH else 1) << bits
        return entries * (sizeof(uint16_t) if self.is_narrow() else sizeof(uint32_t))

    cdef bint looks_in_place(self, size_t size) noexcept nogil:
        """Whether a packet can do without a copy: nothing is before it, or little of it is near."""
        return self.size == 0 or size > max(2 * self.window, <size_t>CUT_SIZE_MIN)

    cdef uint8_t *run(
        self, const uint8_t *data, size_t size, Weighed *places, uint8_t *target, size_t room
    ) noexcept:
        """Write the elements for `data`; NULL if they take more than `room`."""
        cdef uint8_t *end
        if size < UNLOCKED_SIZE_MIN:
            return self.write(data, size, places, target, target + room)
        self.busy = True
        with nogil:
            end = self.write(data, size, places, target, target + room)
        self.busy = False
        return end

    cdef uint8_t *write(
        self,
        const uint8_t *data,
        size_t size,
        Weighed *places,
        uint8_t *target,
        const uint8_t *limit,
    ) noexcept nogil:
        cdef uint32_t window = <uint32_t>self.window
        cdef Finder finder = Finder(data, data + size, self.base, window, self.table_bits)
        cdef size_t copied = 0
        if window == 0:
            return put_rest(target, limit, data, data + size)
        if self.size:
            copied = window if self.looks_in_place(size) else size
            memcpy(self.buffer + self.size, data, copied)
            finder.low = self.buffer
            finder.end = self.buffer + self.size + copied
            target = self.write_part(&finder, self.buffer + self.size, places, target, limit)
            if copied == size or target == NULL:
                return target
            finder = Finder(data, data + size, self.base + <uint32_t>self.size, window, self.table_bits)
        return self.write_part(&finder, data + copied, places, target, limit)

    cdef uint8_t *write_part(
        self,
        const Finder *finder,
        const uint8_t *here,
        Weighed *places,
        uint8_t *target,
        const uint8_t *limit,
    ) noexcept nogil:
        if self.level == THOROUGH:
            return write_thoroughly(
                finder, <uint32_t *>self.table, places, here, target, limit
            )
        if self.is_narrow():
            return write_quickly(finder, <uint16_t *>self.table, here, target, limit)
        return write_quickly(finder, <uint32_t *>self.table, here, target, limit)

    cdef void remember(self, const uint8_t *data, size_t size) noexcept:
        """Add compressed data to the history."""
        cdef size_t kept = min(size, self.window)
        if self.window == 0:
            return
        if self.looks_in_place(size):
            memcpy(self.buffer, data + size - kept, kept)
            self.base += <uint32_t>(self.size + size - kept)
            self.size = kept
        else:
            self.size += size
        if self.capacity > 2 * self.window + TRIM_SIZE:
            self.move_history(0)

    cdef int reserve(self, size_t size) except -1:
        """Make room for `size` bytes after the history, at an amortized cost of O(size)."""
        cdef size_t kept = min(self.size, self.window)
        cdef size_t dropped = self.size - kept
        if self.buffer != NULL and size <= self.capacity - self.size:
            return 0
        if dropped >= kept and kept + size <= self.capacity:
            memmove(self.buffer, self.buffer + dropped, kept)
            self.base += <uint32_t>dropped
            self.size = kept
        elif not self.move_history(kept + size):
            raise MemoryError
        return 0

    cdef bint move_history(self, size_t room) noexcept:
        """Move to a buffer with `room` bytes after the history; False if memory is out."""
        cdef size_t kept = min(self.size, self.window)
        cdef uint8_t *buffer = <uint8_t *>PyMem_Malloc(kept + room)
        if buffer == NULL:
            return False
        if kept:
            memcpy(buffer, self.buffer + self.size - kept, kept)
        PyMem_Free(self.buffer)
        self.buffer = buffer
        self.capacity = kept + room
        self.base += <uint32_t>(self.size - kept)
        self.size = kept
        return True

    cdef int grow_table(self, size_t size) except -1:
        """Provide a table large enough for `size` more bytes, with all of the history in it.

        A new one takes the place of the old one, which is not freed.
        """
        cdef size_t wanted = min(self.window, self.size + size)
        cdef int most = CHAINS_BITS_MAX if self.level == THOROUGH else TABLE_BITS_MAX
        cdef int bits = max(TABLE_BITS_MIN, min(most, high_bit((wanted - 1) | 1)))
        cdef void *table
        if self.table != NULL and bits <= self.table_bits:
            return 0
        table = PyMem_Calloc(1, self.table_size(bits))
        if table == NULL:
            raise MemoryError
        self.table = table
        self.table_bits = bits
        self.enter_history()
        return 0

    cdef void enter_history(self) noexcept:
        """Enter all places of the history into a table that is empty."""
        cdef Finder finder = Finder(
            self.buffer, self.buffer + self.size, self.base, 0, self.table_bits
        )
        cdef const uint8_t *here = finder.end - min(self.size, self.window)
        while finder.end - here >= PLACE:
            if self.level == THOROUGH:
                chain(&finder, <uint32_t *>self.table, here)
            elif self.is_narrow():
                enter(&finder, <uint16_t *>self.table, here)
            else:
                enter(&finder, <uint32_t *>self.table, here)
            here += 1

    cdef bint fills_table(self, size_t size) noexcept:
        """Whether `size` bytes may touch all of the table."""
        return size >> self.table_bits > 0

    cdef void *save_table(self, const uint8_t *data, size_t size) except? NULL:
        """Copy the table, or only those entries that `data` can touch; NULL for chains."""
        cdef bint whole = self.fills_table(size)
        cdef void *saved
        if self.level == THOROUGH:
            return NULL
        saved = PyMem_Malloc(self.table_size(self.table_bits) if whole else size * sizeof(uint32_t))
        if saved == NULL:
            raise MemoryError
        if whole:
            memcpy(saved, self.table, self.table_size(self.table_bits))
        elif self.is_narrow():
            save_entries(self.table_bits, <uint16_t *>self.table, <uint16_t *>saved, data, size)
        else:
            save_entries(self.table_bits, <uint32_t *>self.table, <uint32_t *>saved, data, size)
        return saved

    cdef void restore_table(self, const void *saved, const uint8_t *data, size_t size) noexcept:
        if self.window == 0:
            return
        if self.level == THOROUGH:
            memset(self.table, 0, self.table_size(self.table_bits))
            self.enter_history()
        elif self.fills_table(size):
            memcpy(self.table, saved, self.table_size(self.table_bits))
        elif self.is_narrow():
            restore_entries(self.table_bits, <uint16_t *>self.table, <uint16_t *>saved, data, size)
        else:
            restore_entries(self.table_bits, <uint32_t *>self.table, <uint32_t *>saved, data, size)
