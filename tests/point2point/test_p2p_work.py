"""Work follows from the bytes received, not from the numbers in them.

Nothing here looks at the clock: inflated bytes, events and executed lines are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2p_snapshots import request_as_it_is
from p2p_support import (
    Pair,
    Raw,
    adjust,
    metadata,
    proposal,
    propose,
    steps,
    switch,
    varu64,
)

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey, sign
from culm.buffer import Buffer, ReceiveBuffer
from culm.machine import Closed
from culm.machines.memory import retained_size
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    EntriesReceived,
    ErrorCode,
    Limits,
    MetadataReceived,
    PayloadReceived,
    Request,
    channels,
)
from culm.wire.lzfoo import Compressor, Decompressor
from culm.wire.multihash import YAMF

KEY = SigningKey(b"\x09" * 32)
HUGE = 2**64 - 1
MANY = 1 << 27  # more than any test here may inflate


class Counted(Decompressor):
    """A decompressor that counts its output, and stops a test with too much of it."""

    __slots__ = ()
    made = 0

    def decode(self, data: Buffer, offset: int, out_max: int) -> tuple[bytes, int]:
        output, read = super().decode(data, offset, out_max)
        Counted.made += len(output)
        assert Counted.made < MANY, "inflated without end"
        return output, read


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "Decompressor", Counted)
    Counted.made = 0


def compressed(size: int, body: bytes, packed_size: int | None = None) -> bytes:
    """A packet that declares `size` bytes in `body`, or in something longer that begins with it."""
    return b"\x09" + varu64(size) + varu64(packed_size or len(body)) + body


def bomb(size: int) -> bytes:
    """`size` equal bytes: a literal, and a copy of it, as long as wanted."""
    length = (size - 1).to_bytes(8, "big")
    return b"\x01a" + b"\xff" + length + b"\x01"


def first_entry(size: int, payload: bytes = b"") -> Entry:
    """The first entry of a log, signed, which declares any payload that its author likes."""
    honest = sign(KEY, family=YAMF, log_id=0, seqnum=1, payload=payload)
    said = replace(honest, payload_size=size)
    return replace(said, signature=KEY.sign(said.encode()[:-64]).signature)


def fetching(size: int = HUGE, *, payload: bytes = b"", **options: Any) -> tuple[Raw, Request]:
    """A confirmed request, and the metadata of its first entry has come."""
    peer = Raw(**options)
    first = first_entry(size, payload)
    request = peer.connection.propose(proposal(1, log=first.log))
    peer.control(adjust(0, "all"))
    peer.data(switch(0), metadata(first))
    assert isinstance(peer.events[-1], MetadataReceived)
    return peer, request


class TestInflating:
    """Inflated bytes are at most some multiple of the received ones."""

    @pytest.mark.parametrize("in_runs", [False, True])
    def test_a_small_body_that_expands_without_end(self, in_runs: bool) -> None:
        peer, _ = fetching(in_runs=in_runs)
        peer.data(compressed(HUGE, bomb(HUGE)))
        assert peer.code is ErrorCode.INFLATION
        assert Counted.made == 0  # the declared size shows it

    def test_a_body_that_is_declared_to_be_large(self) -> None:
        """The rest of it never comes; its beginning yields no more than allowed."""
        peer, _ = fetching()
        peer.data(compressed(HUGE, bomb(HUGE), HUGE))
        assert peer.code is None
        limits = Limits()
        assert Counted.made <= limits.inflation_burst_max + 12 * limits.inflation_factor_max
        made = Counted.made
        peer.data(bytes(1000))  # waiting bytes may now be read, and no more of the rest
        assert peer.code is None
        assert Counted.made == made + 1000 * limits.inflation_factor_max

    def test_what_waits_is_bounded_too(self) -> None:
        """We do not keep the bytes after a copy that never ends."""
        limits = Limits(inflation_burst_max=1000, inflation_factor_max=2, packet_size_max=500)
        peer, _ = fetching(limits=limits)
        peer.data(compressed(HUGE, bomb(HUGE), HUGE))
        for _ in range(100):
            if peer.code is None:
                peer.data(bytes(100))
        assert peer.code is ErrorCode.INFLATION
        assert Counted.made <= 1000 + 2 * 1000

    @pytest.mark.parametrize("size", [1, 7, 100, 100_000])
    def test_the_verdict_is_the_same_for_every_chunking(self, size: int) -> None:
        limits = Limits(inflation_burst_max=1000, inflation_factor_max=2, packet_size_max=500)
        peer, _ = fetching(3000, payload=b"a" * 3000, limits=limits)
        packet = compressed(3000, bytes(900) + bomb(3000) + bytes(700))
        for at in range(0, len(packet), size):
            peer.data(packet[at : at + size])
        assert peer.code is ErrorCode.BAD_COMPRESSION  # since there is more after the last byte
        assert sum(len(e.data) for e in peer.events if isinstance(e, PayloadReceived)) == 3000

    def test_a_connection_gets_its_burst_again_for_what_does_not_inflate(self) -> None:
        limits = Limits(inflation_burst_max=1000, inflation_factor_max=2)
        peer, _ = fetching(100_000, limits=limits)
        peer.data(compressed(900, bomb(900)), compressed(120, bomb(120)))
        assert peer.code is None
        literal = b"\x79\x07\xd0" + b"b" * 2000
        peer.data(compressed(2000, literal), compressed(1000, bomb(1000)))
        assert peer.code is None
        peer.data(compressed(1000, bomb(1000)))
        assert peer.code is ErrorCode.INFLATION

    def test_the_user_may_allow_more(self) -> None:
        size = 1 << 26
        peer, _ = fetching(size, limits=Limits(inflation_burst_max=size))
        peer.data(compressed(size, bomb(size)))
        assert peer.code is ErrorCode.INVALID_DATA  # it is not the signed payload
        assert Counted.made == size

    def test_what_we_send_keeps_to_it(self) -> None:
        """However compressible it is."""
        author = LogAuthor(KEY, family=YAMF)
        new = author.publish(bytes(3_000_000))
        strict = Limits(inflation_burst_max=0)
        pair = Pair(limits=(strict, None))
        ours = pair.left.propose(proposal(1, log=author.log))
        pair.pump()
        theirs = pair.right.request(ours.request_id)
        theirs.confirm(EVERYTHING)
        theirs.send_metadata(new.entry)
        theirs.send_payload(new.payload or b"")
        assert pair.right.unsent_size < 3_000_000 // 200
        pair.pump()
        assert not pair.of(Closed)
        assert [e.verified for e in pair.of(PayloadReceived) if e.finished] == [True]

    def test_what_waits_is_not_looked_at_again_and_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With each byte that comes, a copy goes on a little; the bytes after it have to wait."""
        limits = Limits(inflation_burst_max=0, packet_size_max=1 << 16)
        peer, _ = fetching(limits=limits)
        peer.data(compressed(HUGE, bomb(HUGE), HUGE))
        peeked = 0
        peek = ReceiveBuffer.peek

        def counted(self: ReceiveBuffer, size: int, offset: int = 0) -> bytes:
            nonlocal peeked
            found = peek(self, size, offset)
            peeked += len(found)
            return found

        monkeypatch.setattr(ReceiveBuffer, "peek", counted)
        for _ in range(2000):
            peer.data(b"\x00")
        assert peer.code is None
        assert peeked < 2000 * 50


