"""Canonical CBOR: one suite for the compiled kernel and its pure twin, then both side by side."""

from __future__ import annotations

import struct
import tracemalloc
from operator import attrgetter
from types import ModuleType, SimpleNamespace
from typing import Any

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

WORKED: list[tuple[str, Any]] = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("19ffff", 65535),
    ("1a00010000", 65536),
    ("1b0000000100000000", 2**32),
    ("1bffffffffffffffff", 2**64 - 1),
    ("20", -1),
    ("3b7fffffffffffffff", -(2**63)),
    ("3b8000000000000000", -(2**63) - 1),
    ("3bffffffffffffffff", -(2**64)),
    ("40", b""),
    ("4401020304", b"\1\2\3\4"),
    ("60", ""),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("a0", {}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("a262616101616202", {"aa": 1, "b": 2}),
    ("a26062c2a0616100", {"": "\xa0", "a": 0}),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("f90001", 2.0**-24),
    ("fa33000000", 2.0**-25),
    ("fa33c00000", 1.5 * 2.0**-24),
    ("f97bff", 65504.0),
    ("fa47800000", 65536.0),
    ("f9fc00", float("-inf")),
    ("fa7f7fffff", 3.4028234663852886e38),
    ("fb47effffff0000000", 3.4028235677973366e38),
    ("fb3ff199999999999a", 1.1),
]
FAULTS = [
    ("", 0, "TRUNCATED"),
    ("18", 1, "TRUNCATED"),
    ("42ff", 2, "TRUNCATED"),
    ("8201", 2, "TRUNCATED"),
    ("a16161", 3, "TRUNCATED"),
    ("5bffffffffffffffff", 9, "TRUNCATED"),
    ("9bffffffffffffffff", 9, "TRUNCATED"),
    ("bbffffffffffffffff", 9, "TRUNCATED"),
    ("8117", None, None),
    ("811817", 1, "LONG_NUMBER"),
    ("1900ff", 0, "LONG_NUMBER"),
    ("1a0000ffff", 0, "LONG_NUMBER"),
    ("3b00000000ffffffff", 0, "LONG_NUMBER"),
    ("580161", 0, "LONG_NUMBER"),
    ("fa3fc00000", 0, "LONG_FLOAT"),
    ("fa33800000", 0, "LONG_FLOAT"),  # 2 ** -24
    ("fa00000000", 0, "LONG_FLOAT"),
    ("fb3ff8000000000000", 0, "LONG_FLOAT"),
    ("fb7ff0000000000000", 0, "LONG_FLOAT"),
    ("fb47efffffe0000000", 0, "LONG_FLOAT"),  # the largest of 32 bits
    ("fa7fc00000", 0, "LONG_FLOAT"),
    ("fb7ff8000000000000", 0, "LONG_FLOAT"),
    ("f97e01", 0, "LONG_FLOAT"),
    ("f9fe00", 0, "LONG_FLOAT"),
    ("9f01ff", 0, "BAD_HEAD"),
    ("1c", 0, "BAD_HEAD"),
    ("f818", 0, "BAD_HEAD"),
    ("c0", 0, "TAGGED"),
    ("db", 0, "TAGGED"),
    ("f7", 0, "UNKNOWN_SIMPLE"),
    ("e0", 0, "UNKNOWN_SIMPLE"),
    ("a10102", 1, "KEY_NO_TEXT"),
    ("a1410102", 1, "KEY_NO_TEXT"),
    ("a2616201616102", 4, "KEY_ORDER"),
    ("a2616101616102", 4, "KEY_ORDER"),
    ("a262616101616102", 5, "KEY_ORDER"),  # a prefix of the one before
    ("61ff", 1, "NO_UTF8"),
    ("63eda080", 1, "NO_UTF8"),  # a surrogate
]


@pytest.mark.parametrize(("encoded", "value"), WORKED)
def test_worked_values(cbor, encoded, value):
    data = bytes.fromhex(encoded)
    decoded, end = cbor.decode(b"\xff" + data + b"\xff", 1, 2)
    assert (decoded, type(decoded), end) == (value, type(value), 1 + len(data))


