"""Epidemic Broadcast Trees: sessions, sources, standby, stalls, forks and progress."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from ebt_support import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    EVE,
    Host,
    Pair,
    alice,
    as_frames,
    chain,
    feed,
    kinds,
    off,
    on,
)

from culm.machine import (
    Closed,
    ContractErrorCode,
    Effect,
    LocalProtocolError,
    RemoteProtocolError,
    Ticket,
)
from culm.ssb.ebt import (
    TURNS,
    EndReason,
    ErrorCode,
    FeedExtended,
    FeedForked,
    FeedsLeftOut,
    Head,
    Limits,
    LoadClock,
    Message,
    MessageRefused,
    PeerClock,
    ReadMessages,
    SessionEnded,
    SessionOpened,
    SessionRole,
    SessionSynced,
    State,
    SyncProgress,
    Timing,
)
from culm.ssb.ebt.states import (
    FEED_RULES,
    SESSION_RULES,
    SUPPLY_RULES,
    FeedInput,
    FeedState,
    SessionInput,
    SessionState,
    Supply,
    SupplyInput,
)
from culm.ssb.store import MemoryStore

# The beginning of a session


def test_a_servers_first_notes_come_at_once_and_tell_of_all_feeds() -> None:
    host = alice()
    host.write(ALICE, 3)
    session = host.accept(BOB)
    assert host.take(session) == [{ALICE: on(3), BOB: on(0)}]


def test_a_client_waits_for_the_servers_notes() -> None:
    host = alice()
    session = host.dial(BOB)
    assert host.take(session) == []
    assert kinds(host.events) == []
    assert host.tell(session, {BOB: on(6)}) == [{ALICE: on(0), BOB: on(0)}]
    assert kinds(host.events) == ["SessionOpened"]


def test_first_notes_are_sent_even_when_there_are_none() -> None:
    host = Host(ALICE)
    assert host.take(host.accept(BOB)) == [{}]
    assert host.tell(host.dial(CAROL), {}) == [{}]


def test_many_notes_are_sent_in_several_frames() -> None:
    host = Host(ALICE, limits=Limits(notes_max=2)).follow(ALICE, BOB, CAROL)
    frames = host.take(host.accept(BOB))
    assert [len(frame) for frame in frames] == [2, 1]
    assert list(frames[0]) + list(frames[1]) == [ALICE, BOB, CAROL]


def test_a_client_gives_a_silent_server_up() -> None:
    host = alice(timing=Timing(notes_s=7.0))
    session = host.dial(BOB)
    assert host.machine.next_deadline() == 7.0
    host.advance(7.0)
    ended = host.events[-1]
    assert isinstance(ended, SessionEnded)
    assert (ended.session, ended.reason) == (session, EndReason.FAULT)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.NO_NOTES


def test_nothing_is_heard_before_the_remembered_clock_is_there() -> None:
    host = alice()
    session = host.machine.connect(BOB, role=SessionRole.SERVER)
    assert not host.machine.is_ready(session)
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.receive_notes(session, {})
    assert caught.value.code is ErrorCode.NOT_READY
    host.drain()
    assert host.machine.is_ready(session)


def test_what_is_told_is_stored() -> None:
    host = alice()
    session = host.accept(CAROL)
    host.take(session)
    host.machine.append(chain(ALICE, 1)[0])
    while host.machine.next_effect() is not None:
        pass  # the write is under way
    assert host.machine.head(ALICE) is not None
    assert host.machine.clock[ALICE] == 0
    assert host.machine.frames_to_send(session) == []


# The peer's messages


def test_messages_that_the_peer_lacks_are_read_and_sent_in_order() -> None:
    host = alice(limits=Limits(read_count_max=2))
    wrote = host.write(ALICE, 5)
    session = host.accept(BOB)
    host.take(session)
    assert host.tell(session, {ALICE: on(1)}) == as_frames(wrote[1:])


def test_new_messages_follow_at_once() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {ALICE: on(0)})
    wrote = host.write(ALICE, 1) + host.write(ALICE, 2)
    assert host.take(session) == as_frames(wrote)


def test_a_peer_on_standby_gets_notes_only() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {ALICE: off(0)})
    host.write(ALICE, 1)
    assert host.take(session) == [{ALICE: on(1)}]
    host.write(ALICE, 2)
    assert host.take(session) == [{ALICE: on(3)}]


def test_a_peer_that_told_nothing_is_told_of_news() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: off(0)})
    host.machine.disconnect(session)
    again = host.accept(BOB)
    assert BOB not in host.take(again)[0]
    host.write(BOB, 1)
    assert host.take(again) == [{BOB: off(1)}]


def test_a_lower_note_asks_for_the_same_messages_again() -> None:
    host = alice()
    wrote = host.write(ALICE, 3)
    session = host.accept(BOB)
    host.take(session)
    host.tell(session, {ALICE: on(0)})
    assert host.tell(session, {ALICE: on(1)}) == as_frames(wrote[1:])


def test_receive_off_takes_back_what_is_not_sent_yet() -> None:
    host = alice()
    host.write(ALICE, 3)
    session = host.accept(BOB)
    host.take(session)
    host.machine.receive_notes(session, {ALICE: on(0)})
    while (effect := host.machine.next_effect()) is not None:
        host.machine.complete(effect.ticket, host.store.perform(effect))
    host.machine.receive_notes(session, {ALICE: off(0)})
    assert [frame for frame in host.take(session) if "content" in frame] == []


def test_what_was_read_for_a_wish_that_has_changed_is_not_sent() -> None:
    host = alice()
    wrote = host.write(ALICE, 3)
    session = host.accept(BOB)
    host.take(session)
    host.machine.receive_notes(session, {ALICE: on(0)})
    effect = host.machine.next_effect()
    assert effect is not None
    host.machine.receive_notes(session, {ALICE: on(2)})
    host.machine.complete(effect.ticket, host.store.perform(effect))
    assert host.take(session) == as_frames(wrote[2:])


def test_reading_waits_for_room() -> None:
    host = alice(limits=Limits(read_count_max=2, unsent_size_max=400))
    wrote = host.write(ALICE, 20, "x" * 100)
    session = host.accept(BOB)
    host.take(session)
    host.machine.receive_notes(session, {ALICE: on(0)})
    asked = 0
    while (effect := host.machine.next_effect()) is not None:
        host.machine.complete(effect.ticket, host.store.perform(effect))
        asked += 1
    assert asked == 2  # the first one alone left room
    assert host.take(session) == as_frames(wrote)


def test_who_changes_its_mind_without_end_has_few_bytes_read_in_vain() -> None:
    """And as many as before once it takes them."""
    host = alice()
    host.write(ALICE, 1000, "x" * 200)
    session = host.accept(BOB)
    host.take(session)
    sizes: list[int] = []

    def answer(*, takes: bool) -> None:
        while (effect := host.machine.next_effect()) is not None:
            result = host.store.perform(effect)
            host.machine.complete(effect.ticket, result)
            if type(effect) is ReadMessages:
                sizes.append(sum(map(len, result)))  # type: ignore[arg-type]
        if takes:
            host.machine.frames_to_send(session)

    for number in range(100):
        host.machine.receive_notes(session, {ALICE: on(0) + number % 2})
        host.machine.receive_notes(session, {ALICE: on(0)})
        answer(takes=False)
    assert sizes[0] > 50_000
    assert max(sizes[20:]) < 2100
    assert len(sizes) < 20 + 2 * 100
    for _ in range(8):
        answer(takes=True)
    assert max(sizes[-2:]) > 50_000


def asked_to_read(host: Host, count: int) -> tuple[int, list[dict[str, object]], Effect[Any]]:
    """A session, its messages, and the effect that reads them, handed out."""
    wrote = host.write(ALICE, count)
    session = host.accept(BOB)
    host.take(session)
    host.machine.receive_notes(session, {ALICE: on(0)})
    effect = host.machine.next_effect()
    assert isinstance(effect, ReadMessages)
    return session, as_frames(wrote), effect


def test_who_says_the_same_again_while_its_messages_are_read_gets_them_once() -> None:
    host = alice()
    session, frames, effect = asked_to_read(host, 3)
    host.machine.receive_notes(session, {ALICE: on(0)})
    host.machine.complete(effect.ticket, host.store.perform(effect))
    assert host.machine.next_effect() is None
    assert host.take(session) == frames
    assert host.tell(session, {ALICE: on(0)}) == frames


def test_nothing_is_read_for_a_session_that_has_ended() -> None:
    host = alice(limits=Limits(read_count_max=1))
    session, _, effect = asked_to_read(host, 3)
    host.machine.disconnect(session)
    host.machine.complete(effect.ticket, host.store.perform(effect))
    asked = []
    while (effect := host.machine.next_effect()) is not None:
        asked.append(type(effect).__name__)
    assert asked == ["SaveClock"]


def test_nothing_is_remembered_of_feeds_that_nobody_follows() -> None:
    """A stranger may mention as many as it likes."""
    host = alice()
    session = host.accept(CAROL)
    strangers = {feed(f"stranger {number}"): on(1) for number in range(100)}
    host.tell(session, {BOB: on(3), **strangers})
    host.machine.disconnect(session)
    host.drain()
    found = host.store.perform(LoadClock(ticket=Ticket(1), peer=CAROL))
    assert found == PeerClock(told={BOB: 3}, held={BOB: 0}, sessions=1)


def test_what_has_no_room_is_read_later() -> None:
    host = alice(limits=Limits(unsent_size_max=400))
    session = host.accept(BOB)
    host.tell(session, {ALICE: on(0)})
    wrote = []
    for _ in range(6):
        wrote += [each := chain(ALICE, 1, after=host.machine.head(ALICE), text="x" * 200)[0]]
        host.machine.append(each)
        while (effect := host.machine.next_effect()) is not None:
            host.machine.complete(effect.ticket, host.store.perform(effect))
    assert host.take(session) == as_frames(wrote)


def test_feeds_take_turns() -> None:
    host = Host(ALICE, limits=Limits(read_count_max=1)).follow(ALICE, BOB)
    host.write(ALICE, 3)
    host.write(BOB, 3)
    session = host.accept(CAROL)
    host.take(session)
    host.machine.receive_notes(session, {ALICE: on(0), BOB: on(0)})
    asked = []
    while (effect := host.machine.next_effect()) is not None:
        asked.append(effect.feed)
        host.machine.complete(effect.ticket, host.store.perform(effect))
    assert asked == [ALICE, BOB] * 3
    sent = []
    while frames := host.machine.frames_to_send(session, 1):
        sent += [ALICE if ALICE.encode() in frame else BOB for frame in frames]
    assert sent == [ALICE, BOB] * 3


def test_nothing_is_sent_back_to_whom_it_came_from() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(0)})
    assert host.tell(session, *as_frames(chain(BOB, 2))) == []


# Following, unfollowing, blocking


def test_a_feed_that_nobody_follows_is_refused_once() -> None:
    host = Host(ALICE)
    session = host.accept(BOB)
    host.take(session)
    assert host.tell(session, {CAROL: on(7), DAVE: -1}) == [{CAROL: -1}]
    assert host.tell(session, {CAROL: on(8)}) == []


def test_following_asks_for_the_feed_from_whoever_has_most_of_it() -> None:
    host = Host(ALICE)
    first, second = host.accept(BOB), host.accept(DAVE)
    host.tell(first, {CAROL: on(2)})
    host.tell(second, {CAROL: on(3)})
    host.follow(CAROL)
    assert host.take(first) == [{CAROL: off(0)}]
    assert host.take(second) == [{CAROL: on(0)}]


def test_what_the_peer_asked_for_before_we_followed_is_sent_then() -> None:
    host = Host(ALICE)
    wrote = host.write(CAROL, 2)
    session = host.accept(BOB)
    host.tell(session, {CAROL: on(0)})
    host.follow(CAROL)
    assert host.take(session) == [{CAROL: on(2)}, *as_frames(wrote)]


def test_unfollowing_tells_everybody_and_drops_what_comes() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(3)})
    host.machine.follow(BOB, False)
    assert host.tell(session, *as_frames(chain(BOB, 3))) == [{BOB: -1}]
    assert not host.machine.follows(BOB)
    assert host.machine.clock[BOB] == 0


def test_following_again_has_no_effect() -> None:
    host = alice()
    session = host.accept(BOB)
    host.take(session)
    host.follow(BOB)
    assert host.take(session) == []


def test_a_feed_is_never_sent_to_whom_its_author_has_blocked() -> None:
    host = alice()
    host.write(BOB, 2)
    host.machine.block(BOB, CAROL)
    session = host.accept(CAROL)
    assert host.take(session) == [{ALICE: on(0)}]
    assert host.tell(session, {BOB: on(0)}) == [{BOB: -1}]
    host.write(BOB, 1)
    assert host.take(session) == []
    assert host.machine.blocks(BOB, CAROL)


def test_a_block_stops_what_is_under_way() -> None:
    host = alice()
    host.write(BOB, 2)
    session = host.accept(CAROL)
    host.take(session)
    host.machine.receive_notes(session, {BOB: on(0)})
    host.machine.block(BOB, CAROL)
    assert host.take(session) == [{BOB: -1}]
    host.machine.block(BOB, CAROL, False)
    assert [frame.get("sequence") for frame in host.take(session)] == [None, 1, 2]


def test_who_is_blocked_by_us_has_no_session() -> None:
    host = alice()
    session = host.accept(CAROL)
    host.machine.block(ALICE, CAROL)
    host.drain()
    assert host.events[-1] == SessionEnded(session=session, peer=CAROL, reason=EndReason.BLOCKED)
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.connect(CAROL, role=SessionRole.CLIENT)
    assert caught.value.code is ErrorCode.BLOCKED


def test_a_feed_is_read_after_one_that_the_peer_no_longer_wants() -> None:
    """Only the store's answer says that there is something to read."""
    host = alice()
    host.write(ALICE, 1)
    host.write(BOB, 1)
    session = host.accept(CAROL)
    host.take(session)
    host.machine.receive_notes(session, {ALICE: on(0), BOB: on(0)})
    read = host.machine.next_effect()
    assert isinstance(read, ReadMessages)
    assert read.feed == ALICE
    host.machine.receive_notes(session, {ALICE: -1})
    assert host.machine.frames_to_send(session) == []
    assert host.machine.next_effect() is None
    host.machine.complete(read.ticket, tuple(host.store.messages(ALICE)))
    then = host.machine.next_effect()
    assert isinstance(then, ReadMessages)
    assert then.feed == BOB


