"""Rows as verification makes them, of unsigned logs: large ones in no time."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from pyarrow.parquet import ParquetWriter

from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.spark.audit import NEEDED
from culm.spark.columns import arrow_schema, row_batches

FILES = 8
SMALL = 10  # entries of a small log


def write_rows(folder: Path, large: int, small: int, *, missing: int = 0) -> None:
    """One log of `large` entries, without entry `missing`, among `small` logs of ten.

    They lie in `FILES` files of the same size.
    """
    folder.mkdir()
    count = large + SMALL * small - bool(missing)
    for number in range(FILES):
        places = (n + (0 < missing <= n + 1) for n in range(number, count, FILES))
        made = (_row(*_place(place, large)) for place in places)
        with ParquetWriter(folder / f"{number}.parquet", arrow_schema(NEEDED)) as file:
            for batch in row_batches(made, NEEDED):
                file.write_batch(batch)


def _place(place: int, large: int) -> tuple[int, int]:
    """The number of a log, and that of an entry in it."""
    if place < large:
        return 0, place + 1
    log, index = divmod(place - large, SMALL)
    return log + 1, index + 1


def _row(log: int, seqnum: int) -> dict[str, object]:
    target = lipmaa(seqnum)
    return {
        "log": _log(log),
        "seqnum": seqnum,
        "end_of_log": False,
        "lipmaa": target,
        "lipmaalink": _hash(log, target) if has_lipmaalink(seqnum) else None,
        "backlink": _hash(log, seqnum - 1) if seqnum > 1 else None,
        "hash": _hash(log, seqnum),
        "reasons": 0,
    }


def _log(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=32).digest() + bytes(8)


def _hash(log: int, seqnum: int) -> bytes:
    return blake2b(b"%d/%d" % (log, seqnum), digest_size=34).digest()
