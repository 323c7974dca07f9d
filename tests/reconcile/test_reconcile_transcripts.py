"""Whole conversations of two sessions, as kept in ``tests/transcripts/reconcile``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.testing import transcript
from culm.testing.machines import MachineSpec, Scenario, lookup
from culm.testing.record import play

SCENARIOS = [
    (spec, scenario)
    for spec in (lookup("reconcile-compact"), lookup("reconcile-plain"))
    for scenario in spec.scenarios
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
        f"reconcile/{file_name(spec, scenario)}", transcript.of_link(play(spec, scenario))
    )
