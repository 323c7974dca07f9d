"""Wireshark's fields, by the dissectors made for it, are those of culm's own dissection."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import pytest
from capture_conversations import CASES, recorded

from culm.capture import read
from culm.capture.command import main
from culm.capture.dissect import Dissection, Field, bytes_of, dissect
from culm.capture.dissect.fields import UNREAD
from culm.capture.dissect.flows import note_links
from culm.capture.pcap import PORT, pcap
from culm.oxen.seal import NONCE
from culm.testing.spec import Conversation, MachineSpec
from culm.wire.xenc import Timestamp

TSHARK = shutil.which("tshark")
IS_ABSENT = TSHARK is None and not os.environ.get("CULM_REQUIRE_TSHARK")
pytestmark = pytest.mark.skipif(IS_ABSENT, reason="no tshark; tox -e wireshark needs it")

# For each protocol of Wireshark: the machines that speak it, and culm's own split of the same
# bytes.
PROTOCOLS: dict[str, tuple[tuple[str, ...], str]] = {
    "bymux": (("bymux",), "bymux"),
    "point2point": (("point2point", "point2point-replicator"), "point2point"),
    "garlic": (("garlic", "garlic-handshake", "garlic-node"), "garlic"),
    "oxen": (("oxen",), "oxen"),
    "p2panda": (("p2panda", "p2panda-replicator"), "p2panda"),
    "muxrpc": (("ssb-muxrpc",), "ssb-muxrpc"),
    "ssb_handshake": (("ssb-handshake",), "ssb-handshake"),
}
_FRAME = Struct("<IIII")
_FILE_SIZE, _IP_SIZE = 24, 20
SHOWN = 48  # bytes of a text, or of raw bytes, in a label
NONCE_PARTS = {name for name, _ in NONCE}


class Node(NamedTuple):
    """A field, from either dissection."""

    label: str
    size: int
    inside: tuple[Node, ...] = ()


def printable(data: bytes) -> str:
    shown = re.sub(rb"[^\x20-\x7e]", lambda one: b"\\x%02x" % one[0][0], data[:SHOWN]).decode()
    return f"{shown}..." if len(data) > SHOWN else shown


def hexadecimal(data: bytes) -> str:
    return data[:SHOWN].hex() + ("..." if len(data) > SHOWN else "")


def text_of(field: Field, data: bytes, protocol: str) -> str | None:
    """Wireshark's text for a field's value."""
    own = data[field.offset : field.offset + field.size]
    match field.value:
        case _ if field.name in ("", "end of the head"):
            return None
        case _ if field.name == "packed entries" or field.inside:  # Lua does not unpack them
            return hexadecimal(own)
        case None if protocol == "muxrpc" and not own.endswith(b"null"):
            return hexadecimal(own)
        case _ if protocol == "muxrpc" and field.name not in ("flags", "body_size", "request"):
            return printable(_scalar(own))
        case Enum() as member:
            return member.name
        case None if protocol == "p2panda" and len(own) == 1:
            return "None"
        case None:
            return hexadecimal(own)
        case Timestamp():
            return own[own.rindex(b"t") + 1 : -1].decode()
        case float():
            return f"{field.value:.17g}"
        case int() if len(own) > 8 and protocol == "oxen" and field.name in NONCE_PARTS:
            return hexadecimal(own)
        case bytes() if protocol == "p2panda":
            return hexadecimal(field.value)
        case bytes():
            return printable(field.value)
        case str():
            return printable(field.value.encode())
        case _:
            return str(field.value)


def _scalar(own: bytes) -> bytes:
    """The JSON scalar that the field ends with."""
    found = re.search(rb'("(?:[^"\\]|\\.)*"|[^\s,:\]}\["]+)$', own, re.DOTALL)
    return own if found is None else found[0]


def node_of(field: Field, data: bytes, protocol: str) -> Node:
    name = printable(field.name.encode()) or "syntax"
    inside = tuple(node_of(each, data, protocol) for each in field.inside)
    if inside:
        return Node(name, field.size, inside)
    text = text_of(field, data, protocol)
    return Node(name if text is None else f"{name}: {text}", field.size)


# culm's dissection


class Flow(NamedTuple):
    """One direction: ``(port of the peer, whether received)``, its bytes, and how to split them."""

    data: bytes
    options: dict[str, Any]


def flows_of(capture: bytes) -> Iterator[tuple[tuple[int, bool], Flow]]:
    """The directions of a capture, by the ports that `pcap` gives their peers."""
    found: dict[tuple[int, bool], bytearray] = {}
    links: dict[int, int] = {}
    ports: dict[object, int] = {}
    opened = read(capture)
    for step in opened:
        note_links(step.result, links)
        for moved in bytes_of(step):
            key = repr(moved.peer) if moved.peer is not None else links.get(moved.on, moved.on)
            port = ports.setdefault(key, PORT + 1 + len(ports))
            if moved.peer is not None:
                yield (port, moved.received), Flow(moved.data, options_of(opened.header.config))
            else:
                found.setdefault((port, moved.received), bytearray()).extend(moved.data)
    for key, data in found.items():
        options = options_of(opened.header.config)
        if opened.header.machine == "ssb-handshake":
            client = (opened.header.role == "CLIENT") is not key[1]
            options = {"role": "client" if client else "server"}
        yield key, Flow(bytes(data), options)


def options_of(config: Any) -> dict[str, Any]:
    return {"dialect": config["dialect"]} if "dialect" in config else {}


def joined(fields: Sequence[Field]) -> list[Field]:
    """Fields put together from the parts into which packets have cut them."""
    whole: list[Field] = []
    for each in fields:
        before = whole[-1] if whole else None
        if before is not None and before.continues and before.name == each.name:
            inside = tuple(joined([*before.inside, *each.inside]))
            size, more = before.size + each.size, each.continues
            whole[-1] = Field(each.name, before.offset, size, each.value, inside, more)
        else:
            whole.append(each)
    return whole


def placed(fields: Sequence[Field], at: int) -> Iterator[Field]:
    """The same fields, one after the other, starting at `at`."""
    for each in fields:
        inside = tuple(placed(each.inside, at))
        yield Field(each.name, at, each.size, each.value, inside, each.continues)
        at += each.size


def is_whole(field: Field) -> bool:
    return not field.continues and field.name != UNREAD and all(map(is_whole, field.inside))


def channels_of(found: Dissection, data: bytes) -> dict[str, tuple[list[Field], bytes]]:
    """The content of Point-2-Point's packets: by stream, its messages and its bytes."""
    parts: dict[str, tuple[list[Field], bytearray]] = {}
    for packet in found.fields:
        for each in packet.inside:
            if each.name.startswith("data of stream ") and each.inside:
                fields, carried = parts.setdefault(each.name.split()[-1], ([], bytearray()))
                fields += each.inside
                carried += data[each.offset : each.offset + each.size]
    return {
        name: (list(placed(joined(fields), 0)), bytes(carried))
        for name, (fields, carried) in parts.items()
    }


