"""Announcements and sessions on the wire: beginnings, ignored messages, ends, and their times."""

from __future__ import annotations

import gc
from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from p2panda_support import HIGH, LOW, SCHEMAS, Peer, link

from culm.bamboo import LogKey
from culm.machine import Closed, ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.p2panda import (
    Announced,
    AnnouncementIgnored,
    Connection,
    Dialect,
    DoneReceived,
    EntryReceived,
    ErrorCode,
    HaveReceived,
    Height,
    Ignored,
    Limits,
    MessageIgnored,
    Mode,
    RangeReceived,
    RequestDropped,
    RequestIgnored,
    RequestRenumbered,
    Session,
    SessionEnded,
    SessionLive,
    SessionRequested,
    SessionState,
    SideState,
    State,
    Timing,
)
from culm.p2panda.codec import Codec
from culm.p2panda.messages import (
    Announce,
    EmptySet,
    Fingerprint,
    Have,
    LowerBound,
    Message,
    Payload,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
    Terminal,
)
from culm.p2panda.states import OVER, RULES, STEPS, MessageGroup

ONE, TWO, THREE = ((each,) for each in SCHEMAS)


def code_of(error: pytest.ExceptionInfo[LocalProtocolError]) -> object:
    return error.value.code


# Announcements


def test_on_arrival_of_a_new_announcement_the_previous_state_is_replaced():
    peer = Peer()
    assert peer.tell(Announce(5, SCHEMAS)) == [Announced(schema_ids=SCHEMAS, timestamp=5)]
    assert peer.connection.remote_announced == SCHEMAS
    assert peer.tell(Announce(6, ONE)) == [Announced(schema_ids=ONE, timestamp=6)]
    assert peer.connection.remote_announced == ONE


@pytest.mark.parametrize("timestamp", [0, 4, 5])
def test_an_announcement_with_a_smaller_or_equal_timestamp_is_ignored(timestamp: int):
    peer = Peer()
    peer.tell(Announce(5, SCHEMAS))
    assert peer.tell(Announce(timestamp, ONE)) == [
        AnnouncementIgnored(timestamp=timestamp, reason=Ignored.OLD_TIMESTAMP)
    ]
    assert peer.connection.remote_announced == SCHEMAS


@given(st.permutations(range(6)))
def test_order_is_preserved_when_announcements_arrive_out_of_order(order: list[int]):
    peer = Peer()
    announcements = [Announce(number, SCHEMAS[: number % 4]) for number in range(6)]
    peer.tell(*(announcements[number] for number in order))
    assert peer.connection.remote_announced == announcements[-1].schema_ids


def test_interest_is_withdrawn_by_an_announcement_without_it():
    peer = Peer()
    peer.meet()
    peer.connection.announce([SCHEMAS[0]], timestamp=2)
    assert peer.tell(SyncRequest(0, 1, TWO)) == [
        RequestIgnored(session_id=0, reason=Ignored.NOT_ANNOUNCED)
    ]
    peer.connection.announce([], timestamp=3)
    assert peer.tell(SyncRequest(0, 1, ONE)) == [
        RequestIgnored(session_id=0, reason=Ignored.NOT_ANNOUNCED)
    ]


def test_an_unknown_version_is_ignored():
    peer = Peer()
    assert peer.tell(Announce(5, SCHEMAS, 2)) == [
        AnnouncementIgnored(timestamp=5, reason=Ignored.UNKNOWN_VERSION)
    ]
    assert peer.connection.remote_announced == ()
    assert peer.tell(Announce(5, SCHEMAS)) == [Announced(schema_ids=SCHEMAS, timestamp=5)]


def test_our_announcements_have_version_1_and_growing_timestamps():
    peer = Peer()
    peer.connection.announce(SCHEMAS[::-1], timestamp=7)
    assert peer.said() == [Announce(7, SCHEMAS)]  # system schemas in the order of aquadoggo
    for timestamp in (6, 7):
        with pytest.raises(LocalProtocolError) as caught:
            peer.connection.announce(SCHEMAS, timestamp=timestamp)
        assert code_of(caught) is ErrorCode.OLD_TIMESTAMP
    peer.connection.announce([], timestamp=8)
    assert peer.said() == [Announce(8, ())]
    assert peer.connection.announced == ()


def test_announcements_may_come_by_another_way():
    """Their transport is out of scope: publish-subscribe, for example."""
    peer = Peer()
    assert peer.connection.learn(SCHEMAS, timestamp=5)
    assert not peer.connection.learn(ONE, timestamp=5)
    assert peer.connection.remote_announced == SCHEMAS
    peer.connection.request(ONE)
    assert peer.said() == [SyncRequest(0, 1, ONE)]


def test_who_has_announced_nothing_may_ask():
    peer = Peer()
    peer.connection.announce(SCHEMAS, timestamp=1)
    assert peer.tell(SyncRequest(0, 1, ONE)) == [
        SessionRequested(session_id=0, mode=Mode.SET_RECONCILIATION, schema_ids=ONE)
    ]


# Requests


