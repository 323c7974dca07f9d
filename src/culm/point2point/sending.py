"""The data channel, outgoing: the current request, packets, compression."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from culm.bamboo.entry import Entry, verify_signature
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.bamboo.store import StoredEntry
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer, Outbox
from culm.bymux import Stream
from culm.point2point.data_codec import PacketType
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import SkipReason
from culm.point2point.inflation import INFLATION_FACTOR, padding
from culm.point2point.limits import Limits
from culm.point2point.pieces import Part
from culm.point2point.runs import write_run
from culm.point2point.setup import Mode, Session
from culm.point2point.states import Input
from culm.point2point.track import Track
from culm.wire import varu64
from culm.wire.lzfoo import Compressor
from culm.wire.multihash import HashFamily

if TYPE_CHECKING:
    from culm.point2point.request import Request

__all__ = ["DataSender"]

# Compressing is tried for fewer and fewer packets while it does not pay: after each
# failure twice as many packets go out raw, up to this many.
_RAW_RUN_MAX = 32

# Packets smaller than this are not worth an attempt.
_COMPRESS_SIZE_MIN = 32

_ENCODE = varu64.encode


class DataSender:
    """What we have put on the data channel, of which some may wait in `stream`.

    Methods raise `Violation` before anything has changed.
    """

    def __init__(
        self, stream: Stream, *, family: HashFamily, limits: Limits, trust_caller: bool
    ) -> None:
        self.outbox = Outbox()
        self.queued_total = 0  # bytes ever put on the channel
        self._family = family
        self._packet_size_max = limits.packet_size_max
        self._trust_caller = trust_caller
        self._stream = stream
        self._current: Request | None = None
        self._only_switch = False  # the current request was cancelled
        # Where cancellation markers are that may not have left: such as follow each other in one.
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

    def waits(self) -> bool:
        """Whether there is something that the peer has not taken."""
        return self.flushed_total() < self.queued_total

    def flushed_total(self) -> int:
        """Bytes that nothing can overtake any more."""
        return self.queued_total - self.outbox.size - self._stream.unsent_size

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

    def metadata(self, request: Request, entry: Entry) -> None:
        """Send the metadata of `entry`."""
        self._check_entry(entry)
        self._permit(request)
        track = request.outgoing
        piece = track.check_metadata()
        if entry.seqnum != piece.seqnum or entry.log != request.proposal.log:
            raise Violation(
                ErrorCode.PIECE_OUT_OF_TURN,
                f"metadata of entry {entry.seqnum} although {piece.seqnum} is due",
            )
        if self._checks and not _verifies(entry, track):
            raise Violation(ErrorCode.INVALID_DATA, f"metadata of entry {entry.seqnum}")
        self._switch(request)
        self._put(
            b"".join(
                (
                    b"\x81" if entry.end_of_log else b"\x80",
                    _backlink_to_send(entry, track),
                    _ENCODE(entry.payload_size),
                    entry.payload_hash,
                    entry.signature,
                )
            )
        )
        track.take_metadata(entry)

    def payload(
        self, request: Request, data: Buffer, *, entry: Entry | None, compress: bool
    ) -> bool:
        """Send payload bytes in packets of at most the size of our limit."""
        self._permit(request)
        track, view = request.outgoing, memoryview(data).cast("B")
        self._know(request, entry, lambda: self._check_payload(track, view))
        self._switch(request)
        size_max = self._packet_size_max
        for start in range(0, len(view) or 1, size_max):
            part = view[start : start + size_max] if len(view) > size_max else view
            packed = self._compressed(part) if compress else None
            if packed is None:
                self._put(b"\x08" + _ENCODE(len(part)))
                self._put(part)
            else:
                self._put(b"\x09" + _ENCODE(len(part)) + _ENCODE(len(packed)) + packed)
        if not self._is_safe:
            return self._take_greedily(track, view)
        if self._checks and _ended_by(track, len(view)) is None:
            _hash(track, view)
        return track.take_payload(len(view))

    def entries(self, request: Request, stored: Iterable[StoredEntry]) -> int:
        """Send the first of `stored` with their payloads, about a packet's worth of them.

        Returns how many; none where each piece has to be dealt with by itself.
        """
        self._permit(request)
        if not (self._is_safe and self._trust_caller):
            return 0
        packets, hashes = write_run(
            request,
            stored,
            compress=self._compressed,
            family=self._family,
            size_max=self._packet_size_max,
        )
        if hashes:
            self._switch(request)
            self._put(packets)
            request.outgoing.take_entries(hashes)
        return len(hashes)

    def _check_payload(self, track: Track, data: memoryview) -> None:
        """The payload that `data` ends is right, if that is for us to see to."""
        track.check_payload(len(data))
        entry = _ended_by(track, len(data)) if self._checks else None
        if entry is None:
            return
        if track.cursor.offset == 0:
            verifier: PayloadVerifier | None = PayloadVerifier(entry)
        else:  # nothing is known of a payload that did not begin here
            verifier = track.verifier and track.verifier.copy()
        if verifier is not None:
            verifier.update(data)
            if verifier.fault() is not None:
                raise Violation(ErrorCode.INVALID_DATA, f"payload of entry {entry.seqnum}")

    def _take_greedily(self, track: Track, data: Buffer) -> bool:
        """The caller may find out that `data` is wrong; but it may turn out to be right."""
        verifier = _hash(track, data)
        finished = track.take_payload(len(data))
        if finished and verifier is not None:
            track.apology_owed = verifier.fault() is not None
            if not track.apology_owed:
                track.last = None  # it is valid
        return finished

    def notify(self, request: Request, count: int) -> None:
        """Pass over `count` pieces."""
        self._permit(request)
        request.outgoing.check_notify(count)
        packet = b"\x02" if count == 1 else b"\x03" + _ENCODE(count)
        self._switch(request)
        self._put(packet)
        request.outgoing.notify(count)

    def skip(self, request: Request, reason: SkipReason) -> None:
        """Pass over a payload."""
        self._permit(request)
        request.outgoing.check_skip(reason)
        self._switch(request)
        self._put(bytes([reason.value]))
        request.outgoing.notify(1)

    def jump(self, request: Request, size: int, *, entry: Entry | None) -> None:
        """Pass over bytes of a payload."""
        self._permit(request)
        track = request.outgoing
        self._know(request, entry, lambda: track.check_jump(size))
        self._switch(request)
        self._put(b"\x07" + _ENCODE(size))
        track.jump(size)

    def apologize(self, request: Request) -> None:
        """Take back the last piece, which was invalid."""
        self._permit(request)
        if self._is_safe:
            raise Violation(ErrorCode.APOLOGY_IN_SAFE_MODE)
        track = request.outgoing
        pieces = track.check_apology()
        if pieces[0].part is Part.METADATA and _is_valid(track):
            raise Violation(ErrorCode.APOLOGY_FOR_VALID_DATA, f"for {pieces[0]}")
        self._switch(request)
        self._put(bytes([PacketType.APOLOGY]))
        track.remember_place()
        track.apologize()

    def mark_cancelled(self, request: Request) -> None:
        """Confirm a cancellation on the data channel; no data of the request follows."""
        start = self.queued_total
        if self._only_switch:
            self._switch(request)
        self._queue(b"\x20" + _ENCODE(request.request_id))
        self._markers_size += self.queued_total - start
        if self._markers and self._markers[-1][1] == start:
            start, _ = self._markers.pop()
        self._markers.append((start, self.queued_total))
        self._only_switch = self._current is request
        self.forget(request)

    def forget(self, request: Request) -> None:
        """The request has ended or is about to."""
        if self._current is request:
            self._current = None

    @property
    def _is_safe(self) -> bool:
        return self._session is None or self._session.send_mode is Mode.SAFE

    @property
    def _checks(self) -> bool:
        """Whether what is sent has to be verified first."""
        return self._is_safe and not self._trust_caller

    def _check_entry(self, entry: Entry) -> None:
        if not isinstance(entry, Entry) or entry.family is not self._family:
            raise TypeError(f"no entry of {self._family}: {type(entry).__name__}")

    def _permit(self, request: Request) -> None:
        request.move(Input.SEND)

    def _know(self, request: Request, entry: Entry | None, check: Callable[[], None]) -> None:
        """Take the entry whose payload is due from the caller, unless `check` raises then."""
        if entry is not None:
            self._check_entry(entry)
        known, piece = request.outgoing.entry, request.outgoing.cursor.piece
        if entry is not None and piece is not None and piece.part is Part.PAYLOAD:
            if entry.seqnum != piece.seqnum or entry.log != request.proposal.log:
                raise Violation(
                    ErrorCode.PIECE_OUT_OF_TURN,
                    f"payload of entry {entry.seqnum} although {piece.seqnum} is due",
                )
            request.outgoing.entry = entry
        try:
            check()
        except Violation:
            request.outgoing.entry = known
            raise

    def _switch(self, request: Request) -> None:
        if self._current is not request:
            self._current, self._only_switch = request, False
            self._put(b"\0" + _ENCODE(request.request_id))

    def _compressed(self, data: Buffer) -> bytes | None:
        """`data` compressed, if that is smaller; it has entered the history then."""
        if self._compressor is None or len(data) < _COMPRESS_SIZE_MIN:
            return None
        if self._raw_left:
            self._raw_left -= 1
            return None
        packed = self._compressor.compress(data, len(data) - len(data) // 64 - 1)
        if packed is None:
            self._raw_run = min(2 * self._raw_run + 1, _RAW_RUN_MAX)
            self._raw_left = self._raw_run
            return None
        self._raw_run = 0
        if len(packed) * INFLATION_FACTOR < len(data):
            packed = padding(len(data), len(packed)) + packed
        return packed

    def _put(self, data: Buffer) -> None:
        """Queue data of the current request."""
        self._queue(data)
        assert self._current is not None
        self._current.sent_until = self.queued_total

    def _queue(self, data: Buffer) -> None:
        self.outbox.append(data)
        self.queued_total += len(data)


def _ended_by(track: Track, size: int) -> Entry | None:
    """The entry whose payload is complete with `size` more bytes, if it is."""
    entry = track.payload_entry()
    if entry is None or track.cursor.offset + size < entry.payload_size:
        return None
    return entry


def _hash(track: Track, data: Buffer) -> PayloadVerifier | None:
    """Hash the next bytes of a payload that began here."""
    entry = track.payload_entry()
    if entry is not None and track.cursor.offset == 0:
        track.verifier = PayloadVerifier(entry)
    if track.verifier is not None:
        track.verifier.update(data)
    return track.verifier


def _backlink_to_send(entry: Entry, track: Track) -> bytes:
    """The backlink, unless there is none to send because the peer can tell it."""
    before = entry.seqnum - 1
    if entry.backlink is None or not has_lipmaalink(entry.seqnum):
        return b""
    known = before in track.metadata or before in track.other.metadata
    return b"" if known else entry.backlink


def _links_left_out(entry: Entry, track: Track) -> list[tuple[int, bytes]]:
    """The links, and their targets, that the peer has to know or to ask for."""
    links = [(lipmaa(entry.seqnum), entry.lipmaalink)]
    if not _backlink_to_send(entry, track):
        links.append((entry.seqnum - 1, entry.backlink))
    return [(target, link) for target, link in links if link is not None]


def _verifies(entry: Entry, track: Track) -> bool:
    """Whether the metadata of `entry` verifies with the links that the request tells."""
    left_out = _links_left_out(entry, track)
    told = all(track.link(target) in (None, link) for target, link in left_out)
    return told and verify_signature(entry)


def _is_valid(track: Track) -> bool:
    """Whether the peer will find the metadata valid that was sent last.

    Links that were left out are those that it knows; a backlink that was sent proves itself.
    """
    assert track.last is not None
    entry = track.last.entry
    left_out = _links_left_out(entry, track)
    told = all(track.link(target) == link for target, link in left_out)
    return told and verify_signature(entry)
