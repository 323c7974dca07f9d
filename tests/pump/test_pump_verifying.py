"""Signatures verified by a pump itself, or by several threads of its driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey

from culm.effects import StoreWork
from culm.machine import Effect, Event, LocalProtocolError, StoreFailed, Ticket
from culm.pump import AbortedError, Pump, VerifyJob
from culm.signatures import Signed, Verification, Verify, asks
from toy_machines import Lines

KEY = SigningKey(bytes(32))
FALSE = {7, 40, 99}  # of every hundred signatures


def signed(count: int) -> list[Signed]:
    made = []
    for number in range(count):
        message = b"%d" % number
        signature = KEY.sign(message).signature
        made.append(
            Signed(bytes(KEY.verify_key), signature, b"x" * (number % 100 in FALSE) + message)
        )
    return made


SIGNED = signed(100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified(Event):
    number: int
    verdicts: tuple[bool, ...]


class Signatures(Lines):
    """Asks for signatures to be verified, as many and in the order requested."""

    def __init__(self, count_max: int = 1000) -> None:
        super().__init__()
        self.work = StoreWork()
        self.asked = 0
        self._verification = Verification[int](
            asks(self.work), count_max=count_max, then=self._verified
        )
        self._verdicts: list[bool] = []

    def ask(self, count: int) -> None:
        for signed in SIGNED[:count]:
            self._verification.add(0, signed)
        self.asked += 1
        self._verification.add(self.asked, None)

    def _verified(self, items: Iterable[tuple[int, bool | None]]) -> None:
        for number, verdict in items:
            if verdict is not None:
                self._verdicts.append(verdict)
            else:
                verdicts, self._verdicts = self._verdicts, []
                self.work.emit(Verified(number=number, verdicts=tuple(verdicts)))

    def next_event(self) -> Any:
        return self.work.next_event() or super().next_event()

    def next_effect(self) -> Effect[Any] | None:
        effect = self.work.next_effect()
        if effect is None and self._verification.ask():
            effect = self.work.next_effect()
        return effect

    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        self.work.complete(ticket, result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        self.work.fail(ticket, error)
        self.close()


def perform(effect: Effect[Any]) -> object:
    raise AssertionError("the store verifies no signatures")


def pumped(machine: Signatures, **options: Any) -> tuple[Pump, list[Event]]:
    events: list[Event] = []
    pump = Pump(machine, on_event=events.append, perform=perform, **options)
    pump.connection_made(0.0)
    return pump, events


def expected(*counts: int) -> list[Event]:
    return [
        Verified(number=number, verdicts=tuple(each not in FALSE for each in range(count)))
        for number, count in enumerate(counts, 1)
    ]


def jobs_of(pump: Pump) -> list[VerifyJob]:
    return list(iter(pump.next_to_verify, None))


def test_a_pump_without_verifiers_verifies_at_once() -> None:
    machine = Signatures()
    pump, events = pumped(machine)
    pump.call(0.0, machine.ask, 100)
    assert pump.next_to_verify() is None
    assert events == expected(100)


@pytest.mark.parametrize("in_jobs", [False, True])
@pytest.mark.parametrize("verifiers", [1, 2, 3])
def test_the_shares_of_several_effects_are_done_in_any_order(verifiers: int, in_jobs: bool) -> None:
    counts = (100, 0, 1, 64, 65, 33)
    for seed in range(20):
        machine = Signatures()
        pump, events = pumped(machine, verifiers=verifiers, in_jobs=in_jobs)
        for count in counts:
            pump.call(0.0, machine.ask, count)
        jobs = jobs_of(pump)
        assert len(jobs) >= 5
        Random(seed).shuffle(jobs)
        for job in jobs:
            assert len(events) < len(counts)
            job()
            pump.finish_verifying(job, 0.0)
        assert events == expected(*counts)


def test_an_effect_is_cut_into_no_more_shares_than_there_are_verifiers() -> None:
    machine = Signatures()
    pump, _ = pumped(machine, verifiers=2)
    pump.call(0.0, machine.ask, 100)
    assert len(jobs_of(pump)) == 2
    pump.call(0.0, machine.ask, 30)  # too few to be worth it
    assert len(jobs_of(pump)) == 1


def test_no_more_signatures_are_out_than_the_machine_allows() -> None:
    machine = Signatures(count_max=100)
    pump, events = pumped(machine, verifiers=2)
    for _ in range(4):
        pump.call(0.0, machine.ask, 50)
    jobs = jobs_of(pump)
    assert len(jobs) == 4
    for job in jobs[:2]:
        job()
        pump.finish_verifying(job, 0.0)
    assert len(jobs_of(pump)) == 2
    assert events == expected(50)


def test_a_share_that_cannot_be_done_fails_its_effect() -> None:
    machine = Signatures()
    pump, events = pumped(machine, verifiers=2)
    pump.call(0.0, machine.ask, 100)
    one, other = jobs_of(pump)
    error = MemoryError()
    one.failed(error)
    other()
    pump.finish_verifying(one, 0.0)
    assert events == []
    pump.finish_verifying(other, 0.0)
    assert [type(each) for each in events] == [StoreFailed]
    pump.sent(len(pump.outgoing), 0.0)
    pump.receive_data(b"bye\n", 0.0)
    pump.connection_lost(0.0)
    assert pump.over
    with pytest.raises(MemoryError):
        pump.result()


def test_a_job_that_is_not_done_or_was_finished_before_is_refused() -> None:
    machine = Signatures()
    pump, events = pumped(machine, verifiers=1)
    pump.call(0.0, machine.ask, 10)
    (job,) = jobs_of(pump)
    with pytest.raises(ValueError, match="not done"):
        pump.finish_verifying(job, 0.0)
    job()
    with pytest.raises(LocalProtocolError):
        pump.finish_verifying(job, float("nan"))
    pump.finish_verifying(job, 0.0)
    with pytest.raises(ValueError, match="before"):
        pump.finish_verifying(job, 0.0)
    assert events == expected(10)


@pytest.mark.parametrize("verifiers", [0, 2])
def test_a_job_of_another_pump_is_refused_and_left_to_it(verifiers: int) -> None:
    machine = Signatures()
    pump, events = pumped(machine, verifiers=1)
    other, heard = pumped(Signatures(), verifiers=verifiers)
    pump.call(0.0, machine.ask, 10)
    (job,) = jobs_of(pump)
    job()
    with pytest.raises(ValueError, match="another pump"):
        other.finish_verifying(job, 0.0)
    pump.finish_verifying(job, 0.0)
    assert (events, heard) == (expected(10), [])


def test_a_pump_is_over_only_when_all_is_verified() -> None:
    machine = Signatures()
    pump, events = pumped(machine, verifiers=2)
    pump.call(0.0, machine.ask, 10)
    (job,) = jobs_of(pump)
    pump.receive_data(b"bye\n", 0.0)
    pump.connection_lost(0.0)
    assert not pump.over
    job()
    pump.finish_verifying(job, 0.0)
    assert pump.over
    assert Verified in map(type, events)


def test_after_an_abort_nothing_is_waited_for() -> None:
    machine = Signatures()
    pump, events = pumped(machine, verifiers=2)
    pump.call(0.0, machine.ask, 100)
    job, _ = jobs_of(pump)
    pump.call(0.0, machine.ask, 100)
    pump.abort()
    assert pump.over
    assert pump.next_to_verify() is None
    job()
    pump.finish_verifying(job, 0.0)
    assert events == []
    with pytest.raises(AbortedError):
        pump.result()


def test_defer_gets_signatures_as_it_gets_all_effects() -> None:
    machine, deferred = Signatures(), list[Effect[Any]]()
    pump = Pump(machine, defer=deferred.append)
    pump.call(0.0, machine.ask, 3)
    assert list(map(type, deferred)) == [Verify]


@pytest.mark.parametrize("verifiers", [-1, 1.5, None])
def test_the_number_of_verifiers_is_a_number(verifiers: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Pump(Signatures(), verifiers=verifiers)
