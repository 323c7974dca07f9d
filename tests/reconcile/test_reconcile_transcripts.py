"""Whole conversations of two sessions, as kept in ``tests/transcripts/reconcile``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.testing import transcript
from culm.testing.record import play
from culm.testing.spec import MachineSpec, Scenario
from specs import spec_of

SCENARIOS = [
    (spec, scenario)
    for spec in (spec_of("reconcile-compact"), spec_of("reconcile-plain"))
    for scenario in spec.usage.scenarios
]


def file_name(spec: MachineSpec, scenario: Scenario) -> str:
    kind = "plain " if spec.name == "reconcile-plain" else ""
    return f"{kind}{scenario.name}".replace(",", "").replace(" ", "-")


@pytest.mark.parametrize(
    ("spec", "scenario"), SCENARIOS, ids=[file_name(*each) for each in SCENARIOS]
)
def test_conversation(
    spec: MachineSpec, scenario: Scenario, same_transcript: Callable[[str, str], None]
) -> None:
    same_transcript(
        f"reconcile/{file_name(spec, scenario)}", transcript.of_link(play(spec.machine, scenario))
    )
