"""The law of faults with answers, which mean nothing before the machine's question."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from culm.buffer import Buffer
from culm.machine import Effect, Event
from culm.machines import Receive
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite import PROPERTIES
from culm.testing.suite.runs import PropertyError
from spec_changes import spec_with
from toy_machines import LINES, LineReceived, Lines

[FAULTS] = [law for law in PROPERTIES if law.name == "faults"]


class Asker(Lines):
    """Asks a question at each line; an answer (``!``) counts if it came after its question."""

    _asked = _heard = 0

    def receive_data(self, data: Buffer) -> None:
        self._heard = self._asked
        super().receive_data(data)

    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            if event.text.startswith(b"!"):
                if not self._heard:
                    return LineReceived(text=b"too early")
                self._heard, self._asked = self._heard - 1, self._asked - 1
            self._asked += 1
            self._outbox.append(b"?\n")
        return event


def conversations(spec: MachineSpec) -> list[Conversation]:
    said = (b"one\n", b"!1\n", b"!2\n", b"two\n", b"!3\n")
    return [Conversation(name="asked", operations=[Receive(line) for line in said])]


def answers(each: Effect[object] | Event) -> Iterable[bytes]:
    return [each.text] if isinstance(each, LineReceived) and each.text[:1] == b"!" else []


ASKER = spec_with(
    LINES,
    name="asker",
    build=lambda config: Asker(**config),
    scenarios=(),
    conversations=conversations,
    bombs=(b"!not asked for\n",),
    kept=answers,
)


def test_an_answer_is_not_told_before_its_question() -> None:
    FAULTS.check(spec_with(ASKER, is_answer=lambda message: message[:1] == b"!"))


def test_without_that_it_would_be() -> None:
    with pytest.raises(PropertyError, match="kept items depend"):
        FAULTS.check(ASKER)
