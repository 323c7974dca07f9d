"""Parcels in both dialects: valid and invalid ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.oxen import Delivery, Limits
from culm.oxen.messages import (
    ID_MAX,
    SEQUENCE_MAX,
    Broadcast,
    Datagram,
    Dialect,
    Finalize,
    Gossip,
    MessageAck,
    MessageData,
    Missing,
    OneToOne,
    Parcel,
    ParcelError,
    Synchronize,
    Turn,
    decode_parcel,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.sizes import payload_sizes
from culm.wire import xenc

KEYED, FLAT = Dialect.KEYED, Dialect.FLAT

WRITTEN = [
    (KEYED, Parcel(), b"de"),
    (KEYED, Parcel(ka=123), b"d2:kai123ee"),
    (KEYED, Parcel(ka=1, kk=2), b"d2:kai1e2:kki2ee"),
    (
        KEYED,
        Parcel(123, None, MessageData(b"B", b"A", 9999, b"data")),
        b"d2:kai123e2:mdd1:d4:data2:fr1:A2:idi9999e2:to1:Bee",
    ),
    (
        KEYED,
        Parcel(None, None, MessageData(b"B", b"A", None, b"")),
        b"d2:mdd1:d0:2:fr1:A2:to1:Bee",
    ),
    (
        KEYED,
        Parcel(None, 1, MessageAck(b"A", b"B", 9999)),
        b"d2:kki1e2:mad2:fr1:B2:idi9999e2:to1:Aee",
    ),
    (
        KEYED,
        Parcel(None, None, Gossip({b"A": [0.0, 5.5]}, [b"A", b"B"])),
        b"d2:lcd2:lcd1:Alt0.0et5.500000000eee1:pl1:A1:Beee",
    ),
    (
        FLAT,
        Parcel(7, None, MessageData(b"B", b"A", 9, {b"m": b"1", b"s": 4, b"d": b"x"})),
        b"d1:d1:x2:fr1:A2:idi9e2:kai7e1:m1:12:pt2:md1:si4e2:to1:Be",
    ),
    (
        FLAT,
        Parcel(None, None, MessageData(b"B", b"A", 9, {b"m": b"s", b"b": 3, b"1": 4})),
        b"d1:1i4e1:bi3e2:fr1:A2:idi9e1:m1:s2:pt2:md2:to1:Be",
    ),
    (
        FLAT,
        Parcel(None, None, MessageData(b"B", b"A", 9, b"plain")),
        b"d1:d5:plain2:fr1:A2:idi9e2:pt2:md2:to1:Be",
    ),
    (
        FLAT,
        Parcel(None, None, MessageAck(b"A", b"B", 9)),
        b"d2:fr1:B2:idi9e2:pt2:ma2:to1:Ae",
    ),
    (
        FLAT,
        Parcel(None, 5, Gossip({b"A": [1.0]}, [b"B"])),
        b"d2:kki5e2:lcd1:Alt1.0eee1:pl1:Be2:pt2:lce",
    ),
]


@pytest.mark.parametrize(("dialect", "parcel", "encoded"), WRITTEN)
def test_parcels_and_their_encodings(dialect: Dialect, parcel: Parcel, encoded: bytes) -> None:
    assert encode_parcel(parcel, dialect) == encoded
    assert decode_parcel(encoded, dialect) == parcel


def test_a_flat_parcel_without_message_is_an_empty_datagram() -> None:
    parcel = decode_parcel(b"d2:fr1:A2:pt2:md2:to1:Be", FLAT)
    assert parcel.body == MessageData(b"B", b"A", None, b"")


def test_integers_are_seconds_in_gossip() -> None:
    parcel = decode_parcel(b"d2:lcd2:lcd1:Ali5ei-3eee1:pl1:B1:Ceee")
    assert parcel.body == Gossip({b"A": [5.0, -3.0]}, [b"B", b"C"])


def test_gossip_is_heard_but_for_servers_with_ids_too_long_here() -> None:
    body = Gossip({b"A": [1.0, 2.0], b"LONG": [3.0, 4.0]}, [b"LONG", b"B"])
    parcel = decode_parcel(encode_parcel(Parcel(None, None, body)), sid_size_max=3)
    assert parcel.body == Gossip({b"A": [2.0]}, [b"B"])


def test_unknown_keys_are_ignored() -> None:
    assert decode_parcel(b"d2:kai1e2:zzli1eee") == Parcel(ka=1)


NONE = [
    b"",
    b"i1e",
    b"le",
    b"2:ka",
    b"d2:ka1:xe",
    b"d2:kai-1ee",
    b"d2:kai4294967296ee",
    b"d2:kkt1.0ee",
    b"d2:mdi1ee",
    b"d2:mddee",
    b"d2:mdd2:fr1:A2:to1:Bee",
    b"d2:mdd1:d1:x2:fr1:Aee",
    b"d2:mdd1:d1:x2:fr0:2:to1:Bee",
    b"d2:mdd1:d1:x2:fr33:" + b"x" * 33 + b"2:to1:Bee",
    b"d2:mdd1:d1:x2:fri1e2:to1:Bee",
    b"d2:mdd1:d1:x2:fr1:A2:id1:x2:to1:Bee",
    b"d2:mad2:fr1:A2:to1:Bee",
    b"d2:mad2:fr1:A2:idi1e2:to1:Be2:mdd1:d1:x2:fr1:A2:to1:Bee",
    b"d2:lcd2:lcdeee",
    b"d2:lcd2:lcd1:Alee1:pl1:Aeee",
    b"d2:lcd2:lcd1:Ali1ei2eee1:pl1:Aeee",
    b"d2:lcd2:lcd1:Al1:xee1:pl1:Aeee",
    b"d2:lcd2:lcd0:lee1:pleee",
    b"d2:lcd2:lcd1:Ai1ee1:pleee",
    b"d2:lcd2:lcde1:pli1eeee",
    b"d2:mdd1:d" + b"l" * 9 + b"e" * 9 + b"2:fr1:A2:to1:Bee",
]


@pytest.mark.parametrize("encoded", NONE)
def test_what_is_no_parcel_is_refused(encoded: bytes) -> None:
    with pytest.raises(ParcelError):
        decode_parcel(encoded)


@pytest.mark.parametrize("encoded", [b"d2:pt2:xxe", b"d2:pti1ee", b"d2:pt2:mde"])
def test_what_is_no_flat_parcel_is_refused(encoded: bytes) -> None:
    with pytest.raises(ParcelError):
        decode_parcel(encoded, FLAT)


MESSAGES = [
    (Datagram(b"x"), b"x"),
    (Synchronize(123, 345), {b"m": b"s", b"b": 123, b"1": 345}),
    (Synchronize(1, 2, known=3), {b"m": b"s", b"b": 1, b"1": 2, b"a": 3}),
    (Finalize(678, 789), {b"m": b"f", b"b": 678, b"1": 789}),
    (Finalize(678, 789, 5), {b"m": b"f", b"b": 678, b"1": 789, b"a": 5}),
    (Broadcast(123, b"...data..."), {b"m": b"b", b"s": 123, b"d": b"...data..."}),
    (OneToOne(345, b"...data..."), {b"m": b"1", b"s": 345, b"d": b"...data..."}),
]


@pytest.mark.parametrize(("message", "d"), MESSAGES)
def test_messages_are_as_the_specification_writes_them(message: Any, d: Any) -> None:
    assert write_message(message) == d
    assert read_message(d) == message
    assert type(read_message(d)) is type(message)


@pytest.mark.parametrize(
    "d",
    [
        1,
        [],
        {},
        {b"m": b"x"},
        {b"m": 1},
        {b"m": b"s", b"b": 1},
        {b"m": b"f", b"1": 1},
        {b"m": b"s", b"b": -1, b"1": 1},
        {b"m": b"1", b"s": 1},
        {b"m": b"b", b"d": b""},
        {b"m": b"1", b"s": b"1", b"d": b""},
        {b"m": b"1", b"s": 1, b"d": 1},
    ],
)
def test_what_is_no_message_is_refused(d: Any) -> None:
    with pytest.raises(ParcelError):
        read_message(d)


sids = st.binary(min_size=1, max_size=8)
ids = st.integers(0, 2**32 - 1)
numbers = st.integers(0, 2**63 - 1)
payloads = st.binary(max_size=20)
messages = st.one_of(
    st.builds(Datagram, payloads),
    st.builds(Synchronize, numbers, numbers, numbers, numbers, numbers),
    st.builds(Turn, st.sampled_from([b"1", b"b"]), numbers, st.booleans()),
    st.builds(Missing, st.sampled_from([b"1", b"b"]), numbers),
    st.builds(Finalize, numbers, numbers, numbers),
    st.builds(Broadcast, numbers, payloads),
    st.builds(OneToOne, numbers, payloads),
)
columns = st.lists(sids, max_size=4)
gossips = columns.flatmap(
    lambda names: st.builds(
        Gossip,
        st.dictionaries(
            sids,
            st.lists(
                st.integers(-(2**40), 2**40).map(float), min_size=len(names), max_size=len(names)
            ),
            max_size=3,
        ),
        st.just(names),
    )
)
bodies = st.one_of(
    st.none(),
    st.builds(MessageData, sids, sids, st.none() | ids, messages.map(write_message)),
    st.builds(MessageAck, sids, sids, ids),
    gossips,
)
parcels = st.builds(Parcel, st.none() | ids, st.none() | ids, bodies)


@given(parcels, st.sampled_from(Dialect))
def test_round_trip(parcel: Parcel, dialect: Dialect) -> None:
    encoded = encode_parcel(parcel, dialect)
    assert decode_parcel(encoded, dialect) == parcel
    assert xenc.encode(xenc.decode(encoded)) == encoded


@given(parcels, st.sampled_from(Dialect), st.data())
def test_a_mutated_parcel_is_one_or_is_refused(
    parcel: Parcel, dialect: Dialect, data: st.DataObject
) -> None:
    encoded = bytearray(encode_parcel(parcel, dialect))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        found = decode_parcel(bytes(encoded), dialect)
    except ParcelError:
        return
    again = encode_parcel(found, dialect)
    assert decode_parcel(again, dialect) == found


@given(st.binary(max_size=60))
def test_any_octets_are_a_parcel_or_refused(data: bytes) -> None:
    for dialect in Dialect:
        try:
            decode_parcel(data, dialect)
        except ParcelError:
            continue


@pytest.mark.parametrize("dialect", Dialect)
def test_the_largest_message_fills_a_datagram_whatever_its_numbers(dialect: Dialect) -> None:
    limits = Limits()
    sizes, sid = payload_sizes(limits, dialect), bytes(limits.sid_size_max)
    for message in (
        Datagram(bytes(sizes[Delivery.DATAGRAM])),
        OneToOne(SEQUENCE_MAX, bytes(sizes[Delivery.IN_ORDER])),
        Broadcast(SEQUENCE_MAX, bytes(sizes[Delivery.IN_ORDER_BROADCAST])),
    ):
        body = MessageData(sid, sid, ID_MAX, write_message(message))
        parcel = encode_parcel(Parcel(ID_MAX, ID_MAX, body), dialect)
        assert len(parcel) == limits.datagram_size_max
