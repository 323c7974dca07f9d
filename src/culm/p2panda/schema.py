"""Schemas: the fields of documents, and the ids by which applications find them.

Sources: p2panda's handbook, "Schemas" (SC1 to SC10) and operations (OP6, OP8).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from culm.arguments import check_type, is_tuple
from culm.kernels import operations as _kernel
from culm.p2panda.errors import InvalidOperation, Reason
from culm.wire.multihash import YASMF

#: Fields of one schema (SC3), and characters of the name of one (SC4).
FIELDS_MAX = _kernel.FIELDS_MAX
FIELD_NAME_SIZE_MAX = _kernel.NAME_SIZE_MAX

_HASH = f"{YASMF.prefix.hex()}[0-9a-f]{{64}}"
_NAME = r"[A-Za-z][A-Za-z0-9_]{0,62}[A-Za-z0-9]"
_APPLICATION = re.compile(rf"({_NAME})((?:_{_HASH})+)")
_SYSTEM_NAMES = ("schema_definition", "schema_field_definition", "blob", "blob_piece")
_SYSTEM = re.compile(rf"({'|'.join(_SYSTEM_NAMES)})_v([1-9][0-9]{{0,8}})")
_FIELD_TYPE = re.compile(r"([a-z_]+)(?:\((.*)\))?")


@dataclass(frozen=True, slots=True)
class SchemaId:
    """The id of a schema, taken apart.

    view: operation ids of the view of the schema's definition; empty for a system schema.
    version: that of a system schema.
    """

    name: str
    view: tuple[bytes, ...] = ()
    version: int | None = None

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> SchemaId:
        """Raises `InvalidOperation` (``BAD_SCHEMA_ID``)."""
        check_type("schema id", text, str)
        if (system := _SYSTEM.fullmatch(text)) is not None:
            return cls(system[1], version=int(system[2]))
        application = _APPLICATION.fullmatch(text)
        if application is None:
            raise InvalidOperation(Reason.BAD_SCHEMA_ID, f"{text[:100]!r}")
        view = tuple(bytes.fromhex(each) for each in application[2].split("_")[1:])
        if any(one >= other for one, other in pairwise(view)):
            raise InvalidOperation(Reason.BAD_SCHEMA_ID, "operation ids do not ascend")
        return cls(application[1], view)

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.name}_v{self.version}"
        return "_".join((self.name, *(each.hex() for each in self.view)))


def schema_order(text: str) -> tuple[int, str]:
    """A key for sorting: system schemas first, in the order of their definition, then by text.

    aquadoggo requires this order in announcements and sync requests.
    """
    system = _SYSTEM.fullmatch(text)
    if system is None:
        return len(_SYSTEM_NAMES), text
    return _SYSTEM_NAMES.index(system[1]), text


is_operation_id = _kernel.is_operation_id


def check_field_name(name: object) -> None:
    """Raise `InvalidOperation` (``BAD_FIELD_NAME``) unless `name` is a valid field name (SC4)."""
    if not _kernel.is_field_name(name):
        raise InvalidOperation(Reason.BAD_FIELD_NAME, f"{name!r:.100}")


class Kind(Enum):
    """The types of fields (SC5), as spelled in definitions."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STR = "str"
    BYTES = "bytes"
    RELATION = "relation"
    RELATION_LIST = "relation_list"
    PINNED_RELATION = "pinned_relation"
    PINNED_RELATION_LIST = "pinned_relation_list"


_RELATIONS = frozenset(
    {Kind.RELATION, Kind.RELATION_LIST, Kind.PINNED_RELATION, Kind.PINNED_RELATION_LIST}
)


def _is_view(value: Any) -> bool:
    """One or more operation ids, ascending."""
    return bool(value) and _is_list(value) and all(a < b for a, b in pairwise(value))


def _is_list(value: Any) -> bool:
    return is_tuple(value) and all(map(is_operation_id, value))


