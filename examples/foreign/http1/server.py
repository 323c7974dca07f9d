"""A server that answers by a function, one connection beside the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from culm_io.asyncio import MachineProtocol
from foreign.http1.connection import Connection, ConnectionEvent, Requested, Role

__all__ = ["Answer", "protocol", "serve"]

Answer = Callable[[Requested], tuple[int, bytes]]


def protocol(answer: Answer) -> MachineProtocol[ConnectionEvent]:
    """A protocol for one connection; `answer` gives the status and the body for each request."""
    machine = Connection(role=Role.SERVER)

    def on_event(event: ConnectionEvent) -> None:
        if isinstance(event, Requested):
            status, body = answer(event)
            if event.method == "HEAD":
                body = b""
            machine.respond(status, headers=[("Content-Type", "text/plain")], body=body)

    return MachineProtocol(machine, on_event=on_event)


async def serve(answer: Answer, port: int) -> None:
    """Answer requests, until cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(protocol, answer), "localhost", port)
    async with server:
        await server.serve_forever()
