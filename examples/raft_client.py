"""Questions to the control ports of a cluster, and commands that are applied once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from culm.garlic.sessions import Outcome, Session, open_session

__all__ = ["ANSWER_TIMEOUT_S", "Client", "ask_around", "ask_one"]

ANSWER_TIMEOUT_S = 5.0
CLIENT_TIMEOUT_S = 20.0

_PAUSE_S = 0.1
_KNOWN_MAX = 10_000


class Client:
    """A session of its own; made in the event loop.

    propose: proposes a value; gives the index at which it was committed, ``None`` if that is not
        known.
    """

    def __init__(self, propose: Callable[[bytes], Awaitable[int | None]]) -> None:
        self._propose = propose
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._known: dict[int, Outcome] = {}  # the last ones
        self._news = asyncio.Event()

    def applied(self, index: int, outcome: Outcome) -> None:
        """For `Sessions`, in whatever thread the store works."""
        self._loop.call_soon_threadsafe(self._note, index, outcome)

    def _note(self, index: int, outcome: Outcome) -> None:
        self._known[index] = outcome
        if len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._news.set()

    async def do(self, value: bytes) -> int:
        """Have `value` applied once; the index of an entry that holds it.

        Goes on until that is known: put a timeout around it.
        """
        while True:
            session = await self._open()
            command = session.command(value)
            try:
                index, outcome = await self._commit(command)
            finally:
                session.ended(command)
            if outcome is not Outcome.NO_SESSION:
                return index
            if self._session is session:  # it has expired before the command came
                self._session = None

    async def _open(self) -> Session:
        async with self._opening:
            if self._session is None:
                index, _ = await self._commit(open_session())
                self._session = Session(index)
            return self._session

    async def _commit(self, value: bytes) -> tuple[int, Outcome]:
        """Propose until it is committed, and see what it has done."""
        while (index := await self._propose(value)) is None:
            await asyncio.sleep(_PAUSE_S)
        while index not in self._known:
            self._news.clear()
            await self._news.wait()
        return index, self._known[index]


async def ask_one(port: int, question: dict[str, Any]) -> dict[str, Any] | None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S + 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(json.dumps(question).encode() + b"\n")
                line = await reader.readline()
            finally:
                writer.close()
            return dict(json.loads(line)) if line else None
    except (OSError, TimeoutError):
        return None


# After these another server, or the same one a little later, may do it.
ASK_AROUND = frozenset(("NOT_LEADER", "NO_LEADER", "NOTHING_COMMITTED", "READ_FAILED"))


async def ask_around(ports: dict[int, int], question: dict[str, Any]) -> dict[str, Any]:
    """Ask those servers in turn until one can do it."""
    answer: dict[str, Any] | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            order = list(ports)
            while True:
                for number in order:
                    answer = await ask_one(ports[number], question) or answer
                    if answer is None or answer.get("error") in ASK_AROUND:
                        continue
                    return answer
                await asyncio.sleep(0.1)
    return answer or {"error": "NOBODY_ANSWERS"}
