"""Rules on what data may be sent in one state of its sender; each raises `Violation`."""

from __future__ import annotations

from culm.point2point.demand import Demand
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.pieces import Cursor, Part

__all__ = ["check_part", "check_skip", "check_wanted"]


def check_part(view: Cursor, part: Part) -> int:
    """That part of an entry is due; returns its sequence number."""
    if view.piece is None:
        raise Violation(ErrorCode.PAST_END)
    if view.piece.part is not part:
        raise Violation(
            ErrorCode.PIECE_OUT_OF_TURN,
            f"{part.name.lower()} although {view.piece.part.name.lower()} "
            f"of entry {view.piece.seqnum} is due",
        )
    return view.piece.seqnum


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
