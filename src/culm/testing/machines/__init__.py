"""The one registry of machines: every machine of culm, and of packages that join in.

Each module of this package registers the machines of one protocol when it is imported;
other packages name theirs as entry points of the group ``culm.machines`` (a
`MachineSpec`, or a module that registers some).
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

from culm.testing.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Operation,
    Receive,
    ReceiveDatagram,
    call,
)
from culm.testing.spec import (
    AnyMachine,
    Config,
    ConfigError,
    Conversation,
    Dialling,
    Flood,
    Frame,
    Key,
    MachineSpec,
    Meeting,
    Part,
    Responder,
    Scenario,
    Side,
    SpecErrorCode,
    Verb,
    Work,
    close_link,
    keys_of,
)

__all__ = [
    "Advance",
    "AnyMachine",
    "Call",
    "Complete",
    "Config",
    "ConfigError",
    "Conversation",
    "Dialling",
    "Eof",
    "Flood",
    "Frame",
    "Key",
    "MachineSpec",
    "Meeting",
    "Operation",
    "Part",
    "Receive",
    "ReceiveDatagram",
    "Responder",
    "Scenario",
    "Side",
    "SpecErrorCode",
    "UnknownMachineError",
    "Verb",
    "Work",
    "call",
    "close_link",
    "is_registered",
    "keys_of",
    "lookup",
    "names",
    "register",
    "specs",
]

ENTRY_POINT_GROUP = "culm.machines"

_specs: dict[str, MachineSpec] = {}
_loaded = False


class UnknownMachineError(LookupError):
    """No machine of that name is registered."""


def register(spec: MachineSpec) -> MachineSpec:
    """Add `spec`; raises `ValueError` if its name is taken.  Returns it."""
    if _specs.setdefault(spec.name, spec) is not spec:
        raise ValueError(f"a machine named {spec.name!r} is registered already")
    return spec


def is_registered(spec: MachineSpec) -> bool:
    """Whether `spec` itself can be found under its name."""
    return _specs.get(spec.name) is spec


def lookup(name: str) -> MachineSpec:
    """The spec of that name.  Raises `UnknownMachineError`."""
    _load()
    try:
        return _specs[name]
    except KeyError:
        known = ", ".join(names()) or "none"
        raise UnknownMachineError(f"no machine is named {name!r}; there are: {known}") from None


def names() -> list[str]:
    """The names of all machines, sorted."""
    _load()
    return sorted(_specs)


def specs() -> list[MachineSpec]:
    """All specs, sorted by name."""
    return [lookup(name) for name in names()]


def _load() -> None:
    global _loaded
    if _loaded:
        return
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found = entry.load()
        if isinstance(found, MachineSpec):
            register(found)
    _loaded = True
