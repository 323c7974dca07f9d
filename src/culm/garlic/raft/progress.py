"""A leader's knowledge of one peer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from culm.garlic.raft.effects import SnapshotChunk
from culm.garlic.raft.limits import Limits
from culm.garlic.raft.model import PeerStatus, Snapshot


class ProgressState(Enum):
    """The way in which a peer is served.

    * PROBE: it is not known whether the logs agree; one request at a time goes as if they did.
    * SEARCH: they do not; one request at a time, without entries, looks for their first difference.
    * REPLICATE: they agree up to ``next_index - 1``; requests may follow each other.
    * SNAPSHOT: the peer lacks entries that the log holds no more; chunks are sent.
    """

    PROBE = "probe"
    SEARCH = "search"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Lag(NamedTuple):
    """Of the peers that answer: whether one is sent a snapshot, and the index that all have."""

    sending: bool
    reached: int


_DOUBLED_MAX = 30  # times; no chunk is that large
_LOOKING = (ProgressState.PROBE, ProgressState.SEARCH)


class Chunk(Enum):
    """The meaning of the answer to a snapshot's chunk."""

    PART = "part"  # the next one is wanted
    WHOLE = "whole"  # the peer has all of it
    REFUSED = "refused"  # the peer does not want this snapshot


@dataclass(frozen=True, slots=True)
class Flight:
    """An unanswered request: when it was sent, the index its entries follow, and the match then."""

    sent_at: float
    previous_index: int
    match_index: int


