"""Servers of the foreign protocols, on real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def serving(protocol: Callable[[], Any]) -> Iterator[int]:
    """A server for such a protocol in another thread; yields its port.  Clients leave first."""
    port: list[int] = []
    ready, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        made: list[Any] = []

        def connection() -> Any:
            made.append(protocol())
            return made[-1]

        server = await loop.create_server(connection, "localhost", 0)
        port.append(server.sockets[0].getsockname()[1])
        ready.set()
        async with server:
            await loop.run_in_executor(None, ended.wait)
            for each in made:
                await asyncio.wait_for(each.wait_closed(), 10)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield port[0]
    finally:
        ended.set()
        thread.join()