@pytest.mark.parametrize(("encoded", "at", "fault"), FAULTS)
def test_worked_faults(cbor, encoded, at, fault):
    data = bytes.fromhex(encoded)
    found = cbor.decode(data, 0, 2)
    if fault is None:
        assert found == ([23], 2)
    else:
        assert found == (at, getattr(cbor, fault))


def test_there_is_one_that_is_not_a_number(cbor):
    value, end = cbor.decode(bytes.fromhex("f97e00"), 0, 0)
    assert value != value
    assert end == 3


def test_depth_is_bounded(cbor):
    for inside in (b"\x00", b"\x80", b"\xa0"):
        data = b"\x81\xa1\x61k" * 2 + inside
        nested = inside != b"\x00"
        assert cbor.decode(data, 0, 4 + nested)[1] == len(data)
        assert cbor.decode(data, 0, 3 + nested) == (
            (8, cbor.TOO_DEEP) if nested else (5, cbor.TOO_DEEP)
        )
    assert cbor.decode(b"\x81" * 100_000, 0, cbor.DEPTH_MAX) == (cbor.DEPTH_MAX, cbor.TOO_DEEP)


def test_wrong_calls_are_raised(cbor):
    for depth_max in (-1, cbor.DEPTH_MAX + 1):
        with pytest.raises(ValueError, match="depth"):
            cbor.decode(b"\x00", 0, depth_max)
    for function in (cbor.head, lambda data, at: cbor.decode(data, at, 1)):
        with pytest.raises(ValueError, match="negative"):
            function(b"\x00", -1)
        for data in (None, "0", 0):
            with pytest.raises(TypeError):
                function(data, 0)


SIZES = (0, 1, 23, 24, 255, 256, 65535, 65536, 1 << 32, (1 << 63) - 1)


class Known:
    """Some of its fields always have the same value."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"Known({self.number})"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(SIZES),
    st.integers(),
    st.binary(max_size=300),
    st.text(max_size=5),
    st.floats(allow_nan=False),
    st.sampled_from([bytearray(b"x"), "\ud800"]),
)


class Part:
    """Is written by its fields; `b` may be anything."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def __repr__(self) -> str:
        return f"Part({self.a!r}, {self.b!r})"


class Single(Part):
    """Has a single field that is written."""


FEW = [Known(number) for number in range(2)]
NESTED = st.recursive(
    VALUES | st.sampled_from([*FEW, Known(7)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Part, inner, inner)
        | st.builds(Single, inner, inner)
    ),
    max_leaves=6,
)


def in_full(value: Any) -> bytes:
    return b"(" + repr(value).encode() + b")"


class Forms(dict[type, Any]):
    def __missing__(self, kind: type) -> Any:
        return in_full


FORMS = Forms(
    {
        list: b"",
        tuple: b"tuple",
        Part: ([b"a", b"b"], attrgetter("a", "b")),
        Single: ([b"1"], attrgetter("a")),
        Known: (tuple((each, b"known %d" % each.number) for each in FEW), in_full),
    }
)


def plainly(value: Any) -> bytes:
    """The written form of a value."""
    kind = type(value)
    known = value is None or kind in (bool, bytes)
    known = known or (kind is int and 0 <= value < 1 << 63)
    known = known or (kind is str and value != "\ud800")
    if known or (kind is float and len(cbor2.dumps(value, canonical=True)) == 9):
        return cbor2.dumps(value)
    if kind in (list, tuple):
        front = b"tuple" if kind is tuple else b""
        return (
            front
            + cbor2.dumps([None] * len(value))[: -len(value) or None]
            + b"".join(map(plainly, value))
        )
    if kind is Part:
        return b"a" + plainly(value.a) + b"b" + plainly(value.b)
    if kind is Single:
        return b"1" + plainly(value.a)
    if any(value is each for each in FEW):
        return b"known %d" % value.number
    return in_full(value)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=3),
            st.lists(st.tuples(st.binary(max_size=20), NESTED), max_size=4),
            st.binary(max_size=3),
        ),
        max_size=3,
    ),
    st.integers(0, 400),
    st.integers(1, 300),
)
def test_records_are_those_of_cbor2(cbor_twins, records, size_max, piece_min):
    for cbor in cbor_twins:
        waiting = cbor.Records(FORMS, None, size_max, piece_min)
        expected = b""
        for head, fields, tail in records:
            fronts, values = [front for front, _ in fields], tuple(value for _, value in fields)
            full = waiting.note(head, fronts, values, tail)
            expected += b"" if head is None else head + b"\0"
            expected += b"".join(front + plainly(value) for front, value in fields) + tail
            assert len(waiting) == len(expected)
            assert full is (len(expected) >= size_max)
        pieces = waiting.take()
        assert b"".join(pieces) == expected
        assert all(pieces)
        assert waiting.take() == []
        assert len(waiting) == 0


