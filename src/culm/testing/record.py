"""Conversations from runs of two machines, and runs of conversations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, Unpack

from culm.machines import Config, MachineType, lookup
from culm.machines.driver import Driver, Turn
from culm.machines.operations import Complete
from culm.testing.link import MachinePair, PairOptions
from culm.testing.mesh import Mesh
from culm.testing.pipe import JoinedMachines, JoinOptions
from culm.testing.spec import Conversation, MachineSpec, Meeting, Scenario, Stage


class Recording(NamedTuple):
    """Both sides of a scenario, each a valid conversation for its machine."""

    left: Conversation
    right: Conversation


def play(machine: MachineType, scenario: Scenario, **options: Unpack[PairOptions]) -> MachinePair:
    """Run `scenario` over a new `MachinePair` with the `options`, and return the link."""
    peer = machine if scenario.peer is None else lookup(scenario.peer)
    link = MachinePair.of(machine, scenario.left, peer, scenario.right, **options).run()
    for side, operation in scenario.script:
        link.do(side, operation)
        link.run()
    return link


def record(machine: MachineType, scenario: Scenario) -> Recording:
    """The two conversations in `scenario`.

    Raises `AssertionError` if a call of the script is refused: then the scenario is not valid.
    """
    configs = {"left": scenario.left, "right": scenario.right}
    return Recording(*_recorded(machine, scenario, play(machine, scenario), configs))


def meet(machine: MachineType, meeting: Meeting, **options: Unpack[JoinOptions]) -> Mesh:
    """Run `meeting` in a new `Mesh` with the `options`, and return the mesh."""
    mesh = Mesh.of(machine, meeting.members, **options).run()
    for member, operation in meeting.script:
        mesh.do(member, operation)
        mesh.run()
    return mesh


def record_meeting(machine: MachineType, meeting: Meeting) -> list[Conversation]:
    """The conversations of all members.  Raises `AssertionError` if a call is refused."""
    return _recorded(machine, meeting, meet(machine, meeting), meeting.members)


def _recorded(
    machine: MachineType, of: Stage, joined: JoinedMachines, configs: Mapping[str, Config]
) -> list[Conversation]:
    if joined.refusal is not None:
        kind = type(of).__name__.lower()
        raise AssertionError(f"{machine.name}, {kind} {of.name}: {joined.refusal}")
    return [
        Conversation(
            name=f"{of.name}/{name}", config=config, operations=joined.ends[name].operations
        )
        for name, config in configs.items()
    ]


@cache
def conversations(spec: MachineSpec) -> list[Conversation]:
    """All valid conversations of `spec`: its own and those of its scenarios and meetings."""
    found = list(spec.usage.conversations(spec))
    for scenario in spec.usage.scenarios:
        left, right = record(spec.machine, scenario)
        found += [left] if scenario.peer not in {None, spec.name} else [left, right]
    for meeting in spec.usage.meetings:
        found += record_meeting(spec.machine, meeting)
    return found


def driver_for(machine: MachineType, conversation: Conversation) -> Driver:
    """A driver of a new machine for `conversation`.

    Effects are answered by the registry's store, unless the conversation answers its own.
    """
    answers = any(isinstance(operation, Complete) for operation in conversation.operations)
    return Driver.of(machine, conversation.config, respond=not answers)


def replay(machine: MachineType, conversation: Conversation) -> list[Turn]:
    """Run `conversation` with a new machine; returns all turns, first that before any input."""
    driver = driver_for(machine, conversation)
    return driver.tell(conversation.operations)
