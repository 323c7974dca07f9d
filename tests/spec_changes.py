"""A spec with some fields changed, whichever of its groups they are in."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from culm.machines import MachineType
from culm.testing.spec import MachineSpec

GROUPS = ("bounds", "usage", "attacks", "comparison")


def machine_with(machine: MachineType, **changes: Any) -> MachineType:
    """The machine with these fields changed, its own or its codec's."""
    of_codec = _taken(changes, machine.codec)
    return replace(machine, codec=replace(machine.codec, **of_codec), **changes)


def spec_with(spec: MachineSpec, **changes: Any) -> MachineSpec:
    """The spec with these fields changed, in any of its groups or in its machine."""
    groups = {name: getattr(spec, name) for name in GROUPS}
    made = {name: replace(group, **_taken(changes, group)) for name, group in groups.items()}
    return replace(spec, machine=machine_with(spec.machine, **changes), **made)


def _taken(changes: dict[str, Any], group: Any) -> dict[str, Any]:
    """Take from the changes those that are fields of the group."""
    names = {field.name for field in fields(group)}
    return {name: changes.pop(name) for name in names & changes.keys()}
