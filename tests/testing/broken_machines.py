"""Machines that each break one law, and the law that must catch them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeGuard

from culm.buffer import check_size_max
from culm.machine import (
    Buffer,
    Closed,
    DataReceived,
    Effect,
    Event,
    LocalProtocolError,
    RemoteProtocolError,
)
from culm.machines import Advance, Key, Receive, call
from culm.testing.spec import Conversation, Flood, MachineSpec
from culm.testing.suite import EXAMPLE_SECONDS_MAX
from spec_changes import spec_with
from toy_machines import (
    FRAMES,
    KEEPER,
    LANES,
    LINES,
    PINGER,
    Frames,
    Keeper,
    Kept,
    Lanes,
    LineReceived,
    Lines,
    Pinger,
    ToyErrorCode,
    ToyState,
)


@dataclass(frozen=True)
class Canary:
    """`law` must find that `spec` is broken, and say so in words with `complaint`.

    patience: processor seconds for an example.  It finds only machines that hang.
    """

    name: str
    law: str
    spec: MachineSpec
    complaint: str
    patience: float = EXAMPLE_SECONDS_MAX

    def __str__(self) -> str:
        return self.name


CANARIES: list[Canary] = []


class Forget(Effect[None]):
    """An effect of no `Keeper`."""


def breaks(
    law: str,
    spec: MachineSpec,
    complaint: str,
    patience: float = EXAMPLE_SECONDS_MAX,
    **changes: Any,
) -> Any:
    """Enter a class in place of the machine of `spec`."""

    def enter(kind: Any) -> Any:
        broken = spec_with(spec, name=kind.__name__, build=lambda config: kind(**config), **changes)
        CANARIES.append(Canary(kind.__name__, law, broken, complaint, patience))
        return kind

    return enter


def enter_spec(name: str, complaint: str, spec: MachineSpec, **changes: Any) -> None:
    """Enter a spec that is itself at fault."""
    CANARIES.append(Canary(name, "sound", spec_with(spec, name=name, **changes), complaint))


def without_waiting(spec: MachineSpec) -> list[Conversation]:
    """A registration by someone who has not thought of time."""
    return [Conversation(name="brief", operations=[Advance(0.0), Receive(b"one\n")])]


# Chunking


@breaks("chunking", LINES, "chunking makes a difference")
class LimitOnWhatHappensToBeBuffered(Lines):
    def _line(self) -> bytes | None:
        if len(self._inbox) > self._line_max:
            raise RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG)
        return super()._line()


@breaks("chunking", FRAMES, "chunking makes a difference")
class DeliversWhatIsThere(Frames):
    def receive_data(self, data: Buffer) -> None:
        super().receive_data(data)
        self._chunk = len(data)

    def _step(self) -> Event | None:
        event = super()._step()
        if event is not None and not isinstance(event, Closed):
            return replace(event, data=event.data[: self._chunk])
        return event


@breaks("chunking", LINES, "chunking makes a difference")
class LosesEventsBeforeAFault(Lines):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._events: deque[Event] = deque()

    def _step(self) -> Event | None:
        try:
            while not self._events or not isinstance(self._events[-1], Closed):
                event = super()._step()
                if event is None:
                    break
                self._events.append(event)
        except RemoteProtocolError:
            self._events.clear()
            raise
        return self._events.popleft() if self._events else None


@breaks(
    "chunking",
    KEEPER,
    "chunking makes a difference",
    scenarios=[],
    bad_calls=[],
    conversations=lambda spec: [
        Conversation(
            name="waits for answers",
            operations=[Receive(b"one\n"), Receive(b"two\n"), Receive(b"three\n")],
        )
    ],
)
class CutsWhatComesAfterAnAnswer(Keeper):
    """Ends at once when a peer does not wait for an answer: only a waiting peer sees the fault."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._answered = 0

    def receive_data(self, data: Buffer) -> None:
        super().receive_data(data)
        self._chunk = len(data)

    def _step(self) -> Event | None:
        if len(self._tickets) and len(self._inbox):
            raise RemoteProtocolError(ToyErrorCode.LINE_TOO_LONG)
        event = super()._step()
        self._answered += isinstance(event, Kept)
        if isinstance(event, LineReceived) and self._answered == 2:
            return replace(event, text=event.text[: self._chunk])
        return event


