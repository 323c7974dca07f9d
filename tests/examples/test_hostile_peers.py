"""Misbehaving peers, against the fetch process.

Each ends with the code of its fault, and with a store in which everything verifies.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey
from processes import SECONDS_MAX, Done, Throttle, fetch, saying, server, wait_until, whole_entries
from trees import MTIME, contents

from culm.bamboo import LogAuthor, LogKey, LogStore, MemoryStore, NewEntry, StoredEntry
from culm.bamboo.entry import Entry
from culm.machine import Effect, Event
from culm.point2point import (
    NOTIFY,
    Connection,
    CreditReceived,
    Proposal,
    Proposed,
    Role,
    Setup,
    State,
)
from culm.point2point.messages import Demand, Eagerness
from culm.point2point.replication import Interest, Replicator
from culm.wire.multihash import YAMF
from culm_io.asyncio.driver import MachineProtocol
from culm_io.programs.directory.fetch import Fetched, Fetcher, Terms
from culm_io.programs.directory.records import PAYLOAD_SIZE_MAX, File, Removed, encode
from culm_io.programs.directory.thread import StoreThread
from culm_io.stores.bamboo import SqliteStore

KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(KEY.verify_key), 0)
COUNT = 12
_RANDOM = Random(1)
CONTENTS = [_RANDOM.randbytes(100_000 if n == 6 else 1_000 * n) for n in range(COUNT)]


def payload(number: int) -> bytes:
    return encode(File(b"file%d" % number, 0o644, MTIME, 0, 1), CONTENTS[number])


def authored(payloads: Iterable[bytes | NewEntry]) -> MemoryStore:
    store, author = MemoryStore(family=YAMF), LogAuthor(KEY, family=YAMF)
    for each in payloads:
        new = author.publish(each) if isinstance(each, bytes) else each
        store.append(LOG, [new])
    return store


@pytest.fixture
def store() -> MemoryStore:
    return authored(map(payload, range(COUNT)))


class LyingStore:
    """Gives out one entry in altered form."""

    perform = LogStore.perform  # by the methods below

    def __init__(
        self,
        store: LogStore,
        seqnum: int,
        *,
        entry: Callable[[bytes], bytes] = lambda encoded: encoded,
        payload: Callable[[bytes], bytes] = lambda data: data,
    ) -> None:
        self._store = store
        self._seqnum = seqnum
        self._entry = entry
        self._payload = payload

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def entries(self, *args: Any, **kwargs: Any) -> list[StoredEntry]:
        return [
            kept._replace(
                encoded=self._entry(kept.encoded),
                payload=None if kept.payload is None else self._payload(kept.payload),
            )
            if kept.seqnum == self._seqnum
            else kept
            for kept in self._store.entries(*args, **kwargs)
        ]

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        data = self._store.read_payload(log, seqnum, offset, size)
        return self._payload(data) if seqnum == self._seqnum else data


def serving(store: Any) -> Callable[[], asyncio.BaseProtocol]:
    """Well-behaved peers, except for the contents of their store."""

    def connected() -> asyncio.BaseProtocol:
        replicator = Replicator(
            role=Role.REACTIVE,
            setup=Setup(send_window_max=0),
            interest=Interest(live=True, accept_new_logs=False),
        )

        def answer(effect: Effect) -> object:
            return store.perform(effect)

        return MachineProtocol(replicator, perform=answer)

    return connected


def flipped(at: int) -> Callable[[bytes], bytes]:
    """One bit of the byte at that index is flipped."""

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return flip


def fetch_from(port: int, folder: Path, *options: object, silence_s: float = 60) -> Done:
    """Fetch in vain; `silence_s` is short where silence ends it."""
    options += ("--timeout", silence_s)
    done = fetch(folder / "store", port, folder / "target", *options)
    assert done.status == 1
    assert len(done.errors.splitlines()) == 1
    assert done.summary["code"] in done.errors
    assert not (folder / "target").exists()
    return done


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "MUX_VIOLATION"),
        (b"\xff" * 1000, "MUX_VIOLATION"),
        (Random(3).randbytes(5000), "MUX_VIOLATION"),
        # Setup, then packets: of an unknown type, ...
        (b"\0\0\0" + b"\xc0\0", "MUX_VIOLATION"),
        # ... data of 2**62 bytes without any credit from us, ...
        (b"\0\0\0" + b"\x23\x01\x40\0\0\0\0\0\0\0", "MUX_VIOLATION"),
        # ... a meaningless byte on the control channel.
        (b"\0\0\0" + b"\x20\0\1\x9f", "UNUSED_CONTROL_BYTE"),
    ],
)
@pytest.mark.costly
def test_garbage(tmp_path: Path, data: bytes, code: str) -> None:
    with saying(data) as port:
        done = fetch_from(port, tmp_path)
    assert done.summary["code"] == code
    assert whole_entries(tmp_path / "store") == 0


@pytest.mark.costly
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", b"\0\0\0\x20\0\5"])
def test_silence(tmp_path: Path, data: bytes) -> None:
    with saying(data) as port:
        done = fetch_from(port, tmp_path, silence_s=0.6)
    assert done.summary["code"] in {"PEER_SILENT", "NO_LOG"}
    assert done.summary["seconds"] < SECONDS_MAX


@pytest.mark.costly
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0", b"\0\0\0\x20\0\5"])
def test_an_end_before_it_is_time(tmp_path: Path, data: bytes) -> None:
    with saying(data, then_close=True) as port:
        done = fetch_from(port, tmp_path)
    assert done.summary["code"] == "UNEXPECTED_EOF"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("size", "then_close", "entries"),
    [
        # The received part of a packet that is cut short is taken at the end of the stream.
        *((2_000, False, 0), (2_000, True, 2)),
        *((60_000, False, 6), (60_000, True, 6)),
        *((110_000, False, 6), (110_000, True, 6)),
    ],
)
def test_silence_or_an_end_in_the_middle_of_an_entry(
    tmp_path: Path, store: MemoryStore, size: int, then_close: bool, entries: int
) -> None:
    with server(serving(store)) as port:
        with Throttle(port, size, then_close=then_close) as slow_port:
            # Bytes before the silence have to come in time.
            done = fetch_from(slow_port, tmp_path, silence_s=60 if then_close else 4)
        assert done.summary["code"] == ("UNEXPECTED_EOF" if then_close else "PEER_SILENT")
        # Everything received is there.
        assert whole_entries(tmp_path / "store") == done.summary["entries"] == entries
        rest = fetch(tmp_path / "store", port)
    assert (rest.status, rest.summary["entries"]) == (0, COUNT - entries)


@pytest.mark.costly
@pytest.mark.parametrize("seqnum", [1, COUNT])
@pytest.mark.parametrize("field", ["signature", "payload hash"])
def test_an_entry_that_its_author_did_not_sign(
    tmp_path: Path, store: MemoryStore, seqnum: int, field: str
) -> None:
    change = {"signature": -1, "payload hash": -65}[field]
    with server(serving(LyingStore(store, seqnum, entry=flipped(change)))) as port:
        done = fetch_from(port, tmp_path)
    assert done.summary["code"] == "INVALID_DATA"
    assert whole_entries(tmp_path / "store") == done.summary["entries"] == seqnum - 1


@pytest.mark.parametrize("seqnum", [3, 7, COUNT])
def test_a_payload_that_is_another(tmp_path: Path, store: MemoryStore, seqnum: int) -> None:
    with server(serving(LyingStore(store, seqnum, payload=flipped(50)))) as port:
        done = fetch_from(port, tmp_path)
    assert done.summary["code"] == "INVALID_DATA"
    assert whole_entries(tmp_path / "store") == seqnum - 1


@pytest.mark.parametrize("ends", ["well", "in the middle"])
def test_a_large_payload_that_is_another(tmp_path: Path, ends: str) -> None:
    """Large ones are stored while they come: a wrong one must not stay in the way."""
    data = encode(File(b"big", 0o644, MTIME, 0, 1), Random(5).randbytes(1_000_000))
    store = authored([payload(1), data, payload(2)])
    with server(serving(LyingStore(store, 2, payload=flipped(50)))) as port:
        if ends == "well":
            done = fetch_from(port, tmp_path)
            assert done.summary["code"] == "INVALID_DATA"
        else:
            with Throttle(port, 700_000, then_close=True) as slow_port:
                done = fetch_from(slow_port, tmp_path)
            assert done.summary["code"] == "UNEXPECTED_EOF"
    assert whole_entries(tmp_path / "store") == 1
    # From an honest peer all of it comes.
    with server(serving(store)) as port:
        good = fetch(tmp_path / "store", port, tmp_path / "target")
    assert (good.status, good.errors) == (0, "")
    assert whole_entries(tmp_path / "store") == 3
    assert (tmp_path / "target" / "big").stat().st_size == 1_000_000


class Endless(LyingStore):
    """Has endlessly many bytes of the payload."""

    def entries(self, *args: Any, **kwargs: Any) -> list[StoredEntry]:
        return [
            kept._replace(payload_stored=kept.payload_size, payload_complete=True)
            for kept in super().entries(*args, **kwargs)
        ]

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        return bytes(size)


@pytest.mark.costly
@pytest.mark.parametrize("size", [PAYLOAD_SIZE_MAX + 1, 1 << 60, (1 << 64) - 1])
@pytest.mark.parametrize("options", [(), ("--max-payload", (1 << 64) - 1)])
def test_a_payload_larger_than_any_record(
    tmp_path: Path, size: int, options: tuple[object, ...]
) -> None:
    author = LogAuthor(KEY, family=YAMF)
    first = author.publish(payload(1))
    huge = author.publish(payload_size=size, payload_hash=YAMF.hash(b""))
    store = authored([first, NewEntry(huge.entry)])
    with server(serving(Endless(store, 2))) as port:
        for _ in range(2):  # the entry in the store is no better
            done = fetch_from(port, tmp_path, *options)
            assert done.summary["code"] == "PAYLOAD_TOO_LARGE"
            assert done.summary["wire_bytes"] < 1 << 16  # none of it was requested
    assert whole_entries(tmp_path / "store") == 1
    assert (tmp_path / "store").stat().st_size < 8 << 20


def test_a_payload_that_comes_although_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer, which is in this process, ignores the limits in requests."""
    for asked in (Demand, Eagerness):
        monkeypatch.setattr(asked, "wants_payload", lambda *_: True)
    monkeypatch.setattr(Demand, "admits_payload", lambda *_: True)
    huge = LogAuthor(KEY, family=YAMF).publish(
        payload_size=(1 << 64) - 1, payload_hash=YAMF.hash(b"")
    )

    def send(machine: Connection, event: Event) -> None:
        if isinstance(event, CreditReceived) and not machine.requests:
            offer(machine, huge.entry)
        if isinstance(event, Proposed):
            request = machine.request(event.request_id)
            request.confirm(NOTIFY)
            request.send_metadata(huge.entry)
            request.send_payload(bytes(1 << 16))

    with server(answering(send)) as port:
        done = fetch_from(port, tmp_path)
    assert done.summary["code"] == "UNWANTED_PAYLOAD"
    assert whole_entries(tmp_path / "store") == 0


