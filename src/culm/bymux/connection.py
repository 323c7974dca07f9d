"""The machine."""

from __future__ import annotations

import sys
from typing import Final

from culm.arguments import check_int, check_type
from culm.buffer import Buffer, check_size_max, is_large
from culm.bymux.errors import ErrorCode
from culm.bymux.events import ConnectionEvent, StreamCreated, StreamData, StreamEnded
from culm.bymux.handles import Stream, Streams
from culm.bymux.initial import VANILLA, InitialState
from culm.bymux.limits import Limits
from culm.bymux.packets import Packet, PacketType, take_packet
from culm.bymux.scheduler import Scheduler
from culm.bymux.scope import GlobalScope
from culm.bymux.states import Role, State
from culm.bymux.stream import StreamScope
from culm.machine import Closed, LocalProtocolError, RemoteProtocolError, StreamBase

_DEFAULT_LIMITS: Final = Limits()


class Connection(StreamBase[ConnectionEvent]):
    """Many streams over one ordered, reliable, bidirectional stream of bytes.

    role
        Decides whose ids are even.
    limits
        Bounds on the memory that the peer can make this endpoint hold.
    initial
        The streams that exist from the beginning; the mirror image of the peer's
        (`InitialState.mirrored`).
    as_it_comes
        For an owner that uses data up at once and joins it itself: then a `StreamData` holds all
        complete pieces of a Write that have arrived, as a view where nothing has to be copied.
        They count as consumed, one after the other.

    Raises `ValueError` if `initial` has more streams than ``limits.streams_max``.

    The verbs raise `LocalProtocolError` if a rule forbids the packet that they stand
    for, or if the connection has ended (``ContractErrorCode.ALREADY_CLOSED``); nothing
    has changed then.
    """

    def __init__(
        self,
        *,
        role: Role,
        limits: Limits = _DEFAULT_LIMITS,
        initial: InitialState = VANILLA,
        as_it_comes: bool = False,
    ) -> None:
        check_type("role", role, Role)
        check_type("limits", limits, Limits)
        check_type("initial", initial, InitialState)
        if len(initial.streams) > limits.streams_max:
            raise ValueError(f"more than {limits.streams_max} streams in the initial state")
        super().__init__(receive_max=limits.receive_buffer_max)
        self._role = role
        self._limits = limits
        self._initial = initial
        self._as_it_comes = as_it_comes
        self._scheduler = Scheduler()
        self._global = GlobalScope(self._scheduler, initial=initial)
        self._scopes = {
            stream_id: StreamScope(
                stream_id,
                self._scheduler,
                send_credit=stream.send_credit,
                receive_credit=stream.receive_credit,
                urgent=stream.urgent,
            )
            for stream_id, stream in initial.streams.items()
        }
        self._next_id = int(role)  # no lower id of ours is free
        self._incoming: StreamScope | None = None  # of the Write whose data is coming in
        self._incoming_size = 0  # bytes of it that have not come up
        self._ending: StreamScope | None = None  # whose end is the next event

    @property
    def role(self) -> Role:
        return self._role

    @property
    def state(self) -> State:
        if self._closed is not None:
            return State.CLOSED if self._closed.error is None else State.FAILED
        if self._closing:
            return State.CLOSING
        return State.SETTLED if self._global.settled else State.OPEN

    @property
    def creation_credit(self) -> int:
        """The number of streams that we may create."""
        return self._global.local_credit

    @property
    def remote_creation_credit(self) -> int:
        """The number of streams that the peer may create."""
        return self._global.remote_credit

    @property
    def streams(self) -> Streams:
        """The live streams, by id."""
        return Streams(self._scopes)

    def stream(self, stream_id: int) -> Stream:
        """Return a handle; raises `LocalProtocolError` (``UNKNOWN_STREAM``)."""
        scope = self._scopes.get(stream_id)
        if scope is None:
            raise LocalProtocolError(ErrorCode.UNKNOWN_STREAM, f"stream {stream_id}")
        return Stream(scope)

    def create_stream(self, stream_id: int | None = None) -> Stream:
        """Create a stream, by default with the smallest free id of our parity.

        Costs one creation credit.  Raises `ValueError` for an id that is not a 64-bit
        unsigned int.
        """
        if stream_id is not None:
            check_int("stream id", stream_id)
        self._global.permit_creation()
        if len(self._scopes) >= self._limits.streams_max:
            raise LocalProtocolError(ErrorCode.STREAMS_LIMIT, f"{len(self._scopes)} streams")
        if stream_id is None:
            stream_id = self._free_id()
        else:
            code = self._unfit(stream_id, self._role)
            if code is not None:
                raise LocalProtocolError(code, f"stream {stream_id}")
        scope = StreamScope(
            stream_id,
            self._scheduler,
            send_credit=self._initial.local_creator_credit,
            receive_credit=0,
        )
        self._scopes[stream_id] = scope
        self._global.create(scope)
        return Stream(scope)

    def grant_streams(self, count: int) -> None:
        """Let the peer create `count` more streams.

        `Limits.streams_max` still applies: a peer that has more alive at once is cut off.  Raises
        `ValueError` for less than 1.
        """
        check_int("count", count, 1)
        self._global.grant(count)

    def ping(self) -> None:
        """Ask for a global `PongReceived`."""
        self._global.send(PacketType.PING)

    def stop_creating(self) -> None:
        """Send a global Close: we create no more streams."""
        self._global.send(PacketType.CLOSE)

    def stop_accepting(self) -> None:
        """Send a global StopRead: we grant no more creations.

        The peer may still use up the credit that it has.
        """
        self._global.send(PacketType.STOP_READ)

    @property
    def inside(self) -> bool:
        """Whether part of a packet has come; meaningful when there are no more events."""
        return self._incoming is not None or bool(self._inbox.size)

    def read_size(self) -> int:
        if self._scheduler.answers > self._limits.answers_max:
            return 0
        return super().read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        check_size_max(size_max)
        self._fill(size_max)
        return self._outbox.take_part(size_max)

    def pieces_to_send(self, size_max: int | None = None) -> list[Buffer]:
        """Like `data_to_send`, for an owner that joins them with others: nothing is copied.

        Ends with a large piece, if there is one and not all is asked for.
        """
        self._fill(size_max)
        return self._outbox.take_pieces(size_max)

    def _fill(self, size_max: int | None) -> None:
        """Move whole packets to the outbox until it holds `size_max` bytes, or a large piece."""
        scheduler, outbox = self._scheduler, self._outbox
        size = sys.maxsize if size_max is None else size_max
        while (room := size - outbox.size) > 0:
            if scheduler.control:
                outbox.append(scheduler.take_control(room))
            elif (stream_id := scheduler.take_turn()) is not None:
                pieces = self._scopes[stream_id].take_write(self._limits.write_size_max)
                for piece in pieces:
                    outbox.append(piece)
                if size_max is not None and is_large(pieces[-1]):
                    return
            else:
                return

    def _goodbye(self) -> None:
        self._global.end()
        for scope in self._scopes.values():
            scope.end()

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._scheduler.close()
        self._scopes.clear()

    def _step(self) -> ConnectionEvent | None:
        if self._ending is not None:
            return self._forget(self._ending)
        while True:
            if not self._scopes and self._global.ended:
                return Closed()
            if self._incoming is not None:
                return self._take_piece(self._incoming)
            packet = take_packet(self._inbox)
            if packet is None:
                return None
            event = self._receive(packet)
            if event is not None:
                return event

    def partial_size(self, stream_id: int) -> int:
        """Bytes of a Write to that stream that have come and wait for the rest of their piece."""
        incoming = self._incoming
        return 0 if incoming is None or incoming.stream_id != stream_id else self._inbox.size

    def next_of_write(self, stream_id: int) -> StreamData | None:
        """`next_event`, if the next input is more of a Write to that stream; ``None`` if not."""
        incoming = self._incoming
        if incoming is None or incoming.stream_id != stream_id or self._closed is not None:
            return None
        return self._take_piece(incoming)

    def _step_eof(self) -> ConnectionEvent | None:
        if self._incoming is not None and self._inbox.size:
            return self._bring_up(self._incoming, self._inbox.size)  # of a piece that is cut short
        if self.inside:
            raise RemoteProtocolError(ErrorCode.EOF_IN_PACKET)
        if self._scopes:
            raise RemoteProtocolError(ErrorCode.EOF_WITH_STREAMS, f"{len(self._scopes)} streams")
        return Closed()

    def _receive(self, packet: Packet) -> ConnectionEvent | None:
        packet_type, stream_id, amount = packet
        if stream_id is None:
            event = self._global.receive(packet_type, amount)
            if packet_type is PacketType.WRITE:
                assert amount is not None
                return self._accept_stream(amount)
            return event
        scope = self._scopes.get(stream_id)
        if scope is None:
            raise RemoteProtocolError(ErrorCode.UNKNOWN_STREAM, f"stream {stream_id}")
        event = scope.receive(packet_type, amount)
        if packet_type is PacketType.WRITE and amount:
            self._incoming = scope
            self._incoming_size = amount
        elif scope.ended:
            self._ending = scope
        return event

    def _accept_stream(self, stream_id: int) -> ConnectionEvent:
        code = self._unfit(stream_id, self._role.peer)
        if code is None and len(self._scopes) >= self._limits.streams_max:
            code = ErrorCode.STREAMS_LIMIT
        if code is not None:
            raise RemoteProtocolError(code, f"stream {stream_id}")
        scope = StreamScope(
            stream_id,
            self._scheduler,
            send_credit=0,
            receive_credit=self._initial.remote_creator_credit,
        )
        self._scopes[stream_id] = scope
        if self._closing:
            scope.end()
        return StreamCreated(stream_id=stream_id)

    def _take_piece(self, scope: StreamScope) -> StreamData | None:
        """Hand up the next piece of a Write as soon as it is complete."""
        size = min(self._incoming_size, self._limits.piece_size_max)
        return self._bring_up(scope, size) if self._inbox.size >= size else None

    def _bring_up(self, scope: StreamScope, size: int) -> StreamData:
        data: bytes | memoryview
        if self._as_it_comes:
            data = self._take_pieces(scope, size)
            size = len(data)
        else:
            scope.take_piece(size)
            data = self._inbox.take(size)
        self._incoming_size -= size
        if not self._incoming_size:
            self._incoming = None
        return StreamData(stream_id=scope.stream_id, data=data)

    def _take_pieces(self, scope: StreamScope, size: int) -> bytes | memoryview:
        """Take all pieces of `size` bytes that are there; the last one is the rest."""
        there = min(self._incoming_size, self._inbox.size)
        if there < self._incoming_size:
            there -= there % size
        scope.take_consumed(there, piece_size=size)
        return self._inbox.take_view(there)

    def _forget(self, scope: StreamScope) -> ConnectionEvent:
        """Free the id of a stream that has ended."""
        self._ending = None
        del self._scopes[scope.stream_id]
        if scope.stream_id % 2 == self._role:
            self._next_id = min(self._next_id, scope.stream_id)
        return StreamEnded(stream_id=scope.stream_id)

    def _free_id(self) -> int:
        while self._next_id in self._scopes:
            self._next_id += 2
        return self._next_id

    def _unfit(self, stream_id: int, creator: Role) -> ErrorCode | None:
        """Why the endpoint `creator` may not create a stream of that id; ``None`` if it may."""
        if stream_id % 2 != creator:
            return ErrorCode.WRONG_PARITY
        return ErrorCode.ID_ACTIVE if stream_id in self._scopes else None
