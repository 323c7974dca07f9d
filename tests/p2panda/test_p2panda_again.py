"""A session that ended against the will of both is asked for again, on the same connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from p2panda_nodes import OTHER, SCHEMA, Node, replicators
from p2panda_support import decoded
from p2panda_victim import CODEC, Victim
from test_p2panda_late import FORGED

from culm.effects import Answer, Effect
from culm.machine import Closed
from culm.p2panda import (
    ErrorCode,
    Limits,
    Mode,
    ReplicatorLimits,
    RequestedAgain,
    SessionEnded,
    SessionLive,
    Timing,
)
from culm.p2panda.messages import (
    Announce,
    EmptySet,
    Message,
    Reconcile,
    SyncDone,
    SyncRequest,
    Terminal,
)
from culm.p2panda.states import SessionState
from culm.reconcile import SessionLimits


class Line:
    """Two nodes on a line that carries a number of bytes at a time, and may stall."""

    def __init__(
        self, mode: Mode, *, both_ask: bool = False, documents: int = 9, **limits: ReplicatorLimits
    ) -> None:
        """limits: of the asking side (`asker`), or of the other one (`other`)."""
        self.nodes = Node(1), Node(2)
        for node in self.nodes:
            for number in range(documents):
                node.create(n=number)
        asks = (True, both_ask)
        asker, other = (
            replicators(mode=mode, live=True, asks=asks, limits=limits.get(of, ReplicatorLimits()))
            for of in ("asker", "other")
        )
        self.machines = asker[0], other[1]
        self.events: list[list[object]] = [[], []]
        self._pipes = bytearray(), bytearray()  # to each
        self.now = 0.0
        self.wait(0.0)
        for machine in self.machines:
            machine.announce((SCHEMA,), timestamp=1)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for machine in self.machines:
            machine.advance(self.now)

    def turn(self, size: int = 150) -> bool:
        """Carry `size` bytes both ways; whether anything has happened."""
        busy = False
        for side, machine in enumerate(self.machines):
            events = list(iter(machine.next_event, None))
            while (effect := machine.next_effect()) is not None:
                self.serve(side, effect)
                busy = True
            events += iter(machine.next_event, None)
            self.events[side] += events
            self._pipes[1 - side].extend(said := machine.data_to_send())
            heard = self._pipes[side][: min(size, machine.read_size())]
            machine.receive_data(bytes(heard))
            del self._pipes[side][: len(heard)]
            busy |= bool(events or said or heard)
        return busy

    def serve(self, side: int, effect: Effect[Any]) -> None:
        Answer.of(effect, self.nodes[side].store.perform).give(self.machines[side])

    def run(self) -> None:
        while self.turn():
            pass

    @property
    def equal(self) -> bool:
        left, right = (node.documents() for node in self.nodes)
        return left == right

    def told(self, kind: type) -> list[object]:
        return [each for events in self.events for each in events if isinstance(each, kind)]

    def go_on(self) -> None:
        """As often as an abandoned request is repeated."""
        for _ in range(9):
            self.run()
            self.wait(31.0)


@pytest.mark.costly
@pytest.mark.parametrize("both_ask", [False, True])
@pytest.mark.parametrize("seconds", [35.0, 310.0])
@pytest.mark.parametrize("mode", Mode)
def test_a_line_that_stood_still_goes_on(mode: Mode, seconds: float, both_ask: bool):
    for turns in range(40):
        line = Line(mode, both_ask=both_ask)
        for _ in range(turns):
            line.turn()
        line.wait(seconds)
        line.go_on()
        assert line.equal, turns
        assert not line.told(Closed), turns
        for node, machine in zip(line.nodes, line.machines, strict=True):
            node.create(n=99)
            machine.stored()
        line.run()
        assert line.equal, turns


@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize("mode", Mode)
def test_what_arrives_long_after_its_session_is_no_fault(mode: Mode, times: int):
    """The line stalls until a session that has failed is forgotten, and loses nothing."""
    for turns in range(4, 40, 3):
        line = Line(mode, documents=30)
        for _ in range(turns):
            line.turn()
        for _ in range(times):
            line.wait(310.0)
        line.go_on()
        assert not line.told(Closed), turns
        assert line.equal, turns


@pytest.mark.parametrize("seconds", [35.0, 310.0])
@pytest.mark.parametrize("mode", Mode)
def test_requests_that_cross_on_a_line_that_stands_still_are_no_fault(mode: Mode, seconds: float):
    """The answer to an abandoned request is taken for part of another session."""
    late = {ErrorCode.UNANSWERED, ErrorCode.STALLED, ErrorCode.GIVEN_UP}
    for turns in range(8):
        line = Line(mode, both_ask=True, documents=30)
        for _ in range(turns):
            line.turn()
        line.wait(seconds)
        line.go_on()
        assert not line.told(Closed), turns
        assert line.equal, turns
        ended = [each for each in line.told(SessionEnded) if isinstance(each, SessionEnded)]
        assert {each.error.code for each in ended if each.error} <= late, turns


@pytest.mark.parametrize("ranges_max", [1, 8])
@pytest.mark.parametrize("both_ask", [False, True])
@pytest.mark.parametrize("of", ["asker", "other"])
def test_where_ranges_cannot_be_compared_heights_are(of: str, both_ask: bool, ranges_max: int):
    """One side takes fewer ranges than the other one's rounds have."""
    few = ReplicatorLimits(comparison=SessionLimits(ranges_max=ranges_max))
    line = Line(Mode.SET_RECONCILIATION, both_ask=both_ask, documents=40, **{of: few})
    for _ in range(4):
        line.run()
        line.wait(31.0)
    assert line.equal
    assert len(line.told(SessionLive)) == 2
    for node, machine in zip(line.nodes, line.machines, strict=True):
        node.create(n=99)
        machine.stored()
    line.run()
    assert line.equal


