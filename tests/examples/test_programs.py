"""Promises of all programs of culm-io: the command knows every one of them."""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn, get_type_hints

import pytest

from culm.exits import ExitStatus
from culm_io import command
from culm_io.command import command_of
from culm_io.programs.ports import free_ports

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "programs.md"
PROGRAMS = sorted(
    name for name, program in command.PROGRAMS.items() if program.module.startswith("culm_io")
)
MODULES = sorted(
    path
    for path in (ROOT / "src" / "culm").rglob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)
NEEDS = {"demo-spark": "pyspark"}
AT_ONCE = {"completion"}  # done before it can be interrupted
SECONDS_MAX = 60


class Case(NamedTuple):
    """A program that is interrupted after its first output, or its first question to a server.

    The server takes every connection and never says anything.  ``FOLDER`` stands for the test's own
    folder, ``PORT`` for the port of that server, ``UDP_PORT`` for an unused one.
    """

    program: str
    arguments: str
    status: int
    asks: bool = False
    json: bool = True


CASES = [
    Case("demo", "--source FOLDER/source", 130, json=False),
    Case("demo-spark", "--source FOLDER/source --output FOLDER/reports", 130, json=False),
    Case("oxen", "node UDP_PORT --json", 0),
    Case("oxen", "demo --nodes 3 --json", 130),
    Case("p2panda", "serve --store FOLDER/a.store --port 0", 0),
    Case("p2panda", "sync --store FOLDER/a.store --from 127.0.0.1:PORT", 130, asks=True),
    Case("p2panda", "sync --store FOLDER/a.store --from 127.0.0.1:PORT --live", 0, asks=True),
    Case("raft", "start --dir FOLDER/new --nodes 1", 0),
    Case("raft", "watch --dir FOLDER", 0, asks=True),
    Case("raft", "put --dir FOLDER key value", 130, asks=True),
    Case("raft", "status --dir FOLDER --json", 130, asks=True),
    Case("directory", "serve --store FOLDER/a.store --port 0", 0),
    Case(
        "directory",
        "fetch --store FOLDER/b.store --from 127.0.0.1:PORT",
        130,
        asks=True,
    ),
    Case("ssb", "run --dir FOLDER/pub --port 0", 0),
]


def needed(program: str) -> None:
    if program in NEEDS:
        pytest.importorskip(NEEDS[program])


