"""Sessions: both sides end, with the union, and nothing is said twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culm.kernels import IMPLEMENTATION
from culm.machine import Closed, ContractErrorCode, LocalProtocolError
from culm.reconcile import MONOIDS, Fingerprint, Frozen, SessionLimits, Tree, TreeSnapshot
from culm.reconcile.errors import ErrorCode
from culm.reconcile.events import ItemReceived
from culm.reconcile.messages import (
    Done,
    EmptyPayload,
    EmptySet,
    LowerBound,
    Message,
    Payload,
    RangeFingerprint,
    Terminal,
)
from culm.reconcile.session import Parameters, Session
from culm.reconcile.states import Role, State

sizes = st.sampled_from([1, 2, 6, 8, 16])


@st.composite
def parameters(draw: st.DrawFn, digest_size: int) -> Parameters:
    return Parameters(
        payload_threshold=draw(st.sampled_from([1, 2, 4, 16, 1000])),
        first_split=draw(st.sampled_from([2, 3, 16, 64])),
        branching=draw(st.sampled_from([None, None, 2, 3, 16])),
        parts_per_difference=draw(st.sampled_from([0.1, 1.0, 2.0, 8.0])),
        hurry_from=draw(st.sampled_from([1, 6, 20])),
        digest_size=digest_size,
    )


def tree_of(items: set[bytes], monoid: str = "xxh3-sum", varying: bool = False) -> Tree:
    tree = Tree(
        item_size=max(map(len, items), default=2) if varying else 2, monoid=monoid, varying=varying
    )
    tree.load_items(sorted(items))
    return tree


class Talk:
    """Two sessions, and their whole conversation, by rounds."""

    def __init__(self, *sessions: Session) -> None:
        self.sessions = sessions
        self.received: list[list[bytes]] = [[], []]
        self.sent: list[list[bytes]] = [[], []]
        self.rounds: list[list[Message]] = []
        self.closed: list[Closed | None] = [None, None]

    def run(self) -> Talk:
        speaker = 0
        while (said := list(self.speak(speaker))) != []:
            self.rounds.append(said)
            speaker = 1 - speaker
        return self

    def speak(self, speaker: int) -> Iterator[Message]:
        while (message := self.sessions[speaker].next_message()) is not None:
            if isinstance(message, Payload):
                self.sent[speaker].append(message.item)
            if self.sessions[1 - speaker].state is not State.ENDED:
                self.sessions[1 - speaker].receive(message)
            for side in (0, 1):
                self.drain(side)
            yield message

    def drain(self, side: int) -> None:
        while (event := self.sessions[side].next_event()) is not None:
            assert self.closed[side] is None
            if isinstance(event, Closed):
                self.closed[side] = event
            else:
                self.received[side].append(event.item)


def reconcile(ours: Tree, theirs: Tree, *chosen: Parameters, **limits: int) -> Talk:
    first, second = chosen or (Parameters(), Parameters())
    bounds = SessionLimits(**limits)
    return Talk(
        Session(view=ours.snapshot(), role=Role.INITIATOR, parameters=first, limits=bounds),
        Session(view=theirs.snapshot(), role=Role.RESPONDER, parameters=second, limits=bounds),
    ).run()


def check(talk: Talk, ours: set[bytes], theirs: set[bytes]) -> None:
    assert talk.closed == [Closed(error=None)] * 2
    assert sorted(talk.received[0]) == sorted(theirs - ours)
    assert sorted(talk.received[1]) == sorted(ours - theirs)
    for sent in talk.sent:
        assert len(sent) == len({*sent})
    assert not {*talk.sent[0]} & {*talk.sent[1]}, "an item was sent back"
    assert len(talk.rounds) <= 9


items = st.sets(st.binary(min_size=2, max_size=2), max_size=120)


@given(items, items, items, st.sampled_from(list(MONOIDS)), st.data())
def test_both_sides_end_with_the_union(both, ours, theirs, name, data):
    ours, theirs = ours | both, theirs | both
    size = data.draw(st.sampled_from([8, 12, 16]))
    chosen = data.draw(parameters(size)), data.draw(parameters(size))
    check(reconcile(tree_of(ours, name), tree_of(theirs, name), *chosen), ours, theirs)


@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 500, 5000]),
    st.sampled_from([0, 1, 2, 3, 30, 400]),
    st.sampled_from([0, 1, 2, 30]),
    st.data(),
)
@settings(max_examples=20)
def test_large_sets_that_differ_a_little(seed, common, more, less, data):
    chance = Random(seed)
    both = {chance.randbytes(6) for _ in range(common)}
    ours = both | {chance.randbytes(6) for _ in range(more)}
    theirs = both | {chance.randbytes(6) for _ in range(less)}
    trees = [Tree(item_size=6) for _ in range(2)]
    for tree, held in zip(trees, (ours, theirs), strict=True):
        tree.fill(b"".join(held))
    chosen = data.draw(parameters(8)), data.draw(parameters(8))
    check(reconcile(*trees, *chosen), ours, theirs)


def test_items_of_varying_size_are_reconciled():
    chance = Random(4)
    both = {chance.randbytes(chance.randrange(6)) for _ in range(300)}
    ours, theirs = both | {b"", b"\0", b"abcdef"}, both | {b"\0\0", b"abcde"}
    trees = [Tree(item_size=6, varying=True) for _ in range(2)]
    for tree, held in zip(trees, (ours, theirs), strict=True):
        tree.load_items(sorted(held))
    check(reconcile(*trees), ours, theirs)


def test_a_frozen_tree_is_a_side_like_any():
    ours, theirs = {b"aa", b"bb", b"cc"}, {b"bb", b"dd"}
    frozen = Frozen(b"".join(tree_of(ours).serialise()))
    talk = Talk(
        Session(view=frozen, role=Role.INITIATOR),
        Session(view=tree_of(theirs), role=Role.RESPONDER),
    ).run()
    check(talk, ours, theirs)


# Messages


def spread(count: int, seed: int = 1) -> list[bytes]:
    chance = Random(seed)
    return sorted({chance.randbytes(8) for _ in range(count)})


def filled(held: list[bytes]) -> Tree:
    tree = Tree(item_size=8)
    tree.fill(b"".join(held))
    return tree


def test_equal_sets_need_two_rounds():
    held = spread(1000)
    talk = reconcile(filled(held), filled(held))
    assert talk.rounds[1] == [LowerBound(held[0]), Done(held[0]), Terminal()]
    assert len(talk.rounds) == 2
    assert len(talk.rounds[0]) == 16 + 2


def test_two_empty_sets_say_so():
    talk = reconcile(tree_of(set()), tree_of(set()))
    assert talk.rounds == [[EmptySet(True)], [EmptySet(False)]]
    check(talk, set(), set())


def test_an_empty_side_is_sent_everything_at_once():
    held = {b"aa", b"bb", b"cc"}
    talk = reconcile(tree_of(set()), tree_of(held))
    everything = [
        LowerBound(b"aa"),
        Payload(b"aa"),
        Payload(b"bb"),
        Payload(b"cc", b"aa"),
        Terminal(),
    ]
    assert talk.rounds == [[EmptySet(True)], everything]
    check(talk, set(), held)
    talk = reconcile(tree_of(held), tree_of(set()))
    assert talk.rounds[1] == [
        LowerBound(b"aa"),
        EmptyPayload(b"bb"),
        EmptyPayload(b"cc"),
        EmptyPayload(b"aa"),
        Terminal(),
    ]
    check(talk, held, set())


@pytest.mark.parametrize("missing", [1, 2])
def test_one_or_two_items_are_named_by_the_difference(missing):
    held = spread(5000)
    less = [item for at, item in enumerate(held) if at not in (100, 101)[:missing]]
    for ours, theirs in ((held, less), (less, held)):
        talk = reconcile(filled(ours), filled(theirs))
        check(talk, {*ours}, {*theirs})
        assert sum(map(len, talk.sent)) == missing
        said = [message for round in talk.rounds[1:] for message in round]
        # Nothing is split: the range is answered by the item, or by one fingerprint.
        assert sum(isinstance(message, RangeFingerprint) for message in said) <= 1


def test_a_hashed_state_names_nothing():
    held = spread(500)
    trees = []
    for part in (held, held[:99] + held[100:]):
        tree = Tree(item_size=8, monoid="blake3-lthash")
        tree.fill(b"".join(part))
        trees.append(tree)
    talk = reconcile(*trees)
    check(talk, {*held}, {*held} - {held[99]})
    assert sum(map(len, talk.sent)) > 1


@pytest.mark.parametrize("count", [10, 1000 if IMPLEMENTATION == "compiled" else 100])
def test_what_is_sent_grows_with_the_difference_not_with_the_sets(count):
    held = spread(20_000 + count)
    chance = Random(2)
    chance.shuffle(held)
    both, rest = held[count:], held[:count]
    ours, theirs = both + rest[: count // 2], both + rest[count // 2 :]
    talk = reconcile(filled(ours), filled(theirs))
    check(talk, {*ours}, {*theirs})
    said = sum(map(len, talk.rounds))
    assert said < 12 * count + 100
    assert sum(map(len, talk.sent)) < 2 * count


# Lying peers


def listening(held: list[bytes], **options) -> Session:
    return Session(view=filled(held), role=Role.RESPONDER, parameters=Parameters(**options))


def fault(session: Session, *messages: Message) -> ErrorCode | None:
    """The session's verdict on the last of the messages."""
    for message in messages:
        assert session.next_event() is None or session.state is not State.ENDED
        session.receive(message)
    while (event := session.next_event()) is not None:
        if isinstance(event, Closed):
            assert session.state is State.ENDED
            assert session.next_event() is None
            assert session.next_message() is None
            return event.error and ErrorCode(event.error.code)
    return None


