"""``python -m culm.capture`` with files that are whole, torn, wrong and missing."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from capture_conversations import CASES, recorded
from test_capture_format import WHOLE

from culm.capture import Recorder
from culm.capture.command import main
from culm.exits import ExitStatus
from culm.machines import lookup
from culm.testing.spec import Conversation, MachineSpec


def capture(path: Path, *received: bytes, role: str = "REACTIVE") -> Path:
    """A bymux connection that receives these bytes, then the end; its output is drained."""
    with path.open("wb") as file:
        recorder = Recorder(file.write, machine="bymux", config={"role": role}, session="7")
        machine = recorder.stand_in(lookup("bymux").make({"role": role}))
        for data in received:
            machine.receive_data(data)
            while machine.next_event() is not None:
                pass
            machine.data_to_send()
        machine.receive_eof()
        while machine.next_event() is not None:
            pass
        recorder.flush()
    return path


def test_show_has_a_line_for_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = capture(tmp_path / "one", b"\0")
    assert main(["show", str(path)]) == ExitStatus.DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'bymux {"role": "REACTIVE"}'
    assert lines[1].startswith("session 7, culm ")
    assert "receive_data(1 bytes 00)" in lines[2]
    assert "Closed(" in lines[-1]
    main(["show", str(path), "--all"])
    assert len(capsys.readouterr().out.splitlines()) > len(lines)


def test_show_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "--json", str(capture(tmp_path / "one", b"\0"))])
    _, *steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [step["number"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["name"] == "receive_data"
    assert steps[0]["arguments"] == [{"hex": "00"}]


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_every_conversation_is_shown_and_converted(
    spec: MachineSpec, told: Conversation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one"
    path.write_bytes(recorded(spec, told))
    for arguments in ([], ["--all"], ["--json"]):
        assert main(["show", str(path), *arguments]) == ExitStatus.DONE
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("{"):
            json.loads(line, parse_constant=pytest.fail)
    for command in ("qlog", "pcap", "test"):
        assert main([command, str(path), "-o", str(tmp_path / command)]) == ExitStatus.DONE
    for record in (tmp_path / "qlog").read_bytes().split(b"\x1e")[1:]:
        json.loads(record, parse_constant=pytest.fail)


def test_a_torn_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = capture(tmp_path / "one")
    with path.open("ab") as file:
        file.write(b"\0\0\0")
    assert main(["show", str(path)]) == ExitStatus.DONE
    assert capsys.readouterr().err == "3 bytes at the end are no complete block\n"


def test_replay_says_whether_it_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = capture(tmp_path / "one", b"\0", b"\1\2\3")
    assert main(["replay", str(path)]) == ExitStatus.DONE
    assert capsys.readouterr().out == "the same, bit for bit\n"
    assert main(["replay", str(path), "--until", "1"]) == ExitStatus.DONE
    assert capsys.readouterr().out.startswith("after step 1: ")


def test_diff_names_the_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, same = capture(tmp_path / "one", b"\0"), capture(tmp_path / "same", b"\0")
    other = capture(tmp_path / "other", b"\1")
    assert main(["diff", str(one), str(same)]) == ExitStatus.DONE
    assert capsys.readouterr().out == "the same steps\n"
    assert main(["diff", str(one), str(other)]) == ExitStatus.FAILED
    assert capsys.readouterr().out.splitlines()[0] == "step 1 differs"


def test_what_is_found_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = capture(tmp_path / "one", b"\0"), capture(tmp_path / "other", b"\1")

    def said(*arguments: object) -> dict[str, Any]:
        main([*map(str, arguments), "--json"])
        value: dict[str, Any] = json.loads(capsys.readouterr().out)
        return value

    assert said("replay", one) == {"differs_at": None}
    assert said("replay", one, "--until", 1).keys() == {"step", "state"}
    found = said("diff", one, other)
    assert (found["differs_at"], len(found)) == (1, 3)
    assert found[str(one)]["name"] == found[str(other)]["name"]


@pytest.mark.parametrize("command", ["show", "replay"])
def test_what_is_no_capture(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong"
    assert main([command, str(path)]) == ExitStatus.IMPOSSIBLE
    assert capsys.readouterr().err == f"{path}: No such file or directory\n"
    path.write_bytes(b"something else")
    assert main([command, str(path)]) == ExitStatus.IMPOSSIBLE
    assert capsys.readouterr().err == "no capture at byte 0: wrong first bytes\n"


class Stdin:
    """Standard input with these bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = BytesIO(data)


