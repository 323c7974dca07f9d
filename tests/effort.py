"""How hard the tests try: one place for what the profile means beside Hypothesis' examples.

``CULM_HYPOTHESIS_PROFILE`` chooses.  ``brief`` is for the second and third interpreter and for the
pure kernels: a twentieth of the seeds, and nothing that is marked ``once``, which is what costs
seconds and takes the same course on every interpreter.  ``long`` is for campaigns.
"""

from __future__ import annotations

import os

PROFILE = os.environ.get("CULM_HYPOTHESIS_PROFILE", "default")
BRIEF = PROFILE == "brief"
LONG = PROFILE == "long"


def amount(usual: int, long: int) -> int:
    """How many to try of what is `usual` in the gate and `long` in a campaign."""
    return long if LONG else max(1, usual // 20) if BRIEF else usual


def seeds(simulator: str, usual: int, long: int) -> range:
    """The seeds to try with `simulator`.

    ``CULM_<SIMULATOR>_SEEDS`` says how many, whatever the profile is, and
    ``CULM_<SIMULATOR>_FIRST_SEED`` where to begin.
    """
    count = int(os.environ.get(f"CULM_{simulator}_SEEDS", amount(usual, long)))
    first = int(os.environ.get(f"CULM_{simulator}_FIRST_SEED", 0))
    return range(first, first + count)
