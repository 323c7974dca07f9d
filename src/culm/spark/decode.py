"""Bamboo entries as columns: decoding, and verification of each entry by itself.

Input is a DataFrame with a column ``entry`` (binary) and, optionally, ``payload`` (binary, null
if the payload is not on hand).  All other columns stay with their row, so that it can be traced
to its origin.  No row is dropped: an entry that does not decode has a ``fault``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from culm.arguments import check_type
from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE
from culm.bamboo.errors import Reason
from culm.kernels import hashing
from culm.spark.columns import (
    Messages,
    check_columns,
    distinct,
    equal_rows,
    fixed,
    free_names,
    has_column,
    messages,
    numbers,
)
from culm.spark.reasons import bits
from culm.spark.workers import Batches, settled
from culm.wire.errors import WireErrorCode
from culm.wire.multihash import FAMILIES, YAMF, HashFamily

if TYPE_CHECKING:
    import numpy
    import pyarrow
    from pyspark.sql import DataFrame

__all__ = ["DECODED", "NO_ENTRY", "VERIFIED", "decode_entries", "family_named", "verify_entries"]

#: The columns that `decode_entries` adds, with their types.  With a ``fault`` all others are null.
DECODED = (
    ("log", "binary"),
    ("author", "binary"),
    ("log_id", "bigint"),
    ("seqnum", "bigint"),
    ("end_of_log", "boolean"),
    ("lipmaa", "bigint"),
    ("lipmaalink", "binary"),
    ("backlink", "binary"),
    ("payload_size", "bigint"),
    ("payload_hash", "binary"),
    ("signature", "binary"),
    ("hash", "binary"),
    ("fault", "string"),
)

#: The columns that `verify_entries` adds.
VERIFIED = (*DECODED, ("reasons", "int"))

#: The fault of a row whose entry is null; all others are names of `culm.wire.WireErrorCode`.
NO_ENTRY = "NO_ENTRY"

_LOG_SIZE, _PLACE_SIZE = 40, 48
_HASH_NUMBERS = {YAMF.name: hashing.BLAKE2B}


def family_named(name: str) -> HashFamily:
    """The hash family of a name, ``YAMF`` or ``YASMF``.  Raises `ValueError` for another."""
    if name not in FAMILIES:
        raise ValueError(f"a hash family is {' or '.join(FAMILIES)}, not {name}")
    return FAMILIES[name]


def decode_entries(
    frame: DataFrame, family: HashFamily, *, keep: Sequence[str] | None = None
) -> DataFrame:
    """Add the fields of each entry, its hash included: the columns `DECODED`.

    `keep` names the columns of `frame` that stay, by default all but ``payload``.
    Raises `ColumnError` if ``entry`` is missing or of another type, or if a column of `keep` is
    missing.
    """
    return _mapped(frame, family, keep, DECODED, with_payloads=False)


def verify_entries(
    frame: DataFrame, family: HashFamily, *, keep: Sequence[str] | None = None
) -> DataFrame:
    """Decode each entry, and check its signature and its payload: the columns `VERIFIED`.

    ``reasons`` are bits, as in `culm.spark.reasons`: ``MALFORMED``, ``BAD_SIGNATURE`` and, where
    there is a payload, ``PAYLOAD_SIZE``, ``PAYLOAD_HASH`` or ``PAYLOAD_SIZE_LIE``.  An entry that
    its author has not signed gets no other reason.  Links are checked by `culm.spark.audit`.
    Otherwise as `decode_entries`; ``payload`` has to be binary if it is there.
    """
    return _mapped(frame, family, keep, VERIFIED, with_payloads=has_column(frame, "payload"))


def _mapped(
    frame: DataFrame,
    family: HashFamily,
    keep: Sequence[str] | None,
    made: Sequence[tuple[str, str]],
    *,
    with_payloads: bool,
) -> DataFrame:
    check_type("family", family, HashFamily)
    needed = ["entry", "payload"] if with_payloads else ["entry"]
    check_columns(frame, [(name, "binary") for name in needed])
    kinds = dict(frame.dtypes)
    if keep is None:
        kept = free_names(frame, [*dict(made), "payload"])
    else:
        kept = list(keep)
        check_columns(frame, [(name, kinds.get(name, "any type")) for name in kept])
    if has_column(frame, "fault"):  # from a source, for parts that it could not read
        check_columns(frame, [("fault", "string")])
        needed.append("fault")
    schema = ", ".join(
        f"`{name}` {kind}" for name, kind in [*((name, kinds[name]) for name in kept), *made]
    )
    taken = frame.select(*dict.fromkeys([*needed, *kept]))
    work = batch_mapper(family.name, needed, kept, [name for name, _ in made])
    return taken.mapInArrow(work, schema)


def batch_mapper(
    family_name: str, needed: Sequence[str], kept: Sequence[str], made: Sequence[str]
) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow``, the work of an executor on its batches."""

    def work(batches: Batches) -> Batches:
        import pyarrow

        family = FAMILIES[family_name]
        for batch in settled(batches):
            # Copies in a batch are verified once: a small file can hold any number of them.
            once, places = distinct(batch, needed)
            rows = Rows(once, family)
            columns = rows.columns()
            if "reasons" in made:
                columns["reasons"] = numbers(rows.reasons(), "int32")
            if places is not None:
                columns = {name: column.take(places) for name, column in columns.items()}
            yield pyarrow.RecordBatch.from_arrays(
                [batch.column(name) for name in kept] + [columns[name] for name in made],
                names=[*kept, *made],
            )

    return work


