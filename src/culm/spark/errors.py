"""Errors that keep a job from being started or completed."""

from __future__ import annotations

import re
from enum import StrEnum

_TRACEBACK = "Traceback (most recent call last):"
# The line at the end of a traceback.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
# Messages that something has failed, without a cause; and causes, the last one first.
_VAGUE = re.compile(r"An error occurred while calling |(\(\S+\) )?Job aborted")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
# The place to which rows should have been written.
_WRITING = re.compile(r"\[TASK_WRITE_FAILED\] (.+?)\.? (?:SQLSTATE.*)?$", re.MULTILINE)


class OnError(StrEnum):
    """The fate of a job when a file system fails to read (option ``on_io_error``)."""

    FAIL = "fail"
    """The task fails, so that Spark tries it again; if that does not help, the job fails."""
    QUARANTINE = "quarantine"
    """A row with the fault ``UNREADABLE`` names the part of the file; the rest is read."""


class SparkSetupError(RuntimeError):
    """Spark cannot run here; the message says which package or setting is missing."""


class UnreadableError(OSError):
    """The file system fails to read a part of a file; the message names the part and the cause."""

    def __init__(self, path: str, start: int, stop: int, error: OSError) -> None:
        super().__init__(
            f"{path} cannot be read, bytes {start} to {max(start, stop)}: {error}"
            f" (option on_io_error={OnError.QUARANTINE}: set them aside and go on)"
        )


class ColumnError(ValueError):
    """A DataFrame lacks a column that a job needs, or has it in another type.

    `column` is its name, `wanted` the type that it should have, `found` its type, or ``None`` if it
    is missing.  Types are named as by Spark's ``simpleString``.
    """

    def __init__(self, column: str, wanted: str, found: str | None) -> None:
        what = "is missing" if found is None else f"is {found}"
        super().__init__(f"column {column} {what}; this job needs it as {wanted}")
        self.column = column
        self.wanted = wanted
        self.found = found


def sentence_of(error: BaseException) -> str:
    """An error in one line; from an error that comes through Spark, the one raised in Python.

    Spark passes on the whole traceback of a worker, between its own ones; for errors raised in Java
    the line tells the last cause.
    """
    text = str(error)
    before, found, traceback = text.rpartition(_TRACEBACK)
    if found and (raised := _RAISED.search(traceback)) is not None:
        return raised[1]
    said = (before or text).strip()
    causes = _CAUSE.findall(text)
    if causes and _VAGUE.match(said):
        where = _WRITING.search(text)
        return f"{where[1]}: {causes[-1]}" if where else str(causes[-1])
    return said.partition("\n")[0] or type(error).__name__
