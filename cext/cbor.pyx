# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Canonical CBOR: the compiled twin of `culm.kernels.pure_cbor`, its specification."""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.float cimport FLT_MAX
from libc.math cimport fabs
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

include "octets.pxi"

cdef extern from "Python.h":
    double unpack_half "PyFloat_Unpack2"(const char *data, int little_endian)
    long long as_long_long "PyLong_AsLongLongAndOverflow"(object value, int *overflow) except? -1
    const char *utf8_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t *size) except NULL

cdef enum:
    KIND_UNSIGNED = 0
    KIND_NEGATIVE = 1
    KIND_BYTES = 2
    KIND_TEXT = 3
    KIND_ARRAY = 4
    KIND_MAP = 5
    KIND_TAG = 6
    KIND_OTHER = 7
    FAULT_TRUNCATED = -1
    FAULT_LONG_NUMBER = -2
    FAULT_LONG_FLOAT = -3
    FAULT_BAD_HEAD = -4
    FAULT_TAGGED = -5
    FAULT_UNKNOWN_SIMPLE = -6
    FAULT_TOO_DEEP = -7
    FAULT_KEY_NO_TEXT = -8
    FAULT_KEY_ORDER = -9
    FAULT_NO_UTF8 = -10
    DEPTH_LIMIT = 255
    SIMPLE_FALSE = 20
    SIMPLE_TRUE = 21
    SIMPLE_NULL = 22
    DIRECT_MAX = 23
    WIDEST = 27
    NAN_HALF = 0x7E00
    # Of floats: bits of the fraction, and exponents.
    SINGLE_BITS = 23
    SINGLE_SPECIAL = 255
    SINGLE_BIAS = 127
    HALF_BITS = 10
    HALF_LEAST = -14
    HALF_MOST = 15

UNSIGNED = KIND_UNSIGNED
NEGATIVE = KIND_NEGATIVE
BYTES = KIND_BYTES
TEXT = KIND_TEXT
ARRAY = KIND_ARRAY
MAP = KIND_MAP
TAG = KIND_TAG
OTHER = KIND_OTHER
TRUNCATED = FAULT_TRUNCATED
LONG_NUMBER = FAULT_LONG_NUMBER
LONG_FLOAT = FAULT_LONG_FLOAT
BAD_HEAD = FAULT_BAD_HEAD
TAGGED = FAULT_TAGGED
UNKNOWN_SIMPLE = FAULT_UNKNOWN_SIMPLE
TOO_DEEP = FAULT_TOO_DEEP
KEY_NO_TEXT = FAULT_KEY_NO_TEXT
KEY_ORDER = FAULT_KEY_ORDER
NO_UTF8 = FAULT_NO_UTF8
DEPTH_MAX = DEPTH_LIMIT


cdef struct Reader:
    # `at` is where the next item begins, or where the fault is.
    const uint8_t *data
    Py_ssize_t size
    Py_ssize_t at
    int fault


cdef struct Head:
    int kind
    int width  # bytes after the first one
    uint64_t argument


def head(bytes data not None, Py_ssize_t at):
    cdef Head found
    cdef Reader reader = reader_of(data, at)
    if not read_head(&reader, &found):
        return 0, reader.at, reader.fault
    return found.kind, 0 if found.kind == KIND_OTHER and found.width else found.argument, reader.at


def decode(bytes data not None, Py_ssize_t at, Py_ssize_t depth_max):
    cdef Reader reader = reader_of(data, at)
    if not 0 <= depth_max <= DEPTH_LIMIT:
        raise ValueError(f"a depth is 0..{DEPTH_LIMIT}")
    item = read_item(&reader, <int>depth_max)
    if reader.fault:
        return reader.at, reader.fault
    return item, reader.at


cdef Reader reader_of(bytes data, Py_ssize_t at) except *:
    if at < 0:
        raise ValueError("the index is negative")
    cdef Reader reader
    reader.data = <const uint8_t *>PyBytes_AS_STRING(data)
    reader.size = PyBytes_GET_SIZE(data)
    reader.at = at
    reader.fault = 0
    return reader


cdef inline bint fail(Reader *reader, Py_ssize_t at, int fault) noexcept:
    reader.at = at
    reader.fault = fault
    return False


