"""Both lists of invariants, in both directions.

`refuses` proves that the caller's violation raises with its code and changes nothing; a
peer's violation closes with the same code.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from p2p_support import (
    FORK,
    GREEDY,
    KEY,
    SAFE,
    Pair,
    Raw,
    adjust,
    cancel,
    entry,
    grant,
    marker,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    refuses,
    send_entry,
    switch,
    varu64,
)

from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Closed,
    ErrorCode,
    Limits,
    MetadataReceived,
    PayloadReceived,
    Request,
    RequestState,
    Role,
    Setup,
    SkipReason,
    payloads_up_to,
)

MAX = 2**64 - 1


def receiving(start: int = 1, *, peer: Setup = SAFE, setup: Setup = SAFE, **options: Any) -> Raw:
    """Our request 0, confirmed by the peer, which has switched to it."""
    under_test = Raw(setup=setup, peer=peer)
    request = under_test.connection.propose(proposal(start, **options))
    for seqnum in range(1, request.proposal.first_seqnum):
        request.provide_hash(seqnum, entry(seqnum).hash())
    under_test.control(adjust(0, "all"))
    under_test.data(switch(0))
    assert under_test.code is None
    return under_test


def sending(**options: Any) -> tuple[Raw, Request]:
    """The peer's request 1, which we have confirmed; the handle."""
    under_test = Raw()
    under_test.control(propose(1, **options))
    request = under_test.connection.request(1)
    request.confirm(EVERYTHING)
    return under_test, request


