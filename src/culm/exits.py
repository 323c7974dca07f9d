"""How commands end: one table of exit statuses for all of them, and what their help says of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Self


class ExitStatus(IntEnum):
    """What the exit status of a command says; a number says the same of every command."""

    DONE = 0, "done, and nothing is wrong"
    FAILED = 1, "others have refused, failed or not answered, or what was looked at is wrong"
    IMPOSSIBLE = (
        2,
        (
            "it cannot be done here: a wrong argument, a folder that cannot be made, a port that is"
            " taken, a package that is missing"
        ),
    )
    INCOMPLETE = 3, "begun, and not completed: some of it could not be read, or the work broke off"
    TOO_FEW = 4, "there is less to look at than there should be"
    BUSY = 5, "somebody else is at it; try again later"
    ABSENT = 6, "what was asked for is not there"
    UNKNOWN = 7, "nobody knows whether it was done"
    INTERRUPTED = 130, "interrupted"  # as shells say it of a program that SIGINT has ended
    UNHEARD = 141, "nobody reads the output any more"  # the same of SIGPIPE

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        made = int.__new__(cls, value)
        made._value_ = value
        made.meaning = meaning
        return made


def exits(told: Mapping[ExitStatus, str], *, endless: str = "") -> str:
    """What a command's help says of its exit status.

    told: what those that are its own mean here.
    endless: the commands that go on until Ctrl-C, which is no failure there.
    """
    words = "; ".join(f"{status} {text}" for status, text in sorted(told.items()))
    sentence = f"Exit status: {words}; {ExitStatus.INTERRUPTED} interrupted."
    return f"{sentence} Ctrl-C is the usual end of {endless}, with 0." if endless else sentence
