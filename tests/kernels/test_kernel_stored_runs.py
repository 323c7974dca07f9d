"""Runs of stored entries: the part that can be sent, and the form of the entries."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey
from runs_model import varu64

from culm.bamboo.author import LogAuthor
from culm.bamboo.links import lipmaa
from culm.bamboo.records import StoredEntry
from culm.bamboo.store import MemoryStore
from culm.kernels import pure_runs
from culm.wire.multihash import YAMF, YASMF, HashFamily

LAST = 2**64 - 1
COUNT = 45


def a_log(family: HashFamily) -> tuple[bytes, list[StoredEntry]]:
    """The encoded head of a log, and its entries as stored."""
    author = LogAuthor(SigningKey(b"\3" * 32), family=family, log_id=300)
    news = [author.publish(bytes([n]) * (n * n % 300)) for n in range(COUNT)]
    store = MemoryStore(family=family)
    store.append(author.log, news)
    head = author.log.author + varu64(300)
    return head, store.entries(author.log, payload_size_max=1 << 20)


LOGS = {family: a_log(family) for family in (YAMF, YASMF)}
HEAD, ROWS = LOGS[YAMF]
HASHES = {row.seqnum: row.hash for row in ROWS}


def choose(kernel: Any, rows: list[Any], seqnum: int = 1, **changes: Any) -> list[Any]:
    known = {
        "head": HEAD,
        "seqnum": seqnum,
        "count_max": LAST,
        "size_min": 0,
        "size_max": LAST,
        "room": 1 << 30,
        "sent": {},
        "received": {},
        "link_size": YAMF.encoded_size,
    }
    chosen: list[Any] = kernel.choose(rows, *(known | changes).values())
    return chosen


def stored_size(kernel: Any, rows: list[Any], **changes: Any) -> int:
    known = {
        "head": HEAD,
        "first": 1,
        "last": None,
        "prefix": YAMF.prefix,
        "link_size": YAMF.encoded_size,
        "payload_size_max": 1 << 20,
    }
    size: int = kernel.stored_size(rows, *(known | changes).values())
    return size


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
@pytest.mark.parametrize("first", [1, 2, 13, 14, 40])
def test_what_is_chosen_is_read_again(runs: Any, family: HashFamily, first: int) -> None:
    head, rows = LOGS[family]
    hashes = {row.seqnum: row.hash for row in rows[: first - 1]}
    chosen = choose(runs, rows[first - 1 :], first, head=head, link_size=family.encoded_size)
    data = b"".join(metadata + b"\x08" + size + body for _, metadata, size, body in chosen)
    limits = first, LAST, 0, LAST
    found = pure_runs.read(
        data, head, *limits, hashes, family.prefix, family.encoded_size, family.hash
    )
    assert [record[6] for record in found] == [row.encoded for row in rows[first - 1 :]]
    assert [each[0] for each in chosen] == [row.hash for row in rows[first - 1 :]]
    assert [each[3] for each in chosen] == [row.payload for row in rows[first - 1 :]]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"count_max": 3}, 3),
        ({"count_max": 0}, 0),
        ({"room": 0}, 0),
        ({"room": 1}, 1),
        ({"size_min": 1}, 0),
        ({"size_max": 24}, 5),
        ({"seqnum": 2}, 0),
        ({"head": HEAD + b"\0"}, 0),
        ({"head": b"\0" + HEAD[1:]}, 0),
    ],
)
def test_no_more_is_chosen_than_may_be(runs: Any, changes: dict[str, Any], count: int) -> None:
    assert len(choose(runs, ROWS, **changes)) == count


def test_a_choice_ends_before_what_is_not_whole(runs: Any) -> None:
    for change in (
        {"payload": None},
        {"payload": b"short"},
        {"payload_complete": False},
        {"encoded": b"\1" + ROWS[6].encoded[1:]},
        {"encoded": ROWS[6].encoded[: 1 + len(HEAD)]},
        {"encoded": b""},
        {"seqnum": 9},
    ):
        rows = [*ROWS[:6], ROWS[6]._replace(**change), *ROWS[7:]]
        assert len(choose(runs, rows)) == 6


@pytest.mark.parametrize("told", ["sent", "received"])
def test_a_choice_ends_before_a_link_to_something_else(runs: Any, told: str) -> None:
    other = YAMF.hash(b"other")
    rows, first = ROWS[13:], 14
    assert len(choose(runs, rows, first, **{told: HASHES})) == len(rows)
    assert choose(runs, rows, first, **{told: {13: other}}) == []
    for target in (4, 8, 12):
        ends = next(n for n in range(first, COUNT + 2) if lipmaa(n) == target or n > COUNT)
        assert len(choose(runs, rows, first, **{told: {target: other}})) == ends - first


def test_the_size_of_stored_entries(runs: Any) -> None:
    size = sum(len(row.encoded) + len(row.payload or b"") for row in ROWS)
    assert stored_size(runs, ROWS) == size
    assert stored_size(runs, []) == stored_size(runs, [], first=5, last=2) == 0
    assert stored_size(runs, ROWS[3:4], first=4, last=4) > 0
    for bounds in ({"first": 2}, {"last": COUNT - 1}, {"first": LAST + 1}, {"last": 0}):
        assert stored_size(runs, ROWS, **bounds) == -1
    assert stored_size(runs, [ROWS[1], ROWS[0]]) == stored_size(runs, [ROWS[0]] * 2) == -1
    assert stored_size(runs, ROWS, payload_size_max=None) == -1
    assert stored_size(runs, ROWS, payload_size_max=LAST) == size


NOISE = (None, 0, -1, 1, True, False, LAST, LAST + 1, b"", b"\0", bytearray(66), "text", 2.5)


def test_twins_judge_mutated_entries_alike(runs_twins: Any) -> None:
    chance = Random(5)
    for _ in range(1500):
        at = chance.randrange(COUNT - 4)
        rows = ROWS[at : at + 4]
        where, column = chance.randrange(4), chance.randrange(8)
        values = list(rows[where])
        old = values[column]
        if isinstance(old, bytes) and old and chance.random() < 0.5:
            index = chance.randrange(min(len(old), 180))
            values[column] = old[:index] + bytes([chance.randrange(256)]) + old[index + 1 :]
        else:
            values[column] = chance.choice(NOISE)
        rows[where] = StoredEntry(*values)
        first, last = chance.choice([at + 1, 0, at + 2]), chance.choice([None, at + 4])
        bounds = {"first": first, "last": last}
        compiled, pure = (stored_size(twin, rows, **bounds) for twin in runs_twins)
        assert compiled == pure, rows[where]
        if pure >= 0:
            known = chance.choice([{}, HASHES, {at: b""}])
            one, two = (choose(twin, rows, at + 1, sent=known) for twin in runs_twins)
            assert one == two


def test_a_link_is_no_smaller_than_its_prefix(runs: Any) -> None:
    with pytest.raises(ValueError, match="smaller"):
        stored_size(runs, ROWS, link_size=1)
    with pytest.raises(ValueError, match="smaller"):
        choose(runs, ROWS, link_size=-1)
