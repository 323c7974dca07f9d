"""culm's archive files: written records are read, in parts of any size, and damage is reported."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.spark import archive
from culm.spark.archive import (
    ArchiveError,
    ArchiveFault,
    ArchiveHeader,
    ArchiveWriter,
    Block,
    Damage,
)

MARKER = bytes(range(100, 116))
# After the marker: the count, and the bytes of entries and of payloads.
SIZES = struct.Struct("<I4xQQ")
Record = tuple[bytes, bytes | None]

records = st.lists(
    st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=200)), max_size=12
)


def written(blocks: list[list[Record]], marker: bytes = MARKER) -> bytes:
    file = io.BytesIO()
    with ArchiveWriter(file, "bamboo/YASMF", marker=marker) as writer:
        for block in blocks:
            for record in block:
                writer.append(*record)
            writer.flush()
    return file.getvalue()


def parts(data: bytes, start: int = 0, stop: int | None = None) -> list[Block | Damage]:
    file = io.BytesIO(data)
    header = archive.read_header(file)
    return list(archive.read_blocks(file, header, start=start, stop=stop))


def described(found: list[Block | Damage]) -> list[object]:
    return [
        (each.offset, list(each.records())) if isinstance(each, Block) else each for each in found
    ]


@given(st.lists(records, max_size=5))
def test_what_is_written_is_read(blocks):
    file = io.BytesIO(written(blocks))
    assert list(archive.read_archive(file)) == [record for block in blocks for record in block]
    file.seek(0)
    assert archive.read_header(file) == ArchiveHeader("bamboo/YASMF", MARKER)


def test_chance_makes_the_marker():
    first, second = io.BytesIO(), io.BytesIO()
    for file in (first, second):
        archive.write_archive(file, "ssb", [(b"entry", None)])
    markers = {archive.read_header(file).marker for file in (first, second)}
    assert len(markers) == 2
    assert list(archive.read_archive(first)) == [(b"entry", None)]


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_parts_of_a_file_hold_everything_once(blocks, data):
    whole = bytearray(written(blocks))
    for _ in range(data.draw(st.integers(0, 2))):
        damage(whole, data)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)), max_size=5)))
    found = []
    for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
        found += described(parts(bytes(whole), start, stop))
    assert found == described(parts(bytes(whole)))


WAYS = ["set", "insert", "remove", "cut"]


def damage(whole: bytearray, data, ways: list[str] = WAYS) -> None:
    """Change, insert or remove bytes after the header."""
    at = data.draw(st.integers(archive.HEADER_SIZE, len(whole)))
    match data.draw(st.sampled_from(ways)):
        case "set":
            whole[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
        case "insert":
            whole[at:at] = data.draw(st.binary(min_size=1, max_size=60))
        case "remove":
            del whole[at : at + data.draw(st.integers(1, 60))]
        case "cut":
            del whole[at:]


@given(st.lists(records.filter(bool), min_size=1, max_size=5), st.data())
def test_what_is_damaged_is_told_and_the_rest_is_read(blocks, data):
    whole = bytearray(written(blocks))
    sound = described(parts(bytes(whole)))
    damage(whole, data, ["set", "insert", "remove"])
    found = parts(bytes(whole))
    read = [each[1] for each in described(found) if not isinstance(each, Damage)]
    assert all(block in [each[1] for each in sound] for block in read)
    # Sixty missing bytes hurt at most three adjacent blocks.
    assert len(read) >= len(sound) - 3
    covered = sum(
        each.size
        if isinstance(each, Damage)
        else 48 + 8 * each.count + len(each.entries) + len(each.payloads)
        for each in found
    )
    assert covered == len(whole) - archive.HEADER_SIZE


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_header_are_read_without_an_error(data):
    whole = ArchiveHeader("ssb", MARKER).encode() + data
    found = parts(whole)
    assert all(isinstance(each, Damage) for each in found)
    assert sum(each.size for each in found) == len(data)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        (16, 2**27, ArchiveFault.TRUNCATED_BLOCK),
        (16, 2**32 - 1, ArchiveFault.DAMAGED_BLOCK),
        (24, 2**30, ArchiveFault.TRUNCATED_BLOCK),
        (24, 2**32 - 1, ArchiveFault.DAMAGED_BLOCK),
        (28, 2**32 - 1, ArchiveFault.DAMAGED_BLOCK),
        (36, 2**32 - 1, ArchiveFault.DAMAGED_BLOCK),
        (20, 1, ArchiveFault.DAMAGED_BLOCK),
        (40, 7, ArchiveFault.DAMAGED_BLOCK),
    ],
)
def test_declared_sizes_are_not_believed(field, value, fault):
    whole = bytearray(written([[(b"one", b"two")], [(b"three", None)]]))
    second = whole.index(MARKER, archive.HEADER_SIZE + 1)
    at = archive.HEADER_SIZE + field
    whole[at : at + 4] = value.to_bytes(4, "little")
    found = parts(bytes(whole))
    assert found[0] == Damage(archive.HEADER_SIZE, second - archive.HEADER_SIZE, fault)
    assert [list(each.records()) for each in found[1:]] == [[(b"three", None)]]


def test_sizes_that_do_not_add_up_are_damage_though_the_checksum_is_right():
    block = archive.encode_block(MARKER, 1, bytes([4, 0, 0, 0]), b"\xff" * 4, b"five!", b"")
    found = parts(ArchiveHeader("ssb", MARKER).encode() + block)
    assert found == [Damage(archive.HEADER_SIZE, len(block), ArchiveFault.DAMAGED_BLOCK)]


def test_a_payload_that_holds_a_block_of_another_file_is_not_taken_for_one():
    foreign = written([[(b"forged", None)]], marker=bytes(16))[archive.HEADER_SIZE :]
    whole = written([[(b"entry", foreign * 3)], [(b"entry", None)]])
    for start in range(archive.HEADER_SIZE, len(whole)):
        for each in parts(whole, start):
            assert isinstance(each, Block)
            assert all(entry == b"entry" for entry, _ in each.records())


def test_large_blocks_are_cut():
    file = io.BytesIO()
    payload = Random(1).randbytes(1 << 20)
    with ArchiveWriter(file, "ssb", marker=MARKER) as writer:
        for number in range(10):
            writer.append(b"%d" % number, payload)
    found = parts(file.getvalue())
    assert [each.count for each in found] == [3, 3, 3, 1]


def test_many_small_records_are_cut():
    file = io.BytesIO()
    archive.write_archive(file, "ssb", ((b"", None) for _ in range(70_000)))
    assert [each.count for each in parts(file.getvalue())] == [65_536, 4464]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header[:63],
        lambda header: b"",
        lambda header: b"x" + header[1:],
        lambda header: header[:8] + b"\2" + header[9:],
        lambda header: header[:10] + b"\1" + header[11:],
        lambda header: header[:16] + bytes(16) + header[32:],
        lambda header: header[:16] + b"\xff" + header[17:],
        lambda header: header[:17] + b"\n" + header[18:],
        lambda header: header[:63] + b"\1",
    ],
)
def test_what_does_not_begin_as_an_archive_is_none(change):
    data = change(written([])[: archive.HEADER_SIZE])
    with pytest.raises(ArchiveError) as raised:
        archive.read_header(io.BytesIO(data))
    assert raised.value.fault is ArchiveFault.NO_ARCHIVE


@pytest.mark.parametrize("kind", ["", "seventeen letters", "Ä", "a\n"])
def test_kinds_are_short_and_plain(kind):
    with pytest.raises(ValueError, match="a kind has"):
        ArchiveWriter(io.BytesIO(), kind)


def test_arguments_are_checked():
    writer = ArchiveWriter(io.BytesIO(), "ssb")
    for wrong in ((None,), ("text",), (b"", "text"), (b"", 7)):
        with pytest.raises(TypeError):
            writer.append(*wrong)
    with pytest.raises(ValueError, match="marker"):
        ArchiveWriter(io.BytesIO(), "ssb", marker=b"short")
    file = io.BytesIO(written([]))
    with pytest.raises(ValueError, match="start"):
        list(archive.read_blocks(file, archive.read_header(file), start=-1))


def test_a_damaged_archive_is_not_read_in_silence():
    data = written([[(b"one", None)], [(b"two", None)]])[:-1]
    reading = archive.read_archive(io.BytesIO(data))
    assert next(reading) == (b"one", None)
    with pytest.raises(ArchiveError, match="are no blocks") as raised:
        next(reading)
    assert raised.value.fault is ArchiveFault.TRUNCATED_BLOCK


def test_a_writer_that_fails_writes_no_more():
    file = io.BytesIO()

    def fail() -> None:
        with ArchiveWriter(file, "ssb") as writer:
            writer.append(b"entry")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert len(file.getvalue()) == archive.HEADER_SIZE


class Counted(io.BytesIO):
    """Counts the bytes read from it."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def test_blocks_that_say_to_reach_to_the_end_are_not_read_up_to_there():
    """Each alone might be true; believing all of them would take quadratic time."""

    def costs(heads: int) -> tuple[int, int]:
        size = 48 * heads
        blocks = (MARKER + SIZES.pack(0, size - 48 * (at + 1), 0) + bytes(8) for at in range(heads))
        file = Counted(ArchiveHeader("ssb", MARKER).encode() + b"".join(blocks))
        found = list(archive.read_blocks(file, archive.read_header(file)))
        # The last one has no body, and a checksum other than that of no bytes.
        assert found == [
            Damage(64 + 48 * at, 48, ArchiveFault.DAMAGED_BLOCK) for at in range(heads)
        ]
        read, file.count = file.count, 0
        assert archive.whole_until(file, start=0, size=64 + size) == 64
        return read, file.count

    for few, many in zip(costs(300), costs(1200), strict=True):
        assert many < 4.5 * few


