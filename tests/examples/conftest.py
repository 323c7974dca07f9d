from __future__ import annotations

import signal
from pathlib import Path

import pytest
from processes import run
from trees import make_tree

# A shell has its background jobs ignore interrupts, which would extend to the programs that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
