"""The cost of updating a directory that follows its log, and that no change is missed."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from test_directory_outside import RECORDS
from trees import contents, make_tree

from culm.bamboo import LogAuthor, LogKey, MemoryStore, NewEntry
from culm.testing.suite.meter import Meter
from culm.wire.multihash import YAMF
from culm_io.programs.directory.mirror import Mirror
from culm_io.programs.directory.publish import publish_directory
from culm_io.programs.directory.records import (
    PACK_SIZE_MAX,
    Directory,
    File,
    Record,
    RecordError,
    encode,
)
from culm_io.programs.directory.tree import TreeReader

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)


def update_steps(folder: Path, files: int) -> list[int]:
    """The steps of some updates of a directory of `files` files, all of them small."""
    source, target, store = folder / "source", folder / "target", MemoryStore(family=YAMF)
    make_tree(source, {f"dir{n // 10}/deep{n // 5}/{n}": b"text" for n in range(files)})
    publish_directory(source, store, KEY)
    steps: list[int] = []
    options = {"payload_size_max": None, "private": (), "on_place": lambda done, total: None}
    with Mirror(store, into=target, wanted=LOG, **options) as mirror:  # type: ignore[arg-type]
        assert mirror.update()[0].written > files
        for change in (
            lambda: make_tree(source, {"dir0/deep0/new": b"new"}),
            lambda: make_tree(source, {"dir1/deep2/10": b"other"}),
            lambda: (source / "dir1/deep3/15").unlink(),
            lambda: make_tree(source, {"dir0/more/and/more": b"deep", "link": "-> dir0"}),
            lambda: (source / "dir0").chmod(0o700),
        ):
            change()
            publish_directory(source, store, KEY)
            meter = Meter()
            made, failure = meter.count(mirror.update)
            assert (failure, made.failed) == (None, {})
            steps.append(meter.steps)
    assert contents(target) == contents(source)
    return steps


def test_an_update_costs_what_has_changed_and_not_the_directory(tmp_path: Path) -> None:
    small, large = (update_steps(tmp_path / str(files), files) for files in (20, 600))
    assert all(b < a * 1.1 for a, b in zip(small, large, strict=True)), (small, large)


# A payload that may be missing is larger than any that may not.
STEPS = st.lists(st.tuples(RECORDS, st.booleans()), min_size=1, max_size=4)


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_what_has_changed_is_all_that_differs(batches: list[list[tuple[Record, bool]]]) -> None:
    """Compared with a reader that begins anew, also where payloads are missing."""
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    reader = TreeReader(store, LOG, payload_size_max=PACK_SIZE_MAX)
    known = dict(reader.follow().places)
    for batch in batches:
        for record, is_missing in batch:
            large = bytes(PACK_SIZE_MAX if is_missing and isinstance(record, File) else 0)
            entry = author.publish(encode(record, large)).entry
            there = None if large else encode(record)
            store.append(LOG, [NewEntry(entry, there)])
        try:
            whole = TreeReader(store, LOG, payload_size_max=PACK_SIZE_MAX).read().places
        except RecordError:
            for _ in range(2):
                try:
                    reader.follow()
                except RecordError:
                    continue
                raise AssertionError("only a reader that begins anew has seen it") from None
            return
        changed = reader.follow().places
        assert changed.items() <= whole.items()
        assert {path for path in whole if known.get(path) != whole[path]} <= changed.keys()
        same = changed.keys() & {path for path in whole if known.get(path) == whole[path]}
        touched = {record.path for record, _ in batch}
        for path in same - touched:
            is_above = any(each.startswith(path + b"/") for each in touched)
            assert is_above or any(path.startswith(each + b"/") for each in touched)
        known = dict(whole)


def test_what_is_hidden_comes_to_light_with_the_directory_above() -> None:
    """The log gives the place of something after its content; the payload between is missing."""
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    reader, number = TreeReader(store, LOG, payload_size_max=PACK_SIZE_MAX), count()

    def changed(record: Record, *, missing: bool = False) -> list[bytes]:
        size = PACK_SIZE_MAX if missing else 0
        payload = encode(record, bytes(size))
        entry = author.publish(payload).entry
        store.append(LOG, [NewEntry(entry, None if missing else payload)])
        return list(reader.follow().places)

    def file(path: bytes) -> File:
        return File(path, 0o644, next(number), 0, 1)

    assert changed(file(b"z"), missing=True) == []
    assert changed(Directory(b"a/b", 0o755)) == []
    assert changed(file(b"a/b/c")) == []
    assert changed(Directory(b"a", 0o755)) == [b"a", b"a/b", b"a/b/c"]
    assert changed(file(b"a/b/c")) == [b"a", b"a/b", b"a/b/c"]
    assert changed(file(b"d")) == [b"d"]
    assert changed(file(b"a")) == [b"a"]
    assert changed(file(b"a/b/c")) == []
    assert changed(Directory(b"a", 0o755)) == [b"a", b"a/b", b"a/b/c"]
