"""Columns agree with `culm.bamboo` about each entry; no row is lost."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from planted import FAULTS, Row, expected, honest_log, plant

from culm.bamboo import Reason
from culm.bamboo.entry import decode
from culm.bamboo.links import lipmaa
from culm.kernels import hashing
from culm.spark.decode import (
    DECODED,
    NO_ENTRY,
    VERIFIED,
    batch_mapper,
    decode_entries,
    verify_entries,
)
from culm.spark.errors import ColumnError
from culm.spark.reasons import bits, names, reasons_of
from culm.wire.errors import DecodeError
from culm.wire.multihash import YAMF, YASMF

ALONE = {
    Reason.MALFORMED,
    Reason.BAD_SIGNATURE,
    Reason.PAYLOAD_HASH,
    Reason.PAYLOAD_SIZE,
    Reason.PAYLOAD_SIZE_LIE,
}


def some_rows(family) -> list[Row]:
    chance = Random(4)
    rows: list[Row] = []
    for number, fault in enumerate(FAULTS):
        rows += plant(
            fault, honest_log(number, 9, family, 2**64 - 1 - number), number, family, chance
        )
    return rows


def signed(value: int) -> int:
    """In Spark's representation."""
    return value - 2**64 if value >= 2**63 else value


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=repr)
def test_columns_are_the_fields_of_entries(spark, family):
    rows = some_rows(family)
    rows += rows[::3]
    given = [(number, *row) for number, row in enumerate(rows)]
    frame = spark.createDataFrame(given, "number int, entry binary, payload binary")
    found = verify_entries(frame, family)
    assert found.dtypes == [("number", "int"), ("entry", "binary"), *VERIFIED]
    table = found.select("*", names("reasons").alias("names")).collect()
    assert sorted(each.number for each in table) == list(range(len(rows)))
    for each in table:
        row = rows[each.number]
        check_fields(each, row, family)
        assert each.names == [reason.name for reason in sorted(reasons_of(each.reasons))]
    alone = Counter((rows[each.number], reasons_of(each.reasons)) for each in table)
    assert alone == Counter((row, reasons & ALONE) for row, reasons, _ in expected(rows, family))


def check_fields(found, row: Row, family) -> None:
    fields = [name for name, _ in DECODED if name != "fault"]
    if found.fault is not None:
        with pytest.raises(DecodeError) as raised:
            decode(row.entry or b"", family=family)
        assert found.fault == (NO_ENTRY if row.entry is None else raised.value.code.name)
        assert [getattr(found, name) for name in fields] == [None] * len(fields)
        return
    entry = decode(row.entry or b"", family=family)
    wanted = {
        "log": entry.author + entry.log_id.to_bytes(8, "big"),
        "author": entry.author,
        "log_id": signed(entry.log_id),
        "seqnum": signed(entry.seqnum),
        "end_of_log": entry.end_of_log,
        "lipmaa": signed(lipmaa(entry.seqnum)),
        "lipmaalink": entry.lipmaalink,
        "backlink": entry.backlink,
        "payload_size": signed(entry.payload_size),
        "payload_hash": entry.payload_hash,
        "signature": entry.signature,
        "hash": entry.hash(),
    }
    assert {name: getattr(found, name) for name in fields} == wanted


def test_what_a_source_could_not_read_keeps_its_fault(spark):
    row = honest_log(1, 1)[0]
    frame = spark.createDataFrame(
        [(None, "DAMAGED_BLOCK", "a"), (row.entry, None, "b"), (b"?", None, "c")],
        "entry binary, fault string, file string",
    )
    found = decode_entries(frame, YASMF, keep=["file"])
    assert found.dtypes == [("file", "string"), *DECODED]
    faults = {each.file: each.fault for each in found.collect()}
    assert faults == {"a": "DAMAGED_BLOCK", "b": None, "c": "BAD_TYPE"}


def test_columns_are_checked(spark):
    frame = spark.createDataFrame([], "entry binary, payload string, fault int")
    with pytest.raises(ColumnError, match="column entry is missing; this job needs it as binary"):
        decode_entries(frame.drop("entry"), YASMF)
    with pytest.raises(ColumnError, match="column payload is string"):
        verify_entries(frame, YASMF)
    with pytest.raises(ColumnError, match="column fault is int"):
        decode_entries(frame, YASMF)
    with pytest.raises(ColumnError, match="column file is missing"):
        decode_entries(frame.drop("fault"), YASMF, keep=["file"])
    with pytest.raises(TypeError, match="family"):
        decode_entries(frame.drop("fault"), "YASMF")


