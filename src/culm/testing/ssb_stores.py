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
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any

from culm.machine import Effect, Ticket
from culm.ssb.ebt import (
    AppendMessages,
    LoadClock,
    MarkForked,
    Message,
    PeerClock,
    ReadMessages,
    SaveClock,
    StoredFeeds,
)
from culm.ssb.feed_id import feed_id_of
from culm.ssb.store import FeedStore, MemoryStore

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


@contextmanager
def _raises(kind: type[Exception]) -> Generator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


class _Trial:
    """A store, and a model that has done the same effects."""

    def __init__(self, suite: FeedStoreSuite) -> None:
        self._suite = suite
        self.store, self.model = suite.make_store(), suite.make_model()

    def do(self, *effects: Effect[Any]) -> None:
        """Do effects, each with the result that the model gives."""
        for effect in effects:
            result = self.store.perform(effect)
            assert effect.accepts(result), (effect, result)
            assert result == self.model.perform(effect), effect

    def check(self) -> None:
        """Check that store and model have the same content."""
        assert _contents(self.store) == _contents(self.model)

    def reopen(self) -> None:
        """Check that the store has it after a restart, too."""
        self.store = self._suite.reopen(self.store)
        self.check()


def _did(store: FeedStore, *effects: Effect[Any]) -> FeedStore:
    """The store after these effects."""
    for effect in effects:
        store.perform(effect)
    return store


def _contents(store: FeedStore) -> object:
    """All readable content of a store, for comparison."""
    loaded = store.load()
    feeds = {feed: store.perform(_read(feed, 1)) for feed in loaded.heads}
    clocks = [store.perform(LoadClock(ticket=_TICKET, peer=peer)) for peer in _FEEDS]
    return loaded, feeds, clocks


_Effects = tuple[Effect[Any], ...]


def _ways_through(effect: Effect[Any]) -> list[tuple[_Effects, _Effects]]:
    """The parts of an interrupted effect that may be done, each with the rest."""
    if not isinstance(effect, AppendMessages):
        return [((), (effect,)), ((effect,), (effect,))]
    messages = effect.messages

    def part(start: int, end: int) -> _Effects:
        return (_append(*messages[start:end]),) if start < end else ()

    size = len(messages)
    return [(part(0, number), part(number, size)) for number in range(size + 1)]


def _step(stored: StoredFeeds, rng: Random) -> Effect[Any]:
    def last_of(feed: str) -> int:
        return stored.heads[feed].sequence if feed in stored.heads else 0

    feed = rng.choice(_FEEDS)
    last = last_of(feed)
    choice = rng.randrange(6)
    if choice == 0:
        return _save(feed, {rng.choice(_FEEDS): rng.randrange(-1, 9)}, rng.choice(_FEEDS))
    if choice == 1 and not rng.randrange(5):
        return _mark(feed, rng.randbytes(5), rng.randbytes(5))
    if choice <= 3 and last:
        return _read(feed, rng.randint(1, last), rng.randint(1, 9), rng.randint(1, 99))
    new = _messages(feed, last + 1, last + rng.randint(1, 5))
    other = _FEEDS[_FEEDS.index(feed) - 1]
    start = last_of(other) + 1
    return _append(*new, *_messages(other, start, start + rng.randrange(2)))


