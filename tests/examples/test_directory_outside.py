"""Whatever a log says, and whatever the directory contains: everything outside stays as it is."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from trees import MTIME, make_tree

from culm.bamboo import LogAuthor, LogKey, MemoryStore
from culm.wire.multihash import YAMF
from culm_io.programs.directory.materialise import materialise
from culm_io.programs.directory.records import (
    Directory,
    File,
    Link,
    Record,
    RecordError,
    Removed,
    encode,
    encode_pack,
)
from culm_io.programs.directory.tree import read_tree

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)

NAMES = st.sampled_from([b"a", b"b", b"c"])
PATHS = NAMES | st.lists(NAMES, min_size=2, max_size=3).map(b"/".join)
MODES = st.sampled_from([0, 0o400, 0o644, 0o777])
TARGETS = st.lists(st.sampled_from([b"a", b"b", b"..", b"."]), min_size=1, max_size=3).map(
    b"/".join
)
FILES = st.builds(
    File, PATHS, MODES, st.sampled_from([0, MTIME]), st.just(0), st.just(1), st.sampled_from([0, 9])
)


@st.composite
def links(draw: st.DrawFn) -> Record:
    path, target = draw(PATHS), draw(TARGETS)
    try:
        return Link(path, target)
    except RecordError:
        return Removed(path)


RECORDS = st.one_of(
    FILES, FILES, st.builds(Directory, PATHS, MODES), links(), st.builds(Removed, PATHS)
)
# Contents of the directory: at a path, something of a kind.
LITTER = st.lists(
    st.tuples(PATHS, st.sampled_from(["file", "directory", "out", "up", "hard", "fifo"])),
    max_size=8,
)


def litter(target: Path, outside: Path, things: list[tuple[bytes, str]]) -> None:
    """Put things there, except where something is already."""
    for name, kind in things:
        path = target / os.fsdecode(name)
        above = path.parent
        if (
            os.path.lexists(path)
            or not above.is_dir()
            or not above.resolve().is_relative_to(target)
        ):
            continue
        match kind:
            case "file":
                path.write_bytes(b"mine")
            case "directory":
                path.mkdir()
            case "out":
                path.symlink_to(outside)
            case "up":
                path.symlink_to("../outside/a")
            case "hard":
                os.link(outside / "a" / "b", path)
            case "fifo":
                os.mkfifo(path)


def state(root: Path) -> dict[str, tuple[int, ...]]:
    """Everything about all that is there, except access times."""
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (
            status.st_ino,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_uid,
        )
    return found


@given(LITTER, st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=4))
def test_what_is_outside_stays_as_it_is(
    things: list[tuple[bytes, str]], batches: list[list[Record]]
) -> None:
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    with tempfile.TemporaryDirectory() as name:
        outside, target = Path(name).resolve() / "outside", Path(name).resolve() / "target"
        make_tree(outside, {"a/b": b"text", "b": b"mine", "c/a/b": b"mine"})
        target.mkdir()
        litter(target, outside, things)
        before = state(outside)
        for records in batches:
            contents = [b"text" if isinstance(record, File) else b"" for record in records]
            alone = len(records) == 1
            payload = encode(records[0], contents[0]) if alone else encode_pack(records, contents)
            store.append(LOG, [author.publish(payload)])
            try:
                made = materialise(store, LOG, target)
            except RecordError:
                continue
            assert state(outside) == before
            again = materialise(store, LOG, target)
            assert (again.written, again.removed, again.failed) == (0, 0, made.failed)
            check_places(store, target, made.failed, has_litter=bool(things))
        assert state(outside) == before


def check_places(
    store: MemoryStore, target: Path, failed: dict[bytes, str], *, has_litter: bool
) -> None:
    """Everything is as the log says, except for the reported errors."""
    for path, place in read_tree(store, LOG).places.items():
        if any(path == each or path.startswith(each + b"/") for each in failed):
            continue
        found = target / os.fsdecode(path)
        match place.record:
            case File(mode=mode, mtime=mtime, zeros=zeros):
                status = found.lstat()
                assert stat.S_ISREG(status.st_mode)
                assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (mode, mtime)
                assert found.read_bytes() == b"text" + bytes(zeros)
                assert status.st_nlink == 1
            case Directory(mode=mode):
                assert (stat.S_IMODE(found.lstat().st_mode), found.is_symlink()) == (mode, False)
            case Link(target=leads_to):
                assert os.fsencode(os.readlink(found)) == leads_to
                # Unless it leads to a link that was there before.
                assert has_litter or Path(os.path.realpath(found)).is_relative_to(target)
            case Removed():
                is_beneath_link = Path(os.path.realpath(found.parent)) != found.parent
                assert is_beneath_link or found.is_dir() or not os.path.lexists(found)
