"""Other drivers than the suite's own, and the difference that they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import nan
from random import Random
from typing import Any

from hypothesis import strategies as st

from culm.effects import Answer
from culm.machine import Closed, Effect, Event, Link, LocalProtocolError, Ticket
from culm.machines.driver import Driver, Turn, check_end
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Operation,
    Receive,
    ReceiveDatagram,
)
from culm.pump import DatagramPump, Limits, LinkedPump, Pump, StreamPump, Timing
from culm.testing.record import conversations
from culm.testing.spec import Conversation, Free, MachineSpec
from culm.testing.suite.runs import (
    PropertyError,
    check_closed,
    driver_for,
    end,
    expect_equal,
    refused,
    retold,
    run_story,
    watchdog,
)
from culm.testing.suite.strategies import Draw, conversation, pick, sizes, tightened, variant

_TAKES_MAX = (4, 32)  # between two inputs
_WEIGHTS = (1, 1, 8, 32)
_GIVES_UP = 0.1
_BYTES_TAKEN = (0, 1, 64, None)
_SIZES = (0, 1, 7, 1 << 16, None)
# Values that are no bytes of a stream or a datagram, though some can be added to bytes.
_NO_BUFFERS: tuple[Any, ...] = ("text", [1, 2], 5, None)

_START = Advance(0.0)
_NOT_ASKED: Effect[None] = Effect(ticket=Ticket(0))
# Some machines say something when they have ended, and it is compared.
_TIMING = Timing(linger_s=2.0**40, linger_after_error_s=2.0**40)


def careless(spec: MachineSpec, draw: Draw) -> None:
    """A driver that takes too little, too late or in another order gets less, and breaks nothing.

    Between two inputs it takes an event or none, bytes before the events, a piece of
    them, an effect now and then; it answers late and in any order, gives up links, passes values
    that are no buffers, and closes in the middle.  Nothing is raised except to refuse a call.
    After `Closed` comes no event, no effect and no deadline, and it comes once all output is taken.
    """
    told = conversation(spec, draw)
    story = variant(told.operations, draw)
    if draw(st.booleans()):
        story.insert(draw(st.integers(0, len(story))), Call("close"))
    seed = draw(st.integers(0, 1 << 32))
    with retold(spec, told):
        sources = [op.source for op in story if isinstance(op, ReceiveDatagram)]
        driver = _Careless(driver_for(spec, told), sources, Random(seed))
        for operation in story:
            driver.do(operation)
        driver.end()


class _Careless:
    """Drives a machine at random."""

    def __init__(self, driver: Driver, sources: Sequence[Hashable], rng: Random) -> None:
        self._driver, self._sources, self._rng = driver, sources, rng
        self._events: list[Event] = []
        self._answers: list[Complete] = []  # the store's answers, not yet passed on
        self._takes: list[Callable[[], None]] = [self._take_event, self._take_bytes]
        if hasattr(driver.machine, "next_effect"):
            self._takes += [self._take_effect, self._answer]
        if driver.is_linked:
            self._takes.append(self._give_up)
        self._takes.append(self._say_nonsense)
        # Some drivers mostly forget the events, some the effects, and some hardly anything.
        self._weights = [rng.choice(_WEIGHTS) for _ in self._takes]
        self._takes_max = rng.choice(_TAKES_MAX)

    def do(self, operation: Operation) -> None:
        """Do `operation`, and then take some of the output."""
        refused(self._driver, operation)
        count = self._rng.randrange(self._takes_max)
        for take in self._rng.choices(self._takes, self._weights, k=count):
            take()

    def end(self) -> None:
        """Do all remaining work and end the machine."""
        self._say_nonsense()
        while self._answers:
            self._answer()
        turns = [self._driver.drain(None), *end(self._driver)]
        if any(isinstance(event, Closed) for event in self._events):
            for turn in turns:
                if turn.effects:
                    raise PropertyError(f"an effect comes after Closed: {turn.effects}")
        told = Turn(operation=None, events=tuple(self._events))
        check_closed(self._driver, [told, *turns])
        self._say_nonsense()

    # Output that a driver takes.

    def _take_event(self) -> None:
        event = self._driver.take_event()
        if event is not None:
            self._events.append(event)

    def _take_effect(self) -> None:
        effect = self._driver.take_effect()
        if effect is None:
            return
        if self._driver.closed is not None:
            raise PropertyError(f"an effect comes after Closed: {effect}")
        if self._driver.respond is not None:
            self._answers.append(Complete(effect.ticket, self._driver.respond(effect)))

    def _answer(self) -> None:
        if self._answers:
            place = self._rng.randrange(len(self._answers))
            refused(self._driver, self._answers.pop(place))

    def _take_bytes(self) -> None:
        machine = self._driver.machine
        if self._driver.is_linked:
            machine.links_to_send()
            for link in self._driver.links.values():
                link.data_to_send(self._rng.choice(_SIZES))
        elif self._driver.is_stream:
            machine.data_to_send(self._rng.choice(_SIZES))
        else:
            self._driver.take_datagrams()

    # Its other actions.

    def _give_up(self) -> None:
        links = list(self._driver.links.values())
        if links and self._rng.random() < _GIVES_UP:
            self._rng.choice(links).close()

    def _say_nonsense(self) -> None:
        """Check that values that are no buffers are refused at any time."""
        machine = self._driver.machine
        streams = [machine] if self._driver.is_stream else list(self._driver.links.values())
        ways: list[Callable[[Any], None]] = [stream.receive_data for stream in streams]
        if self._sources:
            ways.append(partial(machine.receive_datagram, source=self._rng.choice(self._sources)))
        for way in ways:
            for nonsense in _NO_BUFFERS:
                try:
                    way(nonsense)
                except (LocalProtocolError, TypeError):
                    continue
                raise PropertyError(f"{nonsense!r} was taken for bytes")


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


def every_freed(spec: MachineSpec) -> None:
    """The law of `freed` for unchanged conversations: each event, and at least one of them."""
    count = 0
    for told in conversations(spec):
        with watchdog(), retold(spec, told):
            number = 0
            while _uses(spec, told, list(told.operations), number):
                number += 1
            count += number
    if not count:
        raise PropertyError("no conversation has an event that says that an id is free")


def freed(spec: MachineSpec, draw: Draw) -> None:
    """An id that an event calls free can be used at once, before anything else is done.

    `Usage.frees` says which event calls which id free, and the call that uses it.  That may be
    refused for other reasons.  Conversations are varied, and bytes are taken in small pieces or
    not at all.
    """
    told = conversation(spec, draw)
    story = variant(told.operations, draw)
    size = pick(_BYTES_TAKEN, draw)
    with retold(spec, told):
        number = 0
        while _uses(spec, told, story, number, size_max=size):
            number += 1


class _Tried(Exception):
    """The id was tried: the story ends here."""


def _uses(
    spec: MachineSpec,
    told: Conversation,
    story: list[Operation],
    number: int,
    *,
    size_max: int | None = None,
) -> bool:
    """Use the id that the event with that number calls free; whether there is such an event.

    size_max: bytes that are taken each time.
    """
    driver = driver_for(spec, told)
    assert spec.usage.frees is not None
    driver.wrap(_Watched(driver, driver.machine, spec.usage.frees, number))
    if size_max is not None:
        driver.take_by(lambda machine: machine.data_to_send(size_max))
    try:
        driver.tell(story)
    except _Tried:
        return True
    return False


class _Watched:
    """A machine whose ids are used as soon as they are free, or the one of that number."""

    def __init__(self, driver: Driver, machine: Any, frees: Free, number: int) -> None:
        self._driver, self._machine, self._frees, self._left = driver, machine, frees, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def next_event(self) -> Event | None:
        event: Event | None = self._machine.next_event()
        call = None if event is None else self._frees.again(event)
        if call is None:
            return event
        if self._left:
            self._left -= 1
            return event
        try:
            self._driver.apply(call)
        except LocalProtocolError as error:
            if error.code in self._frees.taken:
                raise PropertyError(f"after {event}, {call} is refused: {error}") from error
        raise _Tried
