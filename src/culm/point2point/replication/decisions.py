"""Our proposals for a log and our answers to the peer, decided from its state alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Unpack

from culm.bamboo.entry import LogKey
from culm.bamboo.links import lipmaa, lower_pool, upper_pool
from culm.bamboo.records import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.point2point.handles import Request
from culm.point2point.messages import Proposal, Wishes
from culm.point2point.pieces import Part, Piece
from culm.point2point.replication.events import Want
from culm.point2point.replication.log_state import LogState, is_owed
from culm.point2point.replication.steps import Action, Answer, Plan, Propose, Purpose, Stage

# Room is not owed.
_WITHOUT_ROOM: Final = frozenset({Stage.QUEUED, Stage.TURNED_AWAY, Stage.DEFERRED})
_Links = Mapping[int, bytes]  # hashes of stored entries, by sequence number


# Our requests.


def decide(purpose: Purpose, log: LogState) -> Plan | None:
    """The proposal to make now for that purpose."""
    if log.ours[purpose].stage is not Stage.IDLE or not log.loaded:
        return None
    # Entries on their way into the store would be fetched again; a payload may never come.
    if log.appending if purpose is Purpose.RANGE else log.writing:
        return None
    return wish(purpose, log)


def wish(purpose: Purpose, log: LogState) -> Plan | None:
    """The proposal to make, if nothing is under way."""
    fork, told = log.fork_at, log.fork_told
    if log.withdrawn:
        return None
    match purpose:
        case Purpose.NEXT if log.probe is not None:
            return Plan(Action.PROBE, log.probe)
        case Purpose.NEXT if lacks_next(log):
            return Plan(Action.RESUME if log.resumes else Action.GO_ON, log.position, log.want)
        case Purpose.RANGE if log.ranges:
            return Plan(Action.FETCH_RANGE, log.ranges[0].first or 1, log.ranges[0])
        case Purpose.FORK if fork is not None and (told is None or told > fork):
            return Plan(Action.SHOW_FORK, fork)
        case _:
            return None


def lacks_next(log: LogState) -> bool:
    """Whether to propose the entries after ours."""
    if log.refused or not log.follows:
        return False
    return _is_endless(log) or _is_behind(log) or _lacks_begun(log)


def start_of_next(log: LogState) -> Piece:
    """The piece at which a proposal for the next entries starts."""
    if log.resumes:
        return Piece(log.position, Part.PAYLOAD)
    return Piece(log.position + 1, Part.METADATA)


def start_of(proposal: Proposal) -> Piece:
    """The piece at which the range of a proposal starts: its sender has all before it."""
    inside = proposal.start_offset is not None
    return Piece(proposal.start, Part.PAYLOAD if inside else Part.METADATA)


def end_of_next(log: LogState) -> int | None:
    """The last entry of such a proposal; ``None``: it has no end."""
    return None if _is_endless(log) else max(log.last_offered, log.last_begun, log.position)


def still_wants(waiting: Propose, log: LogState) -> bool:
    """Whether a proposal that has waited for credit is still the right one."""
    proposal, plan = waiting.proposal, waiting.plan
    match waiting.purpose:
        case Purpose.NEXT if plan.is_next and plan.want != log.want:
            return False
        case Purpose.NEXT if proposal.end is None:
            return proposal.start == start_of_next(log).seqnum and _is_endless(log)
        case Purpose.NEXT:
            return True
        case Purpose.RANGE | Purpose.FORK:
            return plan == wish(waiting.purpose, log)


def is_settled(purpose: Purpose, log: LogState) -> bool:
    """Whether nothing is under way that will end by itself."""
    ours, stage = log.ours[purpose], log.ours[purpose].stage
    if stage is Stage.PREPARING:  # the store will answer
        return False
    if stage in _WITHOUT_ROOM:
        return True
    match purpose:
        case Purpose.NEXT:
            return log.refused or not _is_behind(log)
        case Purpose.RANGE:
            # An answer is owed; until it is there others may go without room.
            may_stay = ours.request is not None and log.ranges and not is_owed(log.ranges[0])
            return ours.unanswered or not log.ranges or bool(may_stay)
        case Purpose.FORK:
            return True


def may_rest(log: LogState, *, patient: bool) -> bool:
    """Whether both have all there is of the log.

    If not `patient`, as far as is known, and but for the rest of a payload that does not come.
    """
    if _is_behind(log) or _lacks_begun(log):
        return False
    return not patient or (not log.writing and log.offered is not None)


def range_may_rest(log: LogState, request: Request, *, patient: bool) -> bool:
    """Whether a request for a range is not owed, and its sender has no more of it.

    If not `patient`, as far as is known.
    """
    if is_owed(request.proposal):
        return False
    due = request.receive_cursor.piece if request.ours else request.send_cursor.piece
    if not patient or due is None:
        return due is not None
    if request.ours:
        return not log.writing and log.offered is not None and due.seqnum > log.last_offered
    return due.seqnum > log.newest


def _is_behind(log: LogState) -> bool:
    """Whether the peer has entries for us."""
    if not log.follows:
        return False
    position, offered = log.position, log.last_offered
    if max(position, log.passed) < offered:
        return True
    return log.resumes and position <= offered


def _lacks_begun(log: LogState) -> bool:
    """Whether the peer has an entry for us of whose payload it may have a part only."""
    return log.follows and max(log.position, log.passed) < log.last_begun


def _is_endless(log: LogState) -> bool:
    """Whether a proposal without end is due.

    If the log is forked, or a request of the peer is open already, it only tells the peer of our
    entries, and is cancelled at once.
    """
    if not log.live:
        return False
    if log.fork_at is None and not log.rests:
        return log.joined is None or log.told is None
    return log.told is None or log.told < start_of_next(log)


# Proposals.


def propose(
    log: LogState, plan: Plan, links: _Links, begun: PayloadVerifier | None
) -> Proposal | None:
    """The proposal; ``None`` if a link that it needs is missing.

    `links`: the hashes of those of `Plan.links` that are stored.  `begun`: the stored part of the
    payload of `Plan.entry`, unless that is complete.
    """
    match plan.action:
        case Action.PROBE:
            return _propose_from(log.log, plan.seqnum, plan.seqnum, links, size_max=0)
        case Action.SHOW_FORK:
            # Begins inside the payload, so that neither side needs to know anything before it.
            assert log.fork is not None
            hash = log.fork.first.hash()
            return Proposal.of_payload(log.log, log.fork.seqnum, offset=0, hash=hash)
        case Action.RESUME | Action.GO_ON:
            end = end_of_next(log)
            if begun is not None:
                return _propose_rest(begun, plan.want, end=end, upper=end)
            return _propose_from(log.log, plan.seqnum + 1, end, links, **plan.want.wishes())
        case _:
            return _propose_range(log, plan.want, links, begun)


def _propose_from(
    log: LogKey, start: int, end: int | None, links: _Links, **wishes: Unpack[Wishes]
) -> Proposal | None:
    link = links.get(lipmaa(start))
    if link is None and start > 1:
        return None
    return Proposal.of_range(log, start, end, link=link, **wishes)


def _propose_range(
    log: LogState, want: Want, links: _Links, begun: PayloadVerifier | None
) -> Proposal:
    """A range, with the entries that we lack of the certificate pools around it.

    If we lack nothing of the lower pool, it begins where a payload that was begun ends; but behind
    a gap one without end has an entry of it, as it would seem to offer all before it.
    """
    start, end, upper = want.first or 1, want.last, None
    if end is not None:
        above = [] if want.payload_only else upper_pool(end)
        upper = max([end, *(n for n in above if n <= log.last_offered)])
    *pool, _ = lower_pool(start)
    behind_gap = end is None and not want.payload_only and start > log.position + 1
    lowest = next((n for n in pool if n not in links), pool[-1] if behind_gap else start)
    complete = lowest == start  # our part of the pool
    if begun and begun.size and complete and want.admits_payload(begun.entry.payload_size):
        return _propose_rest(begun, want, end=end, upper=upper)
    return Proposal(
        log=log.log,
        start=start,
        lower_certpool=lowest,
        expected_hash=links[lipmaa(lowest)] if lowest > 1 else None,
        end=end,
        upper_certpool=upper,
        **want.wishes(),
    )


def _propose_rest(
    begun: PayloadVerifier, want: Want, *, end: int | None, upper: int | None
) -> Proposal:
    entry = begun.entry
    rest = Proposal.of_payload(
        entry.log, entry.seqnum, offset=begun.size, hash=entry.hash(), **want.wishes()
    )
    return replace(rest, end=end, upper_certpool=upper)


# The peer's requests.


def answer(proposal: Proposal, log: LogState) -> Answer:
    """The answer to a proposal of the peer, once our store's part of the log is known."""
    forked = cut_off(proposal, log)
    if forked is not None:
        return forked
    if log.ended and proposal.first_seqnum > log.position:
        return Answer.SHOW_END
    if proposal.expected_seqnum > log.newest:
        return Answer.PASS
    return Answer.COMPARE


