# cython: language_level=3, boundscheck=False, wraparound=False
"""VarU64: the compiled twin of `culm.kernels.pure_varu64`, which says what each name means."""

from array import array

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_FromUnsignedLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.number cimport PyNumber_Index
from cpython.ref cimport Py_INCREF

include "octets.pxi"

cdef enum:
    FAULT_TRUNCATED = -1
    FAULT_NON_CANONICAL = -2
    # First bytes from here on announce 1..8 further bytes.
    WIDE = 248
    # From this many bytes or values on, other threads may run meanwhile.
    UNLOCKED_SIZE_MIN = 65536

TRUNCATED = FAULT_TRUNCATED
NON_CANONICAL = FAULT_NON_CANONICAL


cdef inline int size_of(uint64_t value) noexcept nogil:
    return 1 if value < WIDE else 1 + octets_of(value)


cdef inline Py_ssize_t decode_one(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t offset, bint canonical, uint64_t *value
) noexcept nogil:
    """Where the value that starts at `offset` ends, or a fault."""
    cdef int octets
    value[0] = 0
    if offset >= size:
        return FAULT_TRUNCATED
    if data[offset] < WIDE:
        value[0] = data[offset]
        return offset + 1
    octets = data[offset] - (WIDE - 1)
    if size - offset > 8:
        value[0] = load_64_be(data + offset + 1) >> (64 - 8 * octets)
    elif size - offset > octets:
        value[0] = load_be(data + offset + 1, octets)
    else:
        return FAULT_TRUNCATED
    if canonical and size_of(value[0]) <= octets:
        value[0] = 0
        return FAULT_NON_CANONICAL
    return offset + 1 + octets


cdef inline uint8_t *encode_one(uint8_t *target, const uint8_t *limit, uint64_t value) noexcept nogil:
    """Write `value`, for which there is room before `limit`; return where it ends."""
    cdef int octets, index
    if value < WIDE:
        target[0] = <uint8_t>value
        return target + 1
    octets = octets_of(value)
    target[0] = <uint8_t>(WIDE - 1 + octets)
    if limit - target > 8:
        store_64_be(target + 1, value << (64 - 8 * octets))
    else:
        for index in range(octets):
            target[1 + index] = <uint8_t>(value >> (8 * (octets - 1 - index)))
    return target + 1 + octets


cdef struct Run:
    # A row of values: how many are decoded, where the next one starts, what is wrong there.
    Py_ssize_t count
    Py_ssize_t offset
    int fault


cdef void decode_run(
    const uint8_t *data, Py_ssize_t size, bint canonical, uint64_t *values, Run *run
) noexcept nogil:
    """Decode ``run.count`` values from ``run.offset`` on, or as many as there are."""
    cdef Py_ssize_t index, end
    for index in range(run.count):
        end = decode_one(data, size, run.offset, canonical, &values[index])
        if end < 0:
            run.fault = <int>end
            run.count = index
            return
        run.offset = end


