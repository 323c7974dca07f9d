"""Steps as lines of a list: the choice of steps, their clocks, and their answers."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.capture import Header, Recorder, Step
from culm.capture.blocks import MAGIC, write_block
from culm.capture.command import main
from culm.capture.listing import Listing, StepKind, time_of
from culm.capture.text import line_of, words_of
from culm.exits import ExitStatus
from culm.machines import lookup

BEGAN = 1_795_000_000.5


@pytest.fixture(name="path")
def capture(tmp_path: Path) -> str:
    """A bymux connection that receives ten bytes, one a second."""
    path = tmp_path / "one"
    seconds = count()
    with path.open("wb") as file:
        config = {"role": "REACTIVE"}
        recorder = Recorder(
            file.write, machine="bymux", config=config, clock=lambda: next(seconds), began=BEGAN
        )
        machine = recorder.stand_in(lookup("bymux").make(config))
        for _ in range(10):
            machine.receive_data(b"\0")
        machine.receive_eof()
        machine.next_event()
        recorder.flush()
    return str(path)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines of the steps."""
    assert main(["show", *arguments]) == ExitStatus.DONE
    return capsys.readouterr().out.splitlines()[3:]


def numbers(lines: list[str]) -> list[int]:
    return [int(line.split()[0]) for line in lines]


