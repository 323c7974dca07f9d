"""Each law of life finds each machine that breaks it: none is registered in vain.

Machines are wrapped so that they break one law.  The laws themselves are tried on small machines in
``tests/testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest
from hypothesis import settings

import effort
from culm.machine import Buffer, Closed, Effect, Event, Link
from culm.machines import Config
from culm.machines.driver import EndlessError
from culm.testing.record import conversations
from culm.testing.spec import MachineSpec
from culm.testing.suite import PROPERTIES, PropertyError
from spec_changes import spec_with
from specs import SPECS

LAWS = {law.name: law for law in PROPERTIES}

_STEP_SIZE = 16  # bytes that count as a step when a function returns them

settings.register_profile("law canary", settings.get_profile("canary"), max_examples=60)


class Wrapped:
    """A machine, or one of its links, unchanged so far."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Listener(Wrapped):
    """A stream, a link or a machine for datagrams that acts on its input."""

    def __init__(self, inner: Any, hear: Callable[[Listener, bytes], None]) -> None:
        super().__init__(inner)
        self._hear = hear
        self.waiting: list[tuple[Hashable, bytes]] = []
        kind = "receive_datagram" if hasattr(inner, "receive_datagram") else "receive_data"
        setattr(self, kind, getattr(self, f"_{kind}"))

    def _receive_data(self, data: Buffer) -> None:
        self._inner.receive_data(data)
        self._hear(self, bytes(data))

    def _receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        self._inner.receive_datagram(data, source=source)
        self._hear(self, bytes(data))

    def data_to_send(self, size_max: int | None = None) -> bytes:
        sent: bytes = self._inner.data_to_send(size_max)
        waiting, self.waiting = self.waiting, []
        return sent + b"".join(data for _, data in waiting)

    def datagrams_to_send(self) -> list[tuple[Hashable, bytes]]:
        waiting, self.waiting = self.waiting, []
        return [*self._inner.datagrams_to_send(), *waiting]


class Linked(Wrapped):
    """A machine each of whose links is a `Listener`."""

    def __init__(self, inner: Any, hear: Callable[[Listener, bytes], None]) -> None:
        super().__init__(inner)
        self._hear = hear
        self._wrapped: dict[int, Listener] = {}

    @property
    def links(self) -> list[Listener]:
        return [self._wrap(link) for link in self._inner.links]

    def links_to_send(self) -> list[Listener]:
        return [self._wrap(link) for link in self._inner.links_to_send()]

    def _wrap(self, link: Link) -> Listener:
        return self._wrapped.setdefault(link.number, Listener(link, self._hear))


def _listening(inner: Any, hear: Callable[[Listener, bytes], None]) -> Wrapped:
    return (Linked if hasattr(inner, "links_to_send") else Listener)(inner, hear)


def answers_everything_at_length(spec: MachineSpec, inner: Any) -> Wrapped:
    def hear(listener: Listener, data: bytes) -> None:
        listener.waiting.append((b"peer", 64 * data))

    return _listening(inner, hear)


def takes_pains_with_what_is_not_flat(spec: MachineSpec, inner: Any) -> Wrapped:
    first = spec.attacks.frames[0]
    flat = frozenset(first.wrap(next(iter(first.contents.values()))(first.size)))

    def hear(listener: Listener, data: bytes) -> None:
        odd = sum(byte not in flat for byte in data[:5_000])
        _made(300 * _STEP_SIZE * odd)

    return _listening(inner, hear)


def _made(size: int) -> bytes:
    return bytes(size)


class DropsWithFaults(Wrapped):
    """Forgets what has not reached the store yet when a peer breaks a rule."""

    _faulty = False

    def next_event(self) -> Event | None:
        event: Event | None = self._inner.next_event()
        self._faulty = self._faulty or getattr(event, "error", None) is not None
        return event

    def next_effect(self) -> Effect[Any] | None:
        effect: Effect[Any] | None = self._inner.next_effect()
        while self._faulty and effect is not None:
            effect = self._inner.next_effect()
        self._faulty = False
        return effect


class HearsTheFirstAlone(Wrapped):
    """Hears only the first of the datagrams that arrive before anything is taken."""

    _heard = False

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        if not self._heard:
            self._inner.receive_datagram(data, source=source)
        self._heard = True

    def next_event(self) -> Event | None:
        self._heard = False
        event: Event | None = self._inner.next_event()
        return event


