"""Impossible requests get one sentence from every program, and one status.

The table has every kind of word on a command line, and its places for each program.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_programs import PROGRAMS, environment, needed, parser_of

from culm.bymux import Connection, Role
from culm.capture import Recorder
from culm_io.command import command_of, with_commands
from culm_io.programs import arguments

SECONDS_MAX = 120  # of a program that hangs; a working one takes far less
IMPOSSIBLE = 2

DIGITS = ["", "x", "-5", "1_0", "1.0", "\uff11", "9" * 5000, "0x10", " 1"]
PORTS = [*DIGITS, "65536", "99999", "99999999"]
NUMBERS = [*DIGITS, "0", str(2**63)]
TIMES = ["", "x", "0", "-1", "1e-7", "nan", "inf", "-inf", "1e10", "1_0", "\uff11"]
HOSTS = ["", "a..b", ".", "x" * 64, "\udcff"]
WRONG: list[tuple[Callable[[str], object], list[str]]] = [
    (arguments.port, [*PORTS, "0"]),
    (arguments.any_port, PORTS),
    (arguments.count, NUMBERS),
    (arguments.positive, TIMES),
    (arguments.address, ["", "x", ":1", "host", *(f"host:{text}" for text in [*PORTS, "0"])]),
    (arguments.address, [f"{text}:9" for text in HOSTS]),
    (arguments.host, HOSTS),
    (arguments.file, [""]),
    (arguments.folder, ["", "FILE", "FILE/below", "FILE/far/below"]),
    (arguments.source, ["", "FILE", "nowhere"]),
]


@pytest.mark.parametrize(("kind", "words"), WRONG)
def test_what_is_no_such_word_is_refused(
    kind: Callable[[str], object], words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for word in words:
        with pytest.raises(ArgumentTypeError):
            kind(word.replace("FILE", str(tmp_path / "file")))


def test_words_that_are_fine(tmp_path: Path) -> None:
    assert [arguments.port(text) for text in ("1", "65535", "080")] == [1, 65535, 80]
    assert arguments.any_port("0") == 0
    assert arguments.count("1") == 1
    assert [arguments.positive(text) for text in ("1", ".5", "1e-3", "1e9")] == [1, 0.5, 1e-3, 1e9]
    assert arguments.address("localhost:1") == ("localhost", 1)
    assert arguments.address("[::1]:65535") == ("::1", 65535)
    assert arguments.host("xn--bcher-kva.example") == "xn--bcher-kva.example"
    assert arguments.file("nowhere/x") == Path("nowhere/x")
    assert arguments.folder(str(tmp_path / "new" / "er")) == tmp_path / "new" / "er"
    assert arguments.source(str(tmp_path)) == tmp_path


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ArgumentTypeError):
        arguments.folder(str(tmp_path / "new"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_number_is_taken_as_python_takes_it(program: str) -> None:
    """`int` and `float` accept signs, underscores, NaN and numbers that are too large."""
    for parser in with_commands(parser_of(program)):
        for action in parser._actions:
            assert action.type not in (int, float), (parser.prog, action.dest)


@pytest.mark.parametrize("program", PROGRAMS)
def test_hosts_ports_and_paths_are_checked_in_one_way(program: str) -> None:
    kinds: dict[str, set[Any]] = {
        "port": {arguments.port, arguments.any_port},
        "dir": {arguments.folder, arguments.source},
        "source": {arguments.source},
        "store": {arguments.file},
        "directory": {arguments.file},
        "into": {arguments.file},
        "host": {arguments.host},
        "output": {arguments.folder},
    }
    for parser in with_commands(parser_of(program)):
        for action in parser._actions:
            assert action.type in kinds.get(action.dest, {action.type}), (parser.prog, action.dest)


# FILE stands for a file, FOLDER for an empty folder, and TAKEN for a port in use.
CASES: dict[str, list[str]] = {
    "completion": ["", "csh"],
    "demo": ["--source FILE", "--source FOLDER/nowhere"],
    "demo-spark": [
        "--source FILE",
        "--output FILE",
        "--output FILE/below",
        *("--posts 0", "--posts -1", "--posts x"),
    ],
    "oxen": [
        *("node 99999999", "node 65536", "node -5", "node 0", "node x", "node TAKEN"),
        *("node 9001 --join 99999", "node 9001 --join 9001", "node 9001 --join 0"),
        *("node 9001 --pace 0", "node 9001 --pace nan", "node 9001 --pace -1"),
        *("node 9001 --key FOLDER", "node 9001 --key FILE", "node 9001 --tags " + "x" * 600),
        *("demo --nodes 2", "demo --nodes -1", "demo --pace inf", "demo --nodes 99999999"),
    ],
    "p2panda": [
        "serve --store FOLDER/a.store --port 99999",
        "serve --store FOLDER/a.store --port TAKEN",
        "serve --store FOLDER --port 0",
        "serve --store FILE/below --port 0",
        "serve --store FOLDER/a.store --port 0 --host nowhere.invalid",
        "serve --store FOLDER/a.store --port 0 --host a..b",
        "sync --store FOLDER/a.store --from 127.0.0.1:99999",
        "sync --store FOLDER/a.store --from nowhere",
        "sync --store FOLDER/a.store --from 127.0.0.1:1 --patience nan",
        "sync --store FOLDER/a.store",
        "sync --store FOLDER/a.store --port -1",
        "serve --store FOLDER/a.store --port 0 --peers-max 0",
        "update --store FOLDER/a.store xyz name=Ada",
    ],
    "raft": [
        *("start --dir FILE", "start --dir FILE/below", "start --dir FOLDER --nodes 0"),
        *("start --dir FOLDER --nodes -1", "start --dir FOLDER --nodes 99999999"),
        *("get --dir FOLDER key", "run --dir FOLDER 1", "status --dir FOLDER/nowhere"),
        *(
            "run --dir FARM 0",
            "run --dir FARM -1",
            "add --dir FARM 0",
            "add --dir FARM 99999999999",
        ),
        *("kill --dir FARM 7", "put --dir FARM key value --at 7", "get --dir FARM key --at x"),
        *("run --dir FARM 1 --metrics x", "run --dir FARM 1 --metrics :9100"),
        *("recover --dir FARM 7", "status --dir BROKEN", "watch --dir FOLDER"),
    ],
    "directory": [
        *(f"serve --store FOLDER/a.store --port {port}" for port in (99999, -1, "x", "TAKEN")),
        "publish FILE --store FOLDER/a.store",
        "serve --store FOLDER/a.store --port 0 --host a..b",
        "fetch --store FOLDER/a.store --from a..b:9",
        "publish FOLDER/nowhere --store FOLDER/a.store",
        "publish FOLDER --store FILE/below",
        "serve --store FILE/below --port 0",
        "fetch --store FOLDER/b.store --from 127.0.0.1:99999",
        "fetch --store FOLDER/b.store --from 127.0.0.1:1 --timeout nan",
        "fetch --store FOLDER/b.store --from 127.0.0.1:1 --settle -1",
        "fetch --store FILE/below --from 127.0.0.1:1",
        "fetch --store FOLDER/b.store --from 127.0.0.1:1 --metrics 9100",
        "serve --store FOLDER/a.store --port 0 --metrics 0",
        "check --store FOLDER/nowhere",
    ],
    "ssb": [
        *("run --dir FILE", "run --dir FILE/below", "run --dir FOLDER/pub --port 99999"),
        "run --dir FOLDER/pub --port 0 --host a..b",
        *("run --dir FOLDER/pub --port TAKEN", "run --dir FOLDER/pub --port -1"),
        *("run --dir FOLDER/pub --links-max 0", "run --dir FOLDER/pub --session-s nan"),
        *("run --dir FOLDER/pub --connect nonsense", "run --dir FOLDER/pub --network x"),
        "id --dir FILE/below",
    ],
}

# Runs a program for each line of arguments, and prints as JSON how it has ended.
RUN_ALL = """
import contextlib, io, json, sys, traceback
from culm_io import command