class FeedStoreSuite:
    """Tests for a `culm.ssb.store.FeedStore`; see the module."""

    def make_store(self) -> FeedStore:
        """A new store, another one at each call."""
        raise NotImplementedError

    def reopen(self, store: FeedStore) -> FeedStore:
        """The same store as it is found after a restart; the old one is no longer used."""
        return store

    def make_model(self) -> FeedStore:
        """The empty store with which it is compared."""
        return MemoryStore()

    def crash(self, effects: Sequence[Effect[Any]], point: int) -> Crashed | None:
        """A new store that does `effects`, crashes at that point, and is opened again.

        Points are counted from 0, as finely as the store can be interrupted, the time before
        its first effect included; ``None`` if all was done before that point.
        """
        return None

    def test_a_new_store_has_nothing(self) -> None:
        trial = _Trial(self)
        assert isinstance(trial.store, FeedStore)
        assert trial.store.load() == StoredFeeds()
        trial.check()

    def test_what_was_written_is_there_and_is_found_again(self) -> None:
        trial = _Trial(self)
        trial.do(
            _append(*_messages(_ALICE, 1, 3), *_messages(_BOB, 1, 2)),
            _append(*_messages(_BOB, 3, 3), *_messages(_ALICE, 4, 5), *_messages(_BOB, 4, 4)),
        )
        trial.check()
        trial.reopen()

    def test_reading_keeps_to_its_bounds(self) -> None:
        trial, messages = _Trial(self), _messages(_ALICE, 1, 9)
        two = sum(len(message.data) for message in messages[3:5])
        trial.do(
            _append(*messages),
            _read(_ALICE, 1),
            *(_read(_ALICE, 4, size_max=size) for size in (two, two - 1, 1)),
            *(_read(_ALICE, first, count_max=count) for first, count in ((4, 2), (9, 1), (1, 1))),
        )

    def test_what_is_not_there_cannot_be_read(self) -> None:
        store = self.make_store()
        store.perform(_append(*_messages(_ALICE, 1, 3)))
        for effect in (*(_read(_ALICE, first) for first in (4, 2**53, 2**63 - 1)), _read(_BOB, 1)):
            with _raises(LookupError):
                store.perform(effect)

    def test_a_message_is_the_next_one_of_its_feed(self) -> None:
        trial = _Trial(self)
        trial.do(_append(*_messages(_ALICE, 1, 2)))
        good = _messages(_BOB, 1, 1)
        for wrong in (
            _messages(_ALICE, 2, 2),
            _messages(_ALICE, 4, 4),
            _messages(_CAROL, 2, 2),
            _messages(_ALICE, 3, 3) * 2,
        ):
            with _raises(ValueError):
                trial.store.perform(_append(*good, *wrong))
            trial.check()  # none of the messages was appended

    def test_clocks_are_kept_by_peer(self) -> None:
        trial = _Trial(self)
        trial.do(
            _save(_ALICE, {_BOB: 7}),
            _save(_BOB, {}, _ALICE),
            _save(_ALICE, {_ALICE: 3, _BOB: -1, _CAROL: 2**52 - 1}, _BOB, _CAROL),
        )
        trial.reopen()
        trial.do(LoadClock(ticket=_TICKET, peer=_ALICE))

    def test_a_feed_that_has_forked_stays_so(self) -> None:
        trial = _Trial(self)
        trial.do(
            _append(*_messages(_ALICE, 1, 2)),
            _mark(_ALICE, b"ours", b"theirs"),
            _mark(_ALICE, b"ours", b"theirs, too"),
            _mark(_BOB, b"\0", b"\xff"),
        )
        trial.reopen()

    def test_what_is_no_effect_of_a_replicator_is_refused(self) -> None:
        with _raises(TypeError):
            self.make_store().perform(Effect(ticket=_TICKET))

    def test_a_random_walk_beside_a_model(self) -> None:
        for seed in range(_WALKS):
            rng = Random(seed)
            trial = _Trial(self)
            for _ in range(_WALK_LENGTH):
                trial.do(_step(trial.model.load(), rng))
                if not rng.randrange(20):
                    trial.reopen()
            trial.check()

    def test_crashes(self) -> None:
        """Finished effects are in the store, an interrupted one may be, and life goes on."""
        for point in count():
            crashed = self.crash(_LIFE, point)
            if crashed is None:
                break
            done, rest = _LIFE[: crashed.returned], _LIFE[crashed.returned :]
            found = _contents(crashed.store)
            ways = _ways_through(rest[0]) if rest else [((), ())]
            models = [(_did(self.make_model(), *done, *begun), left) for begun, left in ways]
            alike = [each for each in models if _contents(each[0]) == found]
            assert alike, point
            model, left = alike[0]
            after = [_did(store, *left, *rest[1:]) for store in (crashed.store, model)]
            assert _contents(after[0]) == _contents(after[1]), point
