"""The form of p2panda's operations: the specification of `culm.kernels._operations`.

`read` takes the value of an operation's canonical CBOR apart; `culm.p2panda.operation` turns its
faults, which are numbers, into errors.  Things are looked at in their order, so the fault is
the first one; whether the text in the place of a schema id is one is left to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeGuard

VERSION = 1
CREATE, UPDATE, DELETE = range(3)

#: Fields of one operation, and characters of the name of one.
FIELDS_MAX = 1024
NAME_SIZE_MAX = 64
#: Of the id of an operation, a YASMF hash: all its bytes, and the first ones.
ID_SIZE = 34
ID_PREFIX = b"\x00\x20"

# Faults.
NO_ARRAY = -1  # of 4 or 5 items
UNKNOWN_VERSION = -2
UNKNOWN_ACTION = -3
WRONG_COUNT = -4  # of items, for that action
NO_SCHEMA_ID = -5
NO_PREVIOUS = -6  # nor one operation id at least
PREVIOUS_ORDER = -7
NO_FIELDS = -8
FIELD_COUNT = -9
FIELD_NAME = -10
FIELD_RANGE = -11  # no integer of 64 bits
FIELD_TYPE = -12

_INT_MAX = 2**63 - 1
_PLAIN = frozenset({bool, float, str, bytes})


def read(
    items: object,
) -> tuple[int, str, tuple[bytes, ...], dict[str, Any]] | tuple[int, object, str | None]:
    """The action, the schema id, ``previous`` and the fields, which are the map itself.

    In it, lists are replaced by tuples.  At a fault: its number; its subject, which is the
    version, the action, the number of fields, or the name of one; the schema id if there is one
    before it.
    """
    if not _is_list(items) or not 4 <= len(items) <= 5:
        return NO_ARRAY, None, None
    version, action, schema_id = items[:3]
    if type(version) is not int or version != VERSION:
        return UNKNOWN_VERSION, version, None
    if type(action) is not int or not CREATE <= action <= DELETE:
        return UNKNOWN_ACTION, action, None
    if len(items) != (5 if action == UPDATE else 4):
        return WRONG_COUNT, action, None
    if not isinstance(schema_id, str):
        return NO_SCHEMA_ID, None, None
    previous: tuple[bytes, ...] = ()
    fields: dict[str, Any] = {}
    if action != CREATE:
        ids = _ids(items[3])
        if not ids:
            return NO_PREVIOUS, None, schema_id
        if not _ascend(ids):
            return PREVIOUS_ORDER, None, schema_id
        previous = ids
    if action != DELETE:
        if not _is_dict(items[-1]):
            return NO_FIELDS, None, schema_id
        fields = items[-1]
        if len(fields) > FIELDS_MAX:
            return FIELD_COUNT, len(fields), schema_id
        for name, value in fields.items():
            fault, found = _value(name, value)
            if fault:
                return fault, name, schema_id
            fields[name] = found
    return action, schema_id, previous, fields


def is_operation_id(value: object) -> bool:
    """Whether `value` can be the id of an operation: the YASMF hash of an entry, 34 bytes."""
    return type(value) is bytes and len(value) == ID_SIZE and value.startswith(ID_PREFIX)


def is_field_name(value: object) -> bool:
    """Whether `value` can be the name of a field: a letter, then letters, digits and ``_``."""
    if not isinstance(value, str) or not 0 < len(value) <= NAME_SIZE_MAX:
        return False
    return value.isascii() and value.replace("_", "0").isalnum() and value[0].isalpha()


def _value(name: object, value: Any) -> tuple[int, Any]:
    """The fault of a field, if there is one, and its value."""
    if not is_field_name(name):
        return FIELD_NAME, value
    if type(value) is int:
        return 0 if -_INT_MAX - 1 <= value <= _INT_MAX else FIELD_RANGE, value
    if type(value) in _PLAIN:
        return 0, value
    if not _is_array(value):
        return FIELD_TYPE, value
    ids = _ids(value)
    if ids is not None:
        return 0, ids
    views = tuple(map(_ids, value))
    right = all(view and _ascend(view) for view in views)
    return 0 if right else FIELD_TYPE, views


def _ids(value: object) -> tuple[bytes, ...] | None:
    """The ids of operations of which an array consists, if it does."""
    return tuple(value) if _is_array(value) and all(map(is_operation_id, value)) else None


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple))


def _ascend(ids: tuple[bytes, ...]) -> bool:
    return all(one < other for one, other in pairwise(ids))
