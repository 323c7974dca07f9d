"""Work handed out to the store, and events that wait for it to be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from culm.bamboo.effects import StoreEffect
from culm.machine import ContractErrorCode, Effect, Event, LocalProtocolError, Ticket

__all__ = ["Desk", "Slot"]


class Slot:
    """A place in the order of events, to be filled when the store has answered."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[Event] | None = None


class Desk:
    """Tickets, and the order of events.

    Events come out in the order in which their causes came in: one that waits for the
    store holds back those behind it.
    """

    def __init__(self) -> None:
        self.unwritten_size = 0  # bytes received of which the store has not said that it has them
        self._next_ticket = 1
        self._taken = 0  # the last ticket handed out
        self._effects: deque[Effect[Any]] = deque()
        self._handlers: dict[int, Callable[[Any], None]] = {}
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        """How many answers of the store are outstanding."""
        return len(self._handlers)

    def has_more_than(self, unwritten_size: int, load: int) -> bool:
        """Whether more bytes, or more answers and events together, wait for the store."""
        return self.unwritten_size > unwritten_size or len(self._handlers) + len(self._slots) > load

    def ask(self, kind: type[StoreEffect[Any]], then: Callable[[Any], None], **fields: Any) -> None:
        """Hand out an effect; its result goes to `then`."""
        ticket: Ticket[Any] = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._handlers[ticket] = then
        self._effects.append(kind(ticket=ticket, **fields))

    def next_effect(self) -> Effect[Any] | None:
        """Take the next effect."""
        if not self._effects:
            return None
        effect = self._effects.popleft()
        self._taken = effect.ticket
        return effect

    def take_handler(self, ticket: int) -> Callable[[Any], None]:
        """What waits for the answer to an effect; raises `LocalProtocolError`."""
        if ticket not in self._handlers or ticket > self._taken:
            raise LocalProtocolError(ContractErrorCode.UNKNOWN_TICKET, f"{ticket}")
        return self._handlers.pop(ticket)

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
