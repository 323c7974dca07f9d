"""The store in memory: a batch with a fault leaves nothing behind."""

from __future__ import annotations

import pytest
from p2panda_faults import KEY, creation, update
from p2panda_nodes import SCHEMA

from culm.bamboo import LogKey
from culm.bamboo.entry import sign
from culm.p2panda.effects import NewOperation
from culm.p2panda.operation import decode
from culm.p2panda.store import MemoryStore
from culm.wire.multihash import YASMF

LOG = LogKey(bytes(KEY.verify_key), 0)
CREATION = sign(KEY, family=YASMF, log_id=0, seqnum=1, payload=creation())
FIRST = NewOperation(CREATION, decode(creation()), CREATION.hash())


def second(*, end_of_log: bool) -> NewOperation:
    payload = update(FIRST.document_id)
    entry = sign(
        KEY,
        family=YASMF,
        log_id=0,
        seqnum=2,
        payload=payload,
        backlink=CREATION.hash(),
        end_of_log=end_of_log,
    )
    return NewOperation(entry, decode(payload), FIRST.document_id)


def after_a_gap() -> NewOperation:
    entry = sign(
        KEY, family=YASMF, log_id=9, seqnum=2, payload=creation(), backlink=CREATION.hash()
    )
    return NewOperation(entry, decode(creation()), CREATION.hash())


def test_a_document_that_is_taken_back_is_not_known() -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match="gap"):
        store.append([FIRST, after_a_gap()])
    assert list(store.documents(SCHEMA)) == []
    assert store.documents_of([LOG]) == {}
    assert store.state_of(FIRST.document_id) is None


def test_a_log_whose_end_is_taken_back_goes_on() -> None:
    store = MemoryStore()
    store.append([FIRST])
    with pytest.raises(ValueError, match="gap"):
        store.append([second(end_of_log=True), after_a_gap()])
    assert store.look_up([LOG], []).logs[LOG].head.end_of_log is False
    store.append([second(end_of_log=True)])
    assert store.look_up([LOG], []).logs[LOG].head.end_of_log is True
