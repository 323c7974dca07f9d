"""One term of leadership: everything that only a leader has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from culm.garlic.raft.change import Change, ChangeState
from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import ChangeFailed, ReadFailed, ReadReady
from culm.garlic.raft.log import size_of
from culm.garlic.raft.messages import Extension, ReadIndexRequest, TransferRequest
from culm.garlic.raft.model import Configuration, Entry, PeerStatus, Server
from culm.garlic.raft.progress import Lag, ProgressState
from culm.garlic.raft.reads import Reads
from culm.garlic.raft.replicator import Replicator
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.transfer import Transfer
from culm.garlic.raft.ways import Ways
from culm.machine import LocalProtocolError


class Leadership:
    """Owns proposals, reads, the running change, and the leader's timers.

    voters: the servers that have elected us.
    """

    def __init__(
        self, shared: Shared, ways: Ways, transfer: Transfer, voters: Collection[int]
    ) -> None:
        self._shared = shared
        self._ways = ways
        self.replicator = Replicator(shared, voters)
        self._reads = Reads()
        self._change: Change | None = None
        self._transfer = transfer
        self._farewell: tuple[int, int] | None = None  # see `is_dispensable`
        log = shared.journal.log
        # Bytes of values that are not committed
        self._size = size_of(log.slice(shared.journal.commit_index + 1, log.last_index))
        self._beat_at = shared.now + shared.timing.heartbeat_interval_s
        self._quorum_at = shared.now + shared.timing.election_timeout_max_s
        # Paper, section 8: an entry of the own term commits all before it.  JRaft
        # has no empty entries; the configuration, said again, is one for all purposes.
        latest = shared.journal.membership.latest
        self._first_index = log.last_index + 1
        self._append(Configuration(self._first_index, latest.log_index, latest.servers))

    def _append(self, configuration: Configuration) -> None:
        journal = self._shared.journal
        journal.append((Entry(journal.term, configuration),))

    def lag(self) -> Lag:
        """The lag of the peers that answer, for which a snapshot may have to wait."""
        shared = self._shared
        served = list(self.replicator.peers.values())
        if self._change is not None:
            served.append(self._change.progress)
        since = shared.now - shared.timing.election_timeout_max_s
        live = [progress for progress in served if progress.heard_at >= since]
        log = shared.journal.log
        return Lag(
            sending=any(progress.state is ProgressState.SNAPSHOT for progress in live),
            reached=min((one.has(log.snapshot) for one in live), default=log.last_index),
        )

    # Proposals

    def append_values(self, values: Sequence[bytes]) -> int:
        """Append values; returns the index of the first.

        Raises `LocalProtocolError`: ``TRANSFER_IN_PROGRESS``, ``QUEUE_FULL``,
        ``VALUE_TOO_LARGE``.
        """
        journal, limits = self._shared.journal, self._shared.limits
        if self._transfer.target is not None:
            raise LocalProtocolError(ErrorCode.TRANSFER_IN_PROGRESS)
        last_index, size = journal.log.last_index, sum(map(len, values))
        count = last_index - journal.commit_index + len(values)
        if count > limits.proposals_max or self._size + size > limits.proposal_size_max:
            never = len(values) > limits.proposals_max or size > limits.proposal_size_max
            raise LocalProtocolError(ErrorCode.VALUE_TOO_LARGE if never else ErrorCode.QUEUE_FULL)
        if values:
            journal.append_values(values)
            self._size += size
        return last_index + 1

    # Reads

    @property
    def reads_full(self) -> bool:
        return len(self._reads) >= self._shared.limits.reads_max

    def read(self, asked: int | ReadIndexRequest) -> None:
        """Start a read; its number comes back with `ReadReady` or `ReadFailed`.

        A follower's question is answered as soon as our leadership is confirmed: the follower
        waits for its own state machine.

        Until an entry of its own term is committed, a leader does not know the end of the
        committed log, so a read waits for that entry at least.
        """
        sequence = self.replicator.want_answers()
        index = max(self._shared.journal.commit_index, self._first_index)
        self._reads.add(asked, sequence, index)

    def settle(self) -> None:
        """Draw conclusions from the answers so far: changes, commits, and reads that are ready."""
        shared = self._shared
        if self._change is not None:
            self._go_on_with(self._change)
        if shared.journal.commit_index < shared.journal.log.last_index:
            index = self.replicator.agreed_index()
            if index > shared.journal.commit_index and self.replicator.may_commit(index):
                self._commit(index)
        if len(self._reads) and shared.is_voter:
            for request, index in self._reads.confirm(self.replicator.acknowledged_sequence()):
                shared.respond(request, index + 1, accepted=True)
            for number, index in self._reads.take_ready(shared.applier.applied_index):
                shared.work.emit(ReadReady(read=number, index=index))

    def is_dispensable(self) -> bool:
        """Whether the voters can go on without us, who are none any more.

        A majority of them has to know the commit index; else they count us in, and want our vote.
        """
        if self._farewell is None:
            commit_index = self._shared.journal.commit_index
            self._farewell = self.replicator.want_answers(), commit_index
        return self.replicator.has_told(*self._farewell)

    def _commit(self, index: int) -> None:
        journal = self._shared.journal
        self._size -= size_of(journal.log.slice(journal.commit_index + 1, index))
        if self._shared.commit(index):
            joined: dict[int, int] = {}
            if self._change is not None:
                joined[self._change.server.server_id] = self._change.progress.next_index
                self._shared.asked_for_change(self._change.server.server_id)
            self.replicator.members_changed(joined)
        if (
            self._change is not None
            and self._change.state is ChangeState.COMMITTING
            and not journal.membership.pending
        ):
            self._change = None

    # Membership and transfer

    def refuse_change(self) -> ErrorCode | None:
        """The reason not to start a change now, if any."""
        if self._shared.journal.commit_index < self._first_index:
            return ErrorCode.NOTHING_COMMITTED
        untold = self._shared.changes  # in force, and not yet reported
        if self._change is not None or self._shared.journal.membership.pending or untold:
            return ErrorCode.CHANGE_IN_PROGRESS
        return None if self._transfer.target is None else ErrorCode.TRANSFER_IN_PROGRESS

    def refuse_add(self, server: Server) -> ErrorCode | None:
        endpoint = server.endpoint
        if not endpoint or not endpoint.isascii() or "#" in endpoint:
            return ErrorCode.BAD_ENDPOINT
        found = self._shared.journal.membership.current.find(server.server_id)
        if found is not None and (found.voter or replace(found, voter=True) != server):
            return ErrorCode.ALREADY_MEMBER
        latest = self._shared.journal.membership.latest.servers
        if found is None and not self._shared.limits.admit((*latest, server)):
            return ErrorCode.CONFIGURATION_TOO_LARGE
        if not server.voter and not all(map(self._knows_learners, self.replicator.peers)):
            return ErrorCode.NOT_UNDERSTOOD
        return self.refuse_change()

    def _knows_learners(self, peer: int) -> bool | None:
        """Whether `peer` does not count learners; ``None`` if there is no way to it."""
        return self._ways.leads_to(peer, Extension.LEARNERS)

    def reachable(self, peer: int) -> None:
        """There is a way to `peer`: give up a joiner that would count learners."""
        change = self._change
        if change is not None and peer == self.joiner and change.has_learners:
            if self._knows_learners(peer):
                change.let_in()
            elif change.state is ChangeState.JOINING:
                self.drop_change()

    def refuse_remove(self, server_id: int) -> ErrorCode | None:
        if self._shared.journal.membership.current.find(server_id) is None:
            return ErrorCode.NOT_MEMBER
        if server_id == self._shared.server_id:
            return ErrorCode.IS_LEADER
        return self.refuse_change()

    def add(self, server: Server) -> None:
        self._change = Change(self._shared, self.replicator, self._ways, server, adding=True)
        if self._knows_learners(server.server_id):
            self._change.let_in()

    def remove(self, server_id: int) -> None:
        server = self._shared.journal.membership.current.find(server_id)
        assert server is not None
        self._change = Change(self._shared, self.replicator, self._ways, server, adding=False)

    @property
    def joiner(self) -> int | None:
        """The server that is being added or removed."""
        return None if self._change is None else self._change.server.server_id

    @property
    def change(self) -> Change | None:
        return self._change

    def _go_on_with(self, change: Change) -> None:
        """Append the configuration when the server is ready for it."""
        change.look()
        pending = self._shared.journal.membership.pending
        if change.state is ChangeState.COMMITTING and not pending:
            self._append(change.configuration)

    def peers(self) -> list[PeerStatus]:
        """All servers that are served: members by id, then the one being added."""
        peers, change = self.replicator.peers, self._change
        changing = None if change is None else change.server.server_id
        found: list[PeerStatus] = []
        for peer in sorted(peers):
            doing = peers[peer].state.value
            if change is not None and peer == changing:
                doing = change.state.value
            found.append(peers[peer].status(peer, doing))
        if change is not None and changing is not None and changing not in peers:
            found.append(change.progress.status(changing, change.state.value))
        return found

    def refuse_cancel(self) -> ErrorCode | None:
        if self._change is None:
            pending = self._shared.journal.membership.pending
            return ErrorCode.CHANGE_IN_PROGRESS if pending else ErrorCode.NO_CHANGE
        if self._change.state is ChangeState.COMMITTING:
            return ErrorCode.CHANGE_IN_PROGRESS
        return None

    def drop_change(self) -> None:
        if self._change is not None:
            self._shared.work.emit(ChangeFailed(server_id=self._change.server.server_id))
            self._change = None

    def refuse_transfer(self, target: int) -> ErrorCode | None:
        if target == self._shared.server_id:
            return ErrorCode.IS_LEADER
        if target not in self.replicator.peers:
            return ErrorCode.NOT_MEMBER
        if target not in self._shared.journal.membership.voters:
            return ErrorCode.NOT_VOTER
        if self._change is not None or self._shared.journal.membership.pending:
            return ErrorCode.CHANGE_IN_PROGRESS
        return None if self._transfer.target is None else ErrorCode.TRANSFER_IN_PROGRESS

    def transfer(self, target: int) -> None:
        self._transfer.begin(target)
        self.hand_over()

    def hand_over(self) -> None:
        """Tell the target to stand for election as soon as it has the whole log."""
        shared, target = self._shared, self._transfer.target
        if target is None:
            return
        progress = self.replicator.peers.get(target)
        log = shared.journal.log
        if progress is None or progress.match_index < log.last_index:
            return
        shared.journal.send_now(
            TransferRequest(
                source=shared.server_id,
                destination=target,
                term=shared.journal.term,
                sequence=self.replicator.next_sequence(),
                last_log_index=log.last_index,
            )
        )

    # Time

    def next_deadline(self) -> float:
        return min(self._beat_at, self._quorum_at)

    def advance(self) -> bool:
        """Do the due work; false if no majority has been heard for an election timeout."""
        shared, timing = self._shared, self._shared.timing
        if self._beat_at <= shared.now:
            self._beat_at = shared.now + timing.heartbeat_interval_s
            self.replicator.beat()
            if self._change is not None and not self._change.beat():
                self.drop_change()
        if self._quorum_at <= shared.now:
            self._quorum_at = shared.now + timing.election_timeout_max_s
            return self.replicator.has_quorum_since(shared.now - timing.election_timeout_max_s)
        return True

    def end(self) -> None:
        """Tell those that wait for this leader that it leads no more."""
        for asked in self._reads.drop_all():
            if isinstance(asked, int):
                self._shared.work.emit(ReadFailed(read=asked))
            else:
                self._shared.respond(asked, 0, accepted=False)
        self.drop_change()
