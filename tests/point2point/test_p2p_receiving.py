"""The peer's packets on the data channel, where they can be understood in more than one way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2p_support import (
    GREEDY,
    Raw,
    adjust,
    cancel,
    ended_log,
    entry,
    link,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    send_entry,
    switch,
    unsigned,
    varu64,
)

from culm.bamboo.entry import sign
from culm.bamboo.links import lipmaa
from culm.bamboo.verify import PayloadVerifier
from culm.machine import Event
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Apologized,
    EntriesReceived,
    EntryWanted,
    ErrorCode,
    ForkSuspected,
    HashWanted,
    Limits,
    MetadataReceived,
    Notified,
    Part,
    PayloadReceived,
    PayloadSkipped,
    Request,
    Setup,
)
from culm.wire.lzfoo import Compressor
from culm.wire.multihash import YAMF


def receiving(start: int = 2, *, greedy: bool = False, **options: Any) -> tuple[Raw, Request]:
    """Our request 0, confirmed by the peer, which has switched to it."""
    setup = GREEDY if greedy else Setup()
    peer = Raw(setup=setup, peer=setup)
    request = peer.connection.propose(proposal(start, **options))
    for seqnum in range(1, start):
        request.provide_hash(seqnum, link(seqnum))
    peer.control(adjust(0, "all"))
    peer.data(switch(0))
    return peer, request


def of(peer: Raw, kind: type[Event]) -> list[Any]:
    return [event for event in peer.events if isinstance(event, kind)]


def begun(seqnum: int, size: int) -> bytes:
    """A packet with the first bytes of a payload."""
    return raw(payload(seqnum)[:size])


# Metadata


def test_the_largest_metadata_there_can_be() -> None:
    """With a backlink and the largest payload; no byte may come after it."""
    log = ended_log(4)
    largest = sign(
        SigningKey(b"\7" * 32),
        family=YAMF,
        log_id=0,
        seqnum=4,
        payload_size=2**64 - 1,
        payload_hash=YAMF.hash(b""),
        backlink=log[3].entry.hash(),
        lipmaalink=log[1].entry.hash(),
    )
    peer = Raw()
    options = {"log": largest.log, "expected_hash": log[1].entry.hash()}
    peer.connection.propose(proposal(4, **options))
    peer.control(adjust(0, "all"))
    peer.data(switch(0), metadata(largest))
    assert peer.events[-1] == MetadataReceived(request_id=0, entry=largest, verified=True)


def test_a_hash_that_is_none_is_told_apart_from_a_wrong_one() -> None:
    good = metadata(entry(2))
    bad_hash = b"\1" + entry(2).payload_hash[1:]
    peer, _ = receiving()
    peer.data(good.replace(entry(2).payload_hash, bad_hash))
    assert peer.code is ErrorCode.BAD_HASH


# Payloads


def test_a_payload_that_was_jumped_into_is_not_verified() -> None:
    """We have sent bytes of it: a caller that keeps them can verify it, the wire machine cannot."""
    peer, request = receiving(20)
    request.send_metadata(entry(20))
    request.send_payload(payload(20)[:60])
    peer.data(b"\x02", begun(20, 10), b"\x07" + varu64(50), raw(payload(20)[60:]))
    assert peer.code is None
    event = peer.events[-1]
    assert isinstance(event, PayloadReceived)
    assert (event.offset, event.finished, event.verified) == (60, True, None)
    peer.data(metadata(entry(21)), raw(payload(21)))
    assert peer.events[-1].verified is True  # type: ignore[attr-defined]


def test_nothing_may_be_jumped_over_where_we_are_still_before_it() -> None:
    """However far we are in the payload before."""
    peer, request = receiving(20)
    request.send_metadata(entry(20))
    request.send_payload(payload(20)[:60])
    peer.data(b"\x02", raw(payload(20)), metadata(entry(21)), b"\x07\x0a")
    assert peer.code is ErrorCode.CATCH_UP_ONLY


def test_packed_bytes_that_bring_nothing_yet_are_no_event() -> None:
    packed = Compressor(4096).compress(payload(20))
    assert packed is not None
    peer, _ = receiving(20)
    peer.data(metadata(entry(20)))
    packet = b"\x09" + varu64(len(payload(20))) + varu64(len(packed)) + packed
    for byte in packet:
        peer.data(bytes([byte]))
    assert all(event.data for event in of(peer, PayloadReceived))
    assert b"".join(event.data for event in of(peer, PayloadReceived)) == payload(20)
    assert peer.events[-1].verified is True  # type: ignore[attr-defined]


def test_all_that_packed_bytes_make_is_told_before_more_of_them_come() -> None:
    """A copy yields more than is reported at a time; the last element is still on its way."""
    data = payload(20)
    size, first = len(data), data[:1]
    assert data == first * size
    copy = bytes([0x80 | 120, size - 2]) + b"\x01"
    packed = b"\x01" + first + copy + b"\x01" + first
    peer = Raw(limits=Limits(packet_size_max=64))
    peer.connection.propose(proposal(20))
    peer.control(adjust(0, "all"))
    head = b"\x09" + varu64(size) + varu64(len(packed))
    peer.data(switch(0), metadata(entry(20)), head + packed[:-2])
    told = [len(event.data) for event in of(peer, PayloadReceived)]
    assert max(told) <= 64
    assert sum(told) == size - 1
    peer.data(packed[-2:])
    assert peer.events[-1].verified is True  # type: ignore[attr-defined]


def test_an_empty_payload_has_no_packed_bytes() -> None:
    for packed, code in ((b"", None), (b"\x00", ErrorCode.BAD_COMPRESSION)):
        peer, _ = receiving(1)
        peer.data(metadata(entry(1)), b"\x09\x00" + varu64(len(packed)))
        peer.data(packed)
        assert peer.code is code
        assert [event.finished for event in of(peer, PayloadReceived)] == [True] * (not packed)


def test_who_passes_over_a_request_has_answered() -> None:
    peer = Raw()
    request = peer.connection.propose(proposal(12))
    peer.control(adjust(0, "all"))
    peer.connection.propose(proposal(40, end=40))
    peer.control(adjust(2, "all"))
    behind = switch(2) + metadata(entry(40), backlink=True)
    peer.data(switch(0), metadata(entry(12), backlink=True), raw(payload(12)))
    peer.data(metadata(entry(13), backlink=False), behind)
    assert peer.events[-1] == HashWanted(request_id=0, seqnum=4)
    request.pass_over()
    peer.data(b"")
    event = peer.events[-1]
    assert isinstance(event, MetadataReceived | HashWanted)
    assert event.request_id == 2


def test_the_entry_is_asked_for_in_whose_payload_the_peer_jumps() -> None:
    peer, request = receiving(5, payload_only=True)
    for seqnum in (5, 6):
        request.send_payload(payload(seqnum), entry=entry(seqnum))
    peer.data(b"\x07\x03", raw(payload(5)[3:]))
    assert peer.events[-1] == EntryWanted(request_id=0, seqnum=5)
    request.provide_entry(entry(5))
    peer.data(b"")
    told = [(event.offset, event.finished) for event in of(peer, PayloadReceived)]
    assert told == [(3, False), (3, True)]


def test_an_entry_is_not_asked_for_while_its_payload_is_not_due() -> None:
    """Although both know it: its metadata has to be passed first."""
    peer, request = receiving(20)
    for seqnum in (20, 21):
        send_entry(request, seqnum)
    peer.data(raw(payload(20)))
    assert not of(peer, EntryWanted)
    assert peer.code is ErrorCode.PIECE_OUT_OF_TURN


def test_a_start_within_a_payload_tells_of_no_other_entry() -> None:
    peer, request = receiving(5, start_offset=3, eagerness=NOTIFY)
    peer.data(b"\x03\x02")
    request.adjust(eagerness=EVERYTHING)
    peer.data(raw(payload(6)))
    assert not of(peer, EntryWanted)
    assert peer.code is ErrorCode.UNKNOWN_PAYLOAD_SIZE


def test_without_a_current_request_there_is_no_run_either() -> None:
    peer = Raw(in_runs=True)
    peer.data(metadata(entry(1)))
    assert peer.code is ErrorCode.NO_CURRENT_REQUEST


def run(*seqnums: int) -> bytes:
    return b"".join(metadata(entry(n), backlink=False) + raw(payload(n)) for n in seqnums)


WRONG = metadata(entry(2)) + b"\x09\x07\x08\x07" + bytes(7)  # entry 2 with another payload


def test_no_run_for_what_was_cancelled_before_it_was_confirmed() -> None:
    peer = Raw(in_runs=True)
    peer.connection.propose(proposal())
    peer.control(cancel(0))
    peer.data(switch(0), run(1, 2, 3))
    assert not of(peer, EntriesReceived)
    assert peer.code is ErrorCode.NOT_CONFIRMED


def test_greedy_senders_may_be_wrong_in_runs_too() -> None:
    peer = Raw(setup=GREEDY, peer=GREEDY, in_runs=True)
    peer.connection.propose(proposal())
    peer.control(adjust(0, "all"))
    peer.data(switch(0), run(1), WRONG)
    assert peer.code is None
    assert peer.events[-1].verified is False  # type: ignore[attr-defined]
    peer.data(b"\x10", raw(payload(2)))
    assert peer.events[-1].verified is True  # type: ignore[attr-defined]


def test_nothing_is_told_of_an_entry_whose_packed_payload_is_known_to_be_wrong() -> None:
    """It has been unpacked with its metadata, so neither side can go on in between."""
    peer = Raw(in_runs=True)
    peer.connection.propose(proposal())
    peer.control(adjust(0, "all"))
    peer.data(switch(0), run(1))
    assert of(peer, EntriesReceived)
    peer.data(WRONG)
    assert not of(peer, MetadataReceived)
    assert peer.code is ErrorCode.INVALID_DATA


@pytest.mark.parametrize(
    "packet", [metadata(entry(2)), raw(payload(2)), b"\x02", b"\x10", switch(2) + switch(0)]
)
def test_nothing_follows_a_marker_that_has_overtaken_its_cancel(packet: bytes) -> None:
    peer, _ = receiving()
    peer.connection.propose(proposal(40))
    peer.data(marker(0))
    assert peer.code is None
    peer.data(packet)
    assert peer.code in (ErrorCode.NO_CURRENT_REQUEST, ErrorCode.SWITCH_TO_UNKNOWN_REQUEST)


def test_nothing_follows_for_what_was_dropped() -> None:
    peer = Raw()
    peer.connection.propose(proposal(5))
    peer.data(switch(0))
    peer.control(propose(1, 2))
    assert list(peer.connection.requests) == [1]
    peer.data(metadata(entry(5)))
    assert peer.code is ErrorCode.NO_CURRENT_REQUEST


# Which demands hold when


def test_wishes_that_are_ruled_out_do_not_come_back() -> None:
    """A notification shows that the peer knows of the last of them."""
    peer, request = receiving()
    request.adjust(eagerness=NOTIFY)
    peer.data(b"\x03\x02")
    assert of(peer, Notified)
    peer.data(metadata(entry(3)))
    assert peer.code is ErrorCode.EAGERNESS_VIOLATED


@pytest.mark.parametrize("has_sent", [False, True])
def test_metadata_shows_that_the_peer_knows_that_it_is_wanted(has_sent: bool) -> None:
    peer, request = receiving(eagerness=NOTIFY)
    request.adjust(eagerness=EVERYTHING)
    if has_sent:
        peer.data(metadata(entry(2)))
    assert peer.code is None
    peer.data(b"\x02")
    assert peer.code is (ErrorCode.EAGERNESS_VIOLATED if has_sent else None)


# Retractions


def test_what_something_was_passed_over_behind_is_not_taken_back() -> None:
    peer, request = receiving(20, start_offset=10, greedy=True)
    request.provide_entry(entry(20))
    peer.data(raw(bytes(len(payload(20)) - 10)))
    assert peer.events[-1].verified is None  # type: ignore[attr-defined]
    request.adjust(eagerness=NOTIFY)
    peer.data(b"\x02", b"\x10")
    assert peer.code is ErrorCode.APOLOGY_FOR_VALID_DATA


def test_what_was_jumped_to_the_end_of_is_not_taken_back() -> None:
    """It was passed over, not sent."""
    peer, request = receiving(20, greedy=True)
    send_entry(request, 20)
    request.provide_entry(entry(20))
    peer.data(b"\x02", begun(20, 10), b"\x07" + varu64(len(payload(20)) - 10))
    assert peer.events[-1].finished  # type: ignore[attr-defined]
    peer.data(b"\x10")
    assert peer.code is ErrorCode.APOLOGY_FOR_VALID_DATA


def test_no_entry_is_asked_for_while_an_apology_is_owed() -> None:
    peer, request = receiving(5, greedy=True, payload_only=True)
    request.provide_entry(entry(5))
    peer.data(raw(bytes(len(payload(5)))), raw(payload(6)))
    assert not of(peer, EntryWanted)
    assert of(peer, ForkSuspected) == [ForkSuspected(request_id=0, entry=entry(5), seqnum=5)]


def test_after_an_apology_nobody_vouches_for_the_bytes_before_the_offset() -> None:
    """The verifier that had seen them has since seen wrong ones."""
    peer = Raw(setup=GREEDY, peer=GREEDY)
    verifier = PayloadVerifier(entry(20))
    verifier.update(payload(20)[:10])
    request = peer.connection.propose(proposal(20, start_offset=10), verifier=verifier)
    request.provide_entry(entry(20))
    peer.control(adjust(0, "all"))
    peer.data(switch(0), raw(bytes(5)), b"\x10", raw(payload(20)[10:]))
    event = peer.events[-1]
    assert isinstance(event, PayloadReceived)
    assert (event.finished, event.verified) == (True, None)
    peer.data(metadata(entry(21), backlink=True))
    assert peer.code is not ErrorCode.APOLOGY_OWED


def test_links_that_were_taken_back_are_not_believed() -> None:
    """Our own sent links replace any that the peer leaves out."""
    peer, request = receiving(6, greedy=True, eagerness=NOTIFY)
    request.send_metadata(unsigned(6))
    request.apologize()
    peer.data(b"\x03\x02")
    request.adjust(eagerness=EVERYTHING)
    peer.data(metadata(entry(7)))
    assert peer.events[-1] == HashWanted(request_id=0, seqnum=6)
    request.provide_hash(6, link(6))
    peer.data(b"")
    assert peer.events[-1] == MetadataReceived(request_id=0, entry=entry(7), verified=True)


def test_an_end_of_the_log_can_be_taken_back() -> None:
    _, request = receiving(greedy=True)
    request.send_metadata(replace(entry(2), end_of_log=True))
    request.apologize()
    send_entry(request, 2)
    send_entry(request, 3)


# Data that comes with a confirmation


def confirming(start: int, offset: int | None = None, **options: Any) -> Raw:
    """The peer's request 1, which we have confirmed with those options."""
    peer = Raw()
    peer.control(propose(1, start, offset=offset))
    request = peer.connection.request(1)
    request.confirm(EVERYTHING, **options)
    request.provide_hash(lipmaa(start), link(lipmaa(start)))
    request.provide_entry(entry(start))
    peer.data(switch(1))
    return peer


