"""The control channel, sentence by sentence."""

from __future__ import annotations

from typing import Any

import pytest
from p2p_support import (
    FORK,
    LOG,
    Pair,
    Raw,
    adjust,
    cancel,
    drain,
    ended_log,
    entry,
    grant,
    link,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    refuses,
    send_entry,
    switch,
    varu64,
)

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lower_pool, upper_pool
from culm.machine import Closed, Event
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Adjust,
    Adjusted,
    Cancelled,
    CancelReason,
    Confirmed,
    CreditReceived,
    ErrorCode,
    IdFreed,
    Limits,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
    ProposalDropped,
    Proposed,
    Request,
    RequestEnded,
    RequestState,
    Role,
    SkipReason,
    payloads_up_to,
)

MAX = 2**64 - 1


def brought(events: list[Event]) -> list[tuple[int, str]]:
    """The received transmissions, in order."""
    found: list[tuple[int, str]] = []
    for event in events:
        if isinstance(event, MetadataReceived):
            found.append((event.entry.seqnum, "metadata"))
        elif isinstance(event, PayloadReceived) and event.finished:
            found.append((event.seqnum, "payload"))
    return found


def serve(request: Request, up_to: int = 45) -> None:
    """Send everything due, up to an entry."""
    while (piece := request.send_cursor.piece) is not None and piece.seqnum <= up_to:
        seqnum, offset = piece.seqnum, request.send_cursor.offset
        if piece.part == 0:
            request.send_metadata(entry(seqnum))
        else:
            request.send_payload(payload(seqnum)[offset:], entry=entry(seqnum))


class TestCredit:
    def test_is_given_at_any_point(self) -> None:
        pair = Pair()
        pair.confirmed()
        pair.forget()
        pair.right.grant_proposals(MAX - 256 + 1)
        pair.pump()
        [event] = pair.of(CreditReceived, "left")
        assert event.credit == pair.left.proposal_credit == MAX

    def test_is_spent_one_by_one(self) -> None:
        peer = Raw(credit=3)
        for left in (2, 1, 0):
            peer.connection.propose(proposal(left + 1, end=left + 1))
            assert peer.connection.proposal_credit == left
        peer.control(grant(1))
        peer.connection.propose(proposal(40))

    def test_is_refilled_when_a_request_ends(self) -> None:
        peer = Raw(limits=Limits(requests_max=1))
        for _ in range(3):
            peer.control(propose(1), cancel(1))
            peer.data(marker(1))
            assert peer.code is None
            assert grant(1) in peer.take()[0]


