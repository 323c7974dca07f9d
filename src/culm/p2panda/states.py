"""The messages that either side may send in a session, as tables.

One table serves both directions: looked up with what we have sent, it tells what we may send;
looked up with what the peer has sent, it tells what the peer may send.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Final, TypeAlias

from culm.p2panda.errors import ErrorCode
from culm.p2panda.messages import Mode


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
    """Both have all, and pass on new operations."""
    ENDING = "ending"
    """We have said our last, and the peer has not."""
    OVER = "over"


class SideState(Enum):
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


class MessageGroup(Enum):
    """The messages of a session, in the groups that the tables tell apart."""

    HAVE = "Have"
    RANGE = "one of the seven messages of set reconciliation"
    ENTRY = "Entry"
    OFFER = "SyncDone, live_mode"
    DONE = "SyncDone, not live_mode"


Rules: TypeAlias = Mapping[SideState, Mapping[MessageGroup, SideState | ErrorCode]]
"""State of the sender -> message -> its next state, or the rule broken."""

_UNEXPECTED: Final = ErrorCode.UNEXPECTED_MESSAGE

_AFTER_HAVE: Final[Rules] = {
    SideState.TALKING: {
        MessageGroup.HAVE: ErrorCode.SECOND_HAVE,
        MessageGroup.RANGE: ErrorCode.WRONG_MODE,
        MessageGroup.ENTRY: SideState.TALKING,
        MessageGroup.OFFER: SideState.OFFERING,
        MessageGroup.DONE: SideState.DONE,
    },
    SideState.OFFERING: {
        MessageGroup.HAVE: ErrorCode.SECOND_HAVE,
        MessageGroup.RANGE: ErrorCode.WRONG_MODE,
        MessageGroup.ENTRY: _UNEXPECTED,
        MessageGroup.OFFER: _UNEXPECTED,
        MessageGroup.DONE: SideState.DONE,
    },
    SideState.LIVE: {
        MessageGroup.HAVE: ErrorCode.SECOND_HAVE,
        MessageGroup.RANGE: ErrorCode.WRONG_MODE,
        MessageGroup.ENTRY: SideState.LIVE,
        MessageGroup.OFFER: _UNEXPECTED,
        MessageGroup.DONE: SideState.DONE,
    },
    SideState.DONE: dict.fromkeys(MessageGroup, _UNEXPECTED),
    SideState.BROKEN: dict.fromkeys(MessageGroup, _UNEXPECTED),
}

RULES: Final[Mapping[Mode, Rules]] = {
    Mode.LOG_HEIGHT: {
        SideState.SILENT: {
            MessageGroup.HAVE: SideState.TALKING,
            MessageGroup.RANGE: ErrorCode.WRONG_MODE,
            MessageGroup.ENTRY: _UNEXPECTED,
            MessageGroup.OFFER: _UNEXPECTED,
            MessageGroup.DONE: SideState.DONE,
        },
        **_AFTER_HAVE,
    },
    Mode.SET_RECONCILIATION: {
        SideState.SILENT: {
            MessageGroup.HAVE: ErrorCode.WRONG_MODE,
            MessageGroup.RANGE: SideState.TALKING,
            MessageGroup.ENTRY: SideState.TALKING,
            MessageGroup.OFFER: SideState.OFFERING,
            MessageGroup.DONE: SideState.DONE,
        },
        SideState.TALKING: {
            MessageGroup.HAVE: ErrorCode.WRONG_MODE,
            MessageGroup.RANGE: SideState.TALKING,
            MessageGroup.ENTRY: SideState.TALKING,
            MessageGroup.OFFER: SideState.OFFERING,
            MessageGroup.DONE: SideState.DONE,
        },
        SideState.OFFERING: {
            MessageGroup.HAVE: ErrorCode.WRONG_MODE,
            MessageGroup.RANGE: _UNEXPECTED,
            MessageGroup.ENTRY: _UNEXPECTED,
            MessageGroup.OFFER: _UNEXPECTED,
            MessageGroup.DONE: SideState.DONE,
        },
        SideState.LIVE: {
            MessageGroup.HAVE: ErrorCode.WRONG_MODE,
            MessageGroup.RANGE: _UNEXPECTED,
            MessageGroup.ENTRY: SideState.LIVE,
            MessageGroup.OFFER: _UNEXPECTED,
            MessageGroup.DONE: SideState.DONE,
        },
        SideState.DONE: dict.fromkeys(MessageGroup, _UNEXPECTED),
        SideState.BROKEN: dict.fromkeys(MessageGroup, _UNEXPECTED),
    },
}

_LAST: Final = frozenset({SideState.DONE, SideState.BROKEN})

OVER: Final = frozenset(
    {(local, remote) for local in SideState for remote in SideState if {local, remote} <= _LAST}
    | {(SideState.OFFERING, last) for last in _LAST}
    | {(last, SideState.OFFERING) for last in _LAST}
)
"""The pairs in which nothing is left to be said: a side that offers live mode alone is done."""


def _state(local: SideState, remote: SideState, requested_by_us: bool) -> SessionState:
    if (local, remote) in OVER:
        return SessionState.OVER
    if local is remote is SideState.LIVE:
        return SessionState.LIVE
    if local in _LAST or local is SideState.OFFERING:
        return SessionState.ENDING
    asked = requested_by_us and remote is SideState.SILENT
    return SessionState.REQUESTED if asked else SessionState.RUNNING


SESSION_STATES: Final = {key: _state(*key) for key in product(SideState, SideState, (False, True))}
"""The state of a session, by those of both sides and whether we requested it."""

STEPS: Final = {
    mode: {(side, group): rules[side][group] for side in SideState for group in MessageGroup}
    for mode, rules in RULES.items()
}
"""`RULES` by pairs of the sender's state and the message."""