class TestRuns:
    """Entries in runs are read about once, however few fit into one."""

    def test_no_more_is_read_than_about_what_can_be_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        author = LogAuthor(KEY, family=YAMF)
        news = [author.publish(bytes(20_000)) for _ in range(1000)]
        peer = Raw(in_runs=True, limits=Limits(inflation_factor_max=1 << 20))
        peer.connection.propose(proposal(1, log=author.log))
        peer.control(adjust(0, "all"))
        compressor = Compressor(4096)
        packets = [switch(0)]
        for new in news:
            packed = compressor.compress(new.payload or b"")
            assert packed is not None
            packets += [metadata(new.entry, backlink=False), compressed(20_000, packed)]
        read = 0
        kernel = channels.kernel

        def counted(*args: Any) -> Any:
            nonlocal read
            records = kernel.read(*args)
            read += len(records)
            return records

        monkeypatch.setattr(channels, "kernel", SimpleNamespace(read=counted))
        peer.data(*packets)
        told = [event for event in peer.events if isinstance(event, EntriesReceived)]
        assert sum(len(event.entries) for event in told) == 1000
        assert len(told) > 20
        assert read < 3 * 1000


class TestDiscarding:
    """Unwanted data costs no more than the bytes in which it comes."""

    def test_nothing_is_inflated_after_the_goodbye(self) -> None:
        peer, _ = fetching()
        peer.connection.close()
        peer.data(compressed(200_000, bomb(200_000)) * 50)
        assert peer.code is None
        assert Counted.made == 0

    def test_nor_is_the_rest_of_what_had_begun(self) -> None:
        peer, _ = fetching(limits=Limits(inflation_burst_max=0, inflation_factor_max=1000))
        peer.data(compressed(12_000, bomb(12_000)[:11], 12))
        made = Counted.made
        peer.connection.close()
        peer.data(bomb(12_000)[11:], compressed(200, bomb(200)))
        assert peer.code is None
        assert Counted.made == made

    @pytest.mark.parametrize("in_runs", [False, True])
    def test_sizes_are_checked_for_what_is_cancelled(self, in_runs: bool) -> None:
        peer, request = fetching(in_runs=in_runs)
        request.cancel(CancelReason.DO_NOT_RETRY)
        peer.data(compressed(HUGE, bomb(HUGE)))
        assert peer.code is ErrorCode.INFLATION
        assert Counted.made == 0

    def test_what_is_cancelled_is_history_for_what_follows(self) -> None:
        """The window is one for all requests, and is never reset."""
        compressor = Compressor(4096)
        gone = b"".join(bytes([n]) * 5 for n in range(200))
        wanted = LogAuthor(SigningKey(b"\x0a" * 32), family=YAMF).publish(gone[100:900])
        peer, request = fetching(len(gone))
        log = wanted.entry.log
        peer.connection.propose(proposal(1, log=log))
        peer.control(adjust(2, "all"))
        request.cancel(CancelReason.DO_NOT_RETRY)
        first, second = compressor.compress(gone), compressor.compress(gone[100:900])
        assert first is not None
        assert second is not None
        assert len(second) < 20
        peer.data(compressed(len(gone), first), switch(2), metadata(wanted.entry))
        peer.data(compressed(800, second))
        assert peer.code is None
        last = peer.events[-1]
        assert isinstance(last, PayloadReceived)
        assert last.verified

    def test_unanswered_and_raw(self) -> None:
        """Raw bytes are passed over, whatever their declared number."""
        peer, request = fetching()
        request.cancel(CancelReason.DO_NOT_RETRY)
        peer.data(b"\x08" + varu64(HUGE), bytes(100_000))
        assert peer.code is None
        assert retained_size(peer.connection) < 50_000


