"""The compact session: two sets become equal, with as few bytes as possible.

It is a stream machine.  One side is the initiator; each side's bytes are fed to the other until
both have ended.  Events bring each side the items that it lacks; the session itself stores nothing.

The content of the frames is specified in `culm.reconcile.frames` and
`culm.kernels.pure_exchange`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final, NoReturn, TypeAlias

from culm.arguments import check_type
from culm.machine import Closed, RemoteProtocolError, StreamBase
from culm.reconcile.errors import ErrorCode
from culm.reconcile.events import CheckFailed, CompactEvent, ItemsReceived, Reconciled, SumsEqual
from culm.reconcile.frames import (
    BODY_SIZE_MAX,
    HEADER_SIZE_MAX,
    SALT_SIZE,
    VERSION,
    FrameKind,
    Hello,
    decode_ranges_max,
    encode_frame,
    encode_ranges_max,
    take_frame,
)
from culm.reconcile.limits import Limits
from culm.reconcile.rateless import RatelessRun, rateless_run
from culm.reconcile.run import CompactParameters, Run
from culm.reconcile.states import CompactState, Continuation, Role
from culm.reconcile.tree import View

_OUTBOX_SIZE = 1 << 15
_PARAMETERS: Final = CompactParameters()
_LIMITS: Final = Limits()

_AnyRun: TypeAlias = Run | RatelessRun


#: The frames that the peer may send in a state; goodbye may come in each.
_FRAMES: Final[Mapping[CompactState, frozenset[FrameKind]]] = {
    CompactState.WAITING: frozenset({FrameKind.HELLO}),
    CompactState.OPENING: frozenset({FrameKind.PIECE, FrameKind.LAST_PIECE}),
    CompactState.SPEAKING: frozenset(),
    CompactState.GREETING: frozenset({FrameKind.WELCOME, FrameKind.AGREED}),
    CompactState.LISTENING: frozenset({FrameKind.PIECE, FrameKind.LAST_PIECE}),
    CompactState.TRYING: frozenset({FrameKind.PIECE, FrameKind.LAST_PIECE, FrameKind.HELLO}),
    CompactState.CHECKING: frozenset({FrameKind.CHECK}),
    CompactState.CHECKED: frozenset({FrameKind.AGREED, FrameKind.HELLO}),
}

#: The reasons that a goodbye may give, besides none.
_REFUSALS: Final = frozenset({ErrorCode.OTHER_PARAMETERS, ErrorCode.CHECK_FAILED})


class CompactSession(StreamBase[CompactEvent]):
    """One side of a compact session, as a stream machine.

    view
        Our items; of a tree a snapshot is taken as each run begins, so that it may change
        meanwhile.
    role
        Whether we speak first.
    rng
        Gives salts and keys: pass ``random.SystemRandom()``, which authors of items cannot predict.
    parameters
        Our way of asking.
    limits
        Bounds on the peer's questions.

    Received items are valid however the session ends.
    """

    def __init__(
        self,
        *,
        view: View,
        role: Role,
        rng: Random,
        parameters: CompactParameters = _PARAMETERS,
        limits: Limits = _LIMITS,
    ) -> None:
        check_type("view", view, View)
        check_type("role", role, Role)
        check_type("rng", rng, Random)
        check_type("parameters", parameters, CompactParameters)
        check_type("limits", limits, Limits)
        super().__init__(receive_max=BODY_SIZE_MAX + HEADER_SIZE_MAX)
        self._view, self._rng = view, rng
        self._parameters, self._limits = parameters, limits
        self._events: deque[CompactEvent] = deque()
        self._run: _AnyRun | None = None
        self._state = CompactState.WAITING
        if role is Role.INITIATOR:
            self._begin_run(keyed=parameters.keyed, rateless=parameters.rateless)

    @property
    def state(self) -> CompactState:
        if self._closed is not None:
            return CompactState.CLOSED if self._closed.error is None else CompactState.FAILED
        return self._state

    # Runs.

    def _begin_run(self, *, keyed: bool, rateless: bool = False) -> None:
        hello = Hello(
            sum_size=self._parameters.sum_size,
            monoid=None if keyed else self._view.monoid,
            item_size=self._view.item_size,
            varying=self._view.varying,
            ranges_max=self._limits.ranges_max,
            salt=self._rng.randbytes(SALT_SIZE),
            rateless=rateless,
        )
        run = self._run = self._new_run(hello, begins=True)
        self._send(FrameKind.HELLO, replace(hello, check=run.check).encode())
        self._state = CompactState.SPEAKING

    def _new_run(self, hello: Hello, *, begins: bool) -> _AnyRun:
        return (rateless_run if hello.rateless else Run)(
            view=self._view.still(),
            hello=hello,
            begins=begins,
            parameters=self._parameters,
            limits=self._limits,
        )

    def _send(self, kind: FrameKind, body: bytes = b"") -> None:
        self._outbox.append(encode_frame(kind, body))

    # The contract of a stream machine.

    def _step(self) -> CompactEvent | None:
        if self._closing:
            return Closed()
        while not self._events:
            if self._state is CompactState.SPEAKING and self._outbox.size < _OUTBOX_SIZE:
                self._speak(self._running)
                continue
            frame = take_frame(self._inbox)
            if frame is None:
                return None
            self._hear(*frame)
        return self._events.popleft()

    def _step_eof(self) -> CompactEvent | None:
        raise RemoteProtocolError(ErrorCode.END_OF_STREAM)

    def _goodbye(self) -> None:
        self._send(FrameKind.GOODBYE, bytes(1))

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._run = None

    # Our rounds.

    def _speak(self, run: _AnyRun) -> None:
        """Write one more piece of our round."""
        piece = run.say()
        self._send(FrameKind.LAST_PIECE if run.is_said else FrameKind.PIECE, piece)
        if not run.is_said:
            return
        if not run.turn_to_listen():
            self._send(FrameKind.CHECK, run.check)
            self._state = CompactState.CHECKED
        elif run.is_welcome:
            self._state = run.listening
        else:
            self._state = CompactState.GREETING

    # The peer's frames.

    def _hear(self, kind: FrameKind, body: bytes) -> None:
        if kind is FrameKind.GOODBYE:
            self._hear_goodbye(body[0])
            return
        if kind not in _FRAMES[self._state]:
            raise RemoteProtocolError(
                ErrorCode.UNEXPECTED_MESSAGE, f"{kind.name} while {self._state.value}"
            )
        match kind:
            case FrameKind.HELLO:
                if body[0] != VERSION:
                    self._refuse(ErrorCode.OTHER_PARAMETERS, f"version {body[0]}")
                self._hear_hello(Hello.decode(body))
            case FrameKind.WELCOME:
                self._running.welcome(decode_ranges_max(body[0]))
                self._state = self._running.listening
            case FrameKind.CHECK:
                self._hear_check(self._running, body)
            case FrameKind.AGREED:
                self._finish(self._running)
            case _:
                self._hear_piece(self._running, body, is_last=kind is FrameKind.LAST_PIECE)

    @property
    def _running(self) -> _AnyRun:
        assert self._run is not None
        return self._run

    def _hear_hello(self, hello: Hello) -> None:
        view, before = self._view, self._run
        if before is not None and not hello.may_follow(before.hello):
            raise RemoteProtocolError(ErrorCode.UNEXPECTED_MESSAGE, "no more runs")
        if (hello.item_size, hello.varying) != (view.item_size, view.varying):
            self._refuse(ErrorCode.OTHER_PARAMETERS, f"items of {hello.item_size} bytes")
        if hello.monoid not in (None, view.monoid):
            self._refuse(ErrorCode.OTHER_PARAMETERS, "another monoid")
        if self._parameters.keyed and not hello.keyed:
            self._refuse(ErrorCode.OTHER_PARAMETERS, "a run without a key")
        if self._state is CompactState.CHECKED:
            self._events.append(CheckFailed())
        self._run = self._new_run(hello, begins=False)
        self._state = CompactState.OPENING

    def _refuse(self, code: ErrorCode, why: str) -> NoReturn:
        """End for a reason that the peer has to be told."""
        self._send(FrameKind.GOODBYE, bytes([code]))
        raise RemoteProtocolError(code, why)

    def _hear_goodbye(self, code: int) -> None:
        if code in _REFUSALS:
            raise RemoteProtocolError(ErrorCode(code), "the peer says so")
        if code:
            raise RemoteProtocolError(ErrorCode.BAD_FRAME, f"a goodbye because of {code}")
        self._events.append(Closed())

    def _hear_piece(self, run: _AnyRun, piece: bytes, *, is_last: bool) -> None:
        items = run.hear(piece)
        if items:
            self._events.append(ItemsReceived(items=tuple(items)))
        if is_last:
            self._answer(run)

    def _answer(self, run: _AnyRun) -> None:
        """The peer's round is over."""
        continuation = run.turn_to_speak()
        if self._state is CompactState.OPENING:
            # If the check alone shows equality, equal sums are not needed besides.
            if (run.hello.shows or run.is_equal) and run.check == run.hello.check:
                self._agree(run)
                return
            self._send(FrameKind.WELCOME, bytes([encode_ranges_max(self._limits.ranges_max)]))
        match continuation:
            case Continuation.OURS:
                self._state = CompactState.SPEAKING
            case Continuation.OVER:
                self._state = CompactState.CHECKING
            case Continuation.ANOTHER_RUN:
                self._begin_run(keyed=run.hello.keyed)

    def _hear_check(self, run: _AnyRun, check: bytes) -> None:
        if check == run.check:
            self._agree(run)
        elif run.hello.keyed and not run.hello.rateless:
            self._refuse(ErrorCode.CHECK_FAILED, "with a key")
        else:
            self._events.append(CheckFailed())
            self._begin_run(keyed=True)

    def _agree(self, run: _AnyRun) -> None:
        self._send(FrameKind.AGREED)
        self._finish(run)

    def _finish(self, run: _AnyRun) -> None:
        hello = run.hello
        self._events.append(Reconciled(keyed=hello.keyed) if hello.shows else SumsEqual())
        self._events.append(Closed())