cdef bint read_head(Reader *reader, Head *found) noexcept:
    """Whether there is a head; if so, the reader goes past it."""
    cdef Py_ssize_t at = reader.at
    if at >= reader.size:
        return fail(reader, reader.size, FAULT_TRUNCATED)
    cdef int kind = reader.data[at] >> 5, argument = reader.data[at] & 31
    found.kind = kind
    found.width = 0
    found.argument = argument
    if kind == KIND_TAG:
        return fail(reader, at, FAULT_TAGGED)
    if argument <= DIRECT_MAX:
        if kind == KIND_OTHER and not SIMPLE_FALSE <= argument <= SIMPLE_NULL:
            return fail(reader, at, FAULT_UNKNOWN_SIMPLE)
        reader.at = at + 1
        return True
    if argument > WIDEST or (kind == KIND_OTHER and argument == DIRECT_MAX + 1):
        return fail(reader, at, FAULT_BAD_HEAD)
    cdef int width = 1 << (argument - DIRECT_MAX - 1)
    if reader.size - at - 1 < width:
        return fail(reader, reader.size, FAULT_TRUNCATED)
    cdef uint64_t value = load_be(reader.data + at + 1, width)
    if kind == KIND_OTHER:
        if not is_shortest_float(value, width):
            return fail(reader, at, FAULT_LONG_FLOAT)
    elif value <= DIRECT_MAX or (width > 1 and value >> (4 * width) == 0):
        return fail(reader, at, FAULT_LONG_NUMBER)
    found.width = width
    found.argument = value
    reader.at = at + 1 + width
    return True


cdef object read_item(Reader *reader, int depth_left):
    cdef Head found
    cdef Py_ssize_t at = reader.at
    if not read_head(reader, &found):
        return None
    if found.kind == KIND_UNSIGNED:
        return found.argument
    if found.kind == KIND_NEGATIVE:
        if found.argument >> 63:
            return -1 - <object>found.argument
        return -1 - <int64_t>found.argument
    if found.kind == KIND_BYTES:
        return read_bytes(reader, found.argument)
    if found.kind == KIND_TEXT:
        return read_text(reader, found.argument)
    if found.kind == KIND_OTHER:
        return float_of(found.argument, found.width) if found.width else simple(found.argument)
    if not depth_left:
        fail(reader, at, FAULT_TOO_DEEP)
        return None
    if found.kind == KIND_ARRAY:
        return read_array(reader, found.argument, depth_left - 1)
    return read_map(reader, found.argument, depth_left - 1)


cdef object simple(uint64_t argument):
    if argument == SIMPLE_NULL:
        return None
    return argument == SIMPLE_TRUE


cdef inline bint is_there(Reader *reader, uint64_t size) noexcept:
    if size <= <uint64_t>(reader.size - reader.at):
        return True
    return fail(reader, reader.size, FAULT_TRUNCATED)


cdef object read_bytes(Reader *reader, uint64_t size):
    if not is_there(reader, size):
        return None
    cdef const char *start = <const char *>reader.data + reader.at
    reader.at += <Py_ssize_t>size
    return PyBytes_FromStringAndSize(start, <Py_ssize_t>size)


cdef object read_text(Reader *reader, uint64_t size):
    if not is_there(reader, size):
        return None
    cdef Py_ssize_t at = reader.at
    try:
        text = PyUnicode_DecodeUTF8(<char *>reader.data + at, <Py_ssize_t>size, NULL)
    except UnicodeDecodeError:
        fail(reader, at, FAULT_NO_UTF8)
        return None
    reader.at = at + <Py_ssize_t>size
    return text


cdef list read_array(Reader *reader, uint64_t count, int depth_left):
    cdef list items = []
    while count:
        item = read_item(reader, depth_left)
        if reader.fault:
            return None
        items.append(item)
        count -= 1
    return items


