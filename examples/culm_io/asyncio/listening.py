"""Listening sockets that a process without files to spare survives."""

from __future__ import annotations

import asyncio

__all__ = ["AT_A_TIME", "lengthen_queue"]

AT_A_TIME = 1
_QUEUE_MAX = 100  # newcomers that the system keeps for us, as by asyncio's default


def lengthen_queue(server: asyncio.Server) -> asyncio.Server:
    """Let newcomers wait before a server that was made with ``backlog=AT_A_TIME``; that server.

    `backlog` is two things to asyncio: the length of the system's queue, and how many connections
    are taken in a row.  While no file can be opened each of a row is a complaint, and plans
    to listen again in a second by itself: by then they are so many that the loop does nothing else.
    """
    for listening in server.sockets:
        if hasattr(listening, "_sock"):  # of asyncio; uvloop takes newcomers in its own way
            with listening.dup() as same:
                same.listen(_QUEUE_MAX)
    return server