def test_a_request_concerns_a_subset_of_what_was_announced():
    peer = Peer()
    peer.meet()
    peer.connection.request(SCHEMAS[1:])
    with pytest.raises(LocalProtocolError) as caught:
        peer.connection.request(["schema_field_definition_v1"])
    assert code_of(caught) is ErrorCode.NOT_ANNOUNCED
    assert peer.tell(SyncRequest(7, 0, (*ONE, "schema_field_definition_v1"))) == [
        RequestIgnored(session_id=7, reason=Ignored.NOT_ANNOUNCED)
    ]


def test_session_ids_start_with_0_and_are_incremented_for_every_session():
    peer = Peer()
    peer.meet()
    ids = [peer.connection.request(ids).session_id for ids in (ONE, TWO)]
    peer.accept(2, 1, *THREE)
    ids.append(peer.connection.request(SCHEMAS).session_id)
    assert ids == [0, 1, 3]
    peer.tell(SyncDone(0, False))
    peer.connection.session(0).finish()
    assert peer.connection.request(ONE).session_id == 4
    other = Peer()
    other.meet()
    assert other.connection.request(ONE).session_id == 0


@pytest.mark.parametrize(
    ("theirs", "ours"), [(0, 1), (1, 2), (7, 8), (2**64 - 2, 0), (2**64 - 1, 1)]
)
def test_an_id_of_the_peers_is_not_taken_again_when_its_session_is_over(theirs: int, ours: int):
    """Late messages of the peer in that session would be taken for the new one's."""
    peer = Peer()
    peer.meet()
    peer.accept(theirs, 1, *ONE)
    peer.tell(SyncDone(theirs, False))
    peer.connection.session(theirs).finish()
    assert peer.connection.request(TWO).session_id == ours


def test_the_mode_is_a_number():
    peer = Peer()
    peer.meet()
    peer.connection.request(ONE, mode=Mode.LOG_HEIGHT)
    peer.connection.request(TWO, mode=Mode.SET_RECONCILIATION)
    assert peer.said() == [SyncRequest(0, 0, ONE), SyncRequest(1, 1, TWO)]
    for mode in (2, 2**64 - 1):
        assert peer.tell(SyncRequest(7, mode, THREE)) == [
            RequestIgnored(session_id=7, reason=Ignored.UNKNOWN_MODE)
        ]


def test_a_request_about_the_same_schemas_is_ignored():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *SCHEMAS[:2])
    assert peer.tell(SyncRequest(1, 0, SCHEMAS[1::-1])) == [
        RequestIgnored(session_id=1, reason=Ignored.DUPLICATE)
    ]
    with pytest.raises(LocalProtocolError) as caught:
        peer.connection.request(SCHEMAS[:2])
    assert code_of(caught) is ErrorCode.DUPLICATE_SESSION
    assert peer.tell(SyncRequest(1, 0, ONE)) != []  # about other schemas: several at once
    assert len(peer.connection.sessions) == 2


@pytest.mark.parametrize("again", [0, 1])
def test_a_request_about_the_schemas_of_a_live_session_ends_that(again: int):
    """No node asks for a session that it has: the peer has lost it, and would ask without end."""
    peer = Peer()
    peer.meet()
    peer.accept(0, 0, *ONE)
    session = peer.connection.session(0)
    session.send_have(())
    session.finish(live_mode=True)
    assert SessionLive(session_id=0) in peer.tell(Have(0, ()), SyncDone(0, True))
    peer.said()
    assert peer.tell(SyncRequest(again, 0, ONE)) == [
        SessionEnded(session_id=0),
        SessionRequested(session_id=again, mode=Mode.LOG_HEIGHT, schema_ids=ONE),
    ]
    assert session.state is SessionState.OVER
    with pytest.raises(LocalProtocolError):
        session.finish()
    assert peer.said() == []
    assert [each.session_id for each in peer.connection.sessions] == [again]
    assert peer.tell(Have(again, ())) == [HaveReceived(session_id=again, heights=())]


@pytest.mark.parametrize(
    ("dialect", "ids"), [(Dialect.SEED, [0, 1, 2]), (Dialect.AQUADOGGO, [0, 1, 0])]
)
def test_in_the_dialect_of_aquadoggo_ids_are_taken_again(dialect: Dialect, ids: list[int]):
    connection = Connection(local_peer=b"a", remote_peer=b"b", dialect=dialect)
    connection.learn(SCHEMAS, timestamp=1)
    one, two = (connection.request(each).session_id for each in (ONE, TWO))
    codec = Codec(dialect=dialect, limits=Limits())
    for each in (Reconcile(one, EmptySet(False)), SyncDone(one, False)):
        connection.receive_data(codec.encode(each))
    connection.session(one).finish()
    assert SessionEnded(session_id=one) in iter(connection.next_event, None)
    assert [one, two, connection.request(THREE).session_id] == ids