cdef Py_ssize_t sizes_of(const uint64_t *values, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t size = 0, index
    for index in range(count):
        size += size_of(values[index])
    return size


cdef void encode_run(
    const uint64_t *values, Py_ssize_t count, uint8_t *target, const uint8_t *limit
) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        target = encode_one(target, limit, values[index])


cdef uint64_t number(object value) except? 0:
    try:
        return PyLong_AsUnsignedLongLong(PyNumber_Index(value))
    except OverflowError:
        raise OverflowError(f"a VarU64 is 0..2**64-1, not {value}") from None


def size(value):
    return size_of(number(value))


def encode(value):
    cdef uint8_t room[9]
    cdef uint8_t *end = encode_one(room, room + 9, number(value))
    return PyBytes_FromStringAndSize(<char *>room, end - room)


cdef inline Py_ssize_t decode_at(
    data, Py_ssize_t offset, bint canonical, uint64_t *value
) except? -1:
    cdef Py_buffer view
    cdef Py_ssize_t end
    if offset < 0:
        raise ValueError("offset is negative")
    if PyBytes_CheckExact(data):
        return decode_one(
            <const uint8_t *>PyBytes_AS_STRING(data),
            PyBytes_GET_SIZE(data),
            offset,
            canonical,
            value,
        )
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    end = decode_one(<const uint8_t *>view.buf, view.len, offset, canonical, value)
    PyBuffer_Release(&view)
    return end


def decode(data, Py_ssize_t offset, bint canonical):
    cdef uint64_t value = 0
    cdef Py_ssize_t end = decode_at(data, offset, canonical, &value)
    return value, end


def decoder(fail):
    def decode(data, Py_ssize_t offset=0, *, bint canonical=False):
        cdef uint64_t value = 0
        cdef Py_ssize_t end = decode_at(data, offset, canonical, &value)
        if end < 0:
            fail(data, offset, end)
        return value, end

    return decode


cdef bytes encode_numbers(const uint64_t *values, Py_ssize_t count):
    cdef bytes encoded
    cdef uint8_t *target
    cdef Py_ssize_t size
    if count < UNLOCKED_SIZE_MIN:
        size = sizes_of(values, count)
    else:
        with nogil:
            size = sizes_of(values, count)
    encoded = PyBytes_FromStringAndSize(NULL, size)
    target = <uint8_t *>PyBytes_AS_STRING(encoded)
    if count < UNLOCKED_SIZE_MIN:
        encode_run(values, count, target, target + size)
    else:
        with nogil:
            encode_run(values, count, target, target + size)
    return encoded


def encode_many(values):
    cdef Py_buffer view
    cdef uint64_t *numbers
    cdef Py_ssize_t index
    cdef tuple items
    if type(values) is array and values.typecode == "Q":
        PyObject_GetBuffer(values, &view, PyBUF_SIMPLE)
        try:
            return encode_numbers(<const uint64_t *>view.buf, view.len // sizeof(uint64_t))
        finally:
            PyBuffer_Release(&view)
    # A tuple, because to convert a value may run code of the caller, which must not be
    # able to change what is walked over.
    items = tuple(values)
    numbers = allocate(len(items))
    try:
        for index in range(len(items)):
            numbers[index] = number(items[index])
        return encode_numbers(numbers, len(items))
    finally:
        PyMem_Free(numbers)


cdef uint64_t *allocate(Py_ssize_t count) except NULL:
    cdef uint64_t *numbers = <uint64_t *>PyMem_Malloc(<size_t>count * sizeof(uint64_t))
    if numbers == NULL:
        raise MemoryError
    return numbers


cdef list as_list(const uint64_t *numbers, Py_ssize_t count):
    cdef list values = PyList_New(count)
    cdef Py_ssize_t index
    for index in range(count):
        value = PyLong_FromUnsignedLongLong(numbers[index])
        Py_INCREF(value)
        PyList_SET_ITEM(values, index, value)
    return values


cdef object as_array(const uint64_t *numbers, Py_ssize_t count):
    values = array("Q")
    values.frombytes(
        PyMemoryView_FromMemory(<char *>numbers, count * sizeof(uint64_t), PyBUF_READ)
    )
    return values


cdef tuple decode_values(data, Py_ssize_t offset, count, bint canonical, bint packed):
    cdef Py_buffer view
    cdef Run run
    cdef uint64_t *numbers = NULL
    if offset < 0:
        raise ValueError("offset is negative")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        # There are no more values than bytes, whatever the caller was told; what is tried
        # after them is at fault.
        run = Run(max(0, view.len - offset) + 1, offset, 0)
        if count is not None:
            if count < 0:
                raise ValueError("count is negative")
            run.count = min(count, run.count)
        numbers = allocate(run.count)
        if run.count < UNLOCKED_SIZE_MIN:
            decode_run(<const uint8_t *>view.buf, view.len, canonical, numbers, &run)
        else:
            with nogil:
                decode_run(<const uint8_t *>view.buf, view.len, canonical, numbers, &run)
        if count is None and run.offset == view.len:
            run.fault = 0
        values = as_array(numbers, run.count) if packed else as_list(numbers, run.count)
        return values, run.offset, run.fault
    finally:
        PyMem_Free(numbers)
        PyBuffer_Release(&view)


def decode_many(data, Py_ssize_t offset, count, bint canonical):
    return decode_values(data, offset, count, canonical, False)


def decode_array(data, Py_ssize_t offset, count, bint canonical):
    return decode_values(data, offset, count, canonical, True)
