"""The peer's requests for one log, and what we answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from culm.bamboo.effects import LogStatus
from culm.bamboo.links import open_targets
from culm.point2point.handles import Request
from culm.point2point.messages import NOTIFY, CancelReason, Proposal
from culm.point2point.replication.decisions import (
    answer,
    answer_compared,
    give_way,
    is_wanted,
    last_before_fork,
)
from culm.point2point.replication.ours import LogOfRequests, OurRequests
from culm.point2point.replication.states import PEER_STAGES, Answer, PeerStage, Stage
from culm.point2point.states import RequestState

__all__ = ["PeerRequests"]

# The same if we want what comes of it.
_WANTED: Final = {
    PeerStage.COMPARING: PeerStage.JOINING,
    PeerStage.SERVING: PeerStage.JOINED,
}
_TAKES_PART = (PeerStage.JOINING, PeerStage.JOINED, PeerStage.LEAVING)
_WAITS = (PeerStage.WAITING, PeerStage.COMPARING, PeerStage.JOINING, PeerStage.AWAITING_OURS)


class _PeerRequest:
    """A request of the peer, and where it is."""

    __slots__ = ("handle", "stage")

    def __init__(self, handle: Request) -> None:
        self.handle = handle
        self.stage = PeerStage.WAITING

    def step(self, said: Answer, *, wanted: bool) -> None:
        """That is what we say to it."""
        stage = PEER_STAGES[self.stage][said]
        self.stage = _WANTED.get(stage, stage) if wanted else stage

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.handle.state is RequestState.PROPOSED_BY_PEER


class PeerRequests:
    """Confirms or cancels what the peer proposes."""

    def __init__(self, log: LogOfRequests, ours: OurRequests) -> None:
        self._log = log
        self._ours = ours
        self._requests: dict[int, _PeerRequest] = {}
        self._by_stage: dict[PeerStage, dict[int, _PeerRequest]] = {}

    @property
    def joined(self) -> Request | None:
        """A request for what comes next, in which we take part or are about to."""
        for stage in _TAKES_PART:
            for theirs in self._by_stage.get(stage, {}).values():
                return theirs.handle
        return None

    @property
    def stages(self) -> Mapping[int, PeerStage]:
        """Where those are that are not over, by their ids."""
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
            if self._log.inventory.loaded:
                self._answer(theirs)
        elif self._log.inventory.loaded:
            self._log.propose_wanted()

    def loaded(self) -> None:
        """It is known what the store has."""
        for theirs in self._in(PeerStage.WAITING):
            self._answer(theirs)

    def reconsider(self) -> None:
        """What we were about to propose may have come to nothing, or begins too late by now."""
        waiting = [
            each
            for each in self._in(PeerStage.AWAITING_OURS)
            if not self._will_displace(each.handle.proposal)
        ]
        for theirs in waiting:
            self._step(theirs, Answer.WAIT)
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
                self._step(theirs, Answer.DEFER)
                theirs.handle.cancel(CancelReason.RESOURCE_LIMIT)

    def over(self, request_id: int) -> None:
        """A request has ended."""
        theirs = self._requests.pop(request_id, None)
        if theirs is not None:
            self._leave(theirs)

    def _in(self, stage: PeerStage) -> list[_PeerRequest]:
        return list(self._by_stage.get(stage, {}).values())

    def _step(self, theirs: _PeerRequest, said: Answer) -> None:
        self._leave(theirs)
        theirs.step(said, wanted=is_wanted(theirs.handle.proposal, self._log.facts))
        self._enter(theirs)

    def _enter(self, theirs: _PeerRequest) -> None:
        self._by_stage.setdefault(theirs.stage, {})[theirs.handle.request_id] = theirs

    def _leave(self, theirs: _PeerRequest) -> None:
        others = self._by_stage[theirs.stage]
        del others[theirs.handle.request_id]
        if not others:
            del self._by_stage[theirs.stage]

    def _answer(self, theirs: _PeerRequest) -> None:
        proposal = theirs.handle.proposal
        self._log.tell_news()
        if not theirs.is_open:
            self._log.propose_wanted()
            return
        said = answer(proposal, self._log.facts)
        self._step(theirs, said)
        if said is Answer.COMPARE:
            self._log.inventory.read(
                partial(self._compared, theirs),
                entry=proposal.expected_seqnum or None,
                hashes=open_targets(proposal.start - 1),
            )
        else:
            self._say(theirs, said)

    def _compared(self, theirs: _PeerRequest, status: LogStatus) -> None:
        """The peer's log before the range has to be ours."""
        request, stored = theirs.handle, status.entry
        if not theirs.is_open:
            return
        said = answer_compared(request.proposal, self._log.facts, stored)
        self._step(theirs, said)
        if said is Answer.SHOW_ENTRY and stored is not None:
            request.cancel(CancelReason.HASH_MISMATCH, entry=self._log.inventory.decode(stored))
        elif said is Answer.CONFIRM:
            self._confirm(theirs, status.hashes)
        else:
            self._say(theirs, said)

    def _confirm(self, theirs: _PeerRequest, links: dict[int, bytes]) -> None:
        request = theirs.handle
        end = last_before_fork(self._log.facts, request.send_cursor.range.upper_certpool)
        if theirs.stage is PeerStage.JOINED:
            want = self._ours.want
            request.confirm(
                **want.demand(),
                allow_skipping=not want.payload_mandatory,
                end=end,
                upper_certpool=end,
                links=links,
            )
        else:
            request.confirm(NOTIFY, allow_skipping=True, end=end, upper_certpool=end)
        self._log.confirmed(request)
        self._log.propose_wanted()

    def _say(self, theirs: _PeerRequest, said: Answer) -> None:
        """Tell the peer, unless there is nothing to tell."""
        request = theirs.handle
        match said:
            case Answer.PASS:
                self._pass(theirs)
            case Answer.DEFER:
                request.cancel(CancelReason.RESOURCE_LIMIT)
            case Answer.REFUSE:
                request.cancel(CancelReason.DO_NOT_RETRY)
            case Answer.SHOW_END:
                request.cancel(CancelReason.END_OF_LOG, seqnum=self._log.inventory.position)
            case Answer.SHOW_FORK:
                fork = self._log.inventory.fork
                assert fork is not None
                self._ours.show_fork(request, fork)
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
        self._step(theirs, said)
        self._say(theirs, said)
