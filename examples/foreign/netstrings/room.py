"""A chat room: whatever one says is told to all others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import assert_never

from culm.machine import Closed
from culm_io.asyncio import MachineProtocol
from foreign.netstrings.connection import Connection, ConnectionEvent, Joined, Said

__all__ = ["Room"]

UNSENT_MAX = 1 << 20


@dataclass(eq=False)
class Member:
    machine: Connection = field(default_factory=lambda: Connection(name="room"))
    name: str = ""


class Room:
    """Members by the protocols that drive them.

    A member who does not read holds up no other: one with more than 1 MiB to read is shown out.
    """

    def __init__(self) -> None:
        self._members: dict[Member, MachineProtocol[ConnectionEvent]] = {}

    def enter(self) -> MachineProtocol[ConnectionEvent]:
        """A protocol for one more member."""
        member = Member()
        protocol = MachineProtocol(
            member.machine, on_event=lambda event: self._heard(member, event)
        )
        self._members[member] = protocol
        return protocol

    async def serve(self, port: int) -> None:
        """Let in each client, until cancelled."""
        server = await asyncio.get_running_loop().create_server(self.enter, "localhost", port)
        async with server:
            await server.serve_forever()

    def _heard(self, member: Member, event: ConnectionEvent) -> None:
        match event:
            case Joined(name=name):
                member.name = name
                self._tell_others(member, "is here")
            case Said(text=text):
                self._tell_others(member, text)
            case Closed():
                del self._members[member]
                self._tell_others(member, "has left")
            case rest:
                assert_never(rest)

    def _tell_others(self, member: Member, text: str) -> None:
        for other, protocol in list(self._members.items()):
            if other is member or not other.name:
                continue
            if other.machine.unsent_size > UNSENT_MAX:
                protocol.abort()
            else:
                protocol.call(other.machine.say, f"{member.name}: {text}"[:1024])
