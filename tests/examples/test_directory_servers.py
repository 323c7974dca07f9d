"""The logs of several servers are combined, and a fault of one server affects only that one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from nacl.signing import SigningKey
from processes import Done, fetch, serving

from culm.bamboo import LogAuthor, LogKey
from culm.wire.multihash import YAMF
from culm_io.stores.bamboo import SqliteStore


def make_store(path: Path, lengths: Sequence[int], *, spoiled: int = 0, size: int = 50) -> None:
    """A store with logs of these lengths; in the first, entry 3 is not as signed."""
    with SqliteStore(path, family=YAMF, durable=False) as store:
        for number, length in enumerate(lengths):
            author = LogAuthor(key_of(number), family=YAMF)
            payloads = (bytes([number]) * size for number in range(length))
            store.append(author.log, [author.publish(payload) for payload in payloads])
    with sqlite3.connect(path) as database:
        for _, log in logs_of(spoiled):
            database.execute(
                "UPDATE chunks SET data = zeroblob(length(data)) WHERE entry = (SELECT entries.id"
                " FROM entries JOIN logs ON logs.id = log WHERE author = ? AND seqnum = 3)",
                (log.author,),
            )
    database.close()


def key_of(number: int) -> SigningKey:
    return SigningKey(number.to_bytes(32))


def logs_of(count: int) -> list[tuple[int, LogKey]]:
    """The logs of stores, by the numbers of their authors."""
    return [(n, LogAuthor(key_of(n), family=YAMF).log) for n in range(count)]


def heads(path: Path, count: int) -> list[int]:
    """The last entry of each log in a store."""
    with SqliteStore(path, family=YAMF, must_exist=True) as store:
        found = [store.head(log) for _, log in logs_of(count)]
    return [0 if head is None else head.seqnum for head in found]


def fetch_from(target: Path, served: Sequence[Path], *options: object) -> Done:
    """Fetch from servers of these stores, which are asked in this order."""
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(path)) for path in served]
        more = [part for port in ports[1:] for part in ("--from", f"127.0.0.1:{port}")]
        # A server that pauses between two of its logs has not offered all.
        return fetch(target, ports[0], None, *more, "--settle", "1.5", *options)


@pytest.mark.once
@pytest.mark.parametrize("size", [50, 200_000])
def test_a_log_that_does_not_verify_costs_that_log(tmp_path: Path, size: int) -> None:
    """From two servers as from one, with small payloads and with shared ones."""
    bad, new = tmp_path / "bad.store", tmp_path / "new.store"
    make_store(bad, [5] * 5, spoiled=3, size=size)
    done = fetch_from(new, [bad, bad])
    assert (done.status, done.summary["code"]) == (1, "INVALID_DATA")
    assert heads(new, 5)[3:] == [5, 5]
    with SqliteStore(new, family=YAMF, must_exist=True) as store:
        for _, log in logs_of(5)[3:]:
            assert all(entry.payload_complete for entry in store.entries(log))


@pytest.mark.once
def test_sound_logs_come_however_many_others_do_not_verify(tmp_path: Path) -> None:
    bad, new = tmp_path / "bad.store", tmp_path / "new.store"
    make_store(bad, [5] * 22, spoiled=20)
    assert fetch_from(new, [bad]).summary["code"] == "INVALID_DATA"
    assert heads(new, 22) == [2] * 20 + [5] * 2


@pytest.mark.once
@pytest.mark.parametrize("size", [50, 200_000])
def test_what_does_not_verify_comes_from_a_server_that_has_it_whole(
    tmp_path: Path, size: int
) -> None:
    bad, good, new = (tmp_path / f"{name}.store" for name in ("bad", "good", "new"))
    make_store(bad, [5, 5], spoiled=1, size=size)
    make_store(good, [5, 5], size=size)
    done = fetch_from(new, [bad, good], "--log", log_id(logs_of(1)[0][1]))
    assert (done.status, done.summary["missing"], heads(new, 1)) == (0, 0, [5])


@pytest.mark.once
def test_the_longest_log_that_verifies_wins(tmp_path: Path) -> None:
    """Each server's longer logs arrive, in whatever order the servers are named."""
    lengths = {"stale": [3, 0], "newest": [9, 0], "other": [6, 4], "empty": [0, 0]}
    stores = {name: tmp_path / f"{name}.store" for name in lengths}
    for name, each in lengths.items():
        make_store(stores[name], each)
    for number, order in enumerate(([*stores], [*stores][::-1])):
        new = tmp_path / f"{number}.store"
        done = fetch_from(new, [stores[name] for name in order])
        assert (done.status, done.summary["code"]) == (0, None), done.summary
        assert heads(new, 2) == [9, 4]
        assert done.summary["entries"] == 13


@pytest.mark.once
def test_what_only_a_bad_server_has_is_told(tmp_path: Path) -> None:
    stale, bad, new = (tmp_path / f"{name}.store" for name in ("stale", "bad", "new"))
    make_store(stale, [0, 2])
    make_store(bad, [5, 2], spoiled=1)
    done = fetch_from(new, [stale, bad])
    assert (done.status, done.summary["code"]) == (1, "INVALID_DATA")
    assert heads(new, 2) == [2, 2]


def log_id(log: LogKey) -> str:
    return f"{log.author.hex()}/{log.log_id}"
