"""The property that no peer is told that something is kept before the store has kept it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from culm.machine import Effect
from culm.machines.driver import Turn
from culm.machines.operations import Complete
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.answers import Play, left_in, otherwise, rightly, unanswered
from culm.testing.suite.runs import PropertyError, retold, watchdog
from culm.testing.suite.strategies import Draw, conversation, pick

_EFFECTS_MAX = 12  # effects withheld without chance in each conversation


def every_receipt(spec: MachineSpec) -> None:
    """The law of `receipts` for unchanged conversations."""
    for told in conversations(spec):
        with retold(spec, told):
            with watchdog():
                plain = _Answered(spec, told)
            for effect in plain.keeping[:: len(plain.keeping) // _EFFECTS_MAX + 1]:
                with watchdog():
                    plain.check(effect)


def receipts(spec: MachineSpec, draw: Draw) -> None:
    """No peer is told that something is kept before the store has kept it.

    What a machine says before an answer cannot depend on it.  So if a message that may confirm
    items (`Comparison.confirms`) leaves together with the effect that keeps them
    (`Comparison.kept`), more such messages have to come when the store answers than when it never
    does.  Otherwise all was confirmed beforehand.  Conversations are not changed: one that is may
    end before what confirms would come.
    """
    told = conversation(spec, draw)
    with retold(spec, told):
        plain = _Answered(spec, told)
        if plain.keeping:
            plain.check(pick(plain.keeping, draw))


class _Answered:
    """A conversation whose effects have all been answered.

    keeping: those that keep items, by number.
    """

    def __init__(self, spec: MachineSpec, told: Conversation) -> None:
        self._spec, self._told = spec, told
        self._effects: list[Effect[Any]] = []
        self._turns = Play(spec, told, self._note).run(list(told.operations)).turns
        kept = spec.comparison.kept
        assert kept is not None
        self.keeping = [at for at, effect in enumerate(self._effects) if [*kept(effect)]]

    def _note(self, play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        self._effects.append(effect)
        rightly(play, number, effect, right)

    def check(self, number: int) -> None:
        """Raise `PropertyError` if all confirmations come without the answer to that effect."""
        effect = self._effects[number]
        at = next(at for at, turn in enumerate(self._turns) if effect in turn.effects)
        early = self._confirming(effect, [self._turns[at]])
        if not early:
            return
        withheld = Play(self._spec, self._told, otherwise(number, unanswered))
        waiting = withheld.run(list(self._told.operations)).turns
        if self._confirming(effect, waiting[at:]) == self._confirming(effect, self._turns[at:]):
            raise PropertyError(f"{effect} is not answered, and yet confirmed: {early}")

    def _confirming(
        self, effect: Effect[Any], turns: Sequence[Turn]
    ) -> list[tuple[Hashable, bytes]]:
        """The messages that may confirm what an effect keeps, each with its destination."""
        confirms, cut = self._spec.comparison.confirms, self._spec.machine.codec.cut
        return [
            (way, message)
            for turn in turns
            for way, data in left_in(turn).items()
            for message in cut(data)
            if confirms(effect, message)
        ]
