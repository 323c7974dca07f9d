"""Random worlds of replicators come to agree, over trees; and faulty worlds are found.

``CULM_EBT_SEEDS`` sets the number of seeds, ``CULM_EBT_FIRST_SEED`` the first one: 1,000 by
default, a quarter of that in the gate, to keep it short, and 100,000 in a campaign; for worlds of
up to 50 hosts ``CULM_EBT_LARGE_SEEDS``, 20 by default, and 1,000; for worlds with pretenders
``CULM_EBT_SYBILS_SEEDS``, 30 by default, and 3,000; for those with a crowd of them
``CULM_EBT_CROWD_SEEDS``, 60 by default, and 3,000; for worlds with the smallest limits
``CULM_EBT_TIGHT_SEEDS``, 60 by default, and 10,000; for worlds with hosts that follow and stop it
``CULM_EBT_FICKLE_SEEDS``, the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from ebt_simulator import Simulation, TightHost, run_ebt_seed
from ebt_support import Host, feed
from ebt_sybils import Crowd, Sybils

from culm.ssb.ebt import Replicator
from culm.ssb.ebt.exchange import FeedExchange
from culm.ssb.ebt.session import Feed, PeerSession, Relation
from culm.ssb.ebt.sources import Sources, SourceTurn
from effort import seeds

STEPS = 150


def some(seeds: range) -> list[range]:
    """A few seeds at a time: a separate test takes longer than a world."""
    return [seeds[at : at + 20] for at in range(0, len(seeds), 20)]


@pytest.mark.parametrize("tried", some(seeds("EBT", usual=1_000, long=100_000)), ids=str)
def test_connected_hosts_have_the_same_in_the_end(tried: range) -> None:
    for seed in tried:
        run_ebt_seed(seed, hosts_max=10)


@pytest.mark.parametrize("seed", [22_170, 32_724])
def test_a_search_ends_with_the_last_message_whoever_brings_it(seed: int) -> None:
    """It came from a peer that had been told to stop: all the other peers asked went on sending."""
    run_ebt_seed(seed, hosts_max=10)


@pytest.mark.parametrize("seed", seeds("EBT_LARGE", usual=20, long=1_000))
def test_many_hosts_have_the_same_in_the_end(seed: int) -> None:
    run_ebt_seed(seed, steps=2 * STEPS, hosts_max=50)


@pytest.mark.parametrize("seed", seeds("EBT_SYBILS", usual=30, long=3_000))
def test_nobody_keeps_a_feed_from_others_by_promising_it(seed: int) -> None:
    try:
        Sybils(seed).suffer().recover().check()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("tried", some(seeds("EBT_CROWD", usual=60, long=3_000)), ids=str)
def test_a_crowd_that_only_promises_delays_strangers_for_a_stated_time(tried: range) -> None:
    for seed in tried:
        try:
            Crowd(seed).suffer().recover().check()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("tried", some(seeds("EBT_TIGHT", usual=60, long=10_000)), ids=str)
def test_hosts_with_the_least_of_everything_have_the_same_in_the_end(tried: range) -> None:
    for seed in tried:
        run_ebt_seed(seed, host=TightHost)


@pytest.mark.parametrize("tried", some(seeds("EBT_FICKLE", usual=60, long=10_000)), ids=str)
def test_what_is_followed_again_comes_in_open_sessions(tried: range) -> None:
    for seed in tried:
        run_ebt_seed(seed, host=TightHost if seed % 2 else Host, fickle=True)


def test_canary_a_follow_that_open_sessions_do_not_hear_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedExchange, "follow", lambda self, feed_id: self.feeds.follow(feed_id))
    with pytest.raises(AssertionError):
        run_ebt_seed(3, fickle=True)


def found(host: type[Host] = Host, count: int = 30) -> bool:
    """Whether a fault is found in some of the first worlds."""
    for seed in range(count):
        try:
            run_ebt_seed(seed, host=host)
        except AssertionError:
            return True
    return False


def test_canary_a_host_that_forgets_to_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sources, "_seek", lambda self, feed: self._forget(feed))
    monkeypatch.setattr(Sources, "_decide", lambda self, feed: None)
    monkeypatch.setattr(Sources, "told", lambda self, feed, session: None)
    assert found()


def test_canary_a_host_that_receives_from_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = PeerSession.tell

    def tell_all(self: PeerSession, feed: Feed, *, receive: bool) -> Relation:
        return tell(self, feed, receive=True)

    monkeypatch.setattr(PeerSession, "tell", tell_all)
    assert found()


def test_canary_a_host_that_tells_nothing_of_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerSession, "tell_news", lambda self, relation: None)
    assert found()


FORKING = 31  # a world in which two branches meet


def test_canary_a_host_that_goes_on_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedExchange, "_withdraw", lambda self, feed: None)
    monkeypatch.setattr(Feed, "wanted", property(lambda self: self.followed))
    with pytest.raises(AssertionError):
        run_ebt_seed(FORKING)


def test_canary_a_host_that_looks_away_from_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedExchange, "_contradict", lambda self, feed, theirs: None)
    with pytest.raises(AssertionError):
        run_ebt_seed(FORKING)


def test_canary_a_host_that_waits_for_whoever_promises_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first(self: Sources, feed: Feed, turn: SourceTurn | None) -> Any:
        return max(self._others(feed, turn), key=lambda each: each[0].told(feed.id), default=None)

    monkeypatch.setattr(Sources, "_first", first)
    monkeypatch.setattr(Sources, "_rests", lambda self, feed, session, record: False)
    monkeypatch.setattr(Sources, "_ask_besides", lambda self, feed: None)
    with pytest.raises(AssertionError, match="kept from"):
        Sybils(1).suffer()


def test_canary_a_host_that_keeps_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def block(self: Replicator, author: str, target: str, value: bool = True) -> None:
        pass

    monkeypatch.setattr(Replicator, "block", block)
    assert leaks()


def leaks(count: int = 30) -> bool:
    """Whether a host gets a feed whose author has blocked it from the beginning."""
    for seed in range(count):
        world: Any = Simulation(seed)
        author, target = world.authors[0], world.names[-1]
        if author == target:
            continue
        world.blocks.add((author, target))
        for host in world.hosts.values():
            host.machine.block(feed(author), feed(target))
        world.unblock = lambda: None
        world.write(author)
        world.run(STEPS).settle()
        if world.stores[target].messages(feed(author)):
            return True
    return False


def test_nobody_gets_what_its_author_keeps_from_it() -> None:
    assert not leaks()


def test_canary_a_host_that_asks_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sources, "_ask_besides", lambda self, feed: None)
    with pytest.raises(AssertionError, match="kept from"):
        Crowd(5).suffer()


@pytest.mark.parametrize("half", [False, True], ids=["nothing", "half"])
def test_canary_a_block_that_is_taken_back_in_vain(
    half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unblock has two effects: none happens, or only the one that sessions do not hear of."""

    def unblock(self: FeedExchange, author: str, target: str) -> None:
        if half:
            self.feeds.unblock(author, target)

    monkeypatch.setattr(FeedExchange, "unblock", unblock)
    assert found()
