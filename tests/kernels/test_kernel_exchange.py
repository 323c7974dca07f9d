"""Exchanges of rounds: both sides end with the union, and the twins say the same."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest
from exchange_talk import ANSWERING, ASKING, PLAIN, ROUNDS_MAX, Talk, Twins, filled, spread
from hypothesis import given, settings
from hypothesis import strategies as st

SUM, XOR, LTHASH = range(3)
KEY = bytes(range(16))
RANGES_MAX = 1 << 20

plans = st.fixed_dictionaries(
    {
        "asked_max": st.sampled_from([16, 300, RANGES_MAX]),
        "threshold": st.sampled_from([1, 2, 4, 50]),
        "parts": st.sampled_from([100, 1000, 2000, 9000]),
        "expected": st.sampled_from([0, 1000, 2500, 40_000]),
        "branching": st.sampled_from([0, 0, 0, 2, 7, 64]),
        "listing": st.booleans(),
    }
)


seeds = st.integers(0, 2**32)


def pair(seed: int, size: int, varying: bool) -> tuple[set[bytes], set[bytes]]:
    """Two sets: with a little in common or a lot, crowded in one place or not."""
    chance = Random(seed)
    both, ours, theirs = (
        spread(chance, chance.choice(counts), size, varying)
        for counts in ([0, 1, 20, 300, 600], [0, 1, 2, 5, 60], [0, 1, 2, 60, 300])
    )
    if chance.random() < 0.5:
        both = {bytes(size - 2) + item[-2:] for item in both if len(item) > 1}
    return both | ours, both | theirs


def kept(ours: set[bytes], theirs: set[bytes], talk: Talk) -> None:
    first, second = talk.received
    assert len(first) == len({*first})
    assert len(second) == len({*second})
    assert ({*first}, {*second}) == (theirs - ours, ours - theirs)


def exchange(tree: ModuleType, items: set[bytes], **options: Any) -> Any:
    shape = [options[name] for name in ("kind", "size", "varying", "nodes")]
    view = filled(tree, items, *shape)
    named = {"width": options["width"], "salt": options["salt"], "key": options["key"]}
    return tree.Exchange(view, ranges_max=RANGES_MAX, form=options.get("form", PLAIN), **named)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "kind": draw(st.sampled_from([SUM, SUM, XOR, LTHASH])),
        "size": draw(st.sampled_from([4, 8, 11, 32])),
        "varying": draw(st.booleans()),
        "width": draw(st.integers(4, 8)),
        "salt": draw(st.integers(0, 2**64 - 1)),
        "key": draw(st.sampled_from([b"", b"", KEY])),
        # Narrow nodes make deep trees; 0 is a frozen one.
        "nodes": draw(st.sampled_from([4, 4, 5, 40, 0])),
    }


@given(options(), plans, plans, st.sampled_from([100, 3000, 40_000]), seeds)
@settings(max_examples=25)
def test_both_sides_end_with_the_union(tree, chosen, ours_plan, theirs_plan, size, seed):
    if tree.__name__.endswith("pure_tree") and chosen["kind"] == LTHASH:
        chosen["kind"] = SUM  # slow
    ours, theirs = pair(seed, chosen["size"], chosen["varying"])
    first, second = (exchange(tree, held, **chosen) for held in (ours, theirs))
    talk = Talk((ours_plan, theirs_plan), size).run(first, second)
    kept(ours, theirs, talk)
    assert len(talk.rounds) <= ROUNDS_MAX
    assert first.union == second.union
    assert first.union == exchange(tree, ours | theirs, **chosen).union


@given(options(), plans, plans, st.sampled_from([100, 3000, 40_000]), seeds)
@settings(max_examples=25)
def test_one_side_may_forget_everything(tree, chosen, ours_plan, theirs_plan, size, seed):
    if tree.__name__.endswith("pure_tree") and chosen["kind"] == LTHASH:
        chosen["kind"] = SUM
    ours, theirs = pair(seed, chosen["size"], chosen["varying"])
    first = exchange(tree, ours, form=ASKING, **chosen)
    talk = Talk((ours_plan, theirs_plan), size)
    talk.run_explicitly(first, lambda: exchange(tree, theirs, form=ANSWERING, **chosen))
    kept(ours, theirs, talk)


@given(options(), plans, plans, st.sampled_from([100, 3000, 40_000]), st.booleans(), seeds)
@settings(max_examples=25)
def test_twins_say_the_same(tree_twins, chosen, ours_plan, theirs_plan, size, explicit, seed):
    ours, theirs = pair(seed, chosen["size"], chosen["varying"])

    def make(held: set[bytes], form: int) -> Twins:
        return Twins(*(exchange(tree, held, form=form, **chosen) for tree in tree_twins))

    talk = Talk((ours_plan, theirs_plan), size)
    if explicit:
        talk.run_explicitly(make(ours, ASKING), lambda: make(theirs, ANSWERING))
    else:
        talk.run(make(ours, PLAIN), make(theirs, PLAIN))
    kept(ours, theirs, talk)


# A peer's inventions


@given(options(), plans, st.integers(0, 2), seeds)
@settings(max_examples=60)
def test_twins_find_the_same_faults(tree_twins, chosen, plan, form, seed):
    ours, theirs = pair(seed, chosen["size"], chosen["varying"])
    chance = Random(seed)
    listener = Twins(*(exchange(tree, ours, form=form, **chosen) for tree in tree_twins))
    liar = exchange(tree_twins[0], theirs, form=ASKING if form == ANSWERING else PLAIN, **chosen)
    told = [b""]
    if form == ANSWERING:
        liar.begin()
        listener.listen()
    else:
        listener.begin()
        liar.expect()
        while not listener.is_over:
            piece = listener.say(40_000, **plan)
            if form == PLAIN:
                liar.hear(piece, 1)
        listener.listen()
        liar.speak()
    for _ in range(30):
        if not liar.is_over:
            told.append(liar.say(chance.choice([50, 500, 40_000]), **plan))
        said = mutated(chance, chance.choice(told))
        fault, _ = listener.hear(said, chance.randint(0, listener.asked))
        assert 0 <= fault <= 7
        if fault:
            return
        _ = listener.answered, listener.estimate, listener.union
        if chance.random() < 0.2:
            listener.speak()
            while not listener.is_over:
                listener.say(chance.choice([50, 40_000]), **plan)
            listener.listen()


def mutated(chance: Random, said: bytes) -> bytes:
    data = bytearray(said or chance.randbytes(20))
    for _ in range(chance.choice([0, 0, 1, 1, 3])):
        at = chance.randrange(len(data))
        change = chance.randrange(4)
        if change == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif change == 1:
            data[at] = chance.choice([0, 1, 127, 128, 255])
        elif change == 2:
            del data[at:]
            data += chance.randbytes(chance.randrange(4))
        else:
            data[at:at] = chance.choice([b"\xff" * 9, b"\x80\x00", bytes(3), chance.randbytes(5)])
        if not data:
            break
    return bytes(data)


def test_what_is_wrong_with_a_call_is_raised(tree):
    view = filled(tree, {b"ab"}, SUM, 2, False)
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        tree.Exchange(view, 0, 0, 1)
    with pytest.raises(ValueError, match="16 bytes"):
        tree.Exchange(view, 8, 0, 1, b"short")
    with pytest.raises(ValueError, match="form"):
        tree.Exchange(view, 8, 0, 1, b"", 3)
    for salt in (-1, 2**64):
        with pytest.raises(OverflowError):
            tree.Exchange(view, 8, salt, 1)
    made = tree.Exchange(view, 8, 0, 1)
    made.begin()
    with pytest.raises(ValueError, match="at least 1"):
        made.say(100, 100, 0, 0, 0)
    for number in (-1, 2**31):
        with pytest.raises(OverflowError):
            made.say(100, 100, 1, number, 0)
    with pytest.raises(ValueError, match="fewer ranges"):
        made.hear(b"", 1)


def test_a_tree_may_change_meanwhile(tree):
    view = filled(tree, {b"ab", b"cd"}, SUM, 2, False)
    made = tree.Exchange(view, 8, 0, 100)
    view.discard(b"ab")
    assert made.union[0] == 2
