"""The SQLite store of a Raft node is killed at every moment of every effect.

A child process does effects one after the other and reports each; it is killed with SIGKILL before
a statement, in the middle of one, or after it.  The file then holds the state after the reported
effects, or after one more: nothing else, and never less.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from connections import Quick, opening

from culm.garlic.raft import (
    Apply,
    Compact,
    ReadSnapshot,
    Snapshot,
    SnapshotChunk,
    Stored,
    TakeSnapshot,
    WriteSnapshot,
)
from culm.garlic.sessions import Sessions, plain
from culm.garlic.store import MemoryStore, StateMachine, Store
from culm.machine import Effect, Ticket
from culm.testing.raft_store_model import (
    FOUNDING,
    LIFE,
    TICKET,
    UNREADABLE,
    Values,
    entries_of,
    persist,
)
from culm.testing.raft_stores import Crashed, RaftStoreSuite
from culm_io.programs.raft.server import KeyValues
from culm_io.stores import raft as raft_sqlite_store
from culm_io.stores.raft import RaftSqliteStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

EFFECTS = LIFE
TAKEN, SENT = (
    next(effect.snapshot for effect in EFFECTS if isinstance(effect, kind))
    for kind in (TakeSnapshot, WriteSnapshot)
)


def chunk(snapshot: Snapshot, offset: int, data: bytes) -> WriteSnapshot:
    return WriteSnapshot(ticket=Ticket(1), snapshot=snapshot, offset=offset, data=data, done=False)


def states() -> tuple[list[tuple[Stored, list[bytes]]], list[list[bytes]]]:
    """After none, one, two... effects: the stored state with its log, and the state machine's."""
    machine = Values()
    store = MemoryStore(machine, FOUNDING)
    found, live = [(store.load(), list(machine.values))], [list(machine.values)]
    for effect in EFFECTS:
        machine.values = list(live[-1])
        store.perform(effect)
        live.append(list(machine.values))
        found.append((store.load(), list(machine.values)))
    return found, live


STATES, LIVE = states()


def query(path: Path, statement: str, *values: object) -> list[Any]:
    """Another connection's query of the file, or change to it."""
    with closing(sqlite3.connect(path)) as other, other:
        return other.execute(statement, values).fetchall()


