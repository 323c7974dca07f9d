"""One direction of one request: what its sender has sent, and what it may send next.

Both endpoints keep the same two tracks for a request, so one set of checks serves both:
before sending, a broken rule is the caller's mistake; when receiving, it is the peer's.

Only the sender of a track knows exactly what holds for it.  An adjustment is not
acknowledged, so after we have sent (or received) one, the peer's data may follow the
old state or the new one.  The receiving side therefore keeps every possibility (`views`
of the range, `demands` on the data) and drops those which the data contradicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from culm.bamboo.entry import Entry
from culm.bamboo.links import open_targets
from culm.point2point.errors import ErrorCode
from culm.point2point.events import SkipReason
from culm.point2point.intervals import Intervals
from culm.point2point.messages import EVERYTHING, Adjust, Eagerness, Proposal
from culm.point2point.pieces import Cursor, Part, Piece, Range
from culm.wire.varu64 import MAX

__all__ = ["Demand", "Track", "Violation"]

# Hashes of link targets are pruned to those that later entries can reach when there are
# more than this; open_targets() never has more than 42.
_LINKS_MAX = 128

# Runs of entries whose metadata was transmitted; there is one unless notifications and
# metadata alternate.
_RUNS_MAX = 1024


class Violation(Exception):
    """A rule of the protocol is broken; by whom is for the caller to say."""

    def __init__(self, code: IntEnum, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Demand:
    """What the receiver of a track wants of its sender.  Sizes in bytes."""

    eagerness: Eagerness = EVERYTHING
    skipping_allowed: bool = False
    size_min: int = 0
    size_max: int = MAX

    @classmethod
    def of(cls, proposal: Proposal) -> Demand:
        """What the proposing endpoint wants."""
        return cls(
            proposal.eagerness,
            not proposal.payload_mandatory,
            proposal.size_min,
            proposal.size_max,
        )

    def adjusted(self, adjust: Adjust) -> Demand:
        """The demand after an adjustment.

        Raises `Violation` if the minimum size decreases or the maximum increases.
        """
        size_min = self.size_min if adjust.size_min is None else adjust.size_min
        size_max = self.size_max if adjust.size_max is None else adjust.size_max
        if size_min < self.size_min:
            raise Violation(ErrorCode.SIZE_MIN_DECREASED, f"{self.size_min} to {size_min}")
        if size_max > self.size_max:
            raise Violation(ErrorCode.SIZE_MAX_INCREASED, f"{self.size_max} to {size_max}")
        return Demand(
            self.eagerness if adjust.eagerness is None else adjust.eagerness,
            self.skipping_allowed or adjust.allow_skipping,
            size_min,
            size_max,
        )

    def admits_payload(self, size: int) -> bool:
        """Whether a payload of `size` bytes is within the sizes of interest."""
        return self.size_min <= size <= self.size_max


class Track:
    """The state of one direction of one request.

    Methods named ``check_*`` raise `Violation` and change nothing but what is known of
    the peer's possibilities; the others apply what has been checked.
    """

    __slots__ = (
        "apologized",
        "apology_owed",
        "demands",
        "end_of_log",
        "entry",
        "links",
        "metadata",
        "other",
        "retractable",
        "views",
    )

    other: Track  # the other direction of the same request

    def __init__(self, range_: Range) -> None:
        self.views = [Cursor(range_)]
        self.demands: list[Demand] = []
        self.entry: Entry | None = None  # of the payload that is due, where it is known
        self.links: dict[int, bytes] = {}  # hashes of entries that later ones link to
        self.metadata = Intervals()  # entries whose metadata was transmitted
        self.end_of_log: int | None = None
        self.apology_owed = False  # the last piece was invalid
        self.retractable = False  # the last piece was transmitted rather than passed over
        self.apologized: Piece | None = None

    @property
    def cursor(self) -> Cursor:
        """Where the sender is (under the oldest possibility, if there are several)."""
        return self.views[0]

    # What the endpoints agree on changes.

    def retarget(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for the sender from now on."""
        self.views = [self._retargeted(self.views[0], end, upper_certpool)]

    def may_be_retargeted(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for the sender now or later."""
        known = self.views
        new = (self._retargeted(view, end, upper_certpool) for view in known)
        self.views = known + [view for view in dict.fromkeys(new) if view not in known]

    @staticmethod
    def _retargeted(view: Cursor, end: int | None, upper_certpool: int | None) -> Cursor:
        return view.retargeted(view.range.tightened(end, upper_certpool))

    def demand(self, demand: Demand) -> None:
        """Another demand holds for the sender from now on."""
        self.demands = [demand]

    def may_be_demanded(self, demand: Demand) -> None:
        """Another demand holds for the sender now or later."""
        if not self.demands or self.demands[-1] != demand:
            self.demands = [*self.demands, demand]

    @property
    def possibilities(self) -> int:
        """How many states of the sender are being kept apart."""
        return max(len(self.views), len(self.demands))

    # Moving the cursor without data.

    def check_notify(self, count: int) -> None:
        """`count` pieces may be passed over with a notification."""
        self._check_no_apology_owed()
        if count < 1:
            raise Violation(ErrorCode.EMPTY_PACKET, "notification of nothing")
        self._narrow(lambda view: self._check_notify(view, count))

    def _check_notify(self, view: Cursor, count: int) -> None:
        total = view.range.count
        if total is not None and count > total - view.index:
            raise Violation(ErrorCode.PAST_END, f"notification of {count} pieces")
        fresh = count - view.is_behind(self.other.cursor)
        if fresh <= 0:
            return  # catching up with what the other endpoint has transmitted
        self._require(
            lambda demand: self._may_notify(view, count, fresh, demand),
            ErrorCode.EAGERNESS_VIOLATED,
            f"{fresh} pieces notified that are wanted",
        )

    def _may_notify(self, view: Cursor, count: int, fresh: int, demand: Demand) -> bool:
        if not demand.eagerness.wants_metadata:
            return True
        piece = view.range.piece(view.index + count - 1)
        if fresh > 1 or piece is None or piece.part is Part.METADATA:
            return False
        size = self._payload_size(piece.seqnum)
        return size is None or not demand.eagerness.wants_payload(size)

    def notify(self, count: int) -> Piece:
        """Pass over `count` pieces; returns the first of them."""
        piece = self._due()
        for view in self.views:
            view.move(view.index + count)
        self.retractable = False
        self._forget_entry()
        return piece

    def check_skip(self, reason: SkipReason) -> None:
        """The payload that is due may be passed over for that reason."""
        self._check_no_apology_owed()
        self._check_part(Part.PAYLOAD)
        piece = self._due()
        size = self._payload_size(piece.seqnum)
        if reason is SkipReason.UNAVAILABLE:
            self._require(
                lambda demand: demand.skipping_allowed,
                ErrorCode.PAYLOAD_MANDATORY,
                f"payload {piece.seqnum} skipped as unavailable",
            )
        elif size is not None:
            small = reason is SkipReason.TOO_SMALL
            self._require(
                lambda demand: size < demand.size_min if small else size > demand.size_max,
                ErrorCode.SKIP_DISPROVED,
                f"payload of {size} bytes skipped as {reason.name.lower().replace('_', ' ')}",
            )

    def skip(self) -> Piece:
        """Pass over the payload that is due."""
        return self.notify(1)

    def check_jump(self, size: int) -> None:
        """`size` bytes of the payload that is due may be passed over to catch up."""
        self._check_no_apology_owed()
        self._check_part(Part.PAYLOAD)
        if size < 1:
            raise Violation(ErrorCode.EMPTY_PACKET, "jump over no bytes")
        self._narrow(lambda view: self._check_jump(view, size))

    def _check_jump(self, view: Cursor, size: int) -> None:
        ahead = self.other.cursor
        if view.is_behind(ahead) == 0 and (
            ahead.piece != view.piece or ahead.offset < view.offset + size
        ):
            raise Violation(ErrorCode.CATCH_UP_ONLY, f"jump of {size} bytes ahead of the other")
        self._check_payload_size(view, size)

    # Moving the cursor with data.

    def check_metadata(self) -> Piece:
        """Metadata may be sent now; returns the piece (oldest possibility)."""
        self._check_no_apology_owed()
        self._check_part(Part.METADATA)
        piece = self._due()
        if self.end_of_log is not None:
            raise Violation(ErrorCode.AFTER_END_OF_LOG, f"the log ends at {self.end_of_log}")
        if len(self.demands) > 1 or not self.demands[0].eagerness.wants_metadata:
            self._require(
                lambda demand: demand.eagerness.wants_metadata,
                ErrorCode.EAGERNESS_VIOLATED,
                "metadata although only notifications are wanted",
            )
        return piece

    def take_metadata(self, entry: Entry) -> None:
        """The metadata of `entry` has been transmitted."""
        seqnum = entry.seqnum
        self.views = [v for v in self.views if v.piece is not None and v.piece.seqnum == seqnum]
        self.metadata.add(seqnum)
        self.metadata.keep_last(_RUNS_MAX)
        self.links[seqnum] = entry.hash()
        if len(self.links) > _LINKS_MAX:
            reachable = set(open_targets(seqnum))
            self.links = {n: link for n, link in self.links.items() if n in reachable}
        if entry.end_of_log:
            self.end_of_log = seqnum
        for view in self.views:
            view.move(view.index + 1)
        self.retractable = True
        self.entry = entry
        self._forget_entry()

    def check_payload(self, size: int) -> None:
        """`size` bytes of the payload that is due may be sent.  Its entry is known."""
        self._check_no_apology_owed()
        self._check_part(Part.PAYLOAD)
        self._narrow(lambda view: self._check_payload_size(view, size))
        payload_size = self._payload_size(self._due().seqnum)
        assert payload_size is not None
        if size == 0 and self.cursor.offset < payload_size:
            raise Violation(ErrorCode.EMPTY_PACKET, "payload packet without data")
        self._require(
            lambda demand: demand.eagerness.wants_payload(payload_size),
            ErrorCode.EAGERNESS_VIOLATED,
            f"payload of {payload_size} bytes although only its notification is wanted",
        )
        self._require(
            lambda demand: demand.admits_payload(payload_size),
            ErrorCode.UNWANTED_PAYLOAD,
            f"payload of {payload_size} bytes is not within the sizes of interest",
        )

    def _check_payload_size(self, view: Cursor, size: int) -> None:
        assert view.piece is not None
        payload_size = self._payload_size(view.piece.seqnum)
        if payload_size is None:
            raise Violation(ErrorCode.UNKNOWN_PAYLOAD_SIZE, f"of entry {view.piece.seqnum}")
        if size > payload_size - view.offset:
            raise Violation(
                ErrorCode.PAYLOAD_SIZE_EXCEEDED,
                f"{view.offset} + {size} of {payload_size} bytes",
            )

    def take_payload(self, size: int) -> bool:
        """`size` bytes have been transmitted; returns whether the payload is complete."""
        payload_size = self._payload_size(self._due().seqnum)
        finished = self.cursor.offset + size == payload_size
        for view in self.views:
            if finished:
                view.move(view.index + 1)
            else:
                view.offset += size
        if finished:
            self.retractable = True
            self._forget_entry()
        return finished

    # Taking data back.

    def check_apology(self) -> Piece:
        """The last piece may be taken back; returns it."""
        cursor = self.cursor
        piece = cursor.piece
        if piece is None or cursor.offset == cursor.start_of(piece):
            if not self.apology_owed:
                raise Violation(ErrorCode.APOLOGY_FOR_VALID_DATA)
            piece = cursor.range.piece(cursor.index - 1)
            assert piece is not None
        if piece == self.apologized:
            raise Violation(ErrorCode.SECOND_APOLOGY, f"for {piece}")
        return piece

    def apologize(self) -> None:
        """Go back to the beginning of the last piece; it has never been transmitted."""
        piece = self.check_apology()
        self.apologized, self.apology_owed, self.retractable = piece, False, False
        for view in self.views:
            view.move(view.index if view.piece == piece else view.index - 1)
        if piece.part is Part.METADATA:
            self.metadata.discard(piece.seqnum)
            self.links.pop(piece.seqnum, None)
            self.entry = None
            if self.end_of_log == piece.seqnum:
                self.end_of_log = None

    # What is known of entries.

    def link(self, seqnum: int) -> bytes | None:
        """The hash of entry `seqnum`, where this request tells it."""
        found = self.links.get(seqnum)
        return self.other.links.get(seqnum) if found is None else found

    def payload_entry_known(self) -> bool:
        """Whether the entry is known whose payload is due."""
        piece = self.cursor.piece
        return piece is not None and self._payload_size(piece.seqnum) is not None

    def _payload_size(self, seqnum: int) -> int | None:
        for entry in (self.entry, self.other.entry):
            if entry is not None and entry.seqnum == seqnum:
                return entry.payload_size
        return None

    def _forget_entry(self) -> None:
        due = self.cursor.piece
        if self.entry is not None and (
            due is None or due.part is Part.METADATA or due.seqnum != self.entry.seqnum
        ):
            self.entry = None

    # Helpers of the checks.

    def _due(self) -> Piece:
        piece = self.cursor.piece
        if piece is None:
            raise Violation(ErrorCode.PAST_END)
        return piece

    def _check_no_apology_owed(self) -> None:
        if self.apology_owed:
            raise Violation(ErrorCode.APOLOGY_OWED)

    def _check_part(self, part: Part) -> None:
        if len(self.views) == 1:
            self._check_view_part(self.views[0], part)
        else:
            self._narrow(lambda view: self._check_view_part(view, part))

    @staticmethod
    def _check_view_part(view: Cursor, part: Part) -> None:
        if view.piece is None:
            raise Violation(ErrorCode.PAST_END)
        if view.piece.part is not part:
            raise Violation(
                ErrorCode.PIECE_OUT_OF_TURN,
                f"{part.name.lower()} although {view.piece.part.name.lower()} "
                f"of entry {view.piece.seqnum} is due",
            )

    def _narrow(self, check: Callable[[Cursor], None]) -> None:
        """Keep the views that pass `check`; raise its first `Violation` if none does."""
        kept: list[Cursor] = []
        violation: Violation | None = None
        for view in self.views:
            try:
                check(view)
            except Violation as error:
                violation = violation or error
            else:
                kept.append(view)
        if not kept:
            assert violation is not None
            raise violation
        self.views = kept

    def _require(self, allows: Callable[[Demand], bool], code: ErrorCode, message: str) -> None:
        """Drop the demands that must be outdated because they forbid what was done."""
        for index, demand in enumerate(self.demands):
            if allows(demand):
                if index:
                    self.demands = self.demands[index:]
                return
        raise Violation(code, message)
