"""The logs that are kept track of: so many at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from culm.bamboo.entry import LogKey
from culm.point2point.replication.events import Want
from culm.point2point.replication.replica import Replica

__all__ = ["Places"]

_LOOKS_MAX: Final = 64  # at logs that might give up their places, in one go


class Places:
    """Has a place for each of so many logs; one with nothing to do makes way for another.

    All that is forgotten with it can be found out again: both sides had everything, or one of them
    had refused it, or it is remembered elsewhere that it waits.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._replicas: OrderedDict[LogKey, Replica] = OrderedDict()
        self.made_way = False  # whether a log has given up its place

    def __contains__(self, log: LogKey) -> bool:
        return log in self._replicas

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def get(self, log: LogKey) -> Replica | None:
        """What is known of a log, if it has a place."""
        return self._replicas.get(log)

    def take(self, replica: Replica) -> None:
        """Give a free place to a log."""
        self._replicas[replica.log] = replica

    def withdraw(self, wanted: int) -> dict[LogKey, Want | None]:
        """Have up to `wanted` logs make way that only wait for a place at the peer.

        Says which they are, and what is wanted of them; they have a place no more as soon as the
        peer has answered.
        """
        withdrawn: dict[LogKey, Want | None] = {}
        for log, replica in list(self._replicas.items()):
            if len(withdrawn) == wanted:
                break
            if replica.stop_waiting():
                withdrawn[log] = replica.wanted
                if replica.deferred:  # nothing is under way that would have to end first
                    replica.leave()
                    del self._replicas[log]
        self.made_way = self.made_way or bool(withdrawn)
        return withdrawn

    def free(self, wanted: int = 1) -> int:
        """How many places are free, up to `wanted`, when those with nothing to do have made way.

        Looks at a few in turn, so that it comes to all of them.
        """
        replicas = self._replicas
        found = self._count_max - len(replicas)
        for _ in range(min(_LOOKS_MAX, len(replicas))):
            if found >= wanted:
                break
            log, replica = replicas.popitem(last=False)
            if replica.has_nothing_to_do:
                replica.leave()
                self.made_way = True
                found += 1
            else:
                replicas[log] = replica
        return min(found, wanted)