class TestControl:
    def test_credit_is_bounded(self) -> None:
        peer = Raw(credit=0, limits=Limits(requests_max=2))
        call = peer.connection.grant_proposals
        refuses(peer.connection, ErrorCode.CREDIT_OVERFLOW, lambda: call(MAX - 1))
        refuses(peer.connection, ErrorCode.CREDIT_OVERFLOW, lambda: call(-1))
        call(MAX - 2)
        refuses(peer.connection, ErrorCode.CREDIT_OVERFLOW, lambda: call(1))
        peer.control(grant(MAX))
        assert peer.code is None
        peer.control(grant(1))
        assert peer.code is ErrorCode.CREDIT_OVERFLOW

    def test_the_refill_never_exceeds_it(self) -> None:
        peer = Raw(limits=Limits(requests_max=1))
        peer.connection.grant_proposals(MAX - 1)
        peer.control(propose(1))
        peer.connection.grant_proposals(1)
        peer.control(cancel(1))
        peer.data(marker(1))
        assert peer.code is None
        assert not peer.connection.requests

    def test_a_proposal_costs_credit(self) -> None:
        peer = Raw(credit=1, limits=Limits(requests_max=1))
        peer.connection.propose(proposal(end=1))
        refuses(peer.connection, ErrorCode.NO_CREDIT, lambda: peer.connection.propose(proposal(4)))
        peer.control(propose(1, 40))
        peer.control(propose(3, 41))
        assert peer.code is ErrorCode.NO_CREDIT

    @pytest.mark.parametrize("role", list(Role))
    def test_ids_have_the_parity_of_the_role(self, role: Role) -> None:
        peer = Raw(role)
        foreign = 1 - int(role)
        call = peer.connection.propose
        refuses(
            peer.connection,
            ErrorCode.WRONG_ID_PARITY,
            lambda: call(proposal(), request_id=foreign),
        )
        assert call(proposal()).request_id == int(role)
        peer.control(propose(int(role)))
        assert peer.code is ErrorCode.WRONG_ID_PARITY

    def test_ids_are_free(self) -> None:
        peer = Raw()
        peer.connection.propose(proposal(end=1), request_id=8)
        refuses(
            peer.connection,
            ErrorCode.ID_IN_USE,
            lambda: peer.connection.propose(proposal(4), request_id=8),
        )
        peer.control(propose(1, 40), propose(1, 41))
        assert peer.code is ErrorCode.ID_IN_USE

    @pytest.mark.parametrize("message", [adjust(7, "all"), cancel(7), cancel(7, 131)])
    def test_only_of_requests_that_are(self, message: bytes) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed()
        ours.cancel(CancelReason.DO_NOT_RETRY)
        pair.pump()
        for request in (ours, theirs):
            connection = pair.left if request is ours else pair.right
            for call in (
                lambda request=request: request.adjust(end=9),
                lambda request=request: request.cancel(CancelReason.DO_NOT_RETRY),
                lambda request=request: request.notify(),
            ):
                refuses(connection, ErrorCode.UNKNOWN_REQUEST, call)
        refuses(pair.left, ErrorCode.UNKNOWN_REQUEST, lambda: pair.left.request(0))
        peer = Raw()
        peer.control(message)
        assert peer.code is ErrorCode.UNKNOWN_REQUEST

    @pytest.mark.parametrize("message", [adjust(0, "all"), cancel(0), cancel(0, 131)])
    def test_not_after_cancelling(self, message: bytes) -> None:
        peer = Raw()
        request = peer.connection.propose(proposal())
        request.cancel(CancelReason.DO_NOT_RETRY)
        for call in (
            lambda: request.adjust(end=9),
            lambda: request.cancel(CancelReason.DO_NOT_RETRY),
        ):
            refuses(peer.connection, ErrorCode.REQUEST_CANCELLED, call)
        peer.control(cancel(0))
        assert peer.code is None
        peer.control(message)
        assert peer.code is ErrorCode.REQUEST_CANCELLED

    def test_a_confirmation_sets_an_eagerness(self) -> None:
        peer = Raw()
        peer.control(propose(1))
        request = peer.connection.request(1)
        refuses(
            peer.connection,
            ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS,
            lambda: request.confirm(None, allow_skipping=True),  # type: ignore[arg-type]
        )
        peer = Raw()
        peer.connection.propose(proposal(40))
        peer.control(adjust(0, flags=16))
        assert peer.code is ErrorCode.CONFIRMATION_WITHOUT_EAGERNESS

    def test_no_end_before_the_start(self) -> None:
        code = ErrorCode.END_BEFORE_START
        peer = Raw()
        bad = proposal(5, end=4, upper_certpool=5)
        refuses(peer.connection, code, lambda: peer.connection.propose(bad))
        request = peer.connection.propose(proposal(5, end=9))
        refuses(peer.connection, code, lambda: request.adjust(end=4))
        request.adjust(end=5)
        peer.control(propose(1, 40))
        theirs = peer.connection.request(1)
        refuses(peer.connection, code, lambda: theirs.confirm(EVERYTHING, end=39))
        peer.control(propose(3, 5, end=(4, 5)))
        assert peer.code is code
        peer = Raw()
        peer.connection.propose(proposal(5))
        peer.control(adjust(0, "all", 8, varu64(4)))
        assert peer.code is code

    def test_no_upper_certpool_before_the_end(self) -> None:
        code = ErrorCode.UPPER_CERTPOOL_BEFORE_END
        peer = Raw()
        for options in ({"end": 7, "upper_certpool": 6}, {"upper_certpool": 6}):
            bad = proposal(5, **options)  # without an end, its pool is undefined
            refuses(peer.connection, code, lambda bad=bad: peer.connection.propose(bad))
        request = peer.connection.propose(proposal(5, end=7, upper_certpool=13))
        refuses(peer.connection, code, lambda: request.adjust(upper_certpool=6))
        refuses(peer.connection, code, lambda: request.adjust(end=9, upper_certpool=6))
        request.adjust(end=6, upper_certpool=6)
        peer.control(propose(1, 40, end=(42, 41)))
        assert peer.code is code
        for options in ({"end": 7}, {}):
            peer = Raw()
            peer.connection.propose(proposal(5, **options))
            peer.control(adjust(0, "all", 4, varu64(6)))
            assert peer.code is code

    def test_no_lower_certpool_after_the_start(self) -> None:
        peer = Raw()
        bad = proposal(5, lower_certpool=6)
        code = ErrorCode.LOWER_CERTPOOL_AFTER_START
        refuses(peer.connection, code, lambda: peer.connection.propose(bad))
        peer.control(propose(1, 5, lower=6))
        assert peer.code is code

    def test_the_lower_certpool_is_in_the_pool(self) -> None:
        peer = Raw()
        bad = proposal(8, lower_certpool=7)
        code = ErrorCode.LOWER_CERTPOOL_NOT_IN_POOL
        refuses(peer.connection, code, lambda: peer.connection.propose(bad))
        peer.control(propose(1, 8, lower=7))
        assert peer.code is code

    def test_the_minimum_grows(self) -> None:
        code = ErrorCode.SIZE_MIN_DECREASED
        peer = Raw()
        request = peer.connection.propose(proposal(size_min=5))
        refuses(peer.connection, code, lambda: request.adjust(size_min=4))
        request.adjust(size_min=5)
        request.adjust(size_min=6)
        refuses(peer.connection, code, lambda: request.adjust(size_min=5))
        peer.control(adjust(0, "all", 2, varu64(9)), adjust(0, flags=2, extra=varu64(9)))
        assert peer.code is None
        peer.control(adjust(0, flags=2, extra=varu64(8)))
        assert peer.code is code

    def test_the_maximum_shrinks(self) -> None:
        code = ErrorCode.SIZE_MAX_INCREASED
        peer = Raw()
        request = peer.connection.propose(proposal(size_max=5))
        refuses(peer.connection, code, lambda: request.adjust(size_max=6))
        request.adjust(size_max=5)
        request.adjust(size_max=4)
        refuses(peer.connection, code, lambda: request.adjust(size_max=5))
        peer.control(adjust(0, "all", 1, varu64(9)), adjust(0, flags=1, extra=varu64(9)))
        assert peer.code is None
        peer.control(adjust(0, flags=1, extra=varu64(10)))
        assert peer.code is code

    def test_no_sequence_number_is_zero(self) -> None:
        code = ErrorCode.ZERO_SEQNUM
        peer = Raw()
        for bad in (
            proposal(0, lower_certpool=1),
            proposal(5, lower_certpool=0),
            proposal(5, end=0, upper_certpool=5),
            proposal(5, end=5, upper_certpool=0),
        ):
            refuses(peer.connection, code, lambda bad=bad: peer.connection.propose(bad))
        request = peer.connection.propose(proposal(5))
        for options in ({"end": 0}, {"upper_certpool": 0}):
            refuses(peer.connection, code, lambda options=options: request.adjust(**options))
        end_of_log = CancelReason.END_OF_LOG
        refuses(peer.connection, code, lambda: request.cancel(end_of_log, seqnum=0))
        for message in (
            propose(1, 0, lower=1),
            propose(1, 5, lower=0, hash=entry(1).hash()),
            propose(1, 5, end=(0, 5)),
            propose(1, 5, end=(5, 0)),
            adjust(0, "all", 8, b"\0"),
            adjust(0, "all", 4, b"\0"),
            cancel(0, 134, b"\0"),
        ):
            peer = Raw()
            peer.connection.propose(proposal(5))
            peer.control(message)
            assert peer.code is code

    @pytest.mark.parametrize("first", range(136, 160))
    def test_unused_control_bytes(self, first: int) -> None:
        peer = Raw()
        peer.control(bytes([first]))
        assert peer.code is ErrorCode.UNUSED_CONTROL_BYTE

    def test_an_adjustment_of_nothing_has_no_byte(self) -> None:
        """It would begin with the byte 0 and be taken for credit."""
        peer = Raw()
        request = peer.connection.propose(proposal())
        refuses(peer.connection, ErrorCode.EMPTY_PACKET, request.adjust)


