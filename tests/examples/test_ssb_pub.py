"""The pub: processes, sockets, files, and kill -9 at any statement of its store."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from killing import fork, kill_at
from nacl.signing import SigningKey

from culm.exits import ExitStatus
from culm.machine import Event
from culm.ssb.address import Address
from culm.ssb.ebt import StoredFeeds
from culm.ssb.feed_id import feed_id_of
from culm.ssb.messages import check_place, read_message
from culm.ssb.peer import Peer
from culm.ssb.store import MemoryStore
from culm_io.asyncio.ssb import DialFailed, PeerDriver
from culm_io.command import command_of
from culm_io.programs import ssb as ssb_peer
from culm_io.programs.directory.files import load_key
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.locks import locked
from culm_io.stores.ssb import SsbSqliteStore
from effort import amount

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

NETWORK = ["--network", "A" * 43 + "="]


class Process:
    """The program in a forked process, which is killed before the statement with this number."""

    def __init__(self, folder: Path, *options: str, point: int | None = None) -> None:
        self.folder = folder
        self.said: list[dict[str, Any]] = []
        self.status: int | None = None
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._pid = fork()
        if not self._pid:
            try:
                os.dup2(stdin, 0)
                os.dup2(stdout, 1)
                for each in (stdin, self._stdin, stdout, self._stdout):
                    os.close(each)
                self._live(options, point)
            finally:
                os._exit(1)
        os.close(stdin)
        os.close(stdout)
        self._lines = open(self._stdout, encoding="utf-8")  # noqa: SIM115

    def _live(self, options: tuple[str, ...], point: int | None) -> None:
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
        if point is not None:
            kill_at(point)
        where = ("--dir", str(self.folder), "--port", "0")
        os._exit(ssb_peer.main(["run", *where, *NETWORK, *options]))

    def tell(self, *lines: str) -> None:
        os.write(self._stdin, "".join(f"{line}\n" for line in lines).encode())

    def until(self, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Read on, until a good line; ``None`` if there are no more."""
        for line in self._lines:
            self.said.append(json.loads(line))
            if good(self.said[-1]):
                return self.said[-1]
        return None

    def until_event(self, event: str, **fields: Any) -> dict[str, Any] | None:
        return self.until(lambda said: {"event": event, **fields}.items() <= said.items())

    def until_stored(self, feed: str, sequence: int) -> bool:
        def is_it(said: dict[str, Any]) -> bool:
            return (
                said["event"] == "stored" and said["feed"] == feed and said["sequence"] >= sequence
            )

        return any(map(is_it, self.said)) or self.until(is_it) is not None

    def wait(self) -> int:
        if self.status is None:
            _, self.status = os.waitpid(self._pid, 0)
        return self.status

    def close(self) -> None:
        if self._lines.closed:
            return
        if self.status is None:
            os.kill(self._pid, signal.SIGTERM)
            for line in self._lines:
                self.said.append(json.loads(line))
            self.wait()
        os.close(self._stdin)
        self._lines.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def one(name: str, *options: str, **point: Any) -> Process:
        started.append(Process(tmp_path / name, *options, **point))
        return started[-1]

    yield one
    for each in started:
        each.close()


def address(process: Process) -> tuple[str, str]:
    """Its address, and its feed."""
    said = process.until_event("listening")
    assert said is not None
    return said["address"], said["feed"]


def feeds_of(folder: Path, *feeds: str) -> list[list[bytes]]:
    """The contents of a store; every feed must be valid."""
    store = SsbSqliteStore(folder / "feeds.sqlite")
    try:
        assert store.load().forked == frozenset()
        found = [store.messages(feed) for feed in feeds]
    finally:
        store.close()
    for feed in found:
        messages = [read_message(data) for data in feed]
        for before, message in pairwise([None, *messages]):
            assert message is not None
            check_place(message, None if before is None else before.place)
            assert message.verify()
    return found


POSTS = 6
#: Each is in a different place: from the schema to the middle of replication.
POINTS = range(3, 63, 5)