def without_layers(field: Field) -> Field:
    """A packet of Point-2-Point without the fields inside its data."""
    inside = tuple(
        Field(each.name, each.offset, each.size, None, (), each.continues)
        if each.name.startswith("data of stream ")
        else each
        for each in field.inside
    )
    return Field(field.name, field.offset, field.size, field.value, inside, field.continues)


# Wireshark's dissection

ADDRESS = re.compile(r"Src: ([\d.]+), Dst: ([\d.]+)")
PORTS = re.compile(r"Src Port: (\d+), Dst Port: (\d+)")
Key = tuple[int, int, bool]
"""Number of the capture, the peer's port, whether the machine has received it."""


def merged(captures: Sequence[bytes]) -> Iterator[bytes]:
    """All captures as one file for Wireshark, each with another address for its machine."""
    for number, capture in enumerate(captures):
        file = b"".join(pcap(read(capture)))
        if not number:
            yield file[:_FILE_SIZE]
        at = _FILE_SIZE
        while at < len(file):
            size = _FRAME.unpack_from(file, at)[2]
            frame = bytearray(file[at : at + _FRAME.size + size])
            for place in (_FRAME.size + 12, _FRAME.size + 16):
                if frame[place + 3] == 1:
                    frame[place + 1 : place + 3] = number.to_bytes(2, "big")
            yield bytes(frame)
            at += len(frame)


