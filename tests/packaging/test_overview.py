"""``python -m culm`` gives an overview."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec

from packaging_project import ROOT

import culm
from culm.exits import ExitStatus
from culm.kernels import IMPLEMENTATION
from culm.machines import names


def overview(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-m", "culm", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_it_names_the_version_every_package_and_every_machine() -> None:
    first, *lines = overview().splitlines()
    assert first == f"culm {culm.__version__}, {IMPLEMENTATION} kernels"
    told = {line.split()[0] for line in lines if line.startswith("  ")}
    packages = {path.parent.name for path in (ROOT / "src/culm").glob("*/__init__.py")}
    assert {f"culm.{name}" for name in packages} | {*names()} <= told


def test_the_programs_that_it_names_are_there() -> None:
    modules = re.findall(r"python -m (\S+)", overview())
    assert len(modules) > 3
    assert [name for name in modules if find_spec(name) is None] == []


def test_no_word_is_broken_in_60_columns() -> None:
    told = overview()
    assert max(map(len, told.splitlines())) <= 60
    for path in (ROOT / "src/culm").glob("*/__init__.py"):
        summary = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert set(summary.partition("\n")[0].split()) <= set(told.split())


def test_a_reader_who_has_gone_ends_it_in_silence() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "culm"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitStatus.UNHEARD, "")


def test_it_takes_no_arguments_but_help() -> None:
    assert "usage: python -m culm [-h]" in overview("--help")