def test_no_id_is_taken_again_while_words_of_its_last_session_may_come():
    """What follows may be the peer's answer: its word was perhaps the end of a request of its own,
    made before it knew of ours."""
    connection = Connection(local_peer=b"a", remote_peer=b"b", dialect=Dialect.AQUADOGGO)
    connection.learn(SCHEMAS, timestamp=1)
    one = connection.request(ONE)
    codec = Codec(dialect=Dialect.AQUADOGGO, limits=Limits())
    connection.receive_data(codec.encode(SyncDone(one.session_id, False)))
    one.finish()
    assert SessionEnded(session_id=0) in iter(connection.next_event, None)
    again = connection.request(ONE)
    connection.receive_data(codec.encode(Reconcile(0, EmptySet(False))))
    connection.receive_data(codec.encode(SyncDone(0, False)))
    assert list(iter(connection.next_event, None)) == [MessageIgnored(session_id=0)]
    assert (again.session_id, again.state) == (1, SessionState.REQUESTED)


def test_an_id_that_is_in_use_is_no_new_session():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    assert peer.tell(SyncRequest(0, 1, TWO)) == [
        RequestIgnored(session_id=0, reason=Ignored.ID_IN_USE)
    ]


def test_a_request_about_nothing_is_ignored():
    peer = Peer()
    peer.meet()
    assert peer.tell(SyncRequest(0, 1, ())) == [
        RequestIgnored(session_id=0, reason=Ignored.NO_SCHEMAS)
    ]
    with pytest.raises(ValueError, match="one schema"):
        peer.connection.request([])


def test_there_are_at_most_so_many_sessions():
    peer = Peer(limits=Limits(sessions_max=2))
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.connection.request(TWO)
    assert peer.tell(SyncRequest(2**64 - 1, 1, THREE)) == [
        RequestIgnored(session_id=2**64 - 1, reason=Ignored.TOO_MANY_SESSIONS)
    ]
    with pytest.raises(LocalProtocolError) as caught:
        peer.connection.request(THREE)
    assert code_of(caught) is ErrorCode.TOO_MANY_SESSIONS
    peer = Peer(limits=Limits(sessions_max=2))
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.accept(2, 1, *TWO)
    assert [each.session_id for each in peer.connection.sessions] == [0, 2]
    peer.accept(4, 1, *THREE)
    assert [each.session_id for each in peer.connection.sessions] == [0, 2]


def test_of_two_requests_about_the_same_that_cross_that_of_the_lower_id_is_dropped():
    lower, higher = Peer(yields=True), Peer(yields=False)
    for peer in (lower, higher):
        peer.meet()
        peer.connection.request(ONE)
        peer.said()
    handle = lower.connection.session(0)
    assert lower.tell(SyncRequest(5, 1, ONE)) == [
        SessionRequested(session_id=5, mode=Mode.SET_RECONCILIATION, schema_ids=ONE),
        RequestDropped(session_id=0),
    ]
    assert handle.state is SessionState.OVER
    assert [each.session_id for each in lower.connection.sessions] == [5]
    assert higher.tell(SyncRequest(5, 1, ONE)) == [
        RequestIgnored(session_id=5, reason=Ignored.COLLISION)
    ]
    assert [each.session_id for each in higher.connection.sessions] == [0]


def test_of_two_requests_with_one_id_that_cross_the_lower_one_is_made_again():
    lower, higher = Peer(yields=True), Peer(yields=False)
    for peer in (lower, higher):
        peer.meet()
        peer.connection.request(ONE)
        peer.said()
    handle = lower.connection.session(0)
    assert lower.tell(SyncRequest(0, 1, TWO)) == [
        SessionRequested(session_id=0, mode=Mode.SET_RECONCILIATION, schema_ids=TWO),
        RequestRenumbered(session_id=0, new_session_id=1),
    ]
    assert handle.session_id == 1
    assert handle.state is SessionState.REQUESTED
    assert lower.said() == [SyncRequest(1, 1, ONE)]
    assert lower.connection.session(0).schema_ids == TWO
    assert higher.tell(SyncRequest(0, 1, TWO)) == [
        RequestIgnored(session_id=0, reason=Ignored.COLLISION)
    ]
    assert higher.connection.session(0).schema_ids == ONE


requests = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.sampled_from([ONE, TWO, THREE, SCHEMAS])),
    max_size=8,
    unique=True,
)


@given(requests, requests)
def test_however_requests_cross_both_see_the_same_sessions(first: list, second: list):  # type: ignore[type-arg]
    """Several at once on either side, then more of them once these have arrived."""
    both = link()
    for wave in (first, second):
        for side, schema_ids in wave:
            machine = getattr(both, side).machine
            if all(set(each.schema_ids) != set(schema_ids) for each in machine.sessions):
                machine.request(schema_ids)
        both.run()
        seen = [
            {(each.session_id, each.schema_ids) for each in side.machine.sessions}
            for side in (both.left, both.right)
        ]
        assert seen[0] == seen[1]
        owners = [
            {each.session_id for each in side.machine.sessions if each.requested_by_us}
            for side in (both.left, both.right)
        ]
        assert owners[0] | owners[1] == {number for number, _ in seen[0]}
        assert not owners[0] & owners[1]
    wanted = {schema_ids for _, schema_ids in [*first, *second]}
    assert {schema_ids for _, schema_ids in seen[0]} == wanted


# Messages in a session