def test_names_that_differ_by_case_alone_are_those_of_one_column_or_of_two(spark):
    """By the session's setting: no column is taken for another, nor silently left out."""
    before = spark.conf.get("spark.sql.caseSensitive")
    frame = spark.createDataFrame([], "entry binary, Hash int, other int")
    names = [name for name, _ in DECODED]
    try:
        spark.conf.set("spark.sql.caseSensitive", "false")
        assert decode_entries(frame, YASMF).columns == ["entry", "other", *names]
        for name in ("Payload", "FAULT"):
            with pytest.raises(ColumnError, match=f"is there as {name}"):
                verify_entries(frame.withColumnRenamed("other", name), YASMF)
        spark.conf.set("spark.sql.caseSensitive", "true")
        assert decode_entries(frame, YASMF).columns == ["entry", "Hash", "other", *names]
        both = frame.withColumn("ENTRY", frame.entry)
        assert both.columns == ["entry", "Hash", "other", "ENTRY"]  # by the present setting
        spark.conf.set("spark.sql.caseSensitive", "false")
        with pytest.raises(ColumnError, match=r"entry is ambiguous \(entry, ENTRY\)"):
            decode_entries(both, YASMF)
    finally:
        spark.conf.set("spark.sql.caseSensitive", before)


def test_what_is_repeated_in_a_batch_is_verified_once(monkeypatch):
    """A few hundred bytes of a table can stand for millions of rows."""
    pyarrow = pytest.importorskip("pyarrow")
    verified = []
    verify = hashing.verify_many

    def counted(authors: bytes, *rest: Any) -> bytes:
        verified.append(len(authors) // 32)
        return verify(authors, *rest)

    monkeypatch.setattr(hashing, "verify_many", counted)
    one, other = honest_log(1, 2)
    rows = [one, other, one._replace(payload=None), one._replace(payload=b"?"), Row(None, b"")]
    chosen = Random(1).choices(range(len(rows)), k=2000)
    batch = pyarrow.table(
        {
            "entry": pyarrow.array([rows[at].entry for at in chosen], pyarrow.binary()),
            "payload": pyarrow.array([rows[at].payload for at in chosen], pyarrow.binary()),
        }
    ).to_batches()[0]
    work = batch_mapper("YASMF", ["entry", "payload"], ["entry"], [name for name, _ in VERIFIED])
    [found] = work(iter([batch]))
    assert verified == [len(rows)]
    assert found.column("entry") == batch.column("entry")
    [plain] = work(iter([batch.take(pyarrow.array(range(2)))]))
    for at, reasons, hash in zip(
        chosen, found.column("reasons").to_pylist(), found.column("hash").to_pylist(), strict=True
    ):
        assert (reasons != 0) == (at > 2), at
        assert hash == (None if at == 4 else YASMF.hash(rows[at].entry))
    assert len(plain) == 2


@pytest.mark.parametrize("kind", ["binary", "large_binary"])
def test_entries_are_copies_only_if_all_of_them_is_equal(kind):
    """Most are told apart by their last bytes."""
    pyarrow = pytest.importorskip("pyarrow")
    one, other = (row.entry for row in honest_log(1, 2))
    forged = other[:-8] + one[-8:]
    work = batch_mapper("YASMF", ["entry"], [], [name for name, _ in VERIFIED])
    for entries in ([one, other], [one, other, forged], [forged, one, forged], [one, b"", b"?"]):
        column = pyarrow.array(entries, getattr(pyarrow, kind)())
        [found] = work(iter([pyarrow.record_batch({"entry": column})]))
        known = {one: (YASMF.hash(one), 0), other: (YASMF.hash(other), 0)}
        unsigned = {forged: (YASMF.hash(forged), bits(Reason.BAD_SIGNATURE))}
        malformed = dict.fromkeys((b"", b"?"), (None, bits(Reason.MALFORMED)))
        verdicts = zip(
            *(found.column(name).to_pylist() for name in ("hash", "reasons")), strict=True
        )
        assert list(verdicts) == [(known | unsigned | malformed)[each] for each in entries]
