"""Messages: their bytes in both dialects, and refusals with their times."""

from __future__ import annotations

from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo import LogKey
from culm.buffer import ReceiveBuffer
from culm.machine import RemoteProtocolError
from culm.p2panda import ErrorCode
from culm.p2panda.codec import Codec, Dialect, Framer
from culm.p2panda.heights import (
    ITEM_SIZE_MAX,
    ITEM_SIZE_MIN,
    Height,
    decode_item,
    encode_item,
)
from culm.p2panda.limits import Limits
from culm.p2panda.messages import (
    Announce,
    Done,
    EmptyPayload,
    EmptySet,
    Fingerprint,
    Have,
    LowerBound,
    Message,
    Payload,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
    Terminal,
)
from culm.reconcile import named
from culm.wire import cbor

ONE, TWO = LogKey(bytes(range(32)), 0), LogKey(b"\xff" * 32, 300)
LOW, HIGH = encode_item(ONE, 1), encode_item(TWO, 2**64 - 1)
KEYS = ONE.author.hex(), TWO.author.hex()
WIRE_LOW, WIRE_HIGH = [KEYS[0], 0, 1], [KEYS[1], 300, 2**64 - 1]
LIFT = bytes(24)

# Each message in the specification's notation.
EXAMPLES: list[tuple[Message, list[Any]]] = [
    (Announce(7, ("blob_v1", "blob_piece_v1")), [0, 1, 7, ["blob_v1", "blob_piece_v1"]]),
    (Announce(2**64 - 1, (), 2), [0, 2, 2**64 - 1, []]),
    (SyncRequest(0, 1, ("blob_v1",)), [1, 0, 1, ["blob_v1"]]),
    (SyncRequest(5, 77, ()), [1, 5, 77, []]),
    (SendEntry(2**32, b"entry", b"operation"), [2, 2**32, b"entry", b"operation"]),
    (SyncDone(24, True), [3, 24, True]),
    (SyncDone(24, False), [3, 24, False]),
    (Have(1, (Height(ONE, 1), Height(TWO, 2**64 - 1))), [10, 1, [WIRE_LOW, WIRE_HIGH]]),
    (Have(1, ()), [10, 1, []]),
    (Reconcile(1, EmptySet(True)), [20, 1, True]),
    (Reconcile(1, LowerBound(LOW)), [21, 1, WIRE_LOW]),
    (Reconcile(1, Payload(LOW)), [22, 1, WIRE_LOW]),
    (Reconcile(1, Payload(LOW, HIGH, True)), [22, 1, WIRE_LOW, True, WIRE_HIGH]),
    (Reconcile(1, EmptyPayload(HIGH)), [23, 1, WIRE_HIGH]),
    (Reconcile(1, Done(HIGH)), [24, 1, WIRE_HIGH]),
    (Reconcile(1, Fingerprint(LIFT, HIGH)), [25, 1, LIFT, WIRE_HIGH]),
    (Reconcile(1, Terminal()), [26, 1]),
]


def seed(limits: Limits | None = None) -> Codec:
    return Codec(dialect=Dialect.SEED, limits=limits or Limits())


def aquadoggo() -> Codec:
    return Codec(dialect=Dialect.AQUADOGGO, limits=Limits())


def read(data: bytes, codec: Codec | None = None, *, step: int | None = None) -> list[Message]:
    """The messages that a framer finds in `data`, given in pieces of `step` bytes."""
    codec, inbox, found = codec or seed(), ReceiveBuffer(), []
    framer = Framer(inbox, codec)
    for at in range(0, len(data), step or len(data)):
        inbox.append(data[at : at + (step or len(data))])
        while (encoded := framer.take()) is not None:
            found.append(codec.decode(encoded))
    assert not inbox.size or step is not None or framer.size_max or len(data) < 3
    return found


def code_of(data: bytes, codec: Codec | None = None) -> ErrorCode:
    codes = set()
    for step in (len(data), 1, 3):
        with pytest.raises(RemoteProtocolError) as caught:
            read(data, codec, step=step)
        codes.add(caught.value.code)
    (code,) = codes
    assert isinstance(code, ErrorCode)
    return code


@pytest.mark.parametrize(("message", "plain"), EXAMPLES, ids=lambda each: type(each).__name__)
def test_messages_have_the_form_of_the_specification(message: Message, plain: list[Any]):
    encoded = seed().encode(message)
    assert encoded == cbor.encode(plain)
    assert read(encoded) == [message]


