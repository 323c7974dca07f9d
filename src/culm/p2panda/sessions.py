"""Sessions with one peer: their messages and ids, requests that cross, and patience.

Sources: seed, ``SyncRequest``; decision 5, as aquadoggo does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

from culm.arguments import UINT64_MAX, check_int, check_type
from culm.bamboo.entry import check_log
from culm.buffer import Queue
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError, check_time
from culm.p2panda.codec import Codec
from culm.p2panda.errors import ErrorCode, no_such_session
from culm.p2panda.events import (
    ConnectionEvent,
    DoneReceived,
    EntriesReceived,
    EntryReceived,
    HaveReceived,
    Ignored,
    MessageIgnored,
    RangeReceived,
    RequestDropped,
    RequestIgnored,
    RequestRenumbered,
    SessionEnded,
    SessionLive,
    SessionRequested,
)
from culm.p2panda.heights import Height
from culm.p2panda.limits import Limits, Timing
from culm.p2panda.line import Line
from culm.p2panda.messages import (
    Have,
    Mode,
    RangeMessage,
    Reconcile,
    SendEntry,
    SessionMessage,
    SyncDone,
    SyncRequest,
    check_range_message,
)
from culm.p2panda.outbox import AnswerOutbox
from culm.p2panda.states import SESSION_STATES, STEPS, MessageGroup, SessionState, SideState
from culm.timers import Deadlines

# The number of sessions that are remembered because the peer may not have heard of their end yet.
_GIVEN_UP_MAX: Final = 256
# The errors of a peer that could not know how much we take.
_TOO_MANY: Final = frozenset({ErrorCode.TOO_MANY_LOGS, ErrorCode.TOO_MANY_RANGES})


class Session:
    """One session of a `Connection`.

    It outlives its end; its methods raise then.  Every method raises `LocalProtocolError` if a rule
    forbids its message (the code tells which), or if the session (``NO_SUCH_SESSION``) or the
    connection (``ContractErrorCode.ALREADY_CLOSED``) is over; nothing has changed then.

    session_id: its id, which changes with `RequestRenumbered`.
    mode, schema_ids: the way of comparing, and the schemas that it is about.
    requested_by_us: whether we have asked for it.
    state: its state, which follows from the next two.
    local, remote: the messages that we have sent, and those that the peer has.
    moved_at, carried: the time of the last message, in either direction, and `Line.carried` then.
    is_doubtful: whether words of another one with the same id, given up here, may come.
    """

    __slots__ = (
        *("_sessions", "carried", "is_doubtful", "local", "mode", "moved_at"),
        *("remote", "requested_by_us", "schema_ids", "session_id", "state"),
    )

    def __init__(
        self,
        session_id: int,
        sessions: Sessions,
        *,
        mode: Mode,
        schema_ids: tuple[str, ...],
        requested_by_us: bool,
    ) -> None:
        self.session_id = session_id
        self.mode = mode
        self.schema_ids = schema_ids
        self.requested_by_us = requested_by_us
        self.is_doubtful = False
        self._sessions = sessions
        self.move(SideState.SILENT, SideState.SILENT)

    def __repr__(self) -> str:
        return f"<Session {self.session_id} {self.state.name}>"

    # Messages of ours.

    def send_have(self, heights: Sequence[Height]) -> None:
        """Send the heights of all our logs, in log-height mode."""
        check_type("heights", heights, Sequence)
        for height in heights:
            check_type("height", height, Height)
            check_log(height.log)
            check_int("seqnum", height.seqnum, 1)
        if len({height.log for height in heights}) < len(heights):
            raise ValueError("a log twice")
        self._sessions.say(self, MessageGroup.HAVE, Have(self.session_id, tuple(heights)))

    def send_range(self, message: RangeMessage) -> None:
        """Send one of the seven messages, in set-reconciliation mode."""
        check_range_message(message)
        self._sessions.say(self, MessageGroup.RANGE, Reconcile(self.session_id, message))

    def send_entry(self, entry: bytes, operation: bytes) -> None:
        """Send an entry and its operation, both encoded."""
        check_type("entry", entry, bytes)
        check_type("operation", operation, bytes)
        self._sessions.say_entries(self, [(entry, operation)])

    def send_entries(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Send entries with their operations, all encoded and not validated here."""
        self._sessions.say_entries(self, entries)

    def finish(self, *, live_mode: bool = False) -> None:
        """Tell the peer that everything was sent or, in live mode, that nothing more will be."""
        check_type("live_mode", live_mode, bool)
        group = MessageGroup.OFFER if live_mode else MessageGroup.DONE
        self._sessions.say(self, group, SyncDone(self.session_id, live_mode))

    def break_off(self, error: RemoteProtocolError) -> None:
        """End the session because the peer has broken a rule that the wire machine cannot see.

        Sends `SyncDone` and stops listening; counts as one of the peer's faults.
        """
        check_type("error", error, RemoteProtocolError)
        self._sessions.break_off(self, error)

    def count_fault(self) -> None:
        """Note that the peer has spoilt it, though it is already over."""
        self._sessions.count_fault()

    def may_send(self, group: MessageGroup) -> bool:
        """Whether a rule allows us to send this now."""
        if self.state is SessionState.REQUESTED or not self._sessions.is_running(self):
            return False
        return not isinstance(STEPS[self.mode][self.local, group], ErrorCode)

    # The step that a message makes.

    def sent(self, group: MessageGroup) -> None:
        """Note that we send this.  Raises `LocalProtocolError` if we may not.

        Until the peer has answered our request, we can only withdraw it: it may still get another
        id.
        """
        if group is not MessageGroup.DONE and self.state is SessionState.REQUESTED:
            raise LocalProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "the peer has not answered")
        after = STEPS[self.mode][self.local, group]
        if isinstance(after, ErrorCode):
            raise LocalProtocolError(after, f"{group.value} when {self.local.value}")
        self.move(after, self.remote)

    def received(self, group: MessageGroup) -> None:
        """Note that the peer sends this.  Raises `RemoteProtocolError` if it may not."""
        after = STEPS[self.mode][self.remote, group]
        if isinstance(after, ErrorCode):
            raise RemoteProtocolError(after, f"{group.value} when {self.remote.value}")
        if after is SideState.DONE and self.remote is SideState.SILENT:
            self.is_doubtful |= self.requested_by_us  # it may have ended a request of its own
        self.move(self.local, after)

    def may_receive(self, group: MessageGroup) -> bool:
        """Whether the peer may send this, and we still listen."""
        if self.local is SideState.BROKEN:
            return False
        return not isinstance(STEPS[self.mode][self.remote, group], ErrorCode)

    def move(self, local: SideState, remote: SideState) -> None:
        """Both sides are in these states now; where both offer live mode, it begins."""
        if local is remote is SideState.OFFERING:
            local = remote = SideState.LIVE
        self.local, self.remote, self.moved_at = local, remote, self._sessions.now
        self.carried = self._sessions.line.carried
        self.state = SESSION_STATES[local, remote, self.requested_by_us]

    def give_way(self) -> None:
        """It is over, since a request of the peer's takes precedence: neither side sends more."""
        self.local = self.remote = SideState.DONE
        self.state = SessionState.OVER

    def renumber(self, session_id: int) -> None:
        """It has another id now, and no more time: the peer could take one id after the other."""
        self.session_id = session_id

    def restart(self, moved_at: float) -> None:
        """Nothing has been owed for longer than since then."""
        self.moved_at = moved_at


