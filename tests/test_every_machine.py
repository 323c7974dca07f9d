"""Every registered machine keeps every law of the contract."""

from __future__ import annotations

import pytest

from culm.testing.spec import MachineSpec
from culm.testing.suite import Property, cases


@pytest.mark.parametrize(("spec", "law"), cases(), ids=str)
def test_machine_keeps_law(spec: MachineSpec, law: Property) -> None:
    law.check(spec)
