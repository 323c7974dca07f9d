"""Reasons as bits of a number, which cost little in each of millions of rows and combine in joins.

Bit ``1 << reason`` is set for each `culm.bamboo.Reason` that stands against an entry or its
payload.  `names` turns the number into a list of names for people, `reasons_of` into a set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm.bamboo.errors import Reason

if TYPE_CHECKING:
    from pyspark.sql import Column


def bits(*reasons: Reason) -> int:
    """The number that stands for `reasons` together."""
    total = 0
    for reason in reasons:
        total |= 1 << reason
    return total


#: The author has not signed such a row.
UNSIGNED = bits(Reason.MALFORMED, Reason.BAD_SIGNATURE)
#: The payload of the row is not that of the entry; the entry itself may still be verified.
PAYLOAD_ONLY = bits(Reason.PAYLOAD_SIZE, Reason.PAYLOAD_HASH)


def reasons_of(number: int) -> frozenset[Reason]:
    """The reasons in `number`; raises `ValueError` if it has other bits."""
    found = frozenset(reason for reason in Reason if number >> reason & 1)
    if bits(*found) != number:
        raise ValueError(f"{number:#x} has bits that stand for no reason")
    return found


def names(column: Column | str) -> Column:
    """The names of the reasons in a column of such numbers: an array of strings, ascending."""
    from pyspark.sql import functions as f

    number = f.col(column) if isinstance(column, str) else column
    each = [f.when(number.bitwiseAND(1 << reason) != 0, f.lit(reason.name)) for reason in Reason]
    return f.array_compact(f.array(*each))
