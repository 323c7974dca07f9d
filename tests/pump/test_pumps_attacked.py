"""Pumps of many links and of datagrams, over a network and a store that do their worst.

The driver here does only the necessary: it looks at a connection after a wake-up for it, or after
telling the pump something about it, and sleeps otherwise.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from culm.effects import Answer, Tickets
from culm.machine import (
    Buffer,
    Closed,
    ContractErrorCode,
    Effect,
    Event,
    LocalProtocolError,
    StoreFailed,
    check_time,
)
from culm.pump import (
    AbortedError,
    ConnectionState,
    DatagramPump,
    Job,
    Limits,
    LinkedPump,
    LinkPump,
    Pump,
    Timing,
)
from culm.timers import Deadlines
from effort import seeds
from toy_links import CallWanted, Chat, ChatLink, HungUp, Said
from toy_machines import Keep, Keeper, Kept, LineReceived, Lines, Pinger, ToyState

BOUNDS = [
    (
        Limits(piece_size_max=20, steps_max=7),
        Timing(linger_s=3.0, linger_after_error_s=2.0),
    ),
    (
        Limits(piece_size_max=1, steps_max=1),
        Timing(linger_s=1.0, linger_after_error_s=1.0),
    ),
]
LINES = [b"hello\n", b"x\ny\n", b"bye\n", b"half a li", b"\n", b"z" * 100, b"a\n" * 9]


class ClubLink(ChatLink):
    """A guest's link.  No guest is read while the store has much to do.

    Every third goes on after the end of the stream, until it has sent everything.
    """

    _chat: Club
    has_heard_end = False

    def read_size(self) -> int:
        return 0 if self._chat.is_busy else super().read_size()

    def receive_data(self, data: Buffer) -> None:
        if self.lines.state is ToyState.OPEN:  # else it is on its way out
            super().receive_data(data)

    def receive_eof(self) -> None:
        self.has_heard_end = True
        if self.number % 3:
            super().receive_eof()

    def close(self) -> None:
        super().close()
        self.lines.receive_eof()


class Club(Chat):
    """A chat that stores its guests' lines, and shows out any guest silent for ten seconds.

    While the store has much to do, new guests are turned away at once.
    """

    link_type = ClubLink
    IDLE_S = 10.0
    UNKEPT_MAX = 1

    def __init__(self, *, links_max: int) -> None:
        super().__init__(links_max=links_max)
        self._tickets: Tickets[int, Effect[Any]] = Tickets()
        self._kept: deque[Event] = deque()
        self._now: float | None = None
        self._idle: Deadlines[int] = Deadlines()

    @property
    def is_busy(self) -> bool:
        return len(self._tickets) > self.UNKEPT_MAX

    def accepted(self) -> ChatLink:
        link = super().accepted()
        self._show_out_later(link.number)
        if self.is_busy:
            link.close()
        return link

    def _show_out_later(self, number: int) -> None:
        assert self._now is not None
        self._idle.set(number, self._now + self.IDLE_S)

    def next_event(self) -> Event | None:
        if self._kept:
            return self._kept.popleft()
        event = super().next_event()
        if isinstance(event, Said):
            self._tickets.ask(Keep, event.link, text=event.text)
            self._show_out_later(event.link)
        elif isinstance(event, HungUp):
            self._idle.cancel(event.link)
        return event

    def next_effect(self) -> Effect[Any] | None:
        return self._tickets.next_effect()

    def complete(self, ticket: Any, result: Any) -> None:
        number = self._tickets.answered(ticket, result)
        if self.state is not ToyState.CLOSED:
            self._kept.append(Kept(text=b"", place=result))
            for link in self.links:
                if link.number == number and link.lines.state is ToyState.OPEN:
                    link.lines.say(b"ok")
                    self.stirred[number] = link

    def fail(self, ticket: Any, error: Exception) -> None:
        failure, _ = self._tickets.failed(ticket, error)
        if self.state is not ToyState.CLOSED:
            self._kept.append(failure)
            self.close()

    def next_deadline(self) -> float | None:
        return self._idle.next()

    def advance(self, now: float) -> None:
        check_time(now, self._now)
        self._now = now
        while (number := self._idle.pop_due(now)) is not None:
            for link in self.links:
                if link.number == number:
                    link.close()


class Connection:
    """One connection, its driver, and its peer."""

    def __init__(self, driver: Driver, link: ChatLink) -> None:
        assert isinstance(link, ClubLink)
        self.is_woken = False
        self.is_stalled = False
        self.is_lost = False
        self.is_closed = False
        self.has_ended = False  # the peer sends no more
        self.is_taken = True  # the peer takes bytes
        self.is_read = True
        self.under_way = 0  # bytes being sent, whatever happens meanwhile
        half_close = driver.random.random() < 0.7
        self.driver, self.link = driver, link
        self.pump: LinkPump = driver.pump.attach(
            link, driver.now, wake=self.wake, half_close=half_close
        )
        self.look()

    def wake(self) -> None:
        self.is_woken = True

    def look(self) -> None:
        """Act on its requests, as far as possible."""
        self.is_woken = False
        pump, driver = self.pump, self.driver
        assert len(pump.outgoing) <= driver.limits.piece_size_max
        if self.under_way:
            pump.sent(self.under_way, driver.now)
            self.under_way = 0
        if pump.hung_up:
            self.is_closed = True
            return
        if pump.outgoing and not self.is_stalled and not self.is_lost:
            self.under_way = driver.random.randint(1, len(pump.outgoing))
            self.is_woken = True
        if pump.eof_to_send:
            pump.eof_sent(driver.now)
            self.is_woken = True
        self.is_read = pump.read_size() > 0

    def check(self) -> None:
        """A sleeping driver has missed nothing."""
        if self.is_woken or self.is_closed:
            return
        pump = self.pump
        assert self.is_taken or not pump.outgoing
        assert not self.has_ended or self.link.has_heard_end or self.link.closed
        assert not self.is_lost
        assert self.link.closed is (pump.state is not ConnectionState.OPEN)
        assert not pump.hung_up
        assert not pump.eof_to_send
        assert not pump.outgoing or self.is_stalled or self.is_lost
        if not self.is_read and not self.has_ended:
            assert pump.read_size() == 0

    # Events

    def say(self) -> None:
        if self.is_read and not self.has_ended and not self.is_closed:
            self.pump.receive_data(self.driver.random.choice(LINES), self.driver.now)
            self.look()

    def end(self) -> None:
        if not self.is_closed and not self.is_lost:
            self.has_ended = True
            self.pump.receive_eof(self.driver.now)
            self.look()

    def reset(self) -> None:
        if not self.is_closed:
            self.has_ended = self.is_lost = True
            self.pump.connection_lost(self.driver.now)
            self.look()

    def break_off(self) -> None:
        """The peer stops taking bytes."""
        if not self.is_closed and not self.is_lost:
            self.is_taken = False
            self.pump.send_failed(self.driver.now)
            self.look()

    def stall(self) -> None:
        self.is_stalled = not self.is_stalled
        self.look()


class Driver:
    """Everything around one pump."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = self.latest = self.random.choice([0.0, -5.0, 1e6])
        self.events: list[Event] = []
        self.limits, timing = self.random.choice(BOUNDS)
        self.machine = Club(links_max=self.random.choice([1, 5]))
        self.connections: list[Connection] = []
        self.dials: list[str] = []
        self.effects: list[Effect[Any]] = []
        self.jobs: list[Job] = []
        self.is_aborted = False
        in_jobs = self.random.random() < 0.5
        self.handlers: dict[str, Any] = (
            {"perform": self.perform, "in_jobs": True}
            if in_jobs
            else {"defer": self.effects.append}
        )
        self.pump = LinkedPump(
            self.machine,
            on_event=self.take,
            limits=self.limits,
            timing=timing,
            wake=self.look,
            **self.handlers,
        )
        self.pump.advance(self.now)

    def take(self, event: Event) -> None:
        assert not self.is_aborted
        assert not any(isinstance(earlier, Closed) for earlier in self.events)
        self.events.append(event)
        if isinstance(event, CallWanted):
            self.dials.append(event.guest)
        elif isinstance(event, Said) and event.text == b"x" and self.random.random() < 0.05:
            self.abort()

    def perform(self, effect: Effect[Any]) -> int:
        if self.random.random() < 0.02:
            raise OSError("the disk is full")
        return 1

    def look(self) -> None:
        job = self.pump.next_job()
        if job is not None:
            assert not self.jobs
            assert not self.is_aborted
            self.jobs.append(job)

    # Events

    def accept(self) -> None:
        with suppress(LocalProtocolError):
            self.connections.append(
                Connection(self, self.pump.call(self.now, self.machine.accepted))
            )

    def dial(self) -> None:
        with suppress(LocalProtocolError):
            self.pump.call(self.now, self.machine.call, self.random.choice("ab"))

    def end_dial(self) -> None:
        if not self.dials:
            return
        guest = self.dials.pop()
        if self.random.random() < 0.5:
            self.pump.call(self.now, self.machine.not_reached, guest)
            return
        with suppress(LocalProtocolError):
            link = self.pump.call(self.now, self.machine.reached, guest)
            self.connections.append(Connection(self, link))

    def answer(self) -> None:
        """The store has completed an effect, not necessarily the oldest."""
        if self.jobs:
            job = self.jobs.pop()
            gone = self.random.random() < 0.05
            self.pump.finish(job.failed(OSError("gone")) if gone else job(), self.now)
        elif self.effects:
            effect = self.effects.pop(self.random.randrange(len(self.effects)))
            self.pump.answer(Answer.of(effect, self.perform), self.now)

    def say(self) -> None:
        with suppress(LocalProtocolError):
            self.pump.call(self.now, self.machine.say, b"all" * self.random.randrange(1, 9))

    def pass_time(self) -> None:
        """Perhaps by a long time; the clock may also go backwards."""
        seconds = self.random.choice([0.0, 0.5, 4.0, 11.0, -1.0])
        if seconds < 0:
            self.pump.advance(self.now)  # it must know the time before the clock goes backwards
        self.now += seconds
        self.latest = max(self.now, self.latest)

    def close(self) -> None:
        if self.random.random() < 0.2:
            self.pump.call(self.now, self.machine.close)

    def abort(self) -> None:
        self.is_aborted = self.pump.closed is None
        self.pump.abort()

    def maybe_abort(self) -> None:
        if self.random.random() < 0.1:
            self.abort()
            assert self.pump.next_deadline() is None
            assert all(one.pump.hung_up for one in self.connections)

    def step(self) -> None:
        ours: list[Callable[[], None]] = [
            *(self.accept, self.dial, self.end_dial, self.say, self.pass_time),
            *(self.answer, self.answer, self.close, self.maybe_abort),
        ]
        if self.connections and self.random.random() < 0.7:
            one = self.random.choice(self.connections)
            ours = [one.say, one.say, one.say, one.end, one.reset, one.break_off, one.stall]
        self.random.choice(ours)()
        if self.random.random() < 0.8:
            self.settle()

    def settle(self) -> None:
        """Look wherever it was asked to, and advance the time when due, until all sleep."""
        for _ in range(20_000):
            deadline = self.pump.next_deadline()
            assert deadline == self.pump.next_deadline()
            woken = [one for one in self.connections if one.is_woken]
            if deadline is not None and deadline <= self.latest:  # time stands still from now on
                self.pump.advance(self.now)
            elif not woken:
                break
            for one in woken:
                one.look()
        else:
            pytest.fail("it does not come to rest")
        for one in self.connections:
            one.check()

    def finish(self) -> None:
        """All connections go away; then it must be over."""
        self.pump.call(self.now, self.machine.close)
        self.settle()
        for one in self.connections:
            self.random.choice([one.end, one.reset])()
            self.settle()
        self.now = self.latest = self.latest + 1e4
        while self.jobs or self.effects:
            self.answer()
            self.settle()
        self.now = self.latest = self.latest + 10
        self.settle()


