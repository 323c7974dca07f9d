"""One direction of one request: the pieces that its sender has sent, and may send next.

Both endpoints keep both directions of a request, so one set of checks serves both: before
sending, a broken rule is the caller's mistake; when receiving, it is the peer's.

Only the sender of a direction knows its exact state.  An adjustment is not acknowledged, so
after we have sent (or received) one, the peer's data may follow the old state or the new one.
The receiving side therefore keeps every possibility (`Candidates`) and drops those that the
data contradicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from culm.bamboo.entry import Entry, decode, verify_signature
from culm.bamboo.links import has_lipmaalink, lipmaa, open_targets
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer
from culm.intervals import Intervals
from culm.point2point.codec import Metadata
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.messages import Adjust, Demand
from culm.point2point.pieces import Candidates, Cursor, Part, Piece, Possible
from culm.wire import varu64
from culm.wire.multihash import HashFamily

# Hashes of link targets are pruned to those that later entries can reach when there are
# more than this; open_targets() never has more than 42.
_LINKS_MAX = 128

# Runs of entries whose metadata was transmitted; there is one unless notifications and
# metadata alternate.
_RUNS_MAX = 1024


class Last(NamedTuple):
    """The piece transmitted last, not known to be valid: it may be taken back.

    There are several if any of them may have been it.
    """

    pieces: tuple[Piece, ...]
    entry: Entry


class EntryRun(NamedTuple):
    """Entries that may follow each other with their payloads, and the sizes of those."""

    seqnum: int
    count_max: int
    size_min: int
    size_max: int


@dataclass(slots=True, eq=False)
class Direction:
    """The state of one direction of one request.

    Methods raise `Violation` before they change anything.  Those named ``check_*`` change nothing;
    they return which of the possibilities allow it, for the method that does it.

    Each knows the other direction of its request, in which the other endpoint is the sender.
    `given`, where a method takes it, is an entry that the caller knows.
    """

    candidates: Candidates
    other: Direction = field(init=False)
    entry: Entry | None = None  # of the payload that is due, where it is known
    # The hashes that later entries link to.
    links: dict[int, bytes] = field(default_factory=dict[int, bytes])
    metadata: Intervals = field(default_factory=Intervals)  # entries with transmitted metadata
    end_of_log: int | None = None
    last: Last | None = None
    apology_owed: bool = False  # the last piece was invalid
    apologized: Piece | None = None
    reached: Cursor | None = None  # where the sender was before it went back
    verifier: PayloadVerifier | None = None  # of the payload that is under way

    @property
    def cursor(self) -> Cursor:
        """The sender's place (under the oldest possibility, if there are several)."""
        return self.candidates.first

    @property
    def demand(self) -> Demand | None:
        """The receiver's latest wishes; ``None`` before the first."""
        demands = self.candidates.possible.demands
        return demands[-1] if demands else None

    def face(self, other: Direction) -> None:
        self.other = other

    def ahead_of(self, cursor: Cursor) -> int:
        """The number of pieces after `cursor` that the sender has passed under any possibility."""
        ahead = min(cursor.is_behind(place) for place in self.candidates)
        return ahead if self.reached is None else max(ahead, cursor.is_behind(self.reached))

    def has_passed(self, cursor: Cursor, size: int) -> bool:
        """Whether the sender has passed `size` more bytes of the payload that is due there."""
        places = [*self.candidates, self.reached]
        return self.ahead_of(cursor) > 0 or any(
            place.piece == cursor.piece and place.offset >= cursor.offset + size
            for place in places
            if place is not None
        )

    # Adjustments.

    def demand_after(self, adjust: Adjust) -> Demand:
        """The receiver's wishes after an adjustment of its own; raises `Violation`."""
        return (self.demand or Demand()).adjusted(adjust)

    def adjust(self, adjust: Adjust, demand: Demand | None = None) -> None:
        """An adjustment holds for all that is transmitted from now on.

        `demand`: the receiver's wishes from then on, if it made the adjustment.
        """
        if demand is not None:
            self.candidates.ask(demand)
        self.candidates.retarget(adjust.end, adjust.upper_certpool)

    # Notifications.

    def notify(self, count: int) -> Piece:
        """Pass over `count` pieces that are not wanted, or known; returns the first of them."""

        def check(cursor: Cursor, demand: Demand) -> None:
            if count < 1:
                raise Violation(ErrorCode.EMPTY_PACKET, "notification of nothing")
            if count > cursor.range.count - cursor.index:
                raise Violation(ErrorCode.PAST_END, f"notification of {count} pieces")
            # The rest only catches up with the other endpoint.
            fresh = count - self.other.ahead_of(cursor)
            if fresh > 0 and not self._may_notify(cursor, demand, count, fresh):
                why = f"{fresh} pieces notified that are wanted"
                raise Violation(ErrorCode.EAGERNESS_VIOLATED, why)

        return self._pass_over(self._allowing(check, count), count)

    def _may_notify(self, cursor: Cursor, demand: Demand, count: int, fresh: int) -> bool:
        if not demand.eagerness.wants_metadata:
            return True
        piece = cursor.range.piece(cursor.index + count - 1)
        if fresh > 1 or piece is None or piece.part is Part.METADATA:
            return False
        entry = self._known_entry(piece.seqnum)
        return entry is None or not demand.eagerness.wants_payload(entry.payload_size)

    def skip(self, reason: SkipReason) -> Piece:
        """Pass over the payload that is due; returns that piece."""

        def check(cursor: Cursor, demand: Demand) -> None:
            seqnum = cursor.check_due(Part.PAYLOAD)
            entry = self._known_entry(seqnum)
            if reason is SkipReason.UNAVAILABLE:
                if not demand.skipping_allowed:
                    raise Violation(ErrorCode.PAYLOAD_MANDATORY, f"payload {seqnum} is unavailable")
            elif entry is not None:
                size, small = entry.payload_size, reason is SkipReason.TOO_SMALL
                if not (size < demand.size_min if small else size > demand.size_max):
                    why = f"payload of {size} bytes skipped as too {'small' if small else 'large'}"
                    raise Violation(ErrorCode.SKIP_DISPROVED, why)

        return self._pass_over(self._allowing(check), 1)

    def _pass_over(self, possible: Possible, count: int) -> Piece:
        self.candidates.keep(possible)
        piece = possible.piece
        self.candidates.advance(count)
        self.last = self.verifier = None
        self._forget_entry()
        return piece

    # Metadata.

    def check_metadata(self) -> Possible:
        def check(cursor: Cursor, demand: Demand) -> None:
            cursor.check_due(Part.METADATA)
            if self.end_of_log is not None:
                raise Violation(ErrorCode.AFTER_END_OF_LOG, f"the log ends at {self.end_of_log}")
            if not demand.eagerness.wants_metadata:
                why = "metadata although only notifications are wanted"
                raise Violation(ErrorCode.EAGERNESS_VIOLATED, why)

        return self._allowing(check)

    def take_metadata(self, possible: Possible, entry: Entry, *, valid: bool = False) -> None:
        """The metadata of `entry` has been transmitted; `valid` if that is known."""
        seqnum = entry.seqnum
        piece = Piece(seqnum, Part.METADATA)
        self.candidates.keep(possible)
        self.candidates.keep_piece(piece)
        self.metadata.add(seqnum)
        self.metadata.keep_last(_RUNS_MAX)
        self.links[seqnum] = entry.hash()
        self._prune_links(seqnum)
        if entry.end_of_log:
            self.end_of_log = seqnum
        self.last = None if valid else Last((piece,), entry)
        self.entry, self.verifier = entry, None
        self.candidates.advance(1)
        self._forget_entry()

    def take_invalid_metadata(self, possible: Possible, entry: Entry) -> None:
        """Invalid metadata has been transmitted, which was read as `entry`."""
        pieces = (cursor.piece for cursor in possible.cursors)
        self.candidates.keep(possible)
        self.last = Last(tuple(dict.fromkeys(piece for piece in pieces if piece)), entry)
        self.apology_owed = True
        self.entry = self.verifier = None
        self.candidates.advance(1)

    # Runs of entries.

    def run_due(self) -> EntryRun | None:
        """The entries that are due and need no decision one by one, each with its payload."""
        (cursor, *others), demands = self.candidates.possible
        if others or not demands or self.candidates.count > 1:
            return None
        if self.apology_owed or self.end_of_log is not None:
            return None
        count, piece, demand = cursor.range.entries_from(cursor.index), cursor.piece, demands[0]
        if not count or piece is None:
            return None
        if piece.seqnum > 1 and not self.tells_metadata(piece.seqnum - 1):
            return None  # its hash is needed, and might have to be asked for
        size_max = min(demand.size_max, demand.eagerness.payload_size_max)
        if size_max < demand.size_min:
            return None
        return EntryRun(piece.seqnum, count, demand.size_min, size_max)

    def take_run(self, hashes: dict[int, bytes]) -> None:
        """Valid entries of the run that is due, with these hashes, have been transmitted."""
        seqnums = list(hashes)
        self.metadata.add_run(seqnums[0], seqnums[-1])
        self.metadata.keep_last(_RUNS_MAX)
        self.links.update(hashes)
        self._prune_links(seqnums[-1])
        self.entry = self.last = self.verifier = None
        self.candidates.advance(2 * len(hashes))

    def _prune_links(self, seqnum: int) -> None:
        if len(self.links) > _LINKS_MAX:
            reachable = self.links.keys() & open_targets(seqnum)
            self.links = {n: self.links[n] for n in sorted(reachable)}

    # Payloads.

    def check_payload(self, size: int, given: Entry | None = None) -> Possible:
        def check(cursor: Cursor, demand: Demand) -> None:
            whole = self._check_payload_size(cursor, size, given)
            if size == 0 and cursor.offset < whole:
                raise Violation(ErrorCode.EMPTY_PACKET, "payload packet without data")
            if not demand.eagerness.wants_payload(whole):
                why = f"payload of {whole} bytes although only its notification is wanted"
                raise Violation(ErrorCode.EAGERNESS_VIOLATED, why)
            if not demand.admits_payload(whole):
                why = f"payload of {whole} bytes is not within the sizes of interest"
                raise Violation(ErrorCode.UNWANTED_PAYLOAD, why)

        return self._allowing(check)

    def _check_payload_size(self, cursor: Cursor, size: int, given: Entry | None) -> int:
        seqnum = cursor.check_due(Part.PAYLOAD)
        told = self.payload_told(cursor)
        entry = None if told is None else self._known_entry(told, given)
        if entry is None:
            raise Violation(ErrorCode.UNKNOWN_PAYLOAD_SIZE, f"of entry {seqnum}")
        if size > entry.payload_size - cursor.offset:
            why = f"{cursor.offset} + {size} of {entry.payload_size} bytes"
            raise Violation(ErrorCode.PAYLOAD_SIZE_EXCEEDED, why)
        return entry.payload_size

    def begin_payload(self, possible: Possible, given: Entry | None = None) -> None:
        self.candidates.keep(possible)
        self.entry = self.payload_entry(given)  # which the other direction may forget

    def payload_due(self) -> Entry:
        """The entry whose payload the packet that has begun goes on with.

        Raises `Violation`: a confirmation that came late may have ended the range before it.
        """
        entry, piece = self.entry, self.candidates.first.piece
        if entry is None or piece != (entry.seqnum, Part.PAYLOAD):
            raise Violation(ErrorCode.PAST_END, "payload beyond the range that was confirmed")
        return entry

    def take_payload(self, data: Buffer, *, hashed: bool = True) -> tuple[bool, bool | None]:
        """Bytes of the packet that has begun have been transmitted.

        Returns whether the payload is complete, and whether it is right: ``None`` before its
        end, and if not all of it was `hashed`.
        """
        entry = self.payload_due()
        if hashed:
            if self.cursor.offset == 0:
                self.verifier = PayloadVerifier(entry)
            if self.verifier is not None:
                self.verifier.update(data)
        verifier = self.verifier
        if not self._pass_inside(entry, len(data)):
            return False, None
        self.verifier = None
        if not hashed or verifier is None:
            return True, None
        right = verifier.fault() is None
        self.apology_owed = not right
        if right:
            self.last = None
        return True, right

    def _pass_inside(self, entry: Entry, size: int) -> bool:
        """Pass `size` bytes of its payload; returns whether they are the last ones."""
        piece = Piece(entry.seqnum, Part.PAYLOAD)
        self.candidates.keep_piece(piece)
        if self.candidates.first.offset + size < entry.payload_size:
            self.candidates.advance_inside(size)
            return False
        self.last = Last((piece,), entry)
        self.candidates.advance(1)
        self._forget_entry()
        return True

    def jump(self, size: int, given: Entry | None = None) -> tuple[int, int, bool]:
        """Pass over `size` bytes of the payload that is due, to catch up.

        Returns the number of its entry, the offset that is reached, and whether that is its end.
        """

        def check(cursor: Cursor, demand: Demand) -> None:
            cursor.check_due(Part.PAYLOAD)
            if size < 1:
                raise Violation(ErrorCode.EMPTY_PACKET, "jump over no bytes")
            if not self.other.has_passed(cursor, size):
                raise Violation(ErrorCode.CATCH_UP_ONLY, f"jump of {size} bytes ahead of the other")
            self._check_payload_size(cursor, size, given)

        self.begin_payload(self._allowing(check), given)
        entry, offset = self.payload_due(), self.cursor.offset + size
        finished = self._pass_inside(entry, size)
        self.verifier = None
        if finished:
            self.last = None
        return entry.seqnum, offset, finished

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

    def apologize(self, pieces: tuple[Piece, ...]) -> None:
        """Go back to the beginning of the last piece, as if it had never been transmitted."""
        last, self.last, self.verifier = self.last, None, None
        self.apologized = pieces[0] if len(pieces) == 1 else None
        self.apology_owed = False
        seqnum, part = pieces[0]
        if last is None or last.pieces != pieces:
            pass  # it was under way
        elif part is Part.PAYLOAD:
            self.entry = last.entry
        else:
            self.entry = None
            self.metadata.discard(seqnum)
            if self.links.get(seqnum) == last.entry.hash():
                del self.links[seqnum]
            if self.end_of_log == seqnum:
                self.end_of_log = None
        self.candidates.go_back_to(pieces)

    # Knowledge of entries.

    def link(self, seqnum: int) -> bytes | None:
        """The hash of entry `seqnum`, if this request tells it."""
        found = self.links.get(seqnum)
        return self.other.links.get(seqnum) if found is None else found

    def tells_metadata(self, seqnum: int) -> bool:
        """Whether the metadata of that entry was transmitted, in either direction."""
        return seqnum in self.metadata or seqnum in self.other.metadata

    def payload_told(self, cursor: Cursor) -> int | None:
        """The entry whose payload is due there, if the receiver knows that entry.

        It does if the metadata was transmitted, or if it had the entry before.
        """
        piece, proposal = cursor.piece, cursor.range.proposal
        if piece is None or piece.part is Part.METADATA:
            return None
        seqnum = piece.seqnum
        begins_here = proposal.start_offset is not None and seqnum == proposal.start
        had = proposal.payload_only or begins_here
        return seqnum if had or self.tells_metadata(seqnum) else None

    def payload_entry(self, given: Entry | None = None) -> Entry | None:
        """The entry whose payload is due, where it is known."""
        piece = self.cursor.piece
        return None if piece is None else self._known_entry(piece.seqnum, given)

    def _known_entry(self, seqnum: int, given: Entry | None = None) -> Entry | None:
        if given is None and self.entry is not None and self.entry.seqnum == seqnum:
            return self.entry  # the most frequent answer
        for entry in (given, self.entry, self.other.entry):
            if entry is not None and entry.seqnum == seqnum:
                return entry
        return None

    def _forget_entry(self) -> None:
        if self.entry is not None and self.cursor.piece != (self.entry.seqnum, Part.PAYLOAD):
            self.entry = None

    def _allowing(self, check: Callable[[Cursor, Demand], None], count: int = 1) -> Possible:
        if self.apology_owed:
            raise Violation(ErrorCode.APOLOGY_OWED)
        return self.candidates.allowing(check, count)


