"""Fields do not depend on how bytes come, and bytes do not wait in memory for what never comes."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from capture_conversations import CASES, recorded

from culm.capture import Header, Step, read
from culm.capture.dissect import Field, Moved, StepFields, bytes_of, flows, with_fields
from culm.capture.dissect.layers import cut
from culm.testing.spec import Conversation, MachineSpec

# Nobody knows where these end.
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
    """Each byte has a field, even where no step waits for the next one."""
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
