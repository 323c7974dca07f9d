"""Operations and plain data, there and back."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.machine import Closed, LocalProtocolError, RemoteProtocolError
from culm.machines.operations import (
    Advance,
    BadOperationError,
    Call,
    Complete,
    Eof,
    Receive,
    ReceiveDatagram,
    call,
    operation_from_json,
    operation_to_json,
)
from culm.machines.plain import from_plain, hashable, plain_error, to_plain
from toy_machines import Keep, LineReceived, ToyErrorCode

text = st.text(max_size=5)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | text.filter(lambda s: s not in {"hex", "float"})
    | st.binary(max_size=8)
)
keys = text.filter(lambda s: s not in {"hex", "float"})
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)
operations = st.one_of(
    st.builds(Receive, st.binary(), st.none() | st.integers()),
    st.builds(Eof, st.none() | st.integers()),
    st.builds(ReceiveDatagram, st.binary(), st.text() | st.tuples(st.text(), st.integers())),
    st.builds(Advance, st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(Call, st.text(), st.dictionaries(keys, values, max_size=3)),
    st.builds(Complete, st.integers(), values),
)


@given(operations)
def test_operations_survive_the_way_through_json(operation: Any) -> None:
    line = json.dumps(operation_to_json(operation))
    assert operation_from_json(json.loads(line)) == operation


@given(values)
def test_plain_data_can_be_read_back(value: Any) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(value)))) == value


def test_operations_are_written_as_the_issue_writes_them() -> None:
    written = {
        '{"op": "receive", "hex": "00ff"}': Receive(b"\x00\xff"),
        '{"op": "eof"}': Eof(),
        '{"op": "datagram", "source": ["::1", 9], "hex": "01"}': ReceiveDatagram(
            b"\x01", ("::1", 9)
        ),
        '{"op": "advance", "now": 1.5}': Advance(1.5),
        '{"op": "call", "method": "say", "args": {"text": {"hex": "61"}}}': call("say", text=b"a"),
        '{"op": "complete", "ticket": 3, "result": {"hex": ""}}': Complete(3, b""),
    }
    for line, operation in written.items():
        assert operation_from_json(json.loads(line)) == operation
        assert json.dumps(operation_to_json(operation)) == line
    assert operation_from_json({"op": "call", "method": "close"}) == call("close")
    assert operation_from_json({"op": "complete", "ticket": 1}) == Complete(1, None)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([], "a JSON object"),
        (None, "a JSON object"),
        ({}, "op must be one of"),
        ({"op": "explode"}, "not 'explode'"),
        ({"op": ["receive"]}, "op must be one of"),
        ({"op": "receive"}, "receive needs 'hex'"),
        ({"op": "receive", "hex": 5}, "hexadecimal"),
        ({"op": "receive", "hex": "0"}, "receive: "),
        ({"op": "receive", "hex": "zz"}, "receive: "),
        ({"op": "datagram", "hex": ""}, "needs 'source'"),
        ({"op": "advance", "now": "soon"}, "no number"),
        ({"op": "advance", "now": True}, "no number"),
        ({"op": "advance", "now": float("nan")}, "no time"),
        ({"op": "advance", "now": float("inf")}, "no time"),
        ({"op": "call"}, "call needs 'method'"),
        ({"op": "call", "method": 3}, "no method name"),
        ({"op": "call", "method": "x", "args": []}, "args must be an object"),
        ({"op": "call", "method": "x", "args": {"a": {"hex": "q"}}}, "call: "),
        ({"op": "complete", "ticket": "1"}, "no ticket"),
        ({"op": "complete", "ticket": False}, "no ticket"),
    ],
)
def test_what_is_no_operation_is_said_to_be_none(value: Any, complaint: str) -> None:
    with pytest.raises(BadOperationError, match=complaint):
        operation_from_json(value)


class Colour(Enum):
    RED = "r"


class Level(IntEnum):
    HIGH = 3


class Bits(Flag):
    A = auto()
    B = auto()


@dataclass
class Inner:
    data: bytes


@dataclass
class Outer:
    inner: Inner
    tags: tuple[str, ...]


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "RED"),
        (Level.HIGH, "HIGH"),
        (Bits.A | Bits.B, "A|B"),
        (bytearray(b"\x01"), {"hex": "01"}),
        (memoryview(b"\x02"), {"hex": "02"}),
        (float("inf"), {"float": "inf"}),
        ((1, b"\x03"), [1, {"hex": "03"}]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset([2]), [2]),
        (OrderedDict(a=b"\x04"), {"a": {"hex": "04"}}),
        ({1: "one", b"\x05": 2}, {"pairs": [[1, "one"], [{"hex": "05"}, 2]]}),
        (
            Outer(Inner(b"\x06"), ("t",)),
            {
                "type": "Outer",
                "fields": {
                    "inner": {"type": "Inner", "fields": {"data": {"hex": "06"}}},
                    "tags": ["t"],
                },
            },
        ),
        (LineReceived(text=b"a"), {"event": "LineReceived", "fields": {"text": {"hex": "61"}}}),
        (
            Keep(ticket=1, text=b"a"),
            {"effect": "Keep", "fields": {"ticket": 1, "text": {"hex": "61"}}},
        ),
        (Opaque(), {"type": "Opaque"}),
        (Inner, {"type": "type"}),
    ],
)
def test_values_have_a_plain_form(value: object, plain: object) -> None:
    assert to_plain(value) == plain
    json.dumps(to_plain(value))


def test_errors_are_told_by_type_code_and_message() -> None:
    assert plain_error(LocalProtocolError(ToyErrorCode.CLOSING, "late")) == {
        "type": "LocalProtocolError",
        "code": "CLOSING",
        "message": "late",
    }
    assert plain_error(ValueError("wrong")) == {
        "type": "ValueError",
        "code": None,
        "message": "wrong",
    }
    assert to_plain(Closed(error=RemoteProtocolError(ToyErrorCode.CUT_SHORT))) == {
        "event": "Closed",
        "fields": {"error": {"type": "RemoteProtocolError", "code": "CUT_SHORT", "message": ""}},
    }


def test_lists_become_keys() -> None:
    assert hashable([1, ["a", [2]]]) == (1, ("a", (2,)))
    assert hashable("x") == "x"
