"""The property that a connection on which nothing moves holds up no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from culm.machine import Event
from culm.machines.operations import Call, Eof, Operation, Receive
from culm.testing.mesh import Mesh
from culm.testing.spec import MachineSpec, Meeting
from culm.testing.suite.runs import PropertyError, expect_equal
from culm.testing.suite.strategies import Draw, conversation, pick


def alone(spec: MachineSpec, draw: Draw) -> None:
    """A waiting connection waits alone, and one that has gone leaves no trace.

    At some step of a meeting a stranger connects with a member, takes no bytes, and sends none,
    or a message that never becomes whole; it hangs up, or stays.
    The members see the same events as without it, as the spec normalises them.
    """
    meeting = pick(spec.usage.meetings, draw)
    member = pick(sorted(meeting.members), draw)
    at = draw(st.integers(0, len(meeting.script) - 1))
    visit = _Visit(member, _said(spec, draw), hangs_up=draw(st.booleans()))
    plain, visited = _meet(spec, meeting), _meet(spec, meeting, visit, at)
    for name in meeting.members:
        expected = spec.comparison.normalise(plain.events(name))
        found = spec.comparison.normalise(visit.overlooked(name, visited.events(name)))
        expect_equal(
            f"{meeting.name}: {visit} before step {at}, and {name} sees other events",
            expected,
            found,
        )


class _Visit:
    """A stranger's connection with a member."""

    def __init__(self, member: str, said: bytes, *, hangs_up: bool) -> None:
        self._member, self._said, self._hangs_up = member, said, hangs_up
        self._link: int | None = None

    def __str__(self) -> str:
        end = "hung up" if self._hangs_up else "stayed"
        return f"a stranger said {self._said!r:.80} to {self._member} and {end}"

    def begin(self, mesh: Mesh) -> None:
        self._link = mesh.admit(self._member)
        if self._link is None:
            return
        mesh.do(self._member, Receive(self._said, self._link))
        if self._hangs_up:
            mesh.do(self._member, Eof(self._link))
        mesh.run()

    def beside(self, member: str, operation: Operation) -> Operation:
        """The operation with links renumbered, as the stranger's link has a number, too."""
        if self._link is None or member != self._member:
            return operation
        if isinstance(operation, (Receive, Eof)) and operation.link is not None:
            return replace(operation, link=self._moved(operation.link))
        if isinstance(operation, Call) and isinstance(operation.args.get("link"), int):
            link = self._moved(operation.args["link"])
            return replace(operation, args={**operation.args, "link": link})
        return operation

    def overlooked(self, member: str, events: Sequence[Event]) -> list[Event]:
        """The events of other links than the stranger's, with their numbers without it."""
        if self._link is None or member != self._member:
            return list(events)
        beside = [event for event in events if getattr(event, "link", None) != self._link]
        return [self._renumbered(event) for event in beside]

    def _renumbered(self, event: Event) -> Event:
        link = getattr(event, "link", None)
        if self._link is None or not isinstance(link, int) or link < self._link:
            return event
        return replace(event, link=link - 1)  # type: ignore[call-arg]

    def _moved(self, link: int) -> int:
        assert self._link is not None
        return link + (link >= self._link)


def _meet(
    spec: MachineSpec, meeting: Meeting, visit: _Visit | None = None, at: int | None = None
) -> Mesh:
    mesh = Mesh.of(spec.machine, meeting.members).run()
    for step, (member, operation) in enumerate(meeting.script):
        if visit is not None and step == at:
            visit.begin(mesh)
        mesh.do(member, operation if visit is None else visit.beside(member, operation))
        mesh.run()
    accepted = spec.machine.dialling.accepted if spec.machine.dialling is not None else None
    for member, turn in mesh.log:
        if turn.error is not None and turn.operation != accepted:
            raise PropertyError(f"{visit}: {member} refused {turn.operation}: {turn.error}")
    return mesh


def _said(spec: MachineSpec, draw: Draw) -> bytes:
    """The beginning of a message, perhaps empty."""
    heard = [op.data for op in conversation(spec, draw).operations if isinstance(op, Receive)]
    parts = [part for data in heard for part in spec.machine.codec.cut(data)]
    whole = pick(parts, draw) if parts else b""
    return whole[: draw(st.integers(0, max(0, len(whole) - 1)))]
