"""What a replicator decides from: the tables of states, and the laws of every decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from culm.bamboo.entry import LogKey
from culm.bamboo.records import StoredEntry
from culm.point2point import Part, Piece, Proposal
from culm.point2point.replication.decisions import (
    answer,
    answer_compared,
    cut_off,
    decide,
    end_of_next,
    give_way,
    is_settled,
    is_wanted,
    last_before_fork,
    may_rest,
    propose,
    start_of_next,
    still_wants,
    wish,
)
from culm.point2point.replication.events import Want
from culm.point2point.replication.steps import (
    PEER_STAGES,
    STAGES,
    STANDINGS,
    Action,
    Aim,
    Answer,
    Facts,
    HeadPayload,
    PeerStage,
    Plan,
    Purpose,
    Service,
    Stage,
    Standing,
    StandingChange,
    Step,
    Stock,
)

LOG = LogKey(bytes(32), 0)
NOTHING = dict[str, Any](
    stock=Stock.KNOWN,
    position=0,
    newest=0,
    payload=HeadPayload.SETTLED,
    end=None,
    fork=None,
    aim=Aim.LIVE,
    service=Service.STORED,
    probe=None,
    ranges=0,
    offered=None,
    begun=0,
    passed=0,
    standing=Standing.LASTING,
    told=None,
    fork_told=None,
    joined=None,
)


def combined(**choices: tuple[Any, ...]) -> Iterator[Facts]:
    """Facts with all combinations of the choices."""
    for values in product(*choices.values()):
        yield Facts(**{**NOTHING, **dict(zip(choices, values, strict=True))})


@cache
def facts_of_next() -> list[Facts]:
    return [
        facts
        for facts in combined(
            position=(0, 1, 2),
            payload=tuple(HeadPayload),
            fork=(None, 3),
            aim=tuple(Aim),
            offered=(None, 2),
            passed=(0, 2),
            standing=tuple(Standing),
            begun=(0, 2),
            told=(None, Piece(2, Part.METADATA), Piece(2, Part.PAYLOAD)),
            joined=(None, PeerStage.JOINED),
        )
        if facts.position or facts.payload is HeadPayload.SETTLED
    ]


def proposal(start: int, **options: Any) -> Proposal:
    fields = {"lower_certpool": start, "expected_hash": b"theirs", **options}
    end = fields.get("end")
    return Proposal(log=LOG, start=start, upper_certpool=end, **fields)


# The tables.


def test_every_stage_is_reached_and_comes_to_its_end() -> None:
    assert set(STAGES) == set(Stage)
    reached = {Stage.IDLE}
    for _ in Stage:
        reached |= {after for stage in reached for after in STAGES[stage].values()}
    assert reached == set(Stage)
    ending = {Stage.IDLE}
    for _ in Stage:
        ending |= {stage for stage in Stage if ending & set(STAGES[stage].values())}
    assert ending == set(Stage)


@pytest.mark.parametrize("step", Step)
def test_what_can_happen_to_a_request_of_ours(step: Step) -> None:
    """One that has been proposed may end at any time; no other can."""
    proposed = set(Stage) - {Stage.IDLE, Stage.PREPARING, Stage.QUEUED, Stage.DEFERRED}
    expected = {
        Step.PREPARE: {Stage.IDLE},
        Step.OVERTAKE: {Stage.PREPARING, Stage.QUEUED},
        Step.QUEUE: {Stage.PREPARING},
        Step.SEND: {Stage.QUEUED},
        Step.GIVE_UP: {Stage.QUEUED},
        Step.PEER_CONFIRMS: {Stage.PROPOSED},
        Step.END: proposed,
        Step.MAKE_ROOM: {Stage.TURNED_AWAY, Stage.DEFERRED},
    }
    stages = {stage for stage in Stage if step in STAGES[stage]}
    assert stages == expected.get(step, {Stage.PROPOSED, Stage.OPEN})


def test_who_was_turned_away_waits_for_room_and_nobody_else_does() -> None:
    for stage, after in product(Stage, Stage):
        if Step.END in STAGES[stage] and STAGES[stage][Step.END] is after:
            assert (after is Stage.DEFERRED) == (stage is Stage.TURNED_AWAY)


def test_how_it_stands_after_every_change() -> None:
    for standing, change in product(Standing, StandingChange):
        after = STANDINGS[standing].get(change, standing)
        goes_by = (StandingChange.REST, StandingChange.DEFER)
        if change is StandingChange.REFUSE or (standing is Standing.REFUSED and change in goes_by):
            assert after is Standing.REFUSED
        elif change is StandingChange.REST or (
            change is StandingChange.FORGIVE and standing is Standing.RESTING
        ):
            assert after is Standing.RESTING
        else:
            assert after is Standing.LASTING


def test_a_request_of_the_peer_is_answered_once() -> None:
    for stage, answers in PEER_STAGES.items():
        for said, after in answers.items():
            silent = said in (Answer.RECONSIDER, Answer.COMPARE, Answer.PASS, Answer.AWAIT_OURS)
            assert silent is (after in PEER_STAGES), (stage, said)


# Our requests.


def test_nothing_is_proposed_beside_something_or_before_the_store_is_known() -> None:
    for stage, purpose in product(Stage, Purpose):
        for facts in combined(stock=tuple(Stock), ranges=(0, 1), fork=(None, 3)):
            action = decide(purpose, stage, facts)
            if stage is Stage.IDLE and facts.stock is Stock.KNOWN:
                assert action is wish(purpose, facts)
            else:
                assert action is Action.WAIT


def test_what_is_wished_for_next() -> None:
    for facts in facts_of_next():
        action = wish(Purpose.NEXT, facts)
        asks = action is not Action.WAIT
        first = facts.payload is HeadPayload.DUE
        offered = facts.offered or 0
        known = max(facts.position, facts.passed)
        lacks = max(offered, facts.begun) > known or (first and offered >= facts.position)
        assert action in (Action.WAIT, Action.RESUME if first else Action.GO_ON)
        if facts.aim is Aim.RANGES or facts.standing is Standing.REFUSED:
            assert not asks
        elif lacks:
            assert asks
        elif facts.aim is not Aim.LIVE:
            assert not asks
        elif facts.fork is None and facts.standing is Standing.LASTING:
            assert asks is (facts.joined is None or facts.told is None)
        else:
            # Only to tell what we have, and of a payload that some of it is here.
            assert asks is (facts.told is None or facts.told < start_of_next(facts))


def test_an_entry_that_is_in_doubt_goes_before_everything() -> None:
    for facts in combined(probe=(1, 2), standing=tuple(Standing), aim=tuple(Aim)):
        assert wish(Purpose.NEXT, facts) is Action.PROBE


def test_where_what_comes_next_starts_and_ends() -> None:
    for facts in facts_of_next():
        (start, part), end = start_of_next(facts), end_of_next(facts)
        assert start - facts.position in (0, 1)
        assert (start == facts.position) is (facts.payload is HeadPayload.DUE)
        assert part is (Part.PAYLOAD if facts.payload is HeadPayload.DUE else Part.METADATA)
        assert end is None or end == max(facts.position, facts.offered or 0, facts.begun)
        if facts.aim is not Aim.LIVE:
            assert end is not None
        if wish(Purpose.NEXT, facts) is not Action.WAIT:
            assert end is None or end >= start  # never an empty range
            made = proposal(start, end=end)
            assert still_wants(Purpose.NEXT, made, facts)
            assert still_wants(Purpose.NEXT, proposal(start + 1, end=end), facts) is (
                end is not None
            )


def test_ranges_and_forks() -> None:
    for facts in combined(ranges=(0, 1, 2), fork=(None, 1, 3), fork_told=(None, 1, 2, 3)):
        assert wish(Purpose.RANGE, facts) is (Action.FETCH_RANGE if facts.ranges else Action.WAIT)
        shown = wish(Purpose.FORK, facts) is Action.SHOW_FORK
        assert shown is (facts.fork is not None and (facts.fork_told or 9) > facts.fork)
        assert still_wants(Purpose.RANGE, proposal(1, end=1), facts)
        for start in (1, 3):
            made = proposal(start, end=start)
            assert still_wants(Purpose.FORK, made, facts) is (shown and start == facts.fork)


def test_what_has_settled() -> None:
    """Nothing while a proposal is being made; else what waits for others, and what is complete."""
    waiting = {Stage.QUEUED, Stage.TURNED_AWAY, Stage.DEFERRED}
    for stage, endless in product(Stage, (False, True)):
        for facts in combined(
            ranges=(0, 1),
            standing=tuple(Standing),
            aim=tuple(Aim),
            offered=(None, 2),
            begun=(0, 3),
            passed=(0, 2, 3),
        ):
            wanted = facts.aim is not Aim.RANGES
            behind = wanted and facts.offered == 2 and not facts.passed
            lacks = wanted and max(facts.offered or 0, facts.begun) > facts.passed
            settled = {
                purpose: is_settled(purpose, stage, facts, endless=endless) for purpose in Purpose
            }
            if stage is Stage.PREPARING:
                assert not any(settled.values())
                continue
            assert settled[Purpose.FORK]
            assert settled[Purpose.RANGE] is (endless or not facts.ranges or stage in waiting)
            refused = facts.standing is Standing.REFUSED
            assert settled[Purpose.NEXT] is (refused or not behind or stage in waiting)
            for patient in (False, True):
                rests = not lacks and (facts.offered is not None or not patient)
                assert may_rest(facts, patient=patient) is rests
                # What has come and is not stored is, where nothing moves, part of a payload.
                growing = replace(facts, stock=Stock.GROWING)
                assert may_rest(growing, patient=patient) is (rests and not patient)


# The peer's.


@cache
def proposals() -> list[Proposal]:
    return [
        *(proposal(start, end=end) for start in (1, 2, 3, 4) for end in (None, 4)),
        *(proposal(start, end=start, payload_only=True) for start in (1, 3)),
        *(proposal(3, end=4, lower_certpool=lower) for lower in (1, 2)),
        *(proposal(start, lower_certpool=None, start_offset=5) for start in (1, 3)),
    ]


def stored(hash: bytes, payload_stored: int) -> StoredEntry:
    return StoredEntry(
        seqnum=1,
        hash=hash,
        encoded=b"",
        payload_size=9,
        payload_stored=payload_stored,
        payload_complete=False,
        payload=None,
    )


def test_what_a_proposal_is_answered_at_once() -> None:
    for made in proposals():
        for facts in combined(
            position=(0, 2),
            newest=(2, 4),
            end=(None, 2),
            fork=(None, 1, 3),
        ):
            said = answer(made, facts)
            forked = facts.fork is not None and made.start >= facts.fork
            assert (said in (Answer.SHOW_FORK, Answer.REFUSE)) is forked
            if forked:
                assert facts.fork is not None
                assert (said is Answer.SHOW_FORK) is (made.first_seqnum >= facts.fork)
                continue
            over = facts.end is not None and made.first_seqnum > facts.end
            assert (said is Answer.SHOW_END) is over
            if not over:
                known = made.expected_seqnum <= facts.newest
                assert said is (Answer.COMPARE if known else Answer.PASS)


def test_what_it_is_answered_after_comparing() -> None:
    found = [None, stored(b"ours", 9), stored(b"theirs", 2), stored(b"theirs", 7)]
    for made, ours in product(proposals(), found):
        for facts in combined(
            position=(0, 3),
            newest=(2, 4),
            payload=(HeadPayload.SETTLED, HeadPayload.DUE),
            aim=tuple(Aim),
            service=tuple(Service),
        ):
            said = answer_compared(made, facts, ours)
            assert (said is Answer.SHOW_ENTRY) is (ours is not None and ours.hash == b"ours")
            if said is Answer.SHOW_ENTRY:
                continue
            wanted = is_wanted(made, facts)
            endless = made.end is None and not made.payload_only
            assert wanted is (endless and facts.aim is Aim.LIVE)
            if not wanted and facts.service is Service.NOTHING:
                assert said is Answer.PASS
            elif made.end is not None:
                assert (said is Answer.CONFIRM) is (made.first_seqnum <= facts.newest)
            elif made.start > facts.position + 1:
                assert said is Answer.PASS  # there would be a gap
            elif made.start < facts.position:
                assert said is Answer.CONFIRM


def test_a_fork_that_comes_to_be_known_meanwhile_is_not_confirmed() -> None:
    """What the range begins with may have been cut off while the store was asked for it."""
    for made in proposals():
        for facts in combined(position=(3,), newest=(4,), fork=(1, 2, 3, 9)):
            said = answer_compared(made, facts, None)
            cut = cut_off(made, facts)
            assert cut is None or said is not Answer.CONFIRM
            assert said in (cut, Answer.PASS, Answer.CONFIRM)
            if cut is not None and made.end is not None and made.first_seqnum <= 4:
                assert said is cut


def test_a_proposal_is_kept_waiting_only_for_one_of_ours_that_displaces_it() -> None:
    for made, stage, unanswered in product(proposals(), Stage, (False, True)):
        for facts in combined(position=(0, 2, 4), aim=tuple(Aim)):
            said = give_way(made, facts, stage, unanswered=unanswered)
            coming = unanswered or stage is Stage.PREPARING
            displaces = (
                coming and facts.aim is Aim.LIVE and start_of_next(facts).seqnum < made.start
            )
            assert (said is Answer.AWAIT_OURS) is displaces
            if not displaces:
                assert said is (Answer.DEFER if is_wanted(made, facts) else Answer.REFUSE)


def test_every_answer_has_its_place_in_the_table() -> None:
    """Whatever is decided for a request of the peer can happen at its stage, and nothing else."""
    said: dict[PeerStage, set[Answer]] = {stage: set() for stage in PEER_STAGES}
    for made in proposals():
        for facts in combined(
            position=(0, 2),
            newest=(2, 4),
            end=(None, 2),
            fork=(None, 3),
        ):
            found = (None, stored(b"ours", 9))
            compared = {answer_compared(made, facts, ours) for ours in found}
            compared.add(cut_off(made, facts) or Answer.CONFIRM)
            said[PeerStage.WAITING].add(answer(made, facts))
            said[PeerStage.COMPARING] |= compared
            said[PeerStage.JOINING] |= compared
            for stage in (Stage.IDLE, Stage.PREPARING):
                said[PeerStage.PASSED].add(give_way(made, facts, stage, unanswered=False))
    said[PeerStage.AWAITING_OURS] = {Answer.RECONSIDER, Answer.DEFER}  # or for credit
    assert said == {stage: set(answers) for stage, answers in PEER_STAGES.items()}


def test_ranges_end_before_a_fork() -> None:
    for facts, upper in product(combined(fork=(None, 1, 3)), (None, 1, 2, 3, 4)):
        last = last_before_fork(facts, upper)
        over = facts.fork is not None and (upper is None or upper >= facts.fork)
        assert last == (facts.fork - 1 if over and facts.fork is not None else None)


def test_stages_are_told_apart_by_their_words() -> None:
    stages = (Stage, PeerStage, Standing, Step, StandingChange, Action, Answer, Purpose)
    for kind in (*stages, Aim, HeadPayload, Service, Stock):
        assert len({member.value for member in kind}) == len(kind)


@pytest.mark.parametrize(
    ("newest", "upper"), [(5, 5), (6, 6), (8, 8), (11, 8), (12, 12), (13, 13), (99, 13)]
)
def test_a_range_includes_all_of_its_upper_pool_that_the_peer_has(newest: int, upper: int) -> None:
    """That of entry 5 is 6, 7, 8, 12 and 13."""
    (facts,) = combined(offered=(newest,))
    found = propose(LOG, Plan(Action.FETCH_RANGE, 1, Want(first=1, last=5)), facts, {}, None)
    assert found is not None
    assert (found.end, found.upper_certpool) == (5, upper)
