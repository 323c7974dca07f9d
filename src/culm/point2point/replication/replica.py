"""One log between our store and one peer: what is known, what is reported, what is under way."""

from __future__ import annotations

from typing import Protocol

from culm.bamboo.effects import ReadEntry
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.store import NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.effects import StoreWork
from culm.machine import Event, LocalProtocolError
from culm.point2point.handles import Request
from culm.point2point.messages import Cancel, CancelReason, Proposal
from culm.point2point.replication.decisions import cut_off, last_before_fork, may_rest
from culm.point2point.replication.events import (
    EntryStored,
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    Want,
)
from culm.point2point.replication.inventory import Inventory
from culm.point2point.replication.proposals import OurRequest, OurRequests, PeerRequests, Prepared
from culm.point2point.replication.states import (
    Aim,
    Answer,
    Change,
    Facts,
    HeadPayload,
    LogSnapshot,
    Service,
    Stage,
    Step,
    Stock,
)
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

__all__ = ["Replica", "ReplicaOwner"]

_OPEN = frozenset(
    {RequestState.PROPOSED_BY_US, RequestState.PROPOSED_BY_PEER, RequestState.CONFIRMED}
)


class ReplicaOwner(Protocol):
    """What a replica needs of its replicator; see `Proposer`."""

    def propose(self, replica: Replica, ours: OurRequest, prepared: Prepared) -> None: ...

    def confirmed(self, request: Request, replica: Replica) -> None: ...

    def wake(self, replica: Replica) -> None: ...

    def unsettle(self, replica: Replica) -> None: ...

    def defer(self, replica: Replica) -> None: ...

    def touch(self, request: Request | None) -> None: ...

    def retry(self) -> None: ...

    def forget(self, replica: Replica) -> None: ...


