"""A live operation comes through the files that docs/p2panda.md names, and through no others."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from types import FrameType

from p2panda_nodes import Node, connect

import culm
from culm.p2panda import OperationStored, Replicator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "p2panda.md"
SOURCE = Path(culm.__file__).parent
ROOMS = (SOURCE / "p2panda", SOURCE / "replication")
FILES_MAX = 16


@cache
def file_of(filename: str) -> str:
    """The name of a file of the two rooms, with its room; for others nothing."""
    path = Path(filename)
    return path.relative_to(SOURCE).as_posix() if path.parent in ROOMS else ""


def test_a_live_operation_comes_through_the_files_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("<!-- way -->") : page.index("<!-- end -->")]
    files = re.findall(r"^\| `(\w+/\w+\.py)`", table, re.MULTILINE)
    author, reader = Node(1), Node(2)
    document = author.create(name="Lu")
    link = connect(author, reader, live=True)
    at_work: set[str] = set()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            at_work.add(file_of(frame.f_code.co_filename))

    author.author.update(document, {"name": "Lulu"})
    here = link.left.machine
    assert isinstance(here, Replicator)
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        here.stored()
        link.run()
    finally:
        sys.setprofile(before)
    assert isinstance(link.right.events[-1], OperationStored)
    assert author.documents() == reader.documents()
    assert at_work - {""} == set(files)
    assert len(files) == len(set(files)) <= FILES_MAX
