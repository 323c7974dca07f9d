"""A Spark session with settings for these jobs.

Other sessions serve as well: the settings here are only for speed and clear messages.  Two things
are required, and `prepare` sees to both: ``PYSPARK_PYTHON`` has to name an interpreter with culm
and pyarrow, and Spark has to find Java.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import culm
from culm.spark.errors import SparkSetupError
from culm.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The settings of `start_session`, unless its caller overrides them.
SETTINGS: Mapping[str, str] = {
    # The size of Arrow batches sent to Python and back; 2,000 to 64,000 rows are equally fast.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A crash in a kernel prints a traceback.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.reuse": "true",
    # glibc keeps the memory of one batch for the next one in place of pages that are new each time:
    # a tenth of a worker's time but for signatures.
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.sql.session.timeZone": "UTC",
    # With two workers beside it, that stays within 3 GiB.
    "spark.driver.memory": "1536m",
    # No task waits for another one's answer: the collector's total cost matters, its pauses do not.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    # Spark's own bar would be drawn over the progress that the command line shows.
    "spark.ui.showConsoleProgress": "false",
}

# Without the second number Spark does not repeat a task that fails.
_LOCAL = "local[*,4]"
# Packages that pyspark needs to speak to a Spark Connect server.
_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
# Sources, and the files that they read.
_PACKED = frozenset({".py", ".css", ".js", ".lua", ".txt"})
# Fixed when a JVM starts: Spark Connect refuses to set it.
_STATIC = ("spark.driver.", "spark.executorEnv.", "spark.ui.", "spark.python.worker.")


def prepare() -> None:
    """Set the environment variables that the first session of this process needs.

    ``PYSPARK_PYTHON`` becomes this interpreter unless it is set, since Spark would take the first
    ``python3`` on the search path; `culm.spark.java` finds ``JAVA_HOME``.  Raises
    `SparkSetupError` if pyspark is not installed, if pyspark-client is installed beside it, or if
    there is no Java.
    """
    _check_installed()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    home = find_java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home


def start_session(
    name: str = "culm",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a session, or get the one that is running.

    `master` is Spark's master URL: by default the one given to spark-submit, or else
    ``local[*,4]``: this machine, each task tried up to four times.  `remote` is the address of a
    Spark Connect server to use in its place.  `settings` override `SETTINGS`, and both override
    those given to spark-submit.  Raises `SparkSetupError` as `prepare` does, if both `master` and
    `remote` are given or `master` is a Spark Connect server, or if packages for Spark Connect are
    missing.
    """
    if master is not None and remote is not None:
        raise SparkSetupError("a session has a master or a remote server, not both")
    if master is not None and master.startswith("sc://"):
        raise SparkSetupError(f"{master} is a Spark Connect server: give it as remote (--remote)")
    if remote is not None:
        _check_installed(*_CONNECT, extra="connect")
    if remote is None or remote.startswith("local"):
        prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    elif not _was_submitted():
        builder = builder.master(_LOCAL)
    for key, value in {**SETTINGS, **_parallel(master, remote), **(settings or {})}.items():
        if remote is None or not key.startswith(_STATIC):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def ship_culm(spark: SparkSession) -> None:
    """Send the Python sources of this culm to the executors of `spark`.

    For clusters whose Python has pyarrow, PyNaCl, blake3 and xxhash, but not culm.  Compiled
    kernels cannot be loaded this way, so the pure Python twins are used: for speed, install culm
    on the executors, or send an environment packed by venv-pack with ``spark.archives``.
    """
    archive = pack_culm(Path(tempfile.mkdtemp(prefix="culm-ship-")))
    spark.addArtifact(str(archive), pyfile=True)


def pack_culm(directory: Path) -> Path:
    """Write culm, without compiled kernels, to a zip file in `directory`, for ``--py-files``."""
    package = Path(culm.__path__[0])
    archive = directory / "culm.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for source in sorted(package.rglob("*.*")):
            if source.suffix in _PACKED:
                packed.write(source, source.relative_to(package.parent))
    return archive


def _check_installed(*also: str, extra: str = "spark") -> None:
    versions = {name: _version(name) for name in ("pyspark", "pyspark-client")}
    if all(versions.values()):
        raise SparkSetupError(
            "pyspark and pyspark-client are both installed; they are the same package in two forms"
            " and overwrite each other's files. Uninstall both, then install pyspark alone:"
            " python -m pip uninstall -y pyspark pyspark-client;"
            " python -m pip install 'culm[spark]'"
        )
    missing = [name for name in ("pyarrow", "pandas", *also) if _version(name) is None]
    # The pyspark of a cluster lies on Python's search path without an installer's record.
    if not any(versions.values()) and find_spec("pyspark") is None:
        missing.append("pyspark")
    if missing:
        raise SparkSetupError(
            f"{' and '.join(missing)} not installed: python -m pip install 'culm[{extra}]'"
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _was_submitted() -> bool:
    """Whether spark-submit has started this program and set the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ


def _parallel(master: str | None, remote: str | None) -> dict[str, str]:
    """On one machine, two partitions of a shuffle for each core, in place of 200."""
    if remote is not None or _was_submitted() or not (master or "local").startswith("local"):
        return {}
    return {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}
