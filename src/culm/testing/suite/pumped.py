"""A machine in a pump, and the law that this makes no difference to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
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
    limits = Limits(piece_size_max=max(sizes(draw)), steps_max=draw(st.sampled_from([1, 7, 1000])))
    pump = _Pumped(spec, told, limits, mistake_every=draw(st.sampled_from([3, 17, 100])))
    if pump.driver.is_timed:
        story = [_START, *story]
    with retold(spec, told, story):
        for operation in story:
            pump.run(operation)
        expected, found, turns = _Output(), pump.output, run_story(spec, told, story)
        for turn in turns:
            expected.add(turn)
        expect_equal("a pump gives other events", expected.events, found.events)
        expect_equal("a pump gives other effects", expected.effects, found.effects)
        expect_equal("a pump has another deadline", turns[-1].deadline, pump.driver.deadline())
        if not spec.comparison.lazy_output:
            expect_equal("a pump sends other bytes", expected.sent, found.sent)
            expect_equal("a pump sends other datagrams", expected.datagrams, found.datagrams)


@dataclass
class _Output:
    """The output of a machine; bytes by link, ``None`` being the only stream."""

    events: list[Event] = field(default_factory=list[Event])
    effects: list[Effect[Any]] = field(default_factory=list[Effect[Any]])
    sent: defaultdict[int | None, bytes] = field(default_factory=lambda: defaultdict(bytes))
    datagrams: list[tuple[Hashable, bytes]] = field(default_factory=list[tuple[Hashable, bytes]])

    def add(self, turn: Turn) -> None:
        self.events += turn.events
        self.effects += turn.effects
        self.datagrams += turn.datagrams
        for link, data in ((None, turn.sent), *turn.links):
            if data:
                self.sent[link] += data


class _Pumped:
    """A new machine for a conversation, in a pump, and all its output."""

    def __init__(
        self, spec: MachineSpec, told: Conversation, limits: Limits, *, mistake_every: int
    ) -> None:
        self.output = _Output()
        self.driver = driver_for(spec, told)  # finds verbs, knows the store
        self._streams: dict[int | None, StreamPump] = {}
        self._now = _START.now
        self._mistake_every, self._count = mistake_every, 0
        machine: Any = self.driver.machine
        handlers: Any = {
            "on_event": self.output.events.append,
            "defer": self._defer,
            "limits": limits,
            "timing": _TIMING,
        }
        self._pump: Pump | LinkedPump | DatagramPump
        if self.driver.is_stream:
            self._pump = self._streams[None] = Pump(machine, closes_when_quiet=False, **handlers)
        elif self.driver.is_linked:
            self._pump = LinkedPump(machine, **handlers)
        else:
            self._pump = DatagramPump(machine, **handlers)

    def run(self, operation: Operation) -> None:
        """Do `operation`, let the peer take all bytes, and answer effects, oldest first."""
        with suppress(LocalProtocolError):  # the machine refuses the same without a pump
            self._apply(operation)
        self._finish()
        unanswered, respond = self.driver.unanswered, self.driver.respond
        while respond is not None and unanswered:
            self._err()
            effect = unanswered.pop(0)
            self._pump.answer(Answer(effect, respond(effect), None), self._now)
            self._finish()

    def _defer(self, effect: Effect[Any]) -> None:
        self.output.effects.append(effect)
        self.driver.unanswered.append(effect)

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
                result = self._pump.call(self._now, self.driver.apply, operation)
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
        yield "call at no time", partial(pump.call, nan, self.driver.deadline)
        yield "answer to nothing", partial(pump.answer, Answer(_NOT_ASKED, None, None), now)
        for effect in self.driver.unanswered[:1]:
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
                self.output.datagrams.append(datagram)
            return datagram is not None
        return any(self._take(link, pump) for link, pump in self._streams.items())

    def _take(self, link: int | None, pump: StreamPump) -> bool:
        data = bytes(pump.outgoing)
        if data:
            self.output.sent[link] += data
            pump.sent(len(data), self._now)
        return bool(data)
