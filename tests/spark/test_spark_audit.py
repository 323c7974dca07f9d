"""The audit gives each row the verdict of `culm.bamboo.audit_log`."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from contextlib import redirect_stdout
from functools import reduce
from io import StringIO
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from planted import FAULTS, Judged, Row, expected, honest_log, plant, random_archive, signed
from sessions_of_tests import needs_jvm

import effort
from culm.bamboo import Entry, ForkProof, LogKey, Reason, audit_log
from culm.bamboo.entry import decode
from culm.spark.audit import NEEDED, audit
from culm.spark.columns import check_columns
from culm.spark.decode import verify_entries
from culm.spark.errors import ColumnError
from culm.spark.findings import LOGS
from culm.spark.reasons import reasons_of
from culm.wire.errors import DecodeError
from culm.wire.multihash import YAMF, YASMF, HashFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

LOGS_COUNT = int(os.environ.get("CULM_SPARK_LOGS", "60"))


def verified(spark: SparkSession, rows: list[Row], family: HashFamily) -> DataFrame:
    frame = spark.createDataFrame(rows, "entry binary, payload binary")
    return verify_entries(frame, family, keep=["entry", "payload"]).persist()


def judged(verdicts: DataFrame) -> Counter[Judged]:
    found = verdicts.select("entry", "payload", "reasons", "verified").collect()
    return Counter(
        Judged(
            Row(
                None if each.entry is None else bytes(each.entry),
                None if each.payload is None else bytes(each.payload),
            ),
            reasons_of(each.reasons),
            each.verified,
        )
        for each in found
    )


class Audited(NamedTuple):
    rows: list[Row]
    verdicts: Counter[Judged]
    logs: dict[LogKey, SparkRow]
    forks: dict[tuple[LogKey, int], SparkRow]


def unsigned(number: int) -> int:
    return number % 2**64


def key_of(log: bytes) -> LogKey:
    return LogKey(bytes(log[:32]), int.from_bytes(log[32:], "big"))


def audited(spark: SparkSession, rows: list[Row], family: HashFamily, **options: int) -> Audited:
    frame = verified(spark, rows, family)
    found = audit(frame, **options)
    check_columns(found.logs, LOGS)
    logs = {key_of(each.log): each for each in found.logs.collect()}
    forks = {(key_of(each.log), unsigned(each.seqnum)): each for each in found.forks.collect()}
    result = Audited(rows, judged(found.verdicts), logs, forks)
    found.close()
    frame.unpersist()
    return result


def large_rows(family: HashFamily) -> list[Row]:
    """Logs over several blocks, with faults on both sides of the borders."""
    chance = Random(7)
    rows: list[Row] = []
    faults = ["gap", "fork", "wrong backlink", "doubled"]
    for number, fault in enumerate(faults[:1] if effort.GATE else faults, 1000):
        log = honest_log(number, 2100, family)
        at = chance.choice([1022, 1023, 1024, 2047])
        rows += log[:at] + plant(fault, log[at : at + 1], number, family, chance) + log[at + 1 :]
    # The first entry of a block and the target of its lipmaalink, and a missing block.
    log = honest_log(1010, 3300, family)
    rows += [row for at, row in enumerate(log, 1) if at not in (1024, 3280)]
    rows += [row for at, row in enumerate(honest_log(1011, 2100, family), 1) if at >> 10 != 1]
    log = honest_log(1012, 2100, family)
    seqnum = 1093  # its lipmaalink leads to 364
    log[seqnum - 1 : seqnum] = plant("wrong lipmaalink", [log[seqnum - 1]], 1012, family, chance)
    rows += log
    # Variants on both sides of a border, some of which link to each other, and some to nothing.
    log = honest_log(1013, 1026, family)
    for at in (1022, 1023):
        log += [
            row
            for fault in ("fork", "fork of signatures", "payload size lie", "wrong backlink")
            for row in plant(fault, [log[at]], 1013, family, chance)
        ]
    first = decode(log[1023].entry or b"", family=family)
    for row in log[1026:1031]:
        linked = signed(1013, first, backlink=family.hash(row.entry or b""))
        log.append(Row(linked.encode(), None))
    return rows + log


@pytest.fixture(scope="module")
def all_kinds(spark: SparkSession) -> Audited:
    rows = random_archive(1, LOGS_COUNT, 40, YASMF)
    chance = Random(2)
    for number, fault in enumerate(FAULTS, 2000):
        rows += plant(fault, honest_log(number, 14), number, YASMF, chance)
    return audited(spark, rows + large_rows(YASMF), YASMF)


def test_every_row_is_judged_as_by_a_single_process(all_kinds):
    assert all_kinds.verdicts == Counter(expected(all_kinds.rows))


def test_all_that_can_be_said_of_a_row_is_said_of_one(all_kinds):
    said = frozenset().union(*(each.reasons for each in all_kinds.verdicts))
    unsaid = {Reason.WRONG_LOG, Reason.OUT_OF_ORDER, Reason.CONTRADICTED, Reason.EARLY_END_OF_LOG}
    assert said == set(Reason) - unsaid


def of_each_log(rows: list[Row]) -> dict[LogKey, list[tuple[Entry, Row]]]:
    logs: dict[LogKey, list[tuple[Entry, Row]]] = defaultdict(list)
    for row in rows:
        try:
            entry = decode(row.entry or b"", family=YASMF)
        except DecodeError:
            continue
        logs[entry.log].append((entry, row))
    return {log: sorted(found, key=lambda each: each[0].seqnum) for log, found in logs.items()}


def test_logs_are_reported_as_a_single_process_would(all_kinds):
    wanted = {}
    for log, found in of_each_log(all_kinds.rows).items():
        verdicts = audit_log(log, [(e.encode(), row.payload) for e, row in found], family=YASMF)
        pairs = [(found[verdict.index][0], verdict) for verdict in verdicts]
        signed = [pair for pair in pairs if Reason.BAD_SIGNATURE not in pair[1].reasons]
        if signed:
            wanted[log] = report(signed)
    assert {log: described(row) for log, row in all_kinds.logs.items()} == wanted


def report(pairs) -> dict[str, object]:
    """The expected row of a log, from signed entries and their verdicts."""
    numbers = {entry.seqnum for entry, _ in pairs}
    prefix = max((entry.seqnum for entry, verdict in pairs if verdict.verified), default=0)
    height = max(numbers)
    first = prefix + 1 if prefix < height else None
    at_first = {
        reason
        for entry, verdict in pairs
        for reason in verdict.reasons
        if entry.seqnum == first and reason not in (Reason.PAYLOAD_SIZE, Reason.PAYLOAD_HASH)
    }
    if first is not None and first not in numbers:
        at_first = {Reason.GAP}
    if any(entry.end_of_log and entry.seqnum == prefix for entry, _ in pairs):
        at_first |= {Reason.AFTER_END_OF_LOG} if first else set()

    def least(reason: Reason) -> int | None:
        return min((e.seqnum for e, verdict in pairs if reason in verdict.reasons), default=None)

    invalid = [at for at in (least(Reason.FORK), least(Reason.PAYLOAD_SIZE_LIE)) if at is not None]
    return {
        "rows": len(pairs),
        "entries": len(numbers),
        "height": height,
        "verified": prefix,
        "first_fault": first,
        "first_fault_reasons": at_first - {Reason.INVALID_LOG},
        "forks": len({e.seqnum for e, verdict in pairs if Reason.FORK in verdict.reasons}),
        "gaps": len([n for n in numbers if n > 1 and n - 1 not in numbers]),
        "invalid_from": min(invalid, default=None),
        "ends_at": min((entry.seqnum for entry, _ in pairs if entry.end_of_log), default=None),
    }


def described(row: SparkRow) -> dict[str, object]:
    key = key_of(row.log)
    assert (bytes(row.author), unsigned(row.log_id)) == key
    numbers = ("height", "verified", "first_fault", "invalid_from", "ends_at")
    found = {name: getattr(row, name) for name in ("rows", "entries", "forks", "gaps")}
    for name in numbers:
        value = getattr(row, name)
        found[name] = None if value is None else unsigned(value)
    found["first_fault_reasons"] = reasons_of(row.first_fault_reasons or 0)
    return found


def test_forks_come_with_a_proof(all_kinds):
    forked: dict[tuple[LogKey, int], set[bytes]] = defaultdict(set)
    for judgement in all_kinds.verdicts:
        if Reason.FORK in judgement.reasons:
            entry = decode(judgement.row.entry, family=YASMF)
            forked[entry.log, entry.seqnum].add(entry.encode())
    assert all_kinds.forks.keys() == forked.keys()
    for place, row in all_kinds.forks.items():
        proof, end = ForkProof.decode_prefix(bytes(row.proof), family=YASMF)
        assert end == len(row.proof)
        assert proof.verify()
        assert (proof.log, proof.seqnum) == place
        assert row.variants == len(forked[place])


@pytest.mark.slow
def test_it_makes_no_difference_how_faults_come_to_the_rows(spark):
    """With many faults, rows are moved instead of faults; and in the other family."""
    rows = random_archive(3, LOGS_COUNT // 4, 30, YAMF, faulty=1)
    found = audited(spark, rows, YAMF, faulty_max=0)
    assert found.verdicts == Counter(expected(rows, YAMF))


@pytest.mark.slow
@needs_jvm
def test_no_row_is_held_beside_all_variants_of_an_entry(spark):
    """An author can make any number of these: work would grow with its square."""
    log = honest_log(1, 3)
    found = audit(verified(spark, log + plant("fork", log[1:2], 1, YASMF, Random(1)), YASMF))
    for frame in (found.verdicts, found.logs, found.forks):
        with redirect_stdout(StringIO()) as explained:
            frame.explain(extended=True)
        _, _, after = explained.getvalue().partition("== Optimized Logical Plan ==")
        plan, physical, _ = after.partition("== Physical Plan ==")
        assert physical
        assert "Join" in plan or frame is found.logs
        assert not re.search("lambda|array_contains|collect_list", plan)
    found.close()


def test_rows_without_what_a_signed_one_has_are_malformed_and_of_no_log(spark):
    """They come from elsewhere: rows made by `verify_entries` are complete."""
    from pyspark.sql import functions

    whole = verified(spark, honest_log(1, 1), YASMF)
    needed = [name for name, _ in NEEDED if "link" not in name]
    made = [(name, f"cast(null as {kind})") for name, kind in NEEDED if name in needed]
    frames = [
        whole.withColumn(name, functions.expr(value)) for name, value in [*made, ("seqnum", "0L")]
    ]
    found = audit(reduce(lambda one, other: one.union(other), frames).select(*whole.columns))
    assert (found.logs.count(), found.forks.count()) == (0, 0)
    said = [(reasons_of(row.reasons), row.verified) for row in found.verdicts.collect()]
    assert said == [({Reason.MALFORMED}, False)] * len(frames)
    found.close()


def test_columns_are_asked_for(spark):
    frame = verified(spark, [], YASMF)
    with pytest.raises(ColumnError, match="column hash is missing"):
        audit(frame.drop("hash"))
    with pytest.raises(ColumnError, match="column seqnum is string; this job needs it as bigint"):
        audit(frame.withColumn("seqnum", frame.seqnum.cast("string")))
