"""One direction of a connection in memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from culm.machines.driver import EndlessError

__all__ = ["Pipe", "Sizer"]

Sizer = Callable[[], "int | None"]  # -> size_max for the next data_to_send; None takes all


class Pipe:
    """Bytes under way in one direction, each piece with the time at which it arrives.

    latency: seconds that bytes take; capacity: bytes under way at most.
    held: nothing arrives for the moment; ended: the sender sends no more.
    """

    def __init__(self, latency: float, capacity: float) -> None:
        self.latency = latency
        self.capacity = capacity
        self.held = False
        self.ended = False
        self.eof_delivered = False
        self._sunk = False  # the receiver is closed and reads no more
        self._pieces: deque[tuple[float, bytearray]] = deque()
        self._size = 0
        self._filled = 0
        self._allowed = math.inf

    def allow(self, size: float) -> None:
        """Let at most about `size` bytes more be sent, so that two chatterers are found."""
        self._filled, self._allowed = 0, size

    @property
    def room(self) -> float:
        """How many bytes may be put in."""
        return self.capacity - self._size

    def fill(self, source: Any, now: float, sizer: Sizer | None) -> bytes:
        """Send as much of what `source` has as there is room for, in pieces; returns that.

        source: has `data_to_send`.
        sizer: the sizes of the pieces.

        Raises `EndlessError` when it is more than `allow` has allowed.
        """
        pieces: list[bytes] = []
        while not self.ended and self.room > 0:
            if self._filled > self._allowed:
                raise EndlessError(f"not quiet after {self._filled} bytes")
            room = None if math.isinf(self.room) else int(self.room)
            size = None if sizer is None else sizer()
            bounds = [bound for bound in (room, size) if bound is not None]
            piece: bytes = source.data_to_send(min(bounds, default=None))
            if bounds and len(piece) > min(bounds):
                raise AssertionError(f"data_to_send({min(bounds)}) gave {len(piece)} bytes")
            if not piece:
                break
            self.put(piece, now)
            self._filled += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def put(self, data: bytes, now: float) -> None:
        """Send `data` at the time `now`."""
        if self._sunk:
            return
        arrival = now + self.latency
        if self._pieces and self._pieces[-1][0] == arrival:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((arrival, bytearray(data)))
        self._size += len(data)

    def arrived(self, now: float) -> int:
        """How many bytes have arrived by `now`."""
        return sum(len(data) for time, data in self._pieces if time <= now)

    def next_arrival(self, now: float) -> float | None:
        """When the next bytes arrive after `now`; ``None`` if none are on their way."""
        times = (time for time, _ in self._pieces if time > now)
        return None if self.held else next(times, None)

    def take(self, size: int) -> bytes:
        """Take `size` bytes that have arrived."""
        self._size -= size
        taken = bytearray()
        while size > len(taken):
            piece = self._pieces[0][1]
            wanted = size - len(taken)
            taken += piece[:wanted]
            del piece[:wanted]
            if not piece:
                self._pieces.popleft()
        return bytes(taken)

    def end(self) -> None:
        """The sender sends no more."""
        self.ended = True

    def end_unless_full(self) -> None:
        """The sender is closed: if there is room, it has nothing left."""
        self.ended |= self.room > 0

    def hold(self, value: bool = True) -> None:
        """Let nothing arrive, or let it go on."""
        self.held = value

    def deliver_eof(self) -> None:
        """The receiver learns of the end."""
        self.eof_delivered = True

    def sink(self) -> None:
        """Drop what is under way and all that is to come."""
        self._sunk = True
        self._pieces.clear()
        self._size = 0

    def eof_due(self) -> bool:
        """Whether the receiver is to learn of the end now."""
        return self.ended and not self._pieces and not self.held and not self.eof_delivered