class TestData:
    def test_switching(self) -> None:
        peer = Raw()
        peer.data(switch(4))
        assert peer.code is ErrorCode.SWITCH_TO_UNKNOWN_REQUEST
        peer = receiving()
        peer.control(cancel(0))
        peer.data(marker(0))  # that was the fourth message
        request = peer.connection
        assert not request.requests
        peer.data(switch(0))
        assert peer.code is ErrorCode.SWITCH_TO_UNKNOWN_REQUEST
        under_test, sender = sending()
        sender.cancel(CancelReason.DO_NOT_RETRY)
        refuses(under_test.connection, ErrorCode.REQUEST_CANCELLED, sender.notify)

    def test_switching_back_to_what_the_peer_has_marked(self) -> None:
        peer = receiving()
        peer.data(marker(0))  # before the cancel on the other channel
        peer.data(switch(0))
        assert peer.code is ErrorCode.SWITCH_TO_UNKNOWN_REQUEST

    def test_marking(self) -> None:
        peer = Raw()
        peer.data(marker(4))
        assert peer.code is ErrorCode.UNKNOWN_REQUEST
        peer = Raw()
        peer.connection.propose(proposal())
        peer.data(marker(0), marker(0))
        assert peer.code is ErrorCode.ALREADY_MARKED_CANCELLED
        # There is no verb for markers: each cancel, by either side, brings exactly one.
        for by_us in (True, False):
            under_test, sender = sending()
            if by_us:
                sender.cancel(CancelReason.DO_NOT_RETRY)
            under_test.control(cancel(1, 131 if by_us else 128))
            under_test.data(marker(1))
            assert under_test.take()[1] == marker(1)

    @pytest.mark.parametrize("packet", [b"\x02", marker(2), metadata(entry(1)), raw(b"x"), b"\x10"])
    def test_nothing_but_a_switch_after_the_own_marker(self, packet: bytes) -> None:
        peer = receiving()
        peer.connection.propose(proposal(40))
        peer.control(cancel(0))
        peer.data(marker(0), packet)
        assert peer.code is ErrorCode.NO_CURRENT_REQUEST
        # Our side: the second marker comes after a switch, which it would not need otherwise.
        under_test, first = sending()
        under_test.control(propose(3, 40))
        second = under_test.connection.request(3)
        second.confirm(EVERYTHING)
        send_entry(first, 1)
        under_test.take()
        first.cancel(CancelReason.DO_NOT_RETRY)
        second.cancel(CancelReason.DO_NOT_RETRY)
        assert under_test.take()[1] == marker(1) + switch(3) + marker(3)

    def test_a_marker_for_another_request_changes_nothing(self) -> None:
        peer = receiving()
        peer.connection.propose(proposal(40))
        peer.control(cancel(2))
        peer.data(marker(2), metadata(entry(1)))
        assert peer.code is None

    def test_alternating(self) -> None:
        code = ErrorCode.PIECE_OUT_OF_TURN
        for packet in (raw(b"x"), b"\x04", b"\x05", b"\x06", b"\x07\x01", b"\x09\x01\x02\x01x"):
            peer = receiving()
            peer.data(packet)
            assert peer.code is code
        peer = receiving()
        peer.data(metadata(entry(1)), metadata(entry(2)))
        assert peer.code is code
        under_test, request = sending()
        for call in (
            lambda: request.send_payload(b"x", entry=entry(1)),
            lambda: request.skip_payload(SkipReason.TOO_SMALL),
            lambda: request.jump(1, entry=entry(1)),
            lambda: request.send_metadata(entry(2)),
            lambda: request.send_metadata(FORK[2].entry),
        ):
            refuses(under_test.connection, code, call)
        request.send_metadata(entry(1))
        refuses(under_test.connection, code, lambda: request.send_metadata(entry(2)))
        other = entry(2)
        refuses(under_test.connection, code, lambda: request.send_payload(b"", entry=other))

    def test_compression_keeps_to_the_window(self) -> None:
        size = entry(20).payload_size
        copies = b"\x02ab" + bytes([0x80 | 120, size - 2]) + b"\x02"  # repeats the two bytes
        for window, code in ((0, ErrorCode.COMPRESSION_WINDOW), (1, ErrorCode.BAD_COMPRESSION)):
            setup = Setup(receive_window_max=window)
            peer = receiving(start=20, setup=setup)
            packet = b"\x09" + varu64(size) + varu64(len(copies)) + copies
            peer.data(metadata(entry(20)), packet)
            assert peer.code is code
        peer = receiving(start=20)
        peer.data(metadata(entry(20)), b"\x09" + varu64(size) + b"\x04\x81\x00\x01x")
        assert peer.code is ErrorCode.BAD_COMPRESSION
        # Our side: no verb could compress too far; without a window everything is raw.
        for window in (0, 4096):
            under_test = Raw(setup=Setup(send_window_max=window))
            under_test.control(propose(1, 20))
            request = under_test.connection.request(1)
            request.confirm(EVERYTHING)
            send_entry(request, 20)
            sent = under_test.take()[1][len(switch(1) + metadata(entry(20))) :]
            assert sent[0] == (9 if window else 8)

    def test_not_past_the_end(self) -> None:
        code = ErrorCode.PAST_END
        done = metadata(entry(1)) + raw(b"")
        for packets in (
            b"\x03\x03",
            b"\x03" + varu64(MAX),
            done + b"\x02",
            done + metadata(entry(2)),
            done + raw(b"x"),
            done + b"\x04",
            done + b"\x07\x01",
        ):
            peer = receiving(end=1, eagerness=EVERYTHING if len(packets) > 100 else NOTIFY)
            peer.data(packets)
            assert peer.code is code, packets
        under_test, request = sending(end=(1, 1))
        refuses(under_test.connection, code, lambda: request.notify(3))
        send_entry(request, 1)
        for call in (
            request.notify,
            lambda: request.send_metadata(entry(2)),
            lambda: request.send_payload(b"x", entry=entry(2)),
            lambda: request.skip_payload(SkipReason.UNAVAILABLE),
            lambda: request.jump(1),
        ):
            refuses(under_test.connection, code, call)

    def test_not_more_than_the_payload(self) -> None:
        code = ErrorCode.PAYLOAD_SIZE_EXCEEDED
        for packet in (
            raw(bytes(8)),
            raw(payload(2)[:3]) + raw(bytes(5)),
            b"\x08" + varu64(MAX),
            b"\x09\x08\x01",
        ):
            peer = receiving(2)
            peer.data(metadata(entry(2)), packet)
            assert peer.code is code
        under_test, request = sending(start=2)
        request.send_metadata(entry(2))
        refuses(under_test.connection, code, lambda: request.send_payload(bytes(8)))
        request.send_payload(payload(2)[:3])
        refuses(under_test.connection, code, lambda: request.send_payload(bytes(5)))
        # Skipping bytes is allowed as far as the other endpoint is ahead.
        pair = Pair()
        ours, theirs = pair.confirmed(start=2)
        send_entry(theirs, 2)
        send_entry(theirs, 3)
        pair.pump()
        ours.notify()
        refuses(pair.left, code, lambda: ours.jump(8, entry=entry(2)))
        peer = receiving(2)
        request = peer.connection.request(0)
        send_entry(request, 2)
        send_entry(request, 3)
        peer.connection.request(0).provide_entry(entry(2))
        peer.data(b"\x02\x07\x08")
        assert peer.code is code

    def test_the_eagerness_of_the_other_endpoint(self) -> None:
        code = ErrorCode.EAGERNESS_VIOLATED
        for eagerness, packets in (
            (NOTIFY, metadata(entry(2), backlink=False)),
            (EVERYTHING, b"\x02"),
            (EVERYTHING, b"\x03\x02"),
            (EVERYTHING, metadata(entry(2)) + b"\x02"),
            (payloads_up_to(6), b"\x02"),
            (payloads_up_to(6), metadata(entry(2)) + raw(payload(2))),
            (payloads_up_to(7), metadata(entry(2)) + b"\x02"),
            (payloads_up_to(6), metadata(entry(2)) + b"\x03\x02"),
        ):
            peer = receiving(2, eagerness=eagerness)
            peer.data(packets)
            assert peer.code is code
        under_test, request = sending(start=2, eager="notify")
        refuses(under_test.connection, code, lambda: request.send_metadata(entry(2)))
        under_test, request = sending(start=2)
        refuses(under_test.connection, code, request.notify)
        under_test, request = sending(start=2, eager="up to", up_to=6)
        refuses(under_test.connection, code, lambda: request.notify(2))
        request.send_metadata(entry(2))
        refuses(under_test.connection, code, lambda: request.send_payload(payload(2)))
        under_test, request = sending(start=2, eager="up to", up_to=7)
        request.send_metadata(entry(2))
        refuses(under_test.connection, code, request.notify)

    def test_sizes_are_not_pretended(self) -> None:
        code = ErrorCode.SKIP_DISPROVED
        for first, reason in ((b"\x04", SkipReason.TOO_SMALL), (b"\x05", SkipReason.TOO_LARGE)):
            peer = receiving(2, size_min=7, size_max=7)
            peer.data(metadata(entry(2)), first)
            assert peer.code is code
            under_test, request = sending(start=2, sizes=(7, 7))
            request.send_metadata(entry(2))
            call = request.skip_payload
            refuses(under_test.connection, code, lambda call=call, r=reason: call(r))

    def test_payloads_that_may_not_be_skipped(self) -> None:
        code = ErrorCode.PAYLOAD_MANDATORY
        peer = receiving(2, payload_mandatory=True)
        peer.data(metadata(entry(2)), b"\x06")
        assert peer.code is code
        under_test, request = sending(start=2, flags=1)
        request.send_metadata(entry(2))
        call = request.skip_payload
        refuses(under_test.connection, code, lambda: call(SkipReason.UNAVAILABLE))

    def test_no_apology_for_what_is_valid(self) -> None:
        code = ErrorCode.APOLOGY_FOR_VALID_DATA
        for packets in (
            b"",
            metadata(entry(2)),
            metadata(entry(2)) + raw(payload(2)),
            metadata(entry(2)) + b"\x06",
        ):
            peer = receiving(start=2, peer=GREEDY, setup=GREEDY)
            peer.data(packets, b"\x10")
            assert peer.code is code
        peer = receiving(start=2, peer=GREEDY, setup=GREEDY)
        peer.data(metadata(entry(2)), raw(payload(2)[:3]), b"\x10", raw(payload(2)))
        assert peer.code is None
        assert isinstance(peer.events[-1], PayloadReceived)
        assert peer.events[-1].verified
        pair = Pair(GREEDY, GREEDY)
        _, theirs = pair.confirmed()
        refuses(pair.right, code, theirs.apologize)
        theirs.send_metadata(entry(1))
        refuses(pair.right, code, theirs.apologize)
        theirs.send_payload(b"")
        refuses(pair.right, code, theirs.apologize)
        theirs.send_metadata(entry(2))
        theirs.send_payload(payload(2)[:3])
        theirs.apologize()

    def test_one_apology_each(self) -> None:
        code = ErrorCode.SECOND_APOLOGY
        begun = raw(payload(2)[:3])
        peer = receiving(start=2, peer=GREEDY, setup=GREEDY)
        peer.data(metadata(entry(2)), begun, b"\x10", begun)
        assert peer.code is None
        peer.data(b"\x10")
        assert peer.code is code
        pair = Pair(GREEDY, GREEDY)
        _, theirs = pair.confirmed(start=2)
        theirs.send_metadata(entry(2))
        theirs.send_payload(payload(2)[:3])
        theirs.apologize()
        theirs.send_payload(payload(2)[:3])
        refuses(pair.right, code, theirs.apologize)

    def test_nothing_invalid_in_safe_mode(self) -> None:
        broken = metadata(entry(2))[:-1] + bytes([metadata(entry(2))[-1] ^ 1])
        for packets in (
            broken,
            metadata(FORK[2].entry),
            metadata(entry(2)) + raw(bytes(7)),
            metadata(entry(2)) + raw(payload(2)[:6]) + raw(b"x"),
        ):
            peer = receiving(start=2)
            peer.data(packets)
            assert peer.code is ErrorCode.INVALID_DATA
            told = [e for e in peer.events if isinstance(e, MetadataReceived | PayloadReceived)]
            assert all(getattr(event, "verified", None) is not False for event in told)
        under_test, request = sending(start=2)
        connection, code = under_test.connection, ErrorCode.INVALID_DATA
        signature = entry(2).signature
        unsigned = replace(entry(2), signature=signature[:-1] + bytes([signature[-1] ^ 1]))
        for wrong in (unsigned, FORK[2].entry):
            refuses(connection, code, lambda wrong=wrong: request.send_metadata(wrong))
        request.send_metadata(entry(2))
        refuses(connection, code, lambda: request.send_payload(bytes(7)))
        request.send_payload(payload(2)[:6])
        refuses(connection, code, lambda: request.send_payload(b"x"))
        assert request.send_payload(payload(2)[6:])

    def test_links_that_are_sent_along_are_checked_by_the_receiver(self) -> None:
        """The author of a fork is told of it; to have another branch is no violation."""
        _, request = sending(start=4)
        request.provide_hash(3, FORK[3].entry.hash())
        assert entry(4).backlink != FORK[3].entry.hash()
        request.send_metadata(entry(4))

    def test_a_payload_whose_beginning_was_not_sent_is_not_checked(self) -> None:
        _, request = sending(start=2, offset=3)
        assert request.send_payload(bytes(len(payload(2)) - 3), entry=entry(2))

    def test_what_a_trusted_caller_sends_is_not_checked(self) -> None:
        under_test = Raw(trust_caller=True)
        under_test.control(propose(1, start=2))
        request = under_test.connection.request(1)
        request.confirm(EVERYTHING)
        request.send_metadata(entry(2))
        assert request.send_payload(bytes(7))

    def test_the_caller_refuses_what_only_it_can_know(self) -> None:
        peer = receiving(start=2, start_offset=3)
        peer.connection.request(0).provide_entry(entry(2))
        peer.data(raw(payload(2)[3:]))
        assert isinstance(peer.events[-1], PayloadReceived)
        assert peer.events[-1].verified is None
        peer.connection.request(0).refuse()
        peer.data(b"")
        assert peer.code is ErrorCode.INVALID_DATA

    @pytest.mark.parametrize(
        "first", [1, *range(10, 16), *range(17, 32), *range(33, 128), *range(130, 256)]
    )
    def test_unused_data_bytes(self, first: int) -> None:
        peer = receiving()
        peer.data(bytes([first]))
        if peer.code is None:  # noticed once enough bytes for metadata have come
            peer.data(bytes(300))
        assert peer.code is ErrorCode.UNUSED_DATA_BYTE

    def test_claims_cost_nothing(self) -> None:
        huge = entry(2)
        claim = metadata(huge).replace(
            varu64(7) + huge.payload_hash, varu64(MAX) + huge.payload_hash
        )
        tracemalloc.start()
        peer = receiving(start=2, peer=GREEDY, setup=GREEDY)
        peer.data(claim, raw(b"x"))  # unsigned, so that an apology is due
        assert peer.code is ErrorCode.APOLOGY_OWED
        for head in (b"\x08", b"\x09"):
            peer = receiving(start=2)
            peer.connection.request(0).cancel(CancelReason.DO_NOT_RETRY)  # then no size is known
            peer.data(head + varu64(MAX) + (varu64(MAX) if head == b"\x09" else b""), bytes(1000))
            assert peer.code is None
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
        tracemalloc.stop()


