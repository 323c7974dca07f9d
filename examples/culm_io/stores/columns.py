"""How values are kept in columns of SQLite."""

from __future__ import annotations

__all__ = ["column", "number"]


def column(value: int) -> int | bytes:
    """An unsigned 64-bit number as it is kept in a column without type.

    SQLite's integers end at 2**63 - 1, and all blobs sort after all integers.
    """
    return value if value < 1 << 63 else value.to_bytes(8)


def number(kept: int | bytes) -> int:
    """The number that is kept so."""
    return kept if isinstance(kept, int) else int.from_bytes(kept)
