"""A cluster's client: questions to control ports, and commands that are applied once.

A command travels in a session that is the client's own, so that a copy of it may go to any server:
all state machines see that it has been there.  Of each command the client learns that it was
applied, or that it was not and never will be, or that its fate cannot be known.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from culm.garlic.errors import ErrorCode
from culm.garlic.sessions import ClientSession, Outcome, open_session
from culm.machine import LocalProtocolError
from culm.wire.json import read_json

__all__ = [
    "ANSWER_TIMEOUT_S",
    "LINE_SIZE_MAX",
    "PATIENCE_S",
    "Client",
    "Cluster",
    "Committed",
    "Failed",
    "NotAppliedError",
    "UnknownError",
    "ask_one",
]

ANSWER_TIMEOUT_S = 5.0
PATIENCE_S = 20.0
LINE_SIZE_MAX = 1 << 20

_PATIENCE_MIN_S = 1.0
_PAUSE_S = 0.1
_DONE = (Outcome.APPLIED, Outcome.REPEATED)
# Errors after which another server, or the same one a little later, may do it, by their weight.
_ASK_AROUND = {
    **dict.fromkeys(("NOT_THERE", "NO_ANSWER"), -1),
    **dict.fromkeys(("NOBODY_ANSWERS", "BUSY"), 0),
    **dict.fromkeys(("NOT_LEADER", "NO_LEADER", "NOTHING_COMMITTED", "READ_FAILED"), 1),
    **dict.fromkeys(("CHANGE_IN_PROGRESS", "TRANSFER_IN_PROGRESS"), 2),
}


@dataclass(frozen=True, slots=True)
class Committed:
    """A copy of a value was committed: at which index, and with which result."""

    index: int
    outcome: Outcome


class Failed(Enum):
    """A copy of a value is not known to be committed."""

    FOR_CERTAIN = auto()  # nor will it ever be
    PERHAPS = auto()  # it may be, sooner or later


class NotAppliedError(Exception):
    """A command was not applied, and never will be."""


class UnknownError(Exception):
    """A command was applied once, or will be, or never: it cannot be known."""


Propose = Callable[[bytes], Awaitable[Committed | Failed]]


class Client:
    """Commands of one session, which is opened with the first of them.

    propose: proposes a value, and returns the fate of that copy.
    """

    def __init__(self, propose: Propose) -> None:
        self._propose = propose
        self._session: ClientSession | None = None
        self._opening = asyncio.Lock()
        self._room = asyncio.Event()

    async def do(self, value: bytes, patience_s: float = PATIENCE_S) -> int:
        """Have `value` applied once; the index of an entry that holds it.

        Raises `NotAppliedError` and `UnknownError`.  The fate of a cancelled command is
        unknown, too.
        """
        copies = _Copies()
        try:
            async with asyncio.timeout(patience_s):
                return await self._do(value, copies)
        except TimeoutError:
            raise copies.error("the cluster does not answer") from None

    async def _do(self, value: bytes, copies: _Copies) -> int:
        while True:
            session, command = await self._number(value)
            try:
                found = await self._commit(command, copies)
            finally:
                session.ended(command)
                self._room.set()
            if found.outcome in _DONE:
                return found.index
            if self._session is session and found.outcome is Outcome.NO_SESSION:
                self._session = None
            if found.outcome is not Outcome.NO_SESSION or copies.may_be_applied:
                raise UnknownError(f"the outcome of its last copy: {found.outcome.value}")

    async def _number(self, value: bytes) -> tuple[ClientSession, bytes]:
        """The value as a command of the session, as soon as that has room for another."""
        while True:
            session = await self._open()
            try:
                return session, session.command(value)
            except LocalProtocolError as error:
                if error.code is not ErrorCode.QUEUE_FULL:
                    raise
            self._room.clear()
            await self._room.wait()

    async def _open(self) -> ClientSession:
        async with self._opening:
            if self._session is None:
                opened = await self._commit(open_session(), _Copies())
                self._session = ClientSession(opened.index, 0)
            return self._session

    async def _commit(self, value: bytes, copies: _Copies) -> Committed:
        """Propose until a copy is committed."""
        while True:
            earlier, copies.may_be_applied = copies.may_be_applied, True
            found = await self._propose(value)
            if isinstance(found, Committed):
                copies.may_be_applied = earlier or found.outcome in _DONE
                return found
            if found is Failed.FOR_CERTAIN:
                copies.may_be_applied = earlier
            await asyncio.sleep(_PAUSE_S)


@dataclass(slots=True)
class _Copies:
    """The known state of the proposed copies of one command."""

    may_be_applied: bool = False

    def error(self, text: str) -> Exception:
        return UnknownError(text) if self.may_be_applied else NotAppliedError(text)


class Cluster:
    """Servers by their control ports; the last one that answered is asked first.

    One that hangs is left for the next soon; where all are slow, they get more and more time.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = list(ports.values())
        self._patience_s = _PATIENCE_MIN_S

    async def propose(self, value: bytes) -> Committed | Failed:
        """For `Client`."""
        answer = await self._ask_first({"do": "propose", "value": value.hex()})
        match answer:
            case {"ok": True, "index": int(index), "outcome": str(outcome)}:
                return Committed(index, Outcome(outcome))
            case {"error": "TOO_DEEP"}:
                raise NotAppliedError("its lists and objects are nested too deeply")
            case {"certain": True}:
                return Failed.FOR_CERTAIN
        return Failed.PERHAPS

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one after the other until one can do it; the command may be carried out twice."""
        answer: dict[str, Any] = {"error": "NOBODY_ANSWERS"}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for _ in self._ports:
                        found = await self._ask_first(question)
                        if found.get("error") not in _ASK_AROUND:
                            return found
                        answer = max(found, answer, key=lambda each: _ASK_AROUND[each["error"]])
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            return answer

    async def _ask_first(self, question: Mapping[str, Any]) -> dict[str, Any]:
        answer = await ask_one(self._ports[0], question, self._patience_s)
        if not answer.get("ok"):
            self._ports.append(self._ports.pop(0))
        if answer.get("error") == "NO_ANSWER":
            self._patience_s = min(2 * self._patience_s, ANSWER_TIMEOUT_S + 1)
        return answer


async def ask_one(port: int, question: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
    """A server's answer; an error if it is not there, or was asked and has not answered."""
    asked = False
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_SIZE_MAX)
            try:
                asked = True
                writer.write(json.dumps(question).encode() + b"\n")
                if line := await reader.readline():
                    return dict(read_json(line))
            finally:
                writer.close()
    except (OSError, ValueError, TypeError):  # TimeoutError among them
        pass
    return {"error": "NO_ANSWER"} if asked else {"error": "NOT_THERE", "certain": True}
