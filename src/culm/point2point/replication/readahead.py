"""Room for what has been read from the store and is not yet sent, over all requests."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["ENTRY_SIZE", "Lease", "ReadAhead"]

ENTRY_SIZE = 400  # what an entry costs in memory besides its payload, about


class ReadAhead:
    """Shares out `size_max` bytes.  Who wants some may have half of what is free.

    So there is something left for those who come later, down to `read_size_max`: so much a
    single read may bring, however little was asked for.  Then one waits for the others, in
    order.  One read is always possible.
    """

    def __init__(self, *, size_max: int, read_size_max: int) -> None:
        self.size = 0  # of what is leased
        self._size_max = size_max
        self._read_size_max = read_size_max
        self._waiting: dict[Lease, None] = {}

    def lease(self, rouse: Callable[[], None]) -> Lease:
        """A part of the room, empty at first; `rouse` is called when there is room again."""
        return Lease(self, rouse)

    def share(self, lease: Lease, size: int, *, lasting: bool) -> int:
        """How much `lease` may have of `size` bytes; if nothing, it is roused later.

        `lasting`: for something that will go on for long.  It leaves a quarter of all to others.
        """
        free = self._size_max - self.size - (self._size_max // 4 if lasting else 0)
        share = max(min(size, free // 2), self._read_size_max)
        if share > free and self.size:
            self._waiting[lease] = None
            return 0
        return share

    def resize(self, old: int, new: int) -> None:
        """A lease has another size; rouse as many as there is room for."""
        self.size += new - old
        if new >= old:
            return
        places = max((self._size_max - self.size) // self._read_size_max, self.size == 0)
        for lease in list(self._waiting)[:places]:
            del self._waiting[lease]
            lease.rouse()

    def forget(self, lease: Lease) -> None:
        """It does not wait any more."""
        self._waiting.pop(lease, None)


class Lease:
    """What one request holds."""

    __slots__ = ("_ahead", "_size", "rouse")

    def __init__(self, ahead: ReadAhead, rouse: Callable[[], None]) -> None:
        self._ahead = ahead
        self._size = 0
        self.rouse = rouse

    def claim(self, size: int, *, lasting: bool = False) -> int:
        """Room for a read in the place of what is held: how much, `size` bytes or less.

        0 if there is none for the moment: `rouse` is called when there is.
        """
        self.resize(0)
        share = self._ahead.share(self, size, lasting=lasting)
        self.resize(share)
        return share

    def resize(self, size: int) -> None:
        """So much is held now."""
        old, self._size = self._size, size
        if old != size:
            self._ahead.resize(old, size)

    def close(self) -> None:
        """Nothing is held, or waited for, any more."""
        self._ahead.forget(self)
        self.resize(0)
