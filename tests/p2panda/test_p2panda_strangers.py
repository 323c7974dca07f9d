"""A stranger that signs two branches of a log costs only its own operations."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey
from p2panda_nodes import SCHEMA, Node, connect

from culm.bamboo.entry import sign
from culm.p2panda import Action, Mode, Operation
from culm.p2panda.document import Tips
from culm.p2panda.effects import NewOperation
from culm.p2panda.store import OperationStore
from culm.wire.multihash import YASMF

STRANGER = SigningKey(b"x" * 32)


def update(*previous: bytes, **fields: object) -> Operation:
    ids = tuple(sorted(previous))
    return Operation(action=Action.UPDATE, schema_id=SCHEMA, previous=ids, fields=fields)  # type: ignore[arg-type]


def strange(store: OperationStore, log_id: int, document_id: bytes, operation: Operation) -> bytes:
    """The stranger's first entry of a log."""
    payload = operation.encode()
    entry = sign(STRANGER, family=YASMF, log_id=log_id, seqnum=1, payload=payload)
    store.append([NewOperation(entry, operation, document_id)])
    return entry.hash()


def forked(mode: Mode) -> tuple[Node, Node, list[bytes]]:
    """Two nodes with the same documents, and different branches of strange logs."""
    here, there = Node(1), Node(2)
    documents = [here.create(n=number) for number in range(10)]
    connect(here, there, mode=mode)
    for log_id, each in enumerate(documents):
        strange(here.store, log_id, each, update(each, x=1))
        strange(there.store, log_id, each, update(each, x=2))
    return here, there, documents


@pytest.mark.parametrize("mode", Mode)
def test_what_the_owner_writes_behind_one_branch_arrives_where_the_other_one_is(mode: Mode):
    here, there, documents = forked(mode)
    for number in range(5):
        for each in documents:
            here.author.update(each, {"n": 100 + number})
    connect(here, there, mode=mode)
    fields = [found.fields["n"] for found in there.documents().values()]
    assert fields == [104] * 10


@pytest.mark.parametrize("mode", Mode)
def test_so_does_what_others_contribute_behind_either(mode: Mode):
    here, there, documents = forked(mode)
    for each in documents:
        here.author.update(each, {"n": 100})
        there.author.update(each, {"m": 200})
    third = Node(3)
    connect(third, there, mode=mode)
    for each in documents:
        third.author.update(each, {"o": 300})
    for left, right in ((third, there), (here, there), (here, third), (here, there)):
        connect(left, right, mode=mode)
    for node in (here, there, third):
        for found in node.documents().values():
            assert {**found.fields, "x": 0} == {"n": 100, "m": 200, "o": 300, "x": 0}


@pytest.mark.parametrize("mode", Mode)
def test_an_operation_that_is_of_one_document_here_and_of_another_one_there_stops_nobody(
    mode: Mode,
):
    here, there = Node(1), Node(2)
    one, two = here.create(n=1), here.create(n=2)
    connect(here, there, mode=mode)
    between = update(one, two, x=1)
    strange(here.store, 0, one, between)
    strange(there.store, 0, two, between)
    here.author.update(one, {"n": 100})
    third = Node(3, here.store)
    third.author.update(one, {"o": 300})
    connect(here, there, mode=mode)
    found = there.documents()[one].fields
    assert (found["n"], found["o"]) == (100, 300)


def test_an_operation_that_comes_after_one_that_follows_it_is_no_tip():
    one, two, three, four = (YASMF.hash(bytes([each])) for each in range(4))
    create = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"n": 1})
    tips = Tips()
    tips.add(one, create)
    tips.add(three, update(two, n=3))
    tips.add(two, update(one, n=2))
    tips.add(four, update(one, n=4))
    assert tips.ascending() == tuple(sorted((three, four)))
