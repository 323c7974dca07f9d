"""The servers' shares of the missing payloads: the faster a server, the more it is asked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from culm.bamboo import LogKey
from culm.point2point.replication import Want

__all__ = ["Share", "Shares"]

# A server is asked for no fewer payloads at once, as long as there are that many.
_COUNT_MIN = 4


@dataclass(frozen=True, slots=True)
class Share:
    """Payloads to ask one server for: of these entries of `log`, ascending, within `gap`."""

    log: LogKey
    gap: Want
    seqnums: Sequence[int]

    @property
    def want(self) -> Want:
        """The range that brings them."""
        return replace(self.gap, first=self.seqnums[0], last=self.seqnums[-1])


class Shares:
    """Gives out the missing payloads, in shares of the rest, until all have come.

    A server that is done with its share gets another one.  When all is given out, it takes over
    the end of what others still owe.  So servers that are slow or stuck hold up nothing: their
    shares come from others, and few payloads come twice.

    gaps: ranges of each log in which nothing is there that is missing (`survey_log`).
    """

    def __init__(
        self, missing: Mapping[LogKey, Sequence[int]], gaps: Mapping[LogKey, Iterable[Want]]
    ) -> None:
        self._gaps = [
            Share(log, gap, _within(missing[log], gap))
            for log, each in gaps.items()
            for gap in each
        ]
        # By payload that has not come: which servers are asked for it, and which do not have it.
        self._asked: dict[tuple[LogKey, int], set[int]] = {
            (share.log, seqnum): set() for share in self._gaps for seqnum in share.seqnums
        }
        self._lacking: dict[tuple[LogKey, int], set[int]] = {}
        self._under_way: dict[int, Share] = {}

    @property
    def done(self) -> bool:
        """Whether all has come."""
        return not self._asked

    def under_way(self, server: int) -> Share | None:
        """The share that a server is asked for, unless that is over."""
        return self._under_way.get(server)

    def came(self, log: LogKey, seqnum: int) -> None:
        """Note that a payload is here, from any server."""
        self._asked.pop((log, seqnum), None)

    def take(self, server: int, offered: Mapping[LogKey, int], *, servers: int) -> Share | None:
        """The next share for an idle server that has offered that much of each log.

        servers: their number.
        """
        count = max(_COUNT_MIN, len(self._asked) // (2 * servers))
        for askers in range(servers):
            runs = list(self._runs(server, offered, askers))
            if not runs:
                continue
            if askers:  # they begin at its beginning, and may come as far as its middle
                share = max(runs, key=lambda run: len(run.seqnums))
                share = replace(share, seqnums=share.seqnums[len(share.seqnums) // 2 :])
            else:
                share = replace(runs[0], seqnums=runs[0].seqnums[:count])
            for seqnum in share.seqnums:
                self._asked[share.log, seqnum].add(server)
            self._under_way[server] = share
            return share
        return None

    def over(self, server: int) -> None:
        """Note that a server has sent all it has of its share, or sends nothing any more."""
        share = self._under_way.pop(server, None)
        if share is None:
            return
        for seqnum in share.seqnums:
            place = share.log, seqnum
            if place in self._asked:
                self._asked[place].discard(server)
                self._lacking.setdefault(place, set()).add(server)

    def _runs(self, server: int, offered: Mapping[LogKey, int], askers: int) -> Iterator[Share]:
        """The runs to be had from a server and asked of `askers` others: without holes."""
        for gap in self._gaps:
            log, last = gap.log, offered.get(gap.log, 0)

            def is_wanted(seqnum: int, log: LogKey = log, last: int = last) -> bool:
                asked = self._asked.get((log, seqnum))
                if asked is None or len(asked) != askers or seqnum > last:
                    return False
                return server not in self._lacking.get((log, seqnum), ())

            for wanted, seqnums in groupby(gap.seqnums, is_wanted):
                if wanted:
                    yield replace(gap, seqnums=list(seqnums))


def _within(seqnums: Sequence[int], gap: Want) -> Sequence[int]:
    assert gap.first is not None
    assert gap.last is not None
    return seqnums[bisect_left(seqnums, gap.first) : bisect_right(seqnums, gap.last)]
