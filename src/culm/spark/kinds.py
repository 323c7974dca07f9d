"""The kinds of records in archives, and how each is verified and identified, for ``--kind``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from culm.spark.decode import verify_entries
from culm.spark.fingerprint import ENTRY_LEVELS, entry_items
from culm.spark.reasons import UNSIGNED
from culm.spark.ssb import verify_feed_messages
from culm.wire.multihash import FAMILIES, HashFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KINDS", "Kind", "signed_items"]

_PLACE_SIZE = 48  # a log and a number in it
_DIGEST_SIZE = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of records.

    `verify` turns rows with an ``entry`` into what `culm.spark.audit` needs, and keeps the named
    columns; `item_size` and `levels` are those of its items, see `culm.spark.fingerprint`.
    """

    name: str
    item_size: int
    verify: Callable[[DataFrame, Sequence[str]], DataFrame]
    levels: Sequence[int] = ENTRY_LEVELS


def _verify_entries(rows: DataFrame, keep: Sequence[str], *, family_name: str) -> DataFrame:
    return verify_entries(rows, FAMILIES[family_name], keep=keep)


def _verify_messages(rows: DataFrame, keep: Sequence[str]) -> DataFrame:
    return verify_feed_messages(rows, keep=keep)


def _bamboo(family: HashFamily) -> Kind:
    verify = partial(_verify_entries, family_name=family.name)
    return Kind(f"bamboo/{family.name}", _PLACE_SIZE + family.encoded_size, verify)


#: All kinds, by the names that stand in archives.
KINDS = {
    kind.name: kind
    for kind in (
        *map(_bamboo, FAMILIES.values()),
        Kind("ssb", _PLACE_SIZE + _DIGEST_SIZE, _verify_messages),
    )
}


def signed_items(verified: DataFrame) -> DataFrame:
    """The items, and their ``size``, of all records that their authors have signed."""
    from pyspark.sql import functions as f

    signed = verified.filter(f.col("reasons").bitwiseAND(UNSIGNED) == 0)
    return entry_items(signed).select("item", "size")
