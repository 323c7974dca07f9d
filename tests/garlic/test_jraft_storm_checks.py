"""The checks of a storm over a mixed cluster, as far as they need no JRaft."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from jraft_storm import Ledger, Storm, compared, jraft_log, our_log, told_otherwise
from mixed_server import Printer

from culm.garlic.raft import Entry, Persist
from culm.garlic.values import LogEntry, ValueType
from culm.machine import Ticket
from culm_io.stores.raft import RaftSqliteStore


def entry(value: bytes, term: int = 1) -> LogEntry:
    return LogEntry(term, ValueType.APPLICATION, value)


A, B, C = entry(b"a:end"), entry(b"b:end"), entry(b"c:end")


def test_equal_logs_agree_and_what_is_compacted_is_not_missed() -> None:
    logs = {1: {1: A, 2: B, 3: C}, 2: {2: B, 3: C}, 3: {}}
    assert compared(logs, last=3) == ({1: A, 2: B, 3: C}, {})


@pytest.mark.parametrize("other", [C, entry(b"b:end", term=2), None])
def test_another_value_another_term_and_a_missing_entry_are_differences(
    other: LogEntry | None,
) -> None:
    log = {1: A, 3: C} if other is None else {1: A, 2: other, 3: C}
    agreed, differ = compared({1: {1: A, 2: B, 3: C}, 2: log}, last=3)
    assert (agreed, differ) == ({1: A, 3: C}, {2: {1: B, 2: other}})


def test_a_log_that_ends_too_early_differs() -> None:
    _, differ = compared({1: {1: A, 2: B}, 2: {1: A}}, last=2)
    assert differ == {2: {1: B, 2: None}}


def ledger(folder: Path, **texts: str) -> Ledger:
    made = Ledger()
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        made.read(int(name[-1]), path)
    return made


def test_what_was_told_and_is_not_in_the_logs_is_found(tmp_path: Path) -> None:
    told = ledger(
        tmp_path,
        server1="commit: 1\ta:end\ncommit: 2\tb:end\n",
        server2="commit: 2\tlost:end\ncommit: 4\tx:end\ncommit: 5\tgone:end\n",
        server3="commit: 4\ty:end\n",
    )
    agreed = {1: A, 2: B, 5: LogEntry(1, ValueType.CONFIGURATION, b"gone:end")}
    assert told_otherwise(told, agreed) == {
        2: {b"lost:end": {2}},
        4: {b"x:end": {2}, b"y:end": {3}},  # compacted everywhere
        5: {b"gone:end": {2}},
    }


def test_lines_are_read_once_and_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"commit: 1\ta:end\ncommit: 2\tb:e")
    told = Ledger()
    told.read(1, path)
    with path.open("ab") as out:
        out.write(b"\nstart\ncommit: 2\tb:end\nleader: 3 of term 7\n")
    told.read(1, path)
    assert told.told == {1: {b"a:end": {1}}, 2: {b"b:end": {1}}}
    assert told.leaders == {7: {3}}


def in_jrafts_files(home: Path, *entries: LogEntry, first: int = 1) -> None:
    data, positions = b"", b""
    for term, kind, value in entries:
        positions += struct.pack(">q", len(data))
        data += struct.pack(">qb", term, kind) + value
    (home / "store.data").write_bytes(data)
    (home / "store.idx").write_bytes(positions)
    (home / "store.sti").write_bytes(struct.pack(">q", first))


def test_the_logs_are_read_from_the_files_of_both(tmp_path: Path) -> None:
    in_jrafts_files(tmp_path, B, C, first=7)
    assert dict(jraft_log(tmp_path)) == {7: B, 8: C}
    store = RaftSqliteStore(tmp_path / "raft.sqlite", Printer())
    entries = [Entry(one.term, one.value) for one in (A, B)]
    write = Persist(
        ticket=Ticket(0), term=1, voted_for=None, commit_index=0, first_index=1, entries=entries
    )
    store.perform(write)
    store.close()
    assert dict(our_log(tmp_path)) == {1: A, 2: B}


def test_only_what_jraft_has_acknowledged_to_nobody_is_taken_from_its_store(
    tmp_path: Path,
) -> None:
    storm = Storm(tmp_path, random.Random(1))
    home = storm.home(1)
    in_jrafts_files(home, A, B)
    storm.mend(1)
    assert (dict(jraft_log(home)), storm.mended) == ({1: A, 2: B}, [])
    with (home / "store.idx").open("ab") as positions:  # killed before the entry was written
        positions.write(struct.pack(">q", (home / "store.data").stat().st_size))
    (home / "cluster.json").write_bytes(b"")
    storm.mend(1)
    assert dict(jraft_log(home)) == {1: A, 2: B}
    assert len(storm.mended) == 2
    assert b"servers" in (home / "cluster.json").read_bytes()
