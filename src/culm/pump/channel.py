"""One connection: the piece on its way out, and the stages of its end."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from culm.buffer import Buffer


class ConnectionState(Enum):
    """The stage of a connection on the way to its end."""

    OPEN = auto()
    """The machine goes on."""
    LAST_WORDS = auto()
    """The machine has ended, and its last words are on the way."""
    END_DUE = auto()
    """All is said: our half of the connection must be ended (`StreamPump.eof_to_send`)."""
    LINGERING = auto()
    """The peer is read until it ends its half, so that it gets our last words."""
    HUNG_UP = auto()
    """All is said on both sides: the connection must be closed."""
    CUT_OFF = auto()
    """The connection is lost or given up: it must be closed, even with bytes on the way."""


class Half(Enum):
    """One direction of a connection."""

    OPEN = auto()
    ENDED = auto()
    LOST = auto()


class _End(Enum):
    """The end of the machine, or of the link."""

    NONE = auto()
    ASKED_FOR = auto()  # the pump has closed it, and its end has not come yet
    ORDERLY = auto()
    ERROR = auto()
    ABORTED = auto()


_PIECE_SIZE_MIN = 1 << 10
_PIECE_S_MIN = 0.05  # seconds of a piece that tells of the line, and not of the machine
_DONE = (ConnectionState.HUNG_UP, ConnectionState.CUT_OFF)
_NOTHING = memoryview(b"")


def _state_after(
    end: _End, reads: Half, writes: Half, *, unsent: bool, half_close: bool
) -> ConnectionState:
    """The state of a connection after the end of its machine, or of its link."""
    if writes is Half.LOST:
        return ConnectionState.CUT_OFF
    if unsent:
        return ConnectionState.LAST_WORDS
    if reads is not Half.OPEN:
        return ConnectionState.HUNG_UP
    if writes is Half.ENDED:
        return ConnectionState.LINGERING
    if half_close:
        return ConnectionState.END_DUE
    # Both directions end at once, as with TLS.  Closing while the peer still writes would reset
    # the connection, and our last words would be lost; after a goodbye it has nothing to write.
    return ConnectionState.LINGERING if end is _End.ERROR else ConnectionState.HUNG_UP


class ByteSource(Protocol):
    """The machine end of a connection: a stream machine, or a link."""

    def receive_data(self, data: Buffer) -> None: ...
    def receive_eof(self) -> None: ...
    def read_size(self) -> int: ...
    def data_to_send(self, size_max: int | None = None) -> bytes: ...
    def close(self) -> None: ...


class Channel:
    """The state of one connection of `source`."""

    def __init__(self, source: ByteSource, *, piece_size_max: int, half_close: bool = True) -> None:
        self.source = source
        self.outgoing = _NOTHING
        """The rest of the piece that was taken last; empty once the peer takes no more."""
        self._piece = _NOTHING  # the same, also when the peer takes no more
        self.bytes_received = 0
        self.bytes_sent = 0
        self.reads = self.writes = Half.OPEN
        self._end = _End.NONE
        self._piece_size = self._piece_size_max = piece_size_max
        self._taken, self._taken_at = 0, 0.0  # the size of the piece as it was taken
        self._half_close = half_close

    @property
    def is_open(self) -> bool:
        """Whether the machine, or the link, has yet to end."""
        return self._end is _End.NONE or self._end is _End.ASKED_FOR

    @property
    def state(self) -> ConnectionState:
        if self.is_open:
            return ConnectionState.OPEN
        unsent = len(self.outgoing) > 0
        return _state_after(
            self._end, self.reads, self.writes, unsent=unsent, half_close=self._half_close
        )

    @property
    def is_done(self) -> bool:
        """Whether the connection must be closed."""
        return not self.is_open and self.state in _DONE

    @property
    def is_quiet(self) -> bool:
        """Whether the peer has ended its half, and nothing is left to send to it."""
        return self.reads is not Half.OPEN and self._end is _End.NONE and not self.outgoing

    @property
    def is_lost(self) -> bool:
        """Whether no more bytes move, in either direction."""
        return self.reads is not Half.OPEN and self.writes is Half.LOST

    @property
    def is_at_work(self) -> bool:
        """Whether neither the machine nor either direction has begun to end."""
        return self._end is _End.NONE and self.reads is Half.OPEN and self.writes is Half.OPEN

    def read_size(self) -> int:
        if self.reads is not Half.OPEN:
            return 0
        if self.is_open:
            return min(self._piece_size_max, self.source.read_size())
        return 0 if self.is_done else self._piece_size_max

    def connected(self, *, half_close: bool) -> None:
        self._half_close = half_close

    def received(self, size: int) -> None:
        self.bytes_received += size

    def fill(self, now: float) -> bool:
        """Take a piece if there is room for it; returns whether there was one.

        It has what a slow line carries in a second: the machine learns only between pieces that
        its bytes leave, and can put nothing important before the rest of one.  Once the peer takes
        no more, pieces are dropped until the machine has ended, which may not happen before its
        output is gone.
        """
        if self.outgoing or (self.writes is Half.LOST and not self.is_open):
            return False
        data = self.source.data_to_send(self._piece_size)
        if data and self.writes is Half.OPEN:
            self.outgoing = self._piece = piece = memoryview(data)
            self._taken, self._taken_at = piece.nbytes, now
        return bool(data)

    def sent(self, size: int, now: float) -> None:
        """Count `size` bytes of the piece as sent; a send under way may return after all else."""
        if not 0 <= size <= len(self._piece):
            raise ValueError(f"size must be in [0, {len(self._piece)}], not {size}")
        self._piece = self._piece[size:]  # TypeError unless it is an int
        if self.writes is not Half.LOST:
            self.outgoing = self._piece
        self.bytes_sent += size
        if size and not self._piece:
            taken, seconds = self._taken, now - self._taken_at
            if seconds >= _PIECE_S_MIN and seconds * self._piece_size > taken:
                wanted = max(_PIECE_SIZE_MIN, int(taken / seconds))
                self._piece_size = min(wanted, self._piece_size_max)
            elif taken * 2 > self._piece_size:
                self._piece_size = min(self._piece_size * 2, self._piece_size_max)

    def end_reads(self) -> None:
        """The peer sends no more."""
        if self.reads is Half.OPEN:
            self.reads = Half.ENDED

    def end_writes(self) -> None:
        """The peer has been told that we send no more."""
        if self.writes is Half.OPEN:
            self.writes = Half.ENDED

    def lose_writes(self) -> None:
        """The peer takes no more."""
        self.writes = Half.LOST
        self.outgoing = _NOTHING

    def lose(self) -> None:
        """The connection is gone."""
        self.reads = Half.LOST
        self.lose_writes()

    def ask_for_end(self) -> None:
        """Close the machine, or the link; its end follows."""
        if self._end is _End.NONE:
            self._end = _End.ASKED_FOR
            self.source.close()

    def ended(self, now: float, *, erred: bool) -> None:
        """The machine, or the link, has ended: once `outgoing` is empty, all has been sent."""
        if self.is_open:
            self._end = _End.ERROR if erred else _End.ORDERLY
            self.fill(now)

    def abort(self) -> None:
        """End the connection without waiting for the machine."""
        self._end = _End.ABORTED
        self.lose()