def answering(
    answer: Callable[[Connection, Event], object],
) -> Callable[[], asyncio.BaseProtocol]:
    """Peers that answer each event as they like."""

    def connected() -> asyncio.BaseProtocol:
        machine = Connection(role=Role.REACTIVE, trust_caller=True)
        return MachineProtocol(machine, on_event=lambda event: answer(machine, event))

    return connected


def offer(machine: Connection, first: Entry) -> None:
    """Announce a log of one entry."""
    log, links = LogKey(first.author, first.log_id), {1: first.hash()}
    machine.propose(
        Proposal(log=log, start=2, lower_certpool=2, expected_hash=links[1]), links=links
    )


@pytest.mark.costly
@pytest.mark.parametrize("says", ["nothing", "confirms"])
def test_a_peer_that_lives_and_does_not_go_on(tmp_path: Path, says: str) -> None:
    """It answers keepalives, and does nothing else."""

    def answer(machine: Connection, event: Event) -> None:
        if isinstance(event, CreditReceived) and not machine.requests:
            offer(machine, LogAuthor(KEY, family=YAMF).publish(b"first").entry)
        if isinstance(event, Proposed) and says == "confirms":
            machine.request(event.request_id).confirm(NOTIFY)

    with server(answering(answer)) as port:
        done = fetch_from(port, tmp_path, silence_s=3)  # in which it has to say something
    assert done.summary["code"] in {"PEER_STALLED", "INCOMPLETE"}
    assert done.summary["seconds"] < SECONDS_MAX