HELD = spread(100)
LOW, MIDDLE, HIGH = bytes(8), b"\x80" + bytes(7), b"\xff" * 8
SAME = Fingerprint(1, bytes(16))


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([Terminal()], ErrorCode.UNEXPECTED_MESSAGE),
        ([Done(LOW)], ErrorCode.UNEXPECTED_MESSAGE),
        ([EmptyPayload(LOW)], ErrorCode.UNEXPECTED_MESSAGE),
        ([RangeFingerprint(SAME, LOW)], ErrorCode.UNEXPECTED_MESSAGE),
        ([Payload(LOW)], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), LowerBound(LOW)], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), EmptySet(True)], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), Terminal()], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), Done(MIDDLE), Terminal()], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), Done(LOW), Done(LOW)], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), Done(LOW), Payload(HIGH)], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), Payload(LOW), Done(MIDDLE)], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(LOW), Payload(LOW), Terminal()], ErrorCode.UNEXPECTED_MESSAGE),
        ([LowerBound(bytes(9))], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Done(bytes(9))], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Done(MIDDLE), Done(MIDDLE)], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Done(HIGH), EmptyPayload(MIDDLE)], ErrorCode.BAD_BOUND),
        ([LowerBound(MIDDLE), Done(LOW), Done(HIGH)], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Done(HIGH), RangeFingerprint(SAME, MIDDLE)], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Payload(MIDDLE, bytes(9))], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Done(MIDDLE), Payload(HIGH, MIDDLE)], ErrorCode.BAD_BOUND),
        ([LowerBound(LOW), Payload(bytes(7))], ErrorCode.BAD_ITEM),
        ([LowerBound(LOW), Payload(MIDDLE), Payload(MIDDLE)], ErrorCode.BAD_ITEM),
        ([LowerBound(LOW), Payload(MIDDLE), Payload(LOW)], ErrorCode.BAD_ITEM),
        ([LowerBound(LOW), Payload(HIGH, MIDDLE)], ErrorCode.BAD_ITEM),
        ([LowerBound(LOW), Payload(MIDDLE, MIDDLE)], ErrorCode.BAD_ITEM),
        ([LowerBound(LOW), Done(MIDDLE), Payload(LOW)], ErrorCode.BAD_ITEM),
        ([LowerBound(LOW), RangeFingerprint(Fingerprint(1, b""), LOW)], ErrorCode.BAD_FINGERPRINT),
        (
            [LowerBound(LOW), RangeFingerprint(Fingerprint(-1, bytes(16)), LOW)],
            ErrorCode.BAD_FINGERPRINT,
        ),
        (
            [LowerBound(LOW), RangeFingerprint(Fingerprint(2**64, bytes(16)), LOW)],
            ErrorCode.BAD_FINGERPRINT,
        ),
    ],
)
def test_what_cannot_be_said_ends_the_session(said, code):
    assert fault(listening(HELD), *said[:-1]) is None
    assert fault(listening(HELD), *said) is code


