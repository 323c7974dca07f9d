"""The node's parts by themselves, the clever ones compared with a plain twin."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm.oxen import Delivery, Limits, Timing
from culm.oxen.clock import Clock
from culm.oxen.contacts import NEVER, ContactTable
from culm.oxen.gossip import fragment, lively
from culm.oxen.incoming import RESTART_GAP, START_MAX, Age, Incoming, InOrder
from culm.oxen.messages import (
    ID_MAX,
    SEQUENCE_MAX,
    Broadcast,
    Datagram,
    Dialect,
    Finalize,
    Gossip,
    MessageData,
    OneToOne,
    Parcel,
    Position,
    Synchronize,
    Tags,
    encode_parcel,
    write_message,
)
from culm.oxen.numbers import Numbers
from culm.oxen.outbox import Outbox
from culm.oxen.outgoing import Outgoing
from culm.oxen.routing import ForwardMemory, Routes
from culm.oxen.sizes import payload_sizes
from culm.oxen.states import Pressure
from culm.oxen.status import format_contacts

NOW = 1_700_000_000.0
ME = b"ME"


def table(*links: str, usable_s: float = 20.0) -> ContactTable:
    """Links like ``"ME-A"``, both ways, and ``"A>B"``, one way; all fresh."""
    found = ContactTable(ME, usable_s)
    for link in links:
        one, other = link.replace(">", "-").encode().split(b"-")
        found.add(one)
        found.add(other)
        found.put(one, other, NOW)
        if "-" in link:
            found.put(other, one, NOW)
    return found


# -- contacts and routes -----------------------------------------------------------------------


def test_times_only_grow() -> None:
    contacts = table("ME-A")
    contacts.put(ME, b"A", NOW - 5)
    assert contacts.get(ME, b"A") == NOW
    contacts.put(ME, b"A", NOW + 5)
    assert contacts.get(ME, b"A") == NOW + 5


def test_strangers_and_oneself_have_no_entries() -> None:
    contacts = table("ME-A")
    contacts.put(b"A", b"X", NOW)
    contacts.put(b"X", b"A", NOW)
    contacts.put(b"A", b"A", NOW)
    assert contacts.rows() == {ME: {b"A": NOW}, b"A": {ME: NOW}}
    assert contacts.get(b"X", b"A") == contacts.get(b"A", b"X") == NEVER


def test_gossip_is_clamped_and_says_nothing_of_us() -> None:
    contacts = table("ME-A")
    contacts.add(b"B")
    contacts.merge(
        {ME: [1e18, 1e18], b"A": [NOW + 1e9, -1e18], b"B": [NOW - 3, 0.0]}, [b"B", b"A"], NOW
    )
    assert contacts.rows() == {ME: {b"A": NOW}, b"A": {ME: NOW, b"B": NOW}, b"B": {}}


def test_removing_forgets_rows_and_columns() -> None:
    contacts = table("ME-A", "A-B")
    contacts.remove(b"A")
    assert contacts.rows() == {ME: {}, b"B": {}}


TOPOLOGIES = [
    # The three of the original tests.
    (("ME-1", "1-2", "2-3", "ME-4", "4-5", "2-6"), {"1": "1", "3": "1", "5": "4", "6": "1"}),
    (
        ("ME>1", "ME>3", "1>2", "2>1", "3-4", "4-5", "5>7", "6>2", "7>5", "7>6"),
        {"2": "1", "4": "3", "5": "3", "6": "3", "7": "3"},
    ),
    (
        ("ME>1", "1>2", "2>3", "3>4", "4>5", "5>6", "ME>7", "7>6"),
        {"1": "1", "5": "1", "6": "7", "7": "7"},
    ),
]


def routes_over(contacts: ContactTable, untried: Collection[bytes] = ()) -> Routes:
    return Routes(contacts, 20.0, lambda sid, now: sid in untried)


@pytest.mark.parametrize(("links", "hops"), TOPOLOGIES)
def test_the_first_hop_is_on_a_shortest_path(links: tuple[str, ...], hops: dict[str, str]) -> None:
    routes = routes_over(table(*links))
    assert {to: routes.hop(to.encode(), NOW) for to in hops} == {
        to: hop.encode() for to, hop in hops.items()
    }


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_distances_are_those_of_a_plain_search(links: set[tuple[int, int]]) -> None:
    names = [ME, *(b"%d" % index for index in range(1, 7))]
    contacts = ContactTable(ME, 20.0)
    for sid in names:
        contacts.add(sid)
    for one, other in links:
        contacts.put(names[one], names[other], NOW)
    # Relaxing all links over and over, without those that lead back to us.
    for to in names[1:]:
        plain = {to: 0}
        for _ in names:
            for fr, via in product(names[1:], repeat=2):
                if via in plain and contacts.usable(fr, via, NOW):
                    plain[fr] = min(plain.get(fr, 99), plain[via] + 1)
        assert contacts.distances(to, NOW) == plain


def test_later_attempts_take_other_ways() -> None:
    routes = routes_over(table("ME-A", "ME-B", "ME-C", "A-Z", "B-Z"))
    tried = [routes.hop(b"Z", NOW, attempt=attempt) for attempt in range(8)]
    assert tried == [b"A", b"B", b"A", b"Z", b"B", b"A", b"B", b"C"]


def test_one_known_way_is_taken_three_times_of_four() -> None:
    """With every other time only, a message over k links would take 2^k attempts."""
    routes = routes_over(table("ME-A", "ME-B", "A-Z"))
    tried = [routes.hop(b"Z", NOW, attempt=attempt) for attempt in range(12)]
    assert tried == [b"A", b"A", b"A", b"Z", b"A", b"A", b"A", b"B", b"A", b"A", b"A", b"Z"]


def test_where_every_way_is_known_they_are_taken_in_turn() -> None:
    """A parcel that comes from its own receiver leaves no other way."""
    routes = routes_over(table("ME-A", "ME-B", "A-Z", "B-Z"))
    tried = [routes.hop(b"Z", NOW, attempt=attempt, avoid=(b"Z",)) for attempt in range(6)]
    assert tried == [b"A", b"B"] * 3


def test_without_a_known_way_all_are_tried_in_turn() -> None:
    routes = routes_over(table("ME-A", "ME-B", "X-Z"))
    tried = [routes.hop(b"Z", NOW, attempt=attempt) for attempt in range(4)]
    assert tried == [b"Z", b"A", b"B", b"Z"]
    assert routes.hop(b"Z", NOW, attempt=3, avoid=(b"Z",)) == b"B"


def test_a_link_that_nobody_has_tried_is_tried_first() -> None:
    routes = routes_over(table("ME-A", "A-Z"), untried=(b"Z",))
    tried = [routes.hop(b"Z", NOW, attempt=attempt) for attempt in range(5)]
    assert tried == [b"Z", b"A", b"A", b"Z", b"A"]
    assert routes.hop(b"Z", NOW, avoid=(b"Z",)) == b"A"


def test_a_working_link_is_tried_twice_before_another() -> None:
    routes = routes_over(table("ME-A", "ME-Z", "A-Z"))
    tried = [routes.hop(b"Z", NOW, attempt=attempt) for attempt in range(6)]
    assert tried == [b"Z", b"Z", b"Z", b"A", b"Z", b"A"]


def test_avoided_neighbours_are_avoided() -> None:
    routes = routes_over(table("ME-A", "ME-Z", "A-Z"))
    assert routes.hop(b"Z", NOW, avoid=(b"Z",)) == b"A"
    assert routes.hop(b"Z", NOW, avoid=(b"Z", b"A")) is None


@pytest.mark.parametrize(
    ("source", "expected"), [(b"A", [0.02, 0.04, 0.08, 0.16, 0.32]), (b"B", [0.4, 0.8, 1.6, 3.2])]
)
def test_forwarding_again_needs_intervals_that_double(source: bytes, expected: list[float]) -> None:
    """From its first neighbour, and from another one."""
    memory = ForwardMemory(again_s=0.02, first_s=0.4, last_s=5.0, size_max=100)
    assert memory.admit("x", b"A", 0.0) == 0
    allowed = [0.0]
    for step in range(700):
        other = source if source == b"A" else b"%d" % step  # never the one of last time
        if memory.admit("x", other, step / 100) is not None:
            allowed.append(step / 100)
    gaps = [later - earlier for earlier, later in pairwise(allowed)]
    assert gaps[: len(expected)] == pytest.approx(expected, abs=0.011)


def test_messages_without_an_id_are_duplicates_only_from_another_neighbour() -> None:
    memory = ForwardMemory(again_s=0.02, first_s=0.4, last_s=5.0, size_max=100)
    assert [memory.admit("x", b"A", 0.0, once=True) for _ in range(9)] == [0] * 9
    assert memory.admit("x", b"B", 0.1, once=True) is None
    assert memory.admit("x", b"B", 0.5, once=True) == 0


def test_of_equal_messages_that_go_to_another_forwarder_one_in_nine_is_dropped() -> None:
    """Whatever goes round in circles meets that drop; two that are equal seldom do."""
    memory = ForwardMemory(again_s=0.02, first_s=0.4, last_s=5.0, size_max=100)
    passed = [
        memory.admit("x", b"A", step / 10, once=True, onward=True) is not None for step in range(36)
    ]
    assert passed == ([True] * 8 + [False]) * 4


def test_the_memory_of_what_was_forwarded_is_bounded() -> None:
    memory = ForwardMemory(again_s=0.1, first_s=0.4, last_s=5.0, size_max=3)
    for index in range(4):
        assert memory.admit(index, b"A", 0.0) == 0
    assert memory.admit(3, b"A", 0.05) is None
    assert memory.admit(0, b"A", 0.05) == 0  # the oldest was forgotten
    assert len(memory) == 3


def test_the_memory_of_what_was_forwarded_shrinks_again() -> None:
    memory = ForwardMemory(again_s=0.1, first_s=0.4, last_s=5.0, size_max=300)
    for index in range(200):
        memory.admit(index, b"A", index / 100)
    memory.expire(21.0)
    assert len(memory) == 99
    memory.expire(30.0)
    assert len(memory) == 0


# -- gossip ------------------------------------------------------------------------------------


@given(
    st.integers(1, 70), st.integers(230, 1500), st.sampled_from([1.0, 0.05, 7.0]), st.integers(0, 9)
)
def test_gossip_fits_into_a_datagram(count: int, size: int, resolution: float, seed: int) -> None:
    contacts = ContactTable(ME, 20.0)
    rng = Random(seed)
    names = [b"%d" % (1000**index % 10 ** rng.randrange(1, 20)) for index in range(count)]
    for sid in names:
        contacts.add(sid)
    for one, other in product([ME, *names], repeat=2):
        if rng.random() < 0.8:
            contacts.put(one, other, NOW - rng.uniform(0, 25))
    gossip = fragment(
        contacts, set(names), NOW, size_max=size, resolution_s=resolution, rng=Random(seed)
    )
    if gossip is None:
        return
    encoded = encode_parcel(Parcel(2**32 - 1, 2**32 - 1, gossip))
    assert len(encoded) <= size
    for fr, times in gossip.rows.items():
        for to, time in zip(gossip.columns, times, strict=True):
            known = contacts.get(fr, to)
            assert time == 0 or known - resolution <= time <= known
            assert bool(time) == contacts.fresh(known, NOW)


def test_gossip_of_a_small_cluster_is_all_of_the_table() -> None:
    contacts = table("ME-A", "A-B", "ME-B")
    gossip = fragment(contacts, {b"A", b"B"}, NOW, size_max=1200, resolution_s=1.0, rng=Random(1))
    assert gossip is not None
    assert sorted(gossip.rows) == sorted(gossip.columns) == [b"A", b"B", ME]


def test_only_the_lively_are_introduced() -> None:
    contacts = table("ME-A")
    gossip = Gossip({b"A": [NOW, NOW - 100, 0.0, NOW]}, [b"new", b"dead", b"never", b"A"])
    assert lively(gossip, contacts, NOW) == [b"A", b"new"]


def test_nothing_is_told_of_those_who_are_in_touch_with_nobody() -> None:
    """Neither a row of contacts that are all old, nor a column of a server out of reach."""
    contacts = table("ME-A", "ME>B")
    for sid in (b"A", b"B"):
        contacts.add(b"dead")
        contacts.put(sid, b"dead", NOW - 21)
    gossip = fragment(
        contacts, {b"A", b"B", b"dead"}, NOW, size_max=1200, resolution_s=1.0, rng=Random(1)
    )
    assert gossip is not None
    assert sorted(gossip.rows) == [b"A", ME]
    assert sorted(gossip.columns) == [b"A", b"B", ME]


def test_nothing_is_told_of_those_who_are_not_shared() -> None:
    contacts = table("ME-A", "ME-B", "A-B")
    gossip = fragment(contacts, {b"A"}, NOW, size_max=1200, resolution_s=1.0, rng=Random(1))
    assert gossip is not None
    assert b"B" not in gossip.rows
    assert b"B" not in gossip.columns


# -- streams -----------------------------------------------------------------------------------


@given(st.lists(st.integers(30, 60), max_size=80), st.integers(1, 12))
def test_in_order_is_what_a_sorted_set_would_do(arrivals: list[int], window: int) -> None:
    stream, position, held, out = InOrder(40, window), 40, set[int](), list[bytes]()
    expected: list[bytes] = []
    for number in arrivals:
        got = stream.accept(number, b"%d" % number)
        assert (got is None) == (number > position + window)
        if got is None:
            continue
        out += got
        if number > position:
            held.add(number)
        while position + 1 in held:
            position += 1
            held.remove(position)
            expected.append(b"%d" % position)
        assert (stream.position, len(stream)) == (position, len(held))
        assert out == expected


def test_skipping_hands_out_what_is_there() -> None:
    stream = InOrder(10, 20)
    for number in (12, 14, 15, 17):
        stream.accept(number, b"%d" % number)
    assert stream.skip(14) == [b"12", b"14", b"15"]
    assert stream.skip(3) == []
    assert stream.accept(16, b"16") == [b"16", b"17"]


def test_the_age_of_a_synchronize_message() -> None:
    incoming = Incoming(Synchronize(5, 2**40), 10)
    assert incoming.age_of(Synchronize(5, 2**40)) is Age.SAME
    assert incoming.age_of(Synchronize(5, 2**40 + RESTART_GAP - 1)) is Age.SAME
    assert incoming.age_of(Synchronize(5, 2**40 + 60_000_000)) is Age.SAME  # messages later
    assert incoming.age_of(Synchronize(5, 2**40 + (17 << 22))) is Age.NEWER  # milliseconds
    assert incoming.age_of(Synchronize(0, 2**40 + RESTART_GAP)) is Age.NEWER
    assert incoming.age_of(Finalize(9, 2**40 - RESTART_GAP)) is Age.OLDER


def test_a_life_is_told_from_another_by_the_number_of_broadcasts() -> None:
    """With a clock that was set back, both can begin an association at the same time by it."""
    incoming = Incoming(Synchronize(2**41, 2**40), 10)
    assert incoming.age_of(Synchronize(2**41 + RESTART_GAP - 1, 2**40 + 9)) is Age.SAME
    assert incoming.age_of(Synchronize(2**41 + RESTART_GAP, 2**40 + 9)) is Age.NEWER
    assert incoming.age_of(Synchronize(2**41 - RESTART_GAP, 2**40 + 9)) is Age.OLDER
    assert incoming.age_of(Finalize(2**41 + RESTART_GAP, 2**40)) is Age.NEWER
    assert incoming.age_of(Synchronize(2**41, 2**40 + RESTART_GAP)) is Age.NEWER
    assert incoming.age_of(Tags(2**40, 1, {})) is Age.SAME


@pytest.mark.parametrize("epoch", [0.0, -5.0, NOW, 4e9, 9e10])
def test_each_start_is_far_above_the_last(epoch: float) -> None:
    clock = Clock(epoch)
    numbers = Numbers(clock, Random(1))
    starts = [numbers.next_start() for _ in range(5)]
    assert all(later - earlier > RESTART_GAP for earlier, later in pairwise(starts))
    assert 0 <= starts[0] <= starts[-1] < 2**63


@pytest.mark.parametrize("epoch", [NOW, 0.0, -5.0, 4e9, 9e10])
def test_a_node_that_starts_later_has_greater_numbers_than_were_used(epoch: float) -> None:
    """Whatever year it is by the clock, which may never have been set."""
    clock = Clock(epoch)
    used = Numbers(clock, Random(1)).next_start() + 1_000_000  # messages, in a second
    clock.advance(1.0)
    assert Numbers(clock, Random(2)).next_start() - used > RESTART_GAP


@pytest.mark.parametrize(
    ("number", "vouched", "believed"),
    [
        (START_MAX - 1, False, {Age.NEWER}),
        (START_MAX - 1, True, set()),
        (START_MAX, False, {Age.NEWER, Age.OLDER, Age.SAME}),
        (START_MAX, True, {Age.NEWER, Age.OLDER, Age.SAME}),
    ],
)
def test_numbers_give_way_to_newer_ones_unless_their_sender_has_named_ours(
    number: int, vouched: bool, believed: set[Age]
) -> None:
    """Numbers with which no server begins are forged: they give way to any."""
    incoming = Incoming(Synchronize(0, number), 10, vouched=vouched)
    assert {age for age in Age if incoming.gives_way_to(age)} == believed


def outgoing(window: int = 4, queue_max: int = 99) -> Outgoing:
    found = Outgoing(
        Synchronize(0, 0), window=window, queue_max=queue_max, timing=Timing(), rng=Random(1)
    )
    found.open = True
    return found


def test_what_rests_fills_the_queue_for_its_own_stream_alone() -> None:
    queue = outgoing(window=1, queue_max=4)
    for position in Position:
        queue.add_piece(7 if position is Position.LAST else 0, position, b"x")
        if position is Position.FIRST:
            queue.begin(Delivery.IN_ORDER, 7)
    queue.ready(0.0)
    assert queue.refuse(Delivery.IN_ORDER, 1, 0.0) == 7
    queue.add(8, Delivery.DATAGRAM, b"x")
    assert not queue.is_full(Delivery.DATAGRAM)
    assert queue.pressure is Pressure.NONE


def test_nothing_goes_beyond_the_window() -> None:
    queue = outgoing(window=4)
    for number in range(1, 11):
        queue.add(number, Delivery.IN_ORDER, b"%d" % number)
    first = queue.ready(0.0)
    assert [item.sequence for item in first] == [1, 2, 3, 4]
    queue.acknowledge(first[2].id, 0.0)
    assert queue.ready(0.0) == []  # the first one is missing: its place in the window is taken
    queue.acknowledge(first[0].id, 0.0)
    assert [item.sequence for item in queue.ready(0.0)] == [5]
    queue.acknowledge(first[1].id, 0.0)
    assert [item.sequence for item in queue.ready(0.0)] == [6, 7]
    assert len(queue) == 7


@given(st.data())
def test_a_queue_sends_all_once_and_ends_empty(
    data: st.DataObject,
) -> None:
    queue = outgoing(window=data.draw(st.integers(1, 6)))
    sent: list[int] = []
    in_flight: list[int] = []

    def take() -> None:
        for item in queue.ready(0.0):
            if item.order == item.first:  # overtaken ones may be sent again
                sent.append(item.number)
                in_flight.append(item.id)

    for number in range(1, 20):
        queue.add(number, data.draw(st.sampled_from([Delivery.IN_ORDER, Delivery.DATAGRAM])), b"")
        take()
        while in_flight and data.draw(st.booleans()):
            id = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
            assert queue.acknowledge(id, 0.0) is not None
            assert queue.acknowledge(id, 0.0) is None
            take()
    while in_flight:
        queue.acknowledge(in_flight.pop(), 0.0)
        take()
    assert sorted(sent) == list(range(1, 20))
    assert len(queue) == 0
    assert queue.flight.next_deadline() is None


def test_neither_stream_holds_up_the_other() -> None:
    """Both have more to send than there is room for: they take turns."""
    queue = outgoing(window=200)
    for number in range(1, 101):
        queue.add(number, Delivery.IN_ORDER, b"")
        queue.add_broadcast(100 + number, number, b"")
    firsts: list[bool] = []
    for _ in range(4):
        sent = queue.ready(0.0)
        firsts.append(sent[0].number > 100)
        for item in sent:
            queue.acknowledge(item.id, 0.0)
    assert all(before is not after for before, after in pairwise(firsts))


def test_the_last_word_counts_what_was_left_out() -> None:
    queue = outgoing()
    queue.skip_broadcast(1)
    queue.skip_broadcast(2)
    queue.add_finalize()
    (skipped,) = queue.ready(0.0)
    queue.acknowledge(skipped.id, 0.0)
    (last,) = queue.ready(0.0)
    assert last.d == write_message(Finalize(2, 0))


def test_what_is_left_out_in_a_row_takes_one_place_in_the_queue() -> None:
    queue = outgoing()
    sizes: list[int] = []
    for sequence in (1, 2, 3):
        queue.skip_broadcast(sequence)
        sizes.append(len(queue))
    assert sizes == [1, 1, 1]
    (skipped,) = queue.ready(0.0)
    queue.acknowledge(skipped.id, 0.0)
    assert len(queue) == 0


def test_restarting_goes_on_after_what_was_numbered() -> None:
    queue = outgoing(window=1)
    for number in range(1, 4):
        queue.add(number, Delivery.IN_ORDER, b"")
    queue.ready(0.0)
    assert queue.restart(77) == [1, 2, 3]
    assert queue.synchronize(0.0, known=0).d == {b"m": b"s", b"b": 77, b"1": 3}
    assert queue.ready(0.0) == []
    queue.open = True
    queue.add(4, Delivery.IN_ORDER, b"")
    assert [item.sequence for item in queue.ready(0.0)] == [4]


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("size", [300, 1200, 65_507])
def test_the_largest_message_leaves_room_for_the_longest_of_everything(
    dialect: Dialect, size: int
) -> None:
    found = payload_sizes(Limits(datagram_size_max=size), dialect)
    sid = bytes(32)
    kinds = {
        Delivery.DATAGRAM: Datagram,
        Delivery.IN_ORDER: lambda data: OneToOne(SEQUENCE_MAX, data),
        Delivery.IN_ORDER_BROADCAST: lambda data: Broadcast(SEQUENCE_MAX, data),
    }
    for delivery, kind in kinds.items():
        d = write_message(kind(bytes(found[delivery])))  # type: ignore[operator]
        body = MessageData(sid, sid, ID_MAX, d)
        encoded = encode_parcel(Parcel(ID_MAX, ID_MAX, body), dialect)
        assert size - 1 <= len(encoded) <= size  # one if the length of 99 or so is a digit less


# -- outbox, views, limits ---------------------------------------------------------------------


def test_a_body_that_fills_a_datagram_goes_without_keepalives() -> None:
    outbox = Outbox(size_max=9, parcel_size_max=60, dialect=Dialect.KEYED)
    gossip = Gossip({b"A": [1.0]}, [b"B" * 20])
    outbox.put(b"P", gossip)
    outbox.owe(b"P", 5)
    assert outbox.take(lambda *_: 7) == [
        (b"P", encode_parcel(Parcel(None, None, gossip))),
        (b"P", b"d2:kai7e2:kki5ee"),
    ]
    assert outbox.take(lambda *_: 7) == []


def test_the_outbox_is_bounded() -> None:
    outbox = Outbox(size_max=3, parcel_size_max=99, dialect=Dialect.KEYED)
    gossip = Gossip({}, [])
    assert [outbox.put(b"P", gossip) for _ in range(4)] == [True, True, True, False]
    assert [outbox.owe(b"%d" % index, 1) for index in range(4)] == [True, True, True, False]
    for id in range(100):
        outbox.owe(b"0", id)
    assert len(outbox.take(lambda *_: None)) == 3 + 16 + 2
    assert [outbox.put(b"P", gossip) for _ in range(4)] == [True, True, True, False]


def test_the_table_is_printed() -> None:
    contacts = {b"A": {b"B": NOW - 3.9}, b"B": {b"A": NOW - 5000}, b"\xff": {}}
    assert format_contacts(contacts, NOW) == (
        "      A  B  \\xff\nA     -  3     -\nB     >  -     -\n\\xff  -  -     -"
    )


@pytest.mark.parametrize("name", list(Limits.__dataclass_fields__))
def test_limits_are_positive(name: str) -> None:
    """Except for two, which may be zero."""
    low = 0 if name in ("message_size_max", "tags_size_max") else 1
    with pytest.raises(ValueError, match=name):
        Limits(**{name: low - 1})


@pytest.mark.parametrize("name", list(Timing.__dataclass_fields__))
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_times_are_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Timing(**{name: value})


def test_times_are_rounded_to_nanoseconds_at_least() -> None:
    """Others would be an exception in gossip."""
    contacts = ContactTable(b"A", 60.0)
    contacts.add(b"B")
    contacts.put(b"A", b"B", NOW)
    gossip = fragment(contacts, {b"B"}, NOW, size_max=1200, resolution_s=5e-324, rng=Random(1))
    assert gossip is not None
    assert max(gossip.rows[b"A"]) == pytest.approx(NOW, abs=1e-6)
    with pytest.raises(ValueError, match="resolution_s"):
        Timing(resolution_s=float("inf"))


def test_datagrams_hold_messages_and_are_carried_by_udp() -> None:
    with pytest.raises(ValueError, match="datagram_size_max"):
        Limits(datagram_size_max=200)
    with pytest.raises(ValueError, match="datagram_size_max"):
        Limits(datagram_size_max=65_508)
