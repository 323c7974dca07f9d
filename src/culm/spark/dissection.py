"""Fields of dissected bytes as a nested column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from culm.capture.dissect import Field, dissect
from culm.capture.text import words_of
from culm.capture.values import to_value
from culm.spark.columns import bigint

#: The type of a column of fields, those inside others after them, with their ``depth``.  A field
#: has its value as a ``number``, a ``text`` or ``bytes``, numbers of 2^63 and more as negative
#: ones; those with a name (codes, flags) as both of the former.  Bytes that stand for themselves
#: are there as ``bytes``; a field whose parts say it all has no value.
FIELDS = (
    "array<struct<name:string,depth:int,offset:int,size:int,number:bigint,text:string,"
    "bytes:binary,continues:boolean>>"
)
#: The result of `culm_dissect`: the fields and, if the bytes break the protocol, code and place.
DISSECTED = (("fields", FIELDS), ("fault", "string"), ("fault_offset", "int"))


def field_rows(fields: Sequence[Field], data: bytes, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The elements of the column for fields of `data`."""
    for each in fields:
        yield {
            "name": each.name,
            "depth": depth,
            "offset": each.offset,
            "size": each.size,
            **_value(each, data),
            "continues": each.continues,
        }
        yield from field_rows(each.inside, data, depth + 1)


def _value(field: Field, data: bytes) -> dict[str, Any]:
    value = field.value
    if value is None:
        if field.inside:
            return {}
        return {"bytes": data[field.offset : field.offset + field.size]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value)}
    said: dict[str, Any] = {}
    if isinstance(value, int) and not isinstance(value, bool):
        number = bigint(int(value))
        if number is not None:
            said["number"] = number
            if type(value) is int:
                return said
    if isinstance(value, Enum):
        return {**said, "text": value.name}
    return {**said, "text": value if isinstance(value, str) else words_of(to_value(value))}


def dissected_rows(data: bytes | None, protocol: str | None) -> dict[str, Any] | None:
    """The columns `DISSECTED` for the bytes that one side has sent; null for null.

    Raises `ValueError` for a protocol that is not known.
    """
    if data is None or protocol is None:
        return None
    found = dissect(protocol, data)
    fault = found.fault
    return {
        "fields": list(field_rows(found.fields, data)),
        "fault": None if fault is None else fault.code,
        "fault_offset": None if fault is None else fault.offset,
    }
