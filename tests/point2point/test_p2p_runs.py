"""A connection in runs tells what one piece by piece tells, whatever happens to it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs_support import (
    Conversation,
    answers,
    anyhow,
    assert_alike,
    byte_by_byte,
    converse,
    expanded,
    make_log,
    replay,
    whole,
)

from culm.point2point import (
    EntriesReceived,
    Limits,
    Mode,
    Role,
    Setup,
)
from culm.wire.multihash import YAMF, YASMF

families = st.sampled_from([YAMF, YASMF])
SETUPS = [
    Setup(),
    Setup(send_window_max=0, receive_window_max=0),
    Setup(send_window_max=100, receive_window_max=1 << 14),
]


@st.composite
def conversations(draw: st.DrawFn, *, steps: int = 25) -> Conversation:
    family = draw(families)
    length, ended = draw(st.sampled_from([(45, False), (45, False), (16, True)]))
    packet_size_max = draw(st.sampled_from([1 << 18, 1 << 18, 1000, 100]))
    kept = Conversation(
        draw(st.sampled_from(Role)),
        draw(st.sampled_from(SETUPS)),
        Limits(
            packet_size_max=packet_size_max, data_window_max=draw(st.sampled_from([1 << 20, 5000]))
        ),
        family,
        make_log(family, length, ended=ended),
    )
    runs = draw(st.booleans())
    seed = draw(st.integers(0, 1 << 32))
    return converse(seed, kept, draw(st.sampled_from(SETUPS)), steps=steps, runs=runs)


@settings(max_examples=settings.default.max_examples * 2)  # type: ignore[union-attr]
@given(conversations(), st.integers(0, 1 << 32))
def test_in_runs_is_piece_by_piece(kept: Conversation, seed: int) -> None:
    plain = replay(kept, in_runs=False, cuts=whole)
    assert plain.code is None
    assert_alike(plain, replay(kept, in_runs=True, cuts=whole))
    assert_alike(plain, replay(kept, in_runs=True, cuts=anyhow(Random(seed))))


@settings(max_examples=max(5, settings.default.max_examples // 10))  # type: ignore[union-attr]
@given(conversations(steps=6))
def test_in_runs_is_piece_by_piece_byte_by_byte(kept: Conversation) -> None:
    plain = replay(kept, in_runs=False, cuts=whole)
    assert_alike(plain, replay(kept, in_runs=True, cuts=byte_by_byte))


def mutate(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(changed))
        match chance.randrange(5):
            case 0 | 1:
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                changed[at] = chance.choice([0, 2, 8, 9, 128, 129, 248, 255])
            case 3:
                del changed[at]
            case _:
                changed[at:at] = changed[at : at + chance.randint(1, 200)]
    return bytes(changed)


@settings(max_examples=settings.default.max_examples * 2)  # type: ignore[union-attr]
@given(conversations(), st.integers(0, 1 << 32))
def test_in_runs_is_piece_by_piece_with_bytes_changed(kept: Conversation, seed: int) -> None:
    chance = Random(seed)
    received = [n for n, (step, _) in enumerate(kept.steps) if step == "receive"]
    steps = list(kept.steps)
    for _ in range(5):
        at = chance.choice(received)
        kept.steps = [*steps[:at], ("receive", mutate(steps[at][1], chance)), *steps[at + 1 :]]
        plain = replay(kept, in_runs=False, cuts=whole)
        assert_alike(plain, replay(kept, in_runs=True, cuts=whole))
        assert_alike(plain, replay(kept, in_runs=True, cuts=anyhow(chance)))


def test_the_conversations_are_about_runs() -> None:
    """Else what is above would say nothing."""
    told = {True: 0, False: 0}
    in_events = 0
    for seed in range(30):
        for family in (YAMF, YASMF):
            kept = Conversation(Role(seed % 2), Setup(), Limits(), family, make_log(family))
            converse(seed, kept, Setup(), runs=bool(seed % 3))
            for event in replay(kept, in_runs=True, cuts=whole).events:
                entries = isinstance(event, EntriesReceived)
                in_events += len(event.entries) if isinstance(event, EntriesReceived) else 0
                told[entries] += 1
    assert told[True] > 20
    assert told[False] > 200
    assert in_events > 200
