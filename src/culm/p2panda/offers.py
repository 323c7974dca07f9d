"""Logs that a peer was sent and may not take: they are not sent whole again and again.

A peer whose author has forked a log, or to which an operation is not valid, leaves entries out and
names the same height in the next session.  Nothing on the wire says why, so this memory is a
hint.  It may be lost, or be of any age: a log that is tried with one entry is sent whole as soon as
the peer names another height, which is in the next session if it takes that entry.
"""

from __future__ import annotations

from collections import OrderedDict

from culm.arguments import check_int
from culm.bamboo.entry import LogKey
from culm.p2panda.effects import Span

__all__ = ["Offers"]

# The times that the rest of a log is sent whole before its next entry goes alone.
_WHOLE_MAX = 2


class Offers:
    """The logs that a peer was sent, the height that it named for each, and how often it did so.

    The same object may serve one connection with a peer after the other, also at once.

    logs_max: logs that are remembered, the last ones that were sent; 300 bytes each.
    """

    def __init__(self, *, logs_max: int = 4096) -> None:
        check_int("logs_max", logs_max)
        self._logs_max = logs_max
        self._logs: OrderedDict[LogKey, tuple[int, int]] = OrderedDict()
        self._empty = 0  # how often in a row it has had nothing

    def span(self, log: LogKey, theirs: int, ours: int) -> Span:
        """The part to send of a log of which the peer has `theirs` entries, and we have `ours`."""
        before, times = self._logs.pop(log, (theirs, 0))
        times = times + 1 if before == theirs else 1
        self._logs[log] = theirs, times
        if len(self._logs) > self._logs_max:
            self._logs.popitem(last=False)
        return Span(log, theirs + 1, ours if times <= _WHOLE_MAX else theirs + 1)

    def everything(self) -> bool:
        """Whether to send everything to a peer that has nothing."""
        self._empty += 1
        return self._empty <= _WHOLE_MAX

    def something(self) -> None:
        """Note that the peer has something."""
        self._empty = 0
