"""Messages: read, checked, made and signed as other implementations do it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssb_support import ALICE, BOB

import vectors
from culm.ssb.messages import (
    DATA_SIZE_MAX,
    TEXT_UNITS_MAX,
    ClassicMessage,
    FeedPlace,
    MessageError,
    MessageErrorCode,
    check_place,
    create_message,
    read_message,
    verify_messages,
)

POST = {"type": "post", "text": "hello"}
NETWORK = bytes(range(32))


def feed(count: int, **options: Any) -> list[ClassicMessage]:
    """The first messages of Alice's feed."""
    made: list[ClassicMessage] = []
    for number in range(count):
        last = made[-1].place if made else None
        content = {"type": "post", "text": f"number {number}"}
        made.append(
            create_message(ALICE, content=content, timestamp=1000 + number, last=last, **options)
        )
    return made


def code_of(data: Any) -> MessageErrorCode:
    with pytest.raises(MessageError) as caught:
        read_message(data)
    return caught.value.code


def altered(**fields: Any) -> str:
    """Alice's second message with other fields; ``...`` leaves one out."""
    value = {**json.loads(feed(2)[1].data), **fields}
    return json.dumps({name: field for name, field in value.items() if field is not ...})


class TestVectors:
    """Verdicts, ids and texts of ssb-classic on V8."""

    @staticmethod
    def cases() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = vectors.load_json("ssb/v8-messages.json")["cases"]
        return found

    def test_verdicts(self) -> None:
        for case in self.cases():
            try:
                message = read_message(case["wire"])
                check_place(message, None)
                valid = message.verify()
            except MessageError:
                valid = False
            assert valid == case["valid"], case["name"]

    def test_ids_and_texts(self) -> None:
        for case in self.cases():
            if case["valid"]:
                message = read_message(case["wire"])
                assert message.id == case["id"], case["name"]
                without, _, _ = case["encoded"].rpartition(',\n  "signature"')
                assert message.signed.decode() == without + "\n}"

    def test_what_is_stored_is_the_same_message(self) -> None:
        for case in self.cases():
            if case["valid"]:
                message = read_message(case["wire"])
                again = read_message(message.data)
                assert again == message
                assert again.data == message.data
                assert again.verify()

    def test_feeds_of_recorded_sessions(self) -> None:
        for session in ("3-messages", "reconnect"):
            last: FeedPlace | None = None
            for line in vectors.load_json_lines(f"ssb/session-{session}.jsonl"):
                body = bytes.fromhex(line["hex"])[9:]
                if body.startswith(b'{"previous"') and line["dir"].startswith("server"):
                    message = read_message(body)
                    check_place(message, last)
                    assert message.verify()
                    assert message.data == body
                    last = message.place
            assert last is not None
            assert last.sequence >= 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=3), json_values, max_size=3),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_both_ways_of_reading_find_the_same(rest: dict[str, Any], timestamp: float) -> None:
    """Plain messages are not parsed; all others are."""
    made = create_message(ALICE, content={**rest, "type": "post"}, timestamp=timestamp)
    parsed = read_message(f" {made.data.decode()}")
    for name in ClassicMessage.__slots__:
        assert getattr(parsed, name) == getattr(read_message(made.data), name)
    assert parsed.verify()


