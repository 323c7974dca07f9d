"""Peers on Node.js for a test, stopped when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# As for the programs there, whose folder is the first on their path.
from interop_support import SOCKETS, JsPeer, installed, until


@pytest.fixture(scope="session")
def node_packages() -> Path:
    return installed()


@pytest.fixture
def js_peer(node_packages: Path, tmp_path: Path) -> Iterator[Callable[..., JsPeer]]:
    """``js_peer(name)`` starts one, in its own folder, and waits until it listens."""
    started: list[JsPeer] = []

    def start(name: str, **options: Any) -> JsPeer:
        peer = JsPeer(name, node_packages, tmp_path / name, **options)
        started.append(peer)
        until(lambda: peer.happened("listening") or peer.process.poll() is not None)
        assert peer.process.poll() is None
        return peer

    yield start
    for peer in started:
        peer.stop()


@pytest.fixture(autouse=True)
def _sockets_closed() -> Iterator[None]:
    yield
    while SOCKETS:
        SOCKETS.pop().close()
