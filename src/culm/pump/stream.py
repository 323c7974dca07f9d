"""The pump of a stream machine, and what it has in common with that of a link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Unpack

from culm.buffer import Buffer
from culm.machine import Closed, Machine, StreamMachine, check_time
from culm.pump.channel import Channel, ConnectionState, Half
from culm.pump.engine import Engine, Handlers
from culm.timers import Deadlines

__all__ = ["Connected", "Pump", "StreamPump"]


class StreamPump(ABC):
    """One connection, as its driver sees it: that of a `Pump`, or one of a `LinkedPump`.

    Times are monotonic seconds, sizes are bytes.  Nothing is raised because of what the peer,
    the store or a handler has done.  Wrong arguments (a time that is not one, more than was to be
    sent) are refused at once, and nothing has changed then.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def state(self) -> ConnectionState:
        """How far the connection is from its end."""
        return self._channel.state

    @property
    def outgoing(self) -> memoryview:
        """The bytes to send now, perhaps none.

        They are the same until `sent` is called.  Where the peer takes nothing any more (`abort`,
        `connection_lost`, `send_failed`, or too long a linger), there are none.
        """
        return self._channel.outgoing

    @property
    def eof_to_send(self) -> bool:
        """Whether our half of the connection is to be ended now (``shutdown(SHUT_WR)``)."""
        return self._channel.state is ConnectionState.END_DUE

    @property
    def hung_up(self) -> bool:
        """Whether nothing is left to do with the connection: it is to be closed."""
        return self._channel.is_done

    @property
    def bytes_received(self) -> int:
        """How many bytes have come."""
        return self._channel.bytes_received

    @property
    def bytes_sent(self) -> int:
        """How many bytes have gone."""
        return self._channel.bytes_sent

    def read_size(self) -> int:
        """How many bytes to read now; 0 means that reading should stop for the moment.

        After the machine's end, bytes are read for the peer's sake.
        """
        return self._channel.read_size()

    def receive_data(self, data: Buffer, now: float) -> None:
        """Bytes have come.  More of them than `read_size` are taken, too."""
        check_time(now, None)
        size = memoryview(data).nbytes  # TypeError for what is no buffer
        if self._channel.is_open:
            self._input(now, self._take_in, data, size)
        else:
            self._channel.received(size)

    def receive_eof(self, now: float) -> None:
        """The peer has ended its half of the connection.  A second call has no effect."""
        self._input(now, self._end_reads)

    def sent(self, size: int, now: float) -> None:
        """So many bytes of `outgoing` have gone, as it was when the driver began to send.

        Raises `ValueError` if it had fewer.
        """
        check_time(now, None)
        channel = self._channel
        channel.sent(size)
        if channel.fill() or not channel.is_at_work:
            self._input(now, self._look_again)

    def eof_sent(self, now: float) -> None:
        """Our half of the connection has been ended."""
        self._input(now, self._channel.end_writes)

    def send_failed(self, now: float) -> None:
        """The peer takes nothing any more; what it has sent may still come."""
        self._input(now, self._lose_writes)

    def connection_lost(self, now: float) -> None:
        """The connection is gone, in both directions.  A second call has no effect."""
        self._input(now, self._lose)

    def _take_in(self, data: Buffer, size: int) -> None:
        self._channel.source.receive_data(data)
        self._channel.received(size)

    def _end_reads(self) -> None:
        if self._channel.reads is Half.OPEN:
            self._channel.end_reads()
            self._tell_eof()

    def _lose_writes(self) -> None:
        self._channel.lose_writes()
        self._channel.ask_for_end()

    def _lose(self) -> None:
        had_eof = self._channel.reads is not Half.OPEN
        self._channel.lose()
        if not had_eof:
            self._tell_eof()

    def _tell_eof(self) -> None:
        if self._channel.is_open:
            self._channel.source.receive_eof()

    def _look_again(self) -> None:  # noqa: B027
        """The machine has got nothing, but there may be more to send."""

    @abstractmethod
    def _input(self, now: float, method: Callable[..., object], *args: object) -> None:
        """Tell the time, call `method`, drain."""


class Connected(Engine):
    """An engine with connections, by number."""

    def __init__(self, machine: Machine, **handlers: Unpack[Handlers]) -> None:
        super().__init__(machine, **handlers)
        self._channels: dict[int, Channel] = {}
        self._lingers: Deadlines[int] = Deadlines()

    def _settle_linger(self, number: int, seconds: float) -> None:
        """See to it that a connection that begins to linger does so only for so long."""
        channel = self._channels[number]
        if channel.is_open or channel.is_done:
            self._lingers.cancel(number)
        elif number not in self._lingers:
            assert self._now is not None
            self._lingers.set(number, self._now + seconds)

    def _is_hung_up(self) -> bool:
        return all(channel.is_done for channel in self._channels.values())

    def _hang_up(self) -> None:
        self._lingers.clear()
        for channel in self._channels.values():
            channel.abort()

    def _linger_deadline(self) -> float | None:
        return self._lingers.next()

    def _expire(self) -> None:
        assert self._now is not None
        while (number := self._lingers.pop_due(self._now)) is not None:
            self._channels[number].lose()


class Pump(Connected, StreamPump):
    """Drives a stream machine over one connection; see `Handlers` for what else it takes.

    closes_when_quiet
        Whether the machine is closed as soon as its peer has ended its half and nothing is
        left to say, nor to be answered by the store: then nothing can happen any more.  Not
        so if others than handlers of events call verbs; then it is closed when the connection
        is lost.

    A pump is not thread-safe.
    """

    def __init__(
        self,
        machine: StreamMachine,
        *,
        closes_when_quiet: bool = True,
        **handlers: Unpack[Handlers],
    ) -> None:
        Connected.__init__(self, machine, **handlers)
        StreamPump.__init__(self, Channel(machine, piece_size_max=self._limits.piece_size_max))
        self._channels[0] = self._channel
        self._closes_when_quiet = closes_when_quiet

    def connection_made(self, now: float, *, half_close: bool = True) -> None:
        """The connection is there: to be told before all other inputs, and after `call` at most.

        half_close: whether our half of it can be ended by itself; not so with TLS.
        """
        check_time(now, None)
        self._channel.connected(half_close=half_close)
        self.advance(now)

    def _take_bytes(self) -> bool:
        return self._channel.fill()

    def _ended(self, closed: Closed) -> None:
        self._channel.ended(erred=closed.error is not None)

    def _settle(self) -> bool:
        channel, closed, limits = self._channel, self._closed, self._limits
        if closed is not None:
            self._settle_linger(
                0, limits.linger_s if closed.error is None else limits.linger_after_error_s
            )
            return False
        done = self._closes_when_quiet or channel.is_lost
        if self._unfinished or self._has_effects_out or not done or not channel.is_quiet:
            return False
        channel.ask_for_end()
        return True
