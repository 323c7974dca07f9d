"""Any stream machine on a socket, plain or TLS, in a loop that blocks.

For programs with one thread a connection, and to read: the page on driving explains it.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from culm.machine import Closed, E_co
from culm.pump import ConnectionState, Pump, StreamPump
from culm_io.verifiers import verify_now

__all__ = ["read", "run", "write"]


def run(
    pump: Pump[E_co], connection: socket.socket, *, aborted: Callable[[], bool] = lambda: False
) -> Closed:
    """Drive a pump over a connected socket until it is over, and close the socket; its result.

    Another thread that wants an end at once lets `aborted` say so and shuts down the socket.
    """
    tls = isinstance(connection, ssl.SSLSocket)
    with connection, selectors.DefaultSelector() as selector:
        connection.setblocking(False)
        pump.connection_made(monotonic(), half_close=not tls)
        while not pump.over:
            reads = read(pump, connection, aborted=aborted)
            writes = write(pump, connection)
            deadline = pump.next_deadline()
            if deadline is not None and deadline <= monotonic():
                pump.advance(monotonic())
            elif reads is not None and writes is not None and not verify_now(pump):
                if reads or writes:
                    selector.register(connection, reads | writes)
                selector.select(None if deadline is None else deadline - monotonic())
                if reads or writes:
                    selector.unregister(connection)
            if aborted():
                pump.abort()
        if isinstance(connection, ssl.SSLSocket) and pump.state is ConnectionState.HUNG_UP:
            with suppress(OSError, ValueError):
                connection.unwrap()  # tells the peer that this is the end
    return pump.result()


def read(
    pump: StreamPump, connection: socket.socket, *, aborted: Callable[[], bool] = lambda: False
) -> int | None:
    """Read the welcome bytes; the event to wait for if none have come, ``None`` if some have."""
    size = pump.read_size()
    if not size:
        return 0
    try:
        data = connection.recv(size)
    except OSError as error:
        waits = _waits_for(error, selectors.EVENT_READ)
        if waits is None and not aborted():
            pump.connection_lost(monotonic())
        return waits
    if data:
        pump.receive_data(data, monotonic())
    elif not aborted():  # else the end is our own
        pump.receive_eof(monotonic())
    return None


def write(pump: StreamPump, connection: socket.socket) -> int | None:
    """Send the outgoing bytes; the event to wait for if there is no room, ``None`` if there was."""
    if pump.eof_to_send:
        with suppress(OSError):  # the connection is gone, as reading will tell
            connection.shutdown(socket.SHUT_WR)
        pump.eof_sent(monotonic())
    elif not pump.outgoing:
        return 0
    else:
        try:
            pump.sent(connection.send(pump.outgoing), monotonic())
        except OSError as error:
            waits = _waits_for(error, selectors.EVENT_WRITE)
            if waits is None:
                pump.send_failed(monotonic())
            return waits
    return None


def _waits_for(error: OSError, event: int) -> int | None:
    """The event to wait for before another try; ``None`` if that is in vain."""
    if isinstance(error, ssl.SSLWantReadError):
        return selectors.EVENT_READ
    if isinstance(error, ssl.SSLWantWriteError):
        return selectors.EVENT_WRITE
    return event if isinstance(error, BlockingIOError) else None
