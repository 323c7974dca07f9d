"""Captures as pcap, so that Wireshark opens them: TCP for streams, UDP for datagrams.

A capture has no packets of a network: each piece of bytes becomes segments of a connection that is
made up, over IPv4 between 10.0.0.1, which is the machine, and 10.0.0.2, with right checksums,
handshakes and sequence numbers.  The time is that of the capture, to the microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, pack
from typing import Any

from culm.capture.dissect.flows import Moved, bytes_of
from culm.capture.links import note_links
from culm.capture.records import Capture

PORT = 4000
"""The machine's port.  Peers have those after it, in the order in which they appear."""

_FILE = Struct("<IHHiIII")
_PACKET = Struct("<IIII")
_MAGIC, _RAW_IP, _SNAP_SIZE = 0xA1B2_C3D4, 101, 1 << 18
_SEGMENT_SIZE = 1 << 15
_TCP, _UDP = 6, 17
_SYN, _ACK, _PUSH, _FIN = 0x02, 0x10, 0x08, 0x01
_MACHINE = bytes([10, 0, 0, 1])
_WINDOW = 0xFFFF


@dataclass(slots=True)
class _Connection:
    """A connection that is made up.  Numbers by direction: of the machine, then of the peer."""

    port: int
    sent: list[int]
    ended: list[bool]


def pcap(capture: Capture) -> Iterator[bytes]:
    """The file, in pieces.  Raises `CaptureError` as the capture does."""
    yield _FILE.pack(_MAGIC, 2, 4, 0, 0, _SNAP_SIZE, _RAW_IP)
    time = capture.header.began or 0.0
    network, links = _Network(), dict[int, int]()
    for step in capture:
        time += step.after
        note_links(step.result, links)
        on = links.get(step.on, step.on)
        for moved in bytes_of(step):
            for packet in network.packets(moved._replace(on=on)):
                yield _stamped(time, packet)
        if step.name == "receive_eof" and step.error is None:
            for packet in network.end(on):
                yield _stamped(time, packet)


def _stamped(time: float, packet: bytes) -> bytes:
    seconds, rest = divmod(round(time * 1e6), 1_000_000)
    return _PACKET.pack(seconds & 0xFFFF_FFFF, rest, len(packet), len(packet)) + packet


class _Network:
    """Addresses and connections by the order in which they appear."""

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        self._peers: dict[str, int] = {}

    def packets(self, moved: Moved) -> Iterator[bytes]:
        """The packets that carry some bytes."""
        if moved.peer is not None:
            port = self._peers.setdefault(repr(moved.peer), PORT + 1 + len(self._peers))
            yield _datagram(port, moved.received, moved.data)
            return
        connection = self._connections.get(moved.on)
        if connection is None:
            port = PORT + 1 + len(self._connections)
            connection = self._connections[moved.on] = _Connection(port, [1, 1], [False, False])
            yield from _greeting(connection)
        for start in range(0, len(moved.data), _SEGMENT_SIZE):
            piece = moved.data[start : start + _SEGMENT_SIZE]
            yield _segment(connection, moved.received, _ACK | _PUSH, piece)

    def end(self, on: int) -> Iterator[bytes]:
        """The packets by which the peer ends its half."""
        connection = self._connections.get(on)
        if connection is not None and not connection.ended[1]:
            connection.ended[1] = True
            yield _segment(connection, True, _ACK | _FIN, b"")


def _greeting(connection: _Connection) -> Iterator[bytes]:
    yield _ip(_TCP, _header(connection.port, True, 0, 0, _SYN), True)
    yield _ip(_TCP, _header(connection.port, False, 0, 1, _SYN | _ACK), False)
    yield _ip(_TCP, _header(connection.port, True, 1, 1, _ACK), True)


def _segment(connection: _Connection, received: bool, flags: int, data: bytes) -> bytes:
    own, other = connection.sent[received], connection.sent[not received]
    connection.sent[received] = (own + len(data) + (1 if flags & _FIN else 0)) & 0xFFFF_FFFF
    header = _header(connection.port, received, own, other, flags)
    return _ip(_TCP, header + data, received)


def _ports(port: int, received: bool) -> tuple[int, int]:
    return (port, PORT) if received else (PORT, port)


def _header(port: int, received: bool, number: int, acknowledged: int, flags: int) -> bytes:
    ports = _ports(port, received)
    return pack(">HHIIBBHHH", *ports, number, acknowledged, 5 << 4, flags, _WINDOW, 0, 0)


def _datagram(port: int, received: bool, data: bytes) -> bytes:
    return _ip(_UDP, pack(">HHHH", *_ports(port, received), 8 + len(data), 0) + data, received)


_CHECKSUM_AT = {_TCP: 16, _UDP: 6}


def _ip(protocol: int, content: bytes, received: bool) -> bytes:
    """An IPv4 packet with both checksums."""
    peer = bytes([10, 0, 0, 2])
    source, destination = (peer, _MACHINE) if received else (_MACHINE, peer)
    pseudo = source + destination + pack(">BBH", 0, protocol, len(content))
    at = _CHECKSUM_AT[protocol]
    content = (
        content[:at] + (_sum(pseudo + content) or 0xFFFF).to_bytes(2, "big") + content[at + 2 :]
    )
    size = 20 + len(content)
    front = pack(">BBHHHBBH", 0x45, 0, size, 0, 0x4000, 64, protocol, 0) + source + destination
    return front[:10] + _sum(front).to_bytes(2, "big") + front[12:] + content


def _sum(data: bytes) -> int:
    """The checksum of the Internet (RFC 1071)."""
    padded: Any = memoryview(data + bytes(len(data) % 2)).cast("H")
    total = sum(padded)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    # The sum of numbers in the machine's order of bytes is itself in that order.
    return int.from_bytes((~total & 0xFFFF).to_bytes(2, _ORDER), "big")


_ORDER = "little" if memoryview(b"\1\0").cast("H")[0] == 1 else "big"