def test_frames_are_taken_until_they_are_enough() -> None:
    host = alice()
    size = len(host.write(BOB, 3)[0].data)
    session = host.accept(CAROL)
    host.take(session)
    host.machine.receive_notes(session, {BOB: on(0)})
    read = host.machine.next_effect()
    assert isinstance(read, ReadMessages)
    host.machine.complete(read.ticket, tuple(host.store.messages(BOB)))
    assert len(host.machine.frames_to_send(session, size + 1)) == 2


# Messages


def test_what_was_not_asked_for_is_not_looked_at() -> None:
    host = Host(ALICE)
    session = host.accept(BOB)
    host.tell(session, {BOB: on(3)}, *as_frames(chain(BOB, 3)))
    assert host.machine.head(BOB) is None


def test_a_message_that_is_there_already_is_not_looked_at() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    messages = as_frames(chain(BOB, 2))
    host.tell(first, {BOB: on(2)}, *messages)
    host.tell(second, {BOB: on(2)}, {**messages[0], "valid": False})
    assert "MessageRefused" not in kinds(host.events)


def test_messages_that_leave_others_out_end_the_session() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(3)}, as_frames(chain(BOB, 3))[2])
    ended = host.events[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.OUT_OF_ORDER
    assert host.machine.clock[BOB] == 0


@pytest.mark.parametrize("asked", [0, 2])
def test_who_was_asked_twice_or_not_at_all_may_leave_messages_out(asked: int) -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    session = first if asked else second
    for note in (on(3), -1, on(3))[: asked + 1]:
        host.tell(first, {BOB: note})
    host.tell(session, as_frames(chain(BOB, 3))[2])
    assert host.machine.is_ready(session)
    assert host.machine.clock[BOB] == 0


def test_what_answers_an_earlier_wish_does_not_end_the_session() -> None:
    host = alice()
    session = host.accept(BOB)
    messages = as_frames(chain(BOB, 4))
    host.tell(session, {BOB: on(4)}, messages[0])
    host.machine.follow(BOB, False)
    host.tell(session, messages[1])
    host.follow(BOB)
    host.tell(session, *messages[2:])
    extended = [event for event in host.events if isinstance(event, FeedExtended)]
    assert extended[-1] == FeedExtended(feed=BOB, first=1, last=1)
    host.tell(session, *messages[1:])
    assert host.machine.clock[BOB] == 4


def test_a_message_that_is_not_valid_is_refused_and_so_is_the_feed_from_that_peer() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    messages = as_frames(chain(BOB, 2))
    host.tell(second, {BOB: on(2)})
    host.tell(first, {BOB: on(2)})
    assert host.machine.source(BOB) == CAROL
    assert host.tell(second, {**messages[0], "valid": False})[-1] == {BOB: -1}
    assert host.events[-2:] == [
        MessageRefused(
            session=second, peer=CAROL, feed=BOB, sequence=1, reason="it says so itself"
        ),
        SessionSynced(session=second, peer=CAROL),
    ]
    assert host.machine.source(BOB) == BOB
    host.tell(second, *messages, {BOB: on(9)})
    assert host.machine.clock[BOB] == 0
    host.tell(first, *messages)
    assert host.machine.clock[BOB] == 2


def test_too_many_messages_that_are_not_valid_end_the_session() -> None:
    feeds = [feed(str(number)) for number in range(3)]
    host = Host(ALICE, limits=Limits(invalid_max=2)).follow(*feeds)
    session = host.accept(BOB)
    for name in feeds:
        wrong = {**as_frames(chain(name, 1))[0], "valid": False}
        host.tell(session, {name: on(1)}, wrong)
    ended = host.events[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.code is ErrorCode.INVALID_MESSAGES


def test_feeds_with_something_wrong_do_not_keep_others_away_for_ever() -> None:
    """Five feeds that the peer has wrong, three of which end a session, and then a right one."""
    wrong, right = [feed(str(number)) for number in range(5)], feed("right")
    host = Host(ALICE, limits=Limits(invalid_max=2)).follow(*wrong, right)
    for _ in range(3):
        session = host.accept(BOB)
        for name in (*wrong, right):
            message = {**as_frames(chain(name, 1))[0], "valid": name == right}
            if host.machine.has_session(BOB):
                host.tell(session, {name: on(1)})
            if host.machine.has_session(BOB):
                host.tell(session, message)
        host.machine.disconnect(session)
        host.drain()
    assert host.machine.clock[right] == 1


def test_what_was_wrong_once_is_tried_again() -> None:
    """Within as many sessions as there are turns: memory is a hint."""
    name = feed("0")
    host = Host(ALICE).follow(name)
    message = as_frames(chain(name, 1))[0]
    for number in range(TURNS + 1):
        session = host.accept(BOB)
        host.tell(session, {name: on(1)}, {**message, "valid": number > 0})
        host.machine.disconnect(session)
        host.drain()
    assert host.machine.clock[name] == 1


@pytest.mark.parametrize("frames", [1, 4])
def test_feeds_that_do_not_fit_are_left_out_and_all_others_exchanged(frames: int) -> None:
    host = Host(ALICE, limits=Limits(feeds_max=2)).follow(EVE)
    session = host.accept(BOB)
    notes = {CAROL: on(1), BOB: on(1), DAVE: on(1), ALICE: on(1), EVE: on(1)}
    told = [dict([each]) for each in notes.items()] if frames > 1 else [notes]
    said = host.tell(session, *told, {DAVE: on(2)}, {CAROL: on(2)}, *as_frames(chain(EVE, 1)))
    assert dict(pair for frame in said for pair in frame.items()) == {
        CAROL: -1,
        BOB: -1,
        EVE: on(0),
    }
    assert host.machine.clock == {EVE: 1}
    left_out = [event for event in host.events if isinstance(event, FeedsLeftOut)]
    assert left_out == [FeedsLeftOut(session=session, peer=BOB)]
    assert host.machine.is_ready(session)


def test_a_feed_that_was_left_out_is_exchanged_once_it_is_followed() -> None:
    host = Host(ALICE, limits=Limits(feeds_max=1)).follow(ALICE)
    bob = Host(BOB).follow(BOB, CAROL, DAVE)
    for author in (CAROL, DAVE):
        bob.write(author, 2)
    pair = Pair(client=host, server=bob).run()
    host.follow(BOB, CAROL, DAVE)
    pair.run()
    assert host.machine.clock == {ALICE: 0, BOB: 0, CAROL: 2, DAVE: 2}
    bob.write(DAVE, 1)
    pair.run()
    assert host.machine.clock[DAVE] == 3


@pytest.mark.parametrize("followed", [3, 40])
def test_a_hub_with_more_feeds_than_fit_gives_those_that_are_followed(followed: int) -> None:
    """Whether we follow more feeds than fit, or the hub does."""
    feeds = [feed(f"feed {number}") for number in range(40)]
    hub = Host(BOB).follow(BOB, ALICE, *feeds)
    for each in feeds:
        hub.write(each, 1)
    host = Host(ALICE, limits=Limits(feeds_max=10)).follow(ALICE, BOB, *feeds[:followed])
    for count in range(3):
        pair = Pair(client=host, server=hub).run()
        hub.write(BOB, 1)
        pair.run().end()
        clock = {name: last for name, last in host.machine.clock.items() if last}
        assert clock == {**dict.fromkeys(feeds[:followed], 1), BOB: count + 1}


def test_messages_wait_when_too_many_are_unwritten() -> None:
    host = alice(limits=Limits(unwritten_size_max=2000))
    for message in chain(ALICE, 3):
        assert host.machine.takes_messages
        host.machine.append(message)
    assert not host.machine.takes_messages
    host.drain()
    assert host.machine.takes_messages


@pytest.mark.parametrize(("more", "takes"), [(-1, False), (0, False), (1, True)])
def test_there_is_no_room_once_the_limit_is_reached(more: int, takes: bool) -> None:
    first = chain(ALICE, 1)[0]
    host = alice(limits=Limits(unwritten_size_max=len(first.data) + 512 + more))
    host.machine.append(first)
    assert host.machine.takes_messages is takes


def test_as_long_as_a_write_is_under_way_messages_gather_for_the_next() -> None:
    host = alice(limits=Limits(write_count_max=3))
    effects = []
    for message in chain(ALICE, 5):
        host.machine.append(message)
        effects += [host.machine.next_effect()]
    assert effects[1:] == [None] * 4
    sizes = []
    while effects:
        effect = effects.pop(0)
        if effect is not None:
            sizes.append(len(effect.messages))
            host.machine.complete(effect.ticket, host.store.perform(effect))
            effects.append(host.machine.next_effect())
    assert sizes == [1, 3, 1]


@pytest.mark.parametrize("sequence", [1, 3, 2**53])
def test_an_own_message_has_to_be_the_next_one(sequence: int) -> None:
    host = alice()
    host.write(ALICE, 1)
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.append(Message(ALICE, sequence, "%", b"{}"))
    assert caught.value.code is ErrorCode.WRONG_SEQUENCE


# Forks


def test_a_forked_feed_is_stopped_and_reported_with_its_proof() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    ours = chain(BOB, 2)
    theirs = chain(BOB, 3, text="another")
    host.tell(first, {BOB: on(2)}, *as_frames(ours))
    host.tell(second, {BOB: on(3)})
    host.advance(0.5)
    host.take(first)
    host.take(second)
    assert host.tell(second, as_frames(theirs)[2]) == [{BOB: -1}]
    assert host.take(first) == [{BOB: -1}]
    assert host.events[-1] == FeedForked(feed=BOB, ours=ours[1].data, theirs=theirs[2].data)
    assert host.store.proof(BOB) == (ours[1].data, theirs[2].data)
    assert host.tell(first, *as_frames(chain(BOB, 3))) == []
    assert host.machine.clock[BOB] == 2
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.append(chain(BOB, 3)[2])
    assert caught.value.code is ErrorCode.NOT_WHOLE


def test_a_first_message_that_follows_another_one_is_no_fork() -> None:
    host = alice()
    session = host.accept(CAROL)
    wrong = as_frames(chain(BOB, 1, after=Head(0, "nothing")))
    host.tell(session, {BOB: off(1)}, *wrong)
    assert kinds(host.events[-2:]) == ["MessageRefused", "SessionSynced"]
    assert not host.store.load().forked
    assert not host.machine.receive_outside(DAVE, BOB, 1, wrong[0])
    host.drain()
    assert host.events[-1] == MessageRefused(
        session=None, peer=DAVE, feed=BOB, sequence=1, reason=host.events[-3].reason
    )


def test_a_fork_is_remembered() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(3)}, as_frames(chain(BOB, 1))[0])
    host.tell(session, as_frames(chain(BOB, 2, text="another"))[1])
    assert isinstance(host.events[-1], FeedForked)
    again = Host(ALICE, host.store).follow(BOB)
    fresh = again.accept(CAROL)
    assert again.tell(fresh, {BOB: on(7)}) == [{}, {BOB: -1}]


