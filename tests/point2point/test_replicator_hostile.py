"""A peer that lies, sends rubbish, or too much: it gets nowhere, and none of it is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from p2p_snapshots import request_as_it_is
from p2p_support import (
    GREEDY,
    adjust,
    cancel,
    marker,
    metadata,
    propose,
    raw,
    switch,
    varu64,
    write,
)
from replicator_raw import RawPeer
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    World,
    check_store,
    key_of,
    news_of,
    same,
    store_of,
)

from culm.bamboo.effects import AppendEntries, ReadEntries, WritePayload
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import NewEntry
from culm.bamboo.store import MemoryStore
from culm.machines.memory import retained_size
from culm.point2point import NOTIFY, CancelReason, ErrorCode, Limits, State
from culm.point2point.replication import (
    EntryStored,
    ForkFound,
    Interest,
    LogEnded,
    LogRefused,
    LogSynced,
    PiecesNotified,
    ReplicatorLimits,
    Want,
)
from culm.wire.multihash import YAMF

SIZES = (5, 100, 3, 9, 700, 5, 5)
NEWS = news_of(SIZES)
OTHER = news_of(SIZES, branch=b"other", fork_at=3)
LOG = key_of(NEWS)
MAX = 2**64 - 1


def offering(news: tuple[NewEntry, ...] = NEWS, **options: Any) -> RawPeer:
    """A replicator without the log; the peer offers it, and is asked for it."""
    peer = RawPeer(**options)
    peer.control(propose(0, len(news) + 1, log=key_of(news), hash=bytes([0, 64]) + bytes(64)))
    peer.control(adjust(1, "all"))
    peer.data(switch(1))
    assert peer.code is None
    return peer


def stored(peer: RawPeer) -> list[int]:
    return [kept.seqnum for kept in peer.store.entries(LOG)]


def flipped(packet: bytes, at: int = -1) -> bytes:
    changed = bytearray(packet)
    changed[at] ^= 1
    return bytes(changed)


# Its data


class TestData:
    def test_the_honest_one(self) -> None:
        peer = offering()
        peer.entries(1, *NEWS)
        assert stored(peer) == list(range(1, 8))
        assert peer.of(LogSynced)
        assert peer.code is None

    @pytest.mark.parametrize("good", [0, 1, 4])
    @pytest.mark.parametrize("at", [1, 5, 40, -1])
    @pytest.mark.parametrize("greedy", [False, True])
    def test_bad_metadata(self, good: int, at: int, greedy: bool) -> None:
        mode: dict[str, Any] = {"setup": GREEDY, "peer": GREEDY} if greedy else {}
        peer = offering(**mode)
        peer.entries(1, *NEWS[:good])
        peer.data(flipped(metadata(NEWS[good].entry, backlink=False), at), raw(b"x"), b"\x02")
        # Not a hash of the family, unsigned, or an apology that does not come.
        assert peer.code in (
            ErrorCode.INVALID_DATA,
            ErrorCode.BAD_HASH,
            ErrorCode.APOLOGY_OWED,
            ErrorCode.NON_CANONICAL,
        )
        assert stored(peer) == list(range(1, good + 1))
        peer.check()

    @pytest.mark.parametrize("number", [2, 5])
    @pytest.mark.parametrize("greedy", [False, True])
    def test_a_wrong_payload(self, number: int, greedy: bool) -> None:
        """One that comes in one piece, and one that is staged."""
        mode: dict[str, Any] = {"setup": GREEDY, "peer": GREEDY} if greedy else {}
        peer = offering(**mode)
        peer.entries(1, *NEWS[: number - 1])
        new = NEWS[number - 1]
        assert new.payload is not None
        packets = metadata(new.entry, backlink=False), raw(flipped(new.payload))
        peer.data(*packets, metadata(NEWS[number].entry, backlink=False))
        assert peer.code is (ErrorCode.APOLOGY_OWED if greedy else ErrorCode.INVALID_DATA)
        assert not any(e.payload_stored for e in peer.of(EntryStored) if e.seqnum == number)
        kept = peer.store.entry(LOG, number)
        assert kept is None or not kept.payload_complete
        # The next connection does not continue the part written of it.
        assert kept is None or not kept.payload_stored or not greedy
        peer.check()

    @pytest.mark.parametrize("number", [2, 5])
    @pytest.mark.parametrize("lost", [False, True])
    def test_a_wrong_payload_is_had_from_another_peer(self, number: int, lost: bool) -> None:
        """Whatever came before: a healthy connection brings everything, and truthfully reports it.

        `lost`: that connection breaks before any of the payload has come.
        """
        peer = offering()
        peer.entries(1, *NEWS[: number - 1])
        new = NEWS[number - 1]
        assert new.payload is not None
        peer.data(metadata(new.entry, backlink=False), raw(flipped(new.payload)))
        assert peer.code is ErrorCode.INVALID_DATA
        for steps in [8, None] if lost else [None]:
            world = World(capacity=400)
            server, reader = world.node(store_of(NEWS), interest=SERVE), world.node(peer.store)
            world.connect(server, reader)
            world.run(steps)
        assert same(server, reader)
        check_store(peer.store)

    def test_a_wrong_payload_that_is_taken_back(self) -> None:
        peer = offering(setup=GREEDY, peer=GREEDY)
        peer.entries(1, *NEWS[:4])
        new = NEWS[4]
        assert new.payload is not None
        peer.data(metadata(new.entry, backlink=False), raw(flipped(new.payload, 300)))
        peer.data(b"\x10", raw(new.payload))
        assert peer.code is None
        kept = peer.store.entry(LOG, 5)
        assert kept is not None
        assert kept.payload_complete
        peer.check()

    @pytest.mark.parametrize(
        ("packet", "code"),
        [
            (b"\x04", ErrorCode.SKIP_DISPROVED),
            (b"\x05", ErrorCode.SKIP_DISPROVED),
            (b"\x06", ErrorCode.PAYLOAD_MANDATORY),
            (b"\x02", ErrorCode.EAGERNESS_VIOLATED),
            (b"\x03\x09", ErrorCode.EAGERNESS_VIOLATED),
            (b"\x03" + varu64(MAX), ErrorCode.EAGERNESS_VIOLATED),
            (b"\x07\x01", ErrorCode.CATCH_UP_ONLY),
            (b"\x10", ErrorCode.APOLOGY_IN_SAFE_MODE),
            (b"\x08" + varu64(MAX), ErrorCode.PAYLOAD_SIZE_EXCEEDED),
            (b"\x09" + varu64(6) + varu64(MAX) + bytes(99), ErrorCode.PAYLOAD_SIZE_EXCEEDED),
        ],
    )
    def test_lies_about_payloads(self, packet: bytes, code: ErrorCode) -> None:
        want = Want(payload_mandatory=True)
        peer = offering(interest=replace(KEEP, want=want))
        peer.data(metadata(NEWS[0].entry), packet)
        assert peer.code is code
        peer.check()

    def test_what_is_said_to_be_missing_is_stored_without(self) -> None:
        peer = offering()
        for new in NEWS:
            peer.data(metadata(new.entry, backlink=False), b"\x06")
        assert stored(peer) == list(range(1, 8))
        assert not any(kept.payload_stored for kept in peer.store.entries(LOG))
        assert peer.of(LogSynced)
        assert peer.code is None

    def test_a_payload_whose_metadata_was_only_notified(self) -> None:
        peer = offering(interest=replace(KEEP, want=Want(eagerness=NOTIFY)))
        peer.data(b"\x02", raw(b"12345"))
        assert peer.code is ErrorCode.UNKNOWN_PAYLOAD_SIZE
        assert not peer.store.logs()

    def test_entries_after_the_end(self) -> None:
        news = news_of((1, 2, 3), ended=True)
        beyond = news_of((1, 2, 3, 4))
        peer = offering(news)
        peer.entries(1, *news)
        peer.data(metadata(beyond[3].entry, backlink=False))
        assert peer.code is ErrorCode.AFTER_END_OF_LOG
        assert [e.seqnum for e in peer.of(LogEnded)] == [3]

    def test_data_that_was_not_asked_for(self) -> None:
        """A mere server confirms with a demand for notifications."""
        peer = RawPeer(NEWS, interest=Interest(live=False))
        peer.control(propose(0, 5, log=LOG, hash=NEWS[3].entry.hash()))
        assert peer.machine.connection.requests[0].send_cursor.piece == (8, 0)
        peer.data(switch(0), metadata(NEWS[4].entry))
        assert peer.code is ErrorCode.EAGERNESS_VIOLATED


# Its reasons to cancel


class TestProofs:
    FORK = ForkProof(NEWS[4].entry, OTHER[4].entry)

    def asked(self, known: int) -> RawPeer:
        """The replicator has some entries, and has proposed the next ones as request 1."""
        peer = RawPeer(NEWS[:known])
        assert peer.machine.connection.requests[1].proposal.start == known + 1
        return peer

    def refused(self, peer: RawPeer, code: ErrorCode) -> None:
        assert peer.code is code
        assert peer.store.fork(LOG) is None
        assert not peer.of(ForkFound)
        assert len(stored(peer)) > 3

    def test_a_real_fork_is_kept(self) -> None:
        peer = self.asked(5)
        peer.control(cancel(1, 135, NEWS[4].entry.encode() + OTHER[4].entry.encode()))
        assert peer.of(ForkFound) == [ForkFound(log=LOG, proof=self.FORK)]
        assert peer.store.fork(LOG) == self.FORK
        assert stored(peer) == [1, 2, 3, 4]
        assert peer.code is None

    @pytest.mark.parametrize(
        "extra",
        [
            NEWS[4].entry.encode() * 2,
            NEWS[4].entry.encode() + NEWS[3].entry.encode(),
            NEWS[4].entry.encode() + flipped(OTHER[4].entry.encode()),
            flipped(NEWS[4].entry.encode(), 60) + OTHER[4].entry.encode(),
            NEWS[4].entry.encode() + news_of(SIZES, seed=2)[4].entry.encode(),
            news_of((1,), seed=2)[0].entry.encode()
            + news_of((1,), seed=2, branch=b"x")[0].entry.encode(),
            b"\x07" + bytes(300),
        ],
    )
    def test_bogus_forks(self, extra: bytes) -> None:
        peer = self.asked(5)
        peer.control(cancel(1, 135, extra))
        self.refused(peer, ErrorCode.BOGUS_PROOF)

    @pytest.mark.parametrize(
        "extra",
        [
            NEWS[3].entry.encode(),  # the same one
            NEWS[4].entry.encode(),
            flipped(OTHER[3].entry.encode()),
            news_of(SIZES, seed=2)[3].entry.encode(),
        ],
    )
    def test_bogus_mismatches(self, extra: bytes) -> None:
        peer = self.asked(7)  # expects entry 4
        peer.control(cancel(1, 133, extra))
        self.refused(peer, ErrorCode.BOGUS_PROOF)

    def test_a_mismatch_proves_a_fork(self) -> None:
        peer = self.asked(7)
        peer.control(cancel(1, 133, OTHER[3].entry.encode()))
        assert [event.proof.seqnum for event in peer.of(ForkFound)] == [4]
        assert stored(peer) == [1, 2, 3]

    @pytest.mark.parametrize("seqnum", [8, MAX])
    def test_a_bogus_end(self, seqnum: int) -> None:
        peer = self.asked(7)
        peer.control(cancel(1, 134, varu64(seqnum)))
        self.refused(peer, ErrorCode.BOGUS_PROOF)

    def test_an_end_that_is_a_lie_is_looked_into_once(self) -> None:
        """It has to be asked for; the entry that comes is not the end, so nothing follows."""
        peer = self.asked(7)
        peer.control(cancel(1, 134, varu64(4)))
        peer.data(marker(1))
        request = peer.machine.connection.requests[3].proposal
        assert (request.start, request.end) == (4, 4)
        peer.control(adjust(3, "notify"))
        peer.data(switch(3), metadata(NEWS[3].entry), b"\x05")
        peer.control(cancel(3, 130))
        peer.data(marker(3))
        assert stored(peer) == list(range(1, 8))
        assert not peer.of(LogEnded)
        assert not peer.of(ForkFound)
        assert peer.code is None
        assert set(peer.machine.connection.requests) <= {5}

    def test_refusing_everything_does_not_make_it_ask_for_ever(self) -> None:
        for reason in (128, 129, 130, 132, 134):
            peer = self.asked(7)
            asked = 0
            for _ in range(200):
                ours = [n for n in peer.machine.connection.requests if n % 2]
                for request_id in ours:
                    asked += 1
                    extra = b""
                    request = peer.machine.connection.requests[request_id]
                    first = request.proposal.first_seqnum
                    if reason == 134 and first > 1:
                        extra = varu64(first - 1)
                    peer.control(
                        cancel(request_id, reason if extra or reason != 134 else 128, extra)
                    )
                    peer.data(marker(request_id))
                if not ours:
                    break
            assert asked <= 10, (reason, asked)
            assert peer.code is None


# Too much of everything


class TestFloods:
    LIMITS = ReplicatorLimits(
        unwritten_size_max=4096,
        batch_size_max=2048,
        batch_count_max=8,
        payload_inline_max=512,
        logs_max=16,
        outstanding_max=32,
        connection=Limits(
            data_window_max=8192,
            packet_size_max=1024,
            requests_max=8,
            compression_window_max=1024,
            dropped_max=8,
        ),
    )
    MEMORY_MAX = 250_000

    def held(self, peer: RawPeer) -> int:
        """The machine's memory, without the events and effects that its user has."""
        return retained_size(peer.machine)

    def test_proposals_without_credit(self) -> None:
        peer = RawPeer(NEWS, limits=self.LIMITS)
        for number in range(9):
            peer.control(propose(2 * number, 1, log=LogKey(bytes([number]) * 32, 0)))
        assert peer.code is None or peer.code is ErrorCode.NO_CREDIT
        for number in range(9, 200):
            if peer.code is None:
                peer.control(propose(2 * number, 1, log=LogKey(bytes([number]) * 32, 0)))
        assert self.held(peer) < self.MEMORY_MAX

    @pytest.mark.costly
    @pytest.mark.parametrize("slow", [False, True])
    @pytest.mark.parametrize("interest", [KEEP, FETCH, SERVE])
    def test_proposals_that_are_cancelled_at_once(self, slow: bool, interest: Interest) -> None:
        """Each returns its credit; even before the store has listed the logs."""
        peer = RawPeer(NEWS, limits=self.LIMITS, slow=slow, interest=interest)
        before = self.held(peer)
        for number in range(1500):
            log = LogKey(number.to_bytes(32, "big"), 0)
            request_id = 2 * (number % 8)
            if request_id in peer.machine.connection.requests or peer.unread:
                break
            peer.control(propose(request_id, 1, log=log), cancel(request_id))
            peer.data(marker(request_id))
            peer.drain()
        assert peer.code is None
        assert self.held(peer) - before < self.MEMORY_MAX
        if slow:
            assert peer.machine.read_size() == 0  # it waits for its store
            peer.slow = False
            peer.drain()
            peer.receive(peer.unread)
            assert peer.machine.read_size() > 0
        assert len(peer.machine.logs) <= 16

    def test_a_log_is_proposed_again_and_again(self) -> None:
        """Served, cancelled, proposed: nothing is left of earlier requests."""
        peer = RawPeer(NEWS, limits=self.LIMITS, interest=SERVE)
        sizes = []
        for _ in range(300):
            peer.control(propose(0, 1, log=LOG, end=(7, 7)))
            peer.control(cancel(0))
            peer.data(marker(0))
            assert 0 not in peer.machine.connection.requests
            sizes.append(self.held(peer))
        assert max(sizes[20:]) - min(sizes[20:]) < 10_000

    def test_adjustments(self) -> None:
        peer = offering(limits=self.LIMITS)
        before = self.held(peer)
        for size in range(5000):
            peer.control(adjust(1, "up to", extra=varu64(size)))
        for size in range(5000):
            peer.control(adjust(1, flags=2, extra=varu64(size)))
        assert peer.code is None
        assert self.held(peer) - before < 50_000

    def test_ends(self) -> None:
        """They cost the request; it is proposed again, and again costs no more than that."""
        peer = offering(limits=self.LIMITS)
        before = self.held(peer)
        for number in range(1000, 700, -1):
            if 1 in peer.machine.connection.requests:
                peer.control(adjust(1, flags=8, extra=varu64(number)))
        peer.control(cancel(1, 131))
        peer.data(marker(1))
        assert peer.code is None
        assert self.held(peer) - before < 50_000
        assert 3 in peer.machine.connection.requests

    @pytest.mark.slow
    def test_notified_entries(self) -> None:
        peer = offering(
            limits=self.LIMITS, interest=replace(KEEP, want=Want(eagerness=NOTIFY)), slow=False
        )
        before = self.held(peer)
        for _ in range(200):
            peer.data(b"\x02" * 500)
        peer.data(b"\x03" + varu64(2**60))
        assert peer.code is None
        assert sum(event.count for event in peer.of(PiecesNotified)) == 100_000 + 2**60
        assert self.held(peer) - before < 50_000
        assert not peer.store.logs()

    @pytest.mark.parametrize("kind", ["small", "large", "mixed"])
    def test_entries_for_a_store_that_does_not_answer(self, kind: str) -> None:
        sizes = {"small": (10,) * 400, "large": (30_000,) * 4, "mixed": (10, 5000) * 40}[kind]
        news = news_of(sizes)
        peer = offering(news, limits=self.LIMITS)
        empty = self.held(peer)
        peer.slow = True
        stream = b"".join(
            metadata(new.entry, backlink=False) + raw(new.payload or b"") for new in news
        )
        sent = 0
        while sent < len(stream) and not peer.unread:
            peer.data(stream[sent : sent + 700])
            sent += 700
            effects = sum(
                len(new.payload or b"") + 500
                for effect in peer.effects
                if isinstance(effect, AppendEntries)
                for new in effect.entries
            ) + sum(len(e.data) for e in peer.effects if isinstance(e, WritePayload))
            limits = self.LIMITS
            allowed = limits.unwritten_size_max + limits.connection.data_window_max
            assert effects < allowed + 10_000
            assert self.held(peer) - empty < 4 * allowed + 50_000
        assert peer.unread, "reading has to stop"
        assert not peer.of(EntryStored)
        # And when the store wakes up, everything goes on.
        peer.slow = False
        for _ in range(20_000):
            peer.drain()
            if peer.unread:
                peer.receive(peer.unread)
            elif sent < len(stream):
                peer.data(stream[sent : sent + 700])
                sent += 700
            else:
                break
        assert [e.seqnum for e in peer.of(EntryStored) if e.payload_stored] == list(
            range(1, len(news) + 1)
        )
        peer.check()

    def test_whoever_takes_nothing_is_not_read_from(self) -> None:
        """Answers pile up: then nothing more is read."""
        peer = RawPeer(NEWS, limits=self.LIMITS, interest=SERVE)
        before = self.held(peer)
        peer.takes = False
        for number in range(20_000):
            request_id = 2 * (number % 4)
            peer.receive(
                write(0, propose(request_id, 1, log=LOG, end=(7, 7)) + cancel(request_id))
                + write(1, marker(request_id))
            )
            if peer.unread or peer.code is not None:
                break
        assert peer.unread
        assert peer.code is None
        assert self.held(peer) - before < 3 * self.MEMORY_MAX
        peer.takes = True
        peer.drain()
        peer.receive(peer.unread)
        assert not peer.unread