class Sessions:
    """The sessions that are not over, by id; the peer's messages in them, and their timeouts.

    local_is_lower
        Whether our id is the lower one.  If two requests cross, ours is dropped then and the peer's
        is served; the peer does the opposite.
    reuses_ids
        Our requests get the lowest free id, instead of counting up.  Where both sides do that,
        crossing requests about the same schemas have the same id, too: aquadoggo answers ours with
        the id of its own.

    events: the events that follow that of the last message.
    faults: the sessions that the peer has spoilt, and its messages of no session.
    now: the time told last.
    line: the movement of the line until then.
    """

    def __init__(
        self,
        *,
        local_is_lower: bool,
        reuses_ids: bool,
        limits: Limits,
        timing: Timing,
        codec: Codec,
        outbox: AnswerOutbox,
    ) -> None:
        self._local_is_lower = local_is_lower
        self._reuses_ids = reuses_ids
        self._sessions_max = limits.sessions_max
        self._timing, self._answer_max_s = timing, timing.answer_max_s
        self._codec = codec
        self._outbox = outbox
        self._by_id: dict[int, Session] = {}
        self._about: dict[frozenset[str], Session] = {}  # those that have not failed, by schemas
        self._next_id = 0
        # Over for us, though messages of them may still come.  Each: was the peer told of that?
        self._given_up: dict[int, bool] = {}
        self._deadlines: Deadlines[Session] = Deadlines()
        self._started = self._closed = False  # started: the time is known
        self.events: Queue[ConnectionEvent] = Queue()
        self.faults, self.now, self.line = 0, 0.0, Line()

    @property
    def running(self) -> list[Session]:
        """Those in which we listen, oldest first."""
        return list(self._about.values())

    def find(self, session_id: int) -> Session:
        """A running session; raises `LocalProtocolError` (``NO_SUCH_SESSION``)."""
        session = self._by_id.get(session_id)
        if session is not None and session.local is not SideState.BROKEN:
            return session
        raise no_such_session(session_id)

    def about(self, schema_ids: tuple[str, ...]) -> Session | None:
        """The session about exactly these schemas, unless it has been broken off."""
        return self._about.get(frozenset(schema_ids))

    # Requests.

    def request(self, mode: Mode, schema_ids: tuple[str, ...]) -> Session:
        """Ask the peer for a session; raises ``DUPLICATE_SESSION``, ``TOO_MANY_SESSIONS``."""
        if self.about(schema_ids) is not None:
            raise LocalProtocolError(ErrorCode.DUPLICATE_SESSION, ", ".join(schema_ids))
        if self._room < 1:
            raise LocalProtocolError(ErrorCode.TOO_MANY_SESSIONS, f"{self._sessions_max}")
        new_id = self._new_id()
        session = Session(new_id, self, mode=mode, schema_ids=schema_ids, requested_by_us=True)
        self._ask(session)
        return session

    def accept(self, request: SyncRequest, mode: Mode) -> ConnectionEvent:
        """Accept a session that the peer requests, or tell the reason why not.

        Sessions of ours give way to it: the one about the same schemas is over; another one that
        had its id gets a new one, and is requested again.  A live one about the same schemas is
        over, too: no side asks for a session that it has, so the peer has lost it.
        """
        session_id, schema_ids = request.session_id, request.schema_ids
        same_schemas = self.about(schema_ids)
        if same_schemas is not None and same_schemas.state is SessionState.LIVE:
            self._forget(same_schemas)
            same_schemas.give_way()
            self.events.append(SessionEnded(session_id=same_schemas.session_id))
            same_schemas = None
        same_id = self._by_id.get(session_id)
        if same_id is not None and same_id.local is SideState.BROKEN:
            self._forget(same_id)  # the peer has forgotten that one, or does not know it yet
            if same_id.requested_by_us:
                self._give_up(session_id)
            same_id = None
        crossing = {each: None for each in (same_schemas, same_id) if each is not None}
        if (reason := self._reason_against(crossing, same_schemas)) is not None:
            return RequestIgnored(session_id=session_id, reason=reason)
        session = Session(session_id, self, mode=mode, schema_ids=schema_ids, requested_by_us=False)
        session.is_doubtful = same_id is not None or session_id in self._given_up
        for each in crossing:
            self._forget(each)
            self._give_up(each.session_id, told=self._reuses_ids)  # a word might hit the next one
        self._keep(session)
        self._next_id = max(self._next_id, session_id + 1) % UINT64_MAX
        self.events.append(
            SessionRequested(session_id=session_id, mode=mode, schema_ids=schema_ids)
        )
        for each in crossing:
            if each is same_schemas:
                each.give_way()
                self.events.append(RequestDropped(session_id=each.session_id))
            else:
                self._renumber(each)
        return self.events.popleft()

    def _reason_against(
        self, crossing: Iterable[Session], same_schemas: Session | None
    ) -> Ignored | None:
        """The reason why a request of the peer's is not accepted."""
        for each in crossing:
            if each.state is not SessionState.REQUESTED:
                return Ignored.DUPLICATE if each is same_schemas else Ignored.ID_IN_USE
        if crossing and not self._local_is_lower:
            return Ignored.COLLISION
        if self._room + (same_schemas is not None) < 1:
            return Ignored.TOO_MANY_SESSIONS
        return None

    def _renumber(self, session: Session) -> None:
        """The id of our request went to the peer's session: ask again with another one."""
        old_id = session.session_id
        session.renumber(self._new_id())
        self._ask(session)
        self.events.append(RequestRenumbered(session_id=old_id, new_session_id=session.session_id))

    def _ask(self, session: Session) -> None:
        self._keep(session)
        self._answer(SyncRequest(session.session_id, session.mode, session.schema_ids))

    @property
    def _room(self) -> int:
        """The room for further sessions; those that have failed on our side have their own."""
        return min(self._sessions_max - len(self._about), 2 * self._sessions_max - len(self._by_id))

    def _new_id(self) -> int:
        """The next id, starting with 0, after those of the peer's sessions as well.

        An id is free when the end of its session has been told, and nothing more of it may come.
        """
        taken = {each.session_id for each in self.events if isinstance(each, SessionEnded)}
        taken.update(self._by_id, self._given_up)
        ids = count(0 if self._reuses_ids else self._next_id)
        session_id = next(each for each in ids if each not in taken)
        self._next_id = (session_id + 1) % UINT64_MAX
        return session_id

    # Messages of ours.

    def say(self, session: Session, group: MessageGroup, message: SessionMessage) -> None:
        """Send a message of a session."""
        self._check_running(session)
        was = session.state
        session.sent(group)
        if group is MessageGroup.HAVE:
            self._outbox.append(self._codec.encode(message))
        else:
            self._answer(message)
        self._settle(session, was)

    def say_entries(self, session: Session, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """The same for many `SendEntry` at once: entries with their operations."""
        self._check_running(session)
        session.sent(MessageGroup.ENTRY)
        self._outbox.append(self._codec.encode_entries(session.session_id, entries))

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if the connection is over."""
        if self._closed:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    def is_running(self, session: Session) -> bool:
        """Whether something may be sent in it."""
        found = self._by_id.get(session.session_id)
        return session.local is not SideState.BROKEN and found is session and not self._closed

    def _check_running(self, session: Session) -> None:
        self.check_open()
        if not self.is_running(session):
            raise no_such_session(session.session_id)

    def _answer(self, message: SyncRequest | SessionMessage) -> None:
        self._outbox.answer(self._codec.encode(message))

    def count_fault(self) -> None:
        """Note that the peer has broken a rule."""
        self.faults += 1

    # Messages of the peer.

    def accepts_entries(self, session_id: int) -> bool:
        """Whether entries of that session may come."""
        session = self._by_id.get(session_id)
        return session is not None and session.may_receive(MessageGroup.ENTRY)

    def hear_entries(
        self, session_id: int, entries: tuple[tuple[bytes, bytes], ...]
    ) -> ConnectionEvent:
        """Take entries of a session that accepts them."""
        self._by_id[session_id].received(MessageGroup.ENTRY)
        return EntriesReceived(session_id=session_id, entries=entries)

    def hear(self, message: SessionMessage) -> ConnectionEvent | None:
        """Take a message of a session."""
        session = self._by_id.get(message.session_id)
        if session is None:
            return self._ignore(message)
        if isinstance(message, SyncDone):
            self._hear_last(session)
        if session.local is SideState.BROKEN:
            if isinstance(message, SyncDone):
                self._forget(session)
            return None
        by_ranges = session.mode is Mode.SET_RECONCILIATION
        if isinstance(message, Have) and by_ranges and session.state is SessionState.REQUESTED:
            self._end(session, RemoteProtocolError(ErrorCode.HEIGHTS_ONLY))
            return None
        try:
            return self._hear(session, message)
        except RemoteProtocolError as error:
            self.break_off(session, error.detached())
            return None

    def _hear_last(self, session: Session) -> None:
        """The peer says no more with this id, unless it has ended a request made before ours."""
        if session.remote is not SideState.SILENT:
            self._given_up.pop(session.session_id, None)
        elif session.requested_by_us:
            self._give_up(session.session_id)

    def _hear(self, session: Session, message: SessionMessage) -> ConnectionEvent:
        session_id = session.session_id
        match message:
            case SendEntry(_, entry, operation):
                session.received(MessageGroup.ENTRY)
                return EntryReceived(session_id=session_id, entry=entry, operation=operation)
            case Reconcile(_, inner):
                session.received(MessageGroup.RANGE)
                return RangeReceived(session_id=session_id, message=inner)
            case Have(_, heights):
                session.received(MessageGroup.HAVE)
                if heights is None:
                    raise RemoteProtocolError(ErrorCode.TOO_MANY_LOGS)
                logs = {height.log for height in heights}
                if len(logs) < len(heights) or not all(height.seqnum for height in heights):
                    raise RemoteProtocolError(ErrorCode.BAD_HAVE)
                return HaveReceived(session_id=session_id, heights=heights)
            case SyncDone(_, live_mode):
                was = session.state
                session.received(MessageGroup.OFFER if live_mode else MessageGroup.DONE)
                if was is SessionState.LIVE:
                    session.sent(MessageGroup.DONE)
                    self._answer(SyncDone(session_id, False))
                self._settle(session, was)
                return DoneReceived(session_id=session_id, live_mode=live_mode)

    def _ignore(self, message: SessionMessage) -> ConnectionEvent | None:
        """A message of no session is a fault, unless it was under way when its session ended."""
        if isinstance(message, SyncDone):
            return None
        told = self._given_up.get(message.session_id)
        if told is None:
            self.count_fault()
        elif not told:  # it has taken our request for a new one, and would wait for us
            self._give_up(message.session_id)
            self._answer(SyncDone(message.session_id, False))
        return MessageIgnored(session_id=message.session_id)

    # The end.

    def _settle(self, session: Session, was: SessionState) -> None:
        """Act upon the change that the last message has made."""
        match session.state:
            case SessionState.OVER:
                self._forget(session)
                if session.remote is SideState.OFFERING:  # it may say `SyncDone` once more
                    self._give_up(session.session_id)
                self.events.append(SessionEnded(session_id=session.session_id))
            case SessionState.LIVE:
                if was is not SessionState.LIVE:
                    self._deadlines.cancel(session)
                    self.events.append(SessionLive(session_id=session.session_id))
            case _:
                self._watch(session)

    def break_off(self, session: Session, error: RemoteProtocolError) -> None:
        """The peer has broken a rule, or exceeded a limit: finish, and wait for its end, too.

        Unless it may have answered a request of ours with that id instead, for which it has dropped
        its own: then it has given this session up.
        """
        self._check_running(session)
        if session.is_doubtful:
            self._given_up.pop(session.session_id, None)
            error = RemoteProtocolError(ErrorCode.GIVEN_UP, f"session {session.session_id}")
        elif error.code not in _TOO_MANY:
            self.count_fault()
        self._end(session, error)

    def _end(self, session: Session, error: RemoteProtocolError) -> None:
        unsaid = session.local is not SideState.DONE
        session.move(SideState.BROKEN, session.remote)
        del self._about[frozenset(session.schema_ids)]
        if unsaid:
            self._answer(SyncDone(session.session_id, False))
        if session.state is SessionState.OVER:
            self._forget(session)
        else:
            self._watch(session)
        self.events.append(SessionEnded(session_id=session.session_id, error=error))

    def _forget(self, session: Session) -> None:
        self._deadlines.cancel(session)
        if self._by_id.get(session.session_id) is session:
            del self._by_id[session.session_id]
            if session.local is not SideState.BROKEN:
                del self._about[frozenset(session.schema_ids)]

    def _give_up(self, session_id: int, *, told: bool = True) -> None:
        """Remember that further messages of the peer with this id are no fault."""
        self._given_up[session_id] = told
        if len(self._given_up) > _GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]

    def _keep(self, session: Session) -> None:
        self._by_id[session.session_id] = self._about[frozenset(session.schema_ids)] = session
        self._watch(session)

    def say_goodbye(self) -> None:
        """Finish all sessions: the connection ends."""
        self._closed = True
        for session in self._by_id.values():
            if session.local not in (SideState.DONE, SideState.BROKEN):
                self._answer(SyncDone(session.session_id, False))

    def close(self) -> None:
        """Drop all sessions: the connection is over."""
        self._closed = True
        self._by_id.clear()
        self._about.clear()
        self._deadlines.clear()

    # Patience.

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def advance(self, now: float, *, carried: int, is_busy: bool) -> None:
        """Tell the time; see `Line.look`."""
        check_time(now, self.now if self._started else None)
        self.line.look(self.now, carried, is_busy=is_busy)
        self.now = now
        if not self._started:
            self._started = True
            for session in self._by_id.values():
                session.restart(now)
                self._watch(session)
        while (due := self._deadlines.pop_due(now)) is not None:
            self._look_after(due)

    def excuse(self, now: float) -> None:
        """Do not count the time since the last `advance`: the peer is not to blame for it."""
        check_time(now, self.now if self._started else None)
        for session in self._by_id.values():
            least = now - 0.9 * self._patience(session)  # else its end would come again at once
            session.restart(max(session.moved_at + now - self.now, least))

    def _patience(self, session: Session) -> float:
        requested = session.requested_by_us and session.remote is SideState.SILENT
        waits_for_a_word = requested or session.remote is SideState.LIVE
        return self._answer_max_s if waits_for_a_word else self._timing.progress_max_s

    def _watch(self, session: Session) -> None:
        if self._started and session.state is not SessionState.LIVE:
            self._deadlines.set(session, session.moved_at + self._patience(session))

    def _look_after(self, session: Session) -> None:
        """Its deadline has passed, unless something was said, or a slow line has moved, since."""
        since = self.line.still_since(session.moved_at, session.carried)
        if since + self._patience(session) > self.now:
            self._deadlines.set(session, since + self._patience(session))
        elif session.local is SideState.BROKEN:
            self._forget(session)
            self._give_up(session.session_id)
        else:
            code = ErrorCode.STALLED
            if session.state is SessionState.REQUESTED:
                code = ErrorCode.UNANSWERED
                doubled = min(2 * self._answer_max_s, self._timing.progress_max_s)
                self._answer_max_s = max(self._answer_max_s, doubled)
            self._end(session, RemoteProtocolError(code, f"session {session.session_id}"))
