"""Machines that each break the law of work, entered among the `CANARIES`.

No other law catches them, except machines that hang: every law that sends the fatal byte ends them
by its watchdog (`chunking`, `survives`, `ends`).
"""

from __future__ import annotations

from collections.abc import Hashable

from broken_machines import breaks, is_data, number_in

from culm.machine import Buffer, DataReceived, Event
from culm.machines import Receive
from culm.testing.spec import Conversation
from toy_machines import FRAMES, LINES, PINGER, Frames, LineReceived, Lines, Pinger

_MANY = 100_000  # rounds of a loop: too much work, but over in a moment


@breaks("work", LINES, "led to more than")
class CountsToWhatWasDeclared(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            for _ in range(min(_MANY, number_in(event.text))):
                pass
        return event


@breaks("work", FRAMES, "led to more than", bombs=[b"\xfe"])
class NeverComesBack(Frames):
    def _step(self) -> Event | None:
        while len(self._inbox) and self._inbox[0] == 0xFE:
            pass
        return super()._step()


@breaks("work", PINGER, "led to more than", bombs=[b"\xfe"])
class NeverComesBackFromADatagram(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        while bytes(data) == b"\xfe":
            pass
        super().receive_datagram(data, source=source)


@breaks("work", FRAMES, "led to more than", bombs=[b"\x01\xff"])
class Inflates(Frames):
    """Made in one line, by a function that counts no steps of its own."""

    def _step(self) -> Event | None:
        event = super()._step()
        return DataReceived(data=self._unpacked(event.data)) if is_data(event) else event

    def _unpacked(self, data: bytes) -> bytes:
        return b"x" * 100_000 if data == b"\xff" else data


@breaks("work", LINES, "twice as many took")
class LooksThroughAllThatWasSaid(Lines):
    def say(self, text: Buffer) -> None:
        said = self.__dict__.setdefault("said", [])
        said.append(bytes(text))
        super().say(text)
        for each in said:
            each.isascii()


@breaks("work", LINES, "led to more than")
class CountsAllThatItHeard(Lines):
    heard = 0

    def _step(self) -> Event | None:
        self.heard += 1
        for _ in range(self.heard):
            pass
        return super()._step()


@breaks("work", PINGER, "led to more than")
class TriesEverybodyAgain(Pinger):
    def _try(self, peer: Hashable, number: int) -> None:
        super()._try(peer, number)
        for each in self._tries:
            self._deadlines.cancel(each)


@breaks(
    "work",
    LINES,
    "twice as many took",
    growth={"lines": lambda count: Conversation(name="", operations=[Receive(b"a\n" * count)])},
)
class CopiesWhatIsLeft(Lines):
    def _line(self) -> bytes | None:
        self._left()
        return super()._line()

    def _left(self) -> bytes:
        return self._inbox.peek(len(self._inbox))