class HearsNoSecond(Wrapped):
    """Hears only the first message of a chunk."""

    def __init__(self, spec: MachineSpec, inner: Any) -> None:
        super().__init__(inner)
        self._cut = spec.machine.codec.cut

    def receive_data(self, data: Buffer) -> None:
        first, _, *others = [*self._cut(bytes(data)), b"", b""]
        self._inner.receive_data(b"".join([first, *others]))


def loses_with_faults(spec: MachineSpec, inner: Any) -> Wrapped:
    if hasattr(inner, "receive_datagram"):
        return HearsTheFirstAlone(inner)
    return HearsNoSecond(spec, inner) if hasattr(inner, "receive_data") else DropsWithFaults(inner)


class WaitsForTheSilent(Linked):
    """Does nothing until every connected peer has said something."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, self._note)
        self._silent: set[int] = set()

    def _note(self, link: Listener, data: bytes) -> None:
        if data:
            self._silent.discard(link.number)

    def admit(self, link: Link | int) -> Link | int:
        self._silent.add(link if isinstance(link, int) else link.number)
        return link

    def next_event(self) -> Event | None:
        event: Event | None = None if self._silent else self._inner.next_event()
        return event


def waits_for_the_silent(spec: MachineSpec, inner: Any) -> Wrapped:
    return WaitsForTheSilent(inner)


class NeverEnds(Wrapped):
    def next_event(self) -> Event | None:
        event: Event | None = self._inner.next_event()
        return None if isinstance(event, Closed) else event


def never_ends(spec: MachineSpec, inner: Any) -> Wrapped:
    return NeverEnds(inner)


class DoesNotWait(Wrapped):
    """Carries on as if the store had kept items that it was never given."""

    def __init__(self, spec: MachineSpec, inner: Any) -> None:
        super().__init__(inner)
        self._kept = spec.comparison.kept
        self._respond = spec.machine.store({})
        self._assumed: set[int] = set()

    def next_effect(self) -> Effect[Any] | None:
        effect: Effect[Any] | None = self._inner.next_effect()
        if effect is not None and self._kept is not None and [*self._kept(effect)]:
            self._assumed.add(effect.ticket)
            assert self._respond is not None
            result = None if effect.accepts(None) else self._respond(effect)
            self._inner.complete(effect.ticket, result)
        return effect

    def complete(self, ticket: int, result: object = None) -> None:
        if ticket not in self._assumed:
            self._inner.complete(ticket, result)


# By law: the machine that breaks it, and the complaint.
BROKEN: dict[str, tuple[Callable[[MachineSpec, Any], Wrapped], str]] = {
    "faults": (loses_with_faults, "are not kept|kept items depend"),
    "receipts": (DoesNotWait, "and yet confirmed"),
    "unsent": (answers_everything_at_length, "wait to be sent"),
    "alike": (takes_pains_with_what_is_not_flat, "steps for a byte"),
    "alone": (waits_for_the_silent, "sees other events|stranger said .* refused"),
    "least": (never_ends, "still not Closed"),
}


# Machines whose conversations confirm nothing together with a write.
_CONFIRM_NOTHING = {"p2panda-replicator", "ssb-peer"}


def _can_break(spec: MachineSpec, law: str) -> bool:
    if law == "receipts":
        return spec.name not in _CONFIRM_NOTHING
    return law != "least" or any(key.name.endswith("_max") for key in spec.machine.keys)


CASES = [
    pytest.param(spec, law, id=f"{spec.name}-{law}")
    for spec in SPECS
    for law in BROKEN
    if LAWS[law].applies(spec) and _can_break(spec, law)
]


def broken(spec: MachineSpec, law: str) -> MachineSpec:
    """The spec of a machine that breaks `law`; its input was recorded with a sound one."""
    wrap, _ = BROKEN[law]

    def build(config: Config) -> Any:
        return wrap(spec, spec.machine.build(config))

    if law == "least":
        return spec_with(spec, build=build)
    if law == "alone":
        assert spec.machine.dialling is not None
        name = spec.machine.dialling.accepted.method
        accept = spec.machine.verbs[name]
        verbs = {**spec.machine.verbs, name: lambda machine: machine.admit(accept(machine))}
        return spec_with(spec, build=build, verbs=verbs)
    told = conversations(spec)
    return spec_with(spec, build=build, conversations=lambda _: told, scenarios=(), meetings=())


@pytest.mark.once
@pytest.mark.costly
@pytest.mark.parametrize(("spec", "law"), CASES)
def test_the_law_finds_who_breaks_it(spec: MachineSpec, law: str) -> None:
    found = pytest.raises((PropertyError, EndlessError), match=BROKEN[law][1])
    with effort.searching("law canary"), found:
        LAWS[law].check(broken(spec, law))
