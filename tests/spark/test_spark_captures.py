"""Captures as rows: every step, every message, every broken rule, and every unreadable part."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from culm.bymux import Connection, Role
from culm.capture import Compression, Header, Recorder, Step, read
from culm.capture.dissect import bytes_of, dissect, leaves
from culm.capture.dissect.flows import with_fields
from culm.capture.text import is_idle
from culm.spark import (
    ColumnError,
    count_faults,
    decode_captures,
    quarantined,
    register_functions,
)
from culm.spark import read as read_files
from culm.spark.capture_files import captured_until, read_capture
from culm.spark.capture_rows import CAPTURED
from culm.spark.captures import decode_blocks
from culm.spark.columns import arrow_schema, row_batches
from culm.testing.record import conversations, driver_for
from specs import SPECS

HEAD_SIZE, MAGIC_SIZE = 12, 8
_SIZE_MAX = 1 << 26


def recorded(spec: Any, told: Any, **more: Any) -> bytes:
    """The capture of a conversation of the suite."""
    pieces: list[bytes] = []
    driver = driver_for(spec.machine, told)
    named = {"machine": spec.name, "config": told.config, "session": told.name}
    recorder = Recorder(pieces.append, **named, **more)
    driver.wrap(recorder.stand_in(driver.machine))
    driver.call_by(recorder.verb)
    driver.start()
    for operation in told.operations:
        driver.run(operation)
    recorder.flush()
    return b"".join(pieces)


def bymux_capture(
    *data: str,
    compression: Compression = Compression.LZFOO,
    began: float | None = None,
) -> bytes:
    """A capture with a block for each piece of data, and one with the header."""
    pieces: list[bytes] = []
    recorder = Recorder(
        pieces.append,
        machine="bymux",
        config={"role": "REACTIVE"},
        session="s",
        clock=iter(range(1000)).__next__,
        began=began,
        compression=compression,
    )
    machine = recorder.stand_in(Connection(role=Role.REACTIVE))
    recorder.flush()
    for each in data:
        machine.receive_data(bytes.fromhex(each))
        while machine.next_event() is not None:
            pass
        recorder.flush()
    return b"".join(pieces)


def by_file(rows: Iterable[Any]) -> dict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[Path(row.file).name].append(row.asDict(recursive=True))
    return found


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["step"], row["part"]))


def test_every_step_and_message_of_every_machine_has_a_row(spark, tmp_path):
    captures: dict[str, bytes] = {}
    for spec in SPECS:
        told = conversations(spec)[0]
        captures[f"{spec.name}.culmcap"] = recorded(spec, told)
    for name, capture in captures.items():
        (tmp_path / name).write_bytes(capture)
    rows = decode_captures(read_files(spark, str(tmp_path)))
    assert [name for name, _ in rows.dtypes] == [name for name, _ in CAPTURED]
    assert dict(rows.dtypes) == dict(CAPTURED)
    found = by_file(rows.collect())
    assert found.keys() == captures.keys()
    for name, capture in captures.items():
        check_rows(ordered(found[name]), capture)


def check_rows(rows: list[dict[str, Any]], capture: bytes) -> None:
    header = read(capture).header
    steps = list(read(capture))
    told = [row for row in rows if row["what"] == "step"]
    assert {(row["machine"], row["session"]) for row in rows} == {(header.machine, header.session)}
    assert [row["step"] for row in told] == list(range(1, len(steps) + 1))
    assert [row["call"] for row in told] == [step.name for step in steps]
    assert [row["state"] for row in told] == [step.state for step in steps]
    assert [row["kind"] == "idle" for row in told] == [is_idle(step) for step in steps]
    moved = [each for step in steps for each in bytes_of(step) if each.peer is None]
    data = [row["data"] for row in told if row["data"] is not None and row["peer"] is None]
    assert data == [each.data for each in moved]
    messages = [row for row in rows if row["what"] == "message" and row["within"] is None]
    whole = [field for _, parts in with_fields(header, steps) for part in parts
             for field in part.fields]  # fmt: skip
    assert [row["name"] for row in messages] == [each.name for each in whole]
    for row, message in zip(messages, whole, strict=True):
        first, *_ = row["fields"]
        assert (first["name"], first["depth"], first["size"]) == (message.name, 0, row["size"])
        parts = [each["name"] for each in row["fields"]]
        assert all(leaf.name in parts for leaf in leaves([message]))


def test_values_of_fields_have_types():
    rows = list(decode_blocks(one_file(bymux_capture("1005", "200105", "68656c6c6f", "ff"))))
    told = [row for row in rows if row.get("what") == "message"]
    assert [(row["name"], row["continues"]) for row in told] == [
        ("CREDIT", False),
        ("WRITE", True),
        ("WRITE", False),
        ("unread", False),
    ]
    credit, _, write, _ = told
    named = {each["name"]: each for each in credit["fields"]}
    assert (named["header"]["number"], named["header"]["text"]) == (0, "CREDIT")
    assert (named["amount"]["number"], named["amount"].get("text")) == (5, None)
    carried = {each["name"]: each for each in write["fields"]}
    assert carried["data of stream 1"]["bytes"] == b"hello"
    broken = [row for row in rows if row["what"] == "violation"]
    assert {(row.get("name"), row["code"]) for row in broken} == {
        ("RemoteProtocolError", "UNKNOWN_STREAM"),
        (None, "UNKNOWN_PACKET_TYPE"),
    }
    assert arrow_schema(CAPTURED).field("fields").type.value_type.num_fields == 8


def one_file(capture: bytes, name: str = "a.culmcap") -> list[dict[str, Any]]:
    """The rows of the format for a capture, without Spark."""
    parts = read_capture(io.BytesIO(capture), start=0, size=len(capture))
    return [
        {
            "file": name,
            "block": each.offset,
            "entry": each.records,
            "fault": None if each.fault is None else str(each.fault),
            "block_end": None if each.fault is None else each.end,
        }
        for each in parts
    ]


def test_times_are_those_of_the_recorder():
    rows = list(decode_blocks(one_file(bymux_capture("1001", "1001", began=1e9))))
    told = [row for row in rows if row["what"] == "step" and row["call"] == "receive_data"]
    assert [row["time"] - row["at"] for row in told] == [1e9, 1e9]
    assert told[0]["at"] < told[1]["at"]


# Files that were altered


def blocks_of(capture: bytes) -> list[tuple[int, int]]:
    parts = read_capture(io.BytesIO(capture), start=0, size=len(capture))
    return [(each.offset, each.end) for each in parts]


def test_a_damage_is_a_row_and_all_around_it_is_read(spark, tmp_path):
    capture = bymux_capture(*["1001"] * 4)
    places = blocks_of(capture)
    assert len(places) == 5
    damaged = bytearray(capture)
    damaged[places[2][1] - 1] ^= 1
    contents = {
        "damaged": bytes(damaged),
        "torn": capture[:-1],
        "other": b"GIF89a...",
        "newer": b"culmcap\x09" + capture[8:],
        "strange": b"culmcap\x02\x77" + capture[8:],
        "headless": capture[: places[2][0]] + bytes(4) + capture[places[2][0] + 4 :],
        "empty": b"",
        "begun": capture[:8],
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.culmcap").write_bytes(content)
    rows = read_files(spark, str(tmp_path), pathGlobFilter="*.culmcap")
    decoded = decode_captures(rows)
    found = by_file(decoded.collect())
    faults = {
        name: [(row["fault"], row["block"], row["block_end"]) for row in each if row["fault"]]
        for name, each in found.items()
    }
    size = len(capture)
    assert faults == {
        "damaged.culmcap": [("DAMAGED_BLOCK", *places[2])],
        "torn.culmcap": [("TRUNCATED_BLOCK", places[4][0], size - 1)],
        "other.culmcap": [("NO_CAPTURE", 0, 9)],
        "newer.culmcap": [("UNKNOWN_VERSION", 0, size)],
        "strange.culmcap": [("UNKNOWN_COMPRESSION", 0, size + 1)],
        "headless.culmcap": [("DAMAGED_BLOCK", places[2][0], size)],
        "empty.culmcap": [("NO_CAPTURE", 0, 0)],
    }
    steps = [row for row in found["damaged.culmcap"] if row["what"] == "step"]
    places_of = [(row["block"], row["step"] is None, row["at"] is None) for row in steps]
    before = [(places[1][0], False, False)] * 3
    after = [(place[0], True, True) for place in places[3:] for _ in range(3)]
    assert places_of == before + after
    assert {row["machine"] for row in steps} == {"bymux"}
    assert count_faults(decoded)["DAMAGED_BLOCK"] == 2
    names = {row.reason for row in quarantined(decoded).collect()}
    assert names == {fault for each in faults.values() for fault, *_ in each}


def test_a_record_that_is_none_costs_its_block():
    capture = bymux_capture(*["1001"] * 2)
    rows = one_file(capture)
    rows[1]["entry"] += b"\x82\x00\x00"
    told = list(decode_blocks(rows))
    faults = [row for row in told if row.get("fault")]
    assert [(row["fault"], row["block"]) for row in faults] == [("BAD_RECORD", rows[1]["block"])]
    assert [row.get("step") for row in told if row.get("call") == "receive_data"][:1] == [1]


def test_any_byte_may_be_wrong():
    capture = bymux_capture("1001", "20010568656c6c6f")
    for at in range(len(capture)):
        changed = bytearray(capture)
        changed[at] ^= 0x55
        for _ in decode_blocks(one_file(bytes(changed))):
            pass
        for _ in decode_blocks(one_file(capture[:at])):
            pass


@pytest.mark.costly
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_captures_of_strangers_are_rows_or_faults(spec):
    """Whatever stands in records, sound blocks of them become rows of the right types."""
    rng = Random(spec.name)
    blocks = one_file(recorded(spec, conversations(spec)[0]))
    for _ in range(60):
        changed = [dict(block) for block in blocks]
        block = rng.choice(changed)
        records = bytearray(block["entry"])
        for _ in range(rng.randrange(1, 4)):
            records[rng.randrange(len(records))] = rng.choice([rng.randrange(256), 0xA0, 0x1B])
        block["entry"] = bytes(records)
        batches = list(row_batches(decode_blocks(changed), CAPTURED))
        assert batches


def test_numbers_of_strangers_are_no_larger_than_spark_has():
    handle = {"": "object", "number": 2**64 - 1, "link": 2**64 - 1}
    steps = [
        Step(0.0, 0, "links", [], {}, [handle, {"": "object", "link": 1}]),
        Step(2.0**40, 2**64 - 1, "receive_data", [b"x"], {}, None, {"code": {"member": 3}}),
        Step(0.0, 0, "next_event", [], {}, {"": 3, "fields": {"error": {"": [], "code": 3}}}),
        Step(0.0, 0, "receive_datagram", [b"\xff"], {"source": {"": {}}}, None),
    ]
    records = Header(machine="oxen", config={"dialect": "no such"}).encode()
    records += b"".join(step.encode() for step in steps)
    block = {"file": "a", "block": 8, "entry": records, "fault": None, "block_end": None}
    [batch] = row_batches(decode_blocks([block]), CAPTURED)
    rows = batch.to_pylist()
    assert [row["call"] for row in rows if row["what"] == "step"] == [step.name for step in steps]
    assert {row["handle"] for row in rows} == {0, -1}


def test_a_block_that_is_too_large_is_passed_over():
    capture = bymux_capture("1001", "1001" * 300, "1001")
    parts = list(read_capture(io.BytesIO(capture), start=0, size=len(capture), size_max=1000))
    assert [part.fault for part in parts] == [None, None, "LARGE_BLOCK", None]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_capture_that_grows_is_read_up_to_its_last_whole_block(compression):
    capture = bymux_capture(*["1001"] * 3, compression=compression)
    ends = [end for _, end in blocks_of(capture)]
    for size in range(len(capture) + 1):
        wanted = max((end for end in ends if end <= size), default=0)
        assert captured_until(io.BytesIO(capture), start=0, size=size) == wanted
    for size in range(ends[1], len(capture) + 1):
        wanted = max(end for end in ends if end <= size)
        assert captured_until(io.BytesIO(capture), start=ends[1], size=size) == wanted
    rest = list(read_capture(io.BytesIO(capture), start=ends[1], size=len(capture)))
    assert [part.offset for part in rest] == ends[1:-1]
    assert captured_until(io.BytesIO(b"GIF89a........"), start=0, size=12) == 12


def test_columns_that_are_missing_are_named(spark):
    with pytest.raises(ColumnError, match="block"):
        decode_captures(spark.createDataFrame([("a",)], "file string"))


# In SQL


def test_bytes_are_dissected_in_sql(spark):
    register_functions(spark)
    rows = [(bytes.fromhex("000105ff"), "bymux"), (None, "bymux")]
    spark.createDataFrame(rows, "data binary, protocol string").createOrReplaceTempView("moved")
    found = spark.sql("SELECT culm_dissect(data, protocol) AS d FROM moved").collect()
    told = next(row.d for row in found if row.d is not None)
    assert (told.fault, told.fault_offset) == ("UNKNOWN_PACKET_TYPE", 3)
    wanted = [each.name for each in leaves(dissect("bymux", rows[0][0]).fields)]
    assert [each.name for each in told.fields if each.depth or each.name == "unread"] == wanted
    assert sum(row.d is None for row in found) == 1
    assert json.dumps(told.fields[1].asDict(), default=str)
