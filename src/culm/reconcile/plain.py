"""Sessions of abstract messages as stream machines, with all bounds written in full.

A message is an array in canonical CBOR, which begins with its kind: ``[0, can_respond]`` is an
`EmptySet`, ``[1, bound]`` a `LowerBound`, ``[2, item]`` and ``[2, item, upper_bound, can_respond]``
a `Payload`, ``[3, upper_bound]`` an `EmptyPayload`, ``[4, upper_bound]`` a `Done`, ``[5, count,
digest, upper_bound]`` a `RangeFingerprint`, ``[6]`` a `Terminal`.  They follow each other without
separators.

For protocols that have an encoding of their own this shows how to build a machine on a `Session`;
where there is none, a `CompactSession` takes far fewer bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from culm.arguments import check_type
from culm.buffer import check_size_max
from culm.machine import Closed, RemoteProtocolError, StreamBase
from culm.reconcile.errors import ErrorCode
from culm.reconcile.events import ItemReceived, SessionEvent
from culm.reconcile.limits import SessionLimits
from culm.reconcile.messages import (
    Done,
    EmptyPayload,
    EmptySet,
    LowerBound,
    Message,
    Payload,
    RangeFingerprint,
    Terminal,
)
from culm.reconcile.monoids import Fingerprint
from culm.reconcile.session import DEFAULT_LIMITS, DEFAULTS, Parameters, Session
from culm.reconcile.states import Role, State
from culm.reconcile.tree import View
from culm.wire import cbor
from culm.wire.errors import DecodeError

_OUTBOX_SIZE = 1 << 15
_NEVER = 1 << 62  # a round that never comes
_HEADS_SIZE_MAX = 48  # of one message, with its count


def encode_message(message: Message) -> bytes:
    """The encoding of a message."""
    match message:
        case EmptySet(can_respond):
            return cbor.encode([0, can_respond])
        case LowerBound(bound):
            return cbor.encode([1, bound])
        case Payload(item, None):
            return cbor.encode([2, item])
        case Payload(item, upper_bound, can_respond):
            return cbor.encode([2, item, upper_bound, can_respond])
        case EmptyPayload(upper_bound):
            return cbor.encode([3, upper_bound])
        case Done(upper_bound):
            return cbor.encode([4, upper_bound])
        case RangeFingerprint(fingerprint, upper_bound):
            return cbor.encode([5, fingerprint.count, fingerprint.state, upper_bound])
        case Terminal():
            return cbor.encode([6])


def decode_message(encoded: bytes) -> Message:
    """Decode a message.  Raises `RemoteProtocolError` (``BAD_FRAME``)."""
    try:
        value = cbor.decode(encoded, depth_max=1)
    except DecodeError as error:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, str(error)) from None
    match value:
        case [int(kind), *rest] if type(kind) is int:
            message = _read(kind, rest)
        case _:
            message = None
    if message is None:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, "no message")
    return message


def _read(kind: int, rest: list[Any]) -> Message | None:
    match kind, rest:
        case 0, [bool(can_respond)]:
            return EmptySet(can_respond)
        case 1, [bytes(bound)]:
            return LowerBound(bound)
        case 2, [bytes(item)]:
            return Payload(item)
        case 2, [bytes(item), bytes(upper_bound), bool(can_respond)]:
            return Payload(item, upper_bound, can_respond)
        case 3, [bytes(upper_bound)]:
            return EmptyPayload(upper_bound)
        case 4, [bytes(upper_bound)]:
            return Done(upper_bound)
        case 5, [int(count), bytes(state), bytes(upper_bound)] if type(count) is int:
            return RangeFingerprint(Fingerprint(count, state), upper_bound)
        case 6, []:
            return Terminal()
        case _:
            return None


class _Plain(StreamBase[SessionEvent]):
    """Takes messages while the session listens, and sends those of the session."""

    def __init__(self, session: Session, view: View) -> None:
        size_max = _HEADS_SIZE_MAX + 2 * view.item_size + view.monoid.digest_size
        super().__init__(receive_max=size_max)
        self._size_max = size_max
        self._session = session
        self._scanner: cbor.Scanner | None = None

    @property
    def state(self) -> State:
        return State.ENDED if self._closed is not None else self._session.state

    def data_to_send(self, size_max: int | None = None) -> bytes:
        """Take bytes for the peer, some 32 KiB at a time: messages are made as late as possible."""
        check_size_max(size_max)
        wanted = _OUTBOX_SIZE if size_max is None else min(size_max, _OUTBOX_SIZE)
        while self._closed is None and self._outbox.size < wanted:
            message = self._say()
            if message is None:
                break
            self._outbox.append(encode_message(message))
        return super().data_to_send(size_max)

    def _say(self) -> Message | None:
        return self._session.next_message()

    def _hear(self, message: Message) -> None:
        self._session.receive(message)

    def _step(self) -> SessionEvent | None:
        while True:
            event = self._session.next_event()
            if event is not None:
                return event
            if self._session.state is not State.LISTENING:
                return None
            message = self._take()
            if message is None:
                return None
            self._hear(message)

    def _take(self) -> Message | None:
        if self._scanner is None:
            self._scanner = cbor.Scanner(size_max=self._size_max, depth_max=1)
        try:
            with self._inbox.view() as data:
                size = self._scanner.scan(data, len(data))
        except DecodeError as error:
            raise RemoteProtocolError(ErrorCode.BAD_FRAME, str(error)) from None
        if size is None:
            return None
        self._scanner = None
        return decode_message(self._inbox.take(size))

    def _goodbye(self) -> None:
        self._session.close()


class PlainSession(_Plain):
    """One side of a session, as a stream machine.

    It listens only while it is the peer's turn, so the peer's next round may have to wait.  A side
    that leaves early sends no goodbye: the peer notices that the stream ends.

    view
        As for `Session`.
    role
        Whether we speak first.
    parameters
        As for `Session`.
    limits
        As for `Session`; ``ranges_max`` bounds the memory.
    key
        As for `Session`.
    """

    def __init__(
        self,
        *,
        view: View,
        role: Role,
        parameters: Parameters = DEFAULTS,
        limits: SessionLimits = DEFAULT_LIMITS,
        key: bytes | None = None,
    ) -> None:
        session = Session(view=view, role=role, parameters=parameters, limits=limits, key=key)
        super().__init__(session, view)

    @property
    def check(self) -> bytes | None:
        """As in `Session`."""
        return self._session.check

    def _step_eof(self) -> Closed | None:
        if self._session.state is State.SPEAKING:
            return None  # ours may be the last round
        raise RemoteProtocolError(ErrorCode.END_OF_STREAM)


class PlainResponder(_Plain):
    """Answers rounds without keeping anything between them: they may be of several sessions.

    Each round of a session may be answered by another responder that has the same items, and the
    responder that answers it reports the items in it.  A responder does not know how far a session
    has come: the initiator sees to its end, by listing unequal ranges from its
    ``Parameters.list_from`` on.

    view
        As of `Session`.
    parameters
        As for `Session`, but those that depend on the number of a round are ignored.
    limits
        As for `Session`, but ``rounds_max`` counts the rounds answered of all sessions together.
    """

    def __init__(
        self,
        *,
        view: View,
        parameters: Parameters = DEFAULTS,
        limits: SessionLimits = DEFAULT_LIMITS,
    ) -> None:
        check_type("parameters", parameters, Parameters)
        check_type("limits", limits, SessionLimits)
        self._rounds_left = limits.rounds_max
        self._view = view
        self._parameters = replace(parameters, hurry_from=_NEVER, list_from=_NEVER)
        self._limits = replace(limits, rounds_max=2 * _NEVER)
        self._told: deque[ItemReceived] = deque()  # of the round answered last
        super().__init__(self._round(), view)

    def _say(self) -> Message | None:
        message = super()._say()
        if message is not None and self._session.state is not State.SPEAKING:
            for event in iter(self._session.next_event, None):
                if isinstance(event, ItemReceived):
                    self._told.append(event)
            self._forget()
        return message

    def _forget(self) -> None:
        """Begin anew: the round is answered, or needs no answer."""
        self._session = self._round()

    def _round(self) -> Session:
        return Session(
            view=self._view, role=Role.RESPONDER, parameters=self._parameters, limits=self._limits
        )

    def _step(self) -> SessionEvent | None:
        if self._told:
            return self._told.popleft()
        event = super()._step()
        while isinstance(event, Closed) and event.error is None and not self._closing:
            self._forget()
            event = super()._step()
        return event

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        if self._session.state is State.SPEAKING:
            self._rounds_left -= 1
            if self._rounds_left < 0:
                raise RemoteProtocolError(ErrorCode.TOO_MANY_ROUNDS)

    def _step_eof(self) -> Closed | None:
        if self._session.state is State.SPEAKING:
            return None
        if self._session.in_round or self._inbox.size:
            raise RemoteProtocolError(ErrorCode.END_OF_STREAM)
        return Closed()
