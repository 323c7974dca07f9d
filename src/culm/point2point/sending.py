"""The data channel, outgoing: the current request, packets, compression."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from culm.bamboo.entry import Entry, verify_signature
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.bamboo.store import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer, Outbox
from culm.bymux import Stream
from culm.point2point.data_codec import PacketType
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.limits import INFLATION_FACTOR, Limits
from culm.point2point.pieces import Part, Piece
from culm.point2point.requests import RequestRecord
from culm.point2point.runs import write_run
from culm.point2point.setup import Mode, Session
from culm.point2point.states import Input
from culm.wire import varu64
from culm.wire.lzfoo import Compressor
from culm.wire.multihash import HashFamily

__all__ = ["DataSender"]

# Compressing is tried for fewer and fewer packets while it does not pay: after each
# failure twice as many packets go out raw, up to this many.
_RAW_RUN_MAX = 32

# Packets smaller than this are not worth an attempt.
_COMPRESS_SIZE_MIN = 32

_ENCODE = varu64.encode


class DataSender:
    """What we have put on the data channel; some of it may still wait in `stream`.

    Methods raise `Violation` before anything has changed.
    """

    def __init__(
        self, stream: Stream, *, family: HashFamily, limits: Limits, trust_caller: bool
    ) -> None:
        self.queued_total = 0
        """Bytes ever put on the channel."""
        self._outbox = Outbox()
        self._family = family
        self._packet_size_max = limits.packet_size_max
        self._trust_caller = trust_caller
        self._stream = stream
        self._current: RequestRecord | None = None
        self._only_switch = False  # the current request was cancelled
        # Where cancellation markers are that may not have left; adjacent ones are joined.
        self._markers: deque[tuple[int, int]] = deque()
        self._markers_size = 0
        self._session: Session | None = None
        self._compressor: Compressor | None = None
        self._raw_run = 0
        self._raw_left = 0

    def establish(self, session: Session) -> None:
        """The modes are known from now on."""
        self._session = session
        if session.compression_window:
            self._compressor = Compressor(session.compression_window)

    @property
    def current_id(self) -> int | None:
        """The request that data is for unless we switch to another."""
        return None if self._current is None else self._current.request_id

    # What waits.

    @property
    def unsent_size(self) -> int:
        """Bytes that have not left, or wait for the peer's credit."""
        return self._outbox.size + self._stream.unsent_size

    def waits(self) -> bool:
        """Whether there is something that the peer has not taken."""
        return self.unsent_size > 0

    def flushed_total(self) -> int:
        """Bytes that nothing can overtake."""
        return self.queued_total - self.unsent_size

    def unsent_markers_size(self) -> int:
        """Bytes of cancellation markers that have not left yet."""
        if not self._markers:
            return 0
        flushed = self.flushed_total()
        while self._markers and self._markers[0][1] <= flushed:
            start, end = self._markers.popleft()
            self._markers_size -= end - start
        gone = flushed - self._markers[0][0] if self._markers else 0
        return self._markers_size - max(0, gone)

    def feed(self, size_max: int | None) -> None:
        """Let about `size_max` bytes into the stream, where only control data overtakes them."""
        for piece in self._outbox.take_pieces(size_max):
            self._stream.send_data(piece)

    def drop_unsent(self) -> None:
        """The peer accepts nothing more."""
        self._outbox.clear()

    # Metadata.

    def metadata(self, record: RequestRecord, entry: Entry) -> None:
        """Send the metadata of `entry`."""
        self._check_entry(entry)
        record.move(Input.SEND)
        possible = record.outgoing.check_metadata()
        _check_due(entry, record, possible.piece)
        if self._checks and not _is_valid(entry, record, unknown_links=True):
            raise Violation(ErrorCode.INVALID_DATA, f"metadata of entry {entry.seqnum}")
        packet = (
            b"\x81" if entry.end_of_log else b"\x80",
            _backlink_to_send(entry, record),
            _ENCODE(entry.payload_size),
            entry.payload_hash,
            entry.signature,
        )
        self._put(record, b"".join(packet))
        record.outgoing.take_metadata(possible, entry)

    # Payloads.

    def payload(
        self, record: RequestRecord, data: Buffer, *, entry: Entry | None, compress: bool
    ) -> bool:
        """Send payload bytes in packets of at most the size of our limit."""
        record.move(Input.SEND)
        outgoing, view = record.outgoing, memoryview(data).cast("B")
        given = self._given(record, entry)
        possible = outgoing.check_payload(len(view), given)
        hashed = not self._trust_caller or not self._is_safe
        if self._checks:
            due = outgoing.payload_entry(given)
            assert due is not None
            if outgoing.cursor.offset + len(view) == due.payload_size:
                self._check_payload(record, due, view)
                hashed = False  # it has been
        self._put(record, *self._payload_packets(view, compress=compress))
        outgoing.begin_payload(possible, given)
        return outgoing.take_payload(view, hashed=hashed)[0]

    def _payload_packets(self, data: memoryview, *, compress: bool) -> Iterable[Buffer]:
        size_max = self._packet_size_max
        for start in range(0, len(data) or 1, size_max):
            part = data[start : start + size_max] if len(data) > size_max else data
            packed = self._compressed(part) if compress else None
            if packed is None:
                yield b"\x08" + _ENCODE(len(part))
                yield part
            else:
                yield b"\x09" + _ENCODE(len(part)) + _ENCODE(len(packed)) + packed

    def _check_payload(self, record: RequestRecord, entry: Entry, data: memoryview) -> None:
        """The payload of `entry`, which ends with `data`, is right."""
        outgoing = record.outgoing
        if outgoing.cursor.offset == 0:
            verifier: PayloadVerifier | None = PayloadVerifier(entry)
        else:  # nothing is known of a payload whose beginning was not sent here
            verifier = outgoing.verifier and outgoing.verifier.copy()
        if verifier is not None:
            verifier.update(data)
            if verifier.fault() is not None:
                raise Violation(ErrorCode.INVALID_DATA, f"payload of entry {entry.seqnum}")

    def _given(self, record: RequestRecord, entry: Entry | None) -> Entry | None:
        """What the caller says of the entry whose payload is due."""
        if entry is None:
            return None
        self._check_entry(entry)
        piece = record.outgoing.cursor.piece
        if piece is None or piece.part is Part.METADATA:
            return None
        _check_due(entry, record, piece)
        return entry

    def jump(self, record: RequestRecord, size: int, *, entry: Entry | None) -> None:
        """Pass over bytes of a payload."""
        record.move(Input.SEND)
        given = self._given(record, entry)
        possible = record.outgoing.check_jump(size, given)
        self._put(record, b"\x07" + _ENCODE(size))
        record.outgoing.jump(possible, size, given)

    # Runs of entries.

    def entries(self, record: RequestRecord, stored: Iterable[StoredEntry]) -> int:
        """Send the first of `stored` with their payloads, about a packet's worth of them.

        Returns how many; none where each piece has to be dealt with by itself.
        """
        record.move(Input.SEND)
        if not (self._is_safe and self._trust_caller):
            return 0
        packets, hashes = write_run(
            record,
            stored,
            compress=self._compressed,
            family=self._family,
            size_max=self._packet_size_max,
        )
        if hashes:
            self._put(record, packets)
            record.outgoing.take_run(hashes)
        return len(hashes)

    # What is not sent, or taken back.

    def notify(self, record: RequestRecord, count: int) -> None:
        """Pass over `count` pieces."""
        record.move(Input.SEND)
        possible = record.outgoing.check_notify(count)
        self._put(record, b"\x02" if count == 1 else b"\x03" + _ENCODE(count))
        record.outgoing.pass_over(possible, count)

    def skip(self, record: RequestRecord, reason: SkipReason) -> None:
        """Pass over a payload."""
        record.move(Input.SEND)
        possible = record.outgoing.check_skip(reason)
        self._put(record, bytes([reason.value]))
        record.outgoing.pass_over(possible, 1)

    def apologize(self, record: RequestRecord) -> None:
        """Take back the last piece, which was invalid."""
        record.move(Input.SEND)
        if self._is_safe:
            raise Violation(ErrorCode.APOLOGY_IN_SAFE_MODE)
        pieces = record.outgoing.check_apology()
        last = record.outgoing.last
        if pieces[0].part is Part.METADATA and last and _is_valid(last.entry, record):
            raise Violation(ErrorCode.APOLOGY_FOR_VALID_DATA, f"for {pieces[0]}")
        self._put(record, bytes([PacketType.APOLOGY]))
        record.outgoing.apologize(pieces)

    def mark_cancelled(self, record: RequestRecord) -> None:
        """Confirm a cancellation on the data channel; no data of the request follows."""
        start = self.queued_total
        if self._only_switch:
            self._switch(record)
        self._queue(b"\x20" + _ENCODE(record.request_id))
        self._markers_size += self.queued_total - start
        if self._markers and self._markers[-1][1] == start:
            start, _ = self._markers.pop()
        self._markers.append((start, self.queued_total))
        self._only_switch = self._current is record
        if self._only_switch:
            self._current = None

    @property
    def _is_safe(self) -> bool:
        return self._session is None or self._session.send_mode is Mode.SAFE

    @property
    def _checks(self) -> bool:
        """Whether what is sent has to be verified first."""
        return self._is_safe and not self._trust_caller

    def _check_entry(self, entry: object) -> None:
        if not isinstance(entry, Entry) or entry.family is not self._family:
            raise TypeError(f"no entry of {self._family}: {type(entry).__name__}")

    # Bytes.

    def _put(self, record: RequestRecord, *pieces: Buffer) -> None:
        """Queue data of a request, and make it the current one."""
        if self._current is not record:
            self._switch(record)
        for piece in pieces:
            self._queue(piece)
        record.outgoing.queued(self.queued_total)

    def _switch(self, record: RequestRecord) -> None:
        self._current, self._only_switch = record, False
        self._queue(b"\0" + _ENCODE(record.request_id))

    def _queue(self, data: Buffer) -> None:
        self._outbox.append(data)
        self.queued_total += len(data)

    def _compressed(self, data: Buffer) -> bytes | None:
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
        if len(packed) * INFLATION_FACTOR < size:
            packed = _padding(size, len(packed)) + packed
        return packed


