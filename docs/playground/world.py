"""Machines of any protocol in virtual time, over a network that does as it is told.

The world drives every machine by the one law: an input, then events until there are none, then
effects, then bytes, then the deadline.  All that comes of one input is one `Step`.  Nothing here
is left to chance: the same scenario with the same changes gives the same steps, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from culm.machine import Closed, DatagramMachine, LinkedMachine, ProtocolError
from playground.changes import CAN, MESSAGE_VERBS, Change
from playground.rooms import Room, Seat

__all__ = ["Act", "Message", "Scenario", "Step", "Try", "View", "World"]

STEPS_MAX = 600
"""Steps of a conversation; what a reader changes must not make it endless."""

_LATE = 12  # latencies by which a late message is later


@dataclass(frozen=True, slots=True)
class Act:
    """Something that a scenario has happen: `verb` as in `Change`, at a time in seconds.

    who: members; ``leader`` is the one that leads then, ``killed`` one that lives no more.
    """

    at: float
    verb: str
    who: tuple[str, ...] = ()
    deed: str = ""


@dataclass(frozen=True, slots=True)
class Try:
    """A change that is proposed to the reader.

    label: of the message that it concerns: the first one from `after` seconds on whose label holds
        this; without one it is a change after the first step from then on.
    who: the member, ``leader`` for the one that leads then.
    """

    words: str
    verb: str
    label: str = ""
    after: float = 0.0
    who: str = ""
    deed: str = ""
    offset: int = 0
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A conversation: who takes part, what they do and when, and what the network does.

    absent: members that are not there at the beginning.
    loss: the part of all datagrams that gets lost.
    """

    name: str
    title: str
    story: str
    room: Room
    members: tuple[str, ...]
    until: float
    script: tuple[Act, ...] = ()
    absent: frozenset[str] = frozenset()
    latency_s: float = 0.1
    loss: float = 0.0
    tries: tuple[Try, ...] = ()


@dataclass(slots=True, eq=False)
class Wire:
    """A connection: its ends by member (``None``: gone), and until when each direction is busy."""

    ends: dict[str, Any]
    free_at: dict[str, float] = field(default_factory=dict[str, float])
    shut: set[str] = field(default_factory=set[str])
    """Members that have sent the end of their stream."""
    heard: set[str] = field(default_factory=set[str])
    """Members that have been told of the other's end."""

    def other(self, name: str) -> str:
        """The member at the other end."""
        return next(each for each in self.ends if each != name)


