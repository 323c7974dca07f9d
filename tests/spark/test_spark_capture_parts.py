"""Captures decoded by several tasks: the rows are those of one task, wherever they are cut."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from test_spark_captures import bymux_capture, one_file, recorded

from culm.bymux import Connection, Role
from culm.capture import Compression, Header, Recorder, Step
from culm.capture.blocks import front_of, write_block
from culm.capture.dissect import flows
from culm.capture.dissect.flows import WAITING_MAX
from culm.capture.records import records_in
from culm.spark import decode_captures
from culm.spark import read as read_files
from culm.spark.capture_files import block_starts, read_capture
from culm.spark.capture_parts import (
    messages_of,
    outline_of,
    pieces_of_block,
    places_of,
    rows_of_block,
)
from culm.spark.captures import decode_blocks
from culm.testing.record import conversations
from culm.wire.varu64 import encode
from specs import SPECS

Rows = list[dict[str, Any]]


def in_parts(blocks: Iterable[dict[str, Any]]) -> Rows:
    """Spark's handling of blocks, without Spark, and out of order."""
    given = list(blocks)
    found = list(places_of(map(outline_of, given)))
    places = {(row["file"], row["block"]): row["place"] for row in found if "place" in row}
    rows = [row for row in found if "place" not in row]
    pieces: Rows = []
    for block in reversed(given):
        place = places.get((block["file"], block["block"]))
        if block["fault"] is None and place is not None:
            rows += rows_of_block(block | {"place": place})
            pieces += pieces_of_block(block | {"place": place})
    pieces.sort(key=lambda each: (each["file"], each["flow"], each["number"]))
    return rows + list(messages_of(pieces))


