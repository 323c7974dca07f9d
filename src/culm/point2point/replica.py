"""One log between our store and one peer: what is known, wanted and under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from culm.bamboo.effects import AddFork, ReadEntry, ReadFork, ReadHashes, ReadHead, ReadPayload
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.forks import ForkProof, find_fork
from culm.bamboo.links import lipmaa, open_targets
from culm.bamboo.store import Head, NewEntry, StoredEntry, StoreError
from culm.bamboo.verify import PayloadVerifier
from culm.machine import Event
from culm.point2point.desk import Desk
from culm.point2point.messages import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Proposal,
)
from culm.point2point.replication_events import (
    ForkFound,
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
)
from culm.point2point.request import Request
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

__all__ = ["Owner", "Replica", "Resumption"]

_PREFIX_READ_SIZE = 1 << 20


class Resumption:
    """The payload at the end of the log of which only a beginning is stored."""

    __slots__ = ("entry", "stored", "verifier")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.stored = 0
        self.verifier = PayloadVerifier(entry)

    def add(self, data: bytes) -> None:
        """Take stored bytes, in order."""
        self.verifier.update(data)
        self.stored += len(data)


class Owner(Protocol):
    """What a replica needs of its replicator."""

    def propose(
        self,
        replica: Replica,
        proposal: Proposal,
        links: dict[int, bytes],
        resumption: Resumption | None,
    ) -> None:
        """Propose as soon as there is credit; `Replica.own_request` is set then."""
        ...

    def confirmed(self, request: Request, replica: Replica) -> None:
        """We have confirmed a request of the peer."""
        ...


class Replica:
    """Decides what is proposed, confirmed and refused for one log."""

    def __init__(
        self,
        log: LogKey,
        *,
        owner: Owner,
        desk: Desk,
        interest: Interest,
        family: HashFamily,
    ) -> None:
        self.log = log
        self.own_request: Request | None = None
        self.head: Head | None = None
        self.fork: ForkProof | None = None
        self.payload_due = False  # of the entry at the head: only a beginning is stored
        self.offered = 0  # the last entry that the peer has spoken of
        self._owner = owner
        self._desk = desk
        self._interest = interest
        self._family = family
        self._loaded = False
        self._undecided: list[Request] = []
        self._resumption: Resumption | None = None
        self._synced: int | None = None  # what LogSynced has told last
        self._unwanted = False  # the peer has said that it will not have it
        self._proposing = False

    # Loading.

    def load(self) -> None:
        """Ask the store what there is; decisions wait for it."""
        self._desk.ask(ReadFork, self._got_fork, log=self.log)

    def _got_fork(self, fork: ForkProof | None) -> None:
        self.fork = fork
        self._desk.ask(ReadHead, self._got_head, log=self.log)

    def _got_head(self, head: Head | None) -> None:
        self.head = head
        if head is None:
            self._complete_loading()
        else:
            self._desk.ask(ReadEntry, self._got_last, log=self.log, seqnum=head.seqnum)

    def _got_last(self, last: StoredEntry | None) -> None:
        if last is None or last.payload_complete or not last.payload_stored:
            self._complete_loading()
        else:
            self.payload_due = True
            self._resumption = Resumption(decode(last.encoded, family=self._family))
            self._read_prefix(last.payload_stored)

    def _read_prefix(self, stored: int) -> None:
        resumption = self._resumption
        assert resumption is not None

        def got(data: bytes) -> None:
            resumption.add(data)
            if data and resumption.stored < stored:
                self._read_prefix(stored)
            else:
                self._complete_loading()

        self._desk.ask(
            ReadPayload,
            got,
            log=self.log,
            seqnum=resumption.entry.seqnum,
            offset=resumption.stored,
            size=min(_PREFIX_READ_SIZE, stored - resumption.stored),
        )

    def _complete_loading(self) -> None:
        self._loaded = True
        undecided, self._undecided = self._undecided, []
        for request in undecided:
            self._decide(request)
        if self._interest.live:
            self.want()

    # What is known.

    @property
    def position(self) -> int:
        """The last entry of the store's unbroken log; 0: there is none."""
        return 0 if self.head is None else self.head.seqnum

    @property
    def _ended(self) -> bool:
        return self.head is not None and self.head.end_of_log

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that will come to an end by itself."""
        if not self._loaded or self._undecided or self._proposing:
            return False
        return self.position >= self.offered and not self.payload_due

    def stored(self, new: NewEntry) -> list[Event]:
        """`new` and all before it are in the store."""
        entry = new.entry
        if entry.seqnum > self.position:
            self.head = Head(entry.seqnum, entry.hash(), entry.end_of_log)
            self.payload_due = new.staged
        return self._news()

    def payload_stored(self, entry: Entry) -> list[Event]:
        """The payload of `entry` is complete."""
        if entry.seqnum == self.position:
            self.payload_due = False
        return self._news()

    def _news(self) -> list[Event]:
        if self.payload_due or self.position < self.offered or self._synced == self.position:
            return []
        if self._interest.live and self.position > self.offered:
            return []  # the peer's next live entry may be on its way
        self._synced = self.position
        return self._synced_events()

    def _synced_events(self) -> list[Event]:
        events: list[Event] = [LogSynced(log=self.log, seqnum=self.position)]
        if self._ended:
            events.append(LogEnded(log=self.log, seqnum=self.position))
        return events

    def refresh(self, then: Callable[[], None]) -> None:
        """Somebody else may have stored entries."""

        def got(head: Head | None) -> None:
            if head is not None and head.seqnum > self.position:
                self.head = head
            then()

        self._desk.ask(ReadHead, got, log=self.log)

    # Our proposals.

    def want(self) -> None:
        """Propose what comes after what we have, unless that is under way."""
        if not self._loaded or self.own_request is not None or self._proposing:
            return
        if self.fork is not None or self._unwanted:
            return
        if self._ended and not self.payload_due:
            return
        if not self._interest.live and self.position >= self.offered and not self.payload_due:
            return
        self._proposing = True
        self._desk.ask(
            ReadHashes, self._propose, log=self.log, seqnums=tuple(open_targets(self.position))
        )

    def _propose(self, links: dict[int, bytes]) -> None:
        resumption, self._resumption = self._resumption, None
        self._owner.propose(self, self._next_proposal(links, resumption), links, resumption)

    def proposed(self, request: Request | None) -> None:
        """Our proposal has been sent, or (``None``) is over."""
        self._proposing = False
        self.own_request = request

    def _next_proposal(self, links: dict[int, bytes], resumption: Resumption | None) -> Proposal:
        end = None if self._interest.live else max(self.offered, self.position)
        if resumption is not None:
            assert self.head is not None
            return Proposal(
                log=self.log,
                start=self.position,
                lower_certpool=None,
                expected_hash=self.head.hash,
                start_offset=resumption.stored,
                end=end,
                upper_certpool=end,
            )
        start = self.position + 1
        return Proposal(
            log=self.log,
            start=start,
            lower_certpool=start,
            expected_hash=links[lipmaa(start)] if start > 1 else None,
            end=end,
            upper_certpool=end,
        )

    def refused(self, reason: CancelReason) -> None:
        """The peer has cancelled our request."""
        if reason is CancelReason.END_OF_RANGE:
            return
        self._unwanted = reason is not CancelReason.RESOURCE_LIMIT
        self.offered = min(self.offered, self.position)
        if reason is not CancelReason.FORK:
            self._desk.emit(LogRefused(log=self.log, reason=reason))

    # The peer's proposals.

    def consider(self, proposal: Proposal, request: Request | None) -> None:
        """Confirm or cancel a proposal of the peer (``None``: it is over already)."""
        # A proposal for what comes next tells what the peer has.
        last = proposal.start - 1 if proposal.start_offset is None else proposal.start
        if proposal.end is None and proposal.lower_certpool in (None, proposal.start):
            self.offered = max(self.offered, last)
            self._desk.emit(LogOffered(log=self.log, seqnum=last))
        if request is None:
            return
        if self._loaded:
            self._decide(request)
        else:
            self._undecided.append(request)

    def _decide(self, request: Request) -> None:
        proposal = request.proposal
        for event in self._news():
            self._desk.emit(event)
        if request.state is not RequestState.PROPOSED_BY_PEER:
            return
        if self.fork is not None:
            request.cancel(CancelReason.FORK, proof=self.fork)
        elif (
            self.head is not None and self.head.end_of_log and proposal.first_seqnum > self.position
        ):
            request.cancel(CancelReason.END_OF_LOG, seqnum=self.position)
        elif proposal.expected_seqnum > self.position:
            self._let_go(request)
        elif proposal.expected_seqnum:
            self._desk.ask(
                ReadEntry,
                lambda stored: self._compare(request, stored),
                log=self.log,
                seqnum=proposal.expected_seqnum,
            )
        else:
            self._accept(request)

    def _compare(self, request: Request, stored: StoredEntry | None) -> None:
        """The peer's log before the range has to be ours."""
        if request.state is not RequestState.PROPOSED_BY_PEER:
            return
        if stored is not None and stored.hash != request.proposal.expected_hash:
            entry = decode(stored.encoded, family=self._family)
            request.cancel(CancelReason.HASH_MISMATCH, entry=entry)
        else:
            self._accept(request)

    def _accept(self, request: Request) -> None:
        proposal = request.proposal
        if self.position < proposal.start - 1:
            self._let_go(request)
            return
        wanted = self._interest.live and proposal.end is None
        if not wanted and not self._interest.offer_stored:
            self._let_go(request)
            return
        if not self._interest.live and self.position < proposal.start and proposal.end is None:
            self._let_go(request)  # there is nothing to serve, and nothing to wait for
            return
        self._desk.ask(
            ReadHashes,
            lambda links: self._confirm(request, links, wanted=wanted),
            log=self.log,
            seqnums=tuple(open_targets(proposal.start - 1)),
        )

    def _confirm(self, request: Request, links: dict[int, bytes], *, wanted: bool) -> None:
        if request.state is RequestState.PROPOSED_BY_PEER:
            eagerness = EVERYTHING if wanted else NOTIFY
            request.confirm(eagerness, allow_skipping=True, links=links)
            self._owner.confirmed(request, self)

    def _let_go(self, request: Request) -> None:
        """Do not take part; ask for what we lack instead.

        If that will be a proposal that overlaps this one, the overlap rule drops this one.
        """
        self.want()
        own = self.own_request
        coming = self._proposing or (own is not None and own.state is RequestState.PROPOSED_BY_US)
        if not (self._interest.live and coming):
            request.cancel(CancelReason.DO_NOT_RETRY)

    # Forks.

    def mismatched(self, entry: Entry) -> None:
        """The peer has another entry than we expected; it is signed."""
        self._desk.ask(
            ReadEntry, lambda stored: self._prove(entry, stored), log=self.log, seqnum=entry.seqnum
        )

    def contradicted(self, refusal: StoreError, entries: list[Entry]) -> None:
        """The store has another entry than one of those that the peer has sent."""
        for entry in entries:
            if entry.seqnum == refusal.seqnum:
                self.mismatched(entry)

    def _prove(self, entry: Entry, stored: StoredEntry | None) -> None:
        if stored is None:
            return
        proof = find_fork(entry, decode(stored.encoded, family=self._family))
        if proof is not None:
            self.forked(proof)

    def forked(self, proof: ForkProof) -> None:
        """A (verified) fork of the log has become known."""
        if self.fork is not None and self.fork.seqnum <= proof.seqnum:
            return
        self.fork = proof
        slot = self._desk.reserve()

        def kept(_: object) -> None:
            slot.events = [ForkFound(log=self.log, proof=proof)]
            self._desk.ask(ReadHead, self._shortened, log=self.log)

        self._desk.ask(AddFork, kept, log=self.log, proof=proof)
        if self.own_request is not None and self.own_request.state in (
            RequestState.PROPOSED_BY_US,
            RequestState.CONFIRMED,
        ):
            self.own_request.cancel(CancelReason.FORK, proof=proof)

    def _shortened(self, head: Head | None) -> None:
        self.head = head
        self.offered = min(self.offered, self.position)
        self.payload_due = False
