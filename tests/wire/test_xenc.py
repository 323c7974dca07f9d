"""XENC: the rules of its page, precise errors, and the compiled kernel against its twin."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm import kernels
from culm.kernels import pure_xenc
from culm.wire import xenc
from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from culm.wire.xenc import Timestamp


def _kernels() -> list[Any]:
    try:
        return [pure_xenc, kernels.load("xenc", "compiled")]
    except ImportError:
        return [pure_xenc]


_KERNELS = _kernels()


@pytest.fixture(params=_KERNELS, ids=lambda kernel: kernel.__name__)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a test once on every available kernel, through the public functions."""
    monkeypatch.setattr(xenc, "_kernel", request.param)
    return request.param


VALUES = [
    (b"i0e", 0),
    (b"i6e", 6),
    (b"i-37e", -37),
    (b"i9223372036854775807e", 2**63 - 1),
    (b"i-9223372036854775808e", -(2**63)),
    (b"t5.10e", Timestamp(5, 10)),
    (b"t-5.999999999e", Timestamp(-5, 999_999_999)),
    (b"0:", b""),
    (b"5:hello", b"hello"),
    (b"11:i1eli2e0:de", b"i1eli2e0:de"),
    (b"le", []),
    (b"de", {}),
    (b"li1el2:abedee", [1, [b"ab"], {}]),
    (b"d1:1i2e1:bi1e1:m1:se", {b"m": b"s", b"b": 1, b"1": 2}),
    (b"d0:le1:ad1:bdeee", {b"": [], b"a": {b"b": {}}}),
]


@pytest.mark.parametrize(("encoded", "value"), VALUES)
def test_values_and_their_encodings(kernel: Any, encoded: bytes, value: Any) -> None:
    assert xenc.encode(value) == encoded
    decoded = xenc.decode(encoded)
    assert decoded == value
    assert type(decoded) is type(value)


def test_the_example_of_the_page(kernel: Any) -> None:
    text = """{"action": "added", "members": [{"login": "octocat", "id": 583231}],
      "repository": {"id": 35129377, "name": "public-repo"},
      "sender": {"login": "baxterthehacker", "id": 6752317}}"""
    encoded = (
        b"d6:action5:added7:membersld5:login7:octocat2:idi583231eee10:repositoryd2:idi351"
        b"29377e4:name11:public-repoe6:senderd5:login15:baxterthehacker2:idi6752317eee"
    )

    def octets(value: Any) -> Any:
        match value:
            case dict():
                return {key.encode(): octets(item) for key, item in value.items()}
            case list():
                return [octets(item) for item in value]
            case str():
                return value.encode()
        return value

    value = octets(json.loads(text))
    assert xenc.decode(encoded) == value
    # The page writes the keys of a member and of the sender in arrival order; we sort them.
    assert xenc.decode(xenc.encode(value)) == value
    assert b"2:idi583231e5:login7:octocat" in xenc.encode(value)


def test_keys_come_in_any_order_and_leave_sorted_bytewise(kernel: Any) -> None:
    value = xenc.decode(b"d2:aai1e1:ai2e1:\xffi3e1:Bi4ee")
    assert xenc.encode(value) == b"d1:Bi4e1:ai2e2:aai1e1:\xffi3ee"


ERRORS = [
    (b"", WireErrorCode.TRUNCATED, 0),
    (b"i", WireErrorCode.TRUNCATED, 1),
    (b"i-", WireErrorCode.TRUNCATED, 2),
    (b"i12", WireErrorCode.TRUNCATED, 3),
    (b"ie", WireErrorCode.BAD_VALUE, 1),
    (b"i-e", WireErrorCode.BAD_VALUE, 2),
    (b"i?e", WireErrorCode.BAD_VALUE, 1),
    (b"i+1e", WireErrorCode.BAD_VALUE, 1),
    (b"i1_0e", WireErrorCode.BAD_VALUE, 2),
    (b"i 1e", WireErrorCode.BAD_VALUE, 1),
    (b"i--1e", WireErrorCode.BAD_VALUE, 2),
    (b"i01e", WireErrorCode.NON_CANONICAL, 1),
    (b"i-0e", WireErrorCode.NON_CANONICAL, 1),
    (b"i-01e", WireErrorCode.NON_CANONICAL, 1),
    (b"i9223372036854775808e", WireErrorCode.BAD_VALUE, 1),
    (b"i-9223372036854775809e", WireErrorCode.BAD_VALUE, 1),
    (b"i" + b"1" * 20, WireErrorCode.BAD_VALUE, 1),
    (b"t5", WireErrorCode.TRUNCATED, 2),
    (b"t5e", WireErrorCode.BAD_VALUE, 2),
    (b"t5.e", WireErrorCode.BAD_VALUE, 3),
    (b"t5.-1e", WireErrorCode.BAD_VALUE, 3),
    (b"t5.01e", WireErrorCode.NON_CANONICAL, 3),
    (b"t5.1000000000e", WireErrorCode.BAD_VALUE, 3),
    (b"t5.", WireErrorCode.TRUNCATED, 3),
    (b"5", WireErrorCode.TRUNCATED, 1),
    (b"5:hell", WireErrorCode.TRUNCATED, 6),
    (b"05:hello", WireErrorCode.NON_CANONICAL, 0),
    (b"5hello", WireErrorCode.BAD_VALUE, 1),
    (b"9223372036854775807:x", WireErrorCode.TRUNCATED, 21),
    (b"9999999999999999999:x", WireErrorCode.BAD_VALUE, 0),
    (b"l", WireErrorCode.TRUNCATED, 1),
    (b"li1e", WireErrorCode.TRUNCATED, 4),
    (b"d", WireErrorCode.TRUNCATED, 1),
    (b"d1:a", WireErrorCode.TRUNCATED, 4),
    (b"d1:ae", WireErrorCode.BAD_TYPE, 4),
    (b"di1ei2ee", WireErrorCode.BAD_TYPE, 1),
    (b"dlei2ee", WireErrorCode.BAD_TYPE, 1),
    (b"d1:ai1e1:ai2ee", WireErrorCode.BAD_VALUE, 7),
    (b"e", WireErrorCode.BAD_TYPE, 0),
    (b"x", WireErrorCode.BAD_TYPE, 0),
    (b"lxe", WireErrorCode.BAD_TYPE, 1),
    (b"i1ei2e", WireErrorCode.TRAILING_DATA, 3),
    (b"lee", WireErrorCode.TRAILING_DATA, 2),
]


