"""The kinds of records in archives, and how each is verified and identified, for ``--kind``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from culm.bamboo.entry import decode
from culm.spark.columns import row_mapper
from culm.spark.decode import VERIFIED, batch_mapper, verify_entries
from culm.spark.fingerprint import ENTRY_LEVELS, entry_items
from culm.spark.reasons import PAYLOAD_ONLY, UNSIGNED
from culm.spark.ssb import MESSAGES, message_rows, read_row, verify_feed_messages
from culm.spark.workers import Batches
from culm.wire.errors import DecodeError
from culm.wire.multihash import FAMILIES, HashFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE_SIZE = 48  # a log and a number in it
_DIGEST_SIZE = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of records.

    `verify` turns rows with an ``entry`` into the input of `culm.spark.audit`, and keeps the named
    columns (``None``: all); `made` are the columns that it adds, and `mapper` gives its work on
    batches with the columns of an archive, from the names of those to keep and to make.  `reads`
    says whether bytes are such a record; `item_size` and `levels` are those of its items, see
    `culm.spark.fingerprint`.  Records of a kind that `has_payloads` may have them on hand or not.
    """

    name: str
    item_size: int
    verify: Callable[[DataFrame, Sequence[str] | None], DataFrame]
    made: Sequence[tuple[str, str]]
    mapper: Callable[[Sequence[str], Sequence[str]], Callable[[Batches], Batches]]
    reads: Callable[[bytes], bool]
    levels: Sequence[int] = ENTRY_LEVELS
    has_payloads: bool = True


def _verify_entries(rows: DataFrame, keep: Sequence[str] | None, *, family_name: str) -> DataFrame:
    return verify_entries(rows, FAMILIES[family_name], keep=keep)


def _entry_mapper(
    kept: Sequence[str], made: Sequence[str], *, family_name: str
) -> Callable[[Batches], Batches]:
    return batch_mapper(family_name, ("entry", "payload", "fault"), kept, made)


def _verify_messages(rows: DataFrame, keep: Sequence[str] | None) -> DataFrame:
    return verify_feed_messages(rows, keep=keep)


def _message_mapper(kept: Sequence[str], made: Sequence[str]) -> Callable[[Batches], Batches]:
    wanted = [each for each in MESSAGES if each[0] in made]
    return row_mapper(message_rows, ("entry", "fault"), kept, wanted)


def _bamboo(family: HashFamily) -> Kind:
    verify = partial(_verify_entries, family_name=family.name)
    reads = partial(_is_entry, family=family)
    mapper = partial(_entry_mapper, family_name=family.name)
    item_size = _PLACE_SIZE + family.encoded_size
    return Kind(f"bamboo/{family.name}", item_size, verify, VERIFIED, mapper, reads)


def _is_entry(record: bytes, *, family: HashFamily) -> bool:
    try:
        decode(record, family=family)
    except DecodeError:
        return False
    return True


def _is_message(record: bytes) -> bool:
    return not isinstance(read_row({"entry": record}), str)


#: All kinds, by the names that stand in archives.
KINDS = {
    kind.name: kind
    for kind in (
        *map(_bamboo, FAMILIES.values()),
        Kind(
            "ssb",
            _PLACE_SIZE + _DIGEST_SIZE,
            _verify_messages,
            MESSAGES,
            _message_mapper,
            _is_message,
            has_payloads=False,
        ),
    )
}


def other_kinds(records: Sequence[bytes], kind: Kind) -> list[str]:
    """The names of other kinds that all these records may be; none if there are no records."""
    others = (other for other in KINDS.values() if other is not kind)
    return [other.name for other in others if records and all(map(other.reads, records))]


def signed_items(verified: DataFrame, kind: Kind) -> DataFrame:
    """The inventory of all records that their authors have signed, for `culm.spark.reconcile`.

    Columns are ``item``, ``size`` and, if the `kind` has payloads, ``payload_bytes``.  A payload
    that differs from its entry's description counts as absent.
    """
    from pyspark.sql import functions as f

    signed = entry_items(verified.filter(f.col("reasons").bitwiseAND(UNSIGNED) == 0))
    if not kind.has_payloads:
        return signed.select("item", "size")
    right = f.when(f.col("reasons").bitwiseAND(PAYLOAD_ONLY) == 0, f.col("payload_bytes"))
    wrong = f.coalesce(f.col("payload_bytes"), f.lit(0)) - f.coalesce(right, f.lit(0))
    return signed.select(
        "item", (f.col("size") - wrong).alias("size"), right.alias("payload_bytes")
    )
