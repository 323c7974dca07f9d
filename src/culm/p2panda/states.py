"""The messages that either side may send in a session, as tables.

One table serves both directions: looked up with what we have sent, it tells what we may send;
looked up with what the peer has sent, it tells what the peer may send.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias

from culm.p2panda.errors import ErrorCode
from culm.p2panda.messages import Mode

__all__ = ["OVER", "RULES", "Half", "Saying", "SessionState", "State", "session_state"]


class State(Enum):
    """The state of a connection."""

    OPEN = "open"
    CLOSED = "closed"
    """Ended without an error."""
    FAILED = "failed"
    """Ended because the peer broke a rule."""


class SessionState(Enum):
    """The state of a session."""

    REQUESTED = "requested"
    """We have asked for it, and the peer has said nothing."""
    RUNNING = "running"
    """The two find the entries that each of them lacks, and send them."""
    LIVE = "live"
    """Both have all, and pass on what is new."""
    ENDING = "ending"
    """We have said our last, and the peer has not."""
    OVER = "over"


class Half(Enum):
    """The messages that one side has sent in a session."""

    SILENT = "silent"
    TALKING = "talking"
    OFFERING = "offering"
    """`SyncDone` with ``live_mode``: it has sent all, and would stay."""
    LIVE = "live"
    """Both have offered it."""
    DONE = "done"
    """`SyncDone` without ``live_mode``."""
    BROKEN = "broken"
    """The same, because the other one has broken a rule; it does not listen any more."""


class Saying(Enum):
    """The messages of a session, as far as the tables tell them apart."""

    HAVE = "Have"
    RANGE = "one of the seven messages of set reconciliation"
    ENTRY = "Entry"
    OFFER = "SyncDone, live_mode"
    DONE = "SyncDone, not live_mode"


Rules: TypeAlias = Mapping[Half, Mapping[Saying, Half | ErrorCode]]
"""Half of the sender -> message -> its next half, or the rule broken."""

_UNEXPECTED: Final = ErrorCode.UNEXPECTED_MESSAGE

_AFTER_HAVE: Final[Rules] = {
    Half.TALKING: {
        Saying.HAVE: ErrorCode.SECOND_HAVE,
        Saying.RANGE: ErrorCode.WRONG_MODE,
        Saying.ENTRY: Half.TALKING,
        Saying.OFFER: Half.OFFERING,
        Saying.DONE: Half.DONE,
    },
    Half.OFFERING: {
        Saying.HAVE: ErrorCode.SECOND_HAVE,
        Saying.RANGE: ErrorCode.WRONG_MODE,
        Saying.ENTRY: _UNEXPECTED,
        Saying.OFFER: _UNEXPECTED,
        Saying.DONE: Half.DONE,
    },
    Half.LIVE: {
        Saying.HAVE: ErrorCode.SECOND_HAVE,
        Saying.RANGE: ErrorCode.WRONG_MODE,
        Saying.ENTRY: Half.LIVE,
        Saying.OFFER: _UNEXPECTED,
        Saying.DONE: Half.DONE,
    },
    Half.DONE: dict.fromkeys(Saying, _UNEXPECTED),
    Half.BROKEN: dict.fromkeys(Saying, _UNEXPECTED),
}

RULES: Final[Mapping[Mode, Rules]] = {
    Mode.LOG_HEIGHT: {
        Half.SILENT: {
            Saying.HAVE: Half.TALKING,
            Saying.RANGE: ErrorCode.WRONG_MODE,
            Saying.ENTRY: _UNEXPECTED,
            Saying.OFFER: _UNEXPECTED,
            Saying.DONE: Half.DONE,
        },
        **_AFTER_HAVE,
    },
    Mode.SET_RECONCILIATION: {
        Half.SILENT: {
            Saying.HAVE: ErrorCode.WRONG_MODE,
            Saying.RANGE: Half.TALKING,
            Saying.ENTRY: Half.TALKING,
            Saying.OFFER: Half.OFFERING,
            Saying.DONE: Half.DONE,
        },
        Half.TALKING: {
            Saying.HAVE: ErrorCode.WRONG_MODE,
            Saying.RANGE: Half.TALKING,
            Saying.ENTRY: Half.TALKING,
            Saying.OFFER: Half.OFFERING,
            Saying.DONE: Half.DONE,
        },
        Half.OFFERING: {
            Saying.HAVE: ErrorCode.WRONG_MODE,
            Saying.RANGE: _UNEXPECTED,
            Saying.ENTRY: _UNEXPECTED,
            Saying.OFFER: _UNEXPECTED,
            Saying.DONE: Half.DONE,
        },
        Half.LIVE: {
            Saying.HAVE: ErrorCode.WRONG_MODE,
            Saying.RANGE: _UNEXPECTED,
            Saying.ENTRY: Half.LIVE,
            Saying.OFFER: _UNEXPECTED,
            Saying.DONE: Half.DONE,
        },
        Half.DONE: dict.fromkeys(Saying, _UNEXPECTED),
        Half.BROKEN: dict.fromkeys(Saying, _UNEXPECTED),
    },
}

_LAST: Final = frozenset({Half.DONE, Half.BROKEN})

OVER: Final = frozenset(
    {(local, remote) for local in Half for remote in Half if {local, remote} <= _LAST}
    | {(Half.OFFERING, last) for last in _LAST}
    | {(last, Half.OFFERING) for last in _LAST}
)
"""The pairs in which nothing is left to be said: a half that offers live mode alone is done."""


def session_state(local: Half, remote: Half, *, ours: bool) -> SessionState:
    """The state of a session; `ours`: we requested it."""
    if (local, remote) in OVER:
        return SessionState.OVER
    if local is remote is Half.LIVE:
        return SessionState.LIVE
    if local in _LAST or local is Half.OFFERING:
        return SessionState.ENDING
    return SessionState.REQUESTED if ours and remote is Half.SILENT else SessionState.RUNNING