def test_p2panda_uses_cbor_for_all_messages_back_to_back():
    stream = b"".join(seed().encode(message) for message, _ in EXAMPLES)
    for step in (1, 2, 7, 100, None):
        assert read(stream, step=step) == [message for message, _ in EXAMPLES]


def test_the_dialect_of_aquadoggo_has_keys_as_bytes_and_groups_them():
    low, high = [ONE.author, 0, 1], [TWO.author, 300, 2**64 - 1]
    other = Height(LogKey(ONE.author, 2**40), 9)
    heights = (Height(ONE, 1), other, Height(TWO, 2**64 - 1))
    forms: list[tuple[Message, list[Any]]] = [
        (
            Have(1, heights),
            [10, 1, [[ONE.author, [[0, 1], [2**40, 9]]], [TWO.author, [[300, 2**64 - 1]]]]],
        ),
        (Have(1, ()), [10, 1, []]),
        (Reconcile(1, Payload(LOW, HIGH, False)), [22, 1, low, False, high]),
        (Reconcile(1, Fingerprint(LIFT, HIGH)), [25, 1, LIFT, high]),
        (SendEntry(1, b"entry", None), [2, 1, b"entry", None]),
        (SendEntry(1, b"entry", b"op"), [2, 1, b"entry", b"op"]),
        (SyncRequest(0, 0, ("blob_v1",)), [1, 0, 0, ["blob_v1"]]),
    ]
    for message, plain in forms:
        encoded = aquadoggo().encode(message)
        assert encoded == cbor.encode(plain)
        assert read(encoded, aquadoggo()) == [message]


def test_each_dialect_refuses_the_other():
    both = [message for message, _ in EXAMPLES if isinstance(message, (Have, Reconcile))]
    for message in both:
        for writer, reader in ((seed(), aquadoggo()), (aquadoggo(), seed())):
            encoded = writer.encode(message)
            if encoded != reader.encode(message):
                assert code_of(encoded, reader) in (
                    ErrorCode.MALFORMED,
                    ErrorCode.MESSAGE_TOO_LARGE,
                )
    assert code_of(cbor.encode([2, 1, b"entry", None])) is ErrorCode.MALFORMED


def test_heights_may_come_in_any_order_and_are_sent_ascending():
    heights = (Height(TWO, 1), Height(ONE, 3))
    assert read(cbor.encode([10, 1, [[KEYS[1], 300, 1], [KEYS[0], 0, 3]]])) == [Have(1, heights)]
    assert read(seed().encode(Have(1, heights))) == [Have(1, heights[::-1])]


@pytest.mark.parametrize(
    "plain",
    [
        [0, 1, -1, []],
        [0, 1, 7, "blob_v1"],
        [0, 1, 7, [b"blob_v1"]],
        [0, 1, 7, ["blob_v1", "blob_v1"]],
        [0, 1, 7.0, []],
        [0, True, 7, []],
        [0, 1, 7],
        [1, None, 0, []],
        [1, 0, "1", []],
        [1, 0, 1, [], 0],
        [2, 0, "entry", b""],
        [2, 0, b"entry"],
        [2, 0, b"e" * 400, b""],
        [3, 0, 1],
        [3, 0, None],
        [3, False, False],
        [10, 0, None],
        [10, 0, [[KEYS[0], 0]]],
        [10, 0, [[KEYS[0][:-1], 0, 1]]],
        [10, 0, [[KEYS[1].upper(), 0, 1]]],
        [10, 0, [["g" * 64, 0, 1]]],
        [10, 0, [[KEYS[0], -1, 1]]],
        [10, 0, [[KEYS[0], 0, False]]],
        [20, 0, 0],
        [21, 0, KEYS[0]],
        [21, 0, [KEYS[0], 0, 1, 2]],
        [22, 0, WIRE_LOW, True],
        [22, 0, WIRE_LOW, WIRE_HIGH, True],
        [25, 0, "lift", WIRE_LOW],
        [26, 0, 0],
        [],
    ],
    ids=repr,
)
def test_what_has_not_the_form_of_a_message_is_refused(plain: list[Any]):
    assert code_of(cbor.encode(plain)) is ErrorCode.MALFORMED


@pytest.mark.parametrize(
    "encoded",
    [
        "00",  # no array
        "80",
        "86",
        "a0",
        "9f",
        "9818",
        "841800",  # a type in too many bytes
        "83181703",
        "83031800f5",  # a session id in too many bytes
        "8303009f",
        "830300f7",
        "8303c000",
        "84010000a0",
        "8400010781" + "62c328",  # no UTF-8
    ],
)
def test_what_is_not_canonical_is_refused(encoded: str):
    assert code_of(bytes.fromhex(encoded)) is ErrorCode.MALFORMED


