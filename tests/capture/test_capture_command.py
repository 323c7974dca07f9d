"""``python -m culm.capture`` with files that are right, torn, wrong and not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from culm.capture import Recorder
from culm.capture.command import DIFFERENT, SAME, UNREADABLE, main
from culm.machines import lookup


def capture(path: Path, *received: bytes, role: str = "REACTIVE") -> Path:
    """Bytes that a bymux connection gets, then the end; what comes of them is drained."""
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
    assert main(["show", str(path)]) == SAME
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'bymux {"role": "REACTIVE"}'
    assert lines[1].startswith("session 7, culm ")
    assert "receive_data(1 bytes 00)" in lines[2]
    assert "Closed(" in lines[-1]
    main(["show", str(path), "--all"])
    assert len(capsys.readouterr().out.splitlines()) > len(lines)


def test_show_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "--json", str(capture(tmp_path / "one", b"\0"))])
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [step["number"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["name"] == "receive_data"
    assert steps[0]["arguments"] == [{"hex": "00"}]


def test_a_torn_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = capture(tmp_path / "one")
    with path.open("ab") as file:
        file.write(b"\0\0\0")
    assert main(["show", str(path)]) == SAME
    assert capsys.readouterr().err == "3 bytes at the end are no complete block\n"


def test_replay_says_whether_it_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = capture(tmp_path / "one", b"\0", b"\1\2\3")
    assert main(["replay", str(path)]) == SAME
    assert capsys.readouterr().out == "the same, bit for bit\n"
    assert main(["replay", str(path), "--until", "1"]) == SAME
    assert capsys.readouterr().out.startswith("after step 1: ")


def test_diff_names_the_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, same = capture(tmp_path / "one", b"\0"), capture(tmp_path / "same", b"\0")
    other = capture(tmp_path / "other", b"\1")
    assert main(["diff", str(one), str(same)]) == SAME
    assert capsys.readouterr().out == "the same steps\n"
    assert main(["diff", str(one), str(other)]) == DIFFERENT
    assert capsys.readouterr().out.splitlines()[0] == "step 1 differs"


@pytest.mark.parametrize("command", ["show", "replay"])
def test_what_is_no_capture(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong"
    assert main([command, str(path)]) == UNREADABLE
    assert capsys.readouterr().err == f"{path}: No such file or directory\n"
    path.write_bytes(b"something else")
    assert main([command, str(path)]) == UNREADABLE
    assert capsys.readouterr().err == "no capture at byte 0: it begins otherwise\n"