MESSAGES: dict[MessageGroup, Message] = {
    MessageGroup.HAVE: Have(0, (Height(LogKey(bytes(32), 0), 1),)),
    MessageGroup.RANGE: Reconcile(0, Terminal()),
    MessageGroup.ENTRY: SendEntry(0, b"entry", b"operation"),
    MessageGroup.OFFER: SyncDone(0, True),
    MessageGroup.DONE: SyncDone(0, False),
}
HEARD = {
    MessageGroup.HAVE: HaveReceived,
    MessageGroup.RANGE: RangeReceived,
    MessageGroup.ENTRY: EntryReceived,
    MessageGroup.OFFER: DoneReceived,
    MessageGroup.DONE: DoneReceived,
}


def say(session: Session, group: MessageGroup) -> None:
    match MESSAGES[group]:
        case Have(_, heights):
            session.send_have(heights)
        case Reconcile(_, message):
            session.send_range(message)
        case SendEntry(_, entry, operation):
            assert operation is not None
            session.send_entry(entry, operation)
        case SyncDone(_, live_mode):
            session.finish(live_mode=live_mode)


Stories: TypeAlias = dict[tuple[SideState, SideState], list[tuple[str, MessageGroup]]]


def pairs_reached(mode: Mode) -> Stories:
    """Every pair of reachable states, and the messages on the way there."""
    found: Stories = {(SideState.SILENT, SideState.SILENT): []}
    waiting = list(found)
    while waiting:
        pair = waiting.pop(0)
        if pair in OVER:
            continue
        for who, group in product(("we", "peer"), MessageGroup):
            step = STEPS[mode][pair[who == "peer"], group]
            if isinstance(step, ErrorCode):
                continue
            after = (step, pair[1]) if who == "we" else (pair[0], step)
            if set(after) == {SideState.OFFERING}:
                after = SideState.LIVE, SideState.LIVE
            if set(pair) == {SideState.LIVE} and who == "peer" and group is MessageGroup.DONE:
                after = SideState.DONE, step  # answered at once
            if after not in found:
                found[after] = [*found[pair], (who, group)]
                waiting.append(after)
    return found


CASES = [
    (mode, pair, story, who, group)
    for mode in Mode
    for pair, story in pairs_reached(mode).items()
    if pair not in OVER
    for who in ("we", "peer")
    for group in MessageGroup
]


@pytest.mark.parametrize(("mode", "pair", "story", "who", "group"), CASES)
def test_all_pairs_of_states_and_messages(
    mode: Mode,
    pair: tuple[SideState, SideState],
    story: list[tuple[str, MessageGroup]],
    who: str,
    group: MessageGroup,
):
    """The machine follows the table in every state, whichever side speaks."""
    peer = Peer()
    peer.meet()
    peer.accept(0, mode, *ONE)
    session = peer.connection.session(0)
    for speaker, said in story:
        say(session, said) if speaker == "we" else peer.tell(MESSAGES[said])
    peer.events()
    peer.said()
    assert (session.local, session.remote) == pair
    after = RULES[mode][pair[who == "peer"]][group]
    if who == "we":
        if isinstance(after, ErrorCode):
            with pytest.raises(LocalProtocolError) as caught:
                say(session, group)
            assert code_of(caught) is after
            assert (session.local, session.remote) == pair
            assert peer.said() == []
        else:
            say(session, group)
            assert peer.said() == [MESSAGES[group]]
        return
    events = peer.tell(MESSAGES[group])
    if isinstance(after, ErrorCode):
        (ended,) = events
        assert isinstance(ended, SessionEnded)
        assert ended.error is not None
        assert ended.error.code is after
        assert session.local is SideState.BROKEN
        assert peer.said() == ([] if pair[0] is SideState.DONE else [SyncDone(0, False)])
        assert peer.connection.state is State.OPEN
    else:
        assert isinstance(events[0], HEARD[group])


def test_every_state_is_reached():
    for mode in Mode:
        reached = {state for pair in pairs_reached(mode) for state in pair}
        assert reached == set(SideState) - {SideState.BROKEN}


def test_nothing_is_said_before_the_peer_has_answered():
    peer = Peer()
    peer.meet()
    session = peer.connection.request(ONE)
    for group in (MessageGroup.RANGE, MessageGroup.ENTRY, MessageGroup.OFFER):
        with pytest.raises(LocalProtocolError) as caught:
            say(session, group)
        assert code_of(caught) is ErrorCode.UNEXPECTED_MESSAGE
    assert peer.tell(Reconcile(0, EmptySet(True))) == [
        RangeReceived(session_id=0, message=EmptySet(True))
    ]
    assert session.state is SessionState.RUNNING
    say(session, MessageGroup.RANGE)


def test_messages_of_all_kinds_come_up_as_they_were_said():
    peer = Peer()
    peer.meet()
    peer.accept(3, 1, *ONE)
    said = [LowerBound(LOW), Fingerprint(bytes(24), HIGH), Payload(HIGH, LOW, True), Terminal()]
    assert peer.tell(*(Reconcile(3, message) for message in said)) == [
        RangeReceived(session_id=3, message=message) for message in said
    ]
    assert peer.tell(SendEntry(3, b"entry", b"operation")) == [
        EntryReceived(session_id=3, entry=b"entry", operation=b"operation")
    ]


