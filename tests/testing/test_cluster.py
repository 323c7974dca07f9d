"""Clusters: machines on a faulty network, their clocks, stores, crashes and restarts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.machine import Closed, Effect, Event, LocalProtocolError
from culm.machines.driver import EndlessError
from culm.machines.operations import Advance, Call, ReceiveDatagram
from culm.testing.clock import SkewedClock
from culm.testing.cluster import Cluster, Host
from culm.testing.disk import Disk
from culm.testing.network import Conditions, Network
from culm.testing.record import replay
from toy_machines import PINGER, Answered, Pinged, Pinger, ToyErrorCode, Unanswered


def pingers(
    seed: int = 0, nodes: str = "ab", conditions: Conditions | None = None, **options: Any
) -> Cluster:
    cluster = Cluster(Network(seed=seed, conditions=conditions), **options)
    for node in nodes:
        cluster.add(node, lambda node: Pinger(peers=[*nodes]))
    return cluster


def seen(node: Host) -> list[Event]:
    return [event for _, event in node.events]


def test_datagrams_travel_and_events_are_kept_with_their_time() -> None:
    cluster = pingers(conditions=Conditions(delay_min=0.25, delay_max=0.25))
    assert cluster["a"].call("ping", peer="b") == 1
    assert cluster.run(5.0)
    assert cluster["b"].events == [(0.25, Pinged(peer="a", number=1))]
    assert cluster["a"].events == [(0.5, Answered(peer="b", number=1))]


def test_deadlines_wake_the_machine() -> None:
    cluster = pingers()
    cluster.network.cut("a", "b", one_way=True)
    cluster["a"].call("ping", peer="b")
    cluster.run(20.0)
    assert cluster["a"].events == [(5.0, Unanswered(peer="b", number=1))]
    assert cluster.network.statistics(source="a").cut == Pinger.TRIES_MAX


@given(st.integers(0, 10_000))
def test_retransmission_gets_through(seed: int) -> None:
    """Half of all datagrams are lost; an answer is missing only if all attempts were lost."""
    bad = Conditions(loss=0.5, duplication=0.2, delay_max=0.3)
    with pingers(seed, "abc", bad) as cluster:
        for node in cluster:
            for peer in "abc":
                node.call("ping", peer=peer)
        cluster.run(30.0)
        for node in cluster:
            ends = [event for event in seen(node) if isinstance(event, (Answered, Unanswered))]
            assert sorted(event.number for event in ends) == [1, 2, 3]


@given(st.integers(0, 10_000))
def test_a_seed_fixes_everything(seed: int) -> None:
    runs = []
    for _ in range(2):
        cluster = pingers(seed, "abc", Conditions(loss=0.3, duplication=0.3, delay_max=2.0))
        for node in cluster:
            node.call("ping", peer="b")
        cluster.run(20.0)
        runs.append([node.events for node in cluster])
    assert runs[0] == runs[1]


def test_refusals_are_raised_and_verbs_are_found() -> None:
    cluster = pingers()
    with pytest.raises(LocalProtocolError) as caught:
        cluster["a"].call("ping", peer="nobody")
    assert caught.value.code is ToyErrorCode.NO_SUCH_PEER
    node = cluster.add("c", lambda node: Pinger(), verbs={"peers": lambda machine: machine.peers})
    assert node.call("peers") == []
    with pytest.raises(ValueError, match="already"):
        cluster.add("c", lambda node: Pinger())


def test_events_and_steps_can_be_watched() -> None:
    watched: list[tuple[Hashable, Event]] = []
    steps: list[float] = []
    cluster = pingers(
        on_event=lambda node, event: watched.append((node.address, event)),
        after_step=lambda: steps.append(cluster.network.clock.now),
    )
    cluster["a"].call("ping", peer="b")
    cluster.run(5.0)
    assert watched == [
        ("b", Pinged(peer="a", number=1)),
        ("a", Answered(peer="b", number=1)),
    ]
    assert steps[0] == 0.0
    assert len(steps) >= 3


def test_a_run_can_end_early() -> None:
    cluster = pingers(conditions=Conditions(delay_min=1, delay_max=1))
    cluster["a"].call("ping", peer="b")
    assert cluster.run(50.0, done=lambda: bool(cluster["b"].events))
    assert cluster.network.clock.now == 1.0
    assert not cluster.run(1.5, done=lambda: bool(cluster["a"].events))


# Crashes


def test_a_crashed_node_hears_nothing_and_rings_no_more() -> None:
    cluster = pingers(conditions=Conditions(delay_min=0.5, delay_max=0.5))
    cluster["a"].call("ping", peer="b")
    cluster["b"].call("ping", peer="a")
    cluster["b"].crash()
    cluster.run(20.0)
    assert not cluster["b"].running
    assert cluster["b"].events == []
    assert Unanswered(peer="b", number=1) in seen(cluster["a"])
    assert cluster.network.statistics(source="b", destination="a").sent == 1
    with pytest.raises(LookupError, match="down"):
        cluster["b"].call("ping", peer="a")
    with pytest.raises(LookupError, match="down"):
        _ = cluster["b"].machine
    cluster["b"].crash()


def test_a_restarted_node_has_a_new_machine() -> None:
    cluster = pingers()
    first = cluster["b"].machine
    cluster.network.timetable.at(0.5, cluster["b"].crash)
    cluster.network.timetable.at(2.5, cluster["b"].start)
    cluster.run(1.0)
    cluster["a"].call("ping", peer="b")
    cluster.run(20.0)
    assert cluster["b"].machine is not first
    assert cluster["b"].incarnation == 2
    assert cluster["a"].events == [(3.0, Answered(peer="b", number=1))]
    cluster["b"].start()
    assert cluster["b"].incarnation == 2


def test_what_was_meant_for_an_earlier_life_does_not_happen() -> None:
    cluster = pingers()
    happened: list[str] = []
    cluster["a"].after(1.0, lambda: happened.append("too late"))
    cluster["b"].after(1.0, lambda: happened.append("in time"))
    cluster["a"].crash()
    cluster["a"].start()
    cluster.run(2.0)
    assert happened == ["in time"]


def test_a_node_may_crash_and_come_back_in_the_middle_of_a_turn() -> None:
    def on_event(node: Host, event: Event) -> None:
        if node.address == "b" and node.incarnation < 3:
            node.crash()
            node.start()

    cluster = pingers(on_event=on_event)
    for _ in range(3):
        cluster["a"].call("ping", peer="b")
    cluster.run(20.0)
    assert cluster["b"].incarnation == 3
    assert len([event for event in seen(cluster["a"]) if isinstance(event, Answered)]) == 3


def test_a_restarted_machine_is_told_the_time() -> None:
    cluster = pingers(records=True)
    cluster.run(5.0)
    cluster["a"].crash()
    cluster["a"].start()
    assert [turn.operation for turn in cluster["a"].turns] == [None, Advance(5.0)]


# Clocks


def test_a_deadline_that_moves_on_is_kept() -> None:
    """The wake-up for the first ping is too early for the second one's deadline."""
    cluster = pingers()
    cluster["a"].call("ping", peer="b")
    cluster.run(0.6)
    cluster.network.cut("a", "b")
    cluster["a"].call("ping", peer="b")
    cluster.run(20.0)
    assert cluster["a"].events[-1] == (5.6, Unanswered(peer="b", number=2))