@pytest.mark.parametrize("kind", [4, 9, 11, 19, 27, 255])
def test_a_type_that_there_is_not_is_refused_at_once(kind: int):
    assert code_of(b"\x83" + cbor.encode(kind)) is ErrorCode.UNKNOWN_MESSAGE


@pytest.mark.parametrize("head", ["8319", "831b", "8320", "8340", "83f4"])
def test_a_type_that_is_no_small_number_is_refused_at_once(head: str):
    assert code_of(bytes.fromhex(head)) is ErrorCode.UNKNOWN_MESSAGE


SMALL = Limits(schemas_max=2, schema_id_size_max=10, operation_size_max=100, logs_max=3)


@pytest.mark.parametrize(
    "beginning",
    [
        "840001079a00010000",  # schema ids: 65,536 of them
        "840001079bffffffffffffffff",
        "84000107817affffffff",
        "840100019bffffffffffffffff",
        "8402005affffffff",  # an entry of 4 GiB
        "840200405a00010000",  # an operation of 64 KiB
        "830a009bffffffffffffffff",
        "830a00990400",
        "831500837affffffff",
        "841819005903e8",
    ],
)
def test_too_much_is_refused_as_soon_as_it_is_declared(beginning: str):
    assert code_of(bytes.fromhex(beginning), seed(SMALL)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("each", [[], 1, "", True, [1, 1, 1], [1, [[]]]])
def test_heights_that_take_no_bytes_are_refused_before_they_are_decoded(
    dialect: Dialect, each: Any
):
    """Otherwise they would take a hundred times as much memory."""
    codec = Codec(dialect=dialect, limits=Limits(logs_max=2000))
    assert code_of(cbor.encode([10, 0, [each] * 13_000]), codec) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("authors", [1, 2000])
def test_so_many_heights_as_there_may_be_are_taken_however_short(dialect: Dialect, authors: int):
    codec = Codec(dialect=dialect, limits=Limits(logs_max=2000))
    keys = [number.to_bytes(32, "big") for number in range(authors)]
    heights = tuple(Height(LogKey(keys[n % authors], n // authors), 1) for n in range(2000))
    said = Have(0, tuple(sorted(heights)))
    assert read(codec.encode(said), codec) == [said]


@pytest.mark.parametrize("plain", [[0, 1, 7, ["a", "b", "c"]], [1, 0, 0, ["x" * 11]]])
def test_too_many_or_too_long_schema_ids_are_refused(plain: list[Any]):
    """Even where they would fit into the size of the message."""
    assert code_of(cbor.encode(plain), seed(SMALL)) is ErrorCode.MESSAGE_TOO_LARGE


def depth(plain: Any) -> int:
    """The depth of nested arrays."""
    return 1 + max(map(depth, plain), default=0) if isinstance(plain, list) else 0


@pytest.mark.parametrize(
    "plain", [plain for _, plain in EXAMPLES if plain != [10, 1, []]], ids=repr
)
def test_nesting_is_refused_as_soon_as_it_is_declared(plain: list[Any]):
    inbox = ReceiveBuffer()
    framer = Framer(inbox, seed())
    inbox.append(cbor.encode(plain)[:1] + cbor.encode(plain[0]))
    inbox.append(b"\x81" * (depth(plain) - 1))
    assert framer.take() is None
    inbox.append(b"\x81")
    with pytest.raises(RemoteProtocolError) as caught:
        framer.take()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("kind", sorted(seed().bounds))
def test_no_message_that_is_taken_is_larger_than_its_form_says(kind: int):
    """Everything within `Limits` fits: the largest message of every type is accepted."""
    limits = Limits(schemas_max=3, schema_id_size_max=2000, operation_size_max=70_000, logs_max=5)
    codec, largest, top = seed(limits), 2**64 - 1, encode_item(TWO, 2**64 - 1)
    ids = tuple(str(n) * 2000 for n in range(3))
    logs = tuple(Height(LogKey(TWO.author, largest - n), largest) for n in range(5))
    top = encode_item(LogKey(TWO.author, largest), largest)
    messages: dict[int, Message] = {
        0: Announce(largest, ids, largest),
        1: SyncRequest(largest, largest, ids),
        2: SendEntry(largest, bytes(226), bytes(70_000)),
        3: SyncDone(largest, True),
        10: Have(largest, logs),
        20: Reconcile(largest, EmptySet(True)),
        21: Reconcile(largest, LowerBound(top)),
        22: Reconcile(largest, Payload(top, top, True)),
        23: Reconcile(largest, EmptyPayload(top)),
        24: Reconcile(largest, Done(top)),
        25: Reconcile(largest, Fingerprint(bytes(64), top)),
        26: Reconcile(largest, Terminal()),
    }
    encoded = codec.encode(messages[kind])
    assert read(encoded, codec) == ([messages[kind]] if kind != 10 else [Have(largest, logs[::-1])])
    assert len(encoded) <= codec.bounds[kind].size_max


numbers = st.integers(0, 2**64 - 1)
logs = st.builds(LogKey, st.binary(min_size=32, max_size=32), numbers)
items = st.builds(encode_item, logs, numbers)
ids = st.lists(st.text(max_size=9), max_size=3, unique=True).map(tuple)
messages = st.one_of(
    st.builds(Announce, numbers, ids, numbers),
    st.builds(SyncRequest, numbers, numbers, ids),
    st.builds(SendEntry, numbers, st.binary(max_size=200), st.binary(max_size=200)),
    st.builds(SyncDone, numbers, st.booleans()),
    st.builds(
        Have,
        numbers,
        st.dictionaries(logs, numbers, max_size=4).map(
            lambda heights: tuple(Height(log, heights[log]) for log in sorted(heights))
        ),
    ),
    st.builds(
        Reconcile,
        numbers,
        st.one_of(
            st.builds(EmptySet, st.booleans()),
            st.builds(LowerBound, items),
            st.builds(Payload, items),
            st.builds(Payload, items, items, st.booleans()),
            st.builds(EmptyPayload, items),
            st.builds(Done, items),
            st.builds(Fingerprint, st.binary(max_size=64), items),
            st.builds(Terminal),
        ),
    ),
)


@given(st.lists(messages, max_size=4), st.sampled_from(Dialect), st.integers(1, 40))
def test_messages_go_both_ways_in_every_chunking(said: list[Message], dialect: Dialect, step: int):
    codec = Codec(dialect=dialect, limits=Limits())
    assert read(b"".join(map(codec.encode, said)) or b"", codec, step=step) == said


@given(messages, st.binary(max_size=4), st.data())
def test_bytes_are_the_encoding_of_a_message_or_refused(
    message: Message, patch: bytes, data: st.DataObject
):
    codec = seed()
    encoded = bytearray(codec.encode(message))
    at = data.draw(st.integers(0, len(encoded)))
    encoded[at : at + data.draw(st.integers(0, 3))] = patch
    try:
        found = read(bytes(encoded), codec, step=len(encoded) or 1)
    except RemoteProtocolError:
        return
    again = b"".join(map(codec.encode, found))
    assert encoded.startswith(again) or any(isinstance(each, Have) for each in found)


@given(st.lists(st.tuples(logs, numbers), max_size=6))
def test_items_sort_as_key_log_id_and_sequence_number_do(heights: list[tuple[LogKey, int]]):
    made = [(encode_item(log, seqnum), log, seqnum) for log, seqnum in heights]
    assert [each[1:] for each in sorted(made)] == sorted(heights)
    for item, log, seqnum in made:
        assert decode_item(item) == Height(log, seqnum)
        assert item == cbor.encode([log.author.hex(), log.log_id, seqnum])


def test_items_are_of_all_sizes_between_the_least_and_the_greatest():
    numbers = [0, 24, 2**8, 2**16, 2**32]
    sizes = {len(encode_item(LogKey(bytes(32), log), n)) for log in numbers for n in numbers}
    assert (min(sizes), max(sizes)) == (ITEM_SIZE_MIN, ITEM_SIZE_MAX)


def test_the_fingerprint_is_the_sum_of_xxh3_128_and_the_count():
    """Over the canonical CBOR of the items, the bytes that are compared."""
    monoid = named("xxh3-sum")
    both = monoid.combine(monoid.lift(LOW), monoid.lift(HIGH))
    lift = monoid.encode(both)
    assert (len(lift), lift[16:]) == (24, (2).to_bytes(8, "big"))
    total = sum(
        int.from_bytes(xxhash.xxh3_128_digest(cbor.encode(item)), "big")
        for item in (WIRE_LOW, WIRE_HIGH)
    )
    assert lift[:16] == (total % 2**128).to_bytes(16, "big")
    assert len(named("blake3-lthash").encode(named("blake3-lthash").neutral)) <= 64