def test_a_log_that_would_fill_the_disk(tmp_path: Path) -> None:
    data = [encode(File(b"%d" % n, 0o644, MTIME, 0, 1), bytes(1 << 20)) for n in range(30)]
    with server(serving(authored(data))) as port:
        done = fetch_from(port, tmp_path, "--max-size", "2")
        assert done.summary["code"] == "TOO_MUCH"
        assert "--max-size" in done.summary["error"]
        assert whole_entries(tmp_path / "store") <= 2 + 8  # those, and the bytes on their way
        rest = fetch(tmp_path / "store", port)
    assert rest.status == 0
    assert whole_entries(tmp_path / "store") == 30


@pytest.mark.costly
@pytest.mark.parametrize(
    "path", [b"../evil", b"/tmp/evil", b"a/../../evil", b".replicate-staging/evil"]
)
def test_a_path_that_leads_out(tmp_path: Path, path: bytes) -> None:
    evil = encode(Removed(b"x" * len(path))).replace(b"x" * len(path), path)
    with server(serving(authored([payload(1), evil]))) as port:
        done = fetch_from(port, tmp_path)
    assert done.summary["code"] == "BAD_RECORD"
    assert "entry 2" in done.summary["error"]
    assert whole_entries(tmp_path / "store") == 2


def test_a_fork(tmp_path: Path, store: MemoryStore) -> None:
    """The author has told us and the peer different things."""
    other = authored([payload(0), b"other", *(payload(n % COUNT) for n in range(2, COUNT + 5))])
    with server(serving(store)) as port:
        assert fetch(tmp_path / "store", port).status == 0
    with server(serving(other)) as port:
        done = fetch(tmp_path / "store", port, tmp_path / "target")
    assert (done.status, done.summary["code"]) == (1, "FORK")
    assert not (tmp_path / "target").exists()
    with SqliteStore(tmp_path / "store", family=YAMF, must_exist=True) as kept:
        proof = kept.fork(LOG)
        assert proof is not None
        assert proof.verify()
        assert 2 <= proof.seqnum <= COUNT
    assert whole_entries(tmp_path / "store") == proof.seqnum - 1


