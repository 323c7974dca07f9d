"""Machines that let too much wait, or at too high a cost; entered among the `CANARIES`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from broken_machines import breaks

from culm.machine import Buffer, Event, LocalProtocolError, RemoteProtocolError
from culm.machines import Call, call
from culm.testing.contents import JSON
from culm.testing.spec import Flood, Frame, Free
from toy_links import CHAT, Chat, ChatLink, Said
from toy_machines import (
    FRAMES,
    KEEPER,
    LINES,
    PINGER,
    Frames,
    Keeper,
    LineReceived,
    Lines,
    Pinger,
    ToyErrorCode,
)


@breaks("unsent", LINES, "wait to be sent")
class AnswersEachLine(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived) and event.text != b"I see":
            self._outbox.append(b"I see\n")
        return event


@breaks("unsent", KEEPER, "wait to be sent", floods=[])
class ReadsOnWhateverWaits(Keeper):
    def read_size(self) -> int:
        return Lines.read_size(self)


@breaks("unsent", PINGER, "wait to be sent", floods=[])
class AnswersEachDatagram(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        super().receive_datagram(data, source=source)
        self.out.append((source, b"I see"))


@breaks("unsent", CHAT, "wait to be sent", floods=[])
class AnswersEachGuest(Chat):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, Said) and event.text != b"hear, hear":
            for link in self.links:
                link.lines.say(b"hear, hear")
        return event


@breaks("unsent", LINES, "wait to be sent", floods=[Flood(unit=lambda number: b"%d\n" % number)])
class AnswersWhatIsNew(Lines):
    last = -1

    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived) and event.text.isdigit() and int(event.text) > self.last:
            self.last = int(event.text)
            self._outbox.append(b"that is new\n")
        return event


_TEXT = Frame(
    name="a line", wrap=lambda text: text + b"\n", contents=JSON, config={"line_max": 20_000}
)


@breaks("alike", LINES, "brackets in brackets: .* steps for a byte", frames=[_TEXT])
class LooksAtEachBracket(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            for _ in range(3 * event.text.count(b"[")):
                pass
        return event


@breaks("alike", LINES, "empty brackets: .* steps for a byte", frames=[_TEXT])
class MakesAnObjectOfEachBracket(Lines):
    """Through a function that counts no steps of its own."""

    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            self.made = list(map(set, [()] * event.text.count(b"[]")))
        return event


_HEADLESS = replace(_TEXT, config={"line_max": 4})


@breaks("alike", LINES, "a flat one is refused at byte", frames=[_HEADLESS])
class RefusesTheFirstBytes(Lines):
    """As any machine does whose limits the frame exceeds: nothing is measured."""


@breaks("alike", LINES, "not a byte of it is welcome", frames=[_TEXT])
class WantsNothing(Lines):
    def read_size(self) -> int:
        return 0


@breaks("reads", FRAMES, "reads no more")
class HoldsLessThanAFrame(Frames):
    """It waits for the rest of a frame that never fits."""

    def __init__(self, *, greeting: bool = False, receive_max: int = 0) -> None:
        super().__init__(greeting=greeting, receive_max=32)


@breaks("reads", LINES, "reads no more")
class WaitsForTheEndOfALine(Lines):
    def _line(self) -> bytes | None:
        end = self._inbox.find(b"\n")
        return None if end < 0 else self._inbox.take(end + 1)[:-1]


@breaks("reads", CHAT, "reads no more")
class WaitsForTheEndOfAGuestsLine(Chat):
    class link_type(ChatLink):  # noqa: N801
        lines_type = WaitsForTheEndOfALine


@breaks("alike", PINGER, "nothing comes of a flat one", frames=[replace(_TEXT, config={})])
class HearsNothing(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        """Drop it."""


@breaks("faults", KEEPER, "from before the fault are not kept", bombs=[b"\xff\n"])
class LosesWhatCameBeforeAFault(Keeper):
    def _line(self) -> bytes | None:
        line = super()._line()
        if line is not None and not line.isascii():
            raise RemoteProtocolError(ToyErrorCode.NOT_A_LINE)
        return line

    def _ended(self, error: RemoteProtocolError | None) -> None:
        super()._ended(error)
        if error is not None:
            self._tickets.drop_asked()


@breaks("faults", KEEPER, "kept items depend", bombs=[b"\xff\n"])
class LooksAheadForFaults(Keeper):
    """An odd line discards its neighbours, if they came with it."""

    def receive_data(self, data: Buffer) -> None:
        if bytes(data).count(b"\n") < 2 or bytes(data).isascii():
            super().receive_data(data)


@breaks("faults", PINGER, "kept items depend")
class HearsTheLastDatagramAlone(Pinger):
    """Hears only the last of the datagrams that arrive before anything is taken."""

    last: tuple[Buffer, Hashable] | None = None

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        self.last = data, source

    def next_event(self) -> Event | None:
        if self.last is not None:
            (data, source), self.last = self.last, None
            super().receive_datagram(data, source=source)
        return super().next_event()


@breaks("faults", PINGER, "the end of a datagram is missing")
class IsDoneWithWhoSendsRubbish(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        if len(data) != 3:
            self.peers = []
        super().receive_datagram(data, source=source)


@breaks("least", KEEPER, "still not Closed")
class NeedsRoomForTwo(Keeper):
    """One of the two always waits for the other."""

    def _step(self) -> Event | None:
        return None if self._effects_max < 2 else super()._step()

    def _step_eof(self) -> Event | None:
        return None if self._effects_max < 2 else super()._step_eof()

    def advance(self, now: float) -> None:
        super().advance(now)
        self._deadlines.clear()


@breaks("least", LINES, "raised, though not by a call")
class CannotSayHello(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        if self._line_max < 5:
            raise LocalProtocolError(ToyErrorCode.LINE_TOO_LONG)
        return super().data_to_send(size_max)


def _say_again(event: Event) -> Call | None:
    return call("say", text=event.text) if isinstance(event, LineReceived) else None


@breaks("freed", LINES, "is refused", frees=Free(again=_say_again, taken={ToyErrorCode.CLOSING}))
class CallsFreeWhatIsInUse(Lines):
    """A text may be said again after the peer has said it; in truth, once all bytes are taken."""

    _in_use = False

    def _step(self) -> Event | None:
        event = super()._step()
        self._in_use |= isinstance(event, LineReceived)
        return event

    def say(self, text: Buffer) -> None:
        if self._in_use:
            raise LocalProtocolError(ToyErrorCode.CLOSING)
        super().say(text)

    def data_to_send(self, size_max: int | None = None) -> bytes:
        self._in_use = False
        return super().data_to_send(size_max)


@breaks("freed", LINES, "no conversation has an event", frees=Free(again=lambda _: None, taken=()))
class NeverCallsAnythingFree(Lines):
    """A spec that names the wrong event."""
