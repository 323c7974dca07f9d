"""The parts of a one-node HDFS, put into a directory: ``python tests/spark/hdfs_parts.py FOLDER``.

Hadoop's own mini cluster comes from Maven Central, in the version of PySpark's Hadoop; the client
library that pyarrow loads (``libhdfs``) is compiled from its sources, which PyPI's pydoop has.
It needs Maven, a C compiler, a JDK, and a setuptools older than 80, with which pydoop unpacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pyspark

_HADOOP = "org.apache.hadoop:hadoop-client-minicluster"
# Classes that the mini cluster needs but does not bring.
_TESTING = (
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.junit.platform:junit-platform-commons:1.13.4",
    "org.opentest4j:opentest4j:1.3.0",
    "org.mockito:mockito-core:4.11.0",
)
_LIBRARY = "libhdfs.so"


def java_home() -> Path:
    """The directory of the JDK."""
    java = os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "java").resolve().parents[1]
    return Path(java)


def client_jars() -> list[Path]:
    """The jars of Hadoop's client and of its logging, as PySpark has them."""
    jars = Path(pyspark.__file__).with_name("jars")
    return [
        each
        for name in ("hadoop-client-*", "slf4j-*", "jcl-*", "log4j-*")
        for each in jars.glob(name)
    ]


def cluster_jars(folder: Path) -> list[Path]:
    """The jars of the mini cluster."""
    return [*folder.glob("*.jar"), *client_jars()]


def _make_jars(folder: Path) -> None:
    [client] = [each for each in client_jars() if each.name.startswith("hadoop-client-api-")]
    version = client.stem.removeprefix("hadoop-client-api-")
    for artifact in (f"{_HADOOP}:{version}", *_TESTING):
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True)


def _make_library(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--no-binary", ":all:", "-d", made, "pydoop==2.0.0"], check=True)
        [packed] = Path(made).glob("*.tar.gz")
        with tarfile.open(packed) as sources:
            sources.extractall(made, filter="data")
        [source] = Path(made).glob("*/src/libhdfs")
        home = java_home()
        server = home / "lib" / "server"
        options = [
            *("-O2", "-w", "-fPIC", "-shared", "-o", str(folder.resolve() / _LIBRARY)),
            *(f"-I{source / each}" for each in (".", "include", "os", "os/posix")),
            *(f"-I{home / each}" for each in ("include", "include/linux")),
            *(str(each) for pattern in ("*.c", "common/*.c", "os/posix/*.c")
              for each in source.glob(pattern)),
            *(f"-L{server}", f"-Wl,-rpath,{server}", "-ljvm", "-ldl", "-lpthread"),
        ]  # fmt: skip
        subprocess.run([os.environ.get("CC", "cc"), *options], check=True)


def main() -> None:
    """Make the missing parts."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("hadoop-*.jar")):
        _make_jars(folder)
    if not (folder / _LIBRARY).exists():
        _make_library(folder)


if __name__ == "__main__":
    main()
