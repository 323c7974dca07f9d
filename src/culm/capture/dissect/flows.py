"""The bytes of a capture in their directions, with the fields of each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from culm.capture.dissect.fields import Dissection, DissectionFault, Field
from culm.capture.dissect.layers import cut
from culm.capture.dissect.protocols import dissect
from culm.capture.records import Header, Step

__all__ = ["Moved", "StepFields", "bytes_of", "fields_of", "note_links"]


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
    """The bytes that a step has moved, in order; nothing of what was left out."""
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


@dataclass(slots=True)
class _Flow:
    """One direction of one connection: its bytes, and which step has moved which of them."""

    data: bytearray = field(default_factory=bytearray)
    pieces: list[tuple[int, int, Moved]] = field(default_factory=list[tuple[int, int, Moved]])

    def add(self, number: int, moved: Moved) -> None:
        self.pieces.append((number, len(self.data), moved))
        self.data += moved.data


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


def fields_of(header: Header, steps: Iterable[Step]) -> dict[int, list[StepFields]]:
    """For the number of each step that has moved bytes, these and their fields.

    The bytes of a machine of which nobody knows the protocol are one field.
    """
    streams: dict[tuple[int, bool], _Flow] = {}
    datagrams: list[tuple[bool, _Flow]] = []
    links: dict[int, int] = {}
    keys: dict[bool, dict[str, Any]] = {}
    for number, step in enumerate(steps, 1):
        note_links(step.result, links)
        keys = keys or _keys_in(step.result)
        for moved in bytes_of(step):
            if moved.peer is None:
                key = links.get(moved.on, moved.on), moved.received
                streams.setdefault(key, _Flow()).add(number, moved)
            else:
                datagrams.append((moved.received, flow := _Flow()))
                flow.add(number, moved)
    flows = [(received, flow) for (_, received), flow in streams.items()] + datagrams
    found: dict[int, list[StepFields]] = {}
    for received, flow in flows:
        options = {**_options(header, received), **keys.get(received, {})}
        for number, parts in _parts(flow, _dissected(header.machine, bytes(flow.data), options)):
            found.setdefault(number, []).append(parts)
    return found


def _dissected(machine: str, data: bytes, options: Mapping[str, Any]) -> Dissection:
    protocol = _PROTOCOL_OF.get(machine)
    if machine == "ssb-peer" and data[:1] > _MUXRPC_FLAGS_MAX:
        protocol = None  # the connection is sealed, with keys that only the peer has
    if protocol is None:
        return Dissection((Field("bytes", 0, len(data)),))
    return dissect(protocol, data, **options)


def _options(header: Header, received: bool) -> dict[str, Any]:
    """The settings of the machine that concern its bytes."""
    options = {"dialect": header.config["dialect"]} if "dialect" in header.config else {}
    if header.machine == "ssb-handshake":
        client = (header.role == "CLIENT") is not received
        options["role"] = "client" if client else "server"
    return options


def _keys_in(result: Any) -> dict[bool, dict[str, Any]]:
    """The keys of a session, if the event of a handshake has them and they were not left out."""
    if not isinstance(result, dict) or not str(result.get("")).endswith(":Authenticated"):
        return {}
    keys = result.get("fields", {}).get("keys")
    if not isinstance(keys, dict):
        return {}
    both = {name: keys["fields"][name]["fields"] for name in ("send", "receive")}
    if not all(isinstance(part, bytes) for each in both.values() for part in each.values()):
        return {}
    return {False: both["send"], True: both["receive"]}


def note_links(value: Any, links: dict[int, int]) -> None:
    """Remember which handles are the same connection."""
    if isinstance(value, dict):
        if value.get("") == "object" and isinstance(value.get("link"), int):
            links[value["number"]] = -1 - value["link"]
        value = value.get("items")
    if isinstance(value, list):
        for each in value:
            note_links(each, links)


def _parts(flow: _Flow, found: Dissection) -> Iterator[tuple[int, StepFields]]:
    for number, start, moved in flow.pieces:
        end = start + len(moved.data)
        fault = found.fault
        if fault is not None:
            here = start <= fault.offset < end or fault.offset == end == len(flow.data)
            fault = replace(fault, offset=fault.offset - start) if here else None
        yield number, StepFields(moved, tuple(cut(found.fields, start, end, 0)), fault)
