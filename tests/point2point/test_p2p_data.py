"""The data channel, sentence by sentence."""

from __future__ import annotations

import pytest
from p2p_snapshots import request_as_it_is
from p2p_support import (
    FORK,
    GREEDY,
    Pair,
    Raw,
    adjust,
    entry,
    link,
    metadata,
    payload,
    proposal,
    raw,
    refuses,
    send_entry,
    switch,
    unsigned,
    varu64,
)

from culm.bamboo.links import has_lipmaalink
from culm.bamboo.verify import PayloadVerifier
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Apologized,
    CancelReason,
    Closed,
    Confirmed,
    EntryWanted,
    ErrorCode,
    ForkSuspected,
    HashWanted,
    Limits,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
    SkipReason,
    payloads_up_to,
)
from culm.wire.lzfoo import Compressor


def received(pair: Pair, side: str = "left") -> dict[int, bytes]:
    """The received payloads, by entry."""
    found: dict[int, bytes] = {}
    for event in pair.of(PayloadReceived, side):
        found[event.seqnum] = found.get(event.seqnum, b"") + event.data
    return found


class TestCursors:
    def test_requests_are_interleaved(self) -> None:
        pair = Pair()
        _, one = pair.confirmed(start=40, end=40)
        _, two = pair.confirmed(start=20, end=20)
        one.send_metadata(entry(40))
        two.send_metadata(entry(20))
        one.send_payload(payload(40)[:100])
        two.send_payload(payload(20)[:50])
        one.send_payload(payload(40)[100:])
        two.send_payload(payload(20)[50:])
        pair.pump()
        assert received(pair) == {40: payload(40), 20: payload(20)}
        assert all(e.verified for e in pair.of(PayloadReceived) if e.finished)
        assert {e.request_id for e in pair.of(PayloadReceived)} == {0, 2}

    def test_each_direction_has_its_own(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=40, end=40)
        other, others = pair.confirmed(start=20, end=20)
        theirs.send_metadata(entry(40))
        other.send_metadata(entry(20))
        pair.pump()
        assert ours.send_cursor.piece == (40, 0) != ours.receive_cursor.piece
        assert others.send_cursor.piece == (20, 0) != others.receive_cursor.piece

    def test_the_cursor_moves_with_what_is_sent(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=3)
        steps = (
            (lambda: theirs.send_metadata(entry(3)), (3, 1), 0),
            (lambda: theirs.send_payload(payload(3)[:5]), (3, 1), 5),
            (lambda: theirs.send_payload(payload(3)[5:6]), (3, 1), 6),
            (lambda: theirs.send_payload(payload(3)[6:]), (4, 0), 0),
        )
        for step, piece, offset in steps:
            step()
            assert (theirs.send_cursor.piece, theirs.send_cursor.offset) == (piece, offset)
            pair.pump()
            assert (ours.receive_cursor.piece, ours.receive_cursor.offset) == (piece, offset)

    def test_notifications(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(eagerness=NOTIFY)
        theirs.notify()
        theirs.notify(2**63)
        pair.pump()
        assert [(e.seqnum, e.part, e.count) for e in pair.of(Notified)] == [
            (1, 0, 1),
            (1, 1, 2**63),
        ]
        assert ours.receive_cursor.piece == theirs.send_cursor.piece == (2**62 + 1, 1)

    def test_catching_up(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed()
        for seqnum in (1, 2, 3):
            send_entry(theirs, seqnum)
        code = ErrorCode.EAGERNESS_VIOLATED
        refuses(pair.left, code, ours.notify)
        pair.pump()
        refuses(pair.left, code, lambda: ours.notify(7))
        ours.notify(5)
        ours.notify(1)
        send_entry(ours, 4)
        pair.pump()
        assert theirs.receive_cursor.piece == (5, 0)

    def test_skips(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=2, size_min=8, size_max=20)
        for seqnum, reason in zip((2, 3, 4), (4, 6, 5), strict=True):
            theirs.send_metadata(entry(seqnum))
            theirs.skip_payload(SkipReason(reason))
        pair.pump()
        told = pair.of(PayloadSkipped)
        assert [(e.seqnum, e.reason.value) for e in told] == [(2, 4), (3, 6), (4, 5)]
        assert ours.receive_cursor.piece == (5, 0)

    def test_jumps(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=20)
        theirs.send_metadata(entry(20))
        theirs.send_payload(payload(20)[:60])
        pair.pump()
        ours.notify()
        code = ErrorCode.CATCH_UP_ONLY
        refuses(pair.left, code, lambda: ours.jump(61))
        ours.jump(40)
        refuses(pair.left, code, lambda: ours.jump(21))
        ours.jump(20)
        ours.send_payload(payload(20)[60:])  # now the other one has fallen behind
        pair.pump()
        theirs.jump(len(payload(20)) - 60)
        pair.pump()
        assert theirs.send_cursor.piece == ours.send_cursor.piece == (21, 0)
        last = pair.of(PayloadReceived, "right")[-1]
        assert (last.offset, last.finished, last.verified) == (60, True, None)
        peer = Raw()
        peer.connection.propose(proposal(2))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(2)), b"\x07\x01")
        assert peer.code is code

    def test_who_was_ahead_stays_so_for_who_catches_up(self) -> None:
        """An apology and an adjustment cross while the other side catches up."""
        pair = Pair(GREEDY, GREEDY)
        ours, theirs = pair.confirmed(start=20, end=30, upper_certpool=30)
        theirs.send_metadata(entry(20))
        theirs.send_payload(payload(20)[:60])
        pair.pump()
        ours.notify()
        ours.jump(60)
        theirs.apologize()
        pair.pump()
        theirs.send_payload(payload(20))
        for seqnum in range(21, 26):
            send_entry(theirs, seqnum)
        pair.pump()
        ours.notify(ours.send_cursor.is_behind(ours.receive_cursor))
        theirs.adjust(end=20, upper_certpool=20)
        pair.pump()
        assert not pair.of(Closed)
        assert ours.send_cursor == theirs.send_cursor
        assert ours.send_cursor.piece is None


