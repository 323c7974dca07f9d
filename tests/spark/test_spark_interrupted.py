"""The command line, interrupted as by Ctrl-C, without a session."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from culm.exits import ExitStatus
from culm.spark import command


def test_an_interrupted_job_says_so_in_a_line(tmp_path, capsys, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_run", interrupted)
    (tmp_path / "log").touch()
    arguments = ["verify", "--input", str(tmp_path / "log"), "--output", str(tmp_path / "out")]
    assert command.main(arguments) == ExitStatus.INTERRUPTED
    assert capsys.readouterr() == ("", "culm.spark: interrupted\n")
