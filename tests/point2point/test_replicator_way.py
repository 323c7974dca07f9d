"""The page "The way of an entry": its files exist, and an entry comes through them."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from types import FrameType

from replicator_support import SMALL, World, key_of, news_of, store_of

from culm import point2point, replication
from culm.bamboo.effects import AppendEntries
from culm.point2point.replication import EntryStored, ReplicatorLimits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "way-of-an-entry.md"
FOLDER = Path(point2point.__file__).parent
FILES_MAX = 15
LIVE_FILES_MAX = 18  # at sender and receiver, those of `culm.replication` included
STATIONS = ("decode_metadata", "verify_signature")  # functions
MADE = (AppendEntries, EntryStored)


class Trace:
    """The files of the two rooms that are at work, and those that an entry passes.

    The latter are the files of all active functions when its metadata is decoded, its signature
    verified, and when it is handed to the store or reported.
    """

    def __init__(self) -> None:
        self.at_work: set[str] = set()
        self.passed: set[str] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        self.at_work.add(file_of(frame.f_code.co_filename))
        called = frame.f_code.co_name
        made = called == "__init__" and isinstance(frame.f_locals.get("self"), MADE)
        if made or called in STATIONS:
            under_way: FrameType | None = frame
            while under_way is not None:
                self.passed.add(file_of(under_way.f_code.co_filename))
                under_way = under_way.f_back


@cache
def file_of(filename: str) -> str:
    """The name of a file of the wire's or of replication; for others nothing."""
    path = Path(filename)
    return path.name if path.is_relative_to(FOLDER) else ""


def test_an_entry_comes_through_the_files_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("<!-- way -->") : page.index("<!-- end -->")]
    files = re.findall(r"^\| `(\w+\.py)`", table, re.MULTILINE)
    assert len(files) == len(set(files)) <= FILES_MAX
    news = news_of((5, 9, 3 * SMALL.payload_piece_size))
    world = World()
    world.connect(world.node(store_of(news)), reader := world.node())
    trace, before = Trace(), sys.getprofile()
    sys.setprofile(trace)
    try:
        world.run()
    finally:
        sys.setprofile(before)
    assert [e.seqnum for e in reader.end.of(EntryStored) if e.payload_stored] == [1, 2, 3]
    assert reader.store.head(key_of(news)) is not None
    assert trace.passed - {""} <= set(files) <= trace.at_work
    there = {path.name for path in FOLDER.rglob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", page)) <= there


def test_few_files_are_at_work_for_one_live_entry() -> None:
    """Between a sender and a receiver that are otherwise in step."""
    folders = [FOLDER, Path(replication.__file__).parent]
    news = news_of((5, 9, 20))
    world = World()
    author = world.node(store_of(news[:2]), limits=ReplicatorLimits())
    reader = world.node(limits=ReplicatorLimits())
    world.connect(author, reader)
    world.wait(3)
    at_work: set[str] = set()

    def trace(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            at_work.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        author.add(news[2])
        world.run()
    finally:
        sys.setprofile(before)
    head = reader.store.head(key_of(news))
    assert head is not None
    assert head.seqnum == 3
    files = {
        path
        for path in map(Path, at_work)
        if any(path.is_relative_to(folder) for folder in folders)
    }
    assert 0 < len(files) <= LIVE_FILES_MAX, sorted(path.name for path in files)
