"""Effects that are carried out elsewhere, as a rule in another thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from culm.effects import Answer
from culm.machine import Effect


@dataclass(frozen=True, slots=True)
class Job:
    """Effects to be carried out in order.  Call it in the store's thread: it never raises.

    Pass its answers to the pump's `finish`, in the pump's thread.
    """

    effects: Sequence[Effect[Any]]
    perform: Callable[[Effect[Any]], object]

    def __call__(self) -> list[Answer[Any]]:
        return [Answer.of(effect, self.perform) for effect in self.effects]

    def failed(self, error: Exception) -> list[Answer[Any]]:
        """The answers for `finish` when the job cannot be done."""
        return [Answer(effect, None, error) for effect in self.effects]
