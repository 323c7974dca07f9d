"""The leader's side: entries and snapshots to every peer, and the commit index."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from culm.garlic.raft.effects import ReadSnapshot, SnapshotChunk
from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import PeerFault
from culm.garlic.raft.messages import (
    AppendRequest,
    AppendResponse,
    SnapshotRequest,
    SnapshotResponse,
)
from culm.garlic.raft.model import Snapshot
from culm.garlic.raft.progress import Chunk, Progress, ProgressState
from culm.garlic.raft.shared import Shared
from culm.machine import RemoteProtocolError

# Bits that count the requests of one term, below the term.
_SEQUENCE_BITS = 64


class Replicator:
    """Owns the progress of all peers during one term of leadership."""

    def __init__(self, shared: Shared, voters: Collection[int]) -> None:
        self._shared = shared
        self.peers: dict[int, Progress] = {}
        # Answers to requests of another term of ours, or of a life before a restart, must
        # not be taken for answers to requests of this one.
        self.sequence = shared.journal.term << _SEQUENCE_BITS
        self.needed = 0  # answers from this sequence on are wanted, to confirm reads
        self._reading: deque[tuple[int, Progress]] = deque()  # chunks to read
        for peer in sorted(shared.journal.membership.members - {shared.server_id}):
            self.add_peer(peer, shared.journal.log.last_index + 1, is_of_term=peer in voters)

    def add_peer(self, peer: int, next_index: int, *, is_of_term: bool = False) -> None:
        self.peers[peer] = Progress(
            next_index, self._shared.now, self.sequence, is_of_term=is_of_term
        )

    def members_changed(self, joined: dict[int, int]) -> None:
        """Serve the members of the configuration in force; `joined` has next indexes.

        A server that is no member any more gets one last request, so that it learns of that
        (JRaft sends it as well).
        """
        members = self._shared.journal.membership.members
        for peer in sorted(self.peers.keys() - members):
            progress = self.peers[peer]
            if progress.state is not ProgressState.SNAPSHOT:
                self._send_append(peer, progress)
            del self.peers[peer]
        for peer in sorted(members - self.peers.keys() - {self._shared.server_id}):
            self.add_peer(peer, joined.get(peer, self._shared.journal.log.last_index + 1))

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def want_answers(self) -> int:
        """Have peers answer a request that follows all sent by now; returns its sequence."""
        self.needed = self.sequence + 1
        return self.needed

    def flush(self) -> None:
        """Send everything that may be sent."""
        for peer, progress in self.peers.items():
            self.serve(peer, progress)

    def serve(self, peer: int, progress: Progress) -> None:
        """Send `peer` the entries it lacks, as far as it may have requests unanswered."""
        journal, window_max = self._shared.journal, self._shared.limits.in_flight_max
        if progress.waiting:
            return
        while progress.state is not ProgressState.SNAPSHOT:
            window = window_max if progress.state is ProgressState.REPLICATE else 1
            if len(progress.in_flight) >= window:
                return
            lacks = progress.next_index <= journal.log.last_index
            news = progress.commit_sent < journal.commit_index
            if not (lacks or progress.sent < self.needed or (news and not progress.in_flight)):
                return
            self._send_append(peer, progress)
        if not (progress.in_flight or progress.reading or self._send_chunk(peer, progress)):
            self._want_chunk(peer, progress)

    def _send_append(self, peer: int, progress: Progress) -> None:
        shared = self._shared
        journal, limits = shared.journal, shared.limits
        log = journal.log
        previous = progress.next_index - 1
        previous_term = log.term_at(previous)
        if previous_term is None:
            progress.send_snapshot(log.snapshot)
            return
        count_max = 0 if progress.state is ProgressState.SEARCH else limits.append_entries_max
        entries = log.batch(previous + 1, count_max, limits.append_size_max)
        sequence = self.next_sequence()
        # No further than this request proves: JRaft commits its own entries there, of any term.
        commit_index = min(journal.commit_index, previous + len(entries))
        progress.sent_append(sequence, shared.now, previous, len(entries), commit_index)
        journal.send_now(
            AppendRequest(
                source=shared.server_id,
                destination=peer,
                term=journal.term,
                sequence=sequence,
                previous_index=previous,
                previous_term=previous_term,
                commit_index=commit_index,
                entries=entries,
            )
        )

    def beat(self) -> None:
        """Send heartbeats, and repeat requests that were not answered."""
        shared = self._shared
        overdue = shared.now - shared.timing.request_timeout_s
        for peer, progress in self.peers.items():
            progress.go_on()
            self.expire(peer, progress, overdue)
            if not progress.in_flight:
                if progress.state is not ProgressState.SNAPSHOT:
                    self._send_append(peer, progress)
                elif progress.reading:  # a slow disk of ours is no silence
                    self._send_sign_of_life(peer, progress)

    def _send_sign_of_life(self, peer: int, progress: Progress) -> None:
        """An empty request that follows index 0, on which all logs agree."""
        sequence = self.next_sequence()
        progress.sent_request(sequence, self._shared.now, 0)
        self._shared.journal.send_now(
            AppendRequest(
                source=self._shared.server_id,
                destination=peer,
                term=self._shared.journal.term,
                sequence=sequence,
                previous_index=0,
                previous_term=0,
                commit_index=0,
                entries=(),
            )
        )

    def expire(self, peer: int, progress: Progress, overdue: float) -> None:
        """Give up waiting for requests that were sent before `overdue`."""
        if progress.overdue(overdue):
            self._shared.journal.withdraw(peer)
            progress.unanswered(self._shared.journal.log.base_index)

    def unreachable(self, peer: int) -> None:
        """Everything on its way to `peer` is lost."""
        progress = self.peers.get(peer)
        if progress is not None and progress.in_flight:
            log = self._shared.journal.log
            progress.hung_up(log.base_index, log.last_index)

    def dropped(self, peer: int) -> None:
        """The last request to `peer` has no place on the way there."""
        progress = self.peers.get(peer)
        if progress is not None:
            progress.dropped(self._shared.journal.log.base_index)

    def still_sending(self, peer: int) -> None:
        """`peer` is taking the bytes of a request."""
        progress = self.peers.get(peer)
        if progress is not None:
            progress.still_sending(self._shared.now)

    def on_append_response(self, response: AppendResponse) -> bool:
        """Take an answer; returns whether the logs are now known to agree further than before."""
        progress = self.peers.get(response.source)
        if progress is None or response.sequence > progress.sent:
            return False
        flight = progress.answered(response.sequence, self._shared.now)
        index = response.next_index - 1
        if response.accepted:
            if index > self._shared.journal.log.last_index:
                return False
            if progress.state is ProgressState.SNAPSHOT or response.sequence <= progress.lost_at:
                return False
            return progress.matched(index)
        if flight is not None:
            confirmed = progress.match_index
            if progress.lost(flight, response.next_index):
                self._report_loss(response, confirmed)
            base_index = self._shared.journal.log.base_index
            progress.refused(flight.previous_index, response.next_index, base_index)
        return False

    def _report_loss(self, response: AppendResponse, confirmed: int) -> None:
        told = f"server {response.source} had confirmed entry {confirmed}"
        error = RemoteProtocolError(
            ErrorCode.LOST_ENTRIES, f"{told}, and lacks entry {response.next_index}"
        )
        self._shared.work.emit(PeerFault(peer=response.source, error=error))

    # Snapshots

    def _want_chunk(self, peer: int, progress: Progress) -> None:
        progress.want_chunk()
        self._reading.append((peer, progress))

    def next_effect(self) -> ReadSnapshot | None:
        if not self._reading:
            return None
        shared = self._shared
        peer, progress = self._reading.popleft()
        snapshot, offset, size = progress.begin_chunk(shared.journal.log.snapshot, shared.limits)
        term = shared.journal.term

        def done(chunk: SnapshotChunk | None) -> None:
            if term == shared.journal.term:
                self._read(peer, progress, snapshot, offset, chunk)

        return shared.work.hand_out(ReadSnapshot, done, snapshot=snapshot, offset=offset, size=size)

    def _read(
        self,
        peer: int,
        progress: Progress,
        snapshot: Snapshot,
        offset: int,
        chunk: SnapshotChunk | None,
    ) -> None:
        shared = self._shared
        progress.end_chunk()
        if progress.state is not ProgressState.SNAPSHOT or progress.snapshot != snapshot:
            return
        if chunk is None:
            progress.drop_snapshot(shared.journal.log.snapshot)
            return
        progress.keep_chunk(snapshot, offset, chunk)
        if not progress.in_flight:  # else it follows the answer
            self._send_chunk(peer, progress)

    def _send_chunk(self, peer: int, progress: Progress) -> bool:
        """Send the chunk that has been read, if there is one, and it is still wanted."""
        shared, kept = self._shared, progress.take_chunk()
        if kept is None:
            return False
        snapshot, offset, chunk = kept
        sequence = self.next_sequence()
        progress.sent_request(sequence, shared.now, 0)
        progress.sent_chunk(offset + len(chunk.data), chunk.done)
        shared.journal.send_now(
            SnapshotRequest(
                source=shared.server_id,
                destination=peer,
                term=shared.journal.term,
                sequence=sequence,
                snapshot=snapshot,
                offset=offset,
                data=chunk.data,
                done=chunk.done,
                commit_index=shared.journal.commit_index,
            )
        )
        return True

    def on_snapshot_response(self, progress: Progress, response: SnapshotResponse) -> Chunk | None:
        """The meaning of the answer; ``None`` if it was not waited for."""
        if response.sequence > progress.sent:
            return None
        flight = progress.answered(response.sequence, self._shared.now)
        late = response.accepted and progress.has_more(response.sequence, response.next_index)
        if progress.snapshot is None or (flight is None and not late):
            return None
        progress.in_flight.clear()
        base_index = self._shared.journal.log.base_index
        return progress.took_chunk(response.accepted, response.next_index, base_index)

    # Majorities

    def agreed_index(self) -> int:
        """The highest index that a majority of voters holds durably."""
        journal, peers = self._shared.journal, self.peers
        voters = journal.membership.voters
        matches = [peer.match_index for number, peer in peers.items() if number in voters]
        if self._shared.server_id in voters:
            matches.append(journal.stable_index)
        matches.sort()
        return matches[(len(matches) - 1) // 2]

    def may_commit(self, index: int) -> bool:
        """Only entries of the current term are committed by counting (paper, 5.4.2)."""
        return self._shared.journal.log.term_at(index) == self._shared.journal.term

    def acknowledged_sequence(self) -> int:
        """The highest sequence such that a majority has answered a request from there on."""
        peers, own = self.peers, self._shared.server_id
        answered = [
            self.sequence + 1 if voter == own else peers[voter].acknowledged
            for voter in self._shared.journal.membership.voters
        ]
        answered.sort()
        return answered[(len(answered) - 1) // 2]

    def has_told(self, sequence: int, index: int) -> bool:
        """Whether a majority has all up to `index`, and has answered a request from `sequence` on.

        Only the others count: we are no voter.
        """
        membership, peers = self._shared.journal.membership, self.peers
        told = sum(
            1
            for voter in membership.voters
            if peers[voter].acknowledged >= sequence and peers[voter].match_index >= index
        )
        return told >= membership.quorum

    def has_quorum_since(self, time: float) -> bool:
        """Whether a majority was heard after `time`."""
        membership = self._shared.journal.membership
        heard = sum(
            1
            for voter in membership.voters
            if voter == self._shared.server_id or self.peers[voter].heard_at > time
        )
        return heard >= membership.quorum
