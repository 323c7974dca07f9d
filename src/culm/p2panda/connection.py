"""The wire machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from culm.arguments import check_int, check_type
from culm.buffer import Buffer
from culm.machine import Closed, LocalProtocolError, RemoteProtocolError, StreamBase
from culm.p2panda.codec import Codec, Dialect, Framer
from culm.p2panda.errors import ErrorCode
from culm.p2panda.events import (
    Announced,
    AnnouncementIgnored,
    ConnectionEvent,
    Ignored,
    RequestIgnored,
)
from culm.p2panda.limits import Limits, Timing
from culm.p2panda.messages import VERSION, Announce, Message, Mode, SyncRequest
from culm.p2panda.outbox import AnswerOutbox
from culm.p2panda.schema import SchemaId, schema_order
from culm.p2panda.sessions import Session, Sessions
from culm.p2panda.states import SideState, State

_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()
_MODES: Final = {int(mode): mode for mode in Mode}
_RUN_SIZE_MAX: Final = 1 << 20


class Interests:
    """The announcement state of one peer.

    latest: its latest announcement; ``None`` if it has made none.
    """

    __slots__ = ("_ids", "latest")

    def __init__(self) -> None:
        self.latest: Announce | None = None
        self._ids: frozenset[str] = frozenset()

    def hear(self, announce: Announce) -> Ignored | None:
        """Take an announcement; returns why it has no effect, if it has none."""
        if announce.version != VERSION:
            return Ignored.UNKNOWN_VERSION
        if self.latest is not None and announce.timestamp <= self.latest.timestamp:
            return Ignored.OLD_TIMESTAMP
        self.latest = announce
        self._ids = frozenset(announce.schema_ids)
        return None

    def check_later(self, timestamp: int) -> None:
        """Raise `LocalProtocolError` unless an announcement of this time would be the latest."""
        if self.latest is not None and timestamp <= self.latest.timestamp:
            message = f"{timestamp}, and the last one was {self.latest.timestamp}"
            raise LocalProtocolError(ErrorCode.OLD_TIMESTAMP, message)

    def cover(self, schema_ids: Sequence[str]) -> bool:
        """Whether all of these schemas were announced."""
        return self._ids.issuperset(schema_ids)


def _check_schema_ids(schema_ids: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """Our own schema ids, in the order in which they are sent.

    Raises `TypeError` or `ValueError` for something that is not an id, too many ids, or one twice.
    """
    check_type("schema ids", schema_ids, Sequence)
    if isinstance(schema_ids, (str, bytes, bytearray, memoryview)):
        raise TypeError("schema ids must be a sequence of text")
    check_int("number of schema ids", len(schema_ids), 0, limits.schemas_max)
    for each in schema_ids:
        SchemaId.parse(each)
        check_int("size of a schema id", len(each), 0, limits.schema_id_size_max)
    if len(set(schema_ids)) < len(schema_ids):
        raise ValueError("a schema id twice")
    return tuple(sorted(schema_ids, key=schema_order))


class Connection(StreamBase[ConnectionEvent]):
    """Announcements and sessions with one peer, over an ordered, reliable byte stream.

    local_peer, remote_peer
        The ids of the two peers in the transport; where requests cross, the one with the lower id
        gives way.  Raises `ValueError` if they are equal.
    dialect
        The encoding of messages.
    limits
        Bounds of the memory that the peer may use here.
    timing
        Bounds of the time that it may take; those of pauses are a replicator's.
    in_runs
        Whether entries are reported many at a time (`EntriesReceived`) where their bytes have
        arrived together; see `limit_runs`.

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
        timing: Timing = _DEFAULT_TIMING,
        in_runs: bool = False,
    ) -> None:
        check_type("local_peer", local_peer, bytes)
        check_type("remote_peer", remote_peer, bytes)
        check_type("dialect", dialect, Dialect)
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        if local_peer == remote_peer:
            raise ValueError("both peers have the same id")
        super().__init__(receive_max=limits.receive_buffer_max)
        self._outbox = self._answers = AnswerOutbox()
        self._limits = limits
        self._in_runs = in_runs
        self._run_size_max = _RUN_SIZE_MAX
        self._codec = Codec(dialect=dialect, limits=limits)
        self._heard = 0  # bytes
        self._framer = Framer(self._inbox, self._codec, skip_max=limits.operation_skip_max)
        self._ours, self._theirs = Interests(), Interests()
        self._sessions = Sessions(
            local_is_lower=local_peer < remote_peer,
            reuses_ids=dialect is Dialect.AQUADOGGO,
            limits=limits,
            timing=timing,
            codec=self._codec,
            outbox=self._answers,
        )

    @property
    def state(self) -> State:
        if self._closed is None:
            return State.OPEN
        return State.CLOSED if self._closed.error is None else State.FAILED

    def limit_runs(self, size_max: int) -> None:
        """Have runs end with the entry that exceeds this size, from now on.

        Counted are entries and operations in bytes, and `ENTRY_OVERHEAD` for each.
        """
        self._run_size_max = size_max

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
        return self._sessions.running

    @property
    def unsent_size(self) -> int:
        """The number of bytes that wait to be sent."""
        return self._outbox.size

    def session(self, session_id: int) -> Session:
        """The session with that id; raises `LocalProtocolError` (``NO_SUCH_SESSION``)."""
        check_int("session id", session_id)
        return self._sessions.find(session_id)

    # Verbs.

    def announce(self, schema_ids: Sequence[str], *, timestamp: int) -> None:
        """Announce these schemas, in place of all that we have announced before.

        timestamp: Unix seconds, or any other number that grows; later than the last one
            (``OLD_TIMESTAMP``).  Raises `ValueError` for something that is not a schema id, or for
            one twice.
        """
        ids = _check_schema_ids(schema_ids, self._limits)
        check_int("timestamp", timestamp)
        self._sessions.check_open()
        self._ours.check_later(timestamp)
        announce = Announce(timestamp, ids)
        self._ours.hear(announce)
        self._outbox.append(self._codec.encode(announce))  # no answer: the user's own word

    def learn(self, schema_ids: Sequence[str], *, timestamp: int) -> bool:
        """Take an announcement made elsewhere by the peer; returns whether it is the latest."""
        ids = _check_schema_ids(schema_ids, self._limits)
        check_int("timestamp", timestamp)
        self._sessions.check_open()
        return self._theirs.hear(Announce(timestamp, ids)) is None

    def request(
        self, schema_ids: Sequence[str], *, mode: Mode = Mode.SET_RECONCILIATION
    ) -> Session:
        """Ask for a session about these schemas, which the peer has announced.

        Raises `LocalProtocolError`: ``NOT_ANNOUNCED``, ``DUPLICATE_SESSION``,
        ``TOO_MANY_SESSIONS``; `ValueError` for something that is not a schema id, one twice, or
        none.
        """
        ids = _check_schema_ids(schema_ids, self._limits)
        check_type("mode", mode, Mode)
        if not ids:
            raise ValueError("a session is about one schema at least")
        self._sessions.check_open()
        if not self._theirs.cover(ids):
            raise LocalProtocolError(ErrorCode.NOT_ANNOUNCED, ", ".join(ids))
        return self._sessions.request(mode, ids)

    def _goodbye(self) -> None:
        self._sessions.say_goodbye()

    # Bytes and time.

    @property
    def _overfull(self) -> bool:
        """Whether the peer has to take answers before it is heard again."""
        return self._answers.answers_size > self._limits.answers_size_max

    def read_size(self) -> int:
        if self._eof or self._closed is not None or self._overfull:
            return 0
        wanted = max(self._receive_max, self._framer.size_max)
        return max(0, wanted - self._inbox.size)

    def receive_data(self, data: Buffer) -> None:
        before = self._inbox.size
        super().receive_data(data)
        self._heard += self._inbox.size - before

    def next_deadline(self) -> float | None:
        return None if self._closed is not None else self._sessions.next_deadline()

    def advance(self, now: float) -> None:
        self._sessions.advance(
            now,
            carried=self._heard + self._answers.taken,
            is_busy=bool(self._inbox.size or self._framer.passes or self._outbox.size),
        )

    def excuse(self, now: float) -> None:
        """Blame us, not the peer, for sessions that stood still since the last `advance`.

        Time before that counts as before.
        """
        self._sessions.excuse(now)

    # Events.

    def _step(self) -> ConnectionEvent | None:
        sessions = self._sessions
        while True:
            if sessions.events:
                return sessions.events.popleft()
            if self._closing:
                return Closed()
            if sessions.faults > self._limits.faults_max:
                raise RemoteProtocolError(ErrorCode.TOO_MANY_FAULTS, f"{sessions.faults}")
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
        if self._inbox.size or self._framer.passes:
            raise RemoteProtocolError(ErrorCode.EOF_IN_MESSAGE)
        running = self._sessions.running
        if any(session.remote is not SideState.DONE for session in running):
            raise RemoteProtocolError(ErrorCode.EOF_IN_SESSION, f"{len(running)} sessions")
        return None if running else Closed()

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._sessions.close()

    # Messages from the peer.

    def _take_run(self) -> ConnectionEvent | None:
        """Take the entries that come next, if their session accepts them."""
        session_id = self._framer.entry_session()
        if session_id is None or not self._sessions.accepts_entries(session_id):
            return None
        entries = self._framer.take_entries(self._run_size_max)
        return self._sessions.hear_entries(session_id, entries) if entries else None

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
                return self._sessions.hear(message)

    def _accept(self, request: SyncRequest) -> ConnectionEvent:
        mode = _MODES.get(request.mode)
        if mode is None:
            reason = Ignored.UNKNOWN_MODE
        elif not request.schema_ids:
            reason = Ignored.NO_SCHEMAS
        elif not self._ours.cover(request.schema_ids):
            reason = Ignored.NOT_ANNOUNCED
        else:
            return self._sessions.accept(request, mode)
        return RequestIgnored(session_id=request.session_id, reason=reason)
