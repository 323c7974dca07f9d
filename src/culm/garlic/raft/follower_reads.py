"""Linearizable reads at a server that does not lead (thesis, section 6.4)."""

from __future__ import annotations

from collections import deque
from itertools import takewhile

from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import ReadFailed, ReadReady
from culm.garlic.raft.messages import Extension, ReadIndexRequest, ReadIndexResponse
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.ways import Ways


class FollowerReads:
    """Owns the reads that were asked for here; the leader tells the index to be applied first.

    One question is under way at a time, for all reads that came before it was sent; reads that come
    meanwhile wait for the next one.  A read ends with `ReadReady`, or with `ReadFailed` if its
    leader is no longer believed in, refuses, or has not answered for an election timeout, or if the
    idle state machine has made no progress towards the leader's index for as long.
    """

    def __init__(self, shared: Shared, ways: Ways) -> None:
        self._shared = shared
        self._ways = ways
        self.pending: dict[int, float] = {}  # by number: the time when it was asked for
        self._new: list[int] = []  # of the next question
        self._asked: list[int] = []  # of the one that is under way
        self._confirmed: deque[tuple[int, int]] = deque()  # index to be applied, number
        self._applied_index = 0  # while some are confirmed: the state machine's last index
        self._applied_since = 0.0  # and the time since which it has had that
        self._leader: int | None = None  # the one to ask
        self._sequence = 0
        self._sent_at = 0.0

    @property
    def refusal(self) -> ErrorCode | None:
        """The reason not to take a read now, if any."""
        leader = self._shared.leader
        if leader is None:
            return ErrorCode.NO_LEADER
        if self._ways.leads_to(leader, Extension.READ_INDEX) is False:
            return ErrorCode.NOT_LEADER
        return ErrorCode.QUEUE_FULL if len(self.pending) >= self._shared.limits.reads_max else None

    def add(self, number: int) -> None:
        """Take a read; `refusal` was asked before."""
        self._leader = self._shared.leader
        self.pending[number] = self._shared.now
        self._new.append(number)

    def settle(self) -> None:
        """React to changes of the leader, of the way to it, and of the applied index."""
        if self._shared.leader != self._leader:
            self.end()
            return
        applied_index = self._shared.applier.applied_index
        while self._confirmed and self._confirmed[0][0] <= applied_index:
            index, number = self._confirmed.popleft()
            del self.pending[number]
            self._shared.work.emit(ReadReady(read=number, index=index))
        if applied_index != self._applied_index:
            self._applied_index, self._applied_since = applied_index, self._shared.now
        if self._new and not self._asked:
            self._ask()

    def _ask(self) -> None:
        shared, leader = self._shared, self._leader
        if leader is None:
            return
        match self._ways.leads_to(leader, Extension.READ_INDEX):
            case None:
                return  # there will be one, or time runs out
            case False:
                self._fail(self._new)
                return
            case True:
                pass
        self._asked, self._new = self._new, []
        self._sequence, self._sent_at = self._ways.next_sequence(), shared.now
        shared.journal.send(
            ReadIndexRequest(
                source=shared.server_id,
                destination=leader,
                term=shared.journal.term,
                sequence=self._sequence,
            )
        )

    def _ask_again(self) -> None:
        """The question or its answer is lost."""
        self._new = self._asked + self._new
        self._asked = []

    def unreachable(self, peer: int) -> None:
        if peer == self._leader:
            self._ask_again()

    def on_response(self, response: ReadIndexResponse) -> None:
        if response.sequence != self._sequence or not self._asked:
            return
        if response.accepted:
            index = response.next_index - 1
            if not self._confirmed:
                self._applied_since = self._shared.now
            self._confirmed.extend((index, number) for number in self._asked)
            self._asked = []
        else:
            self._fail(self._asked)

    def _fail(self, numbers: list[int]) -> None:
        for number in numbers:
            del self.pending[number]
            self._shared.work.emit(ReadFailed(read=number))
        numbers.clear()

    def end(self) -> None:
        """Fail all reads: no answer will come."""
        for number in self.pending:
            self._shared.work.emit(ReadFailed(read=number))
        for waiting in (self.pending, self._new, self._asked, self._confirmed):
            waiting.clear()

    def next_deadline(self) -> float | None:
        timing = self._shared.timing
        wait = timing.election_timeout_max_s
        times = [self.pending[number] + wait for number in (self._asked or self._new)[:1]]
        if self._asked:
            times.append(self._sent_at + timing.request_timeout_s)
        if self._confirmed:
            times.append(self._applied_since + wait)
        return min(times, default=None)

    def advance(self) -> None:
        """Give up reads that have waited too long, and repeat questions without an answer."""
        now, timing = self._shared.now, self._shared.timing
        wait = timing.election_timeout_max_s  # added as in `next_deadline`: both round alike
        for numbers in (self._asked, self._new):
            # The oldest come first, so the rest need no look.
            late = [*takewhile(lambda one: self.pending[one] + wait <= now, numbers)]
            del numbers[: len(late)]
            self._fail(late)
        if self._shared.applier.busy:
            self._applied_since = now
        if self._confirmed and self._applied_since + wait <= now:
            self._fail([number for _, number in self._confirmed])
            self._confirmed.clear()
        if self._asked and self._sent_at + timing.request_timeout_s <= now:
            self._ask_again()
