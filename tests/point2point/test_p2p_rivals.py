"""The overlap rule against a twin that compares each proposal with each."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from culm.bamboo.entry import LogKey
from culm.bymux import Role
from culm.point2point import earliest
from culm.point2point.earliest import Earliest
from culm.point2point.rivals import Rivals
from culm.wire.varu64 import MAX


class _Range(NamedTuple):
    start: int
    end: int | None

    def overlaps(self, other: _Range) -> bool:
        return self.start <= (other.end or MAX) and other.start <= (self.end or MAX)


class _Proposal(NamedTuple):
    log: LogKey
    start: int


class _Made:
    """What the rule asks of a request."""

    def __init__(self, number: int, log: LogKey, start: int, end: int | None, ours: bool) -> None:
        self.request_id = number
        self.ours = ours
        self.range = _Range(start, end)
        self.proposal = _Proposal(log, start)

    def __repr__(self) -> str:
        return f"{self.request_id}: {self.range}"


class Twin:
    """All proposals in a row."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.made: list[_Made] = []

    def overlaps(self, new: _Made) -> Iterator[tuple[_Made, _Made]]:
        for rival in list(self.made):
            crossed = rival.ours is not new.ours and rival.proposal.log == new.proposal.log
            if crossed and rival.range.overlaps(new.range):
                loser = max(new, rival, key=self._precedence)
                yield loser, (new if loser is rival else rival)
                if loser is new:
                    return

    def _precedence(self, made: _Made) -> tuple[int, bool]:
        return made.proposal.start, made.ours is (self.role is Role.REACTIVE)


def _seqnum(rng: Random, top: int) -> int:
    return rng.choice(
        (rng.randint(1, top), rng.randint(1, 5), 1 << rng.randrange(top.bit_length()))
    )


@pytest.mark.parametrize("top", [6, 40, 3000, MAX])
@pytest.mark.parametrize("role", Role)
def test_who_loses_to_whom(role: Role, top: int) -> None:
    for seed in range(10):
        rng = Random(seed)
        logs = [LogKey(bytes(32), n) for n in range(rng.choice((1, 2)))]
        rivals: Any = Rivals(role=role)
        twin = Twin(role)
        for number in range(150):
            if twin.made and rng.random() < 0.3:
                answered = rng.choice(twin.made)
                twin.made.remove(answered)
                rivals.discard(answered)
                rivals.discard(answered)  # to no effect
            start, width = _seqnum(rng, top), rng.choice((0, 1, top // 9, top))
            end = None if rng.random() < 0.2 else min(MAX, start + width)
            new = _Made(number, rng.choice(logs), start, end, rng.random() < 0.5)
            told = []
            expected = list(twin.overlaps(new))
            rivals.add(new)
            for loser, winner in rivals.overlaps(new):
                told.append((loser, winner))
                rivals.discard(loser)
            assert told == expected, seed
            twin.made.append(new)
            for loser, _ in expected:
                twin.made.remove(loser)


@pytest.mark.parametrize("block_size", [1, 2, 7, 512])
@pytest.mark.parametrize("top", [5, 100, MAX])
def test_the_earliest_of_some_numbers(
    monkeypatch: pytest.MonkeyPatch, top: int, block_size: int
) -> None:
    monkeypatch.setattr(earliest, "_BLOCK_SIZE", block_size)
    for seed in range(6):
        rng, kept = Random(seed), Earliest()
        pairs: list[tuple[int, int]] = []
        for time in range(200):
            number = time if seed % 2 else rng.randint(0, top)
            kept.add(number, time)
            pairs.append((number, time))
            if rng.random() < 0.45:
                pairs.remove(gone := rng.choice(pairs))
                kept.remove(*gone)
            low, high = sorted((rng.randint(0, top), rng.randint(0, top)))
            within = (time for number, time in pairs if low <= number <= high)
            assert kept.first(low, high) == min(within, default=None)
            assert bool(kept) is bool(pairs)
