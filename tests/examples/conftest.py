from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# As for the programs there, whose folder is the first on their path.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; runs in the long environment only")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CULM_HYPOTHESIS_PROFILE") == "long":
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow; tox run -e long"))
