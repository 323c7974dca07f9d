"""Epidemic Broadcast Trees: the sources of feeds, and the order of their turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ebt_support import ALICE, BOB, CAROL, DAVE, EVE, Host, alice, as_frames, chain, feed, off, on

from culm.ssb.ebt import Limits, ReplicatorEffect, SourceChanged, Timing
from culm.ssb.ebt.sources import Record


def test_a_feed_is_received_from_one_peer_and_the_others_stand_by() -> None:
    host = alice()
    assert host.take(host.accept(BOB))[0][BOB] == on(0)
    assert host.take(host.accept(CAROL))[0][BOB] == off(0)
    assert host.machine.source(BOB) == BOB


def test_whoever_is_ahead_becomes_the_source() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.take(first)
    assert host.tell(second, {BOB: on(4)})[-1][BOB] == on(0)
    assert host.take(first) == [{BOB: off(0)}]
    assert host.machine.source(BOB) == CAROL


def test_who_is_not_ahead_of_the_source_stands_by() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(first, {BOB: on(4)})
    host.tell(second, {BOB: on(4)})
    assert host.machine.source(BOB) == BOB


def test_the_next_source_is_who_has_the_most() -> None:
    host = alice()
    first, second, third = (host.accept(peer) for peer in (BOB, CAROL, DAVE))
    for session, sequence in ((first, 2), (second, 3), (third, 5)):
        host.tell(session, {BOB: on(sequence)})
    host.machine.disconnect(first)
    assert host.take(third) == [{BOB: on(0)}]
    assert host.machine.source(BOB) == DAVE


def test_a_peer_that_does_not_want_a_feed_is_no_source() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(second, {BOB: on(1)})
    host.tell(first, {BOB: -1})
    assert host.machine.source(BOB) == CAROL
    assert host.take(first) == []  # it knows


@pytest.mark.parametrize(("others", "wanted"), [([CAROL], off(0)), ([], on(0))])
def test_a_source_that_has_refused_is_told_anew_what_we_want(
    others: list[str], wanted: int
) -> None:
    """It may believe that our request still holds, while another peer is asked."""
    host = alice()
    first = host.accept(BOB)
    host.tell(first, {BOB: on(3)})
    for each in others:
        host.tell(host.accept(each), {BOB: on(3)})
    assert host.tell(first, {BOB: -1}) == []
    assert host.tell(first, {BOB: on(3)}) == [{BOB: wanted}]


def test_a_stalled_peer_is_switched_away_from() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(first, {BOB: on(4)})
    host.tell(second, {BOB: on(4)})
    assert host.machine.next_deadline() == 3.0
    host.advance(3.0)
    assert host.events[-1] == SourceChanged(feed=BOB, peer=CAROL, stalled=BOB)
    assert host.take(first) == [{BOB: off(0)}]
    assert host.take(second) == [{BOB: on(0)}]


def stalled(**options: object) -> tuple[Host, list[ReplicatorEffect]]:
    """Alice, whose store is slow, and whose source for a feed is silent."""
    host = alice(**options)
    first, second = host.accept(BOB), host.accept(CAROL)
    for session in (first, second):
        host.tell(session, {BOB: on(4)})
    for message in chain(ALICE, 3):
        host.machine.append(message)
    effect = host.machine.next_effect()
    assert effect is not None
    return host, [effect]


def test_a_store_that_always_writes_excuses_nobody() -> None:
    """As long as there is room for the messages that the source owes."""
    host, effects = stalled()
    assert host.machine.takes_messages
    host.machine.advance(3.0)
    assert host.machine.source(BOB) == CAROL
    assert effects


def test_whose_messages_could_not_be_taken_has_its_time_from_then_on() -> None:
    host, effects = stalled(limits=Limits(unwritten_size_max=1))
    host.machine.advance(3.0)
    host.machine.advance(100.0)
    assert host.machine.source(BOB) == BOB
    for effect in effects:
        host.machine.complete(effect.ticket, host.store.perform(effect))
    host.drain()
    assert host.machine.takes_messages
    host.advance(102.9)
    assert host.machine.source(BOB) == BOB
    due = host.machine.next_deadline()
    assert due is not None
    host.advance(due)
    assert (due, host.machine.source(BOB)) == (103.0, CAROL)


def test_a_peer_that_delivers_has_not_stalled() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(first, {BOB: on(4)})
    host.tell(second, {BOB: on(4)})
    messages = as_frames(chain(BOB, 4))
    host.advance(2.0)
    host.tell(first, messages[0])
    host.advance(3.0)
    assert host.machine.source(BOB) == BOB
    assert host.machine.next_deadline() == 5.0
    host.tell(first, *messages[1:])
    host.advance(5.0)
    assert host.machine.next_deadline() is None
    assert host.machine.source(BOB) == BOB


def test_a_peer_that_sends_other_feeds_is_given_more_time_but_not_for_ever() -> None:
    host = Host(ALICE, timing=Timing(stall_feed_s=8.0)).follow(BOB, DAVE)
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(first, {BOB: on(4), DAVE: on(100)})
    host.tell(second, {BOB: on(4)})
    for number, message in enumerate(as_frames(chain(DAVE, 7)), 1):
        host.advance(number * 1.0)
        host.tell(first, message)
        assert host.machine.source(BOB) == BOB
    host.advance(8.0)
    assert host.machine.source(BOB) == CAROL


def test_stalled_peers_take_turns_until_all_are_asked() -> None:
    """Then nothing changes, however long that lasts, until one of them brings something."""
    host = alice()
    sessions = [host.accept(peer) for peer in (BOB, CAROL, DAVE, EVE)]
    for session in sessions:
        host.tell(session, {BOB: on(4)})
    sources = []
    for turn in range(1, 7):
        host.advance(turn * 3.0)
        sources.append(host.machine.source(BOB))
    assert sources == [CAROL] + [DAVE] * 5
    assert [host.take(session)[-1] for session in sessions] == [{BOB: on(0)}] * 4
    assert host.machine.next_deadline() is None
    host.tell(sessions[0], *as_frames(chain(BOB, 4)))
    assert host.machine.source(BOB) == BOB
    assert host.machine.clock[BOB] == 4


def test_without_another_peer_a_stalled_one_is_kept() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: on(4)})
    host.advance(3.0)
    assert host.machine.source(BOB) == BOB
    assert host.machine.next_deadline() is None
    host.tell(session, *as_frames(chain(BOB, 4)))
    assert host.machine.clock[BOB] == 4


def test_a_source_that_delivers_may_be_behind_for_a_moment() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(second, {BOB: on(0)})
    host.tell(first, {BOB: on(1)}, *as_frames(chain(BOB, 1)))
    host.tell(second, {BOB: on(2)})
    assert host.machine.source(BOB) == BOB
    assert host.machine.next_deadline() == 0.5
    host.advance(0.5)
    assert host.machine.source(BOB) == CAROL
    assert host.events[-1] != SourceChanged(feed=BOB, peer=CAROL, stalled=BOB)  # it had not stalled


def test_a_source_that_has_delivered_long_ago_is_replaced_at_once() -> None:
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(second, {BOB: on(0)})
    host.tell(first, {BOB: on(1)}, *as_frames(chain(BOB, 1)))
    host.advance(3.0)
    host.tell(second, {BOB: on(2)})
    assert host.machine.source(BOB) == CAROL


def test_a_stall_of_our_own_store_is_nobodys_fault() -> None:
    host = alice(limits=Limits(unwritten_size_max=1))
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(first, {BOB: on(4)})
    host.tell(second, {BOB: on(4)})
    host.machine.receive_message(first, BOB, 1, as_frames(chain(BOB, 1))[0])
    effect = host.machine.next_effect()
    assert effect is not None
    host.machine.advance(3.0)
    host.machine.advance(6.0)
    assert host.machine.source(BOB) == BOB
    host.machine.complete(effect.ticket, host.store.perform(effect))
    host.advance(9.0)
    assert host.machine.source(BOB) == CAROL


def test_a_standing_by_peers_message_is_taken_all_the_same() -> None:
    """It was on its way when the peer was told to stand by."""
    host = alice()
    first, second = host.accept(BOB), host.accept(CAROL)
    host.tell(first, {BOB: on(4)})
    host.tell(second, {BOB: on(4)})
    host.advance(3.0)
    host.tell(first, *as_frames(chain(BOB, 2)))
    assert host.machine.clock[BOB] == 2


MUCH = 2**51


def promised(*peers: str, sequence: int = MUCH) -> tuple[Host, list[int]]:
    """Alice, to whom these peers have promised Bob's feed, one after the other."""
    host = alice()
    sessions = [host.accept(peer) for peer in peers]
    for session in sessions:
        host.tell(session, {BOB: on(sequence)})
    return host, sessions


