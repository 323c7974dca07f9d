"""Our proposals for a log and our answers to the peer, decided from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Unpack

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa, lower_pool, upper_pool
from culm.bamboo.records import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.point2point.messages import Proposal, Wishes
from culm.point2point.pieces import Part, Piece
from culm.point2point.replication import steps
from culm.point2point.replication.events import Want
from culm.point2point.replication.steps import Action, Aim, Answer, Facts, Purpose, Stage

# Room is not owed.
_WITHOUT_ROOM: Final = frozenset({Stage.QUEUED, Stage.TURNED_AWAY, Stage.DEFERRED})
_Links = Mapping[int, bytes]  # hashes of stored entries, by sequence number


# Our requests.


def decide(purpose: Purpose, stage: Stage, facts: Facts) -> Action:
    """The action for our request for that purpose."""
    # Entries still on their way into the store would be fetched again.
    if stage is not Stage.IDLE or facts.stock is not steps.Stock.KNOWN:
        return Action.WAIT
    return wish(purpose, facts)


def wish(purpose: Purpose, facts: Facts) -> Action:
    """The proposal to make, if nothing is under way."""
    match purpose:
        case Purpose.NEXT:
            return _wish_for_next(facts)
        case Purpose.RANGE:
            return Action.FETCH_RANGE if facts.ranges else Action.WAIT
        case Purpose.FORK:
            fork, told = facts.fork, facts.fork_told
            knows = fork is None or (told is not None and told <= fork)
            return Action.WAIT if knows else Action.SHOW_FORK


def _wish_for_next(facts: Facts) -> Action:
    if facts.probe is not None:
        return Action.PROBE
    if not lacks_next(facts):
        return Action.WAIT
    return Action.RESUME if facts.payload is steps.HeadPayload.DUE else Action.GO_ON


def lacks_next(facts: Facts) -> bool:
    """Whether to propose the entries after ours."""
    if facts.standing is steps.Standing.REFUSED or facts.aim is Aim.RANGES:
        return False
    return _is_endless(facts) or _is_behind(facts) or _lacks_begun(facts)


def start_of_next(facts: Facts) -> Piece:
    """The piece at which a proposal for the next entries starts."""
    if facts.payload is steps.HeadPayload.DUE:
        return Piece(facts.position, Part.PAYLOAD)
    return Piece(facts.position + 1, Part.METADATA)


def start_of(proposal: Proposal) -> Piece:
    """The piece at which the range of a proposal starts: its sender has all before it."""
    inside = proposal.start_offset is not None
    return Piece(proposal.start, Part.PAYLOAD if inside else Part.METADATA)


def end_of_next(facts: Facts) -> int | None:
    """The last entry of such a proposal; ``None``: it has no end."""
    return None if _is_endless(facts) else max(facts.offered or 0, facts.begun, facts.position)


def still_wants(purpose: Purpose, proposal: Proposal, facts: Facts) -> bool:
    """Whether a proposal that has waited for credit is still the right one."""
    match purpose:
        case Purpose.NEXT:
            current = proposal.start == start_of_next(facts).seqnum and _is_endless(facts)
            return proposal.end is not None or current
        case Purpose.RANGE:
            return True
        case Purpose.FORK:
            shows = wish(purpose, facts) is Action.SHOW_FORK
            return shows and proposal.start == facts.fork


def is_settled(purpose: Purpose, stage: Stage, facts: Facts, *, endless: bool) -> bool:
    """Whether nothing is under way that will end by itself.

    `endless`: there is a request, and it has no end.
    """
    if stage is Stage.PREPARING:  # the store will answer
        return False
    if stage in _WITHOUT_ROOM:
        return True
    match purpose:
        case Purpose.NEXT:
            return facts.standing is steps.Standing.REFUSED or not _is_behind(facts)
        case Purpose.RANGE:
            return endless or not facts.ranges
        case Purpose.FORK:
            return True


def may_rest(facts: Facts, *, patient: bool) -> bool:
    """Whether both have all there is of the log.

    If not `patient`, as far as is known, and but for the rest of a payload that does not come.
    """
    if _is_behind(facts) or _lacks_begun(facts):
        return False
    return not patient or (facts.stock is not steps.Stock.GROWING and facts.offered is not None)


def _is_behind(facts: Facts) -> bool:
    """Whether the peer has entries for us."""
    if facts.aim is Aim.RANGES:
        return False
    position, offered = facts.position, facts.offered or 0
    if max(position, facts.passed) < offered:
        return True
    return facts.payload is steps.HeadPayload.DUE and position <= offered


def _lacks_begun(facts: Facts) -> bool:
    """Whether the peer has an entry for us of whose payload it may have a part only."""
    return facts.aim is not Aim.RANGES and max(facts.position, facts.passed) < facts.begun


def _is_endless(facts: Facts) -> bool:
    """Whether a proposal without end is due.

    If the log is forked, or a request of the peer is open already, it only tells the peer of our
    entries, and is cancelled at once.
    """
    if facts.aim is not Aim.LIVE:
        return False
    if facts.fork is None and facts.standing is not steps.Standing.RESTING:
        return facts.joined is None or facts.told is None
    return facts.told is None or facts.told < start_of_next(facts)


# Proposals.


def propose(
    log: LogKey, plan: steps.Plan, facts: Facts, links: _Links, begun: PayloadVerifier | None
) -> Proposal | None:
    """The proposal; ``None`` if a link that it needs is missing, or it is no longer wanted.

    `links`: the hashes of those of `Plan.links` that are stored.  `begun`: the stored part of the
    payload of `Plan.entry`, unless that is complete.
    """
    match plan.action:
        case Action.PROBE:
            return _propose_from(log, plan.seqnum, plan.seqnum, links, size_max=0)
        case Action.RESUME if begun is None:
            return None
        case Action.RESUME | Action.GO_ON if lacks_next(facts):
            end = end_of_next(facts)
            if begun is not None:
                return _propose_rest(begun, plan.want, end=end, upper=end)
            return _propose_from(log, plan.seqnum + 1, end, links, **plan.want.wishes())
        case Action.FETCH_RANGE:
            return _propose_range(log, plan.want, links, begun, newest=facts.offered or 0)
        case _:
            return None


def _propose_from(
    log: LogKey, start: int, end: int | None, links: _Links, **wishes: Unpack[Wishes]
) -> Proposal | None:
    link = links.get(lipmaa(start))
    if link is None and start > 1:
        return None
    return Proposal.of_range(log, start, end, link=link, **wishes)


def _propose_range(
    log: LogKey, want: Want, links: _Links, begun: PayloadVerifier | None, *, newest: int
) -> Proposal:
    """A range, with the entries that we lack of the certificate pools around it.

    If we lack nothing of the lower pool, it begins where a payload that was begun ends.
    `newest`: the last entry that the peer is known to have.
    """
    start, end, upper = want.first or 1, want.last, None
    if end is not None:
        above = [] if want.payload_only else upper_pool(end)
        upper = max([end, *(n for n in above if n <= newest)])
    lowest = next((n for n in lower_pool(start) if n not in links), start)
    complete = lowest == start  # our part of the pool
    if begun and begun.size and complete and want.admits_payload(begun.entry.payload_size):
        return _propose_rest(begun, want, end=end, upper=upper)
    return Proposal(
        log=log,
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


def propose_forked(proof: ForkProof) -> Proposal:
    """The forked entry, in a proposal that is to be cancelled with `proof`.

    It begins inside the payload, so that neither side needs to know anything before it.
    """
    return Proposal.of_payload(proof.log, proof.seqnum, offset=0, hash=proof.first.hash())


# The peer's requests.


def answer(proposal: Proposal, facts: Facts) -> Answer:
    """The answer to a proposal of the peer, once our store's part of the log is known."""
    forked = cut_off(proposal, facts)
    if forked is not None:
        return forked
    if facts.end is not None and proposal.first_seqnum > facts.end:
        return Answer.SHOW_END
    if proposal.expected_seqnum > facts.newest:
        return Answer.PASS
    return Answer.COMPARE


