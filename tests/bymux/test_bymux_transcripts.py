"""Whole conversations of two machines, as kept in ``tests/transcripts/bymux``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.testing import transcript
from culm.testing.record import play
from culm.testing.spec import Scenario
from specs import spec_of

SPEC = spec_of("bymux")


@pytest.mark.parametrize("scenario", SPEC.usage.scenarios, ids=lambda scenario: scenario.name)
def test_conversation(scenario: Scenario, same_transcript: Callable[[str, str], None]) -> None:
    name = scenario.name.replace(",", "").replace(" ", "-")
    same_transcript(f"bymux/{name}", transcript.of_link(play(SPEC.machine, scenario)))
