"""Blocks compressed by zstd: the same steps, and a typed error for every fault in them."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from struct import pack

import pytest

from culm.bymux import Connection, Role
from culm.capture import Capture, CaptureError, Compression, ErrorCode, Recorder, read, replay
from culm.capture.blocks import MAGIC, block_of, checksum_of, front_of
from culm.capture.command import main
from culm.exits import ExitStatus

zstandard = pytest.importorskip("zstandard")


def recorded(compression: Compression, size: int = 1000) -> bytes:
    pieces: list[bytes] = []
    recorder = Recorder(
        pieces.append,
        machine="bymux",
        config={"role": "REACTIVE"},
        compression=compression,
    )
    machine = recorder.stand_in(Connection(role=Role.REACTIVE))
    for _ in range(size):
        machine.receive_data(bytes.fromhex("000105"))
        while machine.next_event() is not None:
            pass
    recorder.flush()
    return b"".join(pieces)


def test_captures_are_compressed_by_zstd_if_wanted() -> None:
    plain, packed = recorded(Compression.LZFOO), recorded(Compression.ZSTD)
    assert plain.startswith(MAGIC)
    assert packed.startswith(front_of(Compression.ZSTD))
    assert list(read(plain)) == list(read(packed))
    assert read(plain).header == read(packed).header
    assert replay(read(packed)) is None


def test_the_programs_read_them(tmp_path: Path) -> None:
    path = tmp_path / "a.culmcap"
    path.write_bytes(recorded(Compression.ZSTD, 10))
    assert main(["replay", str(path)]) is ExitStatus.DONE


def test_any_byte_may_be_changed_and_any_end_missing() -> None:
    capture, rng = recorded(Compression.ZSTD, 50), Random(1)
    for _ in range(300):
        changed = bytearray(capture[: rng.randrange(len(capture) + 1)])
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        with suppress(CaptureError):
            list(read(bytes(changed)))


@pytest.mark.parametrize(
    ("stored", "size"),
    [
        (zstandard.compress(bytes(1 << 24)), 1000),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 24)), 1000),
        (zstandard.compress(bytes(10)), 1000),
        (b"no zstd at all", 1000),
    ],
)
def test_a_block_that_is_of_another_size_or_none_is_damaged(stored: bytes, size: int) -> None:
    block = pack(">III", len(stored), max(size, len(stored)), checksum_of(stored)) + stored
    with pytest.raises(CaptureError) as caught:
        list(read(front_of(Compression.ZSTD) + block))
    assert caught.value.code is ErrorCode.DAMAGED
    assert caught.value.offset == len(front_of(Compression.ZSTD))


def test_without_zstd_it_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = recorded(Compression.ZSTD, 100)
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    for use in (lambda: read(capture), lambda: recorded(Compression.ZSTD)):
        with pytest.raises(CaptureError, match="zstandard") as caught:
            use()
        assert caught.value.code is ErrorCode.UNKNOWN_COMPRESSION


def test_a_reader_that_gets_it_byte_by_byte_sees_the_same() -> None:
    capture = recorded(Compression.ZSTD, 20)
    pieces = (capture[at : at + 1] for at in range(len(capture)))
    assert list(Capture(pieces)) == list(read(capture))
    assert len(block_of([bytes(1000)], Compression.ZSTD)) == 1
