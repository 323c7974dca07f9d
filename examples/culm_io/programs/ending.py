"""How programs end, and how their help says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

__all__ = [
    "DONE",
    "FAILED",
    "IMPOSSIBLE",
    "INTERRUPTED",
    "UNHEARD",
    "ImpossibleError",
    "end_with",
    "end_without",
    "exits",
]

DONE = 0
FAILED = 1  # others have refused, do not answer, or have sent what is wrong
IMPOSSIBLE = 2  # what was asked for cannot be done here: argparse ends so, too
INTERRUPTED = 130  # as shells say it of a program that SIGINT has ended
UNHEARD = 141  # the same of SIGPIPE: nobody reads what the program writes


class ImpossibleError(Exception):
    """What was asked for cannot be done; says why in a sentence."""


def exits(*statuses: str, endless: str = "") -> str:
    """What a program's help says of its exit status.

    statuses: what 0, 1, 2 ... mean; a number that is not used is an empty string.
    endless: the commands that go on until Ctrl-C, which is no failure there.
    """
    told = [f"{number} {text}" for number, text in enumerate(statuses) if text]
    sentence = f"Exit status: {'; '.join(told)}; {INTERRUPTED} interrupted."
    return f"{sentence} Ctrl-C is the usual end of {endless}, with 0." if endless else sentence


def end_with(main: Callable[[], int]) -> NoReturn:
    """Run a program and exit with its status; what ends it early is told without a traceback."""
    try:
        _open_outputs()
        status = _status_of(main)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is written to nobody
        status = UNHEARD
    except (ImpossibleError, OSError) as error:
        print(_sentence(error), file=sys.stderr)
        status = IMPOSSIBLE
    sys.exit(status)


def _open_outputs() -> None:
    """Write to nobody where an output was closed beforehand; no other file takes its place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _status_of(main: Callable[[], int]) -> int:
    try:
        return main()
    except SystemExit as end:  # of argparse, after its help or a word on what is wrong
        return end.code if isinstance(end.code, int) else IMPOSSIBLE


def _sentence(error: Exception) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def end_without(error: ModuleNotFoundError, extra: str = "programs") -> NoReturn:
    """End a program that lacks a package, and say how to install it."""
    install = f"python -m pip install 'culm-io[{extra}]'"
    print(f"{error.name} is missing, which the extra {extra} brings: {install}", file=sys.stderr)
    sys.exit(IMPOSSIBLE)
