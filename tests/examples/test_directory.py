"""Publishing and materialising, without a network."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from random import Random

import pytest
from nacl.signing import SigningKey
from trees import MTIME, contents, details, make_tree

from culm.bamboo import (
    ForkProof,
    LogAuthor,
    LogKey,
    LogStore,
    MemoryStore,
    NewEntry,
    Reason,
    VerificationError,
)
from culm.bamboo.entry import decode
from culm.bamboo.verify import verify_log
from culm.wire.multihash import YAMF
from culm_io.programs.directory.contents import cut
from culm_io.programs.directory.materialise import Materialised, materialise
from culm_io.programs.directory.publish import Published, publish_directory
from culm_io.programs.directory.records import (
    CHUNK_SIZE,
    PAYLOAD_SIZE_MAX,
    STAGING,
    Directory,
    File,
    Link,
    Record,
    RecordError,
    Removed,
    encode,
)
from culm_io.programs.directory.scan import Findings
from culm_io.programs.directory.survey import survey_log
from culm_io.programs.directory.tree import Tree, TreeReader, read_tree

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)
OPTIONS = {"pack": True}
TREE = {
    "a": b"text",
    "a.d": None,
    "a.d/empty": b"",
    "b": None,
    "b/deep/er/file": b"deep",
    "b/deep/link": "-> ../../a",
    "big": Random(45).randbytes(2 * CHUNK_SIZE + 7),  # its last chunk is small
    "exact": Random(0).randbytes(CHUNK_SIZE),
}


def chunk_count(path: Path) -> int:
    """The number of chunks of a file."""
    with path.open("rb") as file:
        return len(list(cut(file.fileno(), [(0, path.stat().st_size, 0)])))


@pytest.fixture
def store() -> LogStore:
    return MemoryStore(family=YAMF)


@pytest.fixture(params=[True, False], ids=["packed", "unpacked"], autouse=True)
def pack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether small files share entries; the result is the same."""
    packed: bool = request.param
    monkeypatch.setitem(OPTIONS, "pack", packed)
    return packed


def publish(root: Path, store: LogStore, *excludes: str) -> Published:
    done = publish_directory(root, store, KEY, excludes=excludes, **OPTIONS)
    verify_log(LOG, [entry.encoded for entry in store.entries(LOG)], family=YAMF)
    return done


def prefix_of(store: LogStore, count: int) -> LogStore:
    """A store with the first `count` entries."""
    part = MemoryStore(family=YAMF)
    author = LogAuthor(KEY, family=YAMF)
    for entry in store.entries(LOG, count_max=count):
        payload = store.read_payload(LOG, entry.seqnum, 0, 1 << 30)
        part.append(LOG, [author.publish(payload)])
    return part


def test_a_tree_is_published_and_made_again(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, TREE)
    os.chmod(source / "a", 0o640)
    os.chmod(source / "big", 0o555)
    os.chmod(source / "b", 0o750)
    os.utime(source / "exact", ns=(0, -12_345_678_901))
    done = publish(source, store)
    assert done.changed == len(contents(source))
    # The chunks of two files, and the entries before and between them.
    cut_up = chunk_count(source / "big") + chunk_count(source / "exact")
    assert done.entries == cut_up + (1 if OPTIONS["pack"] else done.changed - 2)
    assert (done.unchanged, done.findings) == (0, Findings())
    assert materialise(store, LOG, target) == Materialised(written=len(contents(source)))
    assert contents(target) == contents(source)
    assert details(target) == details(source)


def test_the_same_tree_and_key_give_the_same_log(tmp_path: Path, store: LogStore) -> None:
    other = MemoryStore(family=YAMF)
    for root, each in ((tmp_path / "one", store), (tmp_path / "two", other)):
        items = list(TREE.items())
        make_tree(root, dict(items if each is store else items[::-1]))
        publish(root, each)
    assert store.head(LOG) == other.head(LOG)


