"""Machines with links that each break one law; entered among the `CANARIES`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broken_machines import breaks

from culm.machine import Buffer, Closed, Event
from culm.machines import Receive, call
from culm.testing.spec import Conversation
from toy_links import CHAT, Chat, ChatLink, Said
from toy_machines import LineReceived, Lines, ToyState


class _LinesWithoutEnd(Lines):
    def _step(self) -> Event | None:
        if len(self._inbox) and self._inbox.find(b"bye") < 0:
            return LineReceived(text=self._inbox.take(len(self._inbox)))
        return super()._step()


@breaks("chunking", CHAT, "chunking makes a difference")
class SaysWhatIsThere(Chat):
    class link_type(ChatLink):  # noqa: N801
        lines_type = _LinesWithoutEnd


@breaks("limits", CHAT, "over its limit")
class RemembersAllThatWasSaid(Chat):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._said: list[Event] = []

    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, Said):
            self._said.append(event)
        return event


class _Forgetful(ChatLink):
    def data_to_send(self, size_max: int | None = None) -> bytes:
        return super().data_to_send()[:size_max]


@breaks("pumped", CHAT, "sends other bytes")
class ForgetsWhatIsNotTakenAtOnce(Chat):
    link_type = _Forgetful


@breaks("pieces", CHAT, "differ")
class NamesOneLinkOnly(Chat):
    def links_to_send(self) -> list[ChatLink]:
        return super().links_to_send()[:1]


@breaks("ends", CHAT, "still has the links")
class EndsBeforeItsLinks(Chat):
    def _end(self) -> Event | None:
        return None

    def next_event(self) -> Event | None:
        if self._closing and self.state.name != "CLOSED":
            self._guests, guests = {}, self._guests
            event = super()._end()
            self._guests = guests
            return event
        return None if self.state.name == "CLOSED" else super().next_event()


@breaks("ends", CHAT, "still not Closed")
class NeverEnds(Chat):
    def _end(self) -> Event | None:
        return None


@breaks("purity", CHAT, "asked twice")
class CountsQuestions(Chat):
    class link_type(ChatLink):  # noqa: N801
        asked = 0

        def read_size(self) -> int:
            self.asked += 1
            return super().read_size() + self.asked % 2


@breaks("purity", CHAT, "named for having been asked")
class NamesLinksThatWereAsked(Chat):
    class link_type(ChatLink):  # noqa: N801
        def data_to_send(self, size_max: int | None = None) -> bytes:
            data = super().data_to_send(size_max)
            if not data and not self.closed:
                self._chat.stirred[self.number] = self
            return data


@breaks("survives", CHAT, "list index out of range")
class TrustsItsGuests(Chat):
    def next_event(self) -> Event | None:
        event = super().next_event()
        if isinstance(event, Said) and not event.text.isascii():
            _ = [][0]
        return event


@breaks("links", CHAT, "sees other events")
class MixesItsLinksUp(Chat):
    class link_type(ChatLink):  # noqa: N801
        def data_to_send(self, size_max: int | None = None) -> bytes:
            data = super().data_to_send(size_max)
            return data.swapcase() if size_max is not None and 1 < size_max < 9 else data


def _refused(*operations: Any) -> Sequence[Conversation]:
    return [Conversation(name="bad", operations=operations)]


@breaks(
    "sound",
    CHAT,
    "the peer is at fault",
    meetings=[],
    conversations=lambda spec: _refused(call("accepted"), Receive(b"x" * 99, 1)),
)
class IsToldNonsense(Chat):
    pass


@breaks(
    "sound",
    CHAT,
    "is refused",
    meetings=[],
    conversations=lambda spec: _refused(Receive(b"x", 1)),
)
class HasNoSuchLink(Chat):
    pass


@breaks("ends", CHAT, "Closed is not the last event or not the only")
class EndsWithEachLink(Chat):
    def next_event(self) -> Event | None:
        event = super().next_event()
        return Closed() if event is not None and hasattr(event, "error") else event


class _EndlessLines(Lines):
    def _step(self) -> Event | None:
        while self._inbox.find(b"\xfe") >= 0:
            pass
        return super()._step()


@breaks("work", CHAT, "led to more than", bombs=[b"\xfe"])
class NeverComesBackFromALink(Chat):
    class link_type(ChatLink):  # noqa: N801
        lines_type = _EndlessLines


@breaks("careless", CHAT, "was taken for bytes")
class LooksAtNothingThatComesTooLate(Chat):
    class link_type(ChatLink):  # noqa: N801
        def receive_data(self, data: Buffer) -> None:
            if not self.closed:
                super().receive_data(data)


@breaks("careless", CHAT, "list index out of range")
class CountsOnEventsBeforeBytes(Chat):
    def links_to_send(self) -> list[ChatLink]:
        given_up = [link for link in self.links if link.lines.state is ToyState.CLOSING]
        return [] if given_up and [][0] else super().links_to_send()


class _AfterOthers(ChatLink):
    """A link that waits for the links before it."""

    heard = False

    def receive_data(self, data: Buffer) -> None:
        self.heard = self.heard or len(data) > 0
        super().receive_data(data)

    def earlier(self) -> list[Any]:
        return [link for link in self._chat.links if link.number < self.number]


@breaks("alone", CHAT, "sees other events")
class HearsOneAfterTheOther(Chat):
    class link_type(_AfterOthers):  # noqa: N801
        def read_size(self) -> int:
            return super().read_size() if all(link.heard for link in self.earlier()) else 0


class _CountedLines(Lines):
    @property
    def unsent_size(self) -> int:
        return len(self._outbox)


@breaks("alone", CHAT, "sees other events")
class SpeaksToOneAfterTheOther(Chat):
    class link_type(_AfterOthers):  # noqa: N801
        lines_type = _CountedLines

        def data_to_send(self, size_max: int | None = None) -> bytes:
            waits = any(link.lines.unsent_size for link in self.earlier())
            return b"" if waits else super().data_to_send(size_max)
