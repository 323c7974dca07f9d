"""The members of the cluster: the configurations in the log, and the one in force.

A configuration takes effect when it is known to be committed, as in JRaft, and a leader
starts no change while one is uncommitted.  So a server with two changes in its log knows that
the earlier one is committed, whatever commit index it remembers: two servers are never more
than one change apart, and their majorities overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from culm.garlic.raft.log import are_values, data_of
from culm.garlic.raft.model import Configuration, Entry, Snapshot


class Membership:
    """The configurations of a log, from the snapshot's on.

    `current` is in force, `latest` is the last one in the log; `members` are the ids in the
    former, `voters` those of them that are not learners, `known` the ids in either.
    """

    def __init__(self, snapshot: Snapshot, commit_index: int) -> None:
        self._history: list[tuple[int, Configuration]] = [(snapshot.index, snapshot.configuration)]
        self._committed = commit_index
        self.refresh()

    @property
    def quorum(self) -> int:
        """The number of voters that make a majority."""
        return len(self.voters) // 2 + 1

    @property
    def pending(self) -> bool:
        """Whether the last configuration is not yet known to be committed."""
        return self._history[-1][0] > self._committed

    def at(self, index: int) -> Configuration:
        """The last configuration at or before `index`, which must be committed."""
        return next(found for at, found in reversed(self._history) if at <= index)

    def append(self, first_index: int, entries: Sequence[Entry]) -> None:
        """Look for configurations in `entries`, the first of which is at `first_index`."""
        if are_values(map(data_of, entries)):
            return
        found = [
            (index, entry[1])
            for index, entry in enumerate(entries, first_index)
            if type(entry[1]) is not bytes and index > self._history[0][0]
        ]
        if found:
            self._history += found  # type: ignore[arg-type]  # all but bytes are
            self.refresh()

    def truncate(self, first: int) -> None:
        """Forget configurations from `first` on."""
        if self._history[-1][0] >= first:
            self._history = [item for item in self._history if item[0] < first]
            self.refresh()

    def commit(self, index: int) -> bool:
        """Note that everything up to `index` is committed; returns whether the servers changed."""
        before, pending = self.current.servers, self.pending
        self._committed = index
        if not pending:
            return False
        self.refresh()
        return self.current.servers != before

    def compact(self, snapshot: Snapshot) -> None:
        later = [item for item in self._history if item[0] > snapshot.index]
        self._history = [(snapshot.index, snapshot.configuration), *later]

    def reset(self, snapshot: Snapshot) -> None:
        self._history = [(snapshot.index, snapshot.configuration)]
        self._committed = snapshot.index
        self.refresh()

    def refresh(self) -> None:
        """Read the configuration in force from the history."""
        committed = [found for index, found in self._history if index <= self._committed]
        current = previous = committed[-1]
        for index, found in self._history:
            if index > self._committed:
                if found.servers != previous.servers:
                    current = previous
                previous = found
        self.current = current
        self.latest = previous
        self.members, self.voters = current.ids, current.voters
        self.known = self.members | previous.ids
