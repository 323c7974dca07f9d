"""A peer must stay alive, and make progress with its duties."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2p_support import (
    KEY,
    LOG,
    Raw,
    adjust,
    cancel,
    entry,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    send_entry,
    switch,
    varu64,
    write,
)
from replicator_raw import RawPeer

from culm.bamboo.author import LogAuthor
from culm.machine import Closed
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Connection,
    ErrorCode,
    GivenUp,
    PayloadReceived,
    Request,
    RequestEnded,
    RequestGivenUp,
    RequestState,
    Role,
    Timing,
    payloads_up_to,
)
from culm.point2point.replication import Interest, LogRefused, ReplicatorLimits, Settled
from culm.wire.multihash import YAMF

TIMING = Timing(idle_timeout_s=30, keepalive_s=30, progress_max_s=100)
PING = bytes([0x40, 0])


def given_up(peer: Raw) -> list[int]:
    return [
        event.request_id
        for event in peer.events
        if isinstance(event, RequestGivenUp) and event.reason is GivenUp.STALLED
    ]


def pass_time(
    peer: Raw, seconds: int, does: Callable[[], object] | None = None, *, every: int = 10
) -> None:
    """Time passes; the peer answers our questions, and `does` something."""
    for _ in range(0, seconds, every):
        peer.now = getattr(peer, "now", 0.0) + every  # type: ignore[attr-defined]
        peer.connection.advance(peer.now)  # type: ignore[attr-defined]
        peer.receive(b"")
        if peer.code is None:
            peer.receive(PING)
            if does is not None:
                does()
        peer.connection.data_to_send()


class TestLife:
    @pytest.mark.parametrize("rate", [800, 100])
    def test_each_byte_is_a_sign_of_life(self, rate: int) -> None:
        """A line of 800 bytes a second takes 40 for the bytes taken at a time, one of 100 320."""
        new = LogAuthor(SigningKey(bytes(32)), family=YAMF).publish(bytes(2**17))
        peer = Raw(timing=TIMING)
        peer.connection.propose(proposal(1, log=new.entry.log))
        peer.control(adjust(0, "all"))
        packet = write(1, switch(0) + metadata(new.entry) + raw(bytes(2**17)))
        for second in range(1 + len(packet) // rate):
            peer.receive(packet[rate * second : rate * second + rate])
            peer.connection.advance(float(second))
            peer.receive(b"")
            assert peer.code is None
        assert isinstance(peer.events[-1], PayloadReceived)
        assert peer.events[-1].verified

    def test_before_the_setup_they_are_none(self) -> None:
        connection = Connection(role=Role.PROACTIVE, timing=TIMING)
        connection.advance(0.0)
        for second, octet in ((10.0, 0), (20.0, 0), (29.0, 249)):
            connection.receive_data(bytes([octet]))
            assert connection.next_event() is None
            connection.advance(second)
        connection.advance(30.0)
        closed = connection.next_event()
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is ErrorCode.PEER_SILENT

    @pytest.mark.parametrize("late", [0.0, 1.0, 30.0, 31.0, 1e6])
    def test_it_is_asked_before_it_is_given_up_however_late_the_time_is_told(
        self, late: float
    ) -> None:
        peer = Raw(timing=TIMING)
        peer.connection.advance(0.0)
        peer.connection.data_to_send()
        now = 30.0 + late
        for then, asked in ((now, PING), (now + 29.0, b""), (now + 30.0, b"")):
            assert peer.code is None
            peer.connection.advance(then)
            assert peer.connection.data_to_send() == asked
            peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT

    @pytest.mark.parametrize("times_told", [0, 1, 2])
    def test_the_same_time_told_again_makes_no_difference(self, times_told: int) -> None:
        """A driver may advance the time before each piece that comes."""
        peer = Raw(timing=TIMING)
        for now in (0.0, 30.0):
            peer.connection.advance(now)
        assert peer.connection.data_to_send() == PING
        peer.receive(PING)
        for _ in range(times_told):
            peer.connection.advance(30.0)
        peer.connection.advance(40.0)
        assert peer.connection.next_deadline() == 60.0
        peer.connection.data_to_send()
        peer.connection.advance(60.0)
        assert peer.connection.data_to_send() == PING

    def test_a_question_that_nobody_takes_is_not_repeated(self) -> None:
        peer = Raw(timing=TIMING)
        for second in range(0, 3000, 30):
            peer.connection.advance(float(second))
            peer.control(b"\x00\x01")  # credit for a proposal
        assert peer.code is None
        assert peer.connection.data_to_send() == PING

    def test_a_question_may_have_to_wait_behind_what_was_said_before(self) -> None:
        """As long as the line takes bytes, the answer may be on its way through its queue."""
        peer = Raw(timing=TIMING)
        peer.control(propose(1, 1))
        peer.connection.request(1).confirm(EVERYTHING)
        send_entry(peer.connection.request(1), 1)
        peer.connection.advance(0.0)
        left = 0
        for second in range(30, 1000, 10):
            peer.connection.advance(float(second))
            peer.receive(b"")
            assert peer.code is None
            if not peer.connection.data_to_send(2):
                break
            left = second
        assert left > 100
        assert peer.connection.next_deadline() == left + 30.0
        peer.connection.advance(left + 30.0)
        peer.receive(b"")
        assert peer.code is ErrorCode.PEER_SILENT


class TestProgress:
    def confirmed(self, **options: object) -> Raw:
        peer = Raw(timing=TIMING)
        pass_time(peer, 10)
        peer.connection.propose(proposal(1, **options))
        peer.control(adjust(0, "all"))
        return peer

    def test_a_range_that_is_confirmed_and_does_not_come(self) -> None:
        peer = self.confirmed(end=9)
        pass_time(peer, 200)
        assert given_up(peer) == [0]
        assert peer.code is None
        peer.control(cancel(0, 131))
        peer.data(marker(0))
        assert peer.events[-2] == RequestEnded(request_id=0)
        assert peer.code is None

    def test_not_even_the_cancel_is_confirmed(self) -> None:
        peer = self.confirmed(end=9)
        pass_time(peer, 500)
        assert given_up(peer) == [0]
        assert peer.code is ErrorCode.PEER_STALLED

    def test_a_cancel_of_our_own_that_is_not_confirmed(self) -> None:
        peer = self.confirmed()
        peer.connection.request(0).cancel(CancelReason.DO_NOT_RETRY)
        pass_time(peer, 210)
        assert peer.code is ErrorCode.PEER_STALLED

    def test_a_proposal_that_is_not_answered(self) -> None:
        peer = Raw(timing=TIMING)
        pass_time(peer, 10)
        peer.connection.propose(proposal(1))
        pass_time(peer, 100)
        assert not given_up(peer)
        pass_time(peer, 100)
        assert given_up(peer) == [0]

    def test_many_proposals_that_are_answered_one_by_one(self) -> None:
        peer = Raw(timing=TIMING)
        pass_time(peer, 10)
        for start in range(1, 31):
            peer.connection.propose(proposal(start))
        for request_id in range(0, 60, 2):
            peer.control(adjust(request_id, "all"))
            pass_time(peer, 90)
        assert not given_up(peer)
        assert peer.code is None

    def test_an_entry_that_stops_in_the_middle(self) -> None:
        """Also in a range without an end."""
        peer = self.confirmed()
        peer.data(switch(0), metadata(entry(1)), raw(b""), metadata(entry(2)))
        peer.data(b"\x08" + varu64(len(payload(2))), payload(2)[:3])
        pass_time(peer, 210)
        assert given_up(peer) == [0]

    @pytest.mark.parametrize("count", [1, 2])
    def test_metadata_without_its_payload(self, count: int) -> None:
        """An entry has begun with its metadata, also in a range without an end."""
        peer = self.confirmed()
        peer.data(switch(0), metadata(entry(1)))
        if count == 2:
            peer.data(raw(payload(1)), metadata(entry(2)))
        pass_time(peer, 100)
        assert not given_up(peer)
        pass_time(peer, 110)
        assert given_up(peer) == [0]
        assert peer.code is None

    @pytest.mark.parametrize(
        "wishes", [{"eagerness": payloads_up_to(0)}, {"size_min": 1000}, {"size_max": 1}]
    )
    def test_a_payload_that_is_not_wanted_is_not_owed(self, wishes: dict[str, Any]) -> None:
        peer = self.confirmed(**wishes)
        peer.data(switch(0), metadata(entry(1)), b"\x04" if "size_min" in wishes else raw(b""))
        peer.data(metadata(entry(2)))
        pass_time(peer, 1000)
        assert not given_up(peer)
        assert peer.code is None

    def test_nor_is_one_that_we_have_sent_ourselves(self) -> None:
        peer = self.confirmed()
        send_entry(peer.connection.request(0), 1)
        peer.data(switch(0), metadata(entry(1)))
        pass_time(peer, 1000)
        assert not given_up(peer)
        assert peer.code is None

    @pytest.mark.parametrize("options", [{}, {"end": 9, "eagerness": NOTIFY}])
    def test_what_is_not_owed_may_take_for_ever(self, options: dict[str, object]) -> None:
        peer = self.confirmed(**options)
        peer.data(switch(0))
        peer.control(propose(1, 20, end=(30, 30)), adjust(0, "all"))
        peer.connection.request(1).confirm(EVERYTHING)
        pass_time(peer, 2000)
        assert not given_up(peer)
        assert peer.code is None

    def test_a_range_that_has_come_is_not_owed(self) -> None:
        peer = self.confirmed(end=1)
        peer.data(switch(0), metadata(entry(1)), raw(payload(1)))
        pass_time(peer, 1000)
        assert not given_up(peer)

    def test_a_bare_switch_is_no_progress(self) -> None:
        peer = self.confirmed(end=9)
        pass_time(peer, 200, lambda: peer.data(switch(0)), every=50)
        assert given_up(peer) == [0]
        pass_time(peer, 200, lambda: peer.data(switch(0)), every=50)
        assert peer.code is ErrorCode.PEER_STALLED

    def test_no_data_is_an_excuse_for_not_saying_goodbye(self) -> None:
        peer = self.confirmed(end=9)
        peer.data(switch(0))
        octets = iter(metadata(entry(1)))
        peer.connection.close()
        pass_time(peer, 300, lambda: peer.data(bytes([next(octets)])), every=50)
        assert peer.code is ErrorCode.PEER_STALLED

    def test_a_goodbye_waits_for_those_words_of_ours_that_are_being_taken(self) -> None:
        peer = self.confirmed(end=9)
        peer.control(propose(1, 20))
        peer.connection.request(1).confirm(EVERYTHING)
        send_entry(peer.connection.request(1), 20)
        peer.connection.data_to_send(20)
        peer.connection.close()
        for now in range(50, 1000, 50):
            peer.connection.advance(float(now))
            peer.receive(PING)
            assert peer.code is None
            peer.connection.data_to_send(2)

    def test_whatever_comes_is_progress(self) -> None:
        """On a slow line each request waits for its turn, and a cancel for the data under way."""
        peer = self.confirmed(end=9)
        peer.connection.propose(proposal(20))
        peer.control(adjust(2, "all"))
        peer.data(switch(2), metadata(entry(20)), b"\x08" + varu64(len(payload(20))))
        octets = iter(payload(20)[:6])
        pass_time(peer, 540, lambda: peer.data(bytes([next(octets)])), every=90)
        assert not given_up(peer)
        pass_time(peer, 450, every=90)
        assert given_up(peer) == [0, 2]

    def test_it_is_excused_while_we_are_in_the_way(self) -> None:
        peer = self.confirmed(end=9)
        pass_time(peer, 1000, peer.connection.restart_idle_timeout)
        assert not given_up(peer)

    def test_a_goodbye_that_is_not_answered(self) -> None:
        peer = Raw(timing=TIMING)
        pass_time(peer, 10)
        peer.connection.close()
        pass_time(peer, 210)
        assert peer.code is ErrorCode.PEER_STALLED

    def test_deadlines(self) -> None:
        """Progress is checked when announced, and as long as there is something to check."""
        timing = Timing(idle_timeout_s=1e6, keepalive_s=1e6, progress_max_s=100)
        peer = Raw(timing=timing)
        connection = peer.connection
        connection.advance(50.0)
        assert connection.next_deadline() == 50.0 + 1e6
        connection.propose(proposal(1))
        assert connection.next_deadline() == 150.0
        connection.advance(150.0)
        peer.receive(b"")
        assert connection.next_deadline() == 250.0
        connection.advance(250.0)
        peer.receive(b"")
        assert given_up(peer) == [0]

    def test_it_may_be_left_out(self) -> None:
        timing = Timing(idle_timeout_s=30, keepalive_s=30, progress_max_s=math.inf)
        peer = Raw(timing=timing)
        peer.connection.advance(0.0)
        peer.connection.propose(proposal(1, end=9))
        assert peer.connection.next_deadline() == 30.0
        pass_time(peer, 10_000)
        assert peer.code is None
        assert not given_up(peer)


class TestTaking:
    """The peer has to take the data that it asked for."""

    def asked(self, *, credit: int | None = 0) -> tuple[Raw, Request]:
        """It has asked for much more than the credit it grants."""
        peer = Raw(timing=TIMING, data_credit=credit)
        pass_time(peer, 10)
        peer.control(propose(1, 1))
        request = peer.connection.request(1)
        request.confirm(EVERYTHING)
        for seqnum in range(1, 20):
            send_entry(request, seqnum)
        return peer, request

    @pytest.fixture
    def peer(self) -> Raw:
        return self.asked()[0]

    def test_it_grants_nothing(self, peer: Raw) -> None:
        pass_time(peer, 100)
        assert not given_up(peer)
        pass_time(peer, 110)
        assert given_up(peer) == [1]
        assert peer.code is None

    def test_what_it_has_granted_is_used_up(self) -> None:
        peer, _ = self.asked(credit=50)
        pass_time(peer, 310)
        assert given_up(peer) == [1]

    def test_a_byte_now_and_then_is_enough(self, peer: Raw) -> None:
        pass_time(peer, 2000, lambda: peer.receive(bytes([0x00, 1, 1])), every=90)
        assert not given_up(peer)
        assert peer.code is None

    def test_what_it_sends_meanwhile_is_no_excuse(self, peer: Raw) -> None:
        peer.connection.propose(proposal(20))
        peer.control(adjust(0, "all"))
        peer.data(switch(0), metadata(entry(20)), b"\x08" + varu64(len(payload(20))))
        octets = iter(payload(20)[:6])
        pass_time(peer, 210, lambda: peer.data(bytes([next(octets)])), every=35)
        assert given_up(peer) == [1]

    def test_it_takes_nothing_though_it_has_granted_it(self) -> None:
        """Our bytes are never asked for: it does not read."""
        peer, _ = self.asked(credit=None)
        for now in range(10, 260, 10):
            peer.connection.advance(float(now))
            peer.receive(PING)
        assert given_up(peer) == [1]

    def test_only_requests_that_have_data_waiting_are_given_up(self, peer: Raw) -> None:
        peer.control(propose(3, 30))
        peer.connection.request(3).confirm(EVERYTHING)
        pass_time(peer, 210)
        assert given_up(peer) == [1]

    def test_it_goes_on_asking(self, peer: Raw) -> None:
        """Cancelled requests are over; but their waiting data is in the way of all later ones."""
        pass_time(peer, 210)
        peer.control(cancel(1, 131))
        peer.data(marker(1))
        assert peer.events[-1] == RequestEnded(request_id=1)
        peer.control(propose(3, 1))
        peer.connection.request(3).confirm(EVERYTHING)
        pass_time(peer, 300)
        assert peer.code is ErrorCode.PEER_STALLED

    def test_it_does_not_even_cancel(self, peer: Raw) -> None:
        pass_time(peer, 420)
        assert peer.code is ErrorCode.PEER_STALLED

    def test_it_is_excused_while_we_are_in_the_way(self, peer: Raw) -> None:
        pass_time(peer, 1000, peer.connection.restart_idle_timeout)
        assert not given_up(peer)

    def test_who_has_taken_all_may_wait_for_ever(self) -> None:
        peer, _ = self.asked(credit=None)
        pass_time(peer, 2000)
        assert not given_up(peer)
        assert peer.code is None
        assert peer.connection.unsent_size == 0


class TestReplicator:
    """A fetch comes to an end, whatever the peer keeps up besides."""

    def offered(self) -> RawPeer:
        """The peer claims to have entries of a log, and we have asked for them."""
        limits, timing = ReplicatorLimits(), replace(TIMING, settle_s=1.0)
        peer = RawPeer(
            interest=Interest(live=False, accept_new_logs=True), limits=limits, timing=timing
        )
        peer.machine.advance(0.0)
        peer.control(propose(0, 10))
        peer.control(cancel(0, 131))  # we refuse the result
        peer.data(marker(0))
        (request,) = (each for each in peer.machine.connection.requests.values() if each.ours)
        assert request.proposal.end == 9
        return peer

    def pings(self, peer: RawPeer, seconds: int) -> None:
        for now in range(0, seconds, 10):
            peer.machine.advance(float(now))
            peer.receive(PING)

    @pytest.mark.parametrize("confirms", [False, True])
    def test_it_tells_of_what_does_not_come(self, confirms: bool) -> None:
        peer = self.offered()
        if confirms:
            peer.control(adjust(1, "all"))
        self.pings(peer, 220)
        assert peer.of(LogRefused)[-1] == LogRefused(log=KEY)
        peer.control(cancel(1, 131))
        peer.data(marker(1))
        for now in (220.0, 222.0):
            peer.machine.advance(now)
            peer.drain()
        assert peer.of(Settled)
        assert not peer.machine.connection.requests

    def test_it_ends_with_a_peer_that_does_not_even_cancel(self) -> None:
        peer = self.offered()
        peer.control(adjust(1, "all"))
        self.pings(peer, 420)
        assert peer.code is ErrorCode.PEER_STALLED

    @pytest.mark.parametrize("asks", [[], [propose(0, 1)], [propose(0, 1), propose(2, 1)]])
    @pytest.mark.parametrize("answers", [False, True])
    def test_a_peer_that_only_lives_holds_nothing_for_long(
        self, asks: list[bytes], answers: bool
    ) -> None:
        """It grants no credit for data, and sends nothing but keepalives."""
        limits, timing = ReplicatorLimits(), replace(TIMING, settle_s=1.0)
        peer = RawPeer(tuple(LOG.values()), limits=limits, timing=timing, data_credit=0)
        peer.machine.advance(0.0)
        for ask in asks:
            peer.control(ask)
        for now in range(0, 10 + 4 * 100, 10):
            peer.machine.advance(float(now))
            peer.receive(PING)
            if answers and peer.code is None:
                for request in list(peer.machine.connection.requests.values()):
                    if request.state is RequestState.CANCELLING:
                        peer.control(cancel(request.request_id, 131))
                        peer.data(marker(request.request_id))
        assert peer.code is ErrorCode.PEER_STALLED or not peer.machine.connection.requests