class TestMaking:
    def test_a_feed(self) -> None:
        last: FeedPlace | None = None
        for number, message in enumerate(feed(5)):
            check_place(message, last)
            assert message.verify()
            assert message.content == {"type": "post", "text": f"number {number}"}
            assert message.timestamp == 1000 + number
            last = message.place

    def test_every_content_that_is_one(self) -> None:
        for content in (POST, "AAAA.box", "AAAA.box2", {"type": "x" * 52, "1": [None, 1e400]}):
            message = create_message(ALICE, content=content, timestamp=1.5)
            assert message.verify()

    @pytest.mark.parametrize(
        "content",
        [
            *(None, 1, True, [], ["type"], {}, {"type": "ab"}, {"type": "x" * 53}, {"type": 5}),
            *({"type": "\U0001f600" * 27}, {"Type": "post"}, "text", "x.boxes", ""),
        ],
        ids=repr,
    )
    def test_content_that_is_none(self, content: Any) -> None:
        with pytest.raises(MessageError) as caught:
            create_message(ALICE, content=content, timestamp=1)
        assert caught.value.code is MessageErrorCode.BAD_CONTENT

    @pytest.mark.parametrize("letter", ["a", "é", "€", "\U0001f600"])
    def test_the_longest(self, letter: str) -> None:
        units = len(letter.encode("utf-16-le")) // 2

        def made(count: int) -> ClassicMessage:
            content = {"type": "post", "text": letter * (count // units) + "." * (count % units)}
            return create_message(ALICE, content=content, timestamp=1)

        empty = json.dumps(json.loads(made(0).data), indent=2)
        assert made(TEXT_UNITS_MAX - len(empty)).verify()
        with pytest.raises(MessageError) as caught:
            made(TEXT_UNITS_MAX - len(empty) + 1)
        assert caught.value.code is MessageErrorCode.TOO_LONG

    def test_timestamps_that_are_none(self) -> None:
        for timestamp in (float("inf"), float("nan")):
            with pytest.raises(MessageError) as caught:
                create_message(ALICE, content=POST, timestamp=timestamp)
            assert caught.value.code is MessageErrorCode.BAD_TIMESTAMP

    def test_a_place_in_another_feed(self) -> None:
        (message,) = feed(1)
        with pytest.raises(ValueError, match="last is of"):
            create_message(BOB, content=POST, timestamp=1, last=message.place)


class TestForm:
    @pytest.mark.parametrize(
        ("data", "code"),
        [
            ("", MessageErrorCode.NOT_JSON),
            ("[]", MessageErrorCode.NOT_JSON),
            ("null", MessageErrorCode.NOT_JSON),
            (b"\xff\xfe", MessageErrorCode.NOT_JSON),
            ("{}", MessageErrorCode.WRONG_FIELDS),
            ("[" * 20000, MessageErrorCode.NOT_JSON),
            (" " * DATA_SIZE_MAX + "{}", MessageErrorCode.TOO_LONG),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_what_is_no_object_of_seven_fields(self, data: Any, code: MessageErrorCode) -> None:
        assert code_of(data) is code

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"previous": None}, MessageErrorCode.BAD_PREVIOUS),
            ({"previous": "%x.sha256"}, MessageErrorCode.BAD_PREVIOUS),
            ({"previous": 5}, MessageErrorCode.BAD_PREVIOUS),
            ({"sequence": 1}, MessageErrorCode.BAD_PREVIOUS),
            ({"sequence": 0}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": -1}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": 2.5}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": 2**53}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": 2**64}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": float("1e300")}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": True}, MessageErrorCode.BAD_SEQUENCE),
            ({"sequence": "2"}, MessageErrorCode.BAD_SEQUENCE),
            ({"author": "alice"}, MessageErrorCode.BAD_AUTHOR),
            ({"author": None}, MessageErrorCode.BAD_AUTHOR),
            ({"author": "@" + "A" * 42 + "B=.ed25519"}, MessageErrorCode.BAD_AUTHOR),
            ({"author": "@" + "A" * 43 + "=.sha256"}, MessageErrorCode.BAD_AUTHOR),
            ({"timestamp": "1"}, MessageErrorCode.BAD_TIMESTAMP),
            ({"timestamp": None}, MessageErrorCode.BAD_TIMESTAMP),
            ({"timestamp": False}, MessageErrorCode.BAD_TIMESTAMP),
            ({"hash": "sha512"}, MessageErrorCode.BAD_HASH),
            ({"hash": None}, MessageErrorCode.BAD_HASH),
            ({"content": None}, MessageErrorCode.BAD_CONTENT),
            ({"content": "x" * 9000 + ".box"}, MessageErrorCode.TOO_LONG),
            ({"signature": None}, MessageErrorCode.BAD_SIGNATURE),
            ({"signature": "A" * 86 + "==.sig.sha256"}, MessageErrorCode.BAD_SIGNATURE),
            ({"signature": "A" * 85 + "B==.sig.ed25519"}, MessageErrorCode.BAD_SIGNATURE),
            ({"signature": "A" * 88 + ".sig.ed25519"}, MessageErrorCode.BAD_SIGNATURE),
            ({"signature": "A" * 86 + "==.sig.ed25519\n"}, MessageErrorCode.BAD_SIGNATURE),
            ({"hash": ...}, MessageErrorCode.WRONG_FIELDS),
            ({"one": "more"}, MessageErrorCode.WRONG_FIELDS),
            ({"previous": ..., "0": 1}, MessageErrorCode.WRONG_FIELDS),
        ],
        ids=str,
    )
    def test_a_wrong_field(self, fields: dict[str, Any], code: MessageErrorCode) -> None:
        assert code_of(altered(**fields)) is code

    def test_author_and_sequence_may_change_places_and_nothing_else(self) -> None:
        value = json.loads(feed(1)[0].data)
        names = list(value)
        for first in range(7):
            for second in range(first):
                order = names.copy()
                order[first], order[second] = order[second], order[first]
                data = json.dumps({name: value[name] for name in order})
                if {first, second} == {1, 2}:
                    assert not read_message(data).verify()
                else:
                    assert code_of(data) is MessageErrorCode.WRONG_FIELDS

    def test_an_infinite_timestamp_is_written_as_none(self) -> None:
        data = altered().replace('"timestamp": 1001', '"timestamp": 1e400')
        assert code_of(data) is MessageErrorCode.BAD_TIMESTAMP

    def test_spaces_and_spellings_do_not_count(self) -> None:
        (message,) = feed(1)
        data = json.dumps(json.loads(message.data), indent=7).replace("post", "\\u0070ost")
        assert read_message(data).data == message.data
        assert read_message(data.replace('"sequence": 1', '"sequence": 1.0')) == message