cdef dict read_map(Reader *reader, uint64_t count, int depth_left):
    """UTF-8 sorts as the text does, so that keys are compared by their bytes."""
    cdef dict items = {}
    cdef Head found
    cdef Py_ssize_t at
    cdef const uint8_t *octets
    cdef const uint8_t *last = NULL
    cdef uint64_t last_size = 0
    while count:
        at = reader.at
        if not read_head(reader, &found):
            return None
        if found.kind != KIND_TEXT:
            fail(reader, at, FAULT_KEY_NO_TEXT)
            return None
        octets = reader.data + reader.at
        key = read_text(reader, found.argument)
        if reader.fault:
            return None
        if last != NULL and not is_above(octets, found.argument, last, last_size):
            fail(reader, at, FAULT_KEY_ORDER)
            return None
        last, last_size = octets, found.argument
        value = read_item(reader, depth_left)
        if reader.fault:
            return None
        items[key] = value
        count -= 1
    return items


cdef bint is_above(
    const uint8_t *one, uint64_t one_size, const uint8_t *other, uint64_t other_size
) noexcept:
    cdef int order = memcmp(one, other, <size_t>min(one_size, other_size))
    return order > 0 or (order == 0 and one_size > other_size)


cdef object float_of(uint64_t bits, int width):
    cdef char[2] half
    if width == 8:
        return double_of(bits)
    if width == 4:
        return single_of(<uint32_t>bits)
    half[0], half[1] = <char>(bits >> 8), <char>(bits & 0xFF)
    return unpack_half(half, 0)


cdef inline double double_of(uint64_t bits) noexcept:
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline double single_of(uint32_t bits) noexcept:
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef bint is_shortest_float(uint64_t bits, int width) noexcept:
    cdef double value
    if width == 2:
        return (bits & 0x7FFF) <= 0x7C00 or bits == NAN_HALF
    if width == 4:
        return not is_half(<uint32_t>bits)
    value = double_of(bits)
    if value != value:
        return False
    # A finite number larger than any single must not be converted to one.
    if fabs(value) > FLT_MAX:
        return (bits & 0x7FFFFFFFFFFFFFFF) != 0x7FF0000000000000
    return <double><float>value != value


cdef bint is_half(uint32_t bits) noexcept:
    """Whether 16 bits have room for this number of 32; they have for NaN."""
    cdef uint32_t fraction = bits & ((1 << SINGLE_BITS) - 1)
    cdef int exponent = <int>(bits >> SINGLE_BITS & SINGLE_SPECIAL)
    if exponent == SINGLE_SPECIAL:
        return True
    if not exponent:
        return not fraction
    exponent -= SINGLE_BIAS
    cdef int spare = SINGLE_BITS - HALF_BITS  # bits for which there is no room
    if exponent < HALF_LEAST:
        spare += HALF_LEAST - exponent
    if exponent > HALF_MOST or spare > SINGLE_BITS:
        return False
    return not fraction & ((1 << spare) - 1)


cdef inline Py_ssize_t head_size(uint64_t argument) noexcept:
    if argument <= DIRECT_MAX:
        return 1
    if argument >> 8 == 0:
        return 2
    if argument >> 16 == 0:
        return 3
    return 5 if argument >> 32 == 0 else 9


cdef inline uint8_t *put_head(uint8_t *at, int kind, uint64_t argument) noexcept:
    cdef Py_ssize_t size = head_size(argument), index
    if size == 1:
        at[0] = <uint8_t>(kind << 5 | <int>argument)
        return at + 1
    at[0] = <uint8_t>(kind << 5 | (24 if size == 2 else 25 if size == 3 else 26 if size == 5 else 27))
    for index in range(size - 1, 0, -1):
        at[index] = <uint8_t>argument
        argument >>= 8
    return at + size


cdef inline uint64_t bits_of(double value) noexcept:
    cdef uint64_t bits
    memcpy(&bits, &value, sizeof(bits))
    return bits


cdef inline uint8_t *put_double(uint8_t *at, uint64_t bits) noexcept:
    cdef int index
    at[0] = KIND_OTHER << 5 | WIDEST
    for index in range(8, 0, -1):
        at[index] = <uint8_t>bits
        bits >>= 8
    return at + 9


cdef bint is_utf8(object text, Py_ssize_t *size):
    """Whether it is a text without halves of surrogates, and its size as UTF-8."""
    try:
        utf8_of(text, size)
    except UnicodeEncodeError:
        return False
    return True


include "records.pxi"
include "../src/culm/kernels/noting.py"
