"""Every registered machine keeps every law of the contract."""

from __future__ import annotations

import pytest

from culm.testing.spec import MachineSpec
from culm.testing.suite import Property, cases

# What they count is the same on every interpreter, and leaves kernels out.
COUNTED = {"work", "limits"}


@pytest.mark.parametrize(
    ("spec", "law"),
    [
        pytest.param(*case, marks=[pytest.mark.once] if case[1].name in COUNTED else [])
        for case in cases()
    ],
    ids=str,
)
def test_machine_keeps_law(spec: MachineSpec, law: Property) -> None:
    law.check(spec)
