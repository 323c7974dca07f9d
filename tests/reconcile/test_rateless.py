"""Rateless runs: both sides end with the union, and a peer that lies is cut off."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from compact_talk import UNKEYED, check_union, frames_in, received, rounds_in, talk, tree_of
from forged import crafted
from hypothesis import given
from hypothesis import strategies as st
from test_compact import HELLO, MANY, closed, closed_by, divided, pair, piece, responder, spread

from culm.kernels import symbols
from culm.machine import Closed
from culm.reconcile import (
    CheckFailed,
    CompactParameters,
    CompactSession,
    CompactState,
    ErrorCode,
    Limits,
    Reconciled,
    Role,
)
from culm.reconcile.frames import FrameKind, Hello, encode_frame
from culm.reconcile.rateless import symbols_worthwhile
from culm.testing.link import MachinePair
from culm.wire import varu64

RATELESS = CompactParameters(rateless=True, keyed=False)
KEYED = replace(RATELESS, keyed=True)
# Asking for a sixteenth more each time, up to 2**18.
ROUNDS_MAX = 2 * 180
SYMBOLS, MORE, WANTS, ITEMS = 1, 2, 3, 4
seeds = st.integers(0, 2**32)


def hellos(link: MachinePair) -> list[Hello]:
    """The first frame of each run."""
    return [
        Hello.decode(body)
        for end in (link.left, link.right)
        for kind, body in frames_in(end.sent)
        if kind is FrameKind.HELLO
    ]


@given(
    seeds,
    st.sampled_from([4, 8, 33]),
    *[st.booleans()] * 3,
    st.sampled_from([1, 5, 128, 1000]),
    st.sampled_from(["xxh3-sum", "xxh3-xor"]),
)
def test_both_sides_end_with_the_union(seed, size, varying, keyed, same, first, monoid):
    ours, theirs = pair(seed, size, varying)
    trees = [tree_of(held, size, varying=varying, monoid=monoid) for held in (ours, theirs)]
    chosen = CompactParameters(rateless=True, keyed=keyed, first_symbols=first)
    other = chosen if same else CompactParameters(keyed=keyed)
    link = talk(*trees, (chosen, other), seed=seed)
    check_union(link, ours, theirs, keyed=keyed)
    assert rounds_in(link) <= ROUNDS_MAX


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 10, min(300, MANY // 40)])
def test_what_is_sent_grows_with_the_difference_alone(count, keyed):
    both = spread(MANY, 1)
    ours, theirs = both | spread(count, 2), both | spread(count, 3)
    chosen = CompactParameters(rateless=True, keyed=keyed)
    link = talk(tree_of(ours, 32), tree_of(theirs, 32), (chosen, chosen))
    check_union(link, ours, theirs, keyed=keyed)
    assert len(hellos(link)) == 1
    # 32 bytes are for the items, some 16 for the symbols of each.
    assert len(link.left.sent) + len(link.right.sent) < 1500 + 2 * 52 * count
    assert rounds_in(link) <= 7


def test_a_strong_monoid_is_one_like_any():
    ours, theirs = pair(5, 8, False)
    trees = [tree_of(held, 8, monoid="blake3-lthash") for held in (ours, theirs)]
    check_union(talk(*trees, (RATELESS, RATELESS)), ours, theirs, strong=True)


@pytest.mark.parametrize("swapped", [False, True])
def test_ranges_take_over_where_symbols_do_not_pay(swapped):
    """One side is all but empty: sending it all is cheapest."""
    held, few = spread(MANY, 1), spread(3, 2)
    sets = (few, held) if swapped else (held, few)
    chosen = replace(RATELESS, first_symbols=16)
    link = talk(*(tree_of(each, 32) for each in sets), (chosen, chosen))
    check_union(link, *sets)
    assert [hello.rateless for hello in hellos(link)] == [True, False]
    assert len(link.left.sent) + len(link.right.sent) < 32 * MANY + 3000


def test_symbols_pay_up_to_an_eighth_of_both_sets():
    assert [symbols_worthwhile(*sizes) for sizes in ((8000, 0), (4000, 4000), (80_000, 16))] == [
        1000,
        1000,
        10_002,
    ]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("symbols_max", [0, 20, 40])
def test_ranges_take_over_where_a_side_allows_no_more_symbols(side, symbols_max):
    ours, theirs = spread(200, 1, 8), spread(200, 2, 8)
    limits = [Limits(), Limits()]
    limits[side] = Limits(symbols_max=symbols_max)
    chosen = replace(RATELESS, first_symbols=30)
    left, right = (
        CompactSession(
            view=tree_of(held, 8), role=role, rng=Random(1), parameters=chosen, limits=each
        )
        for held, role, each in zip((ours, theirs), Role, limits, strict=True)
    )
    link = MachinePair.of_machines(left, right).run()
    check_union(link, ours, theirs)
    assert [hello.rateless for hello in hellos(link)] in ([True, False], [False, True])


def test_many_items_with_one_sum_are_told_apart():
    """Sets with equal exclusive ors deceive plain sums; symbols name items."""
    ours, theirs = divided(128)
    trees = [tree_of(held, 8, monoid="xxh3-xor") for held in (ours, theirs)]
    check_union(talk(*trees, (RATELESS, RATELESS)), ours, theirs)


@pytest.mark.parametrize("live", [False, True])
def test_items_made_to_have_one_id_are_found_by_the_check(live):
    both = spread(50, 1)
    ours, theirs = both | {crafted(1)} | spread(2, 2), both | {crafted(2)} | spread(2, 3)
    trees = tree_of(ours, 32), tree_of(theirs, 32)
    assert trees[0].monoid.short(crafted(1)) == trees[0].monoid.short(crafted(2))
    link = talk(*trees, (RATELESS, RATELESS), live=live)
    for end, lacking in ((link.left, theirs - ours), (link.right, ours - theirs)):
        assert end.events[-2:] == [Reconciled(keyed=True), Closed()]
        assert sum(isinstance(event, CheckFailed) for event in end.events) == 1
        assert {*received(end.events)} == lacking
    assert [hello.rateless for hello in hellos(link)] in ([True, False], [False, True])
    keyed = talk(tree_of(ours, 32), tree_of(theirs, 32), (KEYED, KEYED))
    check_union(keyed, ours, theirs, keyed=True)


def test_two_items_of_one_id_on_one_side_cost_a_second_run():
    """They cancel in the words and not in the counts: the symbols never decode."""
    both = spread(50, 1)
    ours = both | {crafted(1), crafted(2)}
    link = talk(tree_of(ours, 32), tree_of(both, 32), (RATELESS, RATELESS))
    check_union(link, ours, both)
    assert len(hellos(link)) == 2


# Lying peers

OPENING = encode_frame(FrameKind.HELLO, replace(HELLO, rateless=True).encode())


def row_of(items: set[bytes], size: int) -> symbols.Symbols:
    row = symbols.Symbols(HELLO.id_salt, size)
    for item in items:
        row.add(tree_of(set(), 8).monoid.short(item).to_bytes(8, "little"))
    return row


OWN = spread(100, 1, 8)  # the responder's
GOOD = row_of(OWN, 64).encode(0, 64)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (OPENING, ErrorCode.UNEXPECTED_MESSAGE),
        (piece(0), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(MORE, 9), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(WANTS), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(ITEMS), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(255), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(SYMBOLS, last=True), ErrorCode.BAD_NUMBER),
        (piece(SYMBOLS, 2), ErrorCode.BAD_FRAME),
        (piece(SYMBOLS, *GOOD[:-1]), ErrorCode.BAD_FRAME),
        (piece(SYMBOLS, 0x80, 0, *bytes(8)), ErrorCode.BAD_NUMBER),
        (piece(SYMBOLS, *[255] * 9, *bytes(8)), ErrorCode.BAD_NUMBER),
        (piece(SYMBOLS, 2, *bytes(8), 9, *bytes(8)), ErrorCode.BAD_NUMBER),
        (piece(SYMBOLS, *bytes(9 * 4097)), ErrorCode.BAD_NUMBER),
        (piece(SYMBOLS, *GOOD, last=True) + piece(SYMBOLS), ErrorCode.UNEXPECTED_MESSAGE),
        (encode_frame(FrameKind.WELCOME, bytes([20])), ErrorCode.UNEXPECTED_MESSAGE),
    ],
)
def test_what_a_sender_cannot_say(said, code):
    session = responder()
    session.receive_data(OPENING + said)
    assert closed_by(session) is code
    assert session.state is CompactState.FAILED


def drained(session: CompactSession) -> list[tuple[FrameKind, bytes]]:
    assert session.next_event() is None
    return frames_in(b"".join(iter(session.data_to_send, b"")))


def asked_for_one() -> CompactSession:
    """A responder that has found one item missing on its side."""
    session = responder()
    row = row_of(OWN | {b"an  item"}, 64).encode(0, 64)
    session.receive_data(OPENING + piece(SYMBOLS, *row, last=True))
    kinds = [body[0] for kind, body in drained(session) if kind is not FrameKind.WELCOME]
    assert kinds == [WANTS, ITEMS]
    return session


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (piece(ITEMS, 0, *b"another1"), ErrorCode.BAD_ITEM),
        (piece(ITEMS, 0, *b"an  ite"), ErrorCode.BAD_ITEM),
        (piece(ITEMS, 1, *b"n  item"), ErrorCode.BAD_ITEM),
        (piece(ITEMS, 0xF8, 0, *b"an  item"), ErrorCode.BAD_FRAME),
        (piece(ITEMS, *[255] * 9), ErrorCode.BAD_ITEM),
        (piece(ITEMS, 0, *b"an  item", 8), ErrorCode.BAD_ITEM),
        (piece(ITEMS, 0, *b"an  item", 3, *b" item"), ErrorCode.BAD_ITEM),
        (piece(ITEMS, 0, *b"an  item") + piece(ITEMS, 0, *b"an  item"), ErrorCode.BAD_ITEM),
        (piece(SYMBOLS), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(WANTS), ErrorCode.UNEXPECTED_MESSAGE),
        (encode_frame(FrameKind.CHECK, bytes(16)), ErrorCode.UNEXPECTED_MESSAGE),
    ],
)
def test_what_cannot_be_said_where_items_are_wanted(said, code):
    session = asked_for_one()
    session.receive_data(said)
    assert closed_by(session) is code


def test_items_that_are_wanted_and_do_not_come_are_missed():
    session = asked_for_one()
    check = encode_frame(FrameKind.CHECK, bytes(16))
    session.receive_data(piece(ITEMS, last=True) + check)
    assert isinstance(session.next_event(), CheckFailed)
    assert not Hello.decode(drained(session)[0][1]).rateless


def initiator(**options) -> CompactSession:
    session = CompactSession(
        view=tree_of(OWN, 8), role=Role.INITIATOR, rng=Random(1), parameters=RATELESS, **options
    )
    assert drained(session)[0][0] is FrameKind.HELLO
    session.receive_data(encode_frame(FrameKind.WELCOME, bytes([20])))
    return session


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (piece(SYMBOLS, *GOOD), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(MORE), ErrorCode.BAD_FRAME),
        (piece(MORE, 128), ErrorCode.BAD_NUMBER),
        (piece(MORE, 136), ErrorCode.BAD_NUMBER),
        (piece(MORE, 200, 0), ErrorCode.BAD_NUMBER),
        (piece(MORE, 200) + piece(MORE, 201), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(MORE, 200) + piece(ITEMS), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(WANTS, *bytes(5)), ErrorCode.BAD_FRAME),
        (piece(WANTS, 255, *bytes(5)), ErrorCode.BAD_NUMBER),
        (piece(WANTS, *bytes(12)), ErrorCode.BAD_NUMBER),
        (
            piece(WANTS, *b"".join(each.to_bytes(6) for each in range(129))),
            ErrorCode.BAD_NUMBER,
        ),
        (piece(WANTS, last=True), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(ITEMS) + piece(WANTS), ErrorCode.UNEXPECTED_MESSAGE),
        (piece(ITEMS, 0, *b"12345678", 0, *b"12345678"), ErrorCode.BAD_ITEM),
    ],
)
def test_what_a_receiver_cannot_say(said, code):
    session = initiator()
    session.receive_data(said)
    assert closed_by(session) is code


@pytest.mark.parametrize("many", [b"\xf9\xff\xff", b"\xff" * 9])
def test_asking_for_more_than_a_limit_costs_nothing(many):
    session = initiator(limits=Limits(symbols_max=300))
    session.receive_data(piece(MORE, *many, last=True))
    (kind, body), *rest = drained(session)
    assert kind is FrameKind.HELLO
    assert not Hello.decode(body).rateless
    assert sum(len(each) for _, each in rest) < 2000


def test_a_sender_whose_symbols_never_decode_is_left_for_ranges():
    """An id that is there twice cancels in the words, but not in the counts."""
    session, said = responder(), OPENING
    at, wanted, rounds = 0, 64, 0
    row = row_of(OWN, 500)
    row.add(bytes(16))
    while True:
        encoded = row.encode(at, wanted)
        session.receive_data(said + piece(SYMBOLS, *encoded, last=True))
        kind, body = drained(session)[-1]
        if kind is not FrameKind.LAST_PIECE or body[0] != MORE:
            break
        at, rounds, said = wanted, rounds + 1, b""
        wanted, _ = varu64.decode(body, 1)
        assert at * 17 // 16 < wanted <= symbols_worthwhile(102, 100)
    assert 10 < rounds < 25
    assert 17 * wanted > 16 * symbols_worthwhile(102, 100)


def test_the_peer_may_not_go_back_to_symbols():
    link = talk(tree_of(spread(20, 1, 8), 8), tree_of(spread(20, 2, 8), 8), (RATELESS, UNKEYED))
    assert closed(link.left) is closed(link.right) is None
    session = responder()
    session.receive_data(encode_frame(FrameKind.HELLO, HELLO.encode()) + OPENING)
    assert closed_by(session) is ErrorCode.UNEXPECTED_MESSAGE


def test_parameters_are_sensible():
    for wrong in (0, 4097):
        with pytest.raises(ValueError, match="first_symbols"):
            CompactParameters(first_symbols=wrong)
    for wrong in (-1, (1 << 24) + 1):
        with pytest.raises(ValueError, match="symbols_max"):
            Limits(symbols_max=wrong)


@pytest.mark.parametrize("swapped", [False, True])
def test_an_item_of_no_bytes_travels_like_any(swapped):
    both = {bytes([number]) for number in range(100)}
    sets = (both, both | {b""}) if swapped else (both | {b""}, both)
    trees = [tree_of(held, 4, varying=True) for held in sets]
    link = talk(*trees, (RATELESS, RATELESS))
    check_union(link, *sets)
    assert len(hellos(link)) == 1
