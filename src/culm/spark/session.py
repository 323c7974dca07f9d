"""A Spark session that has what these jobs need.

Any session serves that was made elsewhere: the settings here are for speed and for clear words,
but for two of them.  ``PYSPARK_PYTHON`` has to name an interpreter that has culm and pyarrow,
and Java has to be found; `prepare` sees to both.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import culm
from culm.spark.errors import SparkSetupError
from culm.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "pack_culm", "prepare", "ship_culm", "start_session"]

#: What `start_session` sets, if its caller says nothing else.
SETTINGS: Mapping[str, str] = {
    # Rows go to Python and back in Arrow's batches; 2,000 to 64,000 rows are equally fast.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A kernel that crashes says where.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.session.timeZone": "UTC",
    # With two workers beside it, that stays within 3 GiB.
    "spark.driver.memory": "1536m",
    # No task waits for another one's answer: what matters is how much of the processor is left.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    # It would be drawn over the progress that the command line shows.
    "spark.ui.showConsoleProgress": "false",
}

# What pyspark needs besides to speak to a Spark Connect server.
_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
# What is decided when a JVM starts: Spark Connect refuses to be told.
_STATIC = ("spark.driver.", "spark.ui.", "spark.python.worker.")


def prepare() -> None:
    """Set what has to be in the environment before the first session of this process starts.

    ``PYSPARK_PYTHON`` becomes this interpreter, unless it is set, for Spark would take the first
    ``python3`` on the search path; ``JAVA_HOME`` becomes what `culm.spark.java` finds.  Raises
    `SparkSetupError` if pyspark is not installed, or not alone, or if there is no Java.
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
    """Start a session, or get the one that runs.

    `master` is where to run, in Spark's words: by default what spark-submit said, else
    ``local[*]``.  `remote` is the address of a Spark Connect server in place of it.  `settings`
    come before `SETTINGS`, and before all what spark-submit was given.  Raises `SparkSetupError`
    as `prepare` does, if both `master` and `remote` are given or `master` is a Spark Connect
    server, or if what Spark Connect needs is not installed.
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
        builder = builder.master("local[*]")
    for key, value in {**SETTINGS, **_parallel(master, remote), **(settings or {})}.items():
        if remote is None or not key.startswith(_STATIC):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def ship_culm(spark: SparkSession) -> None:
    """Send the Python sources of this culm to the executors of `spark`.

    For clusters whose Python has pyarrow, PyNaCl, blake3 and xxhash, but no culm.  Compiled
    kernels do not run from there, and the pure twins serve: for speed, install culm on the
    executors, or send an environment packed by venv-pack with ``spark.archives``.
    """
    archive = pack_culm(Path(tempfile.mkdtemp(prefix="culm-ship-")))
    spark.addArtifact(str(archive), pyfile=True)


def pack_culm(directory: Path) -> Path:
    """Write the Python sources of this culm to a zip file in `directory`, for ``--py-files``."""
    package = Path(culm.__path__[0])
    archive = directory / "culm.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for source in sorted(package.rglob("*.py")):
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
    if not any(versions.values()):
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
    """Whether spark-submit has started this program, and has said where to run."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ


def _parallel(master: str | None, remote: str | None) -> dict[str, str]:
    """On one machine, as many partitions of a shuffle as it has cores twice, in place of 200."""
    if remote is not None or _was_submitted() or not (master or "local").startswith("local"):
        return {}
    return {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}