def sources_of(host: Host) -> list[tuple[str | None, str]]:
    """The successions of Bob's source: the new peer, and the one that broke its promise."""
    return [(event.peer, event.stalled) for event in host.events if type(event) is SourceChanged]


@pytest.mark.parametrize("taken_back", [-1, on(0)])
def test_a_promise_that_is_taken_back_costs_the_feed(taken_back: int) -> None:
    host, (first, second, third) = promised(CAROL, DAVE, EVE)
    for session, now in ((first, 1.0), (second, 2.0)):
        host.advance(now)
        host.tell(session, {BOB: taken_back})
        host.tell(session, {BOB: on(MUCH + 1)})
    assert sources_of(host) == [(DAVE, CAROL), (EVE, DAVE)]
    host.tell(third, *as_frames(chain(BOB, 1)))
    host.advance(4.0)
    assert host.machine.source(BOB) == EVE


def test_whose_promise_nobody_else_makes_is_believed_again() -> None:
    host, (first,) = promised(CAROL)
    for _ in range(10):
        host.tell(first, {BOB: -1})
        assert host.machine.source(BOB) is None
        host.tell(first, {BOB: on(MUCH)})
        assert host.machine.source(BOB) == CAROL


def test_of_a_feed_that_does_not_move_who_has_waited_longest_comes_first() -> None:
    """However much others promise, and under however many names they come."""
    host, _ = promised(CAROL, sequence=5)
    session = host.accept(DAVE)
    host.tell(session, {BOB: on(1)})
    for number in range(20):
        host.tell(host.accept(feed(f"sybil {number}")), {BOB: on(MUCH)})
    host.advance(3.0)
    assert sources_of(host) == [(DAVE, CAROL)]