def test_a_peer_without_logs(tmp_path: Path) -> None:
    with server(serving(MemoryStore(family=YAMF))) as port:
        done = fetch_from(port, tmp_path, silence_s=4)
    assert done.summary["code"] == "NO_LOG"


def test_nobody_at_all(tmp_path: Path) -> None:
    with socket.socket() as taken:  # so that no other process listens there meanwhile
        taken.bind(("127.0.0.1", 0))
        done = fetch_from(taken.getsockname()[1], tmp_path)
    assert done.summary["code"] == "CONNECTION_FAILED"


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(5))
def test_one_byte_of_what_a_peer_says_is_another(
    tmp_path: Path, store: MemoryStore, seed: int
) -> None:
    """In any place: nothing is stored that does not verify, or is not the log's."""
    at = Random(seed).randrange(164_000)
    with server(serving(store)) as port:
        with Throttle(port, flip=at) as bad_port:
            done = fetch(tmp_path / "store", bad_port, None, "--timeout", "0.6")
        entries = whole_entries(tmp_path / "store")
        assert done.status == 1 or entries == COUNT
        with SqliteStore(tmp_path / "store", family=YAMF, must_exist=True) as kept:
            for entry in kept.entries(LOG):
                original = store.entry(LOG, entry.seqnum)
                assert original is not None
                assert entry.encoded == original.encoded
        rest = fetch(tmp_path / "store", port, tmp_path / "target")
    assert rest.status == 0
    assert whole_entries(tmp_path / "store") == COUNT


def test_honest_peers_are_served(tmp_path: Path, store: MemoryStore) -> None:
    """The peers of these tests behave well where they do not lie."""
    with server(serving(store)) as port:
        done = fetch(tmp_path / "store", port, tmp_path / "target")
    assert (done.status, done.summary["entries"]) == (0, COUNT)
    assert contents(tmp_path / "target") == {f"file{n}": CONTENTS[n] for n in range(COUNT)}


class LyingOfOneLog(LyingStore):
    """Gives out an entry of one of its logs in altered form."""

    def entries(self, log: LogKey, *args: Any, **kwargs: Any) -> list[StoredEntry]:
        if log == LOG:
            return super().entries(log, *args, **kwargs)
        found: list[StoredEntry] = self._store.entries(log, *args, **kwargs)
        return found


