"""Operations: what changes a document, encoded and decoded.

The encoding is canonical CBOR: an array of the version (1), the action, the schema id, ``previous``
(of updates and deletions) and the fields (of creations and updates).  Keys of fields ascend as text
does.  An operation's id is the hash of the entry whose payload it is.

Sources: p2panda's handbook, "Operations" (OP1 to OP8), "Canonical Encoding" (EN1, EN2); what
p2panda-rs 0.8 writes, where the handbook is older.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Any, TypeAlias, TypeGuard

from culm.arguments import check_type, is_dict, is_list
from culm.buffer import Buffer
from culm.p2panda.errors import InvalidOperation, Reason
from culm.p2panda.schema import (
    FIELDS_MAX,
    Schema,
    SchemaId,
    check_field_name,
    is_operation_id,
)
from culm.wire import cbor
from culm.wire.errors import DecodeError

__all__ = ["VERSION", "Action", "Operation", "Value", "check_operation", "decode"]

VERSION = 1

#: What a field may hold.  Without a schema, bytes are bytes or a relation, a tuple of operation
#: ids is a list of relations or a pinned one, and a tuple of tuples a list of pinned ones.
Value: TypeAlias = (
    bool | int | float | str | bytes | tuple[bytes, ...] | tuple[tuple[bytes, ...], ...]
)

_INT_MAX = 2**63 - 1
_PLAIN = frozenset({bool, float, str, bytes})
_DEPTH_MAX = 4  # operation, fields, list of pinned relations, one of these


class Action(IntEnum):
    """What an operation does to its document (OP3)."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


