"""The registry of machines, and determinism across processes, which needs it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import toy_distribution

from culm.testing import machines
from culm.testing.machines import UnknownMachineError, is_registered, lookup, names, register
from culm.testing.suite import LeftOutWarning, PropertyError
from culm.testing.suite.processes import processes
from toy_machines import KEEPER, LINES, PINGER


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that has found nothing and looks for nothing."""
    monkeypatch.setattr(machines, "_specs", {})
    monkeypatch.setattr(machines, "_loaded", True)


@pytest.fixture
def with_toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A registry that finds the toys, too, in this process and in others."""
    paths = toy_distribution.install(tmp_path)
    for path in reversed(paths):
        monkeypatch.syspath_prepend(path)
    inherited = os.environ.get("PYTHONPATH")
    every = [*paths, *([inherited] if inherited else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(every))
    monkeypatch.setattr(machines, "_specs", {**machines._specs})
    monkeypatch.setattr(machines, "_loaded", False)
    monkeypatch.setattr(machines, "iter_modules", lambda *_: [])
    # Others that run already have looked for machines, and do not look again.
    suite = sys.modules[processes.__module__]
    monkeypatch.setattr(suite, "_interpreter", cache(suite._interpreter.__wrapped__))


@pytest.mark.usefixtures("empty_registry")
def test_a_machine_is_found_under_its_name() -> None:
    assert register(LINES) is LINES
    register(KEEPER)
    assert lookup("lines") is LINES
    assert names() == ["keeper", "lines"]
    assert machines.specs() == [KEEPER, LINES]
    assert is_registered(LINES)
    assert not is_registered(replace(LINES))


@pytest.mark.usefixtures("empty_registry")
def test_a_name_is_given_once() -> None:
    register(LINES)
    register(LINES)
    with pytest.raises(ValueError, match="'lines' is registered already"):
        register(replace(LINES))


@pytest.mark.usefixtures("empty_registry")
def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownMachineError, match="there are: none"):
        lookup("bynux")
    register(LINES)
    with pytest.raises(UnknownMachineError, match=r"'bynux'; there are: lines"):
        lookup("bynux")


def test_the_machines_of_culm_register_themselves() -> None:
    folder = Path(machines.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    builders = {spec.build.__module__ for spec in machines.specs()}
    assert {f"culm.testing.machines.{module}" for module in modules} <= builders


@pytest.mark.usefixtures("with_toys")
def test_other_packages_register_by_entry_points() -> None:
    assert lookup("pinger") is PINGER
    assert {"keeper", "lines", "pinger", "registers-itself", "unsteady"} <= set(names())


@pytest.mark.usefixtures("with_toys")
def test_conversations_go_the_same_way_under_another_hash_seed() -> None:
    processes(lookup("keeper"))
    with pytest.raises(PropertyError, match="another hash seed"):
        processes(lookup("unsteady"))


def test_what_no_other_process_would_find_is_said_to_be_left_out() -> None:
    with pytest.warns(LeftOutWarning, match="lines was not compared"):
        processes(replace(LINES, conversations=lambda spec: 1 // 0))
