"""Notes and names of feeds: the meaning of a number, and invalid ones."""

from __future__ import annotations

from typing import Any

import pytest
from ebt_support import ALICE, BOB
from hypothesis import given
from hypothesis import strategies as st

from culm.machine import RemoteProtocolError
from culm.ssb.ebt import ErrorCode, Note, decode_note, decode_notes, encode_note
from culm.ssb.ebt.notes import NOTE_MAX, SEQUENCE_MAX
from culm.ssb.feed_id import feed_id_of, is_feed_id, public_key_of
from culm.ssb.v8json import parse


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (-1, Note(replicate=False)),
        (0, Note(replicate=True, receive=True, sequence=0)),
        (1, Note(replicate=True, receive=False, sequence=0)),
        (2, Note(replicate=True, receive=True, sequence=1)),
        (3, Note(replicate=True, receive=False, sequence=1)),
    ],
)
def test_the_seeds_examples_of_notes(value: int, note: Note) -> None:
    assert decode_note(value) == note
    assert encode_note(note) == value


@given(st.integers(max_value=-1))
def test_every_negative_number_is_a_refusal(value: int) -> None:
    assert decode_note(value) == Note(replicate=False)


@given(st.integers(0, NOTE_MAX))
def test_every_other_number_is_a_receive_flag_and_a_sequence(value: int) -> None:
    note = decode_note(value)
    assert note.replicate
    assert note.receive is (value % 2 == 0)
    assert note.sequence == value // 2
    assert encode_note(note) == value


def test_a_refusal_is_written_as_minus_one_whatever_the_rest_says() -> None:
    assert encode_note(Note(replicate=False, receive=True, sequence=7)) == -1


@pytest.mark.parametrize("sequence", [-1, SEQUENCE_MAX + 1, 2**64])
def test_a_sequence_that_no_number_holds_is_not_written(sequence: int) -> None:
    with pytest.raises(ValueError, match="sequence"):
        encode_note(Note(replicate=True, receive=True, sequence=sequence))


def test_a_number_that_is_not_exact_everywhere_is_no_note() -> None:
    with pytest.raises(ValueError, match="at most"):
        decode_note(NOTE_MAX + 1)


def refusal(value: Any) -> ErrorCode:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_notes(value)
    return ErrorCode(caught.value.code)


def test_notes_are_an_object_of_integers_by_feed() -> None:
    assert decode_notes({ALICE: 6, BOB: -1}) == {ALICE: 6, BOB: -1}
    assert decode_notes({}) == {}


def test_notes_may_be_wrapped_as_a_clock() -> None:
    assert decode_notes({"clock": {ALICE: 6}, "more": True}) == {ALICE: 6}


@pytest.mark.parametrize(
    "name",
    [
        *("", "@x", "clock", "%x", ALICE[1:], ALICE + "=", ALICE.replace("ed25519", "sha256")),
        "@" + "A" * 42 + "B=.ed25519",  # base64 of the key of zeros, and one bit too many
    ],
)
def test_a_malformed_feed_identifier_is_an_error(name: str) -> None:
    assert refusal({name: 0}) is ErrorCode.BAD_FEED_ID
    assert refusal({ALICE: 0, name: 0}) is ErrorCode.BAD_FEED_ID


@pytest.mark.parametrize(
    "number", ["2.5", "9007199254740992", "1e400", "1e300", '"x"', "true", "null", "[]", "{}"]
)
def test_a_malformed_value_is_an_error(number: str) -> None:
    assert refusal(parse(f'{{"{ALICE}":{number}}}')) is ErrorCode.BAD_NOTE


@pytest.mark.parametrize(
    ("number", "value"),
    [
        *(("6.0", 6), ("6e0", 6), ("-0", 0), ("-1e300", -1), ("9007199254740991", NOTE_MAX)),
        *(("6.0000000000000000001", 6), ("-1e400", -1)),
    ],
)
def test_a_number_is_read_however_it_is_written(number: str, value: int) -> None:
    """As JavaScript peers read it: a double, or an infinity."""
    notes = decode_notes(parse(f'{{"{ALICE}":{number}}}'))
    assert decode_note(notes[ALICE]) == decode_note(value)


@pytest.mark.parametrize("value", [None, True, 1, "text", [], [1]])
def test_what_is_no_object_is_no_notes(value: Any) -> None:
    assert refusal(value) is ErrorCode.NOT_NOTES


@given(st.binary(min_size=32, max_size=32))
def test_a_feed_is_named_by_its_public_key(key: bytes) -> None:
    name = feed_id_of(key)
    assert is_feed_id(name)
    assert len(name) == 53
    assert public_key_of(name) == key


def test_what_is_no_key_has_no_name() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        feed_id_of(bytes(31))
    with pytest.raises(ValueError, match="id of a feed"):
        public_key_of("@x")
    with pytest.raises(TypeError):
        public_key_of(7)  # type: ignore[arg-type]
