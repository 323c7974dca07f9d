"""The basis of a replicator's decisions: the tables of states, and the laws of every decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from p2p_support import Raw

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.records import Head, StoredEntry
from culm.point2point import NOTIFY, Part, Piece, Proposal, Request
from culm.point2point.replication.decisions import (
    answer,
    answer_compared,
    cut_off,
    decide,
    end_of_next,
    give_way,
    is_settled,
    is_wanted,
    lacks_next,
    last_before_fork,
    may_rest,
    propose,
    start_of_next,
    still_wants,
    wish,
)
from culm.point2point.replication.events import Want
from culm.point2point.replication.log_state import LogState, Ours, Theirs
from culm.point2point.replication.steps import (
    PEER_STAGES,
    STAGES,
    Action,
    Answer,
    PeerStage,
    Plan,
    Propose,
    Purpose,
    Stage,
    Step,
)
from culm.wire.multihash import YAMF

LOG = LogKey(bytes(32), 0)


def log_of(
    position: int = 0,
    newest: int = 0,
    fork: int | None = None,
    end: int | None = None,
    serves_stored: bool = True,
    joined: bool = False,
    payload_due: bool = False,
    ours: Ours | None = None,
    **state: Any,
) -> LogState:
    """A log in that state, which the store has reported."""
    log = LogState(
        log=LOG,
        family=YAMF,
        only_stored=False,
        serves_stored=serves_stored,
        want=Want(),
        head=Head(position, b"", end is not None) if position else None,
        newest=newest,
        payload_due=payload_due and position > 0,
        fork=None if fork is None else fork_at(fork),
        **{"loaded": True, "follows": True, "keeps_live": True, **state},
    )
    if ours is not None:
        log.ours = dict.fromkeys(Purpose, ours)
    if joined:
        request = Raw().connection.propose(proposal(1, expected_hash=None))
        log.theirs = {1: Theirs(request, PeerStage.CONFIRMED, joins=True)}
    return log


@cache
def asked(*, endless: bool) -> Request:
    """A request of ours that the peer has yet to answer."""
    end = None if endless else 9
    return Raw().connection.propose(proposal(1, expected_hash=None, end=end))


@cache
def fork_at(seqnum: int) -> ForkProof:
    """Two unsigned entries."""
    first, second = (
        Entry(
            family=YAMF,
            author=LOG.author,
            log_id=LOG.log_id,
            seqnum=seqnum,
            lipmaalink=YAMF.hash(b"") if has_lipmaalink(seqnum) else None,
            backlink=YAMF.hash(b"") if seqnum > 1 else None,
            payload_size=size,
            payload_hash=YAMF.hash(bytes(size)),
            signature=bytes(64),
            end_of_log=False,
        )
        for size in (1, 2)
    )
    return ForkProof(first, second)


def combined(**choices: tuple[Any, ...]) -> Iterator[LogState]:
    """Logs in all combinations of the choices."""
    for values in product(*choices.values()):
        yield log_of(**dict(zip(choices, values, strict=True)))


@cache
def logs_with_next() -> list[LogState]:
    return list(
        combined(
            position=(0, 1, 2),
            payload_due=(False, True),
            ranges=((), (Want.payload_of(2),)),
            fork=(None, 3),
            follows=(False, True),
            keeps_live=(False, True),
            offered=(None, 2),
            passed=(0, 2),
            refused=(False, True),
            rests=(False, True),
            begun=(0, 2),
            told=(None, Piece(2, Part.METADATA), Piece(2, Part.PAYLOAD)),
            joined=(False, True),
        )
    )


def proposal(start: int, **options: Any) -> Proposal:
    fields = {"lower_certpool": start, "expected_hash": b"theirs", **options}
    end = fields.get("end")
    return Proposal(log=LOG, start=start, upper_certpool=end, **fields)


# The tables


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
    """After its proposal it may end at any time; before that it cannot."""
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


def test_a_request_of_the_peer_is_answered_once() -> None:
    for stage, answers in PEER_STAGES.items():
        for said, after in answers.items():
            silent = said in (Answer.RECONSIDER, Answer.COMPARE, Answer.PASS, Answer.AWAIT_OURS)
            assert silent is (after in PEER_STAGES), (stage, said)


# Our requests


def test_nothing_is_proposed_beside_something_or_before_the_store_is_known() -> None:
    for stage, purpose in product(Stage, Purpose):
        for log in combined(
            ours=(Ours(stage),),
            loaded=(False, True),
            writing=(0, 1),
            appending=(0, 1),
            ranges=((), (Want(),)),
            fork=(None, 3),
        ):
            plan = decide(purpose, log)
            awaited = log.appending if purpose is Purpose.RANGE else log.writing
            if stage is Stage.IDLE and log.loaded and not awaited:
                assert plan == wish(purpose, log)
            else:
                assert plan is None


def test_what_is_wished_for_next() -> None:
    for log in logs_with_next():
        plan = wish(Purpose.NEXT, log)
        asks = plan is not None
        first = log.resumes
        offered = log.offered or 0
        known = max(log.position, log.passed)
        lacks = max(offered, log.begun) > known or (first and offered >= log.position)
        action = Action.RESUME if first else Action.GO_ON
        assert plan in (None, Plan(action, log.position, log.want))
        if not log.follows or log.refused:
            assert not asks
        elif lacks:
            assert asks
        elif not log.live:
            assert not asks
        elif log.fork_at is None and not log.rests:
            assert asks is (log.joined is None or log.told is None)
        else:
            # Only to report our entries, and that part of a payload is here.
            assert asks is (log.told is None or log.told < start_of_next(log))


def test_an_entry_that_is_in_doubt_goes_before_everything() -> None:
    for log in combined(probe=(1, 2), refused=(False, True), follows=(False, True)):
        assert wish(Purpose.NEXT, log) == Plan(Action.PROBE, log.probe or 0)


def test_where_what_comes_next_starts_and_ends() -> None:
    for log in logs_with_next():
        (start, part), end = start_of_next(log), end_of_next(log)
        assert start - log.position in (0, 1)
        assert (start == log.position) is (log.resumes)
        assert part is (Part.PAYLOAD if log.resumes else Part.METADATA)
        assert end is None or end == max(log.position, log.offered or 0, log.begun)
        if not log.live:
            assert end is not None
        if wish(Purpose.NEXT, log) is not None:
            assert end is None or end >= start  # never an empty range
            plan = Plan(Action.GO_ON, log.position, log.want)
            made = Propose(Purpose.NEXT, plan, proposal(start, end=end), {})
            assert still_wants(made, log)
            later = made._replace(proposal=proposal(start + 1, end=end))
            assert still_wants(later, log) is (end is not None)
            other = plan._replace(want=Want(size_max=1))
            assert not still_wants(made._replace(plan=other), log)


def test_ranges_and_forks() -> None:
    kinds = owed, *_ = Want(first=1, last=1), Want(first=1, last=1, eagerness=NOTIFY), Want()
    for log in combined(
        ranges=((), *((kind,) for kind in kinds), (owed, Want()), (Want(), Want())),
        fork=(None, 1, 3),
        fork_told=(None, 1, 2, 3),
    ):
        fetches = Plan(Action.FETCH_RANGE, 1, log.ranges[0]) if log.ranges else None
        assert wish(Purpose.RANGE, log) == fetches
        shown = wish(Purpose.FORK, log) == Plan(Action.SHOW_FORK, log.fork_at or 0)
        assert shown is (log.fork_at is not None and (log.fork_told or 9) > log.fork_at)
        for kind in kinds:
            plan = Plan(Action.FETCH_RANGE, 1, kind)
            made = Propose(Purpose.RANGE, plan, proposal(1, end=kind.last), {})
            assert still_wants(made, log) is (kind in log.ranges[:1])
        for start in (1, 3):
            plan = Plan(Action.SHOW_FORK, start)
            made = Propose(Purpose.FORK, plan, proposal(start, end=start), {})
            assert still_wants(made, log) is (shown and start == log.fork_at)


def test_what_has_settled() -> None:
    """Nothing while a proposal is being made; else all that waits for others or is complete."""
    waiting = {Stage.QUEUED, Stage.TURNED_AWAY, Stage.DEFERRED}
    for stage, endless in product(Stage, (False, True)):
        for log in combined(
            ours=(Ours(stage, asked(endless=True) if endless else None),),
            ranges=((), (Want(),)),
            refused=(False, True),
            rests=(False, True),
            follows=(False, True),
            keeps_live=(False, True),
            offered=(None, 2),
            begun=(0, 3),
            passed=(0, 2, 3),
        ):
            wanted = log.follows
            behind = wanted and log.offered == 2 and not log.passed
            lacks = wanted and max(log.offered or 0, log.begun) > log.passed
            settled = {purpose: is_settled(purpose, log) for purpose in Purpose}
            if stage is Stage.PREPARING:
                assert not any(settled.values())
                continue
            assert settled[Purpose.FORK]
            assert settled[Purpose.RANGE] is (endless or not log.ranges or stage in waiting)
            refused = log.refused
            assert settled[Purpose.NEXT] is (refused or not behind or stage in waiting)
            for patient in (False, True):
                rests = not lacks and (log.offered is not None or not patient)
                assert may_rest(log, patient=patient) is rests
                # Without movement, data that has come but is not stored is part of a payload.
                growing = replace(log, writing=1)
                assert may_rest(growing, patient=patient) is (rests and not patient)


# The peer's requests


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
        for log in combined(
            position=(0, 2),
            newest=(2, 4),
            end=(None, 2),
            fork=(None, 1, 3),
        ):
            said = answer(made, log)
            forked = log.fork_at is not None and made.start >= log.fork_at
            assert (said in (Answer.SHOW_FORK, Answer.REFUSE)) is forked
            if forked:
                assert log.fork_at is not None
                assert (said is Answer.SHOW_FORK) is (made.first_seqnum >= log.fork_at)
                continue
            over = log.ended and made.first_seqnum > log.position
            assert (said is Answer.SHOW_END) is over
            if not over:
                known = made.expected_seqnum <= log.newest
                assert said is (Answer.COMPARE if known else Answer.PASS)


def test_what_it_is_answered_after_comparing() -> None:
    found = [None, stored(b"ours", 9), stored(b"theirs", 2), stored(b"theirs", 7)]
    for made, ours in product(proposals(), found):
        for log in combined(
            position=(0, 3),
            newest=(2, 4),
            payload_due=(False, True),
            follows=(False, True),
            keeps_live=(False, True),
            serves_stored=(False, True),
        ):
            said = answer_compared(made, log, ours)
            assert (said is Answer.SHOW_ENTRY) is (ours is not None and ours.hash == b"ours")
            if said is Answer.SHOW_ENTRY:
                continue
            wanted = is_wanted(made, log)
            endless = made.end is None and not made.payload_only
            assert wanted is (endless and log.live)
            if not wanted and not log.serves_stored:
                assert said is Answer.PASS
            elif made.end is not None:
                assert (said is Answer.CONFIRM) is (made.first_seqnum <= log.newest)
            elif made.start > log.position + 1:
                assert said is Answer.PASS  # otherwise there would be a gap
            elif made.start < log.position:
                assert said is Answer.CONFIRM


def test_a_fork_that_comes_to_be_known_meanwhile_is_not_confirmed() -> None:
    """The range's beginning may have been cut off while the store was asked for it."""
    for made in proposals():
        for log in combined(position=(3,), newest=(4,), fork=(1, 2, 3, 9)):
            said = answer_compared(made, log, None)
            cut = cut_off(made, log)
            assert cut is None or said is not Answer.CONFIRM
            assert said in (cut, Answer.PASS, Answer.CONFIRM)
            if cut is not None and made.end is not None and made.first_seqnum <= 4:
                assert said is cut


