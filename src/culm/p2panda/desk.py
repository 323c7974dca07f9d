"""Work handed out to the store, and events that wait for it to be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any, TypeVar

from culm.effects import Then, Tickets
from culm.machine import Effect, Event, Ticket
from culm.p2panda.effects import StoreEffect

__all__ = ["Desk", "Slot"]

R = TypeVar("R")


class Slot:
    """A place in the order of events, to be filled when it is known what happened."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: tuple[Event, ...] | None = None


class Desk:
    """Effects that are asked for, and the order of events.

    Events come out in the order in which their causes came in: one that waits for the store holds
    back those behind it.

    failed: the store could not do what it was asked to; nothing is asked of it any more.
    """

    __slots__ = ("_events", "_slots", "_tickets", "failed")

    def __init__(self) -> None:
        self.failed = False
        self._tickets: Tickets[Then] = Tickets()
        self._slots: deque[Slot] = deque()
        self._events: deque[Event] = deque()  # of the slot that is being emptied

    def __len__(self) -> int:
        """How many answers of the store are outstanding."""
        return len(self._tickets)

    def ask(
        self, kind: Callable[..., StoreEffect[R]], then: Callable[[R], None], **fields: Any
    ) -> None:
        """Ask for an effect; its result goes to `then`."""
        if not self.failed:
            self._tickets.ask(kind, then, **fields)

    def next_effect(self) -> Effect[Any] | None:
        return self._tickets.next_effect()

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer an effect (see `Tickets.answered`); of no effect once the store has failed."""
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
        self.emit(failure)

    def drop_asked(self) -> None:
        """Forget what was asked for and not handed out."""
        self._tickets.drop_asked()

    def emit(self, event: Event) -> None:
        """Let an event come out in its turn."""
        self.reserve().events = (event,)

    def reserve(self) -> Slot:
        """Take a place in the order of events."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def next_event(self) -> Event | None:
        """Take the next event, unless it waits for the store."""
        while not self._events:
            if not self._slots or self._slots[0].events is None:
                return None
            self._events.extend(self._slots.popleft().events or ())
        return self._events.popleft()

    @property
    def idle(self) -> bool:
        """Whether no event is held."""
        return not (self._slots or self._events)