def test_links_told_with_the_confirmation_are_not_asked_for() -> None:
    packets = metadata(entry(12), backlink=True) + raw(payload(12))
    packets += metadata(entry(13), backlink=False)
    for links in (None, {4: link(4)}):
        peer = confirming(12, links=links)
        peer.data(packets)
        if links is None:
            assert peer.events[-1] == HashWanted(request_id=1, seqnum=4)
        else:
            assert isinstance(peer.events[-1], MetadataReceived)
            assert peer.events[-1].entry == entry(13)


@pytest.mark.parametrize("links", [None, {4: link(4)}])
def test_links_told_with_the_proposal_are_not_asked_for(links: dict[int, bytes] | None) -> None:
    peer = Raw()
    peer.connection.propose(proposal(12, end=20), links=links)
    peer.control(adjust(0, "all"))
    peer.data(switch(0), metadata(entry(12)), raw(payload(12)))
    peer.data(metadata(entry(13), backlink=False))
    last = peer.events[-1]
    if links is None:
        assert last == HashWanted(request_id=0, seqnum=4)
    else:
        assert last == MetadataReceived(request_id=0, entry=entry(13), verified=True)


def test_bytes_before_the_offset_are_told_with_the_confirmation() -> None:
    for size, verified in ((None, None), (3, True)):
        verifier = None
        if size is not None:
            verifier = PayloadVerifier(entry(20))
            verifier.update(payload(20)[:size])
        peer = confirming(20, 3, verifier=verifier)
        peer.data(raw(payload(20)[3:]))
        event = peer.events[-1]
        assert isinstance(event, PayloadReceived)
        assert event.verified is verified


