"""All machines by name: those of culm and of other packages."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from culm.machines.machine_type import MachineType

ENTRY_POINT_GROUP = "culm.machines"

#: The modules of this package that register machines when they are imported.
MODULES = (
    *("bymux", "garlic", "garlic_node", "oxen", "p2panda", "point2point", "raft", "reconcile"),
    *("replication", "ssb", "ssb_ebt", "ssb_muxrpc", "ssb_peer"),
)

_types: dict[str, MachineType] = {}
_loaded = False


class UnknownMachineError(LookupError):
    """No machine of that name is registered."""


def register(machine: MachineType) -> MachineType:
    """Add `machine`; raises `ValueError` if its name is taken.  Returns it."""
    if _types.setdefault(machine.name, machine) is not machine:
        raise ValueError(f"a machine named {machine.name!r} is registered already")
    return machine


def lookup(name: str) -> MachineType:
    """The machine with that name.  Raises `UnknownMachineError`."""
    _load()
    try:
        return _types[name]
    except KeyError:
        known = ", ".join(names()) or "none"
        raise UnknownMachineError(f"no machine is named {name!r}; there are: {known}") from None


def names() -> list[str]:
    """The names of all machines, sorted."""
    _load()
    return sorted(_types)


def _load() -> None:
    global _loaded
    if _loaded:
        return
    for module in MODULES:
        import_module(f"culm.machines.{module}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found = entry.load()
        if isinstance(found, MachineType):
            register(found)
    _loaded = True