def test_a_block_in_which_the_marker_stands_again_is_damaged():
    data = written([[(bytes(5000) + MARKER + bytes(50), None)], [(b"entry", None)]])
    first, second, block = parts(data)
    assert (first.fault, second.fault) == (ArchiveFault.DAMAGED_BLOCK,) * 2
    assert list(block.records()) == [(b"entry", None)]


@pytest.mark.parametrize("count", [2, 300, 100_000])
def test_bare_markers_are_one_damage_and_the_block_after_them_is_read(count):
    data = written([[(b"entry", None)], [(b"other", None)]])
    sound = parts(data)
    second = sound[1].offset
    hurt = data[:second] + MARKER * count + data[second:]
    file = Counted(hurt)
    found = list(archive.read_blocks(file, archive.read_header(file)))
    assert file.count < 3 * len(hurt) + 20_000
    assert found[1] == Damage(second, 16 * count, ArchiveFault.NO_BLOCK)
    assert [list(each.records()) for each in (found[0], *found[2:])] == [
        list(each.records()) for each in sound
    ]


def test_bare_markers_up_to_the_end_are_told_in_parts_of_any_size():
    data = written([[(b"entry", None)]])
    hurt = data + MARKER * 500
    whole = described(parts(hurt))
    # The last one may be the beginning of a truncated block.
    assert [each.size for each in whole[1:]] == [16 * 499, 16]
    for step in (1, 7, 48, 1000):
        cuts = range(step, len(hurt), step)
        found = []
        for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
            found += described(parts(hurt, start, stop))
        assert found == whole