@pytest.mark.parametrize("point", [*POINTS][:: max(1, 8 // amount(4, 8))])
def test_a_peer_that_is_killed_goes_on_where_it_was(
    start: Callable[..., Process], point: int
) -> None:
    """Everything it has reported is still there, and both have the same in the end."""
    alice = start("alice")
    where, alice_feed = address(alice)
    alice.tell(*(f"publish {number}" for number in range(POSTS)))

    key_folder = alice.folder.with_name("bob")
    key_folder.mkdir()
    bob_feed = feed_id_of(bytes(load_key(key_folder / "feeds.sqlite", create=True).verify_key))
    alice.tell(f"follow {bob_feed}")
    dying = start("bob", "--connect", where, point=point)
    dying.tell(f"follow {alice_feed}")
    told = 0
    while dying.until_stored(bob_feed, told + 1):
        told += 1
        dying.tell(f"publish {told}")
    assert os.WIFSIGNALED(dying.wait())

    bob = start("bob", "--connect", where)
    assert address(bob)[1] == bob_feed
    kept = len(feeds_of(bob.folder, bob_feed)[0])
    assert kept >= told
    bob.tell(f"follow {alice_feed}", "publish the last")
    alice.tell("publish the last")
    assert alice.until_stored(bob_feed, kept + 2)
    assert bob.until_stored(alice_feed, POSTS + 2)
    alice.close()
    bob.close()
    found = feeds_of(alice.folder, alice_feed, bob_feed)
    assert found == feeds_of(bob.folder, alice_feed, bob_feed)
    assert list(map(len, found)) == [POSTS + 2, kept + 2]
    assert not {"forked", "refused", "error"} & {said["event"] for said in alice.said + bob.said}


def test_it_does_what_it_is_told(start: Callable[..., Process]) -> None:
    alice = start("alice")
    where, alice_feed = address(alice)
    bob = start("bob", "--connect", where)
    _, bob_feed = address(bob)
    assert bob.until_event("connected", peer=alice_feed)
    own = f"block {alice_feed}"
    alice.tell("dance", "follow nobody", own, "connect nowhere", "status")
    errors = [alice.until_event("error") for _ in range(4)]
    assert [error and error["line"] for error in errors] == [
        "dance",
        "follow nobody",
        own,
        "connect nowhere",
    ]
    assert alice.until_event("status", clock={alice_feed: 0}, links=1)
    alice.tell("publish hello")
    bob.tell(f"follow {alice_feed}")
    assert bob.until_stored(alice_feed, 1)
    alice.tell(f"block {bob_feed}")
    assert bob.until_event("disconnected")
    alice.tell("quit")
    assert alice.until_event("closed")
    assert alice.wait() == 0
    again = start("alice")
    address(again)
    again.tell("status")
    status = again.until_event("status")
    assert status is not None
    assert status["clock"] == {alice_feed: 2}


def test_the_program_as_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = subprocess.run(
        command_of("ssb", "run", "--dir", tmp_path, "--port", 0),
        input="publish hello\nquit\n",
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout.splitlines()[-1]) == {"event": "closed"}
    with locked(tmp_path / "feeds.sqlite"):  # as while it runs
        ssb_peer.main(["id", "--dir", str(tmp_path)])
    feed = capsys.readouterr().out.strip()
    ssb_peer.main(["messages", "--dir", str(tmp_path), feed])
    assert json.loads(capsys.readouterr().out)["content"] == {"type": "post", "text": "hello"}


def test_the_last_line_needs_no_newline(tmp_path: Path) -> None:
    ran = subprocess.run(
        command_of("ssb", "run", "--dir", tmp_path, "--port", 0),
        input="x" * 9999 + "\nquit",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0
    assert max(map(len, ran.stdout.splitlines())) < 1000


def test_a_key_of_a_network_has_32_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        ssb_peer.main(["run", "--dir", str(tmp_path), "--network", "AAAA"])
    assert "'AAAA' is not 32 bytes in base64" in capsys.readouterr().err


def test_a_host_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImpossibleError, match=r"300\.1\.1\.1: "):
        ssb_peer.main(["run", "--dir", str(tmp_path), "--host", "300.1.1.1", "--port", "0"])


def test_only_one_process_writes_a_feed(start: Callable[..., Process]) -> None:
    address(start("alice"))
    second = start("alice")
    assert second.until_event("listening") is None
    assert second.wait() != 0


def test_who_cannot_be_reached_is_told(start: Callable[..., Process]) -> None:
    """No listener, another one, a connection we already have, or ourselves."""
    alice, bob = start("alice"), start("bob")
    where, alice_feed = address(alice)
    own = address(bob)[0]
    nobody = "net:127.0.0.1:1~shs:" + alice_feed[1:45]
    bob.tell(f"connect {nobody}")
    assert bob.until_event("unreachable", address=nobody, again_s=0.5)
    bob.tell(f"connect {nobody}", f"connect {own}")
    assert bob.until_event("error", error="we connect to that address already")
    assert bob.until_event("error", error="that is our own key")
    carol = start("carol")
    stranger = where[:-44] + address(carol)[0][-44:]
    bob.tell(f"connect {stranger}")
    failed = bob.until_event("unreachable", address=stranger)
    assert failed is not None
    assert "another key" in failed["error"]


def test_a_peer_that_is_blocked_is_not_dialled_again(start: Callable[..., Process]) -> None:
    alice, bob = start("alice"), start("bob")
    where, alice_feed = address(alice)
    bob.tell(f"connect {where}")
    assert bob.until_event("connected", peer=alice_feed)
    bob.tell(f"block {alice_feed}")
    assert bob.until_event("unreachable", address=where)
    assert bob.said[-1]["again_s"] is None
    bob.tell(f"connect {where}")  # it was given up, so this is not a second attempt
    assert bob.until_event("unreachable", address=where)
    assert bob.said[-1]["again_s"] is None
    bob.tell(f"unblock {alice_feed}")
    assert bob.until_event("stored", sequence=2)
    bob.tell(f"connect {where}")
    assert bob.until(lambda said: said["event"] in ("connected", "unreachable")) is not None
    assert bob.said[-1] == {"event": "connected", "peer": alice_feed}


def test_what_is_said_to_be_stored_is_in_force(
    start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, block = Peer.follow, Peer.block

    def follow_aloud(self: Peer, feed: str, value: bool = True) -> None:
        follow(self, feed, value)
        ssb_peer.say(event="following", value=value)

    def block_aloud(self: Peer, author: str, target: str, value: bool = True) -> None:
        block(self, author, target, value)
        ssb_peer.say(event="blocking", value=value)

    monkeypatch.setattr(Peer, "follow", follow_aloud)
    monkeypatch.setattr(Peer, "block", block_aloud)
    alice, other = start("alice"), feed_id_of(bytes(SigningKey(bytes(32)).verify_key))
    verbs = ("block", "unblock", "follow", "unfollow")
    for number, verb in enumerate(verbs, 1):
        alice.tell(f"{verb} {other}")
        assert alice.until_event("stored", sequence=number)
    alice.tell("publish hello", f"block {other}", "quit")
    assert alice.wait() == 0
    alice.close()
    heeded, kept = ("blocking", "following"), "stored"
    said = [each["event"] for each in alice.said if each["event"] in (*heeded, kept)]
    assert said[:8] == ["blocking", kept, "blocking", kept, "following", kept, "following", kept]


def test_a_task_that_cannot_go_on_says_so() -> None:
    """A host that no resolver takes, from a caller that has not parsed it."""
    told: list[Event] = []
    address = Address("a" * 64, 1, feed_id_of(bytes(SigningKey(bytes(32)).verify_key)))

    async def live() -> None:
        loop = asyncio.get_running_loop()
        peer = Peer(identity=SigningKey(bytes(range(32))), stored=StoredFeeds(), now=loop.time())
        driver = PeerDriver(peer, MemoryStore(), on_event=told.append)
        assert driver.keep_connected(address)
        while not told:
            await asyncio.sleep(0)
        assert driver.keep_connected(address)  # a new attempt is allowed
        driver.call(peer.close)
        await driver.wait_closed()

    asyncio.run(live())
    failed = told[0]
    assert isinstance(failed, DialFailed)
    assert (failed.address, failed.again_s) == (address, None)
    assert "label" in failed.error


def test_a_copy_of_the_folder_publishes_nothing_before_its_feed_is_whole(
    start: Callable[..., Process],
) -> None:
    alice, bob = start("alice"), start("bob")
    where, alice_feed = address(alice)
    _, bob_feed = address(bob)
    bob.tell(f"follow {alice_feed}", f"connect {where}")
    alice.tell(f"follow {bob_feed}", "publish in the backup")
    assert bob.until_stored(alice_feed, 2)
    alice.close()
    backup = alice.folder.with_name("backup")
    shutil.copytree(alice.folder, backup)
    alice = start("alice")
    where = address(alice)[0]
    alice.tell("publish after the backup")
    bob.tell(f"connect {where}")
    assert bob.until_stored(alice_feed, 3)
    alice.close()
    shutil.rmtree(alice.folder)
    shutil.copytree(backup, alice.folder)

    alice = start("alice")
    address(alice)
    assert alice.until_event("restored", sequence=2)
    alice.tell("publish too early")
    refused = alice.until_event("error", line="publish too early")
    assert refused is not None
    alice.close()
    alice = start("alice")  # the address is not forgotten
    where = address(alice)[0]
    bob.tell(f"connect {where}")
    assert alice.until_event("confirmed", sequence=3)
    alice.tell("publish in time")
    assert bob.until_stored(alice_feed, 4)
    alice.close()
    again = start("alice")
    again.tell("publish once more")
    assert again.until_stored(alice_feed, 5)
    again.close()
    bob.close()
    assert not {"restored", "error"} & {said["event"] for said in again.said}
    assert "forked" not in {said["event"] for said in bob.said}


FILE = "feeds.sqlite"


@pytest.mark.parametrize("mark", ["later", "earlier", "cut short"])
def test_a_database_that_is_set_back_is_noticed_though_the_key_is_not_touched(
    start: Callable[..., Process], mark: str
) -> None:
    """As with ``rsync -a``: the changed files are put back, and everything else left alone."""
    alice = start("alice")
    alice.tell("publish in the backup")
    assert alice.until_event("stored", sequence=1)
    alice.close()
    backup = alice.folder.with_name("backup")
    shutil.copytree(alice.folder, backup)
    alice = start("alice")
    alice.tell("publish after the backup")
    assert alice.until_event("stored", sequence=2)
    alice.close()
    if mark == "cut short":
        (alice.folder / (FILE + ".mark.2")).write_text("00000-")
    for name in (FILE, FILE + ".mark.1")[: 1 + (mark == "earlier")]:
        shutil.copy2(backup / name, alice.folder / "staged")
        (alice.folder / "staged").rename(alice.folder / name)

    for _ in range(2):  # the refusal is not forgotten
        alice = start("alice")
        alice.tell("publish too early")
        assert alice.until(lambda said: said["event"] in ("error", "stored")) is not None
        assert alice.said[-1]["event"] == "error"
        alice.close()


@pytest.mark.parametrize("change", ["chmod", "link", "chown", "lock"])
def test_a_folder_whose_key_was_touched_is_no_backup(
    start: Callable[..., Process], tmp_path: Path, change: str
) -> None:
    alice = start("alice")
    alice.tell("publish one")
    assert alice.until_event("stored", sequence=1)
    alice.close()
    key = alice.folder / (FILE + ".key")
    match change:
        case "chmod":
            key.chmod(0o400)
        case "link":
            os.link(key, tmp_path / "link")
        case "chown":
            os.chown(key, os.getuid(), os.getgid())
        case _:
            (alice.folder / (FILE + ".lock")).unlink()
    alice = start("alice")
    alice.tell("publish two")
    assert alice.until(lambda said: said["event"] in ("error", "stored")) is not None
    assert alice.said[-1]["event"] == "stored"


def test_follows_and_blocks_that_come_back_with_our_feed_are_in_force(
    start: Callable[..., Process],
) -> None:
    """With the key alone: followed peers confirm the feed, and blocked ones are not dialled."""
    alice, bob, carol = start("alice"), start("bob"), start("carol")
    alice_where, alice_feed = address(alice)
    bob_where, bob_feed = address(bob)
    carol_where, carol_feed = address(carol)
    alice.tell(f"block {carol_feed}", f"follow {bob_feed}")
    bob.tell(f"follow {alice_feed}", f"connect {alice_where}")
    assert bob.until_stored(alice_feed, 2)
    alice.close()
    made(alice.folder.with_name("new"))
    key = "feeds.sqlite.key"
    shutil.copy2(alice.folder / key, alice.folder.with_name("new") / key)
    new = start("new", "--restored", "--connect", bob_where)
    assert new.until(lambda said: said["event"] in ("confirmed", "disconnected")) is not None
    assert new.said[-1] == {"event": "confirmed", "feed": alice_feed, "sequence": 2}
    new.tell(f"connect {carol_where}")
    assert new.until_event("unreachable", address=carol_where)


def test_a_backup_of_a_whole_disk_is_said_to_be_one(start: Callable[..., Process]) -> None:
    alice = start("alice", "--restored")
    assert alice.until_event("restored")
    alice.tell("confirm", "publish hello")
    assert alice.until_event("confirmed", sequence=0)
    assert alice.until_event("stored", sequence=1)
    alice.close()
    again = start("alice")
    again.tell("publish hello")
    assert again.until_event("stored", sequence=2)
    assert "restored" not in {said["event"] for said in again.said}


@pytest.mark.parametrize(
    ("folder", "feed", "words"),
    [
        ("nowhere", "@" + "A" * 43 + "=.ed25519", "there are no feeds"),
        ("made", "@" + "A" * 43 + "=.ed25519", "there are no messages of"),
        ("broken", "@" + "A" * 43 + "=.ed25519", "not a database"),
        ("made", "alice", "is not the id of a feed"),
    ],
)
def test_messages_that_are_not_there(tmp_path: Path, folder: str, feed: str, words: str) -> None:
    SsbSqliteStore(made(tmp_path / "made")).close()
    made(tmp_path / "broken").write_text("hello" * 1000)
    ran = subprocess.run(
        command_of("ssb", "messages", "--dir", tmp_path / folder, feed),
        capture_output=True,
        text=True,
    )
    absent = words.startswith("there are no")
    wanted = ExitStatus.ABSENT if absent else ExitStatus.IMPOSSIBLE
    assert (ran.returncode, ran.stdout) == (wanted, "")
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "nowhere").exists()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder / "feeds.sqlite"


KEY = feed_id_of(bytes(SigningKey(bytes(32)).verify_key))[1:45]


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            f"net:a:{port}~shs:{KEY}"
            for port in ("0", "99999", "65536", "08", "８", "", "-1", "1 ")
        ),
        *(f"net:{host}:1~shs:{KEY}" for host in ("", "a b", " a", "a..b", "-a", "a:b", "é", "a\n")),
        *(
            f"net:{host}:1~shs:{KEY}"
            for host in ("1.2.3", "256.1.1.1", "[1.2.3.4]", "[::1", "::1::")
        ),
        f"net:a:1~shs:{KEY};net:b:2~shs:{KEY}",
        f"net:a:1;net:b:2~shs:{KEY}",
        f"net:a:1~net:b:2~shs:{KEY}",
        "net:a:1~shs:" + "A" * 43 + "=",  # of low order: no secret can be shared with it
        "net:a:1~shs:" + "/" * 42 + "8=",
    ],
)
def test_an_address_can_be_dialled(wrong: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        Address.parse(wrong)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        *((host, host) for host in ("a", "a.example", "a_b-c.example", "127.0.0.1", "::1")),
        *(("[::1]", "::1"), ("fe80::1%eth0", "fe80::1%eth0")),
    ],
)
def test_hosts_of_all_kinds(text: str, host: str) -> None:
    assert Address.parse(f"net:{text}:65535~shs:{KEY}")[:2] == (host, 65535)


def test_addresses_are_written_as_other_peers_write_them() -> None:
    text = f"net:127.0.0.1:8008~shs:{KEY}"
    for each in (text, f"net:::1:8008~shs:{KEY}"):
        assert str(Address.parse(each)) == each
    assert str(Address.parse(f"net:[::1]:8008~shs:{KEY}")) == f"net:::1:8008~shs:{KEY}"
    for wrong in ("127.0.0.1:8008", text + "x", text[:-2] + "B="):
        with pytest.raises(ValueError, match=r"must be the id|not an address"):
            Address.parse(wrong)
