"""The states of a call and of a feed, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ReplyState(Enum):
    """The state of our answer to a call of the peer."""

    QUEUED = "queued"
    """There is something to read for it, when its turn comes."""
    READING = "reading"
    """The store is reading for it."""
    LIVE = "live"
    """The peer has all there is, and waits for more."""
    OVER = "over"


class ReplyInput(Enum):
    """The inputs of a reply."""

    TURN = "turn"  # to read
    BEHIND = "behind"  # there are messages that it does not have
    LEVEL = "level"  # it has all there is, and wants more
    DONE = "done"  # it has all that it wants


_R, _I = ReplyState, ReplyInput

REPLY_RULES: Final[Mapping[ReplyState, Mapping[ReplyInput, ReplyState]]] = {
    _R.QUEUED: {_I.TURN: _R.READING, _I.DONE: _R.OVER},
    _R.READING: {_I.BEHIND: _R.QUEUED, _I.LEVEL: _R.LIVE, _I.DONE: _R.OVER},
    _R.LIVE: {_I.BEHIND: _R.QUEUED, _I.DONE: _R.OVER},
    _R.OVER: {},
}


class FeedState(Enum):
    """The state of a feed that we want from the peer."""

    QUEUED = "queued"
    """It will be asked for when its turn comes."""
    ASKED = "asked"
    """The peer is sending its messages."""
    SLOW = "slow"
    """The same, but nothing of the feed has come for a while: another one has its place."""
    LIVE = "live"
    """The peer will send new messages as they come."""
    RESTING = "resting"
    """It is asked for again after a pause."""
    REFUSED = "refused"
    """The peer has sent an invalid message: it is not asked again."""


class FeedInput(Enum):
    """The inputs of a feed."""

    TURN = "turn"  # to be asked for
    SLOWED = "slowed"  # nothing has come in the call, but other things have
    MORE = "more"  # the call has ended, and there may be more
    LEVEL = "level"  # the call has ended: the peer has no more
    FOLLOWED = "followed"  # the same, and a live call follows
    ENDED = "ended"  # the call has ended otherwise
    RESTED = "rested"
    WRONG = "wrong"


_F, _J = FeedState, FeedInput
_ENDS: Final = {
    _J.MORE: _F.QUEUED,
    _J.LEVEL: _F.RESTING,
    _J.FOLLOWED: _F.LIVE,
    _J.ENDED: _F.RESTING,
    _J.WRONG: _F.REFUSED,
}

FEED_RULES: Final[Mapping[FeedState, Mapping[FeedInput, FeedState]]] = {
    _F.QUEUED: {_J.TURN: _F.ASKED, _J.WRONG: _F.REFUSED},
    _F.ASKED: {**_ENDS, _J.SLOWED: _F.SLOW},
    _F.SLOW: _ENDS,
    _F.LIVE: {_J.ENDED: _F.RESTING, _J.WRONG: _F.REFUSED},
    _F.RESTING: {_J.RESTED: _F.QUEUED, _J.WRONG: _F.REFUSED},
    _F.REFUSED: {_J.WRONG: _F.REFUSED},
}
