"""Whoever verifies signatures, and whenever: the same events, and the same in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from culm.machine import Effect, Event
from culm.machines import Advance, Call, Complete, Operation, Receive
from culm.machines.driver import Driver
from culm.signatures import Verify
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import finish
from culm.testing.suite.strategies import Draw, chunks, conversation, mutated
from specs import SPECS

MACHINES = [spec for spec in SPECS if any(key.name == "verifying_max" for key in spec.machine.keys)]


class Late:
    """A driver that answers a `Verify` late, and in any order."""

    def __init__(self, spec: MachineSpec, told: Conversation, verifying_max: int) -> None:
        config = {**told.config, "verifying_max": verifying_max}
        self.driver = Driver.of(spec.machine, config)
        respond = self.driver.respond
        assert respond is not None
        self.respond = respond
        self.driver.answer_by(None)
        self.spec = spec
        self.events: list[Event] = []
        self.kept: list[Any] = []
        self.verified = 0
        self._note(self.driver.drain(None))

    def _note(self, turn: Any) -> None:
        self.events += turn.events
        keeps = self.spec.comparison.kept
        for effect in turn.effects:
            self.kept += [] if keeps is None else keeps(effect)

    def do(self, operation: Operation) -> None:
        self._note(self.driver.do(operation))
        self.answer_store()

    def answer_store(self) -> None:
        while others := [each for each in self.driver.unanswered if not isinstance(each, Verify)]:
            self._answer(others[0])

    def _answer(self, effect: Effect[Any]) -> None:
        turn = self.driver.do(Complete(effect.ticket, self.respond(effect)))
        assert turn.error is None
        self._note(turn)

    def verify(self, draw: Draw, *, every: bool) -> None:
        """Answer some of what is to be verified, or all that is and will be."""
        while waiting := [each for each in self.driver.unanswered if isinstance(each, Verify)]:
            if not every and not draw(st.booleans()):
                return
            effect = draw(st.sampled_from(waiting))
            self.verified += len(effect.signatures)
            self._answer(effect)
            self.answer_store()

    def end(self, draw: Draw) -> None:
        self.verify(draw, every=True)
        self.driver.answer_by(self.respond)
        for turn in finish(self.driver):
            self._note(turn)


def tell(late: Late, story: Sequence[Operation], draw: Draw) -> Late:
    for operation in story:
        if isinstance(operation, Receive):
            for chunk in chunks(operation.data, draw, single_max=64):
                late.do(Receive(chunk, operation.link))
                late.verify(draw, every=False)
        else:
            late.verify(draw, every=True)
            late.do(operation)
    late.end(draw)
    return late


def at_once(spec: MachineSpec, told: Conversation, story: Sequence[Operation]) -> Late:
    plain = Late(spec, told, 0)
    for operation in story:
        plain.do(operation)
    plain.end(lambda strategy: None)
    return plain


def check_alike(plain: Late, late: Late) -> None:
    assert plain.verified == 0
    assert late.events == plain.events
    assert late.kept == plain.kept


@pytest.mark.parametrize("spec", MACHINES, ids=str)
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whoever_verifies_and_whenever_the_events_and_the_store_are_the_same(
    spec: MachineSpec, data: st.DataObject
) -> None:
    told = conversation(spec, data.draw)
    story = list(told.operations)
    if data.draw(st.booleans()):
        story = mutated(story, data.draw)
    count_max = data.draw(st.sampled_from([1, 2, 7, 64, 4096]))
    late = tell(Late(spec, told, count_max), story, data.draw)
    check_alike(at_once(spec, told, story), late)


@pytest.mark.parametrize("spec", MACHINES, ids=str)
def test_drivers_are_asked_to_verify(spec: MachineSpec) -> None:
    """The law above says something about each of these machines."""

    def draw(strategy: Any) -> Any:
        return True

    asked = []
    for told in conversations(spec):
        late = Late(spec, told, 64)
        for operation in told.operations:
            late.do(operation)
            while waiting := [each for each in late.driver.unanswered if isinstance(each, Verify)]:
                asked.append(len(waiting[0].signatures))
                late._answer(waiting[0])
                late.answer_store()
    assert sum(asked)


def test_no_action_of_the_user_is_left_out() -> None:
    """What a driver does after all verdicts: calls and the time."""
    operations = [
        operation
        for spec in MACHINES
        for told in conversations(spec)
        for operation in told.operations
    ]
    assert {Call, Advance} <= set(map(type, operations))