_SUITS: dict[Kind, Callable[[Any], bool]] = {
    Kind.BOOL: lambda value: type(value) is bool,
    Kind.INT: lambda value: type(value) is int,
    Kind.FLOAT: lambda value: type(value) is float,
    Kind.STR: lambda value: type(value) is str,
    Kind.BYTES: lambda value: type(value) is bytes,
    Kind.RELATION: is_operation_id,
    Kind.RELATION_LIST: _is_list,
    Kind.PINNED_RELATION: _is_view,
    Kind.PINNED_RELATION_LIST: lambda value: is_tuple(value) and all(map(_is_view, value)),
}


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field; relations name the schema of the documents that they point to (SC7).

    Raises `InvalidOperation` (``BAD_VALUE``, ``BAD_SCHEMA_ID``).
    """

    kind: Kind
    schema_id: str | None = None

    def __post_init__(self) -> None:
        check_type("kind", self.kind, Kind)
        if (self.kind in _RELATIONS) != (self.schema_id is not None):
            raise InvalidOperation(Reason.BAD_VALUE, f"{self.kind.value} and {self.schema_id}")
        if self.schema_id is not None:
            SchemaId.parse(self.schema_id)

    @classmethod
    def parse(cls, text: str) -> FieldType:
        """Read a type as spelled in a field's definition (SC10), such as ``relation(blob_v1)``."""
        check_type("field type", text, str)
        found = _FIELD_TYPE.fullmatch(text)
        kinds = {kind.value: kind for kind in Kind}
        if found is None or found[1] not in kinds:
            raise InvalidOperation(Reason.BAD_VALUE, f"no field type: {text[:100]!r}")
        return cls(kinds[found[1]], found[2])

    def __str__(self) -> str:
        return self.kind.value if self.schema_id is None else f"{self.kind.value}({self.schema_id})"

    def suits(self, value: object) -> bool:
        """Whether a value is of this type, as far as can be seen without the documents."""
        return _SUITS[self.kind](value)


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields that documents of a schema have.

    Raises `InvalidOperation` for an invalid id, name or number of fields.
    """

    id: str
    fields: Mapping[str, FieldType]

    def __post_init__(self) -> None:
        SchemaId.parse(self.id)
        if not 1 <= len(self.fields) <= FIELDS_MAX:
            raise InvalidOperation(Reason.WRONG_FORM, f"{len(self.fields)} fields")
        for name, kind in self.fields.items():
            check_field_name(name)
            check_type(name, kind, FieldType)

    def check(self, fields: Mapping[str, object], *, all_of_them: bool) -> None:
        """Raise `InvalidOperation` unless `fields` conform to this schema (OP6, OP8).

        all_of_them: every field must be present, as in an operation that creates a document.
        """
        for name, value in fields.items():
            if name not in self.fields:
                raise InvalidOperation(Reason.UNKNOWN_FIELD, name)
            if not self.fields[name].suits(value):
                raise InvalidOperation(Reason.WRONG_TYPE, f"{name} is no {self.fields[name]}")
        missing = self.fields.keys() - fields.keys()
        if all_of_them and missing:
            raise InvalidOperation(Reason.MISSING_FIELD, min(missing))


def _system(schema_id: str, fields: Mapping[str, str]) -> Schema:
    return Schema(schema_id, {name: FieldType.parse(text) for name, text in fields.items()})


_FIELDS: Mapping[str, Mapping[str, str]] = {
    "schema_definition_v1": {
        "name": "str",
        "description": "str",
        "fields": "pinned_relation_list(schema_field_definition_v1)",
    },
    "schema_field_definition_v1": {"name": "str", "type": "str"},
    "blob_v1": {
        "length": "int",
        "mime_type": "str",
        "pieces": "pinned_relation_list(blob_piece_v1)",
    },
    "blob_piece_v1": {"data": "bytes"},
}

#: The schemas that come with the protocol, by id.
SYSTEM_SCHEMAS: Mapping[str, Schema] = {name: _system(name, _FIELDS[name]) for name in _FIELDS}