@pytest.mark.parametrize("data", [b"00 01 05\n", b"\0\1\5"], ids=["hex", "bytes"])
def test_dissect(
    data: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(data))
    assert main(["dissect", "--protocol", "bymux"]) == ExitStatus.DONE
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["0", "3", "CREDIT = 1"],
        ["0", "1", "header = CREDIT"],
        ["1", "1", "stream_id = 1"],
        ["2", "1", "amount = 5"],
    ]


def test_dissected_fields_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(b"000105 ff"))
    assert main(["dissect", "--protocol", "bymux", "--json"]) == ExitStatus.FAILED
    *fields, fault = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    amount = {"offset": 2, "size": 1, "depth": 1, "name": "amount", "value": 5, "continues": False}
    assert amount in fields
    assert (fault["offset"], fault["fault"]) == (3, "UNKNOWN_PACKET_TYPE")


def test_dissect_names_the_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(b"000105 ff"))
    assert main(["dissect", "--protocol", "bymux"]) == ExitStatus.FAILED
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == [
        "3",
        "UNKNOWN_PACKET_TYPE: header 0xff",
    ]
    monkeypatch.setattr("sys.stdin", Stdin(b""))
    assert main(["dissect", "--protocol", "bymux", "--dialect", "seed"]) == ExitStatus.IMPOSSIBLE


def records_of(path: Path) -> list[Any]:
    """The records of a sequence of JSON texts (RFC 7464)."""
    first, *texts = path.read_bytes().split(b"\x1e")
    assert first == b""
    assert all(text.endswith(b"\n") for text in texts)
    return [json.loads(text) for text in texts]


def test_qlog_has_the_structure_of_the_main_schema(tmp_path: Path) -> None:
    path = capture(tmp_path / "one", b"\0", b"\1\2\3")
    out = tmp_path / "one.sqlog"
    assert main(["qlog", str(path), "-o", str(out)]) == ExitStatus.DONE
    file, *events = records_of(out)
    assert file["file_schema"] == "urn:ietf:params:qlog:file:sequential"
    assert (file["qlog_version"], file["qlog_format"]) == ("0.3", "JSON-SEQ")
    assert file["serialization_format"] == "application/qlog+json-seq"
    trace = file["trace"]
    assert trace["event_schemas"] == ["urn:culm:qlog:events:culm-01"]
    assert trace["vantage_point"] == {"name": "bymux", "type": "server"}
    assert trace["common_fields"]["time_format"] == "relative_to_epoch"
    assert trace["common_fields"]["reference_time"] == {
        "clock_type": "monotonic",
        "epoch": "unknown",
    }
    assert trace["common_fields"]["group_id"] == "7"
    times = [event["time"] for event in events]
    assert times == sorted(times)
    for event in events:
        assert event.keys() == {"time", "name", "data"}
        assert isinstance(event["data"], dict)
        assert event["name"].startswith("culm:")
    received = [each["data"]["raw"] for each in events if "raw" in each["data"]]
    assert received == [{"length": 1, "data": "00"}, {"length": 3, "data": "010203"}]
    last = [each["data"] for each in events if each["name"] == "culm:event"][-1]
    assert (last["state"], last["event"][""]) == ("FAILED", "culm.machine:Closed")


def test_qlog_has_times_since_1970_in_the_way_of_all_drafts(tmp_path: Path) -> None:
    """A reference to another time is a number in some of them, and a map in others."""
    path, out = tmp_path / "one", tmp_path / "one.sqlog"
    with path.open("wb") as file:
        recorder = Recorder(file.write, machine="bymux", clock=lambda: 0.0, began=1.5)
        recorder.stand_in(lookup("bymux").make({})).receive_eof()
        recorder.flush()
    assert main(["qlog", str(path), "-o", str(out)]) == ExitStatus.DONE
    told, *events = records_of(out)
    assert told["trace"]["common_fields"] == {}
    assert [each["time"] for each in events] == [1500.0]


