"""Conversations from runs of two machines, and runs of conversations."""

from __future__ import annotations

from functools import cache
from typing import Any, Unpack

from culm.machines import MachineType, lookup
from culm.machines.driver import Driver, Turn
from culm.machines.operations import Complete
from culm.testing.link import MachinePair, PairOptions
from culm.testing.mesh import Mesh
from culm.testing.pipe import JoinedMachines, JoinOptions
from culm.testing.spec import Conversation, MachineSpec, Meeting, Scenario, Stage


def play(machine: MachineType, scenario: Scenario, **options: Unpack[PairOptions]) -> MachinePair:
    """Run `scenario` over a new `MachinePair` with the `options`, and return the link."""
    peer = machine if scenario.peer is None else lookup(scenario.peer)
    drivers = Driver.of(machine, scenario.left), Driver.of(peer, scenario.right)
    link = MachinePair(*drivers, **options).run()
    for side, operation in scenario.script:
        link.do(side, operation)
        link.run()
    return link


def meet(machine: MachineType, meeting: Meeting, **options: Unpack[JoinOptions]) -> Mesh:
    """Run `meeting` in a new `Mesh` with the `options`, and return the mesh."""
    mesh = Mesh.of(machine, meeting.members, **options).run()
    for member, operation in meeting.script:
        mesh.do(member, operation)
        mesh.run()
    return mesh


def joined(machine: MachineType, stage: Stage, **options: Any) -> JoinedMachines:
    """`play` a scenario, or `meet`."""
    if isinstance(stage, Meeting):
        return meet(machine, stage, **options)
    return play(machine, stage, **options)


def record(machine: MachineType, stage: Stage) -> list[Conversation]:
    """The conversations of all members of `stage`; of a scenario, those of left and right.

    Raises `AssertionError` if a call of the script is refused: then the stage is not valid.
    """
    played = joined(machine, stage)
    if played.refusal is not None:
        kind = type(stage).__name__.lower()
        raise AssertionError(f"{machine.name}, {kind} {stage.name}: {played.refusal}")
    return [
        Conversation(
            name=f"{stage.name}/{name}", config=config, operations=played.ends[name].operations
        )
        for name, config in stage.members.items()
    ]


@cache
def conversations(spec: MachineSpec) -> list[Conversation]:
    """All valid conversations of `spec`: its own and those of its scenarios and meetings."""
    found = list(spec.usage.conversations(spec))
    for stage in spec.usage.stages:
        told = record(spec.machine, stage)
        is_mixed = isinstance(stage, Scenario) and stage.peer not in {None, spec.name}
        found += told[:1] if is_mixed else told
    return found


def driver_for(machine: MachineType, conversation: Conversation) -> Driver:
    """A driver of a new machine for `conversation`.

    Effects are answered by the registry's store, unless the conversation answers its own.
    """
    answers = any(isinstance(operation, Complete) for operation in conversation.operations)
    return Driver.of(machine, conversation.config, respond=not answers)


def replay(machine: MachineType, conversation: Conversation) -> list[Turn]:
    """Run `conversation` with a new machine; returns all turns, first that before any input."""
    return driver_for(machine, conversation).tell(conversation.operations)