class TestMetadata:
    def test_backlinks(self) -> None:
        """None is sent in a whole log; by hand where one is."""
        pair = Pair()
        _, theirs = pair.confirmed()
        for seqnum in range(1, 14):
            send_entry(theirs, seqnum)
        pair.pump()
        assert [e.entry for e in pair.of(MetadataReceived)] == [entry(n) for n in range(1, 14)]
        for seqnum, needed in ((8, True), (7, False)):
            assert has_lipmaalink(seqnum) is needed
            for with_backlink in (False, True):
                peer = Raw()
                request = peer.connection.propose(proposal(seqnum))
                request.provide_hash(seqnum - 1, link(seqnum - 1))
                peer.control(adjust(0, "all"))
                peer.data(switch(0), metadata(entry(seqnum), backlink=with_backlink))
                missing, redundant = ErrorCode.BACKLINK_MISSING, ErrorCode.BACKLINK_REDUNDANT
                if with_backlink is needed:
                    assert peer.code is None
                else:
                    assert peer.code is (missing if needed else redundant)
        peer = Raw()
        peer.connection.propose(proposal(7))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(7)), raw(payload(7)), metadata(entry(8)))
        assert peer.code is ErrorCode.BACKLINK_REDUNDANT

    def test_what_the_other_has_transmitted_counts(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=7)
        send_entry(ours, 7)
        pair.pump()
        theirs.notify(2)
        theirs.send_metadata(entry(8))
        sent = pair.right.unsent_size
        assert sent == len(switch(0) + b"\x03\x02" + metadata(entry(8), backlink=False))
        pair.pump()
        assert pair.of(MetadataReceived, "left")[-1].verified

    def test_metadata_that_crosses(self) -> None:
        """The backlink of a packet under way is not redundant."""
        pair = Pair()
        ours, theirs = pair.confirmed(start=7)
        theirs.adjust(eagerness=NOTIFY)
        ours.adjust(eagerness=NOTIFY)
        pair.pump()
        theirs.notify(2)
        pair.pump()
        theirs.adjust(eagerness=EVERYTHING)
        ours.adjust(eagerness=EVERYTHING)
        pair.pump()
        theirs.send_metadata(entry(8))  # with the backlink
        send_entry(ours, 7)
        pair.pump()
        assert not pair.of(Closed)
        assert pair.of(MetadataReceived, "left")[-1].entry == entry(8)

    def test_hashes_that_the_request_does_not_tell_are_asked_for(self) -> None:
        pair = Pair(answer=False)
        _, theirs = pair.confirmed(start=12)
        send_entry(theirs, 12)
        theirs.send_metadata(entry(13))
        pair.pump()
        assert pair.of(HashWanted, "left") == [HashWanted(request_id=0, seqnum=4)]
        ours = pair.left.request(0)
        ours.provide_hash(4, link(4))
        pair.take_events("left")
        assert pair.of(MetadataReceived, "left")[-1].verified

    def test_a_wrong_answer_makes_nothing_verified(self) -> None:
        pair = Pair(answer=False)
        _, theirs = pair.confirmed(start=12)
        send_entry(theirs, 12)
        theirs.send_metadata(entry(13))
        pair.pump()
        pair.left.request(0).provide_hash(4, link(5))
        pair.take_events("left")
        closed = pair.of(Closed, "left")[0]
        assert closed.error.code is ErrorCode.INVALID_DATA

    def test_an_open_question_ends_with_the_request(self) -> None:
        pair = Pair(answer=False)
        ours, theirs = pair.confirmed(start=12)
        send_entry(theirs, 12)
        theirs.send_metadata(entry(13))
        pair.pump()
        ours.cancel(CancelReason.DO_NOT_RETRY)
        pair.take_events("left")
        pair.pump()
        assert not pair.left.requests
        assert not pair.right.requests

    def test_a_signed_entry_with_another_backlink_is_a_fork(self) -> None:
        peer = Raw()
        request = peer.connection.propose(proposal(8))
        request.provide_hash(7, link(7))
        peer.control(adjust(0, "all"))
        forked = FORK[8].entry
        request.provide_hash(4, FORK[4].entry.hash())
        peer.data(switch(0), metadata(forked))
        assert peer.events[-1] == ForkSuspected(request_id=0, entry=forked, seqnum=7)
        peer.data(raw(b"anything"), b"\x03\x09")
        assert isinstance(peer.events[-1], ForkSuspected)
        assert peer.code is None

    def test_which_entry_it_is_shows_after_an_adjustment(self) -> None:
        """Data of the old range and of the new one, in any order; control overtakes data."""
        for sent_before in range(7):
            peer = Raw()
            request = peer.connection.propose(proposal(7, end=20, upper_certpool=40))
            peer.control(adjust(0, "all"))
            old = [metadata(entry(n), backlink=False) + raw(payload(n)) for n in range(7, 14)]
            for seqnum in (4, 6):
                request.provide_hash(seqnum, link(seqnum))
            peer.control(adjust(0, flags=8, extra=varu64(8)))
            peer.data(switch(0), *old[:sent_before])
            assert peer.code is None
            last = 6 + sent_before
            pool = [n for n in (9, 12, 13) if n > last] if sent_before >= 2 else []
            found = [n for n in pool if n in (12, 13)]
            for n in found:
                backlink = has_lipmaalink(n) and n - 1 > last and n - 1 not in found
                peer.data(metadata(entry(n), backlink=backlink))
                assert peer.code is None
                assert isinstance(peer.events[-1], MetadataReceived)
                assert peer.events[-1].entry == entry(n)


