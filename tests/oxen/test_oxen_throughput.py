"""The speed of messages under loss, and the rest of the bandwidth for others."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from oxen_throughput import Bottleneck, Pair, Reno, rate

from culm.oxen.flight import Flight
from culm.oxen.limits import Timing
from culm.oxen.roundtrip import RoundTrip
from culm.oxen.stream import Item, Stream
from culm.oxen.window import WINDOW_FIRST, Window
from culm.testing.network import Conditions

USUAL = 6000  # messages a second without loss, with delays of 10 to 20 ms


@pytest.mark.parametrize(("loss", "share"), [(0.01, 0.6), (0.05, 0.35)])
def test_a_few_lost_datagrams_cost_a_part_of_the_speed(loss: float, share: float) -> None:
    for seed in range(3):
        assert rate(loss, 1000, seed=seed) > share * rate(0.0, 1000, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_one_loss_in_a_hundred_leaves_two_thirds_of_the_speed(seed: int) -> None:
    usual = rate(0.0, 5000, seed=seed)
    assert usual > 0.9 * USUAL
    assert rate(0.01, 5000, seed=seed) > 0.65 * usual
    assert rate(0.05, 5000, seed=seed) > 0.45 * usual
    assert rate(0.2, 1000, seed=seed) > 0.01 * usual


@pytest.mark.parametrize(("per_s", "room"), [(3, 30), (4, 300), (10, 1000)])
def test_a_slow_line_is_used_and_not_given_up(per_s: int, room: int) -> None:
    """Its queue has room for many seconds, in which no sign of life would come through."""
    conditions = Conditions(delay_min=0.01, delay_max=0.012)
    network = Bottleneck(seed=1, conditions=conditions, rate=per_s, room=room)
    pair = Pair(network, [b"A", b"B"])
    network.shared = {b"A"}
    assert pair.seconds_for(40 * per_s) < 200.0


@pytest.mark.slow
@pytest.mark.parametrize(("per_s", "room"), [(1000, 30), (1000, 100), (500, 50)])
def test_two_pairs_share_a_bottleneck(per_s: int, room: int) -> None:
    conditions = Conditions(delay_min=0.01, delay_max=0.012)
    network = Bottleneck(seed=1, conditions=conditions, rate=per_s, room=room)
    one, other = Pair(network, [b"A", b"B"]), Pair(network, [b"C", b"D"])
    network.shared = {b"A", b"C"}
    one.start(100_000)
    network.run(network.clock.now + 2.0)
    other.start(100_000)  # later, when the first one has all of it
    network.run(network.clock.now + 3.0)
    before = one.arrived, other.arrived
    network.run(network.clock.now + 10.0)
    got = [one.arrived - before[0], other.arrived - before[1]]
    assert sum(got) > 0.9 * 10 * per_s
    assert min(got) > 0.7 * max(got)
    refused = sum(network.refused.values())
    assert refused < 0.05 * sum(network.passed.values())


@pytest.mark.slow
@pytest.mark.parametrize(("per_s", "room"), [(1000, 30), (1000, 100), (500, 50)])
def test_a_tcp_has_its_share(per_s: int, room: int) -> None:
    conditions = Conditions(delay_min=0.01, delay_max=0.012)
    network = Bottleneck(seed=1, conditions=conditions, rate=per_s, room=room)
    pair, tcp = Pair(network, [b"A", b"B"]), Reno(network, "tcp")
    network.shared = {b"A", tcp.ends[0]}
    tcp.start()
    network.run(network.clock.now + 2.0)
    pair.start(100_000)
    network.run(network.clock.now + 3.0)
    before = pair.arrived, tcp.arrived
    network.run(network.clock.now + 10.0)
    ours, theirs = pair.arrived - before[0], tcp.arrived - before[1]
    assert ours + theirs > 0.9 * 10 * per_s
    assert theirs > 0.6 * ours
    assert ours > 0.6 * theirs


# -- the parts -----------------------------------------------------------------------------------


def flight(*, round_trip: float | None = 0.1) -> Flight:
    """A flight, after many equal round trips: it expects nothing else."""
    found = Flight(timing=Timing(), rng=Random(1))
    if round_trip is not None:
        for index in range(60):
            found.acknowledge(send(found, -100.0 + index).id, -100.0 + index + round_trip)
    return found


def send(flight: Flight, now: float) -> Item:
    item = Item(1, b"")
    flight.dispatch(item, now)
    return item


def test_the_timeout_is_that_of_rfc_6298() -> None:
    trip = RoundTrip(Timing())
    assert trip.timeout == 0.8
    trip.sample(0.1, 1.0)
    assert trip.smoothed == 0.1
    assert trip.timeout == pytest.approx(0.1 + 4 * 0.05)
    trip.sample(0.2, 2.0)
    variation = 0.75 * 0.05 + 0.25 * 0.1
    assert trip.smoothed == pytest.approx(0.1 * 7 / 8 + 0.2 / 8)
    assert trip.timeout == pytest.approx(trip.smoothed + 4 * variation)
    for _ in range(50):
        trip.sample(0.001, 3.0)
    assert trip.timeout == 0.2  # the shortest
    for _ in range(50):
        trip.sample(60.0, 4.0)
    assert trip.timeout == 5.0  # the longest


def test_the_shortest_round_trip_is_one_of_late() -> None:
    trip = RoundTrip(Timing())
    for now, seconds in ((0.0, 0.01), (5.0, 0.02), (11.0, 0.03), (12.0, 0.05)):
        trip.sample(seconds, now)
        assert trip.least == 0.01
    trip.sample(0.04, 22.0)
    assert trip.least == 0.03


def test_an_acknowledgement_ends_the_doubling_of_timeouts() -> None:
    """RFC 6298, section 5: but for one of them, until the next round trip that can be measured."""
    way = flight(round_trip=None)
    item = send(way, 0.0)
    now, waits = 0.0, []
    for _ in range(4):
        deadline = way.next_deadline()
        assert deadline is not None
        waits.append(deadline - now)
        now = deadline
        way.look(now)
        assert way.take_lost(now) == [item]
        assert way.is_stuck == (len(waits) >= 3)
    assert waits[0] == pytest.approx(0.8)
    assert all(1.2 < after / before < 2.5 for before, after in pairwise(waits[:3]))
    way.acknowledge(item.id, now + 0.1)
    assert not way.is_stuck
    item = send(way, now + 0.2)
    deadline = way.next_deadline()
    assert deadline is not None
    assert deadline - (now + 0.2) == pytest.approx(1.6)
    way.acknowledge(item.id, now + 0.3)
    send(way, now + 0.4)
    deadline = way.next_deadline()
    assert deadline is not None
    assert deadline - (now + 0.4) < 1.0


def test_times_are_doubled_while_messages_are_sent_again_unless_that_is_in_vain() -> None:
    """A peer with a smaller window refuses first transmissions: its times cannot be measured."""
    trip = RoundTrip(Timing())
    trip.sample(0.01, 1.0)
    probe = trip.probe
    for now in range(2, 9):  # the seventh changes nothing
        trip.hesitate(float(now))
    assert (trip.probe, trip.timeout) == pytest.approx((64 * probe, 5.0))
    trip.answer(6.0, 8.5)  # perhaps to a transmission before
    assert trip.probe == pytest.approx(64 * probe)
    trip.answer(8.0, 8.01)
    assert trip.probe <= probe
    for now in range(9, 73):
        trip.hesitate(float(now))
    assert trip.probe <= probe
    trip.hesitate(73.0)
    assert trip.probe > probe


def test_a_path_that_has_become_faster_is_measured_although_nothing_passes_at_once() -> None:
    """The shortest round trip is that of the former path, so each answer seems to come too soon."""
    way, waits = flight(), []
    item, now = send(way, 0.0), 0.0
    for _ in range(8):
        deadline = way.next_deadline()
        assert deadline is not None
        waits.append(deadline - now)
        now = deadline
        assert way.look(now) == [item]
        another = send(way, now)
        now += 0.01
        way.acknowledge(item.id, now)
        item = another
    assert waits[5] > 4.0
    assert waits[6:] == pytest.approx([0.02, 0.02])


def test_three_later_acknowledgements_mean_that_it_is_lost() -> None:
    way = flight()
    items = [send(way, index / 1000) for index in range(5)]
    for item in items[1:3]:
        way.acknowledge(item.id, 0.1025)
    assert way.take_lost(0.1025) == []
    way.acknowledge(items[3].id, 0.1035)
    assert way.take_lost(0.1035) == [items[0]]
    assert items[0].order > items[4].order
    assert way.take_lost(0.2) == []
    # Once more: those sent after it the second time count, the last one does not.
    later = [send(way, 0.11) for _ in range(3)]
    way.acknowledge(items[4].id, 0.11)
    for item in later:
        assert way.take_lost(0.21) == []
        way.acknowledge(item.id, 0.21)
    way.look(0.23)
    assert way.take_lost(0.23) == [items[0]]


def test_what_is_not_late_is_not_lost_although_others_have_overtaken_it() -> None:
    way = flight()
    first, *later = [send(way, 0.0) for _ in range(6)]
    for item in later:
        way.acknowledge(item.id, 0.05)
    assert way.take_lost(0.05) == []
    deadline = way.next_deadline()
    assert deadline is not None
    assert 0.1 < deadline < 0.2
    assert way.look(deadline) == []
    assert way.take_lost(deadline) == [first]


def test_a_probe_goes_before_the_timeout_and_both_before_everything_is_lost() -> None:
    way = flight()
    items = [send(way, 0.0) for _ in range(4)]
    assert way.next_deadline() == pytest.approx(0.2)
    assert way.look(0.2) == [items[0]]
    assert way.next_deadline() == pytest.approx(0.4)
    assert way.look(0.4) == []
    assert way.take_lost(0.4) == items[:2]  # the window is small now; oldest first
    deadline = way.next_deadline()
    assert deadline == pytest.approx(0.4 + 0.4, rel=0.2)
    assert [item.way for item in items] == [1, 1, 0, 0]


def test_without_a_measured_round_trip_there_is_no_probe() -> None:
    way = flight(round_trip=None)
    send(way, 0.0)
    assert way.next_deadline() == 0.8
    assert way.look(0.8) == []
    assert len(way.take_lost(0.8)) == 1


def test_a_round_ends_with_the_first_answer_to_what_left_after_it_had_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[float] = []
    monkeypatch.setattr(Window, "end_round", lambda self, unhurried: ended.append(unhurried))
    way = flight(round_trip=None)
    now = 0.0
    for count in (1, 2, 2, 3, 1):
        items = [send(way, now) for _ in range(count)]
        for before, item in enumerate(items):
            rounds = len(ended)
            way.acknowledge(item.id, now + 0.1)
            assert len(ended) - rounds == (before == 0), (count, before)
        now += 1.0


def test_the_first_answer_ends_the_first_round_although_it_comes_late() -> None:
    """Nothing was under way when that round began."""
    way = flight(round_trip=None)
    items = [send(way, 0.0) for _ in range(WINDOW_FIRST)]
    way.look(0.8)
    assert len(way.take_lost(0.8)) == 2
    way.limit()
    way.acknowledge(items[-1].id, 0.9)
    grown = WINDOW_FIRST + 1  # by the arrived ones
    assert way.room == grown - (WINDOW_FIRST - 1)  # the others are on their way as well


def test_an_answer_that_comes_too_soon_is_to_what_was_sent_before() -> None:
    """So nothing was lost, and the window stays the same."""
    way = flight()
    items = [send(way, 0.0) for _ in range(8)]
    room = way.room
    assert way.look(0.2) == [items[0]]
    way.look(0.4)
    assert way.take_lost(0.4) == items[:2]
    assert way.room == 0
    way.acknowledge(items[0].id, 0.41)
    assert way.room > room


def test_a_way_that_works_after_many_timeouts_is_kept_for_a_while() -> None:
    way = flight()
    item = send(way, 0.0)
    now = 0.0
    while item.way < 3:
        deadline = way.next_deadline()
        assert deadline is not None
        now = deadline
        way.look(now)
        way.take_lost(now)
    way.acknowledge(item.id, now + 0.1)
    again = send(way, now + 0.2)
    assert again.way == 3
    way.acknowledge(again.id, now + 0.3)
    assert send(way, now + 30.0).way == 0


def test_one_timeout_does_not_mean_that_the_way_is_bad() -> None:
    way = flight()
    item = send(way, 0.0)
    way.look(0.2)
    way.look(0.4)
    assert way.take_lost(0.4) == [item]
    assert item.way == 1
    way.acknowledge(item.id, 0.5)
    assert send(way, 0.6).way == 0


def rounds(window: Window, *, arrived: int, lost: int = 0, long: bool = False) -> float:
    """One round with more waiting to be sent; the size after it."""
    window.limit()
    for _ in range(arrived):
        window.arrived(0.03 if long else 0.01)
    for _ in range(lost):
        window.lost()
    window.end_round(0.015)
    return window.size


def lossy(*, long: bool = False) -> tuple[Flight, Item, float]:
    """A flight with many equal round trips so far, a lost message of a stream, and the time."""
    way, stream, now = flight(), Stream(0, 256), 0.0
    seconds = 0.2 if long else 0.1
    for _ in range(9):
        items = [send(way, now) for _ in range(10)]
        now += seconds
        for item in items:
            way.acknowledge(item.id, now)
    lost = Item(1, b"", stream, 1)
    way.dispatch(lost, now)
    later = [send(way, now) for _ in range(3)]
    now += seconds
    for item in later:
        way.acknowledge(item.id, now)
    way.look(now + 0.2)
    return way, lost, now + 0.2


def test_what_others_wait_for_is_sent_twice_the_second_time() -> None:
    way, lost, now = lossy()
    assert way.take_lost(now) == [lost]
    room = way.room
    assert way.copies_of([lost]) == [lost]
    assert way.room == room - 1  # a copy takes room like any other message


def test_nothing_is_sent_twice_where_something_queues() -> None:
    way, lost, now = lossy(long=True)
    assert way.take_lost(now) == [lost]
    assert way.copies_of([lost]) == []


def test_a_copy_is_sent_only_where_there_is_room_and_something_waits() -> None:
    way, lost, now = lossy()
    way.take_lost(now)
    assert way.copies_of([Item(2, b"")]) == []
    while way.room:
        send(way, now)
    assert way.copies_of([lost]) == []


def test_late_is_what_takes_longer_than_all_of_late() -> None:
    trip = RoundTrip(Timing())
    for index in range(64):
        trip.sample(0.1 if index % 2 else 0.2, 1.0)
    assert trip.usual > 0.3
    trip.end_round()
    assert trip.usual > 0.3  # as of the last sample
    trip.sample(0.1, 1.0)
    assert trip.usual == 0.2
    assert trip.timeout > 0.3
    trip.late(0.3)  # too soon
    trip.sample(0.1, 2.0)
    assert trip.usual == 0.3
    for _ in range(128):
        trip.sample(0.1, 3.0)
        trip.end_round()
    trip.sample(0.1, 3.0)
    assert trip.usual == 0.1


def test_the_window_doubles_until_something_queues() -> None:
    window = Window()
    assert rounds(window, arrived=16) == 2 * WINDOW_FIRST
    assert rounds(window, arrived=31, lost=1) == 63  # a few losses change nothing
    assert rounds(window, arrived=63, long=True) == 64
    assert rounds(window, arrived=64) == 68  # it does not double again


def test_where_something_queues_a_loss_halves_the_window_as_in_tcp() -> None:
    window = Window()
    rounds(window, arrived=84)
    assert rounds(window, arrived=99, lost=1, long=True) == 101  # it may be just the slowest
    assert rounds(window, arrived=100, lost=1, long=True) == 50.5
    assert rounds(window, arrived=50, long=True) == 51.5


def test_where_nothing_queues_it_shrinks_by_half_of_what_is_lost() -> None:
    window = Window()
    assert rounds(window, arrived=84) == 100
    assert rounds(window, arrived=72, lost=28) == 100 + 4 - 14
    assert rounds(window, arrived=90, lost=0) == 94
    assert rounds(window, arrived=84, lost=16) == pytest.approx(94 + 4 - 0.08 * 94)
    before = window.size
    assert rounds(window, arrived=84, lost=12) == before + 4 - before / 16  # just large enough
    before = window.size
    assert rounds(window, arrived=88, lost=12) == before + 4  # too few to matter


def test_the_window_doubles_on_unless_many_are_lost() -> None:
    window = Window()
    assert rounds(window, arrived=9, lost=7) == 25  # a large share, but of few: it may be chance
    assert rounds(window, arrived=21, lost=4) == 46
    assert rounds(window, arrived=38, lost=8) == 84
    assert rounds(window, arrived=40, lost=44) < 84
    assert rounds(window, arrived=40) < 88


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window()
    for _ in range(9):
        for _ in range(16):
            window.arrived(0.01)
        window.end_round(0.015)
    assert window.size == WINDOW_FIRST


def test_what_is_found_again_counts_for_nothing() -> None:
    window = Window()
    rounds(window, arrived=84)
    for _ in range(30):
        window.lost()
        window.found()
    assert rounds(window, arrived=70) == 170
    window.collapse()
    window.collapse()
    assert window.size == 2
    window.found()
    assert window.size == 170


def test_what_was_lost_before_a_collapse_counts_no_more() -> None:
    window = Window()
    for _ in range(8):
        window.lost()
    window.collapse()
    assert rounds(window, arrived=2) == 4
