"""The pump of a stream machine, and the part that it shares with that of a link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Unpack

from culm.buffer import Buffer
from culm.machine import Closed, E_co, StreamMachine, check_time
from culm.pump.channel import Channel, ConnectionState, Half
from culm.pump.engine import Engine, Handlers, M_co
from culm.timers import Deadlines


class StreamPump(ABC):
    """One connection, as its driver sees it: that of a `Pump`, or one of a `LinkedPump`.

    Times are monotonic seconds, sizes are bytes.  Faults of the peer, the store or a handler are
    never raised here.  Wrong arguments (a time that is not one, more bytes than there were to
    send) are refused at once, and change nothing.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def state(self) -> ConnectionState:
        """The stage of the connection on the way to its end."""
        return self._channel.state

    @property
    def outgoing(self) -> memoryview:
        """The bytes to send now, perhaps none.

        They stay the same until `sent` is called.  Once the peer takes no more (after `abort`,
        `connection_lost`, `send_failed`, or too long a linger), there are none.
        """
        return self._channel.outgoing

    @property
    def eof_to_send(self) -> bool:
        """Whether to end our half of the connection now (``shutdown(SHUT_WR)``)."""
        return self._channel.state is ConnectionState.END_DUE

    @property
    def hung_up(self) -> bool:
        """Whether to close the connection: nothing else is left to do with it."""
        return self._channel.is_done

    @property
    def bytes_received(self) -> int:
        """Bytes received so far."""
        return self._channel.bytes_received

    @property
    def bytes_sent(self) -> int:
        """Bytes sent so far."""
        return self._channel.bytes_sent

    def read_size(self) -> int:
        """Bytes to read now; 0 means that reading should stop for the moment.

        After the machine's end the peer is still read, so that it gets our last words.
        """
        return self._channel.read_size()

    def receive_data(self, data: Buffer, now: float) -> None:
        """Bytes have come.  They are taken even if they exceed `read_size`."""
        size = memoryview(data).nbytes  # TypeError unless it is a buffer
        if self._channel.is_open:
            self._input(now, self._take_in, data, size)
        else:
            check_time(now, None)
            self._channel.received(size)

    def receive_eof(self, now: float) -> None:
        """The peer has ended its half of the connection.  A second call has no effect."""
        self._input(now, self._end_reads)

    def sent(self, size: int, now: float) -> None:
        """The first `size` bytes of `outgoing` have gone, as it was when the send began.

        Raises `ValueError` if it had fewer.
        """
        check_time(now, None)
        channel = self._channel
        channel.sent(size, now)
        if channel.fill(now) or not channel.is_at_work:
            self._input(now, self._look_again)

    def eof_sent(self, now: float) -> None:
        """Our half of the connection has been ended."""
        self._input(now, self._channel.end_writes)

    def send_failed(self, now: float) -> None:
        """Writing has failed; reading may go on."""
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
        """The machine has had no input, but there may be more to send."""

    @abstractmethod
    def _input(self, now: float, method: Callable[..., object], *args: object) -> None:
        """Tell the time, call `method`, drain."""


class Connected(Engine[M_co, E_co]):
    """An engine with connections, by number."""

    def __init__(self, machine: M_co, **handlers: Unpack[Handlers[E_co]]) -> None:
        super().__init__(machine, **handlers)
        self._channels: dict[int, Channel] = {}
        self._lingers: Deadlines[int] = Deadlines()

    def _settle_linger(self, number: int, seconds: float) -> None:
        """Let a connection that has ended linger for `seconds` at most."""
        channel = self._channels[number]
        if channel.is_open or channel.is_done:
            self._lingers.cancel(number)
        elif number not in self._lingers:
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
        while (number := self._lingers.pop_due(self._now)) is not None:
            self._channels[number].lose()


class Pump(Connected[StreamMachine[E_co], E_co], StreamPump):
    """Drives a stream machine over one connection; see `Handlers` for the other arguments.

    closes_when_quiet
        Whether the machine is closed as soon as its peer has ended its half, nothing is left to
        send, and the store owes no answer: nothing can happen any more.  Set it to ``False`` if
        anything but the handlers of events calls verbs: the machine is then closed when the
        connection is lost.

    A pump is not thread-safe.
    """

    def __init__(
        self,
        machine: StreamMachine[E_co],
        *,
        closes_when_quiet: bool = True,
        **handlers: Unpack[Handlers[E_co]],
    ) -> None:
        super().__init__(machine, **handlers)
        channel = Channel(self.machine, piece_size_max=self._limits.piece_size_max)
        StreamPump.__init__(self, channel)
        self._channels[0] = channel
        self._closes_when_quiet = closes_when_quiet

    def connection_made(self, now: float, *, half_close: bool = True) -> None:
        """The connection is there.  Comes before all other inputs, except perhaps `call`.

        half_close: whether our half of it can be ended by itself; not so with TLS.
        """
        check_time(now, None)
        self._channel.connected(half_close=half_close)
        self.advance(now)

    def _take_bytes(self) -> bool:
        return self._channel.fill(self._now)

    def _ended(self, closed: Closed) -> None:
        self._channel.ended(self._now, erred=closed.error is not None)

    def _settle(self) -> bool:
        channel, closed, timing = self._channel, self._closed, self._timing
        if closed is not None:
            self._settle_linger(
                0, timing.linger_s if closed.error is None else timing.linger_after_error_s
            )
            return False
        done = self._closes_when_quiet or channel.is_lost
        if self._unfinished or self._has_effects_out or not done or not channel.is_quiet:
            return False
        channel.ask_for_end()
        return True