def told(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows without columns that are null, in a fixed order."""
    kept = ({name: each for name, each in sorted(row.items()) if each is not None} for row in rows)
    return sorted(map(repr, kept))


def check_parts(blocks: Rows) -> None:
    assert told(in_parts(blocks)) == told(decode_blocks(blocks))


def recut(capture: bytes, size: int) -> bytes:
    """The capture with `size` records in each block."""
    records: list[bytes] = []
    for block in read_capture(io.BytesIO(capture), start=0, size=len(capture)):
        assert block.records is not None
        records += (each.encode() for each in records_in(block.records))
    cuts = (b"".join(records[at : at + size]) for at in range(0, len(records), size))
    return front_of(Compression.LZFOO) + b"".join(map(write_block, cuts))


@pytest.mark.costly
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_rows_are_the_same_wherever_a_capture_is_cut(spec):
    for conversation in conversations(spec)[:3]:
        capture = recorded(spec, conversation)
        for size in (1, 7):
            check_parts(one_file(recut(capture, size)))


@pytest.mark.costly
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_rows_are_the_same_whatever_is_damaged(spec):
    """Even with an invalid record in the middle of a block, or a missing header."""
    rng = Random(spec.name)
    blocks = one_file(recut(recorded(spec, conversations(spec)[0]), 3))
    for at in (0, 1, *rng.sample(range(len(blocks)), min(8, len(blocks)))):
        damaged = [dict(block) for block in blocks]
        damaged[at] |= {"entry": None, "fault": "DAMAGED_BLOCK", "block_end": 7}
        check_parts(damaged)
        torn = [dict(block) for block in blocks]
        torn[at]["entry"] += b"\x82\x00\x00"
        check_parts([*torn, *(block | {"file": "b"} for block in damaged)])
        changed = [dict(block) for block in blocks]
        records = bytearray(changed[at]["entry"])
        records[rng.randrange(len(records))] ^= rng.randrange(1, 256)
        changed[at]["entry"] = bytes(records)
        check_parts(changed)
    check_parts(blocks[1:])
    check_parts([*blocks[1:3], blocks[0], *blocks[3:]])


def handshake_with_keys() -> Iterator[bytes]:
    """A capture with the keys of its session: boxes wait until these are reported."""
    spec = next(each for each in SPECS if each.name == "ssb-handshake")
    for conversation in conversations(spec):
        yield recorded(spec, conversation, redact=frozenset())


def test_boxes_are_opened_once_the_keys_are_told():
    for capture in handshake_with_keys():
        for size in (1, 4):
            check_parts(one_file(recut(capture, size)))


@pytest.mark.parametrize("idle", [WAITING_MAX + 9, WAITING_MAX - 4])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_message_that_does_not_end_is_shown_after_as_many_steps(idle, is_whole):
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="bymux", config={"role": "REACTIVE"})
    machine = recorder.stand_in(Connection(role=Role.REACTIVE))
    machine.receive_data(bytes.fromhex("1001 2001"))
    for _ in range(idle):
        machine.next_event()
    if is_whole:
        machine.receive_data(bytes.fromhex("05 68656c6c6f"))
    recorder.flush()
    check_parts(one_file(recut(b"".join(pieces), 500)))


def test_steps_wait_for_no_more_than_so_many_bytes_of_all_connections(monkeypatch):
    """The bytes of other connections count, too."""
    monkeypatch.setattr(flows, "_WAITING_SIZE_MAX", 1 << 10)
    data = bytes(1 << 8)
    sent = b"\x20\x01" + encode(len(data)) + data
    steps = [
        Step(0.0, 0, "receive_data", [b"\x20\x01"], {}, None),
        *(Step(0.0, 0, "data_to_send", [], {}, sent) for _ in range(5)),
        Step(0.0, 0, "receive_data", [b"\x05hello"], {}, None),
    ]
    header = Header(machine="bymux", config={"role": "REACTIVE"}).encode()
    entries = [header, *(step.encode() for step in steps)]
    rows = [
        {"file": "a", "block": at, "entry": each, "fault": None, "block_end": None}
        for at, each in enumerate(entries)
    ]
    check_parts(rows)


def test_handles_of_connections_are_known_in_later_blocks():
    """Even if a stranger has given one number to two of them, and booleans for numbers."""
    handles = [{"": "object", "number": 1, "link": link} for link in (4, 5)]
    steps = [
        Step(0.5, 0, "links", [], {}, handles),
        Step(0.5, 1, "receive_data", [b"\x10"], {}, None),
        Step(0.5, 0, "links", [], {}, handles[:1]),
        Step(0.5, True, "receive_data", [b"\x01"], {}, None),
        Step(2.0**40, 2**64 - 1, "receive_data", [b"\x01"], {}, None),
    ]
    entries = [Header(machine="bymux", config={"role": 3, "dialect": {"a": None}}).encode()]
    entries += (step.encode() for step in steps)
    rows = [
        {"file": "a", "block": at, "entry": each, "fault": None, "block_end": None}
        for at, each in enumerate(entries)
    ]
    check_parts(rows)


# In Spark


def test_several_tasks_read_and_decode_one_capture(spark, tmp_path):
    spec = next(each for each in SPECS if each.name == "point2point")
    capture = recut(recorded(spec, conversations(spec)[0]), 16)
    damaged = bytearray(recut(capture, 12))
    starts = list(block_starts(io.BytesIO(bytes(damaged)), start=0, size=len(damaged)))
    damaged[starts[3] - 1] ^= 1
    (tmp_path / "a.culmcap").write_bytes(capture)
    (tmp_path / "b.culmcap").write_bytes(damaged)
    (tmp_path / "c.culmcap").write_bytes(b"GIF89a")
    whole = read_files(spark, str(tmp_path))
    cut = read_files(spark, str(tmp_path), split_size="1")
    tasks = cut.selectExpr("spark_partition_id() AS task").distinct().count()
    assert tasks > 5
    assert told(row.asDict() for row in cut.collect()) == told(
        row.asDict() for row in whole.collect()
    )
    wanted = told(row.asDict(recursive=True) for row in decode_captures(whole).collect())
    found = decode_captures(cut, in_parts=True).collect()
    assert told(row.asDict(recursive=True) for row in found) == wanted


def test_parts_begin_at_blocks_and_all_are_read_once():
    capture = bymux_capture(*["1001"] * 5)
    whole = one_file(capture)
    starts = [0, *(row["block"] for row in whole[1:])]
    for size in (len(capture), len(capture) - 1):
        file = io.BytesIO(capture[:size])
        assert list(block_starts(file, start=0, size=size)) == starts
        for cut in range(1, len(starts)):
            parts = [(0, starts[cut]), (starts[cut], size)]
            rows = [
                part
                for start, stop in parts
                for part in read_capture(file, start=start, stop=stop, size=size)
            ]
            assert rows == list(read_capture(file, start=0, size=size))
