"""Values that are proposed at a server that does not lead."""

from __future__ import annotations

import dataclasses

import pytest
from raft_clients import Clients
from raft_lab import Lab, all_of, entries, one
from raft_simulator import Simulator
from test_raft_follower_reads import CALM
from test_raft_simulation import caught

from culm.garlic.raft import Committed, ErrorCode, Forwarded, ForwardFailed, Lost
from culm.garlic.raft.forwards import Forwards
from culm.garlic.raft.messages import Extension, ForwardRequest, ForwardResponse, Message
from culm.garlic.sessions import plain
from culm.machine import LocalProtocolError
from culm.testing.suite.meter import Meter


def follower(*, way: bool = True, **settings: object) -> Lab:
    """A server that has heard leader 2, and has one entry that is committed."""
    lab = Lab(asks_leader=True, **settings)  # type: ignore[arg-type]
    if way:
        lab.core.reachable(2, Extension)
    lab.append(term=1, entries=entries(1), commit=1)
    return lab


def forward(lab: Lab, *values: bytes) -> tuple[int, list[ForwardRequest]]:
    number = lab.core.forward(values or [b"value"])
    return number, all_of(lab.drain(), ForwardRequest)


def answer(
    lab: Lab, request: ForwardRequest, last_index: int, *, accepted: bool = True
) -> list[Message]:
    return lab.tell(
        ForwardResponse(
            source=request.destination,
            destination=request.source,
            term=request.term,
            sequence=request.sequence,
            next_index=last_index + 1 if accepted else 0,
            accepted=accepted,
        )
    )


def outcomes(lab: Lab) -> list[object]:
    kinds = Forwarded | ForwardFailed | Committed | Lost
    return [event for event in lab.events if isinstance(event, kinds)]


def refused(lab: Lab, *values: bytes) -> object:
    with pytest.raises(LocalProtocolError) as raised:
        lab.core.forward(values or [b"value"])
    return raised.value.code


def heartbeat(lab: Lab) -> None:
    lab.append(term=1, previous=(1, 1))


# At the follower


def test_values_go_to_the_leader_and_their_outcome_is_told() -> None:
    lab = follower()
    number, requests = forward(lab, b"a", b"b")
    assert [(one.destination, one.term, one.values) for one in requests] == [(2, 1, [b"a", b"b"])]
    answer(lab, requests[0], 5)
    told = Forwarded(forward=number, index=4, term=1, count=2)
    assert outcomes(lab) == [told]
    lab.append(term=1, previous=(1, 1), entries=entries(1, 1, 1, 1), commit=5)
    assert outcomes(lab) == [told, Committed(index=4, term=1, count=2)]


def test_an_answer_that_names_a_place_before_the_log_leaves_all_open() -> None:
    lab = follower()
    number, requests = forward(lab, b"one", b"two")
    answer(lab, requests[0], 1)  # two values that end at the first entry
    assert outcomes(lab) == [ForwardFailed(forward=number, certain=False)]


def test_what_is_committed_before_the_answer_comes_is_told_with_it() -> None:
    lab = follower()
    number, requests = forward(lab)
    lab.append(term=1, previous=(1, 1), entries=entries(1), commit=2)
    assert outcomes(lab) == []
    answer(lab, requests[0], 2)
    assert outcomes(lab) == [
        Forwarded(forward=number, index=2, term=1, count=1),
        Committed(index=2, term=1, count=1),
    ]


def test_what_another_leader_overwrites_is_lost() -> None:
    lab = follower()
    _, requests = forward(lab)
    answer(lab, requests[0], 2)
    lab.append(source=3, term=2, previous=(1, 1), entries=entries(2), commit=2)
    assert outcomes(lab)[1:] == [Lost(index=2, term=1, count=1, certain=True)]


def test_values_that_come_while_others_are_on_their_way_share_the_next_request() -> None:
    lab = follower()
    first, requests = forward(lab, b"a")
    numbers = [forward(lab, *values)[0] for values in ((b"b",), (b"c", b"d"))]
    following = one(answer(lab, requests[0], 2), ForwardRequest)
    assert following.values == [b"b", b"c", b"d"]
    answer(lab, following, 6)
    assert outcomes(lab) == [
        Forwarded(forward=first, index=2, term=1, count=1),
        Forwarded(forward=numbers[0], index=4, term=1, count=1),
        Forwarded(forward=numbers[1], index=5, term=1, count=2),
    ]


