"""One change of membership, as JRaft makes it.

Adding: the new server is invited (JoinCluster), then given the log in batches (SyncLog)
or, if the log is compacted, the snapshot first; when it lacks little, the configuration
with it is appended.  A learner that becomes a voter is given the log anyway: when it has
answered, and lacks little, the configuration in which it votes is appended.  Removing: the
server is told to leave (LeaveCluster), then the configuration without it is appended.  A
configuration takes effect when it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from culm.garlic.raft.messages import (
    AppendRequest,
    AppendResponse,
    Extension,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    SnapshotResponse,
    SyncRequest,
    SyncResponse,
)
from culm.garlic.raft.model import Configuration, Entry, Server
from culm.garlic.raft.progress import Chunk, Progress
from culm.garlic.raft.replicator import Replicator
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.ways import Ways

# The index from which a joiner is given the log.
_FIRST_INDEX = 1


class ChangeState(Enum):
    """The step that the change waits for."""

    JOINING = "joining"
    PROMOTING = "promoting"
    INSTALLING = "installing"
    SYNCING = "syncing"
    LEAVING = "leaving"
    COMMITTING = "committing"


class Change:
    """Owns the exchange with one server that is being added or removed.

    A learner that becomes a voter needs no such exchange: it is a peer like all others.
    """

    def __init__(
        self, shared: Shared, replicator: Replicator, ways: Ways, server: Server, *, adding: bool
    ) -> None:
        self._shared = shared
        self._replicator = replicator
        self._ways = ways
        self._attempts = 0
        self._invitations = 0
        self._furthest = (0, 0)  # the most entries, and bytes of a snapshot, that it had
        self._moved_at = shared.now  # when it last got further than ever
        self.server = server
        self.progress = Progress(_FIRST_INDEX, shared.now, replicator.sequence)
        self._since = 0  # a learner's answer to an earlier request is no sign of life
        learner = replicator.peers.get(server.server_id)
        if not adding:
            self.state = ChangeState.LEAVING
        elif learner is None:
            self.state = ChangeState.JOINING
        else:
            self.state, self.progress = ChangeState.PROMOTING, learner
            self._since = replicator.want_answers()
        # A server that would count learners is not even invited.
        self._barred = self.state is ChangeState.JOINING and self.has_learners
        self._send()

    @property
    def configuration(self) -> Configuration:
        """The configuration to append once `state` is COMMITTING."""
        journal, server = self._shared.journal, self.server
        latest = journal.membership.latest
        servers = [member for member in latest.servers if member.server_id != server.server_id]
        if latest.find(server.server_id) != server:  # else it is being removed
            servers.append(server)
        return Configuration(journal.log.last_index + 1, latest.log_index, tuple(servers))

    @property
    def has_learners(self) -> bool:
        """Whether the configuration to come has members that do not count."""
        return any(not server.voter for server in self.configuration.servers)

    def let_in(self) -> None:
        """Note that the server understands learners."""
        self._barred = False
        self._send()

    def _send(self) -> None:
        """Send the request of the present state, unless one is unanswered."""
        if self._barred or self.progress.in_flight:
            return
        match self.state:
            case ChangeState.JOINING:
                self._send_join()
            case ChangeState.SYNCING:
                self._send_sync()
            case ChangeState.LEAVING:
                self._send_leave()
            case ChangeState.INSTALLING:
                self._replicator.serve(self.server.server_id, self.progress)
            case ChangeState.PROMOTING | ChangeState.COMMITTING:
                pass

    def _sequence(self) -> int:
        sequence = self._replicator.next_sequence()
        self.progress.sent_request(sequence, self._shared.now, 0)
        return sequence

    def _send_join(self) -> None:
        journal = self._shared.journal
        self._invitations += 1
        journal.send_now(
            JoinRequest(
                source=self._shared.server_id,
                destination=self.server.server_id,
                term=journal.term,
                sequence=self._sequence(),
                configuration=journal.membership.current,
                last_log_index=journal.log.last_index,
                commit_index=journal.commit_index,
            )
        )

    def _send_leave(self) -> None:
        journal = self._shared.journal
        journal.send_now(
            LeaveRequest(
                source=self._shared.server_id,
                destination=self.server.server_id,
                term=journal.term,
                sequence=self._sequence(),
                last_log_index=journal.log.last_index,
                commit_index=journal.commit_index,
            )
        )

    def _send_sync(self) -> None:
        journal, limits = self._shared.journal, self._shared.limits
        first = self.progress.next_index
        if first <= journal.log.base_index:
            self._install()
            return
        entries = journal.log.batch(first, limits.append_entries_max, limits.append_size_max)
        may_be_jrafts = self._ways.leads_to(self.server.server_id, Extension.LEARNERS) is False
        if may_be_jrafts and first > _FIRST_INDEX:
            self._send_entries(first - 1, entries)
            return
        journal.send_now(
            SyncRequest(
                source=self._shared.server_id,
                destination=self.server.server_id,
                term=journal.term,
                sequence=self._sequence(),
                previous_index=first - 1,
                commit_index=journal.commit_index,
                entries=entries,
            )
        )

    def _send_entries(self, previous: int, entries: Sequence[Entry]) -> None:
        """Give a server that may be JRaft's the entries in AppendEntries, which it takes as well.

        It writes the offsets in a pack into its index as they are, and those of any pack but the
        first are wrong if it has compacted its log in the meantime.
        """
        journal = self._shared.journal
        previous_term = journal.log.term_at(previous)
        assert previous_term is not None  # it is in the log, or right before it
        journal.send_now(
            AppendRequest(
                source=self._shared.server_id,
                destination=self.server.server_id,
                term=journal.term,
                sequence=self._sequence(),
                previous_index=previous,
                previous_term=previous_term,
                commit_index=min(journal.commit_index, previous + len(entries)),
                entries=entries,
            )
        )

    def _install(self) -> None:
        self.state = ChangeState.INSTALLING
        self.progress.send_snapshot(self._shared.journal.log.snapshot)
        self._send()

    def beat(self) -> bool:
        """Repeat a request that was not answered in time.

        Returns false when the server has been silent, or got no further, for too long; an order
        to leave is then taken as heard.
        """
        if self.state is ChangeState.COMMITTING:
            return True
        if self.state is ChangeState.PROMOTING:
            return not self._hopeless
        self.progress.go_on()
        overdue = self._shared.now - self._shared.timing.request_timeout_s
        if self.progress.overdue(overdue):
            self._shared.journal.withdraw(self.server.server_id)
            self.progress.in_flight.clear()
            self._attempts += 1
        leaving = self.state is ChangeState.LEAVING
        if self._hopeless or (leaving and self._silent):
            if leaving:
                self.state = ChangeState.COMMITTING
            return leaving
        self._send()
        return True

    @property
    def _hopeless(self) -> bool:
        shared, attempts_max = self._shared, self._shared.limits.attempts_max
        if self._attempts >= attempts_max:
            return True
        if self.state is ChangeState.JOINING and self._invitations >= attempts_max:
            return not self.progress.in_flight  # the last one may yet be accepted
        return shared.now - self._moved_at >= shared.timing.change_timeout_s

    @property
    def _silent(self) -> bool:
        """Whether a server that is to leave is as good as dead: not to be waited for."""
        peer, shared = self._replicator.peers.get(self.server.server_id), self._shared
        patience = 2 * shared.timing.election_timeout_max_s
        return peer is not None and shared.now - peer.heard_at >= patience

    def look(self) -> None:
        """Let a learner vote if it answers, and lacks as little as a joiner may."""
        if self.state is ChangeState.PROMOTING:
            learner = self.progress
            self._moved(learner.match_index, learner.snapshot_offset)
            if learner.acknowledged >= self._since and self._lacks_little(learner.match_index + 1):
                self.state = ChangeState.COMMITTING

    def _lacks_little(self, next_index: int) -> bool:
        shared = self._shared
        return shared.journal.log.last_index + 1 - next_index < shared.limits.sync_gap

    def _answered(self, sequence: int) -> bool:
        flight = self.progress.answered(sequence, self._shared.now)
        if flight is not None:
            self._attempts = 0
        return flight is not None

    def on_join_response(self, response: JoinResponse) -> bool:
        """Take the answer to an invitation; returns false for a refusal."""
        if self.state is not ChangeState.JOINING or not self._answered(response.sequence):
            return True
        if response.accepted:
            self._furthest, self._moved_at = (0, 0), self._shared.now
            self._sync_from(_FIRST_INDEX)
        return response.accepted

    def on_sync_response(self, response: SyncResponse | AppendResponse) -> None:
        if self.state is not ChangeState.SYNCING:
            return
        if not self._answered(response.sequence):
            return
        if response.accepted:
            last_index = self._shared.journal.log.last_index
            self._sync_from(max(1, min(response.next_index, last_index + 1)))
        else:
            self._invite_again()

    def on_snapshot_response(self, response: SnapshotResponse) -> None:
        if self.state is not ChangeState.INSTALLING:
            return
        match self._replicator.on_snapshot_response(self.progress, response):
            case Chunk.WHOLE:
                self._attempts = 0
                self._sync_from(self.progress.match_index + 1)
            case Chunk.PART:
                self._attempts = 0
                self._moved(0, self.progress.offset)
                self._send()
            case Chunk.REFUSED:
                self._invite_again()
            case None:
                self._send()

    def _invite_again(self) -> None:
        """The server has forgotten its invitation, for instance in a restart.

        It is repeated with the next heartbeat, a limited number of times.
        """
        self.state = ChangeState.JOINING
        self.progress.probe(_FIRST_INDEX)

    def _moved(self, entries: int, offset: int) -> None:
        """Note the entries, or bytes of a snapshot, that the server has."""
        if (entries, offset) > self._furthest:
            self._furthest, self._moved_at = (entries, offset), self._shared.now

    def still_sending(self) -> None:
        """The server is taking the bytes of a request, however slowly."""
        self._attempts, self._moved_at = 0, self._shared.now
        self.progress.still_sending(self._shared.now)

    def on_leave_response(self, sequence: int) -> None:
        if self.state is ChangeState.LEAVING and self._answered(sequence):
            self.state = ChangeState.COMMITTING

    def _sync_from(self, next_index: int) -> None:
        """Go on at `next_index`, or let the server in if it lacks little."""
        log = self._shared.journal.log
        self._moved(next_index - 1, 0)
        self.progress.probe(next_index)
        if next_index <= log.base_index:
            self._install()
        elif self._lacks_little(next_index):
            self.state = ChangeState.COMMITTING
        else:
            self.state = ChangeState.SYNCING
            self._send()
