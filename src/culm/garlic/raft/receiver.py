"""The follower's side: entries, snapshots, invitations and orders from a leader."""

from __future__ import annotations

from collections.abc import Sequence

from culm.garlic.raft.departure import Departure
from culm.garlic.raft.effects import WriteSnapshot
from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import SnapshotInstalled
from culm.garlic.raft.messages import (
    AppendRequest,
    JoinRequest,
    LeaveRequest,
    RaftRequest,
    SnapshotRequest,
    SyncRequest,
)
from culm.garlic.raft.model import Entry, Snapshot
from culm.garlic.raft.part import SnapshotPart
from culm.garlic.raft.shared import Shared
from culm.machine import RemoteProtocolError


class Receiver:
    """Owns the transfers that a leader has begun: a snapshot, a sync.

    Every handler is called with a request of the current term's leader, and answers it, or raises
    `RemoteProtocolError`: ``CONTRADICTION`` if it denies a committed entry, or
    ``SNAPSHOT_TOO_LARGE``.
    """

    def __init__(self, shared: Shared, departure: Departure) -> None:
        self._shared = shared
        self._departure = departure
        self._part = SnapshotPart()
        self.due: SnapshotRequest | None = None  # chunk to write
        self._writing: SnapshotRequest | None = None
        self.held: SnapshotRequest | None = None  # the newest that came meanwhile
        self.installing = False  # the last chunk, which replaces our state, is due or being written
        self._synced_by: tuple[int, int] | None = None  # term and leader that let us join
        self._synced = 0  # the index up to which our log is known to be that leader's

    @property
    def writing(self) -> bool:
        """Whether a chunk is due or being written."""
        return self.due is not None or self._writing is not None

    def on_append(self, request: AppendRequest) -> None:
        """AppendEntries (paper, figure 2, receiver implementation 2 to 5)."""
        shared = self._shared
        log = shared.journal.log
        previous, entries = request.previous_index, request.entries
        end = previous + len(entries)
        if self.installing:
            shared.respond(request, log.last_index + 1, accepted=False)
            return
        if previous >= log.base_index and log.term_at(previous) != request.previous_term:
            if previous <= shared.journal.commit_index and request.previous_term <= request.term:
                raise self._contradiction(request, previous)
            retry = log.retry_index(previous, request.previous_term)
            shared.respond(request, retry, accepted=False)
            return
        if not self._store(previous, entries, request):
            shared.respond(request, log.last_index + 1, accepted=False)
            return
        self._commit(min(request.commit_index, end))
        shared.respond(request, end + 1, accepted=True)

    def _contradiction(self, request: RaftRequest, index: int) -> RemoteProtocolError:
        """The error of a leader that has another entry at a committed index."""
        told = f"leader {request.source} of term {request.term} has another entry {index}"
        return RemoteProtocolError(ErrorCode.CONTRADICTION, f"{told}, which is committed here")

    def _store(self, previous: int, entries: Sequence[Entry], request: RaftRequest) -> bool:
        """Make our log agree with `entries`; false if they cannot be the leader's.

        Entries of ours that they do not contradict stay (figure 2, rule 3: only a conflict
        deletes): the request may be an old one.
        """
        journal = self._shared.journal
        log = journal.log
        if previous < log.base_index:  # compacted, hence committed, hence the same
            entries = entries[log.base_index - previous :]
            previous = log.base_index
        if not entries:
            return True
        if entries[-1].term > request.term:
            return False
        known = log.first_conflict(previous, entries)
        if known == len(entries):
            return True
        first = previous + known + 1
        if first <= journal.commit_index:
            raise self._contradiction(request, first)
        if first <= log.last_index:
            journal.truncate(first)
        journal.append(entries[known:] if known else entries)
        return True

    def _commit(self, index: int) -> None:
        was_member = self._shared.is_member
        if self._shared.commit(index):
            self._members_changed(was_member)

    def _members_changed(self, was_member: bool) -> None:
        if self._shared.is_member:
            self._departure.stay()
        elif was_member:
            self._departure.go()

    def on_snapshot(self, request: SnapshotRequest) -> None:
        """InstallSnapshot (paper, figure 13)."""
        shared, snapshot = self._shared, request.snapshot
        log = shared.journal.log
        if snapshot.index <= log.base_index or log.term_at(snapshot.index) == snapshot.term:
            # Rule 6: we have the entries that it stands for, so log and state stay as they are.
            self._commit(min(snapshot.index, log.last_index))
            self._synced = max(self._synced, snapshot.index)
            shared.respond(request, request.offset + len(request.data), accepted=True)
        elif snapshot.term > request.term:
            shared.respond(request, 0, accepted=False)
        elif snapshot.index <= shared.journal.commit_index:
            raise self._contradiction(request, snapshot.index)
        elif request.offset + len(request.data) > shared.limits.snapshot_size_max:
            raise RemoteProtocolError(ErrorCode.SNAPSHOT_TOO_LARGE, f"of server {request.source}")
        else:
            self._take_chunk(request)

    def _take_chunk(self, request: SnapshotRequest) -> None:
        """Take the chunk that is wanted next; answer any other with the offset that is wanted.

        The answer is accepted even so: JRaft sends a refused chunk again at once and for ever, but
        goes to the offset that an accepted one wants.  A leader that starts over believes no offset
        beyond the bytes that it has sent since, so it is told of the bytes here chunk by chunk.

        While one is written the newest other is held: its fate must not depend on the time that
        the store takes.  If it is the same one once more, the former request is answered at once:
        its leader counts answers, and those on a connection come in order.
        """
        if self._repeats(self.due, request):
            self.due = request
        elif self._repeats(self._writing, request):
            self._writing = request
        elif self.writing:
            held, self.held = self.held, request
            if held is not None:
                self._answer_with_offset(held)
        elif request.offset == self._part.wanted(request) and not self._part.has(request):
            self._part.begin(request)
            self.due, self.installing = request, request.done
        else:
            if request.offset == self._part.wanted(request):
                self._part.compare(request)
            self._answer_with_offset(request)

    def _repeats(self, former: SnapshotRequest | None, request: SnapshotRequest) -> bool:
        """Whether a chunk comes once more while it is written; the former request is answered."""
        if former is None or _chunk(former) != _chunk(request):
            return False
        self._answer_with_offset(former)
        return True

    def _answer_with_offset(self, request: SnapshotRequest) -> None:
        end = request.offset + len(request.data)
        self._shared.respond(request, min(self._part.wanted(request), end), accepted=True)

    def take_held(self) -> SnapshotRequest | None:
        """The request that was held, once the write for which it had to wait is done."""
        if self.writing:
            return None
        held, self.held = self.held, None
        return held

    def next_effect(self) -> WriteSnapshot | None:
        """Write the chunk that is due.

        The last one replaces log and state, so it waits until nothing else is at work.
        """
        shared, chunk = self._shared, self.due
        if chunk is None or (chunk.done and not (shared.journal.saved and not shared.applier.busy)):
            return None
        self.due, self._writing = None, chunk
        return shared.work.hand_out(
            WriteSnapshot,
            self._written,
            snapshot=chunk.snapshot,
            offset=chunk.offset,
            data=chunk.data,
            done=chunk.done,
        )

    def _written(self, usable: bool) -> None:
        chunk, self._writing, self.installing = self._writing, None, False
        assert chunk is not None
        shared = self._shared
        if not usable:
            self._part.clear()
            shared.respond(chunk, 0, accepted=True)
            return
        self._part.add(chunk)
        if chunk.done:
            self._installed(chunk.snapshot)
        shared.respond(chunk, chunk.offset + len(chunk.data), accepted=True)

    def _installed(self, snapshot: Snapshot) -> None:
        shared = self._shared
        before, was_member = shared.journal.membership.current, shared.is_member
        shared.settle_unapplied()
        shared.journal.reset(snapshot)
        shared.applier.reset(snapshot.index)
        self._part.clear()
        self._synced = max(self._synced, snapshot.index)
        shared.work.emit(SnapshotInstalled(snapshot=snapshot))
        shared.settle_proposals()
        if snapshot.configuration.servers != before.servers:
            shared.members_changed()
            self._members_changed(was_member)

    def on_join(self, request: JoinRequest) -> None:
        """The invitation: from now on the leader's sync requests are taken."""
        self._synced_by, self._synced = (request.term, request.source), 0
        self._departure.stay()
        self._shared.respond(request, self._shared.journal.log.last_index + 1, accepted=True)

    def on_sync(self, request: SyncRequest) -> None:
        """Entries of the leader we join, from the first one on.

        The wire does not tell the previous entry's term, so they are taken only where
        everything before them has come from the same leader in the same term.  A restart makes us
        forget the invitation; JRaft does not repeat it, and begins again when it is refused.
        """
        shared, previous = self._shared, request.previous_index
        leader = (request.term, request.source)
        if previous == 0 and not shared.is_member and leader != self._synced_by:
            self._synced_by, self._synced = leader, 0
        if (
            self._synced_by != leader
            or previous > self._synced
            or self.installing
            or not self._store(previous, request.entries, request)
        ):
            shared.respond(request, self._synced + 1, accepted=False)
            return
        self._synced = max(self._synced, previous + len(request.entries))
        self._commit(min(request.commit_index, self._synced))
        shared.respond(request, self._synced + 1, accepted=True)

    def on_leave(self, request: LeaveRequest) -> None:
        """We are to go: once the configuration without us is committed, or all is silent."""
        self._departure.told()
        self._shared.respond(request, self._shared.journal.log.last_index + 1, accepted=True)


def _chunk(request: SnapshotRequest) -> tuple[object, ...]:
    sender = request.term, request.source
    return sender, request.snapshot, request.offset, request.data, request.done
