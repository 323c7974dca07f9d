"""The vocabulary of `LogSync`: stages and facts of a log, its inputs, and its commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lower_pool, open_targets
from culm.bamboo.records import NewEntry, StoredEntry, StoreError
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Queue
from culm.machine import Effect, Event
from culm.point2point.events import Cancelled, Confirmed, ProposalDropped, RequestEnded
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason, Proposal
from culm.point2point.pieces import Piece
from culm.point2point.replication.events import Want

# Stages and facts.


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
    JOINING = "the same, for a request whose entries we want"
    PASSED = "we do not take part"
    AWAITING_OURS = "the same, and a proposal of ours will displace it"
    SERVING = "we have confirmed it, and want nothing for ourselves"
    JOINED = "we have confirmed it, and want its entries"
    LEAVING = "we were about to, and have cancelled it"
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
    REFUSE = "cancel: DO_NOT_RETRY"
    SHOW_ENTRY = "cancel: HASH_MISMATCH, with our entry"
    SHOW_END = "cancel: END_OF_LOG"
    SHOW_FORK = "cancel: FORK, with the proof"


_AT_ONCE: Final = {
    Answer.COMPARE: PeerStage.COMPARING,
    Answer.PASS: PeerStage.PASSED,
    Answer.REFUSE: PeerStage.CANCELLED,
    Answer.SHOW_END: PeerStage.CANCELLED,
    Answer.SHOW_FORK: PeerStage.CANCELLED,
}

# A step that is not in the table cannot happen.
PEER_STAGES: Final[dict[PeerStage, dict[Answer, PeerStage]]] = {
    PeerStage.WAITING: _AT_ONCE,
    PeerStage.AWAITING_OURS: {
        Answer.RECONSIDER: PeerStage.WAITING,
        Answer.DEFER: PeerStage.CANCELLED,
    },
    PeerStage.COMPARING: {
        Answer.CONFIRM: PeerStage.SERVING,
        Answer.SHOW_ENTRY: PeerStage.CANCELLED,
        Answer.PASS: PeerStage.PASSED,
        Answer.REFUSE: PeerStage.CANCELLED,
        Answer.SHOW_FORK: PeerStage.CANCELLED,
    },
    PeerStage.JOINING: {
        Answer.CONFIRM: PeerStage.JOINED,
        Answer.SHOW_ENTRY: PeerStage.LEAVING,
        Answer.PASS: PeerStage.PASSED,
        Answer.REFUSE: PeerStage.LEAVING,
        Answer.SHOW_FORK: PeerStage.LEAVING,
    },
    PeerStage.PASSED: {
        Answer.AWAIT_OURS: PeerStage.AWAITING_OURS,
        Answer.DEFER: PeerStage.CANCELLED,
        Answer.REFUSE: PeerStage.CANCELLED,
    },
}

# The stages that take the place of others if we want the entries of the request.
WANTED: Final = {PeerStage.COMPARING: PeerStage.JOINING, PeerStage.SERVING: PeerStage.JOINED}


class Standing(Enum):
    """The use of requests for the entries that come next in a log."""

    LASTING = "a request for them lasts as long as the connection"
    RESTING = "there are more logs than requests: it lasts while there is something new"
    REFUSED = "the peer refuses our proposals, or we its data"


class StandingChange(Enum):
    """Events that change that."""

    REST = "one side ends a request that only waits for new entries"
    REFUSE = "one side finds fault with the wishes or the data of the other"
    FORGIVE = "there may be entries to be had after all"
    WAKE = "the user wants the log now"
    DEFER = "the peer has no room for a proposal, which is to be made again"


# A change that is not in the table changes nothing.
STANDINGS: Final[dict[Standing, dict[StandingChange, Standing]]] = {
    Standing.LASTING: {
        StandingChange.REST: Standing.RESTING,
        StandingChange.REFUSE: Standing.REFUSED,
    },
    Standing.RESTING: {
        StandingChange.REFUSE: Standing.REFUSED,
        StandingChange.WAKE: Standing.LASTING,
        StandingChange.DEFER: Standing.LASTING,
    },
    Standing.REFUSED: {
        StandingChange.FORGIVE: Standing.LASTING,
        StandingChange.WAKE: Standing.LASTING,
    },
}


class Stock(Enum):
    """Knowledge of our store's part of a log."""

    UNKNOWN = "it has not told yet"
    GROWING = "it has told, and entries are on their way into it"
    KNOWN = "it has told"