@pytest.mark.parametrize(
    "heights",
    [
        (Height(LogKey(bytes(32), 0), 0),),
        (Height(LogKey(bytes(32), 0), 1), Height(LogKey(bytes(32), 0), 2)),
    ],
)
def test_a_have_is_a_set_of_logs_with_entries(heights: tuple[Height, ...]):
    peer = Peer()
    peer.meet()
    peer.accept(0, 0, *ONE)
    (ended,) = peer.tell(Have(0, heights))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.BAD_HAVE
    peer.accept(1, 0, *ONE)
    with pytest.raises(ValueError, match=r"twice|seqnum"):
        peer.connection.session(1).send_have(heights)


# Ends of sessions


def test_a_session_has_finished_when_both_have_said_done():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    session = peer.connection.session(0)
    assert peer.tell(SyncDone(0, False)) == [DoneReceived(session_id=0, live_mode=False)]
    session.send_entry(b"entry", b"operation")  # ours may still come
    session.finish()
    assert peer.events() == [SessionEnded(session_id=0)]
    with pytest.raises(LocalProtocolError) as caught:
        session.finish()
    assert code_of(caught) is ErrorCode.NO_SUCH_SESSION


@pytest.mark.parametrize(("ours", "theirs"), [(True, False), (False, True), (False, False)])
def test_live_mode_is_for_two(ours: bool, theirs: bool):
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.connection.session(0).finish(live_mode=ours)
    assert peer.tell(SyncDone(0, theirs)) == [
        DoneReceived(session_id=0, live_mode=theirs),
        SessionEnded(session_id=0),
    ]


def test_if_both_have_live_mode_they_go_on_until_one_says_done():
    peer = Peer()
    peer.meet()
    peer.accept(0, 0, *ONE)
    session = peer.connection.session(0)
    session.send_have([])
    peer.tell(Have(0, ()), SyncDone(0, True))
    session.finish(live_mode=True)
    assert peer.events() == [SessionLive(session_id=0)]
    session.send_entry(b"new", b"operation")
    assert peer.events() == []
    assert [type(each) for each in peer.tell(SendEntry(0, b"newer", b"op"))] == [EntryReceived]
    peer.said()
    assert peer.tell(SyncDone(0, False)) == [
        DoneReceived(session_id=0, live_mode=False),
        SessionEnded(session_id=0),
    ]
    assert peer.said() == [SyncDone(0, False)]  # which is the answer


def test_live_mode_is_left_when_the_peer_has_said_so_too():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    session = peer.connection.session(0)
    session.finish(live_mode=True)
    peer.tell(SyncDone(0, True))
    session.finish()
    assert session.state is SessionState.ENDING
    assert peer.tell(SendEntry(0, b"crossed", b"operation")) != []
    assert peer.tell(SyncDone(0, False))[-1] == SessionEnded(session_id=0)


def test_an_offer_that_was_withdrawn_meets_live_mode_of_the_peer():
    """Its answer comes when the session is already over, and does no harm."""
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    session = peer.connection.session(0)
    session.finish(live_mode=True)
    session.finish()
    assert peer.tell(SyncDone(0, True), SyncDone(0, False)) == [
        DoneReceived(session_id=0, live_mode=True),
        SessionEnded(session_id=0),
    ]


def test_after_a_fault_the_peer_is_not_heard_until_its_last_word():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    error = RemoteProtocolError(ErrorCode.BAD_BOUND, "why")
    peer.connection.session(0).break_off(error)
    assert peer.events() == [SessionEnded(session_id=0, error=error)]
    assert peer.said() == [SyncDone(0, False)]
    assert peer.connection.sessions == []
    assert peer.tell(SendEntry(0, b"entry", b"op"), Have(0, ()), Reconcile(0, Terminal())) == []
    assert peer.tell(SyncRequest(1, 1, ONE)) != []  # the connection is usable
    assert peer.tell(SyncDone(0, False), SendEntry(0, b"entry", b"op")) == [
        MessageIgnored(session_id=0)
    ]


def test_after_a_fault_behind_its_last_word_nothing_is_waited_for():
    peer = Peer(limits=Limits(sessions_max=1))
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.tell(SyncDone(0, False))
    ended, requested = peer.tell(SendEntry(0, b"entry", b"op"), SyncRequest(1, 1, TWO))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.UNEXPECTED_MESSAGE
    assert isinstance(requested, SessionRequested)
    assert [each.session_id for each in peer.connection.sessions] == [1]
    assert peer.said() == [SyncDone(0, False)]


def test_who_asks_again_with_the_id_of_a_broken_session_has_forgotten_it():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.tell(Have(0, ()))
    assert peer.tell(SyncRequest(0, 1, ONE)) == [
        SessionRequested(session_id=0, mode=Mode.SET_RECONCILIATION, schema_ids=ONE)
    ]
    peer.connection.advance(0.0)
    peer.connection.advance(Timing().progress_max_s - 1)
    assert len(peer.connection.sessions) == 1


