"""Every registered machine keeps every law of the contract."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

import effort
from culm.testing.spec import MachineSpec
from culm.testing.suite import Property, cases
from specs import SPECS

# The counts are the same on every interpreter, and do not include kernels.
COUNTED = {"alike", "least", "limits", "work"}

_USUAL = settings.get_profile(effort.PROFILE)
settings.register_profile("known", _USUAL, phases=[Phase.generate], derandomize=True, database=None)

# Machine and law: known faults being mended. An entry whose machine keeps the law is a failure.
KNOWN_BREACHES: set[tuple[str, str]] = set()


def _marks(spec: MachineSpec, law: Property) -> list[pytest.MarkDecorator]:
    known = (spec.name, law.name) in KNOWN_BREACHES
    marks = [pytest.mark.xfail(strict=True, raises=AssertionError)] if known else []
    return [*marks, *([pytest.mark.once] if law.name in COUNTED else [])]


@pytest.mark.parametrize(
    ("spec", "law"), [pytest.param(*case, marks=_marks(*case)) for case in cases(SPECS)], ids=str
)
def test_machine_keeps_law(spec: MachineSpec, law: Property) -> None:
    if (spec.name, law.name) in KNOWN_BREACHES:
        settings.load_profile("known")
    try:
        law.check(spec)
    finally:
        settings.load_profile(effort.PROFILE)


def test_known_breaches_are_of_machines_and_laws_that_there_are() -> None:
    assert {(spec.name, law.name) for spec, law in cases(SPECS)} >= KNOWN_BREACHES
