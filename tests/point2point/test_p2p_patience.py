"""An honest peer's ignorance is no violation: it costs a request, not the connection."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from p2p_snapshots import request_as_it_is
from p2p_support import (
    LOG,
    Raw,
    adjust,
    cancel,
    entry,
    link,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    refuses,
    switch,
    varu64,
)

from culm.bamboo.entry import LogKey
from culm.bamboo.links import has_lipmaalink, shortest_path
from culm.machine import Event
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    EntryWanted,
    ErrorCode,
    GivenUp,
    Limits,
    MetadataReceived,
    Notified,
    PayloadReceived,
    ProposalDropped,
    RequestEnded,
    RequestGivenUp,
    RequestState,
    Role,
)

GIVEN_UP = RequestGivenUp(request_id=0, reason=GivenUp.UNTRACEABLE)


def ends(*numbers: int) -> list[bytes]:
    """Adjustments of request 0 to those ends."""
    return [adjust(0, flags=8, extra=varu64(number)) for number in numbers]


def of(peer: Raw, kind: type[Event]) -> list[Event]:
    return [event for event in peer.events if isinstance(event, kind)]


# Endless adjustments


class TestAdjustments:
    LIMITS = Limits(request_adjustments_max=3)

    def test_more_than_the_limit_costs_the_request(self) -> None:
        peer = Raw(limits=self.LIMITS)
        request = peer.connection.propose(proposal(5, end=40))
        peer.control(adjust(0, "all"), *ends(39, 38))
        peer.take()
        assert not of(peer, RequestGivenUp)
        peer.control(*ends(37))
        assert of(peer, RequestGivenUp) == [
            RequestGivenUp(request_id=0, reason=GivenUp.UNTRACEABLE)
        ]
        assert request.state is RequestState.CANCELLING
        assert peer.take() == (cancel(0, 129), marker(0))
        # Data that was on its way is passed over.
        peer.control(*ends(36, 35, 34, 33, 32))
        peer.data(switch(0), metadata(entry(5)), raw(payload(5)), b"\x03\x70")
        assert not of(peer, MetadataReceived)
        peer.control(cancel(0, 131))
        peer.data(marker(0))
        assert peer.events[-2] == RequestEnded(request_id=0)
        assert peer.code is None
        assert not peer.connection.requests

    def test_data_makes_room(self) -> None:
        """An entry beyond an end shows that the peer has learned of that end."""
        peer = Raw(limits=self.LIMITS)
        request = peer.connection.propose(proposal(1, end=12, upper_certpool=40))
        peer.control(adjust(0, "all"), *ends(11, 9))
        peer.data(switch(0))
        for number in range(1, 10):
            peer.data(metadata(entry(number), backlink=False), raw(payload(number)))
        assert len(request_as_it_is(request).incoming.ranges) == 3
        # After 9 and its pool (10, 11, 12, 13) there is nothing; the other ends have payloads.
        peer.data(metadata(entry(10)), metadata(entry(11)))
        assert len(request_as_it_is(request).incoming.ranges) == 1
        peer.control(*ends(8, 7))
        assert not of(peer, RequestGivenUp)
        peer.control(*ends(6))
        assert of(peer, RequestGivenUp)
        assert peer.code is None

    def test_what_is_said_before_the_confirmation_leaves_nothing_open(self) -> None:
        """Neither endpoint sends data before it has heard the confirmation."""
        peer = Raw(limits=self.LIMITS)
        peer.control(propose(1, 5, end=(40, 40)))
        peer.control(*[adjust(1, flags=8, extra=varu64(n)) for n in range(39, 5, -1)])
        request = peer.connection.request(1)
        assert len(request_as_it_is(request).incoming.ranges) == 1
        request.confirm(EVERYTHING)
        assert request.receive_cursor.range.end == request.send_cursor.range.end == 6
        assert not of(peer, RequestGivenUp)

    def test_wishes_of_the_peer_leave_nothing_open(self) -> None:
        """Its demands on us hold from the moment we hear them."""
        peer = Raw(limits=self.LIMITS)
        peer.connection.propose(proposal(5, end=40))
        peer.control(adjust(0, "all"), *[adjust(0, "up to", extra=varu64(n)) for n in range(50)])
        assert peer.code is None
        assert not of(peer, RequestGivenUp)

    def test_too_many_places_cost_the_request(self) -> None:
        """Notifications within a sparse range that is cut again and again."""
        peer = Raw()
        peer.connection.propose(
            proposal(5, end=100, upper_certpool=10**9, sparse=True, eagerness=NOTIFY)
        )
        peer.control(adjust(0, "notify"), *ends(*range(99, 39, -1)))
        peer.data(switch(0))
        while peer.code is None and not of(peer, RequestGivenUp):
            peer.data(b"\x02")
        assert of(peer, RequestGivenUp)
        peer.data(b"\x03\x77", metadata(entry(5)))
        peer.control(cancel(0, 131))
        peer.data(marker(0))
        assert peer.events[-1] == RequestEnded(request_id=0)  # our marker has yet to leave


class TestSparseEnds:
    """The path depends on the end; metadata shows it, by its signature."""

    @pytest.mark.parametrize("sent_before", range(5))
    def test_metadata_tells_the_path(self, sent_before: int) -> None:
        old, new = sorted(shortest_path(40, 1)), sorted(shortest_path(30, 1))
        assert old != new
        peer = Raw()
        request = peer.connection.propose(proposal(1, end=40, sparse=True))
        peer.control(adjust(0, "all"))
        for seqnum in range(1, 40):
            request.provide_hash(seqnum, link(seqnum))
        peer.control(adjust(0, flags=8 | 4, extra=varu64(30) + varu64(30)))
        peer.data(switch(0))
        sent = old[:sent_before]
        rest = [n for n in new if not sent or n > sent[-1]]
        if sent:  # both paths go on with this one
            rest = [n for n in rest if n > sent[-1]]
        for seqnum in (*sent, *rest):
            before = [n for n in (*sent, *rest) if n < seqnum]
            backlink = has_lipmaalink(seqnum) and seqnum - 1 not in before
            peer.data(metadata(entry(seqnum), backlink=backlink), raw(payload(seqnum)))
            assert peer.code is None
        got = [e.entry.seqnum for e in peer.events if isinstance(e, MetadataReceived)]
        assert got == [*sent, *rest]
        assert all(e.verified for e in peer.events if isinstance(e, PayloadReceived))
        assert request.receive_cursor.piece is None

    OPTIONS = MappingProxyType(
        {"end": 40, "upper_certpool": 40, "sparse": True, "payload_only": True}
    )

    def test_payloads_alone_do_not_tell_it(self) -> None:
        """So their end stays: we do not adjust it, and give up a request in which the peer does."""
        peer = Raw()
        request = peer.connection.propose(proposal(1, **self.OPTIONS))
        code = ErrorCode.SPARSE_END_FIXED
        refuses(peer.connection, code, lambda: request.adjust(end=31))
        peer.control(adjust(0, "all", 8, varu64(39)))  # with the confirmation it is clear
        assert request.receive_cursor.range.end == 39
        refuses(peer.connection, code, lambda: request.adjust(end=31))
        request.adjust(end=39, upper_certpool=39)
        peer.control(*ends(39))
        assert not of(peer, RequestGivenUp)
        peer.control(*ends(31))
        assert of(peer, RequestGivenUp) == [
            RequestGivenUp(request_id=0, reason=GivenUp.UNTRACEABLE)
        ]
        peer.data(switch(0), raw(payload(1)))
        assert not of(peer, PayloadReceived)
        assert peer.code is None

    def test_nor_for_who_confirms(self) -> None:
        peer = Raw()
        peer.control(propose(1, 1, end=(40, 40), flags=4 | 2))
        peer.control(adjust(1, flags=8, extra=varu64(39)))
        request = peer.connection.request(1)
        request.confirm(EVERYTHING, end=38)
        assert not of(peer, RequestGivenUp)
        code = ErrorCode.SPARSE_END_FIXED
        refuses(peer.connection, code, lambda: request.adjust(end=31))


# Crossing proposals


class TestDropped:
    def test_any_number_of_neighbours_is_remembered(self) -> None:
        """Their markers may come late: the data channel waits for credit."""
        peer = Raw(limits=Limits(dropped_max=1))
        for start in (3, 2):
            peer.connection.propose(proposal(start, log=LogKey(bytes(32), 0)))
        peer.connection.propose(proposal(3))
        for request_id in range(1, 2001, 2):
            peer.control(propose(request_id, 5), cancel(request_id))
        assert len(of(peer, ProposalDropped)) == 1000
        peer.data(*[switch(1) + marker(request_id) for request_id in range(1, 2001, 2)])
        assert peer.code is None
        peer.control(cancel(1), cancel(999), cancel(1999))
        assert peer.code is None
        peer.control(cancel(2001))
        assert peer.code is ErrorCode.UNKNOWN_REQUEST

    def test_ids_of_ours_are_not_among_them(self) -> None:
        peer = Raw()
        peer.connection.propose(proposal(3))
        peer.control(propose(1, 5))
        peer.control(cancel(0 + 2))
        assert peer.code is ErrorCode.UNKNOWN_REQUEST

    def test_runs_beyond_the_limit_are_joined(self) -> None:
        """No honest peer is blamed, however few may be remembered."""
        peer = Raw(limits=Limits(dropped_max=2))
        peer.connection.propose(proposal(3))
        for request_id in (1, 5, 9):
            peer.control(propose(request_id, 5))
        for request_id in (1, 5, 9):
            peer.control(cancel(request_id))
        peer.control(cancel(3))  # between two of them, so that it counts as one
        assert peer.code is None
        peer.control(cancel(7))
        assert peer.code is ErrorCode.UNKNOWN_REQUEST

    def test_every_second_of_many_proposals_is_dropped(self) -> None:
        peer = Raw(limits=Limits(dropped_max=1, requests_max=4096))
        peer.connection.propose(proposal(3))
        for request_id in range(1, 401, 4):
            peer.control(propose(request_id, 5), propose(request_id + 2, 1, end=(1, 1)))
        peer.data(*[switch(3) + marker(request_id) for request_id in range(1, 401, 4)])
        assert peer.code is None

    def test_an_id_that_is_used_again_is_not_dropped_any_more(self) -> None:
        peer = Raw()
        peer.connection.propose(proposal(3))
        peer.control(propose(1, 5))
        peer.control(propose(1, 2))
        peer.control(cancel(1))
        peer.data(marker(1))
        assert peer.events[-1] == RequestEnded(request_id=1)
        peer.control(cancel(1))
        assert peer.code is ErrorCode.UNKNOWN_REQUEST


# Requested entries


class TestEntriesAskedFor:
    """Only where the peer may know that we have the entry; otherwise its payload must not come."""

    def notified(self, **options: object) -> Raw:
        """The peer has notified us of entry 5's metadata, and is now to send."""
        peer = Raw()
        request = peer.connection.propose(proposal(5, eagerness=NOTIFY, **options))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), b"\x02")
        request.adjust(eagerness=EVERYTHING)
        assert of(peer, Notified)
        return peer

    @pytest.mark.parametrize("packet", [raw(payload(5)), b"\x07\x01"])
    def test_not_after_a_mere_notification(self, packet: bytes) -> None:
        peer = self.notified()
        peer.data(packet)
        assert not of(peer, EntryWanted)
        assert peer.code in (ErrorCode.UNKNOWN_PAYLOAD_SIZE, ErrorCode.CATCH_UP_ONLY)
        peer = self.notified()
        request = peer.connection.request(0)
        # Although the caller volunteers it.
        request.provide_entry(entry(5))
        peer.data(raw(payload(5)))
        assert peer.code is ErrorCode.UNKNOWN_PAYLOAD_SIZE

    def test_nor_by_us(self) -> None:
        peer = Raw()
        peer.control(propose(1, 5, eager="notify"))
        request = peer.connection.request(1)
        request.confirm(EVERYTHING)
        request.notify()
        peer.control(adjust(1, "all"))
        refuses(
            peer.connection,
            ErrorCode.UNKNOWN_PAYLOAD_SIZE,
            lambda: request.send_payload(payload(5), entry=entry(5)),
        )
        assert request_as_it_is(request).outgoing.entry is None
        request.notify()  # which is allowed, whatever the eagerness

    def test_after_what_we_have_sent_ourselves(self) -> None:
        peer = Raw()
        request = peer.connection.propose(proposal(5))
        peer.control(adjust(0, "all"))
        request.send_metadata(entry(5))
        request.send_payload(payload(5))
        request.send_metadata(entry(6))
        peer.data(switch(0), b"\x02", raw(payload(5)))
        assert peer.events[-1] == EntryWanted(request_id=0, seqnum=5)
        request.provide_entry(entry(5))
        peer.data(b"")
        assert isinstance(peer.events[-1], PayloadReceived)
        assert peer.events[-1].verified

    def test_at_an_offset_and_for_payloads_alone(self) -> None:
        for options in ({"start_offset": 3}, {"payload_only": True}):
            peer = Raw()
            peer.connection.propose(proposal(5, **options))
            peer.control(adjust(0, "all"))
            peer.data(switch(0), raw(payload(5)[options.get("start_offset", 0) :]))
            assert peer.events[-1] == EntryWanted(request_id=0, seqnum=5)
        assert LOG[5].entry == entry(5)


# Ids


def test_after_the_highest_id_the_lower_ones_are_used() -> None:
    peer = Raw()
    highest = 2**64 - 2
    assert peer.connection.propose(proposal(9, end=9), request_id=highest).request_id == highest
    assert peer.connection.propose(proposal(8, end=8)).request_id == 0
    assert peer.connection.propose(proposal(7, end=7)).request_id == 2
    reactive = Raw(Role.REACTIVE)
    highest = 2**64 - 1
    assert reactive.connection.propose(proposal(9), request_id=highest - 2).request_id % 2
    assert reactive.connection.propose(proposal(8, end=8)).request_id == highest
    assert reactive.connection.propose(proposal(7, end=7)).request_id == 1
