"""A connection in memory between two stream machines.

A chunker cuts the bytes, either direction may be slow, held up or closed, and
time passes only when nothing else is left to do.  All randomness comes from the
`random.Random` objects that are passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

from culm.machine import Event
from culm.machines import Config, MachineType, Responder, Verb
from culm.machines.driver import SIZE_MAX, Driver, EndlessError, Turn, WrongKindError
from culm.machines.operations import Advance, Call, Complete, Eof, Operation, Receive
from culm.testing.clock import VirtualClock
from culm.testing.pipe import Pipe, Sizer
from culm.testing.spec import Side

__all__ = [
    "Chunker",
    "End",
    "MachinePair",
    "Sizer",
    "byte_by_byte",
    "operations_of",
    "random_chunks",
    "random_sizes",
    "whole",
]

Chunker = Callable[[int], int]  # bytes that could be delivered (1 or more) -> bytes to deliver

STEPS_MAX = 100_000
_OTHER: dict[Side, Side] = {"left": "right", "right": "left"}


def whole(available: int) -> int:
    """Deliver all available bytes."""
    return available


def byte_by_byte(available: int) -> int:
    """Deliver one byte."""
    return 1


def random_chunks(rng: Random) -> Chunker:
    """Deliver chunks of all magnitudes, small ones as often as big ones."""
    return lambda available: min(available, rng.randint(1, 1 << rng.randrange(17)))


def random_sizes(rng: Random) -> Sizer:
    """Take pieces of all magnitudes."""
    return lambda: rng.randint(1, 1 << rng.randrange(17))


def operations_of(driver: Driver, turns: Iterable[Turn]) -> list[Operation]:
    """The operations of turns, without the answers of the machine's own store."""
    done = [turn.operation for turn in turns if turn.operation is not None]
    return [each for each in done if not (driver.respond and isinstance(each, Complete))]


