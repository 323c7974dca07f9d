"""How hard the tests try: one place for what the profile means beside Hypothesis' examples.

``CULM_HYPOTHESIS_PROFILE`` chooses:

- ``default``, while working: everything but campaigns;
- ``ci``, the gate: a sixteenth of the seeds, and of each test that is ``costly`` every twelfth
  case;
- ``brief``, the gate on pure kernels and a second interpreter: a twentieth of the seeds, and
  nothing marked ``costly`` or ``once``: these take seconds, and run the same way on every
  interpreter;
- ``long``, campaigns: everything, including tests marked ``slow``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

PROFILE = os.environ.get("CULM_HYPOTHESIS_PROFILE", "default")
GATE = PROFILE == "ci"
BRIEF = PROFILE == "brief"
LONG = PROFILE == "long"

_PARTS = 16 if GATE else 20 if BRIEF else 1


def amount(usual: int, long: int) -> int:
    """How many to try: `usual` by default, `long` in a campaign."""
    return long if LONG else max(1, usual // _PARTS)


def some(cases: Sequence[T]) -> Sequence[T]:
    """The cases of a costly test that are tried."""
    return cases[::12] if GATE else [] if BRIEF else cases


def seeds(simulator: str, usual: int, long: int) -> range:
    """The seeds to try with `simulator`.

    ``CULM_<SIMULATOR>_SEEDS`` sets their number, whatever the profile is, and
    ``CULM_<SIMULATOR>_FIRST_SEED`` the first one.
    """
    count = int(os.environ.get(f"CULM_{simulator}_SEEDS", amount(usual, long)))
    first = int(os.environ.get(f"CULM_{simulator}_FIRST_SEED", 0))
    return range(first, first + count)


@contextmanager
def searching(profile: str) -> Iterator[None]:
    """Let Hypothesis search under another profile for a while."""
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        yield
    finally:
        settings.load_profile(before)
