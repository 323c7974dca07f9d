"""The last contact table: when each server last reached each other one.

Source: manual/dev-oxen.md, "Last contact table".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

NEVER = -math.inf


class ContactTable:
    """A row and a column for each server, with the Unix time of the last contact.

    A contact counts from the time at which the answered keepalive was sent.  Times only grow, and
    no server has an entry for itself.  Only servers that were added have a row and a column:
    reports of others are not kept.
    """

    __slots__ = ("_rows", "_usable_s", "me")

    def __init__(self, me: bytes, usable_s: float) -> None:
        self.me = me
        self._usable_s = usable_s
        self._rows: dict[bytes, dict[bytes, float]] = {me: {}}

    def __contains__(self, sid: object) -> bool:
        return sid in self._rows

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    def add(self, sid: bytes) -> None:
        """Give `sid` a row and a column."""
        self._rows.setdefault(sid, {})

    def remove(self, sid: bytes) -> None:
        """Forget all contacts from and to `sid`."""
        self._rows.pop(sid, None)
        for row in self._rows.values():
            row.pop(sid, None)

    def put(self, fr: bytes, to: bytes, time: float) -> None:
        """Note a contact, unless a later one is known or one of the two servers is unknown."""
        row = self._rows.get(fr)
        if row is not None and fr != to and to in self._rows and time > row.get(to, NEVER):
            row[to] = time

    def merge(self, rows: Mapping[bytes, list[float]], columns: list[bytes], now: float) -> None:
        """Take over a fragment of another node's table.

        Times in the future count as `now`; those up to 0 mean that there was no contact.  Reports
        of our own contacts are ignored: we know those best.
        """
        for fr, times in rows.items():
            if fr != self.me and fr in self._rows:
                for to, time in zip(columns, times, strict=True):
                    if time > 0:
                        self.put(fr, to, min(time, now))

    def get(self, fr: bytes, to: bytes) -> float:
        """The last contact, `NEVER` if none is known."""
        row = self._rows.get(fr)
        return NEVER if row is None else row.get(to, NEVER)

    def fresh(self, time: float, now: float) -> bool:
        """Whether a link whose last contact was at `time` may be usable at `now`."""
        return now - time < self._usable_s

    def usable(self, fr: bytes, to: bytes, now: float) -> bool:
        """Whether the link from `fr` to `to` may be usable."""
        row = self._rows.get(fr)
        return row is not None and now - row.get(to, NEVER) < self._usable_s

    def newest(self, to: bytes) -> float:
        """The last contact of any server with `to`."""
        return max((row.get(to, NEVER) for row in self._rows.values()), default=NEVER)

    def dependants(self, peers: Iterable[bytes], now: float) -> set[bytes]:
        """The `peers` to which no link but our own may be usable."""
        found = set(peers)
        for fr, row in self._rows.items():
            if not found:
                break
            if fr != self.me:
                found.difference_update(to for to, time in row.items() if self.fresh(time, now))
        return found

    def reachable(self, to: bytes, now: float) -> bool:
        """Whether any link to `to` may be usable."""
        return self.usable(self.me, to, now) or self.fresh(self.newest(to), now)

    def neighbours(self, now: float) -> list[bytes]:
        """Servers to which our own link may be usable, in order."""
        return sorted(to for to, time in self._rows[self.me].items() if self.fresh(time, now))

    def distances(self, to: bytes, now: float) -> dict[bytes, int]:
        """The length of the shortest path from each server to `to` over links that may be usable.

        Servers without such a path are absent, and so are we: a path that comes back to us is of
        no use.
        """
        found = {to: 0}
        frontier: Iterable[bytes] = (to,)
        rest = {fr: row for fr, row in self._rows.items() if fr not in (to, self.me)}
        distance = 0
        while frontier and rest:
            distance += 1
            frontier = [
                fr
                for fr, row in rest.items()
                if any(self.fresh(row.get(next, NEVER), now) for next in frontier)
            ]
            for fr in frontier:
                found[fr] = distance
                del rest[fr]
        return found

    def rows(self) -> dict[bytes, dict[bytes, float]]:
        """A copy: row, column, Unix time in seconds; unknown entries are absent."""
        return {fr: dict(row) for fr, row in self._rows.items()}