class Rebuilt(NamedTuple):
    """An entry, and whether its author has signed it.

    linked: its links are those that the request knows.
    """

    entry: Entry
    signed: bool
    linked: bool


class HashMissing(Exception):
    """The hash of entry `seqnum` is needed, and the request does not tell it."""

    def __init__(self, seqnum: int) -> None:
        super().__init__(seqnum)
        self.seqnum = seqnum


class Outgoing(Direction):
    """The direction in which we send."""

    __slots__ = ()

    def adjust(self, adjust: Adjust, demand: Demand | None = None) -> None:
        before = self.cursor
        self._remember_place()
        super().adjust(adjust, demand)
        if self.cursor.piece != before.piece and before.offset > before.start_of(before.piece):
            self.last = self.verifier = None  # something followed it

    def apologize(self, pieces: tuple[Piece, ...]) -> None:
        self._remember_place()
        super().apologize(pieces)

    def _remember_place(self) -> None:
        if self.reached is None or self.reached.place < self.cursor.place:
            self.reached = self.cursor.copy()


class Incoming(Direction):
    """The direction in which the peer sends."""

    __slots__ = ()

    def may_adjust(self, adjust: Adjust, demand: Demand | None = None) -> None:
        """An adjustment holds for data that comes from now on, or later; `demand`: see `adjust`."""
        if demand is not None:
            self.candidates.may_be_asked(demand)
        self.candidates.may_be_retargeted(
            adjust.end, adjust.upper_certpool, by_sender=demand is None
        )

    # Knowledge and wishes of the caller.

    def unknown_payload(self) -> int | None:
        """The entry whose payload is due, if it is one, and to be had from the caller."""
        due = [told for each in self.candidates if (told := self.payload_told(each)) is not None]
        known = self.apology_owed or any(map(self._known_entry, due))
        return None if known or not due else due[0]

    def know_entry(self, entry: Entry) -> None:
        """The caller says to which entry the due payload belongs."""
        self.entry = entry

    def know_beginning(self, verifier: PayloadVerifier | None) -> None:
        """The caller has hashed the payload up to where the range begins."""
        self.verifier = verifier

    # Entries rebuilt from metadata packets.

    def rebuild(self, possible: Possible, metadata: Metadata, *, family: HashFamily) -> Rebuilt:
        """Of the entries that may be due, rebuild the one for which it works.

        There is more than one candidate only after an adjustment of the range.  Raises
        `HashMissing`, or `Violation` if the sender should (not) have sent the backlink.
        """
        found: Rebuilt | None = None
        errors: list[Exception] = []
        candidates = (cursor.piece.seqnum for cursor in possible.cursors if cursor.piece)
        for seqnum in dict.fromkeys(candidates):
            try:
                rebuilt = self._rebuild(seqnum, metadata, family=family)
            except (HashMissing, Violation) as error:
                errors.append(error)
            else:
                if rebuilt.signed:
                    return rebuilt
                found = found or rebuilt
        missing = next((error for error in errors if isinstance(error, HashMissing)), None)
        if missing is not None or found is None:
            raise missing or errors[0]
        return found

    def _rebuild(self, seqnum: int, metadata: Metadata, *, family: HashFamily) -> Rebuilt:
        log, before = self.cursor.range.proposal.log, seqnum - 1
        known = self.link(before)
        backlink, lipmaalink = known, None
        if has_lipmaalink(seqnum):
            if metadata.backlink is not None:
                # We may have transmitted the entry before while this packet was on its way, but
                # the sender knows its own transmissions.
                if before in self.metadata:
                    why = f"metadata {before} was sent before"
                    raise Violation(ErrorCode.BACKLINK_REDUNDANT, why)
                backlink = metadata.backlink
            elif not self.tells_metadata(before):
                raise Violation(ErrorCode.BACKLINK_MISSING, f"of entry {seqnum}")
        elif metadata.backlink is not None:
            raise Violation(ErrorCode.BACKLINK_REDUNDANT, f"entry {seqnum} has one link")
        if seqnum > 1 and backlink is None:
            raise HashMissing(before)
        if has_lipmaalink(seqnum):
            lipmaalink = self.link(lipmaa(seqnum))
            if lipmaalink is None:
                raise HashMissing(lipmaa(seqnum))
        encoded = (
            b"\1" if metadata.end_of_log else b"\0",
            log.author,
            varu64.encode(log.log_id),
            varu64.encode(seqnum),
            lipmaalink or b"",
            backlink or b"",
            metadata.tail,
        )
        entry = decode(b"".join(encoded), family=family)
        linked = known is None or entry.backlink in (None, known)
        return Rebuilt(entry, verify_signature(entry), linked)

    def doubtful_link(self, seqnum: int) -> int:
        """The entry to which that one links, if the peer may have another than ours; else 0."""
        proposal, linked = self.cursor.range.proposal, lipmaa(seqnum)
        agreed = linked < proposal.first_seqnum or linked == proposal.expected_seqnum
        return 0 if agreed or self.tells_metadata(linked) else linked

    def doubtful_entry(self) -> tuple[Entry, int] | None:
        """An entry that does not fit what comes, and the number of the one in doubt, if there is.

        Its payload comes alone, or an apology is owed for what has been rebuilt as this entry.
        """
        last, proposal = self.last, self.cursor.range.proposal
        owed = last if self.apology_owed else None
        entry = self.payload_entry() if owed is None else owed.entry
        if entry is None or entry.seqnum == proposal.expected_seqnum:
            return None
        if owed is not None and owed.pieces[0].part is Part.METADATA:
            linked = self.doubtful_link(entry.seqnum)
            return (entry, linked) if linked else None
        return (entry, entry.seqnum) if proposal.payload_only else None

    # Duties of the peer.

    def owes_payload(self) -> bool:
        """Whether the peer has begun an entry and owes its payload.

        Only if we want it, and have not sent it ourselves.
        """
        entry, demand = self.entry, self.demand
        if entry is None or demand is None or entry.seqnum not in self.metadata:
            return False
        if not demand.wants_payload(entry.payload_size):
            return False
        due = Piece(entry.seqnum, Part.PAYLOAD)
        return all(
            cursor.piece == due and not cursor.is_behind(self.other.cursor)
            for cursor in self.candidates
        )
