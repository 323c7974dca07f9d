"""The same role has the same file, names and manners in every package."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import culm
from culm.machine import Effect, Event, ProtocolErrorCode
from culm.machines.config import meanings_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCE = Path(culm.__file__).parent

PACKAGES = [
    "bymux",
    "point2point",
    "point2point.replication",
    "oxen",
    "garlic",
    "garlic.raft",
    "ssb",
    "ssb.muxrpc",
    "ssb.ebt",
    "ssb.peer",
    "ssb.history",
    "p2panda",
    "reconcile",
]
FILES = {
    "handles": ["handles", "link"],
    "events": ["events"],
    "effects": ["effects"],
    "states": ["states"],
    "errors": ["errors"],
    "limits": ["limits"],
    "messages": ["messages", "packets", "frames", "notes"],
}
# Their messages belong to no protocol: a format, and those of a layer below.
WITHOUT_MESSAGES = {"ssb", "ssb.peer"}


def exported(package: str) -> list[tuple[str, type[Any]]]:
    """The classes that a package exports and defines itself, by name."""
    module = import_module(f"culm.{package}")
    found = [(name, getattr(module, name)) for name in module.__all__]
    inside = f"culm.{package}."
    return [
        (name, value)
        for name, value in found
        if inspect.isclass(value)
        and value.__module__.startswith(inside)
        and "." not in value.__module__.removeprefix(inside)
    ]


def role_of(name: str, value: type[Any]) -> str | None:
    """The role whose file a class belongs in."""
    if issubclass(value, Event | Effect):
        return "events" if issubclass(value, Event) else "effects"
    if issubclass(value, IntEnum):
        return "errors" if name in {"ErrorCode", "Reason", "DropReason"} else None
    if issubclass(value, Enum):
        return "states" if name.endswith("State") else None
    return "limits" if name.endswith(("Limits", "Timing", "Settings")) else None


def machines(package: str) -> list[type[Any]]:
    found = [value for _, value in exported(package) if hasattr(value, "next_event")]
    if package == "garlic":
        handshake = import_module("culm.garlic.handshake")
        found += [handshake.ClientHandshake, handshake.ServerHandshake]
    return [value for value in found if not value.__name__.endswith("Link")]


MACHINES = [(package, machine) for package in PACKAGES for machine in machines(package)]


def row(package: str) -> str:
    folder = SOURCE.joinpath(*package.split("."))
    modules = dict.fromkeys(value.__module__.split(".")[-1] for value in machines(package))
    cells = [", ".join(f"`{name}`" for name in modules)]
    for role, names in FILES.items():
        there = [name for name in names if (folder / f"{name}.py").exists()]
        if role == "messages" and package in WITHOUT_MESSAGES:
            there = []
        cells.append(", ".join(f"`{name}`" for name in there))
    return "| " + " | ".join([f"`{package}`", *cells]).replace("|  |", "| |") + " |\n"


def test_the_page_says_which_file_has_which_role(request: pytest.FixtureRequest) -> None:
    page = DOCS / "roles.md"
    text = page.read_text(encoding="utf-8")
    head = re.search(r"^\| Package \|.*\n\| --- .*\n", text, flags=re.M)
    assert head is not None
    expected = text[: head.end()] + "".join(map(row, PACKAGES)).replace("  ", " ")
    if request.config.getoption("--rewrite-transcripts"):
        page.write_text(expected, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == expected, "pytest --rewrite-transcripts does it"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_exported_comes_from_the_file_of_its_role(package: str) -> None:
    for name, value in exported(package):
        role = role_of(name, value)
        if role is not None:
            assert value.__module__.split(".")[-1] in FILES[role], name


@pytest.mark.parametrize("package", PACKAGES)
def test_times_are_in_seconds_and_say_so(package: str) -> None:
    for name, value in exported(package):
        if is_dataclass(value) and role_of(name, value) == "limits":
            for field in fields(value):
                is_time = field.name != "parts_per_difference" and field.type == "float"
                assert is_time == field.name.endswith("_s"), f"{name}.{field.name}"
            timed = [field.name for field in fields(value) if field.name.endswith("_s")]
            if name.endswith("Limits"):
                bounds = [each for each in timed if each not in PACE]
                assert all(each.endswith(("_max_s", "_timeout_s")) for each in bounds), timed
            if name == "Timing":  # including those of inner objects
                inner = [each for each in fields(value) if str(each.type).endswith("Timing")]
                assert len(timed) + len(inner) == len(fields(value))


# In limits: the interval of questions to a peer, and the pauses.
PACE = {"keepalive_s", "settle_s", "pause_min_s", "pause_max_s"}


@pytest.mark.parametrize(("package", "machine"), MACHINES, ids=str)
def test_a_machine_is_made_with_keywords_each_of_which_is_explained(
    package: str, machine: type[Any]
) -> None:
    parameters = inspect.signature(machine).parameters.values()
    assert {each.kind for each in parameters} <= {inspect.Parameter.KEYWORD_ONLY}
    explained = meanings_of(inspect.getdoc(machine) or "")
    assert set(explained) == {each.name for each in parameters}
    assert ":param" not in (inspect.getdoc(machine) or "")


def test_every_package_with_rules_has_an_error_code_and_with_one_machine_a_state() -> None:
    for package in PACKAGES:
        module = import_module(f"culm.{package}")
        if (SOURCE.joinpath(*package.split(".")) / "errors.py").exists():
            assert issubclass(module.ErrorCode, ProtocolErrorCode)
        own = [name for name, value in exported(package) if role_of(name, value) == "states"]
        if len(machines(package)) == 1 and own:
            assert "State" in own