def read(path: Path) -> tuple[Stored, list[bytes]]:
    """The state from which a node would start; the file must be sound."""
    machine = Values()
    store = RaftSqliteStore(path, machine, FOUNDING)
    try:
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
        stored = store.load()
    finally:
        store.close()
    return (
        Stored(
            term=stored.term,
            voted_for=stored.voted_for,
            commit_index=stored.commit_index,
            snapshot=stored.snapshot,
            first_index=stored.first_index,
            entries=tuple(stored.entries),
        ),
        machine.values,
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


Watch = Callable[[sqlite3.Connection], None]


def perform_until_killed(path: Path, watch: Watch) -> list[int]:
    """Let a child do all effects; returns the journal's size after each one reported.

    `watch` gets the connection as soon as it is open, and kills in its own time; a surviving child
    kills itself at the end.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child uses no thread
        child = os.fork()
    if child == 0:
        try:
            _perform(path, watch, writer)
        finally:
            die()
    os.close(writer)
    with os.fdopen(reader, "rb") as reports:
        data = reports.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    return [size for (size,) in struct.iter_unpack("<q", data)]


def _perform(path: Path, watch: Watch, reports: int) -> None:
    connect = sqlite3.connect

    def watched(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)  # type: ignore[call-overload]
        watch(connection)
        return connection  # type: ignore[no-any-return]

    raft_sqlite_store.sqlite3.connect = watched  # type: ignore[assignment]
    store = RaftSqliteStore(path, Values(), FOUNDING)
    store.load()
    for effect in EFFECTS:
        store.perform(effect)
        wal = Path(f"{path}-wal")
        os.write(reports, struct.pack("<q", wal.stat().st_size if wal.exists() else 0))


def at_statement(number: int) -> Watch:
    """Kill when `number` statements have begun."""
    numbers = count(1)
    return lambda db: db.set_trace_callback(lambda _: die() if next(numbers) == number else None)


def at_step(number: int) -> Watch:
    """Kill in the middle of statements, after `number` steps of SQLite's machine."""
    numbers = count(1)
    return lambda db: db.set_progress_handler(lambda: die() if next(numbers) == number else None, 1)


def check(path: Path, reported: int) -> int:
    """The file holds the reported effects, or one more; returns their number."""
    found = read(path)
    candidates = [at for at in (reported, reported + 1) if at < len(STATES) and STATES[at] == found]
    assert candidates, (reported, found)
    return candidates[-1]


def finish(path: Path, done: int) -> None:
    """The node goes on from there; an unfinished snapshot begins anew."""
    while done < len(EFFECTS) and isinstance(again := EFFECTS[done], WriteSnapshot):
        if not again.offset:
            break
        done -= 1
    machine = Values()
    store = RaftSqliteStore(path, machine, FOUNDING)
    try:
        store.load()
        machine.values = list(LIVE[done])  # the log is applied again
        for effect in EFFECTS[done:]:
            store.perform(effect)
    finally:
        store.close()
    assert read(path) == STATES[-1]


def kills(watch: Callable[[int], Watch], numbers: Iterator[int], folder: Path) -> set[int]:
    """Kill at each of `numbers`, until the child gets through; the numbers of effects seen."""
    seen = set()
    for number in numbers:
        path = folder / f"{number}.sqlite"
        reports = perform_until_killed(path, watch(number))
        done = check(path, len(reports))
        seen.add(len(reports))
        if number % 4 == 1:
            finish(path, done)
        if len(reports) == len(EFFECTS):
            break
    return seen


@pytest.mark.slow
def test_a_kill_in_the_middle_of_statements_loses_nothing_that_was_reported(
    tmp_path: Path,
) -> None:
    seen = kills(at_step, count(1, 20), tmp_path)
    assert len(seen) > len(EFFECTS) // 2


def test_a_journal_that_is_cut_anywhere_holds_all_or_nothing_of_the_last_effect(
    tmp_path: Path,
) -> None:
    """In the middle of a commit: any part of it may have reached the journal file."""
    path = tmp_path / "whole.sqlite"
    sizes = perform_until_killed(path, lambda db: None)
    assert len(sizes) == len(EFFECTS)
    journal = Path(f"{path}-wal").read_bytes()
    cuts = 0
    for done, (size, following) in enumerate(pairwise(sizes), 1):
        for cut in {size, (size + following) // 2, following - 1, following}:
            if not size <= cut <= following:
                continue
            cuts += 1
            for torn in (journal[:cut], journal[:cut] + bytes(following - cut)):
                copy = tmp_path / "cut.sqlite"
                shutil.copy(path, copy)
                Path(f"{copy}-wal").write_bytes(torn)
                Path(f"{copy}-shm").unlink(missing_ok=True)
                whole = torn == journal[:following]
                found = read(copy)
                assert found == STATES[done + 1 if whole else done], (done, cut)
    assert cuts > 2 * len(EFFECTS)


def test_all_effects_have_their_results(tmp_path: Path) -> None:
    """Equal to those of the store in memory."""
    machine, other = Values(), Values()
    store = RaftSqliteStore(tmp_path / "store.sqlite", machine, FOUNDING)
    twin = MemoryStore(other, FOUNDING)
    reads = [
        ReadSnapshot(ticket=Ticket(1), snapshot=which, offset=at, size=3)
        for which in (TAKEN, SENT)
        for at in (0, 3, 5, 3010)
    ]
    wrong = chunk(SENT, 99, b"not what is wanted")
    try:
        for effect in EFFECTS:
            for one in (effect, wrong, *reads):
                if one is wrong and isinstance(effect, WriteSnapshot):
                    continue
                result = store.perform(one)
                assert result == twin.perform(one)
                assert isinstance(result, bool | SnapshotChunk | None)
            assert machine.values == other.values
    finally:
        store.close()
    with pytest.raises(TypeError):
        twin.perform(Effect(ticket=Ticket(1)))


def test_a_write_behind_a_hole_is_refused(tmp_path: Path) -> None:
    store = RaftSqliteStore(tmp_path / "store", Values())
    store.perform(persist(1, 1, 0, 1, entries_of(1, b"a", b"b")))
    store.perform(Compact(ticket=TICKET, index=2))
    with pytest.raises(ValueError, match="is written from 4"):
        store.perform(persist(2, 1, 0, 4, entries_of(1, b"d")))
    assert store.load().term == 1
    store.perform(persist(2, 1, 0, 3, entries_of(1, b"c")))
    assert store.load().term == 2
    store.close()


class TestRaftSqliteStore(RaftStoreSuite):
    """The suite; the process is killed before each of its statements."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._paths = (tmp_path / f"{number}.sqlite" for number in count())
        self._path: dict[Store, Path] = {}

    def make_store(self, machine: Values, founding: Stored) -> Store:
        return self._open(next(self._paths), machine, founding)

    def _open(self, path: Path, machine: Values, founding: Stored) -> Store:
        store = RaftSqliteStore(path, machine, founding)
        self._path[store] = path
        return store

    def reopen(self, store: Store, machine: Values, founding: Stored) -> Store:
        assert isinstance(store, RaftSqliteStore)
        store.close()
        return self._open(self._path[store], machine, founding)

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        path, machine = next(self._paths), Values()
        reports = perform_until_killed(path, at_statement(point + 1))
        if len(reports) == len(effects):
            return None
        return Crashed(self._open(path, machine, FOUNDING), machine, len(reports))


def test_a_piece_of_a_snapshot_is_read_without_the_rest(tmp_path: Path) -> None:
    """SQLite reads a value as a whole: one value would make a transfer quadratic in its size."""
    image = bytes(range(256)) * 4096  # 1 MiB
    store = RaftSqliteStore(tmp_path / "sent", Image(image), FOUNDING)
    store.perform(TakeSnapshot(ticket=Ticket(1), snapshot=TAKEN))
    received = RaftSqliteStore(tmp_path / "received", Image(b""), FOUNDING)
    offset, done = 0, False
    while not done:
        read = ReadSnapshot(ticket=Ticket(1), snapshot=TAKEN, offset=offset, size=50_000)
        piece = store.perform(read)
        assert isinstance(piece, SnapshotChunk)
        data, done = piece.data, piece.done
        assert data == image[offset : offset + 50_000]
        write = chunk(SENT, offset, data)
        assert received.perform(replace(write, done=done)) is True
        offset += len(data)
    assert offset == len(image)
    again = ReadSnapshot(ticket=Ticket(1), snapshot=SENT, offset=99_999, size=3)
    assert received.perform(again) == SnapshotChunk(image[99_999:100_002], False)
    for one, name in ((store, "sent"), (received, "received")):
        assert ("image",) in query(tmp_path / name, "SELECT name FROM sqlite_schema")
        [(largest,)] = query(tmp_path / name, "SELECT max(length(data)) FROM image")
        assert largest <= 50_000
        one.close()


@pytest.mark.parametrize("machine", [Values, lambda: Sessions(KeyValues())])
def test_a_file_whose_snapshot_cannot_be_restored_says_so(
    machine: Callable[[], StateMachine], tmp_path: Path
) -> None:
    path = tmp_path / "store"
    store = RaftSqliteStore(path, machine(), FOUNDING)
    query(path, "INSERT OR REPLACE INTO image VALUES (0, ?)", UNREADABLE)
    with pytest.raises(sqlite3.DatabaseError, match="cannot be restored"):
        store.load()
    query(path, "UPDATE snapshot SET configuration = ?", b"x")
    with pytest.raises(sqlite3.DatabaseError, match="cannot be restored"):
        store.load()
    store.close()


IMAGES = [
    b"",
    b"garbage",
    bytes(4),
    bytes(4) + b"[" * 5_000,
    bytes(4) + b"[1]",
    bytes(4) + b'{"a": 1}',
    bytes(4) + b'{"a": "b"',
    bytes(4) + b"\xff",
    b"\xff" * 200,
    (1).to_bytes(4) + bytes(20),
]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_that_is_none_leaves_a_server_as_it_was(image: bytes, tmp_path: Path) -> None:
    """Anything that a leader, or a forger in its name, sends as the state of the servers."""
    machine = Sessions(KeyValues())
    store = RaftSqliteStore(tmp_path / "store", machine, FOUNDING)
    store.perform(persist(1, 1, 1, 1, entries_of(1, good := plain(b'{"key": "a", "value": "b"}'))))
    store.perform(Apply(ticket=TICKET, first_index=1, entries=entries_of(1, good)))
    state, stored = machine.snapshot(), store.load()
    store.perform(Apply(ticket=TICKET, first_index=1, entries=entries_of(1, good)))
    for cut in range(0, len(image) + 1, len(image) // 3 + 1):
        store.perform(chunk(SENT, 0, image[:cut]))
        assert store.perform(replace(chunk(SENT, cut, image[cut:]), done=True)) is False
        assert machine.snapshot() == state
        assert store.load() == stored
        store.perform(Apply(ticket=TICKET, first_index=1, entries=entries_of(1, good)))
    store.close()


@pytest.mark.parametrize("lost", [1, 2])
def test_a_log_with_a_hole_is_refused(lost: int, tmp_path: Path) -> None:
    """From an older file beside a newer journal, say; the rest would be at wrong indexes."""
    store = RaftSqliteStore(tmp_path / "store", Values(), FOUNDING)
    store.perform(persist(1, 1, 0, 1, entries_of(1, b"a", b"b", b"c")))
    query(tmp_path / "store", "DELETE FROM entries WHERE at = ?", lost)
    with pytest.raises(sqlite3.DatabaseError, match="missing"):
        store.load()
    store.close()


def test_a_snapshot_that_never_ends_takes_no_place_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = RaftSqliteStore(path, Values(), FOUNDING)
    store.close()
    usual = path.stat().st_size
    for _ in range(3):
        store = RaftSqliteStore(path, Values(), FOUNDING)
        for _ in range(2):  # the second replaces the first
            for number in range(32):
                assert store.perform(chunk(SENT, number << 16, bytes(1 << 16))) is True
        store.close()
        assert path.stat().st_size < 1.2 * (32 << 16)
    RaftSqliteStore(path, Values(), FOUNDING).close()
    assert path.stat().st_size == usual


@pytest.mark.slow
def test_a_piece_costs_the_same_wherever_it_is_and_however_large_the_snapshot_is(
    tmp_path: Path,
) -> None:
    """In steps of SQLite's machine, each of which reads at most one part."""
    steps: list[int] = []
    connections: list[sqlite3.Connection] = []

    class Noted(Quick):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            connections.append(self)

    for size in (1 << 20, 32 << 20):
        with opening(Noted):
            store = RaftSqliteStore(tmp_path / str(size), Image(bytes(size)), FOUNDING)
        store.perform(TakeSnapshot(ticket=Ticket(1), snapshot=TAKEN))
        for offset in (0, size // 2 + 5, size - 4096):
            count = 0

            def step() -> None:
                nonlocal count
                count += 1

            connections[-1].set_progress_handler(step, 1)
            read = ReadSnapshot(ticket=Ticket(1), snapshot=TAKEN, offset=offset, size=4096)
            assert store.perform(read) == SnapshotChunk(bytes(4096), offset == size - 4096)
            connections[-1].set_progress_handler(None, 0)
            steps.append(count)
        store.close()
    assert 0 < max(steps) < 100
    assert max(steps) - min(steps) < 20


class Image:
    """A state machine with that state."""

    def __init__(self, state: bytes) -> None:
        self.state = state

    def apply(self, index: int, value: bytes) -> None:
        raise AssertionError("nothing is applied")

    def snapshot(self) -> bytes:
        return self.state

    def restore(self, image: bytes) -> None:
        self.state = image
