"""The vocabulary of `LogSync`: stages of a log and its requests, inputs, and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lower_pool, open_targets
from culm.bamboo.records import NewEntry, StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Queue
from culm.machine import Effect, Event
from culm.point2point.events import Cancelled, Confirmed, ProposalDropped, RequestEnded
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason, Proposal
from culm.point2point.replication.events import EntryStored, Want

# Stages.


class Purpose(Enum):
    """Purposes of our proposals.  There is one request at a time for each."""

    NEXT = "the entries after ours, or one entry to compare it with ours"
    RANGE = "the first of the ranges that the user has asked for"
    FORK = "to show the peer that the log is forked"


class Stage(Enum):
    """The stage of a request of ours, from before it is made to its end."""

    IDLE = "nothing is under way"
    PREPARING = "the store is asked for the links that the proposal needs"
    QUEUED = "the proposal waits for credit"
    PROPOSED = "the peer has not answered"
    OPEN = "the peer has confirmed it"
    ENDING = "the peer has cancelled it, and data sent before may still come"
    FINISHED = "the same, after it has sent all of it"
    TURNED_AWAY = "the same, for want of room"
    REPEATING = "the same, and there may be room by now"
    DEFERRED = "there was no room: tried again when there may be"

    __hash__ = object.__hash__  # see `PeerStage`


class Step(Enum):
    """Inputs to the stages of our requests."""

    PREPARE = "a proposal is wanted"
    OVERTAKE = "the proposal in preparation is not wanted any more"
    QUEUE = "the proposal is made"
    SEND = "the proposal leaves"
    GIVE_UP = "there is no credit, and none to be expected"
    PEER_CONFIRMS = "the peer confirms"
    PEER_CANCELS = "the peer cancels"
    PEER_FINISHES = "the peer cancels: END_OF_RANGE"
    PEER_DEFERS = "the peer cancels: RESOURCE_LIMIT"
    END = "it is over, or was dropped by the overlap rule"
    MAKE_ROOM = "there may be room again"


_CANCELS: Final = {
    Step.PEER_CANCELS: Stage.ENDING,
    Step.PEER_FINISHES: Stage.FINISHED,
    Step.PEER_DEFERS: Stage.TURNED_AWAY,
    Step.END: Stage.IDLE,
}

# A step that is not in the table cannot happen.
STAGES: Final[dict[Stage, dict[Step, Stage]]] = {
    Stage.IDLE: {Step.PREPARE: Stage.PREPARING},
    Stage.PREPARING: {Step.OVERTAKE: Stage.IDLE, Step.QUEUE: Stage.QUEUED},
    Stage.QUEUED: {
        Step.OVERTAKE: Stage.IDLE,
        Step.SEND: Stage.PROPOSED,
        Step.GIVE_UP: Stage.DEFERRED,
    },
    Stage.PROPOSED: {Step.PEER_CONFIRMS: Stage.OPEN, **_CANCELS},
    Stage.OPEN: _CANCELS,
    Stage.ENDING: {Step.END: Stage.IDLE},
    Stage.FINISHED: {Step.END: Stage.IDLE},
    Stage.TURNED_AWAY: {Step.END: Stage.DEFERRED, Step.MAKE_ROOM: Stage.REPEATING},
    Stage.REPEATING: {Step.END: Stage.IDLE},
    Stage.DEFERRED: {Step.MAKE_ROOM: Stage.IDLE},
}


class PeerStage(Enum):
    """The stage of a request of the peer, until it is over."""

    WAITING = "undecided, until the store has told its part of the log"
    COMPARING = "the store is asked for the entry whose hash the peer has told"
    PASSED = "we do not take part"
    AWAITING_OURS = "the same, and a proposal of ours will displace it"
    CONFIRMED = "we take part"
    CANCELLED = "we have cancelled it"

    __hash__ = object.__hash__  # looked up for all that comes: quicker than by name


class Answer(Enum):
    """Answers to a proposal of the peer."""

    RECONSIDER = "nothing yet: decide anew, as no proposal of ours will displace it"
    COMPARE = "compare our log with the peer's where the range begins"
    CONFIRM = "take part"
    PASS = "do not take part, and ask for our missing entries instead"
    AWAIT_OURS = "nothing yet: a proposal of ours will displace it"
    DEFER = "cancel: RESOURCE_LIMIT"
    FINISH = "cancel: END_OF_RANGE, as there is nothing new"
    REFUSE = "cancel: DO_NOT_RETRY"
    SHOW_ENTRY = "cancel: HASH_MISMATCH, with our entry"
    SHOW_END = "cancel: END_OF_LOG"
    SHOW_FORK = "cancel: FORK, with the proof"


# A step that is not in the table cannot happen.
PEER_STAGES: Final[dict[PeerStage, dict[Answer, PeerStage]]] = {
    PeerStage.WAITING: {
        Answer.COMPARE: PeerStage.COMPARING,
        Answer.PASS: PeerStage.PASSED,
        Answer.REFUSE: PeerStage.CANCELLED,
        Answer.SHOW_END: PeerStage.CANCELLED,
        Answer.SHOW_FORK: PeerStage.CANCELLED,
    },
    PeerStage.AWAITING_OURS: {
        Answer.RECONSIDER: PeerStage.WAITING,
        Answer.DEFER: PeerStage.CANCELLED,
    },
    PeerStage.COMPARING: {
        Answer.CONFIRM: PeerStage.CONFIRMED,
        Answer.SHOW_ENTRY: PeerStage.CANCELLED,
        Answer.PASS: PeerStage.PASSED,
        Answer.REFUSE: PeerStage.CANCELLED,
        Answer.SHOW_FORK: PeerStage.CANCELLED,
    },
    PeerStage.PASSED: {
        Answer.AWAIT_OURS: PeerStage.AWAITING_OURS,
        Answer.DEFER: PeerStage.CANCELLED,
        Answer.FINISH: PeerStage.CANCELLED,
        Answer.REFUSE: PeerStage.CANCELLED,
    },
}


# Proposals in preparation.


class Action(Enum):
    """The kinds of proposals that we make."""

    PROBE = "propose the entry to compare"
    RESUME = "propose the rest of a payload, and the entries after it"
    GO_ON = "propose the entries after ours"
    FETCH_RANGE = "propose the first of the ranges"
    SHOW_FORK = "propose the forked entry, to cancel that with the proof"


class Plan(NamedTuple):
    """A proposal in preparation, while the store is asked for the links that it needs.

    `seqnum`: the entry to compare, the last one that we have, the first of a range, or the
    forked one.
    """

    action: Action
    seqnum: int
    want: Want = Want()

    @property
    def is_next(self) -> bool:
        """Whether it is for the entries after ours."""
        return self.action in (Action.RESUME, Action.GO_ON)

    @property
    def entry(self) -> int | None:
        """The entry whose payload may be stored in part."""
        return self.seqnum if self.action in (Action.RESUME, Action.FETCH_RANGE) else None

    @property
    def links(self) -> list[int]:
        """The entries whose hashes are needed to verify those that come."""
        return open_targets(self.seqnum) if self.is_next else lower_pool(self.seqnum)


# Inputs.  Events of the connection about a log are inputs, too, and so is an `EntryStored`, once
# the payload of an entry that was stored before is complete.


class Happening(Enum):
    """Inputs without a value."""

    STARTED = "it has got a place"
    LOOKED = "the store tells the state of the log"
    CHANGED = "another writer has changed the store"
    QUEUED = "there is no credit for a proposal of ours yet"
    WITHDRAWN = "it makes way for another, as it only waits (`LogSync.only_waits`)"
    WRITE_BEGUN = "entries are on their way into the store"
    APPENDED = "they are there, or will not be; the payload of the last may come"
    WRITE_ENDED = "nor does that"


class Wanted(NamedTuple):
    """The user wants this now."""

    want: Want


class Offered(NamedTuple):
    """The peer proposes; ``None`` as the request: it is over already."""

    proposal: Proposal
    request: Request | None

    @property
    def tells(self) -> bool:
        """Whether the peer has all entries before it, and wants the log: not only a range."""
        proposal = self.proposal
        endless = proposal.end is None and not proposal.payload_only
        return endless and proposal.lower_certpool in (None, proposal.start)


class Sent(NamedTuple):
    """The proposal that was wanted has left."""

    purpose: Purpose
    request: Request


class Unsent(NamedTuple):
    """It has not been: another is wanted (``OVERTAKE``), or there is no room for it."""

    purpose: Purpose
    step: Step


class Rested(NamedTuple):
    """A request that only waits for new entries makes room; see `LogSync.may_rest`."""

    request: Request


class CutOff(NamedTuple):
    """A request is cancelled because of a fork, as it cannot be shortened."""

    request: Request


class Received(NamedTuple):
    """The peer has sent all of a request; the store will have it before that is told."""

    request: Request


class Passed(NamedTuple):
    """The peer has passed over the entries of a request up to that one."""

    request: Request
    seqnum: int


class RoomMade(NamedTuple):
    """There may be room again for our proposals of these purposes."""

    purposes: Sequence[Purpose] = tuple(Purpose)


class EntriesStored(NamedTuple):
    """The entries of a batch are in the store; they have come in the request of that id."""

    batch: Sequence[NewEntry]
    request_id: int


class PayloadLost(NamedTuple):
    """The stored part of a payload differs from the received one."""

    seqnum: int


class PayloadWithheld(NamedTuple):
    """The peer has no more of a payload: it is not asked again until the user wants the log."""

    seqnum: int


class GivenUp(NamedTuple):
    """Data of the peer or of our store is wrong, or the peer sends nothing.

    `probe`: an entry of which the peer seems to have a different one.
    """

    request: Request
    fault: Reason | None = None
    probe: int | None = None


class Compare(NamedTuple):
    """A signed entry of the peer's in the place of one of ours: the log may be forked."""

    entry: Entry
    request: Request | None = None  # in which it has come, if the store does not take it