# The peer's places after it has adjusted the end from 20 to 8: it may send 9, or go over to the
# pool (12 and 13).


def at_the_border(*, greedy: bool = False, told: bool = True) -> tuple[Raw, Request]:
    """The peer has sent (or else notified) everything up to entry 8."""
    peer, request = receiving(7, greedy=greedy, end=20, upper_certpool=40)
    request.provide_hash(8, link(8))
    peer.control(adjust(0, flags=8, extra=varu64(8)))
    if told:
        for seqnum in (7, 8):
            peer.data(metadata(entry(seqnum), backlink=False), raw(payload(seqnum)))
    else:
        request.adjust(eagerness=NOTIFY)
        peer.data(b"\x03\x04")
        request.adjust(eagerness=EVERYTHING)
    assert peer.code is None
    return peer, request


@pytest.mark.parametrize("taken_back", [False, True])
def test_the_peer_may_go_over_within_a_payload(taken_back: bool) -> None:
    peer, _ = at_the_border(greedy=taken_back)
    peer.data(metadata(entry(9)), begun(9, 3), b"\x10" if taken_back else b"")
    assert bool(of(peer, Apologized)) == taken_back
    for seqnum in (12, 13):
        peer.data(metadata(entry(seqnum), backlink=seqnum == 12))
        assert peer.events[-1] == MetadataReceived(request_id=0, entry=entry(seqnum), verified=True)


