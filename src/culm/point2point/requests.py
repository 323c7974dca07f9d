"""The requests that have not ended, which ids are free, and which proposals overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from culm.bymux import Role
from culm.intervals import Intervals
from culm.point2point.direction import Incoming, Intake, Outgoing
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.messages import Adjust, Demand, Proposal, check_end
from culm.point2point.pieces import Range
from culm.point2point.rivals import Rivals
from culm.point2point.states import Input, RequestState, after
from culm.wire.varu64 import MAX

__all__ = ["RequestRecord", "RequestTable"]


class RequestRecord:
    """One request: what was proposed, its state, and its two directions."""

    __slots__ = ("incoming", "ours", "outgoing", "proposal", "request_id", "state")

    def __init__(self, request_id: int, proposal: Proposal, *, ours: bool) -> None:
        self.request_id = request_id
        self.proposal = proposal
        self.ours = ours
        self.state = RequestState.PROPOSED_BY_US if ours else RequestState.PROPOSED_BY_PEER
        range_, demand = Range.of(proposal), Demand.of(proposal)
        self.incoming = Incoming(range_, demand if ours else None)
        self.outgoing = Outgoing(range_, None if ours else demand)
        self.incoming.face(self.outgoing)
        self.outgoing.face(self.incoming)
        if proposal.expected_hash is not None:
            self.outgoing.know_links({proposal.expected_seqnum: proposal.expected_hash})

    def move(self, input: Input) -> None:
        """Take one step through the table of states; raises `Violation`."""
        self.state = after(self.state, input)

    @property
    def takes_data(self) -> bool:
        """Whether data of the peer may come, and counts: also what comes behind its cancel."""
        if self.state is RequestState.CONFIRMED:
            return self.incoming.intake is Intake.TAKEN
        alive = self.state is not RequestState.ENDED and self.expects_data
        return alive and self.incoming.intake is Intake.TAKEN

    @property
    def expects_data(self) -> bool:
        """Whether the peer may have been right to send data, before it was cancelled, too."""
        asked = self.incoming.demand is not None
        answered = self.outgoing.demand is not None
        return asked and (answered or self.state is not RequestState.CANCELLED)

    def check_adjust(self, adjust: Adjust) -> None:
        """An adjustment has to change something, its end and upper certpool info have to fit.

        Raises `Violation`.
        """
        if adjust == Adjust(request_id=adjust.request_id):
            raise Violation(ErrorCode.EMPTY_PACKET, "adjustment of nothing")
        bounds = self.outgoing.cursor.range.bounds.tightened(adjust.end, None)
        check_end(self.proposal.start, bounds.end, adjust.upper_certpool)

    def is_ambiguous(self, adjust: Adjust) -> bool:
        """Whether nobody could tell which entry data is for that crosses the adjustment.

        The path through a sparse range depends on its end.  Metadata tells by its signature what
        it is; payloads alone do not.
        """
        bounds = self.outgoing.cursor.range.bounds
        closed = self.proposal.sparse and self.proposal.payload_only
        return closed and bounds.tightened(adjust.end, None) != bounds

    def agrees(self, seqnum: int, hash: bytes) -> bool:
        """Whether all that this request tells of entry `seqnum` is that it has that hash."""
        sent, received = self.outgoing.links, self.incoming.links
        return sent.get(seqnum, hash) == received.get(seqnum, hash) == hash


class RequestTable:
    """The requests that have not ended, by id.

    Ids of the proactive endpoint's proposals are even, those of the reactive one's odd.  An
    id of ours whose request has ended is free for the peer when our marker on the data
    channel has arrived, so a proposal that uses it again must not overtake that.  Positions
    on the data channel count all bytes that we have put there: `flushed` of them cannot be
    overtaken any more.
    """

    __slots__ = (
        "_dropped",
        "_dropped_max",
        "_leaving",
        "_next",
        "_records",
        "_rivals",
        "_role",
        "_unflushed",
    )

    def __init__(self, *, role: Role, dropped_max: int) -> None:
        self._role = role
        self._dropped_max = dropped_max
        self._records: dict[int, RequestRecord] = {}
        self._next = int(role)  # where to look for a free id of ours
        self._leaving: deque[tuple[int, int]] = deque()  # where our marker ends, ended request
        self._unflushed: set[int] = set()  # those ended requests
        self._rivals = Rivals()
        # Halves of the ids (all of one parity) of the peer's proposals that the overlap rule
        # dropped, and of some between them: it may have adjusted or cancelled them before it knew.
        self._dropped = Intervals()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._records.values())

    def addressed(
        self, request_id: int, code: ErrorCode = ErrorCode.UNKNOWN_REQUEST
    ) -> RequestRecord | None:
        """The request that the peer speaks of; ``None`` if it may be unaware that it was dropped.

        Raises `Violation` with that code if there is none.
        """
        record = self._records.get(request_id)
        if record is None:
            theirs = request_id % 2 == self._role.peer
            if not (theirs and request_id // 2 in self._dropped):
                raise Violation(code, f"{request_id}")
        return record

    @property
    def by_id(self) -> Mapping[int, RequestRecord]:
        return self._records

    # Ids.

    def check_id(self, request_id: int, *, ours: bool, flushed: int) -> None:
        """The id may be used for a proposal; raises `Violation`."""
        parity = self._role if ours else self._role.peer
        if request_id % 2 != parity:
            raise Violation(ErrorCode.WRONG_ID_PARITY, f"{request_id}")
        if request_id in self._records or (ours and not self._is_free(request_id, flushed)):
            raise Violation(ErrorCode.ID_IN_USE, f"{request_id}")

    def free_id(self, *, flushed: int) -> int:
        """An id for a proposal of ours."""
        free = self._next
        while not self._is_free(free, flushed):
            free = self._id_after(free)
        return free

    def _is_free(self, request_id: int, flushed: int) -> bool:
        """Whether nothing of ours speaks of that id any more."""
        while self._leaving and self._leaving[0][0] <= flushed:
            self._unflushed.discard(self._leaving.popleft()[1])
        return request_id not in self._records and request_id not in self._unflushed

    def _id_after(self, request_id: int) -> int:
        following = request_id + 2
        return following if following <= MAX else int(self._role)

    # The life of a request.

    def open(self, request_id: int, proposal: Proposal, *, ours: bool) -> RequestRecord:
        """Somebody has proposed it; the id has been checked."""
        record = RequestRecord(request_id, proposal, ours=ours)
        self._records[request_id] = record
        self._rivals.add(request_id, record.outgoing.cursor.range)
        if not ours:
            self._dropped.discard(request_id // 2)
        elif request_id >= self._next:
            self._next = self._id_after(request_id)
        return record

    def is_unanswered(self, record: RequestRecord) -> bool:
        """Whether who did not propose it has neither confirmed nor cancelled it."""
        alive = self._records.get(record.request_id) is record
        return alive and record.request_id in self._rivals

    def answer(self, record: RequestRecord) -> None:
        """Who did not propose it has confirmed or cancelled it: it overlaps nothing any more."""
        self._rivals.discard(record.request_id)

    def end(self, record: RequestRecord, *, marked_at: int) -> None:
        """All four messages have been exchanged; ours on the data channel ends at `marked_at`."""
        record.move(Input.END)
        self._remove(record, marked_at)

    def drop(self, record: RequestRecord, *, marked_at: int) -> None:
        """Forget it as if it had never been proposed."""
        record.move(Input.DROP)
        self._remove(record, marked_at)
        if not record.ours:
            self._dropped.add(record.request_id // 2)
            self._dropped.join_lowest(self._dropped_max)

    def _remove(self, record: RequestRecord, marked_at: int) -> None:
        del self._records[record.request_id]
        self.answer(record)
        if record.ours:
            self._leaving.append((marked_at, record.request_id))
            self._unflushed.add(record.request_id)

    # Proposals that overlap.

    def dropped_ids(self) -> tuple[tuple[int, int], ...]:
        """First and last id of each run of the peer's ids that are remembered as dropped."""
        odd = int(self._role.peer)
        return tuple((2 * first + odd, 2 * last + odd) for first, last in self._dropped.runs())

    def overlaps(self, new: RequestRecord) -> Iterator[tuple[RequestRecord, RequestRecord]]:
        """Who loses to whom of overlapping proposals that crossed each other."""
        for loser, winner in self._rivals.overlaps(new.request_id):
            yield self._records[loser], self._records[winner]