@breaks("chunking", LINES, "chunking makes a difference")
class StateRunsAhead(Lines):
    @property
    def state(self) -> ToyState:
        return ToyState.CLOSING if self._inbox.find(b"bye") >= 0 else super().state


@breaks("chunking", LINES, "chunking makes a difference")
class TrailingDataByChunk(Lines):
    def receive_data(self, data: Buffer) -> None:
        if self._closed is None:
            super().receive_data(data)


# Pumped


@breaks("pumped", KEEPER, "pump")
class CountsHowOftenItIsToldTheTime(Keeper):
    def advance(self, now: float) -> None:
        super().advance(now)
        self._kept.append(LineReceived(text=b"tick"))


@breaks("pumped", PINGER, "pump")
class PingsAgainWheneverItIsToldTheTime(Pinger):
    def advance(self, now: float) -> None:
        super().advance(now)
        for peer, number in self._tries:
            self.out.append((peer, b"P" + number.to_bytes(2, "big")))


# Determinism


@breaks("determinism", LINES, "second run differs")
class CountsOverAllMachines(Lines):
    numbers: Iterator[int] = count()

    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived):
            return LineReceived(text=b"%d" % next(self.numbers))
        return event


@breaks("determinism", LINES, "second run differs")
class EventsByIdentity(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        return _Anonymous() if isinstance(event, LineReceived) else event


class _Anonymous(Event):
    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class OrderOfASet(Pinger):
    def close(self) -> None:
        self.out += [(peer, b"bye") for peer in {f"peer {number}" for number in range(9)}]
        super().close()


# Another process finds it only by its name.
ORDER_OF_A_SET = spec_with(PINGER, name="OrderOfASet", build=lambda config: OrderOfASet(**config))
CANARIES.append(Canary("OrderOfASet", "determinism", ORDER_OF_A_SET, "another hash seed"))


# Survival


@breaks("survives", FRAMES, "index out of range")
class TrustsThePeer(Frames):
    def _step(self) -> Event | None:
        if len(self._inbox) and self._inbox[0] == 0xFF:
            [][self._inbox[0]]
        return super()._step()


@breaks("survives", FRAMES, "processor time", patience=0.5)
class Hangs(Frames):
    def _step(self) -> Event | None:
        while len(self._inbox) and self._inbox[0] == 0xFF:
            pass
        return super()._step()


@breaks("survives", FRAMES, "events without an input")
class NeverRests(Frames):
    def _step(self) -> Event | None:
        if len(self._inbox) and self._inbox[0] == 0xFF:
            return LineReceived(text=b"")
        return super()._step()


@breaks("survives", PINGER, "index out of range")
class TrustsDatagrams(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        data[2]
        super().receive_datagram(data, source=source)


@breaks("survives", LINES, "index out of range")
class TrustsSmallNumbers(Lines):
    def _step(self) -> Event | None:
        event = super()._step()
        if isinstance(event, LineReceived) and number_in(event.text) > 2**14:
            return [][0]
        return event


# Ends


@breaks("ends", LINES, "not the last event|after Closed")
class ClosesTwice(Lines):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if event is None and self._closed is not None and not hasattr(self, "_again"):
            self._again = True
            return self._closed
        return event


@breaks("ends", LINES, "still not Closed")
class IgnoresTheEnd(Lines):
    def _step_eof(self) -> Event | None:
        return None


@breaks("ends", PINGER, "still not Closed")
class NeverCloses(Pinger):
    def close(self) -> None:
        pass


@breaks("ends", LINES, "is refused")
class EndsOnlyOnce(Lines):
    def receive_eof(self) -> None:
        if self._eof:
            raise LocalProtocolError(ToyErrorCode.LINE_TOO_LONG)
        super().receive_eof()


@breaks("ends", LINES, "second close|close after the end")
class SaysGoodbyeTwice(Lines):
    def close(self) -> None:
        if self._closed is None:
            self._outbox.append(b"bye\n")
        super().close()


@breaks("ends", KEEPER, "waits for a deadline")
class WaitsAfterTheEnd(Keeper):
    def _ended(self, error: RemoteProtocolError | None) -> None:
        Lines._ended(self, error)


@breaks("ends", LINES, "trailing data after an error")
class TrailsAfterAnError(Lines):
    @property
    def trailing_data(self) -> bytes:
        return b"" if self._closed is None else b"x"


@breaks("ends", LINES, "trailing data before the end")
class TrailsBeforeTheEnd(Lines):
    @property
    def trailing_data(self) -> bytes:
        return self._inbox.peek(len(self._inbox))


@breaks("ends", LINES, "still asks for bytes")
class ReadsAfterTheEnd(Lines):
    def read_size(self) -> int:
        return 64


@breaks("ends", KEEPER, "does not declare Kept")
class GivesMoreThanItDeclares(Keeper):
    def next_event(self) -> LineReceived | Closed | None:
        return super().next_event()


@breaks("ends", KEEPER, "does not declare Keep")
class AsksMoreThanItDeclares(Keeper):
    def next_effect(self) -> Forget | None:
        return super().next_effect()


# Refusals


@breaks("refusals", LINES, "was refused")
class ChangesBeforeItChecks(Lines):
    def say(self, text: Buffer) -> None:
        self._outbox.append(bytes(text).replace(b"\n", b"") + b"\n")
        if b"\n" in bytes(text):
            raise LocalProtocolError(ToyErrorCode.NOT_A_LINE)


@breaks("refusals", PINGER, "made a difference")
class SpendsANumberOnARefusal(Pinger):
    def ping(self, peer: Hashable) -> int:
        if peer not in self.peers:
            self._numbers += 1
        return super().ping(peer)


@breaks("refusals", KEEPER, "yet it changed")
class TimeGoesBack(Keeper):
    def advance(self, now: float) -> None:
        if self._now is not None and now < self._now:
            self._deadlines.set("idle", now)
        super().advance(now)


# Time


@breaks("time", KEEPER, "the machine said None, not <ContractErrorCode.NOT_A_TIME")
class TakesWhatIsNoNumber(Keeper):
    def advance(self, now: float) -> None:
        if now == now:
            super().advance(now)


@breaks("time", KEEPER, "inf, after None, the machine said None")
class TakesTheEndOfTime(Keeper):
    def advance(self, now: float) -> None:
        if now != math.inf:
            super().advance(now)


@breaks("time", PINGER, "the machine said None, not <ContractErrorCode.TIME_WENT_BACK")
class ForgivesASmallStepBack(Pinger):
    def advance(self, now: float) -> None:
        super().advance(max(now, self._now) if now > self._now - 0.001 else now)


@breaks("time", KEEPER, "the machine said None, not <ContractErrorCode.NOT_A_TIME")
class HasNoTimeAfterTheEnd(Keeper):
    def advance(self, now: float) -> None:
        if self._closed is None:
            super().advance(now)


@breaks("time", KEEPER, "made a difference|had an effect")
class BelievesBeforeItChecks(Keeper):
    def advance(self, now: float) -> None:
        if self._now is not None and now < self._now:
            self._idle = 1.0
        super().advance(now)


@breaks("time", KEEPER, "told again")
class WaitsLongerWhenToldTheSameTimeAgain(Keeper):
    def advance(self, now: float) -> None:
        if now == self._now:
            self._deadlines.set("idle", now + 2 * self._idle)
        super().advance(now)


# Purity


@breaks("purity", KEEPER, "answers differ|make a difference")
class AskingSpendsTheDeadline(Keeper):
    def next_deadline(self) -> float | None:
        deadline = super().next_deadline()
        self._deadlines.clear()
        return deadline


@breaks("purity", LINES, "answers differ|make a difference")
class AskingCosts(Lines):
    asked = 0

    def read_size(self) -> int:
        self.asked += 1
        return super().read_size() - self.asked


@breaks("purity", LINES, "input alone changed the state")
class ParsesOnReceipt(Lines):
    def receive_data(self, data: Buffer) -> None:
        super().receive_data(data)
        if b"b" in bytes(data):
            self._state = ToyState.CLOSING


@breaks("purity", LINES, "input alone changed the state")
class TheEndIsAState(Lines):
    def receive_eof(self) -> None:
        super().receive_eof()
        self._state = ToyState.CLOSING


@breaks("purity", KEEPER, "make a difference")
class AskingDropsWhatIsUnderWay(Keeper):
    def next_deadline(self) -> float | None:
        self._tickets.drop_asked()
        return super().next_deadline()


@breaks("purity", LINES, "draining again")
class Stutters(Lines):
    """Says that there is no event when there is one."""

    pauses = 0

    def _step(self) -> Event | None:
        self.pauses = (self.pauses + 1) % 3
        return None if self.pauses == 2 else super()._step()


@breaks("purity", KEEPER, "still waits for")
class DeadlineStays(Keeper):
    def advance(self, now: float) -> None:
        if self._closed is None:
            self._deadlines.set("idle", 3.0)


@breaks("purity", KEEPER, "still waits for", scenarios=[], conversations=without_waiting)
class LeavesItsDeadlineDue(Keeper):
    def advance(self, now: float) -> None:
        deadline = self._deadlines.next()
        super().advance(now if deadline is None else min(now, deadline - 1e-9))


# Pieces


@breaks("pieces", LINES, "gave")
class TakesNoAdvice(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        return b"" if size_max == 0 else super().data_to_send()


@breaks("pieces", LINES, "is not refused")
class TakesAnySize(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        return super().data_to_send(size_max if size_max is None else max(0, int(size_max)))


@breaks("pieces", LINES, "pieces differ")
class LosesWhatItDoesNotGive(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        data = super().data_to_send()
        check_size_max(size_max)
        self._outbox.append(data)
        return super().data_to_send(size_max)


@breaks("pieces", LINES, "pieces differ")
class DropsWhatDoesNotFit(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        data = super().data_to_send()
        return data[:size_max]


@breaks("pieces", LINES, "were left")
class WaitsForRoom(Lines):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        if size_max is not None and size_max < len(self._outbox):
            return b""
        return super().data_to_send(size_max)


@breaks("pieces", LANES, "pieces differ", lazy_output=False)
class SchedulesLate(Lanes):
    pass


# Limits


@breaks("limits", LINES, "over its limit")
class AlwaysWantsMore(Lines):
    def read_size(self) -> int:
        return 64 if self._closed is None else 0

    def _line(self) -> bytes | None:
        end = self._inbox.find(b"\n")
        return None if end < 0 else self._inbox.take(end + 1)[:-1]


@breaks(
    "limits",
    LINES,
    "over its limit",
    floods=[Flood(unit=b"a\n", calls=lambda number: [call("say", text=b"b")])],
)
class KeepsWhatItAnswered(Lines):
    def say(self, text: Buffer) -> None:
        super().say(text)
        self.__dict__.setdefault("said", []).append(bytes(text))


@breaks("limits", KEEPER, "the peer does not read")
class AnswersWithoutBound(Keeper):
    def read_size(self) -> int:
        return Lines.read_size(self)


@breaks("limits", KEEPER, "the store does not answer")
class AsksWithoutBound(Keeper):
    def __init__(self, **options: Any) -> None:
        super().__init__(effects_max=1 << 30)


@breaks(
    "limits",
    PINGER,
    "over its limit",
    floods=[Flood(unit=b"P\x00\x01", source=lambda number: f"peer {number}")],
)
class RemembersEverybody(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        self.__dict__.setdefault("seen", set()).add(source)
        super().receive_datagram(data, source=source)


@breaks("limits", PINGER, "the driver takes no events between datagrams")
class KeepsDatagramsUntilTheyAreLookedAt(Pinger):
    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        self.__dict__.setdefault("waiting", []).append((bytes(data), source))
        super().receive_datagram(data, source=source)

    def next_event(self) -> Event | None:
        self.__dict__.pop("waiting", None)
        return super().next_event()


def number_in(text: bytes) -> int:
    digits = bytes(each for each in text if each in b"0123456789")
    return int(digits or b"0")


def is_data(event: Event | None) -> TypeGuard[DataReceived]:
    return isinstance(event, DataReceived)


# Links


@breaks("links", LANES, "sees other events")
class LosesWhatIsCutSmall(Lanes):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        if size_max is not None and 2 < size_max < 100 and self.queues[0]:
            del self.queues[0][:1]
        return super().data_to_send(size_max)


# Arguments


@breaks("arguments", LINES, "and then: TypeError")
class FindsOutLater(Lines):
    def say(self, text: Buffer) -> None:
        self.__dict__.setdefault("said", []).append(text)

    def data_to_send(self, size_max: int | None = None) -> bytes:
        for text in self.__dict__.pop("said", ()):
            super().say(text)
        return super().data_to_send(size_max)


@breaks("arguments", LINES, "raised AttributeError")
class CountsOnBytes(Lines):
    def say(self, text: Any) -> None:
        super().say(text.removesuffix(b"\n"))


@breaks("arguments", LINES, "was taken with text = ")
class MakesBytesOfNumbers(Lines):
    def say(self, text: Any) -> None:
        super().say(bytes(text) if isinstance(text, (int, list)) else text)


@breaks("arguments", LINES, "made a difference|had an effect")
class SaysHalfBeforeItChecks(Lines):
    def say(self, text: Buffer) -> None:
        if self._state is ToyState.OPEN and not isinstance(text, (bytes, type(None))):
            self._outbox.append(b"well\n")
        super().say(text)


@breaks("arguments", LANES, "TypeError")
class TakesAnyLane(Lanes):
    def put(self, lane: int, data: Buffer) -> None:
        if lane not in {0, 1}:
            self._turn = lane
        super().put(min(1, max(0, lane)), data)


@breaks("arguments", LANES, "and then: TypeError")
class TakesWhatIsEqual(Lanes):
    def put(self, lane: int, data: Buffer) -> None:
        super().put(int(lane) if lane in {0, 1} else -1, data)
        self._turn = lane


@breaks("arguments", LINES, "made with line_max = ")
class MadeOfAnything(Lines):
    def __init__(self, *, line_max: int = 64) -> None:
        super().__init__()
        self._line_max = line_max

    def _step_eof(self) -> Event | None:
        return super()._step_eof() if self._line_max > 0 else None


# Specs at fault

enter_spec(
    "nobody waits", "no conversation waits", KEEPER, scenarios=[], conversations=without_waiting
)

enter_spec("no conversations", "no conversations", LINES, scenarios=[])
enter_spec("no store", "no store", KEEPER, respond=None, scenarios=LINES.usage.scenarios)
enter_spec(
    "wrong store",
    "Complete.* is refused",
    KEEPER,
    respond=lambda config: lambda effect: "anywhere",
    conversations=lambda spec: [Conversation(name="one", operations=[Receive(b"one\n")])],
    scenarios=[],
)
enter_spec("call never refused", "refused nowhere", LINES, bad_calls=[call("close")])
enter_spec(
    "call is refused",
    "is refused",
    LINES,
    conversations=lambda spec: [
        Conversation(name="bad", operations=[call("say", text=b"two\nlines")])
    ],
)
enter_spec(
    "peer at fault",
    "the peer is at fault",
    LINES,
    conversations=lambda spec: [Conversation(name="bad", operations=[Receive(b"x" * 99)])],
)
enter_spec(
    "not for JSON",
    "through JSON",
    LINES,
    conversations=lambda spec: [
        Conversation(name="tuple", operations=[call("say", text=b"")], config={"line_max": (1,)})
    ],
    build=lambda config: Lines(),
    keys=[Key(name="line_max", type=tuple, default=(), meaning="No more a tuple in JSON.")],
)
