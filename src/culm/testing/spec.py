"""What the author of a machine states once about it, so that the suite can test it.

A `MachineSpec` names the machine, as the registry has it, and says four things of it: what its
users do (`Usage`), what hostile peers try (`Attacks`), what it may cost (`Bounds`), and what is
the same in two runs (`Comparison`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from culm.machine import Effect, Event
from culm.machines import Call, Config, MachineType, Operation

__all__ = [
    "Attacks",
    "Bounds",
    "Comparison",
    "Conversation",
    "Flood",
    "Frame",
    "MachineSpec",
    "Meeting",
    "Scenario",
    "Side",
    "Usage",
    "Work",
]

Side = Literal["left", "right"]


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
class Flood:
    """Input by which a hostile peer tries to fill memory: `opening`, then `unit` for ever.

    unit: bytes, or a function that makes the bytes of the unit of that number, from 0 on
        (streams with new numbers, entries that differ).
    after: the name of a conversation; the flood comes when that is through, on its config.
        Without it the flood meets a new machine.
    config: overrides `Bounds.tight`, for example to choose the role.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the users of a machine do, and what is said then.

    scenarios: what two of these machines say to each other; meetings: what several say
        that have links, which connect as the machine's `dialling` says.
    conversations: further valid conversations, for example from other implementations'
        vectors; called with the spec itself.  Scenarios and meetings are recorded without
        that.
        Valid means: no call is refused and the peer breaks no rule.
    bad_calls: calls that are to be refused with `LocalProtocolError` in some state that
        the conversations pass through.
    interruptions: what the user may do at any moment, such as to end things: the peer's bytes
        meet a machine that does not want them any more, or knows better by then.
    growth: what may become many, each a function of how many of it there are to be: the
        conversation or, to be played first, the scenario.  The work in it must not grow
        faster than their number.  Floods, and calls that the conversations make, need none.
    """

    scenarios: Sequence[Scenario] = ()
    meetings: Sequence[Meeting] = ()
    conversations: Callable[[MachineSpec], Iterable[Conversation]] = lambda spec: ()
    bad_calls: Sequence[Call] = ()
    interruptions: Sequence[Call] = (Call("close"),)
    growth: Mapping[str, Callable[[int], Conversation | Scenario]] = field(
        default_factory=dict[str, Callable[[int], Conversation | Scenario]]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacks:
    """What hostile peers of a machine try.

    floods: inputs with which `Bounds.retained_max` is checked, besides those that the suite
        makes from the conversations.
    bombs: bytes that cost a peer little and could cost much, such as compressed data that
        expands without end; they come between any two inputs of a conversation, on whatever
        link, or from whatever source.
    frames: messages in which a byte of any content has to cost about as much as any other.
    """

    floods: Sequence[Flood] = ()
    bombs: Sequence[bytes] = ()
    frames: Sequence[Frame] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a machine may cost.

    retained_max: bytes; the most by which the memory the machine holds may grow above that
        of a new one, whatever a peer sends, under the config `tight`.  Follows from the
        worst cases that the machine's limits state.
    unsent_max: bytes; the most that may wait to be taken, whatever a peer sends while nothing
        is taken, under the config `tight`.
    tight: config with small limits, for the floods.
    work: what an input may cost; the law of work is for machines that state it.
    alike_max: how many times as much as a flat one any content of a frame may cost.
    """

    retained_max: int
    unsent_max: int = 4096
    tight: Config = field(default_factory=dict[str, Any])
    work: Work | None = None
    alike_max: float = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is the same in two runs of a machine.

    lazy_output: the bytes are scheduled when they are taken, so that other sizes of
        ``data_to_send`` may give other bytes that mean the same.
    normalise: what of an event list must be the same however the peer's bytes were
        scheduled and cut; the list itself by default.
    kept: what an effect puts into the store, as items that can be compared; nothing for one
        that reads.  Without it the law of faults does not apply.
    """

    lazy_output: bool = False
    normalise: Callable[[Sequence[Event]], object] = list
    kept: Callable[[Effect[Any]], Iterable[Hashable]] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineSpec:
    """A machine, and what the suite has to know of it."""

    machine: MachineType
    bounds: Bounds
    usage: Usage = field(default_factory=Usage)
    attacks: Attacks = field(default_factory=Attacks)
    comparison: Comparison = field(default_factory=Comparison)

    @property
    def name(self) -> str:
        """The machine's name."""
        return self.machine.name

    def __str__(self) -> str:
        return self.name
