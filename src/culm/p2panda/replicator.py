"""Replication of documents between a store and one peer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import count
from typing import Final

from culm.arguments import check_type
from culm.buffer import check_size_max
from culm.effects import StoreWork
from culm.machine import Closed, ContractErrorCode, Event, LocalProtocolError
from culm.p2panda.codec import Dialect
from culm.p2panda.comparison import Offers
from culm.p2panda.connection import Connection
from culm.p2panda.effects import ReplicatorEffect
from culm.p2panda.errors import ErrorCode, no_such_session
from culm.p2panda.events import (
    Announced,
    DoneReceived,
    EntriesReceived,
    EntryReceived,
    HaveReceived,
    RangeReceived,
    ReplicatorEvent,
    RequestDropped,
    RequestedAgain,
    SessionEnded,
    SessionLive,
    SessionRequested,
)
from culm.p2panda.exchange import Exchange, Phase
from culm.p2panda.intake import Intake
from culm.p2panda.limits import Policy, ReplicatorLimits, Timing
from culm.p2panda.messages import Mode
from culm.p2panda.serving import SessionContext
from culm.p2panda.sessions import Session
from culm.p2panda.states import SessionState, State
from culm.reconcile import DEFAULT, named
from culm.replication import DurableBase, Pauses, Room, Turns
from culm.timers import earliest

_DEFAULT_LIMITS: Final = ReplicatorLimits()
_DEFAULT_TIMING: Final = Timing()
_DEFAULT_POLICY: Final = Policy()

# The refusals that policy accepts when it asks for a session.
_IN_THE_WAY: Final = frozenset(
    {ErrorCode.DUPLICATE_SESSION, ErrorCode.TOO_MANY_SESSIONS, ContractErrorCode.ALREADY_CLOSED}
)
# The errors of a request that may have come before an announcement,
_CAME_TOO_EARLY: Final = frozenset({ErrorCode.UNANSWERED})
# of one for set reconciliation that came to a peer that supports log heights only,
_WRONG_MODE: Final = frozenset({ErrorCode.HEIGHTS_ONLY, ErrorCode.UNANSWERED})
# and of a session in which either side could not complete the comparison.
_NOT_COMPARED: Final = frozenset(
    {
        ErrorCode.GIVEN_UP,
        ErrorCode.TOO_MANY_LOGS,
        ErrorCode.TOO_MANY_RANGES,
        ErrorCode.TOO_MANY_ROUNDS,
    }
)


class _Asking(Enum):
    """The outcome of the request made at the last change of interests."""

    ASKED = "asked"
    UNANSWERED = "unanswered"
    """Perhaps: other sessions were running, which may be in its way at the peer."""
    LEAVING = "leaving"
    """We had left live mode about the same, and the peer has not."""
    NO_ROOM = "no room"
    """There were as many sessions as there may be, here or at the peer."""


class Replicator(DurableBase[Connection, ReplicatorEvent, ReplicatorEffect]):
    """Drives a `Connection` over a store of operations: compares, sends, verifies, stores.

    The store is reached through effects (`culm.p2panda.effects`).  Look for new effects after bytes
    have been taken: it reads only as much as the peer can take.

    local_peer, remote_peer, dialect
        As of `Connection`.
    limits
        Bounds of the memory for the peer and the store.
    timing
        Bounds of the time that the peer may take, and of pauses.
    policy
        The actions that it takes by itself.
    monoid
        The monoid of fingerprints (`culm.reconcile`), the same on both sides.
    offers
        The logs that this peer was sent on earlier connections and may not take, if remembered.
    """

    def __init__(
        self,
        *,
        local_peer: bytes,
        remote_peer: bytes,
        dialect: Dialect = Dialect.SEED,
        limits: ReplicatorLimits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
        policy: Policy = _DEFAULT_POLICY,
        monoid: str = DEFAULT,
        offers: Offers | None = None,
    ) -> None:
        check_type("limits", limits, ReplicatorLimits)
        check_type("policy", policy, Policy)
        offers = Offers() if offers is None else offers
        check_type("offers", offers, Offers)
        named(monoid)
        connection = Connection(
            local_peer=local_peer,
            remote_peer=remote_peer,
            dialect=dialect,
            limits=limits.connection,
            timing=timing,
            in_runs=True,
        )
        super().__init__(connection, work=StoreWork())
        self._limits = limits
        self._policy = policy
        self._intake = Intake(work=self._work, limits=limits)
        self._turns = Turns[Session]()
        self._context = SessionContext(
            work=self._work,
            limits=limits,
            policy=policy,
            monoid=monoid,
            offers=offers,
            turns=self._turns,
            room=Room[Session](
                self._turns, size_max=limits.unsent_size_max, read_size_max=limits.batch_size_max
            ),
        )
        self._asking = _Asking.ASKED
        self._mode = policy.mode  # of our own requests
        self._exchanges: dict[int, Exchange] = {}  # those that are not over, oldest first
        self._numbers = count()
        self._now = 0.0
        self._pauses = Pauses(min_s=timing.pause_min_s, max_s=timing.pause_max_s)
        self._limit_runs()

    @property
    def state(self) -> State:
        return self.connection.state if self._ended else State.OPEN

    # Verbs.

    def announce(self, schema_ids: Sequence[str], *, timestamp: int) -> None:
        """See `Connection.announce`."""
        self.connection.announce(schema_ids, timestamp=timestamp)
        self._ask_by_policy()

    def learn(self, schema_ids: Sequence[str], *, timestamp: int) -> bool:
        """See `Connection.learn`."""
        later = self.connection.learn(schema_ids, timestamp=timestamp)
        if later:
            self._ask_by_policy()
        return later

    def request(self, schema_ids: Sequence[str], *, mode: Mode = Mode.SET_RECONCILIATION) -> int:
        """Replicate the documents of these schemas; returns the session's id.

        Raises as `Connection.request` does.
        """
        return self._add(self.connection.request(schema_ids, mode=mode)).session_id

    def leave(self, session_id: int) -> None:
        """Leave live mode.

        Raises `LocalProtocolError`: ``NO_SUCH_SESSION``, ``UNEXPECTED_MESSAGE`` if it is not live.
        """
        self.connection.session(session_id)
        exchange = self._exchanges.get(session_id)
        if exchange is None:
            raise no_such_session(session_id)
        exchange.leave()

    def stored(self) -> None:
        """Note that operations from elsewhere are stored; in live mode they go to the peer."""
        for exchange in self._exchanges.values():
            exchange.serving.wake()

    def close(self) -> None:
        """End the connection; `Closed` follows when everything received is in the store."""
        self.connection.close()

    # Bytes and time.

    def data_to_send(self, size_max: int | None = None) -> bytes:
        """Take bytes for the peer; messages about ranges are made as late as possible."""
        check_size_max(size_max)
        while size_max is None or self.connection.unsent_size < size_max:
            spoken = [exchange.speak() for exchange in self._exchanges.values()]
            if not any(spoken):
                break
        return self.connection.data_to_send(size_max)

    def next_deadline(self) -> float | None:
        if self._ended or self._closed is not None:
            return None
        return earliest(self.connection.next_deadline(), self._pauses.until)

    def advance(self, now: float) -> None:
        """Tell the time; the peer is not blamed for delays of our store."""
        if self._store_is_behind():
            self.connection.excuse(now)
        self.connection.advance(now)
        self._now = now
        if self._pauses.until is not None and self._pauses.until <= now:
            if self.connection.unsent_size > self._limits.unsent_size_max:  # it may never read
                self._pauses.end()
                self._pauses.begin(now)
            else:
                self._ask_by_policy()

    # Effects.

    def next_effect(self) -> ReplicatorEffect | None:
        """Take the next piece of work for the store; see `culm.p2panda.effects.perform`."""
        effect = super().next_effect()
        if effect is None and self._ask():
            effect = super().next_effect()
        return effect

    def _ask(self) -> bool:
        """Ask the store for something; returns whether there was anything to ask."""
        if self._intake.ask():
            return True
        if self._closed is not None:
            return False
        while self._turns and self.connection.unsent_size < self._limits.unsent_size_max:
            exchange = self._exchanges.get(self._turns.take().session_id)
            if exchange is not None and exchange.serve():
                return True
        return False

    def _store_is_behind(self) -> bool:
        if self._work.unwritten_size > self._limits.unwritten_size_max:
            return True
        return any(exchange.opening for exchange in self._exchanges.values())

    def _over(self) -> None:
        self._exchanges.clear()

    # Events of the connection.

    def _handle(self, event: Event) -> None:
        match event:
            case Closed():  # entries received before are still stored
                for each in self._exchanges.values():
                    each.cut_off()
            case (
                EntriesReceived()
                | EntryReceived()
                | RangeReceived()
                | HaveReceived()
                | DoneReceived()
            ):
                exchange = self._exchanges.get(event.session_id)
                if exchange is not None:
                    self._tell(exchange, event)
            case SessionEnded() if event.session_id in self._exchanges:
                exchange = self._exchanges.pop(event.session_id)
                if self._ask_for_heights(exchange, event):
                    return
                left = exchange.phase is Phase.LEFT
                exchange.end(event)
                self._choose_mode(exchange)
                self._ask_again(event, left=left)
                if not left and (exchange.fault is not None or self._policy.live):
                    self._pause()
            case _:
                self._work.emit(event)
                self._follow(event)

    def _tell(
        self,
        exchange: Exchange,
        event: EntriesReceived | EntryReceived | RangeReceived | HaveReceived | DoneReceived,
    ) -> None:
        match event:
            case EntriesReceived():
                self._take(exchange, event.entries)
            case EntryReceived():
                self._take(exchange, [(event.entry, event.operation)])
            case RangeReceived():
                exchange.hear(event.message)
            case HaveReceived():
                exchange.have(event)
            case DoneReceived():
                exchange.done(event)

    def _follow(self, event: Event) -> None:
        """React to an event that the user gets as well."""
        match event:
            case Announced():
                self._ask_by_policy()
            case SessionRequested():
                self._make_room(event.session_id)
                self._add(self.connection.session(event.session_id)).open()
            case RequestDropped():
                self._make_room(event.session_id)
            case SessionLive() if event.session_id in self._exchanges:
                exchange = self._exchanges[event.session_id]
                exchange.live()
                if exchange not in self._outdated():  # else there is more to ask for
                    self._pauses.reset()
                self._leave_outdated()
                self._leave_for_room()
            case _:
                pass

    def _make_room(self, session_id: int) -> None:
        """A session of ours has given way: it is over, or has a new id."""
        exchange = self._exchanges.get(session_id)
        if exchange is None:
            return
        if exchange.session.state is SessionState.OVER:
            del self._exchanges[session_id]
        elif exchange.session_id != session_id:
            self._exchanges[exchange.session_id] = self._exchanges.pop(session_id)

    def _take(self, exchange: Exchange, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        if exchange.takes_entries:
            self._intake.take(exchange, entries)
            self._limit_runs()

    def _limit_runs(self) -> None:
        """Have the next run end where reading would pause, had its entries come one by one.

        Until then the store may have made more room: then that run is shorter, which is all.
        """
        self.connection.limit_runs(self._limits.unwritten_size_max - self._work.unwritten_size)

    def _add(self, session: Session) -> Exchange:
        exchange = Exchange(session, next(self._numbers), self._context)
        self._exchanges[session.session_id] = exchange
        return exchange

    def _ask_by_policy(self) -> None:
        """Request a session about all schemas that both have announced, unless there is one."""
        self._pauses.end()
        if not self._policy.asks:
            return
        both = self._common()
        if not both:
            return
        self._asking = _Asking.UNANSWERED if self._exchanges else _Asking.ASKED
        try:
            self.request(both, mode=self._mode)
        except LocalProtocolError as error:
            if error.code not in _IN_THE_WAY:
                raise
            self._asking = self._in_the_way(set(both))
            self._leave_for_room()
            self._pause()

    def _pause(self) -> None:
        """Ask again after a pause, unless there is a session about all that both have announced."""
        both = set(self._common())
        if self._policy.asks and both and not self._phases(both):
            self._pauses.begin(self._now)

    def _ask_for_heights(self, exchange: Exchange, event: SessionEnded) -> bool:
        """Make a request of ours again in log height mode, if the peer has not taken it."""
        session, error = exchange.session, event.error
        if error is None or error.code not in _WRONG_MODE or not session.requested_by_us:
            return False
        if session.mode is Mode.LOG_HEIGHT:
            self._mode = self._policy.mode  # since the mode was not the reason
            return False
        try:
            new_session_id = self.request(session.schema_ids, mode=Mode.LOG_HEIGHT)
        except LocalProtocolError as refusal:
            if refusal.code is ErrorCode.DUPLICATE_SESSION:  # which the peer has asked for
                self._work.emit(RequestDropped(session_id=event.session_id))
                return True
            if refusal.code not in _IN_THE_WAY and refusal.code is not ErrorCode.NOT_ANNOUNCED:
                raise
            return False
        self._mode = Mode.LOG_HEIGHT
        self._work.emit(RequestedAgain(session_id=event.session_id, new_session_id=new_session_id))
        return True

    def _choose_mode(self, exchange: Exchange) -> None:
        """Ask for log heights next if ranges could not be compared, and the other way round."""
        if exchange.fault is not None and exchange.fault.code in _NOT_COMPARED:
            by_ranges = exchange.session.mode is Mode.SET_RECONCILIATION
            self._mode = Mode.LOG_HEIGHT if by_ranges else self._policy.mode

    def _in_the_way(self, schema_ids: set[str]) -> _Asking:
        """The reason why no session about these could be requested."""
        phases = self._phases(schema_ids)
        if not phases:
            return _Asking.NO_ROOM
        if Phase.ASKED in phases:
            return _Asking.UNANSWERED
        return _Asking.LEAVING if Phase.LEFT in phases else _Asking.ASKED

    def _phases(self, schema_ids: set[str]) -> list[Phase]:
        """The phases of the sessions about exactly these schemas."""
        running = self._exchanges.values()
        return [each.phase for each in running if set(each.schema_ids) == schema_ids]

    def _ask_again(self, event: SessionEnded, *, left: bool) -> None:
        """A session is over, whether we left it or not: request now, if it was in the way."""
        unanswered = event.error is not None and event.error.code in _CAME_TOO_EARLY
        if unanswered and any(self._outdated()):
            self._asking = _Asking.NO_ROOM
            self._leave_for_room()
        elif (
            self._asking is _Asking.NO_ROOM
            or (self._asking is _Asking.UNANSWERED and unanswered)
            or (self._asking is _Asking.LEAVING and left)
        ):
            self._ask_by_policy()

    def _leave_outdated(self) -> None:
        """Leave live sessions once there is one about all schemas that both have announced."""
        outdated = self._outdated()
        live = [each for each in self._exchanges.values() if each.is_live]
        if len(outdated) < len(live):
            for each in outdated:
                each.give_way()

    def _leave_for_room(self) -> None:
        """Leave one live session if there is no room for the one that replaces it."""
        leaving = any(each.phase is Phase.LEFT for each in self._exchanges.values())
        outdated = self._outdated()
        if self._asking is _Asking.NO_ROOM and outdated and not leaving:
            outdated[0].give_way()

    def _outdated(self) -> list[Exchange]:
        """The live sessions that are not about all schemas that both have announced.

        None, if all sessions are made by the user.
        """
        if not self._policy.asks:
            return []
        both = set(self._common())
        live = [each for each in self._exchanges.values() if each.is_live]
        return [each for each in live if both != set(each.schema_ids)]

    def _common(self) -> list[str]:
        """The schemas that both have announced, in our order."""
        theirs = set(self.connection.remote_announced)
        return [each for each in self.connection.announced if each in theirs]
