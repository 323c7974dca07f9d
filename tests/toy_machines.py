"""Small machines that keep the contract, for tests of code built around machines.

`Lines` (text by lines), `Frames` (a conduit), `Keeper` (durable and timed), `Lanes` (which
schedules its bytes when they are taken) and `Pinger` (datagrams), each with its spec.
They are written to be right, not to be fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, TypeGuard, TypeVar

from culm.arguments import check_int, check_seconds
from culm.buffer import check_size_max
from culm.effects import Tickets
from culm.machine import (
    Buffer,
    Closed,
    DataReceived,
    Effect,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
    StreamBase,
    Ticket,
    check_time,
)
from culm.machines import Codec, MachineType, call, keys_of
from culm.machines.encodings import BIG_ENDIAN, DECIMAL
from culm.machines.messages import lines
from culm.machines.operations import Advance, Eof
from culm.testing.cluster import Cluster
from culm.testing.network import Conditions, Network
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Conversation,
    Flood,
    MachineSpec,
    Scenario,
    Usage,
    Work,
)
from culm.timers import Deadlines

LINE_MAX = 64

R = TypeVar("R")


class ToyState(Enum):
    """States of the stream toys."""

    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class ToyErrorCode(IntEnum):
    """Mistakes of the toys' peers and users."""

    LINE_TOO_LONG = auto()
    CUT_SHORT = auto()
    BAD_LANE = auto()
    NOT_A_LINE = auto()
    CLOSING = auto()
    NO_SUCH_PEER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReceived(Event):
    text: bytes


class Lines(StreamBase[Event]):
    """Lines both ways; the line ``bye`` is the goodbye, answered by another."""

    def __init__(self, *, line_max: int = LINE_MAX) -> None:
        check_int("line_max", line_max, 1)
        super().__init__(receive_max=4 * line_max)
        self._line_max = line_max
        self._state = ToyState.OPEN

    @property
    def state(self) -> ToyState:
        return self._state

    def say(self, text: Buffer) -> None:
        text = bytes(memoryview(text))
        if b"\n" in text or text == b"bye" or len(text) > self._line_max:
            raise LocalProtocolError(ToyErrorCode.NOT_A_LINE)
        if self._state is not ToyState.OPEN:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        self._outbox.append(text + b"\n")

    def _line(self) -> bytes | None:
        end = self._inbox.find(b"\n", 0, self._line_max + 1)
        if end >= 0:
            return self._inbox.take(end + 1)[:-1]
        if len(self._inbox) > self._line_max:
            raise RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG)
        return None

    def _step(self) -> Event | None:
        line = self._line()
        if line is None:
            return None
        if line != b"bye":
            return LineReceived(text=line)
        self._say_goodbye()
        return Closed()

    def _step_eof(self) -> Event | None:
        if len(self._inbox):
            raise RemoteProtocolError(ToyErrorCode.CUT_SHORT)
        return Closed()

    def _goodbye(self) -> None:
        self._say_goodbye()
        self._state = ToyState.CLOSING

    def _say_goodbye(self) -> None:
        if self._state is ToyState.OPEN:
            self._outbox.append(b"bye\n")

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._state = ToyState.CLOSED


class Frames(StreamBase[Event]):
    """A conduit: a length byte and that many bytes; length 0 is the goodbye, answered in kind.

    With `greeting`, nothing is sent until the peer's greeting (one byte, 0x47) has come.
    """

    def __init__(self, *, greeting: bool = False, receive_max: int = 1024) -> None:
        super().__init__(receive_max=receive_max)
        self._state = ToyState.OPEN
        self._ready = not greeting
        self._waiting = bytearray()
        if greeting:
            self._outbox.append(b"\x47")

    @property
    def state(self) -> ToyState:
        return self._state

    def send_data(self, data: Buffer) -> None:
        if self._state is not ToyState.OPEN:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        if not self._ready:
            self._waiting += data
            return
        view = memoryview(data)
        for start in range(0, len(view), 255):
            piece = bytes(view[start : start + 255])
            self._outbox.append(bytes([len(piece)]) + piece)

    def _step(self) -> Event | None:
        if not self._ready:
            if not len(self._inbox):
                return None
            if self._inbox.take(1) != b"\x47":
                raise RemoteProtocolError(ToyErrorCode.CUT_SHORT)
            self._ready = True
            self._flush()
        if not len(self._inbox) or len(self._inbox) <= self._inbox[0]:
            return None
        size = self._inbox.take(1)[0]
        if size:
            return DataReceived(data=self._inbox.take(size))
        if self._state is ToyState.OPEN:
            self._outbox.append(b"\x00")
        return Closed()

    def _flush(self) -> None:
        waiting, self._waiting = bytes(self._waiting), bytearray()
        state, self._state = self._state, ToyState.OPEN
        self.send_data(waiting)
        self._state = state
        if state is ToyState.CLOSING:
            self._outbox.append(b"\x00")

    def _step_eof(self) -> Event | None:
        raise RemoteProtocolError(ToyErrorCode.CUT_SHORT)

    def _goodbye(self) -> None:
        self._state = ToyState.CLOSING
        if self._ready:
            self._outbox.append(b"\x00")

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._state = ToyState.CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(Effect[int]):
    """Keep a line; answered with its place."""

    text: bytes

    def accepts(self, result: object) -> TypeGuard[int]:
        return type(result) is int and result >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Event):
    text: bytes
    place: int


