"""What we propose for one log, and what we answer to what the peer proposes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from culm.bamboo.effects import LogStatus
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import open_targets
from culm.bamboo.verify import PayloadVerifier
from culm.machine import Event
from culm.point2point.handles import Request
from culm.point2point.messages import NOTIFY, CancelReason, Proposal
from culm.point2point.replication.decisions import (
    Action,
    Plan,
    answer,
    answer_compared,
    decide,
    give_way,
    is_settled,
    is_wanted,
    last_before_fork,
    propose,
    propose_forked,
    still_wants,
)
from culm.point2point.replication.events import LogRefused, LogSynced, Want
from culm.point2point.replication.inventory import Inventory
from culm.point2point.replication.states import (
    PEER_STAGES,
    PROGRESS,
    STAGES,
    STANDINGS,
    WANTED,
    Answer,
    Change,
    Facts,
    Fetch,
    PeerStage,
    Progress,
    Purpose,
    Stage,
    Standing,
    Step,
)
from culm.point2point.states import RequestState

__all__ = ["LogOfRequests", "OurRequest", "OurRequests", "PeerRequests", "Prepared"]


_UNDER_WAY = frozenset({RequestState.PROPOSED_BY_US, RequestState.CONFIRMED})
_STEPS = {
    CancelReason.END_OF_RANGE: Step.PEER_FINISHES,
    CancelReason.RESOURCE_LIMIT: Step.PEER_DEFERS,
}
# After these the same is proposed again, or what comes before the fork.
_GOES_ON = frozenset({*_STEPS, CancelReason.FORK})


class OurRequest:
    """One proposal of ours at a time, from the wish to the end of the request."""

    __slots__ = ("handle", "purpose", "stage")

    def __init__(self, purpose: Purpose) -> None:
        self.purpose = purpose
        self.stage = Stage.IDLE
        self.handle: Request | None = None  # from its proposal to its end

    def step(self, step: Step) -> None:
        """Something has happened to it."""
        self.stage = STAGES[self.stage][step]

    def make_room(self) -> None:
        """If there was no room for it, there may be now."""
        if Step.MAKE_ROOM in STAGES[self.stage]:
            self.step(Step.MAKE_ROOM)

    def sent(self, handle: Request) -> None:
        """It has been proposed."""
        self.step(Step.SEND)
        self.handle = handle

    def ended(self) -> Request:
        """It is over, or counts as never made; returns its handle."""
        handle, self.handle = self.handle, None
        assert handle is not None
        self.step(Step.END)
        return handle

    def cancel(self, reason: CancelReason) -> None:
        """End it, if it has been proposed."""
        if self.handle is not None and self.handle.state in _UNDER_WAY:
            self.handle.cancel(reason)

    @property
    def unanswered(self) -> bool:
        """Whether the peer has to answer it."""
        return self.handle is not None and self.handle.unanswered

    @property
    def is_turned_away(self) -> bool:
        """Whether there was no room for it, and there is none yet as far as we know."""
        return self.stage in (Stage.TURNED_AWAY, Stage.DEFERRED)

    def is_settled(self, facts: Facts) -> bool:
        """Whether nothing is under way for it that will end by itself."""
        endless = self.handle is not None and self.handle.proposal.end is None
        return is_settled(self.purpose, self.stage, facts, endless=endless)


class Prepared(NamedTuple):
    """A proposal that we want to make, and what we know of what it is about.

    `begun`: has hashed the payload up to where the range begins, if that is inside it.
    """

    plan: Plan
    proposal: Proposal
    links: dict[int, bytes]
    begun: PayloadVerifier | None = None


class LogOfRequests(Protocol):
    """What requests need of their log; see `Replica`."""

    @property
    def facts(self) -> Facts: ...

    def emit(self, event: Event) -> None: ...

    def propose(self, ours: OurRequest, prepared: Prepared) -> None: ...

    def unsettle(self) -> None: ...

    def propose_wanted(self) -> None: ...

    def tell_news(self) -> None: ...

    def confirmed(self, request: Request) -> None: ...


class OurRequests:
    """Our request for each purpose, and what we want of them.

    An entry of which the peer may have a different one (`probe`) goes before what comes next.
    """

    def __init__(self, log: LogOfRequests, inventory: Inventory) -> None:
        self.next = OurRequest(Purpose.NEXT)
        self.range = OurRequest(Purpose.RANGE)
        self.fork = OurRequest(Purpose.FORK)
        self.probe: int | None = None
        self.standing = Standing.LASTING
        self.told = 0  # the peer knows that we have all before this entry
        self.fork_told: int | None = None  # the first forked entry that it knows of
        self.ranges: deque[Want] = deque()
        self._progress = Progress.COMING  # of the first of them
        self._peer_end: int | None = None  # where it says that the log ends, before a range does
        self._log = log
        self._inventory = inventory

    def __iter__(self) -> Iterator[OurRequest]:
        return iter((self.next, self.range, self.fork))

    def of(self, request_id: int) -> OurRequest | None:
        """The one that has that id."""
        for ours in self:
            if ours.handle is not None and ours.handle.request_id == request_id:
                return ours
        return None

    # What is wanted.

    def fetches_payload(self, seqnum: int) -> bool:
        """Whether the payload of that entry is to be fetched by itself."""
        return Want.payload_of(seqnum) in self.ranges

    def add_range(self, want: Want, *, again: bool = False) -> None:
        """Fetch another range; `again`: even if it is the one that is being fetched."""
        if again and self.range.handle is not None and want == self.ranges[0]:
            self._progress = PROGRESS[self._progress][Fetch.LOSE]
        if want not in self.ranges:
            self.ranges.append(want)
        self.range.make_room()
        self.propose_wanted([self.range])

    def ask_for_end(self, seqnum: int) -> None:
        """The peer says that the log ends there, before what we have asked for: fetch that entry.

        Once is enough: a peer that then names another entry has nothing to show for it.
        """
        if self.ranges and self._peer_end is None:
            self._peer_end = seqnum
            self.ranges.append(
                replace(self.ranges[0], first=seqnum, last=seqnum, sparse=False, payload_only=False)
            )

    def compare(self, seqnum: int) -> None:
        """The peer may have a different entry of that number: ask for it."""
        self.probe = seqnum

    def change(self, change: Change) -> None:
        """Something has changed about what comes next."""
        self.standing = STANDINGS[self.standing][change]

    def wake(self) -> None:
        """The user wants the log now."""
        self.change(Change.WAKE)
        self.next.make_room()

    def show_fork(self, request: Request, fork: ForkProof) -> None:
        """Cancel a request to show the peer the fork."""
        self.peer_knows(fork)
        request.cancel(CancelReason.FORK, proof=fork)

    def peer_knows(self, fork: ForkProof) -> None:
        """The peer has seen that proof, or will."""
        self.fork_told = min(fork.seqnum, self.fork_told or fork.seqnum)

    # From the wish to the proposal.

    def propose_wanted(self, requests: Iterable[OurRequest]) -> None:
        """Propose what is wanted, where nothing is under way."""
        facts = self._log.facts
        for ours in requests:
            action = decide(ours.purpose, ours.stage, facts)
            if action is not Action.WAIT:
                ours.step(Step.PREPARE)
                self._log.unsettle()
                self._prepare(ours, action)
                facts = self._log.facts

    def _propose_anew(self, ours: OurRequest) -> None:
        """What was about to be proposed is out of date."""
        ours.step(Step.OVERTAKE)
        self.propose_wanted([ours])

    def _prepare(self, ours: OurRequest, action: Action) -> None:
        """Find out what the proposal needs."""
        inventory, plan = self._inventory, self._plan(action)
        if action is Action.SHOW_FORK:
            assert inventory.fork is not None
            self._offer(ours, Prepared(plan, propose_forked(inventory.fork), {}))
        else:
            inventory.read(partial(self._found, ours, plan), entry=plan.entry, hashes=plan.links)

    def _plan(self, action: Action) -> Plan:
        match action:
            case Action.PROBE:
                return Plan(action, self.probe or 0, Want())
            case Action.FETCH_RANGE:
                return Plan(action, self.ranges[0].first or 1, self.ranges[0])
            case _:
                return Plan(action, self._inventory.position, self._inventory.want)

    def _found(self, ours: OurRequest, plan: Plan, status: LogStatus) -> None:
        stored = status.entry
        if stored is None or stored.payload_complete:
            if plan.action is Action.RESUME:
                self._inventory.payload_over(plan.seqnum)
            self._make(ours, plan, status.hashes, None)
        else:
            self._inventory.read_back(stored, partial(self._make, ours, plan, status.hashes))

    def _make(
        self, ours: OurRequest, plan: Plan, links: dict[int, bytes], begun: PayloadVerifier | None
    ) -> None:
        """Make the proposal, unless the log or what is wanted of it has changed meanwhile."""
        proposal = None
        if plan == self._plan(plan.action):
            if plan.action is Action.PROBE:
                self.probe = None
            proposal = propose(self._inventory.log, plan, self._log.facts, links, begun)
        if proposal is None:
            self._propose_anew(ours)
        else:
            resumed = None if proposal.start_offset is None else begun
            self._offer(ours, Prepared(plan, proposal, links, resumed))

    def _offer(self, ours: OurRequest, prepared: Prepared) -> None:
        ours.step(Step.QUEUE)
        self._log.propose(ours, prepared)

    def still_wants(self, ours: OurRequest, prepared: Prepared) -> bool:
        """Whether a proposal that has waited for credit is still right; if not, start again."""
        plan = prepared.plan
        wanted = not plan.is_next or plan.want == self._inventory.want
        if wanted and still_wants(ours.purpose, prepared.proposal, self._log.facts):
            return True
        self._propose_anew(ours)
        return False

    # From the proposal to the end.

    def sent(self, ours: OurRequest, request: Request) -> None:
        """It has been proposed."""
        ours.sent(request)
        facts, fork = self._log.facts, self._inventory.fork
        under_way = request.state in _UNDER_WAY
        match ours.purpose:
            case Purpose.NEXT if request.proposal.end is None:
                self.told = max(self.told, request.proposal.start)
                if under_way and (fork is not None or facts.joined is not None):
                    request.cancel(CancelReason.END_OF_RANGE)
            case Purpose.FORK if fork is not None and under_way:
                self.show_fork(request, fork)
            case _:
                pass

    def received_all(self, request: Request) -> None:
        """The peer has sent all of a request; the store will have it before this is told."""
        if request != self.range.handle:
            return
        last = self.ranges[0].last
        progress = PROGRESS[self._progress][Fetch.COMPLETE]
        if last is None or request.receive_cursor.range.end != last or progress is self._progress:
            return
        self._progress = progress
        self._log.emit(LogSynced(log=self._inventory.log, seqnum=last))

    def peer_cancels(self, ours: OurRequest, reason: CancelReason) -> None:
        """The peer has cancelled it; what it has sent may still arrive."""
        ours.step(_STEPS.get(reason, Step.PEER_CANCELS))
        assert ours.handle is not None
        match ours.purpose:
            case Purpose.NEXT if reason not in _GOES_ON:
                self.change(Change.REFUSE)
            case Purpose.NEXT if reason is CancelReason.END_OF_RANGE:
                if ours.handle.proposal.end is None:
                    self.change(Change.REST)
            case Purpose.FORK if reason is CancelReason.RESOURCE_LIMIT:
                self.fork_told = None  # it has no room for the log, nor for its fork
            case _:
                pass

    def over(self, ours: OurRequest, *, dropped: bool) -> None:
        """It has ended; `dropped`: by the overlap rule, before it began."""
        stage = ours.stage
        request = ours.ended()
        endless = request.proposal.end is None  # then that is no more than a rest
        received = endless or request.discarding or request.receive_cursor.piece is None
        if stage is Stage.FINISHED and not received:
            # A peer that ends a range without having sent all of it would do so again.
            if ours is self.next:
                self.change(Change.REFUSE)
            self._log.emit(LogRefused(log=self._inventory.log, reason=CancelReason.END_OF_RANGE))
        if ours is self.fork and dropped:
            self.fork_told = None  # our proposal counts for nothing, nor does its end
        if ours is self.range:
            again = dropped or stage in (Stage.TURNED_AWAY, Stage.REPEATING)
            progress, self._progress = self._progress, Progress.COMING
            if progress is Progress.COMPLETE or (progress is Progress.COMING and not again):
                self.ranges.popleft()


_TAKES_PART = (PeerStage.JOINING, PeerStage.JOINED, PeerStage.LEAVING)
_WAITS = (PeerStage.WAITING, PeerStage.COMPARING, PeerStage.JOINING, PeerStage.AWAITING_OURS)


class _PeerRequest:
    """A request of the peer, and where it is."""

    __slots__ = ("handle", "stage")

    def __init__(self, handle: Request) -> None:
        self.handle = handle
        self.stage = PeerStage.WAITING

    def step(self, said: Answer, *, wanted: bool) -> None:
        """We answer that."""
        stage = PEER_STAGES[self.stage][said]
        self.stage = WANTED.get(stage, stage) if wanted else stage

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.handle.state is RequestState.PROPOSED_BY_PEER


class PeerRequests:
    """Answers what the peer proposes: confirms it or cancels it."""

    def __init__(self, log: LogOfRequests, inventory: Inventory, ours: OurRequests) -> None:
        self._log = log
        self._inventory = inventory
        self._ours = ours
        self._requests: dict[int, _PeerRequest] = {}
        self._by_stage: dict[PeerStage, dict[int, _PeerRequest]] = {}

    @property
    def joined(self) -> tuple[PeerStage, Request] | None:
        """A request for what comes next, in which we take part or are about to."""
        for stage in _TAKES_PART:
            for theirs in self._by_stage.get(stage, {}).values():
                return stage, theirs.handle
        return None

    @property
    def stages(self) -> Mapping[int, PeerStage]:
        """The stages of those that are not over, by id."""
        return {request_id: theirs.stage for request_id, theirs in self._requests.items()}

    @property
    def settled(self) -> bool:
        """Whether nothing waits for an answer."""
        waiting = (self._by_stage[stage] for stage in _WAITS if stage in self._by_stage)
        return not any(theirs.is_open for some in waiting for theirs in some.values())

    def consider(self, request: Request | None) -> None:
        """Answer a proposal (``None``: it is over already) as soon as the store is known."""
        if request is not None:
            theirs = self._requests[request.request_id] = _PeerRequest(request)
            self._enter(theirs)
            if self._inventory.loaded:
                self._answer(theirs)
        elif self._inventory.loaded:
            self._log.propose_wanted()

    def loaded(self) -> None:
        """It is known what the store has."""
        for theirs in self._in(PeerStage.WAITING):
            self._answer(theirs)

    def reconsider(self) -> None:
        """What we were about to propose may have been dropped, or may begin too late by now."""
        waiting = [
            each
            for each in self._in(PeerStage.AWAITING_OURS)
            if not self._will_displace(each.handle.proposal)
        ]
        for theirs in waiting:
            self._say(theirs, Answer.RECONSIDER)
        for theirs in waiting:
            self._answer(theirs)

    def _will_displace(self, proposal: Proposal) -> bool:
        ours = self._ours.next
        if ours.handle is not None and ours.unanswered:
            return ours.handle.proposal.start < proposal.start
        return ours.stage in (Stage.PREPARING, Stage.QUEUED)

    def give_way(self) -> None:
        """Our proposals wait for credit: what they were to displace gives the peer some back."""
        for theirs in self._in(PeerStage.AWAITING_OURS):
            if theirs.is_open:
                self._say(theirs, Answer.DEFER)

    def over(self, request_id: int) -> None:
        """A request has ended."""
        theirs = self._requests.pop(request_id, None)
        if theirs is not None:
            self._leave(theirs)

    def _in(self, stage: PeerStage) -> list[_PeerRequest]:
        return list(self._by_stage.get(stage, {}).values())

    def _enter(self, theirs: _PeerRequest) -> None:
        self._by_stage.setdefault(theirs.stage, {})[theirs.handle.request_id] = theirs

    def _leave(self, theirs: _PeerRequest) -> None:
        others = self._by_stage[theirs.stage]
        del others[theirs.handle.request_id]
        if not others:
            del self._by_stage[theirs.stage]

    def _answer(self, theirs: _PeerRequest) -> None:
        self._log.tell_news()
        if theirs.is_open:
            self._say(theirs, answer(theirs.handle.proposal, self._log.facts))
        else:
            self._log.propose_wanted()

    def _compare(self, theirs: _PeerRequest) -> None:
        """The peer's log before the range has to be ours."""
        proposal = theirs.handle.proposal

        def compared(status: LogStatus) -> None:
            if theirs.is_open:
                said = answer_compared(proposal, self._log.facts, status.entry)
                self._say(theirs, said, status)

        self._inventory.read(
            compared,
            entry=proposal.expected_seqnum or None,
            hashes=open_targets(proposal.start - 1),
        )

    def _confirm(self, theirs: _PeerRequest, links: dict[int, bytes]) -> None:
        request = theirs.handle
        end = last_before_fork(self._log.facts, request.send_cursor.range.upper_certpool)
        if theirs.stage is PeerStage.JOINED:
            want = self._inventory.want
            request.confirm(
                want.eagerness,
                size_min=want.size_min,
                size_max=want.size_max,
                allow_skipping=not want.payload_mandatory,
                end=end,
                upper_certpool=end,
                links=links,
            )
        else:
            request.confirm(NOTIFY, allow_skipping=True, end=end, upper_certpool=end)
        self._log.confirmed(request)
        self._log.propose_wanted()

    def _say(self, theirs: _PeerRequest, said: Answer, status: LogStatus | None = None) -> None:
        """Tell the peer, unless there is nothing to tell; `status`: what our store has said."""
        request, inventory = theirs.handle, self._inventory
        self._leave(theirs)
        theirs.step(said, wanted=is_wanted(request.proposal, self._log.facts))
        self._enter(theirs)
        match said:
            case Answer.COMPARE:
                self._compare(theirs)
            case Answer.CONFIRM if status is not None:
                self._confirm(theirs, status.hashes)
            case Answer.PASS:
                self._pass(theirs)
            case Answer.SHOW_ENTRY if status is not None and status.entry is not None:
                request.cancel(CancelReason.HASH_MISMATCH, entry=inventory.decode(status.entry))
            case Answer.DEFER:
                request.cancel(CancelReason.RESOURCE_LIMIT)
            case Answer.REFUSE:
                request.cancel(CancelReason.DO_NOT_RETRY)
            case Answer.SHOW_END:
                request.cancel(CancelReason.END_OF_LOG, seqnum=inventory.position)
            case Answer.SHOW_FORK if inventory.fork is not None:
                self._ours.show_fork(request, inventory.fork)
            case _:
                pass

    def _pass(self, theirs: _PeerRequest) -> None:
        """Do not take part; ask for what we lack instead."""
        self._log.propose_wanted()
        if not theirs.is_open:  # a proposal of ours has displaced it
            return
        ours = self._ours.next
        said = give_way(
            theirs.handle.proposal, self._log.facts, ours.stage, unanswered=ours.unanswered
        )
        self._say(theirs, said)