@pytest.mark.parametrize("limit", [{"append_entries_max": 2}, {"append_size_max": 2}])
def test_a_request_takes_what_fits(limit: dict[str, int]) -> None:
    lab = follower(**limit)
    assert refused(lab, b"a", b"b", b"c") is ErrorCode.VALUE_TOO_LARGE
    _, requests = forward(lab, b"a")
    for value in (b"b", b"c", b"d"):
        forward(lab, value)
    second = one(answer(lab, requests[0], 2), ForwardRequest)
    third = one(answer(lab, second, 4), ForwardRequest)
    assert (second.values, third.values) == ([b"b", b"c"], [b"d"])
    forward(lab, b"one value goes alone, whatever its size")


def test_what_was_on_its_way_when_the_leader_was_lost_is_uncertain_and_the_rest_is_not() -> None:
    lab = follower()
    first, requests = forward(lab)
    second, _ = forward(lab)
    lab.append(source=3, term=2, previous=(1, 1))
    assert outcomes(lab) == [
        ForwardFailed(forward=first, certain=False),
        ForwardFailed(forward=second, certain=True),
    ]
    answer(lab, requests[0], 2)
    assert len(outcomes(lab)) == 2


def test_what_was_on_its_way_when_the_way_was_lost_is_uncertain_and_not_sent_again() -> None:
    lab = follower()
    first, requests = forward(lab)
    forward(lab, b"later")
    lab.core.unreachable(2)
    assert all_of(lab.drain(), ForwardRequest) == []
    assert outcomes(lab) == [ForwardFailed(forward=first, certain=False)]
    answer(lab, requests[0], 2)
    assert len(outcomes(lab)) == 1
    lab.core.reachable(2, Extension)
    assert one(lab.drain(), ForwardRequest).values == [b"later"]


def test_a_refusal_is_certain() -> None:
    lab = follower()
    number, requests = forward(lab)
    answer(lab, requests[0], 0, accepted=False)
    assert outcomes(lab) == [ForwardFailed(forward=number, certain=True)]


def test_silence_ends_the_wait_and_a_value_that_takes_long_to_send_is_no_silence() -> None:
    lab = follower()
    number, _ = forward(lab)
    for sending in (True, True, False, False, False):
        assert outcomes(lab) == []
        lab.wait(0.5)
        heartbeat(lab)
        if sending:
            lab.core.still_sending(2)
    assert outcomes(lab) == []
    lab.wait(0.5)
    assert outcomes(lab) == [ForwardFailed(forward=number, certain=False)]


def test_values_wait_for_a_way_and_not_for_ever() -> None:
    lab = follower(way=False)
    number, requests = forward(lab)
    assert (requests, list(lab.core.addressees)) == ([], [2])
    for _ in range(4):
        assert outcomes(lab) == []
        lab.wait(0.5)
        heartbeat(lab)
    assert outcomes(lab) == [ForwardFailed(forward=number, certain=True)]
    assert list(lab.core.addressees) == []


def test_a_leader_that_does_not_understand_is_given_nothing() -> None:
    lab = follower(way=False)
    number, _ = forward(lab)
    lab.core.reachable(2, [Extension.READ_INDEX])
    assert all_of(lab.drain(), ForwardRequest) == []
    assert outcomes(lab) == [ForwardFailed(forward=number, certain=True)]
    assert refused(lab) is ErrorCode.NOT_LEADER


def test_what_waits_is_bounded_in_numbers_and_in_bytes() -> None:
    lab = follower(proposals_max=2, proposal_size_max=10)
    forward(lab, b"12345")
    assert refused(lab, b"123456") is ErrorCode.QUEUE_FULL
    assert refused(lab, b"12345678901") is ErrorCode.VALUE_TOO_LARGE
    _, requests = forward(lab, b"12345")
    assert refused(lab, b"") is ErrorCode.QUEUE_FULL
    assert refused(follower(proposals_max=2), b"", b"", b"") is ErrorCode.VALUE_TOO_LARGE
    # Values that the leader has appended count until they are committed.
    lab = follower(proposals_max=1)
    _, requests = forward(lab)
    answer(lab, requests[0], 2)
    assert refused(lab) is ErrorCode.QUEUE_FULL
    lab.append(term=1, previous=(1, 1), entries=entries(1), commit=2)
    forward(lab)