@given(items, items, st.integers(1, 40), st.data())
def test_honest_sides_never_say_more_ranges_than_they_take(
    ours: set[bytes], theirs: set[bytes], ranges_max: int, data: st.DataObject
) -> None:
    first, second = (data.draw(parameters(16)) for _ in range(2))
    talk = reconcile(tree_of(ours), tree_of(theirs), first, second, ranges_max=ranges_max)
    assert talk.closed == [Closed(error=None)] * 2
    assert sorted(talk.received[0]) == sorted(theirs - ours)
    assert sorted(talk.received[1]) == sorted(ours - theirs)


def test_sets_with_many_more_differences_than_ranges_come_together():
    # By turns, so that every divided range has some of either side.
    ours, theirs = (
        [bytes([n >> 8, n & 255, side, *bytes(5)]) for n in range(500)] for side in (0, 1)
    )
    talk = reconcile(filled(ours), filled(theirs), ranges_max=32)
    assert talk.closed == [Closed(error=None)] * 2
    assert sorted(talk.received[0]) == theirs
    assert sorted(talk.received[1]) == ours


def test_a_round_has_so_many_ranges_at_most():
    bounds = [bytes([number]) + bytes(7) for number in range(1, 6)]
    few = SessionLimits(ranges_max=4)
    session = Session(view=filled(HELD), role=Role.RESPONDER, limits=few)
    assert fault(session, LowerBound(LOW), *map(Done, bounds[:4])) is None
    assert fault(session, Done(bounds[4])) is ErrorCode.TOO_MANY_RANGES