class TestProposals:
    def test_ids_are_of_64_bits(self) -> None:
        pair = Pair()
        for side, request_id in (("left", MAX - 1), ("right", MAX), ("left", 0)):
            proposer, other = pair.sides(side)
            start = 1 + request_id % 3
            proposer.propose(proposal(start, end=start), request_id=request_id)
            pair.pump()
            assert request_id in other.requests
        with pytest.raises(ValueError, match="request id must be in"):
            pair.left.propose(proposal(40), request_id=MAX + 1)
        assert pair.left.propose(proposal(40)).request_id == 2  # all higher ones are past

    @pytest.mark.parametrize(("start", "end"), [(1, 1), (5, 6), (8, 9), (23, 24), (38, 38)])
    def test_certificate_pools(self, start: int, end: int) -> None:
        for lower in lower_pool(start):
            for upper in [end, *upper_pool(end)]:
                pair = Pair()
                _, theirs = pair.confirmed(
                    start=start, lower_certpool=lower, end=end, upper_certpool=upper
                )
                serve(theirs)
                assert theirs.send_cursor.piece is None
                pair.pump()
                parts = ("metadata", "payload")
                assert brought(pair.events["left"]) == [
                    *[(n, "metadata") for n in lower_pool(start) if lower <= n < start],
                    *[(n, part) for n in range(start, end + 1) for part in parts],
                    *[(n, "metadata") for n in upper_pool(end) if n <= upper],
                ]

    @pytest.mark.parametrize("offset", [0, 3, 7])
    def test_starting_inside_a_payload(self, offset: int) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=2, start_offset=offset)
        assert theirs.proposal.lower_certpool is None
        assert theirs.proposal.expected_hash == link(2)
        assert theirs.send_cursor.offset == offset
        serve(theirs, 3)
        pair.pump()
        first = pair.of(PayloadReceived, "left")[0]
        assert (first.seqnum, first.offset, first.data) == (2, offset, payload(2)[offset:])
        assert first.verified is (None if offset else True)
        assert brought(pair.events["left"])[1:] == [(3, "metadata"), (3, "payload")]
        assert ours.receive_cursor.piece == (4, 0)

    def test_payload_only(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(
            start=5, lower_certpool=4, end=7, upper_certpool=13, payload_only=True
        )
        serve(theirs)
        pair.pump()
        assert brought(pair.events["left"]) == [
            (4, "metadata"),
            *[(n, "payload") for n in (5, 6, 7)],
            *[(n, "metadata") for n in (8, 12, 13) if n in upper_pool(7)],
        ]

    def test_sparse(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=4, end=40, sparse=True)
        serve(theirs)
        pair.pump()
        parts = ("metadata", "payload")
        assert brought(pair.events["left"]) == [(n, p) for n in (4, 13, 40) for p in parts]

    def test_sparse_needs_an_end(self) -> None:
        peer = Raw()
        code = ErrorCode.SPARSE_WITHOUT_END
        refuses(peer.connection, code, lambda: peer.connection.propose(proposal(5, sparse=True)))
        peer.control(propose(1, flags=2))
        assert peer.code is code

    def test_sizes_of_interest(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=2, size_min=8, size_max=14)
        code = ErrorCode.UNWANTED_PAYLOAD
        for seqnum, reason in ((2, SkipReason.TOO_SMALL), (3, None), (4, SkipReason.TOO_LARGE)):
            theirs.send_metadata(entry(seqnum))
            data = payload(seqnum)
            if reason is None:
                theirs.send_payload(data)
            else:
                refuses(pair.right, code, lambda data=data: theirs.send_payload(data))
                theirs.skip_payload(reason)
        pair.pump()
        assert [e.seqnum for e in pair.of(PayloadSkipped, "left")] == [2, 4]
        peer = Raw()
        peer.connection.propose(proposal(2, size_min=8))
        peer.control(adjust(0, "all"))
        peer.data(b"\0\0", metadata(entry(2)), b"\x08\x07" + payload(2))
        assert peer.code is code

    @pytest.mark.parametrize("mandatory", [False, True])
    def test_mandatory_payloads(self, mandatory: bool) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=2, payload_mandatory=mandatory)
        theirs.send_metadata(entry(2))
        if mandatory:
            with pytest.raises(Exception, match="mandatory"):
                theirs.skip_payload(SkipReason.UNAVAILABLE)
        else:
            theirs.skip_payload(SkipReason.UNAVAILABLE)

    def test_eagerness(self) -> None:
        for eagerness, sent, notified in (
            (EVERYTHING, [(2, "metadata"), (2, "payload")], []),
            (payloads_up_to(7), [(2, "metadata"), (2, "payload")], []),
            (payloads_up_to(6), [(2, "metadata")], [(2, 1, 1)]),
            (NOTIFY, [], [(2, 0, 2)]),
        ):
            pair = Pair()
            _, theirs = pair.confirmed(start=2, eagerness=eagerness)
            if not eagerness.wants_metadata:
                theirs.notify(2)
            else:
                theirs.send_metadata(entry(2))
                if eagerness.wants_payload(7):
                    theirs.send_payload(payload(2))
                else:
                    theirs.notify()
            pair.pump()
            assert brought(pair.events["left"]) == sent
            told = pair.of(Notified, "left")
            assert [(e.seqnum, e.part, e.count) for e in told] == notified

    def test_expected_hashes(self) -> None:
        assert proposal(13, lower_certpool=13).expected_seqnum == 4
        assert proposal(13, lower_certpool=4).expected_seqnum == 1
        assert proposal(13, lower_certpool=1).expected_seqnum == 0
        assert proposal(13, start_offset=0).expected_seqnum == 13
        peer = Raw()
        for bad in (
            proposal(1, expected_hash=link(1)),
            proposal(5, expected_hash=None),
            proposal(5, expected_hash=link(4)[:-1]),
        ):
            code = ErrorCode.BAD_HASH
            refuses(peer.connection, code, lambda bad=bad: peer.connection.propose(bad))

    def test_parity(self) -> None:
        pair = Pair()
        made = [
            side.propose(proposal(n, end=n)).request_id
            for n, side in ((1, pair.left), (2, pair.right), (3, pair.left), (4, pair.right))
        ]
        assert made == [0, 1, 2, 3]

    def test_the_end_of_a_request_is_told_before_the_data_behind_its_marker(self) -> None:
        good, faulty = metadata(entry(10)), metadata(entry(10), backlink=True)
        for behind in ((switch(6), good), (switch(6), faulty)):
            peer = Raw()
            request = peer.connection.propose(proposal(1, end=3), request_id=4)
            peer.connection.propose(proposal(10, end=12), request_id=6)
            request.cancel(CancelReason.DO_NOT_RETRY)
            peer.control(cancel(4, 131), adjust(6))
            ended, other = peer.data(marker(4), *behind)
            assert ended == RequestEnded(request_id=4)
            assert isinstance(other, Closed) is (faulty in behind)

    def test_ids_are_used_again(self) -> None:
        peer = Raw()
        call = peer.connection.propose
        request = call(proposal(), request_id=4)
        in_use = ErrorCode.ID_IN_USE
        again = lambda: call(proposal(9), request_id=4)  # noqa: E731
        refuses(peer.connection, in_use, again)
        request.cancel(CancelReason.DO_NOT_RETRY)
        refuses(peer.connection, in_use, again)
        peer.control(cancel(4, 131))
        refuses(peer.connection, in_use, again)
        peer.data(marker(4))  # the fourth, but our own has not left: it could be overtaken
        assert isinstance(peer.events[-1], RequestEnded)
        assert not peer.connection.requests
        refuses(peer.connection, in_use, again)
        assert call(proposal(20, end=20)).request_id != 4
        peer.connection.data_to_send()
        assert peer.connection.next_event() == IdFreed(request_id=4)
        assert again().request_id == 4

    def test_an_id_is_said_to_be_free_once_its_marker_has_left_and_only_if_it_is(self) -> None:
        """The peer takes one of the two bytes."""
        peer = Raw(data_credit=1)
        request = peer.connection.propose(proposal(), request_id=4)
        request.cancel(CancelReason.DO_NOT_RETRY)
        peer.control(cancel(4, 131))
        assert peer.data(marker(4)) == [RequestEnded(request_id=4)]
        peer.connection.data_to_send()
        assert peer.connection.next_event() is None
        again = lambda: peer.connection.propose(proposal(9), request_id=4)  # noqa: E731
        refuses(peer.connection, ErrorCode.ID_IN_USE, again)
        peer.receive(bytes([0, 1, 100]))  # credit
        assert peer.connection.next_event() is None
        peer.connection.data_to_send()
        assert peer.connection.next_event() == IdFreed(request_id=4)
        assert again().request_id == 4

    def test_an_id_is_free_when_that_is_told_and_no_sooner(self) -> None:
        peer = Raw()
        request = peer.connection.propose(proposal(), request_id=4)
        request.cancel(CancelReason.DO_NOT_RETRY)
        peer.control(cancel(4, 131))
        peer.data(marker(4))
        peer.connection.data_to_send()
        again = lambda: peer.connection.propose(proposal(9), request_id=4)  # noqa: E731
        refuses(peer.connection, ErrorCode.ID_IN_USE, again)
        assert IdFreed(request_id=4) in peer.events or drain(peer.connection)
        assert again().request_id == 4


