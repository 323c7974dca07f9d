"""``spark-submit``, as clusters start programs: settings, interpreter, and exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from planted import honest_log
from sessions_of_tests import QUICK_JAVA

import culm.spark
from culm.exits import ExitStatus
from culm.spark.archive import write_archive
from culm.spark.java import find_java_home

PROGRAM = Path(culm.spark.__file__).with_name("__main__.py")
SUBMIT = Path(pyspark.__file__).with_name("bin") / "spark-submit"
SETTINGS = f"spark.driver.extraJavaOptions={QUICK_JAVA}"


def submit(*arguments: object) -> tuple[int, str]:
    """The exit status, and the lines on stdout."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    if (home := find_java_home()) is not None:
        environment["JAVA_HOME"] = home
    options = ("--master", "local[1]", "--conf", SETTINGS)
    done = subprocess.run(
        [str(SUBMIT), *options, str(PROGRAM), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="spark-submit is a shell script")
@pytest.mark.parametrize(
    ("records", "status"),
    [(1, ExitStatus.DONE), (2, ExitStatus.FAILED), (None, ExitStatus.IMPOSSIBLE)],
)
def test_a_job_is_submitted(tmp_path, records, status):
    path = tmp_path / "archive"
    if records is not None:
        with path.open("wb") as file:
            write_archive(file, "bamboo/YASMF", [*honest_log(1, 5), (b"?", None)][: 4 + records])
    arguments = ("verify", "--input", path, "--output", tmp_path / "out", "--quiet", "--json")
    ended, said = submit(*arguments)
    assert ended == status
    if records is None:  # spark-submit sends a program's stderr there, too
        assert said == f"culm.spark: there is nothing at {path}\n"
    else:
        assert json.loads(said)["rows"] == 4 + records