def test_publishing_again_appends_only_what_changed(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, TREE)
    publish(source, store)
    materialise(store, LOG, target)
    count = len(contents(source))

    done = publish(source, store)
    assert (done.entries, done.payload_bytes, done.unchanged) == (0, 0, count)

    # Same size, same time: only the content shows the change.
    make_tree(source, {"a": b"TEXT"})
    os.chmod(source / "exact", 0o600)
    (source / "b/deep/er/file").unlink()
    done = publish(source, store)
    assert (done.changed, done.unchanged) == (3, count - 3)
    assert done.entries == (1 if OPTIONS["pack"] else 3)
    inode = (target / "big").stat().st_ino
    made = materialise(store, LOG, target)
    # A changed mode also makes it a new file: the old one may have a name elsewhere.
    assert made == Materialised(written=2, unchanged=made.unchanged, removed=1)
    assert contents(target) == contents(source)
    assert details(target) == details(source)
    assert (target / "big").stat().st_ino == inode  # an unchanged file is not replaced

    # A chunk in the middle
    with open(source / "big", "r+b") as file:
        file.seek(CHUNK_SIZE)
        file.write(b"changed")
    assert publish(source, store).entries <= 6
    materialise(store, LOG, target)
    assert contents(target) == contents(source)


def test_what_was_removed_and_comes_back_is_published(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {"a": b"text"})
    publish(source, store)
    (source / "a").unlink()
    assert publish(source, store).entries == 1
    assert publish(source, store).entries == 0
    make_tree(source, {"a": b"text"})
    assert publish(source, store).entries == 1
    materialise(store, LOG, target)
    assert contents(target) == {"a": b"text"}


KINDS = {
    "file": {"x": b"file"},
    "directory": {"x": None, "x/inner/file": b"inner"},
    "link": {"x": "-> y"},
    "nothing": {},
}


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_one_thing_becomes_another(
    tmp_path: Path, store: LogStore, before: str, after: str
) -> None:
    target = tmp_path / "target"
    for number, kind in enumerate((before, after)):
        source = tmp_path / str(number)
        make_tree(source, {"y": b"y", **KINDS[kind]})
        publish(source, store)
    head = store.head(LOG)
    assert head is not None
    for count in range(1, head.seqnum + 1):
        # Up to any entry, the log describes a directory: a fetch can stop anywhere.
        materialise(prefix_of(store, count), LOG, target)
    assert contents(target) == contents(source)


def test_a_file_of_which_chunks_are_missing_is_not_yet_there(
    tmp_path: Path, store: LogStore
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {"big": b"old"})
    publish(source, store)
    make_tree(source, {"big": Random(1).randbytes(CHUNK_SIZE)})
    entries = publish(source, store).entries
    part = prefix_of(store, entries)  # all but one
    materialise(part, LOG, target)
    assert contents(target) == {"big": b"old"}
    # The author was killed, and goes on.
    assert publish(source, part).entries == entries
    materialise(part, LOG, target)
    assert contents(target) == contents(source)


def test_names_are_bytes(tmp_path: Path, store: LogStore) -> None:
    source, target = os.fsencode(tmp_path / "source"), tmp_path / "target"
    os.mkdir(source)
    names = [b"\xff\xfe", b"new\nline", b" ", b"-rf", b"\\", b"...", "\u00e9".encode(), b"\x1b[2J"]
    for name in names:
        with open(os.path.join(source, name), "wb") as file:
            file.write(name)
    assert publish(tmp_path / "source", store).changed == len(names)
    materialise(store, LOG, target)
    assert sorted(os.listdir(os.fsencode(target))) == sorted(names)
    for name in names:
        with open(os.path.join(os.fsencode(target), name), "rb") as file:
            assert file.read() == name


def test_what_cannot_travel_is_named(tmp_path: Path, store: LogStore) -> None:
    make_tree(tmp_path, {"out": "-> /etc", "sub/up": "-> ../../x", "ok": "-> sub", "file": b""})
    os.mkfifo(tmp_path / "fifo")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    done = publish(tmp_path, store)
    assert list(done.findings.skipped) == [b"fifo", b"out", b"socket", b"sub/up"]
    assert {place.record.path for place in read_tree(store, LOG).in_order()} == {
        b"file",
        b"ok",
        b"sub",
    }


def test_excluded_names_do_not_belong_to_the_directory(tmp_path: Path, store: LogStore) -> None:
    make_tree(tmp_path, {"a.pyc": b"", "b/c.pyc": b"", "b/d": b"", "e/f/g": b"", "e/g": b""})
    publish(tmp_path, store, "*.pyc", "e/f")
    paths = [place.record.path for place in read_tree(store, LOG).in_order()]
    assert paths == [b"b", b"b/d", b"e", b"e/g"]
    # Later exclusions are removed.
    publish(tmp_path, store, "*.pyc", "e")
    removed = [
        place.record.path
        for place in read_tree(store, LOG).in_order()
        if isinstance(place.record, Removed)
    ]
    assert removed == [b"e", b"e/g"]


