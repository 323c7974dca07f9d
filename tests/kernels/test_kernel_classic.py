"""Plain messages of Secure Scuttlebutt: both twins find the same, and it is right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from culm.ssb.v8json import number_text, parse, stringify

ID = "%" + "A" * 43 + "=.sha256"
AUTHOR = "@" + "abcdefg" * 6 + "A=.ed25519"
SIGNATURE = "x+/" * 28 + "xQ==.sig.ed25519"
FIRST = {
    "previous": None,
    "sequence": 1,
    "author": AUTHOR,
    "timestamp": 1700000000000,
    "hash": "sha256",
    "content": {"type": "post", "text": "hello"},
    "signature": SIGNATURE,
}
LATER = {**FIRST, "previous": ID, "sequence": 2}


def written(**fields: Any) -> bytes:
    return stringify({**LATER, **fields}).encode()


def with_content(text: str | bytes) -> bytes:
    """A message with this text as its content."""
    content = text.encode() if isinstance(text, str) else text
    return written(content=0).replace(b'"content":0', b'"content":' + content)


def with_value(text: str | bytes) -> bytes:
    """A message with this text as a value in its content."""
    value = text.encode() if isinstance(text, str) else text
    return with_content(b'{"type":"post","x":' + value + b"}")


letters = st.text(
    st.sampled_from(
        'ab1 "\\/\b\n\x00\x1f\x7f\x80é€\u07ff\u0800\ud7ff\ue000\uffff\U0001f600\U0010ffff'
    ),
    max_size=8,
)
numbers = (
    st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**6), 10**6, places=3).map(float)
    | st.sampled_from([0, -0.0, 0.1, 1e-5, 0.000001, 1e-7, 1e21, 1514517067954.001, 2**53])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | letters,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(letters, inner, max_size=4),
    max_leaves=12,
)
contents = st.dictionaries(letters, values, max_size=4).flatmap(
    lambda rest: letters.map(lambda kind: {"type": kind, **rest})
)
messages = st.builds(
    lambda later, timestamp, content: {
        **(LATER if later else FIRST),
        "timestamp": timestamp,
        "content": content,
    },
    st.booleans(),
    numbers,
    contents | letters.map(lambda text: f"{text}.box"),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A message with a few bytes changed, left out or put in."""
    data = bytearray(stringify(draw(messages)).encode())
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 3))
        piece = draw(
            st.sampled_from(
                [
                    *(b"", b'"', b"\\", b"\\u001f", b"0", b"9", b".5", b"e1", b"-", b" ", b","),
                    *(b"{}", b"[]", b"{", b"]", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b":"),
                    *(b"null", b'"type":"post",', b'"a":1,"a":2', b'"1":', b"\xe2\x82\xac"),
                    *(b"\x00", b"\xf4\x90"),
                ]
            )
        )
        data[place : place + size] = piece
    return bytes(data)


def check_found(data: bytes, found: Any) -> None:
    """The result equals that of parsing and serialising."""
    text, sequence, author, begin, end, content, content_end = found
    value = parse(data)
    assert stringify(value).encode() == data
    assert stringify(value, indent=2, units_max=8192).encode() == text
    assert sequence == value["sequence"]
    assert data[author : author + 53].decode() == value["author"]
    assert data[begin:end].decode() == stringify(value["timestamp"])
    assert data[content:content_end].decode() == stringify(value["content"])
    if value["previous"] is not None:
        assert data[13:65].decode() == value["previous"]
    assert data[-102:-14].decode() + ".sig.ed25519" == value["signature"]


@given(messages)
@example(FIRST)
@example(LATER)
def test_twins_find_the_same(classic_twins, message):
    data = stringify(message).encode()
    compiled, pure = (twin.scan(data) for twin in classic_twins)
    assert compiled == pure
    if pure is not None:
        check_found(data, pure)


