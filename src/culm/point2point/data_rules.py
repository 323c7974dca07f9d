"""Rules on what data may be sent in one state of its sender; each raises `Violation`."""

from __future__ import annotations

from collections.abc import Iterable

from culm.intervals import Intervals
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.messages import Demand
from culm.point2point.pieces import Cursor, Part

__all__ = [
    "check_part",
    "check_skip",
    "check_wanted",
    "has_passed",
    "payload_told",
    "pieces_behind",
]


def check_part(cursor: Cursor, part: Part) -> int:
    """That part of an entry is due; returns its sequence number."""
    if cursor.piece is None:
        raise Violation(ErrorCode.PAST_END)
    if cursor.piece.part is not part:
        raise Violation(
            ErrorCode.PIECE_OUT_OF_TURN,
            f"{part.name.lower()} although {cursor.piece.part.name.lower()} "
            f"of entry {cursor.piece.seqnum} is due",
        )
    return cursor.piece.seqnum


def check_skip(demand: Demand, reason: SkipReason, seqnum: int, size: int | None) -> None:
    """A payload may be passed over for that reason; `size` is its size, where it is known."""
    if reason is SkipReason.UNAVAILABLE:
        if not demand.skipping_allowed:
            raise Violation(ErrorCode.PAYLOAD_MANDATORY, f"payload {seqnum} is unavailable")
        return
    small = reason is SkipReason.TOO_SMALL
    if size is not None and not (size < demand.size_min if small else size > demand.size_max):
        raise Violation(
            ErrorCode.SKIP_DISPROVED,
            f"payload of {size} bytes skipped as {reason.name.lower().replace('_', ' ')}",
        )


def check_wanted(demand: Demand, payload_size: int | None = None) -> None:
    """Metadata, or a payload of that size, is to be sent rather than passed over."""
    if payload_size is None:
        if not demand.eagerness.wants_metadata:
            raise Violation(
                ErrorCode.EAGERNESS_VIOLATED, "metadata although only notifications are wanted"
            )
        return
    if not demand.eagerness.wants_payload(payload_size):
        raise Violation(
            ErrorCode.EAGERNESS_VIOLATED,
            f"payload of {payload_size} bytes although only its notification is wanted",
        )
    if not demand.admits_payload(payload_size):
        raise Violation(
            ErrorCode.UNWANTED_PAYLOAD,
            f"payload of {payload_size} bytes is not within the sizes of interest",
        )


def payload_told(cursor: Cursor, sent: Intervals, received: Intervals) -> int | None:
    """The entry whose payload is due, if it is, and the receiver knows the entry.

    It does if the metadata was transmitted, in whatever direction, or if it had the entry before.
    """
    piece, proposal = cursor.piece, cursor.range.proposal
    if piece is None or piece.part is Part.METADATA:
        return None
    had = proposal.payload_only or (
        proposal.start_offset is not None and piece.seqnum == cursor.range.start
    )
    return piece.seqnum if had or piece.seqnum in sent or piece.seqnum in received else None


def pieces_behind(cursor: Cursor, others: Iterable[Cursor], reached: Cursor | None) -> int:
    """How many pieces the other endpoint has wholly passed that this one has not.

    `others`: where the other endpoint may be; `reached`: where it has been.
    """
    behind = min(cursor.is_behind(ahead) for ahead in others)
    return behind if reached is None else max(behind, cursor.is_behind(reached))


def has_passed(cursor: Cursor, size: int, others: Iterable[Cursor], reached: Cursor | None) -> bool:
    """Whether the other endpoint has passed `size` more bytes of the payload that is due."""
    if pieces_behind(cursor, others, reached):
        return True
    places = [*others] if reached is None else [*others, reached]
    return any(
        ahead.piece == cursor.piece and ahead.offset >= cursor.offset + size for ahead in places
    )