def run_links(seed: int) -> None:
    driver = Driver(seed)
    for _ in range(driver.random.randrange(60)):
        driver.step()
    driver.finish()
    assert driver.pump.over, seed
    assert driver.pump.next_deadline() is None
    assert all(one.is_closed for one in driver.connections)
    gone = [event.link for event in driver.events if isinstance(event, HungUp)]
    if not driver.is_aborted:
        assert sorted(gone) == sorted(one.link.number for one in driver.connections)
        assert driver.events[-1] == Closed()
    failures = [event.error for event in driver.events if isinstance(event, StoreFailed)]
    if failures or driver.is_aborted:
        with pytest.raises(type(failures[0]) if failures else AbortedError):
            driver.pump.result()
    else:
        assert driver.pump.result() == Closed()


@pytest.mark.parametrize("part", range(4))
def test_links_whatever_happens(part: int) -> None:
    for seed in seeds("PUMP", 60, 5000)[part::4]:
        run_links(seed)


class Socket:
    """Around a pump of datagrams: a socket that is often full, and a network."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.events: list[Event] = []
        self.is_woken = self.is_aborted = False
        self.machine = Pinger(peers=["a", "b"], interval=1.0)
        self.pump = DatagramPump(
            self.machine, on_event=self.take, wake=self.wake, limits=Limits(steps_max=3)
        )
        self.pump.advance(self.now)

    def take(self, event: Event) -> None:
        assert not self.is_aborted
        self.events.append(event)
        if self.random.random() < 0.02:
            self.abort()

    def wake(self) -> None:
        self.is_woken = True
        if self.random.random() < 0.3:
            self.send()

    def send(self) -> None:
        """Take some or all of the output; half of it is lost."""
        self.is_woken = False
        for _ in range(self.random.choice([0, 1, 100])):
            datagram = self.pump.next_datagram(self.now)
            if datagram is None:
                return
            source, data = datagram
            assert data[:1] in {b"P", b"A"}
            if data[:1] == b"P" and self.random.random() < 0.5:
                self.pump.receive_datagram(b"A" + data[1:], self.now, source=source)

    def hear(self) -> None:
        data = self.random.choice([b"P\0\1", b"A\0\1", b"", b"P" * 2000])
        self.pump.receive_datagram(data, self.now, source=self.random.choice("abc"))

    def ping(self) -> None:
        with suppress(LocalProtocolError):
            self.pump.call(self.now, self.machine.ping, self.random.choice("abc"))

    def pass_time(self) -> None:
        self.now += self.random.choice([0.0, 0.3, 5.0])

    def abort(self) -> None:
        self.is_aborted = self.pump.closed is None
        self.pump.abort()

    def end(self) -> None:
        if self.random.random() < 0.1:
            self.random.choice([lambda: self.pump.call(self.now, self.machine.close), self.abort])()

    def step(self) -> None:
        moves = [self.send, self.hear, self.hear, self.ping, self.ping, self.pass_time, self.end]
        self.random.choice(moves)()
        self.settle()

    def settle(self) -> None:
        for _ in range(100):
            deadline = self.pump.next_deadline()
            if deadline is None or deadline > self.now:
                return
            self.pump.advance(self.now)
        pytest.fail("it does not come to rest")


def run_datagrams(seed: int) -> None:
    socket = Socket(seed)
    for _ in range(socket.random.randrange(80)):
        socket.step()
    socket.pump.call(socket.now, socket.machine.close)
    socket.settle()
    for _ in range(100):
        socket.send()
        socket.settle()
    assert socket.pump.over, seed
    assert socket.pump.next_datagram(socket.now) is None
    assert socket.pump.next_deadline() is None
    if socket.is_aborted:
        with pytest.raises(AbortedError):
            socket.pump.result()
    else:
        assert socket.events[-1] == socket.pump.result() == Closed()


def test_datagrams_whatever_happens() -> None:
    for seed in seeds("PUMP", 60, 5000):
        run_datagrams(seed)


# Broken pumps, on purpose: each must be noticed, or quiet seeds would prove nothing.


def nothing(*arguments: Any, **options: Any) -> None:
    """Replaces a method."""


CANARIES: dict[str, tuple[type, str, Any, Callable[[int], None]]] = {
    "a connection is not woken": (LinkedPump, "_wake_up", nothing, run_links),
    "nobody hears that a connection is lost": (LinkPump, "connection_lost", nothing, run_links),
    "nobody hears that the peer is done": (LinkPump, "receive_eof", nothing, run_links),
    "a failed send is nobody's business": (LinkPump, "send_failed", nothing, run_links),
    "what the store did is not told": (LinkedPump, "answer", nothing, run_links),
    "a finished job is not told": (LinkedPump, "finish", nothing, run_links),
    "pumps never end": (LinkedPump, "over", property(lambda self: False), run_links),
    "time stands still": (DatagramPump, "advance", nothing, run_datagrams),
    "nothing is sent": (DatagramPump, "next_datagram", nothing, run_datagrams),
}


@pytest.mark.parametrize("name", CANARIES)
def test_a_broken_pump_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, attribute, broken, run = CANARIES[name]
    monkeypatch.setattr(kind, attribute, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        [run(seed) for seed in range(60)]


# Faults found by these worlds


def test_a_verb_that_is_refused_has_told_the_time() -> None:
    """The deadline that follows from it is one that the driver knows of."""
    machine = Keeper(idle=10.0)
    pump = Pump(machine, perform=lambda effect: 1)
    with pytest.raises(LocalProtocolError):
        pump.call(5.0, machine.say, b"two\nlines")
    assert pump.next_deadline() == 15.0


def keeping(**handlers: Any) -> tuple[Pump, list[Event]]:
    events: list[Event] = []
    pump = Pump(Keeper(), on_event=events.append, **handlers)
    pump.connection_made(0.0)
    pump.receive_data(b"one\n", 0.0)
    return pump, events


def test_an_effect_is_answered_once_also_when_nobody_listens() -> None:
    effects: list[Effect[Any]] = []
    pump, _ = keeping(defer=effects.append)
    pump.abort()
    assert not pump.over
    answer = Answer.of(effects[0], lambda effect: 1)
    pump.answer(answer, 0.0)
    assert pump.over
    with pytest.raises(LocalProtocolError) as caught:
        pump.answer(answer, 0.0)
    assert caught.value.code is ContractErrorCode.UNKNOWN_TICKET
    assert pump.over


WRONG_TIMES = [math.nan, math.inf, "noon"]


@pytest.mark.parametrize("now", WRONG_TIMES)
def test_an_answer_at_no_time_is_still_to_be_given(now: Any) -> None:
    effects: list[Effect[Any]] = []
    pump, events = keeping(defer=effects.append)
    answer = Answer.of(effects[0], lambda effect: 1)
    with pytest.raises((LocalProtocolError, TypeError)):
        pump.answer(answer, now)
    pump.answer(answer, 1.0)
    assert events[-1] == Kept(text=b"one", place=1)


@pytest.mark.parametrize("now", WRONG_TIMES)
def test_a_job_finished_at_no_time_is_still_to_be_finished(now: Any) -> None:
    pump, events = keeping(perform=lambda effect: 1, in_jobs=True)
    job = pump.next_job()
    assert job is not None
    answers = job()
    with pytest.raises((LocalProtocolError, TypeError)):
        pump.finish(answers, now)
    assert pump.next_job() is None
    pump.finish(answers, 1.0)
    assert events[-1] == Kept(text=b"one", place=1)


def test_an_error_that_is_no_exception_answers_nothing() -> None:
    effects: list[Effect[Any]] = []
    pump, events = keeping(defer=effects.append)
    wrong: Any = KeyboardInterrupt()
    with pytest.raises(LocalProtocolError) as caught:
        pump.answer(Answer(effects[0], None, wrong), 1.0)
    assert caught.value.code is ContractErrorCode.WRONG_RESULT
    pump.answer(Answer(effects[0], 1, None), 1.0)
    assert events[-1] == Kept(text=b"one", place=1)


@pytest.mark.parametrize("now", WRONG_TIMES)
def test_nothing_has_been_sent_or_received_at_no_time(now: Any) -> None:
    pump, _ = keeping(perform=lambda effect: 1)
    size, received = len(pump.outgoing), pump.bytes_received
    wrong: list[Callable[[], object]] = [
        lambda: pump.connection_made(now, half_close=False),
        lambda: pump.receive_data(b"two\n", now),
        lambda: pump.receive_eof(now),
        lambda: pump.sent(size, now),
        lambda: pump.sent(0, now),
        lambda: pump.sent(size - 0.5, 1.0),  # type: ignore[arg-type]
        lambda: pump.eof_sent(now),
        lambda: pump.send_failed(now),
        lambda: pump.connection_lost(now),
    ]
    for call in wrong:
        with pytest.raises((LocalProtocolError, TypeError)):
            call()
    assert (len(pump.outgoing), pump.bytes_sent, pump.bytes_received) == (size, 0, received)
    pump.receive_eof(1.0)
    pump.sent(size, 1.0)
    pump.sent(len(pump.outgoing), 1.0)
    assert pump.state is ConnectionState.HUNG_UP  # so our half has not ended yet


def test_what_the_machine_refuses_is_not_counted() -> None:
    pump, _ = keeping(defer=lambda effect: None)
    received = pump.bytes_received
    pump.receive_eof(0.0)
    assert pump.closed is None  # it waits for the store
    with pytest.raises(LocalProtocolError):
        pump.receive_data(b"two\n", 0.0)
    assert pump.bytes_received == received


def test_a_link_attached_at_no_time_is_still_to_be_attached() -> None:
    chat = Chat()
    pump = LinkedPump(chat)
    link = pump.call(0.0, chat.accepted)
    with pytest.raises(LocalProtocolError):
        pump.attach(link, math.nan)
    pump.call(0.0, chat.say, b"hello")
    assert bytes(pump.attach(link, 0.0).outgoing) == b"hello\n"


def test_a_datagram_taken_at_no_time_is_still_to_be_sent() -> None:
    machine = Pinger(peers=["a"])
    pump = DatagramPump(machine)
    pump.call(0.0, machine.ping, "a")
    with pytest.raises(LocalProtocolError):
        pump.next_datagram(math.nan)
    assert pump.next_datagram(0.0) == ("a", b"P\0\1")


@pytest.mark.parametrize("handler", ["on_event", "perform", "defer", "wake", "limits", "timing"])
def test_what_is_no_handler_is_refused_at_once(handler: str) -> None:
    wrong: Any = {handler: 5}
    with pytest.raises(TypeError, match=handler):
        Pump(Keeper(), **wrong)


def test_what_waits_for_a_job_is_not_waited_for_when_all_is_over() -> None:
    pump, events = keeping(perform=lambda effect: 1, in_jobs=True)
    job = pump.next_job()
    assert job is not None
    assert pump.next_job() is None
    pump.receive_data(b"two\n", 0.0)
    pump.abort()
    assert not pump.over  # the store is still at work
    pump.finish(job(), 0.0)
    assert pump.over
    assert pump.next_job() is None
    assert events == [LineReceived(text=b"one"), LineReceived(text=b"two")]


def test_jobs_follow_each_other() -> None:
    done: list[bytes] = []

    def perform(effect: Effect[Any]) -> int:
        assert isinstance(effect, Keep)
        done.append(effect.text)
        if effect.text == b"two":
            raise OSError("the disk is full")
        return len(done)

    pump, events = keeping(perform=perform, in_jobs=True)
    first = pump.next_job()
    pump.receive_data(b"two\n", 0.0)
    assert first is not None
    assert done == []
    pump.finish(first(), 0.0)
    assert events[-1] == Kept(text=b"one", place=1)
    second = pump.next_job()
    assert second is not None
    pump.finish(second(), 0.0)
    assert done == [b"one", b"two"]
    assert isinstance(events[-2], StoreFailed)
    assert events[-1] == Closed()


def test_a_job_that_nobody_can_do_is_a_failure_of_the_store() -> None:
    pump, events = keeping(perform=lambda effect: 1, in_jobs=True)
    job = pump.next_job()
    assert job is not None
    pump.finish(job.failed(OSError("gone")), 0.0)
    assert isinstance(events[-2], StoreFailed)
    assert events[-1] == Closed()


def test_abort_in_the_middle_of_much_to_do() -> None:
    """Even if the machine has ended already: there is nothing left to resume."""
    pump = Pump(Lines(), limits=Limits(steps_max=1))
    pump.connection_made(0.0)
    pump.receive_data(b"bye\n", 3.0)
    assert pump.closed == Closed()
    assert pump.next_deadline() == 3.0
    pump.abort()
    assert pump.next_deadline() is None
    assert pump.over
    assert pump.result() == Closed()


def test_abort_has_no_effect_on_a_pump_that_is_over() -> None:
    pump = Pump(Lines())
    pump.connection_made(0.0)
    pump.receive_eof(0.0)
    assert pump.state is ConnectionState.HUNG_UP
    pump.abort()
    assert pump.state is ConnectionState.HUNG_UP