@given(mutated())
def test_twins_find_the_same_in_what_was_changed(classic_twins, data):
    compiled, pure = (twin.scan(data) for twin in classic_twins)
    assert compiled == pure
    if pure is not None:
        check_found(data, pure)


@pytest.mark.parametrize("message", [FIRST, LATER], ids=["first", "later"])
def test_messages_as_they_come(classic, message):
    data = stringify(message).encode()
    check_found(data, classic.scan(data))


def test_author_before_sequence(classic):
    names = ["previous", "author", "sequence", "timestamp", "hash", "content", "signature"]
    data = stringify({name: LATER[name] for name in names}).encode()
    check_found(data, classic.scan(data))


PLAIN = [
    '{"type":"abc"}',
    '{"type":"' + "x" * 52 + '"}',
    '{"type":"' + "\U0001f600" * 26 + '"}',
    '{"a":1,"type":"post"}',
    '"abc.box"',
    '".box2"',
    '{"type":"post","":{"":[]}}',
    '{"type":"post","x":{"type":5}}',
    '{"type":"post","__proto__":{"constructor":null}}',
]


@pytest.mark.parametrize("content", PLAIN)
def test_plain_contents(classic, content):
    data = with_content(content)
    check_found(data, classic.scan(data))


@pytest.mark.parametrize(
    "content",
    [
        *("{}", "[]", "null", "1", '""', '"box"', '".Box"', '"\\n.box"', '".box3"'),
        *('{"type":"ab"}', '{"type":"' + "x" * 53 + '"}', '{"type":5}', '{"type":{}}'),
        *('{"type":"' + "\U0001f600" * 27 + '"}', '{"type":"\\u0001bc"}', '{"Type":"post"}'),
        *('{"type":"post","type":"post"}', '{"type":"post","x":{"a":1,"a":1}}'),
        *('{"type":"post","1":0}', '{"type":"post","01":0}', '{"type":"post",}', '{"type":"post"'),
        *('{"type" :"post"}', '{"type":"post" }', '{type:"post"}', '{"type":"post"]'),
    ],
)
def test_contents_that_are_not(classic, content):
    assert classic.scan(with_content(content)) is None


@pytest.mark.parametrize(
    "value",
    [
        *("0", "-1", "999999999999999", "0.1", "-0.5", "0.000001", "1.5", "123456789012345.5"),
        *("1514517067954.001", "0.1234567890123456", "true", "false", "null", "[]", "{}", "[[]]"),
        *(
            '"\\b\\f\\n\\r\\t\\"\\\\"',
            '"\\u0000\\u0007\\u000b\\u000e\\u001f"',
            '"\x7f/é€\U0010ffff"',
        ),
        *("[1,[2,{},[]],{}]", "[" * 32 + "]" * 32, '[{"a":[{"a":0}]}]'),
    ],
)
def test_plain_values(classic, value):
    data = with_value(value)
    check_found(data, classic.scan(data))


