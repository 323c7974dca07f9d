"""The calls over one link once its peer is known, each handed to its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isinf
from typing import Final, TypeGuard

from culm.arguments import is_dict
from culm.machine import Event, LocalProtocolError, RemoteProtocolError
from culm.replication import Liveness
from culm.ssb import history
from culm.ssb.ebt import EndReason, ErrorCode, SessionEnded, SessionRole, decode_notes
from culm.ssb.messages import MessageError, read_message
from culm.ssb.muxrpc import (
    BodyType,
    Call,
    CallEnded,
    CallError,
    CallReceived,
    CallType,
    Connection,
    State,
    ValueReceived,
)
from culm.ssb.muxrpc.requests import DEPTH_MAX, shortened
from culm.ssb.peer.context import MANIFEST, Context
from culm.ssb.peer.errors import ErrorCode as PeerErrorCode
from culm.ssb.peer.events import FellBack
from culm.ssb.peer.frames import Content, FrameQueue, MessageFrame
from culm.ssb.peer.history import LinkHistory
from culm.ssb.peer.ping import Ping, PingState
from culm.ssb.peer.states import EXCHANGE_RULES, ONE_BY_ONE, ExchangeInput, ExchangeMode
from culm.ssb.v8json import SAFE_INTEGER_MAX, JsonError, JsonValue, parse
from culm.timers import Deadlines

_BEGINS_NOTES: Final = b'{"@'


def read_frame(body: bytes, body_type: BodyType) -> MessageFrame | Mapping[str, int]:
    """The message, or the notes, in a frame.

    Raises `RemoteProtocolError`: ``NOT_NOTES``, ``BAD_FEED_ID``, ``BAD_NOTE``.
    """
    if body_type is not BodyType.JSON:
        raise RemoteProtocolError(ErrorCode.NOT_NOTES, f"{body_type.name}")
    failure: MessageError | None = None
    if not body.startswith(_BEGINS_NOTES):
        try:
            message = read_message(body)
        except MessageError as error:
            failure = error.with_traceback(None)
        else:
            return MessageFrame(message.author, message.sequence, message)
    try:
        value = parse(body, depth_max=DEPTH_MAX)
    except JsonError as error:
        raise RemoteProtocolError(ErrorCode.NOT_NOTES, str(error)) from None
    if failure is not None and _is_message(value):
        return MessageFrame(value["author"], _sequence(value.get("sequence")), failure)
    return decode_notes(value)


def _is_message(value: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    return is_dict(value) and isinstance(value.get("author"), str)


def _sequence(value: JsonValue) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 1 <= value <= SAFE_INTEGER_MAX else 0


def _content(event: ValueReceived) -> Content:
    try:
        return read_frame(event.body, event.type)
    except RemoteProtocolError as error:
        return error.detached()


_VERSION: Final = 3
_FORMAT: Final = "classic"
_REPLICATE: Final = ("ebt", "replicate")
# With these words peers end a session for another one, and all streams before their goodbye.
_RECONNECTED: Final = "reconnected to peer"
_PARENT_ENDED: Final = "unexpected end of parent stream"
_REASONS: Final = {EndReason.RECONNECTED: _RECONNECTED, EndReason.BLOCKED: "blocked"}
_PAUSES: Final = frozenset({ExchangeMode.RESTING, ExchangeMode.MEANWHILE})
_DOUBLINGS_MAX: Final = 6  # of the pause before another request for a session
_TICK_S: Final = 0.1  # the least pause: with times of 0, it would be over again and again at once


class LinkExchange:
    """The exchange over one link, whose peer is known."""

    def __init__(
        self,
        *,
        link: int,
        peer: str,
        rpc: Connection,
        context: Context,
        heard_at: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.history: LinkHistory | None = None  # most peers speak EBT
        self.mode = ExchangeMode.NOTHING
        self.session: int | None = None
        self._link = link
        self._peer = peer
        self._rpc = rpc
        self._context = context
        self._core = context.core
        self._settings = context.settings
        self._heard_at = heard_at
        self._wake = wake
        self._call: Call | None = None  # of the session
        self._sessions_left = context.limits.sessions_max  # that the peer may open
        self._asks = context.settings.asks_as_server
        self.resumed = 0  # number of further requests for a session
        self.frames: FrameQueue | None = None
        if context.verifier is not None:
            self.frames = FrameQueue(self._core, context.verifier)

    @property
    def holds(self) -> bool:
        """Whether frames wait: for a verdict, for the session to load, or for others' writes."""
        if self.frames is not None and self.frames.waits:
            return True
        if self.session is None:
            return self.mode in ONE_BY_ONE and not self._core.takes_messages
        return not (self._core.is_ready(self.session) and self._core.takes_messages)

    @property
    def holds_bytes(self) -> bool:
        """Whether nothing more is read meanwhile."""
        if self.frames is not None and self.frames.waits:
            return self.frames.is_full
        return self.holds

    @property
    def waits_for_store(self) -> bool:
        """Whether we wait for our own store: then the peer is not to blame for its silence."""
        is_loading = self.session is not None and self._core.is_loading(self.session)
        verifies = self.frames is not None and self.frames.waits
        return is_loading or verifies or not self._core.takes_messages

    # The beginning

    def begin(self, role: SessionRole) -> None:
        """Begin to exchange feeds, as the role and the settings ask for."""
        self._asks = self._asks or role is SessionRole.CLIENT
        if not self._settings.speaks_ebt:
            self._move(ExchangeInput.CONNECTED_WITHOUT_EBT)
        elif role is SessionRole.CLIENT:
            self._move(ExchangeInput.CONNECTED_AS_CLIENT)
            self._ask()
        else:
            self._move(ExchangeInput.CONNECTED_AS_SERVER)

    def history_asked(self) -> None:
        """Fall back if the peer asks for a feed: a client that does so will not open a session.

        Neither will one whose session was lost, if the next request is the peer's to make.
        """
        rests = self.mode is ExchangeMode.RESTING and self.pause_s is None
        if self.mode is ExchangeMode.WAITING or (rests and not self._core.has_session(self._peer)):
            self._fall_back(ExchangeInput.HISTORY_ASKED)

    @property
    def pause_s(self) -> float | None:
        """The pause before we request a session again; ``None`` if we do not.

        If two peers dial each other at once, each session gives way to the other one, and both are
        gone.  So one of the two waits twice as long as the other; and both double their pauses each
        time, since the request of one has to arrive before the other makes its own.
        """
        if self.mode not in _PAUSES or not self._asks:
            return None
        doublings = min(self.resumed, _DOUBLINGS_MAX) + (self._core.me > self._peer)
        return max(self._context.timing.session_s, _TICK_S) * 2.0**doublings

    @property
    def lacks_place(self) -> bool:
        """Whether there is no session with the peer, and one may be asked for again."""
        return self.mode in _PAUSES and not self._core.has_session(self._peer)

    def wait_over(self) -> None:
        """Go on after a pause, or after the peer's time to open a session."""
        if self.pause_s is not None and not self._core.has_session(self._peer):
            self.resumed += 1
            if self.mode is ExchangeMode.RESTING or self._core.takes_sessions:
                self._move(ExchangeInput.RESUMED)
                self._ask()
        if self.mode is not ExchangeMode.WAITING:
            return
        if self._settings.asks_as_server:
            self._move(ExchangeInput.ASKED_IN_VAIN)
            self._ask()
        else:
            self._fall_back(ExchangeInput.WAITED)

    def _ask(self) -> None:
        """Open a session (seed, "Creating an EBT session")."""
        try:
            session = self._core.connect(
                self._peer, role=SessionRole.CLIENT, heard_at=self._heard_at
            )
        except LocalProtocolError as error:
            if error.code is ErrorCode.TOO_MANY_SESSIONS:
                self._fall_back(ExchangeInput.NO_PLACE)
            else:
                self._move(ExchangeInput.SESSION_LOST)
            return
        arguments: JsonValue = {"version": _VERSION, "format": _FORMAT}
        self.session = session
        self._context.sessions[session] = self._link
        self._call = self._rpc.make_call(_REPLICATE, CallType.DUPLEX, arguments)

    def open(self, event: CallReceived) -> None:
        """Take the peer's request for a session; an invalid one ends the call."""
        call = self._rpc.call(event.number)
        why = _refusal(event.args)
        if why is None and not self._sessions_left:
            why = "too many sessions over this connection"
        if why is not None:
            call.fail(why)
            return
        try:
            session = self._core.connect(self._peer, role=SessionRole.SERVER)
        except LocalProtocolError as error:
            call.fail(str(error))
            return
        self._sessions_left -= 1
        # An earlier session of this link has ended by that; the peer is told of its end.
        self._end_call(EndReason.RECONNECTED, None)
        self.session = session
        self._context.sessions[session] = self._link
        self._call = call
        self._move(ExchangeInput.SESSION_OPENED)

    # Frames

    def is_of(self, number: int) -> bool:
        """Whether a call is that of the session."""
        return self._call is not None and self._call.number == number

    def receive(self, event: ValueReceived) -> None:
        """Take a frame, and the next ones without events of their own.

        They are taken until an event or a write has to come first.
        """
        if self.session is None:
            return
        if self.mode is ExchangeMode.ASKED:
            self._move(ExchangeInput.NOTES_CAME)
        if self.frames is not None:
            self.frames.add(self.session, _content(event), len(event.body))
            self.take_frames()
            return
        value: tuple[bytes, BodyType] | None = (event.body, event.type)
        while value is not None:
            self._receive_frame(self.session, *value)
            if not self._core.goes_on:
                return
            value = self._rpc.take_value(event.number)

    def _receive_frame(self, session: int, body: bytes, body_type: BodyType) -> None:
        """Take one frame; something that is not a frame ends the session."""
        try:
            frame = read_frame(body, body_type)
        except RemoteProtocolError as error:
            self._core.disconnect(session, error)
            return
        if isinstance(frame, MessageFrame):
            self._core.receive_message(session, *frame)
        else:
            self._core.receive_notes(session, frame)

    def gather(self, next_value: Callable[[int], ValueReceived | None]) -> None:
        """Take more frames, if one waits for its verdict, as long as nothing else comes."""
        frames = self.frames
        while frames and frames.waits and not frames.is_full:
            if self.session is None or self._call is None:
                return
            event = next_value(self._call.number)
            if event is None:
                return
            frames.add(self.session, _content(event), len(event.body))

    def take_frames(self) -> None:
        """Take frames that have their verdicts, until an event or a write has to come first."""
        frames, taken = self.frames, False
        while frames and not frames.waits and (self._core.goes_on or not taken):
            frame, taken = frames.take(), True
            if frame.session != self.session:
                continue
            if isinstance(frame.content, RemoteProtocolError):
                self._core.disconnect(frame.session, frame.content)
            elif isinstance(frame.content, MessageFrame):
                self._core.receive_message(frame.session, *frame.content)
            else:
                self._core.receive_notes(frame.session, frame.content)

    def fill(self, size_max: int) -> None:
        """Send frames over the connection, as far as it has room."""
        while self.session is not None and self._call is not None and self._call.may_send:
            size = min(size_max, self._rpc.send_size)
            frames = self._core.frames_to_send(self.session, size) if size else ()
            if not frames:
                return
            for frame in frames:
                self._call.send_body(frame)

    # The end

    def call_ended(self, error: CallError | None) -> None:
        """End the session: the peer has ended its call."""
        if self.disconnect():
            said = None if error is None else error.message
            self._over(is_lost=said == _RECONNECTED, failed=said not in (None, _PARENT_ENDED))

    def session_ended(self, event: SessionEnded) -> None:
        """End the call of a session of this link: the replicator has ended the session."""
        if event.session == self.session:
            self._forget_frames()
            self.session = None
            self._end_call(event.reason, event.error)
            code = None if event.error is None else event.error.code
            is_lost = event.reason is EndReason.RECONNECTED or code is ErrorCode.NO_NOTES
            self._over(is_lost=is_lost, failed=code is not None)

    def _over(self, *, is_lost: bool, failed: bool) -> None:
        """Go on without the session; one that failed, at either side, gives way to single feeds."""
        if failed and not is_lost:
            self._fall_back(ExchangeInput.SESSION_REFUSED)
        else:
            self._move(ExchangeInput.SESSION_LOST if is_lost else ExchangeInput.SESSION_ENDED)

    def disconnect(self) -> bool:
        """End the session: its call or the link has ended; returns whether there was one."""
        self._forget_frames()
        session, self.session, self._call = self.session, None, None
        if session is not None:
            self._core.disconnect(session)
        return session is not None

    def _forget_frames(self) -> None:
        if self.frames is not None:
            self.frames.clear()

    def _end_call(self, reason: EndReason, error: RemoteProtocolError | None) -> None:
        call, self._call = self._call, None
        if call is None or not call.may_send:
            return
        if reason is EndReason.DISCONNECTED:
            call.end()
        else:
            call.fail(str(error) if error is not None else _REASONS[reason])

    # Falling back

    def _fall_back(self, reason: ExchangeInput) -> None:
        self._move(reason)
        self._context.events.append(FellBack(link=self._link, peer=self._peer, reason=reason))

    def _move(self, happened: ExchangeInput) -> None:
        before, self.mode = self.mode, EXCHANGE_RULES[self.mode][happened]
        if before in ONE_BY_ONE:
            self.made_history().stop()
        elif self.mode in ONE_BY_ONE and self._settings.falls_back:
            self.made_history().begin()

    def made_history(self) -> LinkHistory:
        """The exchange of one feed at a time with the peer, made when first needed."""
        if self.history is None:
            self.history = LinkHistory(
                peer=self._peer,
                rpc=self._rpc,
                context=self._context,
                heard_at=self._heard_at,
                wake=self._wake,
            )
        return self.history


