"""The faulty network: every fault and its statistics, all fixed by a seed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.machines.driver import EndlessError
from culm.testing.network import Conditions, Network, Statistics

Arrival = tuple[float, Any, Any, Any]  # time, source, destination, payload


def make(seed: int = 0, nodes: str = "abc", **conditions: Any) -> tuple[Network, list[Arrival]]:
    network = Network(seed=seed, conditions=Conditions(**conditions))
    arrivals: list[Arrival] = []
    for node in nodes:
        network.attach(
            node,
            lambda payload, source, node=node: arrivals.append(
                (network.clock.now, source, node, payload)
            ),
        )
    return network, arrivals


def send_many(network: Network, count: int = 1000) -> None:
    for number in range(count):
        network.send("a", "b", number.to_bytes(4, "big"))


def numbers(arrivals: list[Arrival]) -> list[int]:
    return [int.from_bytes(payload, "big") for _, _, _, payload in arrivals]


def test_without_faults_everything_arrives_in_order() -> None:
    network, arrivals = make()
    send_many(network, 10)
    assert network.run(1.0)
    assert arrivals == [(0.0, "a", "b", n.to_bytes(4, "big")) for n in range(10)]
    assert network.clock.now == 1.0
    assert network.statistics() == Statistics(
        sent=10, sent_bytes=40, delivered=10, delivered_bytes=40
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_loss_is_as_probable_as_told(share: float) -> None:
    network, arrivals = make(loss=share)
    send_many(network)
    network.run(1.0)
    assert network.statistics().lost + len(arrivals) == 1000
    assert network.statistics().lost == pytest.approx(1000 * share, abs=50)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_duplicates_arrive_twice_each_with_its_own_delay(share: float) -> None:
    network, arrivals = make(duplication=share, delay_max=1.0)
    send_many(network)
    network.run(1.0)
    doubled = [n for n in range(1000) if numbers(arrivals).count(n) == 2]
    assert len(doubled) == network.statistics().duplicated == pytest.approx(1000 * share, abs=50)
    assert network.statistics().delivered == 1000 + len(doubled)
    if doubled:
        times = [
            time for time, _, _, payload in arrivals if numbers([(0, 0, 0, payload)]) == doubled[:1]
        ]
        assert times[0] < times[1]


def test_delays_spread_between_their_bounds() -> None:
    network, arrivals = make(delay_min=1.0, delay_max=3.0)
    send_many(network)
    network.run(5.0)
    times = [time for time, *_ in arrivals]
    assert 1.0 <= min(times) < 1.1
    assert 2.9 < max(times) <= 3.0
    assert numbers(arrivals) != sorted(numbers(arrivals))


def test_reordered_datagrams_are_held_back_and_the_others_keep_their_order() -> None:
    network, arrivals = make(delay_min=1.0, delay_max=1.0, reordering=0.2, hold_max=0.5)
    send_many(network)
    network.run(5.0)
    on_time = [n for (time, *_), n in zip(arrivals, numbers(arrivals), strict=True) if time == 1.0]
    assert on_time == sorted(on_time)
    assert 1000 - len(on_time) == network.statistics().reordered == pytest.approx(200, abs=50)
    assert max(time for time, *_ in arrivals) <= 1.5


def test_what_is_too_long_is_lost() -> None:
    network, arrivals = make(size_max=3)
    network.send("a", "b", b"123")
    network.send("a", "b", b"1234")
    network.run(1.0)
    assert [payload for *_, payload in arrivals] == [b"123"]
    assert network.statistics().oversize == 1


def test_nobody_home_is_counted() -> None:
    network, arrivals = make()
    network.send("a", "nobody", b"x")
    network.detach("b")
    network.send("a", "b", b"x")
    network.run(1.0)
    assert arrivals == []
    assert network.statistics().unreachable == 2


def test_who_leaves_does_not_get_what_is_under_way() -> None:
    network, arrivals = make(delay_min=1.0, delay_max=1.0)
    network.send("a", "b", b"x")
    network.timetable.at(0.5, lambda: network.detach("b"))
    network.run(2.0)
    assert arrivals == []


# Partitions


def pairs_that_pass(network: Network, nodes: str = "abcd") -> set[str]:
    return {x + y for x in nodes for y in nodes if x != y and not network.is_cut(x, y)}


def test_a_cut_is_symmetric_unless_it_is_one_way() -> None:
    network, arrivals = make()
    network.cut("a", "b")
    network.cut("a", "c", one_way=True)
    for source, destination in ("ab", "ba", "ac", "ca", "bc"):
        network.send(source, destination, b"x")
    network.run(1.0)
    assert [source + destination for _, source, destination, _ in arrivals] == ["ca", "bc"]
    assert network.statistics().cut == 3
    network.heal()
    network.send("a", "b", b"x")
    network.run(2.0)
    assert len(arrivals) == 3


def test_partitions_separate_groups_and_leave_their_members_together() -> None:
    network, _ = make()
    network.partition("ab", "c")
    assert pairs_that_pass(network) == {"ab", "ba", "ad", "da", "bd", "db", "cd", "dc"}
    network.heal()
    network.partition("a", "bc", "d", one_way=True)
    assert pairs_that_pass(network) == {"ba", "ca", "da", "bc", "cb", "db", "dc"}


def test_conditions_and_cuts_may_change_at_any_time() -> None:
    network, arrivals = make()
    for second in range(6):
        network.timetable.at(second, lambda second=second: network.send("a", "b", bytes([second])))
    network.timetable.at(0.5, lambda: network.cut("a", "b"))
    network.timetable.at(1.5, network.heal)
    network.timetable.at(2.5, lambda: network.set_conditions(Conditions(loss=1.0)))
    network.timetable.at(
        3.5,
        lambda: network.set_conditions(
            Conditions(delay_min=0.25, delay_max=0.25), source="a", destination="b"
        ),
    )
    network.run(10.0)
    assert [(time, payload) for time, _, _, payload in arrivals] == [
        (0.0, b"\x00"),
        (2.0, b"\x02"),
        (4.25, b"\x04"),
        (5.25, b"\x05"),
    ]


def test_conditions_are_of_one_direction_of_one_link() -> None:
    network, arrivals = make()
    network.set_conditions(Conditions(loss=1.0), source="a", destination="b")
    network.send("a", "b", b"x")
    network.send("b", "a", b"y")
    network.run(1.0)
    assert [payload for *_, payload in arrivals] == [b"y"]
    network.set_conditions(Conditions())
    assert network.conditions("a", "b") == Conditions()
    with pytest.raises(ValueError, match="one direction"):
        network.set_conditions(Conditions(), source="a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": 1.1},
        {"duplication": -0.1},
        {"reordering": 2},
        {"delay_min": -1},
        {"delay_min": 2, "delay_max": 1},
        {"hold_max": -1},
    ],
)
def test_impossible_conditions_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"probability|delay|hold"):
        Conditions(**wrong)


# Statistics


def test_traffic_is_counted_by_link_and_summed() -> None:
    network, _ = make()
    network.send("a", "b", b"12")
    network.send("a", "c", b"345")
    network.send("c", "b", b"6")
    network.run(1.0)
    assert network.statistics(source="a").sent_bytes == 5
    assert network.statistics(destination="b").sent_bytes == 3
    assert network.statistics(source="a", destination="b").delivered_bytes == 2
    assert network.statistics(source="b", destination="a") == Statistics()
    assert network.statistics().sent == 3


def test_payloads_need_not_be_bytes() -> None:
    arrivals: list[object] = []
    network = Network(seed=0, size=lambda message: message["size"])
    network.attach("b", lambda payload, source: arrivals.append(payload))
    network.send("a", "b", {"size": 7})
    network.run(1.0)
    assert arrivals == [{"size": 7}]
    assert network.statistics().delivered_bytes == 7


# Chance

BAD = {"loss": 0.3, "duplication": 0.3, "reordering": 0.3, "delay_max": 1.0, "hold_max": 1.0}


@given(st.integers(0, 1 << 64))
def test_a_seed_fixes_everything(seed: int) -> None:
    runs = []
    for _ in range(2):
        network, arrivals = make(seed, **BAD)
        for number in range(30):
            network.send("ab"[number % 2], "bc"[number % 2], bytes([number]))
        network.run(3.0)
        runs.append((arrivals, network.statistics()))
    assert runs[0] == runs[1]


def test_another_seed_is_another_network() -> None:
    runs = []
    for seed in (1, 2):
        network, arrivals = make(seed, **BAD)
        send_many(network, 50)
        network.run(3.0)
        runs.append(arrivals)
    assert runs[0] != runs[1]


def test_links_have_different_luck() -> None:
    network, arrivals = make(loss=0.5)
    for number in range(50):
        for destination in "bc":
            network.send("a", destination, bytes([number]))
    network.run(1.0)
    fates = {d: [payload for _, _, to, payload in arrivals if to == d] for d in "bc"}
    assert fates["b"] != fates["c"]


def test_the_luck_of_one_link_does_not_hang_on_another() -> None:
    fates = []
    for noise in (0, 100):
        network, arrivals = make(**BAD)
        for _ in range(noise):
            network.send("c", "b", b"noise")
        send_many(network, 50)
        network.run(3.0)
        fates.append([arrival for arrival in arrivals if arrival[1] == "a"])
    assert fates[0] == fates[1]


def test_the_fate_of_one_datagram_is_not_the_luck_of_the_next() -> None:
    """The same datagrams of the second half arrive, whatever happened to the first half."""
    fates = []
    for first in (Conditions(), Conditions(loss=1.0), Conditions(duplication=1.0)):
        network, arrivals = make(**BAD)
        network.set_conditions(first)
        send_many(network, 10)
        network.run(5.0)
        arrivals.clear()
        network.set_conditions(Conditions(**BAD))
        send_many(network, 50)
        network.run(10.0)
        fates.append(arrivals)
    assert fates[0] == fates[1] == fates[2]


def test_streams_of_chance_for_other_purposes_are_fixed_by_the_seed() -> None:
    assert Network(seed=1).random("load").random() == Network(seed=1).random("load").random()
    assert Network(seed=1).random("load").random() != Network(seed=2).random("load").random()
    assert Network(seed=1).random("load").random() != Network(seed=1).random("disk").random()


def test_the_seed_is_told_with_every_failure() -> None:
    network, _ = make(seed=4711)
    network.timetable.at(1.0, lambda: [][0])
    with pytest.raises(IndexError) as caught:
        network.run(2.0)
    assert caught.value.__notes__ == ["network seed: 4711"]
    network.timetable.at(3.0, lambda: [][0])
    with pytest.raises(IndexError) as caught, network:
        network.run(4.0)
    assert caught.value.__notes__ == ["network seed: 4711"]
    with pytest.raises(AssertionError) as asserted, network:
        raise AssertionError
    assert asserted.value.__notes__ == ["network seed: 4711"]


# Running


def test_a_run_ends_when_it_is_done() -> None:
    network, arrivals = make(delay_min=1.0, delay_max=1.0)
    network.send("a", "b", b"x")
    network.timetable.at(0.5, lambda: network.send("a", "c", b"y"))
    assert network.run(9.0, done=lambda: len(arrivals) == 1)
    assert network.clock.now == 1.0
    assert not network.run(2.0, done=lambda: len(arrivals) == 3)
    assert network.clock.now == 2.0
    assert network.run(3.0, done=lambda: True)
    assert network.clock.now == 2.0


def test_a_run_goes_up_to_its_end_and_with_it() -> None:
    network, arrivals = make(delay_min=1.0, delay_max=1.0)
    network.send("a", "b", b"x")
    network.run(1.0)
    assert len(arrivals) == 1


def test_steps_come_one_at_a_time() -> None:
    network, arrivals = make(delay_min=1.0, delay_max=1.0)
    network.send("a", "b", b"x")
    assert network.step()
    assert arrivals
    assert not network.step()


def test_what_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culm.testing.network.STEPS_MAX", 100)
    network = Network(seed=3)
    network.attach("a", lambda payload, source: network.send("a", "a", payload))
    network.send("a", "a", b"ball")
    with pytest.raises(EndlessError, match="100 steps"):
        network.run(1.0)
