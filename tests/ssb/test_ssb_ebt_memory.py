"""Epidemic Broadcast Trees: memory of a peer is a hint, and never more.

``CULM_EBT_MEMORY_SEEDS`` sets the number of worlds in which it comes back older, newer or not at
all, ``CULM_EBT_MEMORY_FIRST_SEED`` the first one; ``CULM_EBT_LIVES_SEEDS`` the number in which
follows and blocks come back as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
from ebt_lives import Lives
from ebt_memories import SESSIONS_MAX, Memories, Skipping, SkippingHost
from ebt_simulator import TightHost
from ebt_support import ALICE, BOB, CAROL, DAVE, Host, Pair, alice, as_frames, chain, feed, off, on

from culm.machine import Ticket
from culm.ssb.ebt import TURNS, LoadClock, PeerClock, SaveClock, SessionRole
from culm.ssb.ebt.exchange import FeedExchange
from culm.ssb.ebt.model import turn_of
from culm.ssb.ebt.session import Feed, PeerSession
from culm.ssb.store import MemoryStore
from effort import seeds

STEPS, STEPS_OF_LIVES = 80, 120
WORLDS = seeds("EBT_MEMORY", usual=160, long=100_000)


def some(tried: range) -> list[range]:
    return [tried[at : at + 20] for at in range(0, len(tried), 20)]


# Request skipping


def first_notes(host: Host, peer: str) -> dict[str, int]:
    """The first notes of a session with that peer, which is lost afterwards."""
    session = host.accept(peer)
    notes: dict[str, int] = {}
    for frame in host.take(session):
        notes |= frame
    host.machine.disconnect(session)
    host.drain()
    return notes


def remembering(told: dict[str, int], **fields: Any) -> Host:
    """Alice, with this memory of Carol, who follows herself, Bob and Dave."""
    store = MemoryStore()
    clock = PeerClock(told=told, sessions=_turn_of_nobody(*told), **fields)
    store.perform(SaveClock(ticket=Ticket(1), peer=CAROL, clock=clock))
    return alice(store=store).follow(DAVE)


def _turn_of_nobody(*feeds: str) -> int:
    """A number of sessions after which none of these feeds has its turn."""
    turns = set(map(turn_of, feeds))
    return next(turn for turn in range(TURNS) if turn not in turns)


def test_feeds_of_which_the_peer_told_the_same_are_left_out() -> None:
    host = remembering({BOB: 0, DAVE: 0})
    assert first_notes(host, CAROL) == {ALICE: on(0)}


def test_a_message_tells_what_its_sender_has() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {BOB: off(2)}, *as_frames(chain(BOB, 2)))
    host.machine.disconnect(session)
    assert first_notes(host, BOB) == {ALICE: on(0)}


def test_our_own_feed_is_mentioned_in_every_session() -> None:
    host = remembering({ALICE: 0, BOB: 0, DAVE: 0})
    for _ in range(3):
        assert first_notes(host, CAROL)[ALICE] == on(0)


def test_a_feed_of_which_we_have_less_than_before_is_mentioned() -> None:
    """The peer was told of more messages than it has itself announced."""
    host = remembering({BOB: 0, DAVE: 0}, held={BOB: 3})
    assert first_notes(host, CAROL) == {ALICE: on(0), BOB: on(0)}


def test_a_memory_of_more_messages_than_there_are_counts_for_nothing() -> None:
    host = remembering({BOB: 0, DAVE: 0}, stored=1)
    assert first_notes(host, CAROL) == {ALICE: on(0), BOB: on(0), DAVE: on(0)}


def test_a_feed_that_was_refused_and_is_followed_now_is_mentioned() -> None:
    host = remembering({BOB: 0, DAVE: 0}, refused=frozenset({DAVE}))
    assert first_notes(host, CAROL) == {ALICE: on(0), DAVE: on(0)}


def test_what_the_peer_has_refused_before_is_mentioned() -> None:
    host = remembering({BOB: -1, DAVE: 0})
    for _ in range(2):
        assert first_notes(host, CAROL)[BOB] == on(0)


def test_what_the_peer_refuses_now_is_not_mentioned_again() -> None:
    host = alice()
    session = host.accept(CAROL)
    host.tell(session, {ALICE: -1, BOB: -1})
    host.write(ALICE, 4)
    assert host.take(session) == []


def test_a_feed_that_we_have_refused_is_told_even_if_the_peer_told_the_same() -> None:
    """Its peer skips a feed that it takes for refused, so that neither would ever begin."""
    host = Host(ALICE).follow(ALICE)
    host.write(BOB, 2)
    session = host.accept(BOB)
    assert host.tell(session, {BOB: on(2)})[-1] == {BOB: -1}
    host.machine.disconnect(session)
    host.follow(BOB)
    assert first_notes(host, BOB)[BOB] == on(2)
    once_more = host.accept(BOB)  # the session before may not have arrived
    assert host.take(once_more)[0][BOB] == on(2)
    host.tell(once_more, {BOB: off(2)})
    host.machine.disconnect(once_more)
    said = [BOB in first_notes(host, BOB) for _ in range(TURNS)]
    assert sum(said) == 1


def test_each_feed_is_mentioned_in_one_of_a_number_of_sessions() -> None:
    """Even if each of them is killed before its end could be saved."""
    feeds = [feed(f"feed {number}") for number in range(100)]
    host = Host(ALICE).follow(*feeds)
    session = host.accept(BOB)
    host.tell(session, dict.fromkeys(feeds, off(0)))
    host.machine.disconnect(session)
    host.drain()
    said: set[str] = set()
    for _ in range(TURNS):
        host = Host(ALICE, host.store).follow(*feeds)
        notes = host.take(host.accept(BOB))[0]
        assert not said & set(notes)
        said |= set(notes)
    assert said == set(feeds)


@pytest.mark.parametrize("told", [0, -1], ids=["level", "refused"])
def test_a_reconnect_without_news_stays_far_below_all_notes(told: int) -> None:
    """Of 10,000 feeds, whether the peer has them or wants none of them."""
    feeds = [feed(f"feed {number}") for number in range(10_000)]
    store = MemoryStore()
    clock = PeerClock(told=dict.fromkeys(feeds, told))
    store.perform(SaveClock(ticket=Ticket(1), peer=BOB, clock=clock))
    host = Host(ALICE, store).follow(ALICE, *feeds)
    counts = [len(first_notes(host, BOB)) for _ in range(TURNS)]
    assert sum(counts) == len(feeds) + TURNS
    assert max(counts) < len(feeds) / 14


def test_a_session_gets_what_is_still_on_its_way_to_the_store() -> None:
    host = alice()
    session = host.accept(BOB)
    host.tell(session, {ALICE: off(0), BOB: on(0)})
    host.machine.disconnect(session)
    again = host.machine.connect(BOB, role=SessionRole.SERVER)
    assert host.machine.is_ready(again)  # without asking the store
    assert host.take(again) == [{ALICE: on(0)}]


def test_of_clocks_that_wait_for_the_store_only_the_last_is_saved() -> None:
    """However often a peer opens a session meanwhile."""
    host = alice()
    host.tell(host.accept(BOB), {ALICE: off(0), BOB: on(0)})
    saved = []
    for _ in range(5):
        host.machine.connect(BOB, role=SessionRole.SERVER)
    for _ in range(2):
        effect = host.machine.next_effect()
        assert isinstance(effect, SaveClock)
        assert host.machine.next_effect() is None
        saved.append(effect.clock.sessions)
        host.machine.complete(effect.ticket, host.store.perform(effect))
    assert host.machine.next_effect() is None
    assert saved == [1, 6]


@pytest.mark.parametrize(
    "fields",
    [
        *({"held": {BOB: number}} for number in (-1, 1.0, True, 2**53)),
        *({"stored": number} for number in (-1, 1.0, None)),
        *({"sessions": number} for number in (-1, 1.0, True)),
        {"held": {"@x": 1}},
        {"held": None},
    ],
)
def test_a_memory_that_cannot_be_is_no_answer(fields: dict[str, Any]) -> None:
    load = LoadClock(ticket=Ticket(1), peer=CAROL)
    assert load.accepts(PeerClock(held={BOB: 1}, stored=1, sessions=1))
    assert not load.accepts(PeerClock(**fields))


# Lives


def test_a_feed_that_was_followed_late_survives_a_kill() -> None:
    """Alice is killed before she could save that Bob no longer refuses the feed."""
    host, bob = Host(ALICE).follow(ALICE), Host(BOB)
    host.write(ALICE, 2)
    Pair(client=bob, server=host).run().end()
    live = Pair(client=bob.follow(ALICE), server=host).run()
    saved = deepcopy(host.store)
    live.end()
    assert bob.machine.clock == {ALICE: 2}
    host = Host(ALICE, saved).follow(ALICE)
    host.write(ALICE, 1)
    Pair(client=bob, server=host).run()
    assert bob.machine.clock == {ALICE: 3}


def test_a_folder_from_a_backup_catches_up_with_the_clocks_of_then() -> None:
    """Both sides believe that nothing is missing: only the turns of feeds correct that."""
    host, bob = alice(), Host(BOB).follow(ALICE, BOB)
    bob.write(BOB, 2)
    Pair(client=host, server=bob).run().end()
    backup = deepcopy(host.store)
    bob.write(BOB, 2)
    for _ in range(2):  # the second time, Alice tells what she has
        Pair(client=host, server=bob).run().end()
    host = Host(ALICE, backup).follow(ALICE, BOB)
    for _ in range(TURNS):
        Pair(client=host, server=bob).run().end()
    assert host.machine.clock[BOB] == 4


def try_world(world: Memories) -> None:
    try:
        world.live(STEPS_OF_LIVES if isinstance(world, Lives) else STEPS)
    except Exception as error:
        error.add_note(f"seed {world.seed}")
        raise


@pytest.mark.parametrize("tried", some(WORLDS), ids=str)
def test_whatever_is_remembered_hosts_are_level_after_some_sessions(tried: range) -> None:
    for seed in tried:
        try_world(Memories(seed))


@pytest.mark.parametrize("tried", some(WORLDS[: len(WORLDS) // 2]), ids=str)
def test_it_is_enough_if_one_side_of_each_connection_does_so(tried: range) -> None:
    for seed in tried:
        try_world(Skipping(seed))


@pytest.mark.parametrize("tried", some(WORLDS[: len(WORLDS) // 4]), ids=str)
def test_hosts_with_the_least_of_everything_are_level_after_some_sessions(tried: range) -> None:
    for seed in tried:
        try_world(Memories(seed, host=TightHost))


@pytest.mark.parametrize("tried", some(seeds("EBT_LIVES", usual=60, long=100_000)), ids=str)
def test_follows_and_blocks_that_come_back_with_the_own_feed_are_in_force(tried: range) -> None:
    for seed in tried:
        try_world(Lives(seed))


def test_the_promised_number_of_sessions() -> None:
    assert SESSIONS_MAX == TURNS


def test_canary_hosts_that_believe_what_they_remember() -> None:
    with pytest.raises(AssertionError):
        Memories(71, host=SkippingHost).live(STEPS)


def test_canary_hosts_that_leave_out_the_same_feeds_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first_notes(self: PeerSession, me: str, feeds: Iterable[Feed]) -> list[Feed]:
        return [feed for feed in feeds if feed.id == me or not self.is_level(feed)]

    monkeypatch.setattr(PeerSession, "first_notes", first_notes)
    with pytest.raises(AssertionError):
        Memories(95).live(STEPS)


def test_canary_the_own_feed_is_mentioned_as_seldom_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_notes = PeerSession.first_notes

    def first_notes_of_nobody(self: PeerSession, me: str, feeds: Iterable[Feed]) -> list[Feed]:
        return first_notes(self, "", feeds)

    monkeypatch.setattr(PeerSession, "first_notes", first_notes_of_nobody)
    with pytest.raises(AssertionError, match="not confirmed"):
        Lives(17).live(STEPS_OF_LIVES)


def test_canary_who_follows_says_so_in_the_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedExchange, "follow", lambda self, feed: self.feeds.follow(feed))
    with pytest.raises(AssertionError):
        Lives(1).live(STEPS_OF_LIVES)


def test_canary_what_was_refused_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = PeerSession.refuse

    def refuse_and_forget(self: PeerSession, feed_id: str) -> None:
        refuse(self, feed_id)
        self._refused.pop(feed_id, None)

    monkeypatch.setattr(PeerSession, "refuse", refuse_and_forget)
    with pytest.raises(AssertionError):
        Lives(1).live(STEPS_OF_LIVES)


def test_canary_a_session_goes_on_with_a_peer_that_we_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FeedExchange, "block", lambda self, *whom: self.feeds.block(*whom))
    with pytest.raises(AssertionError):
        Lives(1).live(STEPS_OF_LIVES)
