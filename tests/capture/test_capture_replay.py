"""Whatever is recorded is replayed bit for bit: every machine, every conversation of the suite."""

from __future__ import annotations

import pytest

from culm.capture import Recorder, read, replay
from culm.testing.record import conversations, driver_for
from culm.testing.spec import Conversation, MachineSpec
from specs import SPECS

CASES = [
    pytest.param(spec, told, id=f"{spec.name}-{told.name}")
    for spec in SPECS
    for told in conversations(spec)
]


def recorded(spec: MachineSpec, told: Conversation) -> tuple[bytes, list[object]]:
    """The capture of a conversation, and all that came of it."""
    pieces: list[bytes] = []
    driver = driver_for(spec.machine, told)
    recorder = Recorder(pieces.append, machine=spec.name, config=told.config)
    driver.wrap(recorder.stand_in(driver.machine))
    driver.call_by(recorder.verb)
    turns = driver.start()
    for operation in told.operations:
        turns += driver.run(operation)
    recorder.flush()
    return b"".join(pieces), list(turns)


@pytest.mark.parametrize(("spec", "told"), CASES)
def test_a_conversation_is_recorded_and_replayed(spec: MachineSpec, told: Conversation) -> None:
    capture, _ = recorded(spec, told)
    assert replay(read(capture)) is None