@pytest.mark.parametrize("state", [RequestState.PROPOSED_BY_US, RequestState.PROPOSED_BY_PEER])
def test_no_data_before_the_confirmation(state: RequestState) -> None:
    peer = Raw()
    if state is RequestState.PROPOSED_BY_US:
        request = peer.connection.propose(proposal())
    else:
        peer.control(propose(1))
        request = peer.connection.request(1)
    refuses(peer.connection, ErrorCode.NOT_CONFIRMED, lambda: request.send_metadata(entry(1)))
    if state is RequestState.PROPOSED_BY_PEER:
        peer.data(switch(1), metadata(entry(1)))
        assert peer.code is ErrorCode.NOT_CONFIRMED


@pytest.mark.parametrize("ours", [True, False])
def test_no_data_for_what_was_cancelled_before_it_was_confirmed(ours: bool) -> None:
    peer = Raw()
    request_id = 0 if ours else 1
    if ours:
        peer.connection.propose(proposal())
    else:
        peer.control(propose(1))
    peer.control(cancel(request_id))
    peer.data(switch(request_id), metadata(entry(1)))
    assert peer.code is ErrorCode.NOT_CONFIRMED


def test_after_a_violation_nothing_is_possible() -> None:
    peer = receiving()
    request = peer.connection.request(0)
    peer.data(b"\x01")
    assert isinstance(peer.events[-1], Closed)
    with pytest.raises(Exception, match="already closed"):
        request.notify()
    assert peer.connection.next_event() is None
    assert request.proposal.log == KEY
