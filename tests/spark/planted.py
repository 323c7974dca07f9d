"""Archives with known faults: every job has to find these, and nothing else.

`honest_logs` makes logs as authors do, `plant` puts one fault of a kind into a log, `expected` gets
the verdict on each row from `culm.bamboo.audit_log`, log by log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random
from typing import NamedTuple

from nacl.signing import SigningKey

from culm.bamboo import Entry, LogKey, Reason, audit_log
from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import decode, sign
from culm.bamboo.links import has_lipmaalink
from culm.wire.errors import DecodeError
from culm.wire.multihash import YASMF, HashFamily


class Row(NamedTuple):
    """A row of an archive."""

    entry: bytes | None
    payload: bytes | None


class Judged(NamedTuple):
    """A row and its verdict."""

    row: Row
    reasons: frozenset[Reason]
    verified: bool


@cache
def key(number: int) -> SigningKey:
    return SigningKey(number.to_bytes(32, "big"))


def honest_log(number: int, length: int, family: HashFamily = YASMF, log_id: int = 0) -> list[Row]:
    """A log of one author with payloads of some bytes."""
    author = LogAuthor(key(number), family=family, log_id=log_id)
    published = (author.publish(b"%d of %d" % (at, number)) for at in range(1, length + 1))
    return [Row(new.entry.encode(), new.payload) for new in published]


def _entry(row: Row, family: HashFamily) -> Entry:
    assert row.entry is not None
    return decode(row.entry, family=family)


def signed(number: int, entry: Entry, **changes: object) -> Entry:
    """`entry` with changes, signed again by its author."""
    entry = replace(entry, **changes)  # type: ignore[arg-type]
    return replace(entry, signature=key(number).sign(entry.signed_bytes()).signature)


FAULTS = [
    "truncated",
    "trailing",
    "no entry",
    "bad signature",
    "gap",
    "no beginning",
    "fork",
    "fork of signatures",
    "wrong backlink",
    "wrong lipmaalink",
    "after end",
    "payload hash",
    "payload size",
    "payload size lie",
    "no payload",
    "doubled",
    "far",
]


def plant(fault: str, log: list[Row], number: int, family: HashFamily, chance: Random) -> list[Row]:
    """The rows of a log of author `number` with one fault; ``doubled`` and such are not faults."""
    log = list(log)
    at = chance.randrange(len(log))
    entry, payload = _entry(log[at], family), log[at].payload
    assert payload is not None
    encoded = entry.encode()
    match fault:
        case "truncated":
            log[at] = Row(encoded[: chance.randrange(len(encoded))], payload)
        case "trailing":
            log[at] = Row(encoded + b"\0", payload)
        case "no entry":
            log[at] = Row(None, payload)
        case "bad signature":
            place = chance.randrange(33, len(encoded))
            changed = bytearray(encoded)
            changed[-1 - place % 64] ^= 1
            log[at] = Row(bytes(changed), payload)
        case "gap":
            del log[at]
        case "no beginning":
            del log[: at + 1]
        case "fork":
            other = sign(
                key(number),
                family=family,
                log_id=entry.log_id,
                seqnum=entry.seqnum,
                payload=b"another",
                backlink=entry.backlink,
                lipmaalink=entry.lipmaalink,
            )
            log.insert(at, Row(other.encode(), b"another"))
        case "fork of signatures":
            other = signed(number, entry, payload_size=entry.payload_size ^ 1)
            log.insert(at, Row(other.encode(), None))
        case "wrong backlink" if entry.seqnum > 1:
            log[at] = Row(signed(number, entry, backlink=family.hash(b"?")).encode(), payload)
        case "wrong lipmaalink" if has_lipmaalink(entry.seqnum):
            log[at] = Row(signed(number, entry, lipmaalink=family.hash(b"?")).encode(), payload)
        case "after end":
            log[at] = Row(signed(number, entry, end_of_log=True).encode(), payload)
        case "payload hash":
            log[at] = Row(encoded, b"x" * len(payload))
        case "payload size":
            log[at] = Row(encoded, payload + b"x")
        case "payload size lie":
            lie = signed(number, entry, payload_size=chance.choice([0, 2**63, 2**64 - 1]))
            log[at] = Row(lie.encode(), payload)
        case "no payload":
            log[at] = Row(encoded, None)
        case "doubled":
            log.insert(chance.randrange(len(log)), chance.choice([log[at], Row(encoded, None)]))
        case "far":
            seqnum = chance.choice([2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**40, len(log) + 2])
            hash = family.hash(b"?")
            far = sign(
                key(number),
                family=family,
                log_id=entry.log_id,
                seqnum=seqnum,
                payload=b"far",
                backlink=hash,
                lipmaalink=hash if has_lipmaalink(seqnum) else None,
            )
            log.append(Row(far.encode(), b"far"))
    return log


def random_archive(
    seed: int, logs: int, length_max: int, family: HashFamily = YASMF, faulty: float = 0.5
) -> list[Row]:
    """Logs, some with one to three faults, in no order."""
    chance = Random(seed)
    rows: list[Row] = []
    for number in range(1, logs + 1):
        log_id = chance.choice([0, 1, 2**40, 2**63, 2**64 - 1])
        log = honest_log(number, chance.randint(1, length_max), family, log_id)
        if chance.random() < faulty:
            for _ in range(chance.randint(1, 3)):
                whole = [row for row in log if _is_whole(row, family)]
                if not whole:
                    break
                broken = [row for row in log if not _is_whole(row, family)]
                log = plant(chance.choice(FAULTS), whole, number, family, chance) + broken
        rows += log
    chance.shuffle(rows)
    return rows


def _is_whole(row: Row, family: HashFamily) -> bool:
    if row.entry is None or row.payload is None:
        return False
    try:
        decode(row.entry, family=family)
    except DecodeError:
        return False
    return True


def expected(rows: Iterable[Row], family: HashFamily = YASMF) -> list[Judged]:
    """The verdict of `culm.bamboo.audit_log` on each row, log by log; in no particular order."""
    logs: defaultdict[LogKey, list[tuple[int, Row]]] = defaultdict(list)
    judged: list[Judged] = []
    for row in rows:
        try:
            entry = decode(row.entry or b"", family=family)
        except DecodeError:
            judged.append(Judged(row, frozenset({Reason.MALFORMED}), False))
        else:
            logs[entry.log].append((entry.seqnum, row))
    for log, numbered in logs.items():
        ascending = [row for _, row in sorted(numbered, key=lambda each: each[0])]
        given = [(row.entry or b"", row.payload) for row in ascending]
        for verdict in audit_log(log, given, family=family):
            row = ascending[verdict.index]
            judged.append(Judged(row, frozenset(verdict.reasons), verdict.verified))
    return judged
