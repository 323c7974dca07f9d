"""Whole conversations of p2panda's machines, as kept in ``tests/transcripts/p2panda``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.testing import transcript
from culm.testing.record import play
from culm.testing.spec import MachineSpec, Scenario
from specs import spec_of

SCENARIOS = [
    (spec, scenario)
    for spec in (spec_of("p2panda"), spec_of("p2panda-replicator"))
    for scenario in spec.usage.scenarios
]


def file_name(spec: MachineSpec, scenario: Scenario) -> str:
    kind = spec.name.removeprefix("p2panda").removeprefix("-")
    return f"{kind} {scenario.name}".strip().replace(",", "").replace(" ", "-")


@pytest.mark.parametrize(
    ("spec", "scenario"), SCENARIOS, ids=[file_name(*each) for each in SCENARIOS]
)
def test_conversation(
    spec: MachineSpec, scenario: Scenario, same_transcript: Callable[[str, str], None]
) -> None:
    same_transcript(
        f"p2panda/{file_name(spec, scenario)}", transcript.of_link(play(spec.machine, scenario))
    )
