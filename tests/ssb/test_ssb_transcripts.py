"""Whole conversations of two machines, as kept in ``tests/transcripts/ssb``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.testing import transcript
from culm.testing.machines import MachineSpec, Scenario, lookup
from culm.testing.record import play

SPECS = [lookup(name) for name in ("ssb-handshake", "ssb-box-stream", "ssb-muxrpc")]


@pytest.mark.parametrize(
    ("spec", "scenario"),
    [(spec, scenario) for spec in SPECS for scenario in spec.scenarios],
    ids=lambda value: value.name,
)
def test_conversation(
    spec: MachineSpec, scenario: Scenario, same_transcript: Callable[[str, str], None]
) -> None:
    name = scenario.name.replace(",", "").replace(" ", "-")
    same_transcript(f"ssb/{spec.name}-{name}", transcript.of_link(play(spec, scenario)))
