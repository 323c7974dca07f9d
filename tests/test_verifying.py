"""Signatures may be verified by anyone, at any time: the same events, and the same store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from culm.machine import Effect, Event, LocalProtocolError
from culm.machines import Advance, Call, Complete, Operation, Receive
from culm.machines.driver import Driver
from culm.signatures import Verify
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import finish
from culm.testing.suite.strategies import Draw, chunks, conversation, mutated
from specs import SPECS, spec_of

MACHINES = [spec for spec in SPECS if any(key.name == "verifying_max" for key in spec.machine.keys)]


class Late:
    """A driver that answers `Verify` late, and in any order.

    It takes bytes, and lets the store answer, only once everything that came together is verified:
    these are inputs and choices of its own.
    """

    def __init__(self, spec: MachineSpec, told: Conversation, verifying_max: int) -> None:
        config = {**told.config, "verifying_max": verifying_max}
        self.driver = Driver.of(spec.machine, config)
        respond = self.driver.respond
        assert respond is not None
        self.respond = respond
        self.driver.answer_by(None)
        self.events: list[Event] = []
        self.kept: list[Any] = []
        self.verified: list[int] = []
        self._kept = spec.comparison.kept
        self._come_to_rest(at_once)

    def tell(self, operation: Operation, draw: Draw) -> None:
        with suppress(LocalProtocolError):  # the peer has ended the subject of the question
            self.driver.apply(operation)
        self._come_to_rest(draw)

    def tell_in_chunks(self, operation: Receive, draw: Draw) -> None:
        for chunk in chunks(operation.data, draw, single_max=64):
            with suppress(LocalProtocolError):  # after the end
                self.driver.apply(Receive(chunk, operation.link))
            self._listen()
            while self._waiting() and draw(st.booleans()):
                self._verify(draw)
        self._come_to_rest(draw)

    def _listen(self) -> None:
        """Take events and effects until there are none."""
        while True:
            events, _ = self.driver.take_events()
            effects = self.driver.take_effects()
            self.events += events
            for effect in effects:
                self.kept += [] if self._kept is None else self._kept(effect)
            if not (events or effects):
                return

    def _waiting(self) -> list[Verify]:
        return [each for each in self.driver.unanswered if isinstance(each, Verify)]

    def _verify(self, draw: Draw) -> None:
        effect = draw(st.sampled_from(self._waiting()))
        self.verified.append(len(effect.signatures))
        self._answer(effect)

    def _answer(self, effect: Effect[Any]) -> None:
        self.driver.apply(Complete(effect.ticket, self.respond(effect)))
        self._listen()

    def _come_to_rest(self, draw: Draw) -> None:
        self._listen()
        while True:
            while self._waiting():
                self._verify(draw)
            sent = self.driver.take_bytes() or self.driver.take_links()
            self._listen()
            if self._waiting() or sent:
                continue
            if not self.driver.unanswered:
                return
            self._answer(self.driver.unanswered[0])

    def end(self) -> Late:
        self.driver.answer_by(self.respond)
        self.events += [event for turn in finish(self.driver) for event in turn.events]
        return self


def at_once(strategy: Any) -> Any:
    """The first option, at every choice."""
    return strategy.elements[0] if hasattr(strategy, "elements") else True


def told_late(
    spec: MachineSpec, told: Conversation, story: Sequence[Operation], count_max: int, draw: Draw
) -> Late:
    late = Late(spec, told, count_max)
    for operation in story:
        if isinstance(operation, Receive):
            late.tell_in_chunks(operation, draw)
        else:
            late.tell(operation, draw)
    return late.end()


def told_plainly(spec: MachineSpec, told: Conversation, story: Sequence[Operation]) -> Late:
    plain = Late(spec, told, 0)
    for operation in story:
        plain.tell(operation, at_once)
    return plain.end()


@pytest.mark.parametrize("name", [spec.name for spec in MACHINES])  # specs are long to print
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whoever_verifies_and_whenever_the_events_and_the_store_are_the_same(
    name: str, data: st.DataObject
) -> None:
    spec = spec_of(name)
    told = conversation(spec, data.draw)
    story = list(told.operations)
    if data.draw(st.booleans()):
        story = mutated(story, data.draw)
    count_max = data.draw(st.sampled_from([1, 2, 7, 64, 4096]))
    late = told_late(spec, told, story, count_max, data.draw)
    plain = told_plainly(spec, told, story)
    normalise = spec.comparison.normalise
    assert normalise(late.events) == normalise(plain.events)
    assert late.kept == plain.kept
    assert not plain.verified


@pytest.mark.parametrize("spec", MACHINES, ids=str)
def test_drivers_are_asked_to_verify_what_has_come_whatever_the_chunks(spec: MachineSpec) -> None:
    """Each of these machines asks its driver to verify, so that the test above proves something."""
    asked = []
    for told in conversations(spec):
        whole, bytewise = Late(spec, told, 64), Late(spec, told, 64)
        for operation in told.operations:
            whole.tell(operation, at_once)
            if isinstance(operation, Receive):
                for byte in operation.data:
                    bytewise.driver.apply(Receive(bytes([byte]), operation.link))
                    bytewise.events += bytewise.driver.take_events()[0]
                bytewise.tell(Receive(b"", operation.link), at_once)
            else:
                bytewise.tell(operation, at_once)
        assert bytewise.verified == whole.verified
        asked += whole.verified
    assert max(asked) > 1


def test_no_action_of_the_user_is_left_out() -> None:
    """A driver acts after all verdicts: calls, and the passing of time."""
    operations = [
        operation
        for spec in MACHINES
        for told in conversations(spec)
        for operation in told.operations
    ]
    assert {Call, Advance} <= set(map(type, operations))
