"""The part that all pumps share: time, events, effects, and the end of the machine."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, ParamSpec, TypedDict, TypeVar, cast

from culm.arguments import check_int, check_type
from culm.effects import Answer
from culm.machine import (
    Closed,
    ContractErrorCode,
    Durable,
    E_co,
    Effect,
    LocalProtocolError,
    Machine,
    StoreFailed,
    Timed,
    check_time,
)
from culm.pump.jobs import Job
from culm.pump.limits import Limits, Timing
from culm.pump.verifying import Verifiers, VerifyJob
from culm.signatures import Verify, verify

P = ParamSpec("P")
T = TypeVar("T")
M_co = TypeVar("M_co", bound=Machine, covariant=True)  # of events E_co, which a bound cannot say

_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()


class AbortedError(Exception):
    """`abort` has ended a pump before its machine ended."""


class UserHandlers(TypedDict, Generic[E_co], total=False):
    """The keyword arguments that a driver takes from its user, and passes on to a pump.

    on_event
        Gets every event.  It may call verbs of the machine.
    perform
        Carries out an effect at once, and returns the answer; its exception is reported to the
        machine, and raised by `result`.
    verifiers
        The number of threads of the driver that verify signatures (`culm.signatures.Verify`, of
        which `perform` hears nothing).  With 0 the pump verifies them itself, at once.
    limits
        Bounds on memory and on steps in a row.
    timing
        Waits for the peer after the machine's end.
    tap
        Gets the machine before its first input, and returns the one to drive in its place: a
        stand-in that listens, as `culm.capture.Recorder.stand_in` makes it.  Verbs are then called
        on `Engine.machine`.

    An exception of `on_event` ends all connections at once, and `result` raises it.
    """

    on_event: Callable[[E_co], object] | None
    perform: Callable[[Effect[Any]], object] | None
    verifiers: int
    limits: Limits
    timing: Timing
    tap: Callable[[Any], Any] | None


class Handlers(UserHandlers[E_co], Generic[E_co], total=False):
    """The handlers of a pump: the user's (`UserHandlers`), and those of the driver.

    in_jobs
        Whether `perform` is called in jobs for another thread (`next_job`), and not at once.
    defer
        In place of `perform`: gets every effect, whose answer comes later, by `answer`.
        A machine that is `Durable` needs one of the two.
    wake
        Called after every drain, which may have changed the bytes to send, the room for reading
        and the deadline.  It may call the pump.

    An exception of `defer` ends all connections at once, and `result` raises it.
    """

    in_jobs: bool
    defer: Callable[[Effect[Any]], object] | None
    wake: Callable[[], object] | None


class Engine(ABC, Generic[M_co, E_co]):
    """Drives a machine; moving its bytes is a subclass's concern."""

    def __init__(
        self,
        machine: M_co,
        *,
        on_event: Callable[[E_co], object] | None = None,
        perform: Callable[[Effect[Any]], object] | None = None,
        verifiers: int = 0,
        in_jobs: bool = False,
        defer: Callable[[Effect[Any]], object] | None = None,
        wake: Callable[[], object] | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
        tap: Callable[[M_co], M_co] | None = None,
    ) -> None:
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        check_int("verifiers", verifiers, 0)
        handlers: dict[str, object] = {"on_event": on_event, "perform": perform, "tap": tap}
        handlers |= {"defer": defer, "wake": wake}
        for name, handler in handlers.items():
            if not (handler is None or callable(handler)):
                raise TypeError(f"{name} must be callable, not {type(handler).__name__}")
        if perform is not None and defer is not None:
            raise ValueError("effects are either performed or deferred")
        self.machine = machine = machine if tap is None else tap(machine)
        """The machine, or a tap's stand-in for it: its calls are driven and heard."""
        self._events = cast(Machine[E_co], machine)
        self._timed = machine if isinstance(machine, Timed) else None
        self._durable = machine if isinstance(machine, Durable) else None
        self._on_event, self._perform, self._defer = on_event, perform, defer
        self._in_jobs, self._wake = in_jobs, wake
        self.verifiers = verifiers
        """The number of threads that verify signatures."""
        self._verifiers = Verifiers(verifiers) if verifiers else None
        self._limits, self._timing = limits, timing
        self._now = -math.inf
        self._deadline: float | None = None  # the machine's, as of the last drain
        self._closed: Closed | None = None
        self._error: Exception | None = None  # the reason why no more events are taken
        self._store_error: Exception | None = None  # of the machine's store, once it has failed
        self._deferred: set[int] = set()  # tickets of effects that are with the driver
        self._for_job: list[Effect[Any]] = []  # effects of the next job
        self._job: Job | None = None  # the one that is with the driver
        self._unfinished = False  # a drain has stopped to let others have their turn
        # Handlers may call the pump: the loop that called them then goes on, and no other begins.
        self._draining = self._waking = self._has_news = False

    @property
    def closed(self) -> Closed | None:
        """The machine's last event, once it has come."""
        return self._closed

    @property
    def over(self) -> bool:
        """Whether nothing is left to do, with any connection or with the store."""
        ended = self._closed is not None or self._error is not None
        waits = self._has_effects_out or self._unfinished
        return ended and not waits and self._is_hung_up()

    def result(self) -> Closed:
        """The machine's last event, once the pump is over.

        Raises the error of a store that has failed, the exception of a handler, `AbortedError`
        after `abort`, and `RuntimeError` before the end.
        """
        error = self._store_error or self._error
        if error is not None:
            raise error
        if self._closed is None:
            raise RuntimeError("the machine has not ended")
        return self._closed

    def next_deadline(self) -> float | None:
        """The latest time for the next `advance`, in seconds; a pure query.

        If there is more to do at once, it is the time last told: others may have their turn first.
        """
        if self._unfinished:
            return self._now
        linger = self._linger_deadline()
        if linger is None or self._deadline is None:
            return self._deadline if linger is None else linger
        return min(linger, self._deadline)

    def advance(self, now: float) -> None:
        """Tell the time: before all other inputs, and when the deadline has come.

        All times are monotonic seconds.  Where a clock goes back nevertheless, time stands
        still until it has caught up.  Raises `LocalProtocolError` (``NOT_A_TIME``) as
        `culm.machine.check_time` does.
        """
        self._tell_time(now)
        self._expire()
        self._drain()

    def call(self, now: float, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the machine: an input like any other.  Exceptions of the verb go through.

        Handlers of events may call verbs themselves: a drain follows in any case.
        """
        self._tell_time(now, early=True)
        try:
            return verb(*args, **kwargs)
        finally:  # time has passed, even if the verb refused
            self._drain()

    def answer(self, answer: Answer[Any], now: float) -> None:
        """Take the answer to a deferred effect.

        It may have been made in another thread, and is given in that of the pump.  Raises
        `LocalProtocolError` for an effect that was not deferred, or is answered already
        (``UNKNOWN_TICKET``), and for an error that is no exception (``WRONG_RESULT``): the
        effect is still to be answered then.
        """
        ticket = answer.effect.ticket
        if ticket not in self._deferred:
            raise LocalProtocolError(ContractErrorCode.UNKNOWN_TICKET, f"{ticket!r}")
        self._tell_time(now, early=True)
        try:
            if self._error is None:
                assert self._durable is not None
                answer.give(self._durable)
            self._deferred.remove(ticket)
        finally:  # time has passed, even if the answer was refused
            self._drain()

    def next_job(self) -> Job | None:
        """Effects to carry out now, elsewhere; one job at a time, so that all keep their order."""
        if self._job is not None or not self._for_job:
            return None
        assert self._perform is not None
        self._job = Job(self._for_job, self._perform)
        self._for_job = []
        self._deferred.update(effect.ticket for effect in self._job.effects)
        return self._job

    def finish(self, answers: Iterable[Answer[Any]], now: float) -> None:
        """Take the answers of a job."""
        check_time(now, None)
        for answer in answers:
            self.answer(answer, now)
        self._job = None
        self._drain()

    def next_to_verify(self) -> VerifyJob | None:
        """Signatures to verify now, elsewhere, beside all else that is under way."""
        return None if self._verifiers is None else self._verifiers.next()

    def finish_verifying(self, job: VerifyJob, now: float) -> None:
        """Take a job of `next_to_verify`, in any order.

        Raises `ValueError` if it is not done, was taken before, or is another pump's.
        """
        check_time(now, None)
        if self._verifiers is None:
            raise ValueError("the job is another pump's")
        answer = self._verifiers.finish(job)
        if answer is not None and self._durable is not None:
            self._input(now, answer.give, self._durable)

    def abort(self, error: Exception | None = None) -> None:
        """End every connection, and take no more events.

        error: for `result` to raise, if the machine has not ended; `AbortedError` by default.

        Has no effect on a pump that is over.
        """
        if self.over:
            return
        if self._closed is None:
            self._stop(AbortedError() if error is None else error)
        self._give_up()
        self._deadline = None
        self._notify()

    @property
    def _has_effects_out(self) -> bool:
        """Whether an answer of the store is yet to come."""
        verifies = self._verifiers is not None and self._verifiers.at_work
        return bool(self._deferred or self._for_job or verifies)

    # Left to subclasses.

    @abstractmethod
    def _take_bytes(self) -> bool:
        """Take bytes for the peer as far as there is room; returns whether there were any."""

    @abstractmethod
    def _is_hung_up(self) -> bool:
        """Whether nothing is left to do with any connection."""

    @abstractmethod
    def _hang_up(self) -> None:
        """Drop all that is left to do with connections."""

    def _ended(self, closed: Closed) -> None:
        """The machine has ended."""

    def _settle(self) -> bool:
        """Move connections towards their ends; returns whether the machine got work from that."""
        return False

    def _linger_deadline(self) -> float | None:
        """The time at which the next connection has lingered for long enough."""
        return None

    def _expire(self) -> None:
        """Hang up connections that have lingered for long enough."""

    def _wake_up(self) -> None:
        """Let the driver look for new work."""
        if self._wake is not None:
            self._wake()

    # The law.

    def _input(self, now: float, method: Callable[..., object], *args: object) -> None:
        self._tell_time(now, early=True)
        try:
            if self._error is None:
                method(*args)
        finally:
            self._drain()

    def _tell_time(self, now: float, *, early: bool = False) -> None:
        """Tell the machine the time, so that it measures exactly from its next input on.

        early: only if nothing is due yet.  Otherwise `advance` does it after the inputs that have
        come: our being late is no silence of the peer.
        """
        check_time(now, None)
        self._now = now = max(now, self._now)
        if self._timed is None or self._draining or self._error is not None:
            return
        if not early or self._deadline is None or now < self._deadline:
            self._timed.advance(now)

    def _drain(self) -> None:
        if self._draining:
            return
        self._run()
        while self._settle():
            self._run()
        self._deadline = None
        if self._timed is not None and self._closed is None and self._error is None:
            self._deadline = self._timed.next_deadline()
        self._notify()

    def _run(self) -> None:
        """Events, effects, bytes, until a round brings nothing."""
        self._draining = True
        try:
            next_event = self._events.next_event
            for _ in range(self._limits.steps_max):
                if self._error is not None:
                    break
                if (event := next_event()) is not None:
                    self._take_event(event)
                elif not (self._take_effect() or self._take_bytes()):
                    break
            else:
                self._unfinished = True
                return
            self._unfinished = False
        except Exception as error:
            self._stop(error)
            self._give_up()
        finally:
            self._draining = False

    def _take_event(self, event: Any) -> None:
        told: object = event  # its narrowed type is not that of the handler's argument
        if isinstance(told, Closed):
            self._closed = told
            self._ended(told)
        elif isinstance(told, StoreFailed):
            self._store_error = told.error
        if self._on_event is not None:
            self._on_event(event)

    def _take_effect(self) -> bool:
        effect = None if self._durable is None else self._durable.next_effect()
        if effect is None:
            return False
        assert self._durable is not None
        if type(effect) is Verify and self._defer is None:
            self._take_signatures(effect, self._durable)
        elif self._in_jobs and self._perform is not None:
            self._for_job.append(effect)
        elif self._defer is not None:
            self._deferred.add(effect.ticket)
            self._defer(effect)
        elif self._perform is not None:
            answer: Answer[Any] = Answer.of(effect, self._perform)
            answer.give(self._durable)
        else:
            raise TypeError(f"no performer for {type(effect).__name__}")
        return True

    def _take_signatures(self, effect: Verify, durable: Durable) -> None:
        if self._verifiers is None:
            Answer.of(effect, lambda _: verify(effect.signatures)).give(durable)
        else:
            self._verifiers.take(effect)

    def _stop(self, error: Exception) -> None:
        if self._error is None:
            self._error = error

    def _give_up(self) -> None:
        """Drop all work but the effects that the store is at work on."""
        self._unfinished = False
        self._for_job.clear()
        if self._verifiers is not None:
            self._verifiers.give_up()
        self._hang_up()

    def _notify(self) -> None:
        self._has_news = True
        if self._waking:
            return
        self._waking = True
        try:
            while self._has_news:
                self._has_news = False
                self._wake_up()
        finally:
            self._waking = False
