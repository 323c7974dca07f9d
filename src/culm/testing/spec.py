"""What a machine's author tells about it once, so that everything can drive and test it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from culm.machine import DatagramMachine, Effect, Event, StreamMachine
from culm.testing.config import Config, ConfigError, Key, keys_of, read_config
from culm.testing.operations import Call, Operation

__all__ = [
    "AnyMachine",
    "Config",
    "ConfigError",
    "Conversation",
    "Flood",
    "Key",
    "MachineSpec",
    "Responder",
    "Scenario",
    "Side",
    "SpecErrorCode",
    "Verb",
    "keys_of",
]

AnyMachine = StreamMachine | DatagramMachine
Verb = Callable[..., object]  # verb(machine, **args)
Responder = Callable[[Effect[Any]], object]
Side = Literal["left", "right"]


class SpecErrorCode(IntEnum):
    """Codes for the local errors that a spec's own verbs raise."""

    NO_SUCH_HANDLE = 1  # no stream, request or other handle that the arguments name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One machine's side of a valid conversation: how it is built, what it is told."""

    name: str
    operations: Sequence[Operation]
    config: Config = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Two stream machines on one connection, and what their users do.

    The two run until quiet, then each step of `script` is done to its side and the two
    run until quiet again.  `Call`, `Complete`, `Advance` (the one clock of both) and
    `Eof` (that side sends no more) make sense in a script.
    """

    name: str
    script: Sequence[tuple[Side, Operation]] = ()
    left: Config = field(default_factory=dict)
    right: Config = field(default_factory=dict)
    peer: str | None = None  # the registered name of the right machine, if another


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """Input by which a hostile peer tries to fill memory: `opening`, then `unit` for ever.

    unit: bytes, or a function that makes the bytes of the unit of that number, from 0 on
        (streams with new numbers, entries that differ).
    after: the name of a conversation; the flood comes when that is through, on its config.
        Without it the flood meets a new machine.
    config: overrides `MachineSpec.tight`, for example to choose the role.
    source: for datagram machines, where opening and units are datagrams: the address
        from which the unit of that number comes.
    """

    unit: bytes | Callable[[int], bytes]
    opening: bytes = b""
    after: str | None = None
    config: Config = field(default_factory=dict)
    source: Callable[[int], Hashable] = lambda number: "peer"


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineSpec:
    """A machine as the registry knows it.

    name: what the line driver and test reports call it, for example ``bymux``.
    build: a new machine from a config that has every key of `keys`; called by `make`.
    keys: what a config may say, with its default; other keys are refused.
    held_max: bytes; the most by which the memory the machine holds may grow above that
        of a new one, whatever a peer sends, under the config `tight`.  Follows from the
        worst cases that the machine's limits state.
    tight: config with small limits, for the floods.
    scenarios: what two of these machines say to each other.
    conversations: further valid conversations, for example from other implementations'
        vectors; called with the spec itself.  Scenarios are recorded without that.
        Valid means: no call is refused and the peer breaks no rule.
    verbs: what users do with handles, by name: ``verb(machine, **args)``.  The machine's
        own public methods need none.  An argument whose annotation is an enum may be given
        by the name of a member.  A verb is one call: it raises `LocalProtocolError`
        alone (with `SpecErrorCode.NO_SUCH_HANDLE` where it does not find what to act upon),
        and then has changed nothing.
    respond: makes, for a config with every key, a fresh store that answers effects at
        once; called by `store`.  Machines that have effects must have one.
    results: how the JSON result of a ``complete`` line becomes the answer to an effect of
        that type; bytes are read already.
    bad_calls: calls that are to be refused with `LocalProtocolError` in some state that
        the conversations pass through.
    floods: inputs against which `held_max` is checked, besides those that the suite makes
        from the conversations.
    lazy_output: the bytes are scheduled when they are taken, so that other sizes of
        ``data_to_send`` may give other bytes that mean the same.
    normalise: what of an event list must be the same however the peer's bytes were
        scheduled and cut; the list itself by default.
    """

    name: str
    build: Callable[[Config], AnyMachine]
    held_max: int
    keys: Sequence[Key] = ()
    tight: Config = field(default_factory=dict)
    scenarios: Sequence[Scenario] = ()
    conversations: Callable[[MachineSpec], Iterable[Conversation]] = lambda spec: ()
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    respond: Callable[[Config], Responder] | None = None
    results: Mapping[type[Effect[Any]], Callable[[Any], object]] = field(default_factory=dict)
    bad_calls: Sequence[Call] = ()
    floods: Sequence[Flood] = ()
    lazy_output: bool = False
    normalise: Callable[[Sequence[Event]], object] = list

    def make(self, config: Config) -> AnyMachine:
        """A new machine.  Raises `ConfigError` and what the machine says to wrong values."""
        return self.build(read_config(self.keys, config))

    def store(self, config: Config) -> Responder | None:
        """A fresh store that answers effects; ``None`` if the machine has none."""
        return None if self.respond is None else self.respond(read_config(self.keys, config))

    def __str__(self) -> str:
        return self.name
