"""The basis of the suite of log stores: the stores themselves, and the effects asked of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from random import Random
from typing import Any, TypeVar, cast

from culm.bamboo import effects
from culm.bamboo.answers import is_head, is_of_family
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoreError, StoreErrorCode
from culm.bamboo.store import LogStore, MemoryStore
from culm.machine import Effect, Ticket
from culm.machines.sample_logs import LOG_LENGTH, make_log, varied
from culm.wire.multihash import YAMF, YASMF, HashFamily

F = TypeVar("F", bound=Callable[..., Any])

_TICKET: Ticket[Any] = Ticket(0)

# Payloads whose bytes differ, so that a byte read from a wrong place is noticed.
varied_log = partial(make_log, payload=varied)


class RandomEffects:
    """Random effects on two logs and their forks, most of which make sense."""

    def __init__(self, family: HashFamily, random: Random) -> None:
        self._random = random
        self._branches = [
            [varied_log(family, log_id, branch=branch) for branch in (b"", b"other")]
            for log_id in (9, (1 << 63) + 10)
        ]

    def next_effect(self) -> Effect[Any]:
        random = self._random
        news, other = random.choice(self._branches)
        log = news[0].entry.log
        seqnum = random.randint(1, LOG_LENGTH)
        new = news[seqnum - 1]
        payload = new.payload or b""
        offset = random.randint(0, len(payload))
        numbers = range(seqnum, seqnum + 3)
        ask = partial(_ask, log=log)
        match random.randrange(22):
            case 0:
                after = random.choice((None, log))
                return effects.ReadLogs(ticket=_TICKET, after=after, count_max=1)
            case 1 | 2 | 9:
                return ask(effects.ReadLog)
            case 3:
                return ask(effects.ReadEntry, seqnum=seqnum)
            case 4:
                bounds = {
                    "end": random.choice((None, seqnum + 3)),
                    "size_max": random.choice((None, 600)),
                    "payload_size_max": random.choice((None, 0, 40)),
                }
                return ask(effects.ReadEntries, start=seqnum, count_max=4, **bounds)
            case 5:
                return ask(effects.ReadHashes, seqnums=numbers)
            case 6:
                return ask(effects.ReadPayload, seqnum=seqnum, offset=offset, size=30)
            case 7:
                return ask(effects.FinishPayload, seqnum=seqnum)
            case 8 | 21:
                return ask(effects.DiscardStaged, seqnum=seqnum)
            case 10 if seqnum > 8:
                proof = ForkProof(new.entry, other[seqnum - 1].entry)
                return ask(effects.AddFork, proof=proof)
            case 20:
                return ask(effects.ReadLog, entry=seqnum, hashes=numbers)
            case 11:
                return ask(effects.AppendEntries, entries=[new, other[seqnum - 1]])
            case 12 | 13 | 14 | 15:
                start = random.choice((0, 0, offset))
                data = payload[start : start + random.choice((5, 100))]
                return ask(effects.WritePayload, seqnum=seqnum, offset=start, data=data)
            case _:
                staged = NewEntry(new.entry, payload[:offset], staged=True)
                three = news[seqnum - 1 : seqnum + 2]
                chosen = random.choice((three, [NewEntry(new.entry)], [staged, *news[seqnum:7]]))
                return ask(effects.AppendEntries, entries=chosen)


def _ask(kind: Callable[..., Effect[Any]], **fields: Any) -> Effect[Any]:
    return kind(ticket=_TICKET, **fields)


def _asked(method: F, kind: Callable[..., Effect[Any]]) -> F:
    """A method of a store, called by an effect whose fields are its arguments."""
    parameters = signature(method)

    def ask(self: AskedStore, *args: object, **named: object) -> Any:
        given = parameters.bind(self, *args, **named).arguments
        del given["self"]
        return _answered(self.perform(_ask(kind, **given)))

    return cast(F, ask)


def _answered(answer: Any) -> Any:
    if isinstance(answer, StoreError):
        raise answer
    return answer


def _answer(store: LogStore, ask: Callable[[LogStore], object]) -> object:
    """The answer of a store, which may be a refusal."""
    try:
        return ask(store)
    except StoreError as refusal:
        return refusal


class AskedStore(LogStore):
    """A `LogStore` that is asked by effects, as machines do, beside a model that is asked the same.

    Every answer has to be that of the model, and one that the effect accepts: of the right type, in
    order and within bounds, and of the store's family.  The caller's list is emptied after an
    append.
    """

    def __init__(self, store: LogStore, model: LogStore) -> None:
        self.store, self.model = store, model

    def perform(self, effect: Effect[Any]) -> Any:
        answer = self._ask(lambda store: store.perform(effect), effect)
        refused = isinstance(answer, StoreError)
        assert refused or effect.accepts(answer), f"{answer!r} does not answer {effect}"
        return answer

    def _ask(self, ask: Callable[[LogStore], object], what: object) -> Any:
        found, right = _answer(self.store, ask), _answer(self.model, ask)
        plain = [each.code if isinstance(each, StoreError) else each for each in (found, right)]
        assert plain[0] == plain[1], f"{found!r:.200} in place of {right!r:.200} for {what!r:.200}"
        assert is_of_family(self.family, found)
        return found

    @property
    def family(self) -> HashFamily:
        return self.model.family

    logs = _asked(LogStore.logs, effects.ReadLogs)
    entry = _asked(LogStore.entry, effects.ReadEntry)
    entries = _asked(LogStore.entries, effects.ReadEntries)
    hashes = _asked(LogStore.hashes, effects.ReadHashes)
    read_payload = _asked(LogStore.read_payload, effects.ReadPayload)
    write_payload = _asked(LogStore.write_payload, effects.WritePayload)
    finish_payload = _asked(LogStore.finish_payload, effects.FinishPayload)
    discard_staged = _asked(LogStore.discard_staged, effects.DiscardStaged)
    add_fork = _asked(LogStore.add_fork, effects.AddFork)

    def _head(self, ask: Callable[[LogStore], Head | None], what: str) -> Head | None:
        head: Head | None = self._ask(ask, what)
        assert head is None or is_head(head), f"{head!r} is no head"
        return head

    def head(self, log: LogKey) -> Head | None:
        return self._head(lambda store: store.head(log), "the head")

    def newest(self, log: LogKey) -> Head | None:
        return self._head(lambda store: store.newest(log), "the newest entry")

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        given = list(entries)
        try:
            _answered(self.perform(_ask(effects.AppendEntries, log=log, entries=given)))
        finally:
            given.clear()

    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        _answered(
            self._ask(lambda store: store.discard_payload(log, seqnum), "a discarded payload")
        )

    def fork(self, log: LogKey) -> ForkProof | None:
        fork: ForkProof | None = self._ask(lambda store: store.fork(log), "the fork")
        return fork

    def look_at(self, log: LogKey, *seqnums: int) -> None:
        """Ask all there is to be asked of a log, and of entries of it."""
        for ask in (self.head, self.newest, self.fork, self.entries, self.logs):
            ask(log)
        self.hashes(log, seqnums[::-1])
        for seqnum in seqnums:
            self.entry(log, seqnum)
            self.entries(log, seqnum)
            for offset, size in ((0, 1000), (2, 3)):
                self.read_payload(log, seqnum, offset, size)


def contents(store: LogStore) -> dict[LogKey, object]:
    """All readable content of a store, for comparison."""
    return {
        log: (
            store.head(log),
            store.newest(log),
            store.fork(log),
            [
                (kept, store.read_payload(log, kept.seqnum, 0, kept.payload_size + 1))
                for kept in store.entries(log)
            ],
        )
        for log in store.logs()
    }


class StoreSuite:
    """The stores for the tests, and logs to put into them."""

    families: Sequence[HashFamily] = (YAMF, YASMF)

    def make_store(self, family: HashFamily) -> LogStore:
        """A new, empty store."""
        raise NotImplementedError

    def reopen(self, store: LogStore) -> LogStore:
        """The same store as it is found after a restart; the old object is no longer used."""
        return store

    def make_model(self, family: HashFamily) -> LogStore:
        """The empty store with which it is compared."""
        return MemoryStore(family=family)

    @contextmanager
    def refused(self, store: LogStore, code: StoreErrorCode, seqnum: int) -> Generator[None]:
        """Check that the block raises that `StoreError` and leaves the store as its model is."""
        refusal = None
        try:
            yield
        except StoreError as error:
            refusal = error.code, error.seqnum
        assert refusal == (code, seqnum)
        contents(store)

    def made(self, family: HashFamily) -> AskedStore:
        """A new, empty store, with every answer checked."""
        return AskedStore(self.make_store(family), self.make_model(family))

    def reopened(self, store: AskedStore) -> AskedStore:
        """That store after a restart, with every answer checked, and its content for a start."""
        found = AskedStore(self.reopen(store.store), store.model)
        contents(found)
        return found

    def stores(self) -> Iterator[tuple[AskedStore, tuple[NewEntry, ...], LogKey]]:
        """An empty store of each family, with a log to put into it."""
        for family in self.families:
            log = varied_log(family)
            yield self.made(family), log, log[0].entry.log
