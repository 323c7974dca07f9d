"""Files of stores that a disk has damaged: a sentence and a status, and no fork."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from culm.bamboo import LogAuthor
from culm.exits import ExitStatus
from culm.ssb.ebt import Message
from culm.ssb.messages import ClassicMessage, create_message
from culm.wire.multihash import YAMF
from culm_io.programs.directory import command as directory
from culm_io.programs.directory.files import StoreFilesError, load_key
from culm_io.programs.directory.mirror import Mirror
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.ssb import main as ssb
from culm_io.stores.bamboo import SqliteStore, StoreFileError
from culm_io.stores.p2panda import OperationSqliteStore
from culm_io.stores.ssb import SsbSqliteStore
from culm_io.stores.ssb_placed import SsbPlacedStore

KEY = SigningKey(bytes(32))


@pytest.mark.parametrize(
    "opened",
    [
        lambda path: SqliteStore(path, family=YAMF),
        OperationSqliteStore,
        SsbSqliteStore,
        lambda path: SsbPlacedStore(path, me="me"),
    ],
    ids=["bamboo", "p2panda", "ssb", "ssb placed"],
)
def test_definitions_that_are_no_text(opened: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "store"
    made = opened(path)
    made.close()  # type: ignore[attr-defined]
    data = path.read_bytes()
    begin = data.rindex(b"CREATE TABLE")
    for at in range(begin, begin + 60, 2):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :])
        try:
            opened(path).close()  # type: ignore[attr-defined]
        except (sqlite3.Error, StoreFileError) as error:
            assert str(error)  # noqa: PT017


def published(path: Path, count: int) -> LogAuthor:
    author = LogAuthor(KEY, family=YAMF)
    with SqliteStore(path, family=YAMF) as store:
        store.append(author.log, [author.publish(b"%d" % number) for number in range(count)])
    return author


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_log_whose_entries_are_gone_is_no_empty_one(tmp_path: Path) -> None:
    """The next entry would fork it."""
    path = tmp_path / "store"
    author = published(path, 3)
    change(path, "DELETE FROM entries")
    with SqliteStore(path, family=YAMF) as store:
        with pytest.raises(StoreFileError, match=r"the last entry of log 3b6a.*/0 is gone"):
            store.head(author.log)
        with pytest.raises(StoreFileError):
            LogAuthor.resume(KEY, store)


def test_check_looks_at_the_whole_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables and their indexes may say different things."""
    path = tmp_path / "store"
    published(path, 3)
    with sqlite3.connect(path) as connection:
        index = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'entries'")
        (page,) = max(index)
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size + 4] ^= 1  # one cell less in the index of entries
    path.write_bytes(data)
    with SqliteStore(path, family=YAMF) as store:
        assert len(store.logs()) == 1
        with pytest.raises(StoreFileError, match="damaged"):
            store.check_file()
    for words in (["check"], ["verify", str(tmp_path)]):
        assert directory.main([*words, "--store", str(path), "--quiet"]) is ExitStatus.IMPOSSIBLE
        assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("UPDATE entries SET payload_size = 7 WHERE seqnum = 2", "not what the store keeps"),
        ("UPDATE entries SET hash = X'00' WHERE seqnum = 2", "not what the store keeps"),
        ("UPDATE logs SET head = 2", "entry 3: the end of the unbroken log, not entry 2"),
        ("DELETE FROM entries WHERE seqnum = 2", "entry 3: gap"),
    ],
)
def test_what_is_kept_beside_entries_is_checked(
    damage: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    published(path, 3)
    change(
        path, "UPDATE entries SET payload_complete = 0, payload_stored = 0", "DELETE FROM chunks"
    )
    words = ["check", "--store", str(path), "--quiet"]
    assert directory.main(words) is ExitStatus.DONE
    change(path, damage)
    capsys.readouterr()
    assert directory.main(words) is ExitStatus.FAILED
    assert fault in capsys.readouterr().out


@pytest.mark.parametrize(("gone", "told"), [(2, "entry 2 is gone"), (3, "the last entry of log")])
def test_a_log_without_some_of_its_entries_is_not_listed(
    gone: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    published(path, 3)
    change(path, f"DELETE FROM entries WHERE seqnum = {gone}")
    assert directory.main(["log", "--store", str(path)]) is ExitStatus.IMPOSSIBLE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"", b"x", b"\xff" * 64])
