"""Every recording is replayed bit for bit: every machine, every conversation of the suite."""

from __future__ import annotations

import pytest
from capture_conversations import CASES, recorded

from culm.capture import read, replay
from culm.testing.spec import Conversation, MachineSpec


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_a_conversation_is_recorded_and_replayed(spec: MachineSpec, told: Conversation) -> None:
    assert replay(read(recorded(spec, told))) is None