class Missing(NamedTuple):
    """The payload of an entry is coming that we do not have."""

    request: Request
    seqnum: int


# Questions to the store: inputs that cannot be dealt with before, and these.


class Prepare(NamedTuple):
    """The links that a proposal needs; after these (`links`), the beginning of a payload."""

    purpose: Purpose
    plan: Plan
    links: Mapping[int, bytes] | None = None


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
    | CutOff
    | Received
    | Passed
    | RoomMade
    | EntriesStored
    | EntryStored
    | PayloadLost
    | PayloadWithheld
    | GivenUp
    | Compare
    | Missing
    | Answered
    | ForkProof
    | Confirmed
    | Cancelled
    | ProposalDropped
    | RequestEnded
)
Question: TypeAlias = Input | Prepare


# Commands.  An event is one, too: to tell it to the user.


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
    """Take part in a request of the peer, with our wishes, up to entry `end` if there is one."""

    request: Request
    want: Want | None
    end: int | None
    links: Mapping[int, bytes]


class Shorten(NamedTuple):
    """Let a request end with that entry; cancel it where that is impossible."""

    request: Request
    end: int


class Cancel(NamedTuple):
    """Cancel a request; pass over data for one that is cancelled already."""

    request: Request
    reason: CancelReason
    entry: Entry | None = None
    seqnum: int | None = None
    proof: ForkProof | None = None


class Refuse(NamedTuple):
    """Close the connection: data of the peer for a request cannot be right."""

    request: Request


class Ask(NamedTuple):
    """Ask the store; `Answered` follows.

    `kind`: an effect of those `fields`; or the payload of which the beginning is read and hashed.
    `ordered`: events that follow from the answer come before all that are told from now on.
    """

    question: Question
    kind: Callable[..., Effect[Any]] | StoredEntry
    fields: Mapping[str, Any]
    ordered: bool = False


class Notice(Enum):
    """News that requests of this or other logs may wait for."""

    NEWS = "there is something new in the store"
    ROOM = "a request has ended"
    TURNED_AWAY = "there was no room for our proposal"


Command: TypeAlias = Propose | Confirm | Shorten | Cancel | Refuse | Ask | Event | Notice


class Inputs(Queue[tuple[LogKey, Input, list[Event] | None]]):
    """Inputs of logs, in order."""

    __slots__ = ()

    def put(self, log: LogKey, input: Input, told: list[Event] | None = None) -> None:
        """Add an input; events that follow from it go into that list, if there is one."""
        self.append((log, input, told))