class ParserSeen(Exception):
    """In place of a program's reading of its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(program: str) -> argparse.ArgumentParser:
    """The command line of a program."""
    needed(program)
    return command.parser_of(program)


def parser_in(path: Path) -> argparse.ArgumentParser:
    """The command line of a program of culm's, whatever its function is called."""

    def stop(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise ParserSeen(parser)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(ParserSeen) as seen:
            runpy.run_path(str(path), run_name="__main__")
    return seen.value.parser


def unexplained(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Arguments without an explanation in the help of a program or command."""
    if not parser.description:
        yield "what it is for"
    for action in parser._actions:
        name = "/".join(action.option_strings) or action.dest
        if isinstance(action, argparse._SubParsersAction):
            yield from (
                f"what {each.dest} is for" for each in action._choices_actions if not each.help
            )
            continue
        if not action.help:
            yield f"what {name} is for"
        elif action.option_strings and action.nargs != 0:
            if action.metavar is None and "_" in action.dest and not action.choices:
                yield f"what the value of {name} is"
            if action.default not in (None, argparse.SUPPRESS, []) and "default" not in action.help:
                yield f"the default of {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_help_of_the_library_s_own_programs_says_what_each_option_is_for(path: Path) -> None:
    for parser in command.with_commands(parser_in(path)):
        assert list(unexplained(parser)) == [], parser.prog


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_says_what_each_option_is_for_and_how_the_program_ends(program: str) -> None:
    for parser in command.with_commands(parser_of(program)):
        text = " ".join(parser.format_help().split())
        assert "exit status: 0" in text.lower(), parser.prog
        assert "130 interrupted" in text, parser.prog
        assert list(unexplained(parser)) == [], parser.prog


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_says_which_commands_ctrl_c_ends_well(program: str) -> None:
    text = " ".join(parser_of(program).format_help().split())
    _, _, endless = text.partition("Ctrl-C is the usual end of ")
    for case in CASES:
        if case.program == program:
            words = {word for word in case.arguments.split() if word in endless.split()}
            words |= {word for word in case.arguments.split() if f"{word}," in endless.split()}
            assert bool(words) is (case.status == 0), case


def commands_on_page(column: int) -> dict[str, list[str]]:
    """The commands of each program that a column of the page of programs names."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {
        row[1].strip(" `").removeprefix("culm "): re.findall(r"`([\w-]+)`", row[column])
        for row in rows
    }


def test_the_page_of_programs_names_them_all() -> None:
    assert sorted(commands_on_page(1)) == PROGRAMS


# Their output is not a result: scripts, files of other forms, answers in JSON.
WITHOUT_JSON = re.compile(r"culm (completion|drive|capture (lines|pcap|qlog|test|view|wireshark))$")


@pytest.mark.parametrize("program", command.PROGRAMS)
def test_every_command_that_prints_results_takes_json(program: str) -> None:
    for parser in command.with_commands(command.parser_of(program)):
        actions = parser._actions
        if not any(isinstance(action, argparse._SubParsersAction) for action in actions):
            takes = any("--json" in action.option_strings for action in actions)
            assert takes is not bool(WITHOUT_JSON.match(parser.prog)), parser.prog


def statuses_on_page() -> dict[int, tuple[str, str]]:
    """The meaning of each exit status, and the programs that have it."""
    rows = re.findall(r"^\| (\d+) \| (.*) \| (.*) \|$", PAGE.read_text(), flags=re.M)
    return {int(number): (meaning, programs) for number, meaning, programs in rows}


def test_the_page_of_programs_has_the_one_table_of_exit_statuses() -> None:
    told = {number: meaning for number, (meaning, _) in statuses_on_page().items()}
    assert told == {int(each): each.meaning for each in ExitStatus}


@pytest.mark.parametrize("program", command.PROGRAMS)
def test_each_program_s_exit_statuses_are_in_the_table(program: str) -> None:
    text = " ".join(parser_of(program).format_help().split()).partition("Exit status: ")[2]
    told = {int(number) for number in re.findall(r"(?:^|; )(\d+) ", text)}
    wanted = {*told, ExitStatus.UNHEARD}  # which is for readers that go away
    for number, (_, programs) in statuses_on_page().items():
        named = f"`{program}`" in programs
        assert (named is not programs.startswith("all")) is (number in wanted), number


@pytest.mark.parametrize("program", command.PROGRAMS)
def test_a_program_can_end_with_no_other_number(program: str) -> None:
    """mypy checks that nothing else is returned."""
    main = import_module(command.PROGRAMS[program].module).main
    assert get_type_hints(main)["return"] is ExitStatus


def test_every_program_is_interrupted() -> None:
    assert sorted({*AT_ONCE, *(case.program for case in CASES)}) == PROGRAMS


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(SECONDS_MAX)
        yield made


def prepare(folder: Path, port: int) -> None:
    """The start of all cases: a directory, an empty store, a cluster that does not answer."""
    (folder / "source").mkdir()
    (folder / "source" / "file").write_text("content")
    nodes = {"1": {"raft": port, "control": port}}
    cluster = {"tls": False, "founders": [1], "password": "", "nodes": nodes}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    (folder / "tmp").mkdir()


def publish(folder: Path) -> None:
    where = [folder / "source", "--store", folder / "a.store"]
    subprocess.run(command_of("directory", "publish", *where), check=True, capture_output=True)


def words_of(arguments: str, folder: Path, port: int) -> list[str]:
    (unused,) = free_ports(1, kind=socket.SOCK_DGRAM)
    words = arguments.replace("FOLDER", str(folder)).replace("UDP_PORT", str(unused))
    return words.replace("PORT", str(port)).split()


def environment(folder: Path) -> dict[str, str]:
    foreign = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "PYTHONUNBUFFERED")
    clean = {name: value for name, value in os.environ.items() if name not in foreign}
    return clean | {"TMPDIR": str(folder / "tmp"), "TERM": "xterm"}


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.program} {case.arguments}")
def test_an_interrupt_ends_a_program_without_a_traceback(
    case: Case, tmp_path: Path, silent: socket.socket
) -> None:
    needed(case.program)
    port = silent.getsockname()[1]
    prepare(tmp_path, port)
    if "serve --store FOLDER/a.store" in case.arguments and case.program == "directory":
        publish(tmp_path)
    words = words_of(case.arguments, tmp_path, port)
    with subprocess.Popen(
        command_of(case.program, *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        start_new_session=True,  # so that all of it can be interrupted, as a terminal does
    ) as process:
        assert process.stdout is not None
        try:
            if case.asks:
                connection = silent.accept()[0]
                first = ""
            else:
                first = process.stdout.readline()
                assert first, process.communicate()
            os.killpg(process.pid, signal.SIGINT)
            output, errors = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
        if case.asks:
            connection.close()
    assert "Traceback" not in errors
    assert process.returncode == case.status, errors
    said = first + output
    assert "\x1b" not in said + errors  # none of it was a terminal
    assert ("interrupted" in errors) is (case.status == 130)
    if case.json:
        assert all(isinstance(json.loads(line), dict) for line in said.splitlines())
    assert list((tmp_path / "tmp").iterdir()) == []
    for store in (*tmp_path.rglob("*.store"), *tmp_path.rglob("*.sqlite")):
        with closing(sqlite3.connect(store)) as opened:
            assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.once
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_while_a_program_loads_is_no_traceback(program: str, tmp_path: Path) -> None:
    """It could come from anywhere: here from a library that is slow to load."""
    (tmp_path / "culm").mkdir()
    slow = "import time; print('loading', flush=True); time.sleep(60)"
    (tmp_path / "culm" / "__init__.py").write_text(slow)
    with subprocess.Popen(
        command_of(program, "--help"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])},
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "loading\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    assert errors == ""
    assert process.returncode == -signal.SIGINT  # 130 in a shell


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_an_output_that_was_closed_beforehand_is_written_to_nobody(
    program: str, closed: str
) -> None:
    needed(program)
    line = f"{shlex.join(command_of(program, '--help'))} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Commands that end soon, beside those that have to be interrupted.