class HeadPayload(Enum):
    """The payload of the last entry of the unbroken log."""

    SETTLED = "it is there, or not wanted"
    DUE = "it is wanted, and on its way or missing"
    APART = "the same, and it is one of the ranges that the user has asked for"


class Aim(Enum):
    """The part of a log that we want."""

    RANGES = "only the ranges that the user asks for"
    OFFERED = "the entries that come next, as far as the peer offers them"
    LIVE = "the entries that come next while the connection lasts; the peer is told of ours"


class Service(Enum):
    """Entries for a peer of which we want nothing."""

    NOTHING = "nothing"
    STORED = "stored ones, if it asks for a range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All grounds for decisions about one log.  Entries are sequence numbers."""

    # Our store.
    stock: Stock
    position: int  # the last entry of the unbroken log; 0: there is none
    newest: int  # the last of all entries; 0: there is none
    payload: HeadPayload  # of the entry at `position`
    end: int | None  # the last entry, if the author has ended the log and all of it is there
    fork: int | None  # the first forked entry
    # Our wishes.
    aim: Aim
    service: Service  # if nothing is wanted of the peer
    probe: int | None  # an entry to be compared with the peer's
    ranges: int  # the number of ranges that the user has asked for
    # The peer.
    offered: int | None  # the last valid entry that it has mentioned; none: not even the log
    begun: int  # the last entry within whose payload it has been; 0: there is none
    passed: int  # the last entry that it has only notified us of
    standing: Standing
    told: Piece | None  # it knows that we have all before this one; none: not even of the log
    fork_told: int | None  # the first forked entry that it knows of
    joined: PeerStage | None  # of its request for the next entries, in which we take part or will


# Proposals in preparation.


class Action(Enum):
    """Actions for one of our requests."""

    WAIT = "nothing, for now"
    PROBE = "propose the entry that is to be compared"
    RESUME = "propose the rest of a payload, and the entries after it"
    GO_ON = "propose the entries after ours"
    FETCH_RANGE = "propose the first of the ranges"
    SHOW_FORK = "propose the forked entry, to cancel that with the proof"


class Plan(NamedTuple):
    """A proposal in preparation, while the store is asked for the links that it needs.

    `seqnum`: the entry that is to be compared, the last one that we have, or the first of a range.
    """

    action: Action
    seqnum: int
    want: Want

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


# Inputs.  Events of the connection about a log are inputs, too.


class Happening(Enum):
    """Inputs without a value."""

    STARTED = "it has got a place"
    LOOKED = "the store tells the state of the log"
    CHANGED = "another writer has changed the store"
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


class Received(NamedTuple):
    """The peer has sent all of a request; the store will have it before that is told."""

    request: Request


class Passed(NamedTuple):
    """The peer has passed over the entries up to that one."""

    seqnum: int


class EntriesStored(NamedTuple):
    """The entries of a batch are in the store."""

    batch: Sequence[NewEntry]


class PayloadStored(NamedTuple):
    """The payload of an entry is complete."""

    entry: Entry


class PayloadLost(NamedTuple):
    """The stored part of a payload differs from the received one."""

    seqnum: int


class PayloadWithheld(NamedTuple):
    """The peer has no more of a payload: it is not asked again until the user wants the log."""

    seqnum: int


class GivenUp(NamedTuple):
    """Data of the peer or of our store is wrong, or the peer sends nothing."""

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
    """The links that a proposal needs; after these (`links`), the beginning of a payload."""

    purpose: Purpose
    plan: Plan
    links: Mapping[int, bytes] | None = None


class Compare(NamedTuple):
    """Our entry in the place of a signed one of the peer's: the log may be forked."""

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


# Commands.


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


class Emit(NamedTuple):
    """Tell the user."""

    event: Event


class Notice(Enum):
    """News that requests of this or other logs may wait for."""

    NEWS = "there is something new in the store"
    ROOM = "a request has ended"
    TURNED_AWAY = "there was no room for our proposal"


Command: TypeAlias = Propose | Confirm | Shorten | Cancel | Refuse | Ask | Emit | Notice


class Inputs(Queue[tuple[LogKey, Input, list[Event] | None]]):
    """Inputs of logs, in order."""

    __slots__ = ()

    def put(self, log: LogKey, input: Input, told: list[Event] | None = None) -> None:
        """Add an input; events that follow from it go into that list, if there is one."""
        self.append((log, input, told))