@pytest.mark.parametrize("honest", [BOB, CAROL], ids=["the author", "a peer that is followed"])
@pytest.mark.parametrize("liars", [1, 10, 50])
def test_who_is_known_does_not_wait_for_all_strangers_that_promise(liars: int, honest: str) -> None:
    host, _ = promised(*(feed(f"liar {number}") for number in range(liars)))
    session = host.follow(CAROL).accept(honest)
    host.tell(session, {BOB: on(4)})
    while host.machine.source(BOB) != honest:
        due = host.machine.next_deadline()
        assert due is not None
        host.advance(due)
    host.tell(session, *as_frames(chain(BOB, 4)))
    assert (host.now, host.machine.clock[BOB]) == (Timing().stall_s, 4)


def test_the_author_comes_before_peers_that_are_followed() -> None:
    host, (carol, dave, bob) = promised(CAROL, DAVE, BOB)
    host.follow(DAVE).advance(3.0)
    assert host.machine.source(BOB) == BOB
    assert [host.take(each)[-1][BOB] for each in (carol, dave, bob)] == [off(0), on(0), on(0)]


@pytest.mark.parametrize("after_s", [2.9, 3.0])
def test_peers_that_are_followed_and_come_again_keep_no_stranger_waiting(after_s: float) -> None:
    """Each session of theirs is a new one, without a record."""
    host, _ = promised(CAROL)
    sessions = {peer: host.follow(peer).accept(peer) for peer in (DAVE, EVE)}
    host.tell(host.accept(stranger := feed("stranger")), {BOB: on(4)})
    for turn in range(1, 10):
        for peer, session in sessions.items():
            host.tell(session, {BOB: on(MUCH)})
            if host.machine.source(BOB) == peer:
                host.machine.disconnect(session)
                sessions[peer] = host.accept(peer)
        if host.machine.source(BOB) == stranger:
            break
        host.advance(turn * after_s)
    assert host.machine.source(BOB) == stranger
    assert host.now <= 5 * Timing().stall_s


