"""Real peers of p2panda for a test, stopped when it is over."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The modules shared by the other tests of the room.
sys.path.insert(0, str(Path(__file__).parents[1]))

from p2panda_peers import Documents
from peer_programs import built, running


@pytest.fixture(scope="session")
def programs() -> Path:
    return built()


@pytest.fixture
def theirs(programs: Path) -> Iterator[Documents]:
    """p2panda-rs, without any documents so far."""
    with running(programs / "documents") as process:
        yield Documents(process)


@pytest.fixture
def alone() -> None:
    """Nodes of aquadoggo listen on all interfaces."""
    if {name for _, name in socket.if_nameindex()} != {"lo"}:
        pytest.skip("needs a private network: tox run -e interop-p2panda")