def _padding(size: int, packed_size: int) -> bytes:
    """Elements of length zero to go before a packet of `size` bytes that is packed too well."""
    return bytes(max(0, -(-size // INFLATION_FACTOR) - packed_size))


def _backlink_to_send(entry: Entry, record: RequestRecord) -> bytes:
    """The backlink, unless there is none to send because the peer can tell it."""
    if entry.backlink is None or not has_lipmaalink(entry.seqnum):
        return b""
    return b"" if record.outgoing.tells_metadata(entry.seqnum - 1) else entry.backlink


def _check_due(entry: Entry, record: RequestRecord, piece: Piece) -> None:
    """It is that entry of which `piece` is due."""
    if entry.seqnum != piece.seqnum or entry.log != record.proposal.log:
        part = piece.part.name.lower()
        raise Violation(
            ErrorCode.PIECE_OUT_OF_TURN,
            f"{part} of entry {entry.seqnum} although {piece.seqnum} is due",
        )


def _is_valid(entry: Entry, record: RequestRecord, *, unknown_links: bool = False) -> bool:
    """Whether the peer will find the metadata of `entry` valid.

    Links that are left out must be those that the request contains or, if there may be
    `unknown_links`, unknown to it: then the peer has them, or asks.  A backlink that is sent proves
    itself.
    """
    left_out = [(lipmaa(entry.seqnum), entry.lipmaalink)]
    if not _backlink_to_send(entry, record):
        left_out.append((entry.seqnum - 1, entry.backlink))
    for target, link in left_out:
        told = record.outgoing.link(target)
        if link is not None and told != link and not (unknown_links and told is None):
            return False
    return verify_signature(entry)