def test_an_author_that_keeps_no_promise_rests_as_others_do() -> None:
    host, (author, *_) = promised(BOB, CAROL, DAVE)
    host.advance(3.0)
    assert host.machine.source(BOB) == CAROL
    host.take(author)
    host.tell(author, {BOB: on(MUCH + 1)})
    host.advance(5.9)
    assert host.machine.source(BOB) == CAROL
    assert host.take(author) == []


def test_who_has_brought_something_comes_before_the_author() -> None:
    host, (first, _) = promised(DAVE, CAROL)
    host.tell(first, *as_frames(chain(BOB, 1)))
    host.advance(3.0)
    assert host.machine.source(BOB) == CAROL
    host.tell(host.accept(BOB), {BOB: on(MUCH)})
    host.advance(6.0)
    assert host.machine.source(BOB) == DAVE


def test_who_has_brought_something_comes_before_who_has_not() -> None:
    host, (first, second, _) = promised(CAROL, DAVE, EVE)
    messages = as_frames(chain(BOB, 2))
    host.advance(3.0)
    host.tell(second, messages[0])
    host.advance(6.0)
    assert host.machine.source(BOB) == EVE
    host.tell(first, messages[1])  # it was on its way
    host.advance(9.0)
    assert sources_of(host) == [(DAVE, CAROL), (EVE, DAVE), (DAVE, EVE)]


def test_turns_in_vain_lead_to_longer_and_longer_pauses() -> None:
    """Dave brings everything that exists; Carol promises more than that."""
    host, (first, second) = promised(CAROL, DAVE, sequence=1)
    host.tell(first, {BOB: on(MUCH)})
    host.advance(3.0)
    host.tell(second, *as_frames(chain(BOB, 1)))
    begun = []
    before = DAVE
    for tick in range(200):
        host.advance(3.5 + tick / 2)
        source = host.machine.source(BOB)
        if source == CAROL != before:
            begun.append(host.now)
            host.tell(first, {BOB: -1})
            host.tell(first, {BOB: on(MUCH)})
            source = host.machine.source(BOB)
        before = source
    assert len(begun) <= 6


def test_who_has_brought_something_after_all_begins_with_the_shortest_pause() -> None:
    in_vain: Any = SimpleNamespace(is_in_vain=True)
    record = Record(1)
    pauses = []
    for brings in (False, False, True, False):
        if brings:
            record.forgive()
        record.finish(in_vain, 0.0, (1, 0.0), 3.0)
        pauses.append(record.rests_until)
    assert pauses == [6.0, 12.0, 6.0, 12.0]


def test_what_others_bring_is_no_excuse_for_the_source() -> None:
    """An accomplice sends a message now and then, although it is not the source."""
    host, (_, second, _) = promised(CAROL, DAVE, EVE)
    for number, message in enumerate(as_frames(chain(BOB, 4)), 1):
        host.advance(2.9 * number)
        host.tell(second, message)
    assert (DAVE, CAROL) in sources_of(host)
    assert host.machine.source(BOB) != CAROL


