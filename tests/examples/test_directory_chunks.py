"""Large files are cut by their content, and an edit costs only the change."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from nacl.signing import SigningKey
from processes import fetch, run, serving
from trees import contents, make_tree

from culm.bamboo import LogAuthor, LogKey, LogStore, MemoryStore, NewEntry
from culm.bamboo.entry import decode
from culm.wire.multihash import YAMF
from culm_io.programs.directory import publish as publishing
from culm_io.programs.directory.contents import CUT_SIZE_MAX, WHOLE_SIZE_MAX, cut
from culm_io.programs.directory.materialise import materialise
from culm_io.programs.directory.publish import Published, publish_directory
from culm_io.programs.directory.records import (
    CHUNK_SIZE,
    Directory,
    File,
    Range,
    Record,
    RecordError,
    encode,
)
from culm_io.programs.directory.tree import TreeReader, read_tree

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)
SIZE = 1_500_000
CUTS = [4096, 163625, 36646, 283493, 207571, 148546, 245334, 209519, 135801, 65369]


@pytest.fixture
def store() -> LogStore:
    return MemoryStore(family=YAMF)


def publish(root: Path, store: LogStore) -> Published:
    return publish_directory(root, store, KEY)


def cuts(path: Path) -> list[tuple[int, int, int]]:
    with path.open("rb") as file:
        found = [chunk[:3] for chunk in cut(file.fileno(), [(0, path.stat().st_size, 0)])]
    assert sum(size for _, size, _ in found) == path.stat().st_size
    return found


def test_cuts_are_for_good(tmp_path: Path) -> None:
    """Other cuts would mean sending everything again: these cuts are for ever."""
    path = tmp_path / "file"
    path.write_bytes(Random(1).randbytes(SIZE))
    sizes = [size for _, size, _ in cuts(path)]
    assert sizes == CUTS
    assert max(sizes) <= CUT_SIZE_MAX


def test_a_window_does_not_show_in_the_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(Random(2).randbytes(SIZE))
    whole = cuts(path)
    for size in (CUT_SIZE_MAX, CUT_SIZE_MAX + 1, 500_000):
        monkeypatch.setattr("culm_io.programs.directory.contents._WINDOW_SIZE", size)
        assert cuts(path) == whole


@pytest.mark.parametrize("at", [0, SIZE // 2, SIZE - 1])
def test_a_changed_byte_costs_a_chunk_or_two(tmp_path: Path, store: LogStore, at: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    data = bytearray(Random(3).randbytes(SIZE))
    make_tree(source, {"file": bytes(data), "other": b"other"})
    publish(source, store)
    data[at] ^= 1
    make_tree(source, {"file": bytes(data)})
    done = publish(source, store)
    assert done.changed == 1
    assert done.entries <= 4  # the part before, the new one, the part after
    assert done.payload_bytes < 2 * CUT_SIZE_MAX + 1000
    materialise(store, LOG, target)
    assert contents(target) == contents(source)


def test_what_is_inserted_moves_nothing(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    data = Random(4).randbytes(SIZE)
    for content in (data, b"inserted" + data, data[: SIZE // 2] + b"!" + data[SIZE // 2 + 9 :]):
        make_tree(source, {"file": content})
        done = publish(source, store)
        assert content is data or done.payload_bytes < 3 * CUT_SIZE_MAX
        materialise(store, LOG, target)
        assert contents(target) == contents(source)


def test_a_new_time_or_mode_costs_one_small_entry(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source, {"one": Random(5).randbytes(SIZE), "two": Random(6).randbytes(SIZE)})
    publish(source, store)
    os.utime(source / "one", ns=(0, 5))
    os.chmod(source / "two", 0o600)
    done = publish(source, store)
    assert (done.entries, done.changed) == (1, 2)  # in a pack
    assert done.payload_bytes < 400
    materialise(store, LOG, target)
    assert contents(target) == contents(source)
    assert (target / "one").stat().st_mtime_ns == 5


def test_holes_are_kept_too(tmp_path: Path, store: LogStore) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    path = source / "file"
    with path.open("wb") as file:
        file.write(Random(7).randbytes(300_000))
        file.seek(5_000_000)
        file.write(Random(8).randbytes(300_000))
        file.truncate(9_000_000)
    publish(source, store)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"!")
    assert publish(source, store).payload_bytes < 2 * CUT_SIZE_MAX
    materialise(store, LOG, target)
    assert contents(target) == contents(source)


def edited(data: bytes, rng: Random) -> bytes:
    """The data with something changed, inserted, removed, doubled or moved."""
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    match rng.randrange(5):
        case 0:
            return data[:a] + rng.randbytes(20) + data[a + 20 :]
        case 1:
            return data[:a] + rng.randbytes(rng.randrange(200_000)) + data[a:]
        case 2:
            return data[:a] + data[min(b, a + 200_000) :]
        case 3:
            return (data[:b] + data[a:b] + data[b:])[: 2 * SIZE]
    return data[b:] + data[a:b] + data[:a]


@pytest.mark.parametrize("kept_max", [0, 1, 511])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_edited_is_what_arrives(
    tmp_path: Path, store: LogStore, monkeypatch: pytest.MonkeyPatch, seed: int, kept_max: int
) -> None:
    monkeypatch.setattr(publishing, "_KEPT_MAX", kept_max)
    rng = Random(seed)
    source, target = tmp_path / "source", tmp_path / "target"
    data = rng.randbytes(SIZE // 2)
    versions = set()
    for _ in range(7):
        make_tree(source, {"file": data})
        publish(source, store)
        versions.add(data)
        place = read_tree(store, LOG).places[b"file"]
        assert place.size == len(data)
        assert len(place.ranges) <= 2 * kept_max + 1
        materialise(store, LOG, target)
        assert contents(target) == contents(source)
        # Without all payloads it is one of the versions, or none.
        part = without_some(store, rng)
        tree = TreeReader(part, LOG, payload_size_max=0).read()
        if b"file" in tree.places:
            materialise(part, LOG, tmp_path / "part", tree=tree)
            assert (tmp_path / "part/file").read_bytes() in versions
        data = edited(data, rng) or b"x"


def without_some(store: LogStore, rng: Random) -> LogStore:
    """The same log without some of the payloads."""
    part = MemoryStore(family=YAMF)
    for entry in store.entries(LOG, payload_size_max=1 << 20):
        payload = None if rng.random() < 0.1 else entry.payload
        part.append(LOG, [NewEntry(decode(entry.encoded, family=YAMF), payload)])
    return part


# Logs of others


def chunk(path: bytes, number: int, count: int, content: bytes = b"", **more: object) -> bytes:
    return encode(File(path, 0o644, 5, number, count, **more), content)  # type: ignore[arg-type]


def kept(path: bytes, first: int, last: int, number: int = 0, count: int = 1) -> bytes:
    return chunk(path, number, count, kept=Range(first, last))


def authored(*payloads: bytes | Record) -> LogStore:
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    for each in payloads:
        payload = each if isinstance(each, bytes) else encode(each)
        store.append(LOG, [author.publish(payload)])
    return store


FILE = [chunk(b"a", n, 3, bytes([n]) * 9) for n in range(3)]  # entries 1 to 3
OTHER = chunk(b"b", 0, 1, b"b")


def test_what_is_kept_stands_where_it_is_named(tmp_path: Path) -> None:
    store = authored(
        *FILE, kept(b"a", 2, 3, 0, 3), chunk(b"a", 1, 3, b"new"), kept(b"a", 1, 1, 2, 3)
    )
    materialise(store, LOG, tmp_path)
    assert contents(tmp_path) == {"a": b"\1" * 9 + b"\2" * 9 + b"new" + b"\0" * 9}
    assert read_tree(store, LOG).places[b"a"].ranges == ((2, 3), (5, 5), (1, 1))


@pytest.mark.parametrize(
    "payloads",
    [
        [kept(b"a", 1, 1)],
        [*FILE, kept(b"a", 1, 4)],
        [*FILE, kept(b"a", 5, 5)],
        [*FILE, kept(b"b", 1, 1)],
        [*FILE, OTHER, kept(b"a", 4, 4)],
        [*FILE, OTHER, kept(b"a", 1, 4)],
        # The same chunk twice: a directory would take more room than its log.
        [*FILE, kept(b"a", 1, 3, 0, 2), kept(b"a", 1, 3, 1, 2)],
        [*FILE, kept(b"a", 1, 2, 0, 2), kept(b"a", 2, 3, 1, 2)],
        # Missing from the version before, even if an earlier one has it.
        [*FILE, kept(b"a", 1, 1), kept(b"a", 1, 2)],
        [*FILE, encode(Directory(b"a", 0o755)), kept(b"a", 1, 2)],
    ],
)
def test_a_file_keeps_nothing_but_its_own(tmp_path: Path, payloads: list[bytes]) -> None:
    with pytest.raises(RecordError):
        materialise(authored(*payloads), LOG, tmp_path)
    assert contents(tmp_path) == {}


def test_no_version_is_in_too_many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("culm_io.programs.directory.tree.RANGES_MAX", 2)
    read_tree(authored(*FILE, kept(b"a", 3, 3, 0, 2), kept(b"a", 2, 2, 1, 2)), LOG)
    ranges = (kept(b"a", 3 - n, 3 - n, n, 3) for n in range(3))
    with pytest.raises(RecordError, match="more than 2 ranges"):
        read_tree(authored(*FILE, *ranges), LOG)


def test_a_log_with_chunks_of_a_mebibyte_is_read_as_ever(tmp_path: Path) -> None:
    """As published before there were cuts; later entries continue it."""
    source, target = tmp_path / "source", tmp_path / "target"
    data = Random(9).randbytes(2 * CHUNK_SIZE + 5)
    pieces = [data[n : n + CHUNK_SIZE] for n in range(0, len(data), CHUNK_SIZE)]
    store = authored(*(chunk(b"file", n, 3, piece) for n, piece in enumerate(pieces)))
    materialise(store, LOG, target)
    assert contents(target) == {"file": data}
    make_tree(source, {"file": data + b"more"})
    assert publish(source, store).payload_bytes > len(data)  # cut differently, and so sent again
    make_tree(source, {"file": data + b"and more"})
    assert publish(source, store).payload_bytes < 2 * CUT_SIZE_MAX
    materialise(store, LOG, target)
    assert contents(target) == contents(source)


# Over the network


def wire_bytes_of_a_change(folder: Path, size: int) -> int:
    """The cost of one changed byte, in both directions together."""
    source, target = folder / "source", folder / "target"
    source.mkdir()
    path, rng = source / "file", Random(10)
    with path.open("wb") as file:
        for begin in range(0, size, 1 << 20):
            file.write(rng.randbytes(min(1 << 20, size - begin)))
    stores = folder / "a.store", folder / "b.store"
    assert run("publish", source, "--store", stores[0]).status == 0
    with serving(stores[0]) as port:
        assert fetch(stores[1], port, target).status == 0
        with path.open("r+b") as file:
            file.seek(size // 2)
            file.write(b"!")
        assert run("publish", source, "--store", stores[0]).status == 0
        done = fetch(stores[1], port, target)
    assert done.status == 0
    assert (target / "file").read_bytes() == path.read_bytes()
    cost: int = done.summary["wire_bytes"]
    return cost


@pytest.mark.slow
def test_one_byte_of_a_hundred_megabytes_costs_less_than_one(tmp_path: Path) -> None:
    assert wire_bytes_of_a_change(tmp_path, 100_000_000) < 1_000_000


@pytest.mark.once
def test_one_byte_of_a_few_megabytes_costs_less_than_one(tmp_path: Path) -> None:
    assert wire_bytes_of_a_change(tmp_path, 3_000_000) < 1_000_000


def test_a_small_file_is_one_chunk(tmp_path: Path, store: LogStore) -> None:
    make_tree(tmp_path, {"file": bytes(range(256)) * (WHOLE_SIZE_MAX >> 8)})
    assert publish(tmp_path, store).entries == 1