def cut_off(proposal: Proposal, log: LogState) -> Answer | None:
    """The answer to a request of either side that begins at the fork or after it."""
    fork = log.fork_at
    if fork is None or proposal.start < fork:
        return None
    # Something of its certificate pool may come before the fork.
    return Answer.REFUSE if proposal.first_seqnum < fork else Answer.SHOW_FORK


def answer_compared(proposal: Proposal, log: LogState, stored: StoredEntry | None) -> Answer:
    """The same after the look: `stored` is our entry in the place whose hash the peer sent."""
    if stored is not None and stored.hash != proposal.expected_hash:
        return Answer.SHOW_ENTRY
    if not _in_reach(proposal, log, stored):
        return Answer.PASS
    return cut_off(proposal, log) or Answer.CONFIRM


def give_way(proposal: Proposal, log: LogState) -> Answer:
    """The answer to a proposal in which we do not take part.

    If a proposal of ours for the next entries begins before it, the overlap rule drops it.
    """
    ours = log.ours[Purpose.NEXT]
    coming = ours.stage is Stage.PREPARING or ours.unanswered
    if coming and log.live and start_of_next(log).seqnum < proposal.start:
        return Answer.AWAIT_OURS
    if log.refused or not is_wanted(proposal, log):
        return Answer.REFUSE
    # Else nobody would ask for it again; at rest, only news have to be told.
    return Answer.FINISH if log.rests and not lacks_next(log) else Answer.DEFER


