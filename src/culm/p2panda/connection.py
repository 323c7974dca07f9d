"""The wire machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from culm.arguments import check_int, check_type
from culm.machine import (
    Closed,
    ContractErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    StreamBase,
    check_time,
)
from culm.p2panda.announcements import Interests, check_schema_ids
from culm.p2panda.codec import Codec, Dialect
from culm.p2panda.errors import ErrorCode
from culm.p2panda.events import (
    Announced,
    AnnouncementIgnored,
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
from culm.p2panda.framing import Framer
from culm.p2panda.handles import Session
from culm.p2panda.limits import Limits
from culm.p2panda.messages import (
    Announce,
    Have,
    Message,
    Mode,
    Reconcile,
    SendEntry,
    SessionMessage,
    SyncDone,
    SyncRequest,
)
from culm.p2panda.outgoing import Outgoing
from culm.p2panda.sessions import Sessions
from culm.p2panda.states import Half, Saying, SessionState, State
from culm.p2panda.talk import Talk
from culm.timers import Deadlines

__all__ = ["Connection"]

_DEFAULT_LIMITS: Final = Limits()
# The number of failed sessions that are remembered because the peer may not have heard of it yet.
_GIVEN_UP_MAX: Final = 256
_MODES: Final = {int(mode): mode for mode in Mode}


class Connection(StreamBase[ConnectionEvent]):
    """Announcements and sessions with one peer, over an ordered, reliable byte stream.

    local_peer, remote_peer
        The ids of the two peers in the transport; where requests cross, the one with the lower id
        gives way.  Raises `ValueError` if they are equal.
    dialect
        The encoding of messages.
    limits
        Bounds of the memory that the peer may use here, and of the time that it may take.
    in_runs
        Whether entries are reported many at a time (`EntriesReceived`) where their bytes have
        arrived together.

    Its methods raise `LocalProtocolError` if a rule forbids the message, or if the connection has
    ended (``ContractErrorCode.ALREADY_CLOSED``); nothing has changed then.
    """

    def __init__(
        self,
        *,
        local_peer: bytes,
        remote_peer: bytes,
        dialect: Dialect = Dialect.SEED,
        limits: Limits = _DEFAULT_LIMITS,
        in_runs: bool = False,
    ) -> None:
        check_type("local_peer", local_peer, bytes)
        check_type("remote_peer", remote_peer, bytes)
        check_type("dialect", dialect, Dialect)
        check_type("limits", limits, Limits)
        if local_peer == remote_peer:
            raise ValueError("both peers have the same id")
        super().__init__(receive_max=limits.receive_buffer_max)
        self._outbox = self._outgoing = Outgoing()
        self._limits = limits
        self._in_runs = in_runs
        self._codec = Codec(dialect=dialect, limits=limits)
        self._framer = Framer(self._inbox, self._codec, skip_max=limits.operation_skip_max)
        self._ours, self._theirs = Interests(), Interests()
        self._sessions = Sessions(
            yields=local_peer < remote_peer,
            sessions_max=limits.sessions_max,
            reuses_ids=dialect is Dialect.AQUADOGGO,
        )
        self._events: deque[ConnectionEvent] = deque()  # besides that of the next message
        self._faults = 0
        # Sessions that failed here and that the peer did not end in time.
        self._given_up: deque[int] = deque(maxlen=_GIVEN_UP_MAX)
        self._now = 0.0
        self._started = False  # the time is known
        self._deadlines: Deadlines[Talk] = Deadlines()

    @property
    def state(self) -> State:
        if self._closed is None:
            return State.OPEN
        return State.CLOSED if self._closed.error is None else State.FAILED

    @property
    def announced(self) -> tuple[str, ...]:
        """The schemas that we have announced."""
        latest = self._ours.latest
        return () if latest is None else latest.schema_ids

    @property
    def remote_announced(self) -> tuple[str, ...]:
        """The schemas that the peer has announced."""
        latest = self._theirs.latest
        return () if latest is None else latest.schema_ids

    @property
    def sessions(self) -> list[Session]:
        """The sessions that are running, oldest first."""
        return [Session(talk, self) for talk in self._sessions if talk.local is not Half.BROKEN]

    @property
    def unsent_size(self) -> int:
        """The number of bytes that wait to be sent."""
        return self._outbox.size

    def session(self, session_id: int) -> Session:
        """Return a handle; raises `LocalProtocolError` (``NO_SUCH_SESSION``)."""
        check_int("session id", session_id)
        talk = self._sessions.get(session_id)
        if talk is None or talk.local is Half.BROKEN:
            raise LocalProtocolError(ErrorCode.NO_SUCH_SESSION, f"session {session_id}")
        return Session(talk, self)

    # Verbs.

    def announce(self, schema_ids: Sequence[str], *, timestamp: int) -> None:
        """Announce these schemas, in place of all that we have announced before.

        timestamp: Unix seconds, or any other number that grows; later than the last one
            (``OLD_TIMESTAMP``).  Raises `ValueError` for something that is not a schema id, or for
            one twice.
        """
        ids = check_schema_ids(schema_ids, self._limits)
        check_int("timestamp", timestamp)
        self._check_open()
        self._ours.check_later(timestamp)
        announce = Announce(timestamp, ids)
        self._ours.hear(announce)
        self._answer(announce)

    def learn(self, schema_ids: Sequence[str], *, timestamp: int) -> bool:
        """Take an announcement made elsewhere by the peer; returns whether it is the latest."""
        ids = check_schema_ids(schema_ids, self._limits)
        check_int("timestamp", timestamp)
        self._check_open()
        return self._theirs.hear(Announce(timestamp, ids)) is None

    def request(
        self, schema_ids: Sequence[str], *, mode: Mode = Mode.SET_RECONCILIATION
    ) -> Session:
        """Ask for a session about these schemas, which the peer has announced.

        Raises `LocalProtocolError`: ``NOT_ANNOUNCED``, ``DUPLICATE_SESSION``,
        ``TOO_MANY_SESSIONS``; `ValueError` for something that is not a schema id, one twice, or
        none.
        """
        ids = check_schema_ids(schema_ids, self._limits)
        check_type("mode", mode, Mode)
        if not ids:
            raise ValueError("a session is about one schema at least")
        self._check_open()
        if not self._theirs.cover(ids):
            raise LocalProtocolError(ErrorCode.NOT_ANNOUNCED, ", ".join(ids))
        talk = self._sessions.open(mode, ids, self._now)
        self._ask(talk)
        return Session(talk, self)

    def say(self, talk: Talk, saying: Saying, message: SessionMessage) -> None:
        """Send a message of a session; called by its handle (`Session`)."""
        self._check_running(talk)
        was = talk.state
        talk.say(saying, self._now)
        if isinstance(message, Have):
            self._outbox.append(self._codec.encode(message))
        else:
            self._answer(message)
        self._settle(talk, was)

    def say_entries(self, talk: Talk, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """The same for many `SendEntry` at once: entries with their operations."""
        self._check_running(talk)
        talk.say(Saying.ENTRY, self._now)
        self._outbox.append(self._codec.encode_entries(talk.session_id, entries))

    def break_off(self, talk: Talk, error: RemoteProtocolError) -> None:
        """Stop listening to a session; called by its handle (`Session`)."""
        self._check_running(talk)
        self._break_off(talk, error)

    def count_fault(self) -> None:
        """Note that the peer has spoilt a session that is already over."""
        self._faults += 1

    def _goodbye(self) -> None:
        for talk in self._sessions:
            if talk.local not in (Half.DONE, Half.BROKEN):
                self._answer(SyncDone(talk.session_id, False))

    # Bytes and time.

    @property
    def _overfull(self) -> bool:
        """Whether the peer has to take answers before it is heard again."""
        return self._outgoing.answers_size > self._limits.answers_size_max

    def _answer(self, message: Message) -> None:
        self._outgoing.answer(self._codec.encode(message))

    def read_size(self) -> int:
        if self._eof or self._closed is not None or self._overfull:
            return 0
        wanted = max(self._receive_max, self._framer.size_max)
        return max(0, wanted - self._inbox.size)

    def next_deadline(self) -> float | None:
        return None if self._closed is not None else self._deadlines.next()

    def advance(self, now: float) -> None:
        check_time(now, self._now if self._started else None)
        self._now = now
        if not self._started:
            self._started = True
            for talk in self._sessions:
                talk.moved(now)
                self._watch(talk)
        while (due := self._deadlines.pop_due(now)) is not None:
            self._look_after(due)

    def excuse(self, now: float) -> None:
        """Blame us, not the peer, for sessions that stood still since the last `advance`.

        Time before that counts as before.
        """
        check_time(now, self._now if self._started else None)
        for talk in self._sessions:
            talk.excuse(now - self._now)

    # Events.

    def _step(self) -> ConnectionEvent | None:
        while True:
            if self._events:
                return self._events.popleft()
            if self._closing:
                return Closed()
            if self._faults > self._limits.faults_max:
                raise RemoteProtocolError(ErrorCode.TOO_MANY_FAULTS, f"{self._faults}")
            if self._overfull:
                return None
            if self._in_runs and (run := self._take_run()) is not None:
                return run
            taken = self._framer.take()
            if taken is None:
                return None
            event = self._receive(self._codec.decode(taken) if isinstance(taken, bytes) else taken)
            if event is not None:
                return event

    def _step_eof(self) -> ConnectionEvent | None:
        if self._overfull:
            return None
        if self._inbox.size or self._framer.left:
            raise RemoteProtocolError(ErrorCode.EOF_IN_MESSAGE)
        running = [talk for talk in self._sessions if talk.local is not Half.BROKEN]
        if any(talk.remote is not Half.DONE for talk in running):
            raise RemoteProtocolError(ErrorCode.EOF_IN_SESSION, f"{len(running)} sessions")
        return None if running else Closed()

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._sessions.clear()
        self._deadlines.clear()

    # Messages from the peer.

    def _take_run(self) -> EntriesReceived | None:
        """Take the entries that come next, if their session accepts them."""
        session_id = self._framer.entry_session()
        talk = None if session_id is None else self._sessions.get(session_id)
        if session_id is None or talk is None or not talk.hears(Saying.ENTRY):
            return None
        entries = self._framer.take_entries()
        if not entries:
            return None
        talk.hear(Saying.ENTRY, self._now)
        return EntriesReceived(session_id=session_id, entries=entries)

    def _receive(self, message: Message) -> ConnectionEvent | None:
        match message:
            case Announce():
                reason = self._theirs.hear(message)
                if reason is not None:
                    return AnnouncementIgnored(timestamp=message.timestamp, reason=reason)
                return Announced(schema_ids=message.schema_ids, timestamp=message.timestamp)
            case SyncRequest():
                return self._accept(message)
            case _:
                return self._receive_of_session(message)

    def _receive_of_session(self, message: SessionMessage) -> ConnectionEvent | None:
        talk = self._sessions.get(message.session_id)
        if talk is None:
            return self._ignore(message)
        if talk.local is Half.BROKEN:
            if isinstance(message, SyncDone):
                self._forget(talk)
            return None
        if isinstance(message, Have) and talk.compares and talk.state is SessionState.REQUESTED:
            self._end(talk, RemoteProtocolError(ErrorCode.HEIGHTS_ONLY))
            return None
        try:
            return self._hear(talk, message)
        except RemoteProtocolError as error:
            self._break_off(talk, error)
            return None

    def _hear(self, talk: Talk, message: SessionMessage) -> ConnectionEvent:
        session_id = talk.session_id
        match message:
            case SendEntry(_, entry, operation):
                talk.hear(Saying.ENTRY, self._now)
                return EntryReceived(session_id=session_id, entry=entry, operation=operation)
            case Reconcile(_, inner):
                talk.hear(Saying.RANGE, self._now)
                return RangeReceived(session_id=session_id, message=inner)
            case Have(_, heights):
                talk.hear(Saying.HAVE, self._now)
                logs = {height.log for height in heights}
                if len(logs) < len(heights) or not all(height.seqnum for height in heights):
                    raise RemoteProtocolError(ErrorCode.BAD_HAVE)
                return HaveReceived(session_id=session_id, heights=heights)
            case SyncDone(_, live_mode):
                was = talk.state
                talk.hear(Saying.OFFER if live_mode else Saying.DONE, self._now)
                if was is SessionState.LIVE:
                    talk.say(Saying.DONE, self._now)
                    self._answer(SyncDone(session_id, False))
                self._settle(talk, was)
                return DoneReceived(session_id=session_id, live_mode=live_mode)

    def _accept(self, request: SyncRequest) -> ConnectionEvent:
        mode = _MODES.get(request.mode)
        reason: Ignored | None = None
        if mode is None:
            reason = Ignored.UNKNOWN_MODE
        elif not request.schema_ids:
            reason = Ignored.NO_SCHEMAS
        elif not self._ours.cover(request.schema_ids):
            reason = Ignored.NOT_ANNOUNCED
        else:
            found = self._sessions.accept(request, mode, self._now)
            if not isinstance(found, Ignored):
                return self._begin(*found, old_id=request.session_id)
            reason = found
        return RequestIgnored(session_id=request.session_id, reason=reason)

    def _begin(self, talk: Talk, *rivals: Talk, old_id: int) -> ConnectionEvent:
        """A session of the peer's begins, and requests of ours that cross it give way."""
        self._watch(talk)
        self._events.append(
            SessionRequested(session_id=talk.session_id, mode=talk.mode, schema_ids=talk.schema_ids)
        )
        for rival in rivals:
            if self._sessions.get(rival.session_id) is rival:
                renumbered = RequestRenumbered(session_id=old_id, new_session_id=rival.session_id)
                self._events.append(renumbered)
                self._ask(rival)
            else:
                self._deadlines.cancel(rival)
                rival.give_way()
                self._events.append(RequestDropped(session_id=rival.session_id))
        return self._events.popleft()

    def _ignore(self, message: SessionMessage) -> ConnectionEvent | None:
        """A message of no session is a fault, unless it was under way when its session ended."""
        if isinstance(message, SyncDone):
            return None
        if message.session_id not in self._given_up:
            self._faults += 1
        return MessageIgnored(session_id=message.session_id)

    # Sessions.

    def _check_open(self) -> None:
        if self._closing or self._closed is not None:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    def _check_running(self, talk: Talk) -> None:
        self._check_open()
        if talk.local is Half.BROKEN or self._sessions.get(talk.session_id) is not talk:
            raise LocalProtocolError(ErrorCode.NO_SUCH_SESSION, f"session {talk.session_id}")

    def _ask(self, talk: Talk) -> None:
        self._answer(SyncRequest(talk.session_id, talk.mode, talk.schema_ids))
        self._watch(talk)

    def _settle(self, talk: Talk, was: SessionState) -> None:
        """Act upon the change that the last message has made."""
        if talk.over:
            self._forget(talk)
            self._events.append(SessionEnded(session_id=talk.session_id))
        elif was is SessionState.LIVE and talk.state is was:
            pass
        elif talk.state is SessionState.LIVE:
            self._deadlines.cancel(talk)
            self._events.append(SessionLive(session_id=talk.session_id))
        else:
            self._watch(talk)

    def _break_off(self, talk: Talk, error: RemoteProtocolError) -> None:
        """The peer has broken a rule: finish, and wait until it has finished, too."""
        self._faults += 1
        self._end(talk, error)

    def _end(self, talk: Talk, error: RemoteProtocolError) -> None:
        if talk.break_off(self._now):
            self._answer(SyncDone(talk.session_id, False))
        if talk.over:
            self._forget(talk)
        else:
            self._watch(talk)
        self._events.append(SessionEnded(session_id=talk.session_id, error=error))

    def _forget(self, talk: Talk) -> None:
        self._sessions.remove(talk)
        self._deadlines.cancel(talk)

    # Patience.

    def _patience(self, talk: Talk) -> float:
        requested = talk.ours and talk.remote is Half.SILENT
        waits_for_a_word = requested or talk.remote is Half.LIVE
        limits = self._limits
        return limits.answer_max_s if waits_for_a_word else limits.progress_max_s

    def _watch(self, talk: Talk) -> None:
        if self._started and talk.state is not SessionState.LIVE:
            self._deadlines.set(talk, talk.moved_at + self._patience(talk))

    def _look_after(self, talk: Talk) -> None:
        """The session's deadline has passed, unless something has been said meanwhile."""
        if talk.moved_at + self._patience(talk) > self._now:
            self._watch(talk)
        elif talk.local is Half.BROKEN:
            self._forget(talk)
            self._given_up.append(talk.session_id)
        else:
            requested = talk.state is SessionState.REQUESTED
            code = ErrorCode.UNANSWERED if requested else ErrorCode.STALLED
            self._end(talk, RemoteProtocolError(code, f"session {talk.session_id}"))