def test_a_slow_source_gives_way_to_a_faster_one() -> None:
    """One message every 2.9 seconds is enough for a while."""
    host, (first, second) = promised(CAROL, DAVE)
    messages = as_frames(chain(BOB, 200))
    host.advance(2.9)
    host.tell(first, messages[0])
    host.advance(5.8)
    host.tell(first, messages[1])
    host.advance(8.7)
    host.tell(first, messages[2])
    assert host.machine.source(BOB) == CAROL
    host.advance(10.0)
    assert sources_of(host) == [(DAVE, CAROL)]
    for tick in range(20):
        host.tell(second, *messages[3 + 3 * tick : 6 + 3 * tick])
        host.advance(10.0 + tick)
    assert host.machine.source(BOB) == DAVE  # it was compared, and is faster
    host.tell(second, {BOB: -1})
    assert host.machine.source(BOB) == CAROL


def test_who_was_slow_is_tried_again_more_and_more_rarely() -> None:
    host, (first, second) = promised(CAROL, DAVE)
    messages = iter(as_frames(chain(BOB, 500)))
    begun = []
    for tick in range(1, 80):
        source = host.machine.source(BOB)
        if source == CAROL:
            host.tell(first, next(messages))
        else:
            host.tell(second, *(next(messages) for _ in range(6)))
        host.advance(2.0 * tick)
        if host.machine.source(BOB) == CAROL != source:
            begun.append(host.now)
    assert begun == [50.0, 100.0, 150.0]  # six times beats double, and four times


def test_what_a_resting_peer_says_hastens_nothing() -> None:
    """Carol has had a turn in vain; Dave's time as the source is not over when she speaks again."""
    host, (carol, dave) = promised(CAROL, DAVE, sequence=1)
    eve = host.accept(EVE)
    host.tell(carol, {BOB: on(MUCH)})
    host.advance(1.0)
    host.tell(carol, {BOB: -1})
    host.tell(dave, *as_frames(chain(BOB, 1)))
    host.advance(1.2)
    host.tell(carol, {BOB: on(MUCH)})
    host.advance(1.5)
    host.advance(3.9)
    host.tell(eve, {BOB: on(5)})
    host.advance(4.1)
    host.tell(carol, {BOB: on(MUCH + 1)})
    assert host.machine.source(BOB) == DAVE
    host.advance(4.4)
    assert host.machine.source(BOB) == EVE


# A feed that does not move


def crowd(count: int) -> tuple[Host, list[int]]:
    """Alice, and strangers that claim four messages of Bob's feed."""
    host = alice()
    sessions = [host.accept(feed(f"stranger {number}")) for number in range(count)]
    for session in sessions:
        host.tell(session, {BOB: off(4)})
    return host, sessions


def asked_at(host: Host, sessions: list[int], times: int, *, after: int = 0) -> list[list[int]]:
    """The peers asked at each of the next deadlines, and those no longer asked."""
    found = []
    for _ in range(times):
        due = host.machine.next_deadline()
        assert due is not None
        host.advance(due)
        frames = {session: host.take(session) for session in sessions}
        found.append([at for at, each in enumerate(sessions) if {BOB: on(after)} in frames[each]])
    return found


def test_with_every_turn_in_vain_twice_as_many_are_asked() -> None:
    host, sessions = crowd(20)
    expected = [[1, 2], [3, 4, 5], [*range(6, 11)], [*range(11, 20)]]  # 2, 4, 8, 16 at a time
    assert asked_at(host, sessions, 4) == expected
    assert host.now == 4 * Timing().stall_s


