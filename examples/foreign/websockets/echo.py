"""A server that sends back all messages."""

from __future__ import annotations

import asyncio

from culm_io.asyncio import MachineProtocol
from foreign.websockets.connection import Connection, ConnectionEvent, Received

__all__ = ["protocol", "serve"]


def protocol() -> MachineProtocol[ConnectionEvent]:
    """A protocol for one connection."""
    machine = Connection()

    def on_event(event: ConnectionEvent) -> None:
        if isinstance(event, Received):
            machine.send(event.data)

    return MachineProtocol(machine, on_event=on_event)


async def serve(port: int) -> None:
    """Echo to each client, until cancelled."""
    server = await asyncio.get_running_loop().create_server(protocol, "localhost", port)
    async with server:
        await server.serve_forever()
