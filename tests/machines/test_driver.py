"""The law of driving, as kept by the `Driver`."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from culm.machine import Closed, Effect, Event, LocalProtocolError
from culm.machines import driver as driver_module
from culm.machines.driver import Driver, EndlessError, Turn, UnknownVerbError, WrongKindError
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Receive,
    ReceiveDatagram,
    call,
)
from toy_machines import (
    KEEPER,
    LINES,
    Keep,
    Keeper,
    Kept,
    LineReceived,
    Lines,
    Pinger,
    ToyErrorCode,
    ToyState,
)


class Witness:
    """Records the order of its calls."""

    state = ToyState.OPEN

    def __init__(self, rounds: int = 1) -> None:
        self.asked: list[str] = []
        self.rounds = rounds

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "receive_datagram":
            raise AttributeError(name)

        def method(*args: Any) -> Any:
            self.asked.append(name)
            if name == "data_to_send":
                self.rounds -= 1
                return b"x" if self.rounds > 0 else b""
            return None

        return method


def test_events_then_effects_then_bytes_in_rounds_then_the_deadline() -> None:
    witness = Witness(rounds=2)
    turn = Driver(witness).do(Receive(b"in"))
    each_round = ["next_event", "next_effect", "data_to_send"]
    assert witness.asked == ["receive_data", *each_round, *each_round, "next_deadline"]
    assert turn.sent == b"x"


def test_a_turn_holds_all_that_came_of_an_input() -> None:
    driver = Driver(Keeper(effects_max=1, idle=9))
    assert driver.do(Advance(1.0)) == Turn(operation=Advance(1.0), deadline=10.0)
    turn = driver.do(Receive(b"a\nb\n"))
    assert turn == Turn(
        operation=Receive(b"a\nb\n"),
        events=(LineReceived(text=b"a"),),
        states=(ToyState.OPEN,),
        effects=(Keep(ticket=1, text=b"a"),),
        deadline=10.0,
    )
    turn = driver.do(Complete(1, 5))
    assert turn.events == (Kept(text=b"a", place=5), LineReceived(text=b"b"))
    assert turn.sent == b"ok\n"
    assert driver.unanswered == [Keep(ticket=2, text=b"b")]


def test_the_state_is_told_as_of_each_event() -> None:
    turn = Driver(Lines()).do(Receive(b"a\nbye\n"))
    assert turn.events == (LineReceived(text=b"a"), Closed())
    assert turn.states == (ToyState.OPEN, ToyState.CLOSED)


def test_refusals_are_noted_and_results_are_plain() -> None:
    driver = Driver(Lines(), verbs={"shape": lambda machine, size: {"size": size, "raw": b"\0"}})
    turn = driver.do(call("say", text=b"\n"))
    assert turn.error == LocalProtocolError(ToyErrorCode.NOT_A_LINE)
    assert turn.error is not None
    assert turn.error.__traceback__ is None
    assert driver.do(call("shape", size=2)).result == {"size": 2, "raw": {"hex": "00"}}


def test_only_what_users_call_is_a_verb() -> None:
    driver = Driver(Keeper())
    for name in ("nothing", "_step", "state", "next_event", "receive_data", "complete", "advance"):
        with pytest.raises(UnknownVerbError, match=name):
            driver.do(Call(name))
    assert driver.do(Call("close")).sent == b"bye\n"


def test_an_unknown_verb_is_told_which_there_are() -> None:
    driver = Driver(Lines(), verbs={"shape": lambda machine: None})
    with pytest.raises(UnknownVerbError, match=r"'shout'; there are: close, say, shape$"):
        driver.do(Call("shout"))


def test_an_input_of_another_kind_is_refused() -> None:
    with pytest.raises(WrongKindError):
        Driver(Lines()).do(Advance(1.0))
    with pytest.raises(WrongKindError):
        Driver(Lines()).do(ReceiveDatagram(b"", "a"))
    for operation in (Receive(b""), Eof(), Complete(1)):
        with pytest.raises(WrongKindError):
            Driver(Pinger()).do(operation)


def test_a_store_answers_effects_and_those_that_come_of_it() -> None:
    driver = Driver.of(KEEPER.machine, {"effects_max": 1})
    turns = driver.run(Receive(b"a\nb\n"))
    assert [turn.operation for turn in turns] == [
        Receive(b"a\nb\n"),
        Complete(1, 0),
        Complete(2, 1),
    ]
    assert driver.unanswered == []
    silent = Driver.of(KEEPER.machine, {}, respond=False)
    assert len(silent.run(Receive(b"a\n"))) == 1
    assert len(silent.unanswered) == 1


def test_datagrams_are_taken_with_their_destinations() -> None:
    driver = Driver(Pinger(peers=["a", ("b", 1)]))
    assert driver.do(call("ping", peer=("b", 1))).datagrams == ((("b", 1), b"P\x00\x01"),)
    assert driver.take_bytes() == b""


def test_bytes_may_be_taken_in_another_way() -> None:
    driver = Driver(Lines(), take=lambda machine: machine.data_to_send(3))
    turn = driver.do(call("say", text=b"hello"))
    assert turn.sent == b"hello\n"  # in two rounds
    driver = Driver(Lines(), take=lambda machine: b"")
    assert driver.do(call("say", text=b"hello")).sent == b""


def test_closed_is_remembered() -> None:
    driver = Driver.of(LINES.machine, {})
    assert driver.closed is None
    driver.do(Eof())
    assert driver.closed == Closed()


class Endless(Keeper):
    kind = "event"

    def _step(self) -> Event | None:
        return LineReceived(text=b"") if self.kind == "event" else None

    def next_effect(self) -> Effect | None:
        return Keep(ticket=1, text=b"") if self.kind == "effect" else None

    def data_to_send(self, size_max: int | None = None) -> bytes:
        return b"x" if self.kind == "bytes" else b""


@pytest.mark.parametrize("kind", ["event", "effect", "bytes"])
def test_what_never_ends_is_found(kind: str) -> None:
    machine = Endless()
    machine.kind = kind
    with pytest.raises(EndlessError, match="more than 10"):
        Driver(machine, events_max=10).do(Receive(b""))


class Gushing(Keeper):
    """The same, in large amounts; `given` is the total in bytes."""

    kind = "event"
    given = 0

    def _gush(self) -> bytes:
        self.given += 1 << 12
        return self.given.to_bytes(1 << 12, "big")

    def _step(self) -> Event | None:
        return LineReceived(text=self._gush()) if self.kind == "event" else None

    def next_effect(self) -> Effect | None:
        return Keep(ticket=1, text=self._gush()) if self.kind == "effect" else None

    def data_to_send(self, size_max: int | None = None) -> bytes:
        return self._gush() if self.kind == "bytes" else b""


@pytest.mark.parametrize("kind", ["event", "effect", "bytes"])
def test_what_is_large_and_never_ends_is_stopped_before_it_fills_memory(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "SIZE_MAX", 1 << 20)
    machine = Gushing()
    machine.kind = kind
    with pytest.raises(EndlessError, match="more than 1048576 bytes"):
        Driver(machine).do(Receive(b""))
    assert machine.given <= 4 << 20


class AsksForEver(Keeper):
    def __init__(self) -> None:
        super().__init__()
        self.effects = deque([Keep(ticket=1, text=b"")])

    def next_effect(self) -> Effect | None:
        return self.effects.popleft() if self.effects else None

    def complete(self, ticket: int, result: object = None) -> None:
        self.effects.append(Keep(ticket=ticket + 1, text=b""))


def test_a_machine_that_asks_for_ever_is_found() -> None:
    with pytest.raises(EndlessError, match="effects"):
        Driver(AsksForEver(), respond=lambda effect: 0, events_max=10).start()
