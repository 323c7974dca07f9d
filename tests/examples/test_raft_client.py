"""Commands of a client are applied once, or reported: an oracle counts them.

Copies of commands are refused, lost, delayed, committed without a word; sessions end meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest
from processes import SECONDS_MAX

from culm.garlic import sessions
from culm.garlic.sessions import WINDOW, Outcome, Sessions, open_session
from culm_io.programs.raft import client as raft_client
from culm_io.programs.raft import server as raft_server
from culm_io.programs.raft.client import (
    Client,
    Cluster,
    Committed,
    Failed,
    NotAppliedError,
    UnknownError,
)
from effort import seeds

COUNT = 12


class Counting:
    """A state machine that counts its commands."""

    def __init__(self) -> None:
        self.applied: Counter[bytes] = Counter()

    def apply(self, index: int, value: bytes) -> None:
        self.applied[value] += 1

    def snapshot(self) -> bytes:
        return b""

    def restore(self, image: bytes) -> None:
        self.applied.clear()


class World:
    """A cluster as its clients see it: one log, and no promise of news about it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = Counting()
        self.is_calm = False
        self._sessions = Sessions(self.machine)
        self._index = 0
        self._late: list[bytes] = []  # copies under way, unknown to their clients

    def commit(self, value: bytes) -> Committed:
        self._index += 1
        self._sessions.apply(self._index, value)
        outcome = self._sessions.outcome_of(self._index)
        assert outcome is not None
        return Committed(self._index, outcome)

    async def propose(self, value: bytes) -> Committed | Failed:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        if self.is_calm:
            return self.commit(value)
        if self.random.random() < 0.05:
            self.commit(open_session())  # another client's: the least used session ends
        if self._late and self.random.random() < 0.3:
            self.commit(self._late.pop(self.random.randrange(len(self._late))))
        match self.random.randrange(6):
            case 0:
                return Failed.FOR_CERTAIN
            case 1:
                return Failed.PERHAPS
            case 2:
                self.commit(value)
                return Failed.PERHAPS
            case 3:
                self._late.append(value)
                return Failed.PERHAPS
        return self.commit(value)

    def end(self) -> None:
        """Everything under way arrives."""
        while self._late:
            self.commit(self._late.pop())


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_client, "_PAUSE_S", 0)


@pytest.fixture
def _few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)


async def story(world: World) -> list[Any]:
    """Several clients with several commands each; the outcome of each command."""
    clients = [Client(world.propose) for _ in range(2)]
    doing = [clients[n % 2].do(b"%d" % n) for n in range(COUNT)]
    told = await asyncio.gather(*doing, return_exceptions=True)
    world.end()
    return told


def outcomes(chosen: Iterable[int]) -> Counter[str]:
    """The number of each outcome, after checking that all are true."""
    told_of: Counter[str] = Counter()
    for seed in chosen:
        world = World(seed)
        for number, told in enumerate(asyncio.run(story(world))):
            applied = world.machine.applied[b"%d" % number]
            if isinstance(told, int):
                assert applied == 1, (seed, number)
            elif isinstance(told, UnknownError):
                assert applied <= 1, (seed, number)
            else:
                assert isinstance(told, NotAppliedError), (seed, told)
                assert applied == 0, (seed, number)
            told_of[type(told).__name__] += 1
    return told_of


@pytest.mark.usefixtures("_few_sessions")
def test_each_command_is_applied_once_or_reported() -> None:
    told_of = outcomes(seeds("RAFT_CLIENT", 400, 20_000))
    assert told_of["int"] > told_of["UnknownError"] > 0


class Careless:
    """Takes every copy for one that was not applied."""

    may_be_applied = property(lambda self: False, lambda self, value: None)


CANARIES = {
    "whatever was committed is done": ("_DONE", tuple(Outcome)),
    "a copy without a session is done": ("_DONE", (Outcome.APPLIED, Outcome.NO_SESSION)),
    "a copy of which nobody told is forgotten": ("_Copies", Careless),
}


@pytest.mark.usefixtures("_few_sessions")
@pytest.mark.parametrize("name", CANARIES)
def test_a_client_that_breaks_its_promise_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_client, *CANARIES[name])
    with pytest.raises(AssertionError):
        outcomes(range(400))


@pytest.mark.parametrize("ends", [Failed.FOR_CERTAIN, Failed.PERHAPS])
def test_a_cluster_that_does_not_answer(ends: Failed) -> None:
    """Only commands that may have been proposed have an unknown outcome."""

    async def propose(value: bytes) -> Committed | Failed:
        return Committed(1, Outcome.OPENED) if value == open_session() else ends

    async def main() -> None:
        expected = NotAppliedError if ends is Failed.FOR_CERTAIN else UnknownError
        with pytest.raises(expected):
            await Client(propose).do(b"value", patience_s=0.01)

    asyncio.run(main())


def test_a_copy_that_nobody_has_answered_yet_is_unknown() -> None:
    async def propose(value: bytes) -> Committed | Failed:
        if value != open_session():
            await asyncio.Event().wait()
        return Committed(1, Outcome.OPENED)

    async def main() -> None:
        with pytest.raises(UnknownError):
            await Client(propose).do(b"value", patience_s=0.01)

    asyncio.run(main())


def test_what_comes_too_late_is_no_success() -> None:
    async def propose(value: bytes) -> Committed | Failed:
        opened = value == open_session()
        return Committed(1, Outcome.OPENED if opened else Outcome.TOO_OLD)

    async def main() -> None:
        with pytest.raises(UnknownError):
            await Client(propose).do(b"value")

    asyncio.run(main())


