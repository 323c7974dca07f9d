"""Newcomers at a full server: clients that read nothing make way for them, in any crowd."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from culm_io.programs.places import Places

STALL_S = 1.0


class Clock:
    now = 0.0


@dataclass(eq=False)
class Guest:
    """A newcomer, and the client that it becomes."""

    clock: Clock
    places: Places[Guest]
    reads: bool
    address: str = "a"
    came_in_at: float | None = None
    leaving: bool = False
    turned_away: bool = False

    def come_in(self) -> Guest:
        self.came_in_at = self.clock.now
        return self

    def turn_away(self) -> None:
        self.turned_away = True

    def rank(self) -> tuple[bool, float] | None:
        assert self.came_in_at is not None
        idle = not self.reads and self.clock.now >= self.came_in_at + STALL_S
        return (False, self.came_in_at) if idle else None

    def make_way(self) -> None:
        self.leaving = True
        self.places.clients.discard(self)


class Hall:
    """A server with some places, and the passage of time."""

    def __init__(self, count: int, of_one_address: int) -> None:
        self.clock = Clock()
        self.places: Places[Guest] = Places(clients_max=count, address_max=of_one_address)

    def arrive(self, *, reads: bool, address: str = "a") -> Guest:
        guest = Guest(self.clock, self.places, reads, address)
        self.places.arrive(guest, self.clock.now)
        return guest

    def wait(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += 0.2
            self.places.look(self.clock.now)


@pytest.mark.parametrize(
    ("count", "of_one_address"), [(64, 16), (64, 64), (16, 16), (8, 1), (1, 1)]
)
@pytest.mark.parametrize("seed", range(5))
def test_a_crowd_that_reads_nothing_keeps_nobody_out(
    seed: int, count: int, of_one_address: int
) -> None:
    """The newcomers come meanwhile or later; clients that read stay."""
    rng, hall = Random(seed), Hall(count, of_one_address)
    crowd = 4 * of_one_address
    moments = sorted(rng.randrange(crowd) for _ in range(max(1, of_one_address // 4)))
    newcomers: list[Guest] = []
    for number in range(crowd):
        hall.arrive(reads=False)
        newcomers += (hall.arrive(reads=True) for moment in moments if moment == number)
    hall.wait(8 * STALL_S)
    assert [guest.came_in_at is not None for guest in newcomers] == [True] * len(newcomers)
    assert not any(guest.leaving for guest in newcomers)


def test_neighbours_share_the_places_of_their_address_and_no_others() -> None:
    hall = Hall(4, 2)
    crowd = [hall.arrive(reads=True) for _ in range(5)]
    assert hall.arrive(reads=True, address="b").came_in_at == 0
    assert [guest.came_in_at is not None for guest in crowd] == [True, True, False, False, False]


def test_who_waits_among_clients_that_are_all_at_work_is_told_so() -> None:
    hall = Hall(1, 1)
    inside, outside = hall.arrive(reads=True), hall.arrive(reads=True)
    hall.wait(10)
    assert not outside.turned_away
    hall.wait(11)
    assert outside.turned_away
    assert not inside.leaving
    waiting = hall.arrive(reads=True)
    hall.places.clients.discard(inside)
    hall.wait(0.2)
    assert waiting.came_in_at is not None


def test_so_many_may_wait() -> None:
    hall = Hall(1, 1)
    guests = [hall.arrive(reads=True) for _ in range(300)]
    assert sum(guest.turned_away for guest in guests) == 300 - 257
    hall.places.close()
    assert sum(guest.turned_away for guest in guests) == 299