def test_a_broken_session_whose_id_is_taken_again_leaves_nothing_behind():
    peer = Peer()
    peer.meet()
    peer.connection.advance(0.0)
    for _ in range(100):
        peer.accept(0, 1, *ONE)
        peer.tell(Have(0, ()))
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, Session)]
    assert len(kept) < 100


def test_broken_sessions_have_as_many_places_as_others_and_no_more():
    peer = Peer(limits=Limits(sessions_max=1))
    peer.meet()
    for session_id, schema_ids in enumerate((ONE, TWO)):
        peer.accept(session_id, 1, *schema_ids)
        (ended,) = peer.tell(Have(session_id, ()))
        assert isinstance(ended, SessionEnded)
    assert peer.tell(SyncRequest(2, 1, THREE)) == [
        RequestIgnored(session_id=2, reason=Ignored.TOO_MANY_SESSIONS)
    ]


def test_a_peer_that_spoils_sessions_is_cut_off():
    peer = Peer(limits=Limits(faults_max=3))
    peer.meet()
    for session_id in range(4):
        peer.accept(session_id, 1, *ONE)
        assert peer.connection.state is State.OPEN
        (ended, *rest) = peer.tell(Have(session_id, ()), SyncDone(session_id, False))
        assert isinstance(ended, SessionEnded)
    (closed,) = rest
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.TOO_MANY_FAULTS


def test_a_peer_that_spoils_sessions_with_one_id_is_cut_off():
    peer = Peer(limits=Limits(faults_max=3))
    peer.meet()
    events: list[object] = []
    for _ in range(8):
        events += peer.tell(SyncRequest(0, 1, ONE), Have(0, ()))
    assert isinstance(events[-1], Closed)


def test_a_question_about_more_ranges_than_we_take_is_no_fault():
    """The peer cannot know how many we take."""
    peer = Peer(limits=Limits(faults_max=0))
    peer.meet()
    peer.accept(0, 0, *ONE)
    peer.connection.session(0).break_off(RemoteProtocolError(ErrorCode.TOO_MANY_RANGES))
    (ended,) = peer.tell(SyncDone(0, False))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.TOO_MANY_RANGES
    assert peer.connection.state is State.OPEN


def test_messages_of_no_session_are_faults_but_for_a_last_word():
    peer = Peer(limits=Limits(faults_max=3))
    assert peer.tell(*[SyncDone(n, False) for n in range(10)]) == []
    events = peer.tell(*[Reconcile(n, Terminal()) for n in range(10)])
    assert events[:4] == [MessageIgnored(session_id=n) for n in range(4)]
    (closed,) = events[4:]
    assert isinstance(closed, Closed)


# Ends of connections