def test_the_peer_is_not_blamed_for_a_slow_store() -> None:
    peer = offering(limits=replace(SMALL, unwritten_size_max=1))
    peer.machine.advance(0.0)
    peer.slow = True
    peer.data(metadata(NEWS[0].entry), raw(b"".join([NEWS[0].payload or b""])))
    assert peer.machine.read_size() == 0
    for now in range(1, 1000, 10):
        peer.machine.advance(float(now))
        peer.drain()
    assert peer.machine.state is State.ESTABLISHED
    peer.slow = False
    peer.drain()
    peer.entries(1, *NEWS[1:])
    assert stored(peer) == list(range(1, 8))
    assert peer.code is None


def test_refusals_are_told() -> None:
    peer = RawPeer(NEWS)
    peer.control(cancel(1, 128))
    peer.data(marker(1))
    assert peer.of(LogRefused) == [LogRefused(log=LOG, reason=CancelReason.DO_NOT_RETRY)]


def test_what_was_refused_is_asked_for_again_if_the_user_wants_it() -> None:
    peer = RawPeer(NEWS)
    for request_id in (1, 3):
        before = len(peer.control_seen)
        peer.machine.replicate(LOG)
        peer.drain()
        requests = peer.machine.connection.requests
        assert list(requests) == [request_id]
        assert requests[request_id].proposal.start == len(NEWS) + 1
        peer.control(cancel(request_id, 128))
        peer.data(marker(request_id))
        assert not requests
        assert len(peer.control_seen) > before
    assert len(peer.of(LogRefused)) == 2