@dataclass(slots=True, eq=False)
class Progress:
    """Replication to one peer (paper, figure 2: nextIndex, matchIndex).

    `waiting`: its last answer was of no help, or the way there is full, so nothing is sent before
    the next heartbeat or answer.
    `is_of_term`: it has voted for us, or answered since.
    """

    next_index: int
    heard_at: float
    begun: int  # answers to later requests are about the present question, or snapshot
    state: ProgressState = ProgressState.PROBE
    match_index: int = 0
    commit_sent: int = 0
    in_flight: dict[int, Flight] = field(default_factory=dict[int, Flight])
    sent: int = 0  # sequence of the last request
    acknowledged: int = 0  # sequence of the last answered request
    lost_at: int = 0  # entries accepted up to this sequence may be lost
    search_step: int = 1
    refused_at: int = 0  # lowest index at which the logs are known to disagree, in a search
    waiting: bool = False
    is_of_term: bool = False
    # While a snapshot is sent:
    snapshot: Snapshot | None = None
    offset: int = 0
    replaced: int = 0  # snapshots that a newer one has replaced before the peer had them
    chunk_end: int = 0
    chunk_done: bool = False
    reading: bool = False
    chunk: tuple[Snapshot, int, SnapshotChunk] | None = None  # read at that offset, not sent

    def sent_request(self, sequence: int, now: float, previous_index: int) -> None:
        self.sent = sequence
        self.in_flight[sequence] = Flight(now, previous_index, self.match_index)

    def sent_append(
        self, sequence: int, now: float, previous_index: int, count: int, commit_index: int
    ) -> None:
        """A request with `count` entries is on its way, and tells of `commit_index`."""
        self.sent_request(sequence, now, previous_index)
        self.commit_sent = commit_index
        if self.state is ProgressState.REPLICATE:
            self.next_index += count

    def answered(self, sequence: int, now: float) -> Flight | None:
        """Take note of an answer; returns the request's flight if it was waited for.

        If it is asked the same again and again, it may answer as late as it likes.
        """
        self.heard_at, self.is_of_term, self.waiting = now, True, False
        self.acknowledged = max(self.acknowledged, sequence)
        flight = self.in_flight.pop(sequence, None)
        if flight is None and self.state in _LOOKING and self.begun < sequence:
            self.in_flight.clear()
            return Flight(now, self.next_index - 1, 0)
        return flight

    def matched(self, index: int) -> bool:
        """The logs agree up to `index`.  Returns whether that is news."""
        self.search_step = 1
        if self.state in _LOOKING:
            self.state = ProgressState.REPLICATE
            self.next_index = max(index, self.match_index) + 1
        elif index >= self.next_index:
            self.next_index = index + 1
        if index <= self.match_index:
            return False
        self.match_index = index
        return True

    def lost(self, flight: Flight, hint: int) -> bool:
        """Whether a refusal shows that the peer lacks entries confirmed before it was asked.

        Then none of its confirmations count.  A server that cannot take entries at the moment
        says where its log ends, which is not below the match, or 0.
        """
        if not 0 < hint <= flight.previous_index <= flight.match_index:
            return False
        self.match_index, self.lost_at = 0, self.sent
        return True

    def refused(self, previous_index: int, hint: int, base_index: int) -> None:
        """The logs disagree at `previous_index`; the peer would like to go on at `hint`.

        The hint may help little: JRaft's is its log's end, and neither side knows the terms that
        it shares with the other.  So steps double with every refusal: of n entries in which the
        logs differ about log2(n) are asked for, and fewer than n are sent that the peer has.
        No step passes `base_index`, where our log begins, by itself: before it there is only a
        snapshot.
        """
        if previous_index <= self.match_index:  # it cannot, for reasons of its own
            self.waiting = True
            return
        self.refused_at = previous_index
        index = previous_index - self.search_step
        if previous_index > base_index:
            index = max(index, base_index)
        if hint > 0:
            index = min(index, hint - 1)
        self.search_step *= 2
        if index > self.match_index:
            self._go_on(ProgressState.SEARCH, index + 1)
        else:
            self.probe(self.match_index + 1)

    def probe(self, next_index: int) -> None:
        self._go_on(ProgressState.PROBE, next_index)

    def _go_on(self, state: ProgressState, next_index: int) -> None:
        self.state, self.next_index = state, next_index
        self._begin()
        self.in_flight.clear()

    def _begin(self) -> None:
        """From now on earlier requests are about something else."""
        self.begun = max(self.begun, self.sent)

    def has(self, latest: Snapshot) -> int:
        """The index up to which the peer needs no entries: it has them, or gets a snapshot."""
        if self.state is ProgressState.SNAPSHOT:
            return (self.snapshot or latest).index
        return self.match_index or self.next_index - 1

    def status(self, server_id: int, doing: str) -> PeerStatus:
        """All this for users; `doing` says how the peer is served."""
        return PeerStatus(
            server_id=server_id,
            doing=doing,
            match_index=self.match_index,
            next_index=self.next_index,
            in_flight=len(self.in_flight),
            heard_at=self.heard_at,
            snapshot_index=self._sending.index if self._sending else None,
            snapshot_offset=self.snapshot_offset,
        )

    # A snapshot

    @property
    def _sending(self) -> Snapshot | None:
        """The snapshot that has been begun."""
        return self.snapshot if self.state is ProgressState.SNAPSHOT else None

    @property
    def snapshot_offset(self) -> int:
        """Bytes of a snapshot that the peer has taken; 0 if it gets none."""
        return self.offset if self._sending else 0

    def send_snapshot(self, snapshot: Snapshot) -> None:
        self.state = ProgressState.SNAPSHOT
        self.snapshot, self.offset = snapshot, 0
        self._begin()
        self.in_flight.clear()

    def want_chunk(self) -> None:
        """Note that the next chunk should be read."""
        self.reading = True

    def begin_chunk(self, latest: Snapshot, limits: Limits) -> tuple[Snapshot, int, int]:
        """The chunk to read: its snapshot (`latest` if none was begun), offset and size."""
        if self.snapshot is None:
            self.snapshot = latest
        size = limits.chunk_size << self.replaced
        return self.snapshot, self.offset, min(size, max(limits.chunk_size, limits.chunk_size_max))

    def end_chunk(self) -> None:
        """It has been read, or there is none."""
        self.reading = False

    def keep_chunk(self, snapshot: Snapshot, offset: int, chunk: SnapshotChunk) -> None:
        """It may be sent when no request is unanswered."""
        self.chunk = snapshot, offset, chunk

    def take_chunk(self) -> tuple[Snapshot, int, SnapshotChunk] | None:
        """The chunk that was read, if it is still the one wanted."""
        kept, self.chunk = self.chunk, None
        return kept if kept and kept[:2] == (self.snapshot, self.offset) else None

    def drop_snapshot(self, latest: Snapshot) -> None:
        """The one that was begun is not there any more: the next chunk is the first of another.

        If there is no other, heartbeats set the pace of new tries.
        """
        self.waiting = self.snapshot == latest
        if not self.waiting:
            self.replaced = min(self.replaced + 1, _DOUBLED_MAX)
        self.snapshot, self.offset = None, 0
        self._begin()

    def sent_chunk(self, end: int, done: bool) -> None:
        """A chunk up to `end` is on its way; `done`: it is the last one."""
        self.chunk_end, self.chunk_done = end, done

    def has_more(self, sequence: int, offset: int) -> bool:
        """Whether an answer, however late, tells of more bytes of this snapshot than are known."""
        return self.begun < sequence and self.offset < offset <= self.chunk_end

    def took_chunk(self, accepted: bool, offset: int, base_index: int) -> Chunk:
        """The peer has answered it.

        offset: the byte that the peer wants next.
        base_index: where our log begins; a peer that wants no snapshot may have its entries.
        """
        assert self.snapshot is not None
        if not accepted:
            self.snapshot = None
            self.probe(base_index + 1)
            self.waiting = True
            return Chunk.REFUSED
        if self.chunk_done and offset >= self.chunk_end:
            index = self.snapshot.index
            self.snapshot = None
            self.probe(index + 1)
            self.matched(index)
            return Chunk.WHOLE
        wanted = offset if offset <= self.chunk_end else self.offset  # it cannot have unsent bytes
        self.waiting = wanted == self.offset  # the same once more
        self.offset = wanted
        return Chunk.PART

    def unanswered(self, base_index: int) -> None:
        """Take the requests on their way for lost: of a silent peer only the match is known.

        It is asked for no entry before our log, which begins after `base_index`.
        """
        if self.state is ProgressState.REPLICATE:
            self.probe(max(self.match_index, base_index) + 1)
        self.in_flight.clear()

    def dropped(self, base_index: int) -> None:
        """The last request did not go; the next one may after an answer, or with a heartbeat."""
        self.unanswered(base_index)
        self.waiting = True

    def hung_up(self, base_index: int, last_index: int) -> None:
        """The peer is gone, and with it the requests on their way.

        JRaft hangs up when it is asked for an entry that it has compacted, so a peer that does is
        asked for a later one: our last, or in a search one half as far back as before.
        """
        match self.state:
            case ProgressState.PROBE:
                self.probe(last_index + 1)
            case ProgressState.SEARCH:
                back = self.refused_at + 1 - self.next_index
                self._go_on(self.state, self.refused_at + 1 - max(1, back // 2))
                self.search_step = 1
            case _:
                pass
        self.unanswered(base_index)

    def go_on(self) -> None:
        """It is time to try again."""
        self.waiting = False

    def still_sending(self, now: float) -> None:
        """The peer is taking the bytes of a request.

        That counts as a word only of a server that has said something in this term.
        """
        if self.is_of_term:
            self.heard_at = now
        for sequence, flight in self.in_flight.items():
            self.in_flight[sequence] = replace(flight, sent_at=now)

    def overdue(self, before: float) -> bool:
        """Whether the oldest unanswered request was sent before that time."""
        oldest = next(iter(self.in_flight.values()), None)
        return oldest is not None and oldest.sent_at <= before