program = sys.argv[1]
for words in json.load(sys.stdin):
    sys.argv[1:] = [program, *words]
    output, errors, status = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            command.main()
        except SystemExit as end:
            status = end.code
        except BaseException:
            traceback.print_exc()
    said = {"status": status, "output": output.getvalue(), "errors": errors.getvalue()}
    print(json.dumps(said), flush=True)
"""


def sentences(errors: str) -> list[str]:
    """The lines of stderr, without the usage."""
    lines = errors.splitlines()
    while lines and (lines[0].startswith(("usage:", " ")) or not lines[0].strip()):
        del lines[0]
    return lines


def prepare(folder: Path) -> dict[str, str]:
    """The meanings of the words in the table."""
    (folder / "file").write_text("no key, no store, no folder")
    for name in ("folder", "farm", "broken", "tmp"):
        (folder / name).mkdir()
    nodes = {"1": {"raft": 1, "control": 1}}
    cluster = {"tls": False, "founders": [1], "password": "", "nodes": nodes}
    (folder / "farm" / "cluster.json").write_text(json.dumps(cluster))
    (folder / "broken" / "cluster.json").write_text("{")
    names = {"FILE": "file", "FOLDER": "folder", "FARM": "farm", "BROKEN": "broken"}
    return {word: str(folder / name) for word, name in names.items()}


@contextmanager
def taken_port() -> Iterator[int]:
    """A TCP and UDP port in use by another process."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        other.bind(one.getsockname())
        yield one.getsockname()[1]