def test_the_proof_waits_until_our_message_is_stored() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(3)})
    host.machine.receive_message(session, BOB, 1, as_frames(chain(BOB, 1))[0])
    host.machine.receive_message(session, BOB, 2, as_frames(chain(BOB, 2, text="another"))[1])
    asked = []
    while (effect := host.machine.next_effect()) is not None:
        asked.append(type(effect).__name__)
        host.machine.complete(effect.ticket, host.store.perform(effect))
    assert asked == ["AppendMessages", "ReadMessages", "MarkForked"]


# Ends


def test_a_second_session_of_a_peer_ends_the_first() -> None:
    host = alice()
    first = host.accept(BOB)
    second = host.accept(BOB)
    assert SessionEnded(session=first, peer=BOB, reason=EndReason.RECONNECTED) in host.events
    assert host.machine.frames_to_send(first) == []
    assert host.take(second) != []
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.receive_notes(first, {})
    assert caught.value.code is ErrorCode.NO_SESSION


def test_a_peer_at_fault_ends_its_session_alone() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    error = RemoteProtocolError(ErrorCode.BAD_NOTE, "x")
    host.machine.disconnect(first, error)
    host.drain()
    assert host.events[-1] == SessionEnded(
        session=first, peer=BOB, reason=EndReason.FAULT, error=error
    )
    host.machine.disconnect(first)
    host.drain()
    assert kinds(host.events).count("SessionEnded") == 1
    assert host.machine.is_ready(second)