# How many items the encoding has; `_ACTIONS` by number.
_SIZES = {Action.CREATE: 4, Action.UPDATE: 5, Action.DELETE: 4}
_ACTIONS = {int(action): (action, size) for action, size in _SIZES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation that has the form of one; nothing is said of its document.

    previous: the ids of the operations behind which it stands, ascending; none in a creation.
    fields: none in a deletion.  Lists may be any sequences, and are kept as tuples.

    Raises `InvalidOperation` for what no encoding has.
    """

    action: Action
    schema_id: str
    previous: tuple[bytes, ...] = ()
    fields: Mapping[str, Value] = field(default_factory=dict[str, Value])
    _encoded: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_type("action", self.action, Action)
        check_type("previous", self.previous, Sequence)
        check_type("fields", self.fields, Mapping)
        SchemaId.parse(self.schema_id)
        _set_previous(self, _read_previous(self.action, self.previous))
        if self.fields and self.action is Action.DELETE:
            raise InvalidOperation(Reason.WRONG_FORM, "a deletion has no fields")
        names = sorted(self.fields)  # a TypeError for what is no text
        _set_fields(self, _read_fields({name: self.fields[name] for name in names}))

    def encode(self) -> bytes:
        """The canonical encoding; made once."""
        encoded = self._encoded
        if encoded is None:
            parts: list[object] = [VERSION, int(self.action), self.schema_id]
            if self.action is not Action.CREATE:
                parts.append(list(self.previous))
            pieces = [cbor.encode_head(cbor.ARRAY, _SIZES[self.action]), *map(cbor.encode, parts)]
            if self.action is not Action.DELETE:
                pieces.append(cbor.encode_head(cbor.MAP, len(self.fields)))
                pieces += [cbor.encode(part) for pair in self.fields.items() for part in pair]
            encoded = b"".join(pieces)
            _set_encoded(self, encoded)
        return encoded


# The slots of Operation, set without going through the __init__ of a frozen class: decoding
# happens for everything that comes in, and costs half as much this way.
_new = object.__new__
(_set_action, _set_schema_id, _set_previous, _set_fields, _set_encoded) = (
    getattr(Operation, name).__set__ for name in Operation.__slots__
)


def decode(data: Buffer) -> Operation:
    """Decode bytes that are one operation and nothing else.

    Raises `InvalidOperation`.
    """
    encoded = data if isinstance(data, bytes) else bytes(data)
    try:
        items = cbor.decode(encoded, depth_max=_DEPTH_MAX)
    except DecodeError as error:
        raise InvalidOperation(Reason.NOT_CANONICAL, str(error)) from None
    if not is_list(items) or not 4 <= len(items) <= 5:
        raise InvalidOperation(Reason.WRONG_FORM, "no array of 4 or 5 items")
    version, number, schema_id = items[:3]
    if type(version) is not int or version != VERSION:
        raise InvalidOperation(Reason.UNKNOWN_VERSION, f"{version!r:.100}")
    if type(number) is not int or number not in _ACTIONS:
        raise InvalidOperation(Reason.UNKNOWN_ACTION, f"{number!r:.100}")
    action, size = _ACTIONS[number]
    if len(items) != size:
        raise InvalidOperation(Reason.WRONG_FORM, f"{len(items)} items in {action.name}")
    if type(schema_id) is not str:
        raise InvalidOperation(Reason.BAD_SCHEMA_ID, "no text")
    SchemaId.parse(schema_id)
    previous = () if action is Action.CREATE else _read_previous(action, items[3])
    fields = {} if action is Action.DELETE else _read_fields(items[-1])
    operation = _new(Operation)
    _set_action(operation, action)
    _set_schema_id(operation, schema_id)
    _set_previous(operation, previous)
    _set_fields(operation, fields)
    _set_encoded(operation, encoded)
    return operation


def check_operation(operation: Operation, schema: Schema) -> None:
    """Raise `InvalidOperation` unless `operation` is of `schema` (OP6, OP8)."""
    if operation.schema_id != schema.id:
        raise InvalidOperation(Reason.WRONG_SCHEMA, operation.schema_id)
    if operation.action is not Action.DELETE:
        schema.check(operation.fields, all_of_them=operation.action is Action.CREATE)


def _read_previous(action: Action, value: Any) -> tuple[bytes, ...]:
    ids = _operation_ids(value) if _is_array(value) else None
    if ids is None or bool(ids) == (action is Action.CREATE):
        raise InvalidOperation(Reason.BAD_PREVIOUS, "not as many operation ids as there must be")
    if len(ids) > 1 and any(one >= other for one, other in pairwise(ids)):
        raise InvalidOperation(Reason.BAD_PREVIOUS, "operation ids do not ascend")
    return ids


def _read_fields(value: Any) -> dict[str, Value]:
    """The fields, given in the order of their names."""
    if not is_dict(value):
        raise InvalidOperation(Reason.WRONG_FORM, "fields that are no map")
    if len(value) > FIELDS_MAX:
        raise InvalidOperation(Reason.WRONG_FORM, f"{len(value)} fields")
    for name, each in value.items():
        check_field_name(name)
        if type(each) is int:
            if not -_INT_MAX - 1 <= each <= _INT_MAX:
                raise InvalidOperation(Reason.BAD_VALUE, f"{name} is no 64-bit integer")
        elif type(each) not in _PLAIN:
            value[name] = _read_list(name, each)
    return value


def _read_list(name: str, value: Any) -> tuple[bytes, ...] | tuple[tuple[bytes, ...], ...]:
    """A list of operation ids, or of views, which are lists of ascending ones."""
    if _is_array(value):
        if (ids := _operation_ids(value)) is not None:
            return ids
        if all(map(_is_array, value)):
            views = [_operation_ids(each) for each in value]
            if all(view and all(a < b for a, b in pairwise(view)) for view in views):
                return tuple(view for view in views if view)
    raise InvalidOperation(Reason.BAD_VALUE, f"{name} is of no type")


def _is_array(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple))


def _operation_ids(value: Sequence[Any]) -> tuple[bytes, ...] | None:
    for each in value:
        if not is_operation_id(each):
            return None
    return tuple(value)
