"""The demos: their output for people and for machines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pictures import words_of

from culm.bamboo.entry import LogKey
from culm_io.command import command_of
from culm_io.programs import demo as demo_replicate

SECONDS_MAX = 120


# A directory that vanishes before the demo reads it: its arguments have already been checked.
GONE = """
from pathlib import Path
from culm_io import command
from culm_io.programs import arguments

arguments.source = Path
command.main()
"""


def ended(name: str, *arguments: object, program: str = "") -> tuple[int, list[str], str]:
    """The exit status of a demo, and the lines of its stdout and its stderr.

    program: Python code that runs the demo.
    """
    begin = [sys.executable, "-c", program] if program else command_of()
    command = [*begin, name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.once
@pytest.mark.parametrize("count", [0, 1])
def test_a_directory_with_too_few_entries_to_damage_is_refused(count: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    source = tmp_path / "source"
    source.mkdir()
    for number in range(count):
        (source / str(number)).write_text("small")
    arguments = "--source", source, "--output", tmp_path / "reports"
    status, _, errors = ended("demo-spark", *arguments)
    assert status == 2, errors
    assert errors == f"{source} is too small: its log has {count} entries, not 8\n"


@pytest.mark.once
def test_the_demo_tells_machines_what_it_has_done_and_people_how(tmp_path: Path) -> None:
    source, rng, count, size = tmp_path / "source", Random(1), 120, 20_000
    source.mkdir()
    for number in range(count):  # each is too large to share an entry
        (source / str(number)).write_bytes(rng.randbytes(size))
    status, (line,), steps = ended("demo", "--source", source, "--json")
    assert status == 0, steps
    told = json.loads(line)
    assert told["source"] == str(source)
    assert (told["entries"], told["files"], told["file_bytes"]) == (count, count, count * size)
    assert told["entries_when_killed"] + told["entries_fetched_again"] == count
    assert told["entries_when_killed"] >= count // 2
    assert told["wire_bytes"] > told["entries_fetched_again"] * size
    assert (told["passed"], told["error"]) == (True, None)
    assert told["seconds"] > 0
    pictured = words_of("replicate-directory.md", "program-demo")
    for step in steps.splitlines()[1:]:  # the first names the directory
        said = re.sub(r"[\d.,]+", "N", step)
        assert " ".join(said.split()) in re.sub(r"[\d.,]+", "N", pictured)


@pytest.mark.once
@pytest.mark.parametrize("count", [0, 1])
def test_a_directory_of_one_file_or_none_is_enough_for_the_demo(tmp_path: Path, count: int) -> None:
    for number in range(count):
        (tmp_path / str(number)).write_bytes(b"text")
    status, (line,), steps = ended("demo", "--source", tmp_path, "--json")
    assert status == 0, steps
    told = json.loads(line)
    assert (told["entries"], told.get("files", 0), told["passed"]) == (count, count, True)


@pytest.mark.parametrize(
    ("name", "figures"), [("demo", {}), ("demo-spark", {"posts": 3, "reports": {}})]
)
def test_a_demo_that_fails_says_why(tmp_path: Path, name: str, figures: dict[str, Any]) -> None:
    if name == "demo-spark":
        pytest.importorskip("pyspark")
    source = tmp_path / "nowhere"
    more = ["--posts", 3, "--output", tmp_path / "reports"] if name == "demo-spark" else []
    status, (line,), errors = ended(name, "--source", source, "--json", *more, program=GONE)
    told = json.loads(line)
    assert told.pop("seconds") >= 0
    assert told.pop("error").startswith("publish has failed with status 2")
    assert told == {"source": str(source), **figures, "passed": False}
    assert status == 1
    assert f"{source}: not a directory" in errors
    assert "FAILED: publish has failed" in errors


SLOW_TO_END = """
import signal, sys, time
from pathlib import Path

def end(number, frame):
    time.sleep(0.5)
    Path(sys.argv[4]).touch()
    sys.exit()

signal.signal(signal.SIGTERM, end)
print('{"port": 1}', flush=True)
time.sleep(600)
"""


def run_instead(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo run `program` in place of the command."""

    def command_of(*words: object) -> list[str]:
        return [sys.executable, str(program), *map(str, words)]

    monkeypatch.setattr(demo_replicate, "command_of", command_of)


def test_an_interrupted_demo_waits_for_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is about to be removed."""
    program, ended = tmp_path / "program", tmp_path / "ended"
    program.write_text(SLOW_TO_END)
    run_instead(program, monkeypatch)
    with pytest.raises(KeyboardInterrupt), demo_replicate.serving(ended):
        raise KeyboardInterrupt
    assert ended.exists()


def test_an_interrupted_demo_does_not_leave_its_fetch_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, processes = tmp_path / "program", list[subprocess.Popen[str]]()
    program.write_text("import time; time.sleep(600)")

    class Popen(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    def interrupt(store: Path, log: LogKey) -> int:
        raise KeyboardInterrupt

    run_instead(program, monkeypatch)
    monkeypatch.setattr(demo_replicate, "_stored", interrupt)
    monkeypatch.setattr(subprocess, "Popen", Popen)
    with pytest.raises(KeyboardInterrupt):
        demo_replicate.kill_when_stored((), tmp_path, LogKey(bytes(32), 0), 1)
    (process,) = processes
    try:
        assert process.wait(timeout=10) == -signal.SIGKILL
    finally:
        process.kill()


WITHOUT_SPARK = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
from culm_io import command

command.main()
"""


def test_without_spark_nothing_is_replicated_in_vain(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SPARK, "demo-spark", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    advice = "which the extra spark brings: python -m pip install 'culm-io[spark]'"
    assert done.stderr.splitlines() == [f"pyspark is missing, {advice}"]
    assert (done.stdout, done.returncode) == ("", 2)
