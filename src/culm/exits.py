"""How commands end: one table of exit statuses for all of them, and their help on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn, Self


class ExitStatus(IntEnum):
    """The exit status of a command; a number has the same meaning for every command."""

    DONE = 0, "done, and nothing is wrong"
    FAILED = 1, "others have refused, failed or not answered, or the input is faulty"
    IMPOSSIBLE = (
        2,
        (
            "it cannot be done here: a wrong argument, a folder that cannot be made, a port that is"
            " taken, a package that is missing"
        ),
    )
    INCOMPLETE = 3, "begun, and not completed: some of it could not be read, or the work broke off"
    TOO_FEW = 4, "there is less input than there should be"
    BUSY = 5, "in use by another program; try again later"
    ABSENT = 6, "not found"
    UNKNOWN = 7, "it may have been done or not"
    INTERRUPTED = 130, "interrupted"  # as shells say it of a program that SIGINT has ended
    UNHEARD = 141, "the output is no longer read"  # the same of SIGPIPE

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        made = int.__new__(cls, value)
        made._value_ = value
        made.meaning = meaning
        return made


def exits(told: Mapping[ExitStatus, str], *, endless: str = "") -> str:
    """A help text on the exit statuses of a command.

    told: the meanings of its own statuses.
    endless: the commands that go on until Ctrl-C, which is no failure there.
    """
    words = "; ".join(f"{status} {text}" for status, text in sorted(told.items()))
    sentence = f"Exit status: {words}; {ExitStatus.INTERRUPTED} interrupted."
    return f"{sentence} Ctrl-C is the usual end of {endless}, with 0." if endless else sentence


def end_with(main: Callable[[], ExitStatus]) -> NoReturn:
    """Run a command and exit with its status, in silence if its output is no longer read."""
    status: str | int | None
    try:
        try:
            status = main()
        except SystemExit as end:  # as of ``--help``
            status = end.code
        sys.stdout.flush()
    except BrokenPipeError:  # as of ``| head``
        status = ExitStatus.UNHEARD
        with suppress(BrokenPipeError):
            sys.stdout.close()  # the rest has no reader
    sys.exit(status)
