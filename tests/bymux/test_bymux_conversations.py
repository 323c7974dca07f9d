"""Two machines, random users, random delivery, and a referee beside each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from bymux_referee import Referee
from hypothesis import given
from hypothesis import strategies as st

from culm.bymux import (
    INFINITE,
    Closed,
    Connection,
    InitialState,
    InitialStream,
    Limits,
    Role,
    State,
    StopReadReceived,
    Stream,
    StreamCreated,
    StreamData,
    StreamEnded,
)
from culm.machine import Event, LocalProtocolError

Life = tuple[int, int]  # stream id, number of earlier streams with that id


class Side:
    """One endpoint: its machine and referee, and the data that its user has written and read."""

    def __init__(self, role: Role, initial: InitialState, limits: Limits) -> None:
        self.machine = Connection(role=role, initial=initial, limits=limits)
        self.referee = Referee(
            parity=role.value,
            streams={i: (s.send_credit, s.receive_credit) for i, s in initial.streams.items()},
            global_credit=initial.local_creation_credit,
            peer_global_credit=initial.remote_creation_credit,
            creator_credit=initial.local_creator_credit,
            peer_creator_credit=initial.remote_creator_credit,
            write_size_max=limits.write_size_max,
        )
        self.limits = limits
        self.on_their_way = b""  # bytes taken and not delivered to the peer
        self.events: list[Event] = []
        self.lives: dict[int, int] = defaultdict(int)
        self.written: dict[Life, bytes] = defaultdict(bytes)
        self.read: dict[Life, bytes] = defaultdict(bytes)
        self.dropped: dict[Life, int] = {}
        self.counter = 0

    def life(self, stream_id: int) -> Life:
        return stream_id, self.lives[stream_id]

    def take(self, size_max: int | None) -> int:
        data = self.machine.data_to_send(size_max)
        assert size_max is None or len(data) <= size_max
        self.referee.sends(data)
        self.on_their_way += data
        return len(data)

    def receive(self, data: bytes) -> None:
        self.referee.is_sent(data)
        self.machine.receive_data(data)
        while (event := self.machine.next_event()) is not None:
            self.note(event)

    def note(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, StreamData):
            assert 0 < len(event.data) <= self.limits.piece_size_max
            self.read[self.life(event.stream_id)] += event.data
        elif isinstance(event, StopReadReceived) and event.stream_id is not None:
            self.dropped[self.life(event.stream_id)] = event.unsent_size
        elif isinstance(event, StreamCreated):
            assert event.stream_id in self.machine.streams
        elif isinstance(event, StreamEnded):
            assert event.stream_id not in self.machine.streams
            self.lives[event.stream_id] += 1
        elif isinstance(event, Closed):
            assert event.error is None, event

    def pick(self, choice: int) -> Stream | None:
        streams = list(self.machine.streams.values())
        return streams[choice % len(streams)] if streams else None

    def write(self, stream: Stream, size: int) -> None:
        self.counter += 1
        data = bytes((self.counter + i) % 251 for i in range(size))
        stream.send_data(data)
        self.written[self.life(stream.stream_id)] += data


Verb = Callable[[Side, Stream, int], object]
STREAM_VERBS: dict[str, Verb] = {
    "write": lambda side, stream, n: side.write(stream, n),
    "grant": lambda side, stream, n: stream.grant(n + 1),
    "grant much": lambda side, stream, n: stream.grant(2**64 - 1 - n),
    "grant infinite": lambda side, stream, n: stream.grant_infinite(),
    "window": lambda side, stream, n: stream.set_window(n),
    "consume": lambda side, stream, n: stream.consumed(n // 4),
    "ping": lambda side, stream, n: stream.ping(),
    "close": lambda side, stream, n: stream.close(),
    "stop read": lambda side, stream, n: stream.stop_read(),
}
GLOBAL_VERBS: dict[str, Callable[[Side, int], object]] = {
    "create": lambda side, n: side.machine.create_stream(),
    "create that": lambda side, n: side.machine.create_stream(n),
    "grant streams": lambda side, n: side.machine.grant_streams(n + 1),
    "global ping": lambda side, n: side.machine.ping(),
    "stop creating": lambda side, n: side.machine.stop_creating(),
    "stop accepting": lambda side, n: side.machine.stop_accepting(),
}
MOVES = ("take", "take", "take all", "deliver", "deliver", "deliver")
# Ending things is rarer, so that conversations grow long.
ACTIONS = [*STREAM_VERBS, *GLOBAL_VERBS, "write", "write", *MOVES, *MOVES]

steps = st.tuples(
    st.integers(0, 1), st.sampled_from(ACTIONS), st.integers(0, 7), st.integers(0, 40)
)
Step = tuple[int, str, int, int]
scripts = st.lists(steps, min_size=20, max_size=120)
sizes = st.integers(1, 30)
credits_ = st.sampled_from([0, 1, 10, 200, INFINITE])
initial_states = st.builds(
    InitialState,
    streams=st.dictionaries(
        st.sampled_from([0, 1, 2, 3, 300]),
        st.builds(InitialStream, send_credit=credits_, receive_credit=credits_),
        max_size=3,
    ),
    local_creation_credit=st.integers(0, 3),
    remote_creation_credit=st.integers(0, 3),
    local_creator_credit=credits_,
    remote_creator_credit=credits_,
    creation_closed=st.booleans(),
)


class Table:
    """Two sides and the bytes between them."""

    def __init__(self, initial: InitialState, limits: Limits) -> None:
        self.sides = (
            Side(Role.PROACTIVE, initial, limits),
            Side(Role.REACTIVE, initial.mirrored(), limits),
        )

    def do(self, which: int, action: str, choice: int, number: int) -> None:
        side, other = self.sides[which], self.sides[1 - which]
        try:
            if action == "take":
                side.take(number)
            elif action == "take all":
                side.take(None)
            elif action == "deliver":
                data, side.on_their_way = side.on_their_way[:number], side.on_their_way[number:]
                other.receive(data)
            elif action in GLOBAL_VERBS:
                GLOBAL_VERBS[action](side, number)
            elif (stream := side.pick(choice)) is not None:
                STREAM_VERBS[action](side, stream, number)
        except LocalProtocolError:
            pass  # the user asked for something forbidden

    def settle(self) -> None:
        """Deliver everything until nothing moves."""
        moved = True
        while moved:
            moved = False
            for side, other in (self.sides, self.sides[::-1]):
                moved |= bool(side.take(None) or side.on_their_way)
                data, side.on_their_way = side.on_their_way, b""
                other.receive(data)
        for side in self.sides:
            side.referee.at_rest()

    def check_data(self, *, complete: bool) -> None:
        for writer, reader in (self.sides, self.sides[::-1]):
            assert set(reader.read) <= set(writer.written)
            for life, written in writer.written.items():
                read = reader.read.get(life, b"")
                if complete:
                    assert read == written[: len(written) - writer.dropped.get(life, 0)]
                else:
                    assert written.startswith(read)


@given(initial_states, sizes, sizes, scripts)
def test_two_machines_understand_each_other(
    initial: InitialState, write_size_max: int, piece_size_max: int, script: list[Step]
) -> None:
    table = Table(initial, Limits(write_size_max=write_size_max, piece_size_max=piece_size_max))
    for step in script:
        table.do(*step)
    table.check_data(complete=False)
    table.settle()
    table.check_data(complete=False)
    left, right = (side.machine for side in table.sides)
    assert set(left.streams) == set(right.streams)
    for stream_id, stream in left.streams.items():
        mirror = right.stream(stream_id)
        assert stream.state == (mirror.state.remote, mirror.state.local)
        # An infinite sum may look finite to the receiver, if data was under way.
        assert stream.send_credit <= mirror.receive_credit
        assert mirror.send_credit <= stream.receive_credit
        assert stream.unsent_size == 0 or stream.send_credit == 0
    assert left.creation_credit == right.remote_creation_credit
    assert right.creation_credit == left.remote_creation_credit

    for side in table.sides:
        side.machine.close()
    table.settle()
    for side in table.sides:
        assert side.machine.state is State.CLOSED
        assert side.events[-1] == Closed(error=None)
        assert side.events.count(Closed(error=None)) == 1
        assert not side.referee.streams
    table.check_data(complete=True)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500)), max_size=30), st.integers(1, 64))
def test_one_sided_goodbye_delivers_everything_that_was_queued(
    writes: list[tuple[int, int]], window: int
) -> None:
    """With receivers that consume, `close` loses nothing, and the peer need not call it."""
    initial = InitialState(streams={i: InitialStream() for i in range(4)})
    table = Table(initial, Limits(write_size_max=50, piece_size_max=20))
    left, right = table.sides
    for stream in right.machine.streams.values():
        stream.set_window(window)
    for stream_id, size in writes:
        left.write(left.machine.stream(stream_id), size)
    left.machine.close()
    consumed: dict[int, int] = defaultdict(int)
    while left.machine.state is not State.CLOSED:
        events_before = len(left.events) + len(right.events)
        table.settle()
        for stream_id, stream in right.machine.streams.items():
            size = len(right.read[stream_id, 0]) - consumed[stream_id]
            consumed[stream_id] += size
            stream.consumed(size)
        assert len(left.events) + len(right.events) > events_before, "stuck"
    table.check_data(complete=True)
    assert left.machine.state is right.machine.state is State.CLOSED
    assert all(size == 0 for size in left.dropped.values())
