"""Nodes' descriptions of themselves, and the groups that follow from these."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oxen_support import ME, Table

from culm.machine import ContractErrorCode, LocalProtocolError
from culm.oxen import (
    Delivery,
    Dialect,
    DropReason,
    ErrorCode,
    FailReason,
    LeaveReason,
    Limits,
    Node,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    SendFailed,
    TagsChanged,
    Timing,
)
from culm.oxen.messages import (
    SEQUENCE_MAX,
    Finalize,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    ParcelError,
    Piece,
    Synchronize,
    Tags,
    decode_parcel,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.tags import TAGS_MAX, fits

P, Q, R = b"P", b"Q", b"R"
SIZE_MAX = 100
LIMITS = Limits(tags_size_max=SIZE_MAX)
ROLE, HALL = {"role": "db"}, {"role": "db", "hall": "3"}


def let_in(table: Table, sid: bytes, size_max: int = SIZE_MAX, *, one: int = 0) -> Synchronize:
    """Let a puppet join that takes `size_max` bytes of tags; our synchronize message to it."""
    table.said()
    table.tell_message(sid, Synchronize(0, one, 0, size_max))
    said = [parcel.body for hop, parcel in table.sent if hop == sid]
    assert sum(isinstance(body, MessageData) for body in said) == 1
    return table.answer(sid, sid)


def told(table: Table, sid: bytes | None = None) -> list[Tags]:
    """The tags sent since the last call."""
    return [message for message in table.messages(sid) if isinstance(message, Tags)]


def joined(*sids: bytes, **options: Any) -> Table:
    table = Table(limits=LIMITS, **options)
    for sid in sids:
        let_in(table, sid)
    table.events()
    table.said()
    return table


# -- our tags -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size_max", [0, 1])
def test_who_was_said_to_take_few_is_told_once_it_names_our_number(size_max: int) -> None:
    """A stranger has forged its first numbers, and its limit on bytes of tags."""
    table = Table(limits=LIMITS)
    table.node.set_tags(ROLE)
    ours = let_in(table, P, size_max=size_max)
    before = told(table, P)
    assert [tags.table for tags in before] == [{}] * size_max
    table.tell_message(P, Synchronize(7 * 2**30, 7 * 2**30, 0, SIZE_MAX, ours.one))
    (tags,) = told(table, P)
    assert tags.table == ROLE
    assert all(tags.version > each.version for each in before)


def test_who_joins_is_told() -> None:
    table = Table(limits=LIMITS)
    table.node.set_tags(ROLE)
    start = let_in(table, P)
    assert start.tags_size_max == SIZE_MAX
    assert told(table) == [Tags(start.one, 1, ROLE)]
    assert table.node.tags == ROLE


def test_who_has_joined_is_told_of_changes_alone() -> None:
    table = joined(P, Q)
    table.node.set_tags(ROLE)
    table.node.set_tags(dict(ROLE))
    table.drain()
    assert sorted(hop for hop, _ in table.sent) == [P, Q]
    assert [(each.version, each.table) for each in told(table)] == [(1, ROLE)] * 2
    table.node.set_tags({})
    table.drain()
    assert [(each.version, each.table) for each in told(table, P)] == [(2, {})]


def test_who_does_not_take_tags_is_told_none_and_hears_nothing_of_them() -> None:
    table = Table(limits=LIMITS)
    table.node.set_tags(ROLE)
    table.join(P)
    table.node.set_tags(HALL)
    table.drain()
    assert table.said() == []


def test_who_takes_fewer_is_told_none() -> None:
    table = Table(limits=LIMITS)
    table.node.set_tags(HALL)
    let_in(table, P, 15)
    assert [each.table for each in told(table)] == [{}]
    table.node.set_tags(ROLE)
    table.drain()
    assert fits(ROLE, 15)
    assert [each.table for each in told(table)] == [ROLE]


def test_without_the_mode_nothing_on_the_wire_changes() -> None:
    parcels = []
    for limits in (Limits(), LIMITS):
        table = Table(limits=limits)
        table.tell_message(P, Synchronize(0, 0))
        parcels.append([encode_parcel(parcel) for _, parcel in table.sent])
    plain, tagged = ([bytes(each) for each in one] for one in parcels)
    assert plain != tagged
    assert [each.replace(b"1:ti100e", b"") for each in tagged] == plain
    table = Table()
    let_in(table, P)
    assert told(table) == []
    with pytest.raises(LocalProtocolError) as caught:
        table.node.set_tags(ROLE)
    assert caught.value.code is ErrorCode.TAGS_LIMIT
    table.node.set_tags({})


def test_what_was_lost_is_sent_again_and_what_was_replaced_is_not() -> None:
    table = joined(P)
    table.node.set_tags(ROLE)
    table.node.set_tags(HALL)
    table.drain()
    assert table.node.peers()[P].queued == 1
    table.said()
    table.wait(8.0, alive=(P,))
    again = [parcel.body for _, parcel in table.sent if isinstance(parcel.body, MessageData)]
    assert len(again) > 2
    assert {(each.version, len(each.table)) for each in told(table)} == {(2, len(HALL))}
    assert again[-1].id is not None
    table.tell(P, MessageAck(ME, P, again[-1].id))
    assert table.node.peers()[P].queued == 0
    assert table.events() == []
    table.wait(8.0, alive=(P,))
    assert told(table) == []


def test_who_is_back_is_told_what_we_are_now() -> None:
    """Even that we no longer have any tags, as it may remember some."""
    table = joined(P, timing=Timing(usable_s=5.0, give_up_s=5.0))
    table.node.set_tags(ROLE)
    table.drain()
    (tagged,) = (body for body in table.bodies(MessageData) if body.fr == ME)
    table.tell(P, MessageAck(ME, P, tagged.id))
    table.wait(12.0)
    assert table.events() == [PeerUnreachable(peer=P)]
    table.node.set_tags({})
    table.drain()
    assert told(table) == []
    table.contact(P)
    table.wait(2.0, alive=(P,))
    starts = [body for body in table.bodies(MessageData) if body.fr == ME]
    table.tell(P, MessageAck(ME, P, starts[-1].id))
    assert PeerReachable(peer=P) in table.events()
    assert [(each.version, each.table) for each in told(table)] == [(2, {})]


def test_who_leaves_does_not_wait_until_his_tags_have_arrived() -> None:
    table = joined(P)
    table.node.set_tags(ROLE)
    table.drain()
    assert len(told(table)) == 1
    table.node.leave()
    table.drain()
    (goodbye,) = (body for body in table.bodies(MessageData) if body.fr == ME)
    assert isinstance(read_message(goodbye.d), Finalize)
    table.tell(P, MessageAck(ME, P, goodbye.id))
    assert table.node.state.name == "CLOSED"


def test_tags_go_when_the_window_is_full_and_bring_no_more_than_one_message_each() -> None:
    table = Table(limits=Limits(tags_size_max=SIZE_MAX, queue_max=2))
    let_in(table, P)
    for _ in range(2):
        table.node.send_in_order(P, b"x")
    for number in range(10):
        table.node.set_tags({"number": str(number)})
        assert table.node.peers()[P].queued == 3


BAD = [
    {str(number): "" for number in range(TAGS_MAX + 1)},
    {"x": "y" * SIZE_MAX},
    {"ö" * (SIZE_MAX // 2): ""},
]


@pytest.mark.parametrize("tags", BAD)
def test_there_are_limits(tags: dict[str, str]) -> None:
    table = Table(limits=Limits(tags_size_max=SIZE_MAX if len(tags) == 1 else 800))
    table.node.set_tags(ROLE)
    with pytest.raises(LocalProtocolError) as caught:
        table.node.set_tags(tags)
    assert caught.value.code is ErrorCode.TAGS_LIMIT
    assert table.node.tags == ROLE


@pytest.mark.parametrize("tags", [None, [], "role", {"role": b"db"}, {1: "db"}, {"\ud800": "x"}])
def test_tags_are_text(tags: Any) -> None:
    table = Table(limits=LIMITS)
    with pytest.raises((TypeError, ValueError)) as caught:
        table.node.set_tags(tags)
    assert not isinstance(caught.value, UnicodeError)
    assert table.node.tags == {}


def test_who_has_left_says_nothing_more() -> None:
    table = joined(P)
    table.node.leave()
    for change in (
        lambda: table.node.set_tags(ROLE),
        lambda: table.node.join_group("x"),
        lambda: table.node.leave_group("x"),
        lambda: table.node.send_to_group("x", b""),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            change()
        assert caught.value.code is ContractErrorCode.ALREADY_CLOSED


def test_tags_can_be_set_before_there_is_a_cluster_and_changed_by_nobody_else() -> None:
    node = Node(me=ME, rng=Table().dice, epoch=0.0, limits=LIMITS)
    mine = dict(ROLE)
    node.set_tags(mine)
    mine["role"] = "web"
    node.tags["role"] = "web"
    assert node.tags == ROLE


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("keys", [[], [bytes(32)]])
def test_all_that_is_allowed_fits_into_the_smallest_datagram(
    dialect: Dialect, keys: list[bytes]
) -> None:
    overhead = 40 if keys else 0
    sid_size, tags_size = 20, 2_000
    size = 160 + 2 * sid_size + tags_size + overhead
    limits = Limits(datagram_size_max=size, sid_size_max=sid_size, tags_size_max=tags_size)
    Table(limits=limits, dialect=dialect, keys=keys)
    table = {"n": "v" * (tags_size - len(b"d1:n1985:e"))}
    assert fits(table, tags_size)
    assert not fits({"n": table["n"] + "v"}, tags_size)
    sid, number = bytes(sid_size), SEQUENCE_MAX
    d = write_message(Tags(number, number, table))
    parcel = Parcel(2**32 - 1, 2**32 - 1, MessageData(sid, sid, 2**32 - 1, d))
    assert len(encode_parcel(parcel, dialect)) + overhead <= size
    with pytest.raises(ValueError, match="datagram_size_max"):
        Limits(datagram_size_max=size - 41, sid_size_max=sid_size, tags_size_max=tags_size)


# -- the tags of others ------------------------------------------------------------------------


def test_a_peers_tags_are_told_after_it_joined_and_when_they_change() -> None:
    table = joined(P, Q)
    answered = table.tell_message(P, Tags(0, 1, ROLE))
    assert table.events() == [TagsChanged(peer=P, tags=ROLE)]
    assert table.acknowledged() == [answered]
    views = table.node.peers()
    assert (views[P].tags, views[Q].tags) == (ROLE, {})
    table.tell_message(P, Tags(0, 2, dict(ROLE)))
    assert table.events() == []
    table.tell_message(P, Tags(0, 3, {}))
    assert table.events() == [TagsChanged(peer=P, tags={})]


def test_tags_that_come_before_it_has_joined_are_told_then() -> None:
    table = Table(limits=LIMITS)
    table.tell_message(P, Synchronize(0, 0, 0, SIZE_MAX))
    table.tell_message(P, Tags(0, 1, ROLE))
    assert table.events() == []
    table.accept(P, P)
    assert table.events() == [PeerJoined(peer=P), TagsChanged(peer=P, tags=ROLE)]


def test_tags_of_somebody_unknown_have_no_effect() -> None:
    table = joined(P)
    table.tell_message(Q, Tags(0, 1, ROLE))
    assert table.acknowledged() == []
    assert table.events() == []
    assert table.node.dropped[DropReason.NOT_SYNCHRONIZED] == 1
    assert table.node.peers()[Q].tags == {}


def test_earlier_tags_that_come_again_have_no_effect() -> None:
    table = joined(P)
    for version, tags in ((1, ROLE), (2, HALL)):
        table.tell_message(P, Tags(0, version, tags))
    table.events()
    table.said()
    again = table.tell_message(P, Tags(0, 1, ROLE))
    assert table.acknowledged() == [again]
    assert table.events() == []
    assert table.node.peers()[P].tags == HALL


def test_tags_of_a_former_life_have_no_effect() -> None:
    table = joined()
    let_in(table, P, one=2**50)
    table.tell_message(P, Tags(2**50, 7, ROLE))
    table.insist(P, Synchronize(0, 2**51, 0, SIZE_MAX))
    table.accept(P, P)
    assert table.events() == [
        PeerJoined(peer=P),
        TagsChanged(peer=P, tags=ROLE),
        PeerLeft(peer=P, reason=LeaveReason.RESTARTED),
        PeerJoined(peer=P),
    ]
    assert table.node.peers()[P].tags == {}
    table.said()
    table.tell_message(P, Tags(2**50, 8, ROLE))
    assert table.acknowledged() == []
    assert table.node.dropped[DropReason.STALE_SYNCHRONIZE] > 0
    table.tell_message(P, Tags(2**51, 1, HALL))
    assert table.events() == [TagsChanged(peer=P, tags=HALL)]


def test_who_is_back_is_as_he_was_until_he_says_otherwise() -> None:
    table = joined(P, timing=Timing(usable_s=5.0, give_up_s=5.0))
    table.tell_message(P, Tags(0, 1, ROLE))
    table.events()
    table.wait(12.0)
    table.tell_message(P, Tags(0, 2, HALL))
    assert table.node.peers()[P].state is PeerState.GIVEN_UP
    assert table.events() == [PeerUnreachable(peer=P)]
    table.contact(P)
    table.wait(2.0, alive=(P,))
    table.accept(P, P)
    assert table.events() == [PeerReachable(peer=P), TagsChanged(peer=P, tags=ROLE)]
    table.tell_message(P, Tags(0, 2, HALL))
    assert table.events() == [TagsChanged(peer=P, tags=HALL)]


def test_a_server_speaks_for_itself_alone() -> None:
    """Whichever server brings a message, it is about its author."""
    table = joined(P, Q)
    table.tell_message(P, Tags(0, 1, ROLE), source=Q)
    assert table.events() == [TagsChanged(peer=P, tags=ROLE)]
    table.tell_message(ME, Tags(0, 1, {"role": "liar"}), source=Q)
    assert table.node.tags == {}
    assert table.events() == []
    assert table.node.dropped[DropReason.FROM_SELF] == 1


@pytest.mark.parametrize("tags", BAD)
def test_who_says_more_than_is_taken_is_not_heard(tags: dict[str, str]) -> None:
    table = Table(limits=Limits(tags_size_max=SIZE_MAX if len(tags) == 1 else 800))
    let_in(table, P)
    table.tell_message(P, Tags(0, 1, ROLE))
    table.events()
    table.said()
    table.tell_message(P, Tags(0, 2, tags))
    assert table.acknowledged() == []
    assert table.events() == []
    assert table.node.peers()[P].tags == ROLE
    assert table.node.dropped[DropReason.MALFORMED] == 1


def test_without_the_mode_nobody_is_heard() -> None:
    table = Table()
    table.join(P)
    for tags in (ROLE, {}):
        table.tell_message(P, Tags(0, 1, tags))
    assert table.node.dropped[DropReason.MALFORMED] == 2
    assert table.acknowledged() == []


NO_TAGS: list[Any] = [
    {b"m": b"t"},
    {b"m": b"t", b"1": 0, b"v": 1},
    {b"m": b"t", b"1": 0, b"v": 1, b"t": b"x"},
    {b"m": b"t", b"1": 0, b"v": 1, b"t": [b"x"]},
    {b"m": b"t", b"1": 0, b"v": 1, b"t": {b"x": 1}},
    {b"m": b"t", b"1": 0, b"v": 1, b"t": {b"x": {b"y": b"z"}}},
    {b"m": b"t", b"1": 0, b"v": 1, b"t": {b"\xff": b""}},
    {b"m": b"t", b"1": 0, b"v": 1, b"t": {b"": b"\xed\xa0\x80"}},
    {b"m": b"t", b"1": 0, b"v": -1, b"t": {}},
    {b"m": b"t", b"1": b"0", b"v": 1, b"t": {}},
    {b"m": b"s", b"b": 0, b"1": 0, b"t": -1},
    {b"m": b"s", b"b": 0, b"1": 0, b"t": {}},
]


@pytest.mark.parametrize("d", NO_TAGS)
def test_what_are_no_tags_is_refused(d: Any) -> None:
    with pytest.raises(ParcelError):
        read_message(d)
    table = joined(P)
    table.tell(P, MessageData(ME, P, 1, d))
    assert table.node.dropped[DropReason.MALFORMED] == 1
    assert table.events() == []


def test_a_stranger_who_hides_gets_no_more_of_them_than_of_anything() -> None:
    """One that acknowledges but answers no keepalive: three times the bytes in its name."""
    table = Table(limits=Limits(tags_size_max=900))
    table.node.set_tags({"long": "x" * 880})
    came = went = 0

    def tell(body: Any) -> list[bytes]:
        nonlocal came, went
        datagram = encode_parcel(Parcel(None, None, body))
        came += len(datagram)
        table.node.receive_datagram(datagram, source=P)
        while table.node.next_event() is not None:
            pass
        sent = [data for _, data in table.node.datagrams_to_send()]
        went += sum(map(len, sent))
        assert went <= 3 * came
        return sent

    sent = tell(MessageData(ME, P, 1, write_message(Synchronize(0, 0, 0, 900))))
    bodies = [decode_parcel(data).body for data in sent]
    (start,) = (body for body in bodies if isinstance(body, MessageData))
    assert start.id is not None
    tell(MessageAck(ME, P, start.id))
    assert table.node.peers()[P].state is PeerState.JOINED
    for second in range(1, 60):
        table.node.advance(table.now + second)
        tell(NOTHING)
    assert table.node.dropped[DropReason.UNPROVED] > 0


NOTHING = MessageAck(ME, P, 0)
"""Neither an answer to a keepalive nor of any use."""

names = st.text(st.characters(codec="utf-8"), max_size=3)
tables = st.dictionaries(names, names, max_size=4)
numbers = st.integers(0, SEQUENCE_MAX)


@given(st.builds(Tags, numbers, numbers, tables), st.sampled_from(Dialect))
def test_round_trip(message: Tags, dialect: Dialect) -> None:
    parcel = Parcel(None, 1, MessageData(ME, P, 7, write_message(message)))
    found = decode_parcel(encode_parcel(parcel, dialect), dialect).body
    assert isinstance(found, MessageData)
    assert read_message(found.d) == message


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), max_size=12))
def test_the_latest_counts_in_whatever_order_they_come(story: list[tuple[int, int]]) -> None:
    """Our user's last news is the peer's description with the highest version received."""
    table = joined(P)
    for version, association in story:
        table.tell_message(P, Tags(association << 40, version, {"v": str(version)}))
    versions = [version for version, association in story if not association and version]
    expected = {"v": str(max(versions))} if versions else {}
    assert table.node.peers()[P].tags == expected
    events = table.events()
    assert all(isinstance(event, TagsChanged) for event in events)
    if versions:
        assert events[-1] == TagsChanged(peer=P, tags=expected)
    else:
        assert events == []


@given(tables, st.data())
def test_a_mutated_table_is_one_or_has_no_effect(tags: dict[str, str], data: st.DataObject) -> None:
    table = joined(P)
    datagram = bytearray(
        encode_parcel(Parcel(body=MessageData(ME, P, 1, write_message(Tags(0, 1, tags)))))
    )
    at = data.draw(st.integers(0, len(datagram) - 1))
    datagram[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    table.node.receive_datagram(bytes(datagram), source=P)
    table.drain()
    found = table.node.peers()[P].tags
    assert fits(found, SIZE_MAX)
    assert all(event == TagsChanged(peer=P, tags=found) for event in table.events())


# -- groups ----------------------------------------------------------------------------------------


def in_group(table: Table, *sids: bytes) -> None:
    for sid in sids:
        table.tell_message(sid, Tags(0, 1, {"hall 3": ""}))
    table.events()
    table.said()


def test_a_group_is_who_has_a_tag_of_its_name() -> None:
    table = joined(P, Q, R)
    in_group(table, R, P)
    assert table.node.group("hall 3") == [P, R]
    assert table.node.group("hall 4") == []
    table.node.set_tags(ROLE)
    table.node.join_group("hall 3")
    table.node.join_group("role")
    assert table.node.tags == {"hall 3": "", "role": "db"}
    table.node.leave_group("hall 3")
    table.node.leave_group("hall 3")
    assert table.node.tags == ROLE
    table.tell_message(P, Tags(0, 2, {}))
    assert table.node.group("hall 3") == [R]


def test_what_is_sent_to_a_group_reaches_those_who_are_in_it() -> None:
    table = joined(P, Q, R)
    in_group(table, P, R)
    number = table.node.send_to_group("hall 3", b"hello")
    table.drain()
    found = {to: parcel.body for to, parcel in table.sent if isinstance(parcel.body, MessageData)}
    assert found.keys() == {P, R}
    for body in found.values():
        message = read_message(body.d)
        assert isinstance(message, OneToOne)
        assert message.data == b"hello"
    assert table.node.send_to_group("nobody", b"hello") == number + 1
    table.drain()
    assert table.messages() == [read_message(body.d) for body in found.values()]


def test_one_who_was_given_up_is_in_no_group() -> None:
    table = joined(P, Q, timing=Timing(usable_s=5.0, give_up_s=5.0))
    in_group(table, P, Q)
    table.wait(12.0, alive=(Q,))
    assert table.events() == [PeerUnreachable(peer=P)]
    assert table.node.group("hall 3") == [Q]


def test_a_full_queue_makes_a_group_wait_and_one_that_does_not_answer_does_not() -> None:
    table = Table(limits=Limits(tags_size_max=SIZE_MAX, queue_max=1))
    for sid in (P, Q):
        let_in(table, sid)
    in_group(table, P, Q)
    table.node.send_in_order(P, b"first")
    with pytest.raises(LocalProtocolError) as caught:
        table.node.send_to_group("hall 3", b"second")
    assert caught.value.code is ErrorCode.QUEUE_FULL
    assert table.node.peers()[Q].queued == 0
    table.wait(15.0, alive=(P, Q))
    table.events()
    number = table.node.send_to_group("hall 3", b"second")
    table.drain()
    assert table.events() == [SendFailed(peer=P, message=number, reason=FailReason.QUEUE_FULL)]
    assert table.node.peers()[Q].queued == 1


def test_the_largest_message_in_one_datagram_goes_to_a_whole_group() -> None:
    table = joined(P, Q)  # neither takes pieces
    in_group(table, P, Q)
    size = table.node.payload_size_max(Delivery.IN_ORDER)
    table.node.send_to_group("hall 3", bytes(size))
    table.drain()
    assert table.events() == []
    assert [message.data for message in table.messages()] == [bytes(size)] * 2


def test_a_large_message_goes_to_those_of_a_group_who_take_it() -> None:
    limits = Limits(tags_size_max=SIZE_MAX, datagram_size_max=400, message_size_max=1_000)
    table = Table(limits=limits)
    table.tell_message(P, Synchronize(0, 0, 1_000, SIZE_MAX))
    table.accept(P, P)
    let_in(table, Q)
    in_group(table, P, Q)
    number = table.node.send_to_group("hall 3", bytes(900))
    table.drain()
    assert table.events() == [SendFailed(peer=Q, message=number, reason=FailReason.TOO_LARGE)]
    assert {type(message) for message in table.messages()} == {Piece}
    with pytest.raises(LocalProtocolError) as caught:
        table.node.send_to_group("hall 3", bytes(1_001))
    assert caught.value.code is ErrorCode.PAYLOAD_TOO_LARGE
