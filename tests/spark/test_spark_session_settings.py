"""Checks of an installation before a session starts, and the way culm is sent along."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

from culm.spark import SparkSetupError, session


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Sets the installed packages, as the session helper sees them; no others can be imported."""
    monkeypatch.setattr(session, "find_spec", lambda name: None)

    def pretend(*names: str) -> None:
        def version(name: str) -> str:
            if name in names:
                return "4.3.0"
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr(metadata, "version", version)

    return pretend


def test_two_forms_of_pyspark_are_refused(installed):
    installed("pyspark", "pyspark-client", "pyarrow", "pandas")
    with pytest.raises(SparkSetupError, match="pip uninstall -y pyspark pyspark-client"):
        session.prepare()


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ([], "pyarrow and pandas and pyspark not installed"),
        (["pyspark"], "pyarrow and pandas not installed"),
        (["pyarrow", "pandas"], "pyspark not installed"),
        (["pyspark-client", "pandas"], "pyarrow not installed"),
    ],
)
def test_what_is_missing_is_named(installed, there, missing):
    installed(*there)
    with pytest.raises(SparkSetupError, match=rf"{missing}: .*'culm\[spark\]'"):
        session.start_session()


def test_a_pyspark_that_no_tool_has_installed_serves(installed, monkeypatch):
    """Such as that of a cluster's own Spark, which spark-submit puts on Python's path."""
    installed("pyarrow", "pandas")
    monkeypatch.setattr(session, "find_spec", lambda name: name)
    monkeypatch.setattr(session, "find_java_home", lambda: None)
    session.prepare()


def test_what_spark_connect_needs_is_named(installed):
    installed("pyspark", "pyarrow", "pandas", "zstandard")
    wanted = r"grpcio and grpcio-status and googleapis-common-protos not .*'culm\[connect\]'"
    with pytest.raises(SparkSetupError, match=wanted):
        session.start_session(remote="sc://nowhere")


def test_workers_run_this_interpreter_unless_another_is_named(installed, monkeypatch):
    installed("pyspark", "pyarrow", "pandas")
    monkeypatch.setattr(session, "find_java_home", lambda: "/a/java/home")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    session.prepare()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert os.environ["JAVA_HOME"] == "/a/java/home"
    monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")
    session.prepare()
    assert os.environ["PYSPARK_PYTHON"] == "/another/python"


def test_a_session_runs_in_one_place():
    with pytest.raises(SparkSetupError, match="a master or a remote server, not both"):
        session.start_session(master="local", remote="sc://host")
    with pytest.raises(SparkSetupError, match=r"sc://host is a Spark Connect server: .*--remote"):
        session.start_session(master="sc://host")


def test_culm_is_packed_without_what_is_compiled(tmp_path):
    archive = session.pack_culm(tmp_path)
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
    assert {"culm/__init__.py", "culm/kernels/pure_hashing.py", "culm/spark/blocks.py"} <= set(
        names
    )
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc", ".pyi"))]
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import culm, culm.kernels;"
        "assert culm.__file__.startswith(sys.argv[1]), culm.__file__;"
        "from culm.spark.page import html_of; assert 'color-scheme' in html_of('', '', '', [], []);"
        "print(culm.kernels.IMPLEMENTATION)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(archive)], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "pure"


def test_importing_the_pipeline_imports_nothing_of_spark():
    program = (
        "import sys, pkgutil, importlib\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "import culm.spark\n"
        "for module in pkgutil.iter_modules(culm.spark.__path__, 'culm.spark.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
