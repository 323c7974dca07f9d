"""The construction of the programs around others' implementations, without building them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "interop"))

import peer_programs


def test_peers_are_built_of_the_crates_that_are_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, told = tmp_path / "tools", tmp_path / "told"
    tools.mkdir()
    cargo = tools / "cargo"
    cargo.write_text(f'#!/bin/sh\necho "$@" > {told}\nls >> {told}\n')
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CULM_P2PANDA_PEERS", str(tmp_path / "peers"))
    assert peer_programs.built() == tmp_path / "peers" / "target" / "debug"
    command, *files = told.read_text().splitlines()
    assert command.startswith("build --locked ")
    assert {"Cargo.lock", "Cargo.toml", "src"} <= set(files)
