"""The property suite passes machines that keep the contract and catches those that do not."""

from __future__ import annotations

import re
import runpy
import sys

import broken_answers  # noqa: F401
import broken_limits  # noqa: F401
import broken_links  # noqa: F401
import broken_work  # noqa: F401
import pytest
from broken_machines import CANARIES, Canary
from hypothesis import strategies as st

import toy_links
import toy_machines
from culm.machines.driver import EndlessError
from culm.testing import suite
from culm.testing.spec import MachineSpec
from culm.testing.suite import PROPERTIES, LeftOutWarning, Property, PropertyError, check_machine
from culm.testing.suite.strategies import Draw
from spec_changes import spec_with

LAWS = {law.name: law for law in PROPERTIES}


@pytest.mark.costly
@pytest.mark.parametrize("law", PROPERTIES, ids=str)
@pytest.mark.parametrize("spec", [*toy_machines.ALL, toy_links.CHAT], ids=str)
def test_toys_keep_every_law(spec: MachineSpec, law: Property) -> None:
    check_machine(spec, [law])


@pytest.mark.filterwarnings("ignore::culm.testing.suite.LeftOutWarning")
@pytest.mark.usefixtures("canary_profile")
@pytest.mark.parametrize("canary", CANARIES, ids=str)
def test_law_catches(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "EXAMPLE_SECONDS_MAX", canary.patience)
    law = LAWS[canary.law]
    assert law.applies(canary.spec)
    with pytest.raises((PropertyError, EndlessError, IndexError), match=canary.complaint):
        law.check(canary.spec)


def test_every_law_has_a_canary() -> None:
    assert {canary.law for canary in CANARIES} == set(LAWS)


def test_what_no_other_process_finds_is_said_to_be_left_out() -> None:
    with pytest.warns(LeftOutWarning, match="nameless was not compared"):
        check_machine(spec_with(toy_machines.LINES, name="nameless"), [LAWS["determinism"]])


def test_a_failing_example_is_made_smaller_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the search is over, and the smallest example found is reported."""

    def found_in(seconds: float) -> tuple[str, list[int]]:
        monkeypatch.setattr(suite, "SHRINK_SECONDS_MAX", seconds)
        failed: list[int] = []

        def check(spec: MachineSpec, draw: Draw) -> None:
            size = draw(st.integers(0, 1 << 20))
            if size > 1000:
                failed.append(size)
                raise PropertyError(f"broken at {size}")

        with pytest.raises(PropertyError) as broken:
            Property(check).search(toy_machines.LINES, 100, chance=7)
        return str(broken.value).splitlines()[0], failed

    assert found_in(60.0)[0] == "broken at 1001"
    told, failed = found_in(0.0)
    assert [told] == [f"broken at {size}" for size in failed]


def test_without_hypothesis_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install 'culm[testing]'")):
        runpy.run_path(str(suite.__file__))
