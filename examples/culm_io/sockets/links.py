"""Any machine with several links on sockets, in a loop that blocks.

To read: the page on driving explains it.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ
from time import monotonic

from culm.machine import Closed, E_co, Link, LocalProtocolError
from culm.pump import LinkedPump, LinkPump
from culm_io.sockets.driver import read, write
from culm_io.verifiers import verify_now

__all__ = ["LinksLoop"]


class LinksLoop:
    """Drives `pump`: accepts connections at `listening`, each with a link from `accepted`."""

    def __init__(
        self, pump: LinkedPump[E_co], listening: socket.socket, accepted: Callable[[], Link]
    ) -> None:
        self._pump, self._listening, self._accepted = pump, listening, accepted
        self._links: dict[socket.socket, LinkPump] = {}
        self._awake: dict[socket.socket, None] = {}  # there may be something to do
        self._selector = selectors.DefaultSelector()  # has those that sleep

    def run(self) -> Closed:
        """Until the machine is over; its result.  All sockets are closed then."""
        try:
            self._listening.setblocking(False)
            self._selector.register(self._listening, EVENT_READ)
            self._pump.advance(monotonic())
            while not self._pump.over:
                self._wait()
                for connection in tuple(self._awake):
                    self._carry(connection)
                verify_now(self._pump)
        finally:
            self._selector.close()
            for each in (*self._links, self._listening):
                each.close()
        return self._pump.result()

    def connect(self, connection: socket.socket, open_link: Callable[[], Link]) -> None:
        """Carry a connection that was accepted or made; `open_link` is the machine's verb."""
        connection.setblocking(False)
        now, wake = monotonic(), partial(self._awake.setdefault, connection)
        try:
            link = self._pump.call(now, open_link)
        except LocalProtocolError:  # there are too many, or the machine has ended
            connection.close()
            return
        self._links[connection] = self._pump.attach(link, now, wake=wake)
        wake()

    def _wait(self) -> None:
        """Sleep until there is something to do."""
        deadline = 0.0 if self._awake else self._pump.next_deadline()
        for key, _ in self._selector.select(None if deadline is None else deadline - monotonic()):
            if key.data is None:
                with suppress(OSError):  # it has gone again
                    self.connect(self._listening.accept()[0], self._accepted)
            else:
                key.data()
        deadline = self._pump.next_deadline()
        if deadline is not None and deadline <= monotonic():
            self._pump.advance(monotonic())

    def _carry(self, connection: socket.socket) -> None:
        """Read and write a piece, or sleep until one or the other can be done."""
        link = self._links[connection]
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        reads, writes = read(link, connection), write(link, connection)
        if link.hung_up:
            connection.close()
            del self._links[connection], self._awake[connection]
        elif reads is not None and writes is not None:
            del self._awake[connection]
            if reads | writes:
                wake = partial(self._awake.setdefault, connection)
                self._selector.register(connection, reads | writes, wake)