def _refusal(args: list[JsonValue]) -> str | None:
    """The reason to refuse a session with these arguments, worded as by other peers."""
    asked: dict[str, JsonValue] = args[0] if args and is_dict(args[0]) else {}
    version = asked.get("version")
    if type(version) is bool or version != _VERSION:
        return "expected ebt.replicate({version: 3})"
    wanted = asked.get("format", _FORMAT)
    if wanted != _FORMAT:
        return f"Unknown format: {shortened(wanted) if isinstance(wanted, str) else 'not a text'}"
    return None


_SESSION: Final = 0  # a number that no call has
_PATIENCE: Final = 3  # pauses that a peer has for its turn, before we serve in its place


class Conversation:
    """The calls over one link."""

    __slots__ = (
        "_context",
        "_deadlines",
        "_liveness",
        "_owed",
        "_pings",
        "_role",
        "_rpc",
        "exchange",
        "peer",
    )

    def __init__(
        self,
        *,
        link: int,
        peer: str,
        role: SessionRole,
        rpc: Connection,
        liveness: Liveness,
        context: Context,
        wake: Callable[[], None],
    ) -> None:
        self.peer = peer
        self._liveness = liveness
        self.exchange = LinkExchange(
            link=link,
            peer=peer,
            rpc=rpc,
            context=context,
            heard_at=lambda: liveness.heard_at,
            wake=wake,
        )
        self._role = role
        self._rpc = rpc
        self._context = context
        self._pings: dict[int, Ping] = {}  # by number of their call
        self._owed: dict[int, None] = {}  # those that we have to answer
        self._deadlines: Deadlines[int] = Deadlines()  # of pings, and of the wait for a session

    def begin(self, now: float) -> None:
        """Ask the peer, which is known now, for a session or for feeds."""
        self.exchange.begin(self._role)
        if self._role is SessionRole.SERVER:
            self._deadlines.set(_SESSION, now + self._context.timing.session_s)
        elif not isinf(self._context.timing.ping_s):
            self._call_ping(now)
        self._wait_for_place(now)

    def _wait_for_place(self, now: float) -> None:
        if self.exchange.lacks_place:
            self.resume(now)

    def receive(self, event: Event, now: float) -> None:
        """Take an event of a call."""
        match event:
            case ValueReceived(number=number):
                if self.exchange.is_of(number):
                    self.exchange.receive(event)
                elif self.exchange.history is not None and self.exchange.history.is_of(number):
                    self.exchange.history.receive(event)
                elif number in self._pings:
                    self._receive_ping(event, now)
            case CallReceived():
                self._receive_call(event)
            case CallEnded(number=number, failure=failure):
                if self.exchange.is_of(number):
                    self.exchange.call_ended(failure)
                if self.exchange.history is not None:
                    self.exchange.history.call_ended(event)
                self._pings.pop(number, None)
                self._owed.pop(number, None)
                self._deadlines.cancel(number)
            case _:
                pass

    def _receive_call(self, event: CallReceived) -> None:
        call = self._rpc.call(event.number)
        match event.name:
            case ("ebt", _):
                self.exchange.open(event)
            case history.METHOD:
                self.exchange.history_asked()
                self.exchange.made_history().open(event)
            case ("gossip", "ping") | ("blobs", "createWants") if not self._has_room():
                call.fail("too many calls")  # as it stays open, no feed could be asked for
            case ("gossip", "ping"):
                self._pings[call.number] = Ping(call)
            case ("blobs", "createWants"):
                call.send({})  # we want no blobs; the stream stays open, as with other peers
            case _:
                call.reply(MANIFEST.to_json())
        if self.exchange.history is not None:
            self.exchange.history.make_room()

    def _has_room(self) -> bool:
        """Whether the peer could make one more call, if need be in the place of a live one."""
        if self.exchange.history is not None:
            self.exchange.history.make_room()
        return not self._rpc.is_full

    def resume(self, now: float) -> bool:
        """Ask for a session again after a pause, if that is for us to do; returns whether it is."""
        pause = self.exchange.pause_s
        if pause is None or self._rpc.state is not State.OPEN:
            return False
        self._deadlines.set(_SESSION, now + pause)
        return True

    # Signs of life

    def _receive_ping(self, event: ValueReceived, now: float) -> None:
        if self._pings[event.number].receive(event):
            self._owed[event.number] = None
            self._volley(now)
        else:  # it is the peer's turn
            self._deadlines.set(event.number, now + self._context.timing.ping_s * _PATIENCE)

    def _volley(self, now: float) -> None:
        """Answer the peer's pings, once it takes our answers."""
        while self._owed and self._rpc.send_size:
            number, _ = self._owed.popitem()
            self._pings[number].volley(self._context.time.unix_ms)
            self._deadlines.set(number, now + self._context.timing.ping_s)

    def _call_ping(self, now: float) -> None:
        """Open a ping call of ours."""
        timeout: JsonValue = {"timeout": int(self._context.timing.patience_s * 1000)}
        call = self._rpc.make_call(("gossip", "ping"), CallType.DUPLEX, timeout)
        self._pings[call.number] = Ping(call)
        self._serve(call.number, now)

    def _serve(self, number: int, now: float) -> None:
        if self._pings[number].rests:
            self._pings[number].serve(self._context.time.unix_ms)
            self._liveness.asked(now)

    def _ask(self, now: float) -> None:
        """Ask for a sign of life, unless the peer has not answered the last question."""
        if any(ping.state is PingState.SERVED for ping in self._pings.values()):
            return
        number = next((each for each, ping in self._pings.items() if ping.rests), None)
        if number is None:
            self._call_ping(now)
        else:
            self._serve(number, now)

    # Sending

    def fill(self, size_max: int) -> None:
        """Send answers and feeds over the connection, as far as it has room."""
        self._volley(self._context.time.now)
        self.exchange.fill(size_max)
        if self.exchange.history is not None:
            self.exchange.history.fill()

    # Time

    def next_deadline(self) -> float | None:
        if self._rpc.state is not State.OPEN:
            return None  # nothing more can be said
        silence = self._liveness.deadline()
        asking = None if self.exchange.history is None else self.exchange.history.next_deadline()
        times = (self._deadlines.next(), asking, silence)
        return min((time for time in times if time is not None and time < inf), default=None)

    def advance(self, now: float) -> None:
        """Raises `RemoteProtocolError` (``SILENT``)."""
        if self._rpc.state is not State.OPEN:
            return
        if self.exchange.waits_for_store:  # before a session that is asked for now has to load
            self._liveness.heard(now)
        while (number := self._deadlines.pop_due(now)) is not None:
            if number == _SESSION:
                self.exchange.wait_over()
                self._wait_for_place(now)
            else:
                self._serve(number, now)
        if self._liveness.advance(now):
            self._ask(now)
        elif self._liveness.is_over():
            raise RemoteProtocolError(PeerErrorCode.SILENT)
        if self.exchange.history is not None:
            self.exchange.history.advance()

    def disconnect(self) -> None:
        """End everything: the link has ended."""
        self._deadlines.clear()
        self._pings.clear()
        self.exchange.disconnect()
        if self.exchange.history is not None:
            self.exchange.history.disconnect()
