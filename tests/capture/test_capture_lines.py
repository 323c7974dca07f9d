"""The line driver's lines and a capture are equivalent: either is made from the other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from capture_conversations import CASES, recorded

from culm.bymux import Connection, Role
from culm.capture import Capture, CaptureError, ErrorCode, Recorder, Redact, Step, read
from culm.capture.command import main
from culm.capture.lines import lines, operations
from culm.exits import ExitStatus
from culm.machines import lookup
from culm.machines.lines import LineDriver
from culm.testing.drive import main as drive
from culm.testing.spec import Conversation, MachineSpec


def driven(machine: str, config: Any, told: Iterable[Any]) -> tuple[list[Any], bytes]:
    """The line driver's answers to lines or operations, and the capture of the run."""
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine=machine, config=config, redact=frozenset[Redact]())
    driver = LineDriver(lookup(machine), config)
    driver.record_by(recorder.stand_in, recorder.verb)
    answers = [*driver.start()]
    for each in told:
        if isinstance(each, dict):
            answers += driver.do(json.loads(json.dumps(each)))
        else:
            answers += driver.do_operation(each)
    recorder.flush()
    return answers, b"".join(pieces)


def untimed(capture: Capture) -> list[tuple[Any, ...]]:
    return [tuple(getattr(step, name) for name in Step.__slots__ if name != "after")
            for step in capture]  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_a_capture_tells_the_line_driver_the_same(spec: MachineSpec, told: Conversation) -> None:
    first = recorded(spec, told, with_keys=True)
    answers, capture = driven(spec.name, told.config, operations(read(first)))
    assert given_in(read(capture)) == given_in(read(first))
    again = driven(spec.name, told.config, operations(read(capture)))
    assert again[0] == answers
    assert untimed(read(again[1])) == untimed(read(capture))
    try:
        written = list(lines(read(first)))
    except CaptureError as error:  # a store's answer that JSON cannot express
        assert "is no line" in str(error)  # noqa: PT017
        return
    assert driven(spec.name, told.config, written)[0] == answers


def given_in(capture: Capture) -> list[Any]:
    """Everything a machine has given except bytes."""
    names = ("next_event", "next_effect")
    return [step.result for step in capture if step.name in names and step.result is not None]


def test_a_file_becomes_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told = [{"op": "receive", "hex": "1001"}, {"op": "eof"}]
    path = tmp_path / "a.culmcap"
    path.write_bytes(driven("bymux", {"role": "REACTIVE"}, told)[1])
    assert main(["lines", str(path)]) is ExitStatus.DONE
    assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == told


def test_the_line_driver_reads_a_capture_as_it_writes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, capture = driven("bymux", {"role": "REACTIVE"}, [{"op": "receive", "hex": "1001"}])
    first, other = tmp_path / "a.culmcap", tmp_path / "b.culmcap"
    first.write_bytes(capture)
    assert drive(["--from", str(first), "--capture", str(other)]) is ExitStatus.DONE
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == answers
    assert untimed(read(other.read_bytes())) == untimed(read(capture))
    first.write_bytes(b"GIF89a..")
    assert drive(["--from", str(first)]) is ExitStatus.IMPOSSIBLE


def code_of(capture: bytes) -> ErrorCode:
    with pytest.raises(CaptureError) as caught:
        list(operations(read(capture)))
    return caught.value.code


def test_what_no_line_can_say_is_an_error() -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append)
    recorder.flush()
    assert code_of(b"".join(pieces)) is ErrorCode.NO_MACHINE
    pieces.clear()
    recorder = Recorder(pieces.append, machine="bymux", redact=frozenset({Redact.PAYLOADS}))
    recorder.stand_in(Connection(role=Role.REACTIVE)).receive_data(b"\x10\1")
    recorder.flush()
    assert code_of(b"".join(pieces)) is ErrorCode.OPAQUE
    recorder.put(Step(0.0, 7, "write", [], {}, None))
    recorder.flush()
    assert code_of(b"".join(pieces)) is ErrorCode.OPAQUE
