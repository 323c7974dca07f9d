"""Messages that are missing for long: whether the peer will ever send them has to be asked."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from culm.oxen.events import Delivery
from culm.oxen.incoming import Incoming
from culm.oxen.limits import Timing

# Longest intervals of redelivery for which a message is missing before the peer is asked: by then
# it has sent it again, several times.
_PATIENT_INTERVALS = 2

# Questions at such an interval, as some answers are lost, before the pauses double.
_QUICK_QUESTIONS = 4
_DOUBLINGS_MAX = 64


@dataclass(slots=True)
class Wait:
    """Waiting for one message of a stream, which later ones have overtaken or others have begun.

    due: when to ask next, in monotonic seconds.
    id: of the question, the same each time, so that a late answer counts; none before the first.
    asked: number of times that it was asked.
    """

    sequence: int
    due: float
    id: int | None = None
    asked: int = 0

    def ask(self, id: int, now: float, timing: Timing) -> None:
        """Note that the peer is asked, in a message with that `id`."""
        self.id = id
        self.asked += 1
        doublings = min(max(0, self.asked - _QUICK_QUESTIONS), _DOUBLINGS_MAX)
        pause = timing.redelivery_max_s * 2.0**doublings
        self.due = now + min(pause, max(timing.redelivery_max_s, timing.seek_max_s))


class Waits:
    """The waits of a peer's two streams."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: dict[Delivery, Wait] = {}

    def due(
        self, incoming: Incoming, begun: Container[Delivery], now: float, timing: Timing
    ) -> Iterator[tuple[Delivery, Wait]]:
        """The waits for which the peer has to be asked now.

        begun: the streams with a message of which only the first pieces have come.
        """
        for delivery in (Delivery.IN_ORDER, Delivery.IN_ORDER_BROADCAST):
            stream, wait = incoming.stream(delivery), self._waits.get(delivery)
            if wait is not None and wait.sequence == stream.position + 1 and now < wait.due:
                continue
            if not stream.is_overtaken() and delivery not in begun:
                self._waits.pop(delivery, None)
            elif wait is None or wait.sequence != stream.position + 1:
                due = now + _PATIENT_INTERVALS * timing.redelivery_max_s
                self._waits[delivery] = Wait(stream.position + 1, due)
            else:
                yield delivery, wait

    def is_vain(self, incoming: Incoming, id: int) -> bool:
        """Whether the acknowledgement of `id` says that the missing messages never come."""
        return any(
            wait.id == id and wait.sequence == incoming.stream(delivery).position + 1
            for delivery, wait in self._waits.items()
        )
