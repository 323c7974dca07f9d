"""One stream: its credit both ways, the data queued on it, and its receive window."""

from __future__ import annotations

from typing import Final

from culm.buffer import LARGE_SIZE_MIN, Buffer, Outbox
from culm.bymux.errors import ErrorCode
from culm.bymux.events import ConnectionEvent, StopReadReceived, StreamCredit
from culm.bymux.packets import INFINITE, PacketType, encode
from culm.bymux.scheduler import Scheduler
from culm.bymux.scope import Scope
from culm.bymux.states import STREAM_RULES, HalfState

_DATA_ENDING: Final = frozenset({PacketType.WRITE, PacketType.CLOSE})


class StreamScope(Scope):
    """The state of a stream that is alive; its verbs are explained at `Stream`."""

    __slots__ = (
        "_closing",
        "_receive_window",
        "_unconsumed_size",
        "_unsent",
        "_urgent",
        "receive_credit",
        "send_credit",
        "unsent_size",
    )
    stream_id: int

    def __init__(
        self,
        stream_id: int,
        scheduler: Scheduler,
        *,
        send_credit: int,
        receive_credit: int,
        urgent: bool = False,
    ) -> None:
        super().__init__(stream_id, STREAM_RULES, scheduler)
        self.send_credit = send_credit
        self.receive_credit = receive_credit
        self._urgent = urgent
        self._unsent: Outbox | None = None  # never an empty one
        self.unsent_size = 0
        self._closing = False  # a Close waits for the unsent data
        self._receive_window: int | None = None
        self._unconsumed_size = 0

    # Sending

    def send_data(self, data: Buffer) -> None:
        self.permit(PacketType.WRITE)
        unsent = self._unsent or Outbox()
        unsent.append(data)
        if unsent.size:
            self._unsent, self.unsent_size = unsent, unsent.size
            self._enter()

    def send(self, packet_type: PacketType) -> None:
        if packet_type is PacketType.CLOSE and self._unsent is not None:
            self.permit(packet_type)
            self._closing = True
        else:
            super().send(packet_type)

    def take_write(self, size_max: int) -> list[Buffer]:
        """Take the pieces of the next Write, its header first: it is this stream's turn."""
        assert self._unsent is not None
        size = min(size_max, self.send_credit, self.unsent_size)
        if size >= LARGE_SIZE_MIN:
            size = self._unsent.first_size(size)
        pieces = self._unsent.take_pieces(size)
        self.unsent_size -= size
        if self.send_credit != INFINITE:
            self.send_credit -= size
        if not self.unsent_size:
            self._drained()
        self._enter()
        return [encode(PacketType.WRITE, self.stream_id, size), *pieces]

    def _enter(self) -> None:
        if self._unsent is not None and self.send_credit:
            self._scheduler.enter(self.stream_id, urgent=self._urgent)

    def _drained(self) -> None:
        self._unsent = None
        if self._closing:
            self._closing = False
            self.send(PacketType.CLOSE)

    def _outcome(self, packet_type: PacketType) -> HalfState | ErrorCode:
        # A Close that waits for data already forbids the same as one that has been sent.
        if self._closing and packet_type in _DATA_ENDING:
            return self._rules[HalfState.CLOSED][packet_type]
        return self._rules[self.local][packet_type]

    # Granting

    def grant(self, credit: int) -> None:
        self.permit(PacketType.CREDIT)
        if self.receive_credit == INFINITE:
            raise self.refuse(ErrorCode.CREDIT_ON_INFINITE)
        if self.receive_credit + credit > INFINITE:
            raise self.refuse(ErrorCode.CREDIT_OVERFLOW)
        self.receive_credit += credit
        if self.receive_credit == INFINITE:
            # The peer, some of whose data may be under way, would arrive at a different sum.
            self._scheduler.owe_infinite_credit(self)
        else:
            self._scheduler.owe(self, PacketType.CREDIT, credit)

    def grant_infinite(self) -> None:
        self.permit(PacketType.CREDIT)
        if self.receive_credit != INFINITE:
            self.receive_credit = INFINITE
            self._scheduler.owe_infinite_credit(self)

    def set_window(self, size: int) -> None:
        self.permit(PacketType.CREDIT)
        if self.receive_credit == INFINITE:
            raise self.refuse(ErrorCode.CREDIT_ON_INFINITE)
        self._receive_window = size
        self._refill()

    def consumed(self, size: int) -> None:
        if size > self._unconsumed_size:
            raise self.refuse(
                ErrorCode.CONSUMED_TOO_MUCH, f"{size} bytes of {self._unconsumed_size} on {self}"
            )
        self._unconsumed_size -= size
        self._refill()

    def withdraw_credit(self) -> None:
        self._scheduler.withdraw(self, PacketType.CREDIT)

    def _refill(self) -> None:
        """Restore the window if that is urgent (spec, appendix B)."""
        if self._receive_window is None:
            return
        refill = self._receive_window - self.receive_credit - self._unconsumed_size
        if refill >= (self.receive_credit or 1) and self.may_send(PacketType.CREDIT):
            self.grant(refill)

    # Receiving

    def take_piece(self, size: int) -> None:
        """Account for data that is handed up."""
        if self.receive_credit != INFINITE:
            self.receive_credit -= size
        if self._receive_window is not None:
            self._unconsumed_size += size

    def take_consumed(self, size: int, *, piece_size: int) -> None:
        """Account for data that is handed up in pieces, the last of which is the rest.

        Each is used up before the next one.
        """
        if self.receive_credit == INFINITE:
            return
        window = self._receive_window
        # With more credit than this, it is not urgent to restore the window.
        enough = -1 if window is None else (window - self._unconsumed_size) // 2
        if self.receive_credit - size > enough:
            self.receive_credit -= size
            return
        for left in range(size, 0, -piece_size):
            self.receive_credit -= min(left, piece_size)
            if self.receive_credit <= enough:
                self._refill()

    def _take_in(self, packet_type: PacketType, amount: int | None) -> ConnectionEvent | None:
        if packet_type is PacketType.STOP_READ:
            return StopReadReceived(stream_id=self.stream_id, unsent_size=self._drop_unsent())
        return super()._take_in(packet_type, amount)

    def _drop_unsent(self) -> int:
        dropped_size = self.unsent_size
        self._unsent, self.unsent_size = None, 0
        self._closing = False
        self._scheduler.leave(self.stream_id)
        return dropped_size

    def _take_credit(self, amount: int) -> ConnectionEvent | None:
        if self.send_credit == INFINITE:
            if amount:
                raise self.blame(ErrorCode.CREDIT_ON_INFINITE)
            return None
        if self.send_credit + amount > INFINITE:
            raise self.blame(ErrorCode.CREDIT_OVERFLOW)
        self.send_credit = self.send_credit + amount if amount else INFINITE
        self._enter()
        return StreamCredit(stream_id=self.stream_id, amount=amount or INFINITE)

    def _take_write(self, amount: int) -> None:
        if amount > self.receive_credit:
            raise self.blame(
                ErrorCode.WRITE_PAST_CREDIT, f"{amount} bytes of {self.receive_credit} on {self}"
            )
