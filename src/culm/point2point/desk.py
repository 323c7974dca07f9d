"""Work handed out to the store, and events that wait for it to be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from culm.bamboo.answers import is_of_family
from culm.bamboo.effects import StoreEffect
from culm.effects import Then, Tickets
from culm.machine import Effect, Event, Ticket
from culm.wire.multihash import HashFamily

__all__ = ["Desk", "Slot"]

R = TypeVar("R")


class Slot:
    """A place in the order of events, to be filled when the store has answered."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[Event] | None = None


class Desk:
    """Effects that are asked for, and the order of events.

    Events come out in the order in which their causes came in: one that waits for the
    store holds back those behind it.

    family: of the hashes in all answers.
    """

    def __init__(self, family: HashFamily) -> None:
        self.unwritten_size = 0  # bytes received of which the store has not said that it has them
        self.failed = False  # the store could not do what it was asked to
        self._tickets: Tickets[Then] = Tickets(suits=partial(is_of_family, family))
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        """How many answers of the store are outstanding."""
        return len(self._tickets)

    def has_more_than(self, unwritten_size: int, load: int) -> bool:
        """Whether more bytes, or more answers and events together, wait for the store."""
        return self.unwritten_size > unwritten_size or len(self._tickets) + len(self._slots) > load

    def ask(
        self, kind: Callable[..., StoreEffect[R]], then: Callable[[R], None], **fields: Any
    ) -> None:
        """Hand out an effect; its result goes to `then`.  Nothing is asked of a failed store."""
        if not self.failed:
            self._tickets.ask(kind, then, **fields)

    def next_effect(self) -> Effect[Any] | None:
        """Take the next effect."""
        return self._tickets.next_effect()

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer an effect (see `Tickets.answered`); to no effect once the store has failed."""
        then = self._tickets.answered(ticket, result)
        if not self.failed:
            then(result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """There is no answer to an effect (see `Tickets.failed`).

        What waits for the store never happens, and what waits behind that is not told.
        """
        failure, _ = self._tickets.failed(ticket, error)
        if self.failed:
            return
        self.failed = True
        self._tickets.drop_asked()
        self._slots = deque(takewhile(lambda slot: slot.events is not None, self._slots))
        self.unwritten_size = 0
        self.emit(failure)

    def emit(self, event: Event) -> None:
        """Let an event come out in its turn."""
        self.reserve().events = [event]

    def reserve(self) -> Slot:
        """Take a place in the order for events of which the store decides."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def next_event(self) -> Event | None:
        """Take the next event, unless it waits for the store."""
        while self._slots and self._slots[0].events is not None:
            events = self._slots[0].events
            if events:
                return events.pop(0)
            self._slots.popleft()
        return None

    @property
    def idle(self) -> bool:
        """Whether no event is held."""
        return not self._slots