def test_many_deadlines_are_one_wake_up() -> None:
    cluster = pingers()
    cluster.network.cut("a", "b")
    for _ in range(50):
        cluster["a"].call("ping", peer="b")
    assert len(cluster.network.timetable) == 1


@given(st.floats(0.25, 4.0), st.floats(0, 1e3), st.floats(0, 10))
def test_rounding_never_turns_a_clock_back(rate: float, offset: float, start: float) -> None:
    """An event at the time of a deadline happens after it, however it was rounded."""

    def on_event(node: Host, event: Event) -> None:
        if isinstance(event, Unanswered) and len(node.events) < 5:
            node.call("ping", peer="b")

    cluster = Cluster(Network(seed=0), on_event=on_event, records=True)
    node = cluster.add(
        "a", lambda node: Pinger(peers=["b"]), clock=SkewedClock(offset, rate), start=False
    )
    cluster.run(start)
    node.start()
    node.call("ping", peer="b")
    cluster.run(start + 120)
    assert len(node.events) == 5
    assert [turn.error for turn in node.turns if turn.error is not None] == []


@given(st.floats(0.25, 4.0), st.floats(-1e3, 1e3))
def test_a_node_lives_by_its_own_clock(rate: float, offset: float) -> None:
    cluster = Cluster(Network(seed=0))
    clock = SkewedClock(max(0.0, offset), rate)
    node = cluster.add("a", lambda node: Pinger(peers=["b"]), clock=clock)
    cluster.run(3.0)
    assert node.now == pytest.approx(clock.local(3.0))
    node.call("ping", peer="b")
    cluster.run(3.0 + 20 / rate)
    (time, event) = node.events[0]
    assert event == Unanswered(peer="b", number=1)
    assert time == pytest.approx(3.0 + Pinger.TRIES_MAX / rate)


class Stubborn(Pinger):
    def advance(self, now: float) -> None:
        self._now = now


def test_a_deadline_that_stays_is_found() -> None:
    cluster = Cluster(Network(seed=12))
    node = cluster.add("a", lambda node: Stubborn(peers=["b"]))
    node.call("ping", peer="b")
    with pytest.raises(EndlessError, match="still waits for") as caught:
        cluster.run(5.0)
    assert caught.value.__notes__ == ["network seed: 12"]


# Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Effect):
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Event):
    size: int


class Logger(Pinger):
    """Writes down every ping before anything else happens to it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._writes: list[Write] = []
        self._open: dict[int, bytes] = {}

    def write(self, data: bytes) -> None:
        ticket = len(self._writes) + len(self._open) + 1
        self._writes.append(Write(ticket=ticket, data=data))
        self._open[ticket] = data

    def next_effect(self) -> Effect | None:
        return self._writes.pop(0) if self._writes else None

    def complete(self, ticket: int, result: object = None) -> None:
        assert isinstance(result, int)
        if self._open.pop(ticket) == b"twice":
            self.write(b"once more")
        self._events.append(Written(size=result))


def to_disk(delay: float | None) -> Any:
    def effects(node: Host, effect: Effect) -> None:
        assert isinstance(effect, Write)
        assert node.disk is not None
        node.disk.append("log", effect.data)

        def done() -> None:
            assert node.disk is not None
            node.disk.sync("log")
            node.complete(effect.ticket, node.disk.size("log"))

        if delay is None:
            done()
        else:
            node.after(delay, done)

    return effects


@pytest.mark.parametrize("delay", [None, 0.0, 0.5])
def test_effects_are_answered_at_once_or_later(delay: float | None) -> None:
    cluster = Cluster(Network(seed=0))
    node = cluster.add("a", lambda node: Logger(), effects=to_disk(delay), disk=Disk(Random(0)))
    node.call("write", data=b"twice")
    cluster.run(5.0)
    late = delay or 0.0
    assert node.events == [(late, Written(size=5)), (2 * late, Written(size=14))]
    assert node.disk is not None
    assert node.disk.read("log") == b"twiceonce more"


def test_what_was_not_synced_may_be_lost_in_a_crash() -> None:
    cluster = Cluster(Network(seed=0))
    disk = Disk(Random(0), loss=1.0)
    node = cluster.add("a", lambda node: Logger(), effects=to_disk(1.0), disk=disk)
    node.call("write", data=b"kept")
    cluster.run(1.0)
    node.call("write", data=b"lost")
    cluster.run(1.5)
    node.crash()
    node.start()
    cluster.run(5.0)
    assert disk.read("log") == b"kept"
    assert seen(node) == [Written(size=4)]


def test_a_crash_in_the_middle_of_a_turn_ends_it() -> None:
    """Nothing more is asked of the store, and pending results do not reach the next life."""
    asked: list[Effect] = []

    def effects(node: Host, effect: Effect) -> None:
        asked.append(effect)
        node.complete(effect.ticket, 1)
        node.crash()
        node.start()

    cluster = Cluster(Network(seed=0), records=True)
    node = cluster.add(
        "a",
        lambda node: Logger(),
        effects=effects,
        verbs={"write_two": lambda machine: [machine.write(b"1"), machine.write(b"2")]},
    )
    node.call("write_two")
    assert [effect.ticket for effect in asked] == [1]
    assert [type(turn.operation) for turn in node.turns] == [type(None), Advance]


def test_a_long_chain_of_effects_is_no_deep_one() -> None:
    class Chain(Logger):
        def complete(self, ticket: int, result: object = None) -> None:
            super().complete(ticket, result)
            if len(self.done) < 3000:
                self.done.append(ticket)
                self.write(b"next")

        done: list[int] = []  # noqa: RUF012

    cluster = Cluster(Network(seed=0))
    node = cluster.add(
        "a", lambda node: Chain(), effects=lambda node, effect: node.complete(effect.ticket, 1)
    )
    node.call("write", data=b"first")
    assert len(node.events) == 3001


def test_effects_without_a_store_are_found() -> None:
    cluster = Cluster(Network(seed=5))
    node = cluster.add("a", lambda node: Logger())
    with pytest.raises(LookupError, match="no store"):
        node.call("write", data=b"x")


def test_nodes_may_be_added_down() -> None:
    cluster = Cluster(Network(seed=0))
    node = cluster.add("a", lambda node: Pinger(), start=False)
    assert not node.running
    node.start()
    assert node.running


# Conversations


def test_a_life_can_be_replayed() -> None:
    config = {"peers": ["a", "b"]}
    cluster = pingers(records=True, conditions=Conditions(loss=0.4, delay_max=0.3))
    cluster["a"].call("ping", peer="b")
    cluster["b"].call("ping", peer="a")
    cluster.run(9.0)
    cluster["a"].call("close")
    told = cluster["a"].conversation("pings", config)
    kinds = {type(operation) for operation in told.operations}
    assert kinds == {Advance, Call, ReceiveDatagram}
    again = [event for turn in replay(PINGER.machine, told) for event in turn.events]
    assert again == seen(cluster["a"])
    assert again[-1] == Closed()
