"""Entries made by other implementations: bamboo-rs (YAMF) and p2panda-js (YASMF)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from nacl.signing import SigningKey

import vectors
from culm.bamboo.audit import audit_log
from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey, decode, decode_prefix, sign, verify_signature
from culm.bamboo.links import certificate_gaps, certificate_pool
from culm.bamboo.records import Head
from culm.bamboo.verify import LogVerifier, payload_fault, verify_log
from culm.wire.multihash import YAMF, YASMF, HashFamily

GROUPS = ["validFirstEntry", "fiveValidEntries", "valid_partial_replicated_seq_100"]


def rust_group(name: str) -> list[dict[str, Any]]:
    group = vectors.load_json("bamboo-rs.json")[name]
    return list(group.get("entries", [group]))


def rust_log(name: str) -> list[Entry]:
    return [decode(bytes.fromhex(row["encoded"]), family=YAMF) for row in rust_group(name)]


def panda_logs() -> list[dict[str, Any]]:
    return list(vectors.load_json("p2panda/p2panda-js.json")["logs"])


def yamf(decoded: dict[str, str] | None) -> bytes | None:
    return None if decoded is None else YAMF.prefix + bytes.fromhex(decoded["Blake2b"])


def remade(entry: Entry, key: bytes) -> Entry:
    """The entry signed anew from its fields."""
    return sign(
        SigningKey(key),
        family=entry.family,
        log_id=entry.log_id,
        seqnum=entry.seqnum,
        payload_size=entry.payload_size,
        payload_hash=entry.payload_hash,
        backlink=entry.backlink,
        lipmaalink=entry.lipmaalink,
        end_of_log=entry.end_of_log,
    )


def test_all_groups_of_vectors_are_tested() -> None:
    assert sorted(vectors.load_json("bamboo-rs.json")) == sorted(GROUPS)


@pytest.mark.parametrize("name", GROUPS)
def test_entries_of_bamboo_rs_decode_to_the_same_fields(name: str) -> None:
    for row in rust_group(name):
        entry = decode(bytes.fromhex(row["encoded"]), family=YAMF)
        fields = row["decoded"]
        assert entry == Entry(
            family=YAMF,
            author=bytes.fromhex(fields["author"]),
            log_id=fields["logId"],
            seqnum=fields["seqNum"],
            lipmaalink=yamf(fields["lipmaaLink"]),
            backlink=yamf(fields["backlink"]),
            payload_size=fields["payloadSize"],
            payload_hash=yamf(fields["payloadHash"]) or b"",
            signature=bytes.fromhex(fields["sig"]),
            end_of_log=fields["isEndOfFeed"],
        )
        if "payload" in row:
            assert payload_fault(entry, bytes.fromhex(row["payload"])) is None


@pytest.mark.parametrize("name", GROUPS)
def test_entries_of_bamboo_rs_encode_and_sign_byte_for_byte(name: str) -> None:
    group = vectors.load_json("bamboo-rs.json")[name]
    # The secret key is that of the vectors' group: the seed alone, or with the public key.
    secret = bytes.fromhex(group["author"]["secret"])[:32]
    for row, entry in zip(rust_group(name), rust_log(name), strict=True):
        encoded = bytes.fromhex(row["encoded"])
        assert replace(entry).encode() == encoded
        assert verify_signature(entry)
        assert remade(entry, secret).encode() == encoded


def test_the_whole_logs_of_bamboo_rs_verify() -> None:
    for name in GROUPS[:2]:
        log = rust_log(name)
        encoded = [entry.encode() for entry in log]
        newest = Head(log[-1].seqnum, log[-1].hash(), log[-1].end_of_log)
        assert verify_log(log[0].log, encoded, family=YAMF) == newest
        rows = [
            (entry, bytes.fromhex(row["payload"]))
            for entry, row in zip(encoded, rust_group(name), strict=True)
        ]
        assert all(v.verified and not v.reasons for v in audit_log(log[0].log, rows, family=YAMF))


def test_the_partial_log_of_bamboo_rs_verifies_as_a_subset() -> None:
    log = sorted(rust_log(GROUPS[2]), key=lambda entry: entry.seqnum)
    seqnums = {entry.seqnum for entry in log}
    assert max(seqnums) == 100
    assert certificate_gaps([100], seqnums) == []
    of = LogVerifier(log[0].log, family=YAMF, sparse=True)
    for entry in log:
        assert of.verify(entry)


def test_the_partial_log_of_bamboo_rs_is_the_lower_pool_of_100() -> None:
    seqnums = {entry.seqnum for entry in rust_log(GROUPS[2])}
    assert {n for n in certificate_pool(100) if n <= 100} <= seqnums


def test_entries_of_bamboo_rs_delimit_themselves() -> None:
    log = rust_log("fiveValidEntries")
    data, at = b"".join(entry.encode() for entry in log), 0
    for expected in log:
        entry, at = decode_prefix(data, at, family=YAMF)
        assert entry == expected
    assert at == len(data)


def test_logs_of_p2panda_verify_and_have_the_same_hashes() -> None:
    for log in panda_logs():
        key = LogKey(bytes.fromhex(log["public_key"]), log["log_id"])
        rows = [
            (bytes.fromhex(row["entry"]), bytes.fromhex(row["operation"])) for row in log["entries"]
        ]
        assert verify_log(key, [encoded for encoded, _ in rows], family=YASMF) is not None
        assert all(v.verified and not v.reasons for v in audit_log(key, rows, family=YASMF))
        for row, (encoded, operation) in zip(log["entries"], rows, strict=True):
            entry = decode(encoded, family=YASMF)
            assert entry.hash().hex() == row["hash"]
            assert replace(entry).encode() == encoded
            assert payload_fault(entry, operation) is None


def test_publishing_the_operations_of_p2panda_gives_the_same_entries() -> None:
    for log in panda_logs():
        author = LogAuthor(
            SigningKey(bytes.fromhex(log["private_key"])), family=YASMF, log_id=log["log_id"]
        )
        for row in log["entries"]:
            new = author.publish(bytes.fromhex(row["operation"]))
            assert new.entry.encode().hex() == row["entry"]


def test_the_families_are_told_apart_by_context_alone() -> None:
    """Entries of one family are never accepted as entries of the other."""

    def readable(encoded: bytes, family: HashFamily) -> bool:
        try:
            return verify_signature(decode(encoded, family=family))
        except ValueError:
            return False

    for log in panda_logs():
        for row in log["entries"]:
            encoded = bytes.fromhex(row["entry"])
            assert readable(encoded, YASMF)
            assert not readable(encoded, YAMF)