def large_block(size: int) -> tuple[bytes, int]:
    """An archive with a block of `size` bytes between two small ones; the place of that block."""
    data = written([[(b"1", None)], [(bytes(size - 56), None)], [(b"2", None)]])
    return data, parts(data)[1].offset


def test_a_block_above_the_limit_is_passed_over_and_told():
    data, at = large_block(20_000)
    file = io.BytesIO(data)
    header = archive.read_header(file)
    whole = list(archive.read_blocks(file, header, size_max=20_000))
    assert [each.size for each in whole] == [57, 20_000, 57]
    first, large, last = archive.read_blocks(file, header, size_max=19_999)
    assert large == Damage(at, 20_000, ArchiveFault.LARGE_BLOCK)
    assert described([first, last]) == described([whole[0], whole[2]])


def test_a_block_above_the_limit_is_not_waited_for_at_the_end_of_a_file():
    data, at = large_block(20_000)
    ended = io.BytesIO(data[: at + 20_000])
    assert archive.whole_until(ended, start=0, size=at + 20_000, size_max=1000) == at + 20_000
    # Another block may have begun within a truncated one.
    broken = data[: at + 19_960] + data[64 : 64 + 40]
    file = io.BytesIO(broken)
    assert archive.whole_until(file, start=0, size=len(broken), size_max=1000) == at


def hundred_blocks() -> bytes:
    return written([[(b"entry %d" % number, bytes(900))] for number in range(100)])


def changed(data: bytes, *places: int) -> bytes:
    copy = bytearray(data)
    for at in places:
        copy[at] ^= 1
    return bytes(copy)


