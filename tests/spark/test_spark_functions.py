"""Functions for SQL agree with those of Python."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import columns_page
import pytest
from nacl.signing import SigningKey
from planted import Row, honest_log, plant

import culm.spark
from culm.bamboo import Reason
from culm.p2panda import Action, Operation
from culm.spark import schemas
from culm.spark.decode import DECODED, VERIFIED, verify_entries
from culm.spark.functions import register_functions
from culm.ssb.messages import create_message
from culm.wire.multihash import YAMF, YASMF


def test_functions_for_sql_say_what_those_of_python_say(spark):
    register_functions(spark)
    chance = Random(3)
    rows = [
        (family.name, *row)
        for number, family in enumerate((YASMF, YAMF))
        for fault in ("payload size", "bad signature", "truncated")
        for row in plant(fault, honest_log(number, 4, family), number, family, chance)
    ]
    rows += [("YASMF", None, b"?"), ("YAMF", rows[0][1], None)]
    chance.shuffle(rows)
    frame = spark.createDataFrame(rows, "family string, entry binary, payload binary")
    frame.createOrReplaceTempView("archive")
    found = spark.sql(
        "SELECT family, entry, payload, verified.*, decoded.fault AS another,"
        " culm_reasons(verified.reasons) AS names FROM (SELECT *,"
        " culm_verify(entry, payload, family) AS verified, culm_decode(entry, family) AS decoded"
        " FROM archive)"
    ).collect()
    columns = [name for name, _ in VERIFIED]
    assert [name for name in found[0].__fields__ if name in columns] == columns
    wanted = [
        tuple(row[name] for name in ("entry", "payload", *columns))
        for family in (YASMF, YAMF)
        for row in verify_entries(
            frame.filter(frame.family == family.name), family, keep=["entry", "payload"]
        ).collect()
    ]
    told = [tuple(row[name] for name in ("entry", "payload", *columns)) for row in found]
    assert sorted(map(repr, told)) == sorted(map(repr, wanted))
    for row in found:
        assert row.another == row.fault
        assert row.names == [each.name for each in Reason if row.reasons >> each & 1]
    assert {name for row in found for name in row.names} == {
        "MALFORMED", "BAD_SIGNATURE", "PAYLOAD_SIZE"
    }  # fmt: skip
    assert len(DECODED) + 1 == len(VERIFIED)
    counted = spark.sql(
        "SELECT reason, count(*) AS number FROM (SELECT culm_verify(entry, payload, family)"
        " AS verified FROM archive) LATERAL VIEW explode(culm_reasons(verified.reasons)) AS reason"
        " GROUP BY reason"
    )
    assert dict(counted.collect()) == Counter(name for row in found for name in row.names)
    [bare] = spark.sql("SELECT culm_verify(X'00', NULL, 'YASMF') AS verified").collect()
    assert bare.verified.fault is not None
    with pytest.raises(Exception, match="a hash family is YAMF or YASMF, not YASFM"):
        spark.sql("SELECT culm_decode(X'00', 'YASFM')").collect()
    with pytest.raises(Exception, match=r"culm_decode takes entry \(binary\), family \(string\)"):
        spark.sql("SELECT culm_decode('text')").collect()


def test_messages_and_operations_are_read_in_sql(spark):
    register_functions(spark)
    message = create_message(
        SigningKey(bytes(32)), content={"type": "post"}, timestamp=1, last=None
    )
    operation = Operation(action=Action.CREATE, schema_id="blob_v1", fields={"length": 3})
    rows = [Row(message.data, operation.encode()), Row(b"?", None)]
    spark.createDataFrame(rows, "entry binary, payload binary").createOrReplaceTempView("kept")
    one, other = spark.sql(
        "SELECT culm_verify_message(entry) AS message, culm_decode_operation(payload) AS operation"
        " FROM kept"
    ).collect()
    assert (one.message.feed, one.message.reasons) == (message.author, 0)
    assert (one.operation.action, json.loads(one.operation.fields)) == ("CREATE", {"length": 3})
    assert (other.message.fault, other.operation.fault) == ("NOT_JSON", "NO_PAYLOAD")


def test_the_page_of_columns_is_made_from_the_code(request):
    page = Path(__file__).resolve().parents[2] / "docs" / "spark-columns.md"
    if request.config.getoption("--rewrite-transcripts"):
        page.write_text(columns_page.page(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == columns_page.page(), (
        "pytest --rewrite-transcripts does it"
    )
    for schema in schemas.SCHEMAS.values():
        assert schema.meanings.keys() == dict(schema.columns).keys()
        assert schema.nulls <= dict(schema.columns).keys()


def test_what_most_programs_need_comes_from_one_module(spark, tmp_path):
    """And nulls are where the page allows them."""
    rows = plant("fork", honest_log(1, 3), 1, YASMF, Random(1))
    rows += plant("bad signature", honest_log(2, 2), 2, YASMF, Random(1))
    frame = spark.createDataFrame(rows, "entry binary, payload binary")
    culm.spark.write(frame, str(tmp_path / "a"), kind="bamboo/YASMF")
    read = culm.spark.read(spark, str(tmp_path / "a"), split_size=1 << 20).persist()
    verified = culm.spark.verify(read, "bamboo/YASMF", keep=["entry", "payload"]).persist()
    found = culm.spark.audit(verified)
    frames = {
        "rows": read,
        "verified": verified,
        "verdicts": found.verdicts,
        "logs": found.logs,
        "forks": found.forks,
    }
    for name, given in frames.items():
        schema = schemas.SCHEMAS[name]
        assert {*schema.columns} <= {*given.dtypes}
        for row in given.collect():
            assert {each for each, _ in schema.columns if row[each] is None} <= schema.nulls
    found.close()
    assert culm.spark.decode(read, "YASMF").columns[-len(DECODED) :] == [n for n, _ in DECODED]
    with pytest.raises(ValueError, match="not bamboo"):
        culm.spark.verify(read, "bamboo")
    with pytest.raises(ValueError, match="not BLAKE"):
        culm.spark.decode(read, "BLAKE")