class Rows:
    """The entries of one batch, decoded."""

    def __init__(self, batch: pyarrow.RecordBatch, family: HashFamily) -> None:
        import numpy

        self._batch = batch
        self._family = family
        entries = batch.column("entry")
        self._given = messages(entries)
        self._fields = hashing.decode_entries(
            self._given.data, self._given.offsets, family.digest_size
        )
        self._codes = numpy.frombuffer(self._fields["faults"], "uint8")
        self._absent = numpy.asarray(entries.is_null())
        self._faults = self._name_faults()
        self._good = numpy.asarray(self._faults.is_null())

    def columns(self) -> dict[str, pyarrow.Array]:
        """The columns `DECODED`."""
        import numpy
        import pyarrow

        fields, good, size = self._fields, self._good, self._family.encoded_size
        seqnums = numpy.frombuffer(fields["seqnums"], "uint64")
        targets = numpy.frombuffer(fields["targets"], "uint64")
        linked = good & (seqnums > 1)
        places = numpy.frombuffer(fields["places"], "uint8").reshape(-1, _PLACE_SIZE)
        ends = numpy.frombuffer(fields["ends"], "uint8") == 1
        return {
            "log": fixed(places[:, :_LOG_SIZE].tobytes(), _LOG_SIZE, good),
            "author": fixed(fields["authors"], AUTHOR_SIZE, good),
            "log_id": numbers(fields["log_ids"], present=good),
            "seqnum": numbers(fields["seqnums"], present=good),
            "end_of_log": pyarrow.array(ends, mask=~good),
            "lipmaa": numbers(fields["targets"], present=good),
            "lipmaalink": fixed(fields["lipmaalinks"], size, linked & (targets + 1 < seqnums)),
            "backlink": fixed(fields["backlinks"], size, linked),
            "payload_size": numbers(fields["payload_sizes"], present=good),
            "payload_hash": fixed(fields["payload_hashes"], size, good),
            "signature": fixed(fields["signatures"], SIGNATURE_SIZE, good),
            "hash": fixed(hash_column(self._given, self._family), size, good),
            "fault": self._faults,
        }

    def reasons(self) -> numpy.ndarray[Any, Any]:
        """The reasons against each row by itself, as bits."""
        import numpy

        fields, given = self._fields, self._given
        valid = hashing.verify_many(
            fields["authors"], fields["signatures"], given.data, given.offsets, SIGNATURE_SIZE
        )
        signed = numpy.frombuffer(valid, "uint8") == 1
        result = numpy.where(signed, 0, bits(Reason.BAD_SIGNATURE))
        result[~self._good] = bits(Reason.MALFORMED)
        if "payload" in self._batch.schema.names:
            judged = signed & self._good
            result[judged] |= self._payload_reasons()[judged]
        return result

    def _payload_reasons(self) -> numpy.ndarray[Any, Any]:
        """Faults as of `culm.bamboo.verify.payload_fault`, as bits: 0 if there is no payload."""
        import numpy

        payloads = self._batch.column("payload")
        given, fields = messages(payloads), self._fields
        hashes = hash_column(given, self._family)
        same_hash = equal_rows(hashes, fields["payload_hashes"], self._family.encoded_size)
        sizes = numpy.diff(numpy.asarray(given.offsets)).astype("uint64")
        same_size = sizes == numpy.frombuffer(fields["payload_sizes"], "uint64")
        wrong = numpy.where(same_size, bits(Reason.PAYLOAD_HASH), bits(Reason.PAYLOAD_SIZE))
        right = numpy.where(same_size, 0, bits(Reason.PAYLOAD_SIZE_LIE))
        result: numpy.ndarray[Any, Any] = numpy.where(same_hash, right, wrong)
        result[numpy.asarray(payloads.is_null())] = 0
        return result

    def _name_faults(self) -> pyarrow.Array:
        """Names of faults; one that the source has given has priority."""
        import numpy
        import pyarrow
        from pyarrow import compute

        given = "fault" in self._batch.schema.names
        codes = numpy.where(self._absent, len(WireErrorCode) + 1, self._codes)
        if given and not codes.any():
            return self._batch.column("fault")
        known = [None, *(code.name for code in WireErrorCode), NO_ENTRY]
        found = pyarrow.array(known, pyarrow.string()).take(pyarrow.array(codes))
        if given:
            return compute.call_function("coalesce", [self._batch.column("fault"), found])
        return found


def hash_column(given: Messages, family: HashFamily) -> bytes:
    """A column of encoded hashes, which lie one after the other."""
    function = _HASH_NUMBERS.get(family.name, hashing.BLAKE3)
    return hashing.hash_many(function, given.data, given.offsets, family.prefix)
