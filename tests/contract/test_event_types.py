"""Every machine declares the events and effects it gives: a union that its package exports."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import matches
import pytest

from culm.machine import Closed, Effect, Event
from culm.testing.suite.runs import declared_effects, declared_events

# The packages that export machines; a machine has `next_event` and `close`.
PACKAGES = [
    "culm.bymux",
    "culm.garlic",
    "culm.garlic.handshake",
    "culm.garlic.raft",
    "culm.oxen",
    "culm.p2panda",
    "culm.point2point",
    "culm.point2point.replication",
    "culm.reconcile",
    "culm.ssb",
    "culm.ssb.ebt",
    "culm.ssb.muxrpc",
    "culm.ssb.peer",
]


def machines() -> dict[type[Any], str]:
    """Every machine, and the package that exports it; links do not count."""
    found: dict[type[Any], str] = {}
    for package in PACKAGES:
        module = import_module(package)
        made = [name for name, value in vars(module).items() if is_made_in(value, package, name)]
        for name in getattr(module, "__all__", made):
            value = getattr(module, name)
            is_link = name.endswith("Link")
            if inspect.isclass(value) and hasattr(value, "next_event") and not is_link:
                found[value] = package
    return found


def is_made_in(value: object, module: str, name: str) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module


MACHINES = machines()
LEFT_TO = ["assert_never", "match_raft_event", "match_ebt_event"]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__module__)
def test_a_package_exports_the_unions_of_its_machine(machine: type[Any]) -> None:
    package = import_module(MACHINES[machine].removesuffix(".handshake"))
    unions = [set(get_args(getattr(package, name))) for name in package.__all__]
    for declared, base in ((declared_events(machine), Event), (declared_effects(machine), Effect)):
        assert base not in declared
        assert all(issubclass(each, base) for each in declared)
        if declared:
            assert set(declared) in unions
    assert Closed in declared_events(machine)


def test_a_match_for_every_machine_is_type_checked() -> None:
    functions = [each for each in vars(matches).values() if inspect.isfunction(each)]
    taken = [get_type_hints(function).get("machine") for function in functions]
    matched = {machine for each in taken for machine in get_args(each) or [each]}
    assert matched - {None} == MACHINES.keys()


def test_no_match_has_a_case_for_all() -> None:
    """The remaining cases go to `assert_never` or to another match."""
    tree = ast.parse(Path(matches.__file__).read_text(encoding="utf-8"))
    for case in ast.walk(tree):
        if isinstance(case, ast.match_case) and isinstance(case.pattern, ast.MatchAs):
            name, body = case.pattern.name, ast.unparse(case.body[0])
            assert name is not None
            assert body in {f"{rest}({name})" for rest in LEFT_TO}
