"""Operations: their encoding, refusals, and the types of schemas."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.p2panda import Action, FieldType, InvalidOperation, Kind, Operation, Reason, Schema
from culm.p2panda.operation import check_operation, decode
from culm.p2panda.schema import SYSTEM_SCHEMAS, SchemaId, schema_order
from culm.wire import cbor
from culm.wire.multihash import YASMF

SCHEMA = "person_" + YASMF.hash(b"schema").hex()
ONE, TWO = sorted((YASMF.hash(b"one"), YASMF.hash(b"two")))


def array(*items: Any) -> bytes:
    """An array whose maps keep their keys as given."""

    def encode(item: Any) -> bytes:
        if isinstance(item, dict):
            pairs = (cbor.encode(part) for pair in item.items() for part in pair)
            return cbor.encode_head(5, len(item)) + b"".join(pairs)
        return cbor.encode(item)

    return cbor.encode_head(4, len(items)) + b"".join(map(encode, items))


def reason_of(encoded: bytes) -> Reason:
    with pytest.raises(InvalidOperation) as caught:
        decode(encoded)
    return caught.value.reason


def test_op1_an_operation_is_an_array_of_version_action_schema_previous_and_fields():
    create = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"age": 7})
    update = Operation(action=Action.UPDATE, schema_id=SCHEMA, previous=(ONE,), fields={"age": 8})
    delete = Operation(action=Action.DELETE, schema_id=SCHEMA, previous=(ONE, TWO))
    assert create.encode() == array(1, 0, SCHEMA, {"age": 7})
    assert update.encode() == array(1, 1, SCHEMA, [ONE], {"age": 8})
    assert delete.encode() == array(1, 2, SCHEMA, [ONE, TWO])
    for operation in (create, update, delete):
        assert decode(operation.encode()) == operation
        assert decode(operation.encode()).encode() == operation.encode()


def test_op1_there_are_no_additional_items():
    assert reason_of(array(1, 0, SCHEMA, {"age": 7}, 0)) is Reason.WRONG_FORM
    assert reason_of(array(1, 2, SCHEMA, [ONE], {})) is Reason.WRONG_FORM
    assert reason_of(array(1, 1, SCHEMA, [ONE], {}, 0)) is Reason.WRONG_FORM
    assert reason_of(array(1, 0, SCHEMA)) is Reason.WRONG_FORM
    assert reason_of(cbor.encode("no array")) is Reason.WRONG_FORM
    assert reason_of(array(1, 0, SCHEMA, {"age": 7}) + b"\0") is Reason.NOT_CANONICAL


@pytest.mark.parametrize("version", [0, 2, 2**64 - 1, -1, "1", 1.0, True, None])
def test_op2_the_version_is_1(version: Any):
    assert reason_of(array(version, 0, SCHEMA, {"age": 7})) is Reason.UNKNOWN_VERSION


@pytest.mark.parametrize("action", [3, 2**64 - 1, -1, "create", 0.0, False, None])
def test_op3_the_action_is_one_of_three(action: Any):
    assert reason_of(array(1, action, SCHEMA, {"age": 7})) is Reason.UNKNOWN_ACTION


@pytest.mark.parametrize(
    "schema_id",
    [
        "",
        "p_" + ONE.hex(),  # a name has two characters
        "x" * 65 + "_" + ONE.hex(),
        "1person_" + ONE.hex(),
        "person__" + ONE.hex(),
        "person",
        "person_v1",
        "person_" + ONE.hex().upper(),
        "person_" + ONE.hex()[:-2],
        f"person_{TWO.hex()}_{ONE.hex()}",
        f"person_{ONE.hex()}_{ONE.hex()}",
        "schema_definition_v0",
        "schema_definition_v01",
        "schema_definition_v1 ",
        "schema_definition_v1\n",
        7,
        None,
    ],
)
def test_op4_every_operation_has_a_schema_id(schema_id: Any):
    assert reason_of(array(1, 0, schema_id, {"age": 7})) is Reason.BAD_SCHEMA_ID


@pytest.mark.parametrize(
    "schema_id",
    [
        SCHEMA,
        "ab_" + ONE.hex(),
        "x" * 64 + "_" + ONE.hex(),
        f"a_b_c_{ONE.hex()}_{TWO.hex()}",
        *SYSTEM_SCHEMAS,
        "schema_definition_v2",
    ],
)
def test_schema_ids_go_both_ways(schema_id: str):
    assert str(SchemaId.parse(schema_id)) == schema_id


def test_op5_updates_and_deletions_have_previous_and_creations_have_none():
    for encoded in (
        array(1, 1, SCHEMA, [], {"age": 7}),
        array(1, 2, SCHEMA, []),
        array(1, 2, SCHEMA, ONE),
        array(1, 2, SCHEMA, [TWO, ONE]),
        array(1, 2, SCHEMA, [ONE, ONE]),
        array(1, 2, SCHEMA, [ONE.hex()]),
        array(1, 2, SCHEMA, [ONE[:-1]]),
        array(1, 2, SCHEMA, [b"\1" + ONE[1:]]),
        array(1, 2, SCHEMA, [[ONE]]),
    ):
        assert reason_of(encoded) is Reason.BAD_PREVIOUS
    assert reason_of(array(1, 0, SCHEMA, [ONE], {"age": 7})) is Reason.WRONG_FORM
    for wrong in ({"previous": (ONE,)}, {"action": Action.UPDATE}, {"action": Action.DELETE}):
        with pytest.raises(InvalidOperation):
            Operation(**{"action": Action.CREATE, "schema_id": SCHEMA, **wrong})


def test_op6_a_deletion_has_no_fields():
    with pytest.raises(InvalidOperation) as caught:
        Operation(action=Action.DELETE, schema_id=SCHEMA, previous=(ONE,), fields={"age": 1})
    assert caught.value.reason is Reason.WRONG_FORM


PERSON = Schema(
    SCHEMA,
    {
        "age": FieldType(Kind.INT),
        "alive": FieldType(Kind.BOOL),
        "blob": FieldType(Kind.BYTES),
        "friend": FieldType(Kind.RELATION, SCHEMA),
        "friends": FieldType(Kind.RELATION_LIST, SCHEMA),
        "height": FieldType(Kind.FLOAT),
        "name": FieldType(Kind.STR),
        "pin": FieldType(Kind.PINNED_RELATION, SCHEMA),
        "pins": FieldType(Kind.PINNED_RELATION_LIST, SCHEMA),
    },
)
FIELDS: Mapping[str, Any] = {
    "age": 7,
    "alive": True,
    "blob": b"\0\1",
    "friend": ONE,
    "friends": (TWO, ONE, TWO),
    "height": 1.75,
    "name": "Panda",
    "pin": (ONE, TWO),
    "pins": ((ONE,), (ONE, TWO)),
}


def checked(fields: Mapping[str, Any], action: Action = Action.CREATE) -> Reason | None:
    previous = () if action is Action.CREATE else (ONE,)
    operation = Operation(action=action, schema_id=SCHEMA, previous=previous, fields=fields)
    operation = decode(operation.encode())
    try:
        check_operation(operation, PERSON)
    except InvalidOperation as error:
        return error.reason
    return None


def test_op6_a_creation_has_all_fields_and_an_update_any():
    assert checked(FIELDS) is None
    for name in FIELDS:
        others = {other: value for other, value in FIELDS.items() if other != name}
        assert checked(others) is Reason.MISSING_FIELD
        assert checked(others, Action.UPDATE) is None
    assert checked({}, Action.DELETE) is None
    assert checked({**FIELDS, "more": 1}) is Reason.UNKNOWN_FIELD
    assert checked({"more": 1}, Action.UPDATE) is Reason.UNKNOWN_FIELD


def test_op7_values_are_what_the_schema_makes_of_them():
    assert checked({"friends": (), "pins": ()}, Action.UPDATE) is None
    assert checked({"blob": ONE, "friend": TWO}, Action.UPDATE) is None
    assert checked({"friends": (ONE, TWO), "pin": (ONE, TWO)}, Action.UPDATE) is None


@pytest.mark.parametrize("name", FIELDS)
def test_op8_the_type_of_a_value_is_that_of_its_field(name: str):
    suiting = {
        Kind.BYTES: {Kind.BYTES, Kind.RELATION},
        Kind.RELATION_LIST: {Kind.RELATION_LIST, Kind.PINNED_RELATION},
    }
    kind = PERSON.fields[name].kind
    for other, value in FIELDS.items():
        suits = PERSON.fields[other].kind in suiting.get(kind, {kind})
        assert checked({name: value}, Action.UPDATE) is (None if suits else Reason.WRONG_TYPE)
    assert checked({"pin": (TWO, ONE)}, Action.UPDATE) is Reason.WRONG_TYPE
    assert checked({"pin": ()}, Action.UPDATE) is Reason.WRONG_TYPE


def test_a_schema_checks_its_own_operations_only():
    operation = Operation(action=Action.CREATE, schema_id="blob_piece_v1", fields={"data": b""})
    check_operation(operation, SYSTEM_SCHEMAS["blob_piece_v1"])
    with pytest.raises(InvalidOperation) as caught:
        check_operation(operation, PERSON)
    assert caught.value.reason is Reason.WRONG_SCHEMA


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (1.75, "f93f00"),
        (65504.0, "f97bff"),
        (100000.0, "fa47c35000"),
        (0.1, "fb3fb999999999999a"),
        (math.inf, "f97c00"),
        (-1, "20"),
        (2**63 - 1, "1b7fffffffffffffff"),
        (-(2**63), "3b7fffffffffffffff"),
        ((), "80"),
        (True, "f5"),
    ],
)
def test_values_have_the_encodings_of_p2panda_rs(value: Any, encoded: str):
    operation = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"a": value})
    assert operation.encode().endswith(bytes.fromhex("a16161" + encoded))
    assert decode(operation.encode()) == operation


def test_not_a_number_goes_both_ways():
    operation = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"a": math.nan})
    assert decode(operation.encode()).encode() == operation.encode()
    assert operation.encode().endswith(bytes.fromhex("f97e00"))


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        None,
        {"a": 1},
        ["text"],
        [ONE, [ONE]],
        [ONE, 7],
        [ONE[:-1]],
        [[]],
        [[TWO, ONE]],
        [[ONE, ONE]],
        [[[ONE]]],
    ],
)
def test_values_of_no_type_are_refused(value: Any):
    assert reason_of(array(1, 0, SCHEMA, {"a": value})) in (Reason.BAD_VALUE, Reason.NOT_CANONICAL)
    with pytest.raises(InvalidOperation):
        Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"a": value})


def test_keys_of_fields_ascend_by_plain_text_order():
    assert decode(array(1, 0, SCHEMA, {"aa": 1, "b": 2})).fields == {"aa": 1, "b": 2}
    assert reason_of(array(1, 0, SCHEMA, {"b": 2, "aa": 1})) is Reason.NOT_CANONICAL
    assert reason_of(array(1, 0, SCHEMA, {1: 2})) is Reason.NOT_CANONICAL
    given = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"b": 2, "aa": 1})
    assert list(given.fields) == ["aa", "b"]


@pytest.mark.parametrize("name", ["", "1a", "_a", "a-b", "ä", "a" * 65, "a\n"])
def test_names_of_fields_are_checked(name: str):
    assert reason_of(array(1, 0, SCHEMA, {name: 1})) is Reason.BAD_FIELD_NAME


def test_there_are_at_most_1024_fields():
    fields = {f"a{number:04}": 0 for number in range(1025)}
    assert reason_of(array(1, 0, SCHEMA, fields)) is Reason.WRONG_FORM
    del fields["a0000"]
    assert len(decode(array(1, 0, SCHEMA, fields)).fields) == 1024


@pytest.mark.parametrize("fields", [1, 1024])
@pytest.mark.parametrize("views", [0, 1, 300])
def test_lists_of_pinned_relations_may_be_as_long_as_one_likes(fields: int, views: int):
    values = {f"f{number:04}": (((ONE,),) * views) for number in range(fields)}
    operation = Operation(action=Action.CREATE, schema_id=SCHEMA, fields=values)
    assert decode(operation.encode()) == operation


@pytest.mark.parametrize("item", ["80", "a0", "8180", "40", "01"])
def test_an_operation_has_no_more_items_than_its_fields_and_ids(item: str):
    """So that no tree of them is made, each item of which takes as much memory as 64 bytes."""
    items = [cbor.decode(bytes.fromhex(item))] * 10_000
    for value in (items, [items], [[[ONE]], items]):
        encoded = array(1, 0, SCHEMA, {"a": value})
        tracemalloc.start()
        try:
            assert reason_of(encoded) in (Reason.BAD_VALUE, Reason.NOT_CANONICAL)
            assert tracemalloc.get_traced_memory()[1] < 20 * len(encoded)
        finally:
            tracemalloc.stop()


def test_a_float_in_too_many_bytes_and_indefinite_lengths_are_refused():
    """p2panda-rs accepts all of these."""
    plain = array(1, 0, SCHEMA, {"a": 1.5})
    wide = plain[:-3] + bytes.fromhex("fb3ff8000000000000")
    assert reason_of(wide) is Reason.NOT_CANONICAL
    assert reason_of(b"\x9f" + plain[1:] + b"\xff") is Reason.NOT_CANONICAL
    assert reason_of(plain[:1] + b"\x18\x01" + plain[2:]) is Reason.NOT_CANONICAL
    assert reason_of(plain[:-6] + b"\xbf" + plain[-5:] + b"\xff") is Reason.NOT_CANONICAL


@given(st.binary(max_size=4), st.data())
def test_whatever_comes_is_an_operation_or_refused_with_a_reason(patch: bytes, data: st.DataObject):
    encoded = bytearray(array(1, 1, SCHEMA, [ONE, TWO], {"a": 1.5, "b": "text", "c": [ONE]}))
    at = data.draw(st.integers(0, len(encoded)))
    encoded[at : at + data.draw(st.integers(0, 3))] = patch
    try:
        operation = decode(encoded)
    except InvalidOperation:
        return
    assert operation.encode() == encoded
    rebuilt = Operation(
        action=operation.action,
        schema_id=operation.schema_id,
        previous=operation.previous,
        fields=operation.fields,
    )
    assert rebuilt.encode() == encoded


@pytest.mark.parametrize("text", ["bool", "int", "float", "str", "bytes"])
def test_plain_field_types_go_both_ways(text: str):
    assert str(FieldType.parse(text)) == text


def test_relations_name_a_schema():
    for kind in ("relation", "relation_list", "pinned_relation", "pinned_relation_list"):
        assert str(FieldType.parse(f"{kind}({SCHEMA})")) == f"{kind}({SCHEMA})"
        for wrong in (kind, f"{kind}()", f"{kind}(nothing)", f"{kind}({SCHEMA}", f"bool({SCHEMA})"):
            with pytest.raises(InvalidOperation):
                FieldType.parse(wrong)
    with pytest.raises(InvalidOperation):
        FieldType.parse("number")


def test_a_schema_has_fields_but_not_too_many():
    whole = FieldType(Kind.INT)
    for names in ([], [f"a{number}" for number in range(1025)], ["1a"]):
        with pytest.raises(InvalidOperation):
            Schema(SCHEMA, dict.fromkeys(names, whole))


def test_system_schemas_stand_first_in_the_order_of_announcements():
    ids = ["aaa_" + ONE.hex(), "blob_piece_v1", "blob_v1", "schema_field_definition_v1", SCHEMA]
    ids.append("schema_definition_v1")
    assert sorted(ids, key=schema_order) == [
        "schema_definition_v1",
        "schema_field_definition_v1",
        "blob_v1",
        "blob_piece_v1",
        "aaa_" + ONE.hex(),
        SCHEMA,
    ]


def test_wrong_arguments_are_refused_at_once():
    for wrong in (
        {"action": 0},
        {"schema_id": 7},
        {"fields": [("age", 1)]},
        {"fields": {1: 2, "a": 1}},
        {"previous": 7},
        {"previous": "text"},
    ):
        with pytest.raises((TypeError, ValueError)):
            Operation(**{"action": Action.CREATE, "schema_id": SCHEMA, **wrong})
