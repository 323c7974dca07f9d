"""A driver that does not follow the law of driving, and its effect on a machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from random import Random
from typing import Any

from hypothesis import strategies as st

from culm.machine import Closed, Event, LocalProtocolError
from culm.machines.driver import Driver, Turn
from culm.machines.operations import Call, Complete, Operation, ReceiveDatagram
from culm.testing.spec import MachineSpec
from culm.testing.suite.runs import PropertyError, check_closed, driver_for, end, refused, retold
from culm.testing.suite.strategies import Draw, conversation, variant

_TAKES_MAX = (4, 32)  # between two inputs
_WEIGHTS = (1, 1, 8, 32)
_GIVES_UP = 0.1
_SIZES = (0, 1, 7, 1 << 16, None)
# Values that are no bytes of a stream or a datagram, though some can be added to bytes.
_NO_BUFFERS: tuple[Any, ...] = ("text", [1, 2], 5, None)


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
        self._check_effects(turns)
        told = Turn(operation=None, events=tuple(self._events))
        check_closed(self._driver, [told, *turns])
        self._say_nonsense()

    def _check_effects(self, turns: list[Turn]) -> None:
        if any(isinstance(event, Closed) for event in self._events):
            for turn in turns:
                if turn.effects:
                    raise PropertyError(f"an effect comes after Closed: {turn.effects}")

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
