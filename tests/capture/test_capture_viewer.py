"""The data of the viewer's page: both sides of a conversation, in order, with everything shown."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import pytest

from culm.capture import Recorder, Step, read
from culm.capture.command import main
from culm.capture.view import page
from culm.exits import ExitStatus
from culm.machine import LocalProtocolError
from culm.machines import lookup


def data_of(text: str) -> dict[str, Any]:
    """The data that the page's script reads."""
    found = re.search(r'<script id="data"[^>]*>([^<]*)</script>', text)
    assert found is not None
    text = zlib.decompress(b64decode(found[1]), wbits=-15)
    decoded: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    return decoded


class Side:
    """A recorded bymux connection whose clock is set by hand."""

    def __init__(self, role: str, began: float) -> None:
        self.now = 0.0
        self.pieces: list[bytes] = []
        self.recorder = Recorder(
            self.pieces.append,
            machine="bymux",
            config={"role": role},
            clock=lambda: self.now,
            began=began,
        )
        self.machine: Any = self.recorder.stand_in(lookup("bymux").make({"role": role}))

    def said(self) -> bytes:
        data: bytes = self.machine.data_to_send()
        return data

    def told(self, data: bytes, now: float) -> list[Any]:
        self.now = now
        self.machine.receive_data(data)
        return list(iter(self.machine.next_event, None))

    def capture(self) -> bytes:
        self.recorder.flush()
        return b"".join(self.pieces)


def conversation() -> dict[str, bytes]:
    """A goodbye, then bytes that form no packet; the second clock runs behind the first."""
    one, other = Side("PROACTIVE", 100.0), Side("REACTIVE", 99.999)
    one.machine.close()
    other.told(one.said(), 0.0005)
    one.told(b"\xff", 0.25)
    return {"one": one.capture(), "other": other.capture()}


def shown() -> dict[str, Any]:
    return data_of(page({name: partial(read, data) for name, data in conversation().items()}))


def test_sides_are_named_and_described() -> None:
    sides = shown()["sides"]
    assert [each["name"] for each in sides] == ["one", "other"]
    assert [each["config"]["role"] for each in sides] == ["PROACTIVE", "REACTIVE"]
    assert {each["redacted"][0] for each in sides} == {"keys"}


def test_bytes_lead_from_where_they_were_sent_to_where_they_came_and_never_back_in_order() -> None:
    steps = shown()["steps"]
    ways = [(at, step[5]["to"]) for at, step in enumerate(steps) if "to" in step[5]]
    assert len(ways) == 1
    (sent, came) = ways[0]
    assert sent < came  # although the other clock says otherwise
    assert (steps[sent][0], steps[came][0]) == (0, 1)
    assert steps[came][5]["from"] == sent
    assert steps[sent][5]["bytes"][0]["data"] == steps[came][5]["bytes"][0]["data"]


def test_faults_states_and_fields_are_there() -> None:
    steps = shown()["steps"]
    faults = [step[5]["fault"] for step in steps if "fault" in step[5]]
    assert faults[0] == "UNKNOWN_PACKET_TYPE: header 0xff"
    states = [step[5]["state"] for step in steps if "state" in step[5]]
    assert states
    fields = [
        each for step in steps for part in step[5].get("bytes", []) for each in part["fields"]
    ]
    assert {each[0] for each in fields} >= {"CLOSE", "unread"}


def test_without_a_clock_the_time_that_the_machine_was_told_counts() -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    recorder.put(Step(0.0, 0, "advance", [3.0], {}, None))
    recorder.put(Step(0.0, 0, "receive_data", [b"x"], {}, None))
    recorder.flush()
    steps = data_of(page({"one": partial(read, b"".join(pieces))}))["steps"]
    assert [(step[2], step[3]) for step in steps] == [(3.0, "time"), (3.0, "received")]
    assert steps[1][4] == "bytes"  # of an unknown protocol


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    paths = []
    for name, data in conversation().items():
        paths.append(tmp_path / f"{name}.culmcap")
        paths[-1].write_bytes(data)
    out = tmp_path / "page.html"
    assert main(["view", *map(str, paths), "-o", str(out)]) == ExitStatus.DONE
    text = out.read_text(encoding="utf-8")
    assert data_of(text) == shown()
    assert re.findall(r"(?:src|href)=|@import|url\(|https?://", text) == []


@pytest.mark.parametrize("name", ["</script><b>", "{{data}}"])
def test_names_are_text(name: str) -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine=name)
    recorder.flush()
    text = page({"one": partial(read, b"".join(pieces))})
    assert "<b>" not in text
    assert data_of(text)["sides"][0]["machine"] == name
    assert f"<h1>{escape(name)}</h1>" in text


def test_what_is_no_number_in_json_is_shown_as_text() -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    machine = recorder.stand_in(lookup("ssb-ebt").make({}))
    with pytest.raises(LocalProtocolError):
        machine.advance(float("nan"))
    recorder.flush()
    [row] = data_of(page({"one": partial(read, b"".join(pieces))}))["steps"]
    assert row[-1]["call"]["arguments"] == [{"float": "nan"}]


def test_a_long_capture_is_shown_through_a_window() -> None:
    """Each window shows that part of the whole page, and the state before it."""
    captures = {name: partial(read, data) for name, data in conversation().items()}
    whole = data_of(page(captures))
    count = len(whole["steps"])
    assert whole["window"] == [1, count, count]
    for first in range(1, count + 1, 3):
        part = data_of(page(captures, first=first, count=4))
        wanted = whole["steps"][first - 1 : first + 3]
        assert [row[:5] for row in part["steps"]] == [row[:5] for row in wanted]
        assert [row[5].get("bytes") for row in part["steps"]] == [
            row[5].get("bytes") for row in wanted
        ]
        assert part["window"] == [first, len(wanted), count]
        for index, side in enumerate(part["sides"]):
            states = [
                row[5]["state"]
                for row in whole["steps"][: first - 1]
                if row[0] == index and "state" in row[5]
            ]
            if any(row[0] == index for row in wanted):
                assert side.get("state") == (states[-1] if states else None)


def test_the_command_shows_a_window(tmp_path: Path) -> None:
    path, made = tmp_path / "a.culmcap", tmp_path / "a.html"
    path.write_bytes(next(iter(conversation().values())))
    arguments = ["view", str(path), "-o", str(made), "--from", "2", "--steps", "3"]
    assert main(arguments) is ExitStatus.DONE
    assert data_of(made.read_text(encoding="utf-8"))["window"][:2] == [2, 3]
