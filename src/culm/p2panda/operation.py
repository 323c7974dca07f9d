"""Operations, which change documents: encoded and decoded.

The encoding is canonical CBOR: an array of the version (1), the action, the schema id, ``previous``
(of updates and deletions) and the fields (of creations and updates).  Field names are in text
order.  An operation's id is the hash of the entry whose payload it is.

Sources: p2panda's handbook, "Operations" (OP1 to OP8), "Canonical Encoding" (EN1, EN2); p2panda-rs
0.8 where the handbook is older.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, cast

from culm.arguments import check_type, is_encodable
from culm.buffer import Buffer
from culm.kernels import operations as _kernel
from culm.p2panda.errors import InvalidOperation, Reason
from culm.p2panda.schema import Schema, SchemaId
from culm.wire import cbor
from culm.wire.errors import DecodeError

VERSION = _kernel.VERSION

#: The value of a field.  Without a schema, bytes are bytes or a relation, a tuple of operation
#: ids is a list of relations or a pinned one, and a tuple of tuples a list of pinned ones.
Value: TypeAlias = (
    bool | int | float | str | bytes | tuple[bytes, ...] | tuple[tuple[bytes, ...], ...]
)

_check_schema_id = SchemaId.parse
_DEPTH_MAX = 4  # operation, fields, list of pinned relations, one of these
# Its own items, and the names and values of its fields; for each id there may be two more.
_ITEMS_MAX = 6 + 2 * _kernel.FIELDS_MAX
_ITEM_SIZE = _kernel.ID_SIZE // 2


class Action(IntEnum):
    """The change that an operation makes to its document (OP3)."""

    CREATE = 0
    UPDATE = 1
    DELETE = 2


class _Layout(NamedTuple):
    """How an action is encoded: the number of items, and which of the last two it has."""

    action: Action
    size: int
    follows: bool  # other operations, which it names
    has_fields: bool


_LAYOUTS = (  # by number
    _Layout(Action.CREATE, 4, follows=False, has_fields=True),
    _Layout(Action.UPDATE, 5, follows=True, has_fields=True),
    _Layout(Action.DELETE, 4, follows=True, has_fields=False),
)


_FAULTS = {
    _kernel.NO_ARRAY: (Reason.WRONG_FORM, "no array of 4 or 5 items"),
    _kernel.UNKNOWN_VERSION: (Reason.UNKNOWN_VERSION, "{!r:.100}"),
    _kernel.UNKNOWN_ACTION: (Reason.UNKNOWN_ACTION, "{!r:.100}"),
    _kernel.NO_SCHEMA_ID: (Reason.BAD_SCHEMA_ID, "no text"),
    _kernel.NO_PREVIOUS: (Reason.BAD_PREVIOUS, "not as many operation ids as there must be"),
    _kernel.PREVIOUS_ORDER: (Reason.BAD_PREVIOUS, "operation ids do not ascend"),
    _kernel.NO_FIELDS: (Reason.WRONG_FORM, "fields that are no map"),
    _kernel.FIELD_COUNT: (Reason.WRONG_FORM, "{} fields"),
    _kernel.FIELD_NAME: (Reason.BAD_FIELD_NAME, "{!r:.100}"),
    _kernel.FIELD_RANGE: (Reason.BAD_VALUE, "{} is no 64-bit integer"),
    _kernel.FIELD_TYPE: (Reason.BAD_VALUE, "{} is of no type"),
}


class _Parts:
    """The parts of an `Operation` under construction: a frozen class would be much slower.

    This is done for every operation that arrives.
    """

    __slots__ = ("_encoded", "action", "fields", "previous", "schema_id")

    def __init__(
        self: Any,
        action: Action,
        schema_id: str,
        previous: tuple[bytes, ...],
        fields: Mapping[str, Value],
        encoded: bytes,
    ) -> None:
        self.action = action
        self.schema_id = schema_id
        self.previous = previous
        self.fields = fields
        self._encoded: bytes | None = encoded
        self.__class__ = Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(_Parts):
    """A well-formed operation, not checked against its document.

    previous: the ids of the operations that it follows, ascending; empty in a creation.
    fields: empty in a deletion.  Lists may be any sequences, and are kept as tuples.

    Raises `InvalidOperation` for parts that cannot be encoded.
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
        _check_schema_id(self.schema_id)
        layout = _LAYOUTS[self.action]
        if self.previous and not layout.follows:
            raise InvalidOperation(*_FAULTS[_kernel.NO_PREVIOUS])
        names = sorted(self.fields)  # a TypeError for a name that is no text
        items: list[object] = [VERSION, int(self.action), self.schema_id]
        if layout.follows:
            items.append(self.previous)
        if layout.has_fields:
            items.append({name: self.fields[name] for name in names})
        found = _kernel.read(items)
        if len(found) == 3:  # there is a fault
            raise _invalid(items, *found)
        if self.fields and not layout.has_fields:
            raise InvalidOperation(Reason.WRONG_FORM, "a deletion has no fields")
        _, _, previous, fields = found
        for name, value in fields.items():
            if isinstance(value, str) and not is_encodable(value):
                raise InvalidOperation(Reason.BAD_VALUE, f"{name} has half a surrogate pair")
        object.__setattr__(self, "previous", previous)
        object.__setattr__(self, "fields", fields)

    def encode(self) -> bytes:
        """The canonical encoding; computed once."""
        encoded = self._encoded
        if encoded is None:
            layout = _LAYOUTS[self.action]
            parts: list[object] = [VERSION, int(self.action), self.schema_id]
            if layout.follows:
                parts.append(list(self.previous))
            pieces = [cbor.encode_head(cbor.ARRAY, layout.size), *map(cbor.encode, parts)]
            if layout.has_fields:
                pieces.append(cbor.encode_head(cbor.MAP, len(self.fields)))
                pieces += [cbor.encode(part) for pair in self.fields.items() for part in pair]
            encoded = b"".join(pieces)
            object.__setattr__(self, "_encoded", encoded)
        return encoded