def test_wrong_records_are_raised_and_leave_nothing(cbor):
    waiting = cbor.Records({float: repr, object: raising, list: b""}, None, 100, 50)
    assert waiting.put(bytes(40)) is False
    for error, of in (
        (ValueError, (None, [b""], (), b"")),
        (TypeError, (None, None, (), b"")),
        (TypeError, (None, [""], (1,), b"")),
        (TypeError, (None, [b""], (1.5,), b"")),  # which returns no bytes
        (TypeError, (None, [b""], [1], b"")),
        (TypeError, ("", [b""], (1,), b"")),
        (TypeError, (b"", [b""], (1,), "")),
        (KeyError, (b"", [b""], (1j,), b"")),
        (OSError, (b"", [b"", b""], (5, object()), b"")),
        (OSError, (b"", [b"", b"", b""], (bytes(90), 5, object()), b"")),
        (OSError, (b"", [b""], ([bytes(90), bytes(60), object()],), b"")),
    ):
        with pytest.raises(error):
            waiting.note(*of)
        assert len(waiting) == 40
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(RecursionError):
        waiting.note(None, [b""], (nested,), b"")
    with pytest.raises(TypeError):
        waiting.put("")
    assert waiting.put(bytes(90)) is True
    assert waiting.take() == [bytes(40), bytes(90)]


def test_large_bytes_are_not_copied(cbor):
    large = bytes(70_000)
    waiting = cbor.Records({}, None, 100, 1 << 16)
    assert waiting.note(None, [b"a", b"b"], (large, (1 << 63) - 1), b"") is True
    assert waiting.put(b"more")
    first, second, third = waiting.take()
    assert second is large
    assert (first, third) == (b"aZ\x00\x01\x11\x70", b"b\x1b\x7f" + b"\xff" * 7 + b"more")


def test_time_is_told_in_microseconds_since_the_last(cbor):
    times = iter([5, 5.5, 5.5, 4, 4.0000004, 4.0000014, float("inf"), float("nan"), 1, 2])
    waiting = cbor.Records({}, lambda: next(times), 100, 50)
    told = [waiting.micros() for _ in range(5)]
    assert told == [500_000, 0, 0, 0, 1]
    assert waiting.micros() == 1 << 53
    assert [waiting.micros(), waiting.micros()] == [0, 0]
    assert waiting.note(b"(", [b"-"], (7,), b")") is False
    assert waiting.take() == [b"(\x1a\x00\x0f\x42\x40-\x07)"]
    with pytest.raises(StopIteration):
        waiting.note(b"(", [b"-"], (7,), b")")
    assert len(waiting) == 0
    assert cbor.Records({}, None, 1, 1).micros() == 0


def raising(_):
    raise OSError("raised")


def test_beyond_the_end_there_is_too_little(cbor):
    assert cbor.decode(b"\x00", 1, 1) == (1, cbor.TRUNCATED)
    assert cbor.decode(b"\x00", 9, 1) == (1, cbor.TRUNCATED)
    assert cbor.head(b"\x00", 9) == (0, 1, cbor.TRUNCATED)


@given(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2, 3, 4, 5]), st.binary(max_size=3))
def test_heads_are_those_of_cbor2(cbor, number, kind, before):
    encoded = bytearray(cbor2.dumps(number))
    encoded[0] |= kind << 5
    data = before + bytes(encoded)
    assert cbor.head(data, len(before)) == (kind, number, len(data))
    for size in range(len(before), len(data)):
        assert cbor.head(data[:size], len(before)) == (0, size, cbor.TRUNCATED)


