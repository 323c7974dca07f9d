"""What a connection knows, as values: to look at, and to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from culm.bamboo.entry import Entry
from culm.point2point.direction import Direction, Intake
from culm.point2point.messages import Demand, Proposal
from culm.point2point.pieces import Bounds, Cursor, Piece
from culm.point2point.requests import RequestRecord
from culm.point2point.states import RequestState, State

__all__ = ["ConnectionSnapshot", "DirectionSnapshot", "RequestSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionSnapshot:
    """What one endpoint has sent for a request, and may send next.

    cursors, demands, ranges
        Where it may be, what it may have been asked for, and where the range may end for it;
        the oldest possibility first.
    metadata
        First and last sequence number of each run of entries whose metadata was sent.
    links
        Hashes of entries, by sequence number, that later ones may link to.
    entry
        Whose payload is due, where that is known.
    hashes
        Whether that payload is being hashed.
    last
        What it may take back, and the entry that it is of.
    reached
        Where it was before it went back.
    """

    cursors: tuple[Cursor, ...]
    demands: tuple[Demand, ...]
    ranges: tuple[Bounds, ...]
    metadata: tuple[tuple[int, int], ...]
    links: Mapping[int, bytes]
    end_of_log: int | None
    entry: Entry | None
    hashes: bool
    last: tuple[tuple[Piece, ...], Entry] | None
    apology_owed: bool
    apologized: Piece | None
    reached: Cursor | None

    @classmethod
    def of(cls, direction: Direction) -> DirectionSnapshot:
        """A direction as it is now."""
        return cls(
            cursors=tuple(cursor.copy() for cursor in direction.candidates),
            demands=direction.candidates.possible.demands,
            ranges=direction.candidates.ranges,
            metadata=direction.metadata.runs(),
            links=dict(direction.links),
            end_of_log=direction.end_of_log,
            entry=direction.entry,
            hashes=direction.verifier is not None,
            last=direction.last,
            apology_owed=direction.apology_owed,
            apologized=direction.apologized,
            reached=direction.reached,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshot:
    """A request as it is now.  `marked`: the peer sends nothing more for it."""

    request_id: int
    proposal: Proposal
    ours: bool
    state: RequestState
    intake: Intake
    marked: bool
    incoming: DirectionSnapshot
    outgoing: DirectionSnapshot

    @classmethod
    def of(cls, record: RequestRecord) -> RequestSnapshot:
        """The request of that record."""
        return cls(
            request_id=record.request_id,
            proposal=record.proposal,
            ours=record.ours,
            state=record.state,
            intake=record.incoming.intake,
            marked=record.incoming.marked,
            incoming=DirectionSnapshot.of(record.incoming),
            outgoing=DirectionSnapshot.of(record.outgoing),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSnapshot:
    """A connection as it is now.

    credit, granted
        Proposals that we may make, and that the peer may.
    dropped
        First and last id of each run of ids of the peer's proposals that the overlap rule has
        dropped, as far as they are remembered.
    control_size, data_size, markers_size
        Bytes that wait on either channel; and how many of data are cancellation markers.
    queued_total
        Bytes that we have ever put on the data channel, where `current_id` is the request
        that we have switched to.
    """

    state: State
    credit: int
    granted: int
    requests: tuple[RequestSnapshot, ...]
    dropped: tuple[tuple[int, int], ...]
    control_size: int
    data_size: int
    markers_size: int
    queued_total: int
    current_id: int | None
