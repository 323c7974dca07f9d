"""A one-node HDFS: archives are listed, read, followed and written (`tox -e spark-hdfs`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hdfs_parts import client_jars, cluster_jars, java_home
from sessions_of_tests import QUICK_JAVA

PARTS = os.environ.get("CULM_HDFS")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PARTS is None, reason="no HDFS (tox -e spark-hdfs)"),
]

# Prints its findings as JSON; its argument is the URL of the file system.
PROGRAM = """
import json, sys
import pyarrow
from culm.spark.archive import write_archive
from culm.spark.files import list_files, open_system
from culm.spark.growing import Growing
from culm.spark.options import Reading
from culm.spark.writing import commit_partitions, write_partition
from reads import plan, rows_of

root = sys.argv[1]
def put(path, entries):
    system, inside = open_system(path)
    system.create_dir(inside.rpartition("/")[0])
    with system.open_output_stream(inside) as file:
        write_archive(file, "bamboo/YASMF", [(entry, None) for entry in entries])

put(f"{root}/in/a.culm", [b"1", b"2"])
put(f"{root}/in/below/b.culm", [b"3"])
splits = plan(f"{root}/i?/*", 50)
said = {"read": [row["entry"].decode() for row in rows_of(splits)], "first": splits[0].path}
growing = Growing(Reading(paths=(f"{root}/in",)))
offset = growing.after({})
put(f"{root}/in/c", [b"5"])
following = growing.after(offset)
said["new"] = [row["entry"].decode() for row in rows_of(growing.between(offset, following))]
try:
    plan(f"{root}/nothing")
except FileNotFoundError as error:
    said["nothing"] = str(error)
for turn in ("one", "two"):
    batch = pyarrow.record_batch({"entry": pyarrow.array([turn.encode()], pyarrow.binary())})
    names = set(write_partition(f"{root}/out/.{turn}", "ssb", iter([batch])))
    commit_partitions(f"{root}/out", turn, names, overwrite=True)
said["written"] = [row["entry"].decode() for row in rows_of(plan(f"{root}/out"))]
said["files"] = [each.path.rpartition("/")[0] for each in list_files(f"{root}/out")]
print(json.dumps(said))
"""


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[str]:
    """The URL of a file system on this machine."""
    assert PARTS is not None
    details, said = tmp_path / "details.json", tmp_path / "said"
    command = ["java", "-Xmx400m", QUICK_JAVA.split()[0], "-cp", _path(cluster_jars(Path(PARTS)))]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"]
    with (
        said.open("w") as output,
        subprocess.Popen(
            [*command, "-writeDetails", str(details)], cwd=tmp_path, stdout=output, stderr=output
        ) as cluster,
    ):
        try:
            while not (details.exists() and details.stat().st_size):
                assert cluster.poll() is None, said.read_text()
                time.sleep(0.2)
            yield f"hdfs://localhost:{json.loads(details.read_text())['namenode_port']}/culm"
        finally:
            cluster.kill()


def _path(jars: list[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def environment() -> dict[str, str]:
    """The environment for processes that open files on HDFS, and use the helpers of these tests."""
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "ARROW_LIBHDFS_DIR": str(PARTS),
        "CLASSPATH": _path(client_jars()),
        "PYTHONPATH": str(Path(__file__).parent),
    }


def said_by(*command: object) -> tuple[int, Any]:
    """The exit status of a program in Python, and its JSON output."""
    arguments = [sys.executable, *map(str, command)]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def test_archives_on_hdfs_are_listed_read_followed_and_written(hdfs: str):
    status, said = said_by("-c", PROGRAM, hdfs)
    assert status == 0
    assert said.pop("nothing").startswith("there is nothing at")
    assert said == {
        "read": ["1", "2", "3"],
        "first": f"{hdfs}/in/a.culm",
        "new": ["5"],
        "written": ["two"],
        "files": [f"{hdfs}/out/two"],
    }