@given(st.one_of(*(st.floats(width=width, allow_nan=False) for width in (16, 32, 64))))
@example(-0.0)
@example(2.0**-149)
@example(float("inf"))
def test_a_float_is_taken_in_its_shortest_form_only(cbor, number):
    shortest = cbor2.dumps(number, canonical=True)
    for head, form in ((0xF9, ">e"), (0xFA, ">f"), (0xFB, ">d")):
        try:
            encoded = bytes([head]) + struct.pack(form, number)
        except OverflowError:
            continue
        found = cbor.decode(encoded, 0, 0)
        if len(encoded) > len(shortest):
            assert found == (0, cbor.LONG_FLOAT)
        elif encoded == shortest:
            assert (repr(found[0]), found[1]) == (repr(number), len(encoded))
            assert cbor.head(encoded, 0) == (cbor.OTHER, 0, len(encoded))


@pytest.mark.parametrize("data", [b"\x9b" + b"\x7f" * 8, b"\xbb" + b"\x7f" * 8, b"\x5a\x7f\0\0\0"])
def test_what_is_declared_takes_no_memory(cbor, data):
    tracemalloc.start()
    try:
        for _ in range(100):
            assert cbor.decode(data + bytes(100), 0, 4)[1] < 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats()
    | st.binary()
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def ascending(value: Any) -> bytes:
    """The encoding with keys in the order of text, put together by hand."""
    if isinstance(value, list):
        return head_of(4, len(value)) + b"".join(map(ascending, value))
    if isinstance(value, dict):
        pairs = (ascending(key) + ascending(value[key]) for key in sorted(value))
        return head_of(5, len(value)) + b"".join(pairs)
    return cbor2.dumps(value, canonical=True)


def head_of(kind: int, argument: int) -> bytes:
    encoded = bytearray(cbor2.dumps(argument))
    encoded[0] |= kind << 5
    return bytes(encoded)


@given(values, st.binary(max_size=4))
def test_every_value_comes_back(cbor, value, behind):
    encoded = ascending(value)
    decoded, end = cbor.decode(encoded + behind, 0, 30)
    assert end == len(encoded)
    assert ascending(decoded) == encoded


@given(values, st.binary(max_size=3), st.data(), st.integers(0, 6))
def test_twins_agree_on_changed_encodings(cbor_twins, value, patch, data, depth_max):
    encoded = bytearray(ascending(value))
    at = data.draw(st.integers(0, len(encoded)))
    encoded[at : at + len(patch)] = patch
    assert_same(cbor_twins, bytes(encoded), depth_max)


@given(st.binary(max_size=40), st.integers(0, 6))
def test_twins_agree_on_any_bytes(cbor_twins, data, depth_max):
    assert_same(cbor_twins, data, depth_max)


@given(st.sampled_from([0xF9, 0xFA, 0xFB]), st.binary(min_size=8, max_size=8))
def test_twins_agree_on_floats(cbor_twins, head, octets):
    for fraction in (octets, octets[:2] + bytes(6), octets[:3] + bytes(5), octets[:5] + bytes(3)):
        assert_same(cbor_twins, bytes([head]) + fraction, 0)


def assert_same(twins: tuple[Any, Any], data: bytes, depth_max: int) -> None:
    compiled, pure = twins
    assert repr(compiled.decode(data, 0, depth_max)) == repr(pure.decode(data, 0, depth_max))
    for at in range(len(data) + 1):
        assert compiled.head(data, at) == pure.head(data, at)


class Called:
    """A machine with all calls that are noted; it gives what it was told to, or raises that."""

    def __init__(self, *gives: Any) -> None:
        self.state = SimpleNamespace(name="OPEN")
        self._gives = iter(gives)

    def _give(self, *_: Any, **__: Any) -> Any:
        given = next(self._gives)
        if isinstance(given, Exception):
            raise given
        return given

    next_event = advance = next_deadline = next_effect = receive_data = data_to_send = _give
    receive_datagram = datagrams_to_send = _give


