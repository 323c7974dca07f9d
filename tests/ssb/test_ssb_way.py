"""The files that a live message passes, from the publisher's store to the reader's."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import FrameType

from peer_support import Node, connect, run

import culm
from culm.ssb.ebt import FeedExtended

FOLDER = Path(culm.__file__).parent
FILES_MAX = 20


@cache
def file_of(filename: str) -> str:
    """A file of the package, except kernels, which may be compiled."""
    path = Path(filename)
    name = path.relative_to(FOLDER).as_posix() if path.is_relative_to(FOLDER) else ""
    return "" if name.startswith("kernels/") else name


def test_a_live_message_passes_few_files() -> None:
    alice, bob = Node("alice"), Node("bob")
    for node, other in ((alice, bob), (bob, alice)):
        node.peer.follow(other.peer.me)
    connect(alice, bob, sealed=True)
    run(alice, bob)
    files: set[str] = set()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        files.add(file_of(frame.f_code.co_filename))

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        alice.peer.publish({"type": "post", "text": "hello"})
        run(alice, bob)
    finally:
        sys.setprofile(before)
    assert bob.told(FeedExtended)[-1].feed == alice.peer.me
    assert {"ssb/messages.py", "ssb/box_stream.py", "ssb/ebt/session.py"} <= files
    assert len(files - {""}) <= FILES_MAX
