"""Replication of logs between a store and one peer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from culm.arguments import check_type
from culm.bamboo.answers import is_of_family
from culm.bamboo.effects import ReadLogs
from culm.bamboo.entry import LogKey, check_log
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bymux import Role
from culm.effects import StoreWork
from culm.machine import Closed, Event, Ticket, check_time
from culm.point2point import events
from culm.point2point.channels import RunVerifier
from culm.point2point.connection import Connection
from culm.point2point.errors import ErrorCode
from culm.point2point.handles import Request
from culm.point2point.limits import ReplicatorLimits, Timing
from culm.point2point.messages import CancelReason, Setup
from culm.point2point.replication.events import (
    Interest,
    LogRefused,
    ReplicatorEffect,
    ReplicatorEvent,
    Settled,
    Want,
)
from culm.point2point.replication.log_sync import LogSync
from culm.point2point.replication.logs import Logs
from culm.point2point.replication.steps import GivenUp, Happening, Offered, Wanted
from culm.point2point.states import RequestState, State
from culm.replication import DurableBase, Quiet
from culm.signatures import asks
from culm.timers import earliest
from culm.wire.multihash import YAMF, HashFamily

R = TypeVar("R")

_DEFAULT_SETUP: Final = Setup()
_DEFAULT_LIMITS: Final = ReplicatorLimits()
_DEFAULT_TIMING: Final = Timing()
_DEFAULT_INTEREST: Final = Interest()
_LOGS_READ_MAX = 1000
# A proposal that ends in this way has told something that will not be told again.
_TOLD_ONCE: Final = (CancelReason.END_OF_RANGE, CancelReason.FORK)


class Replicator(DurableBase[Connection, ReplicatorEvent, ReplicatorEffect]):
    """Drives a `Connection` over a log store: proposes, confirms, serves, stores.

    The store is reached through effects (`culm.bamboo.effects`).  After bytes have been taken there
    may be new effects: only entries that the peer can take are read.

    Every endpoint proposes each log from the entry after its last; by the overlap rule, the
    proposal of the one with fewer entries wins.

    role
        ``PROACTIVE`` for the endpoint that opened the stream of bytes, ``REACTIVE`` for the other.
    setup
        Our offer; see `Connection`.
    limits
        Bounds on the memory that peer and store may use.
    timing
        Times for which the peer is waited for, and after which it has settled.
    interest
        The logs that it replicates on its own account, and the wishes for them.
    family
        Of the hashes of all logs.
    """

    def __init__(
        self,
        *,
        role: Role,
        setup: Setup = _DEFAULT_SETUP,
        limits: ReplicatorLimits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
        interest: Interest = _DEFAULT_INTEREST,
        family: HashFamily = YAMF,
    ) -> None:
        check_type("limits", limits, ReplicatorLimits)
        check_type("interest", interest, Interest)
        work = StoreWork(suits=partial(is_of_family, family))
        apart = limits.verifying_max
        verifier = RunVerifier(apart, asks(work)) if apart else None
        connection = Connection(
            role=role,
            setup=setup,
            limits=limits.connection,
            timing=timing,
            family=family,
            in_runs=True,
            verifier=verifier,
            trust_caller=True,  # entries in a store have been verified
        )
        super().__init__(connection, work=work)
        self._limits = limits
        self._interest = interest
        self._family = family
        # Those that the user has told for single logs, which may give up their places.
        self._wishes: dict[LogKey, Want] = {}
        # Open proposals of the peer whose logs wait for a place, by their requests
        self._newcomers: OrderedDict[int, events.Proposed] = OrderedDict()
        self._has_placed = False  # a log has got a place since they were looked through
        self._withdraws = role is Role.REACTIVE  # of two that wait for each other, one has to
        # The logs of the store that are read as soon as there is a place for the next.
        self._unread: _Unread | None = None
        self._logs = Logs(connection, work, limits)
        self.logs: Mapping[LogKey, LogSync] = MappingProxyType(self._logs.states)
        """The logs that have a place, as values, in the order in which they became known."""
        self._transfers = self._logs.transfers
        # Proposals that wait until the logs of the store are known; ``None``: they are.
        self._early: list[events.Proposed] | None = []
        self._shown: dict[LogKey, ForkProof] = {}  # when such proposals were cancelled
        self._quiet = Quiet(timing.settle_s)

    @property
    def state(self) -> State:
        return State.CLOSED if self._ended else self.connection.state

    @property
    def unwritten_size(self) -> int:
        """Received bytes whose writing is not completed; bounded by a limit of the same name."""
        return self._work.unwritten_size

    @property
    def read_ahead_size(self) -> int:
        """Bytes read for the peer and not sent; bounded by a limit of the same name."""
        return self._logs.shared.room.size

    # Verbs.

    def replicate(self, log: LogKey, want: Want | None = None) -> None:
        """Replicate `log` with this peer, whether or not it is in the store.

        `want`: wishes other than those of the interest.
        """
        check_log(log)
        want = (self._interest.want or Want()) if want is None else want
        check_type("want", want, Want)
        self.connection.check_open()
        self._quiet.disturb()  # a store that answers at once leaves no other trace of it
        if self._keep(log, only_stored=want.is_range):
            if not want.is_range:
                self._wishes[log] = want
            self._logs.tell(log, Wanted(want))

    def stored(self, log: LogKey) -> None:
        """Entries of `log` have been stored by another writer: send them to the peer."""
        check_log(log)
        self.connection.check_open()
        self._quiet.disturb()
        if log in self.logs or self._logs.free():
            self._keep(log)
            self._logs.tell(log, Happening.CHANGED)
        elif not self._logs.wait(log):
            self._refuse(log)
            self._put_off(_Unread(None, told=True))

    def close(self) -> None:
        """Say goodbye; `Closed` follows when the peer has answered."""
        self.connection.close()

    # Bytes and time.

    def data_to_send(self, size_max: int | None = None) -> bytes:
        """Take bytes for the peer; the data is chosen as late as possible."""
        taken = self.connection.taken_size
        pieces = self._transfers.pieces_to_send(size_max)
        self._logs.settle()
        if taken != self.connection.taken_size and self._logs.turned_away:
            self._quiet.disturb()  # what has been sent may give up its place
        return self.connection.joined(pieces, size_max)

    def next_deadline(self) -> float | None:
        if self._ended:
            return None
        below = None if self._store_is_behind() else self.connection.next_deadline()
        return earliest(below, self._quiet.deadline(self._is_quiet()))

    def advance(self, now: float) -> None:
        check_time(now, self._quiet.now)
        if self._store_is_behind():
            self.connection.restart_idle_timeout()  # it has to wait for us
        else:
            self.connection.advance(now)
        self._quiet.advance(now, quiet=self._is_quiet())

    # Effects.

    def next_effect(self) -> ReplicatorEffect | None:
        """Take the next piece of work for the store; see `LogStore.perform`."""
        effect = super().next_effect()
        if effect is None:
            self._transfers.ask()
            if self._limits.verifying_max and not self._work.has_failed:
                self.connection.ask_verifier()
            self._logs.settle()
            effect = super().next_effect()
        return effect

    def complete(self, ticket: Ticket[R], result: R) -> None:
        self._work.complete(ticket, result)
        self._logs.settle()

    # Rest.

    def _at_rest(self) -> ReplicatorEvent | None:
        if self.connection.state is State.ESTABLISHED:
            self._admit()
            # With credit of proposals that were dropped.
            self._logs.retry_crowded(self.connection.proposal_credit)
            self._logs.make_room(wanted=self._without_place)
        if not (self._quiet.lasts and self._is_quiet()):
            return None
        self._quiet.settle()
        settled = self._logs.settled
        if settled and self._transfers.keep_entries():
            self._quiet.begin_anew()
            return self.next_event()
        if self._logs.let_ranges_take_turns():
            return None  # what the peer says to that disturbs the quiet
        if self._logs.waiting or self._without_place:
            self._logs.make_room(patient=False, wanted=self._without_place)
            if self._logs.leaving:
                return None
            if self._go_without():
                self._quiet.begin_anew()
                return self.next_event()
        # An answer, however late, lets it settle anew.
        return Settled() if settled and not self._logs.unanswered else None

    # Logs without a place.

    @property
    def _without_place(self) -> int:
        return len(self._newcomers) + len(self._logs.queue) + (self._unread is not None)

    def _admit(self) -> None:
        """Give free places to logs that wait: the peer's, then ours."""
        while self._newcomers and self._logs.free():
            self._consider(self._newcomers.popitem(last=False)[1])
        if self._has_placed:
            self._has_placed = False
            for event in list(self._newcomers.values()):
                if event.proposal.log in self.logs:  # its log has got one for another reason
                    del self._newcomers[event.request_id]
                    self._consider(event)
        queue = self._logs.queue
        while queue and not self._newcomers and self._logs.free():
            log = next(iter(queue))
            if log in self.logs:  # it has not made way yet
                self._logs.go_on_with(log)
            else:
                self._keep(log, only_stored=True)
        unread = self._unread
        if unread is not None and not (self._newcomers or queue) and self._logs.free():
            self._unread = None
            self._read_logs(unread)

    def _go_without(self) -> bool:
        """Expect no more room; returns whether that is news for a waiting proposal."""
        untold = self._unread is not None and not self._unread.told
        untold = untold or not all(self._logs.queue.values())
        news = bool(self._logs.wishes or self._newcomers or untold)
        if news:
            self._logs.give_up()
        # Logs of the peer have the places of ours that only wait for a place there.  Both may have
        # nothing but such logs: then one has to let the other go first.
        withdrawn = self._logs.withdraw(len(self._newcomers) if self._withdraws else None)
        if news and not withdrawn:
            self._turn_away()
        return news or withdrawn

    def _turn_away(self) -> None:
        """No place becomes free: the logs without one are refused."""
        newcomers, self._newcomers = self._newcomers, OrderedDict()
        for event in newcomers.values():
            request = self._request_of(event)
            if request is not None and request.state is RequestState.PROPOSED_BY_PEER:
                request.cancel(CancelReason.RESOURCE_LIMIT)
                self._remember(event)  # its log gets the next place, whichever that is
        for log, told in self._logs.queue.items():
            if not told:
                self._refuse(log)
                self._logs.queue[log] = True
        unread = self._unread
        if unread is not None and not unread.told:
            self._unread = unread._replace(told=True)  # once there is a place after all
            self._read_logs(unread, placeless=True)

    def _refuse(self, log: LogKey) -> None:
        self._work.emit(LogRefused(log=log, reason=CancelReason.RESOURCE_LIMIT))

    def _is_quiet(self) -> bool:
        logs = self._logs
        if self._early is not None or self._work.load or self.connection.inside:
            return False
        # The next answer of the peer may bring credit for a proposal that waits.
        return not (logs.wishes and logs.leaving) and logs.settled_but_ranges

    def _store_is_behind(self) -> bool:
        limits, work = self._limits, self._work
        if work.unwritten_size > limits.unwritten_size_max:
            return True
        return work.load > limits.outstanding_max - len(self._early or ())

    # Events of the connection.

    def _handle(self, event: Event) -> None:
        if isinstance(event, events.IdFreed):
            return  # it takes any
        self._quiet.disturb()
        match event:
            case Closed(error=error):
                self._transfers.finish()
                request_id, about = self.connection.receiving_id, self._transfers.about
                invalid = error is not None and error.code is ErrorCode.INVALID_DATA
                if invalid and request_id in about:
                    self._work.emit(LogRefused(log=about[request_id], fault=Reason.INVALID_LOG))
            case events.Established():
                self._read_logs(_Unread(None))
            case events.CreditReceived():
                self._logs.go_on()
                self._logs.retry_crowded(self.connection.proposal_credit)
            case events.Proposed():
                self._consider(event)
            case events.Cancelled() | events.ProposalDropped() | events.RequestEnded() if (
                event.request_id in self._newcomers
            ):
                newcomer = self._newcomers.pop(event.request_id)
                if isinstance(event, events.Cancelled) and event.cancel.reason in _TOLD_ONCE:
                    self._remember(newcomer, event.cancel.proof)
            case events.RequestEvent() if event.request_id in self._transfers.about:
                self._tell(self._transfers.about[event.request_id], event)
            case events.Cancelled(request_id=request_id, cancel=cancel) if cancel.proof is not None:
                if any(early.request_id == request_id for early in self._early or ()):
                    self._shown[cancel.proof.log] = cancel.proof
            case _:
                pass
        self._logs.settle()

    def _tell(self, log: LogKey, event: events.RequestEvent) -> None:
        match event:
            case events.Cancelled():
                self._logs.tell(log, event)
            case events.ProposalDropped() | events.RequestEnded():
                self._transfers.forget(event.request_id)
                self._logs.leaving.discard(event.request_id)
                self._logs.tell(log, event)
            case events.Adjusted() if event.request_id in self._logs.leaving:
                self._logs.be_patient()
            case events.RequestGivenUp(reason=events.GivenUp.STALLED):
                self._logs.tell(log, GivenUp(self.connection.request(event.request_id)))
            case _:
                if isinstance(event, events.Confirmed):
                    self._logs.tell(log, event)
                self._transfers.handle(event)

    def _read_logs(self, unread: _Unread, *, placeless: bool = False) -> None:
        """Read the logs of the store that have not been read, as far as there are places for them.

        `placeless`: the next ones are refused if there are none.
        """
        free = self._logs.free(_LOGS_READ_MAX)
        if not free and not placeless:
            self._put_off(unread)
            self._known()
            return
        count_max = free or _LOGS_READ_MAX

        def got(logs: list[LogKey]) -> None:
            after = unread.after
            for log in logs:
                # A place that was free may have been given to a log of the peer meanwhile.
                if not (placeless or log in self.logs or self._logs.free()):
                    break
                self._keep(log)
                after = log
            else:
                if len(logs) < count_max:
                    self._known()
                    return
            self._read_logs(unread._replace(after=after), placeless=placeless)

        self._work.ask(ReadLogs, got, after=unread.after, count_max=count_max)

    def _put_off(self, unread: _Unread) -> None:
        """Go on with these logs of the store as soon as there is a place for the next.

        Others that were put off meanwhile are not forgotten.
        """
        other = self._unread
        if other is not None:
            after = unread.after and other.after and min(unread.after, other.after)
            unread = _Unread(after, told=unread.told and other.told)
        self._unread = unread

    def _known(self) -> None:
        """The logs of the store are known, as far as there are places."""
        early, self._early = self._early, None
        for event in early or ():
            self._consider(event)
        for log, proof in self._shown.items():
            if log in self.logs:
                self._logs.tell(log, proof)
            elif log in self._logs.queue:
                self._logs.wait(log, fork=proof)
        self._shown.clear()

    def _keep(self, log: LogKey, *, only_stored: bool = False) -> bool:
        """See that `log` has a place; if there are too many, that is told.

        `only_stored`: unless logs are accepted, it is wanted only if the store has some of it.
        """
        if log in self.logs:
            return True
        if not self._logs.free():
            self._refuse(log)
            return False
        self._has_placed = True
        interest, wish = self._interest, self._wishes.get(log)
        if wish is not None:
            interest, only_stored = replace(interest, want=wish), False
        only_stored = only_stored and not interest.accept_new_logs
        state = LogSync.of(log, interest, family=self._family, only_stored=only_stored)
        self._logs.take_place(state)
        return True

    def _consider(self, event: events.Proposed) -> None:
        log, request = event.proposal.log, self._request_of(event)
        known, accepted = log in self.logs, self._interest.accept_new_logs
        if not known and self._early is not None:
            self._early.append(event)
            return
        # It may be one of those of the store that have no place.
        if known or accepted or self._logs.made_way or self._unread is not None:
            if not known and not self._logs.free():
                if request is None or request.state is not RequestState.PROPOSED_BY_PEER:
                    self._remember(event)
                else:
                    self._newcomers[event.request_id] = event
                return
            self._keep(log, only_stored=True)
            offered = Offered(event.proposal, request)
            if request is not None:
                self._transfers.involve(request)
                if offered.tells:
                    self._logs.retry(log)
            self._logs.tell(log, offered)
        elif request is not None and request.state is RequestState.PROPOSED_BY_PEER:
            request.cancel(CancelReason.DO_NOT_RETRY)

    def _remember(self, event: events.Proposed, fork: ForkProof | None = None) -> None:
        """There is no place for its log, which gets one as soon as there is: it may be news."""
        self._refuse(event.proposal.log)
        self._logs.wait(event.proposal.log, event.proposal, fork)

    def _request_of(self, event: events.Proposed) -> Request | None:
        """The request; ``None``: dropped or cancelled since, and the id perhaps used again."""
        request = self.connection.requests.get(event.request_id)
        return request if request is not None and request.proposal is event.proposal else None


class _Unread(NamedTuple):
    """The logs of the store after this one have not been read; `told`: they have been refused."""

    after: LogKey | None
    told: bool = False
