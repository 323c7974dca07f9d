"""A server that is asked and answers, with a place for each of those who ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Self, cast

from culm_io.asyncio.listening import listen
from culm_io.programs.places import Places

__all__ = ["CLIENTS_MAX", "Visits"]

CLIENTS_MAX = 64
_LOOK_S = 0.25  # between two looks at places
_LINGER_S = 1.0  # for others to hear the end
_STALL_S = 1.0  # without a question, or an answer taken, and a client makes way for another


class Visits:
    """Reads a question of each client at a time, to its `end`, and writes the answer to it.

    Of a question that is too long (`size_max` bytes) the beginning is taken for it.  While
    `clients_max` have a place nothing is read from others: they wait, or are told `busy`.

    once: there is one question to each connection.
    """

    def __init__(
        self,
        answer: Callable[[bytes], Awaitable[bytes]],
        *,
        end: bytes,
        size_max: int,
        busy: bytes,
        clients_max: int = CLIENTS_MAX,
        once: bool = False,
    ) -> None:
        self._answer, self._end, self._size_max, self._once = answer, end, size_max, once
        self._busy = busy
        self._tasks: set[asyncio.Task[None]] = set()
        self.places: Places[_Visitor] = Places(clients_max=clients_max, address_max=clients_max)

    @asynccontextmanager
    async def at(self, host: str, port: int) -> AsyncIterator[None]:
        """Listen there meanwhile.  Raises `OSError`."""
        loop = asyncio.get_running_loop()
        server = await listen(partial(loop.create_server, self._door, host, port))
        looking = loop.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            server.close()
            self.places.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks)
            await asyncio.sleep(0)  # a closed one is gone after a turn

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self.places.look(asyncio.get_running_loop().time())

    def _door(self) -> asyncio.Protocol:
        return _Door(asyncio.StreamReader(self._size_max), self._take)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        visitor = _Visitor(writer.transport, self._busy)
        self.places.arrive(visitor, asyncio.get_running_loop().time())
        with suppress(OSError, asyncio.CancelledError):
            if await visitor.admitted:
                await self._talk(visitor, reader, writer)
            # If something was left unread, our last words would be cut off.
            writer.write_eof()
            async with asyncio.timeout(_LINGER_S):
                while await reader.read(1 << 16):
                    pass
        self.places.leave(visitor)
        self.places.clients.discard(visitor)
        self._tasks.discard(task)
        writer.close()

    async def _talk(
        self, visitor: _Visitor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (question := await self._question(reader)) and not visitor.leaving:
            visitor.silent_since = None
            answer = await self._answer(question)
            visitor.is_silent()
            writer.write(answer)
            await writer.drain()
            if self._once:
                break

    async def _question(self, reader: asyncio.StreamReader) -> bytes:
        """The next one; nothing if there is none."""
        try:
            return await reader.readuntil(self._end)
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError as error:
            return await reader.read(error.consumed)


class _Door(asyncio.StreamReaderProtocol):
    """Nothing is read before there is a place."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).pause_reading()
        super().connection_made(transport)


class _Visitor:
    """A connection: a newcomer, and then a client."""

    def __init__(self, transport: asyncio.WriteTransport, busy: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._busy = busy
        self.address = str((transport.get_extra_info("peername") or [""])[0])
        self.admitted: asyncio.Future[bool] = self._loop.create_future()
        self.leaving = False
        self.silent_since: float | None = None  # ``None``: its question is being answered

    def is_silent(self) -> None:
        """From now on it is for the client to do something."""
        self.silent_since = self._loop.time()

    def come_in(self) -> Self:
        self.is_silent()
        self._transport.resume_reading()
        self.admitted.set_result(True)
        return self

    def turn_away(self) -> None:
        self._transport.write(self._busy)
        self._transport.resume_reading()
        self.admitted.set_result(False)

    def rank(self) -> tuple[bool, float] | None:
        """The longest silent one goes first."""
        since = self.silent_since
        stalls = since is not None and self._loop.time() >= since + _STALL_S
        return (False, since) if since is not None and stalls else None

    def make_way(self) -> None:
        self.leaving = True
        self._transport.abort()
