"""A step of a log is pure: it changes nothing, and the same input gives the same result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from p2p_support import Raw
from replicator_random import RandomWorld
from replicator_support import key_of, news_of

from culm.bamboo.effects import LogStatus, ReadLog
from culm.bamboo.forks import ForkProof
from culm.point2point import (
    EVERYTHING,
    Cancel,
    Cancelled,
    CancelReason,
    Proposal,
    ProposalDropped,
    Request,
    RequestEnded,
)
from culm.point2point.replication import Interest, Want, steps
from culm.point2point.replication.decisions import still_wants
from culm.point2point.replication.log_sync import LogSync
from culm.point2point.replication.steps import (
    Answered,
    Ask,
    Command,
    EntriesStored,
    GivenUp,
    Happening,
    Input,
    Notice,
    Offered,
    PayloadLost,
    Prepare,
    Propose,
    Purpose,
    Received,
    Rested,
    RoomMade,
    Sent,
    Step,
    Unsent,
    Wanted,
)
from culm.wire.multihash import YAMF
from stored_entries import stored_form

NEWS = news_of((5, 5))


def known(**interest: Any) -> LogSync:
    return LogSync.of(key_of(NEWS), Interest(**interest), family=YAMF)


def told(state: LogSync, *inputs: Input) -> tuple[LogSync, list[Command]]:
    """The log after the last of these inputs, and the commands that the last one gives."""
    commands: list[Command] = []
    for input in inputs:
        state, commands = state.step(input)
    return state, commands


NOTHING = LogStatus(fork=None, head=None, newest=None, last=None, entry=None, hashes={})


def test_a_log_looks_then_prepares_then_proposes() -> None:
    """The whole way to a proposal, without a store or a connection."""
    state, commands = told(known(), Happening.STARTED)
    assert commands == [Ask(Happening.LOOKED, ReadLog, {})]
    state, [ask] = told(state, Answered(Happening.LOOKED, NOTHING))
    assert isinstance(ask, Ask)
    assert ask.kind is ReadLog
    state, [wish] = told(state, Answered(ask.question, NOTHING))
    assert isinstance(wish, Propose)
    assert (wish.proposal.start, wish.proposal.end) == (1, None)
    assert wish.proposal.eagerness == EVERYTHING
    assert still_wants(wish, state)


def test_who_asks_meanwhile_is_answered_together() -> None:
    state, commands = told(known(), Happening.STARTED)
    assert len(commands) == 1
    state, commands = told(state, Happening.CHANGED, Wanted(Want()))
    assert commands == []
    state, commands = told(state, Answered(Happening.LOOKED, NOTHING))
    asked = [each for each in commands if isinstance(each, Ask)]
    assert asked[0].question is Happening.LOOKED
    assert state.looking == (Happening.CHANGED, Wanted(Want()))


def proposed() -> tuple[LogSync, Request]:
    """A log whose next entries we have asked for."""
    state, [ask] = told(known(), Happening.STARTED, Answered(Happening.LOOKED, NOTHING))
    assert isinstance(ask, Ask)
    state, [wish] = told(state, Answered(ask.question, NOTHING))
    assert isinstance(wish, Propose)
    request = Raw().connection.propose(wish.proposal)
    return told(state, Sent(wish.purpose, request))[0], request


def test_entries_are_news_for_a_request_other_than_the_one_they_came_in() -> None:
    """The other may be the only one that is left by the time they are stored."""
    state, request = proposed()
    _, commands = told(state, EntriesStored(NEWS, request.request_id))
    assert Notice.NEWS not in commands
    _, commands = told(state, EntriesStored(NEWS, request.request_id + 1))
    assert Notice.NEWS in commands


def asked(commands: list[Command]) -> list[Purpose]:
    """The proposals that are prepared."""
    questions = [each.question for each in commands if isinstance(each, Ask)]
    return [each.purpose for each in questions if isinstance(each, Prepare)]


def test_a_proposal_that_got_no_credit_is_made_again_and_no_other() -> None:
    """The peer has turned away the other one of the log, and has no more room since."""
    state, request = proposed()
    turned_away = Cancel(request_id=request.request_id, reason=CancelReason.RESOURCE_LIMIT)
    state, commands = told(
        state,
        Cancelled(request_id=request.request_id, cancel=turned_away),
        RequestEnded(request_id=request.request_id),
        Wanted(Want(first=1, last=1)),
    )
    [ask] = commands
    assert isinstance(ask, Ask)
    state, [wish] = told(state, Answered(ask.question, NOTHING))
    assert isinstance(wish, Propose)
    state, _ = told(state, Unsent(wish.purpose, Step.GIVE_UP))
    _, commands = told(state, RoomMade((Purpose.RANGE,)))
    assert asked(commands) == [Purpose.RANGE]
    _, commands = told(state, RoomMade())
    assert asked(commands) == [Purpose.NEXT, Purpose.RANGE]


def test_a_fork_shown_in_a_proposal_that_is_dropped_is_shown_again() -> None:
    """What is said of a proposal that the overlap rule has dropped is passed over."""
    state, request = proposed()
    proof = ForkProof(NEWS[0].entry, news_of((6, 5))[0].entry)
    forked = Answered(Happening.LOOKED, NOTHING._replace(fork=proof))
    state, commands = told(state, Happening.CHANGED, forked)
    assert steps.Cancel(request, CancelReason.FORK, proof=proof) in commands
    assert not [each for each in commands if isinstance(each, Propose)]
    dropped = ProposalDropped(request_id=request.request_id, ours=True, winner_id=1)
    _, commands = told(state, dropped)
    assert [each.purpose for each in commands if isinstance(each, Propose)] == [Purpose.FORK]


@pytest.mark.parametrize("forks", [False, True])
def test_steps_are_pure(monkeypatch: pytest.MonkeyPatch, forks: bool) -> None:
    step, seen = LogSync.step, Counter[type]()

    def twice(self: LogSync, input: Input) -> tuple[LogSync, list[Command]]:
        before = vars(self).copy()
        first, commands = step(self, input)
        second, again = step(self, input)
        assert vars(self) == before
        assert commands == again
        assert vars(first) == vars(second)
        seen[type(input)] += 1
        return second, again

    monkeypatch.setattr(LogSync, "step", twice)
    for seed in range(6):
        RandomWorld(seed, forks=forks).go()
    assert len(seen) >= 10


@pytest.mark.parametrize(
    ("refused", "rests"),
    [(False, False), (False, True), (True, False)],
    ids=["", "rests", "refused"],
)
def test_how_it_stands_with_the_next_entries_after_every_change(refused: bool, rests: bool) -> None:
    """Refused until something becomes available after all; at rest until wanted again."""
    state, request = proposed()
    state = replace(state, refused=refused, rests=rests)
    defers = Cancel(request_id=request.request_id, reason=CancelReason.RESOURCE_LIMIT)
    finishes = replace(defers, reason=CancelReason.END_OF_RANGE)
    refuses = replace(defers, reason=CancelReason.DO_NOT_RETRY)
    offer = Proposal.of_everything_after(state.log, 1, link=bytes(66))
    changes: list[tuple[Input, bool, bool]] = [
        (Wanted(Want()), False, False),
        (GivenUp(request), True, False),
        (Cancelled(request_id=0, cancel=refuses), True, False),
        (Rested(request), refused, not refused),
        (Happening.WITHDRAWN, refused, not refused),
        (Cancelled(request_id=0, cancel=finishes), refused, not refused),
        (Cancelled(request_id=0, cancel=defers), refused, False),
        (Offered(offer, None), False, rests),
    ]
    for input, refuses_then, rests_then in changes:
        after, _ = told(state, input)
        assert (after.refused, after.rests) == (refuses_then, rests_then), input


def fetching(want: Want) -> tuple[LogSync, Request]:
    """A log whose only wanted range has been proposed."""
    state = LogSync.of(key_of(NEWS), Interest(want=None), family=YAMF)
    state, _ = told(state, Happening.STARTED, Answered(Happening.LOOKED, NOTHING))
    state, [ask] = told(state, Wanted(want))
    assert isinstance(ask, Ask)
    state, [wish] = told(state, Answered(ask.question, NOTHING))
    assert isinstance(wish, Propose)
    connection = Raw().connection
    request = connection.propose(wish.proposal)
    state, _ = told(state, Sent(wish.purpose, request))
    return state, request


@pytest.mark.parametrize("lost", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_a_range_is_fetched_until_all_of_it_is_here(
    lost: tuple[int, ...], received: bool, dropped: bool
) -> None:
    """It is reported once it has come; parts lost before or after that are fetched again."""
    payload = Want.payload_of(1)
    state, request = fetching(payload)
    stored = stored_form(NEWS[0])._replace(payload_stored=0, payload_complete=False)
    synced = 0
    for at in (0, 1):
        if at in lost:
            state, _ = told(state, PayloadLost(1), Answered(PayloadLost(1), stored))
        for _ in range(2 * (received and at == 0)):
            request.incoming.candidates.advance(request.receive_cursor.range.count // 2)
            state, commands = told(state, Received(request))
            synced += len(commands)
    assert synced == received
    over = ProposalDropped if dropped else RequestEnded
    event = over(request_id=0, ours=True, winner_id=1) if dropped else over(request_id=0)
    state, _ = told(state, event)
    assert bool(state.ranges) is (bool(lost) or (dropped and not received))
    assert (state.over, state.lost) == (False, False)
