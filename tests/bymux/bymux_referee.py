"""A plain reading of the spec's appendix A, as a check on a machine's bytes.

A `Referee` stands beside one endpoint and sees all that it sends and receives, in that order, whole
packets at a time, with the state that the spec says an endpoint must keep.  It knows nothing of the
code under test and is not meant to be fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bymux_support import CLOSE, CREDIT, PING, PONG, STOP_READ, WRITE

INFINITE = 2**64 - 1


@dataclass
class RefereedStream:
    """Spec: "for each stream the endpoint maintains"."""

    credit: int
    sent: set[int] = field(default_factory=set)  # Close, StopRead
    received: set[int] = field(default_factory=set)
    peer_credit: int = 0
    pongs_owed: int = 0

    @property
    def over(self) -> bool:
        return len(self.sent) == len(self.received) == 2


class Reader:
    """Cuts a stream of bytes into (kind, id, amount), leaving out the data of Writes."""

    def __init__(self) -> None:
        self.buffer = b""
        self.skip = 0

    def read(self, data: bytes) -> list[tuple[int, int | None, int | None]]:
        self.buffer += data
        packets = []
        while self.buffer:
            if self.skip:
                size = min(self.skip, len(self.buffer))
                self.buffer, self.skip = self.buffer[size:], self.skip - size
                continue
            header = self.buffer[0]
            kind = header >> 5
            id_size = 0 if header >> 4 & 1 else 1 << (header >> 2 & 3)
            amount_size = 1 << (header & 3) if kind in {CREDIT, WRITE} else 0
            size = 1 + id_size + amount_size
            if len(self.buffer) < size:
                break
            stream_id = int.from_bytes(self.buffer[1 : 1 + id_size], "big") if id_size else None
            amount = int.from_bytes(self.buffer[1 + id_size : size], "big") if amount_size else None
            if kind == WRITE and stream_id is not None:
                self.skip = amount or 0
            packets.append((kind, stream_id, amount))
            self.buffer = self.buffer[size:]
        return packets

    @property
    def idle(self) -> bool:
        return not self.buffer and not self.skip


class Referee:
    """Raises `AssertionError` when its endpoint sends something that it may not."""

    def __init__(
        self,
        *,
        parity: int,
        streams: dict[int, tuple[int, int]],
        global_credit: int,
        peer_global_credit: int,
        creator_credit: int,
        peer_creator_credit: int,
        write_size_max: int,
    ) -> None:
        self.parity = parity
        self.streams = {
            stream_id: RefereedStream(credit=send, peer_credit=receive)
            for stream_id, (send, receive) in streams.items()
        }
        self.whole = RefereedStream(credit=global_credit, peer_credit=peer_global_credit)
        self.creator_credit = creator_credit
        self.peer_creator_credit = peer_creator_credit
        self.write_size_max = write_size_max
        self.out, self.inn = Reader(), Reader()

    def sends(self, data: bytes) -> None:
        for kind, stream_id, amount in self.out.read(data):
            stream = self.whole if stream_id is None else self.streams[stream_id]
            if kind in {WRITE, CLOSE}:
                assert CLOSE not in stream.sent
            if kind in {CREDIT, STOP_READ}:
                assert STOP_READ not in stream.sent
            if kind in {PING, PONG}:
                assert stream.sent != {CLOSE, STOP_READ}
            if kind == PONG:
                stream.pongs_owed -= 1
                assert stream.pongs_owed >= 0, "not asked for"
            if kind in {CLOSE, STOP_READ}:
                stream.sent.add(kind)
            if kind == CREDIT:
                assert amount is not None
                if stream_id is None:
                    assert amount > 0
                    stream.peer_credit += amount
                    assert stream.peer_credit <= INFINITE
                else:
                    assert stream.peer_credit != INFINITE
                    stream.peer_credit = stream.peer_credit + amount if amount else INFINITE
                    assert stream.peer_credit <= INFINITE
            if kind == WRITE:
                assert amount is not None
                if stream_id is None:
                    assert stream.credit > 0
                    stream.credit -= 1
                    assert amount % 2 == self.parity
                    assert amount not in self.streams
                    self.streams[amount] = RefereedStream(credit=self.creator_credit)
                else:
                    assert 0 < amount <= min(stream.credit, self.write_size_max)
                    if stream.credit != INFINITE:
                        stream.credit -= amount
            self.forget_if_over(stream_id)

    def is_sent(self, data: bytes) -> None:
        """The peer's bytes; their correctness is a matter for the peer's own referee."""
        for kind, stream_id, amount in self.inn.read(data):
            stream = self.whole if stream_id is None else self.streams[stream_id]
            if kind == PING:
                stream.pongs_owed += 1
            if kind in {CLOSE, STOP_READ}:
                stream.received.add(kind)
            if kind == CREDIT:
                assert amount is not None
                if stream_id is not None and (amount == 0 or stream.credit == INFINITE):
                    stream.credit = INFINITE
                else:
                    stream.credit += amount
            if kind == WRITE:
                assert amount is not None
                if stream_id is None:
                    stream.peer_credit -= 1
                    assert amount not in self.streams
                    self.streams[amount] = RefereedStream(
                        credit=0, peer_credit=self.peer_creator_credit
                    )
                elif stream.peer_credit != INFINITE:
                    stream.peer_credit -= amount
                    assert stream.peer_credit >= 0
            self.forget_if_over(stream_id)

    def forget_if_over(self, stream_id: int | None) -> None:
        if stream_id is not None and self.streams[stream_id].over:
            del self.streams[stream_id]

    def at_rest(self) -> None:
        """All bytes are whole, and everything that must be answered is answered."""
        assert self.out.idle
        assert self.inn.idle
        for stream in (self.whole, *self.streams.values()):
            if len(stream.sent) < 2:
                assert stream.pongs_owed == 0
            if CLOSE in stream.received:
                assert STOP_READ in stream.sent
            if STOP_READ in stream.received:
                assert CLOSE in stream.sent