class Keeper(Lines):
    """Stores every line, and says ``ok`` once it is kept; ends when idle for too long.

    It also ends when the store fails.
    """

    keep_type: type[Effect[Any]] = Keep

    def __init__(self, *, line_max: int = LINE_MAX, effects_max: int = 2, idle: float = 30) -> None:
        super().__init__(line_max=line_max)
        check_int("effects_max", effects_max, 1)
        check_seconds("idle", idle)
        self._effects_max = effects_max
        self._idle = idle
        self._now: float | None = None
        self._deadlines: Deadlines[str] = Deadlines()
        self._tickets: Tickets[bytes, Effect[bytes]] = Tickets()
        self._kept: deque[Event] = deque()
        self._failed = False

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def advance(self, now: float) -> None:
        check_time(now, self._now)
        first = self._now is None
        self._now = now
        if first and self._closed is None:
            self._deadlines.set("idle", now + self._idle)
        elif self._deadlines.pop_due(now) is not None:
            self.close()

    def next_effect(self) -> Effect[Any] | None:
        return self._tickets.next_effect()

    def complete(self, ticket: Ticket[R], result: R) -> None:
        text = self._tickets.answered(ticket, result)
        if self._failed:
            return
        assert isinstance(result, int)
        self._kept.append(Kept(text=text, place=result))
        if self._state is ToyState.OPEN:
            self._outbox.append(b"ok\n")

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        failure, _ = self._tickets.failed(ticket, error)
        if not self._failed:
            self._failed = True
            self._tickets.drop_asked()
            self._kept.append(failure)

    def read_size(self) -> int:
        return super().read_size() if len(self._outbox) < 256 else 0

    def _step(self) -> Event | None:
        if self._kept:
            return self._kept.popleft()
        if self._failed:
            return Closed()
        if len(self._tickets) >= self._effects_max:
            return None
        if len(self._tickets) and self._inbox.peek(4) == b"bye\n":
            return None  # the goodbye waits for the store
        line = self._line()
        if line is None:
            return None
        if self._now is not None:
            self._deadlines.set("idle", self._now + self._idle)
        if line == b"bye":
            self._say_goodbye()
            return Closed()
        if line == b"ok":
            return LineReceived(text=line)
        self._tickets.ask(self.keep_type, line, text=line)
        return LineReceived(text=line)

    def _step_eof(self) -> Event | None:
        return None if len(self._tickets) else super()._step_eof()

    def _ended(self, error: RemoteProtocolError | None) -> None:
        super()._ended(error)
        self._deadlines.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneData(Event):
    lane: int
    data: bytes


class Lanes(StreamBase[Event]):
    """Two lanes by turns; a lane's share of a frame is decided when the frame is taken."""

    def __init__(self) -> None:
        super().__init__(receive_max=1024)
        self._state = ToyState.OPEN
        self.queues = [bytearray(), bytearray()]
        self._turn = 0

    @property
    def state(self) -> ToyState:
        return self._state

    def put(self, lane: int, data: Buffer) -> None:
        if lane not in {0, 1}:
            raise LocalProtocolError(ToyErrorCode.BAD_LANE)
        if self._state is not ToyState.OPEN:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        self.queues[lane] += data

    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        while size_max is None or len(self._outbox) < size_max:
            lane = next((n for n in (self._turn, 1 - self._turn) if self.queues[n]), None)
            if lane is None:
                break
            room = 255 if size_max is None else max(1, min(255, size_max - 2))
            piece = bytes(self.queues[lane][:room])
            del self.queues[lane][: len(piece)]
            self._outbox.append(bytes([lane, len(piece)]) + piece)
            self._turn = 1 - lane
        return super().data_to_send(size_max)

    def _step(self) -> Event | None:
        if self._state is not ToyState.OPEN:
            return Closed()
        if len(self._inbox) and self._inbox[0] > 1:
            raise RemoteProtocolError(ToyErrorCode.BAD_LANE)
        if len(self._inbox) < 2 or len(self._inbox) < 2 + self._inbox[1]:
            return None
        lane, size = self._inbox.take(2)
        return LaneData(lane=lane, data=self._inbox.take(size))

    def _step_eof(self) -> Event | None:
        if len(self._inbox):
            raise RemoteProtocolError(ToyErrorCode.CUT_SHORT)
        return Closed()

    def _goodbye(self) -> None:
        self._state = ToyState.CLOSED

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._state = ToyState.CLOSED


