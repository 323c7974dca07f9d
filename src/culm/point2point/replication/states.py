"""What is known of a log, and where the requests for it are: values, and tables of states."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from culm.point2point.pieces import Piece

__all__ = [
    "PEER_STAGES",
    "STAGES",
    "STANDINGS",
    "WAITS",
    "WANTED",
    "Aim",
    "Answer",
    "Facts",
    "HeadPayload",
    "PeerStage",
    "Purpose",
    "Service",
    "Stage",
    "Standing",
    "StandingChange",
    "Step",
    "Stock",
    "Wait",
]


class Purpose(Enum):
    """What we propose something for.  We have one request at a time for each."""

    NEXT = "what comes after what we have, or one entry to compare it with ours"
    RANGE = "the first of the ranges that the user has asked for"
    FORK = "to show the peer that the log is forked"


class Stage(Enum):
    """The stage of a request of ours, from before it is made to its end."""

    IDLE = "nothing is under way"
    PREPARING = "the store is asked for what the proposal needs"
    QUEUED = "the proposal waits for credit"
    PROPOSED = "the peer has not answered"
    OPEN = "the peer has confirmed it"
    ENDING = "the peer has cancelled it, and what it has sent before may still come"
    FINISHED = "the same, because it has sent all of it"
    TURNED_AWAY = "the same, because it has no room for it"
    REPEATING = "the same, and there may be room by now"
    DEFERRED = "there was no room: to be tried again when there may be"

    __hash__ = object.__hash__  # see `PeerStage`


class Step(Enum):
    """What can happen to a request of ours."""

    PREPARE = "we want to propose something"
    OVERTAKE = "what was about to be proposed is not what is wanted any more"
    QUEUE = "it is known what to propose"
    SEND = "the proposal leaves"
    GIVE_UP = "there is no credit, and nothing will come of waiting"
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

# What is not in it cannot happen.
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


class Wait(Enum):
    """What a request of ours waits for, and so whether anything is to be expected of it."""

    STORE = "our store, which will answer"
    ROOM = "room, which nobody has to make"
    PEER = "the peer, or nothing: that depends on what there is to come"


WAITS: Final[dict[Stage, Wait]] = {
    **dict.fromkeys(Stage, Wait.PEER),
    Stage.PREPARING: Wait.STORE,
    Stage.QUEUED: Wait.ROOM,
    Stage.TURNED_AWAY: Wait.ROOM,
    Stage.DEFERRED: Wait.ROOM,
}


class PeerStage(Enum):
    """The stage of a request of the peer, until it is over."""

    WAITING = "it is to be decided, once it is known what our store has"
    COMPARING = "the store is asked for what the peer has told the hash of"
    JOINING = "the same, for a request in which we want to take what comes"
    PASSED = "we do not take part"
    AWAITING_OURS = "the same, and a proposal of ours is to displace it"
    SERVING = "we have confirmed it, and want nothing for ourselves"
    JOINED = "we have confirmed it, and want what comes"
    LEAVING = "we were about to, and have cancelled it"
    CANCELLED = "we have cancelled it"

    __hash__ = object.__hash__  # looked up whenever something has come: quicker than by name


class Answer(Enum):
    """What to do about a proposal of the peer."""

    RECONSIDER = "nothing yet: decide anew, as nothing of ours is to displace it"
    COMPARE = "see whether our log is the peer's where the range begins"
    CONFIRM = "take part"
    PASS = "do not take part, and ask for what we lack instead"
    AWAIT_OURS = "nothing yet: a proposal of ours is to displace it"
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

# What is not in it cannot happen.
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

# What takes the place of some stages if we want what the request brings.
WANTED: Final = {
    PeerStage.COMPARING: PeerStage.JOINING,
    PeerStage.SERVING: PeerStage.JOINED,
}


class Standing(Enum):
    """Where we and the peer stand about what comes next in a log."""

    LASTING = "a request for it lasts as long as the connection"
    RESTING = "there are more logs than requests: it lasts as long as there is something new"
    REFUSED = "the peer will not have what we propose, or we not what it sends"


class StandingChange(Enum):
    """What changes that."""

    REST = "one of us ends a request that only waits for what is to come"
    REFUSE = "something is wrong with what one of us wants or sends"
    FORGIVE = "there may be something to be had after all"
    WAKE = "the user wants the log now"


STANDINGS: Final[dict[Standing, dict[StandingChange, Standing]]] = {
    Standing.LASTING: {
        StandingChange.REST: Standing.RESTING,
        StandingChange.REFUSE: Standing.REFUSED,
        StandingChange.FORGIVE: Standing.LASTING,
        StandingChange.WAKE: Standing.LASTING,
    },
    Standing.RESTING: {
        StandingChange.REST: Standing.RESTING,
        StandingChange.REFUSE: Standing.REFUSED,
        StandingChange.FORGIVE: Standing.RESTING,
        StandingChange.WAKE: Standing.LASTING,
    },
    Standing.REFUSED: {
        StandingChange.REST: Standing.REFUSED,
        StandingChange.REFUSE: Standing.REFUSED,
        StandingChange.FORGIVE: Standing.LASTING,
        StandingChange.WAKE: Standing.LASTING,
    },
}


class Stock(Enum):
    """What is known of our store's part of a log."""

    UNKNOWN = "it has not told yet"
    GROWING = "it has told, and entries are on their way into it"
    KNOWN = "it has told"


class HeadPayload(Enum):
    """The payload of the last entry of the unbroken log."""

    SETTLED = "it is there, or not wanted"
    DUE = "it is wanted, and on its way or missing"
    APART = "the same, and it is one of the ranges that the user has asked for"


class Aim(Enum):
    """How far we want a log."""

    RANGES = "only the ranges that the user asks for"
    OFFERED = "what comes next, as far as the peer offers it"
    LIVE = "what comes next as long as the connection lasts, and the peer is told what we have"


class Service(Enum):
    """What is sent to a peer of which we want nothing."""

    NOTHING = "nothing"
    STORED = "what is stored, if it asks for a range of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that decisions about one log are made from.  Entries are sequence numbers.

    Of our store:

    stock
        What is known of it.
    position, newest
        The last entry of the unbroken log, and the last of all; 0: there is none.
    payload
        That of the entry at `position`.
    end
        The last entry, if the author has ended the log and all of it is there.
    fork
        The first forked entry.

    Of what we want:

    aim, service
        What we want of the peer, and what it gets if that is nothing.
    probe
        An entry to be compared with the peer's.
    ranges
        How many ranges the user has asked for.

    Of the peer:

    offered
        The last valid entry that it has mentioned; ``None``: it has not mentioned the log.
    begun
        The last entry within whose payload it has been; 0: there is none.
    passed
        The last entry that it has only notified us of.
    standing
        Whether our proposals are of any use.
    told
        It knows that we have all before this piece; ``None``: it has not heard of the log.
    fork_told
        The first forked entry that it knows of.
    joined
        Where a request of the peer for what comes next is in which we take part, or are about to.
    """

    stock: Stock
    position: int
    newest: int
    payload: HeadPayload
    end: int | None
    fork: int | None
    aim: Aim
    service: Service
    probe: int | None
    ranges: int
    offered: int | None
    begun: int
    passed: int
    standing: Standing
    told: Piece | None
    fork_told: int | None
    joined: PeerStage | None
