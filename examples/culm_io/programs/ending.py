"""How programs end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import NoReturn

from culm.exits import ExitStatus

__all__ = [
    "AbsentError",
    "ImpossibleError",
    "end_with",
    "end_without",
    "need",
    "sentence_of",
]


class ImpossibleError(Exception):
    """The command cannot be carried out; says why in a sentence."""

    status = ExitStatus.IMPOSSIBLE


class AbsentError(ImpossibleError):
    """The thing asked for does not exist."""

    status = ExitStatus.ABSENT


def end_with(main: Callable[[], ExitStatus]) -> NoReturn:
    """Run a program and exit with its status; an error that ends it is told without a traceback."""
    try:
        _open_outputs()
        status = _status_of(main)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = ExitStatus.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest has no reader
        status = ExitStatus.UNHEARD
    except (ImpossibleError, OSError) as error:
        print(sentence_of(error), file=sys.stderr)
        status = getattr(error, "status", ExitStatus.IMPOSSIBLE)
    sys.exit(status)


def _open_outputs() -> None:
    """Put the null device where an output was closed beforehand, so that no file gets there."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _status_of(main: Callable[[], ExitStatus]) -> ExitStatus:
    try:
        return main()
    except SystemExit as end:  # of argparse, after its help or an error message
        return ExitStatus(end.code) if isinstance(end.code, int) else ExitStatus.IMPOSSIBLE


def sentence_of(error: Exception) -> str:
    """The message of an error, without the system's number for it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def end_without(error: ModuleNotFoundError, extra: str = "programs") -> NoReturn:
    """End a program that lacks a package, and say how to install it."""
    install = f"python -m pip install 'culm-io[{extra}]'"
    print(f"{error.name} is missing, which the extra {extra} brings: {install}", file=sys.stderr)
    sys.exit(ExitStatus.IMPOSSIBLE)


def need(package: str) -> None:
    """End a program that will need a package which is not installed; nothing is loaded yet."""
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        end_without(ModuleNotFoundError(name=package))
