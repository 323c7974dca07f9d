"""The packets to send, and their order.

Control packets (all but data) leave in the order in which they became due, before any
data.  Packets that can be merged (Credits of a stream) or counted (Pings, Pongs) join the one that
waits already; since they only move forward, past packets of other types, this never takes them past
a Close or StopRead that forbids them.  So what waits is bounded by the number of streams, not by
what the peer asks for.

Data leaves one Write at a time, round robin over the streams that have some and may send it:
the urgent ones first, the others while none of those has any.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Final, Protocol

from culm.buffer import Buffer, Outbox, take_first
from culm.bymux.packets import UINT64_MAX, PacketType, encode

_COUNTED: Final = frozenset({PacketType.PING, PacketType.PONG})
_ANSWERING: Final = frozenset({PacketType.PONG, PacketType.CLOSE, PacketType.STOP_READ})


class Addressee(Protocol):
    """The target of a control packet: a stream or, without an id, the connection."""

    @property
    def stream_id(self) -> int | None: ...


class Writer(Protocol):
    """A stream that has data and may send some of it."""

    def take_write(self, size_max: int) -> list[Buffer]:
        """Take the pieces of the next Write, its header first.

        If it has more, the stream calls `Scheduler.enter` again.
        """
        ...


class Scheduler:
    """The waiting control packets, and the streams that are in line to write."""

    __slots__ = ("_control", "_urgent", "_write_size_max", "_writers", "answers", "closed")

    def __init__(self, *, write_size_max: int) -> None:
        self._write_size_max = write_size_max
        # Amount to send by addressee and type: bytes or streams of a Credit, number of
        # Pings and Pongs, 1 of a Close or StopRead, and of the Write that creates a
        # stream.  An addressee is an object: streams of one id, one after the other,
        # do not share a packet.
        self._control: OrderedDict[tuple[Addressee, PacketType], int] = OrderedDict()
        self._urgent: OrderedDict[Writer, None] = OrderedDict()
        self._writers: OrderedDict[Writer, None] = OrderedDict()  # those that are not urgent
        self.answers = 0
        """Waiting packets of the types with which the peer's are answered."""
        self.closed = False
        """The connection has ended: nothing further becomes due."""

    def owe(self, addressee: Addressee, packet_type: PacketType, amount: int = 1) -> None:
        """Let a packet become due."""
        key = addressee, packet_type
        # Only for a peer that uses credit before it is sent could the sum not be encoded.
        self._control[key] = min(self._control.get(key, 0) + amount, UINT64_MAX)
        if packet_type in _ANSWERING:
            self.answers += amount

    def owe_infinite_credit(self, addressee: Addressee) -> None:
        """Let an infinite Credit become due, in place of one that waits."""
        self._control[addressee, PacketType.CREDIT] = 0

    def owes(self, addressee: Addressee, packet_type: PacketType) -> bool:
        """Whether such a packet has become due and not been taken."""
        return (addressee, packet_type) in self._control

    def withdraw(self, addressee: Addressee, packet_type: PacketType) -> None:
        """Forget a packet that has become due, unless it has been taken."""
        self._control.pop((addressee, packet_type), None)

    def enter(self, writer: Writer, *, urgent: bool) -> None:
        """Let a stream write when its turn comes (once, however often it enters)."""
        (self._urgent if urgent else self._writers)[writer] = None

    def leave(self, writer: Writer) -> None:
        """Take a stream out of the round."""
        self._urgent.pop(writer, None)
        self._writers.pop(writer, None)

    def close(self) -> None:
        """Stop sending data; control packets that are due still leave."""
        self.closed = True
        self._urgent.clear()
        self._writers.clear()

    def fill(self, outbox: Outbox, size_max: int | None) -> None:
        """Move whole packets to `outbox` until it holds `size_max` bytes or more."""
        goal = sys.maxsize if size_max is None else size_max
        while (room := goal - outbox.size) > 0:
            if self._control:
                outbox.append(self._next_control(room))
            elif writers := self._urgent or self._writers:
                writer = take_first(writers)[0]
                for piece in writer.take_write(self._write_size_max):
                    outbox.append(piece)
            else:
                return

    def _next_control(self, room: int) -> bytes:
        """The packet that has waited longest; repeated, if counted, to fill `room`."""
        key, amount = take_first(self._control)
        addressee, packet_type = key
        if packet_type is PacketType.WRITE:
            return encode(packet_type, None, addressee.stream_id)
        if packet_type is PacketType.CREDIT:
            return encode(packet_type, addressee.stream_id, amount)
        packet = encode(packet_type, addressee.stream_id)
        count = min(amount, -(-room // len(packet)))
        if count < amount:
            self._control[key] = amount - count
            self._control.move_to_end(key, last=False)
        if packet_type in _ANSWERING:
            self.answers -= count
        return packet * count
