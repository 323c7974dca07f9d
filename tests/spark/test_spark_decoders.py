"""Operations, Raft logs and recorded sessions as columns: the results of their own decoders."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import Any

import pyarrow
import pytest

from culm.garlic import encode_configuration
from culm.garlic.raft import Configuration, Server
from culm.machines.lines import LineDriver
from culm.machines.operations import operation_to_json
from culm.machines.plain import to_plain
from culm.p2panda import Action, Operation
from culm.spark.command import config_of
from culm.spark.errors import ColumnError
from culm.spark.operations import decode_operations, operation_rows
from culm.spark.raft_logs import decode_raft_entries, raft_violations
from culm.spark.sessions import RECORDED, SAID, replay_batches, replay_sessions, session_lines
from culm.testing.record import conversations
from culm.wire.multihash import YASMF
from specs import SPECS, spec_of

ID = YASMF.hash(b"an entry")


def test_operations_say_what_they_do(spark):
    made = Operation(
        action=Action.CREATE, schema_id="blob_v1", fields={"length": 3, "pieces": ((ID,),)}
    )
    changed = Operation(
        action=Action.UPDATE, schema_id="blob_v1", previous=(ID,), fields={"length": 4}
    )
    gone = Operation(action=Action.DELETE, schema_id="blob_v1", previous=(ID,))
    payloads = [each.encode() for each in (made, changed, gone)]
    rows = [(1, each, None) for each in [*payloads, payloads[0][:-1], b"\x80", None]]
    frame = spark.createDataFrame(
        [*rows, (2, payloads[0], "before")], "n int, payload binary, fault string"
    )
    decoded = decode_operations(frame)
    assert "payload" not in decoded.columns
    found = decoded.collect()
    assert [row.action for row in found] == ["CREATE", "UPDATE", "DELETE", *[None] * 4]
    assert [row.fault for row in found] == [
        None, None, None, "NOT_CANONICAL", "WRONG_FORM", "NO_PAYLOAD", "before"
    ]  # fmt: skip
    assert json.loads(found[0].fields) == {"length": 3, "pieces": [[ID.hex()]]}
    assert [[bytes(each) for each in row.previous] for row in found[:3]] == [[], [ID], [ID]]
    with pytest.raises(ColumnError, match="payload"):
        decode_operations(frame.drop("payload"))


def test_numbers_that_json_does_not_have_are_spelled_out():
    numbers = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5}
    made = Operation(action=Action.CREATE, schema_id="blob_v1", fields=numbers)
    [row] = operation_rows([{"payload": made.encode()}])

    def refuse(name: str) -> None:
        raise ValueError(f"JSON has no {name}")

    found = json.loads(row["fields"], parse_constant=refuse)
    assert found == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}


def test_raft_logs_that_cannot_be_are_told(spark):
    servers = Configuration(servers=(Server(1, "one:1"), Server(2, "two:2")))
    encoded = encode_configuration(servers)
    log = [(1, 1, True, encoded), (2, 1, False, b"a"), (3, 2, False, b"b"), (4, 3, False, b"c")]
    logs = {
        "whole": log,
        "late": log[2:],
        "gap": [log[0], log[2]],
        "back": [*log[:3], (4, 1, False, b"?")],
        "other": [*log[:3], (4, 3, False, b"not c")],
        "broken": [(1, 1, True, encoded[:-1])],
        "last": [(2**63 - 1, 1, False, b"z")],
        "doubled": [(10, 5, False, b"d")] * 2 + [(11, 4, False, b"e")] * 2,
    }
    rows = [(name, *entry) for name, entries in logs.items() for entry in entries]
    frame = spark.createDataFrame(
        rows, "server string, at bigint, term bigint, is_configuration boolean, value binary"
    )
    decoded = {(row.server, row["at"]): row for row in decode_raft_entries(frame).collect()}
    assert json.loads(decoded["whole", 1].servers) == {"1": "one:1", "2": "two:2"}
    assert (decoded["whole", 2].servers, decoded["whole", 2].fault) == (None, None)
    assert {place for place, row in decoded.items() if row.fault} == {("broken", 1)}
    assert decoded["broken", 1].fault == "BAD_VALUE"
    found = Counter(map(tuple, raft_violations(frame).collect()))
    disagree = {(name, 4, "LOGS_DISAGREE") for name in ("whole", "late", "other")}
    first = {(name, 1, "LOGS_DISAGREE") for name, entries in logs.items() if entries[0][0] == 1}
    gone = {("gap", 3, "GAP"), ("back", 4, "TERM_WENT_BACK")}
    # Both rows have one each, whatever duplicates precede them.
    doubled = Counter({("doubled", 11, "TERM_WENT_BACK"): 2})
    assert found == Counter(disagree | first | gone) + doubled


def rows_of(session: str, lines, driver: LineDriver):
    """A driver's answers to lines, in its own form."""
    for number, line in enumerate([None, *lines]):
        for said in driver.start() if line is None else driver.do(line):
            name = said.get("event") or said.get("effect")
            if name is not None:
                yield session, number, name


