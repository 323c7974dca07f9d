"""The registries of machines and of specs, and determinism across processes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import toy_distribution

import specs as own_specs
from culm.machines import UnknownMachineError, lookup, names, registry
from culm.testing import registry as spec_registry
from culm.testing.registry import register, spec_of, specs
from culm.testing.suite import LeftOutWarning, PropertyError
from culm.testing.suite.processes import processes
from spec_changes import spec_with
from toy_machines import KEEPER, LINES, PINGER


@pytest.fixture
def empty_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries that have found nothing and look for nothing."""
    monkeypatch.setattr(registry, "_types", {})
    monkeypatch.setattr(spec_registry, "_specs", {})
    monkeypatch.setattr(registry, "_loaded", True)
    monkeypatch.setattr(spec_registry, "_loaded", True)


@pytest.fixture
def with_toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registries that find the toys as well, in this process and in others."""
    paths = toy_distribution.install(tmp_path)
    for path in reversed(paths):
        monkeypatch.syspath_prepend(path)
    inherited = os.environ.get("PYTHONPATH")
    every = [*paths, *([inherited] if inherited else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(every))
    monkeypatch.setattr(registry, "_types", {name: lookup(name) for name in names()})
    monkeypatch.setattr(registry, "_loaded", False)
    monkeypatch.setattr(registry, "MODULES", ())
    monkeypatch.setattr(spec_registry, "_specs", {spec.name: spec for spec in specs()})
    monkeypatch.setattr(spec_registry, "_loaded", False)
    # Other registries in use have looked for machines, and do not look again.
    suite = sys.modules[processes.__module__]
    monkeypatch.setattr(suite, "interpreter", cache(suite.interpreter.__wrapped__))


@pytest.mark.usefixtures("empty_registries")
def test_a_spec_and_its_machine_are_found_under_their_name() -> None:
    assert register(LINES) is LINES
    register(KEEPER)
    assert spec_of("lines") is LINES
    assert lookup("lines") is LINES.machine
    assert names() == ["keeper", "lines"]
    assert specs() == [KEEPER, LINES]


@pytest.mark.usefixtures("empty_registries")
def test_a_name_is_given_once() -> None:
    register(LINES)
    register(LINES)
    with pytest.raises(ValueError, match="spec named 'lines' is registered already"):
        register(replace(LINES))
    with pytest.raises(ValueError, match="machine named 'lines' is registered already"):
        registry.register(replace(LINES.machine))


@pytest.mark.usefixtures("empty_registries")
@pytest.mark.parametrize("find", [lookup, spec_of])
def test_an_unknown_name_is_answered_with_the_known_ones(find: object) -> None:
    assert callable(find)
    with pytest.raises(UnknownMachineError, match="there are: none"):
        find("bynux")
    register(LINES)
    with pytest.raises(UnknownMachineError, match=r"'bynux'; there are: lines"):
        find("bynux")


def test_every_module_of_the_registry_has_machines_and_their_specs() -> None:
    builders = {lookup(name).build.__module__ for name in names()}
    assert {f"culm.machines.{module}" for module in registry.MODULES} <= builders
    assert [spec.machine for spec in own_specs.SPECS] == [lookup(each.name) for each in specs()]
    assert {spec.name for spec in own_specs.SPECS} == set(names())


@pytest.mark.usefixtures("with_toys")
def test_other_packages_register_by_entry_points() -> None:
    assert lookup("pinger") is PINGER.machine
    assert spec_of("lines") is LINES
    assert {"pinger", "registers-itself"} <= set(names())
    assert {"keeper", "lines", "registers-itself", "unsteady"} <= {spec.name for spec in specs()}


@pytest.mark.usefixtures("with_toys")
def test_conversations_go_the_same_way_under_another_hash_seed() -> None:
    processes(spec_of("keeper"))
    with pytest.raises(PropertyError, match="another hash seed"):
        processes(spec_of("unsteady"))


def test_what_no_other_process_would_find_is_said_to_be_left_out() -> None:
    with pytest.warns(LeftOutWarning, match="lines was not compared"):
        processes(spec_with(LINES, conversations=lambda spec: 1 // 0))
