"""Whole conversations of two compact sessions, as kept in ``tests/transcripts/reconcile``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.testing import transcript
from culm.testing.machines import Scenario, lookup
from culm.testing.record import play

SPEC = lookup("reconcile-compact")


@pytest.mark.parametrize("scenario", SPEC.scenarios, ids=lambda scenario: scenario.name)
def test_conversation(scenario: Scenario, same_transcript: Callable[[str, str], None]) -> None:
    name = scenario.name.replace(",", "").replace(" ", "-")
    same_transcript(f"reconcile/{name}", transcript.of_link(play(SPEC, scenario)))