def test_who_brings_the_next_message_is_the_source_and_the_others_stand_by() -> None:
    host, sessions = crowd(20)
    asked_at(host, sessions, 3)
    frames = as_frames(chain(BOB, 4))
    assert host.tell(sessions[7], frames[0]) == []  # already asked
    assert host.machine.source(BOB) == feed("stranger 7")
    told = {at: host.take(each) for at, each in enumerate(sessions)}
    assert {at for at, each in told.items() if each} == {3, 4, 5, 6, 8, 9, 10}
    assert all(each in ([], [{BOB: off(0)}], [{BOB: off(1)}]) for each in told.values())
    assert host.tell(sessions[7], *frames[1:]) == []
    assert host.machine.clock[BOB] == 4
    for session in sessions:
        host.tell(session, {BOB: off(6)})
    assert asked_at(host, sessions, 3, after=4) == [[], [4], [5, 6]]  # a new search begins with few


def test_what_the_source_brings_ends_the_search() -> None:
    host, sessions = crowd(20)
    asked_at(host, sessions, 2)
    frames = as_frames(chain(BOB, 2))
    assert host.tell(sessions[2], frames[0]) == []
    assert host.machine.source(BOB) == feed("stranger 2")
    assert [at for at, each in enumerate(sessions) if host.take(each)] == [3, 4, 5]
    assert asked_at(host, sessions, 2, after=1) == [[3], [2, 4]]  # a new one begins with few


def test_what_nobody_has_asked_for_ends_no_search() -> None:
    host, sessions = crowd(20)
    asked_at(host, sessions, 2)
    host.tell(sessions[19], *as_frames(chain(BOB, 1)))
    assert host.machine.clock[BOB] == 1
    assert not any(host.take(each) for each in sessions)


def test_who_leaves_or_refuses_is_not_asked_any_more() -> None:
    host, sessions = crowd(20)
    asked_at(host, sessions, 3)
    host.machine.disconnect(sessions[5])
    host.tell(sessions[6], {BOB: -1})
    # The first two are asked again: those that left or refused have made room.
    assert asked_at(host, sessions, 1) == [[0, 1, *range(11, 20)]]
    host.machine.follow(BOB, False)
    host.drain()
    assert all(host.take(each)[-1:] in ([{BOB: -1}], []) for each in sessions)


def test_who_was_asked_besides_and_refuses_is_asked_again_when_it_promises_again() -> None:
    """It has forgotten our request, and the source may be silent for ever."""
    host, sessions = crowd(2)
    assert asked_at(host, sessions, 2) == [[1], [0]]
    host.tell(sessions[0], {BOB: -1})
    assert host.tell(sessions[0], {BOB: off(4)}) == [{BOB: off(0)}]
    assert asked_at(host, sessions, 1) == [[0]]


@pytest.mark.parametrize("leaves", ["disconnects", "refuses", "takes it back"])
def test_whose_turn_ends_in_vain_widens_the_search(leaves: str) -> None:
    host, sessions = crowd(20)
    if leaves == "disconnects":
        host.machine.disconnect(sessions[0])
    else:
        host.tell(sessions[0], {BOB: -1 if leaves == "refuses" else off(0)})
    asked = [at for at, each in enumerate(sessions[1:], 1) if {BOB: on(0)} in host.take(each)]
    assert asked == [1, 2]


def test_a_peer_that_rests_is_asked_besides_when_all_others_are() -> None:
    host, sessions = crowd(4)
    assert asked_at(host, sessions, 3) == [[1, 2], [3], [0, 1]]
    assert host.machine.next_deadline() is None


@pytest.mark.parametrize("leaves", [True, False])
def test_a_claim_that_nobody_keeps_up_takes_no_time_from_the_next_one(leaves: bool) -> None:
    """Afterwards, a peer that claims more has its full time."""
    host = alice()
    session = host.accept(CAROL)
    host.tell(session, {BOB: on(1000)})
    if leaves:
        host.machine.disconnect(session)
        session = host.accept(DAVE)
    host.tell(session, {BOB: on(0)})
    host.advance(100.0)
    host.tell(session, {BOB: on(5)})
    assert host.machine.next_deadline() == 100.0 + Timing().stall_s
