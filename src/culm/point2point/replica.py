"""One log between our store and one peer: what is offered, wanted and under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from culm.bamboo.effects import ReadEntry, ReadHashes
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lower_pool, open_targets
from culm.bamboo.store import NewEntry, StoredEntry
from culm.machine import Event
from culm.point2point.desk import Desk
from culm.point2point.inventory import Inventory, Resumption
from culm.point2point.messages import NOTIFY, Cancel, CancelReason, Proposal
from culm.point2point.proposals import propose_next, propose_probe, propose_range
from culm.point2point.replication_events import (
    Interest,
    LogEnded,
    LogOffered,
    LogRefused,
    LogSynced,
    Want,
)
from culm.point2point.request import Request
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

__all__ = ["Owner", "Replica"]

_UNDER_WAY = frozenset({RequestState.PROPOSED_BY_US, RequestState.CONFIRMED})

# Reasons for which asking again (for something else, or later) makes sense.
_PASSING = frozenset({CancelReason.RESOURCE_LIMIT, CancelReason.END_OF_RANGE})


class Owner(Protocol):
    """What a replica needs of its replicator."""

    def propose(
        self,
        replica: Replica,
        proposal: Proposal,
        links: dict[int, bytes],
        resumption: Resumption | None,
    ) -> None:
        """Propose as soon as there is credit; `Replica.proposed` is told then."""
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
        self.want = interest.want
        self.own_request: Request | None = None
        self.offered = 0  # the last entry that the peer has spoken of
        self._heard = False  # it has spoken of the log
        self.inventory = Inventory(log, desk=desk, family=family, forked=self._forked)
        self._owner = owner
        self._desk = desk
        self._interest = interest
        self._family = family
        self._undecided: list[Request] = []
        self._synced: int | None = None  # what LogSynced has told last
        self.deferred = False  # the peer has had too much to do for our proposal
        self._refused = False  # the peer will not have what we propose
        self._proposing = False  # a proposal is being made
        self._peer_knows_fork = False
        self._probe: int | None = None  # an entry of which the peer may have another one

    def load(self) -> None:
        """Ask the store what there is; decisions wait for it."""
        self._load(self._loaded)

    def _load(self, then: Callable[[], None]) -> None:
        self.inventory.load(then, payload_mandatory=self.want.payload_mandatory)

    def _loaded(self) -> None:
        undecided, self._undecided = self._undecided, []
        for request in undecided:
            self._decide(request)
        if self._interest.live:
            self.seek()

    # What is known.

    @property
    def settled(self) -> bool:
        """Whether nothing is under way that will come to an end by itself."""
        if not self.inventory.loaded or self._undecided or self._proposing:
            return False
        if self.want.is_range:
            return self.own_request is None
        return self.inventory.position >= self.offered and not self.inventory.payload_due

    def stored(self, new: NewEntry) -> list[Event]:
        """`new` and all before it are in the store; what there is to say of that."""
        self.inventory.stored(new)
        return self._news()

    def payload_stored(self, entry: Entry) -> list[Event]:
        """The payload of `entry` is complete; what there is to say of that."""
        self.inventory.payload_stored(entry)
        return self._news()

    def _news(self) -> list[Event]:
        inventory = self.inventory
        position = inventory.position
        if self.want.is_range or inventory.payload_due or position < self.offered:
            return []
        if self._interest.live and position > self.offered:
            return []  # the peer's next live entry may be on its way
        if self._synced == position:
            return []
        self._synced = position
        events: list[Event] = [LogSynced(log=self.log, seqnum=position)]
        if inventory.ended:
            events.append(LogEnded(log=self.log, seqnum=position))
        return events

    def received_all(self) -> None:
        """The peer has sent all of our request; the store will have it before this is told."""
        if self.want.is_range and self.want.last is not None:
            self._synced = self.want.last
            self._desk.emit(LogSynced(log=self.log, seqnum=self.want.last))

    # Our proposals.

    def ask_for(self, want: Want) -> None:
        """The user wants this now."""
        self.want, self._refused, self.deferred, self._synced = want, False, False, None
        self.seek()

    def seek(self) -> None:
        """Propose what is wanted, unless that is under way."""
        inventory = self.inventory
        if not inventory.loaded or self._proposing or not self._lacks_something():
            return
        self._proposing = True
        if inventory.payload_due and inventory.resumption is None:
            self._load(self._look_again)  # a request has ended inside a payload
            return
        if self._probe is not None:
            seqnums = lower_pool(self._probe)
        elif self.want.is_range:
            seqnums = lower_pool(self.want.first or 1)
        else:
            seqnums = open_targets(inventory.position)
        position = inventory.position
        self._desk.ask(
            ReadHashes,
            lambda links: self._propose(position, links),
            log=self.log,
            seqnums=tuple(seqnums),
        )

    def _look_again(self) -> None:
        self._proposing = False
        self.seek()

    def _lacks_something(self) -> bool:
        """Whether there is something to propose."""
        inventory, want = self.inventory, self.want
        if self.own_request is not None or inventory.fork is not None or self.deferred:
            return False
        if self._probe is not None:
            return True
        if self._refused:
            return False
        if want.is_range:
            return self._synced is None
        behind = inventory.position < self.offered or inventory.payload_due
        return self._interest.live or behind

    def _propose(self, position: int, links: dict[int, bytes]) -> None:
        if position != self.inventory.position or not self._lacks_something():
            self._look_again()  # something was written meanwhile
            return
        resumption = None
        if self._probe is not None:
            proposal = propose_probe(self.log, self._probe, links)
            self._probe = None
        elif self.want.is_range:
            proposal = propose_range(self.log, self.want, links, newest=self.offered)
        else:
            resumption, self.inventory.resumption = self.inventory.resumption, None
            end = None if self._interest.live else max(self.offered, position)
            proposal = propose_next(self.inventory, self.want, links, resumption, end=end)
        self._owner.propose(self, proposal, links, resumption)

    def proposed(self, request: Request | None) -> None:
        """Our proposal has been sent, or (``None``) is over."""
        self._proposing = False
        over, self.own_request = self.own_request, request
        fork = self.inventory.fork
        if request is not None and request.state in _UNDER_WAY and fork is not None:
            request.cancel(CancelReason.FORK, proof=fork)
        if over is not None and over.receive_cursor.range.end is not None:
            # A peer that ends a range without having sent it would do so again.
            self._refused |= over.receive_cursor.piece is not None and not self.deferred

    def refused(self, cancel: Cancel) -> None:
        """The peer has cancelled our request."""
        reason = cancel.reason
        if cancel.entry is not None:
            self.inventory.compare(cancel.entry)
        if reason is CancelReason.END_OF_RANGE:
            return
        if cancel.seqnum is not None and self.inventory.newest >= cancel.seqnum:
            if self.inventory.ended and self.inventory.position == cancel.seqnum:
                self._refused = True  # both have all there is
                return
            self._probe = cancel.seqnum
        self._refused = reason not in _PASSING
        self.deferred = reason is CancelReason.RESOURCE_LIMIT
        self.offered = min(self.offered, self.inventory.position)
        if reason is not CancelReason.FORK:
            self._desk.emit(LogRefused(log=self.log, reason=reason))

    # The peer's proposals.

    def consider(self, proposal: Proposal, request: Request | None) -> None:
        """Confirm or cancel a proposal of the peer (``None``: it is over already)."""
        # A proposal for what comes next tells what the peer has.
        last = proposal.start - 1 if proposal.start_offset is None else proposal.start
        tells = proposal.end is None and proposal.lower_certpool in (None, proposal.start)
        if tells and (last > self.offered or not self._heard):
            self._heard = True
            self.offered = max(self.offered, last)
            self._desk.emit(LogOffered(log=self.log, seqnum=last))
        if request is not None and self.inventory.loaded:
            self._decide(request)
        elif request is not None:
            self._undecided = [r for r in self._undecided if _is_open(r)] + [request]
        elif self.inventory.loaded:
            self.seek()

    def _decide(self, request: Request) -> None:
        proposal, inventory = request.proposal, self.inventory
        for event in self._news():
            self._desk.emit(event)
        if not _is_open(request):
            return
        if inventory.fork is not None:
            request.cancel(CancelReason.FORK, proof=inventory.fork)
        elif inventory.ended and proposal.first_seqnum > inventory.position:
            request.cancel(CancelReason.END_OF_LOG, seqnum=inventory.position)
        elif proposal.expected_seqnum > inventory.newest:
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
        if not _is_open(request):
            return
        if stored is not None and stored.hash != request.proposal.expected_hash:
            entry = decode(stored.encoded, family=self._family)
            request.cancel(CancelReason.HASH_MISMATCH, entry=entry)
        else:
            self._accept(request)

    def _accept(self, request: Request) -> None:
        proposal, inventory = request.proposal, self.inventory
        wanted = self._interest.live and proposal.end is None and not self.want.is_range
        in_reach = proposal.first_seqnum <= inventory.newest
        if proposal.end is None:
            # Live: the range has to begin where our log ends, or before.
            in_reach = proposal.start <= inventory.position + (1 if wanted else 0)
        if not in_reach or not (wanted or self._interest.offer_stored):
            self._let_go(request)
            return
        self._desk.ask(
            ReadHashes,
            lambda links: self._confirm(request, links, wanted=wanted),
            log=self.log,
            seqnums=tuple(open_targets(proposal.start - 1)),
        )

    def _confirm(self, request: Request, links: dict[int, bytes], *, wanted: bool) -> None:
        if not _is_open(request):
            return
        if wanted:
            skipping = not self.want.payload_mandatory
            request.confirm(**self.want.demand(), allow_skipping=skipping, links=links)
        else:
            request.confirm(NOTIFY, allow_skipping=True)
        self._owner.confirmed(request, self)

    def _let_go(self, request: Request) -> None:
        """Do not take part; ask for what we lack instead.

        If that will be a proposal that overlaps this one, the overlap rule drops this one.
        """
        self.seek()
        own = self.own_request
        coming = self._proposing or (own is not None and own.unanswered)
        if not (self._interest.live and coming and not self.want.is_range):
            request.cancel(CancelReason.DO_NOT_RETRY)

    # Forks.

    def suspect(self, request: Request, seqnum: int) -> None:
        """The peer seems to have another entry `seqnum` than we: ask for it."""
        self._probe = seqnum
        if request.state is RequestState.CONFIRMED:
            request.cancel(CancelReason.DO_NOT_RETRY)

    def told_of_fork(self, proof: ForkProof) -> None:
        """The peer has proved that the log is forked."""
        self._peer_knows_fork = True
        self.inventory.add_fork(proof)

    def _forked(self, proof: ForkProof) -> None:
        """Tell the peer, with a request that is cancelled for that reason."""
        self.offered = min(self.offered, proof.seqnum - 1)
        own = self.own_request
        if own is not None and own.state in _UNDER_WAY:
            own.cancel(CancelReason.FORK, proof=proof)
        elif not (self._peer_knows_fork or self._proposing):
            self._proposing = True
            self._owner.propose(self, propose_probe(self.log, 1, {}), {}, None)


def _is_open(request: Request) -> bool:
    return request.state is RequestState.PROPOSED_BY_PEER
