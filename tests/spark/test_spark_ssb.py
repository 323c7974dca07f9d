"""Feeds of Secure Scuttlebutt: messages checked, chains audited, exactly the planted faults."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from nacl.signing import SigningKey

from culm.bamboo.errors import Reason
from culm.spark.audit import NEEDED, audit
from culm.spark.columns import check_columns
from culm.spark.reasons import reasons_of
from culm.spark.ssb import MESSAGES, verify_feed_messages
from culm.ssb.messages import ClassicMessage, create_message


def feed(name: str, length: int, **options) -> list[ClassicMessage]:
    identity = SigningKey(sha256(name.encode()).digest())
    messages: list[ClassicMessage] = []
    for at in range(length):
        last = messages[-1].place if messages else None
        content = {"type": "post", "text": f"{at} ü"} if at % 3 else "AAAA.box"
        new = create_message(identity, content=content, timestamp=at + 0.5, last=last, **options)
        messages.append(new)
    return messages


def frame_of(spark, lines: list[bytes | None]):
    return spark.createDataFrame([(line,) for line in lines], "entry binary")


def exported(message: ClassicMessage, **changes: object) -> bytes:
    fields = {"key": message.id, "value": json.loads(message.data), "timestamp": 1} | changes
    return json.dumps(fields).encode()


def tampered(message: ClassicMessage) -> bytes:
    return message.data.replace(message.data[-60:-50], b"A" * 10)


def test_messages_become_columns_in_both_forms(spark):
    messages = feed("alice", 4)
    lines = [messages[0].data, *(exported(each) for each in messages[1:])]
    rows = verify_feed_messages(frame_of(spark, lines)).collect()
    for row, message in zip(rows, messages, strict=True):
        assert (row.feed, row.seqnum, row.id) == (message.author, message.sequence, message.id)
        assert (row.previous, row.timestamp) == (message.previous, message.timestamp)
        assert (row.fault, row.reasons) == (None, 0)
        private = isinstance(message.content, str)
        assert row.content_type == (None if private else "post")


def test_half_a_surrogate_pair_is_no_text_of_a_column(spark):
    """It is valid JSON, and so is a message with it."""
    content = {"type": "\ud800bc \U0001f600"}
    message = create_message(SigningKey(bytes(32)), content=content, timestamp=1)
    [row] = verify_feed_messages(frame_of(spark, [message.data])).collect()
    assert (row.content_type, row.fault, row.reasons) == ("\ufffdbc \U0001f600", None, 0)


def test_what_is_no_message_says_why(spark):
    (message,) = feed("alice", 1)
    lines = [
        None,
        b"{",
        message.data[:-1],
        b'{"key": 1}',
        b'{"value": {}}',
        exported(message, key="%other"),
        message.data.replace(b'"sequence":1', b'"sequence":0'),
        tampered(message),
    ]
    frame = verify_feed_messages(frame_of(spark, lines))
    assert frame.dtypes == [("entry", "binary"), *MESSAGES]
    rows = frame.collect()
    assert [row.fault for row in rows] == [
        "NO_MESSAGE", "NOT_JSON", "NOT_JSON", "WRONG_FIELDS", "WRONG_FIELDS", "WRONG_KEY",
        "BAD_SEQUENCE", None,
    ]  # fmt: skip
    reasons = [{Reason.MALFORMED}] * 7 + [{Reason.BAD_SIGNATURE}]
    assert [reasons_of(row.reasons) for row in rows] == reasons


def test_a_network_with_a_key_is_checked_with_it(spark):
    key = b"k" * 32
    frame = frame_of(spark, [feed("alice", 1, hmac_key=key)[0].data])
    assert [row.reasons for row in verify_feed_messages(frame, hmac_key=key).collect()] == [0]
    assert [row.reasons for row in verify_feed_messages(frame).collect()] != [0]
    with pytest.raises(ValueError, match="hmac_key"):
        verify_feed_messages(frame, hmac_key=b"short")


def test_an_audit_finds_the_planted_faults_of_feeds_and_no_others(spark):
    feeds = {name: feed(name, 8) for name in ("whole", "gap", "forked", "tampered", "relinked")}
    lines = {name: [each.data for each in messages] for name, messages in feeds.items()}
    del lines["gap"][4]
    identity = SigningKey(sha256(b"forked").digest())
    last = feeds["forked"][4].place
    other = create_message(identity, content={"type": "fork"}, timestamp=0, last=last)
    lines["forked"].append(other.data)
    lines["tampered"][2] = tampered(feeds["tampered"][2])
    identity = SigningKey(sha256(b"relinked").digest())
    last = feeds["relinked"][2].place._replace(id=feeds["whole"][0].id)
    lines["relinked"][3] = create_message(
        identity, content={"type": "post"}, timestamp=0, last=last
    ).data
    everything = [line for each in lines.values() for line in each]
    frame = verify_feed_messages(frame_of(spark, everything)).persist()
    check_columns(frame, NEEDED)
    found = audit(frame)
    logs = {row.author: row for row in found.logs.collect()}
    wanted = {  # verified, first fault, its reasons, forks, gaps
        "whole": (8, None, set(), 0, 0),
        "gap": (4, 5, {Reason.GAP}, 0, 1),
        "forked": (5, 6, {Reason.FORK}, 1, 0),
        "tampered": (2, 3, {Reason.GAP}, 0, 1),
        "relinked": (3, 4, {Reason.WRONG_BACKLINK}, 0, 0),
    }
    for name in feeds:
        row = logs[bytes(SigningKey(sha256(name.encode()).digest()).verify_key)]
        reasons = set(reasons_of(row.first_fault_reasons or 0))
        said = (row.verified, row.first_fault, reasons, row.forks, row.gaps)
        assert said == wanted[name], name
    (fork,) = found.forks.collect()
    assert bytes(fork.proof) == b"".join(sorted([feeds["forked"][5].data, other.data]))
    found.close()
    frame.unpersist()
