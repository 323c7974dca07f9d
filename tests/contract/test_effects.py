"""Tickets and answers: handed out in order, taken once, checked; places of events."""

from __future__ import annotations

from typing import Any

import pytest

from culm.effects import Answer, Place, StoreWork, Tickets
from culm.machine import ContractErrorCode, LocalProtocolError, StoreFailed, Ticket
from toy_machines import Keep, Keeper, Kept, LineReceived


@pytest.fixture
def tickets() -> Tickets[str, Keep]:
    tickets: Tickets[str, Keep] = Tickets()
    for name in ("first", "second"):
        tickets.ask(Keep, name, text=name.encode())
    return tickets


def code_of(act: Any, *args: Any) -> object:
    with pytest.raises(LocalProtocolError) as caught:
        act(*args)
    return caught.value.code


def test_effects_come_in_the_order_in_which_they_were_asked_for(
    tickets: Tickets[str, Keep],
) -> None:
    assert len(tickets) == 2
    assert tickets.next_effect() == Keep(ticket=Ticket(1), text=b"first")
    assert tickets.hand_out(Keep, "third", text=b"third").ticket == 3
    assert tickets.next_effect() == Keep(ticket=Ticket(2), text=b"second")
    assert tickets.next_effect() is None
    assert len(tickets) == 3


def test_an_effect_is_answered_once_and_only_when_it_was_handed_out(
    tickets: Tickets[str, Keep],
) -> None:
    effect = tickets.next_effect()
    assert effect is not None
    assert code_of(tickets.answered, 2, 0) is ContractErrorCode.UNKNOWN_TICKET
    assert tickets.answered(effect.ticket, 0) == "first"
    assert code_of(tickets.answered, effect.ticket, 0) is ContractErrorCode.UNKNOWN_TICKET
    error = OSError()
    assert code_of(tickets.failed, effect.ticket, error) is ContractErrorCode.UNKNOWN_TICKET
    assert len(tickets) == 1


@pytest.mark.parametrize("ticket", [None, "1", 1.5, [], {}, object(), -1, 0, 1 << 70])
def test_what_is_no_ticket_is_unknown(tickets: Tickets[str, Keep], ticket: Any) -> None:
    tickets.next_effect()
    assert code_of(tickets.answered, ticket, 0) is ContractErrorCode.UNKNOWN_TICKET


@pytest.mark.parametrize("result", [None, True, "0", 0.0, b"", -1, OSError("full"), object()])
def test_a_wrong_answer_leaves_the_ticket_open(tickets: Tickets[str, Keep], result: Any) -> None:
    tickets.next_effect()
    assert code_of(tickets.answered, 1, result) is ContractErrorCode.WRONG_RESULT
    assert tickets.answered(Ticket[int](1), 0) == "first"


def test_a_failure_is_an_exception(tickets: Tickets[str, Keep]) -> None:
    effect, error = tickets.next_effect(), OSError("full")
    assert effect is not None
    for wrong in ("full", None, OSError, KeyboardInterrupt()):
        assert code_of(tickets.failed, 1, wrong) is ContractErrorCode.WRONG_RESULT
    failure, waits = tickets.failed(effect.ticket, error)
    assert (failure, waits) == (StoreFailed(effect=effect, error=error), "first")


def test_what_is_dropped_is_not_handed_out(tickets: Tickets[str, Keep]) -> None:
    tickets.next_effect()
    tickets.drop_asked()
    assert len(tickets) == 1
    assert tickets.next_effect() is None
    tickets.ask(Keep, "third", text=b"")
    assert tickets.next_effect() == Keep(ticket=Ticket(3), text=b"")


def asking() -> tuple[Keeper, Keep]:
    keeper = Keeper()
    keeper.receive_data(b"line\n")
    assert keeper.next_event() == LineReceived(text=b"line")
    effect = keeper.next_effect()
    assert isinstance(effect, Keep)
    return keeper, effect


def test_an_answer_tells_the_machine_the_result() -> None:
    keeper, effect = asking()
    Answer.of(effect, lambda asked: len(asked.text)).give(keeper)
    assert keeper.next_event() == Kept(text=b"line", place=4)


def test_an_answer_tells_the_machine_what_was_raised() -> None:
    error = OSError("full")

    def perform(effect: object) -> int:
        raise error

    keeper, effect = asking()
    Answer.of(effect, perform).give(keeper)
    assert keeper.next_event() == StoreFailed(effect=effect, error=error)


def test_an_interrupt_is_no_answer() -> None:
    def perform(effect: object) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Answer.of(asking()[1], perform)


def test_a_store_that_answers_wrongly_has_failed() -> None:
    keeper, effect = asking()
    answer: Answer[Any] = Answer.of(effect, lambda asked: "four")
    answer.give(keeper)
    event = keeper.next_event()
    assert isinstance(event, StoreFailed)
    assert isinstance(event.error, LocalProtocolError)
    assert event.error.code is ContractErrorCode.WRONG_RESULT
    assert code_of(answer.give, keeper) is ContractErrorCode.UNKNOWN_TICKET


class Spot(Place):
    """A place of one event."""

    __slots__ = ()

    single = True


def test_events_that_places_share_come_out_one_at_each() -> None:
    work = StoreWork()
    spots = [Spot() for _ in range(3)]
    between = LineReceived(text=b"between")
    work.line_up(spots[:2])
    work.emit(between)
    work.line_up(spots[2:])
    lines = [LineReceived(text=bytes([number])) for number in range(2)]
    shared = iter(lines)
    spots[0].fill(shared)
    assert work.next_event() is lines[0]
    assert work.next_event() is None  # the next place is not known yet
    spots[1].fill()
    spots[2].fill(shared)
    assert work.next_event() is between
    assert work.next_event() is lines[1]
    assert work.next_event() is None
    assert work.all_told
