"""Any value as plain JSON data, and back where that is possible.

Bytes are written ``{"hex": "..."}``, enum members by name, exceptions and dataclasses
with their type and fields, so that one form serves the line driver, transcripts and
the messages of failed checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeGuard

from culm.arguments import is_buffer, is_list, is_mapping, is_sequence, is_set, is_tuple
from culm.machine import Effect, Event

# Named tuples with at most this many fields are keys or addresses, which come back as such.
_KEY_SIZE_MAX = 2

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"


def to_plain(value: object) -> JSON:
    """`value` as data that `json.dumps` takes.

    An object that is neither data nor a dataclass is written as its type alone, as an
    address in memory would differ from run to run.
    """
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case _ if is_buffer(value):
            return {"hex": bytes(value).hex()}
        case BaseException():
            return plain_error(value)
        case Event():
            return {"event": type(value).__name__, "fields": plain_fields(value)}
        case _ if _is_effect(value):
            return {"effect": type(value).__name__, "fields": plain_fields(value)}
        case _ if is_mapping(value):
            return _plain_mapping(value)
        case _ if is_tuple(value) and len(getattr(value, "_fields", ())) > _KEY_SIZE_MAX:
            named = dict(zip(getattr(value, "_fields", ()), value, strict=True))
            return {"type": type(value).__name__, "fields": to_plain(named)}
        case _ if is_sequence(value):
            return [to_plain(item) for item in value]
        case _ if is_set(value):
            return sorted((to_plain(item) for item in value), key=repr)
        case _:
            pass
    kind = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": kind, "fields": plain_fields(value)}
    return {"type": kind}


def plain_fields(value: Any) -> dict[str, JSON]:
    """The fields of the dataclass instance `value`, each as plain data."""
    return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}


def plain_error(error: BaseException) -> dict[str, JSON]:
    """``{"type", "code", "message"}`` of `error`; the code by name, or ``None``."""
    code = getattr(error, "code", None)
    message = getattr(error, "message", None)
    return {
        "type": type(error).__name__,
        "code": to_plain(code) if isinstance(code, (Enum, int, str)) else None,
        "message": message if isinstance(message, str) else str(error),
    }


def from_plain(value: JSON) -> Any:
    """Inverse of `to_plain` for data: ``{"hex": ...}`` and ``{"float": ...}`` are undone.

    Raises `ValueError` for wrong digits after ``hex`` or ``float``.
    """
    match value:
        case {"hex": str(digits), **rest} if not rest:
            return bytes.fromhex(digits)
        case {"float": str(digits), **rest} if not rest:
            return float(digits)
        case dict():
            return {key: from_plain(item) for key, item in value.items()}
        case list():
            return [from_plain(item) for item in value]
        case _:
            return value


def hashable(value: Any) -> Any:
    """`value` with tuples in place of lists, so that it can be an address or a key."""
    return tuple(hashable(item) for item in value) if is_list(value) else value


def _is_effect(value: object) -> TypeGuard[Effect[Any]]:
    return isinstance(value, Effect)


def _plain_mapping(value: Mapping[Any, Any]) -> JSON:
    if all(type(key) is str for key in value):
        return {key: to_plain(item) for key, item in value.items()}
    return {"pairs": [[to_plain(key), to_plain(item)] for key, item in value.items()]}
