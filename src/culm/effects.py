"""Effects on their way to the user's store and back.

`Tickets` keeps track of a machine's effects; `StoreWork` does the same for a machine whose events
wait for the store, too; with `Answer` a driver carries out an effect and answers it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from culm.buffer import NOTHING
from culm.machine import (
    ContractErrorCode,
    Durable,
    Effect,
    Event,
    LocalProtocolError,
    StoreFailed,
    Ticket,
)

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Effect[Any])
F = TypeVar("F", bound=Effect[Any])

Then: TypeAlias = Callable[[Any], None]  # gets the answer


class Tickets(Generic[T, F]):
    """Effects in the order of their tickets, each with a ``T`` that waits for the answer.

    ``F`` is the union of the effects that `ask` makes.

    Only effects that have been handed out can be answered, each once.

    suits: an extra check on answers, after the effect's own (`Effect.accepts`).
    """

    __slots__ = ("_asked", "_last", "_open", "_suits")

    def __init__(self, *, suits: Callable[[object], bool] | None = None) -> None:
        self._suits = suits
        self._last = 0
        self._asked: deque[tuple[F, T]] = NOTHING
        self._open: dict[int, tuple[Effect[Any], T]] = {}

    def __len__(self) -> int:
        """The number of outstanding answers, also to effects that are not handed out yet."""
        return len(self._asked) + len(self._open)

    def ask(self, kind: Callable[..., F], waits: T, /, **fields: Any) -> None:
        """Make an effect of that kind, for `next_effect` to hand out in its turn."""
        self._last += 1
        if self._asked is NOTHING:
            self._asked = deque()
        self._asked.append((kind(ticket=Ticket(self._last), **fields), waits))

    def next_effect(self) -> F | None:
        """Hand out the next effect, if one has been asked for."""
        if not self._asked:
            return None
        asked = self._asked.popleft()
        if not self._asked:
            self._asked = NOTHING
        effect = asked[0]
        self._open[effect.ticket] = asked
        return effect

    def hand_out(self, kind: Callable[..., E], waits: T, /, **fields: Any) -> E:
        """Make an effect of that kind and hand it out at once."""
        self._last += 1
        effect = kind(ticket=Ticket(self._last), **fields)
        self._open[self._last] = effect, waits
        return effect

    def check(self, ticket: Ticket[R], result: R) -> T:
        """Check an answer without taking it; returns the ``T`` of its effect.

        Raises `LocalProtocolError`: ``UNKNOWN_TICKET``, ``WRONG_RESULT``.
        """
        effect, waits = self._find(ticket)
        if not effect.accepts(result) or (self._suits is not None and not self._suits(result)):
            raise _wrong(effect, result)
        return waits

    def answered(self, ticket: Ticket[R], result: R) -> T:
        """Take the answer to an effect; returns the effect's ``T``.

        Raises `LocalProtocolError`: ``UNKNOWN_TICKET``, ``WRONG_RESULT``.
        """
        waits = self.check(ticket, result)
        del self._open[ticket]
        if not self._open:
            self._open.clear()  # of its room, too: 160 bytes of an idle machine
        return waits

    def failed(self, ticket: Ticket[Any], error: Exception) -> tuple[StoreFailed, T]:
        """Expect no answer to an effect any more; returns the event to report, and the ``T``.

        Raises `LocalProtocolError`: ``UNKNOWN_TICKET``, and ``WRONG_RESULT`` if `error` is not
        an exception.
        """
        effect, waits = self._find(ticket)
        if not _is_exception(error):
            raise _wrong(effect, error)
        del self._open[ticket]
        return StoreFailed(effect=effect, error=error), waits

    def drop_asked(self) -> None:
        """Forget the effects that are not handed out yet."""
        self._asked = NOTHING

    def _find(self, ticket: object) -> tuple[Effect[Any], T]:
        found = self._open.get(ticket) if isinstance(ticket, int) else None
        if found is None:
            raise LocalProtocolError(ContractErrorCode.UNKNOWN_TICKET, f"{ticket!r}")
        return found


class Place:
    """A place in the order of a machine's events, to be filled when the store has answered.

    events: the events still to be taken; ``None`` until the place is filled.
    single: whether the place gets at most one event, so that several may share one iterator.
    """

    __slots__ = ("events",)

    single: ClassVar[bool] = False

    def __init__(self) -> None:
        self.events: Iterator[Event] | None = None

    def fill(self, events: Iterable[Event] = ()) -> None:
        """Fill the place, perhaps with nothing; each event is made when it is taken."""
        self.events = iter(events)


class StoreWork(Tickets[Then, Effect[Any]]):
    """Effects for the store, events that wait for it, and the bytes it has yet to confirm.

    Events come out in the order of their causes: one that waits for the store holds back those
    after it.  Once the store has failed, it is asked for nothing more.

    suits: an extra check on answers (see `Tickets`).
    """

    __slots__ = ("_has_failed", "_order", "_stopped", "_unwritten_size")

    def __init__(self, *, suits: Callable[[object], bool] | None = None) -> None:
        super().__init__(suits=suits)
        self._order: deque[Event | Place] = NOTHING
        self._unwritten_size = 0
        self._has_failed = False
        self._stopped = False  # answers have no consequences

    # Queries.

    @property
    def has_failed(self) -> bool:
        """Whether the store has failed to carry out an effect."""
        return self._has_failed

    @property
    def unwritten_size(self) -> int:
        """Bytes received that the store has not confirmed."""
        return self._unwritten_size

    @property
    def all_told(self) -> bool:
        """Whether no event waits."""
        return not self._order

    @property
    def load(self) -> int:
        """The number of outstanding answers, plus that of events and places in the order."""
        return len(self._asked) + len(self._open) + len(self._order)

    # Effects.

    def ask(
        self, kind: Callable[..., Effect[R]], then: Callable[[R], None], /, **fields: Any
    ) -> None:
        """Make an effect, to be handed out in its turn; its result goes to `then`."""
        if not self._stopped:
            super().ask(kind, then, **fields)

    def stop(self) -> None:
        """Ask for nothing more; later answers have no consequences."""
        self._stopped = True
        self.drop_asked()

    def complete(self, ticket: Ticket[R], result: R) -> None:
        """Answer an effect (see `Tickets.answered`); no consequences after `fail` or `stop`."""
        then = self.answered(ticket, result)
        if not self._stopped:
            then(result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        """Expect no answer to an effect any more (see `Tickets.failed`).

        The first event that waits for the store is dropped, with all after it; the failure is
        reported in their place.
        """
        failure, _ = self.failed(ticket, error)
        if self._stopped:
            return
        self._has_failed = True
        self.stop()
        self._order = deque(takewhile(_is_known, self._order))
        self._unwritten_size = 0
        self.emit(failure)

    # Bytes.

    def hold(self, size: int) -> None:
        """Count bytes received for the store."""
        if not self._has_failed:
            self._unwritten_size += size

    def release(self, size: int) -> None:
        """Count them no more: the store has them, or will never get them."""
        if not self._has_failed:
            self._unwritten_size -= size

    # Events.

    def emit(self, event: Event) -> None:
        """Let an event come out in its turn."""
        if self._order is NOTHING:
            self._order = deque()
        self._order.append(event)

    def reserve(self) -> Place:
        """Take a place in the order for events that depend on the store."""
        place = Place()
        self.line_up((place,))
        return place

    def line_up(self, places: Iterable[Place]) -> None:
        """Put these places in the order, as `reserve` does with one."""
        if self._order is NOTHING:
            self._order = deque()
        self._order.extend(places)

    def next_event(self) -> Event | None:
        """Take the next event, unless it has to wait for the store."""
        order = self._order
        while order:
            first = order[0]
            if not isinstance(first, Place):
                order.popleft()
                return first
            events = first.events
            if events is None:
                return None
            for event in events:
                if first.single:
                    order.popleft()
                return event
            order.popleft()
        self._order = NOTHING
        return None


def _is_exception(value: object) -> bool:
    return isinstance(value, Exception)


def _is_known(item: Event | Place) -> bool:
    return not isinstance(item, Place) or item.events is not None


def _wrong(effect: Effect[Any], result: object) -> LocalProtocolError:
    kind = type(effect).__name__
    return LocalProtocolError(
        ContractErrorCode.WRONG_RESULT, f"{type(result).__name__} does not answer {kind}"
    )


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """A store's answer to an effect: a result, or the exception that it raised.

    It may be made in a thread other than the machine's.
    """

    effect: Effect[R]
    result: R | None
    error: Exception | None

    @staticmethod
    def of(effect: Effect[T], perform: Callable[[Effect[T]], T]) -> Answer[T]:
        """Carry out `effect`; an exception of `perform` becomes the answer."""
        try:
            return Answer(effect, perform(effect), None)
        except Exception as error:
            return Answer(effect, None, error)

    def give(self, machine: Durable) -> None:
        """Pass it to the machine, by `Durable.complete` or `Durable.fail`.

        A result of the wrong kind is a failure of the store, too: its error is the machine's
        refusal (``WRONG_RESULT``).
        """
        ticket: Ticket[Any] = self.effect.ticket
        error = self.error
        if error is None:
            try:
                return machine.complete(ticket, self.result)
            except LocalProtocolError as refusal:
                if refusal.code is not ContractErrorCode.WRONG_RESULT:
                    raise
                error = refusal
        return machine.fail(ticket, error)
