"""The page "The way of an entry": its files are there, and an entry comes through them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

from replicator_support import SMALL, World, key_of, news_of, store_of

from culm.point2point import replication
from culm.point2point.replication import EntryStored

PAGE = Path(__file__).resolve().parents[2] / "docs" / "way-of-an-entry.md"
FOLDER = str(Path(replication.__file__).parent)


def test_an_entry_comes_through_the_files_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("<!-- way -->") : page.index("<!-- end -->")]
    files = re.findall(r"^\| `(\w+\.py)`", table, re.MULTILINE)
    news = news_of((5, 9, 3 * SMALL.payload_piece_size))
    world = World()
    world.connect(world.node(store_of(news)), reader := world.node())
    seen: set[str] = set()

    def called(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
            seen.add(Path(frame.f_code.co_filename).name)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        world.run()
    finally:
        sys.setprofile(before)
    assert [e.seqnum for e in reader.end.of(EntryStored) if e.payload_stored] == [1, 2, 3]
    assert reader.store.head(key_of(news)) is not None
    assert len(files) == len(set(files))
    assert set(files) <= seen
    for file in re.findall(r"`(\w+\.py)`", page):
        assert (Path(FOLDER) / file).exists(), file
