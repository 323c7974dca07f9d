"""Why a job cannot be started."""

from __future__ import annotations

__all__ = ["ColumnError", "SparkSetupError"]


class SparkSetupError(RuntimeError):
    """Spark cannot run here; the message says what to install or to set."""


class ColumnError(ValueError):
    """A DataFrame lacks a column that a job needs, or has it in another type.

    `column` is its name, `wanted` the type that it should have, `found` the one that it has, or
    ``None`` if it is missing.  Types are named as by Spark's ``simpleString``.
    """

    def __init__(self, column: str, wanted: str, found: str | None) -> None:
        what = "is missing" if found is None else f"is {found}"
        super().__init__(f"column {column} {what}; this job needs it as {wanted}")
        self.column = column
        self.wanted = wanted
        self.found = found
