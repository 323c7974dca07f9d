# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""XENC: the compiled twin of `culm.kernels.pure_xenc`, its specification down to the messages."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    TRUNCATED = 1
    NON_CANONICAL = 2
    BAD_TYPE = 3
    BAD_VALUE = 6
    TRAILING_DATA = 7
    LIMIT_EXCEEDED = 8
    DIGITS_MAX = 19
    NANOSECONDS_MAX = 999999999
    # The longest number: a sign and 19 digits, with a byte before and a byte after.
    NUMBER_SIZE_MAX = 24
    # Most encodings are shorter than this, and need no other memory.
    SHORT_SIZE = 512


@cython.final
cdef class _Out:
    """Octets that grow; freed with the object, whatever is raised."""

    cdef char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef char short[SHORT_SIZE]

    def __cinit__(self):
        self.capacity = SHORT_SIZE
        self.data = self.short

    def __dealloc__(self):
        if self.data != self.short:
            PyMem_Free(self.data)

    cdef int reserve(self, Py_ssize_t wanted) except -1:
        cdef Py_ssize_t capacity = self.capacity
        cdef char *data
        if wanted <= capacity - self.size:
            return 0
        capacity = max(2 * capacity, self.size + wanted)
        if self.data == self.short:
            data = <char *> PyMem_Malloc(capacity)
            if data != NULL:
                memcpy(data, self.short, self.size)
        else:
            data = <char *> PyMem_Realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError
        self.data = data
        self.capacity = capacity
        return 0

    cdef int byte(self, char value) except -1:
        self.reserve(1)
        self.data[self.size] = value
        self.size += 1
        return 0

    cdef int number(self, int64_t value, char end) except -1:
        cdef char digits[NUMBER_SIZE_MAX]
        cdef Py_ssize_t at = NUMBER_SIZE_MAX
        cdef uint64_t rest = <uint64_t> value
        if value < 0:
            rest = 0 - rest
        at -= 1
        digits[at] = end
        while True:
            at -= 1
            digits[at] = <char> (48 + rest % 10)
            rest //= 10
            if rest == 0:
                break
        if value < 0:
            at -= 1
            digits[at] = c'-'
        self.reserve(NUMBER_SIZE_MAX)
        memcpy(self.data + self.size, digits + at, NUMBER_SIZE_MAX - at)
        self.size += NUMBER_SIZE_MAX - at
        return 0

    cdef int octets(self, bytes value) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        self.number(size, c':')
        self.reserve(size)
        memcpy(self.data + self.size, PyBytes_AS_STRING(value), size)
        self.size += size
        return 0


cdef int64_t checked_int(object value) except? -1:
    try:
        return value
    except OverflowError:
        raise ValueError("a number of more than 64 bits") from None


cdef int encode_time(_Out out, tuple value) except -1:
    cdef int64_t seconds, nanoseconds
    if len(value) != 2 or type(value[0]) is not int or type(value[1]) is not int:
        raise TypeError("a timestamp is a tuple of two ints")
    if not 0 <= value[1] <= NANOSECONDS_MAX:
        raise ValueError("nanoseconds out of range")
    seconds = checked_int(value[0])
    nanoseconds = value[1]
    out.byte(c't')
    out.number(seconds, c'.')
    out.number(nanoseconds, c'e')
    return 0


cdef int encode_scalar(_Out out, object value) except -1:
    """Whether `value` was written; lists and dictionaries are not."""
    if isinstance(value, bytes):
        out.octets(<bytes> value)
    elif isinstance(value, int) and type(value) is not bool:
        out.byte(c'i')
        out.number(checked_int(value), c'e')
    elif isinstance(value, tuple):
        encode_time(out, <tuple> value)
    elif isinstance(value, (list, dict)):
        return 0
    else:
        raise TypeError(f"no XENC for {type(value).__name__}")
    return 1


cdef list sorted_keys(dict mapping):
    cdef list keys = list(mapping)
    for key in keys:
        if not isinstance(key, bytes):
            raise TypeError(f"a key must be bytes, not {type(key).__name__}")
    keys.sort()
    return keys


def encode(value, Py_ssize_t depth_max):
    cdef _Out out = _Out()
    cdef list stack = []  # the containers around the innermost one
    cdef list sequence = None  # the innermost list, or the keys of the innermost dictionary
    cdef dict mapping = None
    cdef Py_ssize_t index = 0  # of its next item
    while True:
        if not encode_scalar(out, value):
            if len(stack) >= depth_max:
                raise ValueError(f"nested more than {depth_max} deep")
            stack.append((mapping, sequence, index))
            index = 0
            if isinstance(value, list):
                out.byte(c'l')
                mapping, sequence = None, <list> value
            else:
                out.byte(c'd')
                mapping, sequence = <dict> value, sorted_keys(<dict> value)
        while sequence is not None and index == len(sequence):
            out.byte(c'e')
            mapping, sequence, index = stack.pop()
        if sequence is None:
            return PyBytes_FromStringAndSize(out.data, out.size)
        value = sequence[index]
        index += 1
        if mapping is not None:
            out.octets(<bytes> value)
            value = mapping[value]