def read_in_parts(data: bytes, count: int) -> tuple[list[Block | Damage], int]:
    """The results of parts of equal size, and the bytes read from the file for them."""
    step = -(-len(data) // count)
    file = Counted(data)
    found: list[Block | Damage] = []
    for start in range(0, len(data), step):
        header = archive.find_header(file)
        if header.damage is not None and not start:
            found.append(header.damage)
        found += archive.read_blocks(file, header, start=start, stop=start + step)
    return found, file.count


# A bit of the marker, of the magic, of the version, of the kind, of the zero bytes.
@pytest.mark.parametrize("at", [32, 40, 47, 3, 8, 30, 50, 63])
def test_a_header_with_a_wrong_bit_costs_the_header_alone(at):
    data = hundred_blocks()
    found, count = read_in_parts(changed(data, at), 65)
    assert found[0] == Damage(0, archive.HEADER_SIZE, ArchiveFault.DAMAGED_HEADER)
    assert [list(each.records()) for each in found[1:]] == [
        list(each.records()) for each in parts(data)
    ]
    assert count < 3 * len(data)
    assert archive.whole_until(io.BytesIO(changed(data, at)), start=0, size=len(data)) == len(data)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_archive_is_read_in_linear_time_and_loses_its_damage(seed):
    """In any number of parts, whatever is damaged: a marker, all of them, a stretch of zeros."""
    chance = Random(seed)
    data = hundred_blocks()
    markers = [each.offset for each in parts(data)]
    hurt = chance.choice(
        [chance.sample(markers[1:], 5), markers[1:], [chance.randrange(64, len(data))], [64]]
    )
    found, count = read_in_parts(changed(data, *hurt), 65)
    assert count < 4 * len(data)
    sound = [each for each in found if isinstance(each, Block)]
    assert len(sound) >= 100 - len(hurt)
    starts = [each.offset for each in found]
    assert starts == sorted(set(starts))


def test_one_block_with_its_header_damaged_is_read():
    data = written([[(b"one", b"two")]])
    for at in (35, 66):
        header, *found = read_in_parts(changed(data, at), 3)[0]
        assert header == Damage(0, archive.HEADER_SIZE, ArchiveFault.DAMAGED_HEADER)
        assert [list(each.records()) for each in found] == [[(b"one", b"two")]]


def test_what_is_no_archive_does_not_become_one():
    for data in (b"", b"culmarch", bytes(500), Random(1).randbytes(500)):
        with pytest.raises(ArchiveError):
            archive.find_header(io.BytesIO(data))
    future = changed(hundred_blocks()[:64], 8) + Random(1).randbytes(500)
    with pytest.raises(ArchiveError, match="version"):
        archive.find_header(io.BytesIO(future))


def test_zeros_behind_a_header_are_one_damage():
    """As a file system may leave them: they do not count as many markers."""
    file = io.BytesIO(ArchiveHeader("ssb", bytes(range(16))).encode() + bytes(10_000))
    assert archive.find_header(file).damage is None
    [damage] = parts(file.getvalue())
    assert isinstance(damage, Damage)


# Prints the memory for reading its argument, beyond that of the process before, in MiB.
PEAK = """
import os, resource, sys
from culm.spark.reading import read_split
from culm.spark.splits import Split
path = sys.argv[1]
split = Split(path, 0, os.path.getsize(path), is_end=True)
small = Split(sys.argv[2], 0, os.path.getsize(sys.argv[2]), is_end=True)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
list(read_split(small))
before = peak()
rows = [(len(row["entry"] or ""), row["fault"]) for batch in read_split(split)
        for row in batch.select(["entry", "fault"]).to_pylist()]
print(peak() - before, *rows[0])
"""


def peak_of(tmp_path, data: bytes, size: int) -> list[str]:
    """The memory in MiB for a file extended to `size` bytes, and the verdict on its first row."""
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(written([[(b"entry", None)]]))
    large.write_bytes(data)
    os.truncate(large, size)
    command = [sys.executable, "-c", PEAK, str(large), str(small)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_a_block_of_a_gibibyte_is_refused_before_it_takes_memory(tmp_path):
    head = MARKER + SIZES.pack(1, 2**30 - 64, 0) + bytes(8)
    peak, *row = peak_of(
        tmp_path, ArchiveHeader("ssb", MARKER).encode() + head, 64 + 48 + 8 + 2**30 - 64
    )
    assert row == ["0", "LARGE_BLOCK"]
    assert int(peak) < 32


def test_a_block_is_in_memory_once(tmp_path):
    """And once more as a Python value, which this test makes of it."""
    size = 64 << 20
    data = written([[(bytes(size), None)]])
    peak, *row = peak_of(tmp_path, data, len(data))
    assert row == [str(size), "None"]
    assert int(peak) < 64 * 2.4