def test_nobody_speaks_out_of_turn():
    session = Session(view=filled(HELD), role=Role.INITIATOR)
    assert fault(session, LowerBound(LOW)) is ErrorCode.UNEXPECTED_MESSAGE
    session = listening(HELD)
    assert fault(session, EmptySet(True)) is None
    assert session.state is State.SPEAKING
    assert fault(session, EmptySet(True)) is ErrorCode.UNEXPECTED_MESSAGE


def test_an_ended_session_takes_nothing():
    session = listening(HELD)
    session.close()
    assert session.next_event() == Closed(error=None)
    session.close()
    with pytest.raises(LocalProtocolError) as caught:
        session.receive(Terminal())
    assert caught.value.code is ContractErrorCode.ALREADY_CLOSED
    assert session.next_event() is None


def test_parameters_are_sensible():
    for wrong in (
        {"payload_threshold": 0},
        {"first_split": 1},
        {"branching": 0},
        {"branching": 1},
        {"parts_max": 1},
        {"list_from": -1},
        {"parts_per_difference": nan},
        {"parts_max": 2.5},
        {"digest_size": 8.0},
        {"echo": None},
    ):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            Parameters(**wrong)
    for wrong in ({"rounds_max": 0}, {"ranges_max": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SessionLimits(**wrong)
    with pytest.raises(ValueError, match="at least"):
        Session(view=filled(HELD), role=Role.RESPONDER, limits=SessionLimits(rounds_max=9))
    for size in (0, 17):
        with pytest.raises(ValueError, match="a digest"):
            Session(view=filled(HELD), role=Role.RESPONDER, parameters=Parameters(digest_size=size))


@pytest.mark.parametrize("parts", [0.0, 1e308, inf])
def test_any_number_of_parts_for_a_difference_will_do(parts: float):
    ours = {b"%02x" % number for number in range(256)}
    theirs = {b"%02x" % number for number in range(0, 256, 3)} | {b"%02X" % 251}
    chosen = [Parameters(parts_per_difference=parts)] * 2
    check(reconcile(tree_of(ours), tree_of(theirs), *chosen), ours, theirs)


@given(st.data())
def test_a_peer_that_lies_about_everything_is_heard_out_soon(data):
    """Even with fingerprints of its choice it gets few rounds, and no item twice in a round."""
    chance = data.draw(st.randoms(use_true_random=False))
    tree = filled(spread(300))
    role = data.draw(st.sampled_from(Role))
    session = Session(view=tree, role=role)
    rounds = 0
    while session.state is not State.ENDED:
        if session.state is State.SPEAKING:
            said = []
            while (message := session.next_message()) is not None:
                said.append(message)
            listed = [message.item for message in said if isinstance(message, Payload)]
            assert len(listed) == len({*listed}) <= 300
            rounds += 1
            continue
        lie(session, tree, chance)
        while session.next_event() is not None:
            pass
    assert rounds <= 7


def lie(session: Session, tree: Tree, chance: Random) -> None:
    """A well-formed round in which nothing is true."""
    bounds = sorted({chance.randbytes(8) for _ in range(chance.randint(1, 20))})
    start = chance.randrange(len(bounds))
    ring = bounds[start:] + bounds[:start]
    session.receive(LowerBound(ring[0]))
    for lower, upper in pairwise([*ring, ring[0]]):
        near = tree.fingerprint(lower, upper).count + chance.randint(-2, 2)
        count = chance.choice([0, 1, 300, 2**64 - 1, max(near, 0), max(near, 0)])
        fingerprint = Fingerprint(count, chance.randbytes(16))
        session.receive(
            chance.choice([RangeFingerprint(fingerprint, upper), EmptyPayload(upper), Done(upper)])
        )
    session.receive(Terminal())


@pytest.mark.parametrize("role", Role)
def test_who_asks_on_and_on_is_cut_off(role):
    """A peer that never lists, and asks again about ranges that we have listed."""
    session = Session(view=filled(HELD), role=role)
    said = 0
    while session.state is not State.ENDED:
        if session.state is State.SPEAKING:
            said += len(list(iter(session.next_message, None))) > 0
            continue
        session.receive(LowerBound(LOW))
        session.receive(RangeFingerprint(Fingerprint(99, bytes(16)), LOW))
        session.receive(Terminal())
    assert said <= 6  # of twelve rounds
    assert fault(session) is ErrorCode.TOO_MANY_ROUNDS


def test_ranges_get_smaller_faster_from_the_sixth_round_on_and_are_listed_from_the_eighth():
    """Whatever the earlier number of parts, a session of honest sides takes nine rounds."""
    held = spread(12_000)
    few_parts = Parameters(first_split=2, parts_per_difference=0.1, payload_threshold=1)
    talk = reconcile(filled(held[::2]), filled(held[1::2]), few_parts, few_parts)
    check(talk, {*held[::2]}, {*held[1::2]})
    asked = [sum(isinstance(said, RangeFingerprint) for said in each) for each in talk.rounds]
    assert len(asked) == 9
    assert all(asked[n] < 2 * asked[n - 1] for n in range(2, 6))
    assert asked[6] >= 2 * asked[5]
    assert asked[7:] == [0, 0]


@pytest.mark.parametrize("slow", [0, 1])
def test_who_lists_last_of_all_is_answered(slow):
    held, less = spread(3000), spread(3000)[:-40]
    chosen = [Parameters(list_from=10, hurry_from=20, branching=2, payload_threshold=1)] * 2
    chosen[slow] = Parameters(list_from=18, hurry_from=20, branching=2)
    talk = reconcile(filled(held), filled(less), *chosen, rounds_max=20)
    assert talk.closed == [Closed(error=None)] * 2
    assert len(talk.rounds) <= 12


def test_items_come_as_they_are_said():
    session = listening(HELD)
    session.receive(LowerBound(LOW))
    session.receive(Payload(MIDDLE))
    assert session.next_event() == ItemReceived(item=MIDDLE)


def test_with_echo_each_side_learns_what_the_other_one_lacks() -> None:
    """Items that a side has sent, and the other has not named, are missing on the other side."""
    rng = Random(7)
    common = {rng.randbytes(8) for _ in range(200)}
    sets = [common | {rng.randbytes(8) for _ in range(9)} for _ in range(2)]
    told: list[set[bytes]] = [set(), set()]
    sides = []
    for items, role in zip(sets, Role, strict=True):
        tree = Tree(item_size=8)
        tree.fill(b"".join(items))
        sides.append(Session(view=tree.snapshot(), role=role, parameters=Parameters(echo=True)))
    speaker = 0
    while sides[speaker].state is State.SPEAKING:
        while (message := sides[speaker].next_message()) is not None:
            if isinstance(message, Payload):
                told[speaker].add(message.item)
            if sides[1 - speaker].state is not State.ENDED:
                sides[1 - speaker].receive(message)
        speaker = 1 - speaker
    for one, other in ((0, 1), (1, 0)):
        assert told[one] - told[other] == sets[one] - sets[other]


class Claimed(TreeSnapshot):
    """A view that claims a number of items, all of them the same."""

    __slots__ = ("count", "pairs")

    def __init__(self, count: int) -> None:
        self.item_size, self.varying, self.monoid = 8, False, MONOIDS["xxh3-sum"]
        self.count, self.pairs = count, 0

    def __len__(self) -> int:
        return self.count

    def range(self, start: bytes, stop: bytes) -> tuple[int, int]:
        return 0, self.count

    def fingerprint(self, start: bytes = b"", stop: bytes = b"") -> Fingerprint:
        return Fingerprint(self.count, bytes(16))

    def fingerprint_at(self, start: int, count: int) -> Fingerprint:
        return Fingerprint(count, bytes(16))

    def select(self, rank: int) -> bytes:
        return bytes(8)

    def find_pair(self, start: int, count: int, digest: bytes) -> None:
        self.pairs += 1


@pytest.mark.parametrize(
    ("count", "digest_size", "asked"),
    [
        (1 << 24, 16, True),  # the most that a tree takes
        ((1 << 24) + 1, 16, False),
        ((1 << 20) - 1, 8, True),  # with more, an accidental pair is likelier than 2**-24
        (1 << 20, 8, False),
        (4095, 6, True),
        (4096, 6, False),
    ],
)
def test_pairs_are_looked_for_among_so_many_items(count: int, digest_size: int, asked: bool):
    view = Claimed(count)
    session = Session(
        view=view, role=Role.RESPONDER, parameters=Parameters(digest_size=digest_size)
    )
    session.receive(LowerBound(bytes(8)))
    theirs = Fingerprint(count - 2, bytes([1]) * digest_size)
    session.receive(RangeFingerprint(theirs, bytes(8)))
    session.receive(Terminal())
    assert session.next_message() == LowerBound(bytes(8))
    assert isinstance(session.next_message(), RangeFingerprint)
    assert view.pairs == asked


def test_more_items_than_are_read_at_a_time_are_each_sent_once() -> None:
    held = {number.to_bytes(2) for number in range(2500)}
    check(reconcile(tree_of(set()), tree_of(held)), set(), held)