def test_a_part_by_steps_and_by_time(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    every = shown(capsys, path)
    assert numbers(shown(capsys, path, "--from", "3", "--until", "5")) == [3, 4, 5]
    times = [float(line.split()[1]) for line in every]
    wanted = [number for number, at in zip(numbers(every), times, strict=True) if 3.0 <= at <= 6.0]
    assert len(wanted) > 1
    assert numbers(shown(capsys, path, "--from", "3s", "--until", "6.0s")) == wanted


def test_kinds_and_texts(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(shown(capsys, path, "--only", "inputs")) == 11
    assert len(shown(capsys, path, "--only", "inputs,events")) == 12
    assert len(shown(capsys, path, "--only", "events", "--grep", "Closed")) == 1
    assert shown(capsys, path, "--only", "effects") == []
    assert len(shown(capsys, path, "--grep", "receive_eof")) == 1


@pytest.mark.parametrize(
    "wrong", [("--only", "bytes"), ("--from", "x"), ("--until", "-1"), ("--from", "nans")]
)
def test_what_is_no_choice(
    wrong: tuple[str, str], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["show", path, *wrong])
    assert ended.value.code == ExitStatus.IMPOSSIBLE
    assert wrong[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("receive_data", "inputs"),
        ("advance", "inputs"),
        ("~random", "inputs"),
        ("next_event", "events"),
        ("next_effect", "effects"),
        ("fail", "answers"),
        ("data_to_send", "output"),
        ("links_to_send", "output"),
        ("next_deadline", "output"),
        ("close", "calls"),
    ],
)
def test_each_step_is_of_a_kind(name: str, kind: str) -> None:
    assert StepKind.of(step(name)) == kind


def test_when_it_began(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", path])
    assert capsys.readouterr().out.splitlines()[2] == "began 2026-11-18 11:06:40.500000Z"
    main(["show", "--json", path])
    header = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (header["machine"], header["began"]) == ("bymux", BEGAN)
    assert header["utc"] == "2026-11-18 11:06:40.500000Z"


def test_times_by_the_wall_clock(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = float(shown(capsys, path, "--from", "2", "--until", "2")[0].split()[1])
    [line] = shown(capsys, path, "--from", "2", "--until", "2", "--utc")
    assert line.split(maxsplit=3)[1:3] == time_of(BEGAN + at).split()
    main(["show", "--json", "--utc", path])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["utc"] == time_of(BEGAN + last["at"])


def test_without_the_wall_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one"
    with path.open("wb") as file:
        Recorder(file.write, machine="bymux").flush()
    assert main(["show", str(path), "--utc"]) == ExitStatus.IMPOSSIBLE
    assert capsys.readouterr().err == "it does not say when it began: no --utc\n"
    assert main(["show", str(path)]) == ExitStatus.DONE
    assert "began" not in capsys.readouterr().out


@given(st.integers(0, 253_402_300_799))
def test_a_time_is_that_of_the_calendar(seconds: int) -> None:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert time_of(float(seconds)) == f"{time:%Y-%m-%d %H:%M:%S.%f}Z"


def test_every_day_is_that_of_the_calendar() -> None:
    for days in range(200_000):
        day = date(1970, 1, 1) + timedelta(days=days)
        assert time_of(days * 86400.0).split()[0] == str(day)


def test_a_time_that_no_calendar_has() -> None:
    assert time_of(2.0**40) == "36812-02-20 00:36:16.000000Z"


def step(name: str, *arguments: Any, result: Any = None, error: Any = None) -> Step:
    return Step(0.0, 0, name, list(arguments), {}, result, error)


def effect(ticket: int) -> Step:
    inside = {"": "culm.garlic.raft:Snapshot", "fields": {"term": 1, "index": 6001, "by": "me"}}
    fields = {"ticket": ticket, "offset": 0, "last": True, "snapshot": inside, "parts": [1]}
    return step("next_effect", result={"": "culm.garlic.raft:ReadSnapshot", "fields": fields})


def test_an_answer_names_its_effect() -> None:
    listing = Listing()
    listing.add(effect(7))
    listing.add(effect(8))
    refused = listing.add(step("complete", 7, None, error={"": "x:Wrong"}))
    answer = listing.add(step("complete", 7, b"ab"))
    words = "ReadSnapshot(offset=0, snapshot.term=1, snapshot.index=6001, parts: 1 item) of step 1"
    assert (refused.answers, answer.answers) == (words, words)
    assert answer.line().endswith(f"complete(7, 2 bytes 'ab')  answers {words}")
    assert answer.plain()["answers"] == words
    assert listing.add(step("complete", 7, b"ab")).answers == ""
    assert listing.add(step("fail", 8, None)).answers.endswith("of step 2")


def test_effects_that_nobody_answers_take_bounded_memory() -> None:
    listing = Listing()
    for ticket in range(10_000):
        listing.add(effect(ticket))
    assert listing.add(step("complete", 0)).answers == ""
    assert listing.add(step("complete", 9_999)).answers


@pytest.mark.parametrize("ticket", [None, [], {}, "7", 1 << 70])
@pytest.mark.parametrize("fields", [None, [], {}, {"ticket": []}, {"ticket": 1 << 70, 3: {"": 4}}])
def test_made_up_effects_and_answers(ticket: Any, fields: Any) -> None:
    listing = Listing()
    listing.add(step("next_effect", result={"": 3, "fields": fields})).line()
    listing.add(step("complete", ticket)).line()


def test_bytes_that_are_text_are_shown_as_text() -> None:
    assert words_of(b"9001") == "4 bytes '9001'"
    assert words_of(b"\x009001") == "5 bytes 0039303031"
    assert words_of(b"") == "0 bytes"


@pytest.mark.parametrize("begun", [b"a" * 200, b"\xff" * 200], ids=["text", "hex"])
def test_bytes_that_are_cut_are_told_apart(begun: bytes) -> None:
    one, other = words_of(begun + b"1"), words_of(begun + b"2")
    digest = blake2b(begun + b"1", digest_size=4).hexdigest()
    assert one.startswith(f"201 bytes ({digest}) ")
    assert one != other
    assert max(len(one), len(other)) <= 100
    assert digest in line_of(step("complete", 1, {"": "a:Chunk", "fields": {"data": begun + b"1"}}))


def test_items_that_are_cut_are_counted() -> None:
    items = [{"": "a:Operation", "fields": {"entry": bytes(100), "body": bytes(50)}}] * 69
    assert words_of(items).startswith("69 items, 10350 bytes [Operation(")
    assert words_of({"": "tuple", "items": items}).startswith("69 items, 10350 bytes (Operation(")
    assert words_of(list(range(1000))).startswith("1000 items [0, 1, 2,")
    assert words_of({"": "tuple", "items": [1, 2]}) == "(1, 2)"


def test_a_difference_has_the_steps_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one"
    header = Header(machine="bymux", config={"role": "REACTIVE"}, began=BEGAN)
    steps = [step("receive_data", b"") for _ in range(7)]
    idle = step("next_event")
    wrong = step("read_size", result=-1)
    records = [each.encode() for each in (header, *steps, idle, wrong)]
    path.write_bytes(MAGIC + write_block(b"".join(records)))
    assert main(["replay", str(path)]) == ExitStatus.FAILED
    said = capsys.readouterr().out.splitlines()
    main(["show", str(path)])
    assert said[:5] == capsys.readouterr().out.splitlines()[5:10]
    assert said[5] == "step 9 differs"
    main(["replay", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [each["number"] for each in found["before"]] == [3, 4, 5, 6, 7]