class Replica:
    """Decides what is proposed, confirmed and refused for one log.

    `following`: what comes next is wanted; otherwise only the ranges that are asked for.
    `only_stored`: so it is with a log of which nothing is in the store.
    """

    def __init__(
        self,
        log: LogKey,
        *,
        owner: ReplicaOwner,
        work: StoreWork,
        interest: Interest,
        family: HashFamily,
        following: bool,
        only_stored: bool = False,
    ) -> None:
        self.log = log
        self.inventory = Inventory(log, work=work, family=family, forked=self._forked)
        want = interest.want
        want = Want() if want is None or want.is_range else want
        self.inventory.change_want(want)
        self.ours = OurRequests(self, self.inventory)
        self._theirs = PeerRequests(self, self.inventory, self.ours)
        # Requests for which data may flow, now or once they are confirmed.
        self.under_way: dict[int, Request] = {}
        self._aim_at_next = Aim.LIVE if interest.live else Aim.OFFERED
        self._aim = self._aim_at_next if following else Aim.RANGES
        self._only_stored = only_stored
        self._service = Service.STORED if interest.offer_stored else Service.NOTHING
        self._offered: int | None = None  # the last entry that the peer has spoken of
        self._passed = 0  # the last entry that it has notified
        self._writing = 0  # what has come and is not in the store, in batches
        self._synced: int | None = None  # what LogSynced has told last
        self._owner = owner
        self._work = work

    def load(self) -> None:
        """Ask the store what there is; decisions wait for it."""
        self.inventory.look(self._loaded)

    def _loaded(self) -> None:
        if self._only_stored and not self.inventory.newest:
            self._aim = Aim.RANGES
        self._theirs.loaded()
        self.propose_wanted()
        if self.inventory.fork is not None:
            self._look_before(self.inventory.fork)

    def refresh(self) -> None:
        """Somebody else has changed the store."""

        def looked() -> None:
            self.tell_news()
            self.ours.next.make_room()
            self.propose_wanted()
            self._owner.wake(self)

        self.inventory.look(looked)

    def ask_for(self, want: Want) -> None:
        """The user wants this now."""
        if want.is_range:
            self.ours.add_range(want)
            return
        self._aim, self._synced = self._aim_at_next, None
        self.ours.wake()
        if want != self.inventory.want:
            self._begin_anew()
        self.inventory.change_want(want)
        self.inventory.look(self.propose_wanted)

    def _begin_anew(self) -> None:
        """What is wanted differs from what is under way."""
        self.ours.next.cancel(CancelReason.RESOURCE_LIMIT)
        self._passed = 0  # what was only told may have to be fetched
        joined = self._theirs.joined
        if joined is not None and joined[1].state is RequestState.CONFIRMED:
            joined[1].cancel(CancelReason.RESOURCE_LIMIT)

    # What is known.

    @property
    def facts(self) -> Facts:
        """What everything is decided from."""
        inventory, ours, fork = self.inventory, self.ours, self.inventory.fork
        position, joined = inventory.position, self._theirs.joined
        return Facts(
            stock=self._stock,
            position=position,
            newest=inventory.newest,
            payload=self._head_payload,
            end=position if inventory.ended else None,
            fork=None if fork is None else fork.seqnum,
            aim=self._aim,
            service=self._service,
            probe=ours.probe,
            ranges=len(ours.ranges),
            offered=self._offered_before_fork,
            passed=self._passed,
            standing=ours.standing,
            told=ours.told,
            fork_told=ours.fork_told,
            joined=None if joined is None else joined[0],
        )

    @property
    def _stock(self) -> Stock:
        if not self.inventory.loaded:
            return Stock.UNKNOWN
        return Stock.GROWING if self._writing else Stock.KNOWN

    @property
    def _head_payload(self) -> HeadPayload:
        if not self.inventory.payload_due:
            return HeadPayload.SETTLED
        apart = self.ours.fetches_payload(self.inventory.position)
        return HeadPayload.APART if apart else HeadPayload.DUE

    @property
    def _offered_before_fork(self) -> int | None:
        """The last valid entry that the peer has mentioned."""
        fork, offered = self.inventory.fork, self._offered
        return offered if offered is None or fork is None else min(offered, fork.seqnum - 1)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that will come to an end by itself."""
        if not self.inventory.loaded or not self._theirs.settled:
            return False
        facts = self.facts
        return all(ours.is_settled(facts) for ours in self.ours)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether it is settled, and no request (made or to be made), range or answer of the store
        depends on it."""
        if self.under_way or self._writing or self.inventory.questions or self.ours.ranges:
            return False
        idle = all(ours.stage is Stage.IDLE for ours in self.ours)
        return idle and not self._theirs.stages and self.settled

    def stop_waiting(self) -> bool:
        """Withdraw what the peer has no room for; whether that is all there is about the log."""
        if self._writing or self.inventory.questions or self.ours.ranges or self._theirs.stages:
            return False
        request = self.ours.next.handle
        if any(other != request for other in self.under_way.values()):
            return False
        if request is None:
            return self.deferred
        if not request.unanswered or request.state is not RequestState.PROPOSED_BY_US:
            return False
        self.ours.change(Change.REST)
        request.cancel(CancelReason.RESOURCE_LIMIT)
        return True

    @property
    def wanted(self) -> Want | None:
        """What is wanted of what comes next; ``None``: nothing."""
        return None if self._aim is Aim.RANGES else self.inventory.want

    def leave(self) -> None:
        """It gives up its place."""
        self._owner.forget(self)

    def snapshot(self) -> LogSnapshot:
        """The log as it is now."""
        return LogSnapshot(
            log=self.log,
            facts=self.facts,
            stages={ours.purpose: ours.stage for ours in self.ours},
            answers=self._theirs.stages,
            settled=self.settled,
        )

    # What is stored, and what to report of it.

    def emit(self, event: Event) -> None:
        """Let an event come out in its turn."""
        self._work.emit(event)

    def stored(self, batch: list[NewEntry]) -> list[Event]:
        """The entries are in the store; returns the events for that."""
        self.inventory.stored(batch)
        events = self._news()
        if self._aim is Aim.RANGES:  # there may be gaps before it
            ends = (new.entry.seqnum for new in batch if new.entry.end_of_log)
            events += [LogEnded(log=self.log, seqnum=seqnum) for seqnum in ends]
        return events

    def payload_stored(self, entry: Entry) -> list[Event]:
        """The payload of `entry` is complete; returns the events for that."""
        self.inventory.payload_over(entry.seqnum)
        self._owner.wake(self)
        size = entry.payload_size
        told = EntryStored(
            log=self.log, seqnum=entry.seqnum, payload_size=size, payload_stored=True
        )
        return [told, *self._news()]

    def payload_lost(self, seqnum: int) -> None:
        """What is stored of a payload differs from what came: fetch that payload again."""

        def look(stored: StoredEntry | None) -> None:
            if stored is not None and not stored.payload_complete:
                self.ours.add_range(Want.payload_of(seqnum), again=True)

        self._work.ask(ReadEntry, look, log=self.log, seqnum=seqnum)

    def write(self) -> None:
        """A batch is on its way into the store."""
        self._writing += 1

    def written(self) -> None:
        """A batch is in the store."""
        self.unsettle()
        self._writing -= 1
        if not self._writing:
            self._owner.touch(self.ours.next.handle)
            self.propose_wanted()

    def notified(self, seqnum: int) -> None:
        """The peer has passed over what comes up to that entry."""
        self._passed = max(self._passed, seqnum)

    def tell_news(self) -> None:
        """Report what has become known by looking rather than by storing."""
        for event in self._news():
            self.emit(event)

    def _news(self) -> list[Event]:
        inventory = self.inventory
        position, offered = inventory.position, self._offered_before_fork or 0
        if self._aim is Aim.RANGES or inventory.payload_due or position < offered:
            return []
        if self._aim is Aim.LIVE and position > offered:
            return []  # the peer's next live entry may be on its way
        if self._synced == position:
            return []
        self._synced = position
        events: list[Event] = [LogSynced(log=self.log, seqnum=position)]
        if inventory.ended:
            events.append(LogEnded(log=self.log, seqnum=position))
        return events

    # Our requests.

    def propose_wanted(self) -> None:
        """Propose what is wanted."""
        self.ours.propose_wanted(self.ours)
        self._theirs.reconsider()

    def propose(self, ours: OurRequest, prepared: Prepared) -> None:
        """Propose as soon as there is credit."""
        self._owner.propose(self, ours, prepared)

    def sent(self, ours: OurRequest, request: Request) -> None:
        """It has been proposed."""
        self.under_way[request.request_id] = request
        self.ours.sent(ours, request)
        self._theirs.reconsider()

    def queued(self) -> None:
        """There is no credit for a proposal of ours yet."""
        self._theirs.give_way()

    def crowded_out(self, ours: OurRequest) -> None:
        """There are more logs than requests, and none of them ends."""
        ours.step(Step.GIVE_UP)
        self.emit(LogRefused(log=self.log, reason=CancelReason.RESOURCE_LIMIT))

    @property
    def deferred(self) -> bool:
        """Whether there has been no room for a proposal of ours."""
        return any(ours.is_turned_away for ours in self.ours)

    def retry(self) -> None:
        """The peer may have room again."""
        for ours in self.ours:
            ours.make_room()
        self.propose_wanted()

    def rest(self, request_id: int, *, patient: bool, ours: bool) -> bool:
        """End a request without end, of a log of which both have all there is; whether it is one.

        `ours`: only if the request is.
        """
        request = self.under_way.get(request_id)
        if request is None or request.state is not RequestState.CONFIRMED:
            return False
        is_ours = request == self.ours.next.handle
        joined = self._theirs.joined
        if not is_ours and (ours or joined is None or joined[1] != request):
            return False
        if request.proposal.end is not None or not may_rest(self.facts, patient=patient):
            return False
        self.ours.change(Change.REST)
        request.cancel(CancelReason.END_OF_RANGE)
        return True

    def unsettle(self) -> None:
        """See again whether the log has settled."""
        self._owner.unsettle(self)

    def peer_confirms(self, request_id: int) -> None:
        """The peer has confirmed a request of ours."""
        ours = self.ours.of(request_id)
        if ours is not None:
            ours.step(Step.PEER_CONFIRMS)

    def over(self, request_id: int, *, dropped: bool) -> None:
        """A request is over; what had to wait for it may go on."""
        self.unsettle()
        self.under_way.pop(request_id, None)
        self._theirs.over(request_id)
        ours = self.ours.of(request_id)
        makes_room = ours is None or not ours.is_turned_away
        if ours is not None:
            self.ours.over(ours, dropped=dropped)
        if dropped:
            return
        self.propose_wanted()
        if makes_room:
            self._owner.retry()

    def cancelled(self, request_id: int, cancel: Cancel) -> None:
        """The peer has cancelled a request about this log."""
        if cancel.proof is not None:
            self.ours.peer_knows(cancel.proof)
            if not self.inventory.add_fork(cancel.proof):
                self._look_before(cancel.proof)  # who has it may have another log before it
        ours, reason = self.ours.of(request_id), cancel.reason
        if ours is None:
            joined = self._theirs.joined
            rests = joined is not None and joined[1].request_id == request_id
            if rests and reason is CancelReason.END_OF_RANGE:
                self.ours.change(Change.REST)
            return
        self.ours.peer_cancels(ours, reason)
        if ours.is_turned_away:
            self._owner.defer(self)
        if cancel.entry is not None:
            self.inventory.compare(cancel.entry)
        known = reason is CancelReason.END_OF_LOG and self._knows_end(cancel.seqnum or 0)
        if known and ours is self.ours.next:
            return
        if reason not in (CancelReason.END_OF_RANGE, CancelReason.FORK):
            if ours is self.ours.next and self._offered is not None:
                self._offered = min(self._offered, self.inventory.position)
            self.emit(LogRefused(log=self.log, reason=reason))

    def _knows_end(self, seqnum: int) -> bool:
        """Whether both have everything; if not, find out what the peer has there."""
        if self.inventory.ended and self.inventory.position == seqnum:
            return True
        if seqnum <= self.inventory.newest:
            self.ours.compare(seqnum)
        else:
            self.ours.ask_for_end(seqnum)
        return False

    def give_up(self, request: Request, fault: Reason | None = None) -> None:
        """What the peer sends or our store has is wrong, or the peer sends nothing."""
        if self.ours.of(request.request_id) in (None, self.ours.next):
            self.ours.change(Change.REFUSE)
        if request.state in _OPEN:
            request.cancel(CancelReason.DO_NOT_RETRY)
        else:
            request.pass_over()
        self.emit(LogRefused(log=self.log, fault=fault))

    # The peer's requests.

    def consider(self, proposal: Proposal, request: Request | None) -> None:
        """Answer a proposal of the peer (``None``: it is over already)."""
        # A proposal for what comes next shows what the peer has.
        last = proposal.start - 1
        tells = proposal.end is None and proposal.lower_certpool in (None, proposal.start)
        if tells and (self._offered is None or last > self._offered):
            self._owner.touch(self.ours.next.handle)
            if not self._offered:
                self.ours.change(Change.FORGIVE)  # because it had nothing before
            self._offered = max(self._offered or 0, last)
            self.emit(LogOffered(log=self.log, seqnum=last))
        self._theirs.consider(request)

    def confirmed(self, request: Request) -> None:
        """Data of a request of the peer may flow."""
        self.under_way[request.request_id] = request
        self._owner.confirmed(request, self)

    # Forks.

    def suspect(self, request: Request, seqnum: int, fault: Reason) -> None:
        """The peer seems to have a different entry `seqnum`: ask for it."""
        self.ours.compare(seqnum)
        self.give_up(request, fault)

    def contradicted(self, request: Request, refusal: StoreError, entries: list[Entry]) -> None:
        """The store does not take what the peer has sent: there may be a fork."""

        def judge() -> None:
            fork = self.inventory.fork
            if fork is None or fork.seqnum > refusal.seqnum:
                self.give_up(request)

        if refusal.code is StoreErrorCode.CONFLICT:
            for entry in entries:
                if entry.seqnum == refusal.seqnum:
                    self.inventory.compare(entry, judge)
        else:
            self.inventory.look(judge)

    def _forked(self, proof: ForkProof) -> None:
        """What is open ends before the fork; what begins after it is cancelled with the proof."""
        self.unsettle()
        self.ours.change(Change.FORGIVE)  # what comes before the fork may still be fetched
        for request in list(self.under_way.values()):
            if request.state in _OPEN:
                self._shorten(request)
        self._look_before(proof)

    def _shorten(self, request: Request) -> None:
        """Let a request end before the fork, or cancel it if it does not begin before it."""
        facts, proof = self.facts, self.inventory.fork
        assert proof is not None
        match cut_off(request.proposal, facts):
            case Answer.SHOW_FORK:
                self.ours.show_fork(request, proof)
            case Answer.REFUSE:
                request.cancel(CancelReason.DO_NOT_RETRY)
            case _:
                last = last_before_fork(facts, request.send_cursor.range.upper_certpool)
                if last is None:
                    return
                try:
                    request.adjust(end=last, upper_certpool=last)
                except LocalProtocolError:  # too many, or a sparse range of payloads alone
                    request.cancel(CancelReason.DO_NOT_RETRY)

    def _look_before(self, proof: ForkProof) -> None:
        """The fork begins earlier if one of its branches is not the one that we have."""

        def compare(ours: dict[int, bytes]) -> None:
            other = [seqnum for seqnum, link in _links(proof) if ours.get(seqnum, link) != link]
            if other:
                self.ours.compare(min(other))
            self.propose_wanted()

        self.inventory.hashes([seqnum for seqnum, _ in _links(proof)], compare)


def _links(proof: ForkProof) -> list[tuple[int, bytes]]:
    """The links of both entries of a fork."""
    before, skipped = proof.seqnum - 1, lipmaa(proof.seqnum)
    links = [
        pair
        for entry in (proof.first, proof.second)
        for pair in ((before, entry.backlink), (skipped, entry.lipmaalink))
    ]
    return [(seqnum, link) for seqnum, link in links if link is not None]
