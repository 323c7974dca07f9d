"""The exchange of feeds over one link: in a session, or by its fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from culm.arguments import is_dict
from culm.machine import LocalProtocolError, RemoteProtocolError
from culm.ssb.ebt import EndReason, ErrorCode, Replicator, SessionEnded, SessionRole
from culm.ssb.muxrpc import (
    BodyType,
    Call,
    CallError,
    CallReceived,
    CallState,
    CallType,
    Connection,
    ValueReceived,
)
from culm.ssb.muxrpc.requests import shortened
from culm.ssb.peer.events import FellBack, LinkEvent
from culm.ssb.peer.fallback import LinkHistory
from culm.ssb.peer.frames import MessageFrame, read_frame
from culm.ssb.peer.limits import Settings
from culm.ssb.peer.states import EXCHANGE_RULES, ONE_BY_ONE, ExchangeInput, ExchangeMode
from culm.ssb.v8json import JsonValue

__all__ = ["LinkExchange"]

_VERSION: Final = 3
_FORMAT: Final = "classic"
_REPLICATE: Final = ("ebt", "replicate")
_SENDING: Final = frozenset({CallState.SENDING, CallState.EXCHANGING})
# With these words peers end a session for another one, and all streams before their goodbye.
_RECONNECTED: Final = "reconnected to peer"
_PARENT_ENDED: Final = "unexpected end of parent stream"
_REASONS: Final = {EndReason.RECONNECTED: _RECONNECTED, EndReason.BLOCKED: "blocked"}
_PAUSES: Final = frozenset({ExchangeMode.RESTING, ExchangeMode.MEANWHILE})
_DOUBLINGS_MAX: Final = 6  # of the pause before another request for a session


class LinkExchange:
    """The exchange over one link, whose peer is known."""

    def __init__(
        self,
        *,
        link: int,
        peer: str,
        rpc: Connection,
        history: LinkHistory,
        core: Replicator,
        settings: Settings,
        sessions_max: int,
        heard_at: Callable[[], float],
        tell: Callable[[LinkEvent], None],
        sessions: dict[int, LinkExchange],
    ) -> None:
        self.mode = ExchangeMode.NOTHING
        self.session: int | None = None
        self.link = link
        self._peer = peer
        self._rpc = rpc
        self._history = history
        self._core = core
        self._settings = settings
        self._heard_at = heard_at
        self._tell = tell
        self._sessions = sessions
        self._call: Call | None = None  # of the session
        self._sessions_left = sessions_max  # that the peer may open
        self._asks = settings.asks_as_server
        self._resumed = 0  # number of further requests for a session

    @property
    def holds(self) -> bool:
        """Whether frames have to wait until the session has loaded, or others are written."""
        if self.session is None:
            return self.mode in ONE_BY_ONE and not self._core.takes_messages
        return not (self._core.takes_messages and self._core.is_ready(self.session))

    @property
    def waits_for_store(self) -> bool:
        """Whether we wait for our own store: then the peer is not to blame for its silence."""
        is_loading = self.session is not None and self._core.is_loading(self.session)
        return is_loading or not self._core.takes_messages

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
        doublings = min(self._resumed, _DOUBLINGS_MAX) + (self._core.me > self._peer)
        return self._settings.session_s * 2.0**doublings

    @property
    def lacks_place(self) -> bool:
        """Whether there is no session with the peer, and one may be asked for again."""
        return self.mode in _PAUSES and not self._core.has_session(self._peer)

    def wait_over(self) -> None:
        """Go on after a pause, or after the peer's time to open a session."""
        if self.pause_s is not None and not self._core.has_session(self._peer):
            self._resumed += 1
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
        self._begin(session)
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
        self._begin(session)
        self._call = call
        self._move(ExchangeInput.SESSION_OPENED)

    def _begin(self, session: int) -> None:
        self.session = session
        self._sessions[session] = self

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

    def fill(self, size_max: int) -> None:
        """Send frames over the connection, as far as it has room."""
        while self.session is not None and self._call is not None and self._call.state in _SENDING:
            size = min(size_max, self._rpc.send_size())
            frames = self._core.frames_to_send(self.session, size) if size else ()
            if not frames:
                return
            for frame in frames:
                self._call.send_body(frame)

    # The end

    def call_ended(self, error: CallError | None) -> None:
        """End the session: the peer has ended its call."""
        session, self.session, self._call = self.session, None, None
        if session is None:
            return
        self._core.disconnect(session)
        if error is not None and error.message == _RECONNECTED:
            self._move(ExchangeInput.SESSION_LOST)
        elif error is None or error.message == _PARENT_ENDED:
            self._move(ExchangeInput.SESSION_ENDED)
        else:
            self._fall_back(ExchangeInput.SESSION_REFUSED)

    def session_ended(self, event: SessionEnded) -> None:
        """End the call of a session of this link: the replicator has ended the session."""
        del self._sessions[event.session]
        if event.session == self.session:
            self.session = None
            self._end_call(event.reason, event.error)
            code = None if event.error is None else event.error.code
            if event.reason is EndReason.RECONNECTED or code is ErrorCode.NO_NOTES:
                self._move(ExchangeInput.SESSION_LOST)
            else:
                self._move(ExchangeInput.SESSION_ENDED)

    def disconnect(self) -> None:
        """End the session: the link has ended."""
        session, self.session, self._call = self.session, None, None
        if session is not None:
            self._core.disconnect(session)

    def _end_call(self, reason: EndReason, error: RemoteProtocolError | None) -> None:
        call, self._call = self._call, None
        if call is None or call.state not in _SENDING or self._rpc.calls.get(call.number) is None:
            return
        if reason is EndReason.DISCONNECTED:
            call.end()
        else:
            call.fail(str(error) if error is not None else _REASONS[reason])

    # Falling back

    def _fall_back(self, reason: ExchangeInput) -> None:
        self._move(reason)
        self._tell(FellBack(link=self.link, peer=self._peer, reason=reason))

    def _move(self, happened: ExchangeInput) -> None:
        before, self.mode = self.mode, EXCHANGE_RULES[self.mode][happened]
        if before in ONE_BY_ONE:
            self._history.stop()
        elif self.mode in ONE_BY_ONE and self._settings.falls_back:
            self._history.begin()


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
