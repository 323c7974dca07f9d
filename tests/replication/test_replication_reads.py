"""Room for reading ahead, shared out among readers."""

from __future__ import annotations

from random import Random

import pytest

from culm.replication import Room, Turns


class Readers:
    """Readers by number, in one room."""

    def __init__(self, *, size_max: int = 800, read_size_max: int = 50) -> None:
        self.turns: Turns[int] = Turns()
        self.room = Room(self.turns, size_max=size_max, read_size_max=read_size_max)

    def claim(self, *readers: int, size: int = 1000, lasting: bool = False) -> list[int]:
        return [self.room.claim(each, size, lasting=lasting) for each in readers]

    def roused(self) -> list[int]:
        """Readers that have got a turn since the last call."""
        return [self.turns.take() for _ in iter(lambda: bool(self.turns), False)]


def test_a_reader_gets_half_of_the_room_that_is_left() -> None:
    assert Readers().claim(1, 2, 3, 4) == [400, 200, 100, 50]
    assert Readers().claim(1, 2, size=60) == [60, 60]


def test_large_payloads_leave_a_quarter_of_the_room() -> None:
    readers = Readers()
    assert readers.claim(1, 2, 3, 4, 5, lasting=True) == [300, 150, 75, 50, 0]
    assert readers.claim(6, size=60) == [60]


def test_readers_wait_for_each_other_in_order() -> None:
    readers = Readers(size_max=100, read_size_max=50)
    assert readers.claim(1, 2, 3, 4) == [50, 50, 0, 0]
    readers.room.hold(2, 0)
    assert readers.roused() == [3]
    assert readers.claim(3) == [50]
    readers.room.hold(1, 0)
    assert readers.roused() == [4]


def test_one_read_is_always_possible() -> None:
    readers = Readers(size_max=10, read_size_max=50)
    assert readers.claim(1) == [50]
    assert readers.claim(2, size=1) == [0]
    readers.room.hold(1, 0)
    assert readers.roused() == [2]
    assert readers.claim(2, size=1) == [50]


def test_what_is_held_is_given_up_for_a_claim() -> None:
    readers = Readers()
    assert readers.claim(1) == [400]
    assert readers.claim(1) == [400]
    readers.room.hold(1, 30)
    assert readers.room.size == 30


def test_a_reader_that_is_forgotten_holds_nothing_and_waits_for_nothing() -> None:
    readers = Readers(size_max=100, read_size_max=50)
    assert readers.claim(1, 2, 3, 4) == [50, 50, 0, 0]
    readers.room.forget(3)
    assert readers.room.size == 100
    readers.room.forget(1)
    assert readers.room.size == 50
    assert readers.roused() == [4]


def test_a_turn_that_is_not_used_goes_to_another_reader() -> None:
    readers = Readers(size_max=100, read_size_max=50)
    assert readers.claim(1, 2, 3, 4) == [50, 50, 0, 0]
    readers.room.hold(1, 0)
    assert readers.roused() == [3]
    readers.room.forget(3)  # it has nothing to read any more
    assert readers.roused() == [4]


def test_who_gets_room_in_another_turn_of_its_own_waits_no_more() -> None:
    """It would get the next turn for room, need none, and keep all others waiting."""
    readers = Readers(size_max=10, read_size_max=50)
    assert readers.claim(1, 2, 3) == [50, 0, 0]
    readers.room.hold(1, 0)
    assert readers.roused() == [2]
    assert readers.claim(3) == [50]  # because of something new
    assert not readers.room.awaits(3)
    assert readers.claim(2) == [0]
    readers.room.hold(3, 0)
    assert readers.roused() == [2]


@pytest.mark.parametrize("seed", range(200))
def test_as_long_as_there_is_room_somebody_who_waits_has_a_turn(seed: int) -> None:
    """Whatever readers do with their turns: claim, claim for long, or read nothing."""
    rng = Random(seed)
    readers = Readers(size_max=rng.choice((1, 60, 100, 300)), read_size_max=50)
    room, turns = readers.room, readers.turns
    everybody = range(6)
    for _ in range(300):
        if turns and rng.random() < 0.5:
            reader = turns.take()
            if rng.random() < 0.3:
                room.forget(reader)
            else:
                readers.claim(reader, size=rng.choice((1, 50, 1000)), lasting=rng.random() < 0.3)
        elif rng.random() < 0.5:
            turns.add(rng.choice(everybody))
        else:
            room.hold(rng.choice(everybody), 0)
        waiting = [each for each in everybody if room.awaits(each)]
        assert turns or room.size or not waiting, waiting
