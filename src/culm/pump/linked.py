"""The pump of a machine with several links."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

from culm.machine import STAND_IN, E_co, Link, LinkedMachine, check_time
from culm.pump.channel import Channel, ConnectionState
from culm.pump.engine import Handlers
from culm.pump.stream import Connected, StreamPump


class LinkPump(StreamPump):
    """One connection of a `LinkedPump`.

    A driver that is told not to read (`read_size`) is woken when it may read again.
    """

    def __init__(
        self, channel: Channel, feed: Callable[..., None], pause: Callable[[], object]
    ) -> None:
        super().__init__(channel)
        self._feed, self._pause = feed, pause

    def read_size(self) -> int:
        size = self._channel.read_size()
        if not size:
            self._pause()
        return size

    def _input(self, now: float, method: Callable[..., object], *args: object) -> None:
        self._feed(now, method, *args)


class LinkedPump(Connected[LinkedMachine[E_co], E_co]):
    """Drives a machine with several links, each over a connection of its own.

    A driver that has accepted or made a connection opens the link, with `call` and the machine's
    verb, and passes it to `attach`, which returns the connection's `LinkPump`.  A link is closed
    when its connection is lost.  See `Handlers` for the other arguments.
    """

    def __init__(self, machine: LinkedMachine[E_co], **handlers: Unpack[Handlers[E_co]]) -> None:
        super().__init__(machine, **handlers)
        self._links: dict[int, Link] = {}
        self._wakes: dict[int, Callable[[], object]] = {}
        self._stirred: dict[int, None] = {}  # may have bytes to send
        self._touched: dict[int, None] = {}  # may have something to do for the driver
        self._leaving: dict[int, ConnectionState] = {}  # have ended, or their connections have
        self._paused: dict[int, None] = {}  # are not read for the moment

    def attach(
        self,
        link: Link,
        now: float,
        *,
        wake: Callable[[], object] | None = None,
        half_close: bool = True,
    ) -> LinkPump:
        """Let a new connection carry `link`; look for work at once.

        wake: called when there may be something to do for that connection: after a drain, and as
            soon as there are bytes to send, so that the peer need not wait for the rest of the
            drain.  It may call the pump.
        half_close: whether our half of it can be ended by itself; not so with TLS.

        Raises `ValueError` if the link has a connection, or does not come from `machine` as a tap
        has made it: half of its calls would pass it by.
        """
        number = link.number
        if _is_stand_in(link) is not _is_stand_in(self.machine):
            raise ValueError(f"link {number} must be opened by the verb of pump.machine")
        if number in self._channels:
            raise ValueError(f"link {number} has a connection")
        check_time(now, None)
        size_max = self._limits.piece_size_max
        channel = Channel(link, piece_size_max=size_max, half_close=half_close)
        if self._error is not None:
            channel.abort()
        self._channels[number], self._links[number] = channel, link
        pause = partial(self._paused.setdefault, number)
        pump = LinkPump(channel, partial(self._feed, number), pause)
        self._stirred[number] = None
        self._feed(number, now, lambda: None)  # the machine may have closed it already
        if wake is not None and number in self._channels:
            self._wakes[number] = wake
        return pump

    def _feed(self, number: int, now: float, method: Callable[..., object], *args: object) -> None:
        self._touched[number] = None
        self._input(now, method, *args)

    def _take_bytes(self) -> bool:
        stirred, self._stirred = self._stirred, {}
        for link in self.machine.links_to_send():
            stirred[link.number] = None
        moved = False
        for number in stirred:
            channel = self._channels.get(number)
            if channel is None:
                continue
            self._touched[number] = None
            if channel.fill(self._now):
                moved = True
                if not channel.outgoing:  # there is no taker: it is dropped, to the last byte
                    self._stirred[number] = None
                elif (wake := self._wakes.get(number)) is not None:
                    wake()
        return moved

    def _settle(self) -> bool:
        acted = False
        for number in [*self._touched, *self._leaving]:
            if number in self._channels:
                acted |= self._settle_link(number)
        for number in tuple(self._paused):
            if number not in self._channels or self._channels[number].read_size():
                del self._paused[number]
                self._touched[number] = None
        return acted

    def _settle_link(self, number: int) -> bool:
        """Move a connection towards its end; returns whether its link was closed for that."""
        channel, link = self._channels[number], self._links[number]
        if channel.is_at_work and not link.closed:
            return False
        asks = channel.is_lost and channel.is_quiet and not self._unfinished
        if asks:
            channel.ask_for_end()
            self._stirred[number] = None
        if link.closed:
            channel.ended(self._now, erred=True)
        self._settle_linger(number, self._timing.linger_after_error_s)
        state = channel.state
        if self._leaving.get(number) is not state:
            self._leaving[number] = state
            self._touched[number] = None
        return asks

    def _wake_up(self) -> None:
        while self._touched:
            number = next(iter(self._touched))
            del self._touched[number]
            if number not in self._channels:
                continue
            wake = self._wakes.get(number)
            if self._channels[number].is_done:
                del self._channels[number], self._links[number]
                self._wakes.pop(number, None)
                self._leaving.pop(number, None)
            if wake is not None:
                wake()
        super()._wake_up()

    def _hang_up(self) -> None:
        super()._hang_up()
        self._touched.update(dict.fromkeys(self._channels))


def _is_stand_in(value: object) -> bool:
    """Whether it wraps another object and listens to its calls, as recorders' stand-ins do."""
    return hasattr(type(value), STAND_IN)
