"""The law of driving as a class: one input, then drain.

`Driver` does one operation to a machine and drains it: events until ``None``, then
effects, then bytes, until a round brings nothing; then the deadline.  The results form a
`Turn`.  Links, the property suite, transcripts and the line driver all drive through it.
A machine with several links is driven like one with a single stream, each link by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from culm.machine import Closed, Effect, Event, Link, LocalProtocolError
from culm.machines.config import Config
from culm.machines.machine_type import MachineType, Responder, Verb, VerbErrorCode
from culm.machines.memory import retained_size
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Fail,
    Operation,
    Receive,
    ReceiveDatagram,
    StoreFault,
)
from culm.machines.plain import JSON, to_plain
from culm.machines.signatures import named_arguments

_EVENTS_MAX = 100_000
SIZE_MAX = 1 << 28  # bytes that a machine may give without an input
_FEW = 16  # fewer things are not measured

# Inputs and outputs belong to the driver, and are no verbs of the machine's user.
_INPUTS_AND_OUTPUTS = frozenset(
    {
        "advance",
        "complete",
        "data_to_send",
        "fail",
        "datagrams_to_send",
        "links_to_send",
        "next_deadline",
        "next_effect",
        "next_event",
        "read_size",
        "receive_data",
        "receive_datagram",
        "receive_eof",
    }
)


def check_end(what: str, things: Sequence[object], count_max: int = _EVENTS_MAX) -> None:
    """Raise `EndlessError` if a machine gives too many things, or they are too large together.

    Call it for each further thing: sizes are measured whenever the number has doubled.
    """
    count = len(things)
    if count > count_max:
        raise EndlessError(f"more than {count_max} {what} without an input")
    if count >= _FEW and not count & (count - 1) and retained_size(list(things)) > SIZE_MAX:
        raise EndlessError(f"{what} of more than {SIZE_MAX} bytes without an input")


CallVerb = Callable[[str, Verb, Any, Mapping[str, Any]], object]


def _call_verb(_name: str, verb: Verb, machine: Any, arguments: Mapping[str, Any]) -> object:
    return verb(machine, **arguments)


def own_verbs(machine: object) -> list[str]:
    """The names of the methods of `machine` that `Call` may name, without the registry's."""
    names = [name for name in dir(type(machine)) if not name.startswith("_")]
    own = [name for name in names if name not in _INPUTS_AND_OUTPUTS]
    return [name for name in own if callable(getattr(type(machine), name))]


class EndlessError(AssertionError):
    """A machine, or a link of two, did not come to rest within the bound."""


class UnknownVerbError(LookupError):
    """The machine offers no method of that name to its users."""


class WrongKindError(TypeError):
    """The operation is not for a machine of this kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One input and all its results, in the order of the law.  Compared by value.

    operation: the input; ``None`` for the drain of a machine just built.
    error: the `LocalProtocolError` with which the operation was refused, if any.
    result: the call's return value, as plain data.
    events, states: the events, and the machine's state after each was returned.
    sent: the bytes taken; datagrams: (destination, bytes) taken; links: (number of the
        link, bytes) taken, by number.
    """

    operation: Operation | None
    error: LocalProtocolError | None = None
    result: JSON = None
    events: tuple[Event, ...] = ()
    states: tuple[Enum, ...] = ()
    effects: tuple[Effect[Any], ...] = ()
    sent: bytes = b""
    datagrams: tuple[tuple[Hashable, bytes], ...] = ()
    links: tuple[tuple[int, bytes], ...] = ()
    deadline: float | None = None