def test_there_are_no_more_sessions_than_the_limit() -> None:
    host = alice(limits=Limits(sessions_max=2))
    host.accept(BOB)
    host.accept(CAROL)
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.connect(DAVE, role=SessionRole.SERVER)
    assert caught.value.code is ErrorCode.TOO_MANY_SESSIONS
    host.accept(CAROL)  # in place of the other one


def test_a_session_that_ends_before_it_has_loaded_keeps_what_the_store_has() -> None:
    host = alice()
    session = host.machine.connect(BOB, role=SessionRole.SERVER)
    effect = host.machine.next_effect()
    assert effect is not None
    host.machine.disconnect(session)
    host.machine.complete(effect.ticket, PeerClock(told={BOB: 7}))
    assert host.machine.next_effect() is None
    assert host.take(session) == []


def test_closing_writes_what_was_taken_and_keeps_what_was_told() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(1)})
    host.machine.receive_message(session, BOB, 1, as_frames(chain(BOB, 1))[0])
    host.machine.close()
    assert host.machine.state is State.CLOSING
    host.drain()
    assert host.machine.state is State.CLOSED
    assert kinds(host.events[-3:]) == ["SessionEnded", "FeedExtended", "Closed"]
    assert host.store.load().heads[BOB].sequence == 1
    with pytest.raises(LocalProtocolError) as caught:
        host.machine.follow(DAVE)
    assert caught.value.code is ContractErrorCode.ALREADY_CLOSED


