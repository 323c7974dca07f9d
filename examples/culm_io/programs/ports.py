"""Ports of this machine for servers that others look for, also after a restart."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from contextlib import ExitStack, suppress

__all__ = ["HOST", "free_ports"]

HOST = "127.0.0.1"

# Below those that systems give to sockets that ask for any: while a server does not run, no
# program gets its port by chance, nor does an attempt to reach it there meet itself.
_PORTS = range(10_000, 32_768)


def free_ports(
    count: int,
    *,
    kind: socket.SocketKind = socket.SOCK_STREAM,
    taken: Collection[int] = (),
) -> list[int]:
    """Ports not in use at the moment, and none of those that are `taken`."""
    chance = random.SystemRandom()
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = chance.choice(_PORTS)
            made = stack.enter_context(socket.socket(socket.AF_INET, kind))
            with suppress(OSError):
                if port not in taken:
                    made.bind((HOST, port))
                    found.append(port)
    return found