class Driver:
    """Drives one machine.

    verbs: calls that `Call` may name besides the machine's own public methods.
    respond: answers the effects, when `answer` is called; without it they wait for `Complete`.
    take: takes the bytes of a stream machine, or of a link, in a drain; all at once by
        default.  Bytes that it leaves in a link are taken in a later drain.
    """

    def __init__(
        self,
        machine: Any,
        *,
        verbs: Mapping[str, Verb] | None = None,
        respond: Responder | None = None,
        take: Callable[[Any], bytes] | None = None,
        events_max: int = _EVENTS_MAX,
    ) -> None:
        self.machine = machine
        self.closed: Closed | None = None
        self.unanswered: list[Effect[Any]] = []
        self._verbs: Mapping[str, Verb] = {} if verbs is None else verbs
        self.respond = respond
        self.take = take
        self.events_max = events_max
        self._hear: Callable[[Operation], object] | None = None
        self._call_verb: CallVerb = _call_verb
        self._links: dict[int, Link] = {}  # all that were ever seen
        self._is_stream = hasattr(machine, "receive_data")
        self._is_linked = not self._is_stream and hasattr(machine, "links_to_send")
        self._is_timed = hasattr(machine, "next_deadline")
        self._is_durable = hasattr(machine, "next_effect")

    def take_by(self, take: Callable[[Any], bytes] | None) -> None:
        """Let drains take bytes with `take` from now on."""
        self.take = take

    def answer_by(self, respond: Responder | None) -> None:
        """Let `respond` answer effects from now on; with ``None`` they wait for `Complete`."""
        self.respond = respond

    def listen(self, hear: Callable[[Operation], object]) -> None:
        """Call `hear` with each operation from now on, before it is done."""
        self._hear = hear

    def call_by(self, call: CallVerb) -> None:
        """Call the registry's verbs through `call`: name, verb, machine, arguments."""
        self._call_verb = call

    def withhold(self, effect: Effect[Any]) -> None:
        """Never answer `effect`, which waits for an answer."""
        self.unanswered = [each for each in self.unanswered if each is not effect]

    def wrap(self, machine: Any) -> None:
        """Drive `machine`, a wrapper around the present one, from now on."""
        self.machine = machine

    @classmethod
    def of(
        cls,
        machine: MachineType,
        config: Config,
        *,
        respond: bool = True,
        take: Callable[[Any], bytes] | None = None,
    ) -> Driver:
        """A driver of a new machine; with `respond` the registry's store answers effects."""
        return cls(
            machine.make(config),
            verbs=machine.verbs,
            respond=machine.store(config) if respond else None,
            take=take,
        )

    @property
    def is_stream(self) -> bool:
        """Whether the machine has a single stream."""
        return self._is_stream

    @property
    def is_linked(self) -> bool:
        """Whether the machine has links."""
        return self._is_linked

    @property
    def links(self) -> dict[int, Link]:
        """All links that the machine has, or has had, by number."""
        if self._is_linked:
            self._links.update((link.number, link) for link in self.machine.links)
        return self._links

    @property
    def open_links(self) -> list[int]:
        """The numbers of the links that the machine still has."""
        return [link.number for link in self.machine.links] if self._is_linked else []

    @property
    def is_timed(self) -> bool:
        """Whether the machine has deadlines."""
        return self._is_timed

    def read_size(self, link: int | None = None) -> int:
        """Bytes that the machine, or that link of it, wants now; 0 for an unknown link."""
        if self._is_stream:
            size: int = self.machine.read_size()
            return size
        found = None if link is None else self.links.get(link)
        return 0 if found is None else found.read_size()

    def start(self) -> list[Turn]:
        """Drain the machine before any input; returns the turns, answers included."""
        return [self.drain(None), *self.answer()]

    def run(self, operation: Operation) -> list[Turn]:
        """Do `operation`, drain, and answer effects if `respond` is set; returns all turns."""
        return [self.do(operation), *self.answer()]

    def tell(self, operations: Iterable[Operation]) -> list[Turn]:
        """Start, and run each of the operations; returns all turns."""
        turns = self.start()
        for operation in operations:
            turns += self.run(operation)
        return turns

    def do(self, operation: Operation) -> Turn:
        """Do `operation` and drain; a `LocalProtocolError` is noted in the turn."""
        try:
            result = self.apply(operation)
            if result is not None and self._is_linked and isinstance(result, Link):
                result = result.number
        except LocalProtocolError as error:
            return self.drain(operation, error=error.with_traceback(None))
        return self.drain(operation, result=to_plain(result))

    def answer(self) -> list[Turn]:
        """Answer all effects taken so far, and those that follow from the answers, oldest first."""
        turns: list[Turn] = []
        while self.respond is not None and self.unanswered:
            effect = self.unanswered[0]
            turns.append(self.do(Complete(effect.ticket, self.respond(effect))))
            self._spend(
                effect.ticket
            )  # also after a refusal: the store of the registry has no other answer
            check_end("effects", turns, self.events_max)
        return turns

    def apply(self, operation: Operation) -> object:
        """Do `operation` without draining; returns a call's result.

        Raises the machine's errors, `UnknownVerbError`, `WrongKindError` and, for an argument
        that names no member of its enum, `ValueError`.
        """
        machine = self.machine
        if self._hear is not None:
            self._hear(operation)
        match operation:
            case Receive(data, link):
                if link is None:
                    self._need("receive_data")(data)
                else:
                    self._link(link).receive_data(data)
            case Eof(link):
                if link is None:
                    self._need("receive_eof")()
                else:
                    self._link(link).receive_eof()
            case ReceiveDatagram(data, source):
                self._need("receive_datagram")(data, source=source)
            case Advance(now):
                self._need("advance")(now)
            case Complete(ticket, result):
                self._need("complete")(ticket, result)
                self._spend(ticket)
            case Fail(ticket, message):
                self._need("fail")(ticket, StoreFault(message))
                self._spend(ticket)
            case Call(method, args):
                verb = self._verbs.get(method)
                if verb is not None:
                    return self._call_verb(method, verb, machine, named_arguments(verb, args))
                own = self._method(method)
                return own(**named_arguments(own, args))
        return None

    def _spend(self, ticket: int) -> None:
        self.unanswered = [effect for effect in self.unanswered if effect.ticket != ticket]

    def drain(
        self,
        operation: Operation | None,
        *,
        error: LocalProtocolError | None = None,
        result: JSON = None,
    ) -> Turn:
        """Take everything, in the order of the law, until a round brings nothing."""
        events: list[Event] = []
        states: list[Enum] = []
        effects: list[Effect[Any]] = []
        sent: list[bytes] = []
        datagrams: list[tuple[Hashable, bytes]] = []
        links: dict[int, list[bytes]] = {}
        rounds: list[object] = []
        while True:
            happened = self.take_events()
            events += happened[0]
            states += happened[1]
            taken = (
                self.take_effects(),
                self.take_bytes(),
                self.take_datagrams(),
                self.take_links(),
            )
            if not any(taken):  # nothing was taken, so no room was made for more
                break
            effects += taken[0]
            sent.append(taken[1])
            datagrams += taken[2]
            for number, data in taken[3]:
                links.setdefault(number, []).append(data)
            rounds.append((happened[0], taken))
            check_end("rounds", rounds, self.events_max)
        return Turn(
            operation=operation,
            error=error,
            result=result,
            events=tuple(events),
            states=tuple(states),
            effects=tuple(effects),
            sent=b"".join(sent),
            datagrams=tuple(datagrams),
            links=tuple((number, b"".join(links[number])) for number in sorted(links)),
            deadline=self.deadline(),
        )

    def take_events(self) -> tuple[tuple[Event, ...], tuple[Enum, ...]]:
        """Take all events, and the state after each."""
        machine = self.machine
        events: list[Event] = []
        states: list[Enum] = []
        while (event := self.take_event()) is not None:
            events.append(event)
            states.append(machine.state)
            check_end("events", events, self.events_max)
        return tuple(events), tuple(states)

    def take_event(self) -> Event | None:
        """Take one event, if there is any."""
        event: Event | None = self.machine.next_event()
        if isinstance(event, Closed):
            self.closed = event
        return event

    def take_effects(self) -> tuple[Effect[Any], ...]:
        """Take all effects; they are `unanswered` from now on."""
        if not self._is_durable:
            return ()
        effects: list[Effect[Any]] = []
        while (effect := self.take_effect()) is not None:
            effects.append(effect)
            check_end("effects", effects, self.events_max)
        return tuple(effects)

    def take_effect(self) -> Effect[Any] | None:
        """Take one effect, if there is any; it is `unanswered` from now on."""
        effect: Effect[Any] | None = self.machine.next_effect() if self._is_durable else None
        if effect is not None:
            self.unanswered.append(effect)
        return effect

    def take_bytes(self) -> bytes:
        """Take the bytes for the peer, with `take` if it is set."""
        if not self._is_stream:
            return b""
        sent: bytes = self.machine.data_to_send() if self.take is None else self.take(self.machine)
        return sent

    def take_datagrams(self) -> tuple[tuple[Hashable, bytes], ...]:
        """Take all datagrams to send, each with its destination."""
        if self._is_stream or self._is_linked:
            return ()
        return tuple(self.machine.datagrams_to_send())

    def take_links(self) -> tuple[tuple[int, bytes], ...]:
        """Take the bytes of links, each with its link's number, with `take` if it is set."""
        if not self._is_linked:
            return ()
        named: Sequence[Link] = self.machine.links_to_send()
        self._links.update((link.number, link) for link in named)
        if self.take is None:
            return tuple((link.number, data) for link in named if (data := link.data_to_send()))
        return tuple(
            (number, data) for number, link in self.links.items() if (data := self.take(link))
        )

    def deadline(self) -> float | None:
        """When the machine next needs the time; ``None`` if never."""
        return self.machine.next_deadline() if self._is_timed else None

    def _link(self, number: int) -> Link:
        if not self._is_linked:
            raise WrongKindError(f"{type(self.machine).__name__} has no links")
        link = self.links.get(number)
        if link is None:
            raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE, f"link {number}")
        return link

    def _need(self, name: str) -> Callable[..., object]:
        method: Callable[..., object] | None = getattr(self.machine, name, None)
        if method is None:
            raise WrongKindError(f"{type(self.machine).__name__} has no {name}")
        return method

    def _method(self, name: str) -> Callable[..., object]:
        method = None if name.startswith("_") else getattr(self.machine, name, None)
        if name in _INPUTS_AND_OUTPUTS or not callable(method):
            there_are = ", ".join(sorted({*self._verbs, *own_verbs(self.machine)}))
            raise UnknownVerbError(
                f"{type(self.machine).__name__} has no verb {name!r}; there are: {there_are}"
            )
        found: Callable[..., object] = method
        return found