def test_a_store_that_fails_ends_everything() -> None:
    host = alice()
    host.accept(BOB)
    host.machine.append(chain(ALICE, 1)[0])
    effect = host.machine.next_effect()
    assert effect is not None
    host.machine.fail(effect.ticket, OSError("the disk is full"))
    host.drain()
    assert kinds(host.events[-3:]) == ["StoreFailed", "SessionEnded", "Closed"]
    assert host.events[-1] == Closed()
    assert host.machine.next_effect() is None


# Progress


def test_progress_counts_what_has_moved_and_what_is_to_move() -> None:
    host = alice()
    host.write(ALICE, 5)
    session = host.accept(BOB)
    assert host.machine.progress == SyncProgress(0, 0)
    host.machine.receive_notes(session, {BOB: on(10), ALICE: on(2)})
    assert host.machine.progress == SyncProgress(0, 13)
    host.take(session)
    assert host.machine.progress == SyncProgress(3, 13)
    host.tell(session, *as_frames(chain(BOB, 4)))
    assert host.machine.progress == SyncProgress(7, 13)
    host.write(ALICE, 1)
    assert host.machine.progress == SyncProgress(8, 14)


# Two replicators


@pytest.mark.parametrize(("counts", "frames"), [((0, 0), 2), ((300, 0), 303), ((20, 30), 52)])
def test_two_peers_have_the_same_in_the_end(counts: tuple[int, int], frames: int) -> None:
    bob, host = Host(BOB).follow(ALICE, BOB), alice()
    host.write(ALICE, counts[0])
    bob.write(BOB, counts[1])
    pair = Pair(client=bob, server=host).run()
    assert host.machine.clock == bob.machine.clock == {ALICE: counts[0], BOB: counts[1]}
    assert len(pair.said) <= frames + 2
    for each in (host, bob):
        assert each.store.messages(ALICE) == host.store.messages(ALICE)