@pytest.mark.once
@pytest.mark.parametrize("seqnum", [1, COUNT])
def test_a_log_that_does_not_verify_keeps_no_other_one_away(
    tmp_path: Path, store: MemoryStore, seqnum: int
) -> None:
    """By the protocol it ends the connection: the other logs come over another one."""
    others = [LogAuthor(SigningKey(bytes([n]) * 32), family=YAMF) for n in range(1, 6)]
    for author in others:
        store.append(author.log, [author.publish(payload(number)) for number in range(COUNT)])
    lying = LyingOfOneLog(store, seqnum, payload=lambda data: data[:-1] + b"\0")
    with server(serving(lying)) as port:
        done = fetch(tmp_path / "fetched.store", port, None, "--settle", "1.5")
    assert (done.status, done.summary["code"]) == (1, "INVALID_DATA")
    whole_entries(tmp_path / "fetched.store")
    with SqliteStore(tmp_path / "fetched.store", family=YAMF) as fetched:
        heads = {log: head.seqnum for log in fetched.logs() if (head := fetched.head(log))}
    assert heads.pop(LOG, 0) == seqnum - 1
    assert heads == dict.fromkeys((author.log for author in others), COUNT)


class Slow(MemoryStore):
    """Something else happens before anything is stored."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        self.meanwhile()
        super().append(log, entries)


class Leaver:
    """A peer that sends `first`; on request it offers `late` and leaves."""

    def __init__(self, first: Entry, late: Entry) -> None:
        self._first, self._late = first, late
        self._loop = asyncio.get_running_loop()
        self._has_offered = False
        self.machine = Connection(role=Role.REACTIVE, trust_caller=True)
        self.protocol = MachineProtocol(self.machine, on_event=self._take)

    def _take(self, event: Event) -> None:
        if isinstance(event, CreditReceived) and not self._has_offered:
            self._has_offered = True
            offer(self.machine, self._first)
        if isinstance(event, Proposed):
            request = self.machine.request(event.request_id)
            request.confirm(NOTIFY)
            request.send_metadata(self._first)
            request.send_payload(bytes(self._first.payload_size))

    def leave(self) -> None:
        """From another thread."""
        self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        offered = self.protocol.pump.bytes_sent + len(self._late.encode()) // 2
        self.protocol.call(offer, self.machine, self._late)
        self._end_after(offered)

    def _end_after(self, offered: int) -> None:
        """End our half once the offer has left: it may have to wait for credit."""
        if self.protocol.pump.bytes_sent < offered:
            self._loop.call_soon(self._end_after, offered)
            return
        transport = self.protocol.transport
        assert isinstance(transport, asyncio.Transport)
        # a reset, as after closing with unread bytes, could overtake the offer
        transport.write_eof()


@pytest.mark.parametrize("left_out", [[], [LogKey(bytes(32), 0)]])
def test_who_has_left_is_asked_for_nothing(left_out: list[LogKey]) -> None:
    """Offers are reported after everything stored before them, and then nothing is requested."""
    sound, late = (LogAuthor(SigningKey(bytes([n] * 32)), family=YAMF) for n in (1, 2))
    first, begun, kept = sound.publish(bytes(9)), late.publish(b"1"), late.publish(b"2")
    store = Slow(family=YAMF)
    store.append(late.log, [begun._replace(payload=None), kept])
    peers: list[Leaver] = []

    def connected() -> MachineProtocol:
        peers.append(Leaver(first.entry, begun.entry))
        return peers[-1].protocol

    async def main(port: int) -> Fetched:
        terms = Terms(wanted=None, idle_timeout_s=60.0, settle_s=60.0)
        fetched, interest = Fetched(), terms.interest(live=False)
        with StoreThread(store) as thread:
            fetcher = Fetcher(thread, terms, fetched, interest, left_out=left_out)
            connection = fetcher.replicator.connection

            def meanwhile() -> None:
                peers[0].leave()
                wait_until(lambda: connection.state is State.CLOSED)

            store.meanwhile = meanwhile
            await fetcher.run("127.0.0.1", port)
        return fetched

    with server(connected) as port:
        fetched = asyncio.run(main(port))
    assert fetched.offered == dict.fromkeys([sound.log, late.log], 1)
    assert fetched.failure is not None
    assert fetched.failure.code == "UNEXPECTED_EOF"