def steps_of_advance(waiting: int) -> int:
    """The steps that are taken when time goes on, while so many values and reads wait."""
    lab, meter = follower(), Meter()
    for _ in range(waiting):
        forward(lab)
        lab.core.read()
    meter.count(lambda: lab.core.advance(lab.now))
    return meter.steps


def test_time_goes_on_at_the_same_cost_however_many_wait() -> None:
    """All that waited was looked at with every input: the square of their number."""
    assert steps_of_advance(80) == steps_of_advance(10)


def test_nobody_to_forward_to() -> None:
    assert refused(Lab(asks_leader=True)) is ErrorCode.NO_LEADER
    lab = Lab()
    lab.append(term=1)
    assert refused(lab) is ErrorCode.NOT_LEADER
    with pytest.raises(ValueError, match="no values"):
        lab.core.forward([])


def test_the_end_of_the_server_ends_the_wait() -> None:
    lab = follower()
    first, _ = forward(lab)
    second, _ = forward(lab)
    lab.core.close()
    lab.drain()
    assert outcomes(lab) == [
        ForwardFailed(forward=first, certain=False),
        ForwardFailed(forward=second, certain=True),
    ]


# At the leader


def leader() -> Lab:
    lab = Lab(asks_leader=True)
    lab.settle(lab.lead())
    lab.settle(lab.wait(0.5))
    return lab


def asked(lab: Lab, *, term: int) -> ForwardResponse:
    request = ForwardRequest(
        source=2, destination=1, term=term, sequence=7, values=[b"a", b"b", b"c"]
    )
    return one(lab.tell(request), ForwardResponse)


def test_the_leader_appends_and_says_where() -> None:
    lab = leader()
    found = asked(lab, term=1)
    assert (found.accepted, found.sequence, found.term, found.next_index) == (True, 7, 1, 5)
    assert [entry.data for entry in lab.core.log.slice(2, 4)] == [b"a", b"b", b"c"]
    assert outcomes(lab) == []  # the question did not come from the leader's user


def test_the_leader_refuses_as_it_refuses_its_own_user() -> None:
    lab = leader()
    lab.core.transfer_leadership(3)
    assert not asked(lab, term=1).accepted
    assert lab.core.last_index == 1


def test_who_does_not_lead_in_that_term_appends_nothing() -> None:
    lab = follower()
    assert not asked(lab, term=1).accepted
    lab = leader()
    lab.append(source=3, term=2)
    assert not asked(lab, term=1).accepted
    assert lab.core.last_index == 1


def test_a_leader_appends_what_is_forwarded_to_itself() -> None:
    lab = leader()
    number = lab.core.forward([b"a"])
    lab.settle(lab.drain())
    lab.settle(lab.wait(0.5))
    assert outcomes(lab) == [
        Forwarded(forward=number, index=2, term=1, count=1),
        Committed(index=2, term=1, count=1),
    ]


# Faults that the simulator would notice


def test_canary_values_that_are_sent_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self: Forwards, numbers: list[int], *, certain: bool) -> None:
        if not certain and self._shared.leader == self._leader:
            self._new[:0] = numbers
            numbers.clear()
        else:
            fail(self, numbers, certain=certain)

    fail = Forwards.fail
    monkeypatch.setattr(Forwards, "fail", again)
    weather = dataclasses.replace(CALM, loss=0.2)
    assert caught(weather, size=3, seeds=100, seconds=3, check_sends=True)


def test_canary_certainty_where_there_is_none_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Forwards.fail
    monkeypatch.setattr(
        Forwards,
        "fail",
        lambda forwards, numbers, *, certain: fail(forwards, numbers, certain=True),
    )
    weather = dataclasses.replace(CALM, loss=0.2)
    assert caught(weather, size=3, seeds=100, seconds=3, check_sends=True)


def test_the_clients_of_the_simulator_check_what_they_were_told() -> None:
    clients = Clients(Simulator(1))
    with pytest.raises(AssertionError, match="twice"):
        clients.check([plain(b"a=1"), plain(b"a=1")])