def test_a_session_is_resumed_without_saying_anything_twice() -> None:
    bob, host = Host(BOB).follow(ALICE, BOB), alice()
    host.write(ALICE, 10)
    Pair(client=bob, server=host).run().end()
    again = Pair(client=bob, server=host).run()
    own_feeds = [{ALICE: on(10)}, {BOB: on(0), ALICE: off(10)}, {BOB: off(0)}]
    assert [frame for _, frame in again.said] == own_feeds
    again.end()
    third = Pair(client=bob, server=host).run()
    assert [frame for _, frame in third.said] == own_feeds
    host.write(ALICE, 1)
    bob.write(BOB, 1)
    third.run()
    assert host.machine.clock == bob.machine.clock == {ALICE: 11, BOB: 1}


# Tables


def test_every_pair_of_the_tables_leads_somewhere_or_cannot_happen() -> None:
    told = {
        SupplyInput.REFUSES: Supply.REFUSED,
        SupplyInput.STANDS_BY: Supply.STANDBY,
        SupplyInput.RECEIVES_BEHIND: Supply.READING,
        SupplyInput.RECEIVES_LEVEL: Supply.LIVE,
    }
    for supply, happened in product(Supply, SupplyInput):
        expected = told.get(happened)
        if (supply, happened) == (Supply.READING, SupplyInput.CAUGHT_UP):
            expected = Supply.LIVE
        if (supply, happened) == (Supply.LIVE, SupplyInput.FELL_BEHIND):
            expected = Supply.READING
        assert SUPPLY_RULES[supply].get(happened) is expected
    for state, event in product(SessionState, SessionInput):
        goes_on = SESSION_RULES[state].get(event)
        if event is SessionInput.END:
            assert goes_on is (None if state is SessionState.ENDED else SessionState.ENDED)
        elif event is SessionInput.NOTES:
            hears = state in (SessionState.AWAITING_NOTES, SessionState.OPEN)
            assert goes_on is (SessionState.OPEN if hears else None)
        else:
            assert (goes_on is not None) is (state is SessionState.LOADING)
    for whole, what in product(FeedState, FeedInput):
        assert (whole, what, FEED_RULES[whole].get(what)) in {
            (FeedState.WHOLE, FeedInput.CONTRADICTED, FeedState.PROVING),
            (FeedState.WHOLE, FeedInput.PROVED, None),
            (FeedState.PROVING, FeedInput.CONTRADICTED, None),
            (FeedState.PROVING, FeedInput.PROVED, FeedState.FORKED),
            (FeedState.FORKED, FeedInput.CONTRADICTED, None),
            (FeedState.FORKED, FeedInput.PROVED, None),
        }


