"""A machine in a pump, and the law that this makes no difference to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import nan
from typing import Any

from hypothesis import strategies as st

from culm.effects import Answer
from culm.machine import Effect, Event, Link, LocalProtocolError, Ticket
from culm.machines.driver import Turn, check_end
from culm.machines.operations import Advance, Eof, Operation, Receive, ReceiveDatagram
from culm.pump import DatagramPump, Limits, LinkedPump, Pump, StreamPump, Timing
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import driver_for, expect_equal, retold, run_story
from culm.testing.suite.strategies import Draw, conversation, sizes, tightened, variant

_START = Advance(0.0)
_NOT_ASKED: Effect[None] = Effect(ticket=Ticket(0))
# Some machines say something when they have ended, and it is compared.
_TIMING = Timing(linger_s=2.0**40, linger_after_error_s=2.0**40)


def pumped(spec: MachineSpec, draw: Draw) -> None:
    """A pump makes no difference to a machine.

    Events, effects, bytes, datagrams and the deadline are those of the suite's own driver, for
    all sizes of pieces and wherever a drain gives way: the time is told more often, at no later
    times, and bytes are taken a piece at a time.  (Of a machine with `lazy_output` bytes may
    differ; `links` checks that they mean the same.)  A wrong call of the pump raises at once,
    and makes no difference either.
    """
    told = tightened(spec, conversation(spec, draw), draw)
    story = variant(told.operations, draw)
    limits = Limits(
        piece_size_max=max(sizes(draw)),
        steps_max=draw(st.sampled_from([1, 7, 1000])),
    )
    pump = _Pumped(spec, told, limits, mistake_every=draw(st.sampled_from([3, 17, 100])))
    if pump.is_timed:
        story = [_START, *story]
    with retold(spec, told, story):
        for operation in story:
            pump.run(operation)
        turns = run_story(spec, told, story)
        expect_equal("a pump gives other events", _events(turns), pump.events)
        expect_equal("a pump gives other effects", _effects(turns), pump.effects)
        expect_equal("a pump has another deadline", turns[-1].deadline, pump.deadline())
        if not spec.comparison.lazy_output:
            expect_equal("a pump sends other bytes", _sent(turns), pump.sent)
            expect_equal("a pump sends other datagrams", _datagrams(turns), pump.datagrams)


def _events(turns: Sequence[Turn]) -> list[Event]:
    return [event for turn in turns for event in turn.events]


def _effects(turns: Sequence[Turn]) -> list[Effect[Any]]:
    return [effect for turn in turns for effect in turn.effects]


def _datagrams(turns: Sequence[Turn]) -> list[tuple[Hashable, bytes]]:
    return [datagram for turn in turns for datagram in turn.datagrams]


def _sent(turns: Sequence[Turn]) -> dict[int | None, bytes]:
    """Bytes by link, ``None`` being the only stream."""
    sent: dict[int | None, bytes] = {}
    for turn in turns:
        for number, data in ((None, turn.sent), *turn.links):
            if data:
                sent[number] = sent.get(number, b"") + data
    return sent


class _Pumped:
    """A new machine for a conversation, in a pump, and all its output."""

    def __init__(
        self, spec: MachineSpec, told: Conversation, limits: Limits, *, mistake_every: int
    ) -> None:
        self.events: list[Event] = []
        self.effects: list[Effect[Any]] = []
        self.sent: dict[int | None, bytes] = {}
        self.datagrams: list[tuple[Hashable, bytes]] = []
        self._driver = driver_for(spec, told)  # finds verbs, knows the store
        self._streams: dict[int | None, StreamPump] = {}
        self._now = _START.now
        self._mistake_every, self._count = mistake_every, 0
        machine: Any = self._driver.machine
        handlers: Any = {
            "on_event": self.events.append,
            "defer": self._defer,
            "limits": limits,
            "timing": _TIMING,
        }
        self._pump: Pump | LinkedPump | DatagramPump
        if self._driver.is_stream:
            self._pump = self._streams[None] = Pump(machine, closes_when_quiet=False, **handlers)
        elif self._driver.is_linked:
            self._pump = LinkedPump(machine, **handlers)
        else:
            self._pump = DatagramPump(machine, **handlers)

    @property
    def is_timed(self) -> bool:
        """Whether the machine has deadlines."""
        return self._driver.is_timed

    def deadline(self) -> float | None:
        """The machine's own deadline, without those of the pump."""
        return self._driver.deadline()

    def run(self, operation: Operation) -> None:
        """Do `operation`, let the peer take all bytes, and answer effects, oldest first."""
        with suppress(LocalProtocolError):  # the machine refuses the same without a pump
            self._apply(operation)
        self._finish()
        unanswered, respond = self._driver.unanswered, self._driver.respond
        while respond is not None and unanswered:
            self._err()
            effect = unanswered.pop(0)
            self._pump.answer(Answer(effect, respond(effect), None), self._now)
            self._finish()

    def _defer(self, effect: Effect[Any]) -> None:
        self.effects.append(effect)
        self._driver.unanswered.append(effect)

    def _apply(self, operation: Operation) -> None:
        match operation:
            case Receive(data, link) if link in self._streams:
                self._streams[link].receive_data(data, self._now)
            case Eof(link) if link in self._streams:
                self._streams[link].receive_eof(self._now)
            case ReceiveDatagram(data, source) if isinstance(self._pump, DatagramPump):
                self._pump.receive_datagram(data, self._now, source=source)
            case Advance(now):
                self._now = max(now, self._now)
                self._pump.advance(now)
            case _:
                result = self._pump.call(self._now, self._driver.apply, operation)
                if isinstance(result, Link) and isinstance(self._pump, LinkedPump):
                    self._streams[result.number] = self._pump.attach(result, self._now)

    def _finish(self) -> None:
        moves: list[object] = []
        while self._move():
            moves.append(None)
            check_end("moves of a pump", moves)
            self._err()

    def _err(self) -> None:
        """Now and then, make every kind of mistake."""
        self._count += 1
        if self._count % self._mistake_every:
            return
        for name, mistake in self._mistakes():
            try:
                mistake()
            except (LocalProtocolError, TypeError, ValueError):
                continue
            raise AssertionError(f"a pump takes a wrong argument: {name}")

    def _mistakes(self) -> Iterator[tuple[str, Callable[[], object]]]:
        now, pump = self._now, self._pump
        yield "advance at no time", partial(pump.advance, nan)
        yield "call at no time", partial(pump.call, nan, self._driver.deadline)
        yield "answer to nothing", partial(pump.answer, Answer(_NOT_ASKED, None, None), now)
        for effect in self._driver.unanswered[:1]:
            no_error: Any = "no exception"
            yield "answer at no time", partial(pump.answer, Answer(effect, None, OSError()), nan)
            yield "answer that is none", partial(pump.answer, Answer(effect, None, no_error), now)
        if isinstance(pump, DatagramPump):
            yield (
                "receive_datagram at no time",
                partial(pump.receive_datagram, b"", nan, source="?"),
            )
            yield "next_datagram at no time", partial(pump.next_datagram, nan)
        for stream in self._streams.values():
            no_data: Any = "text"
            yield "receive_data at no time", partial(stream.receive_data, b"x", nan)
            yield "receive_data of text", partial(stream.receive_data, no_data, now)
            yield "receive_eof at no time", partial(stream.receive_eof, nan)
            yield "sent at no time", partial(stream.sent, 0, nan)
            wrong_sizes: tuple[Any, ...] = (-1, len(stream.outgoing) + 1, 0.5)
            for size in wrong_sizes:
                yield f"sent {size}", partial(stream.sent, size, now)
            yield "eof_sent at no time", partial(stream.eof_sent, nan)
            yield "send_failed at no time", partial(stream.send_failed, nan)
            yield "connection_lost at no time", partial(stream.connection_lost, nan)

    def _move(self) -> bool:
        deadline = self._pump.next_deadline()
        if deadline is not None and deadline <= self._now:
            self._pump.advance(self._now)
            return True
        if isinstance(self._pump, DatagramPump):
            datagram = self._pump.next_datagram(self._now)
            if datagram is not None:
                self.datagrams.append(datagram)
            return datagram is not None
        return any(self._take(link, pump) for link, pump in self._streams.items())

    def _take(self, link: int | None, pump: StreamPump) -> bool:
        data = bytes(pump.outgoing)
        if data:
            self.sent[link] = self.sent.get(link, b"") + data
            pump.sent(len(data), self._now)
        return bool(data)
