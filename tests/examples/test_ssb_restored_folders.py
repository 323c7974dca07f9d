"""Folders that come back from backups, in every way of copying: is it noticed?

A folder has lived and was backed up, has gone on, and ended or was killed; then something of the
backup is put back.  A folder older than others' copies must report it.  One that is merely touched
must not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from connections import Quick, opening
from killing import fork

from culm.machine import Ticket
from culm.ssb.ebt import AppendMessages, Message
from culm.ssb.feed_id import feed_id_of
from culm_io.stores.ssb_placed import SsbPlacedStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

ME = feed_id_of(bytes(32))
FILE = "feeds.sqlite"
BEFORE, AFTER = 2, 3  # messages


@pytest.fixture(autouse=True)
def _without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def opened(folder: Path) -> SsbPlacedStore:
    return SsbPlacedStore(folder / FILE, me=ME)


def numbers_inodes(folder: Path) -> bool:
    """Whether the file system distinguishes an inode from a later one of the same number."""
    with open(folder / "any", "wb") as file:
        try:
            fcntl.ioctl(file, 0x80087601, bytes(8))  # FS_IOC_GETVERSION
        except OSError:
            return hasattr(os.fstat(file.fileno()), "st_birthtime")
    return True


def length(store: SsbPlacedStore) -> int:
    """The length of our own feed, all of which is present."""
    head = store.load().heads.get(ME)
    messages = store.messages(ME)
    assert len(messages) == (0 if head is None else head.sequence)
    return len(messages)


def live(folder: Path, count: int, *, killed: bool = False, pages_max: int = 1000) -> None:
    """The program runs, publishes `count` messages, and ends or is killed.

    pages_max: of the write-ahead log, before they move into the file.
    """
    child = fork()
    if not child:
        try:
            _live(folder, count, pages_max, killed=killed)
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if killed else 0)


def _live(folder: Path, count: int, pages_max: int, *, killed: bool) -> None:
    folder.mkdir(exist_ok=True)

    class Limited(Quick):
        pass

    Limited.pages_max = pages_max
    with opening(Limited):
        store = opened(folder)
    assert not store.restored
    first = length(store) + 1
    for sequence in range(first, first + count):
        message = Message(ME, sequence, f"%{sequence}", b"%d" % sequence * 1000)
        store.perform(AppendMessages(ticket=Ticket(1), messages=(message,)))
    if not killed:
        store.close()


# Ways of putting it back


def _replace(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def _rsync(
    folder: Path, backup: Path, *, in_place: bool, compares: bool, deletes: bool = False
) -> None:
    """As ``rsync -a`` does it: ``--inplace``, not ``--ignore-times``, ``--delete``."""
    old, new = set(os.listdir(backup)), set(os.listdir(folder))
    for name in new - old if deletes else ():
        (folder / name).unlink()
    for name in sorted(old):
        source, target = backup / name, folder / name
        if target.exists() and compares and _look(source) == _look(target):
            continue
        if in_place and target.exists():
            with open(target, "r+b") as file:
                file.write(source.read_bytes())
                file.truncate()
            shutil.copystat(source, target)
        else:
            shutil.copy2(source, folder / ".staged")
            (folder / ".staged").rename(target)


def _look(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _database_alone(folder: Path, backup: Path) -> None:
    shutil.copy2(backup / FILE, folder / "staged")
    (folder / "staged").rename(folder / FILE)


def _database_in_place(folder: Path, backup: Path) -> None:
    shutil.copy2(backup / FILE, folder / FILE)


def _without_database(folder: Path, backup: Path) -> None:
    (folder / FILE).unlink()


def _without_mark(folder: Path, backup: Path) -> None:
    _database_alone(folder, backup)
    for mark in folder.glob("*.mark.*"):
        mark.unlink()


def _mark_alone(folder: Path, backup: Path) -> None:
    for mark in backup.glob("*.mark.*"):
        shutil.copy2(mark, folder / mark.name)


def _with_damaged_mark(folder: Path, backup: Path) -> None:
    _database_alone(folder, backup)
    for mark in folder.glob("*.mark.*"):
        mark.write_text("-")


def _with_empty_mark(folder: Path, backup: Path) -> None:
    """As after a loss of power."""
    _database_alone(folder, backup)
    for mark in folder.glob("*.mark.*"):
        os.truncate(mark, 0)


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "whole, in the place of the folder": _replace,
    "whole, over it": lambda *both: _rsync(*both, in_place=False, compares=False),
    "whole, over it, what differs": lambda *both: _rsync(*both, in_place=False, compares=True),
    "whole, in place": lambda *both: _rsync(*both, in_place=True, compares=False),
    "whole, in place, what differs": lambda *both: _rsync(*both, in_place=True, compares=True),
    "whole, in place, and nothing else": lambda *both: _rsync(
        *both, in_place=True, compares=False, deletes=True
    ),
    "what differs, in place, and nothing else": lambda *both: _rsync(
        *both, in_place=True, compares=True, deletes=True
    ),
    "the database alone": _database_alone,
    "the database alone, in place": _database_in_place,
    "no database": _without_database,
    "the mark alone": _mark_alone,
    "the database alone, and no mark": _without_mark,
    "the database alone, and a damaged mark": _with_damaged_mark,
    "the database alone, and an empty mark": _with_empty_mark,
}


def length_if_not_restored(folder: Path) -> int | None:
    """The same at every start of the program; the database is sound."""
    found: list[int | None] = []
    for _ in range(2):
        store = opened(folder)
        count = length(store)
        found.append(None if store.restored else count)
        store.close()
    with closing(sqlite3.connect(folder / FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.costly
@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("backed_up", ["ended", "killed"])
@pytest.mark.parametrize("way", WAYS)
def test_what_lacks_something_says_so(
    tmp_path: Path, way: str, backed_up: str, killed: bool
) -> None:
    """From the database and the log of a killed program SQLite may restore the last state."""
    if "nothing else" in way and not numbers_inodes(tmp_path):
        pytest.skip("a new file may be like an old one on this file system")
    folder, backup = tmp_path / "folder", tmp_path / "backup"
    live(folder, BEFORE, killed=backed_up == "killed")
    shutil.copytree(folder, backup)
    live(folder, AFTER, killed=killed)
    WAYS[way](folder, backup)
    assert length_if_not_restored(folder) in (None, BEFORE + AFTER)


@pytest.mark.parametrize("way", [_database_alone, _database_in_place])
@pytest.mark.parametrize("after", [1, 9, 13, 17, 29])
def test_a_log_that_belongs_to_another_database_is_not_replayed(
    tmp_path: Path, way: Callable[[Path, Path], None], after: int
) -> None:
    """The log has been begun anew several times, some of them since the backup."""
    folder, backup = tmp_path / "folder", tmp_path / "backup"
    live(folder, BEFORE)
    shutil.copytree(folder, backup)
    live(folder, after, killed=True, pages_max=8)
    way(folder, backup)
    assert length_if_not_restored(folder) in (None, BEFORE + after)


def test_a_program_that_was_killed_has_all_that_it_had(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for count in range(1, 20):
        live(folder, count, killed=True, pages_max=8)
    assert length_if_not_restored(folder) == sum(range(1, 20))


TOUCHES: dict[str, Callable[[Path, Path], object]] = {
    "chmod": lambda folder, file: file.chmod(0o600),
    "chown": lambda folder, file: os.chown(file, os.getuid(), os.getgid()),
    "touch": lambda folder, file: os.utime(file),
    "link": lambda folder, file: os.link(file, folder.with_name(file.name)),
}


@pytest.mark.parametrize("how", TOUCHES)
def test_what_is_only_touched_is_no_backup(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "folder"
    live(folder, 1)
    for file in list(folder.iterdir()):
        TOUCHES[how](folder, file)
    live(folder, 1)
    assert length_if_not_restored(folder) == 2


def test_a_folder_that_was_moved_is_no_backup(tmp_path: Path) -> None:
    live(tmp_path / "folder", 2)
    moved = (tmp_path / "folder").rename(tmp_path / "elsewhere")
    assert length_if_not_restored(moved) == 2


def test_a_copy_elsewhere_counts_as_restored(tmp_path: Path) -> None:
    live(tmp_path / "folder", 2)
    copy = shutil.copytree(tmp_path / "folder", tmp_path / "copy")
    assert length_if_not_restored(copy) is None


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("after", [1, 20])
def test_a_copy_made_of_links_says_what_it_lacks(tmp_path: Path, after: int, killed: bool) -> None:
    """Its database is that of the folder itself, which has gone on; only the log is older."""
    folder, backup = tmp_path / "folder", tmp_path / "backup"
    live(folder, BEFORE)
    shutil.copytree(folder, backup, copy_function=os.link)
    live(folder, after, killed=killed, pages_max=8)
    shutil.rmtree(folder)
    backup.rename(folder)
    assert length_if_not_restored(folder) in (None, BEFORE + after)


def test_what_is_confirmed_is_restored_no_more(tmp_path: Path) -> None:
    folder, backup = tmp_path / "folder", tmp_path / "backup"
    live(folder, BEFORE)
    shutil.copytree(folder, backup)
    live(folder, AFTER)
    WAYS["whole, over it"](folder, backup)
    store = opened(folder)
    assert store.restored
    store.settle(length(store))
    store.close()
    live(folder, 1)
    assert length_if_not_restored(folder) == BEFORE + 1
    assert len(list(folder.glob("*.mark.*"))) == 1
