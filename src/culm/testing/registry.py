"""The specs that the suite checks, by the names of their machines.

Other packages name theirs as entry points of the group ``culm.specs`` (a `MachineSpec`, or a
module that registers some); `load` reads those of a module or a file.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from culm import machines
from culm.machines import UnknownMachineError
from culm.testing.spec import MachineSpec

_ENTRY_POINT_GROUP = "culm.specs"

_specs: dict[str, MachineSpec] = {}
_loaded = False


def register(spec: MachineSpec) -> MachineSpec:
    """Add `spec`, and its machine to the registry of machines.  Returns `spec`.

    Raises `ValueError` if the name of either is taken.
    """
    machines.register(spec.machine)
    if _specs.setdefault(spec.name, spec) is not spec:
        raise ValueError(f"a spec named {spec.name!r} is registered already")
    return spec


def spec_of(name: str) -> MachineSpec:
    """The spec of the machine with that name.  Raises `UnknownMachineError`."""
    for spec in specs():
        if spec.name == name:
            return spec
    known = ", ".join(map(str, specs())) or "none"
    raise UnknownMachineError(f"no machine with a spec is named {name!r}; there are: {known}")


def specs() -> list[MachineSpec]:
    """All specs, sorted by name."""
    _load_entry_points()
    return [_specs[name] for name in sorted(_specs)]


def load(place: str) -> None:
    """Import a module that registers specs: its name, or the path of a module or a package.

    The folder around a path is put on ``sys.path``, where the module finds its neighbours.
    Raises ``ImportError``.
    """
    path = Path(place)
    if not path.exists():
        import_module(place)
        return
    sys.path.insert(0, str(path.resolve().parent))
    import_module(path.stem)


def _load_entry_points() -> None:
    global _loaded
    if _loaded:
        return
    for entry in entry_points(group=_ENTRY_POINT_GROUP):
        found = entry.load()
        if isinstance(found, MachineSpec):
            register(found)
    _loaded = True
