"""The bytes of a capture in their directions, with the fields of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
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


_Fields = Generator[Field, None, DissectionFault | None]


class Split:
    """Bytes that a step has moved, which are split while their fields are taken.

    fields: as in `StepFields`, to be taken once.
    fault: known once all fields have been taken.
    """

    def __init__(self, moved: Moved, fields: _Fields | tuple[()] = ()) -> None:
        self.moved = moved
        self.fields = self._taken(fields)
        self.fault: DissectionFault | None = None

    def _taken(self, fields: _Fields | tuple[()]) -> Iterator[Field]:
        self.fault = yield from fields


class Passed(NamedTuple):
    """So many steps, with so many bytes, have come up to here, those of other flows among them."""

    number: int
    size: int


# How to dissect the bytes of the machines of culm.
PROTOCOL_OF = {
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
    for step, parts in Flows(header).told(steps):
        yield step, [StepFields(each.moved, tuple(each.fields), each.fault) for each in parts]


def tells_keys(step: Step) -> bool:
    """Whether a step has the keys of a session, or had them before they were left out."""
    return _keys_in(step.result) is not None


class _Flow:
    """One direction of one connection: its layer, and the bytes that wait for their turn."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._pieces: deque[bytes] = deque()
        self._items: deque[Item] = deque()
        self._size = self._known = self._told = 0
        self._left = 0  # pieces whose fields were not all told
        self._is_broken = False
        self._end: DissectionFault | None = None

    def add(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        self._left += 1

    def wait(self) -> None:
        """Let the layer have what waits with it for something else to become known."""
        while self._pieces and self.layer.waits:
            self.layer.feed(self._pieces.popleft())

    def fields(self, size: int, more: Callable[[], bool]) -> _Fields:
        """Those of the piece whose turn it is, of so many bytes, and its fault.

        more: does something for more items to be known; false if nothing comes any more.
        """
        start, stop = self._told, self._told + size
        while True:
            yield from cut_items(self._items, start, stop, 0)
            if self._known >= stop:
                break
            if not (self._know_more() or more()):
                self._finish()
        self._told = stop
        self._left -= 1
        fault = self._fault(start, stop) or (None if self._left else self._end)
        if fault is None:
            return None
        self._is_broken = True
        return replace(fault, offset=fault.offset - start)

    def _know_more(self) -> bool:
        """Make one item more known, if there are the bytes for it."""
        while (item := self.layer.next_item()) is None:
            if not self._pieces:
                return False
            self.layer.feed(self._pieces.popleft())
        self._items.append(item)
        self._known = max(self._known, item.end)
        return True

    def _finish(self) -> None:
        """Show what waits as far as it goes; its end is missing, which is said with the last."""
        if not self._is_broken:
            self._end = missing(self.layer, self._size)
        self.layer.force()

    def _fault(self, start: int, stop: int) -> DissectionFault | None:
        """The first fault of all, if it is here."""
        faults = [each for each in self.layer.faults if start <= each.offset < stop]
        if self._is_broken or not faults:
            return None
        return min(faults, key=lambda each: each.offset)


class _Waiting(NamedTuple):
    """A step, how many steps and bytes came before it, and the flow of its bytes, if it has one."""

    step: Step
    number: int
    size: int
    moves: bool
    flow: _Flow | None


class Flows:
    """All flows of a machine, or some of them, if others are followed elsewhere."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._streams: dict[tuple[int, bool], _Flow] = {}
        self._links: dict[int, int] = {}
        self._keys: dict[bool, Keys] | None = None  # unknown as yet
        self._steps: Iterator[Step | Passed] = iter(())
        self._waiting: deque[_Waiting] = deque()
        self._number = 0
        self._size = 0

    def told(self, steps: Iterable[Step | Passed]) -> Iterator[tuple[Step, Iterator[Split]]]:
        """All steps in order, each with its bytes, which are split while their fields are taken.

        A step's fields are to be taken before those of the next.  In memory are the fields of one
        item at a time, and as many steps as wait for its end.
        """
        self._steps = iter(steps)
        while self._waiting or self._read():
            if self._waiting:
                first = self._waiting[0]
                parts = self._parts(first) if first.moves else iter(())
                yield first.step, parts
                for _ in parts:  # which nobody wanted
                    pass
                self._waiting.popleft()

    def _parts(self, told: _Waiting) -> Iterator[Split]:
        for moved in bytes_of(told.step):
            if (flow := told.flow) is None or moved.peer is not None:
                split = self.datagram(moved)
            else:
                split = Split(moved, flow.fields(len(moved.data), partial(self._go_on, flow)))
            yield split
            for _ in split.fields:
                pass

    def _go_on(self, flow: _Flow) -> bool:
        """Read a step more, or wait no longer for the end of a field; false if none is left."""
        first = self._waiting[0]
        if (
            self._number - first.number <= WAITING_MAX
            and self._size - first.size <= _WAITING_SIZE_MAX
        ):
            return self._read()
        flow.layer.force()
        return True

    def _read(self) -> bool:
        step = next(self._steps, None)
        if step is None:
            return False
        if isinstance(step, Passed):
            self._number, self._size = step
            return True
        note_links(step.result, self._links)
        if self._keys is None and (keys := _keys_in(step.result)) is not None:
            for each in self._streams.values():
                each.wait()
            self._keys = keys
        flow, moved, number, size = None, None, self._number, self._size
        for moved in bytes_of(step):
            self._size += len(moved.data)
            if moved.peer is None:
                flow = self._stream(moved)
                flow.add(moved.data)
        self._number += 1
        self._waiting.append(_Waiting(step, number, size, moved is not None, flow))
        return True

    def _stream(self, moved: Moved) -> _Flow:
        key = self._links.get(moved.on, moved.on), moved.received
        if key not in self._streams:
            self._streams[key] = _Flow(self._layer(moved))
        return self._streams[key]

    def datagram(self, moved: Moved) -> Split:
        """The fields of a datagram, which depend on no other."""
        flow = _Flow(self._layer(moved))
        flow.add(moved.data)
        return Split(moved, flow.fields(len(moved.data), lambda: False))

    def _layer(self, moved: Moved) -> Layer:
        machine = self._header.machine
        protocol = PROTOCOL_OF.get(machine)
        if machine == "ssb-peer" and moved.data[:1] > _MUXRPC_FLAGS_MAX:
            protocol = None  # the connection is sealed, with keys that only the peer has
        if protocol is None:
            return Opaque("bytes")
        try:
            return PROTOCOLS[protocol](**self._options(moved))
        except (TypeError, ValueError):  # a setting that somebody has made up
            return Opaque("bytes")

    def _options(self, moved: Moved) -> dict[str, Any]:
        """The settings of the machine that concern its bytes."""
        header = self._header
        given = header.config
        options: dict[str, Any] = {"dialect": str(given["dialect"])} if "dialect" in given else {}
        if header.machine == "ssb-handshake":
            client = (header.role == "CLIENT") is not moved.received
            options["role"] = "client" if client else "server"
            options["keys_of"] = partial(self._keys_of, moved.received, moved.peer is None)
        return options

    def _keys_of(self, received: bool, is_stream: bool) -> Keys | None:
        return self._keys[received] if is_stream and self._keys is not None else None


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
