# Records that wait: the compiled twin of `Records` in `culm.kernels.pure_cbor`.

from cpython.list cimport PyList_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.tuple cimport PyTuple_CheckExact

cdef extern from "Python.h":
    int is_too_deep "Py_EnterRecursiveCall"(const char *where)
    void leave_recursion "Py_LeaveRecursiveCall"()

cdef enum:
    CAPACITY_MIN = 1 << 8
    NUMBER_SIZE_MAX = 9

cdef double LEAP_MAX = <double>(1LL << 53)


cdef class Records:
    # No pointer into the buffer outlives a call of code that is not here: it may add records.
    cdef uint8_t *data
    cdef Py_ssize_t size, capacity, before, size_max, piece_min
    cdef list pieces
    cdef object forms, clock
    cdef double last

    def __init__(self, forms, clock, Py_ssize_t size_max, Py_ssize_t piece_min):
        self.pieces = []
        self.size = self.before = 0
        self.forms, self.clock = forms, clock
        self.size_max, self.piece_min = size_max, piece_min
        self.last = 0.0 if clock is None else clock()

    def __cinit__(self, *_):
        self.room(CAPACITY_MIN)  # so that the buffer is somewhere, even for no byte
        self.size = 0

    def __dealloc__(self):
        PyMem_Free(self.data)

    def __len__(self):
        return self.before + self.size

    def micros(self):
        return self.since_last()

    def put(self, bytes record not None):
        self.write_raw(record)
        return self.before + self.size >= self.size_max

    def note(self, bytes head, list fronts not None, tuple values not None, bytes tail not None):
        cdef Py_ssize_t index
        cdef uint64_t micros = 0 if head is None else self.since_last()
        cdef Py_ssize_t begun = len(self.pieces), size = self.size
        if len(fronts) != len(values):
            raise ValueError("as many values as fronts")
        try:
            if head is not None:
                self.write_raw(head)
                self.write_head(KIND_UNSIGNED, micros)
            for index in range(len(values)):
                self.write_raw(<bytes?>fronts[index])
                self.write(values[index])
            self.write_raw(tail)
        except:
            self.forget(begun, size)
            raise
        return self.before + self.size >= self.size_max

    def take(self):
        self.cut()
        taken, self.pieces, self.before = self.pieces, [], 0
        return taken

    cdef uint64_t since_last(self) except? 0:
        cdef double before = self.last, leap
        if self.clock is None:
            return 0
        self.last = self.clock()
        leap = (self.last - before) * 1e6 + 0.5
        if not leap >= 1:
            return 0
        return <uint64_t>min(leap, LEAP_MAX)

    cdef uint8_t *room(self, Py_ssize_t size) except NULL:
        """Room for `size` bytes, which count from now on."""
        cdef Py_ssize_t wanted = self.size + size
        cdef void *data
        if wanted > self.capacity:
            wanted += max(wanted >> 1, <Py_ssize_t>CAPACITY_MIN)
            data = PyMem_Realloc(self.data, wanted)
            if data == NULL:
                raise MemoryError
            self.data, self.capacity = <uint8_t *>data, wanted
        self.size += size
        return self.data + self.size - size

    cdef int cut(self) except -1:
        """Make a piece of the buffer's bytes."""
        if self.size:
            self.pieces.append(PyBytes_FromStringAndSize(<char *>self.data, self.size))
            self.before += self.size
            self.size = 0
        return 0

    cdef int forget(self, Py_ssize_t begun, Py_ssize_t size) except -1:
        """Take back a record; the pieces and the size of the buffer are those before it."""
        cdef bytes piece
        if len(self.pieces) > begun:
            piece = self.pieces[begun]
            for each in self.pieces[begun:]:
                self.before -= len(<bytes>each)
            del self.pieces[begun:]
            self.size = 0
            memcpy(self.room(size), PyBytes_AS_STRING(piece), size)
        self.size = size
        return 0

    cdef int write_raw(self, bytes data) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        if size >= self.piece_min:
            self.cut()
            self.pieces.append(data)
            self.before += size
        else:
            memcpy(self.room(size), PyBytes_AS_STRING(data), size)
        return 0

    cdef int write_head(self, int kind, uint64_t argument) except -1:
        cdef uint8_t *at = self.room(NUMBER_SIZE_MAX)
        self.size += put_head(at, kind, argument) - at - NUMBER_SIZE_MAX
        return 0

    cdef int write(self, object value) except -1:
        cdef Py_ssize_t size = 0
        cdef const char *text
        cdef long long number
        cdef int overflow = 0
        if value is None or value is True or value is False:
            size = SIMPLE_NULL if value is None else SIMPLE_TRUE if value is True else SIMPLE_FALSE
            return self.write_head(KIND_OTHER, size)
        if PyBytes_CheckExact(value):
            self.write_head(KIND_BYTES, PyBytes_GET_SIZE(<bytes>value))
            return self.write_raw(<bytes>value)
        if PyLong_CheckExact(value):
            number = as_long_long(value, &overflow)
            if number >= 0 and not overflow:
                return self.write_head(KIND_UNSIGNED, number)
        elif PyUnicode_CheckExact(value):
            if is_utf8(value, &size):
                text = utf8_of(value, &size)
                self.write_head(KIND_TEXT, size)
                memcpy(self.room(size), text, size)
                return 0
        elif PyFloat_CheckExact(value):
            if is_shortest_float(bits_of(PyFloat_AS_DOUBLE(value)), 8):
                put_double(self.room(NUMBER_SIZE_MAX), bits_of(PyFloat_AS_DOUBLE(value)))
                return 0
        return self.write_by_form(value, self.forms[type(value)])

    cdef int write_by_form(self, object value, object form) except -1:
        if PyBytes_CheckExact(form):
            return self.write_items(<bytes>form, tuple(value))
        if not PyTuple_CheckExact(form):
            return self.write_raw(<bytes?>form(value))
        first, second = <tuple>form
        if PyList_CheckExact(first):
            return self.write_record(<list>first, second(value))
        for known, encoded in <tuple?>first:
            if known is value:
                return self.write_raw(<bytes?>encoded)
        return self.write_raw(<bytes?>second(value))

    cdef int write_items(self, bytes front, tuple items) except -1:
        self.write_raw(front)
        self.write_head(KIND_ARRAY, len(items))
        if is_too_deep(" while items are encoded"):
            return -1  # with the error that it has set
        try:
            for each in items:
                self.write(each)
        finally:
            leave_recursion()
        return 0

    cdef int write_record(self, list fronts, object parts) except -1:
        cdef Py_ssize_t index, count = len(fronts)
        if is_too_deep(" while a record is encoded"):
            return -1  # with the error that it has set
        try:
            if count == 1:
                self.write_raw(<bytes?>fronts[0])
                self.write(parts)
                return 0
            if len(<tuple?>parts) != count:
                raise ValueError("as many values as fronts")
            for index in range(count):
                self.write_raw(<bytes?>fronts[index])
                self.write((<tuple>parts)[index])
        finally:
            leave_recursion()
        return 0
