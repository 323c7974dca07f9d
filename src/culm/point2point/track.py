"""One direction of one request: what its sender has sent, and what it may send next.

Both endpoints keep the same two tracks for a request, so one set of checks serves both:
before sending, a broken rule is the caller's mistake; when receiving, it is the peer's.

Only the sender of a track knows exactly what holds for it.  An adjustment is not
acknowledged, so after we have sent (or received) one, the peer's data may follow the
old state or the new one.  The receiving side therefore keeps every possibility (`views`
of the range, `demands` on the data) and drops those which the data contradicts.
"""

from __future__ import annotations

from typing import NamedTuple

from culm.bamboo.entry import Entry
from culm.bamboo.links import open_targets
from culm.bamboo.verify import PayloadVerifier
from culm.point2point.data_rules import (
    check_part,
    check_skip,
    check_wanted,
    has_passed,
    payload_told,
    pieces_behind,
)
from culm.point2point.demand import Demand
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.intervals import Intervals
from culm.point2point.pieces import Cursor, Part, Piece, Range
from culm.point2point.views import Views

__all__ = ["Last", "Track"]

# Hashes of link targets are pruned to those that later entries can reach when there are
# more than this; open_targets() never has more than 42.
_LINKS_MAX = 128

# Runs of entries whose metadata was transmitted; there is one unless notifications and
# metadata alternate.
_RUNS_MAX = 1024


class Last(NamedTuple):
    """What was transmitted last, and may be taken back: it is not known to be valid.

    There is more than one piece if it is open which of them it was.
    """

    pieces: tuple[Piece, ...]
    entry: Entry


