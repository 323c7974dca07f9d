"""The calls over one link once its peer is known, each handed to its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isinf
from typing import Final

from culm.machine import Event
from culm.ssb import history
from culm.ssb.ebt import Replicator, SessionRole
from culm.ssb.muxrpc import (
    CallEnded,
    CallReceived,
    CallType,
    Connection,
    Manifest,
    State,
    ValueReceived,
)
from culm.ssb.peer.events import LinkEvent
from culm.ssb.peer.exchange import LinkExchange
from culm.ssb.peer.fallback import LinkHistory
from culm.ssb.peer.limits import Settings
from culm.ssb.peer.liveness import Liveness
from culm.ssb.peer.ping import Ping, PingState
from culm.ssb.v8json import JsonValue
from culm.timers import Deadlines

__all__ = ["MANIFEST", "Context", "Conversation"]

_SESSION: Final = 0  # a number that no call has
_PATIENCE: Final = 3  # pauses that a peer has for its turn, before we serve in its place

#: The methods that a peer may call.
MANIFEST: Final = Manifest(
    {
        "manifest": CallType.ASYNC,
        "ebt.replicate": CallType.DUPLEX,
        "ebt.replicateFormat": CallType.DUPLEX,
        "gossip.ping": CallType.DUPLEX,
        "blobs.createWants": CallType.SOURCE,
        ".".join(history.METHOD): CallType.SOURCE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The things that all conversations share.

    sessions_max: sessions that a peer may open over one link.
    now: the time of the machine.
    time_ms: converts a time of the machine to milliseconds since 1970.
    sessions: the handlers of the replicator's sessions, by number.
    """

    core: Replicator
    settings: Settings
    sessions_max: int
    history_limits: history.Limits
    early_room: history.EarlyRoom
    tell: Callable[[LinkEvent], None]
    now: Callable[[], float]
    time_ms: Callable[[float], int]
    sessions: dict[int, LinkExchange] = field(default_factory=dict[int, LinkExchange])


class Conversation:
    """The calls over one link."""

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
        self.history = LinkHistory(
            peer=peer,
            rpc=rpc,
            core=context.core,
            settings=context.settings.history,
            limits=context.history_limits,
            room=context.early_room,
            now=context.now,
            heard_at=lambda: liveness.heard_at,
            time_ms=context.time_ms,
            wake=wake,
        )
        self.exchange = LinkExchange(
            link=link,
            peer=peer,
            rpc=rpc,
            history=self.history,
            core=context.core,
            settings=context.settings,
            sessions_max=context.sessions_max,
            heard_at=lambda: liveness.heard_at,
            tell=context.tell,
            sessions=context.sessions,
        )
        self._role = role
        self._rpc = rpc
        self._context = context
        self._pings: dict[int, Ping] = {}  # by number of their call
        self._deadlines: Deadlines[int] = Deadlines()  # of pings, and of the wait for a session

    def begin(self, now: float) -> None:
        """Ask the peer, which is known now, for a session or for feeds."""
        self.exchange.begin(self._role)
        if self._role is SessionRole.SERVER:
            self._deadlines.set(_SESSION, now + self._context.settings.session_s)
        elif not isinf(self._context.settings.ping_s):
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
                elif self.history.is_of(number):
                    self.history.receive(event)
                elif number in self._pings:
                    self._receive_ping(event, now)
            case CallReceived():
                self._receive_call(event)
            case CallEnded(number=number, failure=failure):
                if self.exchange.is_of(number):
                    self.exchange.call_ended(failure)
                self.history.call_ended(event)
                self._pings.pop(number, None)
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
                self.history.open(event)
            case ("gossip", "ping"):
                self._pings[call.number] = Ping(call)
            case ("blobs", "createWants"):
                call.send({})  # we want no blobs; the stream stays open, as with other peers
            case _:
                call.reply(MANIFEST.to_json())
        self.history.make_room()

    def resume(self, now: float) -> bool:
        """Ask for a session again after a pause, if that is for us to do; returns whether it is."""
        pause = self.exchange.pause_s
        if pause is None or self._rpc.state is not State.OPEN:
            return False
        self._deadlines.set(_SESSION, now + pause)
        return True

    # Signs of life

    def _receive_ping(self, event: ValueReceived, now: float) -> None:
        if not self._rpc.send_size():
            return  # a peer that does not take our answers gets none
        ping = self._pings[event.number]
        pause = self._context.settings.ping_s
        if not ping.receive(event, self._context.time_ms(now)):
            pause *= _PATIENCE  # it is the peer's turn
        if not isinf(pause):
            self._deadlines.set(event.number, now + pause)

    def _call_ping(self, now: float) -> None:
        """Open a ping call of ours."""
        timeout: JsonValue = {"timeout": int(self._context.settings.patience_s * 1000)}
        call = self._rpc.make_call(("gossip", "ping"), CallType.DUPLEX, timeout)
        self._pings[call.number] = Ping(call)
        self._serve(call.number, now)

    def _serve(self, number: int, now: float) -> None:
        ping = self._pings[number]
        if ping.state is PingState.RESTING:
            ping.serve(self._context.time_ms(now))
            self._liveness.asked()

    def _ask(self, now: float) -> None:
        """Ask for a sign of life, unless the peer has not answered the last question."""
        if any(ping.state is PingState.SERVED for ping in self._pings.values()):
            return
        number = next(iter(self._pings), None)
        if number is None:
            self._call_ping(now)
        else:
            self._serve(number, now)

    # Sending

    def fill(self, size_max: int) -> None:
        """Send feeds over the connection, as far as it has room."""
        self.exchange.fill(size_max)
        self.history.fill()

    # Time

    def next_deadline(self) -> float | None:
        if self._rpc.state is not State.OPEN:
            return None  # nothing more can be said
        silence = self._liveness.deadline()
        times = (self._deadlines.next(), self.history.next_deadline(), silence)
        due = min(time for time in times if time is not None)
        return None if isinf(due) else due

    def advance(self, now: float) -> None:
        """Raises `RemoteProtocolError` (``SILENT``)."""
        if self._rpc.state is not State.OPEN:
            return
        while (number := self._deadlines.pop_due(now)) is not None:
            if number == _SESSION:
                self.exchange.wait_over()
                self._wait_for_place(now)
            else:
                self._serve(number, now)
        if self.exchange.waits_for_store:
            self._liveness.heard()
        if self._liveness.look():
            self._ask(now)
        self.history.advance()

    def disconnect(self) -> None:
        """End everything: the link has ended."""
        self._deadlines.clear()
        self._pings.clear()
        self.exchange.disconnect()
        self.history.disconnect()
