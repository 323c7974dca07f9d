"""The properties of machines that speak with each other, in scenarios and meetings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from culm.machine import Event, LocalProtocolError
from culm.machines import Config, Key, lookup
from culm.machines.driver import Driver
from culm.machines.operations import Call, Eof, Operation, Receive
from culm.testing.link import random_chunks, random_sizes
from culm.testing.mesh import Mesh
from culm.testing.record import joined, meet
from culm.testing.registry import spec_of
from culm.testing.spec import MachineSpec, Meeting, Scenario, Stage
from culm.testing.suite.runs import PropertyError, end, expect_equal, watchdog
from culm.testing.suite.strategies import Draw, conversation, pick

_LATENCY_MAX = 0.001
_DOUBLINGS_MAX = 20
_STAGES_MAX = 3  # for each limit, others for the next one
_REFUSALS = (LocalProtocolError, TypeError, ValueError)


def links(spec: MachineSpec, draw: Draw) -> None:
    """Machines understand each other over every connection.

    However bytes are cut, taken, delayed and held up on their way, all sides see the same
    events (as the spec normalises them) and no call of the script is refused.
    """
    stage = pick(spec.usage.stages, draw)
    seed = draw(st.integers(0, 1 << 32))
    rng = Random(seed)
    options: dict[str, Any] = {
        "chunker": random_chunks(rng),
        "sizer": random_sizes(rng) if rng.random() < 0.5 else None,
        "rng": rng,
        "capacity": 1 << rng.randrange(3, 20),
    }
    plain = joined(spec.machine, stage)
    timed = any(end.driver.is_timed for end in plain.ends.values())
    if isinstance(stage, Scenario) and not timed:
        options["latency"] = (rng.uniform(0, _LATENCY_MAX), 0.0)
    cut = joined(spec.machine, stage, **options)
    if cut.refusal is not None:
        raise PropertyError(cut.refusal)
    owners = dict.fromkeys(plain.ends, spec)
    if isinstance(stage, Scenario) and stage.peer is not None:
        owners["right"] = spec_of(stage.peer)
    for name, owner in owners.items():
        expected, found = (
            owner.comparison.normalise(each.ends[name].events) for each in (plain, cut)
        )
        expect_equal(f"{name} sees other events", expected, found)


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
    plain, visited = meet(spec.machine, meeting), _visited(spec, meeting, visit, at)
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
        found = list[Event]()
        for event in events:
            link = getattr(event, "link", None)
            if not isinstance(link, int) or link < self._link:
                found.append(event)
            elif link > self._link:
                found.append(replace(event, link=link - 1))  # type: ignore[call-arg]
        return found

    def _moved(self, link: int) -> int:
        assert self._link is not None
        return link + (link >= self._link)


def _visited(spec: MachineSpec, meeting: Meeting, visit: _Visit, at: int) -> Mesh:
    mesh = Mesh.of(spec.machine, meeting.members).run()
    for step, (member, operation) in enumerate(meeting.script):
        if step == at:
            visit.begin(mesh)
        mesh.do(member, visit.beside(member, operation))
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


def least(spec: MachineSpec) -> None:
    """With each limit at its least, all scenarios and meetings come to rest.

    Calls may be refused; nothing else is raised, and all members end when they are told to.
    A limit is a key for a whole number with a name that ends in ``_max``.
    """
    stages = spec.usage.stages
    limits = [key for key in spec.machine.keys if key.name.endswith("_max") and key.type is int]
    for number, key in enumerate(limits):
        first = number % len(stages)
        for stage in [*stages[first:], *stages[:first]][:_STAGES_MAX]:
            if (value := _least(spec, key, stage)) is None:
                continue
            try:
                with watchdog():
                    _check_least(spec, stage, {key.name: value})
            except Exception as error:
                error.add_note(f"{stage.name}, with {key.name} = {value}")
                raise


def _least(spec: MachineSpec, key: Key, stage: Stage) -> int | None:
    """The least power of two with which all machines of the stage can be made, if any."""
    for least in (1 << doublings for doublings in range(_DOUBLINGS_MAX)):
        if all(_is_made(spec, {**each, key.name: least}) for each in stage.members.values()):
            return least
    return None


def _is_made(spec: MachineSpec, config: Config) -> bool:
    try:
        spec.machine.make(config)
    except _REFUSALS:
        return False
    return True


def _check_least(spec: MachineSpec, stage: Stage, limit: Config) -> None:
    try:
        drivers = _played(spec, stage, limit)
    except LocalProtocolError as error:
        raise PropertyError(f"raised, though not by a call: {error}") from error
    except ValueError:
        return  # of a call that asks for more than the limit
    for driver in drivers:
        end(driver)


def _played(spec: MachineSpec, stage: Stage, limit: Config) -> list[Driver]:
    if isinstance(stage, Meeting):
        members = {name: {**config, **limit} for name, config in stage.members.items()}
        limited: Stage = replace(stage, members=members)
    else:
        left, right = {**stage.left, **limit}, stage.right
        if stage.peer is None or lookup(stage.peer) is spec.machine:
            right = {**right, **limit}
        limited = replace(stage, left=left, right=right)
    return [end.driver for end in joined(spec.machine, limited).ends.values()]
