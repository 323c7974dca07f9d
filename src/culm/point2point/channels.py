"""Bytes on their way out and in: packets of all requests, bodies, and many entries at a time.

Nearly all data is a row of entries, each with its whole payload, for a request that wants
everything, between endpoints that verify before they send.  Anything that stands in the way of a
run (an adjustment whose effect is open, a certificate pool, a payload that is too large, the end of
the log, ...) is sent and received piece by piece; a run means the same as its pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Any, NamedTuple

from culm.bamboo.bulk import signatures_are_valid, signatures_of
from culm.bamboo.entry import Entry, LogKey, assemble
from culm.bamboo.records import NewEntry, StoredEntry
from culm.buffer import Buffer, Outbox, Queue, ReceiveBuffer
from culm.bymux import Stream
from culm.kernels import runs as kernel
from culm.point2point.codec import PacketType
from culm.point2point.direction import Direction, EntryRun, Incoming
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.limits import INFLATION_FACTOR, Limits
from culm.point2point.messages import Mode, Negotiated
from culm.signatures import Ask
from culm.wire import varu64
from culm.wire.errors import DecodeError, Truncated
from culm.wire.lzfoo import Compressor, Decompressor
from culm.wire.multihash import HashFamily

# Compressing is tried for fewer and fewer packets while it does not pay: after each
# failure twice as many packets go out raw, up to this many.
_RAW_RUN_MAX = 32

# Packets smaller than this are not worth an attempt.
_COMPRESS_SIZE_MIN = 32

# Bytes read at a time, on the wire and unpacked.
_RUN_SIZE_MAX = 1 << 17

# Entries read at a time, at least, if they are there.  No more than twice as many as could be
# used the time before: those after them would be read again and again.
_COUNT_MIN = 8

# From this size on it pays not to copy a payload once more.
_APART_SIZE_MIN = 1 << 14

_RAW = bytes([PacketType.RAW])
_COMPRESSED = bytes([PacketType.COMPRESSED])


class Output:
    """The way out that all requests of a connection share; bytes may wait in the streams.

    trusts_caller: all that is sent has been verified.
    """

    def __init__(
        self,
        *,
        control: Stream,
        data: Stream,
        family: HashFamily,
        limits: Limits,
        trusts_caller: bool,
    ) -> None:
        self.family = family
        self.limits = limits
        self.trusts_caller = trusts_caller
        self.session: Negotiated | None = None
        self.is_safe = True  # only verified data may be sent
        self.over = False
        """It is too late for any verb: we say goodbye, or the connection has ended."""
        self.refuses = False
        self.queued_total = 0
        """Bytes ever put on the data channel."""
        self._control = control
        self._data = data
        self._outbox = Outbox()
        self._current: int | None = None  # the request that data is for
        self._only_switch = False  # the current request was cancelled
        # Where cancellation markers are that may not have left; adjacent ones are joined.
        self._markers: Queue[tuple[int, int]] = Queue()
        self._markers_size = 0
        self._compressor: Compressor | None = None
        self._raw_run = 0
        self._raw_left = 0

    def establish(self, session: Negotiated) -> None:
        self.session, self.is_safe = session, session.send_mode is Mode.SAFE
        if session.compression_window:
            self._compressor = Compressor(session.compression_window)

    @property
    def checks(self) -> bool:
        """Whether data has to be verified before it is sent."""
        return self.is_safe and not self.trusts_caller

    def end(self) -> None:
        self.over = True

    def refuse(self) -> None:
        """The caller has found a fault that only it can know of."""
        self.refuses = True

    def say(self, message: bytes) -> None:
        if not self.over:
            self._control.send_data(message)

    # Waiting bytes.

    @property
    def unsent_size(self) -> int:
        """Bytes of data that have not left, or wait for the peer's credit."""
        return self._outbox.size + self._data.unsent_size

    @property
    def flushed_total(self) -> int:
        """Bytes of data that nothing can overtake."""
        return self.queued_total - self.unsent_size

    @property
    def unsent_markers_size(self) -> int:
        """Bytes of cancellation markers that have not left yet."""
        if not self._markers:
            return 0
        self._forget_markers()
        gone = self.flushed_total - self._markers[0][0] if self._markers else 0
        return self._markers_size - max(0, gone)

    def _forget_markers(self) -> None:
        """Those that have left."""
        flushed = self.flushed_total
        while self._markers and self._markers[0][1] <= flushed:
            start, end = self._markers.popleft()
            self._markers_size -= end - start

    def feed(self, size_max: int | None) -> None:
        """Let about `size_max` bytes into the stream, where only control data overtakes them."""
        for piece in () if self.over else self._outbox.take_pieces(size_max):
            self._data.send_data(piece)
        if self._markers:
            self._forget_markers()

    def drop_unsent(self) -> None:
        self._outbox.clear()

    # Data.

    def put(self, request_id: int, *pieces: Buffer) -> None:
        if self._current != request_id:
            self._switch(request_id)
        for piece in pieces:
            self._queue(piece)

    def mark_cancelled(self, request_id: int) -> None:
        """Confirm a cancellation on the data channel; no data of the request follows."""
        start = self.queued_total
        if self._only_switch:
            self._switch(request_id)
        self._queue(b"\x20" + varu64.encode(request_id))
        self._markers_size += self.queued_total - start
        if self._markers and self._markers[-1][1] == start:
            start, _ = self._markers.pop()
        self._markers.append((start, self.queued_total))
        self._only_switch = self._current == request_id
        if self._only_switch:
            self._current = None

    def _switch(self, request_id: int) -> None:
        self._current, self._only_switch = request_id, False
        self._queue(b"\0" + varu64.encode(request_id))

    def _queue(self, data: Buffer) -> None:
        self._outbox.append(data)
        self.queued_total += len(data)

    def rest(self) -> None:
        """Nothing has happened for a while: keep no more memory than it takes to go on."""
        if self._compressor is not None:
            self._compressor.rest()

    def compressed(self, data: Buffer) -> bytes | None:
        """`data` compressed, if that is smaller; it has entered the history then."""
        size = len(data)
        if self._compressor is None or size < _COMPRESS_SIZE_MIN:
            return None
        if self._raw_left:
            self._raw_left -= 1
            return None
        packed = self._compressor.compress(data, size - size // 64 - 1)
        if packed is None:
            self._raw_run = min(2 * self._raw_run + 1, _RAW_RUN_MAX)
            self._raw_left = self._raw_run
            return None
        self._raw_run = 0
        # One that is packed too well begins with elements of length zero.
        return bytes(max(0, -(-size // INFLATION_FACTOR) - len(packed))) + packed

    def packets(self, data: memoryview, *, compress: bool) -> Iterator[Buffer]:
        """The payload packets of `data`, each within the limit, in pieces."""
        size_max = self.limits.packet_size_max
        for start in range(0, len(data) or 1, size_max):
            part = data[start : start + size_max] if len(data) > size_max else data
            yield from self._packet(varu64.encode(len(part)), part, compress=compress)

    def _packet(self, size: bytes, data: Buffer, *, compress: bool = True) -> tuple[Buffer, ...]:
        packed = self.compressed(data) if compress else None
        if packed is None:
            return _RAW, size, data
        return _COMPRESSED, size, varu64.encode(len(packed)), packed

    def run(
        self, log: LogKey, outgoing: Direction, stored: Iterable[StoredEntry]
    ) -> tuple[Sequence[Buffer], dict[int, bytes]]:
        """The packets of the first of `stored`, as many as make about a packet, and their hashes.

        There are none if something stands in the way: a link, say, to an entry other than the one
        that the request knows.
        """
        sent, received = outgoing.links, outgoing.other.links
        due, size_max = outgoing.run_due(), self.limits.packet_size_max
        if due is None or any(seqnum >= due.seqnum for seqnum in (*sent, *received)):
            return (), {}
        chosen = kernel.choose(
            stored,
            log.author + varu64.encode(log.log_id),
            due.seqnum,
            due.count_max,
            due.size_min,
            min(due.size_max, size_max),
            size_max,
            sent,
            received,
            self.family.encoded_size,
        )
        packets: list[Buffer] = []
        for _, metadata, size, payload in chosen:
            packets.append(metadata)
            packets += self._packet(size, payload)
        hashes = (each[0] for each in chosen)
        return _pieces_of(packets), dict(zip(count(due.seqnum), hashes, strict=False))


def _pieces_of(packets: Sequence[Buffer]) -> Sequence[Buffer]:
    """The bytes in few pieces, without a copy of large payloads."""
    if not packets or max(map(len, packets)) < _APART_SIZE_MIN:
        return (b"".join(packets),)
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    for packet in packets:
        if len(packet) < _APART_SIZE_MIN:
            small.append(packet)
        else:
            pieces += b"".join(small), packet
            small.clear()
    return (*pieces, b"".join(small)) if small else pieces


class PayloadBody:
    """Takes the body of one packet after the other from `inbox`, in pieces.

    All compressed packets of the connection share one history across requests.  So packets that are
    not wanted any more are inflated, too, as long as wanted ones may follow.

    Any k compressed bytes in a row become at most ``burst + k * factor`` (see `Limits`): allowance
    that a packet leaves unused is lost at its end.
    """

    def __init__(self, inbox: ReceiveBuffer, *, limits: Limits) -> None:
        self.open = False
        self.wanted = True  # not everything that comes is discarded
        self._inbox = inbox
        self.piece_size_max = limits.packet_size_max
        """How many bytes `take` gives at most."""
        self._factor = limits.inflation_factor_max
        self._burst = self._allowance = limits.inflation_burst_max
        self._decompressor: Decompressor | None = None
        self._size = 0  # bytes of payload
        self._left = 0  # bytes on the wire that have not been taken
        self._unpacks = False

    def establish(self, window: int) -> None:
        if window:
            self._decompressor = Decompressor(window)

    def want_no_more(self) -> None:
        self.wanted = self._unpacks = False

    @property
    def can_unpack(self) -> bool:
        return self._decompressor is not None

    @property
    def is_empty(self) -> bool:
        return not self._size

    def _room(self, unread_size: int) -> int:
        """The number of bytes that may be made from `unread_size` compressed ones."""
        return max(0, self._allowance + self._factor * unread_size)

    def begin(self, size: int, packed_size: int | None) -> None:
        """A packet with `size` bytes of payload begins, compressed to `packed_size`."""
        if packed_size is not None:
            if self._decompressor is None:
                raise Violation(ErrorCode.COMPRESSION_WINDOW, "no compression was negotiated")
            if self.wanted:
                if size > self._room(packed_size):
                    raise _too_much(size, packed_size)
                self._decompressor.begin(size)
        self.open, self._size = True, size
        self._left = size if packed_size is None else packed_size
        self._unpacks = packed_size is not None and self.wanted

    def unpack(self, packed: bytes, size: int) -> bytes:
        """The `size` bytes of a whole packet that is compressed; raises `Violation`."""
        assert self._decompressor is not None
        left = self._allowance + self._factor * len(packed) - size
        if left < 0:
            raise _too_much(size, len(packed))
        self._allowance = min(left, self._burst)
        try:
            return self._decompressor.packet(packed, size)
        except DecodeError as error:
            raise Violation(ErrorCode.BAD_COMPRESSION, str(error)) from None

    def take(self) -> bytes:
        """Take received bytes of the payload, at most a piece.

        Raises `Truncated` if there is nothing, and `Violation`.
        """
        if self._unpacks:
            return self._unpack()
        size = min(self._inbox.size, self._left, self.piece_size_max)
        if self._left and not size:
            raise Truncated(0)
        self._left -= size
        self.open = self._left > 0
        return self._inbox.take(size)

    def _unpack(self) -> bytes:
        decompressor = self._decompressor
        assert decompressor is not None
        readable = min(self._left, self.piece_size_max)
        unread = min(readable, self._inbox.size)
        if self._left and not unread and not decompressor.pending:
            raise Truncated(0)
        room = self._room(unread)
        if not room and decompressor.remaining:
            if unread < readable:
                raise Truncated(0)  # more of it may be made when more of it has come
            raise Violation(ErrorCode.INFLATION, f"more than the next {readable} bytes allow")
        if room < self.piece_size_max and decompressor.pending:
            unread = 0  # which lets a copy go on, and is read after it
        try:
            with self._inbox.view()[:unread] as packed:
                data, read = decompressor.decode(packed, 0, min(room, self.piece_size_max))
            self._inbox.consume(read)
            self._left -= read
            self._allowance += self._factor * read - len(data)
            if not self._left and not decompressor.pending:
                decompressor.finish()
                self._allowance = min(self._allowance, self._burst)
                self.open = False
        except DecodeError as error:
            raise Violation(ErrorCode.BAD_COMPRESSION, str(error)) from None
        return data


def _too_much(size: int, packed_size: int) -> Violation:
    return Violation(ErrorCode.INFLATION, f"{size} bytes of {packed_size}")


class RunVerifier(NamedTuple):
    """Has the signatures of runs of at most `count_max` entries verified (`culm.signatures`)."""

    count_max: int
    ask: Ask


@dataclass(slots=True)
class _ReadRun:
    """A run that has been read, and whose signatures have yet to be verified.

    read_for: everything on which it depends, besides the bytes.
    records: the kernel's result.
    made: the entries of the first of them, up to the size of one run.
    """

    read_for: tuple[LogKey, EntryRun, dict[int, bytes]]
    records: Sequence[tuple[Any, ...]]
    made: Sequence[Entry]
    asked: bool = False
    verdicts: list[bool] | None = None

    def ask(self, verifier: RunVerifier) -> None:
        self.asked = True
        verifier.ask(tuple(signatures_of(self.made)), self._take)

    def _take(self, verdicts: list[bool]) -> None:
        self.verdicts = verdicts


class RunReader:
    """Takes runs from the `inbox` of the data channel.

    verifier: verifies signatures in place of the reader.

    A fault in the payload after a run is remembered if reading it again would not show it, because
    it has been unpacked already.
    """

    __slots__ = ("_body", "_count_max", "_family", "_inbox", "_run", "_verifier", "fault")

    def __init__(
        self,
        inbox: ReceiveBuffer,
        body: PayloadBody,
        *,
        family: HashFamily,
        verifier: RunVerifier | None,
    ) -> None:
        self.fault: tuple[Violation, int] | None = None
        """The fault in the entry after the last run, and the size of that in bytes."""
        self._count_max = _COUNT_MIN  # how many entries are read at a time
        self._inbox = inbox
        self._body = body
        self._family = family
        self._verifier = verifier
        self._run: _ReadRun | None = None  # whose signatures others verify

    @property
    def waits(self) -> bool:
        """Whether signatures of the next run await the verdicts of others."""
        return self._run is not None and self._run.verdicts is None

    @property
    def gathers(self) -> bool:
        """Whether more may go with that run: its verdicts have not been asked for yet."""
        return self._run is not None and not self._run.asked

    def ask(self) -> bool:
        """Ask for verdicts on all of the run that has come; whether there was anything to ask."""
        if self._run is None or self._run.asked or self._verifier is None:
            return False
        count_max = min(self._count_max, self._verifier.count_max)
        self._run = self._read(*self._run.read_for, count_max)
        self._run.ask(self._verifier)
        return True

    def forget(self) -> None:
        self._run = None

    def check(self, *, discarding: bool) -> None:
        """Raise the fault after the last run, unless its request is `discarding` by now."""
        if self.fault is None:
            return
        (violation, size), self.fault = self.fault, None
        history_is_good = violation.code is ErrorCode.INVALID_DATA
        if not discarding or (self._body.wanted and not history_is_good):
            raise violation
        self._inbox.consume(size)

    def take(self, log: LogKey, incoming: Incoming) -> tuple[NewEntry, ...]:
        """Take the received entries of a run, verified.

        There are none if it does not begin with one, or has to wait (`waits`).
        """
        run, self._run = self._run, None
        due = incoming.run_due()
        if due is None:
            return ()
        links = {**incoming.other.links, **incoming.links}
        if run is None or run.read_for != (log, due, links):
            # Where others verify, all that has come by then is read when they are asked.
            count_max = self._count_max if self._verifier is None else 1
            run = self._read(log, due, links, count_max)
        if run.verdicts is None and self._verifier is not None and run.made:
            self._run = run
            return ()
        records = run.records
        entries, violation = self._verified(run)
        if len(entries) < len(records):
            self._count_max = max(_COUNT_MIN, 2 * len(entries))
        elif len(records) == self._count_max:
            self._count_max *= 2
        end = records[len(entries) - 1][-1] if entries else 0
        if violation is not None:
            self.fault = violation, records[len(entries)][-1] - end
        if entries:
            self._inbox.consume(end)
            incoming.take_run({read[0]: read[7] for read in records[: len(entries)]})
        return tuple(entries)

    def _read(
        self, log: LogKey, due: EntryRun, links: dict[int, bytes], count_max: int
    ) -> _ReadRun:
        author, log_id = log
        records = kernel.read(
            self._inbox.peek(_RUN_SIZE_MAX),
            author + varu64.encode(log_id),
            due.seqnum,
            min(due.count_max, count_max),
            due.size_min,
            min(due.size_max, self._body.piece_size_max),
            links,
            self._family.prefix,
            self._family.encoded_size,
            self._family.hash,
        )
        # Records beyond the size of one run are left for the next: none is verified twice.
        sizes = accumulate((read[3] for read in records), initial=0)
        taken = [
            read for read, before in zip(records, sizes, strict=False) if before <= _RUN_SIZE_MAX
        ]
        made = [assemble(self._family, log, False, *read[:8]) for read in taken]
        return _ReadRun((log, due, links), records, made)

    def _verified(self, run: _ReadRun) -> tuple[list[NewEntry], Violation | None]:
        """The entries of a run up to the first that has a fault.

        Also returns the fault, if it is in a payload that has been unpacked.
        """
        family = self._family
        entries: list[NewEntry] = []
        verdicts = signatures_are_valid(run.made) if run.verdicts is None else run.verdicts
        for entry, signed, read in zip(run.made, verdicts, run.records, strict=False):
            payload, compressed = read[8:10]
            if not signed:
                break
            if compressed:
                if not self._body.can_unpack:
                    break
                try:
                    payload = self._body.unpack(payload, entry.payload_size)
                except Violation as violation:
                    return entries, violation
            if family.hash(payload) != entry.payload_hash:
                if compressed:
                    why = f"payload of entry {entry.seqnum}"
                    return entries, Violation(ErrorCode.INVALID_DATA, why)
                break
            entries.append(NewEntry(entry, payload))
        return entries, None
