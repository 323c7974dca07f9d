"""Random archives with random faults: jobs judge them, row by row, like a plain twin."""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

import cbor2
import pytest
import slow_audit
from nacl.signing import SigningKey
from planted import FAULTS, Row, expected, key, plant, random_archive

from culm.bamboo import LogKey
from culm.bamboo.links import lipmaa
from culm.p2panda.author import Author
from culm.p2panda.effects import Span
from culm.p2panda.store import MemoryStore
from culm.spark.audit import audit
from culm.spark.decode import verify_entries
from culm.spark.operations import decode_operations
from culm.spark.reasons import reasons_of
from culm.spark.ssb import verify_feed_messages
from culm.ssb.messages import create_message
from culm.wire.multihash import YAMF, YASMF, HashFamily

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS = range(int(os.environ.get("CULM_SPARK_SEEDS", "10")))
NUMBERS = [*range(1, 3000), 2**40, 2**63 - 1, 2**63, 2**64 - 1]


def test_the_twin_links_as_entries_do():
    assert [slow_audit.lipmaa(number) for number in NUMBERS] == [lipmaa(n) for n in NUMBERS]


@pytest.mark.parametrize("family", [YASMF, YAMF])
@pytest.mark.parametrize("seed", range(2))
def test_a_single_process_says_what_the_twin_says(seed, family):
    rows = random_archive(seed, 20, 20, family, faulty=0.8)
    said = slow_audit.judge(rows, slow_audit.read_entry, family.name)
    found = Counter((row, *each) for row, each in zip(rows, said, strict=True))
    assert found == Counter(
        (each.row, frozenset(reason.name for reason in each.reasons), each.verified)
        for each in expected(rows, family)
    )


def compare(verified: DataFrame, rows: list[Row], said: list[slow_audit.Said]) -> None:
    """Equal rows cannot be told apart, and are counted."""
    kept = verified.persist()
    found = audit(kept)
    names = [name for name in ("entry", "payload") if name in kept.columns]
    judged = found.verdicts.select(*names, "reasons", "verified").collect()
    found.close()
    kept.unpersist()
    wanted = Counter((*row[: len(names)], *each) for row, each in zip(rows, said, strict=True))
    assert wanted == Counter(
        (
            *(None if value is None else bytes(value) for value in row[:-2]),
            frozenset(reason.name for reason in reasons_of(row.reasons)),
            row.verified,
        )
        for row in judged
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", [YASMF, YAMF])
def test_entries_are_judged_as_by_the_twin(spark: SparkSession, family: HashFamily, seed: int):
    rows = random_archive(seed, 40, 40, family, faulty=0.7)
    frame = spark.createDataFrame(rows, "entry binary, payload binary")
    verified = verify_entries(frame, family, keep=["entry", "payload"])
    compare(verified, rows, slow_audit.judge(rows, slow_audit.read_entry, family.name))


def operations(number: int, chance: Random) -> list[Row]:
    """A log of an author of p2panda: a document, and its changes."""
    store = MemoryStore()
    author = Author(key(number), store)
    schema = "place_" + YASMF.hash(b"place").hex()
    document = author.create(schema, {"name": "a", "n": chance.randrange(9)})
    for at in range(chance.randrange(12)):
        author.update(document, {"n": at})
    if chance.random() < 0.3:
        author.delete(document)
    span = Span(LogKey(bytes(key(number).verify_key), 0), 1, 20)
    found = store.read([span], count_max=20, size_max=1 << 20)
    return [Row(each.entry, each.operation) for each in found]


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in SEEDS]
)
def test_operations_are_judged_and_read_as_by_the_twin(spark: SparkSession, seed: int):
    chance = Random(seed)
    logs = [operations(number, chance) for number in range(1, 30)]
    honest = {row.payload for log in logs for row in log}
    for number, log in enumerate(logs, 1):
        if chance.random() < 0.6:
            log[:] = plant(chance.choice(FAULTS), log, number, YASMF, chance)
    rows = [row for log in logs for row in log]
    chance.shuffle(rows)
    frame = spark.createDataFrame(rows, "entry binary, payload binary")
    verified = verify_entries(frame, YASMF, keep=["entry", "payload"])
    compare(verified, rows, slow_audit.judge(rows, slow_audit.read_entry, "YASMF"))
    decoded = decode_operations(frame, keep=["payload"]).collect()
    assert len(decoded) == len(rows)
    for row in decoded:
        if row.payload is None or bytes(row.payload) not in honest:
            assert row.fault is not None
            continue
        _, action, schema, *rest = cbor2.loads(bytes(row.payload))
        assert (row.action, row.schema_id) == (["CREATE", "UPDATE", "DELETE"][action], schema)
        previous = rest[0] if action else []
        assert [bytes(each) for each in row.previous] == previous


def feed(number: int, chance: Random) -> list[bytes]:
    """A feed, usually with some fault in it."""
    identity = SigningKey(sha256(b"%d" % number).digest())

    def message(last, text: str):
        content = {"type": "post", "text": text, "list": [1, "é"]}
        return create_message(identity, content=content, timestamp=chance.randrange(99), last=last)

    made = [message(None, "begin")]
    for at in range(chance.randrange(1, 12)):
        made.append(message(made[-1].place, f"{at} ü ☂"))
    lines = [each.data for each in made]
    at = chance.randrange(1, len(made))
    match chance.choice(["none", "gap", "cut", "tampered", "fork", "relinked", "doubled"]):
        case "gap":
            del lines[at]
        case "cut":
            lines[at] = lines[at][: chance.randrange(len(lines[at]))]
        case "tampered":
            lines[at] = lines[at].replace(b"ist", b"ost")
        case "fork":
            lines.append(message(made[at - 1].place, "another").data)
        case "relinked":
            place = made[at - 1].place._replace(id=made[at].id)
            lines[at] = message(place, "elsewhere").data
        case "doubled":
            lines.append(lines[at])
    return lines


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in SEEDS]
)
def test_messages_are_judged_as_by_the_twin(spark: SparkSession, seed: int):
    chance = Random(seed)
    rows = [Row(line, None) for number in range(30) for line in feed(number, chance)]
    chance.shuffle(rows)
    frame = spark.createDataFrame([(row.entry,) for row in rows], "entry binary")
    verified = verify_feed_messages(frame, keep=["entry"])
    compare(verified, rows, slow_audit.judge(rows, slow_audit.read_message))
