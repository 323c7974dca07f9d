"""The promises of request handles, and a connection's reports on the progress of its data."""

from __future__ import annotations

from copy import deepcopy

import pytest
from p2p_snapshots import connection_as_it_is
from p2p_support import (
    GREEDY,
    Pair,
    entry,
    metadata,
    payload,
    proposal,
    raw,
    refusal,
    send_entry,
    switch,
)

from culm.machine import ContractErrorCode, LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    CancelReason,
    Demand,
    ErrorCode,
    Limits,
    MetadataReceived,
    Part,
    Request,
    RequestState,
)
from culm.point2point.replication import Want


def over(pair: Pair, request: Request) -> None:
    """End the request with all four messages."""
    request.cancel(CancelReason.DO_NOT_RETRY)
    pair.pump()
    assert request.state is RequestState.ENDED


@pytest.mark.parametrize("greedy", [False, True])
def test_a_snapshot_stays_what_it_was(greedy: bool) -> None:
    """Otherwise a former state could not be compared with the present one."""
    pair = Pair(GREEDY, GREEDY) if greedy else Pair()
    ours, theirs = pair.confirmed(end=30)
    send_entry(theirs, 1)
    theirs.send_metadata(entry(2))
    pair.pump()
    sides = pair.left, pair.right
    before = [connection_as_it_is(side) for side in sides]
    kept = deepcopy(before)
    theirs.send_payload(payload(2)[:1])
    if greedy:
        theirs.apologize()
    theirs.send_payload(payload(2)[0 if greedy else 1 :])
    send_entry(theirs, 3)
    ours.adjust(end=20, upper_certpool=40, size_max=9)
    pair.pump()
    ours.cancel(CancelReason.DO_NOT_RETRY)
    assert before == kept
    for side, snapshot in zip(sides, before, strict=True):
        now = connection_as_it_is(side)
        assert now != snapshot
        [was], [is_now] = snapshot.requests, now.requests
        assert was.incoming != is_now.incoming or was.outgoing != is_now.outgoing


