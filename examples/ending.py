"""How programs end, and how their help says so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

__all__ = ["IMPOSSIBLE", "INTERRUPTED", "end_with", "end_without", "exits"]

IMPOSSIBLE = 2  # what was asked for cannot be done: argparse ends so, too
INTERRUPTED = 130  # as shells say it of a program that SIGINT has ended


def exits(*statuses: str, endless: str = "") -> str:
    """What a program's help says of its exit status.

    statuses: what 0, 1, 2 ... mean; a number that is not used is an empty string.
    endless: the commands that go on until Ctrl-C, which is no failure there.
    """
    told = [f"{number} {text}" for number, text in enumerate(statuses) if text]
    sentence = f"Exit status: {'; '.join(told)}; {INTERRUPTED} interrupted."
    return f"{sentence} Ctrl-C is the usual end of {endless}, with 0." if endless else sentence


def end_with(main: Callable[[], int]) -> NoReturn:
    """Run a program and exit with its status; Ctrl-C is told in a word, and not as a traceback."""
    try:
        status = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    sys.exit(status)


def end_without(error: ModuleNotFoundError, extra: str = "examples") -> NoReturn:
    """End a program that lacks a package, and say how to install it."""
    install = f"python -m pip install '.[{extra}]'"
    print(f"{error.name} is missing, which the extra {extra} brings: {install}", file=sys.stderr)
    sys.exit(IMPOSSIBLE)