class TestAdjusting:
    @pytest.mark.parametrize("by", ["left", "right"])
    def test_every_field(self, by: str) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(start=5, end=20, upper_certpool=40, payload_mandatory=True)
        one, other = (ours, theirs) if by == "left" else (theirs, ours)
        pair.forget()
        assert other.peer_demand is not None
        assert not other.peer_demand.skipping_allowed
        fields: list[dict[str, Any]] = [
            {"end": 12},
            {"upper_certpool": 13},
            {"eagerness": NOTIFY},
            {"allow_skipping": True},
            {"size_min": 3},
            {"size_max": 100},
        ]
        for field in fields:
            one.adjust(**field)
            pair.pump()
        told = pair.of(Adjusted)
        assert [e.adjustment for e in told] == [Adjust(request_id=0, **field) for field in fields]
        for request in (ours, theirs):
            range_ = request.send_cursor.range
            assert (range_.end, range_.upper_certpool) == (12, 13)
        demand = other.peer_demand
        assert demand == one.our_demand
        assert demand is not None
        assert (demand.eagerness, demand.skipping_allowed) == (NOTIFY, True)
        assert (demand.size_min, demand.size_max) == (3, 100)
        one.adjust(eagerness=EVERYTHING)  # with the flag not set
        pair.pump()
        assert other.peer_demand is not None
        assert other.peer_demand.skipping_allowed

    def test_what_is_not_less_is_ignored(self) -> None:
        peer = Raw()
        request = peer.connection.propose(proposal(5, end=8, upper_certpool=13))
        peer.control(adjust(0, "all", 8 | 4, varu64(9) + varu64(40)))
        peer.control(adjust(0, flags=8 | 4, extra=varu64(8) + varu64(13)))
        request.adjust(end=20, upper_certpool=40)
        assert peer.code is None
        range_ = request.send_cursor.range
        assert (range_.end, range_.upper_certpool) == (8, 13)

    def test_the_first_adjustment_confirms(self) -> None:
        pair = Pair()
        ours, theirs = pair.propose()
        ours.adjust(size_min=0)  # the proposer's own adjustments confirm nothing
        pair.pump()
        assert (ours.state, theirs.state) == (
            RequestState.PROPOSED_BY_US,
            RequestState.PROPOSED_BY_PEER,
        )
        theirs.confirm(NOTIFY, size_max=10)
        send_entry(theirs, 1)
        pair.pump()
        [event] = pair.of(Confirmed)
        assert event.adjustment == Adjust(request_id=0, eagerness=NOTIFY, size_max=10)
        theirs.adjust(eagerness=EVERYTHING)
        pair.pump()
        assert len(pair.of(Confirmed)) == 1
        send_entry(ours, 1)

    def test_what_the_other_endpoint_begins_with(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(size_min=5, size_max=9)
        demand = ours.peer_demand
        assert demand == theirs.our_demand
        assert demand is not None
        assert (demand.skipping_allowed, demand.size_min, demand.size_max) == (False, 0, MAX)

    def test_how_many_may_be_open(self) -> None:
        peer = Raw(limits=Limits(request_adjustments_max=3))
        request = peer.connection.propose(proposal(5, end=40))
        code = ErrorCode.TOO_MANY_ADJUSTMENTS
        request.adjust(end=39)
        request.adjust(end=38)
        refuses(peer.connection, code, lambda: request.adjust(end=37))


class TestOverlaps:
    @pytest.mark.parametrize(
        ("left", "right", "winner"),
        [
            ((5, 9), (3, 6), "right"),
            ((3, 6), (5, 9), "left"),
            ((5, 9), (5, 5), "left"),
            ((5, 5), (5, None), "left"),
            ((3, None), (40, 41), "left"),
            ((3, 4), (5, 6), None),
            ((5, 6), (3, 4), None),
        ],
    )
    def test_crossing_proposals(self, left: Any, right: Any, winner: str | None) -> None:
        pair = Pair()
        ours = pair.left.propose(proposal(left[0], end=left[1]))
        theirs = pair.right.propose(proposal(right[0], end=right[1]))
        pair.pump()
        assert (0 in pair.left.requests) == (0 in pair.right.requests) == (winner != "right")
        assert (1 in pair.left.requests) == (1 in pair.right.requests) == (winner != "left")
        dropped = pair.of(ProposalDropped)
        assert len(dropped) == (0 if winner is None else 2)
        if winner is not None:
            loser, kept = (ours, 1) if winner == "right" else (theirs, 0)
            refuses(
                pair.left if winner == "right" else pair.right,
                ErrorCode.UNKNOWN_REQUEST,
                loser.notify,
            )
            assert {event.winner_id for event in dropped} == {kept}
            assert sorted(event.ours for event in dropped) == [False, True]

    def test_a_dropped_proposal_has_cost_nothing(self) -> None:
        """Its proposer has its credit back, at both ends, without a message."""
        peer = Raw(limits=Limits(requests_max=1), credit=1)
        peer.connection.propose(proposal(3))
        assert peer.connection.proposal_credit == 0
        peer.take()
        for request_id in (1, 3, 5):
            peer.control(propose(request_id, 5))
        assert len([e for e in peer.events if isinstance(e, ProposalDropped)]) == 3
        assert peer.take() == (b"", b"")
        peer.control(propose(7, 2))  # drops ours
        assert peer.events[-3:] == [
            ProposalDropped(request_id=0, ours=True, winner_id=7),
            CreditReceived(amount=1, credit=1),
            IdFreed(request_id=0),
        ]
        assert peer.take() == (b"", b"")
        assert peer.connection.proposal_credit == 1
        peer.connection.propose(proposal(9, log=LogKey(bytes(32), 0)))
        refuses(peer.connection, ErrorCode.NO_CREDIT, lambda: peer.connection.propose(proposal(9)))
        peer.control(propose(9, 40))
        assert peer.code is ErrorCode.NO_CREDIT

    def test_one_that_is_dropped_as_it_is_made_has_cost_nothing(self) -> None:
        peer = Raw(credit=1)
        peer.control(propose(1, 5))
        peer.connection.propose(proposal(7))
        assert peer.connection.proposal_credit == 1
        assert drain(peer.connection)[-2:] == [
            CreditReceived(amount=1, credit=1),
            IdFreed(request_id=0),
        ]

    @pytest.mark.parametrize("start", [2, 9])
    def test_both_count_the_credit_alike(self, start: int) -> None:
        pair = Pair(limits=(Limits(requests_max=3), Limits(requests_max=3)))
        pair.left.propose(proposal(5))
        pair.right.propose(proposal(start))
        pair.pump()
        assert {pair.left.proposal_credit, pair.right.proposal_credit} == {2, 3}
        for one, other in ((pair.left, pair.right), (pair.right, pair.left)):
            most = MAX - one.proposal_credit
            too_much = lambda: other.grant_proposals(most + 1)  # noqa: B023, E731
            refuses(other, ErrorCode.CREDIT_OVERFLOW, too_much)
            other.grant_proposals(most)
            pair.pump()
            assert one.proposal_credit == MAX

    def test_no_credit_comes_back_beyond_the_highest(self) -> None:
        """In the meantime it has been granted anew."""
        peer = Raw(credit=MAX)
        peer.connection.propose(proposal(5))
        peer.control(grant(1), propose(1, 2))
        assert peer.connection.proposal_credit == MAX
        peer = Raw(limits=Limits(requests_max=MAX))
        peer.connection.propose(proposal(3))
        peer.control(propose(1, 5))
        peer.connection.propose(proposal(3))
        grant_one = lambda: peer.connection.grant_proposals(1)  # noqa: E731
        refuses(peer.connection, ErrorCode.CREDIT_OVERFLOW, grant_one)
        peer.control(propose(3, 5, log=LogKey(bytes(32), 0)))
        grant_one()

    @pytest.mark.parametrize("start", [1, 40])
    def test_one_may_cross_two(self, start: int) -> None:
        """Both lose, or it loses to the first of them."""
        peer = Raw()
        for number in (5, 20):
            peer.connection.propose(proposal(number, end=number if start == 1 else None))
        peer.control(propose(1, start))
        dropped = [(e.request_id, e.winner_id) for e in peer.events if type(e) is ProposalDropped]
        assert dropped == ([(0, 1), (2, 1)] if start == 1 else [(1, 0)])
        assert peer.code is None
        assert set(peer.connection.requests) == ({1} if start == 1 else {0, 2})

    def test_other_logs_do_not_overlap(self) -> None:
        pair = Pair()
        pair.left.propose(proposal())
        pair.right.propose(proposal(log=LogKey(bytes(32), 0)))
        pair.pump()
        assert not pair.of(ProposalDropped)

    def test_what_was_answered_stays(self) -> None:
        pair = Pair()
        pair.confirmed()
        pair.right.propose(proposal())
        pair.pump()
        assert not pair.of(ProposalDropped)

    def test_what_the_other_has_cancelled_stays(self) -> None:
        """Its next proposal has not crossed ours."""
        peer = Raw()
        peer.connection.propose(proposal(3))
        peer.control(cancel(0), propose(1, 2))
        peer.control(propose(3, 4))
        assert not [event for event in peer.events if isinstance(event, ProposalDropped)]
        assert set(peer.connection.requests) == {0, 1, 3}

    def test_words_on_a_dropped_proposal_are_passed_over(self) -> None:
        peer = Raw()
        peer.connection.propose(proposal(3))
        peer.control(propose(1, 5), adjust(1, flags=8, extra=varu64(9)), cancel(1))
        peer.data(b"\0\1", marker(1))
        assert peer.code is None
        peer.control(propose(1, 2))
        assert isinstance(peer.events[-4], Proposed)
        assert 0 not in peer.connection.requests


class TestCancelling:
    @pytest.mark.parametrize("confirmed", [False, True])
    @pytest.mark.parametrize("by_proposer", [False, True])
    def test_four_messages(self, confirmed: bool, by_proposer: bool) -> None:
        request_id = 0 if by_proposer else 1
        peer = Raw()
        if by_proposer:
            request = peer.connection.propose(proposal())
            if confirmed:
                peer.control(adjust(0, "all"))
        else:
            peer.control(propose(1))
            request = peer.connection.request(1)
            if confirmed:
                request.confirm(EVERYTHING)
        peer.take()
        peer.control(cancel(request_id))
        assert peer.take() == (cancel(request_id, 131), marker(request_id))
        assert request.state is RequestState.CANCELLED
        assert peer.connection.requests
        peer.data(marker(request_id))
        told = [type(event) for event in peer.events]
        expected = [Cancelled, RequestEnded, *([IdFreed] if by_proposer else [])]
        assert told[-len(expected) :] == expected
        assert not peer.connection.requests

    @pytest.mark.parametrize("order", ["cdC", "Ccd", "cCd", "dCc", "Cdc"])
    def test_every_interleaving(self, order: str) -> None:
        """c: the peer cancels for its own reasons; d: its marker; C: we cancel."""
        peer = Raw()
        request = peer.connection.propose(proposal())
        peer.control(adjust(0, "all"))
        cancelled = False
        for step in order:
            if step == "C":
                if request.state is RequestState.CONFIRMED:
                    request.cancel(CancelReason.RESOURCE_LIMIT)
            elif step == "c":
                peer.control(cancel(0, 130))
                cancelled = True
            else:
                peer.data(marker(0))
        assert cancelled
        assert peer.code is None
        control, data = peer.take()
        assert control.count(b"\x81\0") + control.count(b"\x83\0") == 1
        assert data == marker(0)
        assert not peer.connection.requests

    @pytest.mark.parametrize(
        "reason", ["DO_NOT_RETRY", "RESOURCE_LIMIT", "END_OF_RANGE", "PAYLOAD_MISSING"]
    )
    def test_reasons(self, reason: str) -> None:
        pair = Pair()
        _, theirs = pair.confirmed()
        theirs.cancel(CancelReason[reason])
        pair.pump()
        [event] = pair.of(Cancelled)
        assert event.cancel.reason.name == reason
        assert len(pair.of(RequestEnded)) == 2

    def test_hash_mismatch(self) -> None:
        pair = Pair()
        _, theirs = pair.propose(start=13)
        reason, code = CancelReason.HASH_MISMATCH, ErrorCode.BOGUS_PROOF
        for bad in (None, entry(4), entry(5), FORK[5].entry):
            refuses(pair.right, code, lambda bad=bad: theirs.cancel(reason, entry=bad))
        theirs.cancel(reason, entry=FORK[4].entry)
        pair.pump()
        assert pair.of(Cancelled, "left")[0].cancel.entry == FORK[4].entry
        unsigned = bytearray(FORK[4].entry.encode())
        unsigned[-1] ^= 1
        for proof in (entry(4).encode(), entry(5).encode(), bytes(unsigned)):
            peer = Raw()
            peer.connection.propose(proposal(13))
            peer.control(cancel(0, 133, proof))
            assert peer.code is code
        peer = Raw()
        peer.connection.propose(proposal(1))
        peer.control(cancel(0, 133, FORK[4].entry.encode()))
        assert peer.code is code

    def test_end_of_log(self) -> None:
        pair = Pair()
        log = ended_log(1)[1].entry.log
        _, theirs = pair.propose(start=5, lower_certpool=4, log=log)
        reason, code = CancelReason.END_OF_LOG, ErrorCode.BOGUS_PROOF
        for bad in (None, 4, 5, MAX):
            refuses(pair.right, code, lambda bad=bad: theirs.cancel(reason, seqnum=bad))
        theirs.cancel(reason, seqnum=3)
        pair.pump()
        assert pair.of(Cancelled, "left")[0].cancel.seqnum == 3
        peer = Raw()
        peer.connection.propose(proposal(5, start_offset=1))
        peer.control(cancel(0, 134, varu64(5)))
        assert peer.code is code

    def test_fork(self) -> None:
        pair = Pair()
        _, theirs = pair.propose(start=5)
        proof = ForkProof(entry(3), FORK[3].entry)
        reason, code = CancelReason.FORK, ErrorCode.BOGUS_PROOF
        refuses(pair.right, code, lambda: theirs.cancel(reason))
        other = CancelReason.DO_NOT_RETRY
        refuses(pair.right, code, lambda: theirs.cancel(other, proof=proof))
        theirs.cancel(reason, proof=proof)
        pair.pump()
        assert pair.of(Cancelled, "left")[0].cancel.proof == proof
        forged = bytearray(FORK[3].entry.encode())
        forged[-70] ^= 1
        foreign = ended_log(3)[3].entry.encode()
        for bad in (entry(3).encode() + bytes(forged), foreign + entry(3).encode()):
            peer = Raw()
            peer.connection.propose(proposal(5))
            peer.control(cancel(0, 135, bad))
            assert peer.code is code

    @pytest.mark.parametrize(
        ("options", "last"),
        [
            ({"start": 1}, 1),
            ({"start": 5}, 5),
            ({"start": 5, "end": 12}, 5),
            ({"start": 6, "lower_certpool": 4}, 4),
            ({"start": 5, "start_offset": 0}, 5),
        ],
    )
    def test_a_fork_after_the_beginning_is_no_reason_to_cancel(
        self, options: dict[str, Any], last: int
    ) -> None:
        reason, code = CancelReason.FORK, ErrorCode.BOGUS_PROOF
        proofs = {n: ForkProof(entry(n), FORK[n].entry) for n in (1, last, last + 1, 12)}
        for seqnum, proof in proofs.items():
            for confirmed in (False, True):
                pair = Pair()
                one, other = (pair.confirmed if confirmed else pair.propose)(**options)
                for request, connection in ((one, pair.left), (other, pair.right)):
                    if seqnum > last:
                        refuses(
                            connection,
                            code,
                            lambda request=request, proof=proof: request.cancel(
                                reason, proof=proof
                            ),
                        )
                if seqnum <= last:
                    one.cancel(reason, proof=proof)
                    other.cancel(reason, proof=proof)
                    pair.pump()
                    assert [e.cancel.proof for e in pair.of(Cancelled)] == [proof] * 2
            peer = Raw()
            peer.connection.propose(proposal(**options))
            both = proof.first.encode() + proof.second.encode()
            peer.control(cancel(0, 135, both))
            assert peer.code is (code if seqnum > last else None)

    def test_a_confirmation_of_nothing(self) -> None:
        for ours in (True, False):
            peer = Raw()
            if ours:
                peer.connection.propose(proposal())
            else:
                peer.control(propose(1))
            peer.control(cancel(0 if ours else 1, 131))
            assert peer.code is ErrorCode.BAD_CANCEL_CONFIRMATION
        pair = Pair()
        _, theirs = pair.propose()
        with pytest.raises(Exception, match="nothing to confirm"):
            theirs.cancel(CancelReason.CONFIRM)
        code = ErrorCode.BAD_CANCEL_CONFIRMATION
        refuses(pair.right, code, lambda: theirs.cancel(CancelReason.CONFIRM))

    def test_what_still_comes_is_passed_over(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed()
        serve(theirs, 3)
        ours.cancel(CancelReason.DO_NOT_RETRY)
        pair.forget()
        pair.pump()
        assert not brought(pair.events["left"])
        assert len(pair.of(RequestEnded)) == 2


def test_a_confirmation_is_for_the_other_endpoint() -> None:
    peer = Raw(Role.REACTIVE)
    request = peer.connection.propose(proposal())
    refuses(peer.connection, ErrorCode.UNKNOWN_REQUEST, lambda: request.confirm(EVERYTHING))
    peer.control(propose(0, 1, end=(1, 1)))
    assert 0 in peer.connection.requests
    assert LOG[1].entry == entry(1)
