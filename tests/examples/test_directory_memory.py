"""Memory is a hint: a program's saved state may come back older, newer, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest
from nacl.signing import SigningKey
from processes import fetch, run, serving
from trees import contents, make_tree

from culm.bamboo import LogKey, MemoryStore, NewEntry, StoredEntry
from culm.bamboo.entry import decode
from culm.wire.multihash import YAMF
from culm_io.programs.directory.files import note_published, settled_before
from culm_io.programs.directory.mirror import Mirror
from culm_io.programs.directory.publish import publish_directory
from culm_io.programs.locks import locked
from effort import seeds

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)
SECOND = 1_000_000_000
TREE: dict[str, bytes | str | None] = {"a": b"text", "b/c": b"more"}


def new_entry(stored: StoredEntry) -> NewEntry:
    return NewEntry(decode(stored.encoded, family=YAMF), stored.payload)


def length(store: object) -> int:
    assert isinstance(store, MemoryStore)
    head = store.head(LOG)
    return 0 if head is None else head.seqnum


class Killed(Exception):
    """The process is gone, between two writes."""


class Frail(MemoryStore):
    """A store whose process is killed after `writes` writes."""

    writes_left = -1

    def append(self, *args: object) -> None:
        if self.writes_left == 0:
            raise Killed
        self.writes_left -= 1
        super().append(*args)  # type: ignore[arg-type]


class Life:
    """A publisher and a mirror, whose stores, notes and folders go back to backups."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = Random(seed)
        self.now = 1_700_000_000 * SECOND
        self.source, self.target, self.path = folder / "source", folder / "target", folder / "store"
        self.source.mkdir()
        with locked(self.path):  # as a publisher does
            pass
        self.note = folder / "store.lock"
        self.store, self.mirrored = Frail(family=YAMF), MemoryStore(family=YAMF)
        self.witness = MemoryStore(family=YAMF)  # a witness with everything ever fetched
        self.kept: dict[str, list[object]] = {
            "store": [],
            "note": [b""],
            "mirror": [],
            "folder": [],
        }

    def change(self) -> None:
        """A file system keeps times in ticks, and within a tick only the content may change."""
        name, size = self.rng.choice("aaab"), self.rng.choice((3, 3, 3, 40_000))
        path = self.source / name
        path.write_bytes(self.rng.randbytes(size))
        tick = self.now - self.now % (2 * SECOND)
        os.utime(path, ns=(tick, tick))

    def pass_time(self) -> None:
        self.now += self.rng.choice((1, 1, 5 * SECOND))

    def publish(self, writes: int = -1) -> None:
        self.carry(self.witness, self.store)  # as the page advises after a backup
        self.store.writes_left = writes
        known = settled_before(self.path, self.source, self._hash)
        began = self.now
        try:
            done = publish_directory(self.source, self.store, KEY, settled_before=known)
        except Killed:
            return
        finally:
            self.store.writes_left = -1
        note_published(self.path, self.source, began, done.unsettled, self.store.head(LOG))

    def publish_and_be_killed(self) -> None:
        self.publish(self.rng.randrange(2))

    def _hash(self, seqnum: int) -> bytes | None:
        return self.store.hashes(LOG, [seqnum]).get(seqnum)

    def carry(self, source: MemoryStore, target: MemoryStore) -> None:
        head = target.head(LOG)
        first = 1 if head is None else head.seqnum + 1
        news = source.entries(LOG, first, payload_size_max=1 << 30)
        for stored in news:
            target.append(LOG, [new_entry(stored)])

    def fetch(self) -> None:
        for target in (self.witness, self.mirrored):
            self.carry(self.store, target)
        options = {"payload_size_max": None, "private": (), "on_place": lambda done, total: None}
        with Mirror(self.mirrored, into=self.target, wanted=LOG, **options) as mirror:  # type: ignore[arg-type]
            assert mirror.update()[1] is None

    def back_up(self) -> None:
        self.kept["store"].append(deepcopy(self.store))
        self.kept["note"].append(self.note.read_bytes())
        self.kept["mirror"].append(deepcopy(self.mirrored))
        if self.target.exists():
            copy = self.target.with_name(f"copy{len(self.kept['folder'])}")
            shutil.copytree(self.target, copy, symlinks=True)
            self.kept["folder"].append(copy)

    def restore(self) -> None:
        what = self.rng.choice(["store", "store", *self.kept])
        if not self.kept[what]:
            return
        saved = self.rng.choice(self.kept[what])
        match saved:
            case Frail():
                self.store = deepcopy(saved)
                # Later entries, now lost, are published differently.
                kept = self.kept["store"]
                kept[:] = [each for each in kept if length(each) <= length(saved)]
            case MemoryStore():
                self.mirrored = deepcopy(saved)
            case bytes():
                self.note.write_bytes(saved)
            case Path():
                shutil.rmtree(self.target, ignore_errors=True)
                shutil.copytree(saved, self.target, symlinks=True)
            case _:
                pass

    def go(self) -> None:
        actions: list[Callable[[], None]] = [
            *[self.change, self.pass_time, self.publish, self.publish, self.publish_and_be_killed],
            *[self.fetch, self.back_up, self.restore],
        ]
        for _ in range(self.rng.randint(10, 40)):
            self.rng.choice(actions)()
        self.now += 5 * SECOND
        self.publish()
        self.fetch()
        assert contents(self.target) == contents(self.source)
        assert self.store.fork(LOG) is None


# The last seed has a note of a later log than that of the store.
SEEDS = sorted({*seeds("DIRECTORY_MEMORY", 60, long=2000), 287})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_is_what_was_published_whatever_was_remembered(seed: int, tmp_path: Path) -> None:
    Life(seed, tmp_path).go()


def test_a_publisher_that_believes_any_note_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_directory_memory.settled_before", lambda *of: 2_000_000_000 * SECOND)
    folders = [tmp_path / str(seed) for seed in range(30)]
    for folder in folders:
        folder.mkdir()
    with pytest.raises(AssertionError):
        [Life(seed, folder).go() for seed, folder in enumerate(folders)]


@pytest.mark.once
def test_an_author_that_has_its_log_back_from_others_does_not_fork_it(
    tmp_path: Path, source: Path, published: Path
) -> None:
    """As the page advises after its store was restored from a backup."""
    backup, copy, target = tmp_path / "backup", tmp_path / "copy.store", tmp_path / "target"
    shutil.copy(published, backup)
    make_tree(source, {"new": b"new"})
    assert run("publish", source, "--store", published).summary["entries"] == 1
    with serving(published) as port:
        assert fetch(copy, port, target).status == 0
    for suffix in ("-wal", "-shm"):
        published.with_name(published.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, published)
    with serving(copy) as port:
        assert fetch(published, port).summary["entries"] == 1
    make_tree(source, {"newer": b"newer"})
    assert run("publish", source, "--store", published).summary["entries"] == 1
    with serving(published) as port:
        done = fetch(copy, port, target)
    assert (done.status, done.summary["code"], contents(target)) == (0, None, contents(source))