cdef int fail(int code, Py_ssize_t offset, str message) except -1:
    raise ValueError(code, offset, message)


cdef int64_t read_int(
    const unsigned char *data, Py_ssize_t size, Py_ssize_t start, unsigned char end,
    Py_ssize_t *after,
) except? -1:
    cdef Py_ssize_t offset = start, digits
    cdef uint64_t value = 0, limit = 0x7FFFFFFFFFFFFFFF
    cdef bint negative = start < size and data[start] == c'-'
    offset += negative
    digits = offset
    while offset < size and 48 <= data[offset] <= 57:
        # 19 digits always fit into 64 bits without a sign.
        if offset - digits == DIGITS_MAX:
            fail(BAD_VALUE, start, "a number of more than 64 bits")
        value = 10 * value + (data[offset] - 48)
        offset += 1
    if offset == size:
        fail(TRUNCATED, offset, "more bytes are needed")
    if data[offset] != end or offset == digits:
        fail(BAD_VALUE, offset, "not a byte of a number")
    if data[digits] == 48 and offset - start > 1:
        fail(NON_CANONICAL, start, "zeros in front of a number, or minus zero")
    if value > limit + negative:
        fail(BAD_VALUE, start, "a number of more than 64 bits")
    after[0] = offset + 1
    return <int64_t> (0 - value) if negative else <int64_t> value


cdef bytes read_octets(
    const unsigned char *data, Py_ssize_t size, Py_ssize_t start, Py_ssize_t *after
):
    cdef Py_ssize_t offset
    cdef int64_t length = read_int(data, size, start, c':', &offset)
    if length > size - offset:
        fail(TRUNCATED, size, "more bytes are needed")
    after[0] = offset + length
    return PyBytes_FromStringAndSize(<const char *> data + offset, length)


def decode(bytes data not None, Py_ssize_t depth_max, Py_ssize_t values_max, timestamp):
    cdef const unsigned char *octets = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t values = 0, offset = 0, start
    cdef int64_t seconds, nanoseconds
    cdef unsigned char first
    cdef list stack = [], sequence = None
    cdef dict mapping = None
    cdef bytes key = None
    cdef object value
    while True:
        if offset >= size:
            fail(TRUNCATED, size, "more bytes are needed")
        first = octets[offset]
        if first == c'e' and key is None and (sequence is not None or mapping is not None):
            value = sequence if sequence is not None else mapping
            sequence, mapping, key = stack.pop()
            offset += 1
        elif mapping is not None and key is None:
            if not 48 <= first <= 57:
                fail(BAD_TYPE, offset, "a key must be an octet string")
            start = offset
            key = read_octets(octets, size, offset, &offset)
            if key in mapping:
                fail(BAD_VALUE, start, "a key comes twice")
            continue
        else:
            values += 1
            if values > values_max:
                fail(LIMIT_EXCEEDED, offset, f"more than {values_max} values")
            if 48 <= first <= 57:
                value = read_octets(octets, size, offset, &offset)
            elif first == c'i':
                value = read_int(octets, size, offset + 1, c'e', &offset)
            elif first == c't':
                seconds = read_int(octets, size, offset + 1, c'.', &offset)
                start = offset
                if offset < size and octets[offset] == c'-':
                    fail(BAD_VALUE, offset, "nanoseconds have no sign")
                nanoseconds = read_int(octets, size, offset, c'e', &offset)
                if nanoseconds > NANOSECONDS_MAX:
                    fail(BAD_VALUE, start, "more nanoseconds than a second has")
                value = timestamp(seconds, nanoseconds)
            elif first == c'l' or first == c'd':
                if len(stack) >= depth_max:
                    fail(LIMIT_EXCEEDED, offset, f"nested more than {depth_max} deep")
                stack.append((sequence, mapping, key))
                key = None
                if first == c'l':
                    sequence, mapping = [], None
                else:
                    sequence, mapping = None, {}
                offset += 1
                continue
            else:
                fail(BAD_TYPE, offset, "no value starts with this byte")
        if sequence is not None:
            sequence.append(value)
        elif mapping is not None:
            mapping[key] = value
            key = None
        else:
            break
    if offset != size:
        fail(TRAILING_DATA, offset, "bytes after the value")
    return value