@pytest.mark.parametrize("mode", Mode)
def test_after_an_entry_that_spoils_a_live_session_there_is_another_one(mode: Mode):
    """Although the asking side sees no more of it than the end."""
    line = Line(mode)
    line.run()
    line.machines[1].receive_data(CODEC.encode(FORGED))
    line.nodes[0].create(n=99)
    line.machines[0].stored()
    line.run()
    assert not line.equal
    assert line.machines[0].next_deadline() == 1.0
    line.wait(1.0)
    line.run()
    assert line.equal
    assert len(line.told(SessionLive)) == 4


#: Ways in which the peer gives up, or spoils, the session that we have asked for.
SPOILING: list[list[Message]] = [
    [SyncDone(0, False)],
    [Reconcile(0, Terminal())],
    [Reconcile(0, EmptySet(True)), Reconcile(0, Terminal())],
    [Reconcile(0, EmptySet(False)), FORGED, SyncDone(0, False)],
]


def requests(victim: Victim) -> list[tuple[str, ...]]:
    """Its requests since the last look."""
    found = [each.schema_ids for each in victim.said if isinstance(each, SyncRequest)]
    victim.said.clear()
    return found


@pytest.mark.parametrize("announced", [1, 2])
@pytest.mark.parametrize("spoiling", SPOILING)
def test_what_the_peer_has_answered_badly_is_asked_for_again_after_a_pause(
    spoiling: list[Message], announced: int
):
    """However often it has announced the same."""
    victim = Victim(asks=True)
    victim.machine.advance(0.0)
    victim.tell(*(Announce(timestamp, (SCHEMA,)) for timestamp in range(1, announced + 1)))
    assert requests(victim) == [(SCHEMA,)]
    (ended,) = [each for each in victim.tell(*spoiling) if isinstance(each, SessionEnded)]
    assert ended.error is not None
    assert requests(victim) == []
    victim.machine.advance(1.0)
    victim.run()
    assert requests(victim) == [(SCHEMA,)]


