"""Nodes with many logs, some of them changed: the cost of replicating them.

``CULM_P2PANDA_LOGS`` sets the number of logs (1,000,000 take a quarter of an hour and 2 GB of
disk).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LOGS = int(os.environ.get("CULM_P2PANDA_LOGS", "100000"))


def measured(folder: Path, logs: int, changes: int) -> dict[str, Any]:
    """In a separate process."""
    folder.mkdir()
    program = Path(__file__).with_name("many_logs.py")
    command = [sys.executable, str(program), str(folder), str(logs), str(changes), "trace"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(folder)
    found: dict[str, Any] = json.loads(output)
    print(f"{logs} logs, {changes} changed: {found['beyond']} B beyond, {found['sent']} B sent")
    return found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_memory_beyond_the_trees_is_in_proportion_to_the_differences(tmp_path: Path) -> None:
    few, many = LOGS // 1000, LOGS // 100
    small = measured(tmp_path / "small", LOGS // 10, few)
    large = measured(tmp_path / "large", LOGS, few)
    changed = measured(tmp_path / "changed", LOGS, many)
    assert large["beyond"] < 3 * small["beyond"]  # for a higher tree
    assert changed["beyond"] < 10 * large["beyond"]
    assert large["beyond"] < 30_000 * few
    assert changed["beyond"] < 30_000 * many
