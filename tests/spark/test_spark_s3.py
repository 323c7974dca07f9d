"""A store of objects: read, followed and written over HTTP, from a server that speaks S3."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from planted import honest_log
from pyarrow import fs
from reads import plan, rows_of

from culm.spark.archive import write_archive
from culm.spark.files import list_files, open_system
from culm.spark.growing import Growing
from culm.spark.options import Reading
from culm.spark.writing import commit_partitions, write_partition

# The one beside this Python: another's on the path may be older, and answer PyArrow wrongly.
OWN_SERVER = str(Path(sys.executable).with_name("moto_server"))
SERVER = shutil.which(os.environ.get("CULM_MOTO_SERVER", OWN_SERVER))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SERVER is None, reason="moto[server] is not installed"),
]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket, found through the variables in the environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "anybody",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    command = [str(SERVER), "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while not answers(port):
                time.sleep(0.1)
            made, _ = fs.FileSystem.from_uri("s3://culm?allow_bucket_creation=true")
            made.create_dir("culm")
            yield "s3a://culm"
        finally:
            server.terminate()


def answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def put(path: str, entries: list[bytes]) -> None:
    system, inside = open_system(path)
    with system.open_output_stream(inside) as file:
        write_archive(file, "bamboo/YASMF", [(entry, None) for entry in entries])


def test_a_bucket_is_listed_read_followed_and_written(bucket):
    put(f"{bucket}/in/a.culm", [b"1", b"2"])
    system, inside = open_system(f"{bucket}/in/below/b.jsonl")
    with system.open_output_stream(inside) as file:
        file.write(b"3\n4\n")
    splits = plan(f"{bucket}/i?/*", 50)
    assert [row["entry"] for row in rows_of(splits)] == [b"1", b"2", b"3", b"4"]
    assert splits[0].path == f"{bucket}/in/a.culm"
    growing = Growing(Reading(paths=(f"{bucket}/in",)))
    offset = growing.after({})
    put(f"{bucket}/in/c", [b"5"])
    following = growing.after(offset)
    assert [row["entry"] for row in rows_of(growing.between(offset, following))] == [b"5"]
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        plan(f"{bucket}/nothing")
    batch = pyarrow.record_batch({"entry": pyarrow.array([b"6"], pyarrow.binary())})
    for turn in ("one", "two"):
        names = set(write_partition(f"{bucket}/out/.{turn}", "ssb", iter([batch])))
        commit_partitions(f"{bucket}/out", turn, names, overwrite=True)
    assert [row["entry"] for row in rows_of(plan(f"{bucket}/out"))] == [b"6"]
    assert len(list_files(f"{bucket}/out")) == 1


def test_the_program_reads_a_bucket(bucket, tmp_path: Path):
    log = honest_log(3, 10)
    put(f"{bucket}/in/a.culm", [row.entry for row in log])
    command = [sys.executable, "-m", "culm.spark", "verify", "--json", "--quiet"]
    where = ["--input", f"{bucket}/in", "--output", str(tmp_path / "out"), "--master", "local[2]"]
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sound"] == len(log)