class End:
    """One end of a link: its machine, and the turns so far."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.turns: list[Turn] = []

    @property
    def machine(self) -> Any:
        """The machine itself; `MachinePair.run` carries on after direct calls to it."""
        return self.driver.machine

    @property
    def events(self) -> list[Event]:
        """All events so far."""
        return [event for turn in self.turns for event in turn.events]

    @property
    def sent(self) -> bytes:
        """All bytes that this end has sent so far."""
        return b"".join(turn.sent for turn in self.turns)

    @property
    def operations(self) -> list[Operation]:
        """All operations on the machine, without the answers of its own store."""
        return operations_of(self.driver, self.turns)


class MachinePair:
    """Joins `left` and `right` and runs them until they are quiet.

    left, right: drivers of stream machines (see `MachinePair.of` and `MachinePair.of_machines`).
    chunker: cuts bytes on their way; `sizer`: gives the sizes in which a machine's are taken.
    rng: chooses which direction moves next; strictly in turns without it.
    latency: seconds that bytes take, from left to right and from right to left.
    capacity: most bytes under way in one direction; senders wait when it is full.
    steps_max: deliveries and moves of the clock before a run counts as endless; `size_max`:
        bytes from either side before it does.
    """

    def __init__(
        self,
        left: Driver,
        right: Driver,
        *,
        chunker: Chunker = whole,
        sizer: Sizer | None = None,
        rng: Random | None = None,
        latency: tuple[float, float] = (0.0, 0.0),
        capacity: float = math.inf,
        clock: VirtualClock | None = None,
        steps_max: int = STEPS_MAX,
        size_max: int = SIZE_MAX,
    ) -> None:
        self.clock = VirtualClock() if clock is None else clock
        self.log: list[tuple[Side, Turn]] = []
        self._chunker = chunker
        self._sizer = sizer
        self._rng = rng
        self._steps_max = steps_max
        self._size_max = size_max
        self._turn: Side = "right"
        self._pipes: dict[Side, Pipe] = {
            "left": Pipe(latency[0], capacity),
            "right": Pipe(latency[1], capacity),
        }
        for pipe in self._pipes.values():
            pipe.allow(size_max)
        self.left = End(left)
        self.right = End(right)
        self._ends: dict[Side, End] = {"left": self.left, "right": self.right}
        for side, end in self._ends.items():
            if not end.driver.is_stream:
                raise WrongKindError(f"{type(end.machine).__name__} is not for streams")
            end.driver.take_by(partial(self._take, self._pipes[side]))
            self._note(side, end.driver.start())
            self._tell_time(side)

    @classmethod
    def of(
        cls,
        left: MachineType,
        left_config: Config,
        right: MachineType,
        right_config: Config,
        **options: Any,
    ) -> MachinePair:
        """A link of two new machines, their stores included."""
        return cls(Driver.of(left, left_config), Driver.of(right, right_config), **options)

    @classmethod
    def of_machines(
        cls,
        left: Any,
        right: Any,
        *,
        respond: tuple[Responder | None, Responder | None] = (None, None),
        verbs: tuple[Mapping[str, Verb], Mapping[str, Verb]] = ({}, {}),
        **options: Any,
    ) -> MachinePair:
        """A link of two machines; `respond` completes the effects of either."""
        return cls(
            Driver(left, verbs=verbs[0], respond=respond[0]),
            Driver(right, verbs=verbs[1], respond=respond[1]),
            **options,
        )

    def do(self, side: Side, operation: Operation) -> None:
        """Do `operation` to `side`, without running on.

        `Eof` is that side's own half-close, and `Advance` moves the clock of both.
        """
        self._pipes[side].allow(self._size_max)
        match operation:
            case Eof():
                self.eof(side)
            case Advance(now):
                self.run(until=now)
            case _:
                self._note(side, self._ends[side].driver.run(operation))

    def call(self, side: Side, method: str, /, **args: object) -> None:
        """Call a verb of `side`, without running on; a refusal is noted in its turn."""
        self.do(side, Call(method, args))

    def eof(self, side: Side) -> None:
        """Half-close: `side` sends no more; the other learns it after the last byte."""
        self._pipes[side].end()

    def hold(self, side: Side) -> None:
        """Hold up the bytes that `side` sends until `release`."""
        self._pipes[side].hold()

    def release(self, side: Side) -> None:
        """Let the bytes that `side` sends go on."""
        self._pipes[side].hold(False)

    def run(self, until: float | None = None) -> MachinePair:
        """Run until nothing is under way and nothing happens; returns the link.

        Time passes until the bytes under way have arrived; with `until`, in seconds,
        it goes on to that time over every deadline on the way (`math.inf`: until there
        is no deadline left).  Raises `EndlessError` when that takes too many steps or bytes.
        """
        for pipe in self._pipes.values():
            pipe.allow(self._size_max)
        for side in self._ends:
            self._flush(side)
        for _ in range(self._steps_max):
            if not self._deliver() and not self._pass_time(until):
                break
        else:
            raise EndlessError(self._endless())
        if until is not None and math.isfinite(until) and until > self.clock.now:
            self._move_clock(until)
        return self

    def _deliver(self) -> bool:
        ready: list[Side] = [side for side in ("left", "right") if self._deliverable(side)]
        if not ready:
            return False
        if len(ready) == 1:
            side = ready[0]
        elif self._rng is not None:
            side = self._rng.choice(ready)
        else:
            side = _OTHER[self._turn]
        self._turn = side
        receiver, pipe = _OTHER[side], self._pipes[side]
        size = self._deliverable(side)
        operation: Operation
        if pipe.eof_due():
            pipe.deliver_eof()
            operation = Eof()
        else:
            operation = Receive(pipe.take(min(size, max(1, self._chunker(size)))))
        self._note(receiver, self._ends[receiver].driver.run(operation))
        self._flush(side)  # it may have waited for room
        return True

    def _deliverable(self, side: Side) -> int:
        """Bytes from `side` that the other may get now; 1 if only the end is left."""
        pipe, receiver = self._pipes[side], self._ends[_OTHER[side]]
        if receiver.driver.closed is not None:
            return 0
        if pipe.eof_due():
            return 1
        if pipe.held:
            return 0
        arrived = pipe.arrived(self.clock.now)
        return min(arrived, receiver.machine.read_size()) if arrived else 0

    def _flush(self, side: Side) -> None:
        """Take the output of `side`, new or held back for lack of room."""
        driver = self._ends[side].driver
        self._note(side, [driver.drain(None), *driver.answer()])

    def _pass_time(self, until: float | None) -> bool:
        now = self.clock.now
        times = [
            time for pipe in self._pipes.values() if (time := pipe.next_arrival(now)) is not None
        ]
        if until is None:
            until = min(times, default=now)
        times += [
            time
            for end in self._ends.values()
            if end.driver.closed is None and (time := end.driver.deadline()) is not None
        ]
        if not times or min(times) > until:
            return False
        self._move_clock(max(now, min(times)))
        return True

    def _move_clock(self, now: float) -> None:
        self.clock.advance_to(now)
        for side, end in self._ends.items():
            self._tell_time(side)
            deadline = end.driver.deadline()
            if end.driver.closed is None and deadline is not None and deadline <= now:
                raise EndlessError(f"{side}: told that it is {now}, still waits for {deadline}")

    def _tell_time(self, side: Side) -> None:
        driver = self._ends[side].driver
        if driver.is_timed and driver.closed is None:
            self._note(side, driver.run(Advance(self.clock.now)))

    def _take(self, pipe: Pipe, machine: Any) -> bytes:
        return pipe.fill(machine, self.clock.now, self._sizer)

    def _note(self, side: Side, turns: list[Turn]) -> None:
        for turn in turns:
            if turn.operation is not None or turn.events or turn.effects or turn.sent:
                self._ends[side].turns.append(turn)
                self.log.append((side, turn))
        pipe, driver = self._pipes[side], self._ends[side].driver
        if driver.closed is not None:
            pipe.end_unless_full()
            self._pipes[_OTHER[side]].sink()

    def _endless(self) -> str:
        last = "\n".join(f"  {side}: {turn}" for side, turn in self.log[-6:])
        return f"not quiet after {self._steps_max} steps; the last turns were\n{last}"