def test_pcap_has_the_bytes_in_a_connection_that_tshark_follows(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed (on Debian: apt install tshark)")
    path = capture(tmp_path / "one", b"\0\1\5", bytes(100_000))
    out = tmp_path / "one.pcap"
    assert main(["pcap", str(path), "-o", str(out)]) == ExitStatus.DONE
    check = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"]
    fields = [
        "-T",
        "fields",
        *(f"-e{name}" for name in ("tcp.payload", "tcp.dstport", "_ws.expert")),
    ]
    lines = subprocess.run(
        [tshark, "-r", str(out), *check, *fields], capture_output=True, check=True, text=True
    ).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    received = bytes.fromhex("".join(row[0] for row in rows if row[1] == "4000"))
    assert received == b"\0\1\5" + bytes(100_000)
    assert not any("checksum" in row[2].lower() for row in rows)
    lost = [tshark, "-r", str(out), "-Y", "tcp.analysis.flags or ip.checksum.status == 0"]
    found = subprocess.run(lost, capture_output=True, check=True, text=True).stdout
    assert found == ""


def test_pcap_of_datagrams(tmp_path: Path) -> None:
    path, out = tmp_path / "oxen", tmp_path / "oxen.pcap"
    with path.open("wb") as file:
        recorder = Recorder(file.write, machine="oxen")
        machine: Any = recorder.stand_in(lookup("oxen").make({}))
        machine.advance(0.0)
        machine.receive_datagram(b"d2:kai5ee", source=b"BBB")
        recorder.flush()
    assert main(["pcap", str(path), "-o", str(out)]) == ExitStatus.DONE
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed (on Debian: apt install tshark)")
    line = subprocess.run(
        [tshark, "-r", str(out), "-T", "fields", "-eudp.payload", "-eudp.dstport"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert line == f"{b'd2:kai5ee'.hex()}\t4000\n"


def test_a_capture_becomes_a_test(tmp_path: Path) -> None:
    path = capture(tmp_path / "one", b"\0", b"\1\2\3")
    out = tmp_path / "test_one.py"
    assert main(["test", str(path), "-o", str(out)]) == ExitStatus.DONE
    text = out.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    found: dict[str, Any] = {}
    exec(compile(text, str(out), "exec"), found)
    assert found["CAPTURE"] == path.read_bytes()
    found["test_it_comes_out_the_same"]()


@pytest.mark.parametrize("name", ['"""; bad = 1; """', "\\", '"', "'''", "a\nb", "{capture}"])
def test_names_in_a_capture_are_no_code(name: str, tmp_path: Path) -> None:
    path, out = tmp_path / "one", tmp_path / "test_one.py"
    with path.open("wb") as file:
        Recorder(file.write, machine=name, session=name).flush()
    assert main(["test", str(path), "-o", str(out)]) == ExitStatus.DONE
    tree = ast.parse(out.read_text(encoding="utf-8"))
    kinds = [type(each).__name__ for each in tree.body]
    assert kinds == ["Expr", "ImportFrom", "ImportFrom", "Assign", "FunctionDef"]


COMMANDS = {
    **{name: [name] for name in ("show", "replay", "qlog", "pcap", "lines", "test", "view")},
    "messages": ["show", "--messages"],
    "json": ["show", "--json"],
}


@pytest.mark.parametrize("command", [*COMMANDS, "diff"])
def test_a_capture_that_is_cut_or_changed_is_read_or_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else is raised: each block, its head and what is before it, at every fifth byte."""
    whole, path, made = tmp_path / "whole", tmp_path / "broken", str(tmp_path / "made")
    whole.write_bytes(WHOLE)
    given = {"diff": ["diff", str(whole), str(path)]}.get(command)
    if given is None:
        written = command in ("qlog", "pcap", "lines", "test", "view")
        given = [*COMMANDS[command], str(path), *(["-o", made] if written else [])]
    for at in range(0, len(WHOLE), 5):
        changed = WHOLE[:at] + bytes([WHOLE[at] ^ 1 << at % 8]) + WHOLE[at + 1 :]
        for broken in (WHOLE[:at], changed):
            path.write_bytes(broken)
            assert main(given) in ExitStatus
    capsys.readouterr()
