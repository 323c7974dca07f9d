"""One log between our store and one peer: commands follow from inputs.

`LogSync.step` is pure: it touches neither the store nor the wire, and leaves the log as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from culm.arguments import is_dict
from culm.bamboo.effects import LogStatus, ReadLog
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof, find_fork
from culm.bamboo.links import open_targets
from culm.bamboo.verify import PayloadVerifier
from culm.point2point.events import Cancelled, Confirmed, ProposalDropped, RequestEnded
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason
from culm.point2point.replication import decisions, steps
from culm.point2point.replication.events import EntryStored, ForkFound, LogOffered, LogRefused, Want
from culm.point2point.replication.log_state import LogState, Ours, Theirs
from culm.point2point.replication.steps import Answer, PeerStage, Purpose, Stage, Step
from culm.point2point.states import RequestState

_STEPS: Final = {
    CancelReason.END_OF_RANGE: Step.PEER_FINISHES,
    CancelReason.RESOURCE_LIMIT: Step.PEER_DEFERS,
}
_REASONS: Final = {
    Answer.DEFER: CancelReason.RESOURCE_LIMIT,
    Answer.FINISH: CancelReason.END_OF_RANGE,
    Answer.REFUSE: CancelReason.DO_NOT_RETRY,
}
# After these the same is proposed again, or the entries before the fork.
_GOES_ON: Final = frozenset({*_STEPS, CancelReason.FORK})


class LogSync(LogState):
    """Decides on proposals, answers and events for one log."""

    def step(self, input: steps.Input) -> tuple[LogSync, list[steps.Command]]:
        """The log after that input, and the commands that follow, in order."""
        after = object.__new__(LogSync)
        commands: list[steps.Command] = []
        # Half as large as a dict of its own kind that is updated: one for each log.
        after.__dict__ = {**self.__dict__, "_commands": commands}
        self._HANDLERS[type(input)](after, input)
        after._commands = []
        return after, commands

    # Queries.

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that will end by itself."""
        return self.settled_but_range and decisions.is_settled(Purpose.RANGE, self)

    @property
    def settled_but_range(self) -> bool:
        """The same, but for a range that the peer has confirmed."""
        if not self.loaded or any(each.waits for each in self.theirs.values()):
            return False
        confirmed = self.ours[Purpose.RANGE].stage is Stage.OPEN
        purposes = (each for each in Purpose if not (confirmed and each is Purpose.RANGE))
        return all(decisions.is_settled(purpose, self) for purpose in purposes)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether no request is made or wanted, and no question is left."""
        if not self.loaded or self.under_way or self.writing or self.questions or self.theirs:
            return False
        if any(ours.stage not in (Stage.IDLE, Stage.DEFERRED) for ours in self.ours.values()):
            return False
        return not any(decisions.wish(purpose, self) for purpose in Purpose)  # what is put off, too

    def may_rest(self, request: Request, *, patient: bool, ours: bool) -> bool:
        """Whether a request has no end, and both sides have the whole log.

        `patient`: see `decisions.may_rest`; `ours`: only if the request is.
        """
        if request.state is not RequestState.CONFIRMED or (ours and not request.ours):
            return False
        if self._is_for_next(request):
            return decisions.may_rest(self, patient=patient)
        return decisions.range_may_rest(self, request, patient=patient)

    # Looking.

    def _answered(self, answered: steps.Answered) -> None:
        self.questions -= 1
        question, result = answered
        match question:
            case steps.Happening():
                self._looked(result)
            case steps.Prepare(_, plan, None):
                if result.head != self.head:
                    self._see(result)
                prepared = question._replace(links=result.hashes)
                if result.entry is not None and not result.entry.payload_complete:  # not verified
                    self._ask(prepared, result.entry)
                    return
                if plan.action is steps.Action.RESUME:
                    self._payload_over(plan.seqnum)
                self._make(prepared, None)
            case steps.Prepare():
                self._make(question, result)
            case steps.Offered(_, request):
                assert request is not None
                if result.head != self.head:
                    self._see(result)
                said = decisions.answer_compared(request.proposal, self, result.entry)
                if request.state is RequestState.PROPOSED_BY_PEER:
                    self._say(request, said, result)
                else:  # dropped by the overlap rule, perhaps for a range, or it only told
                    differs = request.proposal.expected_seqnum
                    if said is Answer.SHOW_ENTRY and differs < (self.fork_at or 0):
                        self.probe = differs
                    self._propose_wanted()
            case steps.Compare():
                self._compare_with(question, result)
            case steps.PayloadLost(seqnum):
                if result is not None and not result.payload_complete:
                    self._add_range(Want.payload_of(seqnum), again=True)
            case ForkProof() if is_dict(result):
                other = {n for n, link in question.links if result.get(n, link) != link}
                self.probe = min(other.difference(self.compared), default=self.probe)
                self._propose_wanted()
            case ForkProof():
                self._do(ForkFound(log=self.log, proof=question))
                self._look(question)
            case _:
                raise AssertionError(question)

    def _looked(self, status: LogStatus) -> None:
        self._see(status)
        self.loaded = True
        waiting, self.looking, self.later = self.looking, self.later, ()
        if self.looking:
            self._ask(steps.Happening.LOOKED, ReadLog)
        for question in waiting:
            match question:
                case steps.Happening.STARTED:
                    self._begin()
                case steps.Happening.CHANGED:
                    if self.only_stored and self.newest:
                        self.follows, self.only_stored = True, False
                    self._tell_news()
                    self._make_room(Purpose.NEXT)
                    self._propose_wanted()
                    self._do(steps.Notice.NEWS)
                case ForkProof():
                    self._forked(question)
                case steps.Missing():
                    self._miss(question)
                case _:
                    self._propose_wanted()

    def _see(self, status: LogStatus) -> None:
        """Take the state of the log in the store."""
        fork, head = status.fork, status.head
        seqnum = 0 if head is None else head.seqnum
        news = fork is not None and (self.fork is None or fork.seqnum < self.fork.seqnum)
        if news:
            self.fork = fork
        newest = 0 if status.newest is None else status.newest.seqnum
        self.newest = max(newest, seqnum)  # the log may have grown since it was asked for
        # Else it is shorter because of a fork, or we have stored more since.
        if seqnum >= self.position or fork is not None:
            self.head = head
            self._see_payload(status.last)
        if fork is not None and news and self.loaded:  # by another replicator over the same store
            self._forked(fork)

    def _begin(self) -> None:
        if self.only_stored and not self.newest:
            self.follows = False
        for theirs in self._in(PeerStage.WAITING):
            self._answer(theirs.request)
        self._propose_wanted()
        if self.fork is not None:
            self._look_before(self.fork)

    def _happened(self, happening: steps.Happening) -> None:
        match happening:
            case steps.Happening.WRITE_BEGUN:
                self.writing, self.appending = self.writing + 1, self.appending + 1
            case steps.Happening.APPENDED:
                self.appending -= 1
                self._propose_wanted()
            case steps.Happening.WRITE_ENDED:
                self.writing -= 1
                if not self.writing:
                    self._propose_wanted()
                    if self.follows and self.newest > self.position:  # a gap may be filled
                        self._look(steps.Happening.CHANGED)
            case steps.Happening.QUEUED:
                # Proposals that ours was to displace give the peer some credit back.
                for theirs in self._in(PeerStage.AWAITING_OURS):
                    if theirs.waits:
                        self._say(theirs.request, Answer.DEFER)
            case steps.Happening.WITHDRAWN:
                self.rests = not self.refused
                self.withdrawn = self.lost = True  # other ranges may come
                self.resting = {**self.resting, **{each: each.first or 1 for each in self.ranges}}
                self.ranges = ()
                for ours in self.ours.values():
                    self._end(ours.request)
            case _:
                self._look(happening)

    def _has_room(self, made: steps.RoomMade) -> None:
        self._make_room(*made.purposes)
        self._propose_wanted()

    def _user_wants(self, wanted: steps.Wanted) -> None:
        want = wanted.want
        if want.is_range:
            self._add_range(want)
            return
        self.follows, self.only_stored, self.synced = True, False, None
        self.refused = self.rests = self.withdrawn = False
        self._make_room(Purpose.NEXT)
        # Requests under way are for other wishes, or past a payload that is to be asked for again.
        if want != self.want or 0 < self.withheld == self.position:
            self._end(self.ours[Purpose.NEXT].request)
            self.passed = 0  # entries that were only notified may have to be fetched
            joined = self.joined
            if joined is not None and joined.request.state is RequestState.CONFIRMED:
                self._cancel(joined.request, CancelReason.RESOURCE_LIMIT)
        self.want, self.withheld = want, 0
        self._look(wanted)

    # Our requests, from the wish to the proposal.

    def _add_range(self, want: Want, *, again: bool = False) -> None:
        """Fetch another range; `again`: even if it is the one that is being fetched."""
        if again and self.ours[Purpose.RANGE].request is not None and want in self.ranges[:1]:
            self.lost = True
        self._go_on(want)
        self._make_room(Purpose.RANGE)
        self._propose(Purpose.RANGE)

    def _propose_wanted(self) -> None:
        """Make the proposals that are wanted, where none is under way, and reconsider answers."""
        self._propose(*Purpose)
        self._reconsider()

    def _propose(self, *purposes: Purpose) -> None:
        for purpose in purposes:
            plan = decisions.decide(purpose, self)
            if plan is None:
                continue
            self._move(purpose, Step.PREPARE)
            if plan.action is steps.Action.SHOW_FORK:
                self._make(steps.Prepare(purpose, plan, {}), None)
            else:
                question, hashes = steps.Prepare(purpose, plan), tuple(plan.links)
                self._ask(question, ReadLog, entry=plan.entry, hashes=hashes)

    def _make(self, prepared: steps.Prepare, begun: PayloadVerifier | None) -> None:
        purpose, plan, links = prepared
        assert links is not None
        proposal = None
        if plan == decisions.wish(purpose, self):
            proposal = decisions.propose(self, plan, links, begun)
            if proposal is None and plan.action is steps.Action.PROBE:
                self.probe = None  # it needs a link that is not stored
        if proposal is None:
            self._unsent(steps.Unsent(purpose, Step.OVERTAKE))
        else:
            resumed = None if proposal.start_offset is None else begun
            self._move(purpose, Step.QUEUE)
            self._do(steps.Propose(purpose, plan, proposal, links, resumed))

    def _unsent(self, unsent: steps.Unsent) -> None:
        purpose, step = unsent
        self._move(purpose, step)
        if step is Step.OVERTAKE:
            self._propose(purpose)
        else:
            self._do(LogRefused(log=self.log, reason=CancelReason.RESOURCE_LIMIT))

    # From the proposal to the end.

    def _sent(self, sent: steps.Sent) -> None:
        purpose, request = sent
        self.under_way = {**self.under_way, request.request_id: request}
        self.ours = {**self.ours, purpose: Ours(self.ours[purpose].stage, request)}
        self._move(purpose, Step.SEND)
        if purpose is Purpose.NEXT and self.ours[purpose].probed == self.probe:
            self.probe = None
        if purpose is Purpose.NEXT and request.proposal.end is None:
            start = decisions.start_of(request.proposal)
            self.told = max(self.told or start, start)
            joined = self.joined
            # If that one ends, the peer may have forgotten the log by the time ours arrives.
            joins = joined is not None and joined.request.is_open
            if request.is_open and (self.fork is not None or joins):
                self._cancel(request, CancelReason.END_OF_RANGE)
        elif purpose is Purpose.FORK and self.fork is not None and request.is_open:
            self._show_fork(request, self.fork)
        self._reconsider()

    def _confirmed(self, event: Confirmed) -> None:
        purpose = self.purpose_of(event.request_id)
        if purpose is not None:
            self._move(purpose, Step.PEER_CONFIRMS)

    def _cancelled(self, event: Cancelled) -> None:
        cancel, reason = event.cancel, event.cancel.reason
        if cancel.proof is not None:
            self._is_shown(cancel.proof)
        if event.request_id in self.rested and reason is not CancelReason.CONFIRM:
            # Both have ended it at once: the peer has passed over our last pieces.
            self.told = decisions.start_of(self.under_way[event.request_id].proposal)
        purpose = self.purpose_of(event.request_id)
        if purpose is None:
            theirs, joined = self.theirs.get(event.request_id), (PeerStage.CONFIRMED, True)
            if reason is CancelReason.END_OF_RANGE and theirs is not None and theirs[1:] == joined:
                self._rest(decisions.start_of(theirs.request.proposal))  # all before it is here
            return
        if reason is CancelReason.DO_NOT_RETRY and self._only_compares(self.ours[purpose].request):
            self._move(purpose, Step.PEER_CANCELS)
            return
        self._peer_cancels(purpose, reason)
        if self.ours[purpose].is_turned_away:
            self._do(steps.Notice.TURNED_AWAY)
        if cancel.entry is not None:
            self._compare(steps.Compare(cancel.entry))
        is_next = purpose is Purpose.NEXT
        if reason is CancelReason.END_OF_LOG and self._knows_end(cancel.seqnum or 0) and is_next:
            if (self.offered or 0) < self.position:
                self.offered = self.position
                self._do(LogOffered(log=self.log, seqnum=self.position))
            self._tell_news()
            return
        forked = reason is CancelReason.FORK and purpose is not Purpose.RANGE  # tells more
        if not forked and reason is not CancelReason.END_OF_RANGE:
            if is_next and self.offered is not None and not self.refused:
                self.offered = min(self.offered, self.position)
            self._do(LogRefused(log=self.log, reason=reason))

    def _peer_cancels(self, purpose: Purpose, reason: CancelReason) -> None:
        self._move(purpose, _STEPS.get(reason, Step.PEER_CANCELS))
        match purpose:
            case Purpose.NEXT if reason not in _GOES_ON:
                self._refuse()
            case Purpose.NEXT if reason is CancelReason.END_OF_RANGE:
                request = self.ours[purpose].request
                endless = request is not None and request.proposal.end is None
                self.rests = self.rests or (endless and not self.refused)
            case Purpose.NEXT if reason is CancelReason.RESOURCE_LIMIT:
                self.rests = False  # it must be made again
                self.probe = self.probe or self.ours[purpose].probed
            case Purpose.RANGE if reason is CancelReason.RESOURCE_LIMIT and self.ranges:
                request, first = self.ours[purpose].request, self.ranges[0].first or 1
                if request is not None and self.offered is not None and first > self.offered:
                    self._range_rests(request)  # the peer does not have its first entry
            case Purpose.FORK if reason is CancelReason.RESOURCE_LIMIT:
                self.fork_told = None  # it has no room for the log, nor for its fork
            case _:
                pass

    def _over(self, event: RequestEnded | ProposalDropped) -> None:
        request_id, dropped = event.request_id, isinstance(event, ProposalDropped)
        self.under_way = {n: each for n, each in self.under_way.items() if n != request_id}
        self.theirs = {n: each for n, each in self.theirs.items() if n != request_id}
        self.rested -= {request_id}
        purpose = self.purpose_of(request_id)
        makes_room = purpose is None or not self.ours[purpose].is_turned_away
        if purpose is not None:
            self._end_of(purpose, dropped=dropped)
        if isinstance(event, ProposalDropped):
            winner = self.theirs.get(event.winner_id)
            if not event.ours or (winner is not None and winner.waits):
                return  # what to propose depends on the winner
        self._propose_wanted()
        if makes_room:
            self._do(steps.Notice.ROOM)

    def _end_of(self, purpose: Purpose, *, dropped: bool) -> None:
        """Ours has ended; `dropped`: by the overlap rule, before it began."""
        stage, request = self.ours[purpose]
        assert request is not None
        self._note_compared(self.ours[purpose], dropped=dropped)
        self.ours = {**self.ours, purpose: Ours(steps.STAGES[stage][Step.END])}
        rests = request.proposal.end is None or request.receive_cursor.piece is None
        received = request.discarding or (self.over if purpose is Purpose.RANGE else rests)
        if stage is Stage.FINISHED and not received:
            # A peer that ends a range without having sent all of it would do so again.
            if purpose is Purpose.NEXT:
                self._refuse()
            self._do(LogRefused(log=self.log, reason=CancelReason.END_OF_RANGE))
            self.over |= purpose is Purpose.RANGE
        if dropped and decisions.cut_off(request.proposal, self) is Answer.SHOW_FORK:
            self.fork_told = None  # our proposal counts for nothing, nor does its end
        if purpose is Purpose.RANGE:
            again = dropped or stage in (Stage.TURNED_AWAY, Stage.REPEATING)
            if stage is Stage.FINISHED and self.fork is None and not self.lost:
                self._range_rests(request)
            if not self.lost and (self.over or not again):
                if not self.over and stage is not Stage.ENDING:  # we have cancelled it
                    self._do(LogRefused(log=self.log))
                self.ranges = self.ranges[1:]
                self._go_on(*self.resting)
            self.over = self.lost = False

    def _rested(self, rested: steps.Rested) -> None:
        request = rested.request
        if request is self.ours[Purpose.RANGE].request:
            self._range_rests(request)
            self._do(LogRefused(log=self.log, reason=CancelReason.RESOURCE_LIMIT))
        elif self._is_for_next(request):
            self._rest(decisions.start_of_next(self))
            self.rested |= {request.request_id}
        self._cancel(request, CancelReason.END_OF_RANGE)

    def _given_up(self, given_up: steps.GivenUp) -> None:
        request, fault, probe = given_up
        self.probe = self.probe if probe is None else probe
        is_next = self.purpose_of(request.request_id) in (None, Purpose.NEXT)
        if is_next and not self._only_compares(request):
            self._refuse()
        self.over |= request is self.ours[Purpose.RANGE].request
        self._cancel(request, CancelReason.DO_NOT_RETRY)
        self._do(LogRefused(log=self.log, fault=fault))

    def _passed(self, passed: steps.Passed) -> None:
        request, seqnum = passed
        joins, ours = decisions.is_wanted(request.proposal, self), self.ours[Purpose.NEXT].request
        if (request is ours and not self._only_compares(request)) or (joins and not request.ours):
            self.passed = max(self.passed, seqnum)  # else they come in another
        elif request.ours and decisions.shows_next(request.proposal, self):
            self.offered = max(self.offered or 0, seqnum)
        self._rouse(seqnum)
        self._propose(Purpose.NEXT, Purpose.RANGE)

    # The peer's requests.

    def _offered(self, offered: steps.Offered) -> None:
        proposal, request = offered
        # A proposal for the next entries shows those that the peer has.
        last = proposal.start - 1
        if offered.tells and (self.offered is None or last > self.offered):
            self.refused = self.refused and bool(self.offered)  # not because it had nothing before
            self.offered = last
            self._rouse(last)
            self._do(LogOffered(log=self.log, seqnum=last))
            if 0 < self.begun <= last:  # and by now all of its payload
                self._payload_lost(steps.PayloadLost(self.begun))
        if offered.tells and proposal.start_offset is not None:
            self.begun = max(self.begun, proposal.start)
            if self.offered == proposal.start:
                self.offered = last  # by now it has not, or wants, that payload
        if request is not None:
            self.theirs = {**self.theirs, request.request_id: Theirs(request)}
            if self.loaded:
                self._answer(request)
        elif self.loaded:
            self._propose_wanted()

    def _answer(self, request: Request) -> None:
        self._tell_news()
        if request.state is RequestState.PROPOSED_BY_PEER:
            self._say(request, decisions.answer(request.proposal, self))
        else:
            self._propose_wanted()

    def _say(self, request: Request, said: Answer, status: LogStatus | None = None) -> None:
        """Carry out an answer; `status`: the state of the log in the store, if it was asked for."""
        proposal, request_id = request.proposal, request.request_id
        before = self.theirs[request_id]
        stage = steps.PEER_STAGES[before.stage][said]
        joins = before.joins and stage is not PeerStage.PASSED
        if stage in (PeerStage.COMPARING, PeerStage.CONFIRMED):
            joins = joins or decisions.is_wanted(proposal, self)
        self.theirs = {**self.theirs, request_id: Theirs(request, stage, joins)}
        match said:
            case Answer.COMPARE:
                # The peer's log before the range has to be ours.
                hashes = tuple(open_targets(proposal.start - 1))
                entry = proposal.expected_seqnum or None
                self._ask(steps.Offered(proposal, request), ReadLog, entry=entry, hashes=hashes)
            case Answer.CONFIRM if status is not None:
                end = decisions.last_before_fork(self, request.send_cursor.range.upper_certpool)
                self.under_way = {**self.under_way, request_id: request}
                want = self.want if joins else None
                self._do(steps.Confirm(request, want, end, status.hashes))
                self._propose_wanted()
            case Answer.PASS:
                begun = proposal.start, proposal.start_offset or 0
                if self.ahead < begun and proposal.start == self.position:
                    self.ahead, self.told = begun, None  # it has more of our last payload by now
                self._propose_wanted()  # for our missing entries, instead
                self._say(request, decisions.give_way(proposal, self))
            case Answer.SHOW_ENTRY if status is not None and status.entry is not None:
                entry_of_ours = self.decode(status.entry)
                self._do(steps.Cancel(request, CancelReason.HASH_MISMATCH, entry=entry_of_ours))
            case Answer.DEFER | Answer.FINISH | Answer.REFUSE:
                self._cancel(request, _REASONS[said])
            case Answer.SHOW_END:
                self._rest(decisions.start_of_next(self))  # which the peer knows by that
                self._do(steps.Cancel(request, CancelReason.END_OF_LOG, seqnum=self.position))
            case Answer.SHOW_FORK if self.fork is not None:
                self._show_fork(request, self.fork)
            case _:
                pass

    def _reconsider(self) -> None:
        """A proposal in preparation may be dropped, or begin too late, by now."""
        waiting = [
            each.request
            for each in self._in(PeerStage.AWAITING_OURS)
            if not self._will_displace(each.request.proposal)
        ]
        for request in waiting:
            self._say(request, Answer.RECONSIDER)
        for request in waiting:
            self._answer(request)

    # Forks.

    def _compare_with(self, question: steps.Compare, status: LogStatus) -> None:
        entry, request = question
        proof = None if status.entry is None else find_fork(entry, self.decode(status.entry))
        if proof is not None:
            self._add_fork(proof)
        if request is None:
            return
        self._see(status)
        if self.fork is None or self.fork.seqnum > entry.seqnum:
            before, after = entry.seqnum - 1, entry.seqnum + 1
            fits = status.hashes.get(before, entry.backlink) == entry.backlink
            probe = after if fits and after in status.hashes else before or None
            self._given_up(steps.GivenUp(request, probe=probe))
            self._propose_wanted()  # even if the request is over
        elif proof is not None:  # some before the fork may be lost: they are to come in another
            self.lost |= request is self.ours[Purpose.RANGE].request and not self.over
            self._end(request)

    def _forked(self, proof: ForkProof) -> None:
        """Open requests end before the fork; later ones are cancelled with the proof."""
        self.refused = False  # entries before the fork may still be fetched
        for request in self.under_way.values():
            if request.is_open:
                self._shorten(request, proof)
        self._look_before(proof)

    def _shorten(self, request: Request, proof: ForkProof) -> None:
        """Let a request end before the fork, or cancel it if it does not begin before it."""
        cut_off = decisions.cut_off(request.proposal, self)
        if cut_off:
            self._cut_off(steps.CutOff(request))
        match cut_off:
            case Answer.SHOW_FORK:
                self._show_fork(request, self.fork or proof)
            case Answer.REFUSE:
                self._cancel(request, CancelReason.DO_NOT_RETRY)
            case _:
                pool = request.send_cursor.range.upper_certpool
                if (last := decisions.last_before_fork(self, pool)) is not None:
                    self._do(steps.Shorten(request, last))

    def _miss(self, missing: steps.Missing) -> None:
        request, seqnum = missing
        if self.fork is not None and self.fork.seqnum <= seqnum:
            self._given_up(steps.GivenUp(request, Reason.INVALID_LOG))  # it is not any more
        elif request.ours and request.proposal.payload_only:
            self._given_up(steps.GivenUp(request, Reason.GAP))  # we have asked for too much
        else:
            self._do(steps.Refuse(request))

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        steps.Happening: _happened,
        steps.Wanted: _user_wants,
        steps.Offered: _offered,
        steps.Sent: _sent,
        steps.Unsent: _unsent,
        steps.Rested: _rested,
        steps.CutOff: LogState._cut_off,
        steps.Received: LogState._received,
        steps.Passed: _passed,
        steps.RoomMade: _has_room,
        steps.EntriesStored: LogState._stored,
        EntryStored: LogState._payload_stored,
        steps.PayloadLost: LogState._payload_lost,
        steps.PayloadWithheld: LogState._payload_withheld,
        steps.GivenUp: _given_up,
        steps.Compare: LogState._compare,
        steps.Missing: LogState._look,
        steps.Answered: _answered,
        ForkProof: LogState._is_shown,
        Confirmed: _confirmed,
        Cancelled: _cancelled,
        ProposalDropped: _over,
        RequestEnded: _over,
    }