def test_every_program_is_asked_for_what_it_cannot_do() -> None:
    assert sorted(CASES) == PROGRAMS


@pytest.mark.once
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_cannot_be_done_is_said_in_a_sentence(program: str, tmp_path: Path) -> None:
    needed(program)
    words = prepare(tmp_path)
    with taken_port() as port:
        words["TAKEN"] = str(port)
        lines = []
        for case in CASES[program]:
            line = case
            for word, value in words.items():
                line = line.replace(word, value)
            lines.append(line.split())
        ran = subprocess.run(
            [sys.executable, "-c", RUN_ALL, program],
            input=json.dumps(lines),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            env=environment(tmp_path),
        )
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    wrong = {
        case: said
        for case, said in zip(CASES[program], told, strict=False)
        if (said["status"], said["output"], len(sentences(said["errors"]))) != (IMPOSSIBLE, "", 1)
    }
    assert wrong == {}, ran.stderr
    assert len(told) == len(CASES[program]), ran.stderr


# The reader of the output goes away.

UNHEARD = 141  # the shell's number for SIGPIPE


def cut_off(command: list[str], folder: Path, *, lines: int) -> tuple[int, str]:
    """Read `lines` lines of a program's output, and no more; its status, and its errors.

    A reader of no lines has gone before the program begins, however busy the machine is.
    """
    reading, writing = os.pipe()
    if not lines:
        os.close(reading)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(folder),
    ) as process:
        os.close(writing)
        if lines:
            with open(reading, "rb") as output:
                for _ in range(lines):
                    assert output.readline()
        try:
            _, errors = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    return process.returncode, errors


@pytest.mark.once
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_reader_that_has_gone_ends_a_program_in_silence(program: str, tmp_path: Path) -> None:
    needed(program)
    prepare(tmp_path)
    assert cut_off(command_of(program, "--help"), tmp_path, lines=0) == (UNHEARD, "")


@pytest.mark.once
@pytest.mark.parametrize("words", ["--help", "--help bymux", "bymux"])
def test_a_reader_that_has_gone_ends_the_line_driver_in_silence(words: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    command = [sys.executable, "-m", "culm.testing.drive", *words.split()]
    assert cut_off(command, tmp_path, lines=0) == (UNHEARD, "")


@pytest.mark.once
def test_a_reader_that_has_gone_ends_what_shows_a_capture_in_silence(tmp_path: Path) -> None:
    prepare(tmp_path)
    capture = tmp_path / "a.culmcap"
    with capture.open("wb") as file:
        recorder = Recorder(file.write, machine="bymux")
        recorder.stand_in(Connection(role=Role.PROACTIVE)).close()
        recorder.flush()
    for command in (command_of("capture"), [sys.executable, "-m", "culm.capture"]):
        assert cut_off([*command, "show", str(capture)], tmp_path, lines=0) == (UNHEARD, "")


@pytest.mark.once
def test_a_reader_that_has_gone_ends_a_listing_in_silence(tmp_path: Path) -> None:
    prepare(tmp_path)
    tree, store = tmp_path / "a tree", str(tmp_path / "a store")
    tree.mkdir()
    (tree / "a file").write_text("a")
    publish = command_of("directory", "publish", tree, "--store", store)
    subprocess.run(publish, check=True, capture_output=True, env=environment(tmp_path))
    for verb in ("ls", "log"):
        command = command_of("directory", verb, "--store", store)
        assert cut_off(command, tmp_path, lines=0) == (UNHEARD, "")


@pytest.mark.once
def test_a_reader_that_goes_ends_a_story_and_all_who_are_in_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    command = command_of("oxen", "demo", "--nodes", "3", "--json")
    assert cut_off(command, tmp_path, lines=2) == (UNHEARD, "")
