"""The overlap rule against a twin that compares all pairs of proposals."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from culm.bamboo.entry import LogKey
from culm.bymux import Connection as Mux
from culm.bymux import InitialState, InitialStream, Role
from culm.point2point import Limits, Proposal
from culm.point2point.channels import Output
from culm.point2point.requests import ControlChannel
from culm.wire.multihash import YAMF
from culm.wire.varu64 import MAX


class Made(NamedTuple):
    """A proposal."""

    request_id: int
    proposal: Proposal

    def crosses(self, other: Made) -> bool:
        """Whether they are of different endpoints, and overlap."""
        one, two = self.proposal, other.proposal
        if one.log != two.log or self.request_id % 2 == other.request_id % 2:
            return False
        return one.start <= (two.end or MAX) and two.start <= (one.end or MAX)

    @property
    def rank(self) -> tuple[int, bool]:
        return self.proposal.start, self.request_id % 2 == Role.REACTIVE


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


def channel(role: Role) -> ControlChannel:
    streams = {0: InitialStream(), 1: InitialStream()}
    mux = Mux(role=role, initial=InitialState(streams=streams, creation_closed=True))
    output = Output(
        control=mux.stream(0),
        data=mux.stream(1),
        family=YAMF,
        limits=Limits(),
        trusts_caller=False,
    )
    return ControlChannel(role=role, output=output)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("top", [6, 40, 3000, MAX])
def test_who_loses_to_whom(top: int, role: Role) -> None:
    for seed in range(20):
        rng = Random(seed)
        logs = [LogKey(bytes(32), n) for n in range(rng.choice((1, 2)))]
        control, twin = channel(role), Twin()
        for number in range(150):
            if twin.made and rng.random() < 0.3:
                answered = rng.choice(twin.made)
                twin.made.remove(answered)
                control.requests[answered.request_id].answer()
                control.requests[answered.request_id].answer()  # to no effect
            start, width = _seqnum(rng, top), rng.choice((0, 1, top // 9, top))
            end = None if rng.random() < 0.2 else min(MAX, start + width)
            proposal = Proposal(
                log=rng.choice(logs),
                start=start,
                lower_certpool=start,
                expected_hash=None,
                end=end,
                upper_certpool=end,
            )
            new = Made(2 * number + rng.randrange(2), proposal)
            told: list[tuple[int, int]] = []
            expected = list(twin.overlaps(new))
            ours = new.request_id % 2 == role
            request = control.open(new.request_id, new.proposal, ours=ours)
            for loser, winner in control.overlaps(request):
                told.append((loser.request_id, winner.request_id))
                control.drop(loser)
            assert told == expected, seed
            twin.made.append(new)
            lost = {loser for loser, _ in expected}
            twin.made = [each for each in twin.made if each.request_id not in lost]
            assert all(control.requests[each.request_id].unanswered for each in twin.made)
            assert not lost & set(control.requests)
