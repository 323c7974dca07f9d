"""What must be durable, and the messages that wait until it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from culm.effects import StoreWork
from culm.garlic.raft.effects import Persist
from culm.garlic.raft.log import Log
from culm.garlic.raft.membership import Membership
from culm.garlic.raft.messages import Message
from culm.garlic.raft.model import Entry, Snapshot, Stored

__all__ = ["Journal"]


class Journal:
    """Term, vote and log, in memory and on their way to the store.

    Changes are counted.  One write is under way at a time and takes along all changes
    made before it; a message sent with `send` leaves when all changes that preceded it
    are written.  `stable_index` is the last entry that is durable as it stands here.
    """

    __slots__ = (
        "_changes",
        "_outbox",
        "_saved",
        "_unsaved_from",
        "_waiting",
        "_work",
        "_writing",
        "commit_index",
        "log",
        "membership",
        "stable_index",
        "term",
        "voted_for",
    )

    def __init__(self, stored: Stored, work: StoreWork) -> None:
        self.log = Log(stored)
        known = max(stored.commit_index, stored.applied_index)
        if known > self.log.last_index:
            raise ValueError(
                f"the store's log ends at {self.log.last_index}, and {known} was committed"
            )
        self.term = max(stored.term, self.log.last_term)
        self.voted_for = stored.voted_for if self.term == stored.term else None
        self.commit_index = max(stored.snapshot.index, known)
        self.membership = Membership(stored.snapshot, self.commit_index)
        first = self.log.base_index + 1
        self.membership.append(first, self.log.slice(first, self.log.last_index))
        self.stable_index = self.log.last_index
        self._work = work
        self._changes = 0
        self._saved = 0
        self._unsaved_from: int | None = None
        self._writing = False
        self._waiting: deque[tuple[int, Message]] = deque()
        self._outbox: list[Message] = []

    @property
    def saved(self) -> bool:
        """Whether everything is durable."""
        return self._saved == self._changes

    def commit(self, index: int) -> bool:
        """Everything up to `index` is committed.  Returns whether the members changed."""
        self.commit_index = index
        return self.membership.commit(index)

    def set_term(self, term: int, voted_for: int | None) -> None:
        self.term, self.voted_for = term, voted_for
        self._changes += 1

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end."""
        first = self.log.last_index + 1
        self.log.append(entries)
        self.membership.append(first, entries)
        self._changed_from(first)

    def append_values(self, values: Sequence[bytes]) -> None:
        """Add values, of which none is a configuration, as entries of the current term."""
        term = self.term
        self._changed_from(self.log.last_index + 1)
        self.log.append([Entry(term, value) for value in values])

    def truncate(self, first: int) -> None:
        """Drop entries from `first` on; new ones follow at once."""
        self.log.truncate(first)
        self.membership.truncate(first)
        self._changed_from(first)
        self.stable_index = min(self.stable_index, first - 1)

    def _changed_from(self, first: int) -> None:
        if self._unsaved_from is None or first < self._unsaved_from:
            self._unsaved_from = first
        self._changes += 1

    def reset(self, snapshot: Snapshot) -> None:
        """Store and memory hold nothing but `snapshot` any more."""
        self.log.reset(snapshot)
        self.membership.reset(snapshot)
        self.commit_index = self.stable_index = snapshot.index

    def send(self, message: Message) -> None:
        """Let `message` leave once everything so far is durable."""
        if self.saved:
            self._outbox.append(message)
        else:
            self._waiting.append((self._changes, message))

    def send_now(self, message: Message) -> None:
        """Let `message` leave, which depends on nothing that is not durable."""
        self._outbox.append(message)

    def take_messages(self) -> list[Message]:
        messages, self._outbox = self._outbox, []
        return messages

    def next_effect(self) -> Persist | None:
        """The next write, if one is due and none is under way.

        Its commit index covers only what is durable already: if the write is torn, the
        entries that it replaces must not be taken for committed ones.
        """
        if self._writing or self._saved == self._changes:
            return None
        self._writing = True
        first, self._unsaved_from = self._unsaved_from, None
        last, changes = self.log.last_index, self._changes
        return self._work.hand_out(
            Persist,
            lambda _: self._written(changes, first is not None, last),
            term=self.term,
            voted_for=self.voted_for,
            commit_index=min(self.commit_index, self.stable_index),
            first_index=first,
            entries=() if first is None else self.log.slice(first, last),
        )

    def _written(self, changes: int, with_log: bool, last: int) -> None:
        self._writing = False
        self._saved = changes
        if with_log:
            unsaved = self._unsaved_from
            self.stable_index = last if unsaved is None else min(last, unsaved - 1)
        waiting = self._waiting
        while waiting and waiting[0][0] <= changes:
            self._outbox.append(waiting.popleft()[1])

    def drop_messages(self) -> None:
        self._outbox.clear()
        self._waiting.clear()