def seen(protocol: str, captures: Sequence[bytes], folder: Path) -> dict[Key, list[Node]]:
    """The fields that Wireshark shows, by direction."""
    plugin, file = folder / "culm.lua", folder / "merged.pcap"
    assert main(["wireshark", "-o", str(plugin)]) == 0
    file.write_bytes(b"".join(merged(captures)))
    assert TSHARK is not None
    decode = f"{'udp' if protocol == 'oxen' else 'tcp'}.port=={PORT},{protocol}"
    words = [TSHARK, "-X", f"lua_script:{plugin}", "-r", str(file), "-d", decode]
    done = subprocess.run(
        [*words, "-T", "pdml", "-J", protocol], capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Lua Error" not in done.stdout + done.stderr, done.stdout[-2000:]
    found: dict[Key, list[Node]] = {}
    for packet in ET.fromstring(done.stdout).iter("packet"):
        names = {each.get("name"): each.get("showname", "") for each in packet.iter("proto")}
        address, ports = ADDRESS.search(names.get("ip", "")), None
        for layer in ("tcp", "udp"):
            ports = ports or PORTS.search(names.get(layer, ""))
        assert address is not None
        assert ports is not None
        received = address[1] == "10.0.0.2"
        a, b = address[2 if received else 1].split(".")[1:3]
        key = int(a) << 8 | int(b), int(ports[1 if received else 2]), received
        for proto in packet.iter("proto"):
            if proto.get("name") == protocol:
                found.setdefault(key, []).extend(map(shown, proto))
    return found


def shown(element: ET.Element) -> Node:
    label, size = element.get("showname", ""), int(element.get("size", "0"))
    return Node(label, size, tuple(map(shown, element)))


# Both


def check(expected: Sequence[Field], data: bytes, protocol: str, got: Sequence[Node]) -> int:
    """Wireshark has all whole messages, and no others; the number of messages."""
    whole = []
    for each in expected:
        if not is_whole(each):
            break
        whole.append(node_of(each, data, protocol))
    assert list(got[: len(whole)]) == whole
    rest = [each for each in got[len(whole) :] if not each.label.startswith("unread")]
    if len(whole) == len(expected):
        assert rest == []
    return len(whole)


@pytest.mark.costly
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wireshark_shows_the_same_fields(protocol: str, tmp_path: Path) -> None:
    machines, name = PROTOCOLS[protocol]
    cases: list[tuple[MachineSpec, Conversation]] = [
        case.values for case in CASES if case.values[0].name in machines
    ]
    captures = [recorded(spec, told) for spec, told in cases]
    found, messages = seen(protocol, captures, tmp_path), 0
    for number, capture in enumerate(captures):
        for (port, received), (data, options) in flows_of(capture):
            key = number, port, received
            if not data:
                continue
            expected = dissect(name, data, **options)
            got = found.get(key, [])
            if protocol == "oxen":  # each datagram is its own flow
                got, found[key] = got[:1], got[1:]
            messages += compared(protocol, expected, data, got)
    assert messages > 12, messages


def compared(protocol: str, expected: Dissection, data: bytes, got: list[Node]) -> int:
    if protocol == "oxen" and expected.fields[0].name != "sealed":
        expected = Dissection((replace(expected.fields[0], name="parcel"),), expected.fault)
    if protocol != "point2point":
        return check(expected.fields, data, protocol, got)
    lower = [each for each in got if not each.label.startswith("stream ")]
    count = check(list(map(without_layers, expected.fields)), data, protocol, lower)
    for name, (fields, carried) in channels_of(expected, data).items():
        upper = [
            each for packet in got if packet.label == f"stream {name}" for each in packet.inside
        ]
        count += check(fields, carried, protocol, upper)
    return count
