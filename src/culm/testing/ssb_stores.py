"""The duties of every store of Secure Scuttlebutt's feeds, as a suite for any implementation.

Subclass `FeedStoreSuite`, define how a store is made, found again after a restart and, if it
outlives that, after a crash, and let pytest collect it::

    class TestMyStore(FeedStoreSuite):
        def make_store(self):
            return MyStore()

The suite has tests of one rule each, a random walk that compares the store, step by step, with
one in memory, and crashes at every point that `crash` offers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any

from culm.machine import Effect, Ticket
from culm.ssb.ebt import (
    AppendMessages,
    Head,
    LoadClock,
    MarkForked,
    Message,
    PeerClock,
    ReadMessages,
    SaveClock,
    StoredFeeds,
)
from culm.ssb.feed_id import feed_id_of
from culm.ssb.store import FeedStore

_TICKET: Ticket[Any] = Ticket(1)
_ALICE, _BOB, _CAROL = (feed_id_of(sha256(name).digest()) for name in (b"a", b"b", b"c"))
_FEEDS = (_ALICE, _BOB, _CAROL)
_WALKS, _WALK_LENGTH = 3, 60
_MANY = 1 << 30


@dataclass(frozen=True, slots=True)
class Crashed:
    """A store that was opened again after a crash.

    returned: number of calls of `perform` that had returned before the crash.
    """

    store: FeedStore
    returned: int


def _messages(feed: str, first: int, last: int) -> tuple[Message, ...]:
    return tuple(
        Message(feed, number, f"%{feed[1:5]}{number}.sha256", b"%d " % number * (1 + number % 7))
        for number in range(first, last + 1)
    )


def _append(*messages: Message) -> AppendMessages:
    return AppendMessages(ticket=_TICKET, messages=messages)


def _read(feed: str, first: int, count_max: int = _MANY, size_max: int = _MANY) -> ReadMessages:
    return ReadMessages(
        ticket=_TICKET, feed=feed, first=first, count_max=count_max, size_max=size_max
    )


def _save(peer: str, told: dict[str, int], *refused: str) -> SaveClock:
    held, size = {_ALICE: 2**52 - 1, _BOB: 0}, len(told)
    clock = PeerClock(
        told=told,
        refused=frozenset(refused),
        held=held,
        stored=2**53 - size,
        sessions=size,
        distrusted=frozenset(told),
    )
    return SaveClock(ticket=_TICKET, peer=peer, clock=clock)


def _mark(feed: str, ours: bytes, theirs: bytes) -> MarkForked:
    return MarkForked(ticket=_TICKET, feed=feed, ours=ours, theirs=theirs)


#: A life of effects, for crashes.
_LIFE: tuple[Effect[Any], ...] = (
    _append(*_messages(_ALICE, 1, 2)),
    _append(*_messages(_ALICE, 3, 3), *_messages(_BOB, 1, 2)),
    _save(_ALICE, {_BOB: 2}),
    _mark(_BOB, b"ours", b"theirs"),
    _save(_ALICE, {_BOB: -1, _ALICE: 3}, _BOB),
    _append(*_messages(_ALICE, 4, 6)),
)


@dataclass
class _Kept:
    """The content that a store has to have."""

    feeds: dict[str, list[Message]] = field(default_factory=dict[str, list[Message]])
    clocks: dict[str, PeerClock] = field(default_factory=dict[str, PeerClock])
    forked: frozenset[str] = frozenset()

    def after(self, effect: Effect[Any]) -> _Kept:
        feeds = {feed: list(messages) for feed, messages in self.feeds.items()}
        clocks, forked = dict(self.clocks), self.forked
        match effect:
            case AppendMessages(messages=messages):
                for message in messages:
                    feeds.setdefault(message.author, []).append(message)
            case SaveClock(peer=peer, clock=clock):
                clocks[peer] = clock
            case MarkForked(feed=feed):
                forked |= {feed}
            case _:
                pass
        return _Kept(feeds, clocks, forked)

    def on_the_way(self, effect: Effect[Any]) -> list[_Kept]:
        """The possible contents after a crash within an effect."""
        if not isinstance(effect, AppendMessages):
            return [self, self.after(effect)]
        counts = range(len(effect.messages) + 1)
        return [self.after(_append(*effect.messages[:number])) for number in counts]

    def is_in(self, store: FeedStore) -> bool:
        heads = {feed: Head(found[-1].sequence, found[-1].id) for feed, found in self.feeds.items()}
        if store.load() != StoredFeeds(heads=heads, forked=self.forked):
            return False
        for feed, messages in self.feeds.items():
            found = store.perform(_read(feed, 1))
            if found != tuple(message.data for message in messages):
                return False
        return all(
            store.perform(LoadClock(ticket=_TICKET, peer=peer))
            == self.clocks.get(peer, PeerClock())
            for peer in _FEEDS
        )


class _Suite:
    """The stores for the tests."""

    def make_store(self) -> FeedStore:
        """A new store, another one at each call."""
        raise NotImplementedError

    def reopen(self, store: FeedStore) -> FeedStore:
        """The same store as it is found after a restart; the old one is no longer used."""
        return store

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        """A new store that does `effects`, crashes at that point, and is opened again.

        Points are counted from 0, as finely as the store can be interrupted, the time before
        its first effect included; ``None`` if all was done before that point.
        """
        return None


@contextmanager
def _raises(kind: type[Exception]) -> Generator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


class _Rules(_Suite):
    """Tests of one rule each."""

    def test_a_new_store_has_nothing(self) -> None:
        store = self.make_store()
        assert isinstance(store, FeedStore)
        assert _Kept().is_in(store)

    def test_what_was_written_is_there_and_is_found_again(self) -> None:
        store = self.make_store()
        effects = (
            _append(*_messages(_ALICE, 1, 3), *_messages(_BOB, 1, 2)),
            _append(*_messages(_BOB, 3, 3), *_messages(_ALICE, 4, 5), *_messages(_BOB, 4, 4)),
        )
        kept = _Kept()
        for effect in effects:
            assert store.perform(effect) is None
            kept = kept.after(effect)
        assert kept.is_in(store)
        assert kept.is_in(self.reopen(store))

    def test_reading_keeps_to_its_bounds(self) -> None:
        store = self.make_store()
        messages = _messages(_ALICE, 1, 9)
        store.perform(_append(*messages))
        data = tuple(message.data for message in messages)
        assert store.perform(_read(_ALICE, 1)) == data
        assert store.perform(_read(_ALICE, 4, count_max=2)) == data[3:5]
        assert store.perform(_read(_ALICE, 4, size_max=len(data[3] + data[4]))) == data[3:5]
        assert store.perform(_read(_ALICE, 4, size_max=1)) == data[3:4]
        for effect in (_read(_ALICE, 9), _read(_ALICE, 1, count_max=1)):
            assert effect.accepts(store.perform(effect))

    def test_what_is_not_there_cannot_be_read(self) -> None:
        store = self.make_store()
        store.perform(_append(*_messages(_ALICE, 1, 3)))
        for effect in (*(_read(_ALICE, first) for first in (4, 2**53, 2**63 - 1)), _read(_BOB, 1)):
            with _raises(LookupError):
                store.perform(effect)

    def test_a_message_is_the_next_one_of_its_feed(self) -> None:
        store = self.make_store()
        kept = _Kept()
        first = _append(*_messages(_ALICE, 1, 2))
        store.perform(first)
        kept = kept.after(first)
        good = _messages(_BOB, 1, 1)
        for wrong in (
            _messages(_ALICE, 2, 2),
            _messages(_ALICE, 4, 4),
            _messages(_CAROL, 2, 2),
            _messages(_ALICE, 3, 3) * 2,
        ):
            with _raises(ValueError):
                store.perform(_append(*good, *wrong))
            assert kept.is_in(store)  # none of the messages was appended

    def test_clocks_are_kept_by_peer(self) -> None:
        store = self.make_store()
        kept = _Kept()
        for effect in (
            _save(_ALICE, {_BOB: 7}),
            _save(_BOB, {}, _ALICE),
            _save(_ALICE, {_ALICE: 3, _BOB: -1, _CAROL: 2**52 - 1}, _BOB, _CAROL),
        ):
            assert store.perform(effect) is None
            kept = kept.after(effect)
        store = self.reopen(store)
        assert kept.is_in(store)
        load = LoadClock(ticket=_TICKET, peer=_ALICE)
        assert load.accepts(store.perform(load))

    def test_a_feed_that_has_forked_stays_so(self) -> None:
        store = self.make_store()
        effects = (
            _append(*_messages(_ALICE, 1, 2)),
            _mark(_ALICE, b"ours", b"theirs"),
            _mark(_ALICE, b"ours", b"theirs, too"),
            _mark(_BOB, b"\0", b"\xff"),
        )
        kept = _Kept()
        for effect in effects:
            store.perform(effect)
            kept = kept.after(effect)
        assert kept.is_in(self.reopen(store))

    def test_what_is_no_effect_of_a_replicator_is_refused(self) -> None:
        with _raises(TypeError):
            self.make_store().perform(Effect(ticket=_TICKET))


class _Walks(_Suite):
    def test_a_random_walk_beside_a_model(self) -> None:
        for seed in range(_WALKS):
            rng = Random(seed)
            store, kept = self.make_store(), _Kept()
            for _ in range(_WALK_LENGTH):
                effect = _step(kept, rng)
                found = store.perform(effect)
                if isinstance(effect, ReadMessages):
                    assert found == _expected(kept, effect), effect
                kept = kept.after(effect)
                if not rng.randrange(20):
                    store = self.reopen(store)
                    assert kept.is_in(store)
            assert kept.is_in(store)

    def test_crashes(self) -> None:
        """Finished effects are in the store, an interrupted one may be, and life goes on."""
        for point in count():
            crashed = self.crash(_LIFE, point)
            if crashed is None:
                break
            kept: _Kept = _Kept()
            for effect in _LIFE[: crashed.returned]:
                kept = kept.after(effect)
            rest = list(_LIFE[crashed.returned :])
            allowed = kept.on_the_way(rest[0]) if rest else [kept]
            found = [each for each in allowed if each.is_in(crashed.store)]
            assert found, point
            kept = found[0]
            if rest and isinstance(rest[0], AppendMessages):  # only the missing ones are appended
                there = allowed.index(kept)
                rest[:1] = [_append(*rest[0].messages[there:])] if there < len(allowed) - 1 else []
            for effect in rest:
                crashed.store.perform(effect)
                kept = kept.after(effect)
            assert kept.is_in(crashed.store), point


def _step(kept: _Kept, rng: Random) -> Effect[Any]:
    feed = rng.choice(_FEEDS)
    last = len(kept.feeds.get(feed, ()))
    choice = rng.randrange(6)
    if choice == 0:
        return _save(feed, {rng.choice(_FEEDS): rng.randrange(-1, 9)}, rng.choice(_FEEDS))
    if choice == 1 and not rng.randrange(5):
        return _mark(feed, rng.randbytes(5), rng.randbytes(5))
    if choice <= 3 and last:
        return _read(feed, rng.randint(1, last), rng.randint(1, 9), rng.randint(1, 99))
    new = _messages(feed, last + 1, last + rng.randint(1, 5))
    other = _FEEDS[_FEEDS.index(feed) - 1]
    start = len(kept.feeds.get(other, ())) + 1
    return _append(*new, *_messages(other, start, start + rng.randrange(2)))


def _expected(kept: _Kept, effect: ReadMessages) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for message in kept.feeds[effect.feed][effect.first - 1 :][: effect.count_max]:
        if found and sum(map(len, found)) + len(message.data) > effect.size_max:
            break
        found.append(message.data)
    return tuple(found)


class FeedStoreSuite(_Rules, _Walks):
    """Tests for a `culm.ssb.store.FeedStore`; see the module."""
