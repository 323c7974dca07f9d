"""One log between our store and one peer: what is offered, wanted and under way."""

from __future__ import annotations

from collections.abc import Callable

from culm.bamboo.effects import ReadEntry
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.store import NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.effects import StoreWork
from culm.machine import Event
from culm.point2point.handles import Request
from culm.point2point.messages import Cancel, CancelReason, Proposal
from culm.point2point.replication.answering import Answering
from culm.point2point.replication.events import (
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    Want,
)
from culm.point2point.replication.forking import ForkSeeking
from culm.point2point.replication.inventory import Inventory
from culm.point2point.replication.seeking import NextSeeking, Owner, RangeSeeking, Seeking
from culm.point2point.replication.snapshots import LogSnapshot
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

__all__ = ["Replica"]

_OPEN = frozenset(
    {RequestState.PROPOSED_BY_US, RequestState.PROPOSED_BY_PEER, RequestState.CONFIRMED}
)


class Replica:
    """Decides what is proposed, confirmed and refused for one log.

    `following`: what comes next is wanted; otherwise only the ranges that are asked for.
    """

    def __init__(
        self,
        log: LogKey,
        *,
        owner: Owner,
        work: StoreWork,
        interest: Interest,
        family: HashFamily,
        following: bool,
    ) -> None:
        self.log = log
        self.interest = interest
        self.following = following
        self._offered = 0  # the last entry that the peer has spoken of
        self.passed = 0  # the last entry that it has notified or sent
        self.writing = 0  # what has come and is not in the store, in batches
        self.inventory = Inventory(log, work=work, family=family, forked=self._forked)
        want = interest.want
        want = Want() if want is None or want.is_range else want
        self.inventory.want_payloads(want)
        self.next = NextSeeking(self, owner, want)
        self.ranges = RangeSeeking(self, owner)
        self.forks = ForkSeeking(self, owner)
        self.answering = Answering(self, owner, work=work, family=family)
        self.heard = False  # the peer has spoken of the log
        self._owner = owner
        self._work = work
        self._synced: int | None = None  # what LogSynced has told last

    def load(self) -> None:
        """Ask the store what there is; decisions wait for it."""
        self.inventory.look(self._loaded)

    def _loaded(self) -> None:
        self.answering.loaded()
        self.seek()
        if self.inventory.fork is not None:
            self._look_before(self.inventory.fork)

    def refresh(self, then: Callable[[], None]) -> None:
        """Somebody else has changed the store."""

        def looked() -> None:
            self.tell_news()
            self.next.allow_again()
            self.seek()
            then()

        self.inventory.look(looked)

    def seek(self) -> None:
        """Propose what is wanted."""
        self.next.seek()
        self.ranges.seek()
        self.forks.seek()
        self.answering.reconsider()

    def ask_for(self, want: Want) -> None:
        """The user wants this now."""
        if want.is_range:
            self.ranges.add(want)
            return
        self.following, self._synced = True, None
        self.next.wake()
        if want != self.next.want:
            self._change_mind(want)
        self.inventory.look(self.seek)

    def _change_mind(self, want: Want) -> None:
        """Something else is wanted than what is under way: begin anew."""
        self.inventory.want_payloads(want)
        self.next.replace(want)
        self.passed = 0  # what was only told may have to be fetched
        joined = self.answering.joined
        if joined is not None and joined.state is RequestState.CONFIRMED:
            joined.cancel(CancelReason.RESOURCE_LIMIT)

    # What is known.

    @property
    def offered(self) -> int:
        """The last valid entry that the peer has spoken of."""
        fork = self.inventory.fork
        return self._offered if fork is None else min(self._offered, fork.seqnum - 1)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that will come to an end by itself."""
        known = self.inventory.loaded and self.answering.settled
        return known and all(seeking.settled for seeking in (self.next, self.ranges, self.forks))

    def snapshot(self) -> LogSnapshot:
        """The log as it is now."""
        return LogSnapshot(
            log=self.log,
            position=self.inventory.position,
            offered=self.offered,
            settled=self.settled,
        )

    def emit(self, event: Event) -> None:
        """Let an event come out in its turn."""
        self._work.emit(event)

    def stored(self, batch: list[NewEntry]) -> list[Event]:
        """The entries are in the store; what there is to say of that."""
        self.inventory.stored(batch)
        events = self._news()
        if not self.following:  # there may be gaps before it
            ends = (new.entry.seqnum for new in batch if new.entry.end_of_log)
            events += [LogEnded(log=self.log, seqnum=seqnum) for seqnum in ends]
        return events

    def payload_stored(self, entry: Entry) -> list[Event]:
        """The payload of `entry` is complete; what there is to say of that."""
        self.inventory.payload_stored(entry)
        self._owner.payload_stored(self.log)
        return self._news()

    def payload_lost(self, entry: Entry) -> None:
        """What is stored of a payload is not what came: fetch that payload once more."""

        def look(stored: StoredEntry | None) -> None:
            if stored is not None and not stored.payload_complete:
                want = Want(first=entry.seqnum, last=entry.seqnum, payload_only=True)
                self.ranges.add(want, again=True)

        self._work.ask(ReadEntry, look, log=self.log, seqnum=entry.seqnum)

    def write(self) -> None:
        """A batch is to come."""
        self.writing += 1

    def written(self) -> None:
        """A batch is in the store."""
        self._owner.unsettle(self)
        self.writing -= 1
        if not self.writing:
            self._owner.stir(self.next.request)
            self.seek()

    def notified(self, seqnum: int) -> None:
        """The peer has passed over what comes up to that entry."""
        self.passed = max(self.passed, seqnum)

    def tell_news(self) -> None:
        """Say what has become known by looking rather than by storing."""
        for event in self._news():
            self.emit(event)

    def _news(self) -> list[Event]:
        inventory = self.inventory
        position = inventory.position
        if not self.following or inventory.payload_due or position < self.offered:
            return []
        if self.interest.live and position > self.offered:
            return []  # the peer's next live entry may be on its way
        if self._synced == position:
            return []
        self._synced = position
        events: list[Event] = [LogSynced(log=self.log, seqnum=position)]
        if inventory.ended:
            events.append(LogEnded(log=self.log, seqnum=position))
        return events

    # Our requests.

    def received_all(self, request: Request) -> None:
        """The peer has sent all of a request."""
        if request == self.ranges.request:
            self.ranges.received_all()

    def is_deferred(self, request_id: int) -> bool:
        """Whether the request is ours, and the peer has no room for it."""
        seeking = self._seeking_of(request_id)
        return seeking is not None and seeking.deferred

    def over(self, request_id: int, *, dropped: bool = False) -> None:
        """A request is over; what was in its way may have its turn now."""
        self._owner.unsettle(self)
        self.answering.over(request_id)
        seeking = self._seeking_of(request_id)
        if seeking is not None:
            seeking.over(dropped=dropped)
        if not dropped:
            self.seek()

    def _seeking_of(self, request_id: int) -> Seeking | None:
        for seeking in (self.next, self.ranges, self.forks):
            if seeking.request is not None and seeking.request.request_id == request_id:
                return seeking
        return None

    @property
    def deferred(self) -> bool:
        """Whether the peer has had too much to do for a proposal of ours."""
        return any(seeking.deferred for seeking in (self.next, self.ranges, self.forks))

    def crowded_out(self) -> None:
        """There are more logs than requests, and none of them ends."""
        self.emit(LogRefused(log=self.log, reason=CancelReason.RESOURCE_LIMIT))
        self._owner.defer(self)

    def retry(self) -> None:
        """The peer may have room again."""
        for seeking in (self.next, self.ranges, self.forks):
            seeking.allow_again()
        self.seek()

    def cancelled(self, request_id: int, cancel: Cancel) -> None:
        """The peer has cancelled a request about this log."""
        if cancel.proof is not None:
            self.forks.peer_knows(cancel.proof)
            self.inventory.add_fork(cancel.proof)
        seeking, reason = self._seeking_of(request_id), cancel.reason
        if seeking is None:
            joined = self.answering.joined
            rests = joined is not None and joined.request_id == request_id
            if rests and reason is CancelReason.END_OF_RANGE:
                self.next.peer_rests()
            return
        seeking.peer_cancels(reason)
        if cancel.entry is not None:
            self.inventory.compare(cancel.entry)
        known = reason is CancelReason.END_OF_LOG and self._knows_end(cancel.seqnum or 0)
        if known and seeking is self.next:
            return
        if reason not in (CancelReason.END_OF_RANGE, CancelReason.FORK):
            if seeking is self.next:
                self._offered = min(self._offered, self.inventory.position)
            self.emit(LogRefused(log=self.log, reason=reason))

    def _knows_end(self, seqnum: int) -> bool:
        """Whether both have all there is; else find out what the peer has there."""
        if self.inventory.ended and self.inventory.position == seqnum:
            return True
        if seqnum <= self.inventory.newest:
            self.next.probe_for(seqnum)
        else:
            self.ranges.ask_for_end(seqnum)
        return False

    def give_up(self, request: Request, fault: Reason | None = None) -> None:
        """Something is wrong with what the peer sends, or it sends nothing, or with our store."""
        (self._seeking_of(request.request_id) or self.next).refuse()
        if request.state in _OPEN:
            request.cancel(CancelReason.DO_NOT_RETRY)
        else:
            request.pass_over()
        self.emit(LogRefused(log=self.log, fault=fault))

    # The peer's proposals.

    def consider(self, proposal: Proposal, request: Request | None) -> None:
        """Answer a proposal of the peer (``None``: it is over already)."""
        # A proposal for what comes next tells what the peer has.
        last = proposal.start - 1
        tells = proposal.end is None and proposal.lower_certpool in (None, proposal.start)
        if tells and (last > self._offered or not self.heard):
            self.heard = True
            self._owner.stir(self.next.request)
            if not self._offered:
                self.next.forgive()  # for then it had nothing
            self._offered = max(self._offered, last)
            self.emit(LogOffered(log=self.log, seqnum=last))
        self.answering.consider(request)

    # Forks.

    def suspect(self, request: Request, seqnum: int, fault: Reason) -> None:
        """The peer seems to have another entry `seqnum` than we: ask for it."""
        self.next.probe_for(seqnum)
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
        """What is open ends before the fork; what begins behind it is cancelled for that reason."""
        self._owner.unsettle(self)
        self.next.forgive()  # what comes before the fork may be had yet
        self.forks.shorten()
        self._look_before(proof)

    def _look_before(self, proof: ForkProof) -> None:
        """The fork begins earlier if one of its branches is not the one that we have."""

        def compare(ours: dict[int, bytes]) -> None:
            other = [seqnum for seqnum, link in _links(proof) if ours.get(seqnum, link) != link]
            if other:
                self.next.probe_for(min(other))
            self.seek()

        self.inventory.hashes([seqnum for seqnum, _ in _links(proof)], compare)


def _links(proof: ForkProof) -> list[tuple[int, bytes]]:
    """Where both entries of a fork link to."""
    before, skipped = proof.seqnum - 1, lipmaa(proof.seqnum)
    links = [
        pair
        for entry in (proof.first, proof.second)
        for pair in ((before, entry.backlink), (skipped, entry.lipmaalink))
    ]
    return [(seqnum, link) for seqnum, link in links if link is not None]
