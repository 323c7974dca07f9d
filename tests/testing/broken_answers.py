"""Machines that accept wrong answers from their stores; entered among the `CANARIES`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

from broken_machines import breaks

from culm.machine import (
    Closed,
    ContractErrorCode,
    Effect,
    Event,
    LocalProtocolError,
    Ticket,
)
from toy_machines import KEEPER, Keep, Keeper, Kept, ToyState


@breaks("answers", KEEPER, "was taken for an answer")
class TakesAnythingForAnAnswer(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        super().complete(ticket, 7 if isinstance(ticket, int) else result)


@breaks("answers", KEEPER, "raised TypeError")
class CountsOnNumbers(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        super().complete(ticket, result + 0)


@breaks("answers", KEEPER, "raised TypeError")
class CountsOnTickets(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        hash(ticket)
        super().complete(ticket, result)


@breaks("answers", KEEPER, "UNKNOWN_TICKET")
class SpendsTheTicketOnAWrongAnswer(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        try:
            super().complete(ticket, result)
        except LocalProtocolError as error:
            if error.code is ContractErrorCode.WRONG_RESULT:
                self._tickets.failed(ticket, OSError())
            raise


@breaks("answers", KEEPER, "yet it changed|had an effect|make a difference")
class ToldOffByAWrongAnswer(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        try:
            super().complete(ticket, result)
        except LocalProtocolError:
            self._outbox.append(b"ok\n")
            raise


class _Counting(Keeper):
    """Knows the last ticket that it has handed out."""

    handed_out = 0

    def next_effect(self) -> Effect[Any] | None:
        effect = super().next_effect()
        if effect is not None:
            self.handed_out = effect.ticket
        return effect


@breaks("answers", KEEPER, "was taken for an answer")
class AnsweredTwice(_Counting):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        try:
            super().complete(ticket, result)
        except LocalProtocolError:
            if type(result) is not int or ticket not in range(1, self.handed_out + 1):
                raise


@breaks("answers", KEEPER, "was taken for an answer|is refused with")
class AnsweredBeforeItAsks(_Counting):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        if ticket != self.handed_out + 1:
            super().complete(ticket, result)


@breaks("answers", KEEPER, "failed, and yet")
class FailureIsSuccess(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        super().fail(ticket, error)
        self._kept.append(Kept(text=b"one", place=0))


@breaks("answers", KEEPER, "and yet the peer got")
class AcknowledgesAFailure(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        super().fail(ticket, error)
        self._outbox.append(b"ok\n")


@breaks("answers", KEEPER, "failed or not, the peer got")
class AcknowledgesAFailureAndGoesOn(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        super().fail(ticket, error)
        self._failed = False
        self._outbox.append(b"ok\n")


@breaks("answers", KEEPER, "StoreFault'|after Fail")
class FailsQuietly(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        super().fail(ticket, error)
        self._kept.pop()


@breaks("answers", KEEPER, "after Fail")
class FailsTwice(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        super().fail(ticket, error)
        self._kept.append(self._kept[-1])


@breaks("answers", KEEPER, "no Closed")
class WaitsAfterAFailure(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        super().fail(ticket, error)
        self._waiting = True

    def next_event(self) -> Event | None:
        event = super().next_event()
        return None if isinstance(event, Closed) and hasattr(self, "_waiting") else event


@breaks("answers", KEEPER, "is refused")
class RefusesToFail(Keeper):
    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        raise LocalProtocolError(ContractErrorCode.UNKNOWN_TICKET)


@breaks("answers", KEEPER, "index out of range")
class BelievesWhatItAccepts(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        super().complete(ticket, result)
        range(1 << 32)[result]


@breaks("answers", KEEPER, "but: ")
class RefusesWhatItAccepts(Keeper):
    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        if result == 1 << 64:
            raise LocalProtocolError(ContractErrorCode.WRONG_RESULT)
        super().complete(ticket, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeepSomehow(Effect):  # type: ignore[type-arg]
    text: bytes

    def accepts(self, result: object) -> TypeGuard[int]:
        return type(result) is int


@breaks("answers", KEEPER, "the type of its answer is unknown")
class LeavesTheAnswerOpen(Keeper):
    keep_type = _KeepSomehow


# Receipts


@breaks("receipts", KEEPER, "is not answered, and yet confirmed: .*ok")
class SaysSoBeforeItIsKept(Keeper):
    def next_effect(self) -> Effect[Any] | None:
        effect = super().next_effect()
        if effect is not None and self._state is ToyState.OPEN:
            self._outbox.append(b"ok\n")
        return effect

    def complete(self, ticket: Ticket[Any], result: Any) -> None:
        said = self._outbox.take()
        super().complete(ticket, result)
        self._outbox.clear()
        self._outbox.append(said)


@breaks("careless", KEEPER, "an effect comes after Closed")
class AsksOnAfterTheEnd(Keeper):
    asked = False

    def next_effect(self) -> Effect[Any] | None:
        if self._closed is not None and not self.asked:
            self.asked = True
            self._tickets.ask(Keep, b"", text=b"too late")
        return super().next_effect()
