"""The fallback mechanism of the seed as a table: ways to exchange feeds over a link."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ExchangeMode(Enum):
    """Ways to exchange feeds over a link."""

    NOTHING = "nothing"
    """The peer is not known yet, or the session has ended and is not asked for again."""
    WAITING = "waiting"
    """We were dialled: the peer is to open a session."""
    ASKED = "asked"
    """We have opened a session, in which nothing has come from the peer yet."""
    EBT = "ebt"
    RESTING = "resting"
    """The session was lost; one side asks again, unless another link has one."""
    MEANWHILE = "meanwhile"
    """There are too many sessions with others: feeds are asked for one by one until one ends."""
    HISTORY = "history"
    """One side seems not to support EBT: feeds are asked for one by one."""


class ExchangeInput(Enum):
    """The inputs of the fallback mechanism."""

    CONNECTED_AS_CLIENT = "connected as client"
    CONNECTED_AS_SERVER = "connected as server"
    CONNECTED_WITHOUT_EBT = "connected without EBT"  # which we do not speak
    SESSION_OPENED = "session opened"  # by the peer
    NOTES_CAME = "notes came"  # in the session that we have opened
    SESSION_REFUSED = "session refused"  # ended with an error, by the peer (scenario 1) or by us
    SESSION_ENDED = "session ended"  # without one
    SESSION_LOST = "session lost"  # it gave way, or the first notes were late
    NO_PLACE = "no place"  # for a session, besides those with others
    RESUMED = "resumed"  # there is no session with the peer, and we ask
    HISTORY_ASKED = "history asked"  # by the peer, instead of a session: scenario 2
    WAITED = "waited"  # long enough for a session: scenario 3
    ASKED_IN_VAIN = "asked in vain"  # the same, and we ask: scenario 4


_M, _I = ExchangeMode, ExchangeInput

#: In these we ask for feeds with createHistoryStream.
ONE_BY_ONE: Final = frozenset({_M.MEANWHILE, _M.HISTORY})

EXCHANGE_RULES: Final[Mapping[ExchangeMode, Mapping[ExchangeInput, ExchangeMode]]] = {
    _M.NOTHING: {
        _I.CONNECTED_AS_CLIENT: _M.ASKED,
        _I.CONNECTED_AS_SERVER: _M.WAITING,
        _I.CONNECTED_WITHOUT_EBT: _M.HISTORY,
        _I.SESSION_OPENED: _M.EBT,
    },
    _M.WAITING: {
        _I.SESSION_OPENED: _M.EBT,
        _I.HISTORY_ASKED: _M.HISTORY,
        _I.WAITED: _M.HISTORY,
        _I.ASKED_IN_VAIN: _M.ASKED,
    },
    _M.ASKED: {
        _I.SESSION_OPENED: _M.EBT,
        _I.NOTES_CAME: _M.EBT,
        _I.SESSION_REFUSED: _M.HISTORY,
        _I.SESSION_ENDED: _M.NOTHING,
        _I.SESSION_LOST: _M.RESTING,
        _I.NO_PLACE: _M.MEANWHILE,
    },
    _M.EBT: {
        _I.SESSION_OPENED: _M.EBT,
        _I.SESSION_REFUSED: _M.HISTORY,
        _I.SESSION_ENDED: _M.NOTHING,
        _I.SESSION_LOST: _M.RESTING,
    },
    _M.RESTING: {
        _I.SESSION_OPENED: _M.EBT,
        _I.RESUMED: _M.ASKED,
        _I.HISTORY_ASKED: _M.HISTORY,
    },
    _M.MEANWHILE: {
        _I.SESSION_OPENED: _M.EBT,
        _I.RESUMED: _M.ASKED,
    },
    _M.HISTORY: {_I.SESSION_OPENED: _M.EBT},
}
