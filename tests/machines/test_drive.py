"""The line driver: from another process, and line by line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import toy_distribution

from culm.exits import ExitStatus, end_with
from culm.machines import ConfigError, Key, lookup, names, registry
from culm.machines.lines import LineDriver, verb_words
from culm.testing import drive
from spec_changes import machine_with
from toy_machines import KEEPER, LINES, PINGER, Keep, Lines


class Process:
    """``python -m culm.testing.drive`` at work, addressed like any other implementation."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        paths = [*toy_distribution.install(folder), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment.pop("PYTHONUNBUFFERED", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "culm.testing.drive", *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def answer(self) -> list[Any]:
        """The lines up to the end of the answer."""
        assert self.process.stdout is not None
        lines = [json.loads(self.process.stdout.readline())]
        while "deadline" not in lines[-1]:
            lines.append(json.loads(self.process.stdout.readline()))
        return lines

    def ask(self, line: bytes) -> list[Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        return self.answer()

    def finish(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    running: list[Process] = []

    def start(*arguments: str) -> Process:
        running.append(Process(tmp_path, *arguments))
        return running[-1]

    yield start
    for each in running:
        each.process.kill()
        each.process.communicate()


def test_a_machine_is_driven_from_another_process(start: Any) -> None:
    keeper = start("keeper", "--config", '{"effects_max": 1, "idle": 9}')
    status = {"deadline": None, "state": "OPEN", "read_size": 256, "trailing": ""}
    assert keeper.answer() == [status]
    assert keeper.ask(b'{"op": "advance", "now": 1}') == [{**status, "deadline": 10}]
    assert keeper.ask(b'{"op": "receive", "hex": "610a620a"}') == [
        {"event": "LineReceived", "fields": {"text": {"hex": "61"}}},
        {"effect": "Keep", "ticket": 1, "fields": {"text": {"hex": "61"}}},
        {**status, "deadline": 10, "read_size": 254},
    ]
    assert keeper.ask(b'{"op": "complete", "ticket": 1, "result": 5}') == [
        {"event": "Kept", "fields": {"text": {"hex": "61"}, "place": 5}},
        {"event": "LineReceived", "fields": {"text": {"hex": "62"}}},
        {"effect": "Keep", "ticket": 2, "fields": {"text": {"hex": "62"}}},
        {"send": "6f6b0a"},
        {**status, "deadline": 10},
    ]
    errors = [
        (b'{"op": "complete", "ticket": 1}', "LocalProtocolError", "UNKNOWN_TICKET"),
        (b'{"op": "call", "method": "say", "args": {"text": {"hex": "0a"}}}', None, "NOT_A_LINE"),
        (b'{"op": "call", "method": "say", "args": {"txt": 1}}', "TypeError", None),
        (b'{"op": "call", "method": "_step"}', "UnknownVerbError", None),
        (b'{"op": "datagram", "source": "x", "hex": ""}', "WrongKindError", None),
        (b'{"op": "dance"}', "BadOperationError", None),
        (b"{", "JSONDecodeError", None),
        (b'"\x80"', "UnicodeDecodeError", None),
        (b"[" * 100_000, "TooDeepError", None),
    ]
    for line, kind, code in errors:
        told, last = keeper.ask(line)
        assert told["error"]["type"] in {kind or "LocalProtocolError"}
        assert told["error"]["code"] == code
        assert set(told["error"]) == {"type", "code", "message"}
        assert last == {**status, "deadline": 10}
    assert keeper.ask(b'{"op": "complete", "ticket": 2, "result": 6}')[:2] == [
        {"event": "Kept", "fields": {"text": {"hex": "62"}, "place": 6}},
        {"send": "6f6b0a"},
    ]
    assert keeper.ask(b'{"op": "eof"}') == [
        {"event": "Closed", "fields": {"error": None}},
        {"deadline": None, "state": "CLOSED", "read_size": 0, "trailing": ""},
    ]
    assert keeper.finish() == (0, b"", b"")


def test_the_machines_are_listed(start: Any) -> None:
    code, out, err = start("--list").finish()
    assert (code, err) == (0, b"")
    assert {"keeper", "lines", "pinger", *names()} <= set(out.decode().split())


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["no-such-machine"], "UnknownMachineError"),
        (["lines", "--config", "{"], "JSONDecodeError"),
        (["lines", "--config", "[]"], "ValueError"),
        (["lines", "--config", '{"unknown": 1}'], "ConfigError"),
        (["lines", "--config", '{"line_max": "64"}'], "ConfigError"),
        (["--help", "no-such-machine"], "UnknownMachineError"),
    ],
)
def test_what_cannot_be_started_is_said_in_json(
    arguments: list[str], kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(registry, "_types", {"lines": LINES.machine})
    monkeypatch.setattr(registry, "_loaded", True)
    assert drive.main(arguments) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["type"] == kind
    assert err == ""


class Colour(Enum):
    RED = 1
    GREEN = 2


def paint(machine: Any, colour: Colour, shade: Colour | None = None, note: str = "") -> list[Any]:
    return [colour, shade, note]


def test_a_config_holds_the_keys_of_the_machine_and_no_others() -> None:
    keys = [
        Key(name="colour", type=Colour, default=Colour.RED, meaning="Of the house."),
        Key(name="size", type=float | None, meaning="Of it."),
        Key(name="tall", type=bool, default=False, meaning="Whether it is."),
        Key(name="floors", type=int, default=1, meaning="Of it."),
    ]
    built: list[Any] = []
    house = machine_with(
        LINES.machine, keys=keys, build=lambda config: built.append(config) or Lines()
    )
    house.make({})
    house.make({"colour": "green", "size": 2, "tall": True, "floors": 3})
    house.make({"colour": "GREEN", "size": None})
    house.make({"colour": Colour.GREEN, "size": 0.5})
    common = {"colour": Colour.GREEN, "tall": False, "floors": 1}
    assert built == [
        {"colour": Colour.RED, "size": None, "tall": False, "floors": 1},
        {"colour": Colour.GREEN, "size": 2, "tall": True, "floors": 3},
        {**common, "size": None},
        {**common, "size": 0.5},
    ]
    for config, complaint in [
        ({"color": "green"}, "there is no key 'color'; there are: colour, floors, size, tall"),
        ({"colour": "blue"}, "colour must be one of RED, GREEN, not 'blue'"),
        ({"colour": 1}, "colour must be RED | GREEN, not 1"),
        ({"size": "large"}, "size must be float | null, not 'large'"),
        ({"floors": True}, "floors must be int, not True"),
        ({"floors": 1.5}, "floors must be int, not 1.5"),
        ({"tall": 1}, "tall must be bool, not 1"),
    ]:
        with pytest.raises(ConfigError, match=f"^{re.escape(complaint)}$"):
            house.make(config)
    with pytest.raises(ConfigError, match="there are: none"):
        replace(house, keys=[]).make({"colour": "green"})
    with pytest.raises(ConfigError):
        replace(house, respond=lambda config: None).store({"color": "green"})


def test_members_of_enums_are_given_by_name() -> None:
    driver = LineDriver(machine_with(LINES.machine, verbs={"paint": paint}), {})

    def said(**args: Any) -> Any:
        return next(driver.do({"op": "call", "method": "paint", "args": args}))

    assert said(colour="RED") == {"result": ["RED", None, ""]}
    assert said(colour="green", shade="Red", note="GREEN") == {"result": ["GREEN", "RED", "GREEN"]}
    assert said(colour="blue") == {
        "error": {
            "type": "ValueError",
            "code": None,
            "message": "colour must be one of RED, GREEN, not 'blue'",
        }
    }


def test_methods_of_the_machine_take_members_by_name_as_verbs_do() -> None:
    driver = LineDriver(lookup("oxen"), {})
    sizes = {
        name: next(
            driver.do({"op": "call", "method": "payload_size_max", "args": {"delivery": name}})
        )
        for name in ("DATAGRAM", "IN_ORDER")
    }
    assert all(size["result"] > 1000 for size in sizes.values())


def test_keys_and_verbs_are_told(capsys: Any, monkeypatch: Any) -> None:
    keys = [Key(name="colour", type=Colour, default=Colour.RED, meaning="Of the house.")]
    lines = machine_with(
        LINES.machine, keys=keys, build=lambda config: Lines(), verbs={"paint": paint}
    )
    monkeypatch.setattr(registry, "_types", {"lines": lines})
    monkeypatch.setattr(registry, "_loaded", True)
    assert drive.main(["--help", "lines"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "lines, config:",
        '  colour: RED | GREEN (default "RED")',
        "      Of the house.",
        "lines, verbs:",
        "  close()",
        "  paint(colour: RED | GREEN, shade: RED | GREEN | null = None, note: str = '')",
        "  say(text: bytes)",
    ]
    assert drive.main(["--help"]) == 0
    assert "--config JSON" in capsys.readouterr().out


def test_verbs_of_handles_are_told_with_the_number_of_the_handle() -> None:
    words = verb_words(lookup("point2point"))
    assert "notify(request: int, count: int = 1)" in words
    assert not [each for each in words if "Proposal" in each or "entry: Entry)" in each]


def test_the_machines_own_store_answers_if_it_is_asked_to() -> None:
    driver = LineDriver(KEEPER.machine, {}, respond=True)
    list(driver.start())
    assert [next(iter(line)) for line in driver.do({"op": "receive", "hex": "610a"})] == [
        "event",
        "effect",
        "event",
        "send",
        "deadline",
    ]


def test_results_are_converted_as_the_codec_says() -> None:
    keeper = machine_with(KEEPER.machine, results={Keep: lambda result: len(result["raw"])})
    driver = LineDriver(keeper, {})
    list(driver.start())
    list(driver.do({"op": "receive", "hex": "610a"}))
    answer = list(driver.do({"op": "complete", "ticket": 1, "result": {"raw": {"hex": "0000"}}}))
    assert answer[0]["fields"]["place"] == 2
    list(driver.do({"op": "receive", "hex": "620a"}))
    told, *_ = driver.do({"op": "complete", "ticket": 2, "result": 7})
    assert told["error"]["type"] == "TypeError"
    told, *_ = driver.do({"op": "complete", "ticket": 99, "result": 7})
    assert told["error"]["code"] == "UNKNOWN_TICKET"
    assert [next(iter(line)) for line in driver.do({"op": "eof"})] == ["deadline"]


def test_results_of_calls_are_told() -> None:
    pinger = machine_with(PINGER.machine, verbs={"count": lambda machine: 7})
    driver = LineDriver(pinger, {"peers": ["b"]})
    assert next(driver.do({"op": "call", "method": "count"})) == {"result": 7}
    assert list(driver.do({"op": "call", "method": "ping", "args": {"peer": "b"}}))[:2] == [
        {"result": 1},
        {"send": "500001", "destination": "b"},
    ]


def test_datagrams_come_from_sources_that_are_lists_in_json() -> None:
    peers = {"peers": [("::1", 9)]}
    pinger = machine_with(PINGER.machine, build=lambda config: PINGER.machine.build(peers))
    driver = LineDriver(pinger, {})
    list(driver.start())
    told = list(driver.do({"op": "datagram", "source": ["::1", 9], "hex": "500001"}))
    assert told == [
        {"event": "Pinged", "fields": {"peer": ["::1", 9], "number": 1}},
        {"send": "410001", "destination": ["::1", 9]},
        {"deadline": None, "state": "OPEN"},
    ]


def test_trailing_data_is_told() -> None:
    driver = LineDriver(LINES.machine, {})
    list(driver.start())
    *_, last = driver.do({"op": "receive", "hex": b"bye\nmore".hex()})
    assert last == {
        "deadline": None,
        "state": "CLOSED",
        "read_size": 0,
        "trailing": b"more".hex(),
    }


def test_every_line_of_output_is_json_and_flushed(capsys: Any, monkeypatch: Any) -> None:
    class Stdin:
        buffer = iter([b'{"op": "eof"}\n', b"\n", b"   \n", b"nonsense\n"])

    monkeypatch.setattr(sys, "stdin", Stdin())
    monkeypatch.setattr(registry, "_types", {"lines": LINES.machine})
    monkeypatch.setattr(registry, "_loaded", True)
    assert drive.main(["lines"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [next(iter(line)) for line in lines] == [
        "deadline",
        "event",
        "deadline",
        "error",
        "deadline",
    ]


def test_a_broken_pipe_ends_nobody_once_the_program_is_over() -> None:
    """A program may run in a process that has sockets."""
    before = signal.getsignal(signal.SIGPIPE)
    with pytest.raises(SystemExit):
        end_with(lambda: ExitStatus.DONE)
    assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.parametrize(
    "words", ["testing.drive --help", "testing.drive --list", "testing.campaign -h", "capture -h"]
)
def test_a_program_whose_output_is_not_read_ends_in_silence(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    module, option = words.split()
    command = [sys.executable, "-m", f"culm.{module}", option]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with os.fdopen(writer) as unread:
        ended = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, env=environment)
    assert (ended.returncode, ended.stderr) == (ExitStatus.UNHEARD, b"")
