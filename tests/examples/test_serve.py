"""The resources of a server's clients, and which of them have to leave when there are too many."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from processes import fetch, run, server_process, serving
from test_hostile_peers import COUNT, KEY, LOG, payload
from test_live_fetch import following
from test_memory import peak_of
from trees import make_tree

from culm.bamboo import LogAuthor
from culm.bamboo.entry import sign
from culm.bamboo.links import lipmaa
from culm.machine import Event
from culm.point2point import CancelReason, Connection, Limits, Proposal, Role
from culm.point2point.replication import Replicator
from culm.wire.multihash import YAMF
from culm_io.programs.directory.serve import Bounds
from culm_io.stores.bamboo import SqliteStore
from specs.point2point_hostile import BOMBS

SECONDS_MAX = 60  # of a server that does not stop; a working one takes far less
MIB = 1 << 20
SHARE = Bounds().memory_max // Bounds().clients_max


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "served"
    with SqliteStore(path, family=YAMF) as store:
        author = LogAuthor(KEY, family=YAMF)
        store.append(LOG, [author.publish(payload(number)) for number in range(COUNT)])
    return path


@pytest.fixture
def heavy(tmp_path: Path) -> Path:
    """A log of which no client could hold much."""
    path, rng = tmp_path / "heavy", Random(1)
    with SqliteStore(path, family=YAMF) as store:
        author = LogAuthor(KEY, family=YAMF)
        store.append(LOG, [author.publish(rng.randbytes(MIB)) for _ in range(24)])
    return path


def greeting() -> bytes:
    """A setup without any request."""
    return Replicator(role=Role.PROACTIVE, family=YAMF).data_to_send()


class Hostile:
    """A client that sends what it likes, and reads only on request."""

    def __init__(self, port: int, window: int = 1 << 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(60)
        self.machine = Connection(
            role=Role.PROACTIVE, limits=Limits(data_window_max=window), in_runs=False
        )
        self.say()
        while not self.machine.proposal_credit:
            self.listen()

    def __enter__(self) -> Hostile:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self) -> None:
        self.socket.sendall(self.machine.data_to_send())

    def listen(self) -> list[Event]:
        """Read once; the events."""
        self.machine.receive_data(self.socket.recv(1 << 16))
        return list(iter(self.machine.next_event, None))

    def ask(self, count: int, last: int) -> None:
        """`count` requests for the log up to `last`, as far as there is credit."""
        for _ in range(min(count, self.machine.proposal_credit)):
            self.machine.propose(
                Proposal(
                    log=LOG,
                    start=1,
                    lower_certpool=1,
                    expected_hash=None,
                    end=last,
                    upper_certpool=last,
                )
            )
        self.say()


@pytest.mark.costly
@pytest.mark.parametrize("says", ["nothing", "hello"])
@pytest.mark.parametrize("option", ["--clients-max", "--address-max"])
def test_idle_connections_lock_nobody_out(
    tmp_path: Path, published: Path, option: str, says: str
) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(published, option, 4))
        for _ in range(12):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            idle.sendall(greeting() if says == "hello" else b"")
        done = fetch(tmp_path / "store", port, tmp_path / "copy")
        assert done.status == 0, done.errors


def test_who_asks_nothing_has_to_go(published: Path) -> None:
    with (
        serving(published, "--idle", "0.3") as port,
        socket.create_connection(("127.0.0.1", port)) as idle,
    ):
        idle.settimeout(SECONDS_MAX)
        idle.sendall(greeting())
        while idle.recv(1 << 16):  # its setup, its proposals, its goodbye
            pass


def test_who_asks_and_takes_nothing_has_to_go(published: Path) -> None:
    """It reads the control channel, but gives no credit for data."""
    with serving(published, "--idle", "0.3") as port, Hostile(port, window=0) as hostile:
        hostile.ask(1, last=COUNT)
        while hostile.socket.recv(1 << 16):
            pass


@pytest.mark.costly
@pytest.mark.parametrize("window", [0, 1 << 30])
def test_those_that_ask_and_take_nothing_lock_nobody_out(
    tmp_path: Path, heavy: Path, window: int
) -> None:
    """Whether they give no credit, or do not read; however recently they have come."""
    with serving(heavy, "--clients-max", 4) as port, ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(Hostile(port, window)).ask(1, last=24)
        assert fetch(tmp_path / "store", port).status == 0


@pytest.mark.costly
@pytest.mark.parametrize("has", ["nothing", "another log", "all"])
def test_who_follows_may_stay(tmp_path: Path, has: str) -> None:
    """Even if there is nothing to follow yet."""
    served, source = tmp_path / "served", tmp_path / "source"
    make_tree(source, {"file": b"first\n"})
    if has == "all":
        assert run("publish", source, "--store", served).status == 0
    with SqliteStore(served, family=YAMF) as store:
        if has == "another log":
            store.append(LOG, [LogAuthor(KEY, family=YAMF).publish(payload(1))])
    with (
        serving(served, "--idle", "0.2") as port,
        ExitStack() as stack,
    ):
        options = ["--log", f"{bytes(32).hex()}/7"] if has == "another log" else []
        live = stack.enter_context(following(tmp_path / "store", port, None, *options))
        if has == "all":
            live.reach(1)
        time.sleep(2)
        assert live.process.poll() is None
        if has == "another log":
            return
        make_tree(source, {"more": b"second\n"})
        assert run("publish", source, "--store", served, "--unpacked").status == 0
        with SqliteStore(served, family=YAMF) as store:
            head = store.head(store.logs()[0])
        assert head is not None
        assert live.reach(head.seqnum)["head"] == head.seqnum
        assert live.end().status == 0


def test_clients_that_ask_for_all_and_read_nothing_hold_little(tmp_path: Path, heavy: Path) -> None:
    """Each has its share, however many requests it opens; others are served meanwhile."""
    with server_process(heavy) as (port, process), ExitStack() as stack:
        assert fetch(tmp_path / "first", port).status == 0
        before = peak_of(process)
        for _ in range(4):
            stack.enter_context(Hostile(port)).ask(250, last=24)
        time.sleep(1)
        assert fetch(tmp_path / "second", port).status == 0
        assert peak_of(process) - before < 4 * SHARE
        assert peak_of(process) < 64 * MIB


def test_64_idle_connections_and_hungry_ones_are_in_nobodys_way(
    tmp_path: Path, published: Path
) -> None:
    with serving(published, "--address-max", 64) as port, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(Hostile(port)).ask(250, last=COUNT)
        for _ in range(64):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        done = fetch(tmp_path / "store", port, tmp_path / "copy")
        assert done.status == 0, done.errors


def test_a_server_stops_whatever_its_clients_send(published: Path) -> None:
    """`serving` waits for it; some of them take nothing, some send nonsense."""
    with ExitStack() as stack:
        port = stack.enter_context(serving(published))
        for data in (b"", greeting(), bytes(1 << 16), b"\xff" * (1 << 16)):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(data)
        time.sleep(0.2)
        begun = time.monotonic()
        stack.pop_all().close()
        assert time.monotonic() - begun < SECONDS_MAX


@pytest.mark.costly
@pytest.mark.parametrize("bomb", BOMBS, ids=["bomb", "switch and bomb"])
@pytest.mark.parametrize("cancels", ["before", "after", "never"])
def test_a_server_stops_while_it_is_sent_payloads_without_end(
    published: Path, bomb: bytes, cancels: str
) -> None:
    """A compressed packet of a few bytes that declares 2**64 - 1."""
    with ExitStack() as stack:
        client = Hostile(stack.enter_context(serving(published)))
        stack.enter_context(client.socket)
        with SqliteStore(published, family=YAMF) as store:
            links = store.hashes(LOG, [lipmaa(COUNT + 1), COUNT])
        offer = Proposal(
            log=LOG,
            start=COUNT + 1,
            lower_certpool=COUNT + 1,
            expected_hash=links[lipmaa(COUNT + 1)],
        )
        request = client.machine.propose(offer, links=links)
        client.say()
        while request.unanswered:
            client.listen()
        last = sign(
            KEY,
            family=YAMF,
            log_id=LOG.log_id,
            seqnum=COUNT + 1,
            backlink=links[COUNT],
            lipmaalink=None if lipmaa(COUNT + 1) == COUNT else links[lipmaa(COUNT + 1)],
            payload_size=(1 << 64) - 1,
            payload_hash=YAMF.hash(b""),
        )
        request.send_metadata(last)
        if cancels == "before":
            request.cancel(CancelReason.DO_NOT_RETRY)
        client.socket.sendall(client.machine.data_to_send() + bomb)
        if cancels == "after":
            request.cancel(CancelReason.DO_NOT_RETRY)
            client.say()
        time.sleep(0.3)
        begun = time.monotonic()
        stack.pop_all().close()  # SIGTERM, and a wait for its end
        assert time.monotonic() - begun < SECONDS_MAX


@pytest.mark.parametrize("clients_max", [1, 4, 64, 1000])
@pytest.mark.parametrize("memory_max", [16 * MIB, 256 * MIB])
def test_clients_share_what_there_is(memory_max: int, clients_max: int) -> None:
    limits = Bounds(clients_max=clients_max, memory_max=memory_max).limits()
    connection = limits.connection
    worst = (
        limits.read_ahead_size_max
        + limits.unwritten_size_max
        + limits.batch_size_max
        + connection.data_window_max
        + connection.unsent_size_max
        + 2 * connection.packet_size_max
        + 2 * connection.compression_window_max
        + connection.requests_max * 2048
    )
    assert worst <= max(memory_max // clients_max, 1 << 16)
