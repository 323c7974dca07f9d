"""Where requests for a log are, ours and the peer's: states, and the tables of what follows."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = [
    "PEER_STAGES",
    "PROGRESS",
    "STAGES",
    "STANDINGS",
    "Answer",
    "Change",
    "Fetch",
    "PeerStage",
    "Progress",
    "Purpose",
    "Stage",
    "Standing",
    "Step",
]


class Purpose(Enum):
    """What we propose something for.  There is one request of ours at a time for each."""

    NEXT = "what comes after what we have, or one entry to compare it with ours"
    RANGE = "the first of the ranges that the user has asked for"
    FORK = "to show the peer that the log is forked"


class Stage(Enum):
    """Where a request of ours is, from before it is made to its end."""

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


class PeerStage(Enum):
    """Where a request of the peer is, as long as it is not over."""

    WAITING = "it is not known yet what our store has"
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

    WAIT = "nothing yet: it is not known what our store has"
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
    Answer.WAIT: PeerStage.WAITING,
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
        Answer.WAIT: PeerStage.WAITING,
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


class Standing(Enum):
    """How it is between us and the peer about what comes next of a log."""

    LASTING = "a request for it lasts as long as the connection"
    RESTING = "there are more logs than requests: it lasts as long as there is something new"
    REFUSED = "the peer will not have what we propose, or we not what it sends"


class Change(Enum):
    """What changes that."""

    REST = "one of us ends a request that only waits for what is to come"
    REFUSE = "something is wrong with what one of us wants or sends"
    FORGIVE = "there may be something to be had after all"
    WAKE = "the user wants the log now"


STANDINGS: Final[dict[Standing, dict[Change, Standing]]] = {
    Standing.LASTING: {
        Change.REST: Standing.RESTING,
        Change.REFUSE: Standing.REFUSED,
        Change.FORGIVE: Standing.LASTING,
        Change.WAKE: Standing.LASTING,
    },
    Standing.RESTING: {
        Change.REST: Standing.RESTING,
        Change.REFUSE: Standing.REFUSED,
        Change.FORGIVE: Standing.RESTING,
        Change.WAKE: Standing.LASTING,
    },
    Standing.REFUSED: {
        Change.REST: Standing.REFUSED,
        Change.REFUSE: Standing.REFUSED,
        Change.FORGIVE: Standing.LASTING,
        Change.WAKE: Standing.LASTING,
    },
}


class Progress(Enum):
    """How far the first of the ranges has come."""

    COMING = "some of it has not come"
    COMPLETE = "all of it has come"
    LOST = "some has not come, and some that has come is lost: once more"
    REPEATED = "all of it has come, and some is lost: once more"


class Fetch(Enum):
    """What can happen to it."""

    COMPLETE = "the peer has sent all of it"
    LOSE = "something that has come turns out to be wrong"


PROGRESS: Final[dict[tuple[Progress, Fetch], Progress]] = {
    (Progress.COMING, Fetch.COMPLETE): Progress.COMPLETE,
    (Progress.COMPLETE, Fetch.COMPLETE): Progress.COMPLETE,
    (Progress.LOST, Fetch.COMPLETE): Progress.REPEATED,
    (Progress.REPEATED, Fetch.COMPLETE): Progress.REPEATED,
    (Progress.COMING, Fetch.LOSE): Progress.LOST,
    (Progress.COMPLETE, Fetch.LOSE): Progress.REPEATED,
    (Progress.LOST, Fetch.LOSE): Progress.LOST,
    (Progress.REPEATED, Fetch.LOSE): Progress.REPEATED,
}
