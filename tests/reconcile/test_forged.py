"""Items made so that sums agree: no side is told that the sets do."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from compact_talk import received, talk, tree_of
from forged import SIZE, crafted, forged
from test_session import Talk

from culm.machine import Closed
from culm.reconcile import (
    MONOIDS,
    CompactParameters,
    Parameters,
    PlainSession,
    Reconciled,
    Role,
    Session,
    SumsEqual,
    View,
    join,
    named,
)
from culm.testing.link import MachinePair

KEY = bytes(range(16))
HONEST = {Random(number).randbytes(SIZE) for number in range(1000)}
# Items whose forgery comes after them, so that no bound falls between the two.
TARGETS = [item for item in sorted(HONEST) if forged(item) > item][::2][:200]
LEFT = HONEST
RIGHT = HONEST.difference(TARGETS) | {forged(item) for item in TARGETS}


def test_forged_items_have_the_hashes_of_others() -> None:
    lift = named("xxh3-sum").lift
    assert len(LEFT & RIGHT) == 800
    for item in TARGETS:
        assert forged(item) != item
        assert lift(forged(item)) == lift(item)


@pytest.mark.parametrize("monoid", MONOIDS)
@pytest.mark.parametrize("rateless", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_agreement_is_told_only_where_it_is_shown(monoid: str, rateless: bool, keyed: bool) -> None:
    parameters = CompactParameters(keyed=keyed, rateless=rateless)
    trees = [tree_of(held, SIZE, monoid=monoid) for held in (LEFT, RIGHT)]
    link = talk(*trees, (parameters, parameters))
    for end, held in ((link.left, LEFT), (link.right, RIGHT)):
        told = any(isinstance(event, Reconciled) for event in end.events)
        assert not told or held.union(received(end.events)) == LEFT | RIGHT
        assert told == (keyed or monoid == "blake3-lthash")
        assert (SumsEqual() in end.events) != told


def test_a_session_shows_agreement_unless_it_is_told_not_to() -> None:
    parameters = CompactParameters()
    link = talk(tree_of(LEFT, SIZE), tree_of(RIGHT, SIZE), (parameters, parameters))
    for end in (link.left, link.right):
        assert end.events[-2:] == [Reconciled(keyed=True), Closed()]


def sessions_with_a_key(left: View, right: View, **chosen: Any) -> Talk:
    """Two sessions of abstract messages with one key, run to their end."""
    parameters = Parameters(**chosen)
    return Talk(
        *(
            Session(view=view, role=role, parameters=parameters, key=KEY)
            for view, role in zip((left, right), Role, strict=True)
        )
    ).run()


def checks_agree(talk: Talk) -> bool:
    assert talk.closed == [Closed()] * 2
    first, second = (session.check for session in talk.sessions)
    assert first is not None
    return first == second


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("monoid", MONOIDS)
def test_a_session_with_a_key_shows_that_both_know_the_union(monoid: str, echo: bool) -> None:
    union = {*sorted(HONEST)[:60]}
    left, right = ({item for item in union if item[-1] % 5 != rest} for rest in (0, 1))
    assert left - right
    assert right - left
    halves = sorted(left)[:20], sorted(left)[20:]
    view = join([tree_of({*half}, SIZE, monoid=monoid) for half in halves])
    talked = sessions_with_a_key(view, tree_of(right, SIZE, monoid=monoid), echo=echo)
    assert checks_agree(talked)
    assert left.union(talked.received[0]) == right.union(talked.received[1]) == union


def test_a_session_with_a_key_tells_that_items_are_forged() -> None:
    talked = sessions_with_a_key(*(tree_of(held, SIZE) for held in (LEFT, RIGHT)))
    assert talked.received == [[], []]
    assert not checks_agree(talked)


def test_a_session_with_a_key_tells_that_a_pair_was_the_wrong_one() -> None:
    """Two items are named by the sum of eight bytes, which another pair shares."""
    pair = [crafted(number) for number in (1, 2)]
    others = [crafted(number) for number in (3, 4)]
    left = HONEST.union(pair, others)
    talks = [
        sessions_with_a_key(
            *(tree_of(held, SIZE) for held in (left, left.difference(lacking))),
            digest_size=8,
            first_split=2,
        )
        for lacking in (pair, others)
    ]
    for talked, lacking in zip(talks, (pair, others), strict=True):
        assert checks_agree(talked) == (sorted(talked.received[1]) == sorted(lacking))
    assert not all(map(checks_agree, talks))


def test_without_a_key_nothing_is_hashed_and_nothing_told() -> None:
    tree = tree_of(LEFT, SIZE)
    assert Session(view=tree, role=Role.INITIATOR).check is None
    assert PlainSession(view=tree, role=Role.INITIATOR).check is None
    with pytest.raises(ValueError, match="16 bytes"):
        Session(view=tree, role=Role.INITIATOR, key=b"short")


def test_a_plain_session_has_the_check_of_its_session() -> None:
    sides = [
        PlainSession(view=tree_of(held, SIZE), role=role, key=KEY)
        for held, role in zip((LEFT, HONEST), Role, strict=True)
    ]
    link = MachinePair.of_machines(*sides).run()
    assert link.left.events == link.right.events == [Closed()]
    other = PlainSession(view=tree_of(RIGHT, SIZE), role=Role.INITIATOR, key=KEY)
    assert sides[0].check == sides[1].check != other.check