class Tape:
    """Keeps what the calls would write."""

    def __init__(self, cbor: ModuleType, size_max: int) -> None:
        self.waiting = cbor.Records({list: b"", tuple: b""}, None, size_max, 1 << 16)
        self.noted: list[tuple[str, tuple[Any, ...], Exception | None]] = []
        self.full = 0

    def note(
        self, on: int, name: str, arguments: Any, keywords: Any, result: Any, *, error: Any = None
    ) -> None:
        self.noted.append((name, arguments, error))

    def hand_over(self) -> None:
        self.full += 1


_FRONT = [b"<"]
NOTED: dict[str, tuple[Any, ...]] = {
    "next_event": (b"no event;", _FRONT, b"\x87", str.encode, str),
    "advance": (_FRONT, b">"),
    "next_deadline": (_FRONT,),
    "next_effect": (b"no effect;",),
    "receive_data": (b"\x86", _FRONT, b">"),
    "data_to_send": (b"no data;", b"\x86", _FRONT, [b"<", b","]),
    "receive_datagram": (b"\x86", [b"<", b","], b">"),
    "datagrams_to_send": (b"no datagrams;", b"\x86", _FRONT),
}
CALLS: list[tuple[str, Any, tuple[Any, ...], dict[str, Any], bytes]] = [
    ("next_event", None, (), {}, b"no event;"),
    ("next_event", 7, (), {}, b"\x87\0<\x07OPEN"),
    ("advance", None, (5,), {}, b"<\x05>"),
    ("next_deadline", 6, (), {}, b"<\x06"),
    ("next_effect", None, (), {}, b"no effect;"),
    ("next_effect", 9, (), {}, b""),
    ("receive_data", None, (b"ab",), {}, b"\x86\0<\x42ab>"),
    ("receive_data", None, (memoryview(b"abcd")[::2],), {}, b"\x86\0<\x42ac>"),
    ("data_to_send", b"", (), {}, b"no data;"),
    ("data_to_send", b"c", (), {}, b"\x86\0<\x41c"),
    ("data_to_send", b"", (4,), {}, b"\x86\0<\x04,\x40"),
    ("receive_datagram", None, (b"d",), {"source": 1}, b"\x86\0<\x41d,\x01>"),
    ("datagrams_to_send", [], (), {}, b"no datagrams;"),
    ("datagrams_to_send", [(1, b"e")], (), {}, b"\x86\0<\x81\x82\x01\x41e"),
]


@pytest.mark.parametrize(("name", "given", "arguments", "keywords", "written"), CALLS)
def test_noted_calls(
    cbor: ModuleType,
    name: str,
    given: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    written: bytes,
) -> None:
    tape = Tape(cbor, 1)
    calls = cbor.noted_calls(Called(given, given), tape, NOTED)
    assert set(calls) == set(NOTED)
    assert calls[name](*arguments, **keywords) == given
    assert b"".join(tape.waiting.take()) == written
    assert tape.full == (written != b"")
    assert tape.noted == ([("next_effect", (), None)] if given == 9 else [])
    again = written if name != "next_deadline" else b""  # it has not changed
    calls[name](*arguments, **keywords)
    assert b"".join(tape.waiting.take()) == again


@pytest.mark.parametrize(
    "name", ["next_event", "advance", "receive_data", "data_to_send", "receive_datagram"]
)
def test_noted_calls_that_raise(cbor: ModuleType, name: str) -> None:
    tape, error = Tape(cbor, 1), ArithmeticError()
    call = cbor.noted_calls(Called(error), tape, NOTED)[name]
    arguments = {"next_event": (), "data_to_send": (3,)}.get(name, (b"x",))
    with pytest.raises(ArithmeticError):
        call(*arguments, **({"source": 1} if name == "receive_datagram" else {}))
    assert tape.noted == [(name, arguments, error)]
    assert tape.waiting.take() == []


def test_a_record_is_handed_over_after_the_last_event(cbor: ModuleType) -> None:
    tape = Tape(cbor, 1 << 16)
    calls = cbor.noted_calls(Called(7, "closed"), tape, NOTED)
    calls["next_event"]()
    assert tape.full == 0
    calls["next_event"]()
    assert tape.full == 1


def test_calls_that_a_machine_has_not_are_left_out(cbor: ModuleType) -> None:
    assert set(cbor.noted_calls(SimpleNamespace(advance=print), Tape(cbor, 1), NOTED)) == {
        "advance"
    }