def test_more_commands_at_once_than_a_session_has_room_for() -> None:
    """The others wait, even for a long time, while the oldest is not done."""
    machine = Counting()
    log = Sessions(machine)
    index = under_way = most = 0

    async def propose(value: bytes) -> Committed | Failed:
        nonlocal index, under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(500 if value.endswith(b"first") else 20):
            await asyncio.sleep(0)
        under_way -= 1
        index += 1
        log.apply(index, value)
        outcome = log.outcome_of(index)
        assert outcome is not None
        return Committed(index, outcome)

    async def main() -> list[int]:
        client = Client(propose)
        values = [b"first", *(b"%d" % n for n in range(3 * WINDOW))]
        return await asyncio.gather(*map(client.do, values))

    assert len(set(asyncio.run(main()))) == 3 * WINDOW + 1
    assert set(machine.applied.values()) == {1}
    assert 32 < most <= WINDOW


# Servers that die, as `Cluster` sees them

Answer = dict[str, Any] | None


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """A control port that gives these answers; ``None``: it dies of a question."""
    asked: list[dict[str, Any]] = []
    left: Iterator[Answer] = iter(answers)

    async def control(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(json.loads(await reader.readline()))
        if answer := next(left, None):
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    server = await asyncio.start_server(control, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


def committed(outcome: Outcome, index: int = 5) -> Answer:
    return {"ok": True, "index": index, "outcome": outcome.value}


OPENED, APPLIED, REPEATED, LOST_SESSION = map(
    committed, (Outcome.OPENED, Outcome.APPLIED, Outcome.REPEATED, Outcome.NO_SESSION)
)
TIMEOUT, REFUSED = ({"error": "ANY", "certain": certain} for certain in (False, True))
CASES: dict[str, tuple[list[Answer], list[Answer], type[Exception] | None]] = {
    "all is well": ([OPENED, APPLIED], [], None),
    "the first dies before its answer": ([OPENED, None], [REPEATED], None),
    "the first dies, and the session has ended": ([OPENED, None], [LOST_SESSION], UnknownError),
    "the first is slow, and the session has ended": (
        [OPENED, TIMEOUT],
        [LOST_SESSION],
        UnknownError,
    ),
    "the first refuses, and the session has ended": (
        [OPENED, REFUSED, APPLIED],
        [LOST_SESSION, OPENED],
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_copies_at_several_servers(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_client, "_PATIENCE_MIN_S", SECONDS_MAX)  # none of them is slow
    firsts, others, expected = CASES[case]

    async def main() -> list[bytes]:
        async with AsyncExitStack() as stack:
            ports, asked = zip(
                *[
                    await stack.enter_async_context(serving(*answers))
                    for answers in (firsts, others)
                ],
                strict=True,
            )
            client = Client(Cluster(dict(enumerate(ports))).propose)
            if expected is None:
                await client.do(b"value", SECONDS_MAX)
            else:
                with pytest.raises(expected):
                    await client.do(b"value", SECONDS_MAX)
            values = [bytes.fromhex(one["value"]) for one in (*asked[0], *asked[1])]
            return [value for value in values if value != open_session()]

    copies = asyncio.run(main())
    if "refuses" not in case:
        assert len(set(copies)) == 1  # the same bytes, wherever they went


def test_a_server_that_is_not_there_was_not_asked() -> None:
    with socket.socket() as taken:  # so that no other process listens there meanwhile
        taken.bind(("127.0.0.1", 0))
        cluster = Cluster({1: taken.getsockname()[1]})
        assert asyncio.run(cluster.propose(b"value")) is Failed.FOR_CERTAIN


def test_a_server_that_has_no_place_for_us_was_not_asked() -> None:
    async def main() -> None:
        async with serving(json.loads(raft_server.BUSY), OPENED) as (port, _):
            cluster = Cluster({1: port})
            assert await cluster.propose(b"value") is Failed.FOR_CERTAIN
            assert await cluster.propose(b"value") == Committed(5, Outcome.OPENED)

    asyncio.run(main())


def test_who_has_to_wait_for_another_change_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And reports that change if it does not end."""
    answers = iter(["CHANGE_IN_PROGRESS", "NOT_LEADER"] * 2 + [""])

    async def ask_one(port: int, question: Any, patience_s: float) -> dict[str, Any]:
        error = next(answers)
        return {"error": error} if error else {"ok": True}

    monkeypatch.setattr(raft_client, "ask_one", ask_one)
    assert asyncio.run(Cluster({1: 1, 2: 2}).ask({"do": "transfer", "id": 2})) == {"ok": True}
    answers = iter(["CHANGE_IN_PROGRESS", "NOT_LEADER"])
    monkeypatch.setattr(raft_client, "PATIENCE_S", 0)  # for one round
    told = asyncio.run(Cluster({1: 1, 2: 2}).ask({"do": "transfer", "id": 2}))
    assert told == {"error": "CHANGE_IN_PROGRESS"}


def test_a_server_that_hangs_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """One beside a healthy one costs a moment once; where all are slow, they get time."""
    waited: list[float] = []

    async def ask_one(port: int, question: Any, patience_s: float) -> dict[str, Any]:
        waited.append(patience_s)
        return {"ok": True, "value": "v"} if port == 2 else {"error": "NO_ANSWER"}

    async def main() -> None:
        healthy = Cluster({1: 1, 2: 2})
        for _ in range(3):
            assert (await healthy.ask({"do": "get"}))["ok"]
        assert (waited[0], len(waited)) == (1.0, 4)
        waited.clear()
        slow = Cluster({1: 1, 3: 3})
        for _ in range(5):
            assert await slow.propose(b"value") is Failed.PERHAPS

    monkeypatch.setattr(raft_client, "ask_one", ask_one)
    asyncio.run(main())
    assert waited == [1.0, 2.0, 4.0, 6.0, 6.0]