def test_the_key_is_never_published(tmp_path: Path, store: LogStore) -> None:
    make_tree(tmp_path, {"s.store": b"", "s.store.key": b"secret", "sub/s.store.key": b""})
    os.link(tmp_path / "s.store.key", tmp_path / "sub/its other name")
    private = [tmp_path / "sub/../s.store", tmp_path / "s.store.key", tmp_path / "s.store-wal"]
    done = publish_directory(tmp_path, store, KEY, private=private)
    private_paths = (b"s.store", b"s.store.key", b"sub/its other name")
    assert done.findings.skipped == dict.fromkeys(private_paths, "part of the store")
    assert done.changed == 2


def test_the_staging_folder_is_never_published(tmp_path: Path, store: LogStore) -> None:
    make_tree(tmp_path, {os.fsdecode(STAGING) + "/file": b"half", "a": b""})
    assert publish(tmp_path, store).entries == 1


def test_a_forked_log_is_not_continued(tmp_path: Path, store: LogStore) -> None:
    make_tree(tmp_path, {"a": b"1"})
    other = MemoryStore(family=YAMF)
    publish(tmp_path, store)
    make_tree(tmp_path, {"a": b"2"})
    publish(tmp_path, other)
    entries = [decode(each.entries(LOG)[0].encoded, family=YAMF) for each in (store, other)]
    store.add_fork(LOG, ForkProof(*entries))
    with pytest.raises(VerificationError) as caught:
        publish(tmp_path, store)
    assert caught.value.reason is Reason.INVALID_LOG


# Logs of hostile authors


def authored(*payloads: Record | bytes) -> LogStore:
    """A store with a log of these payloads."""
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    store.append(
        LOG,
        [author.publish(each if isinstance(each, bytes) else encode(each)) for each in payloads],
    )
    return store


def file(path: bytes, content: bytes = b"evil", chunk: int = 0, chunks: int = 1) -> bytes:
    return encode(File(path, 0o644, MTIME, chunk, chunks), content)


def escaping(path: bytes) -> bytes:
    """The record of a file at a path that no `File` of ours would have."""
    return file(b"x" * len(path)).replace(b"x" * len(path), path)


@pytest.mark.parametrize(
    "payloads",
    [
        [escaping(b"../evil")],
        [escaping(b"/tmp/evil")],
        [escaping(b"a/../../evil")],
        [file(b"dir/evil")],
        [Link(b"dir", b"sub"), file(b"dir/evil")],
        [Directory(b"dir", 0o755), Link(b"dir", b"sub"), file(b"dir/evil")],
        [Directory(b"dir", 0o755), file(b"dir/evil"), Link(b"dir", b"sub")],
        [Directory(b"dir", 0o755), file(b"dir/evil"), Removed(b"dir")],
        [file(b"dir"), file(b"dir/evil")],
        [b"\x82\xa0\x40"],
        [b""],
        [file(b"a", chunk=1, chunks=2)],
        [file(b"a", chunks=2), file(b"a", chunk=0, chunks=3), file(b"a", chunk=1, chunks=2)],
        [file(b"a", chunks=3), file(b"a", chunk=2, chunks=3)],
        [file(b"a", chunks=2), Removed(b"b"), file(b"a", chunk=1, chunks=2)],
        [file(b"a", bytes(PAYLOAD_SIZE_MAX))],
    ],
)
def test_a_log_that_is_not_one_of_a_directory_touches_nothing(
    tmp_path: Path, payloads: list[Record | bytes]
) -> None:
    target = tmp_path / "target"
    make_tree(target, {"mine": b"mine", "sub": None})
    before = contents(tmp_path)
    with pytest.raises(RecordError):
        materialise(authored(file(b"good"), *payloads), LOG, target)
    assert contents(tmp_path) == before


def test_a_missing_payload_is_told(tmp_path: Path) -> None:
    store = MemoryStore(family=YAMF)
    new = LogAuthor(KEY, family=YAMF).publish(file(b"a"))
    store.append(LOG, [NewEntry(new.entry)])
    with pytest.raises(RecordError, match="entry 1: the payload is missing"):
        materialise(store, LOG, tmp_path)