@dataclass(slots=True, kw_only=True)
class Message:
    """Bytes on their way, or there; `fate` says how it went.

    sent, step: the steps in which it was sent, and came or was lost.
    """

    number: int
    source: str
    target: str
    data: bytes
    carrier: str
    sent: int
    sent_at: float
    due_at: float
    wire: Wire | None = None
    step: int | None = None
    fate: str = "on its way"
    changes: list[str] = field(default_factory=list[str])
    doomed: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What a member is like after a step."""

    alive: bool
    state: str = ""
    due: float | None = None
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class Step:
    """One input, and all that came of it.

    node: the member that it happened to, if it was one.
    call: what was called, as one would write it.
    effects: each with the answer of the store.
    views: of the members that it has changed.
    apart: pairs that do not reach each other.
    leader: the member that leads, if one does.
    """

    number: int
    at: float
    kind: str
    words: str
    node: str | None = None
    call: str = ""
    message: int | None = None
    error: str = ""
    events: list[Any] = field(default_factory=list[Any])
    effects: list[tuple[Any, Any]] = field(default_factory=list[tuple[Any, Any]])
    sent: list[int] = field(default_factory=list[int])
    views: dict[str, View] = field(default_factory=dict[str, View])
    apart: tuple[tuple[str, str], ...] = ()
    leader: str = ""


class World:
    """One run of a scenario with changes; `steps` and `messages` are what came of it.

    refused: changes that found nothing to change, in words.
    """

    def __init__(self, scenario: Scenario, changes: Sequence[Change] = ()) -> None:
        self.scenario = scenario
        self.room = scenario.room
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self.now = 0.0
        self._seats = {name: Seat(name, scenario.members) for name in scenario.members}
        self._machines: dict[str, Any] = {}
        self._apart: set[frozenset[str]] = set()
        self._wires: list[Wire] = []
        self._held: list[Message] = []
        self._unseen: dict[str, View] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._fates: dict[int, list[Change]] = {}
        self._after: dict[int, list[Change]] = {}
        for each in changes:
            if each.message is not None:
                self._fates.setdefault(each.message, []).append(each)
            elif each.step is not None:
                self._after.setdefault(each.step, []).append(each)

    @property
    def refused(self) -> list[str]:
        """Changes that found nothing to change."""
        messages = [f"message {number} was never sent" for number in sorted(self._fates)]
        return messages + [f"there is no step {number}" for number in sorted(self._after)]

    def run(self) -> None:
        """Let all of it happen."""
        self._begin()
        for act in self.scenario.script:
            self._later(act.at, partial(self._act, act))
        while len(self.steps) < STEPS_MAX:
            if waiting := self._after.pop(len(self.steps) - 1, None):
                self._change(waiting[0])
                if len(waiting) > 1:  # each is a step, so the next one comes after this
                    self._after.setdefault(len(self.steps) - 1, [])[:0] = waiting[1:]
                continue
            found = self._next()
            if found is None or found[0] > self.scenario.until:
                return
            self.now = max(self.now, found[0])
            found[1]()

    def _begin(self) -> None:
        step = self._step("begins", "The beginning")
        for name in self.scenario.members:
            if name in self.scenario.absent:
                step.views[name] = View(False)
            else:
                self._make(name)
        if not isinstance(next(iter(self._machines.values())), (DatagramMachine, LinkedMachine)):
            self._wires.append(Wire(dict(self._machines)))
        for name in self._machines:
            self._drain(step, name)

    def _make(self, name: str) -> None:
        seat = self._seats[name]
        seat.lives += 1
        chance = Random(f"{self.scenario.name} {name} {seat.lives}")
        self._machines[name] = self.room.make(seat, chance, self.now)

    # What comes next.

    def _later(self, at: float, call: Callable[[], None]) -> None:
        heappush(self._queue, (at, next(self._order), call))

    def _next(self) -> tuple[float, Callable[[], None]] | None:
        """The next thing to happen: what is under way goes before deadlines of the same time."""
        found: tuple[float, Callable[[], None]] | None = None
        for name, machine in self._machines.items():
            due = _due(machine)
            if due is not None and (found is None or due < found[0]):
                found = due, partial(self._advance, name)
        if self._queue and (found is None or self._queue[0][0] <= found[0]):
            return self._queue[0][0], self._do_first
        return found

    def _do_first(self) -> None:
        *_, call = heappop(self._queue)
        call()

    def _step(self, kind: str, words: str, node: str | None = None, call: str = "") -> Step:
        step = Step(
            number=len(self.steps), at=self.now, kind=kind, words=words, node=node, call=call
        )
        step.apart = tuple(sorted((min(pair), max(pair)) for pair in self._apart))
        step.leader = self._named("leader") or ""
        step.views, self._unseen = self._unseen, {}
        self.steps.append(step)
        return step

    # What happens.

    def _advance(self, name: str) -> None:
        step = self._step("due", "has a deadline", name, f"advance({self.now:.3f})")
        self._drain(step, name)
        if not (step.events or step.effects or step.sent):  # nothing to show but another deadline
            self._unseen |= step.views
            self.steps.pop()

    def _act(self, act: Act) -> None:
        who = tuple(name for each in act.who if (name := self._named(each)) is not None)
        if not who and act.who:  # nobody leads, or nobody is dead: a change has seen to that
            self._step("refused", f"Nobody is there to {act.deed or act.verb}")
            return
        match act.verb:
            case "kill":
                self._kill(who[0])
            case "start":
                self._start(who[0])
            case "cut":
                self._cut(who)
            case "unlink":
                self._cut(who, pairs=[frozenset(who)])
            case "heal":
                self._heal()
            case "do":
                self._do(who[0], act.deed)
            case other:
                raise ValueError(other)

    def _named(self, who: str) -> str | None:
        """The member of that name.

        ``leader`` is the one that leads, in the newest term if there are two; ``killed`` one that
        lives no more.
        """
        if who == "killed":
            dead = (name for name in self._seats if name not in self._machines)
            return next(dead, None)
        if who != "leader":
            return who
        leading = [name for name, each in self._machines.items() if self.room.leads(each)]
        return max(leading, key=lambda name: getattr(self._machines[name], "term", 0), default=None)

    def _change(self, change: Change) -> None:
        if change.verb != "heal" and change.node not in self._seats:
            self._step("refused", f"There is no {change.node}")
            return
        who = (change.node,) if change.node else ()
        self._act(Act(self.now, change.verb, who, change.deed))

    def _do(self, name: str, deed: str) -> None:
        words, verb = self.room.deeds.get(deed, ("", None))
        step = self._step("does", words or deed, name, deed)
        machine = self._machines.get(name)
        if verb is None or machine is None:
            step.error = "nobody is there" if machine is None else "nothing that it can do"
            return
        self._tell_time(machine)
        self._attempt(step, lambda: verb(machine, self._seats[name]))
        self._drain(step, name)

    @staticmethod
    def _attempt(step: Step, call: Callable[[], object]) -> None:
        try:
            call()
        except (ProtocolError, KeyError, ValueError) as error:
            name = getattr(getattr(error, "code", None), "name", type(error).__name__)
            step.error = f"{name}: {error}"

    def _kill(self, name: str) -> None:
        step = self._step("dies", "is killed", name)
        if self._machines.pop(name, None) is None:
            step.error = "it was dead already"
            return
        step.views[name] = View(False)
        for wire in self._wires_of(name):
            wire.ends[name] = None
            self._shut(step, wire, name)

    def _start(self, name: str) -> None:
        step = self._step("starts", "is started", name)
        if name in self._machines or not self.room.restarts:
            step.error = "it lives" if name in self._machines else "its connection is gone"
            return
        self._make(name)
        self._drain(step, name)

    def _cut(self, who: tuple[str, ...], pairs: Iterable[frozenset[str]] | None = None) -> None:
        if pairs is None:
            others = [name for name in self._seats if name not in who]
            pairs = [frozenset((one, other)) for one in who for other in others]
        self._apart |= set(pairs)
        names = " and ".join(who)
        if frozenset(who) in self._apart:
            self._step("cut", f"No way between {names}")
        else:
            self._step("cut", f"{names} {'are' if len(who) > 1 else 'is'} cut off")

    def _heal(self) -> None:
        self._apart.clear()
        self._step("heals", "All can reach each other again")
        held, self._held = self._held, []
        for message in held:
            self._dispatch(message)

    # Machines.

    def _tell_time(self, machine: Any) -> None:
        if hasattr(machine, "advance"):
            machine.advance(self.now)

    def _drain(self, step: Step, name: str) -> None:
        """Events until there are none, effects, bytes; then look at the deadline."""
        machine, seat = self._machines[name], self._seats[name]
        self._tell_time(machine)
        ended = False
        while True:
            if (event := machine.next_event()) is not None:
                step.events.append(event)
                ended |= isinstance(event, Closed)
                if (wanted := self.room.wanted(event)) is not None:
                    self._dial(name, wanted)
            elif (effect := getattr(machine, "next_effect", lambda: None)()) is not None:
                answer = seat.store.perform(effect)
                step.effects.append((effect, answer))
                machine.complete(effect.ticket, answer)
            else:
                break
        self._take_bytes(step, name, machine, ended)
        step.views[name] = View(
            True, machine.state.name, _due(machine), tuple(self.room.facts(machine, seat))
        )

    def _take_bytes(self, step: Step, name: str, machine: Any, ended: bool) -> None:
        if isinstance(machine, DatagramMachine):
            for target, data in machine.datagrams_to_send():
                to = target.decode(errors="replace")
                if to in self._seats:
                    self._send(step, name, to, data, "datagram")
            return
        if isinstance(machine, LinkedMachine):
            ready = {id(link): link for link in machine.links_to_send()}
        else:
            ready = {id(machine): machine}
        for wire in self._wires_of(name):
            end = wire.ends[name]
            if id(end) not in ready:
                continue
            while name not in wire.shut and (data := end.data_to_send()):
                self._send(step, name, wire.other(name), data, "stream", wire)
            if ended or getattr(end, "closed", False):
                self._shut(step, wire, name)

    def _wires_of(self, name: str) -> list[Wire]:
        return [wire for wire in self._wires if wire.ends.get(name) is not None]

    def _dial(self, name: str, to: str) -> None:
        takes = self._latency(len(self.messages) + len(self.steps))
        self._later(self.now + takes, partial(self._dialled, name, to, self._machines[name]))

    def _dialled(self, name: str, to: str, asked: Any) -> None:
        near, far = self._machines.get(name), self._machines.get(to)
        if near is None or near is not asked:  # it has died in the meantime
            return
        if frozenset((name, to)) in self._apart:
            far = None
        call = f"dial_failed({to[1:]})" if far is None else f"dialled({to[1:]})"
        words = f"cannot reach {to}" if far is None else f"has a connection to {to}"
        step = self._step("dialled", words, name, call)
        self._tell_time(near)
        number = int(to[1:])
        if far is None:
            near.dial_failed(number)
        else:
            self._tell_time(far)
            self._wires.append(Wire({name: near.dialled(number), to: far.accepted()}))
        self._drain(step, name)

    # The network.

    def _latency(self, number: int) -> float:
        return self.scenario.latency_s * (1 + 0.5 * Random(number).random())

    def _send(
        self,
        step: Step,
        source: str,
        target: str,
        data: bytes,
        carrier: str,
        wire: Wire | None = None,
    ) -> None:
        number = len(self.messages)
        message = Message(
            number=number,
            source=source,
            target=target,
            data=data,
            carrier=carrier,
            sent=step.number,
            sent_at=self.now,
            due_at=self.now + self._latency(number),
            wire=wire,
        )
        self.messages.append(message)
        step.sent.append(number)
        if carrier == "datagram" and Random(f"loss {number}").random() < self.scenario.loss:
            message.doomed = "drop"
        for change in self._fates.pop(number, ()):
            self._apply(step, message, change)
        self._dispatch(message)

    def _apply(self, step: Step, message: Message, change: Change) -> None:
        if change.verb not in CAN[message.carrier]:
            return
        match change.verb:
            case "byte":
                if change.offset >= len(message.data):
                    return
                changed = bytearray(message.data)
                changed[change.offset] = change.value
                message.data = bytes(changed)
            case "late":
                message.due_at += _LATE * self.scenario.latency_s
            case "twice":
                self._send(step, message.source, message.target, message.data, message.carrier)
                self.messages[-1].changes.append("again")
            case verb:
                assert verb in MESSAGE_VERBS
                message.doomed = verb
        message.changes.append(change.verb)

    def _dispatch(self, message: Message) -> None:
        """Let a message go; on a wire none overtakes another."""
        message.due_at = max(message.due_at, self.now)
        if message.wire is not None:
            free = message.wire.free_at
            message.due_at = max(message.due_at, free.get(message.source, 0.0))
            free[message.source] = message.due_at
        self._later(message.due_at, lambda: self._arrive(message))

    def _arrive(self, message: Message) -> None:
        apart = frozenset((message.source, message.target)) in self._apart
        if apart and message.wire is not None:  # what was sent is sent again below
            message.fate = "waits"
            self._held.append(message)
            return
        machine = self._machines.get(message.target)
        end = machine if message.wire is None else message.wire.ends.get(message.target)
        if message.doomed or apart or end is None or getattr(end, "closed", False):
            self._lose(message, apart=apart, broken=message.doomed == "break")
            return
        from_whom = f"from {message.source}"
        step = self._step("arrives", from_whom, message.target)
        step.message, message.step, message.fate = message.number, step.number, "came"
        self._tell_time(machine)
        if message.carrier == "datagram":
            step.call = f"receive_datagram({len(message.data)} bytes, source={message.source})"
            end.receive_datagram(message.data, source=message.source.encode())
        elif message.carrier == "end":
            self._end(step, message.wire, message.target)
        else:
            step.call = f"receive_data({len(message.data)} bytes)"
            end.receive_data(message.data)
        self._drain(step, message.target)

    def _lose(self, message: Message, *, apart: bool, broken: bool) -> None:
        why = "the connection breaks" if broken else "no way" if apart else "nobody hears it"
        if message.doomed == "drop":
            why = "lost"
        step = self._step("lost", f"from {message.source}: {why}", message.target)
        step.message, message.step, message.fate = message.number, step.number, "lost"
        wire = message.wire
        if broken and wire is not None and wire.ends.get(message.target) is not None:
            self._end(step, wire, message.target)
            wire.shut.add(message.source)
            self._drain(step, message.target)
            self._shut(step, wire, message.target)

    def _end(self, step: Step, wire: Wire | None, name: str) -> None:
        """Tell a member that the other end of a wire has ended."""
        assert wire is not None
        step.call = "receive_eof()"
        if name not in wire.heard:
            wire.heard.add(name)
            wire.ends[name].receive_eof()

    def _shut(self, step: Step, wire: Wire, name: str) -> None:
        """Send the end of a member's stream, once."""
        other = wire.other(name)
        if name not in wire.shut:
            wire.shut.add(name)
            if wire.ends.get(other) is not None:
                self._send(step, name, other, b"", "end", wire)


def _due(machine: Any) -> float | None:
    due = machine.next_deadline() if hasattr(machine, "next_deadline") else None
    return None if due is None else float(due)
