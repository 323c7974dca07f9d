"""One direction of a connection in memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from culm.machines.driver import EndlessError

Sizer = Callable[[], "int | None"]  # -> size_max for the next data_to_send; None takes all


class Pipe:
    """Bytes under way in one direction, each piece with the time at which it arrives.

    latency: seconds that bytes take; capacity: most bytes under way.
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
        """Let at most about `size` more bytes be sent, to detect endless conversations."""
        self._filled, self._allowed = 0, size

    @property
    def room(self) -> float:
        """Bytes that may be put in."""
        return self.capacity - self._size

    def fill(self, source: Any, now: float, sizer: Sizer | None) -> bytes:
        """Send bytes of `source` in pieces, as far as there is room; returns them.

        source: an object with `data_to_send`.
        sizer: gives the sizes of the pieces.

        Raises `EndlessError` beyond the bytes that `allow` has allowed.
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
        """Send `data` at time `now`."""
        if self._sunk:
            return
        arrival = now + self.latency
        if self._pieces and self._pieces[-1][0] == arrival:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((arrival, bytearray(data)))
        self._size += len(data)

    def arrived(self, now: float) -> int:
        """Number of bytes that have arrived by `now`."""
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
        """Note that the sender sends no more."""
        self.ended = True

    def end_unless_full(self) -> None:
        """Note that the sender is closed; as long as there is no room, it may have bytes left."""
        self.ended |= self.room > 0

    def hold(self, value: bool = True) -> None:
        """Hold up the bytes under way, or let them go on."""
        self.held = value

    def deliver_eof(self) -> None:
        """Note that the receiver has learned of the end."""
        self.eof_delivered = True

    def sink(self) -> None:
        """Drop all bytes under way, and all later ones."""
        self._sunk = True
        self._pieces.clear()
        self._size = 0

    def eof_due(self) -> bool:
        """Whether the receiver is to learn of the end now."""
        return self.ended and not self._pieces and not self.held and not self.eof_delivered
