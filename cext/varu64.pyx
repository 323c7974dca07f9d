# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""VarU64: the compiled twin of `culm.kernels.pure_varu64`, its specification."""

from array import array

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_Check, PyLong_FromLong, PyLong_FromUnsignedLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.number cimport PyNumber_Index
from cpython.ref cimport Py_INCREF

include "octets.pxi"
include "one_varu64.pxi"

cdef enum:
    # From this many bytes or values on, other threads may run meanwhile.
    UNLOCKED_SIZE_MIN = 65536

TRUNCATED = FAULT_TRUNCATED
NON_CANONICAL = FAULT_NON_CANONICAL


cdef struct Run:
    # A row of values: the number decoded, the offset of the next one, and its fault.
    Py_ssize_t count
    Py_ssize_t offset
    int fault


cdef inline Py_ssize_t decode_next(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t offset, bint canonical, uint64_t *value
) noexcept nogil:
    """`decode_one` for one of many, whose width cannot be foreseen: nothing branches on it."""
    cdef uint64_t narrow, wide
    cdef Py_ssize_t octets
    if size - offset <= 8:
        return decode_one(data, size, offset, canonical, value)
    octets = <Py_ssize_t>data[offset] - (WIDE - 1)
    octets = 0 if octets < 0 else octets
    narrow = 0 - <uint64_t>(octets == 0)
    wide = load_64_be(data + offset + 1) >> (64 - 8 * octets & 63)
    value[0] = data[offset] & narrow | wide & ~narrow
    if canonical and size_of(value[0]) <= octets:
        return FAULT_NON_CANONICAL
    return offset + 1 + octets


cdef inline bint all_narrow(uint64_t octets) noexcept nogil:
    """None of eight bytes is WIDE or more: in none are the five highest bits all set."""
    return not (
        octets & octets << 1 & octets << 2 & octets << 3 & octets << 4 & <uint64_t>0x8080808080808080
    )


cdef void decode_run(
    const uint8_t *data, Py_ssize_t size, bint canonical, uint64_t *values, Run *run
) noexcept nogil:
    """Decode ``run.count`` values from ``run.offset`` on, or as many as there are.

    Eight at a time, because small ones often come in rows.
    """
    cdef Py_ssize_t index = 0, stop, place, end
    while index < run.count:
        stop = min(index + 8, run.count)
        if stop - index == 8 <= size - run.offset and all_narrow(load_64(data + run.offset)):
            for place in range(8):
                values[index + place] = data[run.offset + place]
            run.offset += 8
            index = stop
            continue
        for index in range(index, stop):
            end = decode_next(data, size, run.offset, canonical, &values[index])
            if end < 0:
                run.fault = <int>end
                run.count = index
                return
            run.offset = end
        index = stop


cdef uint8_t *encode_run(
    const uint64_t *values, Py_ssize_t count, uint8_t *target
) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        target = encode_one(target, values[index])
    return target


cdef inline uint64_t number(value) except? 0xFFFFFFFFFFFFFFFF:
    return <uint64_t>(value if PyLong_Check(value) else PyNumber_Index(value))


cdef object out_of_range(value):
    return OverflowError(f"a VarU64 is 0..2**64-1, not {value}")


def size(value):
    """How many bytes the canonical encoding of `value` takes: 1..9."""
    try:
        return size_of(number(value))
    except OverflowError:
        raise out_of_range(value) from None


def encode(value):
    """The canonical encoding of `value`."""
    cdef uint8_t room[ENCODED_SIZE_MAX]
    cdef uint8_t *end
    try:
        end = encode_one(room, number(value))
    except OverflowError:
        raise out_of_range(value) from None
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
    """The number that starts at `offset`, and where it ends or a fault."""
    cdef uint64_t value = 0
    cdef Py_ssize_t end = decode_at(data, offset, canonical, &value)
    return value, end


def decoder(fail):
    """`decode` for those who want an error: ``fail(data, offset, fault)`` is to raise it."""
    def decode(data, Py_ssize_t offset=0, *, bint canonical=False):
        """The number that starts at `offset`, and the index of the byte after it."""
        cdef uint64_t value = 0
        cdef Py_ssize_t end = decode_at(data, offset, canonical, &value)
        if end < 0:
            fail(data, offset, end)
        return value, end

    return decode


cdef object encode_numbers(const uint64_t *values, Py_ssize_t count):
    cdef PyObject *encoded = new_bytes(NULL, count * ENCODED_SIZE_MAX)
    cdef uint8_t *start = <uint8_t *>bytes_data(encoded)
    cdef uint8_t *end
    if count < UNLOCKED_SIZE_MIN:
        end = encode_run(values, count, start)
    else:
        with nogil:
            end = encode_run(values, count, start)
    return shrink(encoded, end - start)


def encode_many(values):
    """The encodings of `values`, one after another.  Fastest for an ``array('Q')``."""
    cdef Py_buffer view
    cdef uint64_t *numbers
    cdef Py_ssize_t index = 0
    cdef tuple items
    if type(values) is array and values.typecode == "Q":
        PyObject_GetBuffer(values, &view, PyBUF_SIMPLE)
        try:
            return encode_numbers(<const uint64_t *>view.buf, view.len // sizeof(uint64_t))
        finally:
            PyBuffer_Release(&view)
    # A tuple, because to convert a value may run code of the caller, which must not be
    # able to change the values during the walk.
    items = tuple(values)
    numbers = allocate(len(items))
    try:
        for index in range(len(items)):
            numbers[index] = number(items[index])
        return encode_numbers(numbers, len(items))
    except OverflowError:
        raise out_of_range(items[index]) from None
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
        if numbers[index] < 1 << 30:
            # Of one digit, for which this is faster.
            value = PyLong_FromLong(<long>numbers[index])
        else:
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
        # There are no more values than bytes, whatever the caller was told; a further one is at
        # fault.
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
    """`count` numbers, or all, from `offset` on, where they end, and 0 or a fault."""
    return decode_values(data, offset, count, canonical, False)


def decode_array(data, Py_ssize_t offset, count, bint canonical):
    """Like `decode_many`, with the numbers in an ``array('Q')``."""
    return decode_values(data, offset, count, canonical, True)
