"""Fields do not depend on cuts in the bytes, and no bytes wait in memory in vain."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from capture_conversations import CASES, recorded
from test_capture_dissect import check_whole, everything

from culm.capture import Header, Step, read
from culm.capture.dissect import (
    Dissection,
    Field,
    Flows,
    Moved,
    StepFields,
    bytes_of,
    cbor_syntax,
    dissect,
    fields,
    flows,
    layers,
    leaves,
)
from culm.capture.dissect.bymux import take_packet
from culm.capture.dissect.flows import with_fields
from culm.capture.dissect.layers import Items, cut
from culm.capture.dissect.layers import Step as Take
from culm.capture.dissect.point2point import take_control, take_data, take_setup
from culm.testing.spec import Conversation, MachineSpec
from culm.wire.multihash import FAMILIES
from culm.wire.varu64 import encode
from effort import amount

# No machine knows where these end.
ENDLESS = frozenset({"bytes", "boxes", "unread", "box"})


def steps_of(moved: Sequence[Moved]) -> list[Step]:
    return [
        Step(0.0, each.on, "receive_data", [each.data], {}, None)
        if each.received
        else Step(0.0, each.on, "data_to_send", [], {}, each.data)
        for each in moved
    ]


def told(header: Header, steps: Sequence[Step]) -> list[StepFields]:
    return [part for _, parts in with_fields(header, steps) for part in parts]


def plain(fields: Sequence[Field]) -> list[object]:
    return [
        (
            each.name,
            each.offset,
            each.size,
            each.value,
            each.continues and each.name not in ENDLESS,
            plain(each.inside),
        )
        for each in fields
    ]


def flows_of(capture: bytes) -> dict[tuple[int, bool], bytes]:
    """The bytes of each direction of each stream."""
    found: defaultdict[tuple[int, bool], bytes] = defaultdict(bytes)
    for step in read(capture):
        for moved in bytes_of(step):
            if moved.peer is None:
                found[moved.on, moved.received] += moved.data
    return found


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "conversation"), CASES)
def test_fields_are_the_same_however_bytes_come(
    spec: MachineSpec, conversation: Conversation
) -> None:
    capture = recorded(spec, conversation)
    header, rng = read(capture).header, Random(conversation.name)
    for (_, received), data in flows_of(capture).items():
        [whole] = told(header, steps_of([Moved(0, received, data)]))
        cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(9))})
        for ends in (cuts, range(len(data) + 1)) if len(data) < 4096 else (cuts,):
            places = list(pairwise(ends))
            pieces = [Moved(0, received, data[start:end]) for start, end in places]
            found = told(header, steps_of(pieces))
            for (start, end), part in zip(places, found, strict=True):
                wanted = list(cut(whole.fields, start, end, 0))
                assert plain(part.fields) == plain(wanted)
            faults = [
                replace(part.fault, offset=part.fault.offset + start)
                for (start, _), part in zip(places, found, strict=True)
                if part.fault is not None
            ]
            assert [each.code for each in faults] == ([whole.fault.code] if whole.fault else [])


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "conversation"), CASES)
def test_steps_do_not_wait_for_more_than_so_many(
    spec: MachineSpec, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte has a field, even where no step may wait for the next one."""
    monkeypatch.setattr(flows, "WAITING_MAX", 0)
    capture = recorded(spec, conversation)
    header = read(capture).header
    for (_, received), data in flows_of(capture).items():
        pieces = [Moved(0, received, data[at : at + 1]) for at in range(min(len(data), 2048))]
        taken = 0
        for number, (_, parts) in enumerate(with_fields(header, steps_of(pieces)), 1):
            [part] = parts
            assert sum(each.size for each in part.fields) == 1
            taken = number
        assert taken == len(pieces)


def test_a_write_of_a_terabyte_is_shown_as_it_comes() -> None:
    front = bytes.fromhex("23010001000000000000")  # 2^48 bytes for stream 1
    header = Header(machine="bymux")

    def steps() -> Iterator[Step]:
        yield Step(0.0, 0, "receive_data", [front], {}, None)
        for _ in range(1000):
            yield Step(0.0, 0, "receive_data", [bytes(1 << 14)], {}, None)

    tracemalloc.start()
    try:
        count = 0
        for _, parts in with_fields(header, steps()):
            count += 1
            assert [(part.fields[0].name, part.fields[0].continues) for part in parts] == [
                ("WRITE", True)
            ]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 1001
    assert peak < 1 << 20


# Split piece by piece, at two levels, the bytes give the same fields as at once.

CARRIED: dict[str, Take] = {
    "data of stream 0": partial(take_control, family=FAMILIES["YAMF"]),
    "data of stream 1": partial(take_data, family=FAMILIES["YAMF"]),
}


