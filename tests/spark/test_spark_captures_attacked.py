"""Invented captures: each step has its row, each fault has one, and no error is raised."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from math import inf, nan
from random import Random
from typing import Any

import cbor2
import pytest
from test_spark_capture_parts import check_parts, in_parts
from test_spark_captures import one_file

from culm.capture import Header, Step
from culm.capture.blocks import MAGIC, write_block
from culm.capture.errors import CaptureError
from culm.capture.records import records_in
from culm.machines import names
from culm.spark.capture_parts import (
    messages_of,
    outline_of,
    pieces_of_block,
    places_of,
    rows_of_block,
)
from culm.spark.capture_rows import CAPTURED
from culm.spark.captures import decode_blocks
from culm.spark.columns import row_batches

MOST = (1 << 64) - 1


def handle(number: object, **more: object) -> dict[str, object]:
    return {"": "object", "number": number, **more}


def nested(depth: int, build: Any) -> Any:
    value: Any = handle(1, link=2)
    for _ in range(depth):
        value = build(value)
    return value


VALUES: list[Any] = [
    *(MOST, 1 << 63, (1 << 63) - 1, -(1 << 63), -(1 << 64), 1 << 32, -1, 0, 1, None, True),
    *(1.5, nan, inf, -0.0, "", "role", "\0", "x" * 5000, b"", b"\xff" * 300, bytes(2000)),
    *([], {}, nested(50, lambda one: [one]), {1: 2}, {b"a": 1}, {None: 1}, {1.5: {True: 2}}),
    nested(25, lambda one: {"": "tuple", "items": [one]}),
    *({"": 5}, {"": None}, {"": [1]}, {"": "tuple"}, {"": "tuple", "items": 5}, {"": "opaque"}),
    {"": "range", "items": [0, 1 << 64, 1]},
    {"": "int", "hex": "0x" + "f" * 9000},
    {"": "culm.machine:Closed", "fields": {"error": {"": "a:B", "code": {"member": 5}}}},
    {"": "culm.machine:Closed", "fields": {"error": {"message": {b"a": 1}}}},
    {"": "culm.machine:Closed", "fields": [1]},
    {"": "payload", "type": "bytes", "size": MOST},
    *(handle(1, link=MOST), handle(1 << 63), handle(-(1 << 64), link=5), handle(True, link=True)),
    *([{"": "tuple", "items": [peer, b"\0\1"]}] for peer in (b"peer", {b"x": 1}, nan, None, [[]])),
]
CALLS = [
    *range(-1, 14),
    "next_event",
    "receive_data",
    "+culm.oxen.node:Node",
    "~random",
    "!x",
    MOST,
]


def hostile_step(rng: Random) -> list[Any]:
    """The parts of a step, of which one in ten is anything."""
    given = [rng.choice(VALUES) for _ in range(rng.randrange(3))]
    named = {rng.choice(["source", "data", b"k", 5]): rng.choice(VALUES) for _ in given}
    times, handles = (0, 1, 1 << 62, MOST), (0, 0, 1, 1 << 63, MOST)
    made = [rng.choice(times), rng.choice(handles), rng.choice(CALLS), given, named]
    parts = [each if rng.random() < 0.9 else rng.choice(VALUES) for each in made]
    parts.append(rng.choice(VALUES))
    if rng.random() < 0.4:
        parts.append({rng.choice(["state", "error", 5]): rng.choice(["OPEN", *VALUES])})
    return parts


def hostile_header(rng: Random) -> dict[str, Any]:
    config = {"role": rng.choice(["REACTIVE", *VALUES]), "dialect": rng.choice(VALUES)}
    header: dict[str, Any] = {"machine": rng.choice([*names(), "nobody"]), "config": config}
    if rng.random() < 0.3:
        header[rng.choice(["session", "began", "redacted", "config"])] = rng.choice(VALUES)
    return header


def hostile_capture(rng: Random) -> bytes:
    records = [hostile_header(rng), *(hostile_step(rng) for _ in range(rng.randrange(12)))]
    capture, rest = MAGIC, list(map(cbor2.dumps, records))
    while rest:
        size = rng.randrange(1, 5)
        capture += write_block(b"".join(rest[:size]))
        del rest[:size]
    if rng.random() < 0.3:
        changed = bytearray(capture)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(MAGIC), len(changed))] = rng.randrange(256)
        capture = bytes(changed[: rng.randrange(len(MAGIC) + 1, len(changed) + 1)])
    return capture


def steps_before_the_fault(records: bytes) -> tuple[int, bool]:
    """The number of steps in a block before its fault, and whether it has one."""
    count = 0
    try:
        for found in records_in(records):
            count += isinstance(found, Step)
    except CaptureError:
        return count, True
    return count, False


def columns(rows: Iterator[dict[str, Any]]) -> int:
    """The number of rows, each of which is a valid Arrow row."""
    return sum(map(len, row_batches(rows, CAPTURED)))


@pytest.mark.parametrize("seed", range(40))
def test_no_step_is_lost_but_the_damaged_and_each_fault_has_a_row(seed: int) -> None:
    for number in range(5):
        blocks = one_file(hostile_capture(Random(seed * 1000 + number)))
        rows = list(decode_blocks(blocks))
        counts = [steps_before_the_fault(each["entry"] or b"") for each in blocks]
        assert sum(row.get("what") == "step" for row in rows) == sum(count for count, _ in counts)
        faults = sum(
            is_bad or each["fault"] is not None
            for (_, is_bad), each in zip(counts, blocks, strict=True)
        )
        assert sum("fault" in row for row in rows) == faults
        assert columns(iter(rows)) == len(rows)
        check_parts(blocks)
        assert columns(iter(in_parts(blocks))) == len(rows)


@pytest.mark.parametrize("place", range(3))
def test_a_truth_value_is_no_number(place: int) -> None:
    parts: list[Any] = [0, 0, 0, [], {}, None]
    parts[place] = True
    records = Header().encode() + cbor2.dumps(parts)
    rows = list(decode_blocks(one_file(MAGIC + write_block(records))))
    assert [row["fault"] for row in rows] == ["BAD_RECORD"]


def one_by_one_in_parts(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    places = {each["block"]: each["place"] for each in places_of(map(outline_of, blocks))}
    for block in blocks:
        yield from rows_of_block(block | {"place": places[block["block"]]})
        yield from messages_of(pieces_of_block(block | {"place": places[block["block"]]}))


def test_rows_of_one_step_are_made_one_at_a_time() -> None:
    """A few bytes of a file are very many packets: rows and fields are made only in their turn."""
    header = Header(machine="bymux", config={"role": "REACTIVE"})
    step = Step(0.0, 0, "receive_data", [b"\0\1\5" * (1 << 14)], {}, None)
    blocks = one_file(MAGIC + write_block(header.encode() + step.encode()))
    for rows in (decode_blocks, one_by_one_in_parts):
        tracemalloc.start()
        try:
            count = sum(1 for _ in rows(blocks))
            assert tracemalloc.get_traced_memory()[1] < 12 * 3 << 14
        finally:
            tracemalloc.stop()
        assert count > 1 << 14