def by_lane(events: Sequence[Event]) -> object:
    """What the reader of a lane sees: its bytes, and how everything ended."""
    lanes = [b"", b""]
    for event in events:
        if isinstance(event, LaneData):
            lanes[event.lane] += event.data
    return [*lanes, *(event for event in events if isinstance(event, Closed))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinged(Event):
    peer: Hashable
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Event):
    peer: Hashable
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered(Event):
    peer: Hashable
    number: int


class Pinger:
    """Pings peers (``P`` and a number of two bytes) until they answer (``A`` and the number)."""

    TRIES_MAX = 5
    WAITING_MAX = 16

    def __init__(self, *, peers: Sequence[Hashable] = (), interval: float = 1.0) -> None:
        self.peers = list(peers)
        self._interval = interval
        self._state = ToyState.OPEN
        self._now = 0.0
        self._numbers = 0
        self._tries: dict[tuple[Hashable, int], int] = {}
        self._deadlines: Deadlines[tuple[Hashable, int]] = Deadlines()
        self._events: deque[Event] = deque()
        self.out: list[tuple[Hashable, bytes]] = []

    @property
    def state(self) -> ToyState:
        return self._state

    def ping(self, peer: Hashable) -> int:
        if self._state is not ToyState.OPEN:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        if peer not in self.peers:
            raise LocalProtocolError(ToyErrorCode.NO_SUCH_PEER)
        self._numbers += 1
        self._tries[peer, self._numbers] = 0
        self._try(peer, self._numbers)
        return self._numbers

    def _try(self, peer: Hashable, number: int) -> None:
        self._tries[peer, number] += 1
        self.out.append((peer, b"P" + number.to_bytes(2, "big")))
        self._deadlines.set((peer, number), self._now + self._interval)

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        data = bytes(memoryview(data))
        if self._state is not ToyState.OPEN or len(data) != 3 or source not in self.peers:
            return
        number = int.from_bytes(data[1:], "big")
        waiting = max(len(self._events), len(self.out))
        if data[:1] == b"P" and waiting < self.WAITING_MAX:
            self.out.append((source, b"A" + data[1:]))
            self._events.append(Pinged(peer=source, number=number))
        elif data[:1] == b"A" and self._tries.pop((source, number), None) is not None:
            self._deadlines.cancel((source, number))
            self._events.append(Answered(peer=source, number=number))

    def datagrams_to_send(self) -> list[tuple[Hashable, bytes]]:
        out, self.out = self.out, []
        return out

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        if self._state is not ToyState.CLOSING:
            return None
        self._state = ToyState.CLOSED
        return Closed()

    def close(self) -> None:
        if self._state is ToyState.OPEN:
            self._state = ToyState.CLOSING
            self._deadlines.clear()

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def advance(self, now: float) -> None:
        check_time(now, self._now)
        self._now = now
        while (due := self._deadlines.pop_due(now)) is not None:
            if self._tries[due] < self.TRIES_MAX:
                self._try(*due)
            else:
                del self._tries[due]
                self._events.append(Unanswered(peer=due[0], number=due[1]))


def ping_conversations(spec: MachineSpec) -> list[Conversation]:
    """Two pingers over a network that loses much."""
    network = Network(seed=1, conditions=Conditions(loss=0.5, delay_min=0.1, delay_max=0.4))
    cluster = Cluster(network, records=True)
    configs = {"a": {"peers": ["b", "c"]}, "b": {"peers": ["a"], "interval": 0.5}}
    for name in configs:
        cluster.add(name, lambda node: Pinger(**configs[str(node.address)]))
    for _ in range(3):
        cluster["a"].call("ping", peer="b")
        cluster["b"].call("ping", peer="a")
    cluster["a"].call("ping", peer="c")
    cluster.run(12.0)
    cluster["a"].call("close")
    return [
        node.conversation(f"lossy/{node.address}", configs[str(node.address)]) for node in cluster
    ]