class TestPayloads:
    def test_the_history_is_that_of_the_connection(self) -> None:
        """Packets made with a separate compressor in the test."""
        compressor = Compressor(4096)
        peer = Raw()
        for request_id, seqnum in ((0, 30), (2, 31)):
            peer.connection.propose(proposal(seqnum, end=seqnum))
            peer.control(adjust(request_id, "all"))
        for index, (request_id, seqnum) in enumerate(((0, 30), (2, 31))):
            data = payload(seqnum)
            first, middle, last = data[:100], data[100:150], data[150:]
            packets = []
            for part in (first, last):
                packed = compressor.compress(part)
                assert packed is not None
                packets.append(b"\x09" + varu64(len(part)) + varu64(len(packed)) + packed)
            peer.data(switch(request_id), metadata(entry(seqnum)), packets[0])
            peer.data(raw(middle))  # which the compressor has not seen
            peer.data(packets[1])
            assert peer.code is None
            event = peer.events[-1]
            assert isinstance(event, PayloadReceived)
            assert event.verified
            assert index < 2

    @pytest.mark.parametrize("size", [1, 31, 32, 100, 1 << 20])
    def test_packets_are_of_limited_size(self, size: int) -> None:
        limits = Limits(packet_size_max=64)
        pair = Pair(limits=(limits, limits))
        _, theirs = pair.confirmed(start=40)
        theirs.send_metadata(entry(40))
        theirs.send_payload(payload(40)[:size])
        pair.pump()
        pieces = [len(e.data) for e in pair.of(PayloadReceived)]
        assert sum(pieces) == min(size, len(payload(40)))
        assert max(pieces) <= 64

    def test_a_payload_without_its_metadata(self) -> None:
        """Its entry is asked for: the sender may know that we have it."""
        peer = Raw()
        request = peer.connection.propose(proposal(5, payload_only=True))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), raw(payload(5)))
        assert peer.events[-1] == EntryWanted(request_id=0, seqnum=5)
        request.provide_entry(entry(6))  # that is another one
        peer.data(b"")
        assert peer.events[-1] == EntryWanted(request_id=0, seqnum=5)
        request.provide_entry(entry(5))
        peer.data(b"")
        assert isinstance(peer.events[-1], PayloadReceived)
        assert peer.events[-1].verified
        peer = Raw()
        request = peer.connection.propose(proposal(5, payload_only=True))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), raw(payload(5)))
        request.refuse()
        peer.data(b"")
        assert peer.code is ErrorCode.INVALID_DATA

    def test_the_sender_has_to_know_the_size(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=5, payload_only=True)
        code = ErrorCode.UNKNOWN_PAYLOAD_SIZE
        refuses(pair.right, code, lambda: theirs.send_payload(payload(5)))
        theirs.send_payload(payload(5), entry=entry(5))

    def test_the_entry_stays_known_while_its_payload_comes(self) -> None:
        """Its metadata may have come in the other direction, which goes on."""
        peer = Raw()
        request = peer.connection.propose(proposal(20))
        peer.control(adjust(0, "all"))
        send_entry_metadata = request.send_metadata
        send_entry_metadata(entry(20))
        peer.data(switch(0), b"\x02", b"\x08" + varu64(entry(20).payload_size), payload(20)[:50])
        request.send_payload(payload(20))
        send_entry_metadata(entry(21))
        peer.data(payload(20)[50:])
        event = peer.events[-1]
        assert isinstance(event, PayloadReceived)
        assert event.verified

    def test_bytes_before_the_offset_are_told_to_the_verifier(self) -> None:
        for wrong in (False, True):
            peer = Raw()
            verifier = PayloadVerifier(entry(20))
            verifier.update(payload(20)[:50] if not wrong else bytes(50))
            request = peer.connection.propose(proposal(20, start_offset=50), verifier=verifier)
            request.provide_entry(entry(20))
            peer.control(adjust(0, "all"))
            peer.data(switch(0), raw(payload(20)[50:]))
            if wrong:
                assert peer.code is ErrorCode.INVALID_DATA
            else:
                assert peer.events[-1].verified is True  # type: ignore[attr-defined]

    def test_packets_without_effect(self) -> None:
        code = ErrorCode.EMPTY_PACKET
        for packet in (b"\x08\x00", b"\x09\x00\x00", b"\x07\x00"):
            peer = Raw()
            peer.connection.propose(proposal(2))
            peer.control(adjust(0, "all"))
            peer.data(switch(0), metadata(entry(2)), packet)
            assert peer.code is code
        peer = Raw()
        peer.connection.propose(proposal(2, eagerness=NOTIFY))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), b"\x03\x00")
        assert peer.code is code
        pair = Pair()
        _, theirs = pair.confirmed(start=2)
        theirs.send_metadata(entry(2))
        refuses(pair.right, code, lambda: theirs.send_payload(b""))
        refuses(pair.right, code, lambda: theirs.jump(0))
        refuses(pair.right, code, lambda: theirs.notify(0))

    @pytest.mark.parametrize("packet", [b"\x08\x00", b"\x09\x00\x00"])
    def test_an_empty_payload_takes_an_empty_packet(self, packet: bytes) -> None:
        peer = Raw()
        peer.connection.propose(proposal(1))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(1)), packet)
        event = peer.events[-1]
        assert isinstance(event, PayloadReceived)
        assert (event.data, event.finished, event.verified) == (b"", True, True)

    def test_data_on_its_way_may_follow_the_old_eagerness(self) -> None:
        """Decision 21."""
        peer = Raw()
        request = peer.connection.propose(proposal(2))
        peer.control(adjust(0, "all"))
        request.adjust(eagerness=payloads_up_to(10))
        request.adjust(eagerness=NOTIFY)
        peer.data(switch(0), metadata(entry(2)), raw(payload(2)))
        peer.data(metadata(entry(3)), b"\x02")  # 14 bytes: the second demand is in force
        assert peer.code is None
        peer.data(metadata(entry(4), backlink=False), raw(payload(4)))
        assert peer.code is ErrorCode.EAGERNESS_VIOLATED