class Track:
    """The state of one direction of one request.

    Methods named ``check_*`` raise `Violation` and change nothing but what is known of
    the peer's possibilities; the others apply what has been checked.
    """

    __slots__ = (
        "apologized",
        "apology_owed",
        "end_of_log",
        "entry",
        "last",
        "links",
        "metadata",
        "other",
        "reached",
        "verifier",
        "views",
    )

    other: Track  # the other direction of the same request

    def __init__(self, range_: Range) -> None:
        self.views = Views(range_)
        self.entry: Entry | None = None  # of the payload that is due, where it is known
        self.links: dict[int, bytes] = {}  # hashes of entries that later ones link to
        self.metadata = Intervals()  # entries whose metadata was transmitted
        self.end_of_log: int | None = None
        self.last: Last | None = None
        self.apology_owed = False  # the last piece was invalid
        self.apologized: Piece | None = None
        self.reached: Cursor | None = None  # where we were before we went back
        self.verifier: PayloadVerifier | None = None  # of the payload that we are sending

    @property
    def cursor(self) -> Cursor:
        """Where the sender is (under the oldest possibility, if there are several)."""
        return self.views.first

    # What the endpoints agree on changes.

    def retarget(self, end: int | None, upper_certpool: int | None) -> None:
        """A smaller range holds for us, the sender, from now on."""
        before = self.cursor
        self.remember_place()
        self.views.retarget(end, upper_certpool)
        if self.cursor.piece != before.piece and before.offset > before.start_of(before.piece):
            self.last = self.verifier = None  # something followed it

    def remember_place(self) -> None:
        """We go back; the peer may be on its way to where we have been."""
        if self.reached is None or self.reached.place < self.cursor.place:
            self.reached = self.cursor.copy()

    # Moving the cursor without data.

    def check_notify(self, count: int) -> None:
        """`count` pieces may be passed over with a notification."""
        self._check_no_apology_owed()
        if count < 1:
            raise Violation(ErrorCode.EMPTY_PACKET, "notification of nothing")
        self.views.sift(lambda view, demand: self._check_notify(view, demand, count), count)

    def _check_notify(self, view: Cursor, demand: Demand, count: int) -> None:
        if count > view.range.count - view.index:
            raise Violation(ErrorCode.PAST_END, f"notification of {count} pieces")
        # The others catch up with what the other endpoint has transmitted.
        fresh = count - pieces_behind(view, self.other.views, self.other.reached)
        if fresh > 0 and not self._may_notify(view, demand, count, fresh):
            raise Violation(
                ErrorCode.EAGERNESS_VIOLATED, f"{fresh} pieces notified that are wanted"
            )

    def _may_notify(self, view: Cursor, demand: Demand, count: int, fresh: int) -> bool:
        if not demand.eagerness.wants_metadata:
            return True
        piece = view.range.piece(view.index + count - 1)
        if fresh > 1 or piece is None or piece.part is Part.METADATA:
            return False
        size = self._payload_size(piece.seqnum)
        return size is None or not demand.eagerness.wants_payload(size)

    def notify(self, count: int) -> Piece:
        """Pass over `count` pieces, for whatever reason; returns the first of them."""
        piece = self._due()
        self.views.advance(count)
        self.last = self.verifier = None
        self._forget_entry()
        return piece

    def check_skip(self, reason: SkipReason) -> None:
        """The payload that is due may be passed over for that reason."""
        self._check_no_apology_owed()
        self.views.sift(lambda view, demand: self._check_skip(view, demand, reason))

    def _check_skip(self, view: Cursor, demand: Demand, reason: SkipReason) -> None:
        seqnum = check_part(view, Part.PAYLOAD)
        check_skip(demand, reason, seqnum, self._payload_size(seqnum))

    def check_jump(self, size: int) -> None:
        """`size` bytes of the payload that is due may be passed over to catch up."""
        self._check_no_apology_owed()
        self.views.sift(lambda view, demand: self._check_jump(view, size))
        self.entry = self.payload_entry()  # which the other direction may forget

    def _check_jump(self, view: Cursor, size: int) -> None:
        check_part(view, Part.PAYLOAD)
        if size < 1:
            raise Violation(ErrorCode.EMPTY_PACKET, "jump over no bytes")
        if not has_passed(view, size, self.other.views, self.other.reached):
            raise Violation(ErrorCode.CATCH_UP_ONLY, f"jump of {size} bytes ahead of the other")
        self._check_payload_size(view, size)

    # Moving the cursor with data.

    def check_metadata(self) -> Piece:
        """Metadata may be sent now; returns the piece (oldest possibility)."""
        self._check_no_apology_owed()
        self.views.sift(self._check_metadata)
        return self._due()

    def _check_metadata(self, view: Cursor, demand: Demand) -> None:
        check_part(view, Part.METADATA)
        if self.end_of_log is not None:
            raise Violation(ErrorCode.AFTER_END_OF_LOG, f"the log ends at {self.end_of_log}")
        check_wanted(demand)

    def take_metadata(self, entry: Entry) -> None:
        """The metadata of `entry` has been transmitted."""
        seqnum = entry.seqnum
        piece = Piece(seqnum, Part.METADATA)
        self.views.keep(piece)
        self.metadata.add(seqnum)
        self.metadata.keep_last(_RUNS_MAX)
        self.links[seqnum] = entry.hash()
        self._prune_links(seqnum)
        if entry.end_of_log:
            self.end_of_log = seqnum
        self.views.advance(1)
        self.last = Last((piece,), entry)
        self.entry = entry
        self._forget_entry()

    def take_entries(self, hashes: dict[int, bytes]) -> None:
        """Valid entries that follow each other, with these hashes, and their payloads have been."""
        seqnums = list(hashes)
        self.metadata.add_run(seqnums[0], seqnums[-1])
        self.metadata.keep_last(_RUNS_MAX)
        self.links.update(hashes)
        self._prune_links(seqnums[-1])
        self.views.advance(2 * len(hashes))
        self.entry = self.last = self.verifier = None

    def _prune_links(self, seqnum: int) -> None:
        if len(self.links) > _LINKS_MAX:
            reachable = set(open_targets(seqnum))
            self.links = {n: link for n, link in self.links.items() if n in reachable}

    def take_invalid_metadata(self, entry: Entry) -> None:
        """Metadata has been transmitted that is not valid; `entry` is how it was understood."""
        pieces = (view.piece for view in self.views)
        self.last = Last(tuple(dict.fromkeys(piece for piece in pieces if piece)), entry)
        self.apology_owed = True
        self.entry = None
        self.views.advance(1)

    def check_payload(self, size: int) -> None:
        """`size` bytes of the payload that is due may be sent."""
        self._check_no_apology_owed()
        self.views.sift(lambda view, demand: self._check_payload(view, demand, size))
        self.entry = self.payload_entry()  # which the other direction may forget

    def _check_payload(self, view: Cursor, demand: Demand, size: int) -> None:
        check_part(view, Part.PAYLOAD)
        payload_size = self._check_payload_size(view, size)
        if size == 0 and view.offset < payload_size:
            raise Violation(ErrorCode.EMPTY_PACKET, "payload packet without data")
        check_wanted(demand, payload_size)

    def _check_payload_size(self, view: Cursor, size: int) -> int:
        assert view.piece is not None
        told = payload_told(view, self.metadata, self.other.metadata)
        payload_size = None if told is None else self._payload_size(told)
        if payload_size is None:
            raise Violation(ErrorCode.UNKNOWN_PAYLOAD_SIZE, f"of entry {view.piece.seqnum}")
        if size > payload_size - view.offset:
            raise Violation(
                ErrorCode.PAYLOAD_SIZE_EXCEEDED,
                f"{view.offset} + {size} of {payload_size} bytes",
            )
        return payload_size

    def take_payload(self, size: int) -> bool:
        """`size` bytes have been transmitted; returns whether the payload is complete."""
        piece = self._due()
        entry = self.payload_entry()
        assert entry is not None
        self.views.keep(piece)
        finished = self.cursor.offset + size == entry.payload_size
        if not finished:
            self.views.advance_inside(size)
        else:
            self.views.advance(1)
            self.last = Last((piece,), entry)
            self._forget_entry()
        return finished

    def jump(self, size: int) -> bool:
        """Pass over `size` bytes of the payload; returns whether that was the rest."""
        finished = self.take_payload(size)
        self.verifier = None
        if finished:
            self.last = None
        return finished

    # Taking data back.

    def check_apology(self) -> tuple[Piece, ...]:
        """The last piece may be taken back; returns which it may have been."""
        cursor = self.cursor
        if cursor.piece is not None and cursor.offset > cursor.start_of(cursor.piece):
            pieces: tuple[Piece, ...] = (cursor.piece,)
        elif self.last is None:
            raise Violation(ErrorCode.APOLOGY_FOR_VALID_DATA)
        else:
            pieces = self.last.pieces
        if pieces == (self.apologized,):
            raise Violation(ErrorCode.SECOND_APOLOGY, f"for {pieces[0]}")
        return pieces

    def apologize(self) -> None:
        """Go back to the beginning of the last piece; it has never been transmitted."""
        pieces = self.check_apology()
        last, self.last, self.verifier = self.last, None, None
        self.apologized = pieces[0] if len(pieces) == 1 else None
        self.apology_owed = False
        if last is None or last.pieces != pieces:
            self.views.begin_again(pieces[0])
            return
        self.views.go_back_to(pieces)
        seqnum, part = pieces[0]
        if part is Part.PAYLOAD:
            self.entry = last.entry
        else:
            self.entry = None
            self.metadata.discard(seqnum)
            if self.links.get(seqnum) == last.entry.hash():
                del self.links[seqnum]
            if self.end_of_log == seqnum:
                self.end_of_log = None

    # What is known of entries.

    def link(self, seqnum: int) -> bytes | None:
        """The hash of entry `seqnum`, where this request tells it."""
        found = self.links.get(seqnum)
        return self.other.links.get(seqnum) if found is None else found

    def unknown_payload(self) -> int | None:
        """The entry whose payload is due, if it is one, and to be had from the caller."""
        told = (payload_told(view, self.metadata, self.other.metadata) for view in self.views)
        due = [seqnum for seqnum in told if seqnum is not None]
        known = self.apology_owed or any(map(self._entry_of, due))
        return None if known or not due else due[0]

    def payload_entry(self) -> Entry | None:
        """The entry whose payload is due, where it is known."""
        piece = self.cursor.piece
        return None if piece is None else self._entry_of(piece.seqnum)

    def _entry_of(self, seqnum: int) -> Entry | None:
        for entry in (self.entry, self.other.entry):
            if entry is not None and entry.seqnum == seqnum:
                return entry
        return None

    def _payload_size(self, seqnum: int) -> int | None:
        entry = self._entry_of(seqnum)
        return None if entry is None else entry.payload_size

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
