"""Unsent messages of a session: the time at which they may leave, and the reads for them."""

from __future__ import annotations

from gc import collect, get_objects

import pytest
from ebt_support import ALICE, BOB, CAROL, DAVE, Host, Pair, alice, feed, on

from culm.ssb.ebt import Limits, LoadClock, ReadMessages, SessionRole
from culm.ssb.ebt.session import PeerSession


@pytest.mark.parametrize("happened", ["follow", "unblock", "write"])
def test_a_client_says_nothing_of_what_happens_before_the_servers_notes(happened: str) -> None:
    host = alice()
    host.machine.block(ALICE, CAROL)
    host.machine.block(BOB, CAROL)
    host.machine.block(ALICE, CAROL, False)
    session = host.dial(CAROL)
    if happened == "follow":
        host.follow(CAROL)
    elif happened == "unblock":
        host.machine.block(BOB, CAROL, False)
    else:
        host.write(ALICE, 1)
    assert host.take(session) == []
    assert ALICE in host.tell(session, {CAROL: on(1)})[0]


def test_with_room_for_a_byte_there_is_room_for_a_frame() -> None:
    host = alice(limits=Limits(notes_max=1))
    host.write(ALICE, 1)
    host.write(BOB, 1)
    session = host.machine.connect(CAROL, role=SessionRole.SERVER)
    assert host.machine.next_event() is None
    effect = host.machine.next_effect()
    assert effect is not None
    host.machine.complete(effect.ticket, host.store.perform(effect))
    assert len(host.machine.frames_to_send(session, 0)) == 0
    assert [len(host.machine.frames_to_send(session, 1)) for _ in range(3)] == [1, 1, 0]


def test_who_changes_its_mind_for_ever_is_read_two_kibibytes_at_a_time() -> None:
    host = alice()
    host.write(ALICE, 100, text="x" * 200)
    session = host.accept(CAROL)
    host.take(session)
    sizes = []
    for _ in range(10):
        host.machine.receive_notes(session, {ALICE: on(0)})
        while (effect := host.machine.next_effect()) is not None:
            assert isinstance(effect, ReadMessages)
            sizes.append(effect.size_max)
            host.machine.complete(effect.ticket, host.store.perform(effect))
        host.machine.receive_notes(session, {ALICE: -1})
    assert sizes[0] == 131072
    assert sizes[-1] == min(sizes) == 2048


def test_a_session_that_has_ended_is_not_kept_by_a_slow_store() -> None:
    """Each had stayed, with all that it knew of feeds, until its read was answered."""
    host = alice()
    host.write(ALICE, 1)
    session = host.accept(feed("zoe"))
    host.machine.receive_notes(session, {ALICE: on(0)})
    effect = host.machine.next_effect()
    assert isinstance(effect, ReadMessages)
    host.machine.disconnect(session)
    host.take(session)
    collect()
    kept = [each for each in get_objects() if isinstance(each, PeerSession)]
    assert feed("zoe") not in [each.peer for each in kept]
    host.machine.complete(effect.ticket, host.store.perform(effect))
    assert host.take(session) == []


def test_all_sessions_of_a_peer_wait_for_one_clock_from_the_store() -> None:
    """Each had asked for one, and stayed with it before a store that stood still."""
    host = alice()
    zoe = feed("zoe")
    for _ in range(3):
        session = host.machine.connect(zoe, role=SessionRole.SERVER)
    effect = host.machine.next_effect()
    assert isinstance(effect, LoadClock)
    assert host.machine.next_effect() is None
    collect()
    kept = [each for each in get_objects() if isinstance(each, PeerSession)]
    assert [each.number for each in kept if each.peer == zoe] == [session]
    host.machine.complete(effect.ticket, host.store.perform(effect))
    assert host.machine.is_ready(session)
    host.machine.disconnect(session)
    host.drain()
    host.machine.connect(zoe, role=SessionRole.SERVER)
    assert isinstance(host.machine.next_effect(), LoadClock)


def test_a_feed_that_was_left_out_is_sent_to_who_has_asked_for_it_once_it_is_followed() -> None:
    """The peer tells of it again when a refusal comes before our note."""
    host = Host(ALICE, limits=Limits(feeds_max=1)).follow(ALICE)
    host.write(DAVE, 2)
    pair = Pair(client=host, server=Host(BOB).follow(BOB, CAROL, DAVE)).run()
    host.follow(DAVE)
    pair.run()
    host.write(DAVE, 1)
    pair.run()
    assert pair.server.machine.clock[DAVE] == 3
    assert [frame for _, frame in pair.said if DAVE in frame] == [
        {BOB: on(0), CAROL: on(0), DAVE: on(0)},
        {DAVE: -1},
        {DAVE: on(2)},
        {DAVE: on(0)},
    ]
