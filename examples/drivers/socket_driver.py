"""Any stream machine on a socket, plain or TLS, in a loop that blocks.

For programs with one thread a connection, and to read: the page on driving explains it.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from time import monotonic

from culm.machine import Closed
from culm.pump import ConnectionState, Pump

__all__ = ["run"]


def run(
    pump: Pump, connection: socket.socket, *, aborted: Callable[[], bool] = lambda: False
) -> Closed:
    """Drive a pump over a connected socket until it is over, and close the socket.

    Returns its result, or raises it.  Another thread that wants an end at once lets `aborted`
    say so and shuts down the socket, which ends the waiting.
    """
    tls = isinstance(connection, ssl.SSLSocket)
    with connection, selectors.DefaultSelector() as selector:
        connection.setblocking(False)
        pump.connection_made(monotonic(), half_close=not tls)
        while not pump.over:
            read, written = _read(pump, connection), _write(pump, connection)
            deadline = pump.next_deadline()
            if deadline is not None and deadline <= monotonic():
                pump.advance(monotonic())
            elif read is not None and written is not None:
                _wait(selector, connection, read | written, deadline)
            if aborted():
                pump.abort()
        if isinstance(connection, ssl.SSLSocket) and pump.state is ConnectionState.HUNG_UP:
            with suppress(OSError, ValueError):
                connection.unwrap()  # tells the peer that this is the end
    return pump.result()


def _read(pump: Pump, connection: socket.socket) -> int | None:
    """Read what is welcome; what to wait for if it has not come, ``None`` if it has."""
    size = pump.read_size()
    if not size:
        return 0
    try:
        data = connection.recv(size)
    except (BlockingIOError, ssl.SSLWantReadError):
        return EVENT_READ
    except ssl.SSLWantWriteError:
        return EVENT_WRITE
    except OSError:
        pump.connection_lost(monotonic())
        return None
    if data:
        pump.receive_data(data, monotonic())
    else:
        pump.receive_eof(monotonic())
    return None


def _write(pump: Pump, connection: socket.socket) -> int | None:
    """Send what is to be sent; what to wait for if there is no room, ``None`` if there was."""
    if pump.eof_to_send:
        with suppress(OSError):  # the connection is gone, as reading will tell
            connection.shutdown(socket.SHUT_WR)
        pump.eof_sent(monotonic())
        return None
    if not pump.outgoing:
        return 0
    try:
        size = connection.send(pump.outgoing)
    except (BlockingIOError, ssl.SSLWantWriteError):
        return EVENT_WRITE
    except ssl.SSLWantReadError:
        return EVENT_READ
    except OSError:
        pump.send_failed(monotonic())
    else:
        pump.sent(size, monotonic())
    return None


def _wait(
    selector: selectors.BaseSelector,
    connection: socket.socket,
    events: int,
    deadline: float | None,
) -> None:
    """Wait until the connection is ready for one of `events`, or it is so late."""
    if events:
        selector.register(connection, events)
    selector.select(None if deadline is None else max(0.0, deadline - monotonic()))
    if events:
        selector.unregister(connection)