def test_sessions_are_replayed_as_the_line_driver_does(spark):
    spec = spec_of("bymux")
    lines = defaultdict(list)
    for conversation in list(conversations(spec))[:3]:
        if not conversation.config:
            lines[conversation.name] = [operation_to_json(each) for each in conversation.operations]
    assert lines
    wanted = [
        row
        for name, each in lines.items()
        for row in rows_of(name, each, LineDriver(spec.machine, {}))
    ]
    frame = spark.createDataFrame(
        [
            (name, number, json.dumps(line))
            for name, each in lines.items()
            for number, line in enumerate(each, 1)
        ],
        "session string, number bigint, line string",
    )
    said = replay_sessions(frame.orderBy("number", ascending=False), "bymux")
    assert said.dtypes == list(SAID)
    rows = said.filter("kind in ('event', 'effect')").collect()
    assert sorted((row.session, row.line, row.name) for row in rows) == sorted(wanted)


def test_what_was_received_is_told_and_what_broke_a_rule(spark):
    config = {"role": "REACTIVE", "streams": {"0": [100, 100]}}
    good, rest = bytes.fromhex("20000568"), b"ello"
    recorded = [
        ("good", "in", 1.0, good),
        ("good", "out", 1.5, b"whatever we said"),
        ("good", "in", 2.0, rest),
        ("bad", "in", 1.0, b"\xff" * 9),
    ]
    frame = spark.createDataFrame(recorded[::-1], ", ".join(map(" ".join, RECORDED)))
    lines = session_lines(frame)
    extra = spark.createDataFrame([("lines", 1, "{"), ("lines", 2, None)], lines.schema)
    rows = replay_sessions(lines.union(extra), "bymux", config=config).collect()
    said = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.session, row.line, row.step or 0, row.part)):
        if row.kind == "event" or row.what in ("violation", "refused"):
            said[row.session].append((row.line, row.kind or row.what, row.name))
    assert said["good"] == [(2, "event", "StreamData")]
    assert (1, "event", "Closed") in said["bad"]
    assert (1, "violation", "RemoteProtocolError") in said["bad"]
    assert [(line, what) for line, what, _ in said["lines"]] == [(1, "refused"), (2, "refused")]
    messages = [row.name for row in rows if row.what == "message" and row.received]
    assert messages.count("WRITE") == 2  # each line has a part of it
    assert all(row.code for row in rows if row.what == "violation")
    with pytest.raises(ColumnError):
        replay_sessions(frame, "bymux")
    with pytest.raises(ColumnError, match="at"):
        session_lines(frame, then=["at"])
    with pytest.raises(Exception, match="nothing"):
        replay_sessions(lines, "nothing")


def test_what_has_come_at_one_time_is_in_the_order_that_is_given(spark):
    rows = [("a", "in", 1.0, bytes([at]), at) for at in (3, 1, 2, 5, 4)]
    frame = spark.createDataFrame(rows, ", ".join(map(" ".join, (*RECORDED, ("at", "int")))))
    lines = session_lines(frame, then=["at"]).orderBy("number").collect()
    assert [json.loads(row.line)["hex"] for row in lines] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_sessions_of_every_machine_are_replayed(spec):
    """Every recording of it: with the same input, as JSON, it gives the same output."""
    for conversation in conversations(spec):
        config = config_of(json.dumps(to_plain(conversation.config)))
        lines = [json.dumps(operation_to_json(each)) for each in conversation.operations]
        rows = [("one", number, line) for number, line in enumerate(lines, 1)]
        columns = [pyarrow.array(column) for column in zip(*rows, strict=True)]
        batch = pyarrow.RecordBatch.from_arrays(columns, names=["session", "number", "line"])
        replayed = replay_batches(iter([batch]), machine=spec.name, config=config, respond=False)
        said = [row for made in replayed for row in made.to_pylist()]
        driver = LineDriver(spec.machine, conversation.config)
        told = [(0, driver.start())]
        told += [(number, driver.do(json.loads(line))) for number, line in enumerate(lines, 1)]
        wanted = [
            (number, kind, said.get(kind) if kind in ("event", "effect") else None)
            for number, answer in told
            for said in answer
            for kind in ("error", "event", "effect", "result")
            if kind in said
        ]
        assert Counter(filter(None, map(plainly, said))) == Counter(wanted), conversation.name


def plainly(row: dict[str, Any]) -> tuple[int, str, str | None] | None:
    """A row in the form of the line driver; ``None`` if the driver does not report it."""
    if row["what"] == "refused":
        return row["line"], "error", None
    if row["kind"] in ("event", "effect"):
        return row["line"], row["kind"], row["name"]
    given = json.loads(row["said"] or "{}") if row["kind"] == "call" else {}
    if given.get("result") is not None and not row["call"].startswith("links"):
        return row["line"], "result", None
    return None
