"""The author's description of a machine, from which the suite can test it.

A `MachineSpec` names a machine of the registry, and describes four things: its users' actions
(`Usage`), the attempts of hostile peers (`Attacks`), its permitted costs (`Bounds`), and how two
runs are compared (`Comparison`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from culm.machine import Effect, Event
from culm.machines import Call, Config, MachineType, Operation

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One machine's side of a valid conversation: its config, and the operations on it."""

    name: str
    operations: Sequence[Operation]
    config: Config = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Two stream machines on one connection, and the actions of their users.

    The two run until quiet, then each step of `script` is done to its side and the two
    run until quiet again.  `Call`, `Complete`, `Advance` (the one clock of both) and
    `Eof` (that side sends no more) make sense in a script.
    """

    name: str
    script: Sequence[tuple[Side, Operation]] = ()
    left: Config = field(default_factory=dict[str, Any])
    right: Config = field(default_factory=dict[str, Any])
    peer: str | None = None  # the registered name of the right machine, if another

    @property
    def members(self) -> Mapping[str, Config]:
        """The configs of both, by side."""
        return {"left": self.left, "right": self.right}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Machines with links that connect with each other, and the actions of their users.

    They run until quiet, then each step of `script` is done to its member and they run
    until quiet again.  `Advance` moves the common clock over every deadline on the
    way; `Receive` and `Eof` come on a link that the script itself has opened.

    members: their configs, by the names that `Dialling` uses.
    """

    name: str
    members: Mapping[str, Config]
    script: Sequence[tuple[str, Operation]] = ()


Stage = Scenario | Meeting
Many = Callable[[int], Conversation | Stage]
"""Makes a conversation or stage with that number of things of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """Input with which a hostile peer tries to fill memory: `opening`, then `unit` for ever.

    unit: bytes, or a function that makes the bytes of a unit from its number, from 0 on
        (streams with new numbers, entries that differ).
    after: the name of a conversation; the flood follows it, with its config.
        Without it the flood meets a new machine.
    config: overrides `Bounds.tight`, for example to choose the role.
    source: for datagram machines, where opening and units are datagrams: gives a unit's source
        address from its number.
    calls: the user's calls about a unit, by its number, once it has been received.
    link: for machines with links: the link of the flood, which `after` has opened.
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
    contents: possible contents by name, each a function of its size; the first is flat
        (`culm.testing.contents` has some).
    size: bytes of the content.
    refused: the flat content is refused on purpose, perhaps at its first bytes.  Otherwise half
        of the message has to be read first, or a datagram has to have an effect.
    after, config, link: as in a `Flood`; `source` is that of a datagram.
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
    """The permitted cost of one input, in steps, with all its consequences until the next.

    An input of k bytes is worth ``base + per_byte * k``.  A step is an executed line
    of Python, or 16 bytes that a function returns (`culm.testing.suite.meter`).
    """

    base: int
    per_byte: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Ids that a user may use again.

    again: the call that uses the id that an event calls free; none for other events.
    taken: the codes with which a call is refused whose id is not free.
    """

    again: Callable[[Event], Call | None]
    taken: Collection[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The actions of a machine's users, and the conversations that follow.

    scenarios: exchanges of two of these machines; meetings: those of several with links, which
        connect by the machine's `dialling`.
    conversations: makes further valid conversations, for example from other implementations'
        vectors; called with the spec itself.  Those of scenarios and meetings are recorded
        automatically.  In a valid conversation no call is refused and the peer breaks no rule.
    bad_calls: calls that have to be refused with `LocalProtocolError` in some state that
        the conversations pass through.
    interruptions: actions that the user may take at any moment, such as ending a request: the
        peer's bytes then meet a machine that no longer wants them.
    frees: if a user may use ids again: which, and when.  Without it the law of ids does not apply.
    growth: things of which there may be many, each a function that makes, for a number of them,
        the conversation, or the scenario or meeting to be recorded.  The work in it must not
        grow faster than the number.  Floods, and calls in the conversations, need no entry.
    """

    scenarios: Sequence[Scenario] = ()
    meetings: Sequence[Meeting] = ()
    conversations: Callable[[MachineSpec], Iterable[Conversation]] = lambda spec: ()
    bad_calls: Sequence[Call] = ()
    interruptions: Sequence[Call] = (Call("close"),)
    frees: Free | None = None
    growth: Mapping[str, Many] = field(default_factory=dict[str, Many])

    @property
    def stages(self) -> list[Stage]:
        """All scenarios and meetings."""
        return [*self.scenarios, *self.meetings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacks:
    """The attempts of a machine's hostile peers.

    floods: inputs with which `Bounds.retained_max` is checked, besides those that the suite
        makes from the conversations.
    bombs: bytes that cost a peer little and could cost the machine much, such as compressed data
        that expands without end; they come between any two inputs of a conversation, on any
        link, or from any source.
    frames: messages in which a byte of any content has to cost about as much as any other.
    """

    floods: Sequence[Flood] = ()
    bombs: Sequence[bytes] = ()
    frames: Sequence[Frame] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The permitted costs of a machine.

    retained_max: most bytes by which the memory of the machine may exceed that of a new one,
        whatever a peer sends, under the config `tight`.  Follows from the worst cases that the
        machine's limits state.
    unsent_max: most bytes that may wait to be taken, whatever a peer sends while none are taken,
        under the config `tight`.
    tight: config with small limits, for the floods.
    work: the permitted cost of an input; without it the law of work does not apply.
    alike_max: most by which the cost of a frame's content may exceed that of a flat one, as a
        factor.
    """

    retained_max: int
    unsent_max: int = 4096
    tight: Config = field(default_factory=dict[str, Any])
    work: Work | None = None
    alike_max: float = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of two runs of a machine.

    lazy_output: the bytes are scheduled when they are taken, so that other sizes of
        ``data_to_send`` may give other bytes with the same meaning.
    normalise: reduces a list of events to the part that must not depend on how the peer's bytes
        were scheduled and cut; the list itself by default.
    kept: the items that an effect puts into the store, or, where there is none, that an event
        hands to the user; none for all others.  Without it the law of faults does not apply.
    confirms: whether a message of the machine may tell a peer that the items of an effect are kept.
        By default all may: say which do if others, such as credit, come before the answer.
    is_answer: whether a peer's message answers something that the machine has said, and so means
        nothing, or another thing, before that.  Of a machine whose answers have chance in them
        that the peer repeats: true of all.
    """

    lazy_output: bool = False
    normalise: Callable[[Sequence[Event]], object] = list
    kept: Callable[[Effect[Any] | Event], Iterable[Hashable]] | None = None
    confirms: Callable[[Effect[Any], bytes], bool] = lambda effect, message: True
    is_answer: Callable[[bytes], bool] = lambda message: False


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineSpec:
    """A machine, with its description for the suite."""

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

    def has(self, *methods: str) -> bool:
        """Whether the machine has one of these methods."""
        machine = self.machine.make({})
        return any(hasattr(machine, method) for method in methods)