def count_up(config: Any) -> Any:
    """A store that keeps nothing but counts."""
    places = iter(range(1_000_000))
    return lambda effect: next(places)


LINES = MachineSpec(
    machine=MachineType(
        name="lines",
        build=lambda config: Lines(**config),
        keys=keys_of(Lines),
        codec=Codec(encodings=[DECIMAL]),
    ),
    bounds=Bounds(
        retained_max=2048,
        work=Work(base=250, per_byte=100),
        tight={"line_max": 8},
    ),
    usage=Usage(
        scenarios=[
            Scenario(
                name="talk",
                script=[
                    ("left", call("say", text=b"hello")),
                    ("right", call("say", text=b"h" * 40)),
                    ("left", call("say", text=b"")),
                    ("left", call("say", text=b"how are you")),
                    ("right", call("close")),
                ],
            ),
            Scenario(
                name="cut",
                script=[("left", call("say", text=b"I leave")), ("left", Eof())],
                right={},
            ),
        ],
        bad_calls=[call("say", text=b"two\nlines"), call("say", text=b"bye")],
    ),
    attacks=Attacks(
        floods=[Flood(unit=b"x"), Flood(unit=b"\n")],
    ),
)

FRAMES = MachineSpec(
    machine=MachineType(
        name="frames",
        build=lambda config: Frames(**config),
        keys=keys_of(Frames),
        codec=Codec(encodings=BIG_ENDIAN[:1]),
    ),
    bounds=Bounds(
        retained_max=8192,
        work=Work(base=350, per_byte=60),
    ),
    usage=Usage(
        scenarios=[
            Scenario(
                name="greeted",
                left={"greeting": True},
                right={"greeting": True},
                script=[
                    ("left", call("send_data", data=b"x" * 300)),
                    ("right", call("send_data", data=b"y")),
                    ("right", call("close")),
                ],
            )
        ],
    ),
)

KEEPER = MachineSpec(
    machine=MachineType(
        name="keeper",
        build=lambda config: Keeper(**config),
        keys=keys_of(Keeper),
        respond=count_up,
        codec=Codec(messages=lines),
    ),
    bounds=Bounds(
        retained_max=6000,
        work=Work(base=300, per_byte=100),
    ),
    usage=Usage(
        scenarios=[
            Scenario(
                name="kept",
                left={"idle": 10},
                script=[
                    ("left", call("say", text=b"one")),
                    ("right", call("say", text=b"two")),
                    ("left", Advance(5)),
                    ("left", call("say", text=b"three")),
                    ("left", Advance(40)),
                ],
            )
        ],
        bad_calls=[call("say", text=b"\n")],
    ),
    attacks=Attacks(floods=[Flood(unit=b"a\n"), Flood(unit=lambda number: b"%d\n" % number)]),
    comparison=Comparison(kept=lambda each: [each.text] if isinstance(each, Keep) else []),
)

LANES = MachineSpec(
    machine=MachineType(name="lanes", build=lambda config: Lanes()),
    bounds=Bounds(
        retained_max=4096,
        work=Work(base=300, per_byte=60),
    ),
    usage=Usage(
        scenarios=[
            Scenario(
                name="both",
                script=[
                    ("left", call("put", lane=0, data=b"a" * 700)),
                    ("left", call("put", lane=1, data=b"b" * 300)),
                    ("right", call("put", lane=1, data=b"c")),
                    ("right", call("close")),
                ],
            )
        ],
        bad_calls=[call("put", lane=2, data=b"")],
    ),
    comparison=Comparison(
        lazy_output=True,
        normalise=by_lane,
    ),
)

PINGER = MachineSpec(
    machine=MachineType(
        name="pinger",
        build=lambda config: Pinger(**config),
        keys=keys_of(Pinger),
        codec=Codec(encodings=BIG_ENDIAN[:2]),
    ),
    bounds=Bounds(
        retained_max=8192,
        work=Work(base=350, per_byte=10),
    ),
    usage=Usage(
        conversations=ping_conversations,
        bad_calls=[call("ping", peer="nobody")],
    ),
    attacks=Attacks(
        floods=[
            Flood(
                unit=lambda number: b"P" + (number % 65536).to_bytes(2, "big"),
                config={"peers": ["b"]},
                source=lambda number: "b",
            )
        ],
    ),
    comparison=Comparison(kept=lambda each: [each] if isinstance(each, Pinged | Answered) else []),
)

ALL = [LINES, FRAMES, KEEPER, LANES, PINGER]