def is_wanted(proposal: Proposal, log: LogState) -> bool:
    """Whether we want the peer's entries there, now and later."""
    endless = proposal.end is None and not proposal.payload_only
    return endless and log.live


def shows_next(proposal: Proposal, log: LogState) -> bool:
    """Whether the peer has the entries after ours if it has passed over those of that range."""
    runs_on = proposal.end is None and not (proposal.payload_only or proposal.sparse)
    return runs_on and log.follows and proposal.first_seqnum <= log.position + 1


def _in_reach(proposal: Proposal, log: LogState, stored: StoredEntry | None) -> bool:
    """Whether the range begins where our log ends, or before.

    `stored` is the entry inside whose payload the range starts, if it does.
    """
    wanted = is_wanted(proposal, log)
    # Who has few requests asks with an end for what has been offered.
    offered = log.live and log.told is not None and (proposal.end or 0) >= log.told.seqnum - 1
    if not (wanted or log.serves_stored or offered):
        return False
    if proposal.end is not None:  # without being owed, it may begin with the next entry
        return proposal.first_seqnum <= log.newest + (not is_owed(proposal))
    if not wanted:
        return proposal.start <= log.position
    if proposal.start == log.position and log.payload_due:
        # The peer may have more than we of the payload that is due to both.
        return stored is None or (proposal.start_offset or 0) <= stored.payload_stored
    return start_of(proposal) <= start_of_next(log)


def last_before_fork(log: LogState, upper_certpool: int | None) -> int | None:
    """The entry before the fork, if a range with that pool reaches past it."""
    fork = log.fork_at
    if fork is None or (upper_certpool is not None and upper_certpool < fork):
        return None
    return fork - 1
