"""The page on clusters: its commands run as printed, on a cluster of two workers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import sessions_of_tests
from planted import honest_log

from culm.spark.archive import write_archive
from culm.spark.java import find_java_home

ROOT = Path(__file__).resolve().parents[2]
PORTS = ("7077", "15002")
#: The outputs of the commands, in their order.
OUTPUTS = ("audited", "submitted", "unpacked", "connected")
LOGS, LENGTH = 3, 20


def commands() -> str:
    """The whole page, as a script."""
    page = (ROOT / "docs" / "spark-clusters.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^\$ ", "", "".join(blocks), flags=re.MULTILINE)


def free_ports() -> list[str]:
    """As many as on the page; all are taken at once, so that no two are the same."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wheel_of_culm(folder: Path) -> Path:
    """A wheel of the code under test, without compiled kernels."""
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir")
    pure = {**os.environ, "CULM_BUILD_EXT": "no"}
    subprocess.run([*command, str(folder), str(ROOT)], env=pure, check=True)
    [wheel] = folder.iterdir()
    return wheel


def environment(folder: Path) -> dict[str, str]:
    """Here ``python`` is this interpreter, and Java starts quickly."""
    (folder / "conf").mkdir()
    quick = f"extraJavaOptions {sessions_of_tests.QUICK_JAVA}"
    (folder / "conf" / "spark-defaults.conf").write_text(
        f"spark.driver.{quick}\nspark.executor.{quick}\nspark.sql.shuffle.partitions 2\n"
    )
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin_folder / "python").chmod(0o755)
    given = sessions_of_tests.outside_of(os.environ)
    home = find_java_home()
    return {
        **given,
        **({} if home is None else {"JAVA_HOME": home}),
        "PATH": f"{bin_folder}{os.pathsep}{given['PATH']}",
        "PIP_NO_COMPILE": "1",
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_DAEMON_JAVA_OPTS": sessions_of_tests.QUICK_JAVA,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(sys.platform == "win32", reason="the page is for shells of Unix")
def test_the_commands_of_the_page_run_as_they_stand(tmp_path):
    for module in ("grpc", "pip"):
        pytest.importorskip(module)
    (tmp_path / "archives").mkdir()
    for number in range(LOGS):
        with (tmp_path / "archives" / f"{number}.culm").open("wb") as file:
            write_archive(file, "bamboo/YASMF", honest_log(number, LENGTH))
    script = commands()
    for port, other in zip(PORTS, free_ports(), strict=True):
        assert port in script
        script = script.replace(port, other)
    with (tmp_path / "stdout").open("w") as stdout, (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            ["bash", "-e", "-x", "-c", script],
            cwd=tmp_path,
            env=environment(tmp_path) | {"WHEEL": wheel_of_culm(tmp_path / "wheels").as_uri()},
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        status = process.wait()
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # master and workers go on in the background
    assert status == 0, (tmp_path / "stderr").read_text()
    for name in OUTPUTS:
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert (summary["clean"], summary["rows"]) == (True, LOGS * LENGTH)
        assert summary["inputs"] == {"archives": f"{tmp_path}/archives"}
    for worker in ("1", "2"):
        assert len(list((tmp_path / "work" / worker).glob("app-*"))) == len(OUTPUTS)
    assert not list((tmp_path / "workers").glob("lib/*/site-packages/culm"))
    shutil.rmtree(tmp_path / "packed")