def test_close_says_done_in_every_session():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.accept(1, 0, *TWO)
    peer.connection.session(0).finish()
    peer.said()
    peer.connection.close()
    assert peer.said() == [SyncDone(1, False)]
    assert peer.events() == [Closed()]
    for verb in (
        lambda: peer.connection.announce([], timestamp=9),
        lambda: peer.connection.request(THREE),
        lambda: peer.connection.learn([], timestamp=9),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            verb()
        assert code_of(caught) is ContractErrorCode.ALREADY_CLOSED


@pytest.mark.parametrize(
    ("cut", "code"),
    [(b"", None), (b"\x83", ErrorCode.EOF_IN_MESSAGE), (b"\x83\x03\x00", ErrorCode.EOF_IN_MESSAGE)],
)
def test_the_end_of_the_bytes(cut: bytes, code: ErrorCode | None):
    peer = Peer()
    peer.connection.receive_data(cut)
    peer.connection.receive_eof()
    (closed,) = peer.events()
    assert isinstance(closed, Closed)
    assert (closed.error and closed.error.code) is code
    with pytest.raises(LocalProtocolError) as caught:
        peer.connection.announce([], timestamp=1)
    assert code_of(caught) is ContractErrorCode.ALREADY_CLOSED
    assert peer.connection.state is (State.CLOSED if code is None else State.FAILED)


def test_the_end_of_the_bytes_in_a_session_is_an_error_unless_the_peer_was_done():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.tell(SyncDone(0, False))
    peer.connection.receive_eof()
    assert peer.events() == []
    peer.connection.session(0).send_entry(b"still", b"to be said")
    peer.connection.session(0).finish()
    assert peer.events() == [SessionEnded(session_id=0), Closed()]
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    peer.connection.receive_eof()
    (closed,) = peer.events()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.EOF_IN_SESSION


# Time


def timed(**times: float) -> Peer:
    peer = Peer(timing=Timing(**times))
    peer.meet()
    peer.connection.advance(100.0)
    return peer


def test_a_request_that_is_ignored_ends():
    peer = timed(answer_max_s=5.0, progress_max_s=50.0)
    peer.connection.request(ONE)
    assert peer.connection.next_deadline() == 105.0
    peer.connection.advance(104.9)
    assert peer.events() == []
    peer.connection.advance(105.0)
    (ended,) = peer.events()
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.UNANSWERED
    peer.connection.request(ONE)  # and may be repeated
    assert peer.connection.state is State.OPEN


def test_a_request_whose_ids_the_peer_takes_ends_as_well():
    """Each of the peer's requests makes us ask again, without more time for it to answer."""
    peer = timed(answer_max_s=5.0)
    peer.connection.request(ONE)
    for session_id, now in enumerate((102.0, 104.0)):
        peer.connection.advance(now)
        _, renumbered, *_ = peer.tell(SyncRequest(session_id, 1, TWO), SyncDone(session_id, False))
        assert renumbered == RequestRenumbered(session_id=session_id, new_session_id=session_id + 1)
        peer.connection.session(session_id).finish()
        peer.events()
    peer.connection.advance(105.0)
    (ended,) = peer.events()
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert (ended.session_id, ended.error.code) == (2, ErrorCode.UNANSWERED)


@pytest.mark.parametrize("forgotten", [False, True])
def test_an_answer_to_a_request_that_was_given_up_spoils_no_other_session(forgotten: bool):
    """The peer has asked with the same id, and then heard us, so that its own request is void."""
    peer = Peer(yields=False, timing=Timing(answer_max_s=5.0), limits=Limits(faults_max=0))
    peer.meet()
    peer.connection.advance(0.0)
    peer.connection.request(ONE)
    peer.connection.advance(5.0)
    if forgotten:
        peer.connection.advance(1000.0)
    peer.events()
    events = peer.tell(SyncRequest(0, 0, ONE), Reconcile(0, LowerBound(LOW)))
    assert [type(each) for each in events] == [SessionRequested, SessionEnded]
    assert events[1].error.code is ErrorCode.GIVEN_UP  # type: ignore[attr-defined]
    assert peer.tell(Reconcile(0, Terminal()), SyncDone(0, False)) == []
    events = peer.tell(SyncRequest(0, 0, ONE), Reconcile(0, LowerBound(LOW)))
    assert [type(each) for each in events] == [SessionRequested, SessionEnded, Closed]


@pytest.mark.parametrize("renumbered", [False, True])
def test_an_answer_to_a_request_that_gave_way_is_no_fault(renumbered: bool):
    """Meanwhile the peer had given up its own, and so takes ours for a new one."""
    peer = Peer(limits=Limits(faults_max=0))
    peer.meet()
    peer.connection.request(ONE)
    events = peer.tell(SyncRequest(0, 1, TWO if renumbered else ONE), SyncDone(0, False))
    assert isinstance(events[1], RequestRenumbered if renumbered else RequestDropped)
    peer.connection.session(0).finish()
    assert peer.events() == [SessionEnded(session_id=0)]
    peer.said()
    assert (
        peer.tell(Reconcile(0, LowerBound(LOW)), Reconcile(0, Terminal()))
        == [MessageIgnored(session_id=0)] * 2
    )
    assert peer.said() == [SyncDone(0, False)], "it would wait for us"


@pytest.mark.parametrize("crossed", [False, True])
def test_a_second_last_word_is_no_fault_where_requests_had_the_same_id(crossed: bool):
    """One of them ended the peer's own request, or ours, which it then took for a new one."""
    peer = Peer(limits=Limits(faults_max=0))
    peer.meet()
    peer.connection.request(ONE)
    if crossed:
        peer.tell(SyncRequest(0, 1, ONE))
    assert peer.tell(SyncDone(0, False)) == [DoneReceived(session_id=0, live_mode=False)]
    (ended,) = peer.tell(SyncDone(0, False))
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.GIVEN_UP


@pytest.mark.parametrize("offered", [False, True])
def test_an_id_is_not_free_while_a_peer_that_offered_live_mode_may_end_the_session(offered: bool):
    """It takes its offer back before it has heard that we are done, or answers the same of ours."""
    peer = Peer(dialect=Dialect.AQUADOGGO)
    peer.meet()
    peer.accept(0, 1, *ONE)
    session = peer.connection.session(0)
    if offered:
        session.finish(live_mode=True)
        session.finish()
    peer.tell(SyncDone(0, True))
    if not offered:
        session.finish()
    peer.events()
    assert session.state is SessionState.OVER
    asked = peer.connection.request(ONE)
    peer.tell(SyncDone(0, False))
    assert asked.state is SessionState.REQUESTED


@pytest.mark.parametrize("asked_between", [False, True])
def test_in_the_dialect_of_aquadoggo_a_late_answer_spoils_no_request(asked_between: bool):
    """The line stood still: both requests of ours, with one id, are answered at once."""
    peer = Peer(
        yields=False,
        dialect=Dialect.AQUADOGGO,
        timing=Timing(answer_max_s=5.0),
        limits=Limits(faults_max=0),
    )
    peer.meet()
    peer.connection.advance(0.0)
    peer.connection.request(ONE, mode=Mode.LOG_HEIGHT)
    peer.connection.advance(5.0)
    peer.connection.advance(1000.0)
    if asked_between:
        peer.tell(SyncRequest(0, 0, ONE), SyncDone(0, False))
        peer.connection.session(0).finish()
    peer.events()
    asked = peer.connection.request(ONE, mode=Mode.LOG_HEIGHT)
    told = peer.tell(Have(0, ()), SyncDone(0, False), Have(0, ()))
    assert told == [MessageIgnored(session_id=0)] * 2
    assert asked.state is SessionState.REQUESTED


def test_an_answer_to_a_request_that_the_peer_had_ended_is_no_fault():
    """It has ended its own with the same id, before ours had reached it."""
    peer = Peer(yields=False, limits=Limits(faults_max=0))
    peer.meet()
    peer.connection.request(ONE)
    events = peer.tell(SyncRequest(0, 1, ONE), SyncDone(0, False))
    assert events[0] == RequestIgnored(session_id=0, reason=Ignored.COLLISION)
    peer.connection.session(0).finish()
    assert peer.events() == [SessionEnded(session_id=0)]
    peer.said()
    assert peer.tell(Reconcile(0, LowerBound(LOW))) == [MessageIgnored(session_id=0)]
    assert peer.said() == []


def test_what_is_excused_is_the_time_since_time_was_told_last():
    peer = timed(answer_max_s=5.0)
    peer.connection.request(ONE)
    peer.connection.advance(103.0)
    peer.connection.excuse(110.0)
    peer.connection.advance(110.0)
    peer.connection.advance(111.9)
    assert peer.events() == []
    peer.connection.advance(112.0)  # two seconds were left
    (ended,) = peer.events()
    assert isinstance(ended, SessionEnded)


def test_whoever_is_excused_has_a_tenth_of_its_time_left():
    """Else a driver that tells the time with each input would do nothing else."""
    peer = timed(answer_max_s=5.0)
    peer.connection.request(ONE)
    peer.connection.advance(105.0 - 1e-9)
    for _ in range(10):
        now = peer.connection.next_deadline()
        assert now is not None
        peer.connection.excuse(now)
        peer.connection.advance(now)
    assert now > 109.0
    assert peer.events() == []


def test_a_session_that_stands_still_ends():
    peer = timed(answer_max_s=5.0, progress_max_s=50.0)
    peer.accept(0, 1, *ONE)
    for now in (140.0, 180.0, 220.0):
        peer.connection.advance(now)
        peer.tell(Reconcile(0, Terminal()))
    for now in (260.0, 300.0):
        peer.connection.advance(now)
        peer.connection.session(0).send_entry(b"we", b"move")
    peer.connection.advance(349.0)
    assert peer.events() == []
    peer.connection.advance(350.0)
    (ended,) = peer.events()
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.STALLED
    peer.connection.advance(400.0)  # and its last message is not awaited for ever
    assert peer.tell(SendEntry(0, b"late", b"late")) == [MessageIgnored(session_id=0)]


def test_in_live_mode_silence_is_no_fault_but_its_end_is_answered():
    peer = timed(answer_max_s=5.0, progress_max_s=50.0)
    peer.accept(0, 1, *ONE)
    peer.connection.session(0).finish(live_mode=True)
    peer.tell(SyncDone(0, True))
    assert peer.connection.next_deadline() is None
    peer.connection.advance(10_000.0)
    assert peer.events() == []
    peer.connection.session(0).finish()
    assert peer.connection.next_deadline() == 10_005.0
    peer.connection.advance(10_005.0)
    (ended,) = peer.events()
    assert isinstance(ended, SessionEnded)


def test_without_the_time_nothing_is_due():
    peer = Peer()
    peer.meet()
    peer.connection.request(ONE)
    assert peer.connection.next_deadline() is None
    peer.connection.advance(7.0)
    assert peer.connection.next_deadline() == 7.0 + Timing().answer_max_s


# Arguments


def test_wrong_arguments_are_refused_at_once():
    peer = Peer()
    peer.meet()
    peer.accept(0, 1, *ONE)
    session = peer.connection.session(0)
    calls = [
        lambda: Connection(local_peer=b"a", remote_peer=b"a"),
        lambda: Connection(local_peer="a", remote_peer=b"b"),  # type: ignore[arg-type]
        lambda: Limits(sessions_max=0),
        lambda: Limits(faults_max=-1),
        lambda: peer.connection.announce("blob_v1", timestamp=9),
        lambda: peer.connection.announce(["nothing"], timestamp=9),
        lambda: peer.connection.announce(["blob_v1", "blob_v1"], timestamp=9),
        lambda: peer.connection.announce([], timestamp=2**64),
        lambda: peer.connection.announce(["blob_v1"] * 257, timestamp=9),
        lambda: peer.connection.request(ONE, mode=1),  # type: ignore[arg-type]
        lambda: session.send_range(LowerBound(b"no item")),
        lambda: session.send_range(LowerBound(LOW + b"\0")),
        lambda: session.send_range(Payload(LOW, LOW[:-1], True)),
        lambda: session.send_range(Fingerprint(bytes(65), LOW)),
        lambda: session.send_range(SyncDone(0, False)),  # type: ignore[arg-type]
        lambda: session.send_entry("entry", b""),  # type: ignore[arg-type]
        lambda: session.finish(live_mode=1),  # type: ignore[arg-type]
        lambda: session.break_off(None),  # type: ignore[arg-type]
        lambda: peer.connection.session(-1),
    ]
    for each in calls:
        with pytest.raises((TypeError, ValueError)):
            each()
    assert peer.said() == []
    assert peer.events() == []
