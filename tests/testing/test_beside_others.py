"""Benchmarks beside other implementations report missing ones, which is no failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("program", "reason"),
    [("bench_etcd_raft", "Go is not installed"), ("bench_muxers", "py-libp2p is not installed")],
)
def test_who_is_not_there_is_not_compared(program: str, reason: str) -> None:
    code = (
        "import sys; sys.modules['libp2p'] = None; sys.path.insert(0, 'benchmarks');"
        f" import {program}; sys.argv = [{program!r}]; sys.exit({program}.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"not compared: {reason}\n"


def test_the_load_on_streams_is_what_it_says() -> None:
    """Every echo returns, over real sockets."""
    code = (
        "import sys; sys.path.insert(0, 'benchmarks'); import bench_muxers as bench;"
        " print(bench.measured(bench.bymux, bench.Load(3, 2, 100)) > 0)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
