"""Machines joined by pipes in memory, each pipe one direction of a connection."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple, Self, TypedDict

from culm.machine import Event
from culm.machines.driver import SIZE_MAX, Driver, EndlessError, Turn
from culm.machines.operations import Advance, Complete, Eof, Operation, Receive
from culm.testing.clock import VirtualClock

Chunker = Callable[[int], int]  # bytes that could be delivered (1 or more) -> bytes to deliver
Sizer = Callable[[], "int | None"]  # -> size_max for the next data_to_send; None takes all

STEPS_MAX = 100_000


class Place(NamedTuple):
    """One end of a connection: a member's link, or its only stream (``None``)."""

    member: str
    link: int | None = None


class Pipe:
    """Bytes under way in one direction, each piece with the time at which it arrives.

    to: where they arrive; latency: seconds that they take; capacity: most bytes under way.
    held: nothing arrives for the moment; ended: the sender sends no more.
    """

    def __init__(self, to: Place, latency: float, capacity: float) -> None:
        self.to = to
        self.latency = latency
        self.capacity = capacity
        self.held = False
        self.ended = False
        self.eof_delivered = False
        self._sunk = False
        self._pieces: deque[tuple[float, bytearray]] = deque()
        self._size = 0
        self._filled = 0
        self._allowed = math.inf

    def allow(self, size: float) -> None:
        """Let at most about `size` more bytes be sent, to detect endless conversations."""
        self._filled, self._allowed = 0, size

    @property
    def room(self) -> float:
        """Bytes that may be put in."""
        return self.capacity - self._size

    def fill(self, source: Any, now: float, sizer: Sizer | None) -> bytes:
        """Send bytes of `source` in pieces, as far as there is room; returns them.

        source: an object with `data_to_send`.
        sizer: gives the sizes of the pieces.

        Raises `EndlessError` beyond the bytes that `allow` has allowed.
        """
        pieces: list[bytes] = []
        while not self.ended and self.room > 0:
            if self._filled > self._allowed:
                raise EndlessError(f"not quiet after {self._filled} bytes")
            room = None if math.isinf(self.room) else int(self.room)
            size = None if sizer is None else sizer()
            bounds = [bound for bound in (room, size) if bound is not None]
            piece: bytes = source.data_to_send(min(bounds, default=None))
            if bounds and len(piece) > min(bounds):
                raise AssertionError(f"data_to_send({min(bounds)}) gave {len(piece)} bytes")
            if not piece:
                break
            self.put(piece, now)
            self._filled += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def put(self, data: bytes, now: float) -> None:
        """Send `data` at time `now`."""
        if self._sunk:
            return
        arrival = now + self.latency
        if self._pieces and self._pieces[-1][0] == arrival:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((arrival, bytearray(data)))
        self._size += len(data)

    def arrived(self, now: float) -> int:
        """Number of bytes that have arrived by `now`, unless they are held up."""
        return 0 if self.held else sum(len(data) for time, data in self._pieces if time <= now)

    def next_arrival(self, now: float) -> float | None:
        """When the next bytes arrive after `now`; ``None`` if none are on their way."""
        times = (time for time, _ in self._pieces if time > now)
        return None if self.held else next(times, None)

    def take(self, size: int) -> bytes:
        """Take `size` bytes that have arrived."""
        self._size -= size
        taken = bytearray()
        while size > len(taken):
            piece = self._pieces[0][1]
            wanted = size - len(taken)
            taken += piece[:wanted]
            del piece[:wanted]
            if not piece:
                self._pieces.popleft()
        return bytes(taken)

    def end(self, *, if_room: bool = False) -> None:
        """Note that the sender sends no more."""
        self.ended |= not if_room or self.room > 0

    def hold(self, value: bool = True) -> None:
        """Hold up the bytes under way, or let them go on."""
        self.held = value

    def deliver_eof(self) -> None:
        """Note that the receiver has learned of the end."""
        self.eof_delivered = True

    def sink(self) -> None:
        """Drop all bytes under way, and all later ones: the receiver is closed."""
        self._sunk = self.eof_delivered = True
        self._pieces.clear()
        self._size = 0

    def eof_due(self) -> bool:
        """Whether the receiver should learn of the end now."""
        return self.ended and not self._pieces and not self.held and not self.eof_delivered