def test_arguments_that_are_none_are_refused_at_once() -> None:
    host = Host(ALICE)
    with pytest.raises(ValueError, match="feed must be"):
        host.machine.follow("@x")
    with pytest.raises(ValueError, match="peer must be"):
        host.machine.connect("x", role=SessionRole.CLIENT)
    with pytest.raises(TypeError, match="role"):
        host.machine.connect(BOB, role="server")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a note is at most"):
        host.machine.receive_notes(host.accept(BOB), {BOB: 2**53})
    with pytest.raises(ValueError, match="me must be"):
        Host("alice")
    with pytest.raises(ValueError, match="sessions_max"):
        Limits(sessions_max=0)
    with pytest.raises(ValueError, match="stall_s"):
        Timing(stall_s=-1.0)
    with pytest.raises(TypeError):
        host.machine.append("message")  # type: ignore[arg-type]
    for message in (Message(ALICE, 0, "%", b"{}"), Message(ALICE, 1, "%", b"")):
        with pytest.raises(ValueError, match=r"sequence must|has data"):
            host.machine.append(message)
    assert isinstance(host.store, MemoryStore)
    assert EVE not in host.machine.clock


def test_a_session_is_told_of_once_it_is_open() -> None:
    host = Host(ALICE)
    session = host.accept(BOB)
    assert host.events == [SessionOpened(session=session, peer=BOB)]