# Greedy peers, and corrupted stores


def test_what_the_peer_has_to_take_back_is_not_passed_by_us() -> None:
    """It may have nothing better: then it is up to us to send the piece."""
    peer = RawPeer(NEWS, setup=GREEDY, peer=GREEDY)
    peer.control(cancel(1, 129))
    peer.data(marker(1))
    peer.slow = True
    peer.control(propose(0, 1, log=LOG))
    while not isinstance(peer.effects[0], ReadEntries):
        peer.answer()
        peer.drain()
    seen = len(peer.data_seen)
    peer.data(switch(0), flipped(metadata(NEWS[0].entry)))
    assert request_as_it_is(peer.machine.connection.requests[0]).incoming.apology_owed
    peer.slow = False
    peer.drain()
    assert peer.data_seen[seen:].startswith(switch(0) + metadata(NEWS[0].entry))
    peer.data(b"\x10\x02\x02")  # the apology; and now it has our bytes
    assert peer.code is None


class Spoiled(MemoryStore):
    """Has zeros in place of one payload."""

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        data = super().read_payload(log, seqnum, offset, size)
        return bytes(len(data)) if seqnum == 2 else data


def test_a_payload_that_has_gone_bad_in_the_store_is_taken_back() -> None:
    store = Spoiled(family=YAMF)
    peer = RawPeer(NEWS, interest=SERVE, setup=GREEDY, peer=GREEDY, store=store)
    peer.control(propose(0, 1, log=LOG, end=(4, 4)))
    assert peer.code is None
    rest = peer.data_seen[peer.data_seen.index(NEWS[1].entry.signature) + 64 :]
    packet = raw(bytes(100))
    assert rest.startswith((b"\x09", packet[:3]))
    assert b"\x10\x06" in rest  # an apology; the payload cannot be had
    assert NEWS[3].entry.signature in rest
