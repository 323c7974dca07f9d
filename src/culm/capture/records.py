"""The records of a capture: its header, then every call with its outcome.

A capture begins with a `Header`.  After it there is one `Step` for each call that the driver made,
in order: inputs, and also the calls that take something, since a machine moves when an event is
taken.  In CBOR a header is a map, and a step the array ``[microseconds since the step before,
handle, name, arguments, keywords, result]`` with, where they apply, ``error`` and ``state`` in a
map after that.  Names that are common are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cbor2

from culm.capture.blocks import BLOCK_SIZE_MAX, BlockReader
from culm.capture.encoding import fronts_of_map
from culm.capture.errors import CaptureError, ErrorCode
from culm.capture.redaction import Redact
from culm.wire import cbor
from culm.wire.cbor import ARRAY, Scanner, encode_head
from culm.wire.errors import DecodeError

__all__ = ["Capture", "Header", "Step", "read", "records_in"]

_NAMES = (
    "next_event",
    "next_effect",
    "data_to_send",
    "receive_data",
    "advance",
    "next_deadline",
    "complete",
    "fail",
    "receive_datagram",
    "datagrams_to_send",
    "links_to_send",
    "receive_eof",
    "close",
)
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}
_PARTS = 6
_TIME_MAX = 2**40  # seconds
_DEPTH_MAX = 64
# Items of a record: these, and one more for each `_ITEM_SIZE` bytes.  One takes up to 60 bytes.
_FEW_ITEMS = 1 << 16
_ITEM_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The subject of a capture.

    machine, config: the name in `culm.machines` and the settings, as JSON data, of which the
        machine was built; empty if that is not known.
    session: whatever tells this capture from others, such as a connection's number.
    culm, python: the versions that recorded it.
    began: the wall clock's time at the first step, in seconds since 1970; ``None`` if unknown.
    redacted: the parts that were left out.
    """

    machine: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    session: str = ""
    culm: str = ""
    python: str = ""
    began: float | None = None
    redacted: Set[Redact] = frozenset()

    @property
    def role(self) -> str:
        """The machine's role in its settings, in capitals; empty if it has none there."""
        return str(self.config.get("role", "")).upper()

    def encode(self) -> bytes:
        parts = {name: getattr(self, name) for name in self.__slots__}
        redacted = sorted(each.value for each in self.redacted)
        return cbor.encode({**parts, "config": dict(self.config), "redacted": redacted})


@dataclass(frozen=True, slots=True)
class Step:
    """One call.

    after: seconds since the step before, to the microsecond; 0 where no clock was given.
    on: the handle that was called, by the number of the step whose result it was; 0 is the machine.
    name: of the method or property.
    arguments, keywords, result: as `culm.capture.values` writes them.
    error: the exception raised instead of a result.
    state: the machine's state by name, after an event.
    """

    after: float
    on: int
    name: str
    arguments: list[Any]
    keywords: dict[str, Any]
    result: Any
    error: Any = None
    state: str | None = None

    def encode(self) -> bytes:
        parts = [
            round(self.after * 1e6),
            self.on,
            _NUMBERS.get(self.name, self.name),
            self.arguments,
            self.keywords,
            self.result,
        ]
        more = {"error": self.error, "state": self.state}
        if kept := {name: value for name, value in more.items() if value is not None}:
            parts.append(kept)
        return cbor.encode(parts)


@lru_cache(maxsize=4096)
def fronts_of_call(
    name: str, count: int, keywords: tuple[str, ...]
) -> tuple[list[bytes], list[str]]:
    """The bytes before each value of a call, and the names of keywords in their order.

    The values are the handle, `count` arguments, the keywords and the result.
    """
    begun = _named(name) + encode_head(ARRAY, count)
    fronts, names = [b""], list[str]()
    for _ in range(count):
        fronts.append(begun)
        begun = b""
    for front, each in fronts_of_map(keywords):
        fronts.append(begun + front)
        names.append(each)
        begun = b""
    return [*fronts, begun if keywords else begun + b"\xa0"], names


SIX, SEVEN = b"\x86", b"\x87"
"""The heads of arrays of six and of seven items."""


@lru_cache(maxsize=4096)
def _named(name: str) -> bytes:
    return cbor.encode(_NUMBERS.get(name, name))


@lru_cache(maxsize=4096)
def called(name: str) -> bytes:
    """The bytes between the time and the arguments of a call of the machine."""
    return cbor.encode(0) + _named(name)


@lru_cache(maxsize=4096)
def in_state(name: str) -> bytes:
    """The bytes after the result where there is a state."""
    return cbor.encode({"state": name})


def _idle(name: str, result: object) -> bytes:
    return Step(0.0, 0, name, [], {}, result).encode()


