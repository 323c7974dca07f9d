"""The overlap rule against a twin that compares each proposal with each."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from culm.bamboo.entry import LogKey
from culm.bymux import Role
from culm.point2point import Proposal
from culm.point2point.pieces import Range
from culm.point2point.rivals import Earliest, Rivals
from culm.wire.varu64 import MAX


class Made(NamedTuple):
    """A proposal."""

    request_id: int
    range: Range

    def crosses(self, other: Made) -> bool:
        """Whether they are of different endpoints, and overlap."""
        (one, two), (ours, theirs) = (self.range, other.range), (self.request_id, other.request_id)
        if one.proposal.log != two.proposal.log or ours % 2 == theirs % 2:
            return False
        return one.start <= (two.end or MAX) and two.start <= (one.end or MAX)

    @property
    def rank(self) -> tuple[int, bool]:
        return self.range.start, self.request_id % 2 == Role.REACTIVE


class Twin:
    """All proposals in a row."""

    def __init__(self) -> None:
        self.made: list[Made] = []

    def overlaps(self, new: Made) -> Iterator[tuple[int, int]]:
        for rival in self.made:
            if rival.crosses(new):
                winner, loser = sorted((new, rival), key=lambda made: made.rank)
                yield loser.request_id, winner.request_id
                if loser is new:
                    return


def _seqnum(rng: Random, top: int) -> int:
    return rng.choice(
        (rng.randint(1, top), rng.randint(1, 5), 1 << rng.randrange(top.bit_length()))
    )


@pytest.mark.parametrize("top", [6, 40, 3000, MAX])
def test_who_loses_to_whom(top: int) -> None:
    for seed in range(20):
        rng = Random(seed)
        logs = [LogKey(bytes(32), n) for n in range(rng.choice((1, 2)))]
        rivals, twin = Rivals(), Twin()
        for number in range(150):
            if twin.made and rng.random() < 0.3:
                answered = rng.choice(twin.made)
                twin.made.remove(answered)
                rivals.discard(answered.request_id)
                rivals.discard(answered.request_id)  # to no effect
            start, width = _seqnum(rng, top), rng.choice((0, 1, top // 9, top))
            end = None if rng.random() < 0.2 else min(MAX, start + width)
            proposal = Proposal(
                log=rng.choice(logs), start=start, lower_certpool=start, expected_hash=None
            )
            new = Made(2 * number + rng.randrange(2), Range(proposal, end, end))
            told = []
            expected = list(twin.overlaps(new))
            rivals.add(new.request_id, new.range)
            for loser, winner in rivals.overlaps(new.request_id):
                told.append((loser, winner))
                rivals.discard(loser)
            assert told == expected, seed
            twin.made.append(new)
            lost = {loser for loser, _ in expected}
            twin.made = [each for each in twin.made if each.request_id not in lost]
            assert all(each.request_id in rivals for each in twin.made)


@pytest.mark.parametrize("top", [5, 100, MAX])
def test_the_earliest_of_some_numbers(top: int) -> None:
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