def test_a_key_that_is_none(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store.key"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(StoreFilesError, match="not a key"):
        load_key(tmp_path / "store", create=False)


def feed(path: Path, count: int) -> list[ClassicMessage]:
    messages: list[ClassicMessage] = []
    for number in range(count):
        last = messages[-1].place if messages else None
        content = {"type": "post", "text": "hello"}
        messages.append(create_message(KEY, content=content, timestamp=number, last=last))
    store = SsbSqliteStore(path)
    store.append([Message(each.author, each.sequence, each.id, each.data) for each in messages])
    store.close()
    return messages


@pytest.mark.parametrize("changed", [b'"hallo"', b'"hell\xff"', b'"hello'])
def test_a_damaged_message_is_not_shown(changed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "feeds.sqlite"
    second = feed(path, 3)[1]
    with sqlite3.connect(path) as connection:
        data = second.data.replace(b'"hello"', changed)
        connection.execute("UPDATE messages SET data = ? WHERE sequence = 2", (data,))
    with pytest.raises(ImpossibleError, match="message 2 is damaged"):
        ssb(["messages", "--dir", str(tmp_path), second.author])


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_message_whose_row_is_gone_is_missed(lost: int, tmp_path: Path) -> None:
    """Neither are the others shown as the whole feed, nor does one pass for it."""
    path = tmp_path / "feeds.sqlite"
    messages = feed(path, 3)
    me = messages[0].author
    change(path, f"UPDATE messages SET feed = '@x' WHERE sequence = {lost}")
    with pytest.raises(ImpossibleError, match="messages are gone"):
        ssb(["messages", "--dir", str(tmp_path), me])
    with closing(SsbSqliteStore(path)) as store:
        found = store.read(me, first=1, count_max=9, size_max=9999) if lost > 1 else ()
        assert found == tuple(each.data for each in messages[: lost - 1])
        with pytest.raises(LookupError):
            store.read(me, first=lost, count_max=9, size_max=9999)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE heads SET id = '%AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=.sha256'",
        "UPDATE messages SET data = 'x'",
        "DELETE FROM messages",
    ],
)
def test_nothing_is_published_after_a_damaged_message_of_our_own(
    damage: str, tmp_path: Path
) -> None:
    """It would continue another message than the one that others have: a fork."""
    path = tmp_path / "feeds.sqlite"
    me = feed(path, 3)[0].author
    with closing(SsbPlacedStore(path, me=me)) as store:
        store.check_own()
    change(path, damage)
    with (
        closing(SsbPlacedStore(path, me=me)) as store,
        pytest.raises(sqlite3.DatabaseError, match="our own feed is damaged"),
    ):
        store.check_own()


def test_a_damaged_payload_is_not_written_by_export_nor_fetch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are named, those of other payloads are written, and a sound file stays."""
    source, into, store = tmp_path / "source", tmp_path / "into", str(tmp_path / "store")
    for number in range(3):
        source.mkdir(exist_ok=True)
        (source / f"{number}").write_bytes(bytes([65 + number]) * 100)
        assert directory.main(["publish", str(source), "--store", store, "--quiet"]) == 0
    words = ["export", "--store", store, "--into", str(into), "--quiet"]
    assert directory.main(words) is ExitStatus.DONE
    with sqlite3.connect(store) as connection:
        found = connection.execute("SELECT entry, data FROM chunks").fetchall()
        [(entry, data)] = [each for each in found if b"B" * 100 in each[1]]
        damaged = data.replace(b"B" * 100, b"B" * 99 + b"x")
        connection.execute("UPDATE chunks SET data = ? WHERE entry = ?", (damaged, entry))
    connection.close()
    (into / "0").unlink()
    capsys.readouterr()
    assert directory.main(words) is ExitStatus.FAILED
    assert "cannot write '1': the payload of entry 2 is damaged" in capsys.readouterr().err
    assert (into / "0").read_bytes() == b"A" * 100
    assert (into / "1").read_bytes() == b"B" * 100
    (into / "1").write_bytes(b"sound")
    with (
        SqliteStore(Path(store), family=YAMF) as opened,
        Mirror(
            opened,
            into=into,
            wanted=None,
            payload_size_max=None,
            private=[],
            on_place=lambda done, total: None,
        ) as mirror,
    ):
        mirror.update()
    assert mirror.failed == {b"1": "the payload of entry 2 is damaged"}
    assert (into / "1").read_bytes() == b"sound"