def test_a_skipped_payload_shows_that_the_peer_was_not_in_the_pool() -> None:
    peer, _ = at_the_border()
    peer.data(metadata(entry(9)), b"\x06")
    assert of(peer, PayloadSkipped)
    peer.data(metadata(entry(13), backlink=True))  # 12 comes before it
    assert peer.code is ErrorCode.INVALID_DATA


def test_an_apology_does_not_go_back_further_than_it_says() -> None:
    peer, _ = at_the_border(greedy=True)
    peer.data(metadata(entry(9)), raw(payload(9)), metadata(unsigned(10)), b"\x10")
    assert of(peer, Apologized)
    peer.data(raw(payload(8)))
    assert not of(peer, EntryWanted)
    assert peer.code is ErrorCode.PIECE_OUT_OF_TURN


@pytest.mark.parametrize("seqnum", [10, 12])
def test_an_apology_goes_back_to_both_places(seqnum: int) -> None:
    peer, _ = at_the_border(greedy=True)
    peer.data(metadata(entry(9)), raw(payload(9)), metadata(unsigned(10)), b"\x10")
    assert peer.events[-1] == Apologized(request_id=0, seqnum=10, part=Part.METADATA)
    peer.data(metadata(entry(seqnum), backlink=seqnum == 12))
    assert peer.events[-1] == MetadataReceived(request_id=0, entry=entry(seqnum), verified=True)


