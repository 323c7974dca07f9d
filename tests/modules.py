"""Tests about the source itself: one test looks at all modules, and names those at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["of_each"]


def of_each(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make one test of one that looks at a module."""

    def decorate(test: Callable[[Path], None]) -> Callable[[], None]:
        def test_all() -> None:
            for path in paths:
                try:
                    test(path)
                except BaseException as error:
                    error.add_note(f"module: {path}")
                    raise

        test_all.__name__, test_all.__doc__ = test.__name__, test.__doc__
        return test_all

    return decorate
