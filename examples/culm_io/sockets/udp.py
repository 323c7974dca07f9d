"""Any machine over datagrams on a UDP socket, in a loop that blocks.

To read: the page on driving explains it.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from culm.machine import A, Closed, E_co
from culm.pump import DatagramPump

__all__ = ["run_datagrams"]


def run_datagrams(
    pump: DatagramPump[E_co, A], connection: socket.socket, addresses: Mapping[A, Any]
) -> Closed:
    """Drive a pump over a bound socket until it is over, and close the socket; its result.

    addresses: where the peers are, by the names that the machine has for them.  Others are not
        listened to.
    """
    with connection, selectors.DefaultSelector() as selector:
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        pump.advance(monotonic())
        while True:
            while (datagram := pump.next_datagram(monotonic())) is not None:
                with suppress(OSError, KeyError):  # no room, no peer there: it is lost
                    connection.sendto(datagram[1], addresses[datagram[0]])
            if pump.over:
                return pump.result()
            deadline = pump.next_deadline()
            selector.select(None if deadline is None else deadline - monotonic())
            with suppress(OSError):  # nothing has come; or a destination has no listener
                data, address = connection.recvfrom(1 << 16)
                for name in [name for name, where in addresses.items() if where == address]:
                    pump.receive_datagram(data, monotonic(), source=name)
            if deadline is not None and deadline <= monotonic():
                pump.advance(monotonic())
