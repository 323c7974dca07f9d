"""Several machines with links, connected with each other in memory.

A machine is connected with each member that it asks to dial; bytes are cut and held up as on a
`culm.testing.link.MachinePair`, and time passes only when nothing else is left to do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from culm.machine import Event
from culm.machines import Config, Dialling, MachineType
from culm.machines.driver import SIZE_MAX, Driver, EndlessError, Turn
from culm.machines.operations import Advance, Eof, Operation, Receive
from culm.testing.clock import VirtualClock
from culm.testing.link import Chunker, operations_of, whole
from culm.testing.pipe import Pipe, Sizer

_STEPS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One end of a connection: a member's link."""

    member: str
    link: int


@dataclass(slots=True, eq=False)
class _Way:
    """One direction of a connection, from a link to the one at its other end."""

    to: _Endpoint
    pipe: Pipe


class Mesh:
    """Joins members as they ask for it, and runs them until they are quiet.

    members: drivers of machines with links, by name.
    dialling: the calls that open links.
    chunker: cuts bytes on their way; `sizer`: gives the sizes in which a link's are taken.
    rng: chooses which direction moves next; in turns without it.
    capacity: most bytes under way in one direction of a connection.
    log: all turns in order, each with its member.
    """

    def __init__(
        self,
        members: Mapping[str, Driver],
        dialling: Dialling,
        *,
        chunker: Chunker = whole,
        sizer: Sizer | None = None,
        rng: Random | None = None,
        capacity: float = math.inf,
        steps_max: int = _STEPS_MAX,
        size_max: int = SIZE_MAX,
    ) -> None:
        self.clock = VirtualClock()
        self.members = members
        self.log: list[tuple[str, Turn]] = []
        self._dialling = dialling
        self._chunker = chunker
        self._sizer = sizer
        self._rng = rng
        self._capacity = capacity
        self._steps_max = steps_max
        self._size_max = size_max
        self._ways: dict[_Endpoint, _Way] = {}
        self._strangers: set[_Endpoint] = set()
        self._early: dict[_Endpoint, bytes] = {}  # bytes sent before the connection was there
        self._dials: deque[tuple[str, str]] = deque()  # the dialling member, and the dialled one
        for name, driver in members.items():
            driver.take_by(partial(self._take, name))
            self._note(name, driver.start())
            self._tell_time(name)

    @classmethod
    def of(cls, machine: MachineType, members: Mapping[str, Config], **options: Any) -> Mesh:
        """A mesh of new machines of that type, their stores included."""
        if machine.dialling is None:
            raise ValueError(f"{machine.name} does not say how its links come to be")
        drivers = {name: Driver.of(machine, config) for name, config in members.items()}
        return cls(drivers, machine.dialling, **options)

    def events(self, member: str) -> list[Event]:
        """All events of `member` so far."""
        return [event for name, turn in self.log if name == member for event in turn.events]

    def operations(self, member: str) -> list[Operation]:
        """All operations on `member`, without the answers of its own store."""
        turns = (turn for name, turn in self.log if name == member)
        return operations_of(self.members[member], turns)

    def do(self, member: str, operation: Operation) -> None:
        """Do `operation` to `member`, without running on; `Advance` moves the clock of all."""
        if isinstance(operation, Advance):
            self.run(until=operation.now)
        else:
            self._run(member, operation)

    def admit(self, member: str) -> int | None:
        """Connect a stranger with `member`; returns the link's number, ``None`` if it is refused.

        The stranger's bytes come by `do`; bytes for it are never taken.
        """
        link = self._run(member, self._dialling.accepted)
        if not isinstance(link, int):
            return None
        self._strangers.add(_Endpoint(member, link))
        return link

    def run(self, until: float | None = None) -> Mesh:
        """Run until nothing is under way and nothing happens; returns the mesh.

        With `until`, in seconds, time goes on to that, over every deadline on the way.
        Raises `EndlessError` when that takes too many steps or bytes.
        """
        for way in self._ways.values():
            way.pipe.allow(self._size_max)
        for name in self.members:
            self._flush(name)
        for _ in range(self._steps_max):
            if not self._move() and not self._pass_time(until):
                break
        else:
            last = "\n".join(f"  {name}: {turn}" for name, turn in self.log[-6:])
            raise EndlessError(f"not quiet after {self._steps_max} steps, the last being\n{last}")
        if until is not None and until > self.clock.now:
            self._move_clock(until)
        return self

    def _move(self) -> bool:
        """Make one dial or delivery that is possible; false if there is none."""
        if self._dials:
            self._dial(*self._dials.popleft())
            return True
        ready = [place for place in self._ways if self._deliverable(place)]
        if not ready:
            return False
        place = ready[0] if self._rng is None else self._rng.choice(ready)
        way, size = self._ways[place], self._deliverable(place)
        if self._rng is None:  # in turns: others go first next time
            self._ways[place] = self._ways.pop(place)
        if way.pipe.eof_due():
            way.pipe.deliver_eof()
            self._run(way.to.member, Eof(way.to.link))
        else:
            data = way.pipe.take(min(size, max(1, self._chunker(size))))
            self._run(way.to.member, Receive(data, way.to.link))
        self._flush(place.member)  # it may have waited for room
        return True

    def _deliverable(self, place: _Endpoint) -> int:
        """Bytes from `place` that the other end may get now; 1 if only the end is left."""
        way = self._ways[place]
        link = self.members[way.to.member].links[way.to.link]
        if link.closed:
            return 0
        if way.pipe.eof_due():
            return 1
        return min(way.pipe.arrived(self.clock.now), link.read_size())

    def _dial(self, member: str, peer: str) -> None:
        dialling = self._dialling
        there = self.members.get(peer)
        far = None
        if there is not None and there.closed is None:
            far = self._run(peer, dialling.accepted)
        if not isinstance(far, int):
            self._run(member, dialling.failed(peer))
            return
        near = self._run(member, dialling.made(peer))
        if not isinstance(near, int):
            self._run(peer, Eof(far))
            return
        ends = _Endpoint(member, near), _Endpoint(peer, far)
        for place, other in (ends, ends[::-1]):
            self._ways[place] = _Way(other, Pipe(0.0, self._capacity))
            self._ways[place].pipe.allow(self._size_max)
            self._ways[place].pipe.put(self._early.pop(place, b""), self.clock.now)

    def _run(self, member: str, operation: Operation) -> object:
        """Do `operation`; returns a call's result."""
        turns = self.members[member].run(operation)
        self._note(member, turns)
        return turns[0].result

    def _flush(self, member: str) -> None:
        driver = self.members[member]
        self._note(member, [driver.drain(None), *driver.answer()])

    def _note(self, member: str, turns: list[Turn]) -> None:
        for turn in turns:
            if turn.operation is not None or turn.events or turn.effects or turn.links:
                self.log.append((member, turn))
            for event in turn.events:
                if (peer := self._dialling.wanted(event)) is not None:
                    self._dials.append((member, peer))
        for number, link in self.members[member].links.items():
            way = self._ways.get(_Endpoint(member, number))
            if way is not None and link.closed:
                way.pipe.end_unless_full()
                self._ways[way.to].pipe.sink()

    def _take(self, member: str, link: Any) -> bytes:
        place = _Endpoint(member, link.number)
        if place in self._strangers:
            return b""
        if (way := self._ways.get(place)) is not None:
            return way.pipe.fill(link, self.clock.now, self._sizer)
        early: bytes = link.data_to_send()
        self._early[place] = self._early.get(place, b"") + early
        return early

    def _pass_time(self, until: float | None) -> bool:
        times = [
            time
            for driver in self.members.values()
            if driver.closed is None and (time := driver.deadline()) is not None
        ]
        if until is None or not times or min(times) > until:
            return False
        self._move_clock(max(self.clock.now, min(times)))
        return True

    def _move_clock(self, now: float) -> None:
        self.clock.advance_to(now)
        for name, driver in self.members.items():
            self._tell_time(name)
            deadline = driver.deadline()
            if driver.closed is None and deadline is not None and deadline <= now:
                raise EndlessError(f"{name}: told that it is {now}, still waits for {deadline}")

    def _tell_time(self, member: str) -> None:
        driver = self.members[member]
        if driver.is_timed and driver.closed is None:
            self._note(member, driver.run(Advance(self.clock.now)))
