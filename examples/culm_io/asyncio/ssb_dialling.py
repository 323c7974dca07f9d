"""Addresses to which a peer of Secure Scuttlebutt connects again and again, under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from culm.machine import Event, LocalProtocolError
from culm.ssb.address import Address
from culm.ssb.peer import ErrorCode, PeerDisconnected, PeerLink

__all__ = ["DialFailed", "Redialling"]

_PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DialFailed(Event):
    """No peer was reached at an address, or none with its key.

    again_s: when it is tried again; ``None``: never.
    """

    address: Address
    error: str
    again_s: float | None


class Redialling:
    """The addresses, and how their present links have failed.

    dial: connects once.
    on_event: gets `DialFailed`.
    """

    def __init__(
        self,
        dial: Callable[[Address], Awaitable[PeerLink]],
        on_event: Callable[[DialFailed], object],
    ) -> None:
        self._dial, self._on_event = dial, on_event
        self._ends: dict[int, asyncio.Future[str]] = {}  # by number of the link
        self._kept: set[Address] = set()

    def add(self, address: Address) -> bool:
        """Note an address to keep; false if it is kept already."""
        new = address not in self._kept
        self._kept.add(address)
        return new

    async def keep(self, address: Address) -> None:
        """Connect, and do so again whenever the connection has ended: soon, and then later.

        Never again to a peer that we block.
        """
        loop, pause_s = asyncio.get_running_loop(), _PAUSE_MIN_S
        try:
            while True:
                began = loop.time()
                try:
                    failure = await self._stay(address)
                except (OSError, LocalProtocolError) as error:
                    failure = str(error) or type(error).__name__
                    if isinstance(error, LocalProtocolError) and error.code is ErrorCode.BLOCKED:
                        self._give_up(address, failure)
                        return
                if loop.time() - began > _PAUSE_MAX_S:
                    pause_s = _PAUSE_MIN_S
                if failure:
                    self._on_event(DialFailed(address=address, error=failure, again_s=pause_s))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        except Exception as error:
            self._give_up(address, repr(error))

    def _give_up(self, address: Address, failure: str) -> None:
        self._kept.discard(address)
        self._on_event(DialFailed(address=address, error=failure, again_s=None))

    def disconnected(self, event: PeerDisconnected) -> None:
        """A link has ended."""
        end = self._ends.pop(event.link, None)
        if end is not None and not end.done():
            unknown = "the other end has another key, or is of another network"
            end.set_result(unknown if event.peer is None else "")

    async def _stay(self, address: Address) -> str:
        """Connect, and wait for the end; returns why no peer was there, or nothing."""
        link = await self._dial(address)
        if link.closed:
            return ""
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ends[link.number] = end
        return await end