@pytest.mark.parametrize(("encoded", "code", "offset"), ERRORS)
def test_errors_name_the_byte_at_fault(
    kernel: Any, encoded: bytes, code: WireErrorCode, offset: int
) -> None:
    with pytest.raises(DecodeError) as caught:
        xenc.decode(encoded)
    assert (caught.value.code, caught.value.offset) == (code, offset)
    assert isinstance(caught.value, Truncated) == (code == WireErrorCode.TRUNCATED)


def test_nesting_is_bounded_and_exhausts_no_stack(kernel: Any) -> None:
    assert xenc.decode(b"l" * 16 + b"e" * 16) is not None
    for opening in (b"l", b"d1:a"):
        with pytest.raises(DecodeError) as caught:
            xenc.decode(opening * 1_000_000)
        assert caught.value.code == WireErrorCode.LIMIT_EXCEEDED
        assert caught.value.offset == 16 * len(opening)
    deep = b"l" * 100_000 + b"e" * 100_000
    value = xenc.decode(deep, depth_max=100_000, values_max=100_000)
    assert xenc.encode(value, depth_max=100_000) == deep
    with pytest.raises(ValueError, match="nested more than 99999 deep"):
        xenc.encode(value, depth_max=99_999)
    while isinstance(value, list) and value:  # freed one by one, as the interpreter cannot
        value = value.pop()


def test_values_are_bounded(kernel: Any) -> None:
    assert xenc.decode(b"l" + b"le" * 9 + b"e", values_max=10) == [[]] * 9
    with pytest.raises(DecodeError) as caught:
        xenc.decode(b"l" + b"le" * 10 + b"e", values_max=10)
    assert (caught.value.code, caught.value.offset) == (WireErrorCode.LIMIT_EXCEEDED, 19)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", TypeError),
        (1.5, TypeError),
        (None, TypeError),
        (True, TypeError),
        ({1: 2}, TypeError),
        ({"a": 2}, TypeError),
        ((1, 2, 3), TypeError),
        ((1, 2.5), TypeError),
        ((1, True), TypeError),
        (2**63, ValueError),
        (-(2**63) - 1, ValueError),
        ((2**63, 0), ValueError),
        (Timestamp(1, -1), ValueError),
        (Timestamp(1, 1_000_000_000), ValueError),
        ([[2**64]], ValueError),
    ],
)
def test_what_has_no_encoding_is_refused(kernel: Any, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        xenc.encode(value)


def test_a_list_that_holds_itself_is_refused(kernel: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested"):
        xenc.encode(loop)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_decodes(kernel: Any, kind: type) -> None:
    assert xenc.decode(kind(b"l5:helloe")) == [b"hello"]


ints = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    ints | st.binary(max_size=12) | st.builds(Timestamp, ints, st.integers(0, 999_999_999)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_round_trip(value: Any) -> None:
    for kernel in _KERNELS:
        encoded = kernel.encode(value, 99)
        assert kernel.decode(encoded, 99, 999, Timestamp) == value
        assert encoded == pure_xenc.encode(value, 99)


def _outcome(kernel: Any, data: bytes) -> Any:
    try:
        return kernel.decode(data, 4, 20, Timestamp)
    except ValueError as error:
        return error.args


@given(values, st.integers(0, 2**32))
def test_the_twins_agree_on_mutated_input(value: Any, seed: int) -> None:
    encoded = bytearray(pure_xenc.encode(value, 99))
    rng = Random(seed)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(encoded) + 1)
        match rng.randrange(3):
            case 0:
                encoded[at:at] = rng.choice([b"0", b"9", b"-", b"e", b":", b"l", b"d", b"t"])
            case 1:
                del encoded[at : at + rng.randrange(1, 4)]
            case _:
                encoded[at : at + 1] = bytes([rng.randrange(256)])
    expected = _outcome(pure_xenc, bytes(encoded))
    for kernel in _KERNELS:
        assert _outcome(kernel, bytes(encoded)) == expected


@given(st.binary(max_size=30) | st.text(alphabet="0123456789ilde:t.-", max_size=30).map(str.encode))
def test_whatever_decodes_encodes_to_an_encoding_of_itself(data: bytes) -> None:
    for kernel in _KERNELS:
        try:
            value = kernel.decode(data, 16, 99, Timestamp)
        except ValueError:
            continue
        assert sorted(kernel.encode(value, 16)) == sorted(data)  # apart from the order of keys


@given(values)
def test_every_prefix_is_truncated_at_its_end(value: Any) -> None:
    encoded = pure_xenc.encode(value, 99)
    for kernel in _KERNELS:
        for size in range(len(encoded)):
            with pytest.raises(ValueError, match="more bytes") as caught:
                kernel.decode(encoded[:size], 99, 999, Timestamp)
            assert caught.value.args[:2] == (WireErrorCode.TRUNCATED, size)
