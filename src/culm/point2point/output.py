"""Our bytes on both channels: messages on one, packets of all requests on the other."""

from __future__ import annotations

from culm.buffer import Buffer, Outbox, Queue
from culm.bymux import Stream
from culm.point2point.limits import INFLATION_FACTOR, Limits
from culm.point2point.messages import Mode, Negotiated
from culm.wire import varu64
from culm.wire.lzfoo import Compressor
from culm.wire.multihash import HashFamily

# Compressing is tried for fewer and fewer packets while it does not pay: after each
# failure twice as many packets go out raw, up to this many.
_RAW_RUN_MAX = 32

# Packets smaller than this are not worth an attempt.
_COMPRESS_SIZE_MIN = 32


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
        self.is_safe = True  # only verified data may be sent
        self.over = False
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
        self.is_safe = session.send_mode is Mode.SAFE
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
