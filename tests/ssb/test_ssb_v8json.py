"""JSON as V8 reads and writes it: by its rules, and compared with a V8 where there is one.

``CULM_V8_TEXTS`` sets the number of random texts (2,000 by default, 100,000 in a long campaign),
``CULM_V8_SEED`` the first seed.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from v8_texts import Texts, ask_v8

import vectors
from culm.ssb import v8json
from culm.ssb.v8json import (
    JsonError,
    JsonTooLongError,
    number_text,
    parse,
    stringify,
    utf16_size,
)

LONG = os.environ.get("CULM_HYPOTHESIS_PROFILE") == "long"
TEXTS = int(os.environ.get("CULM_V8_TEXTS", 100_000 if LONG else 2_000))
SEED = int(os.environ.get("CULM_V8_SEED", 0))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def ours(text: bytes) -> dict[str, Any]:
    """Our reading of a text, in the form of ``v8_oracle.js``."""
    try:
        value = parse(text)
    except JsonError:
        return {"error": "no JSON"}
    indented = stringify(value, indent=2)
    return {"compact": stringify(value), "indented": indented, "units": utf16_size(indented)}


class TestBesideV8:
    def test_random_texts(self) -> None:
        texts = Texts(SEED)
        made = [texts.make() for _ in range(TEXTS)]
        wrong = [
            (text, theirs, ours(text))
            for text, theirs in zip(made, ask_v8(made), strict=True)
            if theirs != ours(text)
        ]
        assert wrong[:3] == []

    def test_most_of_them_are_json(self) -> None:
        texts = Texts(SEED)
        errors = [ours(texts.make()) == {"error": "no JSON"} for _ in range(500)]
        assert 0.02 < sum(errors) / len(errors) < 0.3

    def test_random_doubles(self) -> None:
        bits = Texts(SEED + 1).chance.randbytes(8 * (TEXTS // 2))
        numbers = [number for (number,) in struct.iter_unpack(">d", bits)]
        texts = [repr(number).encode() for number in numbers if number - number == 0]
        answers = [answer["compact"] for answer in ask_v8(texts)]
        assert [number_text(float(text)) for text in texts] == answers

    def test_deep_ones(self) -> None:
        texts = [nested(depth).encode() for depth in (1, 100, 999, 1000, 1500)]
        assert [ours(text) for text in texts] == ask_v8(texts)


class TestVectors:
    def test_doubles(self) -> None:
        for bits, text in vectors.load_json("ssb/v8-doubles.json"):
            (number,) = struct.unpack(">d", bytes.fromhex(bits))
            assert number_text(number) == text

    def test_texts_of_messages(self) -> None:
        for case in vectors.load_json("ssb/v8-messages.json")["cases"]:
            if case["encoded"] is not None:
                assert stringify(parse(case["wire"]), indent=2) == case["encoded"]


class TestReading:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1.0", 1),
            ("-0", 0),
            ("1E3", 1000),
            ("9007199254740993", 9007199254740992),
            ("1e400", float("inf")),
            ('{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}),
            ('{"__proto__":{"a":1}}', {"__proto__": {"a": 1}}),
            ('"\\ud83d\\ude00"', "\U0001f600"),
            ('"\\ude00\\ud83d"', "\ude00\ud83d"),
            (b'"\xff"', "\ufffd"),
            (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
            (memoryview(b" [ ] "), []),
            ("9" * 5000, float("inf")),
        ],
        ids=lambda value: "memory" if isinstance(value, memoryview) else str(value)[:30],
    )
    def test_values(self, text: Any, value: Any) -> None:
        found = parse(text)
        assert found == value
        assert list(found) == list(value) if isinstance(value, dict) else True

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "",
                " ",
                "[",
                "]",
                "[1,]",
                "{",
                '{"a"}',
                '{"a":}',
                "{'a':1}",
                "{1:2}",
                "[1 2]",
                "1 2",
            ),
            *(
                "NaN",
                "Infinity",
                "-Infinity",
                "01",
                "+1",
                ".5",
                "1.",
                "1e",
                "-",
                "--1",
                "0x1",
                "tru",
            ),
            *('"', '"\n"', '"\\x"', '"\\u12"', "\ufeff1", "\xa01", "١", '"a', "[1]]", '{"a":1,}'),
            *("nul", "[,1]", '{"a" 1}', '{"a":1 "b":2}', '{,"a":1}', "\v1"),
        ],
    )
    def test_what_is_no_json(self, text: str) -> None:
        with pytest.raises(JsonError):
            parse(text)
        with pytest.raises(JsonError):
            v8json.Parser(text).read()

    @given(json_values)
    def test_both_readers_find_the_same(self, value: Any) -> None:
        text = stringify(value, indent=1)
        assert v8json.Parser(text).read() == parse(text)
        assert stringify(v8json.Parser(text).read()) == stringify(value)

    def test_both_readers_agree_on_random_texts(self) -> None:
        texts = Texts(SEED + 2)
        for _ in range(500):
            text = str(texts.make(), "utf-8", "replace")
            try:
                expected = stringify(parse(text))
            except JsonError:
                with pytest.raises(JsonError):
                    v8json.Parser(text).read()
            else:
                assert stringify(v8json.Parser(text).read()) == expected

    @pytest.mark.parametrize("depth", [10_000, 30_000])
    def test_deep_ones(self, depth: int) -> None:
        assert stringify(parse(nested(depth))) == nested(depth)
        for text in ('{"a":' * depth + "1" + "}" * depth, "[" * depth):
            if text[0] == "{":
                assert stringify(parse(text)) == text
            else:
                with pytest.raises(JsonError):
                    parse(text)

    def test_a_bound_of_depth(self) -> None:
        assert parse(nested(5), depth_max=5) == [[[[[]]]]]
        with pytest.raises(JsonError, match="nested"):
            parse(nested(6).replace("[]", "[1]"), depth_max=5)
        assert parse('"[[[[[["', depth_max=2) == "[[[[[["

    def test_what_is_no_text(self) -> None:
        for text in (5, None, ["1"]):
            with pytest.raises(TypeError):
                parse(text)  # type: ignore[arg-type]


class TestWriting:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (float("nan"), "null"),
            (float("-inf"), "null"),
            (-0.0, "0"),
            (2**53 + 1, "9007199254740992"),
            (10**400, "null"),
            (True, "true"),
            ((1, (2,)), "[1,[2]]"),
            ("\x7f\u2028/", '"\x7f\u2028/"'),
            ("\x00\x1f\ud800", '"\\u0000\\u001f\\ud800"'),
            ({"b": 1, "10": 2, "9": 3, "": 4}, '{"9":3,"10":2,"b":1,"":4}'),
            ({"4294967295": 1, "4294967294": 2}, '{"4294967294":2,"4294967295":1}'),
            ({"01": 1, "1": 2}, '{"1":2,"01":1}'),
        ],
        ids=lambda value: str(value)[:30].encode("ascii", "backslashreplace").decode(),
    )
    def test_texts(self, value: Any, text: str) -> None:
        assert stringify(value) == text

    @given(json_values)
    def test_what_is_written_is_read_again(self, value: Any) -> None:
        for indent in (0, 2):
            text = stringify(value, indent=indent)
            text.encode()
            assert stringify(parse(text), indent=indent) == text

    @given(json_values, st.sampled_from([0, 2]))
    def test_a_bound_of_length(self, value: Any, indent: int) -> None:
        text = stringify(value, indent=indent)
        units = len(text.encode("utf-16-le")) // 2
        assert utf16_size(text) == units
        assert stringify(value, indent=indent, units_max=units) == text
        with pytest.raises(JsonTooLongError):
            stringify(value, indent=indent, units_max=units - 1)

    def test_what_would_be_too_long_is_not_written(self) -> None:
        """Indentation would make a gigabyte of it."""
        for deep in (nested(20_000), "[" * 90 + "1," * 50_000 + "1" + "]" * 90):
            with pytest.raises(JsonTooLongError):
                stringify(parse(deep), indent=2, units_max=8192)

    def test_a_value_within_itself(self) -> None:
        for length in (1, 2, 3000):
            ring: list[Any] = []
            value = ring
            for _ in range(length - 1):
                value = [value]
            ring.append(value)
            with pytest.raises(ValueError, match="contains itself"):
                stringify(ring)

    def test_the_same_value_twice_is_no_ring(self) -> None:
        value: list[Any] = [1]
        for _ in range(10):
            value = [value, value]
        assert stringify(value).count("1") == 1024

    @pytest.mark.parametrize("value", [b"x", {1}, Ellipsis, {1: 2}, {None: 1}, 1j], ids=repr)
    def test_what_json_does_not_have(self, value: Any) -> None:
        for inside in (value, [value]):
            with pytest.raises(TypeError):
                stringify(inside)