def test_a_proposal_is_kept_waiting_only_for_one_of_ours_that_displaces_it() -> None:
    for made, stage, unanswered in product(proposals(), Stage, (False, True)):
        ours = Ours(stage, asked(endless=False) if unanswered else None)
        refused = {"follows": (False, True), "refused": (False, True)}
        rests = {"rests": (False, True), "told": (None, Piece(9, Part.METADATA))}
        for log in combined(position=(0, 2, 4), ours=(ours,), **refused, **rests):
            said = give_way(made, log)
            coming = unanswered or stage is Stage.PREPARING
            displaces = coming and log.live and start_of_next(log).seqnum < made.start
            assert (said is Answer.AWAIT_OURS) is displaces
            if not displaces:
                comes = is_wanted(made, log) and not log.refused
                assert (said is Answer.REFUSE) is not comes
                at_rest = comes and log.rests and not lacks_next(log)
                assert (said is Answer.FINISH) is at_rest


def test_every_answer_has_its_place_in_the_table() -> None:
    """Every decision about a request of the peer can be taken at its stage, and no others can."""
    said: dict[PeerStage, set[Answer]] = {stage: set() for stage in PEER_STAGES}
    for made in proposals():
        for log in combined(
            position=(0, 2),
            newest=(2, 4),
            end=(None, 2),
            fork=(None, 3),
            ours=(Ours(), Ours(Stage.PREPARING)),
            rests=(False, True),
            told=(None, Piece(9, Part.METADATA)),
        ):
            found = (None, stored(b"ours", 9))
            compared = {answer_compared(made, log, ours) for ours in found}
            compared.add(cut_off(made, log) or Answer.CONFIRM)
            said[PeerStage.WAITING].add(answer(made, log))
            said[PeerStage.COMPARING] |= compared
            said[PeerStage.PASSED].add(give_way(made, log))
    said[PeerStage.AWAITING_OURS] = {Answer.RECONSIDER, Answer.DEFER}  # or for credit
    assert said == {stage: set(answers) for stage, answers in PEER_STAGES.items()}


def test_ranges_end_before_a_fork() -> None:
    for log, upper in product(combined(fork=(None, 1, 3)), (None, 1, 2, 3, 4)):
        last = last_before_fork(log, upper)
        over = log.fork_at is not None and (upper is None or upper >= log.fork_at)
        assert last == (log.fork_at - 1 if over and log.fork_at is not None else None)


def test_stages_are_told_apart_by_their_words() -> None:
    stages = (Stage, PeerStage, Step, Action, Answer, Purpose)
    for kind in stages:
        assert len({member.value for member in kind}) == len(kind)


@pytest.mark.parametrize(
    ("newest", "upper"), [(5, 5), (6, 6), (8, 8), (11, 8), (12, 12), (13, 13), (99, 13)]
)
def test_a_range_includes_all_of_its_upper_pool_that_the_peer_has(newest: int, upper: int) -> None:
    """The pool of entry 5 is 6, 7, 8, 12 and 13."""
    (log,) = combined(offered=(newest,))
    found = propose(log, Plan(Action.FETCH_RANGE, 1, Want(first=1, last=5)), {}, None)
    assert found is not None
    assert (found.end, found.upper_certpool) == (5, upper)