def synced(host: Host) -> list[int]:
    return [event.session for event in host.events if isinstance(event, SessionSynced)]


def test_a_session_is_synced_once_everything_told_is_stored() -> None:
    host = alice()
    session, other = host.accept(BOB), host.accept(CAROL)
    frames = as_frames(chain(BOB, 3))
    host.tell(session, {BOB: on(2), CAROL: on(9)})  # we do not follow Carol
    host.tell(session, frames[0])
    assert synced(host) == []
    host.tell(other, {})
    assert synced(host) == [other]
    host.tell(session, frames[1])
    assert kinds(host.events[-2:]) == ["FeedExtended", "SessionSynced"]
    host.tell(session, frames[2], {BOB: on(3)}, {BOB: off(1)})
    assert synced(host) == [other, session]  # there was never less than it had announced
    host.tell(other, {BOB: on(4)})
    assert synced(host) == [other, session]
    host.tell(session, *as_frames(chain(BOB, 1, after=host.machine.head(BOB))))
    assert synced(host) == [other, session, other]


@pytest.mark.parametrize("change", ["unfollow", "block", "refuse", "fork"])
def test_a_feed_that_is_not_exchanged_any_more_is_not_waited_for(change: str) -> None:
    host = alice()
    session = host.accept(CAROL)
    host.tell(session, {BOB: on(2)})
    assert synced(host) == []
    if change == "unfollow":
        host.machine.follow(BOB, False)
    elif change == "block":
        host.machine.block(BOB, CAROL)
    elif change == "refuse":
        host.tell(session, {BOB: -1})
    else:
        host.tell(session, *as_frames(chain(BOB, 1)), *as_frames(chain(BOB, 2, text="x"))[1:])
    host.drain()
    assert synced(host) == [session]


def test_a_feed_is_waited_for_once_it_is_followed() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {DAVE: on(1)})
    host.follow(DAVE)
    host.tell(session, {ALICE: on(0)})
    assert synced(host) == [session]  # by its first notes
    host.tell(session, {DAVE: on(1)}, *as_frames(chain(DAVE, 1)))
    assert synced(host) == [session, session]


def test_a_session_that_has_ended_is_not_synced() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(1)})
    host.machine.disconnect(session)
    other = host.accept(CAROL)
    host.tell(other, {BOB: on(1)}, *as_frames(chain(BOB, 1)))
    assert synced(host) == [other]
