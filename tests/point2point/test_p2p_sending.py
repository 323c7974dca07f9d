"""Our packets on the data channel, and those that we are kept from sending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from nacl.signing import SigningKey
from p2p_snapshots import request_as_it_is
from p2p_support import (
    GREEDY,
    Pair,
    Raw,
    adjust,
    cancel,
    drain,
    ended_log,
    entry,
    link,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    refuses,
    send_entry,
    setup_bytes,
    split,
    switch,
    unsigned,
    varu64,
    write,
)

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import sign
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.records import NewEntry
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Apologized,
    CancelReason,
    Closed,
    Connection,
    ErrorCode,
    IdFreed,
    Limits,
    MetadataReceived,
    PayloadReceived,
    Request,
    Role,
    Setup,
    SkipReason,
)
from culm.point2point.direction import Direction
from culm.point2point.messages import Demand
from culm.point2point.pieces import Candidates, PieceRange
from culm.wire.multihash import YAMF

SIGNING_KEY = SigningKey(b"\7" * 32)


def sending(
    start: int = 2, *, greedy: bool = False, trust_caller: bool = False
) -> tuple[Raw, Request]:
    """The peer's request 1, which we have confirmed."""
    setup = GREEDY if greedy else Setup()
    peer = Raw(setup=setup, peer=setup, trust_caller=trust_caller)
    peer.control(propose(1, start))
    request = peer.connection.request(1)
    request.confirm(EVERYTHING)
    peer.take()
    return peer, request


