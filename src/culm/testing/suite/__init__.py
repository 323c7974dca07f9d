"""The property suite that every machine registers for.

In pytest, over all registered machines::

    @pytest.mark.parametrize(("spec", "law"), cases(), ids=str)
    def test_every_machine(spec, law):
        law.check(spec)

or for one machine: ``check_machine(spec)``.  Hypothesis draws conversations, cuts and
mutations; the loaded profile sets the number of examples.  (``culm[testing]`` brings it.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

try:
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st
    from hypothesis.errors import HypothesisException
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Hypothesis is not installed: python -m pip install 'culm[testing]'", name=error.name
    ) from error

from culm.testing.captures import keep_stories
from culm.testing.registry import spec_of, specs
from culm.testing.spec import MachineSpec
from culm.testing.suite import properties
from culm.testing.suite.answers import answers, every_answer, every_receipt, receipts
from culm.testing.suite.arguments import arguments, every_argument
from culm.testing.suite.drivers import careless, every_freed, freed, pumped
from culm.testing.suite.faults import every_fault, faults
from culm.testing.suite.floods import floods, limits, reads, repeats, unsent
from culm.testing.suite.processes import LeftOutWarning, processes
from culm.testing.suite.runs import SECONDS_MAX as EXAMPLE_SECONDS_MAX
from culm.testing.suite.runs import PropertyError, watchdog
from culm.testing.suite.stages import alone, least, links
from culm.testing.suite.strategies import Draw
from culm.testing.suite.work import alike, at_once, work

__all__ = ["PROPERTIES", "LeftOutWarning", "Property", "PropertyError", "cases", "check_machine"]

SHRINK_SECONDS_MAX = 20.0  # from the first failure of a law on

# Conversations are long, and some machines are slow; neither is a fault of the example.
_HEALTH_OF_NO_CONCERN = (
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.too_slow,
)


class _EnoughError(KeyboardInterrupt):
    """The time is over; Hypothesis takes it for Ctrl-C, and ends the search."""


class _Patience:
    """Checks examples until `seconds` after the first failure.

    Hypothesis itself shrinks for up to five minutes, which no setting changes.

    failure: the error of the smallest example that has failed; in a search that is cut off, the one
        to raise.
    """

    def __init__(self, seconds: float) -> None:
        self.failure: Exception | None = None
        self._seconds = seconds
        self._until = 0.0
        self._size = 0

    def check(self, check: Callable[[Draw], None], draw: Draw) -> None:
        """Call `check` with `draw`; raises its errors, and `_EnoughError` once time is over."""
        if self.failure is not None and time.monotonic() > self._until:
            raise _EnoughError
        size = 0

        def counted(strategy: st.SearchStrategy[Any]) -> Any:
            nonlocal size
            size += 1
            return draw(strategy)

        try:
            check(counted)
        except HypothesisException:  # such as an assumption that does not hold
            raise
        except Exception as error:
            if self.failure is None:
                self._until = time.monotonic() + self._seconds
            if self.failure is None or size <= self._size:
                self.failure, self._size = error, size
            raise


@dataclass(frozen=True, slots=True)
class Property:
    """One law, which the docstring of one of its functions states.

    check_example: raises `PropertyError` for one drawn example; `check_once` is for a law
        without chance.
    share: part of the profile's number of examples.
    """

    check_example: Callable[[MachineSpec, Draw], None] | None = None
    check_once: Callable[[MachineSpec], None] | None = None
    _: KW_ONLY
    share: float = 1.0
    applies: Callable[[MachineSpec], bool] = lambda spec: True

    @property
    def name(self) -> str:
        """That of the function that states it."""
        stated: Any = self.check_example or self.check_once
        name: str = stated.__name__
        return name

    def __str__(self) -> str:
        return self.name

    def check(self, spec: MachineSpec, *, captures: Path | None = None) -> None:
        """Raise the error of the machine of `spec`, if any, in the smallest example found.

        captures: the directory for a capture of that example, which a note of the error names;
            by default the environment says it (`culm.testing.captures`).
        """
        try:
            if self.check_once is not None:
                self.check_once(spec)
            if self.check_example is not None:
                self.search(spec, max(1, round(settings().max_examples * self.share)))
        except Exception as error:
            with watchdog(EXAMPLE_SECONDS_MAX):
                keep_stories(error, f"{spec.name}-{self.name}", captures)
            raise

    def search(self, spec: MachineSpec, examples: int, *, chance: int | None = None) -> int:
        """Check up to `examples` examples; returns the number of those tried.

        chance: a seed that fixes them; without it the loaded profile decides whether the same
            ones are tried again.
        """
        check, tried = self.check_example, 0
        assert check is not None
        patience = _Patience(SHRINK_SECONDS_MAX)

        patient = settings(
            max_examples=examples, deadline=None, suppress_health_check=_HEALTH_OF_NO_CONCERN
        )
        if chance is not None:
            patient = settings(patient, database=None, derandomize=False)

        @patient
        @given(st.data())
        def example(data: st.DataObject) -> None:
            nonlocal tried
            with watchdog(EXAMPLE_SECONDS_MAX):
                patience.check(partial(check, spec), data.draw)
            tried += 1

        # The name separates the failures of different machines in Hypothesis' database.
        example.__qualname__ = example.__name__ = f"{spec.name}_{self.name}"
        if chance is not None:
            seed(chance)(example)
        try:
            example()
        except _EnoughError:
            assert patience.failure is not None
            raise patience.failure from None
        return tried


def _of(*methods: str) -> Callable[[MachineSpec], bool]:
    """Whether the machine of a spec has one of these methods."""
    return lambda spec: spec.has(*methods)


def _of_keepers(spec: MachineSpec) -> bool:
    return spec.comparison.kept is not None


_of_streams = _of("receive_data", "links_to_send")

PROPERTIES: tuple[Property, ...] = (
    Property(check_once=properties.sound),
    Property(properties.chunking, share=3.0, applies=_of_streams),
    Property(properties.determinism, processes, share=0.5),
    Property(properties.survives, share=2.0),
    Property(properties.ends),
    Property(properties.refusals),
    Property(arguments, every_argument, share=0.1),
    Property(answers, every_answer, share=0.25, applies=_of("next_effect")),
    Property(faults, every_fault, share=0.5, applies=_of_keepers),
    Property(
        receipts,
        every_receipt,
        share=0.25,
        applies=lambda spec: _of_keepers(spec) and spec.has("next_effect"),
    ),
    Property(properties.purity, share=0.5),
    Property(properties.time, share=0.25, applies=_of("advance")),
    Property(properties.pieces, applies=_of("data_to_send", "links_to_send")),
    Property(freed, every_freed, share=0.5, applies=lambda spec: spec.usage.frees is not None),
    Property(careless, share=2.0),
    Property(pumped, share=0.25),
    Property(work, at_once, applies=lambda spec: spec.bounds.work is not None),
    Property(check_once=alike, applies=lambda spec: bool(spec.attacks.frames)),
    Property(limits, floods, share=0.25),
    Property(reads, share=0.5, applies=_of_streams),
    Property(unsent, repeats, share=0.5),
    Property(check_once=least, applies=lambda spec: bool(spec.usage.stages)),
    Property(alone, share=0.5, applies=lambda spec: bool(spec.usage.meetings)),
    Property(links, share=0.5, applies=lambda spec: bool(spec.usage.stages)),
)


def check_machine(
    spec: MachineSpec | str,
    laws: Iterable[Property] = PROPERTIES,
    *,
    captures: Path | None = None,
) -> None:
    """Check `spec` (or the registered spec of that name) against all `laws` that apply.

    captures: see `Property.check`.
    """
    found = spec_of(spec) if isinstance(spec, str) else spec
    for law in laws:
        if law.applies(found):
            law.check(found, captures=captures)


def cases(of: Iterable[MachineSpec] | None = None) -> list[tuple[MachineSpec, Property]]:
    """Each spec, by default each registered one, with every law that applies to it."""
    found = specs() if of is None else of
    return [(spec, law) for spec in found for law in PROPERTIES if law.applies(spec)]