@pytest.mark.parametrize("spoiling", SPOILING)
def test_a_live_session_goes_on_until_the_one_that_replaces_it_is_live(spoiling: list[Message]):
    victim = Victim(asks=True)
    victim.machine.advance(0.0)
    victim.machine.announce((SCHEMA, OTHER), timestamp=2)
    victim.tell(Announce(1, (SCHEMA,)))
    victim.tell(Reconcile(0, EmptySet(True)), SyncDone(0, True))
    victim.tell(Announce(2, (SCHEMA, OTHER)))
    assert requests(victim) == [(SCHEMA,), (SCHEMA, OTHER)]
    victim.tell(*(replace(each, session_id=1) for each in spoiling))
    sessions = victim.machine.connection.sessions
    assert (0, SessionState.LIVE) in [(each.session_id, each.state) for each in sessions]
    assert requests(victim) == []
    victim.machine.advance(1.0)
    victim.run()
    assert requests(victim) == [(SCHEMA, OTHER)]


@pytest.mark.parametrize("spoiling", SPOILING)
def test_a_session_about_less_that_gets_live_takes_the_place_of_none(spoiling: list[Message]):
    """The pause after one about everything goes on."""
    victim = Victim(asks=True)
    victim.machine.advance(0.0)
    victim.machine.announce((SCHEMA, OTHER), timestamp=2)
    victim.tell(Announce(1, (SCHEMA, OTHER)))
    victim.tell(SyncRequest(9, 1, (SCHEMA,)), *spoiling)
    victim.tell(Reconcile(9, EmptySet(False)), SyncDone(9, True))
    sessions = victim.machine.connection.sessions
    assert (9, SessionState.LIVE) in [(each.session_id, each.state) for each in sessions]
    assert requests(victim) == [(SCHEMA, OTHER)]
    victim.machine.advance(1.0)
    victim.run()
    assert requests(victim) == [(SCHEMA, OTHER)]


@pytest.mark.parametrize("both_ask", [False, True])
def test_where_our_have_would_be_too_long_ranges_are_compared(both_ask: bool):
    """A line that stood still has made the asking side ask for heights."""
    few = ReplicatorLimits(connection=Limits(logs_max=12))
    again = 0
    for turns in range(6):
        line = Line(Mode.SET_RECONCILIATION, both_ask=both_ask, asker=few)
        for number in range(9):
            line.nodes[0].create(m=number)
        for _ in range(turns):
            line.turn()
        line.wait(31.0)
        line.go_on()
        assert line.equal, turns
        assert len(line.told(SessionLive)) == 2, turns
        again += len(line.told(RequestedAgain))
    assert again


def test_each_wait_and_each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest():
    timing = Timing(pause_min_s=2.0, pause_max_s=7.0)
    asker, _ = replicators(mode=Mode.LOG_HEIGHT, timing=timing)
    asker.advance(0.0)
    asker.announce((SCHEMA,), timestamp=1)
    asker.learn((SCHEMA,), timestamp=1)
    now, pauses = 0.0, list[float]()
    for wait in (30.0, 60.0, 120.0, 240.0, 300.0, 300.0):
        asker.advance(now + wait - 0.5)
        assert list(iter(asker.next_event, None)) == []
        asker.advance(now := now + wait)
        (ended,) = iter(asker.next_event, None)
        assert isinstance(ended, SessionEnded)
        assert ended.error is not None
        assert ended.error.code is ErrorCode.UNANSWERED
        due = asker.next_deadline()
        assert due is not None
        pauses.append(due - now)
        asker.advance(now := due)
    assert pauses == [2.0, 4.0, 7.0, 7.0, 7.0, 7.0]
    said = [each for each in decoded(asker.data_to_send(), CODEC) if isinstance(each, SyncRequest)]
    assert [each.session_id for each in said] == [0, 1, 2, 3, 4, 5, 6]


def test_a_session_that_the_user_leaves_is_not_asked_for_again():
    line = Line(Mode.SET_RECONCILIATION)
    line.run()
    line.machines[0].leave(0)
    line.run()
    assert line.told(SessionEnded)
    assert line.machines[0].next_deadline() is None


@pytest.mark.parametrize("times", [{"pause_min_s": 0.0}, {"pause_min_s": 2.0, "pause_max_s": 1.0}])
def test_a_pause_takes_time(times: dict[str, float]):
    with pytest.raises(ValueError, match="pause_min_s"):
        Timing(**times)
