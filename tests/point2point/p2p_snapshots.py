"""Connections and their requests as values, to look at and to compare."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import FunctionType, ModuleType, NoneType

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
from culm.point2point.direction import Direction, Last
from culm.point2point.handles import Intake
from culm.point2point.pieces import Bounds


@dataclass(frozen=True, kw_only=True)
class DirectionSnapshot:
    """Everything that one endpoint has sent for a request, and may send next.

    cursors, demands, ranges
        Its possible places, the demands on it, and the possible ends of its range; the oldest
        possibility first.
    metadata
        First and last sequence number of each run of entries with sent metadata.
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
    """A connection as it is now."""

    state: State
    credit: int
    requests: tuple[RequestSnapshot, ...]
    inside: bool
    receiving_id: int | None
    unsent_size: int
    taken_size: int
    send_credit: int


def direction_as_it_is(direction: Direction) -> DirectionSnapshot:
    return DirectionSnapshot(
        cursors=tuple(cursor.copy() for cursor in direction.candidates),
        demands=direction.candidates.possible.demands,
        ranges=tuple(direction.candidates.ranges),
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
        intake=request.intake,
        marked=request.marked,
        incoming=direction_as_it_is(request.incoming),
        outgoing=direction_as_it_is(request.outgoing),
    )


def connection_as_it_is(connection: Connection) -> ConnectionSnapshot:
    return ConnectionSnapshot(
        state=connection.state,
        credit=connection.proposal_credit,
        requests=tuple(map(request_as_it_is, connection.requests.values())),
        inside=connection.inside,
        receiving_id=connection.receiving_id,
        unsent_size=connection.unsent_size,
        taken_size=connection.taken_size,
        send_credit=connection.send_credit,
    )


@contextmanager
def nothing_changed(connection: Connection) -> Iterator[None]:
    """Everything that the connection holds stays the same within it."""
    before = connection_as_it_is(connection), held(connection)
    yield
    assert (connection_as_it_is(connection), held(connection)) == before


#: Values without parts, and objects that belong to the program.
_WHOLE = (int, float, str, bytes, NoneType, Enum, type, ModuleType, FunctionType)


def held(whole: object) -> list[object]:
    """All objects that `whole` refers to, directly or by others: their kinds, and their values.

    Composite objects are numbered as they are met, so that the same parts in other places differ.
    """
    found: list[object] = []
    numbers: dict[int, int] = {}
    pending = [whole]
    while pending:
        each = pending.pop()
        if isinstance(each, _WHOLE):
            found.append(each)
        elif id(each) in numbers:
            found.append(("again", numbers[id(each)]))
        else:
            numbers[id(each)] = len(numbers)
            parts = gc.get_referents(each)
            value = bytes(each) if isinstance(each, (bytearray, memoryview)) else len(parts)
            found.append((type(each), value))
            pending += parts
    return found