def cut_off(proposal: Proposal, facts: Facts) -> Answer | None:
    """The answer to a request of either side that begins at the fork or after it."""
    if facts.fork is None or proposal.start < facts.fork:
        return None
    # Something of its certificate pool may come before the fork.
    return Answer.REFUSE if proposal.first_seqnum < facts.fork else Answer.SHOW_FORK


def answer_compared(proposal: Proposal, facts: Facts, stored: StoredEntry | None) -> Answer:
    """The same after the look: `stored` is our entry in the place whose hash the peer sent."""
    if stored is not None and stored.hash != proposal.expected_hash:
        return Answer.SHOW_ENTRY
    if not _in_reach(proposal, facts, stored):
        return Answer.PASS
    return cut_off(proposal, facts) or Answer.CONFIRM


def give_way(proposal: Proposal, facts: Facts, stage: Stage, *, unanswered: bool) -> Answer:
    """The answer to a proposal in which we do not take part.

    If a proposal of ours begins before it, the overlap rule drops it.  `stage` is that of our
    request for the next entries, and `unanswered` whether the peer has yet to answer that.
    """
    coming = stage is Stage.PREPARING or unanswered
    if coming and facts.aim is Aim.LIVE and start_of_next(facts).seqnum < proposal.start:
        return Answer.AWAIT_OURS
    return Answer.DEFER if is_wanted(proposal, facts) else Answer.REFUSE


def is_wanted(proposal: Proposal, facts: Facts) -> bool:
    """Whether we want the peer's entries there, now and later."""
    endless = proposal.end is None and not proposal.payload_only
    return endless and facts.aim is Aim.LIVE


def _in_reach(proposal: Proposal, facts: Facts, stored: StoredEntry | None) -> bool:
    """Whether the range begins where our log ends, or before.

    `stored` is the entry inside whose payload the range starts, if it does.
    """
    wanted = is_wanted(proposal, facts)
    if not wanted and facts.service is steps.Service.NOTHING:
        return False
    if proposal.end is not None:
        return proposal.first_seqnum <= facts.newest
    if not wanted:
        return proposal.start <= facts.position
    if proposal.start == facts.position and facts.payload is not steps.HeadPayload.SETTLED:
        # The peer may have more than we of the payload that is due to both.
        return stored is None or (proposal.start_offset or 0) <= stored.payload_stored
    return proposal.start <= start_of_next(facts).seqnum


def last_before_fork(facts: Facts, upper_certpool: int | None) -> int | None:
    """The entry before the fork, if a range with that pool reaches past it."""
    if facts.fork is None or (upper_certpool is not None and upper_certpool < facts.fork):
        return None
    return facts.fork - 1


def links_of(proof: ForkProof) -> list[tuple[int, bytes]]:
    """The links of both entries of a fork."""
    before, skipped = proof.seqnum - 1, lipmaa(proof.seqnum)
    return [
        (seqnum, link)
        for entry in (proof.first, proof.second)
        for seqnum, link in ((before, entry.backlink), (skipped, entry.lipmaalink))
        if link is not None
    ]
