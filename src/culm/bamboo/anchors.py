"""The hashes of a log that are needed to check the links of all its later entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from culm.bamboo.links import lipmaa, open_targets

T = TypeVar("T")


class Anchors(Generic[T]):
    """Something (a hash, as a rule) for each entry to which a later entry can link.

    Entries come in ascending order.  Links do not cross, so an entry n makes everything
    between its lipmaalink's target and itself unreachable: those that are kept form a stack, and
    adding the entries of a log one by one costs amortized constant time.  Kept are at
    most three entries for each of the 41 levels of blocks, at any length of the log;
    all of `culm.bamboo.links.open_targets` are among them.
    """

    __slots__ = ("_seqnums", "_values", "position")

    position: int
    """Sequence number of the entry added last; 0 before the first."""

    def __init__(self, position: int = 0, known: Mapping[int, T] | None = None) -> None:
        """Start after entry `position`, with the anchors known up to there."""
        self.position = position
        values = known or {}
        self._seqnums = [seqnum for seqnum in open_targets(position) if seqnum in values]
        self._values = {seqnum: values[seqnum] for seqnum in self._seqnums}

    def __len__(self) -> int:
        return len(self._seqnums)

    def require_complete(self) -> None:
        """Raise `ValueError` if an entry that the next ones can link to is missing."""
        missing = [n for n in open_targets(self.position) if n not in self._values]
        if missing:
            raise ValueError(f"links of entries after {self.position} need entries {missing}")

    def get(self, seqnum: int) -> T | None:
        return self._values.get(seqnum)

    def snapshot(self) -> dict[int, T]:
        """All that is kept, ascending: enough to start again from `position`."""
        return dict(self._values)

    def add(self, seqnum: int, value: T) -> None:
        """Add the next entry; `seqnum` must exceed `position`."""
        seqnums, values = self._seqnums, self._values
        if seqnum == self.position + 1:
            target = lipmaa(seqnum)
            while seqnums and seqnums[-1] > target:
                del values[seqnums.pop()]
        else:
            reachable = set(open_targets(seqnum - 1))
            self._seqnums = seqnums = [kept for kept in seqnums if kept in reachable]
            self._values = values = {kept: values[kept] for kept in seqnums}
        seqnums.append(seqnum)
        values[seqnum] = value
        self.position = seqnum
