"""The command line: jobs over files, their tables, summaries and reports, and exit statuses."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import sessions_of_tests
from planted import Row, honest_log, key, plant
from test_spark_captures import bymux_capture

from culm.bamboo import LogKey, Reason
from culm.exits import ExitStatus
from culm.garlic import encode_configuration
from culm.garlic.raft import Configuration, Server
from culm.p2panda.author import Author
from culm.p2panda.effects import Span
from culm.p2panda.store import MemoryStore
from culm.reconcile import Frozen
from culm.spark.archive import ArchiveFault, write_archive
from culm.spark.checks import Checks, Outcome, Status
from culm.spark.command import (
    JOBS,
    main,
)
from culm.spark.kinds import KINDS
from culm.spark.meanings import meanings
from culm.spark.page import Section, Table, bars, html_of
from culm.spark.protocol_jobs import NOT_JSON, WRONG_FORM, parsed_lines, recorded_bytes
from culm.spark.report import html_page
from culm.spark.sentences import sentence_of
from culm.wire.errors import WireErrorCode
from culm.wire.multihash import YAMF, YASMF

pytestmark = pytest.mark.usefixtures("same_settings")


SAID = {"report.html", "summary.txt", "summary.json"}


def archive(path: Path, rows) -> str:
    with path.open("wb") as file:
        write_archive(file, "bamboo/YASMF", [row for row in rows if row.entry is not None])
    return str(path)


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main([*arguments, *sessions_of_tests.ARGUMENTS])
    said = capsys.readouterr()
    if status in (ExitStatus.DONE, ExitStatus.FAILED, ExitStatus.TOO_FEW):
        output = Path(arguments[arguments.index("--output") + 1])
        tables = {path.name for path in output.iterdir()}
        assert tables == {*JOBS[arguments[0]].tables, *SAID}
    return status, said.out, said.err


class Looked(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_an_audit_says_what_is_planted_in_all_forms(tmp_path, capsys, spark):
    chance = Random(1)
    rows = honest_log(1, 12)
    for number, fault in enumerate(("fork", "gap", "bad signature", "truncated"), 2):
        rows += plant(fault, honest_log(number, 12), number, YASMF, chance)
    source, output = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    archive(source / "all", rows)
    (source / "other").write_bytes(b"?")
    arguments = ("audit", "--input", str(source), "--output", str(output))
    status, out, err = run(capsys, *arguments, "--json")
    summary = json.loads(out)
    assert status == ExitStatus.FAILED
    assert summary["clean"] is False
    assert summary["quarantined"] == {"NO_ARCHIVE": 1, "TRUNCATED": 1}
    assert summary["rows"] == len(rows) + 1 == summary["sound"] + 2
    assert (summary["logs"], summary["faulty_logs"], summary["forks"]) == (5, 4, 1)
    assert set(summary["reasons"]) == {"FORK", "GAP", "BAD_SIGNATURE", "INVALID_LOG"}
    assert "auditing" in err
    assert json.loads((output / "summary.json").read_text()) == summary
    text = (output / "summary.txt").read_text()
    assert "faulty logs: 4" in text.splitlines()
    assert "  NO_ARCHIVE: 1" in text.splitlines()
    assert text.splitlines()[0] == (
        "4 of 5 logs are not verified to the end (1 fork and 3 gaps), 2 rows were set aside and"
        " 1 record is not signed as said; 25 rows of 61 hold what is verified."
    )
    report = (output / "report.html").read_text()
    page, report = Looked(report), unescape(report)
    assert page.tags.count("table") >= 8
    assert page.links == []
    # Faults come first, and the last run's output.
    titles = ["not verified to the end (", "by reason", "without a fault", "version of pyspark"]
    assert titles == sorted(titles, key=report.index)
    query = re.search(r"SELECT [^<]* WHERE array_contains[^<]*FORK[^<]*", report)
    assert query is not None
    assert spark.sql(query[0]).count() == 2
    assert spark.read.parquet(str(output / "quarantine")).count() == 2
    assert run(capsys, *arguments)[0] == ExitStatus.IMPOSSIBLE
    rest = (
        "--overwrite",
        "--quiet",
        "--fail-on",
        "no_entry, TRAILING_DATA",
        "--conf",
        "a.token=b",
    )
    status, out, err = run(capsys, "verify", *arguments[1:], *rest)
    assert (status, err) == (ExitStatus.DONE, "")
    assert "sound: 59" in out.splitlines()
    run_of = json.loads((output / "summary.json").read_text())["run"]
    assert run_of["settings"]["fail_on"] == ["NO_ENTRY", "TRAILING_DATA"]
    assert run_of["settings"]["conf"] == {"a.token": "(hidden)"}
    assert datetime.fromisoformat(run_of["began"]).tzinfo is not None
    assert {"culm", "pyspark"} < set(run_of)


def test_replicas_are_compared(tmp_path, capsys, spark):
    """One has all, one lacks two entries, one lacks all payloads except a wrong one."""
    log = honest_log(7, 9)
    bare = [Row(row.entry, None) for row in log]
    bare[0] = Row(log[0].entry, b"something else")
    kept = {"1": log, "2": log[:7], "3": bare}
    inputs = [f"--input={name}={archive(tmp_path / name, rows)}" for name, rows in kept.items()]
    arguments = ["reconcile", *inputs, "--output", str(tmp_path / "out"), "--json"]
    status, out, _ = run(capsys, *arguments)
    summary = json.loads(out)
    assert status == ExitStatus.FAILED
    copies = {(each["source"], each["target"]): each for each in summary["copies"]}
    size = sum(len(row.entry) + len(row.payload) for row in log[7:])
    assert copies["1", "2"] == {**copies["1", "2"], "copies": 2, "payloads": 0, "bytes": size}
    payloads = [copies[source, "3"] for source in ("1", "2")]
    assert [sum(each[name] for each in payloads) for name in ("copies", "payloads", "bytes")] == [
        0,
        9,
        sum(len(row.payload) for row in log),
    ]
    assert (summary["at_risk"], summary["items_looked_at"]) == (2, 9)
    tables = {name: spark.read.parquet(f"{tmp_path}/out/{name}") for name in ("plan", "holders")}
    parts = Counter((row.part, row.target) for row in tables["plan"].collect())
    assert parts == {("item", "2"): 2, ("payload", "3"): 9}
    where = Counter(
        (*row.holders, "|", *row.payload_holders) for row in tables["holders"].collect()
    )
    assert where == {("1", "2", "3", "|", "1", "2"): 7, ("1", "3", "|", "1"): 2}


def test_too_few_rows_are_a_status_of_their_own(tmp_path, capsys):
    """A missing mount looks like this; the actual kind of the records is reported as well."""
    output = tmp_path / "out"
    arguments = ("verify", "--input", archive(tmp_path / "empty", []), "--output", str(output))
    status, out, _ = run(capsys, *arguments, "--json")
    summary = json.loads(out)
    assert (status, summary["status"]) == (ExitStatus.TOO_FEW, "too few rows")
    assert (summary["clean"], summary["too_few_rows"]) == (False, ["empty"])
    rows = honest_log(1, 2, YAMF)
    (tmp_path / "other.culm").write_bytes(Path(archive(tmp_path / "some", rows)).read_bytes())
    arguments = ("verify", "--input", str(tmp_path / "other.culm"), "--output", str(output))
    status, out, _ = run(capsys, *arguments, "--overwrite", "--json")
    assert status == ExitStatus.FAILED
    [hint] = json.loads(out)["hints"]
    assert "--kind bamboo/YAMF" in hint


@pytest.mark.parametrize(
    ("fail_on", "rows_min", "status"),
    [
        (None, 1, Status.FAILED),
        (None, 0, Status.FAILED),
        (None, 9, Status.TOO_FEW_ROWS),
        ({"FORK"}, 1, Status.FAILED),
        ({"BROKEN"}, 1, Status.FAILED),
        ({"GAP", "BAD_SIGNATURE"}, 1, Status.PASSED),
        ({"GAP"}, 9, Status.TOO_FEW_ROWS),
    ],
)
def test_checks_say_what_fails(fail_on, rows_min, status):
    outcome = Outcome({}, {"FORK": 2, "GAP": 0, "broken": 1}, {"a": 9, "b": 8})
    checks = Checks(fail_on=fail_on and frozenset(fail_on), rows_min=rows_min)
    assert checks.status(outcome) is status
    assert not outcome.is_clean
    assert Checks().status(Outcome({}, {"GAP": 0})) is Status.PASSED


def test_a_fingerprint_is_a_tree_that_a_node_opens(tmp_path, capsys):
    path, output = archive(tmp_path / "log", honest_log(8, 5)), tmp_path / "out"
    arguments = ["fingerprint", "--input", path, "--output", str(output), "--levels", "0,40"]
    status, out, _ = run(capsys, *arguments, "--json")
    tree = Frozen((output / "tree.culmtree").read_bytes())
    assert status == ExitStatus.DONE
    assert tree.is_sound()
    assert tree.item_size == KINDS["bamboo/YASMF"].item_size
    summary = json.loads(out)
    assert (summary["items"], summary["ranges"]) == (len(tree), 2) == (5, 2)


def test_operations_say_what_they_do(tmp_path, capsys, spark):
    schema = "place_" + YASMF.hash(b"place").hex()
    store = MemoryStore()
    author = Author(key(9), store)
    author.update(author.create(schema, {"n": 1}), {"n": 2})
    span = Span(LogKey(bytes(key(9).verify_key), 0), 1, 2)
    found = store.read([span], count_max=9, size_max=1 << 20)
    rows = [Row(each.entry, each.operation) for each in found]
    rows += [Row(rows[0].entry, None), *honest_log(1, 1)]
    source = archive(tmp_path / "all", rows)
    arguments = ("operations", "--input", source, "--output", str(tmp_path / "out"), "--json")
    status, out, _ = run(capsys, *arguments)
    summary = json.loads(out)
    assert status == ExitStatus.FAILED
    assert summary["actions"] == {"CREATE": 1, "UPDATE": 1}
    assert summary["quarantined"] == {"NO_PAYLOAD": 1, "NOT_CANONICAL": 1}
    assert (summary["rows"], summary["schemas"], summary["reasons"]) == (4, 1, {})
    assert spark.read.parquet(str(tmp_path / "out" / "operations")).count() == 4


def lines(path: Path, values) -> str:
    text = [each if isinstance(each, str) else json.dumps(each) for each in values]
    path.write_text("".join(f"{line}\n" for line in text))
    return str(path)


def test_logs_of_servers_are_held_beside_each_other(tmp_path, capsys, spark):
    servers = encode_configuration(Configuration(servers=(Server(1, "one:1"),))).hex()
    log = [
        {"at": 1, "term": 1, "is_configuration": True, "value": servers},
        *({"at": at, "term": 1, "is_configuration": False, "value": "aa"} for at in (2, 3)),
    ]
    other = [*log[:2], {**log[2], "value": "bb"}, "{", {**log[2], "at": "4"}, {"at": 5}]
    inputs = [
        *("--input", f"one={lines(tmp_path / 'one.jsonl', log)}"),
        *("--input", f"two={lines(tmp_path / 'two.jsonl', other)}"),
    ]
    output = tmp_path / "out"
    status, out, _ = run(capsys, "raft", *inputs, "--output", str(output), "--json")
    summary = json.loads(out)
    assert status == ExitStatus.FAILED
    assert summary["quarantined"] == {"NOT_JSON": 1, "WRONG_FORM": 2}
    assert (summary["rows"], summary["sound"], summary["terms"]) == (9, 6, 1)
    assert summary["violations"] == {"LOGS_DISAGREE": 2}
    first = spark.read.parquet(str(output / "entries")).filter("at = 1").collect()
    assert {(row.server, row.servers) for row in first} == {
        (name, '{"1": "one:1"}') for name in ("one", "two")
    }


def test_sessions_are_replayed_file_by_file(tmp_path, capsys, spark):
    config = json.dumps({"role": "REACTIVE", "streams": {"0": [100, 100]}})
    folder = tmp_path / "sessions"
    folder.mkdir()
    lines(folder / "good.jsonl", [{"op": "receive", "hex": "20000568656c6c6f"}, {"op": "sing"}])
    lines(folder / "bad.jsonl", [{"op": "receive", "hex": "ff" * 9}])
    (folder / "no text.jsonl").write_bytes(b"\xff\n")
    arguments = ("sessions", "--machine", "bymux", "--config", config, "--json")
    status, out, _ = run(
        capsys, *arguments, "--input", str(folder), "--output", str(tmp_path / "out")
    )
    summary = json.loads(out)
    assert status == ExitStatus.FAILED
    assert (summary["sessions"], summary["refused"]) == (2, 1)
    assert summary["quarantined"] == {"NOT_JSON": 1}
    assert summary["events"] == {"Closed": 1, "StreamData": 1}
    assert sum(summary["violations"].values()) == 1


@pytest.mark.parametrize("split_size", [1 << 20, 1])
def test_captures_are_decoded_to_tables(tmp_path, capsys, spark, split_size):
    folder = tmp_path / "captures"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "a.culmcap").write_bytes(bymux_capture("1001", "1001", "1001"))
    place = ["--input", str(folder), "--split-size", str(split_size), "--json", "--output"]
    status, out, _ = run(capsys, "captures", *place, str(tmp_path / "good"))
    summary = json.loads(out)
    assert (status, summary["captures"], summary["machines"]) == (0, 1, {"bymux": 1})
    assert (summary["violations"], summary["quarantined"]) == ({}, {})
    (folder / "b.culmcap").write_bytes(bymux_capture("1001", "ff"))
    (folder / "torn.culmcap").write_bytes(bymux_capture("1001", "1001")[:-1])
    (folder / "notes.txt").write_text("no capture")
    status, out, _ = run(capsys, "captures", *place, str(tmp_path / "bad"))
    summary = json.loads(out)
    assert (status, summary["captures"]) == (ExitStatus.FAILED, 3)
    assert summary["violations"] == {"UNKNOWN_PACKET_TYPE": 2}  # the bytes, and their effects
    assert summary["quarantined"] == {"TRUNCATED_BLOCK": 1}
    assert (
        summary["steps"]
        == spark.read.parquet(str(tmp_path / "bad" / "decoded")).filter("what = 'step'").count()
    )
    page = (tmp_path / "bad" / "report.html").read_text()
    assert "broke the protocol" in page
    assert "coalesce(code, name)" in page
    only = ["--fail-on", "DAMAGED_BLOCK"]
    status, out, _ = run(capsys, "captures", *place, str(tmp_path / "only"), *only)
    assert status == ExitStatus.DONE


def test_a_folder_without_captures_shows_nothing(tmp_path, capsys, spark):
    (tmp_path / "notes.txt").write_text("no capture")
    out = ["--output", str(tmp_path / "out"), "--json"]
    status, _, _ = run(capsys, "captures", "--input", str(tmp_path / "notes.txt"), *out)
    assert status == ExitStatus.TOO_FEW


def test_lines_of_recorded_sessions_have_bytes_and_times():
    good = {"session": "a", "direction": "in", "time": 1, "hex": "20000568"}
    wrong = [
        {**good, "direction": "up"},
        {**good, "hex": "2"},
        *({**good, "time": time} for time in ("soon", 10**400, float("nan"), float("inf"))),
        *({**good, "session": session} for session in (1, "\ud800")),
        {"session": "a"},
        [],
    ]
    given = [{"entry": json.dumps(each).encode()} for each in (good, *wrong)]
    given += [{"entry": b"["}, {"entry": None, "fault": "LONG_LINE"}]
    row, *others = parsed_lines(given, form=recorded_bytes)
    assert row == {"session": "a", "direction": "in", "time": 1.0, "bytes": b"\x20\0\x05h"}
    faults = [WRONG_FORM] * len(wrong) + [NOT_JSON, "LONG_LINE"]
    assert others == [{"fault": fault} for fault in faults]


def test_a_campaign_says_where_it_ends_and_what_is_to_be_looked_at(tmp_path, capsys, spark):
    here = str(Path(__file__).parent)
    arguments = ["simulate", "--simulator", "moods:moody", "--modules", here, "--json"]
    seeds = ("--first-seed", "11", "--seeds", "4")
    status, out, _ = run(capsys, *arguments, *seeds, "--output", f"{tmp_path}/1")
    summary = json.loads(out)
    assert status == ExitStatus.FAILED
    assert summary["verdicts"] == {"broken": 1, "kept": 3}
    assert summary["seeds_to_look_at"] == [{"seed": 14, "verdict": "broken"}]
    assert (summary["steps"], summary["bytes"]) == (2 * (11 + 12 + 13), 3)
    seeds = ("--first-seed", str(summary["next_seed"]), "--seeds", "2")
    status, out, _ = run(capsys, *arguments, *seeds, "--output", f"{tmp_path}/2")
    assert (status, json.loads(out)["verdicts"]) == (ExitStatus.DONE, {"kept": 2})


@pytest.mark.parametrize(
    "wrong",
    [
        ["audit"],
        ["sing", "--input", "a"],
        ["audit", "--input", "a", "--input", "b"],
        ["reconcile", "--input", "a"],
        ["reconcile", "--input", "a", "--input", "b/a"],
        ["reconcile", "--input", "a", "--input", "b", "--copies", "3"],
        ["audit", "--input", "a", "--master", "local", "--remote", "sc://there"],
        ["audit", "--input", "a", "--kind", "poems"],
        ["audit", "--input", "a", "--levels", "x"],
        ["audit", "--input", "a", "--split-size", "0"],
        ["audit", "--input", "a", "--fail-on", "FROK"],
        ["audit", "--input", "a", "--min-rows", "-1"],
        ["fingerprint", "--input", "a", "--levels", "0,83"],
        ["audit", "--input", "a", "--conf", "spark.ui.enabled"],
        ["operations", "--input", "a", "--kind", "ssb"],
        ["raft", "--input", "a", "--input", "b/a"],
        ["sessions", "--input", "a", "--machine", "nothing"],
        ["sessions", "--input", "a", "--machine", "bymux", "--config", "[]"],
        ["sessions", "--input", "a", "--machine", "bymux", "--config", '{"no": 1}'],
        ["simulate", "--simulator", "nothing"],
        ["simulate", "--simulator", "no_such_module:run"],
        ["simulate", "--simulator", "json:loads", "--seeds", "0"],
    ],
)
def test_wrong_arguments_are_told(tmp_path, capsys, wrong):
    with pytest.raises(SystemExit) as ended:
        main([*wrong, "--output", str(tmp_path / "out")])
    assert ended.value.code == ExitStatus.IMPOSSIBLE
    assert not (tmp_path / "out").exists()


def test_an_input_that_is_not_there_is_told(tmp_path, capsys):
    missing = str(tmp_path / "missing")
    status, out, err = run(capsys, "audit", "--input", missing, "--output", str(tmp_path / "out"))
    assert (status, out) == (ExitStatus.IMPOSSIBLE, "")
    assert missing in err


def test_a_job_that_is_not_done_leaves_nothing_that_says_it_is(tmp_path, capsys, monkeypatch):
    """Not even an earlier job's report; and its exit status is not that of faults found."""
    path, output = archive(tmp_path / "log", honest_log(1, 2)), tmp_path / "out"
    arguments = ["verify", "--input", path, "--output", str(output)]
    assert run(capsys, *arguments)[0] == ExitStatus.DONE
    monkeypatch.setattr("culm.spark.command.html_page", lambda *_: 1 // 0)
    status, out, err = run(capsys, *arguments, "--overwrite")
    assert (status, out) == (ExitStatus.INCOMPLETE, "")
    assert "ZeroDivisionError" in err
    assert not SAID & {each.name for each in output.iterdir()}


def test_an_output_is_read_from_where_it_was_written(tmp_path, capsys):
    """And not from other paths that match its name as a pattern."""
    paths = [archive(tmp_path / name, honest_log(1, size)) for name, size in (("a", 1), ("b", 2))]
    outputs = [str(tmp_path / "out1"), str(tmp_path / "out[1]*")]
    for path, output in zip(paths, outputs, strict=True):
        status, out, _ = run(capsys, "verify", "--input", path, "--output", output, "--json")
        assert status == ExitStatus.DONE
    assert json.loads(out)["rows"] == 2


def test_an_output_is_in_no_input_and_no_input_in_an_output(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    path = archive(folder / "a", honest_log(1, 1))
    for source, output in ((folder, folder / "out"), (path, folder), (folder, folder)):
        arguments = ("--input", str(source), "--output", str(output), "--overwrite")
        status, _, err = run(capsys, "verify", *arguments)
        assert (status, "one is in the other" in err) == (ExitStatus.IMPOSSIBLE, True)
    assert [each.name for each in folder.iterdir()] == ["a"]


def test_a_page_shows_text_as_it_is_and_bars_from_zero():
    rows = [(f"$\\what$ <b>{at}", bar) for at, bar in enumerate(bars([4, 1, 0, 0, 0, 0] * 5))]
    sections = [Section("one", [Table("of names", ("name", "count"), rows)]), Section("none", [])]
    page = html_of("title", "lead <i>", "odd", ["hint"], sections)
    assert "$\\what$ &lt;b&gt;0" in page
    assert re.findall(r"width:(\d+)%", page)[:6] == ["100", "25", "0", "0", "0", "0"]
    assert Looked(page).tags.count("h2") == 1
    assert page.count("<table data-filter>") == 1
    assert "<i>" not in page.partition("</p>")[0].partition("<p")[2]


SAID_OF = {
    "status": "failed",
    "too_few_rows": [],
    "kind": "ssb",
    "inputs": {"a": "a", "b": "b", "c": "c"},
    "quarantined": {},
    "reasons": {},
}


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {
                "job": "reconcile",
                "copies": [
                    {"source": "a", "target": "b", "copies": 4, "payloads": 0},
                    {"source": "a", "target": "c", "copies": 1, "payloads": 0},
                ],
                "at_risk": 1,
            },
            "2 of 3 replicas lack something: 5 messages to copy, 1 of them with too few copies.",
        ),
        (
            {
                "job": "reconcile",
                "kind": "bamboo/YAMF",
                "copies": [{"source": "a", "target": "b", "copies": 0, "payloads": 1}],
                "at_risk": 0,
                "quarantined": {"NOT_JSON": 1},
            },
            "1 of 3 replicas lacks something: 1 payload to copy. Besides, 1 row was set aside.",
        ),
        (
            {
                "job": "reconcile",
                "copies": [],
                "equality": "shown unless somebody has crafted items",
            },
            "All 3 replicas have the same messages, unless somebody has crafted some.",
        ),
        (
            {"job": "reconcile", "copies": [], "equality": "shown"},
            "All 3 replicas have the same messages.",
        ),
        (
            {"job": "audit", "faulty_logs": 0, "entries": 1200, "logs": 1},
            "Nothing is wrong: 1,200 messages of 1 log, verified to the end.",
        ),
        (
            {"job": "audit", "faulty_logs": 1, "logs": 1, "rows": 5, "verified_rows": 3}
            | {"forks": 1, "gaps": 0},
            "The only log is not verified to the end (1 fork); 3 rows of 5 hold what is verified.",
        ),
        (
            {"job": "audit", "faulty_logs": 2, "logs": 2, "rows": 5, "verified_rows": 0}
            | {"forks": 0, "gaps": 0},
            "None of 2 logs is verified to the end; 0 rows of 5 hold what is verified.",
        ),
        (
            {"job": "reconcile", "at_risk": 0}
            | {"copies": [{"target": each, "copies": 1, "payloads": 0} for each in "abc"]},
            "All 3 replicas lack something: 3 messages to copy.",
        ),
        (
            {"job": "verify", "rows": 0, "too_few_rows": ["a", "b"]},
            "a and b have fewer rows than asked for, so this shows little."
            " Nothing is wrong with 0 records, each by itself.",
        ),
        (
            {"job": "simulate", "runs": 3, "verdicts": {"kept": 1, "broken": 2}},
            "Of 3 runs, 2 broken.",
        ),
    ],
)
def test_a_summary_begins_with_a_sentence(said, sentence):
    assert sentence_of(SAID_OF | said) == sentence


def test_what_names_mean_is_told_in_the_words_of_their_source():
    for codes in (Reason, ArchiveFault, WireErrorCode):
        told = meanings(codes)
        assert told.keys() == {each.name for each in codes}
        assert all(text.endswith(".") for text in told.values())


@pytest.mark.parametrize(
    ("job", "meaning"),
    [("verify", "as 0 for a sequence number"), ("operations", "types of fields"), ("raft", None)],
)
def test_the_page_says_what_a_name_means_in_its_job(job, meaning):
    """Three protocols have a BAD_VALUE."""
    run = {"began": "", "culm": "", "pyspark": "", "settings": {}}
    found = {"quarantined": {"BAD_VALUE": 1}, "clean": False, "rows": 1, "violations": {}}
    of_job = {"actions": {}, "servers": 1, "output": "", "seconds": 1, "run": run, "job": job}
    page = html_page(SAID_OF | found | of_job, SimpleNamespace(path="/out", tables=set()))
    told = [text for text in ("as 0 for a sequence number", "types of fields") if text in page]
    assert told == ([] if meaning is None else [meaning])