def told_to_end(peer: Raw, *numbers: int) -> None:
    """The peer adjusts request 0 to those ends, one right after the other."""
    peer.control(*[adjust(0, flags=8, extra=varu64(number)) for number in numbers])


class TestAdjustments:
    """Ends that may be in force cost nothing where they make no difference."""

    TOP = 10**6

    def confirmed(self, *, sparse: bool = False) -> Raw:
        peer = Raw()
        peer.connection.propose(
            proposal(5, end=self.TOP, upper_certpool=2 * self.TOP, sparse=sparse, eagerness=NOTIFY)
        )
        peer.control(adjust(0, "notify"))
        peer.data(switch(0))
        return peer

    def with_pending(self, count: int, **options: bool) -> Raw:
        peer = self.confirmed(**options)
        told_to_end(peer, *range(self.TOP - 1, self.TOP - 1 - count, -1))
        assert len(request_as_it_is(peer.connection.request(0)).incoming.ranges) == count + 1
        return peer

    @pytest.mark.parametrize("sparse", [False, True])
    def test_a_notification_costs_the_same_however_many_there_are(self, sparse: bool) -> None:
        none, many = (self.with_pending(count, sparse=sparse) for count in (0, 60))
        assert steps(lambda: many.data(b"\x02")) < 1.3 * steps(lambda: none.data(b"\x02"))

    @pytest.mark.parametrize("count", [2, 4, 8, 15, 30, 60])
    def test_no_packet_costs_much_where_they_differ(self, count: int) -> None:
        """The peer may have passed some of the ends, each with its own certificate pool."""
        peer = self.with_pending(count)
        peer.data(b"\x03" + varu64(2 * (self.TOP - 5 - count)))
        costs = [steps(lambda: peer.data(b"\x02")) for _ in range(60)]
        assert max(costs) < 11_000


class TestRequests:
    """A request costs the same however many are open; see also `GROWTH` of the property suite."""

    SIZES = (100, 200, 400)

    def test_proposals_of_both_for_different_logs(self) -> None:
        def cost(count: int) -> int:
            peer = Raw(limits=Limits(requests_max=10_000), credit=10_000)
            proposals = [propose(2 * n + 1) for n in range(count)]

            def both() -> None:
                for n in range(count):
                    log = LogKey(n.to_bytes(32, "big"), n)
                    peer.connection.propose(proposal(log=log))
                    peer.control(proposals[n])

            return steps(both)

        assert self.grows_linearly(cost)

    def test_ids_behind_the_highest(self) -> None:
        def cost(count: int) -> int:
            peer = Raw(credit=10_000)
            peer.connection.propose(proposal(), request_id=HUGE - 1)
            return steps(lambda: [peer.connection.propose(proposal()) for _ in range(count)])

        assert self.grows_linearly(cost)

    def grows_linearly(self, cost: Callable[[int], int]) -> bool:
        costs = [cost(size) for size in self.SIZES]
        return all(more <= 2.3 * less for less, more in pairwise(costs))