class TestGreed:
    @pytest.mark.parametrize("wrong", ["metadata", "payload"])
    def test_apologies(self, wrong: str) -> None:
        pair = Pair(GREEDY, GREEDY, answer=False)
        ours, theirs = pair.confirmed(start=2)
        if wrong == "metadata":
            theirs.send_metadata(unsigned(2))
        else:
            theirs.send_metadata(entry(2))
            theirs.send_payload(bytes(7))
        pair.pump()
        kind = MetadataReceived if wrong == "metadata" else PayloadReceived
        assert pair.of(kind, "left")[-1].verified is False
        assert ours.receive_cursor == theirs.send_cursor
        theirs.apologize()
        pair.pump()
        [event] = pair.of(Apologized, "left")
        assert (event.seqnum, event.part) == (2, 0 if wrong == "metadata" else 1)
        for cursor in (ours.receive_cursor, theirs.send_cursor):
            assert cursor.piece == (event.seqnum, event.part)
        if wrong == "metadata":
            theirs.send_metadata(entry(2))
        theirs.send_payload(payload(2))
        send_entry(theirs, 3)
        pair.pump()
        assert pair.of(PayloadReceived, "left")[-1].verified
        assert not pair.of(EntryWanted)
        assert not pair.of(Closed)

    def test_in_the_middle(self) -> None:
        pair = Pair(GREEDY, GREEDY)
        ours, theirs = pair.confirmed(start=20, start_offset=10)
        theirs.send_payload(payload(20)[10:20], entry=entry(20))
        theirs.apologize()
        assert theirs.send_cursor.offset == 10
        theirs.send_payload(payload(20)[10:])
        pair.pump()
        assert ours.receive_cursor.piece == (21, 0)

    @pytest.mark.parametrize(
        "packet", [metadata(entry(3)), b"\x02", raw(b"x"), b"\x04", b"\x05", b"\x06", b"\x07\x01"]
    )
    def test_nothing_may_follow_but_the_apology(self, packet: bytes) -> None:
        for invalid in (metadata(unsigned(2)), metadata(entry(2)) + raw(bytes(7))):
            peer = Raw(setup=GREEDY, peer=GREEDY)
            peer.connection.propose(proposal(2, end=10))
            peer.connection.propose(proposal(20))
            peer.control(adjust(0, "all"), adjust(2, "all"))
            peer.data(switch(0), invalid)
            peer.data(switch(2), metadata(entry(20)), switch(0))  # others go on
            assert peer.code is None
            peer.data(packet)
            assert peer.code is ErrorCode.APOLOGY_OWED

    def test_safe_senders_do_not_apologize(self) -> None:
        peer = Raw()
        peer.connection.propose(proposal(2))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(2)), raw(payload(2)[:3]), b"\x10")
        code = ErrorCode.APOLOGY_IN_SAFE_MODE
        assert peer.code is code
        pair = Pair()
        _, theirs = pair.confirmed(start=2)
        theirs.send_metadata(entry(2))
        theirs.send_payload(payload(2)[:3])
        refuses(pair.right, code, theirs.apologize)

    def test_invalid_metadata_is_not_remembered(self) -> None:
        """It makes no backlink redundant, and its hash rebuilds no entry."""
        pair = Pair(GREEDY, GREEDY)
        ours, theirs = pair.confirmed(start=7)
        theirs.send_metadata(unsigned(7))
        pair.pump()
        assert not request_as_it_is(ours).incoming.metadata
        assert 7 not in request_as_it_is(ours).incoming.links
        theirs.apologize()
        send_entry(theirs, 7)
        theirs.send_metadata(entry(8))
        pair.pump()
        assert pair.of(MetadataReceived, "left")[-1].verified

    def test_metadata_taken_back_counts_for_no_backlink(self) -> None:
        pair = Pair(GREEDY, GREEDY)
        ours, theirs = pair.confirmed(start=7)
        theirs.send_metadata(unsigned(7))
        theirs.apologize()
        for eagerness in (NOTIFY, EVERYTHING):
            ours.adjust(eagerness=eagerness)
            pair.pump()
            if eagerness is NOTIFY:
                theirs.notify(2)
        theirs.send_metadata(entry(8))
        pair.pump()
        assert pair.of(MetadataReceived, "left")[-1].entry == entry(8)


