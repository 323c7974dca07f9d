"""Sessions in one process progress evenly: none waits for others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import many_sessions


@pytest.mark.once
@pytest.mark.parametrize("name", many_sessions.KINDS)
def test_no_session_waits_for_others(name: str) -> None:
    found = many_sessions.run(name, 30)
    assert found.progress >= 0.5
    assert found.rounds <= 2