def at_once(layer: Items, data: bytes) -> list[Field]:
    layer.feed(data)
    items = list(iter(layer.next_item, None))
    layer.force()
    items += iter(layer.next_item, None)
    return [field for item in items for field in cut(item.fields, 0, len(data), item.base)]


def twin(data: bytes) -> tuple[list[Field], dict[str, bytes]]:
    """The fields of one direction of Point-2-Point, layer by layer, and its channels' bytes."""
    carried = dict.fromkeys(CARRIED, b"")
    places: dict[int, tuple[str, int, int]] = {}
    lower = at_once(Items(take_packet, take_setup), data)
    for leaf in leaves(lower):
        if leaf.name in carried:
            start = len(carried[leaf.name])
            carried[leaf.name] += data[leaf.offset : leaf.offset + leaf.size]
            places[leaf.offset] = leaf.name, start, start + leaf.size
    upper = {name: at_once(Items(take), carried[name]) for name, take in CARRIED.items()}

    def filled(field: Field) -> Field:
        inside = tuple(map(filled, field.inside))
        if not inside and field.offset in places:
            name, start, end = places[field.offset]
            inside = tuple(cut(upper[name], start, end, field.offset))
        return replace(field, inside=inside)

    return list(map(filled, lower)), carried


def flows_of_point2point() -> Iterator[bytes]:
    for case in CASES:
        spec, conversation = case.values
        if spec.name == "point2point":  # type: ignore[union-attr]
            yield from flows_of(recorded(spec, conversation)).values()  # type: ignore[arg-type]


def changed(rng: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([0, 0, 1, 3]) if data else 0):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def in_packets(rng: Random, carried: dict[str, bytes]) -> bytes:
    """Both channels, in packets of some size, one channel far ahead of the other or by turns."""
    rest = {0: carried["data of stream 0"], 1: carried["data of stream 1"]}
    most, bias = rng.choice([1, 3, 60]), rng.choice([0.02, 0.5, 0.98])
    found = b"\0\5\5"
    while any(rest.values()):
        channel = 0 if not rest[1] or (rest[0] and rng.random() < bias) else 1
        size = min(len(rest[channel]), rng.randrange(1, most + 1))
        found += bytes([0x20, channel]) + encode(size) + rest[channel][:size]
        rest[channel] = rest[channel][size:]
    return found


def test_what_waits_for_one_channel_is_what_the_twin_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [twin(data)[1] for data in flows_of_point2point()]
    header = Header(machine="point2point")
    for seed in range(amount(60, long=600)):
        rng = Random(seed)
        monkeypatch.setattr(layers, "_KEPT_MAX", rng.choice([1, 4, 256]))
        channels = {
            name: b"".join(changed(rng, rng.choice(known)[name])[:2000] for _ in range(3))
            for name in CARRIED
        }
        data = changed(rng, in_packets(rng, channels))[:9000]
        wanted, _ = twin(data)
        cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.randrange(9)))})
        places = list(pairwise(cuts))
        found = told(header, steps_of([Moved(0, True, data[start:end]) for start, end in places]))
        for (start, end), part in zip(places, found, strict=True):
            assert plain(part.fields) == plain(list(cut(wanted, start, end, 0))), seed


# In the memory of one item and of the waiting data, which waits as bytes.


def received(data: bytes, name: str = "receive_data", **more: object) -> Step:
    return Step(0.0, 0, name, [data], dict(more), None)


