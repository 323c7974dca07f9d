"""What happens to a log, and what is to be done about it: inputs and commands of `LogSync`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lower_pool, open_targets
from culm.bamboo.records import NewEntry, StoredEntry, StoreError
from culm.bamboo.verify import PayloadVerifier
from culm.machine import Effect, Event
from culm.point2point.events import Cancelled, Confirmed, ProposalDropped, RequestEnded
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason, Proposal
from culm.point2point.replication.events import Want
from culm.point2point.replication.states import Purpose, Step

__all__ = [
    "Action",
    "Answered",
    "Ask",
    "Cancel",
    "Command",
    "Compare",
    "Confirm",
    "Contradicted",
    "Emit",
    "EntriesStored",
    "GivenUp",
    "Happening",
    "Input",
    "Inputs",
    "Missing",
    "Notice",
    "Offered",
    "Passed",
    "PayloadLost",
    "PayloadStored",
    "PayloadWithheld",
    "Plan",
    "Prepare",
    "Propose",
    "Question",
    "Received",
    "Refuse",
    "Rested",
    "Sent",
    "Shorten",
    "Suspected",
    "Unsent",
    "Wanted",
]


class Action(Enum):
    """What to do about one of our requests."""

    WAIT = "nothing, for now"
    PROBE = "propose the entry that is to be compared"
    RESUME = "propose the rest of a payload, and what comes after it"
    GO_ON = "propose what comes after what we have"
    FETCH_RANGE = "propose the first of the ranges"
    SHOW_FORK = "propose the forked entry, to cancel that with the proof"


class Plan(NamedTuple):
    """What we are about to propose, while the store is asked for what the proposal needs.

    `seqnum`: the entry that is to be compared, the last one that we have, or the first of a range.
    """

    action: Action
    seqnum: int
    want: Want

    @property
    def is_next(self) -> bool:
        """Whether it is for what comes after what we have."""
        return self.action in (Action.RESUME, Action.GO_ON)

    @property
    def entry(self) -> int | None:
        """The entry whose payload may be stored in part."""
        return self.seqnum if self.action in (Action.RESUME, Action.FETCH_RANGE) else None

    @property
    def links(self) -> list[int]:
        """The entries whose hashes are needed to verify what comes."""
        return open_targets(self.seqnum) if self.is_next else lower_pool(self.seqnum)


# What happens.  Events of the connection about a log are inputs, too.


class Happening(Enum):
    """What needs no more words."""

    STARTED = "it has got a place"
    LOOKED = "the store tells how things stand"
    CHANGED = "somebody else has changed the store"
    QUEUED = "there is no credit for a proposal of ours yet"
    ROOM_MADE = "the peer may have room again"
    WITHDRAWN = "it makes way for another, as it only waits (`LogSync.only_waits`)"
    WRITE_BEGUN = "entries are on their way into the store"
    WRITE_ENDED = "they are there, or will not be"


class Wanted(NamedTuple):
    """The user wants this now."""

    want: Want


class Offered(NamedTuple):
    """The peer proposes; ``None`` as the request: it is over already."""

    proposal: Proposal
    request: Request | None


class Sent(NamedTuple):
    """What we wanted to propose has been proposed."""

    purpose: Purpose
    request: Request


class Unsent(NamedTuple):
    """It has not been: something else is wanted (``OVERTAKE``), or nobody makes room."""

    purpose: Purpose
    step: Step


class Rested(NamedTuple):
    """A request that only waits for what is to come makes room; see `LogSync.may_rest`."""

    request: Request


class Received(NamedTuple):
    """The peer has sent all of a request; the store will have it before that is told."""

    request: Request


class Passed(NamedTuple):
    """The peer has passed over what comes up to that entry."""

    seqnum: int


class EntriesStored(NamedTuple):
    """The entries of a batch are in the store."""

    batch: Sequence[NewEntry]


class PayloadStored(NamedTuple):
    """The payload of an entry is complete."""

    entry: Entry


class PayloadLost(NamedTuple):
    """What is stored of a payload differs from what came."""

    seqnum: int


class PayloadWithheld(NamedTuple):
    """The peer has no more of a payload: it is not asked again until the user wants the log."""

    seqnum: int


class GivenUp(NamedTuple):
    """What the peer sends or our store has is wrong, or the peer sends nothing."""

    request: Request
    fault: Reason | None = None


class Suspected(NamedTuple):
    """The peer seems to have a different entry `seqnum`."""

    request: Request
    seqnum: int
    fault: Reason


class Contradicted(NamedTuple):
    """The store does not take entries that the peer has sent: there may be a fork."""

    request: Request
    refusal: StoreError
    entries: Sequence[Entry]


class Missing(NamedTuple):
    """The payload of an entry is coming that we do not have."""

    request: Request
    seqnum: int


# Questions to the store: inputs that cannot be dealt with before, and these.


class Prepare(NamedTuple):
    """What does the proposal need?  At last (`links`), the beginning of a payload."""

    purpose: Purpose
    plan: Plan
    links: Mapping[int, bytes] | None = None


class Compare(NamedTuple):
    """Does that signed entry, which the peer has, fork the log?"""

    entry: Entry
    reason: Contradicted | None = None


Question: TypeAlias = (
    Happening
    | Wanted
    | Offered
    | PayloadLost
    | Contradicted
    | Missing
    | Prepare
    | Compare
    | ForkProof
)


class Answered(NamedTuple):
    """The store has answered."""

    question: Question
    result: Any


Input: TypeAlias = (
    Happening
    | Wanted
    | Offered
    | Sent
    | Unsent
    | Rested
    | Received
    | Passed
    | EntriesStored
    | PayloadStored
    | PayloadLost
    | PayloadWithheld
    | GivenUp
    | Suspected
    | Contradicted
    | Missing
    | Answered
    | Confirmed
    | Cancelled
    | ProposalDropped
    | RequestEnded
)


# What is to be done.


class Propose(NamedTuple):
    """Propose this as soon as there is credit; `Sent` or `Unsent` follows.

    `begun`: has hashed the payload up to where the range begins, if that is inside it.
    """

    purpose: Purpose
    plan: Plan
    proposal: Proposal
    links: Mapping[int, bytes]
    begun: PayloadVerifier | None = None


class Confirm(NamedTuple):
    """Take part in a request of the peer, for what we want, up to entry `end` if there is one."""

    request: Request
    want: Want | None
    end: int | None
    links: Mapping[int, bytes]


class Shorten(NamedTuple):
    """Let a request end with that entry; cancel it where that is impossible."""

    request: Request
    end: int


class Cancel(NamedTuple):
    """Cancel a request; pass over what comes for one that is cancelled already."""

    request: Request
    reason: CancelReason
    entry: Entry | None = None
    seqnum: int | None = None
    proof: ForkProof | None = None


class Refuse(NamedTuple):
    """Close the connection: what the peer has sent for a request cannot be right."""

    request: Request


class Ask(NamedTuple):
    """Ask the store; `Answered` follows.

    `kind`: an effect of those `fields`; or the payload of which the beginning is read and hashed.
    `ordered`: what the answer makes us tell comes before whatever else is told from now on.
    """

    question: Question
    kind: Callable[..., Effect[Any]] | StoredEntry
    fields: Mapping[str, Any]
    ordered: bool = False


class Emit(NamedTuple):
    """Tell the user."""

    event: Event


class Notice(Enum):
    """What requests of this or other logs may wait for."""

    NEWS = "there is something new in the store"
    ROOM = "a request has ended"
    TURNED_AWAY = "there was no room for what we propose"


Command: TypeAlias = Propose | Confirm | Shorten | Cancel | Refuse | Ask | Emit | Notice


class Inputs(deque[tuple[LogKey, Input, list[Event] | None]]):
    """What has happened to logs, in its order."""

    __slots__ = ()

    def put(self, log: LogKey, input: Input, told: list[Event] | None = None) -> None:
        """Add an input; what it makes us tell goes into that list, if there is one."""
        self.append((log, input, told))
