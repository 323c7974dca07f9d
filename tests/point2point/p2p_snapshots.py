"""Connections and their requests as values, to look at and to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from culm.bamboo.entry import Entry
from culm.point2point import (
    Connection,
    Cursor,
    Demand,
    Piece,
    Proposal,
    Request,
    RequestState,
    State,
)
from culm.point2point.direction import Direction, Intake, Last
from culm.point2point.pieces import Bounds


@dataclass(frozen=True, kw_only=True)
class DirectionSnapshot:
    """What one endpoint has sent for a request, and may send next.

    cursors, demands, ranges
        Where it may be, what it may have been asked for, and where the range may end for it;
        the oldest possibility first.
    metadata
        First and last sequence number of each run of entries whose metadata was sent.
    """

    cursors: tuple[Cursor, ...]
    demands: tuple[Demand, ...]
    ranges: tuple[Bounds, ...]
    metadata: tuple[tuple[int, int], ...]
    links: Mapping[int, bytes]
    end_of_log: int | None
    entry: Entry | None
    hashes: bool
    last: Last | None
    apology_owed: bool
    apologized: Piece | None
    reached: Cursor | None


@dataclass(frozen=True, kw_only=True)
class RequestSnapshot:
    """A request as it is now.  `marked`: the peer sends nothing more for it."""

    request_id: int
    proposal: Proposal
    ours: bool
    state: RequestState
    unanswered: bool
    intake: Intake
    marked: bool
    incoming: DirectionSnapshot
    outgoing: DirectionSnapshot


@dataclass(frozen=True, kw_only=True)
class ConnectionSnapshot:
    """A connection as it is now.

    dropped
        First and last id of each run of ids of the peer's proposals that the overlap rule has
        dropped, as far as they are remembered.
    control_size, data_size, markers_size
        Bytes that wait on either channel; and how many of data are cancellation markers.
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


def direction_as_it_is(direction: Direction) -> DirectionSnapshot:
    return DirectionSnapshot(
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


def request_as_it_is(request: Request) -> RequestSnapshot:
    return RequestSnapshot(
        request_id=request.request_id,
        proposal=request.proposal,
        ours=request.ours,
        state=request.life,
        unanswered=request.unanswered,
        intake=request.incoming.intake,
        marked=request.incoming.marked,
        incoming=direction_as_it_is(request.incoming),
        outgoing=direction_as_it_is(request.outgoing),
    )


def connection_as_it_is(connection: Connection) -> ConnectionSnapshot:
    control, output = connection._control, connection._output
    return ConnectionSnapshot(
        state=connection.state,
        credit=control.credit,
        granted=control.granted,
        requests=tuple(map(request_as_it_is, control.requests)),
        dropped=control.requests.dropped_ids(),
        control_size=connection._control_stream.unsent_size,
        data_size=output.unsent_size,
        markers_size=output.unsent_markers_size,
        queued_total=output.queued_total,
        current_id=output.current_id,
    )