_Assemble: TypeAlias = Callable[
    [Action, str, tuple[bytes, ...], Mapping[str, Value], bytes], Operation
]
_assemble = cast("_Assemble", _Parts)


def decode(data: Buffer) -> Operation:
    """Decode bytes that hold exactly one operation.

    Raises `InvalidOperation`.
    """
    encoded = data if isinstance(data, bytes) else bytes(data)
    items, end = cbor.decode_first(encoded, 0, _DEPTH_MAX - 1)
    if end == cbor.TOO_DEEP:
        _check_items(encoded)
        items, end = cbor.decode_first(encoded, 0, _DEPTH_MAX)
    if end != len(encoded):
        raise InvalidOperation(Reason.NOT_CANONICAL, _fault_in(encoded))
    found = _kernel.read(items)
    if len(found) == 3:  # there is a fault
        raise _invalid(items, *found)
    action, schema_id, previous, fields = found
    _check_schema_id(schema_id)
    return _assemble(_LAYOUTS[action].action, schema_id, previous, fields, encoded)


def check_operation(operation: Operation, schema: Schema) -> None:
    """Raise `InvalidOperation` unless `operation` conforms to `schema` (OP6, OP8)."""
    if operation.schema_id != schema.id:
        raise InvalidOperation(Reason.WRONG_SCHEMA, operation.schema_id)
    if operation.action is not Action.DELETE:
        schema.check(operation.fields, all_of_them=operation.action is Action.CREATE)


def _check_items(encoded: bytes) -> None:
    """Raise `InvalidOperation` for more items than an operation of that size has.

    An array takes 64 bytes of memory, and may be a single one of these.
    """
    scanner = cbor.Scanner(
        size_max=len(encoded), depth_max=_DEPTH_MAX, items_max=_ITEMS_MAX, item_size=_ITEM_SIZE
    )
    try:
        scanner.scan(encoded, len(encoded))
    except DecodeError as error:
        raise InvalidOperation(Reason.NOT_CANONICAL, str(error)) from None


def _fault_in(encoded: bytes) -> str:
    """The reason why this is not canonical CBOR."""
    try:
        cbor.decode(encoded, depth_max=_DEPTH_MAX)
    except DecodeError as error:
        return str(error)
    return ""


def _invalid(items: Any, fault: int, detail: object, schema_id: str | None) -> InvalidOperation:
    """The error for items in which the kernel has found a fault."""
    try:
        if schema_id is not None:
            _check_schema_id(schema_id)
    except InvalidOperation as error:
        return error
    if fault == _kernel.WRONG_COUNT:
        return InvalidOperation(Reason.WRONG_FORM, f"{len(items)} items in {Action(items[1]).name}")
    reason, message = _FAULTS[fault]
    return InvalidOperation(reason, message.format(detail))