class End:
    """One of the machines that are joined, and its turns so far."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.turns: list[Turn] = []

    @property
    def machine(self) -> Any:
        """The machine itself; `JoinedMachines.run` carries on after direct calls to it."""
        return self.driver.machine

    @property
    def events(self) -> list[Event]:
        """All events so far."""
        return [event for turn in self.turns for event in turn.events]

    @property
    def sent(self) -> bytes:
        """All bytes of its stream that this end has sent so far."""
        return b"".join(turn.sent for turn in self.turns)

    @property
    def operations(self) -> list[Operation]:
        """All operations on the machine, without the answers of its own store."""
        done = [turn.operation for turn in self.turns if turn.operation is not None]
        return [each for each in done if not (self.driver.respond and isinstance(each, Complete))]


class JoinOptions(TypedDict, total=False):
    """Options of `JoinedMachines` and its subclasses."""

    chunker: Chunker | None
    sizer: Sizer | None
    rng: Random | None
    capacity: float
    steps_max: int
    size_max: int


class JoinedMachines:
    """Machines and the pipes between them, run until they are quiet.

    members: drivers, by name; `ends` has their turns.
    chunker: cuts bytes on their way; `sizer`: gives the sizes in which a machine's are taken.
    rng: chooses which direction moves next; in turns without it.
    capacity: most bytes under way in one direction of a connection; senders wait when it is full.
    steps_max: deliveries and moves of the clock before a run counts as endless; `size_max`: bytes
        in any direction before it does.
    log: all turns in order, each with the name of its member.
    """

    def __init__(
        self,
        members: Mapping[str, Driver],
        *,
        chunker: Chunker | None = None,
        sizer: Sizer | None = None,
        rng: Random | None = None,
        capacity: float = math.inf,
        steps_max: int = STEPS_MAX,
        size_max: int = SIZE_MAX,
    ) -> None:
        self.clock = VirtualClock()
        self.ends = {name: End(driver) for name, driver in members.items()}
        self.log: list[tuple[str, Turn]] = []
        self._chunker = chunker
        self._sizer = sizer
        self._rng = rng
        self._capacity = capacity
        self._steps_max = steps_max
        self._size_max = size_max
        self._pipes: dict[Place, Pipe] = {}

    @property
    def refusal(self) -> str | None:
        """The first refusal of an operation, in words; ``None`` if there is none."""
        refused = (
            f"{name} refused {turn.operation}: {turn.error}"
            for name, turn in self.log
            if turn.error
        )
        return next(refused, None)

    def _start(self) -> None:
        for name, end in self.ends.items():
            end.driver.take_by(partial(self._take, name))
            self._note(name, end.driver.start())
            self._tell_time(name)

    def _join(self, ends: tuple[Place, Place], latency: tuple[float, float] = (0.0, 0.0)) -> None:
        """Connect two places; the latency of the bytes from each in seconds."""
        for place, other, seconds in zip(ends, reversed(ends), latency, strict=True):
            pipe = self._pipes[place] = Pipe(other, seconds, self._capacity)
            pipe.allow(self._size_max)

    def run(self, until: float | None = None) -> Self:
        """Run until nothing is under way and nothing happens; returns itself.

        Time passes until the bytes under way have arrived; with `until`, in seconds, it goes on to
        that time over every deadline on the way (`math.inf`: until there is no deadline left).
        Raises `EndlessError` when that takes too many steps or bytes.
        """
        for pipe in self._pipes.values():
            pipe.allow(self._size_max)
        for name in self.ends:
            self._flush(name)
        for _ in range(self._steps_max):
            if not self._deliver() and not self._pass_time(until):
                break
        else:
            last = "\n".join(f"  {name}: {turn}" for name, turn in self.log[-6:])
            raise EndlessError(f"not quiet after {self._steps_max} steps, the last being\n{last}")
        if until is not None and math.isfinite(until) and until > self.clock.now:
            self._move_clock(until)
        return self

    def _deliver(self) -> bool:
        """Deliver some bytes, or the end of a stream; false if there is nothing to deliver."""
        ready = [place for place in self._pipes if self._deliverable(place)]
        if not ready:
            return False
        place = ready[0] if self._rng is None or len(ready) == 1 else self._rng.choice(ready)
        pipe, size = self._pipes[place], self._deliverable(place)
        if self._rng is None:  # in turns: others go first next time
            self._pipes[place] = self._pipes.pop(place)
        operation: Operation
        if pipe.eof_due():
            pipe.deliver_eof()
            operation = Eof(pipe.to.link)
        else:
            wanted = size if self._chunker is None else max(1, self._chunker(size))
            operation = Receive(pipe.take(min(size, wanted)), pipe.to.link)
        self._do(pipe.to.member, operation)
        self._flush(place.member)  # it may have waited for room
        return True

    def _deliverable(self, place: Place) -> int:
        """Bytes from `place` that the other end may get now; 1 if only the end is left."""
        pipe = self._pipes[place]
        if pipe.eof_due():
            return 1
        arrived = pipe.arrived(self.clock.now)
        to = self.ends[pipe.to.member].driver
        return min(arrived, to.read_size(pipe.to.link)) if arrived else 0

    def _do(self, name: str, operation: Operation) -> object:
        """Do `operation`, without running on; returns a call's result."""
        turns = self.ends[name].driver.run(operation)
        self._note(name, turns)
        return turns[0].result

    def _flush(self, name: str) -> None:
        """Take the output of a member, new or held back for lack of room."""
        driver = self.ends[name].driver
        self._note(name, [driver.drain(None), *driver.answer()])

    def _note(self, name: str, turns: list[Turn]) -> None:
        end = self.ends[name]
        for turn in turns:
            if turn.operation is not None or turn.events or turn.effects or turn.sent or turn.links:
                end.turns.append(turn)
                self.log.append((name, turn))
        for link in _closed(end.driver):
            if (pipe := self._pipes.get(Place(name, link))) is not None:
                pipe.end(if_room=True)  # without room it may have bytes left
                self._pipes[pipe.to].sink()

    def _take(self, name: str, source: Any) -> bytes:
        """Take the bytes of a stream for which there is room."""
        return self._pipes[Place(name)].fill(source, self.clock.now, self._sizer)

    def _pass_time(self, until: float | None) -> bool:
        now = self.clock.now
        arrivals = (pipe.next_arrival(now) for pipe in self._pipes.values())
        times = [time for time in arrivals if time is not None]
        if until is None:
            until = min(times, default=now)
        drivers = (end.driver for end in self.ends.values() if end.driver.closed is None)
        times += [time for driver in drivers if (time := driver.deadline()) is not None]
        if not times or min(times) > until:
            return False
        self._move_clock(max(now, min(times)))
        return True

    def _move_clock(self, now: float) -> None:
        self.clock.advance_to(now)
        for name, end in self.ends.items():
            self._tell_time(name)
            deadline = end.driver.deadline()
            if end.driver.closed is None and deadline is not None and deadline <= now:
                raise EndlessError(f"{name}: told that it is {now}, still waits for {deadline}")

    def _tell_time(self, name: str) -> None:
        driver = self.ends[name].driver
        if driver.is_timed and driver.closed is None:
            self._do(name, Advance(self.clock.now))


def _closed(driver: Driver) -> list[int | None]:
    """The links of a machine that are closed, or its only stream."""
    if driver.is_stream:
        return [] if driver.closed is None else [None]
    return [number for number, link in driver.links.items() if link.closed]
