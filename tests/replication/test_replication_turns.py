"""Turns: ongoing work does not hold up new work."""

from __future__ import annotations

from random import Random

import pytest

from culm.replication import Turns


def taken(turns: Turns[str], count: int) -> str:
    return "".join(turns.take() for _ in range(count))


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    turns: Turns[str] = Turns()
    for key in "abcab":
        turns.add(key)
    assert turns.first() == "a"
    assert taken(turns, 3) == "abc"
    assert not turns


def test_what_is_new_does_not_wait_for_what_goes_on() -> None:
    turns: Turns[str] = Turns()
    for key in "abc":
        turns.add(key, fresh=False)
    turns.add("n")
    assert taken(turns, 4) == "nabc"


def test_what_goes_on_waits_for_one_that_is_new() -> None:
    turns: Turns[str] = Turns()
    for key in "abc":
        turns.add(key, fresh=False)
    for key in "xyz":
        turns.add(key)
    assert taken(turns, 6) == "xaybzc"


def test_one_goes_on_behind_the_others_even_if_it_got_something_new_meanwhile() -> None:
    turns: Turns[str] = Turns()
    for key in "ab":
        turns.add(key, fresh=False)
    assert turns.take() == "a"
    turns.add("a")
    turns.go_on("a")
    assert taken(turns, 2) == "ba"
    assert not turns


def test_one_that_is_discarded_has_no_turn() -> None:
    turns: Turns[str] = Turns()
    turns.add("a")
    turns.add("b", fresh=False)
    assert "a" in turns
    assert "b" in turns
    turns.discard("a")
    turns.discard("b")
    turns.discard("c")
    assert not turns


@pytest.mark.parametrize("seed", range(20))
def test_nobody_waits_for_more_than_two_turns_of_each_other(seed: int) -> None:
    rng, turns = Random(seed), Turns[int]()
    waits: dict[int, int] = {}
    for _ in range(300):
        if turns and rng.random() < 0.5:
            key = turns.take()
            assert waits.pop(key) <= 2 * 8
            waits = {each: count + 1 for each, count in waits.items()}
            if rng.random() < 0.7:
                turns.go_on(key)
                waits[key] = 0
        else:
            key = rng.randrange(8)
            turns.add(key, fresh=rng.random() < 0.5)
            waits.setdefault(key, 0)
