"""What a leader knows of one peer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from culm.garlic.raft.model import Snapshot

__all__ = ["Flight", "Progress", "ProgressState"]


class ProgressState(Enum):
    """How a peer is served.

    * PROBE: where the logs agree is not known; one request at a time looks for it.
    * REPLICATE: they agree up to ``next_index - 1``; requests may follow each other.
    * SNAPSHOT: the peer lacks what the log holds no more; chunks are sent.
    """

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Flight:
    """An unanswered request: when it was sent, and the index its entries follow."""

    sent_at: float
    previous_index: int


@dataclass(slots=True, eq=False)
class Progress:
    """Replication to one peer (paper, figure 2: nextIndex, matchIndex)."""

    next_index: int
    heard_at: float
    state: ProgressState = ProgressState.PROBE
    match_index: int = 0
    commit_sent: int = 0
    in_flight: dict[int, Flight] = field(default_factory=dict)
    sent: int = 0  # sequence of the last request
    acknowledged: int = 0  # sequence of the last answered request
    probe_step: int = 1
    # While a snapshot is sent:
    snapshot: Snapshot | None = None
    offset: int = 0
    chunk_end: int = 0
    chunk_done: bool = False
    reading: bool = False

    def sent_request(self, sequence: int, now: float, previous_index: int) -> None:
        self.sent = sequence
        self.in_flight[sequence] = Flight(now, previous_index)

    def answered(self, sequence: int, now: float) -> Flight | None:
        """Take note of an answer; returns the request's flight if it was waited for."""
        self.heard_at = now
        self.acknowledged = max(self.acknowledged, sequence)
        return self.in_flight.pop(sequence, None)

    def matched(self, index: int) -> bool:
        """The logs agree up to `index`.  Returns whether that is news."""
        self.probe_step = 1
        if self.state is ProgressState.PROBE:
            self.state = ProgressState.REPLICATE
            self.next_index = max(index, self.match_index) + 1
        elif index >= self.next_index:
            self.next_index = index + 1
        if index <= self.match_index:
            return False
        self.match_index = index
        return True

    def refused(self, previous_index: int, hint: int) -> None:
        """The logs disagree at `previous_index`; the peer would like to go on at `hint`.

        A peer whose hint does not help (JRaft's is its log's end) is probed with steps
        that double, so that a long disagreement costs few requests.
        """
        if 0 < hint <= previous_index:
            wanted = hint
        else:
            wanted = previous_index + 1 - self.probe_step
            self.probe_step *= 2
        self.probe(max(wanted, self.match_index + 1))

    def probe(self, next_index: int) -> None:
        self.state = ProgressState.PROBE
        self.next_index = next_index
        self.in_flight.clear()

    def send_snapshot(self, snapshot: Snapshot) -> None:
        self.state = ProgressState.SNAPSHOT
        self.snapshot = snapshot
        self.offset = 0
        self.in_flight.clear()

    def overdue(self, before: float) -> bool:
        """Whether the oldest unanswered request was sent before that time."""
        oldest = next(iter(self.in_flight.values()), None)
        return oldest is not None and oldest.sent_at <= before
