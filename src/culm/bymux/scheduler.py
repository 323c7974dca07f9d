"""The packets to send, and their order.

Control packets (all but data) leave in the order in which they became due, before any
data.  Packets that can be merged (Credits of a stream) or counted (Pings, Pongs) join the one that
waits already; since they only move forward, past packets of other types, this never takes them past
a Close or StopRead that forbids them.  So the queue is bounded by the number of streams, not by
the peer's requests.

Data leaves one Write at a time, round robin over the streams that have some and may send it:
the urgent ones first, the others while none of those has any.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

from culm.buffer import take_first
from culm.bymux.packets import UINT64_MAX, PacketType, encode

_COUNTED: Final = frozenset({PacketType.PING, PacketType.PONG})
_ANSWERING: Final = frozenset({PacketType.PONG, PacketType.CLOSE, PacketType.STOP_READ})


class Addressee(Protocol):
    """The target of a control packet: a stream or, without an id, the connection."""

    @property
    def stream_id(self) -> int | None: ...


class Scheduler:
    """The waiting control packets, and the streams that are in line to write, by id.

    It says whose turn it is; the connection asks that stream for its Write.
    """

    __slots__ = ("_urgent", "_writers", "answers", "closed", "control")

    def __init__(self) -> None:
        self.control: OrderedDict[tuple[Addressee, PacketType], int] = OrderedDict()
        """Amount to send by addressee and type: bytes or streams of a Credit, number of Pings and
        Pongs, 1 of a Close or StopRead, and of the Write that creates a stream.  An addressee is an
        object: streams of one id, one after the other, do not share a packet."""
        self._urgent: OrderedDict[int, None] = OrderedDict()
        self._writers: OrderedDict[int, None] = OrderedDict()  # those that are not urgent
        self.answers = 0
        """Waiting packets of the types with which the peer's are answered."""
        self.closed = False
        """The connection has ended: nothing further becomes due."""

    def owe(self, addressee: Addressee, packet_type: PacketType, amount: int = 1) -> None:
        """Let a packet become due."""
        key = addressee, packet_type
        # Only for a peer that uses credit before it is sent could the sum not be encoded.
        self.control[key] = min(self.control.get(key, 0) + amount, UINT64_MAX)
        if packet_type in _ANSWERING:
            self.answers += amount

    def owe_infinite_credit(self, addressee: Addressee) -> None:
        """Let an infinite Credit become due, in place of one that waits."""
        self.control[addressee, PacketType.CREDIT] = 0

    def owes(self, addressee: Addressee, packet_type: PacketType) -> bool:
        """Whether such a packet has become due and not been taken."""
        return (addressee, packet_type) in self.control

    def withdraw(self, addressee: Addressee, packet_type: PacketType) -> None:
        """Forget a packet that has become due, unless it has been taken."""
        self.control.pop((addressee, packet_type), None)

    def enter(self, stream_id: int, *, urgent: bool) -> None:
        """Let a stream write when its turn comes (once, however often it enters)."""
        (self._urgent if urgent else self._writers)[stream_id] = None

    def leave(self, stream_id: int) -> None:
        """Take a stream out of the round."""
        self._urgent.pop(stream_id, None)
        self._writers.pop(stream_id, None)

    def close(self) -> None:
        """Stop sending data; control packets that are due still leave."""
        self.closed = True
        self._urgent.clear()
        self._writers.clear()

    def take_turn(self) -> int | None:
        """Take the stream whose turn it is; if it has more data, it enters again."""
        writers = self._urgent or self._writers
        return take_first(writers)[0] if writers else None

    def take_control(self, room: int) -> bytes:
        """Take the packet that has waited longest; repeated, if counted, to fill `room`."""
        key, amount = take_first(self.control)
        addressee, packet_type = key
        if packet_type is PacketType.WRITE:
            return encode(packet_type, None, addressee.stream_id)
        if packet_type is PacketType.CREDIT:
            return encode(packet_type, addressee.stream_id, amount)
        packet = encode(packet_type, addressee.stream_id)
        count = min(amount, -(-room // len(packet)))
        if count < amount:
            self.control[key] = amount - count
            self.control.move_to_end(key, last=False)
        if packet_type in _ANSWERING:
            self.answers -= count
        return packet * count
