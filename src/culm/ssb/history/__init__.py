"""createHistoryStream: one feed at a time, for peers without Epidemic Broadcast Trees.

`HistoryServer` answers a peer's calls, `HistoryReader` asks a peer for feeds; both handle the calls
of one connection, and leave feeds, store and bytes to its owner.
"""

from culm.ssb.history.limits import Limits, Timing
from culm.ssb.history.reader import EarlyRoom, HistoryReader
from culm.ssb.history.request import METHOD, HistoryRequest
from culm.ssb.history.server import HistoryServer, Read
from culm.ssb.history.states import FeedState, ReplyState

__all__ = [
    "METHOD",
    "EarlyRoom",
    "FeedState",
    "HistoryReader",
    "HistoryRequest",
    "HistoryServer",
    "Limits",
    "Read",
    "ReplyState",
    "Timing",
]
