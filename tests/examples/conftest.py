from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# As for the programs there, whose folder is the first on their path.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from processes import run
from trees import make_tree


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; runs in the long environment only")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CULM_HYPOTHESIS_PROFILE") == "long":
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow; tox run -e long"))


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A directory with the test module's ``TREE`` in it."""
    make_tree(tmp_path / "source", request.module.TREE)
    return tmp_path / "source"


@pytest.fixture
def published(tmp_path: Path, source: Path, request: pytest.FixtureRequest) -> Path:
    """A store that has `source` as a log, published with the module's ``PUBLISH`` options."""
    store = tmp_path / "published.store"
    options = getattr(request.module, "PUBLISH", ())
    assert run("publish", source, "--store", store, *options).status == 0
    return store