class TestHandles:
    def test_there_is_one_for_each_request(self) -> None:
        pair = Pair()
        first, theirs = pair.propose()
        second, _ = pair.propose(start=30)
        again = pair.left.request(first.request_id)
        assert again == first == pair.left.requests[first.request_id]
        assert again is first
        assert len({first, again, second}) == 2
        assert first not in (second, theirs, first.request_id)

    def test_one_outlives_its_request(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed()
        over(pair, ours)
        for late in (ours, theirs):
            assert refusal(late.adjust, eagerness=EVERYTHING) is ErrorCode.UNKNOWN_REQUEST
            assert refusal(late.cancel, CancelReason.DO_NOT_RETRY) is ErrorCode.UNKNOWN_REQUEST
            assert refusal(late.send_metadata, entry(1)) is ErrorCode.UNKNOWN_REQUEST

    def test_a_later_request_with_the_same_id_has_handles_of_its_own(self) -> None:
        pair = Pair()
        old, _ = pair.confirmed()
        over(pair, old)
        new = pair.left.propose(proposal(), request_id=old.request_id)
        pair.pump()
        assert new != old
        assert (new.state, old.state) == (RequestState.PROPOSED_BY_US, RequestState.ENDED)
        assert refusal(old.cancel, CancelReason.DO_NOT_RETRY) is ErrorCode.UNKNOWN_REQUEST
        assert new.state is RequestState.PROPOSED_BY_US

    def test_all_of_them_are_a_view_that_follows_the_connection(self) -> None:
        pair = Pair()
        requests = pair.left.requests
        assert dict(requests) == {}
        ours, _ = pair.confirmed()
        assert dict(requests) == {ours.request_id: ours}
        over(pair, ours)
        assert (dict(requests), len(requests), ours.request_id in requests) == ({}, 0, False)
        assert refusal(pair.left.request, ours.request_id) is ErrorCode.UNKNOWN_REQUEST

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_after_close_all_have_ended(self, side: str) -> None:
        pair = Pair()
        request = pair.confirmed()[side == "right"]
        connection, _ = pair.sides(side)
        assert connection.proposal_credit > 0
        connection.close()
        while connection.next_event() is not None:
            pass
        assert (request.state, connection.proposal_credit) == (RequestState.ENDED, 0)
        for verb in (request.check_open, connection.check_open):
            with pytest.raises(LocalProtocolError) as caught:
                verb()
            assert caught.value.code is ContractErrorCode.ALREADY_CLOSED


class TestAmounts:
    """Bytes of data: ours that wait, ours that have left, and the peer's remaining credit."""

    WINDOW = 4000

    def test_data_waits_then_leaves(self) -> None:
        pair = Pair(limits=(Limits(data_window_max=self.WINDOW), None))
        _, theirs = pair.confirmed()
        sender = pair.right
        assert (sender.taken_size, sender.send_credit) == (0, self.WINDOW)
        theirs.send_metadata(entry(1))
        theirs.send_payload(payload(1), compress=False)
        size = len(switch(0) + metadata(entry(1)) + raw(payload(1)))
        assert (sender.unsent_size, sender.taken_size) == (size, 0)
        assert sender.send_credit == self.WINDOW - size
        pair.pump()
        assert (sender.unsent_size, sender.taken_size) == (0, size)
        assert sender.send_credit == self.WINDOW - size  # credit returns in larger amounts
        for seqnum in range(2, 46):
            send_entry(theirs, seqnum)
            pair.pump()
        assert sender.taken_size > self.WINDOW
        assert self.WINDOW // 4 < sender.send_credit <= self.WINDOW

    def test_more_than_the_credit_waits_and_none_is_left(self) -> None:
        pair = Pair(limits=(Limits(data_window_max=100), None))
        _, theirs = pair.confirmed()
        theirs.send_metadata(entry(1))
        size = len(switch(0) + metadata(entry(1)))
        assert size > 100
        assert pair.right.send_credit == 0
        pair.right.data_to_send()
        assert (pair.right.taken_size, pair.right.unsent_size) == (100, size - 100)
        assert pair.right.send_credit == 0


class TestWhatARequestTells:
    def test_whether_it_has_been_answered(self) -> None:
        pair = Pair()
        ours, theirs = pair.propose()
        assert (ours.unanswered, theirs.unanswered) == (True, True)
        assert (ours.peer_demand, theirs.our_demand) == (None, None)
        theirs.confirm(EVERYTHING)
        assert theirs.unanswered is False
        pair.pump()
        assert ours.unanswered is False
        assert ours.peer_demand == theirs.our_demand == Demand()
        assert refusal(theirs.confirm, EVERYTHING) is ErrorCode.ALREADY_CONFIRMED

    def test_whose_payload_is_due(self) -> None:
        pair = Pair()
        _, theirs = pair.confirmed(start=20)
        assert theirs.due_entry is None
        theirs.send_metadata(entry(20))
        assert theirs.due_entry == entry(20)
        theirs.send_payload(payload(20)[:1])
        assert theirs.due_entry == entry(20)
        theirs.send_payload(payload(20)[1:])
        assert theirs.due_entry is None

    def test_that_all_has_come(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed(end=3, upper_certpool=3)
        send_entry(theirs, 1)
        send_entry(theirs, 2)
        pair.pump()
        assert not ours.all_received
        assert ours.passed_cursor == ours.receive_cursor
        # The peer does not know yet, and may be on its way in the larger range.
        ours.adjust(end=2, upper_certpool=2)
        assert ours.all_received
        assert ours.passed_cursor.piece is None
        send_entry(theirs, 3)
        pair.pump()
        assert ours.all_received
        assert [e.entry.seqnum for e in pair.of(MetadataReceived, "left")] == [1, 2, 3]

    def test_that_what_has_to_be_taken_back_is_not_passed(self) -> None:
        pair = Pair(GREEDY, GREEDY)
        ours, theirs = pair.confirmed(start=20)
        theirs.send_metadata(entry(20))
        theirs.send_payload(bytes(len(payload(20))), compress=False)
        pair.pump()
        assert ours.receive_cursor.piece == (21, Part.METADATA)
        assert ours.passed_cursor.piece == (20, Part.PAYLOAD)
        assert theirs.apology_owed
        theirs.apologize()
        theirs.send_payload(payload(20))
        pair.pump()
        assert ours.passed_cursor.piece == ours.receive_cursor.piece == (21, Part.METADATA)

    def test_that_nothing_more_is_taken(self) -> None:
        pair = Pair()
        ours, theirs = pair.confirmed()
        assert not ours.discarding
        ours.pass_over()
        assert ours.discarding
        pair.forget()
        send_entry(theirs, 1)
        pair.pump()
        assert pair.events["left"] == []
        assert not theirs.discarding
        theirs.cancel(CancelReason.DO_NOT_RETRY)
        assert theirs.discarding


def test_a_payload_is_wanted_like_any_range() -> None:
    assert Want.payload_of(3) == Want(first=3, last=3, payload_only=True)