def many_packets(size: int) -> tuple[str, list[Step]]:
    return "bymux", [received(b"\0\1\5" * (size // 3))]


def many_in_a_datagram(size: int) -> tuple[str, list[Step]]:
    return "bymux", [received(b"\0\1\5" * (size // 3), "receive_datagram", source="a")]


def many_datagrams(size: int) -> tuple[str, list[Step]]:
    sent = [["a", b"\0\1\5"] for _ in range(size // 3)]
    return "bymux", [Step(0.0, 0, "datagrams_to_send", [], {}, sent)]


def others_wait(size: int) -> tuple[str, list[Step]]:
    sent = Step(0.0, 0, "data_to_send", [], {}, b"\0\1\5" * (size // 48))
    return "bymux", [received(b"\x20\1"), *[sent] * 16, received(b"\1x")]


def another_channel_waits(size: int) -> tuple[str, list[Step]]:
    begun = b"\0\5\5" + b"\x20\0\1\x81"
    return "point2point", [received(begun + b"\x20\1\2\2\5" * (size // 5))]


@pytest.mark.parametrize("size", [1 << 14, pytest.param(1 << 23, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "build",
    [many_packets, many_in_a_datagram, many_datagrams, others_wait, another_channel_waits],
    ids=lambda build: build.__name__,
)
def test_fields_are_in_memory_a_few_at_a_time(
    build: Callable[[int], tuple[str, list[Step]]], size: int
) -> None:
    machine, steps = build(size)
    tracemalloc.start()
    try:
        count = 0
        for _, parts in Flows(Header(machine=machine)).told(steps):
            count += sum(1 for part in parts for _ in part.fields)
        assert tracemalloc.get_traced_memory()[1] < (1 << 19) + 5 * size
    finally:
        tracemalloc.stop()
    assert count >= size // 5


# One message has a bound, too: of its fields, and of what its codec is asked to decode.


def of_p2panda(size: int) -> tuple[str, Step]:
    return "p2panda", received(b"\x99" + size.to_bytes(2, "big") + b"\x0a" + b"\x80" * (size - 1))


def an_operation(size: int) -> tuple[str, Step]:
    operation = b"\x99" + size.to_bytes(2, "big") + b"\x80" * size
    front = b"\x84\x02\x00\x41\x00\x59" + len(operation).to_bytes(2, "big")
    return "p2panda", received(front + operation)


def of_muxrpc(size: int) -> tuple[str, Step]:
    body = b"[" + b"[]," * (size // 3) + b"1]"
    return "ssb-muxrpc", received(b"\x02" + len(body).to_bytes(4, "big") + b"\0\0\0\1" + body)


def of_oxen(size: int) -> tuple[str, Step]:
    return "oxen", received(b"d1:ll" + b"le" * (size // 2) + b"ee", "receive_datagram", source="a")


def of_garlic(size: int) -> tuple[str, Step]:
    return "garlic-handshake", received(b"GET / HTTP/1.1\r\n" + b":\r\n" * (size // 3) + b"\r\n")


def in_one_write(size: int) -> tuple[str, Step]:
    return "point2point", received(
        b"\0\5\5" + b"\x22\1" + size.to_bytes(4, "big") + b"\2\5" * (size // 2)
    )


@pytest.mark.parametrize(
    "build",
    [of_p2panda, an_operation, of_muxrpc, of_oxen, of_garlic, in_one_write],
    ids=lambda build: build.__name__,
)
def test_a_message_has_no_more_fields_than_there_is_room_for(
    build: Callable[[int], tuple[str, Step]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "FIELDS_MAX", 1 << 8)
    monkeypatch.setattr(cbor_syntax, "FEW", 1 << 8)
    size = 40_000
    machine, step = build(size)
    told(Header(machine=machine), [build(8)[1]])  # everything imported only once
    tracemalloc.start()
    try:
        [part] = told(Header(machine=machine), [step])
        assert tracemalloc.get_traced_memory()[1] < 80 * size
    finally:
        tracemalloc.stop()
    check_whole(Dissection(part.fields), len(part.moved.data))
    assert count_of(part.fields) < 1 << 10


def count_of(found: Sequence[Field]) -> int:
    return sum(1 + count_of(each.inside) for each in found)


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "conversation"), CASES)
def test_fields_for_which_there_is_no_room_are_one(
    spec: MachineSpec, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes are in fields, those that are there are as they would be, and faults are found."""
    capture = recorded(spec, conversation)
    header = read(capture).header
    for (_, received), data in flows_of(capture).items():
        step = steps_of([Moved(0, received, data)])
        [whole] = told(header, step)
        for most in (1, 3, 20):
            monkeypatch.setattr(fields, "FIELDS_MAX", most)
            [part] = told(header, step)
            monkeypatch.undo()
            check_whole(Dissection(part.fields), len(data))
            assert (part.fault is None) == (whole.fault is None)
            known = set(map(place_of, everything(whole.fields)))
            assert known.issuperset(
                place_of(each) for each in everything(part.fields) if each.name != fields.MORE
            )


def place_of(field: Field) -> tuple[str, int, int]:
    return field.name, field.offset, field.size


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "conversation"), CASES)
def test_a_fault_is_told_with_its_bytes(spec: MachineSpec, conversation: Conversation) -> None:
    """Even at the end, where only the codec can tell that the bytes form no message."""
    rng = Random(conversation.name)
    capture = recorded(spec, conversation)
    header = read(capture).header
    protocol = flows.PROTOCOL_OF.get(header.machine)
    if protocol is None or header.machine in OTHERWISE or "dialect" in header.config:
        return
    for (_, received), data in flows_of(capture).items():
        for _ in range(20):
            broken = changed(rng, data[: rng.randrange(1, len(data) + 1)][:2000])
            wanted = dissect(protocol, broken).fault
            [part] = told(header, steps_of([Moved(0, received, broken)]))
            if wanted is None or not wanted.is_short:
                assert part.fault == wanted


# Their bytes are sealed, or begin so.
OTHERWISE = frozenset({"ssb-handshake", "ssb-box-stream", "ssb-peer"})


def test_a_last_message_that_is_none_is_a_fault() -> None:
    broken = bytes.fromhex("850a01010101")  # five items, where a Have has three
    [part] = told(Header(machine="p2panda"), [received(broken)])
    assert part.fault is not None
    assert (part.fault.offset, part.fault.code) == (len(broken) - 1, "UNKNOWN_MESSAGE")