@pytest.mark.parametrize(
    "value",
    [
        *(
            "-0",
            "-0.0",
            "0.0",
            "1.0",
            "1.50",
            "01",
            "1.",
            ".5",
            "+1",
            "-",
            "1e5",
            "1E5",
            "0.0000001",
        ),
        *("1000000000000000", "9007199254740993", "0.1234567890123457890", "1514517067954.0011"),
        *("0.30000000000000001", "12345678901234567", "tru", "nul", "True", "NaN", "Infinity"),
        *(
            '"\\/"',
            '"\\u0008"',
            '"\\u001F"',
            '"\\u007f"',
            '"\\ud800"',
            '"\\u00e9"',
            '"\n"',
            '"\\x"',
            '"',
        ),
        *(
            "[1,]",
            "[,]",
            "[1 ,2]",
            "[1",
            "{1:2}",
            '{"a"}',
            '{"a":}',
            "[" * 32 + "0" + "]" * 32,
            "",
            "]",
        ),
        *(
            b'"\xff"',
            b'"\xc0\x80"',
            b'"\xed\xa0\x80"',
            b'"\xf4\x90\x80\x80"',
            b'"\xe2\x82"',
            b'"\x80"',
        ),
    ],
)
def test_values_that_are_not(classic, value):
    assert classic.scan(with_value(value)) is None


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(
            ("previous", text)
            for text in ('"%x"', '"' + ID[:-1] + '"', "0", ID.replace("A=", "B="))
        ),
        *(("sequence", text) for text in ("0", "02", "2.0", "-2", "1000000000000000", '"2"', "")),
        *(
            ("author", text)
            for text in ("null", f'"{AUTHOR[:-1]}"', f'"{AUTHOR.replace("A=", "B=")}"')
        ),
        *(("timestamp", text) for text in ("null", '"1"', "1e3", "-0", "01", "", "1.0")),
        *(("hash", text) for text in ('"sha512"', "null", '"sha256" ')),
        *(("signature", text) for text in ("null", f'"{SIGNATURE[1:]}"', f'"{SIGNATURE} "')),
        ("signature", '"' + SIGNATURE.replace("Q==", "R==") + '"'),
    ],
)
def test_fields_that_are_not(classic, field, text):
    before, mark, after = stringify(LATER).partition(f'"{field}":')
    old = stringify(LATER[field])
    assert after.startswith(old)
    assert classic.scan((before + mark + text + after.removeprefix(old)).encode()) is None


def test_previous_is_there_from_the_second_on(classic):
    assert classic.scan(written(previous=None)) is None
    assert classic.scan(written(sequence=1)) is None
    assert classic.scan(written(previous=None, sequence=1)) is not None


def test_every_beginning_of_a_message_is_none(classic):
    data = written(content={"type": "post", "x": [True, {"é": 1.5}, "\n\U0001f600"]})
    assert classic.scan(data) is not None
    assert all(classic.scan(data[:size]) is None for size in range(len(data)))
    assert classic.scan(data + b" ") is None


@pytest.mark.parametrize("letter", ["a", "é", "€", "\U0001f600"])
def test_the_longest(classic, letter):
    units = len(letter.encode("utf-16-le")) // 2
    room = 8192 - len(json.dumps({**LATER, "content": {"type": "post", "x": ""}}, indent=2))
    text = letter * (room // units) + "." * (room % units)
    data = with_value(stringify(text))
    check_found(data, classic.scan(data))
    assert classic.scan(with_value(stringify(text + "."))) is None
    assert classic.scan(with_value(stringify(text + "€"))) is None


def test_what_grows_beyond_the_longest(classic):
    deep = "[" * 31 + ",".join("1" * 8000) + "]" * 31
    assert classic.scan(with_value(deep)) is None
    assert classic.scan(bytes(100_000)) is None


def test_keys_of_one_object(classic):
    def message(count: int) -> bytes:
        return with_value("{" + ",".join(f'"k{number}":0' for number in range(count)) + "}")

    assert classic.scan(message(64)) is not None
    assert classic.scan(message(65)) is None
    several = "[" + ",".join(['{"a":1}'] * 100) + "]"
    assert classic.scan(with_value(several)) is not None


@given(st.integers(0, 17), st.integers(-(10**17), 10**17))
def test_numbers_that_were_found_are_written_so(classic_twins, places, digits):
    sign, rest = ("-", str(-digits)) if digits < 0 else ("", str(digits))
    rest = rest.rjust(places + 1, "0")
    text = f"{sign}{rest[: len(rest) - places]}" + (
        f".{rest[len(rest) - places :]}" if places else ""
    )
    compiled, pure = (twin.scan(with_value(text)) for twin in classic_twins)
    assert compiled == pure
    if pure is not None:
        assert number_text(float(text)) == text


def test_only_bytes_are_scanned(classic):
    for data in (None, "text", bytearray(b"{}"), 5):
        with pytest.raises(TypeError):
            classic.scan(data)
