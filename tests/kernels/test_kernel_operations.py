"""Operations: one suite for the compiled kernel and its pure twin, then both side by side."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

SCHEMA = "blob_v1"


def id_of(number: int) -> bytes:
    return b"\x00\x20" + number.to_bytes(32, "big")


ONE, TWO = id_of(1), id_of(2)

READ: list[tuple[list[Any], Any]] = [
    ([1, 0, SCHEMA, {}], (0, SCHEMA, (), {})),
    ([1, 2, SCHEMA, [ONE]], (2, SCHEMA, (ONE,), {})),
    ([1, 1, SCHEMA, [ONE, TWO], {"a": 1}], (1, SCHEMA, (ONE, TWO), {"a": 1})),
    ([1, 1, SCHEMA, (ONE, TWO), {}], (1, SCHEMA, (ONE, TWO), {})),
    (
        [1, 0, SCHEMA, {"a": 2**63 - 1, "b": -(2**63), "c": True, "d": 0.5, "e": "", "f": b""}],
        (0, SCHEMA, (), {"a": 2**63 - 1, "b": -(2**63), "c": True, "d": 0.5, "e": "", "f": b""}),
    ),
    (
        [1, 0, SCHEMA, {"a": [], "b": [TWO, ONE, ONE], "c": [[ONE], [ONE, TWO]]}],
        (0, SCHEMA, (), {"a": (), "b": (TWO, ONE, ONE), "c": ((ONE,), (ONE, TWO))}),
    ),
]
FAULTS: list[tuple[Any, str, Any, str | None]] = [
    (None, "NO_ARRAY", None, None),
    ({}, "NO_ARRAY", None, None),
    ((1, 0, SCHEMA, {}), "NO_ARRAY", None, None),
    ([1, 0, SCHEMA], "NO_ARRAY", None, None),
    ([1, 0, SCHEMA, {}, 0, 0], "NO_ARRAY", None, None),
    ([2, 0, SCHEMA, {}], "UNKNOWN_VERSION", 2, None),
    ([True, 0, SCHEMA, {}], "UNKNOWN_VERSION", True, None),
    ([1.0, 0, SCHEMA, {}], "UNKNOWN_VERSION", 1.0, None),
    ([2**64, 0, SCHEMA, {}], "UNKNOWN_VERSION", 2**64, None),
    ([1, 3, SCHEMA, {}], "UNKNOWN_ACTION", 3, None),
    ([1, -1, SCHEMA, {}], "UNKNOWN_ACTION", -1, None),
    ([1, -(2**64), SCHEMA, {}], "UNKNOWN_ACTION", -(2**64), None),
    ([1, False, SCHEMA, {}], "UNKNOWN_ACTION", False, None),
    ([1, 0, SCHEMA, [ONE], {}], "WRONG_COUNT", 0, None),
    ([1, 1, SCHEMA, [ONE]], "WRONG_COUNT", 1, None),
    ([1, 2, SCHEMA, [ONE], {}], "WRONG_COUNT", 2, None),
    ([1, 0, b"", {}], "NO_SCHEMA_ID", None, None),
    ([1, 2, "", None], "NO_PREVIOUS", None, ""),
    ([1, 2, "", []], "NO_PREVIOUS", None, ""),
    ([1, 2, "", ONE], "NO_PREVIOUS", None, ""),
    ([1, 2, "", [ONE, ONE[:-1]]], "NO_PREVIOUS", None, ""),
    ([1, 2, "", [ONE, bytearray(TWO)]], "NO_PREVIOUS", None, ""),
    ([1, 2, "", [b"\x00\x21" + bytes(32)]], "NO_PREVIOUS", None, ""),
    ([1, 2, "", [b"\x01\x20" + bytes(32)]], "NO_PREVIOUS", None, ""),
    ([1, 2, "", [ONE, ONE]], "PREVIOUS_ORDER", None, ""),
    ([1, 2, "", [ONE, TWO, ONE]], "PREVIOUS_ORDER", None, ""),
    ([1, 0, "", [ONE]], "NO_FIELDS", None, ""),
    ([1, 1, "", [ONE], None], "NO_FIELDS", None, ""),
    ([1, 0, "", {f"a{number}": 0 for number in range(1025)}], "FIELD_COUNT", 1025, ""),
    ([1, 0, "", {"a": 0, "": 0}], "FIELD_NAME", "", ""),
    ([1, 0, "", {"1": 0}], "FIELD_NAME", "1", ""),
    ([1, 0, "", {b"a": 0}], "FIELD_NAME", b"a", ""),
    ([1, 0, "", {"a": 2**63}], "FIELD_RANGE", "a", ""),
    ([1, 0, "", {"a": -(2**63) - 1}], "FIELD_RANGE", "a", ""),
    ([1, 0, "", {"a": None}], "FIELD_TYPE", "a", ""),
    ([1, 0, "", {"a": {}}], "FIELD_TYPE", "a", ""),
    ([1, 0, "", {"a": [0]}], "FIELD_TYPE", "a", ""),
    ([1, 0, "", {"a": [ONE, [ONE]]}], "FIELD_TYPE", "a", ""),
    ([1, 0, "", {"a": [[]]}], "FIELD_TYPE", "a", ""),
    ([1, 0, "", {"a": [[TWO, ONE]]}], "FIELD_TYPE", "a", ""),
    ([1, 0, "", {"a": [[[ONE]]]}], "FIELD_TYPE", "a", ""),
]


@pytest.mark.parametrize(("items", "parts"), READ)
def test_operations_are_taken_apart(operations, items, parts):
    items = copy.deepcopy(items)
    found = operations.read(items)
    assert repr(found) == repr(parts)
    if items[1] != operations.DELETE:
        assert found[3] is items[-1]


@pytest.mark.parametrize(("items", "fault", "detail", "schema_id"), FAULTS)
def test_faults_are_told_with_what_they_are_about(operations, items, fault, detail, schema_id):
    found = operations.read(copy.deepcopy(items))
    assert repr(found) == repr((getattr(operations, fault), detail, schema_id))


def test_of_several_faults_the_first_is_told(operations):
    items = [2, 9, None, [], {"": None, "a": 2**64}]
    for place, right, fault in [
        (0, 1, "UNKNOWN_VERSION"),
        (1, 1, "UNKNOWN_ACTION"),
        (2, SCHEMA, "NO_SCHEMA_ID"),
        (3, [ONE], "NO_PREVIOUS"),
        (4, {"a": 2**64, "": None}, "FIELD_NAME"),
    ]:
        assert operations.read(items)[0] == getattr(operations, fault)
        items[place] = right
    assert operations.read(items)[0] == operations.FIELD_RANGE


@pytest.mark.parametrize(
    ("name", "right"),
    [
        *((name, True) for name in ("a", "Z", "a_", "a9", "aZ_0", "a" * 64)),
        *(
            (name, False)
            for name in ("", "_", "9", "a" * 65, "a-", "a\n", "\xe4", "a\xe4", "a\u0661")
        ),
        (None, False),
        (b"a", False),
    ],
)
def test_names_of_fields(operations, name, right):
    assert operations.is_field_name(name) is right


@pytest.mark.parametrize(
    "value", [None, "", bytearray(ONE), ONE + b"\0", ONE[:-1], ONE[1:] + b"\0"]
)
def test_what_is_no_operation_id(operations, value):
    assert operations.is_operation_id(ONE) is True
    assert operations.is_operation_id(value) is False


ids = st.integers(0, 3).map(id_of)
near_ids = ids | st.sampled_from([b"", ONE[:-1], b"\x01" + ONE[1:], bytearray(ONE), "a", None])
numbers = st.sampled_from([0, 1, 2, 3, -1, True, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**70])
names = st.sampled_from(["a", "b", "A9_", "", "9", "a" * 64, "a" * 65, "\xe4", "a ", b"a", 1])
lists = st.lists(near_ids, max_size=3) | st.lists(st.lists(near_ids, max_size=3), max_size=3)
anything = st.one_of(
    numbers, lists, lists.map(tuple), st.none(), st.floats(), st.text(max_size=2), near_ids
)
fields = st.dictionaries(names, anything, max_size=4)
items = st.tuples(
    st.just(1) | anything,
    st.integers(0, 2) | anything,
    st.just(SCHEMA) | anything,
    lists | fields | anything,
).map(list) | st.tuples(
    st.just(1), st.integers(0, 2), st.just(SCHEMA), lists | anything, fields | anything
).map(list)


@given(items | anything)
@example([1, 0, SCHEMA, {"a": [ONE, 0]}])
@example([1, 1, SCHEMA, [ONE], {"a": [[ONE], []], "b": [TWO]}])
def test_twins_agree(operations_twins, value):
    compiled, pure = operations_twins
    one, other = copy.deepcopy(value), copy.deepcopy(value)
    assert repr(compiled.read(one)) == repr(pure.read(other))
    assert repr(one) == repr(other)  # the rest that they leave of a map


@given(anything | names | st.text(max_size=3))
def test_twins_agree_on_names_and_ids(operations_twins, value):
    compiled, pure = operations_twins
    assert compiled.is_field_name(value) is pure.is_field_name(value)
    assert compiled.is_operation_id(value) is pure.is_operation_id(value)
