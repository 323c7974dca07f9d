"""What the author of a machine states once about it, so that everything can drive and test it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from culm.machine import (
    DatagramMachine,
    Effect,
    Event,
    LinkedMachine,
    LocalProtocolError,
    ProtocolErrorCode,
    StreamMachine,
)
from culm.testing.config import Config, ConfigError, Key, keys_of, read_config
from culm.testing.encodings import EVERY, Encoding
from culm.testing.operations import Call, Operation

__all__ = [
    "AnyMachine",
    "Config",
    "ConfigError",
    "Conversation",
    "Dialling",
    "Flood",
    "Frame",
    "Key",
    "MachineSpec",
    "Meeting",
    "Part",
    "Responder",
    "Scenario",
    "Side",
    "SpecErrorCode",
    "Verb",
    "Work",
    "close_link",
    "keys_of",
]

AnyMachine = StreamMachine | DatagramMachine | LinkedMachine
Verb = Callable[..., object]  # verb(machine, **args)
Responder = Callable[[Effect[Any]], object]
Side = Literal["left", "right"]


class SpecErrorCode(ProtocolErrorCode):
    """Codes for the local errors that a spec's own verbs raise."""

    NO_SUCH_HANDLE = 1  # no stream, request or other handle that the arguments name


def close_link(machine: LinkedMachine, link: int) -> None:
    """The verb that gives up a connection.  Raises `LocalProtocolError` (``NO_SUCH_HANDLE``)."""
    for each in machine.links:
        if each.number == link:
            each.close()
            return
    raise LocalProtocolError(SpecErrorCode.NO_SUCH_HANDLE, f"link {link}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One machine's side of a valid conversation: how it is built, what it is told."""

    name: str
    operations: Sequence[Operation]
    config: Config = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Two stream machines on one connection, and what their users do.

    The two run until quiet, then each step of `script` is done to its side and the two
    run until quiet again.  `Call`, `Complete`, `Advance` (the one clock of both) and
    `Eof` (that side sends no more) make sense in a script.
    """

    name: str
    script: Sequence[tuple[Side, Operation]] = ()
    left: Config = field(default_factory=dict[str, Any])
    right: Config = field(default_factory=dict[str, Any])
    peer: str | None = None  # the registered name of the right machine, if another


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Machines with links that connect with each other, and what their users do.

    They run until quiet, then each step of `script` is done to its member and they run
    until quiet again.  `Advance` moves the one clock of all, over every deadline on the
    way; `Receive` and `Eof` come on a link that the script itself has opened.

    members: their configs, by the names that `Dialling` uses.
    """

    name: str
    members: Mapping[str, Config]
    script: Sequence[tuple[str, Operation]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialling:
    """How the links of a machine come to be, for whoever connects machines with each other.

    wanted: the name of the member that an event asks to be dialled; ``None`` for all other
        events.
    made: the call that says that the connection to that member is there; it returns the
        new link or its number.
    failed: the call that says that nobody was there.
    accepted: the call that says that a connection came from elsewhere; returns the link.
    """

    wanted: Callable[[Event], str | None]
    made: Callable[[str], Call]
    failed: Callable[[str], Call]
    accepted: Call


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
    calls: what the user does about the unit of that number, once it has been received.
    link: for machines with links: on which one it comes, which `after` has opened.
    """

    unit: bytes | Callable[[int], bytes]
    opening: bytes = b""
    after: str | None = None
    config: Config = field(default_factory=dict[str, Any])
    source: Callable[[int], Hashable] = lambda number: "peer"
    calls: Callable[[int], Sequence[Call]] | None = None
    link: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A message with a content that a peer may choose freely.

    wrap: makes the message from the content.
    contents: what the content may be, by name, each a function of its size; the first is flat
        (`culm.testing.contents` has some).
    size: bytes of the content.
    refused: the flat content is refused on purpose, however little of it has come.  Otherwise half
        of the message has to be read before it is, or something has to come of a datagram.
    after, config, link: as of a `Flood`; `source` is that of a datagram.
    """

    name: str
    wrap: Callable[[bytes], bytes]
    contents: Mapping[str, Callable[[int], bytes]]
    size: int = 16384
    refused: bool = False
    after: str | None = None
    config: Config = field(default_factory=dict[str, Any])
    link: int | None = None
    source: Hashable = "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one input may cost, with all that follows from it until the next: in steps.

    An input of k bytes is worth ``base + per_byte * k``.  A step is an executed line
    of Python, or 16 bytes that a function returns (`culm.testing.suite.meter`).
    """

    base: int
    per_byte: int


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a peer's bytes that a layer below has wrapped.

    seal: wraps other bytes in place of `data`, such that the layer below takes them.
    """

    data: bytes
    seal: Callable[[bytes], bytes] = bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineSpec:
    """A machine as the registry knows it.

    name: its name in the line driver and in reports, for example ``bymux``.
    build: a new machine from a config that has every key of `keys`; called by `make`.
    keys: what a config may say, with its default; other keys are refused.
    retained_max: bytes; the most by which the memory the machine holds may grow above that
        of a new one, whatever a peer sends, under the config `tight`.  Follows from the
        worst cases that the machine's limits state.
    tight: config with small limits, for the floods.
    scenarios: what two of these machines say to each other; meetings: what several say
        that have links, which connect as `dialling` says.
    conversations: further valid conversations, for example from other implementations'
        vectors; called with the spec itself.  Scenarios and meetings are recorded without
        that.
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
    kept: what an effect puts into the store, as items that can be compared; nothing for one
        that reads.  Without it the law of faults does not apply.
    bad_calls: calls that are to be refused with `LocalProtocolError` in some state that
        the conversations pass through.
    floods: inputs with which `retained_max` is checked, besides those that the suite makes
        from the conversations.
    lazy_output: the bytes are scheduled when they are taken, so that other sizes of
        ``data_to_send`` may give other bytes that mean the same.
    normalise: what of an event list must be the same however the peer's bytes were
        scheduled and cut; the list itself by default.
    work: what an input may cost; the law of work is for machines that state it.
    growth: what may become many, each a function of how many of it there are to be: the
        conversation or, to be played first, the scenario.  The work in it must not grow
        faster than their number.  Floods, and calls that the conversations make, need none.
    encodings: how the peer writes numbers; extreme ones are put where such may stand.
    unwrapped: what the peer says in some bytes of a conversation, if a layer below has
        wrapped that; in all, the parts sealed again are the bytes.
    bombs: bytes that cost a peer little and could cost much, such as compressed data that
        expands without end; they come between any two inputs of a conversation, on whatever
        link, or from whatever source.
    messages: cuts bytes of a conversation into messages (`culm.testing.messages`); in all, they
        are the bytes.  Without it each of the `unwrapped` parts is one.
    unsent_max: bytes; the most that may wait to be taken, whatever a peer sends while nothing
        is taken, under the config `tight`.
    frames: messages in which a byte of any content has to cost about as much as any other; and
        `alike_max`, how many times as much as a flat one.
    interruptions: what the user may do at any moment, such as to end things: the peer's bytes
        meet a machine that does not want them any more, or knows better by then.
    """

    name: str
    build: Callable[[Config], AnyMachine]
    retained_max: int
    keys: Sequence[Key] = ()
    tight: Config = field(default_factory=dict[str, Any])
    scenarios: Sequence[Scenario] = ()
    meetings: Sequence[Meeting] = ()
    dialling: Dialling | None = None
    conversations: Callable[[MachineSpec], Iterable[Conversation]] = lambda spec: ()
    verbs: Mapping[str, Verb] = field(default_factory=dict[str, Verb])
    respond: Callable[[Config], Responder] | None = None
    results: Mapping[type[Effect[Any]], Callable[[Any], object]] = field(
        default_factory=dict[type[Effect[Any]], Callable[[Any], object]]
    )
    kept: Callable[[Effect[Any]], Iterable[Hashable]] | None = None
    bad_calls: Sequence[Call] = ()
    floods: Sequence[Flood] = ()
    lazy_output: bool = False
    normalise: Callable[[Sequence[Event]], object] = list
    work: Work | None = None
    growth: Mapping[str, Callable[[int], Conversation | Scenario]] = field(
        default_factory=dict[str, Callable[[int], Conversation | Scenario]]
    )
    encodings: Sequence[Encoding] = EVERY
    unwrapped: Callable[[bytes], Sequence[Part]] = lambda data: [Part(data)]
    messages: Callable[[bytes], Sequence[bytes]] | None = None
    unsent_max: int = 4096
    bombs: Sequence[bytes] = ()
    frames: Sequence[Frame] = ()
    alike_max: float = 8
    interruptions: Sequence[Call] = (Call("close"),)

    def make(self, config: Config) -> AnyMachine:
        """A new machine.  Raises `ConfigError` and what the machine says to wrong values."""
        return self.build(read_config(self.keys, config))

    def store(self, config: Config) -> Responder | None:
        """A fresh store that answers effects; ``None`` if the machine has none."""
        return None if self.respond is None else self.respond(read_config(self.keys, config))

    def __str__(self) -> str:
        return self.name
