"""The bytes of a capture in their directions, with the fields of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from culm.capture.dissect.fields import DissectionFault, Field
from culm.capture.dissect.layers import Item, Layer, Opaque, cut_items
from culm.capture.dissect.protocols import PROTOCOLS, missing
from culm.capture.links import note_links
from culm.capture.records import Header, Step
from culm.ssb import Keys


class Moved(NamedTuple):
    """Bytes that a step has moved.

    on: the handle of the connection; 0 is the machine.
    received: whether they came from the peer.
    peer: the address of a datagram, as it was written; ``None`` for a stream.
    """

    on: int
    received: bool
    data: bytes
    peer: Any = None


def bytes_of(step: Step) -> Iterator[Moved]:
    """The bytes that a step has moved, in order, without omitted ones."""
    if step.error is not None:
        return
    match step.name:
        case "receive_data" if step.arguments and isinstance(step.arguments[0], bytes):
            yield Moved(step.on, True, step.arguments[0])
        case "data_to_send" if isinstance(step.result, bytes) and step.result:
            yield Moved(step.on, False, step.result)
        case "receive_datagram" if step.arguments and isinstance(step.arguments[0], bytes):
            yield Moved(step.on, True, step.arguments[0], step.keywords.get("source"))
        case "datagrams_to_send" if isinstance(step.result, list):
            for each in step.result:
                items = each.get("items") if isinstance(each, dict) else each
                if isinstance(items, list) and len(items) == 2 and isinstance(items[1], bytes):
                    yield Moved(step.on, False, items[1], items[0])
        case _:
            pass


class StepFields(NamedTuple):
    """Bytes that a step has moved, and their fields.

    fields: with offsets in these bytes.  A field that began before them, or goes on after them, is
        there with its own part.
    fault: one that was found in these bytes.
    """

    moved: Moved
    fields: tuple[Field, ...]
    fault: DissectionFault | None


# How to dissect the bytes of the machines of culm.
_PROTOCOL_OF = {
    "bymux": "bymux",
    "garlic": "garlic",
    "garlic-handshake": "garlic",
    "garlic-node": "garlic",
    "oxen": "oxen",
    "p2panda": "p2panda",
    "p2panda-replicator": "p2panda",
    "point2point": "point2point",
    "point2point-replicator": "point2point",
    "ssb-box-stream": "ssb-box-stream",
    "ssb-handshake": "ssb-handshake",
    "ssb-muxrpc": "ssb-muxrpc",
    "ssb-peer": "ssb-muxrpc",
}

_MUXRPC_FLAGS_MAX = b"\x0f"


WAITING_MAX = 1 << 12
"""How many steps wait, at most, for the end of a field that began in one of them."""
_WAITING_SIZE_MAX = 1 << 26


def fields_of(header: Header, steps: Iterable[Step]) -> dict[int, list[StepFields]]:
    """For the number of each step that has moved bytes, these and their fields.

    The bytes of a machine with an unknown protocol are one field.
    """
    numbered = enumerate(with_fields(header, steps), 1)
    return {number: parts for number, (_, parts) in numbered if parts}


def with_fields(header: Header, steps: Iterable[Step]) -> Iterator[tuple[Step, list[StepFields]]]:
    """All steps in order, each with the bytes that it has moved and their fields.

    Steps wait for the ends of their fields, but not for more than `WAITING_MAX` steps: a field that
    has not ended by then is shown as far as it goes.
    """
    flows = Flows(header)
    for step in steps:
        yield from flows.take(step)
    yield from flows.finish()


def tells_keys(step: Step) -> bool:
    """Whether a step has the keys of a session, or had them before they were left out."""
    return _keys_in(step.result) is not None


@dataclass(slots=True)
class _Told:
    """A step, and its bytes, of which some may have no fields yet.

    number, size: how many steps, and bytes, came before it.
    """

    step: Step
    parts: list[StepFields | _Flow]
    number: int = 0
    size: int = 0

    @property
    def is_ready(self) -> bool:
        return all(isinstance(each, StepFields) for each in self.parts)


@dataclass(slots=True)
class _Flow:
    """One direction of one connection: its layer, and the steps that wait for it."""

    layer: Layer
    size: int = 0
    known: int = 0
    is_broken: bool = False
    items: deque[Item] = field(default_factory=deque[Item])
    pieces: deque[tuple[_Told, int, int, Moved]] = field(
        default_factory=deque[tuple[_Told, int, int, Moved]]
    )

    def add(self, told: _Told, moved: Moved) -> None:
        self.pieces.append((told, len(told.parts), self.size, moved))
        told.parts.append(self)
        self.size += len(moved.data)
        self._take(self.layer.feed(moved.data))

    def look_again(self) -> None:
        """Something has become known that its layer may have waited for."""
        self._take(self.layer.feed(b""))

    def force(self) -> None:
        """Show the waiting fields as far as they go."""
        self._take(self.layer.force())

    def finish(self) -> None:
        """No more bytes come."""
        if self.layer.is_amid and not self.is_broken and self.pieces:
            # Nothing is wrong before the last of them.
            *before, last = self.pieces
            self.pieces = deque(before)
            self.force()
            self.pieces.append(last)
            self._take((), missing(self.layer, self.size))
        else:
            self.force()

    def _take(self, items: Iterable[Item], end: DissectionFault | None = None) -> None:
        for each in items:
            self.items.append(each)
            self.known = max(self.known, each.end)
        while self.pieces and self.pieces[0][2] + len(self.pieces[0][3].data) <= self.known:
            told, index, start, moved = self.pieces.popleft()
            stop = start + len(moved.data)
            fields = tuple(cut_items(self.items, start, stop, 0))
            fault = self._fault(start, stop) or end
            if fault is not None:
                self.is_broken = True
                fault = replace(fault, offset=fault.offset - start)
            told.parts[index] = StepFields(moved, fields, fault)

    def _fault(self, start: int, stop: int) -> DissectionFault | None:
        """The first fault of all, if it is here."""
        faults = [each for each in self.layer.faults if start <= each.offset < stop]
        if self.is_broken or not faults:
            return None
        return min(faults, key=lambda each: each.offset)


class Flows:
    """All flows of a machine, or some of them, if others are followed elsewhere."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._streams: dict[tuple[int, bool], _Flow] = {}
        self._links: dict[int, int] = {}
        self._keys: dict[bool, Keys] | None = None  # unknown as yet
        self._told: deque[_Told] = deque()
        self._number = 0
        self._size = 0

    def take(self, step: Step) -> Iterator[tuple[Step, list[StepFields]]]:
        """A step; those of which all is known, in order."""
        note_links(step.result, self._links)
        if self._keys is None:
            self._keys = _keys_in(step.result)
            if self._keys is not None:
                self._look_again()
        told = _Told(step, [], self._number, self._size)
        self._told.append(told)
        self._number += 1
        for moved in bytes_of(step):
            self._size += len(moved.data)
            if moved.peer is None:
                self._stream(moved).add(told, moved)
            else:
                told.parts.append(self.datagram(moved))
        yield from self._ready()
        yield from self._wait_no_longer()

    def pass_to(self, number: int, size: int) -> Iterator[tuple[Step, list[StepFields]]]:
        """Note `number` steps, with `size` bytes, up to here; those of other flows are new.

        Steps have waited for that long, too.
        """
        self._number, self._size = number, size
        yield from self._wait_no_longer()

    def _wait_no_longer(self) -> Iterator[tuple[Step, list[StepFields]]]:
        while self._told and (
            self._number - self._told[0].number > WAITING_MAX
            or self._size - self._told[0].size > _WAITING_SIZE_MAX
        ):
            for part in list(self._told[0].parts):
                if isinstance(part, _Flow):
                    part.force()
            yield from self._ready()

    def finish(self) -> Iterator[tuple[Step, list[StepFields]]]:
        """No more steps come."""
        for flow in self._streams.values():
            flow.finish()
        yield from self._ready()

    def _ready(self) -> Iterator[tuple[Step, list[StepFields]]]:
        while self._told and self._told[0].is_ready:
            told = self._told.popleft()
            yield told.step, [each for each in told.parts if isinstance(each, StepFields)]

    def _stream(self, moved: Moved) -> _Flow:
        key = self._links.get(moved.on, moved.on), moved.received
        if key not in self._streams:
            self._streams[key] = _Flow(self._layer(moved))
        return self._streams[key]

    def datagram(self, moved: Moved) -> StepFields:
        """The fields of a datagram, which depend on no other."""
        flow, told = _Flow(self._layer(moved)), _Told(_NO_STEP, [])
        flow.add(told, moved)
        flow.finish()
        [found] = told.parts
        assert isinstance(found, StepFields)
        return found

    def _layer(self, moved: Moved) -> Layer:
        machine = self._header.machine
        protocol = _PROTOCOL_OF.get(machine)
        if machine == "ssb-peer" and moved.data[:1] > _MUXRPC_FLAGS_MAX:
            protocol = None  # the connection is sealed, with keys that only the peer has
        if protocol is None:
            return Opaque("bytes")
        try:
            return PROTOCOLS[protocol](**self._options(moved.received))
        except (TypeError, ValueError):  # a made-up setting
            return Opaque("bytes")

    def _options(self, received: bool) -> dict[str, Any]:
        """The settings of the machine that concern its bytes."""
        header = self._header
        given = header.config
        options: dict[str, Any] = {"dialect": str(given["dialect"])} if "dialect" in given else {}
        if header.machine == "ssb-handshake":
            client = (header.role == "CLIENT") is not received
            options["role"] = "client" if client else "server"
            options["keys_of"] = partial(self._keys_of, received)
        return options

    def _keys_of(self, received: bool) -> Keys | None:
        return None if self._keys is None else self._keys[received]

    def _look_again(self) -> None:
        """Boxes can be opened now, or never."""
        for flow in self._streams.values():
            flow.look_again()


def _keys_in(result: Any) -> dict[bool, Keys] | None:
    """The keys of a session, if this is the event of a handshake; none if they were left out."""
    if not isinstance(result, dict) or not str(result.get("")).endswith(":Authenticated"):
        return None
    keys = result.get("fields", {}).get("keys")
    try:
        both = [keys["fields"][name]["fields"] for name in ("send", "receive")]
        pairs = [(each["key"], each["nonce"]) for each in both]
    except (KeyError, TypeError):
        return {}
    if not all(_is_key(key, 32) and _is_key(nonce, 24) for key, nonce in pairs):
        return {}
    sent, received = (Keys(*pair) for pair in pairs)
    return {False: sent, True: received}


def _is_key(value: object, size: int) -> bool:
    return isinstance(value, bytes) and len(value) == size


_NO_STEP = Step(0.0, 0, "", [], {}, None)
