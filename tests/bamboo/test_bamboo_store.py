from __future__ import annotations

import inspect
from dataclasses import fields
from unittest.mock import Mock

import large_stores as large_stores
import pytest
from broken_stores import BROKEN, Reopened
from model_store import ModelStore

from culm.bamboo import effects
from culm.bamboo.entry import LogKey
from culm.bamboo.records import StoreError, StoreErrorCode
from culm.bamboo.store import LogStore, MemoryStore
from culm.machine import Effect, Ticket
from culm.machines.sample_logs import make_log
from culm.testing.stores import LogStoreSuite
from culm.wire.multihash import YAMF, HashFamily

_TICKET: Ticket[effects.LogStatus] = Ticket(1)


class TestMemoryStore(LogStoreSuite):
    """Compared with a simpler store, as other stores are."""

    def make_store(self, family: HashFamily) -> LogStore:
        return MemoryStore(family=family)

    def make_model(self, family: HashFamily) -> LogStore:
        return ModelStore(family)


class _Canary(LogStoreSuite):
    """The suite for a store that may survive a restart in its own way."""

    kind: type[MemoryStore]

    def make_store(self, family: HashFamily) -> LogStore:
        return self.kind(family=family)

    def reopen(self, store: LogStore) -> LogStore:
        return store.reopened() if isinstance(store, Reopened) else store


def is_made_in(value: object, module: str) -> bool:
    return inspect.isclass(value) and value.__module__ == module


def test_every_test_of_the_suite_has_a_store_that_it_catches() -> None:
    assert {rule for rule, _ in BROKEN} == {
        name for name in dir(LogStoreSuite) if name.startswith("test_")
    }


@pytest.mark.parametrize(("rule", "kind"), BROKEN, ids=lambda each: getattr(each, "__name__", each))
def test_the_suite_catches(rule: str, kind: type[MemoryStore]) -> None:
    suite = _Canary()
    suite.kind = kind
    with pytest.raises((AssertionError, LookupError, OverflowError)):
        getattr(suite, rule)()


def test_every_store_effect_is_performed_by_the_operation_of_its_name() -> None:
    """Each effect has the parameters of its operation and passes them all on."""
    operations = {
        effects.ReadLogs: "logs",
        effects.ReadEntry: "entry",
        effects.ReadEntries: "entries",
        effects.ReadHashes: "hashes",
        effects.ReadPayload: "read_payload",
        effects.AppendEntries: "append",
        effects.WritePayload: "write_payload",
        effects.FinishPayload: "finish_payload",
        effects.DiscardStaged: "discard_staged",
        effects.AddFork: "add_fork",
    }
    made = {name for name, kind in vars(effects).items() if is_made_in(kind, effects.__name__)}
    others = {"LogStatus", "ReadLog", "StoreEffect", "WriteEffect", "_PayloadWrite"}
    assert {kind.__name__ for kind in operations} == made - others
    assert all(issubclass(kind, effects.StoreEffect) for kind in operations)
    asked_for_by_users = {"discard_payload", "family", "fork", "head", "newest", "perform"}
    for_stores = {"check_links"}
    assert set(operations.values()) | asked_for_by_users | for_stores == {
        name for name in vars(LogStore) if not name.startswith("_")
    }
    for kind, name in operations.items():
        signature = inspect.signature(getattr(MemoryStore, name))
        parameters = list(signature.parameters)[1:]
        assert [field.name for field in fields(kind)] == ["ticket", *parameters]
        values = {parameter: object() for parameter in parameters}
        store = Mock(spec=MemoryStore)
        result = LogStore.perform(store, kind(ticket=1, **values))
        operation = getattr(store, name)
        assert result is operation.return_value
        (call,) = store.method_calls
        assert signature.bind(None, *call.args, **call.kwargs).arguments == {
            "self": None,
            **values,
        }


def test_all_of_a_log_is_what_the_operations_tell_one_by_one() -> None:
    news = make_log(YAMF)
    log, store = news[0].entry.log, MemoryStore(family=YAMF)
    for count in (0, 5):
        store.append(log, news[:count])
        if count:
            store.append(log, [news[7]])
        head = store.head(log)
        effect = effects.ReadLog(ticket=_TICKET, log=log, entry=3, hashes=(1, 2, 9))
        assert store.perform(effect) == effects.LogStatus(
            fork=store.fork(log),
            head=head,
            newest=store.newest(log),
            last=head and store.entry(log, head.seqnum),
            entry=store.entry(log, 3),
            hashes=store.hashes(log, (1, 2, 9)),
        )


def test_what_is_no_store_effect_is_refused() -> None:
    with pytest.raises(TypeError, match="Effect is not an effect for a log store"):
        MemoryStore(family=YAMF).perform(Effect(ticket=1))


def test_a_refusal_says_what_and_where() -> None:
    with pytest.raises(StoreError, match=r"unknown entry: entry 5 of log 6162/3"):
        MemoryStore(family=YAMF).finish_payload(LogKey(b"ab", 3), 5)


def test_a_refusal_of_the_store_is_a_result() -> None:
    log = LogKey(bytes(32), 0)
    effect = effects.FinishPayload(ticket=1, log=log, seqnum=5)
    result = MemoryStore(family=YAMF).perform(effect)
    assert isinstance(result, StoreError)
    assert (result.code, result.log, result.seqnum) == (StoreErrorCode.UNKNOWN_ENTRY, log, 5)