def test_data_never_overtakes_control() -> None:
    """Decision 22: messages about a request leave before the data that relies on them."""
    pair = Pair()
    pair.confirmed(start=20)
    for seqnum in range(20, 30):  # data of another request waits already
        send_entry(pair.right.request(0), seqnum)
    pair.left.propose(proposal(end=1))
    pair.right.receive_data(pair.left.data_to_send())
    pair.take_events("right")
    pair.left.receive_data(pair.right.data_to_send(100))  # and has begun to leave
    theirs = pair.right.request(2)
    theirs.confirm(EVERYTHING, end=1)
    send_entry(theirs, 1)
    pair.forget()
    while part := pair.right.data_to_send(7):
        pair.left.receive_data(part)
        pair.take_events("left")
    about = [type(event) for event in pair.events["left"] if event.request_id == 2]
    assert about == [Confirmed, MetadataReceived, PayloadReceived]
    # The confirmation has overtaken the waiting data.
    kinds = [(type(event), event.request_id) for event in pair.events["left"]]
    assert kinds.index((Confirmed, 2)) < len(kinds) - 10


def test_last_words_are_in_order() -> None:
    """More than fits into one Write has been sent, followed by markers; then comes the end."""
    limits = Limits(packet_size_max=64)
    pair = Pair(limits=(limits, limits))
    for start in range(2, 20, 2):
        request = pair.left.propose(proposal(start, end=start))
        request.cancel(CancelReason.DO_NOT_RETRY)
    pair.left.close()
    pair.pump()
    (end,) = pair.of(Closed, "right")
    assert end.error is None


def test_large_packets_of_one_request_do_not_hold_up_another() -> None:
    limits = Limits(packet_size_max=64)
    pair = Pair(limits=(limits, limits))
    _, one = pair.confirmed(start=45, end=45)
    _, two = pair.confirmed(start=20, end=20)
    one.send_metadata(entry(45))
    one.send_payload(payload(45)[:64], compress=False)
    two.send_metadata(entry(20))
    one.send_payload(payload(45)[64:], compress=False)
    pair.pump()
    before = 0
    for event in pair.events["left"]:
        if isinstance(event, MetadataReceived) and event.entry == entry(20):
            break
        before += len(event.data) if isinstance(event, PayloadReceived) else 0
    assert before == 64