def test_links_that_are_in_the_way_are_not_followed(tmp_path: Path) -> None:
    """Whatever the directory had before: nothing outside is written, removed or changed."""
    outside, target = tmp_path / "outside", tmp_path / "target"
    make_tree(outside, {"file": b"precious", "gone": b"precious"})
    os.chmod(outside, 0o700)
    os.chmod(outside / "file", 0o600)
    before = details(tmp_path / "outside")
    target.mkdir()
    for name in ("dir", "removed"):
        (target / name).symlink_to(outside)
    (target / "file").symlink_to(outside / "file")
    store = authored(
        Directory(b"dir", 0o777),
        file(b"dir/file"),
        file(b"file"),
        Removed(b"removed/gone"),
        Removed(b"removed/file"),
    )
    materialise(store, LOG, target)
    assert contents(outside) == {"file": b"precious", "gone": b"precious"}
    assert details(outside) == before
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    assert contents(target)["dir/file"] == contents(target)["file"] == b"evil"
    assert not (target / "dir").is_symlink()


def test_staging_is_not_somebody_elses_folder(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    make_tree(outside, {"file": b"precious"})
    target.mkdir()
    (target / os.fsdecode(STAGING)).symlink_to(outside)
    with pytest.raises(OSError, match="replicate-staging"):
        materialise(authored(file(b"a")), LOG, target)
    assert contents(outside) == {"file": b"precious"}


def test_special_bits_are_not_for_strangers_to_set(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", {"a": b"text"})
    os.chmod(tmp_path / "source/a", 0o4755)
    store = MemoryStore(family=YAMF)
    publish(tmp_path / "source", store)
    materialise(store, LOG, tmp_path / "target")
    assert stat.S_IMODE((tmp_path / "target/a").stat().st_mode) == 0o755


# Crashes, and earlier content


def test_what_a_crash_left_in_staging_is_thrown_away(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, TREE)
    publish(source, store)
    make_tree(target, {os.fsdecode(STAGING) + "/file": b"half"})
    materialise(store, LOG, target)
    assert contents(target) == contents(source)


def test_what_the_log_does_not_speak_of_stays(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {"dir/file": b"", "gone/file": b""})
    publish(source, store)
    materialise(store, LOG, target)
    make_tree(target, {"mine": b"mine", "gone/mine": b"mine"})
    (source / "gone/file").unlink()
    (source / "gone").rmdir()
    publish(source, store)
    materialise(store, LOG, target)
    assert contents(target) == {
        "dir": None,
        "dir/file": b"",
        "gone": None,
        "gone/mine": b"mine",
        "mine": b"mine",
    }


def test_what_was_changed_by_hand_is_as_the_log_says_again(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, TREE)
    publish(source, store)
    materialise(store, LOG, target)
    make_tree(target, {"a": b"TEXT", "exact": b"short"})
    os.utime(target / "big", ns=(0, 0))
    os.chmod(target / "a.d/empty", 0o600)
    with open(target / "b/deep/er/file", "ab") as changed:
        changed.write(b" and more")
    (target / "b/deep/link").unlink()
    (target / "b/deep/link").mkdir()
    made = materialise(store, LOG, target)
    assert contents(target) == contents(source)
    assert details(target) == details(source)
    assert made.written == 6


def test_directories_without_permissions(tmp_path: Path, store: LogStore) -> None:
    """Only root may write to them, and yet their contents are kept up to date."""
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {"dir/sub/file": b"text", "dir/gone": b"", "away/sub/file": b""})
    for step in range(3):
        for path in ("dir/sub", "dir", "away/sub", "away"):
            if (source / path).exists():
                os.chmod(source / path, 0o555)
        publish(source, store)
        materialise(store, LOG, target)
        assert contents(target) == contents(source)
        assert details(target) == details(source)
        for path in ("dir", "dir/sub", "away", "away/sub"):
            if (source / path).exists():
                os.chmod(source / path, 0o755)
        if step == 0:
            make_tree(source, {"dir/sub/file": b"other", "dir/new": b""})
            (source / "dir/gone").unlink()
        else:
            shutil.rmtree(source / "away", ignore_errors=True)


# Growing logs with missing payloads


def without_payloads(store: LogStore, size_max: int) -> LogStore:
    """The same log without payloads larger than `size_max`."""
    part = MemoryStore(family=YAMF)
    for kept in store.entries(LOG, payload_size_max=size_max):
        part.append(LOG, [NewEntry(decode(kept.encoded, family=YAMF), kept.payload)])
    return part


def test_payloads_that_are_too_large_may_be_missing(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, TREE)
    publish(source, store)
    part = without_payloads(store, 1000)
    with pytest.raises(RecordError, match="the payload is missing"):
        read_tree(part, LOG)
    reader = TreeReader(part, LOG, payload_size_max=1000)
    materialise(part, LOG, target, tree=reader.read())
    # Of files with several chunks only the last chunk is there, which makes no file.
    assert contents(target) == {
        name: content for name, content in contents(source).items() if name not in ("big", "exact")
    }
    chunks = chunk_count(source / "big") + chunk_count(source / "exact")
    assert reader.missing == chunks - 1


@pytest.mark.parametrize("size_max", range(0, 120, 7))
def test_what_is_in_a_directory_that_is_missing_is_missing_too(
    tmp_path: Path, store: LogStore, size_max: int
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {**TREE, "c" * 40: None, "c" * 40 + "/d": b"", "d": b"d" * 30})
    publish(source, store)
    (source / "d").unlink()
    publish(source, store)
    part = without_payloads(store, size_max)
    materialise(part, LOG, target, tree=read_tree(part, LOG, payload_size_max=size_max))
    for name, content in contents(target).items():
        assert name == "d" or contents(source)[name] == content


def test_a_reader_goes_on_where_it_stopped(tmp_path: Path, store: LogStore) -> None:
    """A directory that follows the log entry by entry equals one made at once."""
    source = tmp_path / "source"
    make_tree(source, TREE)
    publish(source, store)
    (source / "b/deep/er/file").unlink()
    make_tree(source, {"a": b"other", "a.d/empty": bytes(CHUNK_SIZE + 3), "e": None, "e/f": b"f"})
    publish(source, store)
    entries = store.entries(LOG, payload_size_max=PAYLOAD_SIZE_MAX)
    part, followed = MemoryStore(family=YAMF), tmp_path / "followed"
    reader, whole = TreeReader(part, LOG), TreeReader(part, LOG)
    for entry in entries:
        new = decode(entry.encoded, family=YAMF)
        if entry.seqnum % 2:  # the payload comes later
            part.append(LOG, [NewEntry(new)])
            assert reader.follow() == Tree({})
            assert reader.position == entry.seqnum - 1
        part.append(LOG, [NewEntry(new, entry.payload)])
        made = materialise(part, LOG, followed, tree=reader.follow())
        assert made.written + made.removed <= (2 if not OPTIONS["pack"] else len(TREE) + 5)
        assert made.unchanged == 0
        assert whole.read() == read_tree(part, LOG)
    assert contents(followed) == contents(source)


# Missing payloads, and requests for them


@pytest.mark.parametrize("seed", range(30))
def test_gaps_bring_what_is_missing_and_nothing_that_is_there(seed: int) -> None:
    rng = Random(seed)
    author, store = LogAuthor(KEY, family=YAMF), MemoryStore(family=YAMF)
    sizes = [rng.choice((0, 1, 5, 20, 21, 50, 400)) for _ in range(rng.randint(1, 40))]
    size_max = rng.choice((0, 20, 100, 400))
    by_size = rng.random() < 0.5  # as after fetching payloads up to a size
    there: set[int] = set()
    for seqnum, size in enumerate(sizes, 1):
        new = author.publish(bytes(size))
        if size <= 20 if by_size else rng.random() < 0.5:
            there.add(seqnum)
            store.append(LOG, [new])
        else:
            store.append(LOG, [NewEntry(new.entry, bytes(size // 2), staged=True)])
    survey = survey_log(store, LOG, payload_size_max=size_max)
    wanted = [n for n, size in enumerate(sizes, 1) if n not in there and size <= size_max]
    brought = [
        n
        for gap in survey.gaps
        for n in range(gap.first or 0, (gap.last or 0) + 1)
        if gap.admits_payload(sizes[n - 1])
    ]
    assert brought == [n for n in wanted if n != len(sizes)]
    assert (survey.position, survey.lacking) == (len(sizes), len(wanted))
    assert survey.last_lacks == (len(sizes) in wanted)
    assert survey.left_out == len(sizes) - len(there) - len(wanted)
    assert set(survey.begun) == {n for n, s in enumerate(sizes, 1) if n not in there and s > 1}
    if by_size:
        assert len(survey.gaps) <= 1