VERBS: dict[str, Callable[[Request], object]] = {
    "metadata": lambda request: request.send_metadata(entry(2)),
    "payload": lambda request: request.send_payload(payload(2), entry=entry(2)),
    "entries": lambda request: request.send_entries([]),
    "notify": lambda request: request.notify(),
    "skip": lambda request: request.skip_payload(SkipReason.UNAVAILABLE),
    "jump": lambda request: request.jump(1, entry=entry(2)),
    "apologize": lambda request: request.apologize(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_sends_data_before_the_confirmation_or_after_the_end(verb: str) -> None:
    peer = Raw()
    peer.control(propose(1, 2))
    request = peer.connection.request(1)
    call = VERBS[verb]
    refuses(peer.connection, ErrorCode.NOT_CONFIRMED, lambda: call(request))
    request.confirm(EVERYTHING)
    request.send_metadata(entry(2))
    request.cancel(CancelReason.DO_NOT_RETRY)
    refuses(peer.connection, ErrorCode.REQUEST_CANCELLED, lambda: call(request))


# The request they belong to


def two_requests(*, greedy: bool = False) -> tuple[Raw, Request, Request]:
    peer, one = sending(greedy=greedy)
    peer.control(propose(3, 40))
    two = peer.connection.request(3)
    two.confirm(EVERYTHING)
    peer.take()
    return peer, one, two


def test_a_marker_for_another_request_needs_no_switch() -> None:
    peer, one, two = two_requests()
    one.send_metadata(entry(2))
    two.cancel(CancelReason.DO_NOT_RETRY)
    one.send_payload(payload(2))
    sent = switch(1) + metadata(entry(2)) + marker(3) + raw(payload(2))
    assert peer.take()[1] == sent


def test_an_apology_is_for_the_request_that_it_names() -> None:
    peer, one, two = two_requests(greedy=True)
    one.send_metadata(unsigned(2))
    two.send_metadata(entry(40))
    peer.take()
    one.apologize()
    assert peer.take()[1] == switch(1) + b"\x10"


def test_a_payload_is_of_the_log_of_the_request() -> None:
    peer, request = sending()
    request.send_metadata(entry(2))
    foreign = ended_log(3)[2].entry
    code = ErrorCode.PIECE_OUT_OF_TURN
    refuses(peer.connection, code, lambda: request.send_payload(payload(2), entry=foreign))
    refuses(peer.connection, code, lambda: request.jump(1, entry=foreign))


# Data that has left


def without_credit() -> tuple[Connection, Request, Request]:
    """Two requests of ours; the peer takes no data."""
    connection = Connection(role=Role.PROACTIVE)
    connection.receive_data(setup_bytes(Setup()) + write(0, b"\x00\x09"))
    drain(connection)
    one = connection.propose(proposal(end=1))
    two = connection.propose(proposal(20))
    connection.receive_data(write(0, adjust(0, "all") + adjust(2, "all")))
    drain(connection)
    return connection, one, two


def take_data(connection: Connection, credit: int) -> bytes:
    connection.data_to_send()
    connection.receive_data(bytes([0x00, 1, credit]))
    drain(connection)
    return split(connection.data_to_send())[1]


def test_an_id_is_free_when_its_marker_has_left_though_other_data_waits() -> None:
    connection, one, two = without_credit()
    one.cancel(CancelReason.DO_NOT_RETRY)
    connection.receive_data(write(0, cancel(0, 131)) + write(1, marker(0)))
    drain(connection)
    two.send_metadata(entry(20))
    assert list(connection.requests) == [2]
    again = lambda: connection.propose(proposal(end=1), request_id=0)  # noqa: E731
    refuses(connection, ErrorCode.ID_IN_USE, again)
    assert take_data(connection, 1) == marker(0)[:1]
    refuses(connection, ErrorCode.ID_IN_USE, again)
    assert take_data(connection, 1) == marker(0)[1:]
    assert connection.unsent_size > 0
    refuses(connection, ErrorCode.ID_IN_USE, again)
    assert drain(connection) == [IdFreed(request_id=0)]
    assert again().request_id == 0


def test_markers_are_counted_until_they_have_left() -> None:
    """The answers that the peer causes, and does not take, stop the reading."""
    connection, *_ = without_credit()
    cycle = write(0, propose(1) + cancel(1)) + write(1, marker(1))
    while connection.read_size():
        connection.receive_data(cycle)
        drain(connection)
        connection.data_to_send()  # the answers; there is no credit for the markers
    most = (1 << 14) + (1 << 10) * len(connection.requests)
    assert most < connection.unsent_size <= most + len(marker(1))
    for _ in range(len(marker(1))):
        if not connection.read_size():
            take_data(connection, 1)
    assert connection.read_size()
    assert connection.unsent_size == most


# Compression

PIECE = 64


def sent_of(payload: bytes, *, packet_size_max: int = PIECE) -> bytes:
    """The bytes that we send for an entry with that payload."""
    new = LogAuthor(SIGNING_KEY, family=YAMF).publish(payload)
    limits = Limits(packet_size_max=packet_size_max, data_window_max=1 << 20)
    pair = Pair(limits=(limits, limits))
    _, theirs = pair.confirmed(log=new.entry.log)
    theirs.send_metadata(new.entry)
    theirs.send_payload(payload)
    data = split(pair.right.data_to_send())[1]
    return data.removeprefix(switch(0) + metadata(new.entry))


def attempted(places: set[int], count: int) -> set[int]:
    """The `places` at which a compressible packet is compressed; the others are incompressible."""
    noise = Random(1)
    pieces = [bytes([n]) * PIECE if n in places else noise.randbytes(PIECE) for n in range(count)]
    sent = sent_of(b"".join(pieces))
    return {n for n in places if raw(pieces[n]) not in sent}


def test_compressing_is_tried_for_fewer_packets_while_it_does_not_pay() -> None:
    """After one failure one packet goes out raw, then three, seven, ...: at most 32."""
    tried = {place for place in range(97) if attempted({place}, place + 1)}
    assert tried == {0, 2, 6, 14, 30, 62, 95}


def test_compressing_is_tried_again_at_once_when_it_has_paid() -> None:
    assert attempted({2}, 3) == {2}
    assert attempted({2, 4}, 5) == {2}
    assert attempted({2, 5}, 6) == {2, 5}
    assert attempted({0, 1, 2, 3}, 4) == {0, 1, 2, 3}


@pytest.mark.parametrize(("size", "first"), [(31, 8), (32, 9)])
def test_small_packets_are_not_compressed(size: int, first: int) -> None:
    assert sent_of(bytes(size))[0] == first


def test_no_packet_is_larger_because_it_is_compressed() -> None:
    noise = Random(1)
    for size in (40, 50, 60, 1000):
        for repeated in range(9):
            data = noise.randbytes(size)
            data += data[:repeated]
            assert len(sent_of(data, packet_size_max=2000)) <= len(raw(data))


# Verified before sending


def forged(seqnum: int, *, backlink: bytes, lipmaalink: bytes | None) -> NewEntry:
    """An entry of the log of `ended_log`, signed by its author."""
    made = sign(
        SIGNING_KEY,
        family=YAMF,
        log_id=0,
        seqnum=seqnum,
        payload=b"x",
        backlink=backlink,
        lipmaalink=lipmaalink,
    )
    return NewEntry(made, b"x")


OWN = ended_log(9)
HASHES = {seqnum: new.entry.hash() for seqnum, new in OWN.items()}
OWN_PROPOSAL = {"log": OWN[1].entry.log}
WRONG = link(1)


@pytest.mark.parametrize(
    "wrong",
    [
        forged(5, backlink=WRONG, lipmaalink=None),
        forged(8, backlink=WRONG, lipmaalink=HASHES[4]),
        forged(8, backlink=HASHES[7], lipmaalink=WRONG),
    ],
)
def test_both_links_are_verified(wrong: NewEntry) -> None:
    """In safe mode such metadata is not sent; in greedy mode an apology may follow it."""
    before = range(1, wrong.entry.seqnum)
    pair = Pair()
    _, theirs = pair.confirmed(**OWN_PROPOSAL)
    for seqnum in before:
        theirs.send_metadata(OWN[seqnum].entry)
        theirs.send_payload(OWN[seqnum].payload or b"")
    code = ErrorCode.INVALID_DATA
    refuses(pair.right, code, lambda: theirs.send_metadata(wrong.entry))
    pair = Pair(GREEDY, GREEDY, answer=False)
    _, theirs = pair.confirmed(**OWN_PROPOSAL)
    for seqnum in before:
        theirs.send_metadata(OWN[seqnum].entry)
        theirs.send_payload(OWN[seqnum].payload or b"")
    theirs.send_metadata(wrong.entry)
    pair.pump()
    assert pair.of(MetadataReceived, "left")[-1].verified is False
    theirs.apologize()
    pair.pump()
    assert pair.of(Apologized, "left")
    theirs.send_metadata(OWN[wrong.entry.seqnum].entry)
    pair.pump()
    assert pair.of(MetadataReceived, "left")[-1].verified
    assert not pair.of(Closed)


@pytest.mark.parametrize("start", [8, 13])
def test_metadata_with_its_backlink_is_valid_though_we_know_nothing_before_it(start: int) -> None:
    """The peer finds it valid, and would close at an apology."""
    pair = Pair(GREEDY, GREEDY)
    _, theirs = pair.confirmed(start=start)
    theirs.provide_hash(4, link(4))
    theirs.send_metadata(entry(start))
    refuses(pair.right, ErrorCode.APOLOGY_FOR_VALID_DATA, theirs.apologize)
    theirs.send_payload(payload(start))
    pair.pump()
    assert pair.of(PayloadReceived, "left")[-1].verified


def test_no_apology_for_any_entry_of_a_whole_log() -> None:
    """With one link and with two, omitted or not."""
    pair = Pair(GREEDY, GREEDY)
    _, theirs = pair.confirmed()
    for seqnum in range(1, 18):
        theirs.send_metadata(entry(seqnum))
        refuses(pair.right, ErrorCode.APOLOGY_FOR_VALID_DATA, theirs.apologize)
        theirs.send_payload(payload(seqnum))


def test_a_trusted_caller_owes_apologies_too() -> None:
    peer, request = sending(greedy=True, trust_caller=True)
    request.send_metadata(entry(2))
    request.send_payload(bytes(7))
    code = ErrorCode.APOLOGY_OWED
    refuses(peer.connection, code, lambda: request.send_metadata(entry(3)))
    request.apologize()
    request.send_payload(payload(2))
    request.send_metadata(entry(3))


def ahead(peer: Raw, seqnum: int, size: int) -> Request:
    """A request of ours for which the peer has sent that much of a payload."""
    request = peer.connection.propose(proposal(seqnum))
    peer.control(adjust(0, "all"))
    begun = b"\x08" + varu64(size) + payload(seqnum)[:size]
    peer.data(switch(0), metadata(entry(seqnum)), begun)
    return request


def test_a_payload_that_was_jumped_into_is_not_verified() -> None:
    """Bytes of it have gone the other way."""
    peer = Raw()
    request = ahead(peer, 20, 60)
    request.notify()
    request.send_payload(payload(20)[:10])
    request.jump(50)
    assert request.send_payload(payload(20)[60:])
    send_entry(request, 21)
    assert peer.code is None


def test_what_was_jumped_to_the_end_of_is_not_taken_back() -> None:
    """It was passed over, not sent."""
    peer, size = Raw(setup=GREEDY, peer=GREEDY), len(payload(20))
    request = ahead(peer, 20, size)
    request.notify()
    request.send_payload(payload(20)[:10], entry=entry(20))
    request.jump(size - 10)
    assert request.send_cursor.piece == (21, 0)
    refuses(peer.connection, ErrorCode.APOLOGY_FOR_VALID_DATA, request.apologize)


def test_nothing_may_be_jumped_over_where_the_other_is_still_before_it() -> None:
    """However far it is in the payload before."""
    peer = Raw()
    request = ahead(peer, 20, 60)
    request.notify()
    request.send_payload(payload(20), entry=entry(20))
    request.send_metadata(entry(21))
    refuses(peer.connection, ErrorCode.CATCH_UP_ONLY, lambda: request.jump(10))


# An adjustment while something can be taken back


SMALLER = adjust(1, flags=8 | 4, extra=varu64(30) + varu64(30))


def test_an_adjustment_does_not_forgive_what_is_owed() -> None:
    peer, request = sending(greedy=True)
    request.send_metadata(entry(2))
    request.send_payload(bytes(7))
    peer.control(SMALLER)
    code = ErrorCode.APOLOGY_OWED
    refuses(peer.connection, code, lambda: request.send_metadata(entry(3)))
    request.apologize()
    request.send_payload(payload(2))


@pytest.mark.parametrize("greedy", [False, True])
def test_an_adjustment_within_a_payload_does_not_hide_its_beginning(greedy: bool) -> None:
    peer, request = sending(greedy=greedy)
    request.send_metadata(entry(2))
    request.send_payload(bytes(3) if greedy else payload(2)[:3])
    peer.control(SMALLER)
    if greedy:
        request.send_payload(payload(2)[3:])
        code = ErrorCode.APOLOGY_OWED
        refuses(peer.connection, code, lambda: request.send_metadata(entry(3)))
    else:
        code = ErrorCode.INVALID_DATA
        refuses(peer.connection, code, lambda: request.send_payload(bytes(4)))
        assert request.send_payload(payload(2)[3:])


def test_what_an_adjustment_has_cut_off_is_not_taken_back() -> None:
    """Its payload had begun, so it cannot be the last piece."""
    peer, request = sending(greedy=True)
    send_entry(request, 2)
    request.send_metadata(unsigned(3))
    request.send_payload(bytes(3))
    peer.control(adjust(1, flags=8 | 4, extra=varu64(2) + varu64(2)))
    assert request.send_cursor.piece is None
    refuses(peer.connection, ErrorCode.APOLOGY_FOR_VALID_DATA, request.apologize)


def test_what_something_was_passed_over_behind_is_not_taken_back() -> None:
    peer, request = sending(greedy=True)
    peer.control(adjust(1, "up to", extra=varu64(0)))
    request.send_metadata(unsigned(2))
    request.notify()
    refuses(peer.connection, ErrorCode.APOLOGY_FOR_VALID_DATA, request.apologize)


# Notifications


def test_the_peer_is_only_surely_passed_where_it_surely_is() -> None:
    """It may know of its new end or not: 6 is an entry in one case, nothing in the other."""
    peer = Raw()
    request = peer.connection.propose(proposal(1, end=20, upper_certpool=40, eagerness=NOTIFY))
    peer.control(adjust(0, "all"))
    peer.data(switch(0))
    peer.control(adjust(0, flags=8, extra=varu64(5)))
    peer.data(b"\x03\x0c")
    cursors = request_as_it_is(request).incoming.cursors
    behind = [request.send_cursor.is_behind(cursor) for cursor in cursors]
    assert len(set(behind)) == 2
    code = ErrorCode.EAGERNESS_VIOLATED
    refuses(peer.connection, code, lambda: request.notify(max(behind)))
    request.notify(min(behind))


def test_all_that_is_left_can_be_notified() -> None:
    peer = Raw()
    peer.control(propose(1, end=(3, 3), eager="notify"))
    request = peer.connection.request(1)
    request.confirm(NOTIFY)
    refuses(peer.connection, ErrorCode.PAST_END, lambda: request.notify(7))
    request.notify(6)
    assert request.send_cursor.piece is None
    peer.data(switch(1), b"\x03\x06")
    assert peer.code is None
    assert request.receive_cursor.piece is None


def test_an_entry_is_forgotten_with_its_payload_however_that_is_passed() -> None:
    peer, request = sending()
    peer.control(adjust(1, "up to", extra=varu64(0)))
    request.send_metadata(entry(2))
    assert request_as_it_is(request).outgoing.entry == entry(2)
    request.notify()
    assert request_as_it_is(request).outgoing.entry is None


def test_an_entry_of_a_certificate_pool_is_not_remembered() -> None:
    peer = Raw()
    peer.control(propose(1, 5, lower=4))
    request = peer.connection.request(1)
    request.confirm(EVERYTHING)
    request.send_metadata(entry(4))
    assert request_as_it_is(request).outgoing.entry is None


# Memory


@pytest.mark.parametrize("in_runs", [True, False])
def test_of_entries_that_were_sent_now_and_then_only_the_last_are_remembered(
    in_runs: bool,
) -> None:
    range_ = PieceRange(proposal())
    sent, received = (Direction(Candidates(range_, Demand())) for _ in range(2))
    sent.face(received)
    received.face(sent)
    received.candidates.advance(range_.count)  # so that any piece may be passed over
    sent.notify(2)
    for seqnum in range(2, 3001, 2):
        if in_runs:
            sent.take_run({seqnum: link(1)})
            sent.notify(2)
        else:
            lipmaalink = link(1) if has_lipmaalink(seqnum) else None
            new = replace(entry(2), seqnum=seqnum, lipmaalink=lipmaalink)
            sent.take_metadata(sent.check_metadata(), new)
            sent.notify(3)
    assert len(sent.metadata) == 1024
    assert 3000 in sent.metadata
    assert 2 not in sent.metadata
    assert len(sent.links) <= 129
    assert sent.entry is sent.last is None