def test_after_notifications_the_peer_may_still_go_over() -> None:
    peer, _ = at_the_border(told=False)
    peer.data(b"\x03\x02", metadata(entry(12), backlink=True))
    assert peer.events[-1] == MetadataReceived(request_id=0, entry=entry(12), verified=True)


def test_nobody_goes_back_from_the_pool_to_a_larger_range() -> None:
    """Only in the larger range do payloads follow metadata, and 13 is not the same place there."""
    peer, _ = at_the_border(told=False)
    peer.data(b"\x03\x02", b"\x06")
    assert peer.code is ErrorCode.PIECE_OUT_OF_TURN


def test_what_both_have_adjusted_may_hold_together() -> None:
    """The peer cuts off the end, and we the pool after it: 7, 8 and 12 may be all there is."""
    peer, request = receiving(7, end=20, upper_certpool=40)
    request.provide_hash(8, link(8))
    peer.control(adjust(0, flags=8, extra=varu64(8)))
    request.adjust(upper_certpool=12)
    for seqnum in (7, 8):
        peer.data(metadata(entry(seqnum), backlink=False), raw(payload(seqnum)))
    assert not request.all_received
    peer.data(metadata(entry(12)))
    assert request.all_received
    peer.data(metadata(entry(13), backlink=False))  # it may not have heard of it yet
    assert peer.code is None


@pytest.mark.parametrize("in_runs", [True, False])
@pytest.mark.parametrize(("end", "upper"), [(1, 1), (1, 4), (2, 4)])
def test_a_confirmation_that_ends_the_range_before_the_payload_that_is_under_way(
    end: int, upper: int, in_runs: bool
) -> None:
    """Data may come before the confirmation; it must belong to the confirmed range."""
    peer = Raw(in_runs=in_runs)
    peer.connection.propose(proposal(1))
    peer.data(switch(0), metadata(entry(1)), raw(payload(1)))
    data = raw(payload(2))
    peer.data(metadata(entry(2)), data[:5])
    peer.control(adjust(0, "all", flags=0b1100, extra=varu64(end) + varu64(upper)))
    assert peer.code is None
    peer.data(data[5:])
    assert peer.code is (ErrorCode.PAST_END if end < 2 else None)
