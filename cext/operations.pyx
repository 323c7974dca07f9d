# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Operations: the compiled twin of `culm.kernels.pure_operations`, its specification."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.string cimport memcmp

cdef extern from "Python.h":
    long long as_long_long "PyLong_AsLongLongAndOverflow"(object value, int *overflow) except? -1

cdef enum:
    THE_VERSION = 1
    ACTION_CREATE = 0
    ACTION_UPDATE = 1
    ACTION_DELETE = 2
    FIELDS_LIMIT = 1024
    NAME_SIZE_LIMIT = 64
    SIZE_OF_ID = 34
    SIZE_OF_PREFIX = 2
    FAULT_NO_ARRAY = -1
    FAULT_UNKNOWN_VERSION = -2
    FAULT_UNKNOWN_ACTION = -3
    FAULT_WRONG_COUNT = -4
    FAULT_NO_SCHEMA_ID = -5
    FAULT_NO_PREVIOUS = -6
    FAULT_PREVIOUS_ORDER = -7
    FAULT_NO_FIELDS = -8
    FAULT_FIELD_COUNT = -9
    FAULT_FIELD_NAME = -10
    FAULT_FIELD_RANGE = -11
    FAULT_FIELD_TYPE = -12

cdef const char *PREFIX = b"\x00\x20"

VERSION = THE_VERSION
CREATE = ACTION_CREATE
UPDATE = ACTION_UPDATE
DELETE = ACTION_DELETE
FIELDS_MAX = FIELDS_LIMIT
NAME_SIZE_MAX = NAME_SIZE_LIMIT
ID_SIZE = SIZE_OF_ID
ID_PREFIX = PREFIX[:SIZE_OF_PREFIX]
NO_ARRAY = FAULT_NO_ARRAY
UNKNOWN_VERSION = FAULT_UNKNOWN_VERSION
UNKNOWN_ACTION = FAULT_UNKNOWN_ACTION
WRONG_COUNT = FAULT_WRONG_COUNT
NO_SCHEMA_ID = FAULT_NO_SCHEMA_ID
NO_PREVIOUS = FAULT_NO_PREVIOUS
PREVIOUS_ORDER = FAULT_PREVIOUS_ORDER
NO_FIELDS = FAULT_NO_FIELDS
FIELD_COUNT = FAULT_FIELD_COUNT
FIELD_NAME = FAULT_FIELD_NAME
FIELD_RANGE = FAULT_FIELD_RANGE
FIELD_TYPE = FAULT_FIELD_TYPE


def read(items):
    cdef Py_ssize_t count
    cdef int fault
    if not isinstance(items, list):
        return FAULT_NO_ARRAY, None, None
    cdef list parts = <list>items
    count = len(parts)
    if not 4 <= count <= 5:
        return FAULT_NO_ARRAY, None, None
    version, number, schema_id = parts[0], parts[1], parts[2]
    if not is_number(version, THE_VERSION, THE_VERSION):
        return FAULT_UNKNOWN_VERSION, version, None
    if not is_number(number, ACTION_CREATE, ACTION_DELETE):
        return FAULT_UNKNOWN_ACTION, number, None
    cdef int action = number
    if count != (5 if action == ACTION_UPDATE else 4):
        return FAULT_WRONG_COUNT, number, None
    if not isinstance(schema_id, str):
        return FAULT_NO_SCHEMA_ID, None, None
    cdef tuple previous = ()
    if action != ACTION_CREATE:
        previous = ids_of(parts[3])
        if not previous:
            return FAULT_NO_PREVIOUS, None, schema_id
        if not ascend(previous):
            return FAULT_PREVIOUS_ORDER, None, schema_id
    if action == ACTION_DELETE:
        return number, schema_id, previous, {}
    found = parts[count - 1]
    if not isinstance(found, dict):
        return FAULT_NO_FIELDS, None, schema_id
    cdef dict fields = <dict>found
    if len(fields) > FIELDS_LIMIT:
        return FAULT_FIELD_COUNT, len(fields), schema_id
    for name, value in fields.items():
        if not named(name):
            return FAULT_FIELD_NAME, name, schema_id
        if PyLong_CheckExact(value):
            if not is_long(value):
                return FAULT_FIELD_RANGE, name, schema_id
        elif not is_plain(value):
            views = views_of(value)
            if views is None:
                return FAULT_FIELD_TYPE, name, schema_id
            fields[name] = views
    return number, schema_id, previous, fields


def is_operation_id(value):
    return is_id(value)


def is_field_name(value):
    return named(value)


cdef bint is_number(value, long long low, long long high) except -1:
    """Whether `value` is an integer between these."""
    cdef int overflow = 0
    cdef long long number
    if not PyLong_CheckExact(value):
        return False
    number = as_long_long(value, &overflow)
    return not overflow and low <= number <= high


cdef bint is_long(value) except -1:
    cdef int overflow = 0
    as_long_long(value, &overflow)
    return not overflow


cdef inline bint is_plain(value) noexcept:
    return (
        PyUnicode_CheckExact(value)
        or PyBytes_CheckExact(value)
        or PyFloat_CheckExact(value)
        or value is True
        or value is False
    )


cdef bint named(value) except -1:
    cdef Py_ssize_t size, index = 0
    cdef Py_UCS4 unit
    if not isinstance(value, str):
        return False
    size = len(<str>value)
    if not 0 < size <= NAME_SIZE_LIMIT:
        return False
    for unit in <str>value:
        if not (c'a' <= unit <= c'z' or c'A' <= unit <= c'Z'):
            if not index or not (c'0' <= unit <= c'9' or unit == c'_'):
                return False
        index += 1
    return True


cdef inline bint is_id(value) noexcept:
    return (
        PyBytes_CheckExact(value)
        and PyBytes_GET_SIZE(value) == SIZE_OF_ID
        and memcmp(PyBytes_AS_STRING(value), PREFIX, SIZE_OF_PREFIX) == 0
    )


cdef tuple ids_of(value):
    """The ids of operations of which an array consists, if it does."""
    if isinstance(value, list):
        for each in <list>value:
            if not is_id(each):
                return None
    elif isinstance(value, tuple):
        for each in <tuple>value:
            if not is_id(each):
                return None
    else:
        return None
    return tuple(value)


cdef bint ascend(tuple ids) noexcept:
    cdef Py_ssize_t index
    for index in range(1, len(ids)):
        if memcmp(PyBytes_AS_STRING(ids[index - 1]), PyBytes_AS_STRING(ids[index]), SIZE_OF_ID) >= 0:
            return False
    return True


cdef tuple views_of(value):
    """A list of operation ids, or of ascending ones, as tuples."""
    cdef tuple view = ids_of(value)
    cdef list views = []
    if view is not None or not isinstance(value, (list, tuple)):
        return view
    for each in value:
        view = ids_of(each)
        if not view or not ascend(view):
            return None
        views.append(view)
    return tuple(views)
