"""Whose turn it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Turns"]

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """Those that may have something to do take turns, in the order in which they came.

    One that has just got something new does not wait for those that go on and on, and they wait
    for no more than one of these.
    """

    __slots__ = ("_fresh", "_fresh_had_turn", "_going_on")

    def __init__(self) -> None:
        # What is taken from the front of a dict has to be passed over every time after that.
        self._fresh: OrderedDict[K, None] = OrderedDict()
        self._going_on: OrderedDict[K, None] = OrderedDict()
        self._fresh_had_turn = False

    def __bool__(self) -> bool:
        return bool(self._fresh or self._going_on)

    def __contains__(self, key: object) -> bool:
        return key in self._fresh or key in self._going_on

    def add(self, key: K, *, fresh: bool = True) -> None:
        """Give it a turn, unless it waits for one; `fresh`: because of something new."""
        if key not in self:
            queue = self._fresh if fresh else self._going_on
            queue[key] = None

    def go_on(self, key: K) -> None:
        """It has had its turn, and there may be more."""
        self._fresh.pop(key, None)
        self._going_on[key] = None

    def discard(self, key: K) -> None:
        self._fresh.pop(key, None)
        self._going_on.pop(key, None)

    def first(self) -> K:
        """The one whose turn is next; there has to be one."""
        return next(iter(self._queue()))

    def take(self) -> K:
        """The same; it has had its turn then."""
        queue = self._queue()
        self._fresh_had_turn = queue is self._fresh
        return queue.popitem(last=False)[0]

    def _queue(self) -> OrderedDict[K, None]:
        if self._fresh and not (self._going_on and self._fresh_had_turn):
            return self._fresh
        return self._going_on
