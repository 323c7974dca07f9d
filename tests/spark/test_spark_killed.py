"""Jobs of the command line, killed while they write: no output looks whole, and they run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sessions_of_tests
from planted import Row, honest_log
from test_spark_captures import bymux_capture

from culm.exits import ExitStatus
from culm.spark.archive import write_archive
from culm.spark.command import JOBS, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HERE = str(Path(__file__).parent)
#: These let a job start in a third of the time.
QUICK = (
    "--master=local[2]",
    f"--conf=spark.driver.extraJavaOptions={sessions_of_tests.QUICK_JAVA}",
    "--conf=spark.sql.shuffle.partitions=2",
)


pytestmark = pytest.mark.usefixtures("same_settings")


def arguments_of(job: str, folder: Path) -> list[str]:
    """The job on some input with faults to find."""
    sources = []
    for name, length in (("one", 9), ("two", 6)):
        (folder / name).mkdir()
        rows = [*honest_log(1, length), *honest_log(2, 5)[1:], Row(b"?", None)]
        with (folder / name / "archive").open("wb") as file:
            write_archive(file, "bamboo/YASMF", rows)
        entry = {"at": 1, "term": 1, "is_configuration": False, "value": name.encode().hex()}
        (folder / f"{name}.jsonl").write_text(json.dumps(entry) + "\n")
        sources.append(f"--input={name}={folder / name}")
    match job:
        case "simulate":
            return [job, "--simulator=moods:moody", f"--modules={HERE}", "--seeds=20"]
        case "sessions":
            (folder / "bad.jsonl").write_text(json.dumps({"op": "receive", "hex": "ff" * 9}) + "\n")
            config = json.dumps({"role": "REACTIVE", "streams": {"0": [100, 100]}})
            source = f"--input={folder / 'bad.jsonl'}"
            return [job, source, "--machine=bymux", f"--config={config}"]
        case "captures":
            (folder / "one.culmcap").write_bytes(bymux_capture("1001", "ff"))
            return [job, f"--input={folder / 'one.culmcap'}"]
        case "raft":
            return [job, *(f"--input={name}={folder / name}.jsonl" for name in ("one", "two"))]
        case "reconcile":
            return [job, *sources]
        case _:
            return [job, sources[0]]


def killed_while_writing(arguments: list[str], output: Path, name: str) -> None:
    """Run a job, and kill it with its Java once that table or file has been begun."""
    with subprocess.Popen(
        [sys.executable, "-m", "culm.spark", *arguments, f"--output={output}", *QUICK],
        env=sessions_of_tests.outside_of(os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            while not list(output.glob(f"*{name}*")) and process.poll() is None:
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (output / "summary.json").exists()


def found_at(spark: SparkSession, job: str, output: Path) -> dict[str, object]:
    """Everything a job has written, except for data of that single run."""
    found: dict[str, object] = {}
    for name in JOBS[job].tables:
        if name.endswith(".culmtree"):
            found[name] = (output / name).read_bytes()
        else:
            rows = spark.read.parquet(str(output / name)).drop("cpu_s", "transcript")
            found[name] = Counter(map(str, rows.collect()))
    summary = json.loads((output / "summary.json").read_text())
    return {**found, **{key: summary[key] for key in summary.keys() - {"output", "run", "seconds"}}}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.once
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are killed in groups")
@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_is_killed_while_it_writes_is_run_again(spark, tmp_path, capsys, job):
    """Killed in its first table, or in its last one; the remains do not pass for its output."""
    arguments, tables = arguments_of(job, tmp_path), JOBS[job].tables

    def run(output: Path, *more: str) -> int:
        where = sessions_of_tests.ARGUMENTS
        return main([*arguments, f"--output={output}", "--quiet", *more, *where])

    status = run(tmp_path / "whole")
    assert status in (ExitStatus.DONE, ExitStatus.FAILED)
    wanted = found_at(spark, job, tmp_path / "whole")
    for number, name in enumerate((tables[0], tables[-1])):
        killed = tmp_path / f"killed {number}"
        killed_while_writing(arguments, killed, name)
        if name != tables[0]:
            assert run(killed) == ExitStatus.IMPOSSIBLE  # there is something
            assert "--overwrite" in capsys.readouterr().err
        assert run(killed, "--overwrite") == status
        assert found_at(spark, job, killed) == wanted
