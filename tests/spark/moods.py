"""A simulator that breaks promises, for tests of campaigns."""

from __future__ import annotations

from types import SimpleNamespace


def moody(seed: int) -> SimpleNamespace:
    """Breaks a promise at every seventh seed, and breaks down itself at one."""
    assert seed % 7, f"seed {seed} is a seventh"
    if seed == 10:
        raise KeyError(seed)
    return SimpleNamespace(steps=seed * 2, bytes=1)