_NOTHING: tuple[object, ...] = (None, b"", [])
IDLE: dict[tuple[str, type], bytes] = {
    (name, type(result)): _idle(name, result)
    for name in _NAMES
    for result in _NOTHING
    if name != "next_deadline"
}
"""The steps of calls without arguments that gave nothing, by name and type of result.

Most steps are like that, and they tell no time.
"""


class Capture:
    """A capture that is read: iterating gives its steps, once.

    pieces: the bytes, in pieces of any size.
    size_max: see `BlockReader`.  No more than a block of records is in memory at a time.

    Raises `CaptureError`, when it is made and from the iteration.
    """

    def __init__(self, pieces: Iterable[bytes], *, size_max: int = BLOCK_SIZE_MAX) -> None:
        self._blocks = BlockReader(size_max=size_max)
        self._records = self._read(pieces)
        first = next(self._records, None)
        if not isinstance(first, dict):
            raise CaptureError(ErrorCode.BAD_RECORD, "a capture begins with a header")
        self.header = _header(first)

    @property
    def torn(self) -> int:
        """Bytes at the end that are no complete block, known when all steps have been taken."""
        return self._blocks.torn

    def __iter__(self) -> Iterator[Step]:
        return map(_step, self._records)

    def _read(self, pieces: Iterable[bytes]) -> Iterator[Any]:
        for piece in pieces:
            for records in self._blocks.feed(piece):
                yield from _items(records)
        self._blocks.finish()


def read(data: bytes) -> Capture:
    """The capture that these bytes are.  Raises `CaptureError`."""
    return Capture([data])


def records_in(records: bytes) -> Iterator[Header | Step]:
    """The records of a block.  Raises `CaptureError`."""
    for found in _items(records):
        yield _header(found) if isinstance(found, dict) else _step(found)


def _items(records: bytes) -> Iterator[Any]:
    view, at = memoryview(records), 0
    while at < len(records):
        rest = view[at:]
        scanner = Scanner(
            size_max=len(rest), depth_max=_DEPTH_MAX, items_max=_FEW_ITEMS, item_size=_ITEM_SIZE
        )
        try:
            size = scanner.scan(rest, len(rest))
            if size is None:
                raise CaptureError(ErrorCode.BAD_RECORD, f"a record is cut at byte {at} of a block")
            yield cbor2.loads(rest[:size])
        except (DecodeError, cbor2.CBORDecodeError) as error:
            raise CaptureError(ErrorCode.BAD_RECORD, str(error)) from None
        at += size


def _header(found: dict[str, Any]) -> Header:
    parts = {name: found[name] for name in Header.__slots__ if name in found}
    try:
        redacted = frozenset(map(Redact, parts.pop("redacted", ())))
    except (TypeError, ValueError) as error:
        raise CaptureError(ErrorCode.BAD_RECORD, f"parts left out: {error}") from None
    header = Header(**parts, redacted=redacted)
    texts = (header.machine, header.session, header.culm, header.python)
    began = header.began
    is_a_time = began is None or (isinstance(began, (int, float)) and 0 <= began <= _TIME_MAX)
    if not (all(map(_is_text, texts)) and isinstance(header.config, dict) and is_a_time):
        raise CaptureError(ErrorCode.BAD_RECORD, "a header with parts of other types")
    return header


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _step(found: Any) -> Step:
    if not isinstance(found, list) or len(found) not in (_PARTS, _PARTS + 1):
        raise CaptureError(ErrorCode.BAD_RECORD, "a step that is none")
    parts: list[Any] = found
    more = parts[_PARTS] if len(parts) > _PARTS else {}
    kinds = (int, int, int | str, list, dict, object, dict)
    if bool in map(type, parts[:3]):  # which isinstance takes for a number
        raise CaptureError(ErrorCode.BAD_RECORD, "a step with a truth value for a number")
    if not all(map(isinstance, [*parts[:_PARTS], more], kinds)) or min(parts[:2]) < 0:
        raise CaptureError(ErrorCode.BAD_RECORD, "a step with parts of other types")
    after, on, called, arguments, keywords, result = parts[:_PARTS]
    name = called if isinstance(called, str) else _name(called)
    state = more.get("state")
    if state is not None and not isinstance(state, str):
        raise CaptureError(ErrorCode.BAD_RECORD, "a state that is no text")
    return Step(after / 1e6, on, name, arguments, keywords, result, more.get("error"), state)


def _name(number: int) -> str:
    if not 0 <= number < len(_NAMES):
        raise CaptureError(ErrorCode.BAD_RECORD, f"no call has the number {number}")
    return _NAMES[number]
