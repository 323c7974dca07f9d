"""The page of the documentation with the columns of the pipeline's tables, made from the code."""

from __future__ import annotations

from collections.abc import Iterator

from culm.bamboo.errors import Reason
from culm.spark.meanings import meanings
from culm.spark.schemas import SCHEMAS


def page() -> str:
    """The page of the documentation, in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Columns of the pipeline's tables"
    yield ""
    yield "This page is made from the code (`culm.spark.schemas`). The command line writes"
    yield "`reason_names` (array of string) beside `reasons`, and `first_fault_reason_names` beside"
    yield "`first_fault_reasons`."
    for schema in SCHEMAS.values():
        yield f"\n## {schema.title}\n\nGiven by `{schema.given_by}`.\n"
        yield "| Column | Type | Null | |"
        yield "| --- | --- | --- | --- |"
        for name, kind in schema.columns:
            null = "may be" if name in schema.nulls else "never"
            yield f"| `{name}` | {_spelled(kind)} | {null} | {schema.meanings[name]} |"
    yield "\n## Bits of `reasons`\n"
    yield "A reason has the bit `1 << number`. `culm_reasons(reasons)` in SQL,"
    yield "{py:obj}`culm.spark.reasons.names` for columns and"
    yield "{py:obj}`culm.spark.reasons.reasons_of` in Python turn them into names.\n"
    yield "| Reason | Bit | Number | |"
    yield "| --- | --- | --- | --- |"
    told = meanings(Reason)
    for reason in Reason:
        yield f"| `{reason.name}` | {reason:d} | {1 << reason} | {told[reason.name]} |"


def _spelled(kind: str) -> str:
    inner = kind.partition("<")[2].removesuffix(">")
    if kind.startswith("array<struct"):
        parts = inner.partition("<")[2].removesuffix(">").split(",")
        return f"array of struct: {', '.join(part.replace(':', ' ') for part in parts)}"
    if kind.startswith("array"):
        return f"array of {inner}"
    if kind.startswith("map"):
        return f"map of {inner.replace(',', ' to ')}"
    return kind
