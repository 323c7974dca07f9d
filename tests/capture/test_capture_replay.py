"""Every recording is replayed bit for bit: every machine, every conversation of the suite."""

from __future__ import annotations

from functools import partial

import pytest
from capture_conversations import CASES, recorded

from culm.capture import read, replay
from culm.machines.driver import Driver
from culm.machines.operations import Complete, Operation
from culm.testing.spec import Conversation, MachineSpec


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_a_conversation_is_recorded_and_replayed(spec: MachineSpec, told: Conversation) -> None:
    assert replay(read(recorded(spec, told))) is None


class FullDisk(OSError):
    """A class that a replay does not know."""


def failing(driver: Driver, *, number: int) -> None:
    """Let the store fail to give the answer of that number."""
    apply, left = driver.apply, [number]

    def fail_or_apply(operation: Operation) -> object:
        if isinstance(operation, Complete):
            left[0] -= 1
            if not left[0]:
                return driver.machine.fail(operation.ticket, FullDisk(28, "no space left"))
        return apply(operation)

    driver.apply = fail_or_apply  # type: ignore[method-assign]


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_a_store_that_fails_does_so_again(spec: MachineSpec, told: Conversation) -> None:
    whole = [step.name for step in read(recorded(spec, told))]
    answers = whole.count("complete")
    for number in {1, answers // 2, answers} if answers else ():
        capture = recorded(spec, told, arrange=partial(failing, number=number))
        if any(step.name == "fail" for step in read(capture)):
            assert replay(read(capture)) is None
