"""Listening sockets that a process without files to spare survives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

__all__ = ["listen"]

_QUEUE_MAX = 100  # newcomers that the system keeps for us, as by asyncio's default


class _Making(Protocol):
    def __call__(self, *, backlog: int) -> Awaitable[asyncio.Server]: ...


async def listen(make: _Making) -> asyncio.Server:
    """The server that `make` makes, before which newcomers wait, and are taken one at a time.

    `backlog` is two things to asyncio: the length of the system's queue, and how many connections
    are taken in a row.  While no file can be opened each of a row is a complaint, and plans
    to listen again in a second by itself: by then their number keeps the loop from anything else.
    """
    server = await make(backlog=1)
    for listening in server.sockets:
        if hasattr(listening, "_sock"):  # of asyncio; uvloop takes newcomers in its own way
            with listening.dup() as same:
                same.listen(_QUEUE_MAX)
    return server
