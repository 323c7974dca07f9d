"""Steps and values as text for people, and as data of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from culm.capture.records import Header, Step

_WIDTH = 100  # characters of a value
_SHORT = 60
_PARTS_MAX = 3
_HASH_SIZE_MAX = 64
_FEW = 4  # bytes of a key or a hash by which people know it
_UNSAID = frozenset({"LogKey"})


_KINDS = {
    "receive_data": "received",
    "receive_datagram": "received",
    "receive_eof": "received",
    "data_to_send": "sent",
    "datagrams_to_send": "sent",
    "next_event": "event",
    "next_effect": "effect",
    "complete": "answer",
    "fail": "answer",
    "advance": "time",
    "next_deadline": "deadline",
}


def kind_of(step: Step) -> str:
    """The part of a conversation that a step is: for most calls of the contract one, or a call."""
    return _KINDS.get(step.name, "call")


def title_of(header: Header) -> str:
    """The machine's name, for people."""
    return header.machine or "a machine without a name"


def is_idle(step: Step) -> bool:
    """Whether a step took something, and there was nothing."""
    takes = step.name.startswith("next_") or step.name.endswith("_to_send")
    return takes and step.error is None and step.result in (None, b"", [])


def line_of(step: Step) -> str:
    """One line for a call and its outcome."""
    given = [words_of(each) for each in step.arguments]
    given += [f"{name}={words_of(each)}" for name, each in step.keywords.items()]
    on = f"#{step.on}." if step.on else ""
    words = f"{on}{step.name}({', '.join(given)})"
    if step.error is not None:
        return f"{words} raised {words_of(step.error)}"
    if step.result is not None:
        words += f" -> {words_of(step.result)}"
    return words if step.state is None else f"{words}  [{step.state}]"


def visible(text: str) -> str:
    """A line for a terminal, on which names in it that others have chosen have no effect."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def words_of(value: Any) -> str:
    """A value in a few words."""
    words = _whole(value)
    return words if len(words) <= _WIDTH else f"{words[: _WIDTH - 3]}..."


def short_words(value: Any) -> str:
    """A value by its name and its first contents, without the names of its parts."""
    return _cut(" ".join(_essence(value, _PARTS_MAX)))


def bytes_words(value: bytes) -> str:
    """Bytes as text if they are one, else the first of a few, else how many they are."""
    size = len(value)
    if value.isascii() and (text := value.decode()).isprintable():
        return _cut(text) or "nothing"
    if size <= _FEW:
        return value.hex()
    return f"{value[:_FEW].hex()}…" if size <= _HASH_SIZE_MAX else f"{size} B"


def _cut(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def _essence(value: Any, parts_max: int) -> list[str]:
    if value is None or parts_max <= 0:
        return []
    if isinstance(value, bytes):
        return [bytes_words(value)]
    if isinstance(value, list):
        inside = _essence(value[0], parts_max - 1) if len(value) == 1 else []
        return inside or [f"{len(value)} items" if value else "nothing"]
    if not isinstance(value, dict):
        return [str(value)]
    mark = value.get("")
    if not isinstance(mark, str):
        return [f"{len(value)} items"]
    if mark in ("object", "secret", "payload", "opaque"):
        return [_whole(value)]
    if mark in ("tuple", "set"):
        return _essence(value.get("items"), parts_max)
    if "code" in value:
        return _essence(value["code"], parts_max)
    if "member" in value or "constant" in value:
        return [str(value.get("member", value.get("constant")))]
    name = mark.rpartition(":")[2]
    fields = value.get("fields", value.get("slots", {}))
    found: list[str] = [] if name in _UNSAID else [name]
    for key, part in fields.items() if isinstance(fields, dict) else ():
        if key != "ticket" and len(found) <= parts_max:
            found += _essence(part, parts_max - 1)
    return found


def _whole(value: Any) -> str:
    if isinstance(value, bytes):
        return _whole_bytes(value)
    if isinstance(value, list):
        return _whole_items(value, "[]")
    if not isinstance(value, dict):
        return repr(value)
    mark = value.get("")
    if not isinstance(mark, str):
        return f"{{{_joined(f'{key}: {words_of(each)}' for key, each in value.items())}}}"
    if mark == "object":
        return f"#{value.get('number')}"
    if "member" in value:
        return str(value["member"])
    if mark == "tuple" and isinstance(items := value.get("items"), list):
        return _whole_items(items, "()")
    parts = value.get("fields", {name: each for name, each in value.items() if name})
    shown = parts.items() if isinstance(parts, dict) else ()
    return f"{mark.rpartition(':')[2]}({_joined(f'{k}={words_of(v)}' for k, v in shown)})"


def _whole_bytes(value: bytes) -> str:
    """How many and, of those that are not shown to the end, a digest; text if they are one."""
    begun = value[:_WIDTH]
    is_text = value.isascii() and value.decode().isprintable()
    shown = repr(begun.decode()) if is_text else begun.hex()
    words = f"{len(value)} bytes {shown}" if value else "0 bytes"
    if len(words) <= _WIDTH:
        return words
    return f"{len(value)} bytes ({blake2b(value, digest_size=4).hexdigest()}) {shown}"


def _whole_items(items: list[Any], brackets: str) -> str:
    """Items and, if not all are shown, their number and that of the bytes in them."""
    words = f"{brackets[0]}{_joined(map(words_of, items))}{brackets[1]}"
    if len(words) <= _WIDTH:
        return words
    size = _size_of(items)
    return f"{counted(items)}{f', {size} bytes' if size else ''} {words}"


def counted(items: list[Any]) -> str:
    """How many items there are."""
    return "1 item" if len(items) == 1 else f"{len(items)} items"


def _size_of(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_size_of, parts))


def _joined(parts: Iterable[str]) -> str:
    """Parts with commas between them, as far as anybody reads."""
    size, taken = 0, list[str]()
    for each in parts:
        taken.append(each)
        size += len(each) + 2
        if size > _WIDTH + 2:
            break
    return ", ".join(taken)


def plain_step(step: Step) -> dict[str, Any]:
    """A step for JSON, in full."""
    return {
        "on": step.on,
        "name": step.name,
        "arguments": plain(step.arguments),
        "keywords": plain(step.keywords),
        "result": plain(step.result),
        "error": plain(step.error),
        "state": step.state,
    }


PARTS: tuple[str, ...] = ("arguments", "keywords", "result", "error")
"""The parts of a step that show the call and its outcome."""


def plain_parts(step: Step, names: Sequence[str] = PARTS) -> dict[str, Any]:
    """These parts of a step for JSON, but for those that are empty."""
    parts = ((name, getattr(step, name)) for name in names)
    return {name: plain(value) for name, value in parts if value not in (None, [], {})}


def plain(value: Any) -> Any:
    """The same for JSON: bytes as ``{"hex": "..."}``, like everywhere in culm."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return {"float": str(value)}
    return value
