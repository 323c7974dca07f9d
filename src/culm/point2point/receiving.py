"""The data channel, incoming: packets, their checks, and what they bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm.bamboo.verify import PayloadVerifier
from culm.buffer import ReceiveBuffer
from culm.machine import Event
from culm.point2point.data_codec import NUMBERS, PacketType, decode_metadata, metadata_size_max
from culm.point2point.errors import ErrorCode, Violation
from culm.point2point.events import (
    Apologized,
    EntriesReceived,
    EntryWanted,
    ForkSuspected,
    GivenUp,
    HashWanted,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
    SkipReason,
)
from culm.point2point.limits import Limits
from culm.point2point.payload_body import PayloadBody
from culm.point2point.rebuild import HashMissing, rebuild_one
from culm.point2point.runs import RunReader
from culm.point2point.setup import Mode, Session
from culm.point2point.states import Input, RequestState
from culm.point2point.views import Strained
from culm.wire import varu64
from culm.wire.errors import Truncated
from culm.wire.multihash import HashFamily

if TYPE_CHECKING:
    from culm.point2point.control import ControlChannel
    from culm.point2point.request import Request

__all__ = ["DataReceiver"]

_SKIPS = {reason.value: reason for reason in SkipReason}
_PACKET_HEADER_SIZE_MAX = 1 + 2 * 9


class DataReceiver:
    """What the peer has put on the data channel.

    `step` raises `Violation`, always for the peer's mistakes.
    """

    control: ControlChannel  # set by the connection: the two channels know each other

    def __init__(self, *, family: HashFamily, limits: Limits, in_runs: bool) -> None:
        self.inbox = ReceiveBuffer()
        self._family = family
        self._safe = True
        self._current: Request | None = None
        self._only_switch = False  # the current request was cancelled
        self.waiting: Request | None = None  # its caller owes an answer
        self._refused = False
        self._body = PayloadBody(self.inbox, limits=limits)
        self._runs = RunReader(self.inbox, self._body, family=family) if in_runs else None

    def establish(self, session: Session) -> None:
        """The modes are known from now on."""
        self._safe = session.receive_mode is Mode.SAFE
        self._body.establish(session.decompression_window)

    @property
    def inside(self) -> bool:
        """Whether the peer has begun a packet or a payload, and not finished it."""
        return self._in_packet or (self._current is not None and self.is_inside(self._current))

    @property
    def _in_packet(self) -> bool:
        return self.inbox.size > 0 or self._body.open

    def is_inside(self, request: Request) -> bool:
        """Whether the peer has begun a packet or a payload of that request, and not finished it."""
        if request.state is not RequestState.CONFIRMED:
            return False
        cursor = request.incoming.cursor
        in_payload = cursor.offset > cursor.start_of(cursor.piece)
        return in_payload or (self._in_packet and self._current is request)

    # What the caller and the control channel tell.

    def resume(self, request: Request) -> None:
        """The caller has answered, or does not need what it was asked for any more."""
        if self.waiting is request:
            self.waiting = None

    def refuse(self) -> None:
        """The caller found something wrong that only it can know."""
        self._refused = True

    def want_no_more(self) -> None:
        """Whatever still comes is of no use."""
        self._body.want_no_more()

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self.resume(request)
        if self._current is request:
            self._current = None

    # Packets.

    def step(self) -> Event | None:
        """Take packets until something has happened; ``None`` if more bytes are needed."""
        if self._refused:
            raise Violation(ErrorCode.INVALID_DATA, "refused by the caller")
        if self._runs is not None:
            self._runs.check()
        event: Event | None = None
        while event is None and self.waiting is None:
            try:
                if self._body.open:
                    event = self._bring(self._data_request(), self._body.take())
                elif self.inbox.size:
                    event = self._take_run() or self._take_packet()
                else:
                    return None
            except Truncated:
                return None
            except Strained:
                self.control.give_up(self._data_request(), GivenUp.UNTRACEABLE)
        return event

    def _take_run(self) -> Event | None:
        """Many entries at a time, if that is wanted and possible."""
        request = self._current
        if self._runs is None or request is None or self.inbox[0] != PacketType.METADATA:
            return None
        if not self._safe or request.discarding or request.state is not RequestState.CONFIRMED:
            return None
        entries = self._runs.take(request)
        if entries:
            return EntriesReceived(request_id=request.request_id, entries=entries)
        self._runs.check()
        return None

    def _take_packet(self) -> Event | None:
        first = self.inbox[0]
        if first >= PacketType.METADATA:
            return self._take_metadata(first)
        count = NUMBERS.get(first)
        if count is None:
            raise Violation(ErrorCode.UNUSED_DATA_BYTE, f"{first}")
        numbers, end = [0, 0], 1
        if count:
            header = self.inbox.peek(_PACKET_HEADER_SIZE_MAX)
            for index in range(count):
                numbers[index], end = varu64.decode(header, end)
        if first == PacketType.SWITCH:
            self._switch(numbers[0])
        elif first == PacketType.CANCELLED:
            self._take_marker(numbers[0])
        else:
            event = self._take_for_current(first, numbers)
            if self.waiting is None:
                self.inbox.consume(end)
            return event
        self.inbox.consume(end)
        return None

    def _switch(self, request_id: int) -> None:
        request = self.control.requests.get(request_id)
        if request is None and not self.control.was_dropped(request_id):
            raise Violation(ErrorCode.SWITCH_TO_UNKNOWN_REQUEST, f"{request_id}")
        if request is not None and request.marked_by_peer:
            raise Violation(ErrorCode.SWITCH_TO_UNKNOWN_REQUEST, f"{request_id} is cancelled")
        self._current, self._only_switch = request, False

    def _take_marker(self, request_id: int) -> None:
        if self._only_switch:
            raise Violation(ErrorCode.NO_CURRENT_REQUEST, f"marker for {request_id}")
        self._only_switch = self._current is not None and self._current.request_id == request_id
        if self._only_switch:
            self._current = None
        self.control.receive_marker(request_id)

    def _data_request(self) -> Request:
        """The request that data is for."""
        request = self._current
        if request is None:
            raise Violation(ErrorCode.NO_CURRENT_REQUEST)
        if request.state is not RequestState.CONFIRMED:
            request.move(Input.PEER_DATA)
            asked = request.incoming.views.demands
            answered = request.peer_demand or request.state is not RequestState.CANCELLED
            if not asked or not answered:
                raise Violation(ErrorCode.NOT_CONFIRMED, "and now cancelled")
        return request

    def _take_for_current(self, first: int, numbers: list[int]) -> Event | None:
        request = self._data_request()
        number = numbers[0]
        if request.discarding and first not in (PacketType.RAW, PacketType.COMPRESSED):
            return None
        match first:
            case PacketType.NOTIFY_ONE:
                return self._take_notification(request, 1)
            case PacketType.NOTIFY:
                return self._take_notification(request, number)
            case PacketType.JUMP:
                return self._take_jump(request, number)
            case PacketType.APOLOGY:
                return self._take_apology(request)
            case PacketType.RAW:
                return self._begin_payload(request, number, None)
            case PacketType.COMPRESSED:
                return self._begin_payload(request, number, numbers[1])
        request.incoming.check_skip(_SKIPS[first])
        request.verifier = None
        piece = request.incoming.notify(1)
        return PayloadSkipped(
            request_id=request.request_id, seqnum=piece.seqnum, reason=_SKIPS[first]
        )

    def _take_notification(self, request: Request, count: int) -> Event:
        request.incoming.check_notify(count)
        request.verifier = None
        piece = request.incoming.notify(count)
        return Notified(
            request_id=request.request_id, seqnum=piece.seqnum, part=piece.part, count=count
        )

    def _take_jump(self, request: Request, size: int) -> Event | None:
        wanted = self._want_entry(request)
        if wanted is not None:
            return wanted
        request.incoming.check_jump(size)
        request.verifier = None
        cursor = request.incoming.cursor
        assert cursor.piece is not None
        seqnum, offset = cursor.piece.seqnum, cursor.offset
        finished = request.incoming.jump(size)
        return PayloadReceived(
            request_id=request.request_id,
            seqnum=seqnum,
            offset=offset + size,
            data=b"",
            finished=finished,
        )

    def _take_apology(self, request: Request) -> Event:
        if self._safe:
            raise Violation(ErrorCode.APOLOGY_IN_SAFE_MODE)
        piece = request.incoming.check_apology()[0]
        request.incoming.apologize()
        request.verifier = None
        return Apologized(request_id=request.request_id, seqnum=piece.seqnum, part=piece.part)

    # Metadata.

    def _take_metadata(self, first: int) -> Event | None:
        if first > PacketType.METADATA_END_OF_LOG:
            raise Violation(ErrorCode.UNUSED_DATA_BYTE, f"{first}")
        metadata, size = decode_metadata(
            self.inbox.peek(metadata_size_max(self._family)), family=self._family
        )
        request = self._data_request()
        if request.discarding:
            self.inbox.consume(size)
            return None
        track = request.incoming
        track.check_metadata()
        try:
            entry, verified, linked = rebuild_one(request, metadata, family=self._family)
        except HashMissing as missing:
            self.waiting = request
            return HashWanted(request_id=request.request_id, seqnum=missing.seqnum)
        if not verified and self._safe:
            raise Violation(ErrorCode.INVALID_DATA, f"metadata of entry {entry.seqnum}")
        self.inbox.consume(size)
        request.verifier = None
        if not verified:
            track.take_invalid_metadata(entry)
        elif linked:
            track.take_metadata(entry)
            track.last = None  # it is valid
        else:
            request.discarding = True
            return ForkSuspected(request_id=request.request_id, entry=entry)
        return MetadataReceived(request_id=request.request_id, entry=entry, verified=verified)

    # Payloads.

    def _want_entry(self, request: Request) -> Event | None:
        """Ask for the entry whose payload is due, unless it is known."""
        seqnum = request.incoming.unknown_payload()
        if seqnum is None:
            return None
        self.waiting = request
        return EntryWanted(request_id=request.request_id, seqnum=seqnum)

    def _begin_payload(self, request: Request, size: int, packed_size: int | None) -> Event | None:
        if not request.discarding:
            wanted = self._want_entry(request)
            if wanted is not None:
                return wanted
            request.incoming.check_payload(size)
        self._body.begin(size, packed_size)
        return None

    def _bring(self, request: Request, data: bytes) -> Event | None:
        """Bytes of a payload have come (none: of an empty one)."""
        if request.discarding or not (data or self._body.is_empty):
            return None
        track = request.incoming
        cursor = track.cursor
        assert cursor.piece is not None
        seqnum, offset = cursor.piece.seqnum, cursor.offset
        if offset == 0:
            entry = track.payload_entry()
            assert entry is not None
            request.verifier = PayloadVerifier(entry)
        verifier = request.verifier
        if verifier is not None:
            verifier.update(data)
        finished = track.take_payload(len(data))
        verified = None
        if finished and verifier is not None:
            request.verifier = None
            verified = verifier.fault() is None
            if not verified and self._safe:
                raise Violation(ErrorCode.INVALID_DATA, f"payload of entry {seqnum}")
            track.apology_owed = not verified
            if verified:
                track.last = None
        return PayloadReceived(
            request_id=request.request_id,
            seqnum=seqnum,
            offset=offset,
            data=data,
            finished=finished,
            verified=verified,
        )