class TestSignature:
    def test_of_somebody_else(self) -> None:
        bobs = create_message(BOB, content=POST, timestamp=1)
        data = bobs.data.decode().replace(bobs.author, feed(1)[0].author)
        assert not read_message(data).verify()

    @pytest.mark.parametrize("place", range(0, 85, 5))
    def test_a_changed_letter(self, place: int) -> None:
        (message,) = feed(1)
        before, mark, after = message.data.decode().partition('"signature":"')
        letter = "A" if after[place] != "A" else "g"
        changed = f"{before}{mark}{after[:place]}{letter}{after[place + 1 :]}"
        assert not read_message(changed).verify()

    def test_many_at_a_time(self) -> None:
        made = feed(10)
        forged = read_message(made[4].data.replace(b"number 4", b"number 5"))
        assert verify_messages([*made, forged]) == [True] * 10 + [False]
        assert verify_messages([]) == []

    def test_networks_with_a_key(self) -> None:
        (message,) = feed(1, hmac_key=NETWORK)
        assert message.verify(hmac_key=NETWORK)
        assert not message.verify()
        assert not message.verify(hmac_key=bytes(32))
        assert not feed(1)[0].verify(hmac_key=NETWORK)

    @pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
    def test_network_keys_that_are_none(self, key: bytes) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            feed(1, hmac_key=key)
        with pytest.raises(ValueError, match="32 bytes"):
            feed(1)[0].verify(hmac_key=key)


class TestPlace:
    def test_the_beginning(self) -> None:
        first, second = feed(2)
        check_place(first, None)
        with pytest.raises(MessageError) as caught:
            check_place(second, None)
        assert caught.value.code is MessageErrorCode.WRONG_SEQUENCE

    def test_gaps_and_repetitions(self) -> None:
        made = feed(4)
        for wrong in (made[0], made[1], made[3]):
            with pytest.raises(MessageError) as caught:
                check_place(wrong, made[1].place)
            assert caught.value.code is MessageErrorCode.WRONG_SEQUENCE

    def test_another_feed(self) -> None:
        with pytest.raises(MessageError) as caught:
            check_place(create_message(BOB, content=POST, timestamp=1), feed(1)[0].place)
        assert caught.value.code is MessageErrorCode.WRONG_AUTHOR

    def test_a_fork(self) -> None:
        first, second, third = feed(3)
        other = create_message(ALICE, content=POST, timestamp=5, last=first.place)
        with pytest.raises(MessageError) as caught:
            check_place(third, other.place)
        assert caught.value.code is MessageErrorCode.WRONG_PREVIOUS
        check_place(third, second.place)


def test_messages_are_compared_by_id() -> None:
    first, second = feed(2)
    assert first == read_message(first.data)
    assert hash(first) == hash(read_message(first.data))
    assert first != second
    assert first != first.id
    assert repr(first) == f"<ClassicMessage {first.id} 1 of {first.author}>"


def test_errors_name_their_code() -> None:
    assert str(MessageError(MessageErrorCode.BAD_HASH)) == "bad hash"
    assert str(MessageError(MessageErrorCode.TOO_LONG, "5")) == "too long: 5"
