"""A cluster of JRaft's servers and ours, whose processes are killed at random.

Every server prints each value that it considers committed.  `Ledger` reads that, from every server
and however often, and `logs_of` reads the disks of all afterwards.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from jraft_field import Field, client_request
from mixed_server import Printer

from culm.garlic.raft import Entry
from culm.garlic.values import LogEntry, ValueType, packed
from culm_io.stores.raft import RaftSqliteStore

JRAFT, OURS = (1, 2, 3), (4, 5)
ALL = JRAFT + OURS
SERVER = Path(__file__).with_name("mixed_server.py")
# A line that was cut short by a kill ends differently.
COMMIT = re.compile(rb"commit: (\d+)\t([-\w]+:end)\r?\n")
LEADER = re.compile(rb"leader: (\d+) of term (\d+)\n")
LOGGING = """\
log4j.rootLogger=INFO, F
log4j.appender.F=org.apache.log4j.FileAppender
log4j.appender.F.File=jraft.log
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=%d %p %m%n
"""
# One of ours has a single request in flight, as JRaft has; the other one has several.
CORE_LIMITS: dict[int, dict[str, int]] = {
    4: {"append_entries_max": 200},
    5: {"append_entries_max": 200, "in_flight_max": 4, "writes_max": 4},
}
# JRaft's leader never reaches a peer again that lacks 1,000 entries (docs/garlic.md), so fewer are
# written while one is down.
CLIENTS, VALUES_MAX, PAUSE_S = 4, 3, 0.15
# Seconds: with less between two kills, hardly any leader lives long enough to be elected.
BETWEEN_KILLS_S, DOWN_S, DOWN_MAX = (1.0, 8.0), (0.3, 6.0), 2
TOLD_IN_S, SETTLED_IN_S = 8.0, 60.0
_POSITION = struct.Struct(">q")
_TERM_AND_TYPE = struct.Struct(">qb")


class Ledger:
    """The servers' reports: the values by index, and the reporting servers by value."""

    def __init__(self) -> None:
        self.told: dict[int, dict[bytes, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.values: set[bytes] = set()
        self.leaders: dict[int, set[int]] = defaultdict(set)  # by term, as ours have seen them
        self._read: Counter[Path] = Counter()

    def read(self, number: int, path: Path) -> None:
        with path.open("rb") as out:
            out.seek(self._read[path])
            text = out.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read[path] += len(text)
        for index, value in COMMIT.findall(text):
            self.told[int(index)][value].add(number)
            self.values.add(value)
        for leader, term in LEADER.findall(text):
            self.leaders[int(term)].add(int(leader))


class Storm(Field):
    """The processes, the clients and the killer, with `rng` as its source of chance."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder)
        self.rng = rng
        self._of_clients = random.Random(rng.random())  # drawn from as time allows
        self.ledger = Ledger()
        self.kills: Counter[int] = Counter()
        self.mended: list[str] = []  # JRaft's stores that a kill has left unreadable
        self.ended: list[str] = []  # servers that ended by themselves
        self.leader = 1
        self._configurations: dict[int, bytes] = {}
        self.name(*ALL)
        for number in JRAFT:
            self.found_jraft(number, ALL)
            (self.home(number) / "log4j.properties").write_text(LOGGING)
        for number in OURS:
            self.home(number).mkdir()
            given = {
                "id": number,
                "folder": str(self.home(number)),
                "servers": {one: server.endpoint for one, server in self.servers.items()},
                "limits": CORE_LIMITS[number],
            }
            (self.home(number) / "given.json").write_text(json.dumps(given))

    def home(self, number: int) -> Path:
        return self.folder / f"{'jraft' if number in JRAFT else 'ours'}-{number}"

    def run(self, number: int) -> None:
        """Start a server, for the first time or again."""
        path = self.home(number) / "out"
        with path.open("ab") as out:
            out.write(b"\nstart\n")  # whatever the line before was
        if number in JRAFT:
            self.mend(number)
            self.run_jraft(number, "-Dlog4j.configuration=file:log4j.properties")
            return
        command = [sys.executable, str(SERVER), str(self.home(number) / "given.json")]
        with path.open("ab") as out:
            self.processes[number] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
            )

    def mend(self, number: int) -> None:
        """Undo damage that JRaft cannot read, and whose content it has acknowledged to no client.

        It writes an entry's position before the entry, and deletes its configuration before it
        writes the new one: a server killed in between never starts again.
        """
        positions, data = self.home(number) / "store.idx", self.home(number) / "store.data"
        if positions.exists():
            whole = positions.read_bytes()[: positions.stat().st_size // 8 * 8]
            while whole and _POSITION.unpack_from(whole, len(whole) - 8)[0] >= data.stat().st_size:
                whole = whole[:-8]
            if len(whole) != positions.stat().st_size:
                positions.write_bytes(whole)
                self.mended.append(f"{number}: a position without its entry")
        path = self.home(number) / "cluster.json"
        try:
            json.loads(path.read_bytes())
        except (OSError, ValueError):
            path.write_bytes(self._configurations[number])
            self.mended.append(f"{number}: no configuration")
        self._configurations[number] = path.read_bytes()

    def kill(self, number: int) -> None:
        self.kills[number] += 1
        super().kill(number)

    def look(self) -> None:
        """Read the new output, and note servers that have ended without being killed."""
        for number in ALL:
            if (self.home(number) / "out").exists():
                self.ledger.read(number, self.home(number) / "out")
        for number, process in list(self.processes.items()):
            if process.poll() is not None:
                last = (self.home(number) / "out").read_bytes()[-400:].decode("utf-8", "replace")
                self.ended.append(f"{number}, status {process.returncode}: {last}")
                super().kill(number)
                self.run(number)

    # Running at the same time

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.1)

    async def write(self, *values: bytes) -> None:
        """Ask until all values are acknowledged; some may be committed more than once."""
        while not self.ledger.values.issuperset(values):
            if await self._ask_someone(values):
                await self._told(values)
            else:
                await asyncio.sleep(0.2)

    async def _ask_someone(self, values: tuple[bytes, ...]) -> bool:
        for number in (self.leader, *self._of_clients.sample(ALL, len(ALL))):
            response = await self.ask(number, client_request(*values))
            if response is not None and response.accepted:
                self.leader = number
                return True
        return False

    async def _told(self, values: tuple[bytes, ...]) -> None:
        until = time.monotonic() + TOLD_IN_S
        while time.monotonic() < until and not self.ledger.values.issuperset(values):
            await asyncio.sleep(0.05)

    async def client(self, name: int, stop: asyncio.Event) -> int:
        """Write until the stop; the number of acknowledged values."""
        count = 0
        while not stop.is_set():
            size = self._of_clients.randint(1, VALUES_MAX)
            await self.write(*(f"c{name}-{count + one}:end".encode() for one in range(size)))
            count += size
            await asyncio.sleep(PAUSE_S)
        return count

    async def killer(self, stop: asyncio.Event) -> None:
        """Kill any server, with at most two down at a time, and start it again later."""
        returning: set[asyncio.Task[None]] = set()
        while not stop.is_set():
            up = sorted(self.processes)
            number, down_s = self.rng.choice(up), self.rng.uniform(*DOWN_S)
            if len(up) > len(ALL) - DOWN_MAX:
                self.kill(number)
                returning.add(asyncio.create_task(self._return(number, down_s)))
            await asyncio.sleep(self.rng.uniform(*BETWEEN_KILLS_S))
        await asyncio.gather(*returning)

    async def _return(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        self.run(number)

    async def settle(self) -> int:
        """Write a last value until all servers have reported it; the number of leaders killed on
        the way.

        A leader that has lost a peer for good (docs/garlic.md) leads on, so it is killed.
        """
        gone, count = 0, 0
        while True:
            until = time.monotonic() + SETTLED_IN_S
            while time.monotonic() < until:
                value = f"last-{count}:end".encode()
                count += 1
                await self.write(value)
                await asyncio.sleep(2.0)
                for told in self.ledger.told.values():
                    if told.get(value, set()) == set(ALL):
                        return gone
            if self.leader not in JRAFT or gone == len(JRAFT):
                raise AssertionError("the cluster does not come to rest")
            gone += 1
            self.kill(self.leader)
            self.run(self.leader)
            await asyncio.sleep(5.0)


async def rage(storm: Storm, seconds: float, say: Callable[[str], object]) -> int:
    """Kill and write for that many seconds; returns the number of acknowledged values."""
    for number in ALL:
        storm.run(number)
    stop = asyncio.Event()
    watcher = asyncio.create_task(storm.watch())
    await storm.write(b"first:end")
    began = time.monotonic()
    tasks = [asyncio.create_task(storm.client(name, stop)) for name in range(CLIENTS)]
    killer = asyncio.create_task(storm.killer(stop))
    while (gone := time.monotonic() - began) < seconds:
        await asyncio.sleep(min(30.0, seconds - gone))
        kills, told = storm.kills.total(), len(storm.ledger.told)
        say(f"{time.monotonic() - began:.0f} s: {kills} kills, {told} indexes told")
    stop.set()
    await killer
    acknowledged = sum(await asyncio.gather(*tasks))
    gone = await storm.settle()
    say(f"{gone} leaders of JRaft had lost a peer for good")
    watcher.cancel()
    for number in ALL:
        Field.kill(storm, number)
    storm.look()
    return acknowledged


# The contents of their disks


def jraft_log(home: Path) -> Iterator[tuple[int, LogEntry]]:
    """Index and entry of everything that a JRaft server holds."""
    data = (home / "store.data").read_bytes()
    positions = [at for (at,) in _POSITION.iter_unpack((home / "store.idx").read_bytes())]
    (first,) = _POSITION.unpack((home / "store.sti").read_bytes())
    ends = [*positions[1:], len(data)]
    for index, (start, end) in enumerate(zip(positions, ends, strict=True), first):
        term, kind = _TERM_AND_TYPE.unpack_from(data, start)
        yield index, LogEntry(term, ValueType(kind), data[start + _TERM_AND_TYPE.size : end])


def our_log(home: Path) -> Iterator[tuple[int, LogEntry]]:
    store = RaftSqliteStore(home / "raft.sqlite", Printer())
    stored = store.load()
    store.close()
    for index, entry in enumerate(stored.entries, stored.first_index):
        yield index, packed(Entry(*entry))


def logs_of(storm: Storm) -> dict[int, dict[int, LogEntry]]:
    """All logs, by server and index."""
    return {
        number: dict((jraft_log if number in JRAFT else our_log)(storm.home(number)))
        for number in ALL
    }


def compared(
    logs: dict[int, dict[int, LogEntry]], last: int
) -> tuple[dict[int, LogEntry], dict[int, dict[int, LogEntry | None]]]:
    """The entries, up to `last`, on which all servers that hold an index agree; and the
    differences.

    JRaft's servers hold only entries that they have not compacted.
    """
    agreed: dict[int, LogEntry] = {}
    differ: dict[int, dict[int, LogEntry | None]] = {}
    begins = {number: min(log, default=sys.maxsize) for number, log in logs.items()}
    for index in range(1, last + 1):
        held = {number: logs[number].get(index) for number in logs if begins[number] <= index}
        first = next(iter(held.values()), None)
        if any(entry != first for entry in held.values()):
            differ[index] = held
        elif first is not None:
            agreed[index] = first
    return agreed, differ


def told_otherwise(ledger: Ledger, agreed: dict[int, LogEntry]) -> dict[int, dict[bytes, set[int]]]:
    """Reports of commitment that contradict the logs, and the servers that made them.

    Where all have compacted their logs, these are the reports that contradict each other.
    """
    found: dict[int, dict[bytes, set[int]]] = {}
    for index, told in sorted(ledger.told.items()):
        if (entry := agreed.get(index)) is None:
            wrong = dict(told) if len(told) > 1 else {}
        else:
            value = entry.value if entry.type is ValueType.APPLICATION else None
            wrong = {said: who for said, who in told.items() if said != value}
        if wrong:
            found[index] = wrong
    return found