DONE_SOON = [
    Case("p2panda", "create --store FOLDER/n.store name=Ada", 0),
    Case("p2panda", "show --store FOLDER/n.store", 0),
    Case("directory", "publish FOLDER/source --store FOLDER/b.store", 0),
    Case("directory", "export --store FOLDER/a.store --into FOLDER/out", 0),
    Case("directory", "check --store FOLDER/a.store", 0),
    Case("directory", "verify FOLDER/source --store FOLDER/a.store", 0),
    Case("directory", "ls --store FOLDER/a.store", 0),
    Case("directory", "log --store FOLDER/a.store", 0),
    Case("ssb", "id --dir FOLDER/pub", 0),
]
# The cursor is hidden or moved.
DRAWN = re.compile(rb"\x1b\[(\?25l|\d*[AH])")


def name_of(case: Case) -> str:
    """The command, as the page names it; the program, if it has no commands."""
    first = case.arguments.split()[0]
    return case.program if first.startswith("-") else first


def shown_by(case: Case, folder: Path, silent: socket.socket, *, draws: bool) -> bytes:
    """A program's output to a terminal, until it is done, or interrupted as it begins."""
    words = words_of(case.arguments.removesuffix("--json"), folder, silent.getsockname()[1])
    command = command_of(case.program, *words)
    ours, its = os.openpty()
    shown = b""
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=environment(folder), start_new_session=True
    ) as process:
        os.close(its)
        try:
            if case.asks:
                connection = silent.accept()[0]
            with suppress(OSError):  # the other end is gone
                while not case.asks and (not shown or (draws and not DRAWN.search(shown))):
                    shown += os.read(ours, 1 << 16)
            if case not in DONE_SOON:
                os.killpg(process.pid, signal.SIGINT)
            if case.asks:
                connection.close()
            with suppress(OSError):
                while more := os.read(ours, 1 << 16):
                    shown += more
        finally:
            process.kill()
            os.close(ours)
    return shown


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.parametrize(
    "case", [*CASES, *DONE_SOON], ids=lambda case: f"{case.program} {case.arguments}"
)
def test_the_page_of_programs_says_which_commands_draw(
    case: Case, tmp_path: Path, silent: socket.socket
) -> None:
    needed(case.program)
    prepare(tmp_path, silent.getsockname()[1])
    if "FOLDER/a.store" in case.arguments and case.program == "directory":
        publish(tmp_path)
    draws = name_of(case) in commands_on_page(3)[case.program]
    shown = shown_by(case, tmp_path, silent, draws=draws)
    assert bool(DRAWN.search(shown)) is draws, shown


def test_every_command_that_the_page_says_draws_is_looked_at() -> None:
    for program, commands in commands_on_page(3).items():
        cases = [case for case in (*CASES, *DONE_SOON) if case.program == program]
        assert set(commands) <= {name_of(case) for case in cases}


WITHOUT_EXTRA = """
import contextlib, io, sys
from culm.exits import ExitStatus
from culm_io import command

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"rich", "pyfastcdc", "shtab", "anyio", "trio", "twisted"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
for program in sys.argv[1:]:
    sys.argv[1:] = [program, "--help"]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            command.main()
        except SystemExit as end:
            print(program, end.code, file=sys.stderr)
"""


@pytest.mark.once
def test_a_program_says_what_to_install_where_the_extra_is_missing() -> None:
    programs = [name for name in PROGRAMS if name not in NEEDS]
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, *programs], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    advice = "which the extra programs brings: python -m pip install 'culm-io[programs]'"
    wanted = []
    for name in programs:
        if name == "demo":  # does without
            wanted.append(f"{name} 0")
        else:
            package = {"directory": "pyfastcdc", "completion": "shtab"}.get(name, "rich")
            wanted += [f"{package} is missing, {advice}", f"{name} 2"]
    assert told == wanted
