"""Test data recorded from other implementations, where present.

The folder is named by ``CULM_VECTORS`` or lies beside the project as ``shared/vectors``.  Tests
that need it are skipped where it is absent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "vectors"


def path(name: str) -> Path:
    """Path of the vector file `name`; skips the calling test where it is absent."""
    found = Path(os.environ.get("CULM_VECTORS", _BESIDE)) / name
    if not found.exists():
        pytest.skip(f"vectors of other implementations are absent: {found} (set CULM_VECTORS)")
    return found


def load_json(name: str) -> Any:
    return json.loads(path(name).read_text(encoding="utf-8"))


def load_json_lines(name: str) -> list[Any]:
    return [json.loads(line) for line in path(name).read_text(encoding="utf-8").splitlines()]
