"""A store of the key-value store's servers that is another's, lost, or damaged."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from culm.garlic.node import Node
from culm.garlic.raft import Entry, Persist
from culm.garlic.sessions import Sessions, plain
from culm.machine import Ticket
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.raft.command import main
from culm_io.programs.raft.farm import Farm
from culm_io.programs.raft.server import KeyValues, MarkedStore
from culm_io.stores.raft import RaftSqliteStore


def open_store(farm: Farm, number: int) -> MarkedStore:
    with farm.claimed(number) as path:
        return MarkedStore(farm, number, path, Sessions(KeyValues()))


def farm_of_two(folder: Path) -> Farm:
    """Both servers have stored something."""
    farm = Farm.found(folder, 2, tls=False)
    entry = Entry(1, plain(b'{"key": "a", "value": "b"}'))
    for number in (1, 2):
        with closing(open_store(farm, number)) as store:
            for commit_index, entries in ((0, [entry] * 5), (number, [])):
                effect = Persist(
                    ticket=Ticket(0),
                    term=3,
                    voted_for=number,
                    commit_index=commit_index,
                    first_index=1 if entries else None,
                    entries=entries,
                )
                store.perform(effect)
    return farm


def swap(folder: Path) -> None:
    for path in folder.glob("node-1.*"):
        path.rename(folder / path.name.replace("-1", "-9"))
    for old, new in (("-2", "-1"), ("-9", "-2")):
        for path in folder.glob(f"node{old}.*"):
            path.rename(folder / path.name.replace(old, new))


def copy_of_another(folder: Path) -> None:
    """That was written more often."""
    shutil.copy(folder / "node-2.sqlite", folder / "node-1.sqlite")
    (folder / "node-1.started").unlink()


def empty(folder: Path) -> None:
    """As a copy that had no room."""
    (folder / "node-1.sqlite").write_bytes(b"")
    (folder / "node-1.started").unlink()


def other_file(folder: Path) -> None:
    """So short that SQLite takes it for an empty one."""
    (folder / "node-1.sqlite").write_bytes(b"no store")
    (folder / "node-1.started").unlink()


def lose_all(folder: Path) -> None:
    """With the disk, on which the mark was as well."""
    for path in folder.glob("node-1.*"):
        path.unlink()


HARM = {
    "swapped": (swap, "it is that of server 2"),
    "copied": (copy_of_another, "it is that of server 2"),
    "empty": (empty, "the store of server 1 is lost"),
    "another file": (other_file, "file is not a database"),
    "all is lost": (lose_all, "the store of server 1 is lost"),
}


@pytest.mark.parametrize("case", HARM)
def test_a_server_starts_from_nothing_but_its_own_store(case: str, tmp_path: Path) -> None:
    """Else it votes twice in a term, or counts twice for what another server has."""
    farm_of_two(tmp_path)
    harm, words = HARM[case]
    harm(tmp_path)
    with pytest.raises(ImpossibleError, match=words):
        open_store(Farm(tmp_path), 1).close()
    with pytest.raises(ImpossibleError, match=words):
        main(["recover", "--dir", str(tmp_path), "1"])


def test_a_copy_under_a_new_number_is_refused(tmp_path: Path) -> None:
    """A new server starts empty."""
    farm = farm_of_two(tmp_path)
    shutil.copy(tmp_path / "node-2.sqlite", tmp_path / "node-3.sqlite")
    farm.add(3)
    with pytest.raises(ImpossibleError, match="it is that of server 2"):
        open_store(farm, 3).close()


def test_a_store_of_an_earlier_version_belongs_to_who_opens_it_first(tmp_path: Path) -> None:
    path = tmp_path / "store"
    RaftSqliteStore(path, Sessions(KeyValues())).close()
    for _ in range(2):
        RaftSqliteStore(path, Sessions(KeyValues()), server_id=7).close()
    with pytest.raises(sqlite3.DatabaseError, match="that of server 7"):
        RaftSqliteStore(path, Sessions(KeyValues()), server_id=8)
    RaftSqliteStore(path, Sessions(KeyValues())).close()


@pytest.mark.parametrize("mark", [b"", b"00", b"no\n", b"\xff\xfe", b"9" * 5000, "²".encode()])
def test_a_mark_that_is_no_number_says_nothing(mark: bytes, tmp_path: Path) -> None:
    farm = farm_of_two(tmp_path)
    (tmp_path / "node-1.started").write_bytes(mark)
    open_store(farm, 1).close()


def in_place(**changed: object) -> Callable[[dict[str, Any]], object]:
    return lambda data: data["nodes"]["2"].update(changed)


DESCRIBE_NOTHING: dict[str, Callable[[dict[str, Any]], object]] = {
    "no port": lambda data: data["nodes"]["2"].pop("control"),
    "no place": lambda data: data["nodes"].update({"2": 7}),
    "port of text": in_place(raft="x"),
    "negative port": in_place(control=-1),
    "port 0": in_place(raft=0),
    "port too large": in_place(control=70_000),
    "half a port": in_place(raft=5.5),
    "port that is a bool": in_place(raft=True),
    "number of text": lambda data: data["nodes"].update(x=data["nodes"]["1"]),
    "negative number": lambda data: data["nodes"].update({"-1": data["nodes"]["1"]}),
    "number 0": lambda data: data["nodes"].update({"0": data["nodes"]["1"]}),
    "number twice": lambda data: data["nodes"].update({"02": data["nodes"]["1"]}),
    "number too large": lambda data: data["nodes"].update({str(2**31): data["nodes"]["1"]}),
    "number far too large": lambda data: data["nodes"].update({"9" * 5000: data["nodes"]["1"]}),
    "founder without a place": lambda data: data.update(founders=[1, 7]),
    "founder of text": lambda data: data.update(founders=["1"]),
    "removed text": lambda data: data.update(removed="2"),
    "removed texts": lambda data: data.update(removed=["2"]),
    "started texts": lambda data: data.update(started=["2"]),
}


@pytest.mark.parametrize("case", DESCRIBE_NOTHING)
def test_a_file_that_describes_no_cluster_is_told_apart(case: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    Farm.found(tmp_path, 2, tls=False)
    data = json.loads(path.read_text())
    DESCRIBE_NOTHING[case](data)
    path.write_text(json.dumps(data))
    with pytest.raises(ImpossibleError, match="does not describe a cluster"):
        Farm(tmp_path)


def bytes_damaged(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 3, 30, 300])):
        data[rng.randrange(100, len(data))] = rng.choice([0, 255, rng.randrange(256)])
    path.write_bytes(data)


COLUMNS = {
    "state": ("term", "voted_for", "commit_index", "first_index"),
    "entries": ("at", "term", "is_configuration", "value"),
    "snapshot": ("at", "term", "configuration", "size"),
    "image": ("at", "data"),
    "written": ("times",),
    "owner": ("server_id",),
}
VALUES = [None, -1, 0, 1, 2**62, 2**63 - 1, -(2**63), 1.5, "x", "5", b"", b"\xff" * 30, bytes(16)]


def values_damaged(path: Path, rng: random.Random) -> None:
    """A file that was damaged need not have the types of its schema."""
    for statement in (
        "UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '')",
        f"DELETE FROM {rng.choice([*COLUMNS])} WHERE {int(rng.random() < 0.2)}",
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as store:
            store.execute("PRAGMA writable_schema = 1")
            store.execute(statement)
    with closing(sqlite3.connect(path, isolation_level=None)) as store:
        table, columns = rng.choice([*COLUMNS.items()])
        column, value = rng.choice(columns), rng.choice(VALUES)
        with suppress(sqlite3.IntegrityError):  # of the index, which keeps its type
            store.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))


def starts(farm: Farm) -> bool:
    """Whether a server does; what its program would not tell in a sentence is raised."""
    try:
        with farm.claimed(1) as path:
            store = MarkedStore(farm, 1, path, Sessions(KeyValues()))
            with closing(store):
                stored = store.load()
    except ImpossibleError:
        return False
    try:  # what cannot be true as a whole
        Node(server_id=1, stored=stored, rng=random.Random(1), now=0.0)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("damage", [bytes_damaged, values_damaged])
def test_a_damaged_store_works_or_says_so(
    damage: Callable[[Path, random.Random], None], tmp_path: Path
) -> None:
    farm_of_two(tmp_path / "good")
    started = 0
    for seed in range(60):
        folder = tmp_path / str(seed)
        shutil.copytree(tmp_path / "good", folder)
        damage(folder / "node-1.sqlite", random.Random(seed))
        started += starts(Farm(folder))
    assert 5 < started < 50


def test_what_cannot_be_true_as_a_whole_is_told_in_a_sentence(tmp_path: Path) -> None:
    farm_of_two(tmp_path)
    with closing(sqlite3.connect(tmp_path / "node-1.sqlite", isolation_level=None)) as store:
        store.execute("UPDATE state SET commit_index = 1000000")
    with pytest.raises(ImpossibleError, match=r"^the store of server 1: .* 1000000 was committed"):
        main(["run", "--dir", str(tmp_path), "1"])
