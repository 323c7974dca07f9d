"""Values that are proposed at a server that does not lead, and sent to its leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from culm.garlic.raft.errors import ErrorCode
from culm.garlic.raft.events import ForwardFailed
from culm.garlic.raft.messages import Extension, ForwardRequest, ForwardResponse
from culm.garlic.raft.shared import Shared
from culm.garlic.raft.ways import Ways


@dataclass(frozen=True, slots=True)
class _Forward:
    values: Sequence[bytes]
    size: int
    asked_at: float


class Forwards:
    """Owns the values that were given here, until the leader has appended them.

    One request is under way at a time, with all values given before it was sent, as far as they
    fit; it is never repeated.  So nothing is appended twice, and the fate of values that were under
    way when the leader or the way to it was lost is unknown.
    """

    def __init__(self, shared: Shared, ways: Ways) -> None:
        self._shared = shared
        self._ways = ways
        self.pending: dict[int, _Forward] = {}  # by number
        self._size = 0  # bytes of their values
        self._new: list[int] = []  # of later requests
        self._asked: list[int] = []  # of the one that is under way
        self._leader: int | None = None  # the leader they are for
        self._sequence = 0
        self._sent_at = 0.0  # or the last time when bytes of it went

    def refusal(self, values: Sequence[bytes]) -> ErrorCode | None:
        """The reason not to take these now, if any."""
        shared, limits = self._shared, self._shared.limits
        if shared.leader is None:
            return ErrorCode.NO_LEADER
        if self._ways.leads_to(shared.leader, Extension.FORWARD) is False:
            return ErrorCode.NOT_LEADER
        size = sum(map(len, values))
        if len(values) > 1 and not self._fits(len(values), size):
            return ErrorCode.VALUE_TOO_LARGE
        if size > limits.proposal_size_max:
            return ErrorCode.VALUE_TOO_LARGE
        if self._size + size > limits.proposal_size_max:
            return ErrorCode.QUEUE_FULL
        waiting = len(self.pending) + len(shared.proposals)
        return ErrorCode.QUEUE_FULL if waiting >= limits.proposals_max else None

    def _fits(self, count: int, size: int) -> bool:
        """Whether `count` values, of `size` bytes in all, go into one request."""
        limits = self._shared.limits
        count_max = min(limits.append_entries_max, limits.proposals_max)  # taken all or none
        return count <= count_max and size <= limits.append_size_max

    def add(self, number: int, values: Sequence[bytes]) -> None:
        """Take values; `refusal` was asked before."""
        size = sum(map(len, values))
        self._leader = self._shared.leader
        self.pending[number] = _Forward(values, size, self._shared.now)
        self._size += size
        self._new.append(number)

    def settle(self) -> None:
        """React to changes of the leader, or of the way to it."""
        if self._shared.leader != self._leader:
            self.end()
        elif self._new and not self._asked:
            self._ask()

    def _ask(self) -> None:
        shared, leader = self._shared, self._leader
        if leader is None:
            return
        match self._ways.leads_to(leader, Extension.FORWARD):
            case None:
                return  # there will be one, or time runs out
            case False:
                self.fail(self._new, certain=True)
                return
            case True:
                pass
        values = self._gather()
        self._sequence, self._sent_at = self._ways.next_sequence(), shared.now
        shared.journal.send(
            ForwardRequest(
                source=shared.server_id,
                destination=leader,
                term=shared.journal.term,
                sequence=self._sequence,
                values=values,
            )
        )

    def _gather(self) -> list[bytes]:
        """Take values as far as they fit one request, but those of one call at least."""
        values: list[bytes] = []
        size = 0
        for number in self._new:
            forward = self.pending[number]
            size += forward.size
            if values and not self._fits(len(values) + len(forward.values), size):
                break
            values += forward.values
            self._asked.append(number)
        del self._new[: len(self._asked)]
        return values

    def unreachable(self, peer: int) -> None:
        if peer == self._leader:
            self.fail(self._asked, certain=False)

    def still_sending(self, peer: int) -> None:
        """`peer` is taking the bytes of a request."""
        if peer == self._leader:
            self._sent_at = self._shared.now

    def on_response(self, response: ForwardResponse) -> None:
        if response.sequence != self._sequence or not self._asked:
            return
        if not response.accepted:
            self.fail(self._asked, certain=True)
            return
        count = sum(len(self.pending[number].values) for number in self._asked)
        index = response.next_index - count
        if index < 1:  # no log has that many entries: the fate is unknown
            self.fail(self._asked, certain=False)
            return
        asked, self._asked = self._asked, []
        forwards = [self.pending.pop(number) for number in asked]
        for number, forward in zip(asked, forwards, strict=True):
            self._size -= forward.size
            self._shared.appended(number, index, response.term, len(forward.values))
            index += len(forward.values)
        self._shared.settle_proposals()

    def fail(self, numbers: list[int], *, certain: bool) -> None:
        """Tell of these that they have failed, and whether that is certain."""
        for number in numbers:
            self._size -= self.pending.pop(number).size
            self._shared.work.emit(ForwardFailed(forward=number, certain=certain))
        numbers.clear()

    def end(self) -> None:
        """Fail all values: no answer will come."""
        self.fail(self._asked, certain=False)
        self.fail(self._new, certain=True)

    def next_deadline(self) -> float | None:
        times = [self.pending[number].asked_at for number in self._new[:1]]
        if self._asked:
            times.append(self._sent_at)
        wait = self._shared.timing.election_timeout_max_s
        return min((time + wait for time in times), default=None)

    def advance(self) -> None:
        """Give up values that have waited too long."""
        # Compared as in `next_deadline`: a difference would be rounded in another way.
        now, wait = self._shared.now, self._shared.timing.election_timeout_max_s
        if self._asked and self._sent_at + wait <= now:
            self.fail(self._asked, certain=False)
        # The oldest come first, so the rest need no look.
        late = [*takewhile(lambda one: self.pending[one].asked_at + wait <= now, self._new)]
        del self._new[: len(late)]
        self.fail(late, certain=True)
