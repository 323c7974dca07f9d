"""Several machines with links, connected with each other in memory.

A machine is connected with each member that it asks to dial; bytes are cut and held up as on a
`culm.testing.link.MachinePair`, and time passes only when nothing else is left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Unpack

from culm.machine import Event
from culm.machines import Config, Dialling, MachineType
from culm.machines.driver import Driver, Turn
from culm.machines.operations import Advance, Eof, Operation
from culm.testing.pipe import JoinedMachines, JoinOptions, Place


class Mesh(JoinedMachines):
    """Joins members as they ask for it, and runs them until they are quiet.

    members: drivers of machines with links, by name.
    dialling: the calls that open links.
    options: see `JoinedMachines`.
    """

    def __init__(
        self, members: Mapping[str, Driver], dialling: Dialling, **options: Unpack[JoinOptions]
    ) -> None:
        super().__init__(members, **options)
        self._dialling = dialling
        self._strangers: set[Place] = set()
        self._early: dict[Place, bytes] = {}  # bytes sent before the connection was there
        self._dials: deque[tuple[str, str]] = deque()  # the dialling member, and the dialled one
        self._start()

    @classmethod
    def of(
        cls, machine: MachineType, members: Mapping[str, Config], **options: Unpack[JoinOptions]
    ) -> Mesh:
        """A mesh of new machines of that type, their stores included."""
        if machine.dialling is None:
            raise ValueError(f"{machine.name} does not say how its links come to be")
        drivers = {name: Driver.of(machine, config) for name, config in members.items()}
        return cls(drivers, machine.dialling, **options)

    def events(self, member: str) -> list[Event]:
        """All events of `member` so far."""
        return self.ends[member].events

    def do(self, member: str, operation: Operation) -> None:
        """Do `operation` to `member`, without running on; `Advance` moves the clock of all."""
        if isinstance(operation, Advance):
            self.run(until=operation.now)
        else:
            self._do(member, operation)

    def admit(self, member: str) -> int | None:
        """Connect a stranger with `member`; returns the link's number, ``None`` if it is refused.

        The stranger's bytes come by `do`; bytes for it are never taken.
        """
        link = self._do(member, self._dialling.accepted)
        if not isinstance(link, int):
            return None
        self._strangers.add(Place(member, link))
        return link

    def _deliver(self) -> bool:
        """Make one dial or delivery that is possible; false if there is none."""
        if not self._dials:
            return super()._deliver()
        self._dial(*self._dials.popleft())
        return True

    def _dial(self, member: str, peer: str) -> None:
        dialling = self._dialling
        there = self.ends.get(peer)
        far = None
        if there is not None and there.driver.closed is None:
            far = self._do(peer, dialling.accepted)
        if not isinstance(far, int):
            self._do(member, dialling.failed(peer))
            return
        near = self._do(member, dialling.made(peer))
        if not isinstance(near, int):
            self._do(peer, Eof(far))
            return
        ends = Place(member, near), Place(peer, far)
        self._join(ends)
        for place in ends:
            self._pipes[place].put(self._early.pop(place, b""), self.clock.now)
            self._note(place.member, [])  # it may be closed already

    def _note(self, name: str, turns: list[Turn]) -> None:
        super()._note(name, turns)
        events = (event for turn in turns for event in turn.events)
        wanted = (self._dialling.wanted(event) for event in events)
        self._dials += [(name, peer) for peer in wanted if peer is not None]

    def _take(self, name: str, source: Any) -> bytes:
        place = Place(name, source.number)
        if place in self._strangers:
            return b""
        if (pipe := self._pipes.get(place)) is not None:
            return pipe.fill(source, self.clock.now, self._sizer)
        early: bytes = source.data_to_send()
        self._early[place] = self._early.get(place, b"") + early
        return early
