"""A store of the other hash family: its answers to all requests are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from replicator_support import KEEP, World

from culm.bamboo.answers import is_of_family
from culm.bamboo.effects import (
    ReadEntries,
    ReadEntry,
    ReadHashes,
    ReadLog,
    ReadLogs,
    ReadPayload,
    StoreEffect,
)
from culm.bamboo.forks import ForkProof
from culm.bamboo.store import MemoryStore
from culm.effects import StoreWork
from culm.machine import ContractErrorCode, LocalProtocolError
from culm.machines.sample_logs import make_log
from culm.wire.multihash import YAMF, YASMF, HashFamily

SEQNUMS = (1, 2, 3)


def store_of(family: HashFamily) -> MemoryStore:
    """A log, and the fork of another."""
    store = MemoryStore(family=family)
    store.append(LOG, make_log(family))
    fork = [make_log(family, 1, branch=branch)[0].entry for branch in (b"", b"other")]
    store.add_fork(FORKED, ForkProof(*fork))
    return store


LOG, FORKED, NOBODYS = (make_log(YAMF, log_id)[0].entry.log for log_id in (0, 1, 2))
STORES = {family: store_of(family) for family in (YAMF, YASMF)}


@pytest.mark.parametrize("family", [YAMF, YASMF])
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ReadEntry, {"log": LOG, "seqnum": 2}),
        (ReadEntries, {"log": LOG}),
        (ReadHashes, {"log": LOG, "seqnums": SEQNUMS}),
        (ReadLog, {"log": LOG}),
        (ReadLog, {"log": FORKED}),
        (ReadLog, {"log": LOG, "entry": 2, "hashes": SEQNUMS}),
    ],
)
def test_no_answer_of_the_other_family_is_taken(
    family: HashFamily, kind: Callable[..., StoreEffect[Any]], fields: dict[str, Any]
) -> None:
    work = StoreWork(suits=partial(is_of_family, family))
    got: list[object] = []
    work.ask(kind, got.append, **fields)
    effect = work.next_effect()
    assert isinstance(effect, StoreEffect)
    right, wrong = (STORES[each].perform(effect) for each in (family, other(family)))
    assert effect.accepts(wrong)
    with pytest.raises(LocalProtocolError) as caught:
        work.complete(effect.ticket, wrong)
    assert caught.value.code is ContractErrorCode.WRONG_RESULT
    assert got == []
    work.complete(effect.ticket, right)
    assert got == [right]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ReadLogs, {}),
        (ReadPayload, {"log": LOG, "seqnum": 1, "offset": 0, "size": 1}),
        (ReadEntry, {"log": LOG, "seqnum": 1000}),
        (ReadEntries, {"log": LOG, "start": 1000}),
        (ReadHashes, {"log": LOG, "seqnums": ()}),
        (ReadLog, {"log": NOBODYS}),
    ],
)
def test_an_answer_without_hashes_is_of_every_family(
    kind: Callable[..., StoreEffect[Any]], fields: dict[str, Any]
) -> None:
    work = StoreWork(suits=partial(is_of_family, YASMF))
    got: list[object] = []
    work.ask(kind, got.append, **fields)
    effect = work.next_effect()
    assert isinstance(effect, StoreEffect)
    answer = STORES[YAMF].perform(effect)
    work.complete(effect.ticket, answer)
    assert got == [answer]


def test_a_replicator_over_a_store_of_the_other_family_refuses_its_answers() -> None:
    world = World()
    node, peer = world.node(interest=KEEP), world.node(interest=KEEP)
    node.respond = lambda effect: STORES[YASMF].perform(effect)
    world.connect(node, peer)
    with pytest.raises(LocalProtocolError) as caught:
        world.settle()
    assert caught.value.code is ContractErrorCode.WRONG_RESULT


def other(family: HashFamily) -> HashFamily:
    return YASMF if family is YAMF else YAMF
