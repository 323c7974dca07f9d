"""The SQLite store of operations beside the one in memory: the same answers to the same calls.

And it is killed at every statement.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from killing import live_and_die
from nacl.signing import SigningKey

from culm.bamboo.entry import LogKey, sign
from culm.p2panda import Action, Author, MemoryStore, Operation, Policy, Replicator, materialise
from culm.p2panda.effects import Conflict, NewOperation, Span
from culm.p2panda.heights import decode_item
from culm.p2panda.store import DocumentState, OperationStore
from culm.testing.link import MachinePair
from culm.wire.multihash import YASMF
from culm_io.stores.p2panda import OperationSqliteStore
from effort import LONG

SCHEMAS = ["panda_" + YASMF.hash(b"pandas").hex(), "blob_piece_v1"]
KEYS = [SigningKey(bytes([number]) * 32) for number in (1, 2)]
BOUNDS = {"count_max": 4, "size_max": 900}
AFTER_A_GAP = sign(
    KEYS[0],
    family=YASMF,
    log_id=99,
    seqnum=2,
    payload=b"",
    backlink=YASMF.hash(b""),
)


class Recorder(MemoryStore):
    """Remembers the pieces in which it was written."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[NewOperation]] = []

    def append(self, operations: Any) -> list[int]:
        self.batches.append(list(operations))
        return super().append(operations)


def written() -> Recorder:
    """Documents of two schemas, by two authors that change each other's."""
    store, rng = Recorder(), Random(1)
    authors = [Author(key, store) for key in KEYS]
    documents = []
    for number in range(20):
        author, schema_id = rng.choice(authors), rng.choice(SCHEMAS)
        if number < 4:
            documents.append(author.create(schema_id, {"name": str(number)}))
        else:
            author.update(rng.choice(documents), {"age": number})
    return store


def first_of(log_id: int, name: str = "Lu", **of: Any) -> NewOperation:
    """The first entry of a log of the first author's."""
    operation = Operation(action=Action.CREATE, schema_id=SCHEMAS[0], fields={"name": name})
    entry = sign(KEYS[0], family=YASMF, log_id=log_id, seqnum=1, payload=operation.encode(), **of)
    return NewOperation(entry, operation, entry.hash())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "operations.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[OperationSqliteStore]:
    with OperationSqliteStore(path) as made:
        yield made


def answers(store: OperationStore, twin: Recorder) -> Iterator[object]:
    """A store's answers about everything in its twin."""
    news = [new for batch in twin.batches for new in batch]
    logs = sorted({new.entry.log for new in news})
    logs.append(LogKey(bytes(32), 2**64 - 1))
    yield store.look_up(logs, [new.entry.hash() for new in news[::3]] + [bytes(34)])
    yield store.documents_of(logs)
    spans = [Span(log, 2, 5) for log in logs]
    for after in range(0, len(news), 3):
        yield store.read(spans, after=after, **BOUNDS)
        yield store.locate(spans, after=after, count_max=4)
        yield store.locate(spans, after=after, count_max=999)
        yield store.read_new(SCHEMAS, after=after, end=len(news) - 2, **BOUNDS)
        yield store.read_new(SCHEMAS[1:], after=after, **BOUNDS)
    for schema_ids in (SCHEMAS, SCHEMAS[:1]):
        heights = store.range(schema_ids)
        yield heights.position, list(heights.view.read(0, len(heights.view)))
    for schema_id in SCHEMAS:
        yield [store.operations(document_id) for document_id in store.documents(schema_id)]
        yield [store.state_of(document_id) for document_id in store.documents(schema_id)]
        yield [store.backlinks(document_id) for document_id in store.documents(schema_id)]
    yield store.operations(bytes(34)), store.backlinks(bytes(34)), store.state_of(bytes(34))
    yield [store.logs_of(bytes(key.verify_key)) for key in KEYS]


def test_it_answers_as_the_one_in_memory_does(store: OperationSqliteStore, path: Path):
    assert isinstance(store, OperationStore)
    twin = written()
    said = iter(twin.batches)
    assert list(answers(store, twin)) == list(answers(MemoryStore(), twin))
    in_memory = MemoryStore()
    for batch in said:
        assert store.append(batch) == in_memory.append(batch)
        assert store.append(batch) == in_memory.append(batch)  # which changes nothing
    assert list(answers(store, twin)) == list(answers(in_memory, twin))
    with OperationSqliteStore(path) as opened:
        assert list(answers(opened, twin)) == list(answers(in_memory, twin))


def test_of_what_has_a_fault_nothing_is_kept(store: OperationSqliteStore):
    store.append([first_of(0)])
    store.range(SCHEMAS)
    with pytest.raises(Conflict) as conflict:
        store.append([first_of(1), first_of(0, "another")])
    assert (conflict.value.log, conflict.value.seqnum) == (first_of(0).entry.log, 1)
    second = written().batches[-1]
    assert second[0].entry.seqnum > 1
    with pytest.raises(ValueError, match="gap"):
        store.append([first_of(1), *second])
    heights = store.range(SCHEMAS)
    assert (heights.position, len(heights.view)) == (1, 1)


def test_a_store_takes_back_what_came_before_a_fault(store: OperationSqliteStore):
    twin = written()
    for each in (MemoryStore(), store):
        for number in range(0, len(twin.batches), 5):
            before = list(answers(each, twin))
            rest = [new for batch in twin.batches[number:] for new in batch]
            with pytest.raises(ValueError, match="gap"):
                each.append([*rest, NewOperation(AFTER_A_GAP, *rest[0][1:])])
            assert list(answers(each, twin)) == before
            each.append(rest[:5])
        assert list(answers(each, twin)) == list(answers(twin, twin))


def test_where_a_document_stands_is_what_materialising_it_says(store: OperationSqliteStore):
    twin, rng = written(), Random(2)
    for each in (MemoryStore(), store):
        author = Author(SigningKey(bytes(32)), each)
        for batch in twin.batches:
            each.append(batch)
            document_id = batch[0].document_id
            if rng.random() < 0.2:
                state = each.state_of(document_id)
                if state is not None and not state.deleted:
                    author.delete(document_id, previous=[batch[0].entry.hash()])
            found = materialise(each.operations(document_id), backlinks=each.backlinks(document_id))
            said = DocumentState(found.schema_id, found.tips, found.deleted)
            assert each.state_of(document_id) == said


def test_numbers_of_64_bits_are_kept(store: OperationSqliteStore):
    new = first_of(2**64 - 1)
    store.append([first_of(2**63 - 1), new])
    assert store.read([Span(new.entry.log, 1, 1)], **BOUNDS)[0].log == new.entry.log
    author = bytes(KEYS[0].verify_key)
    assert list(store.logs_of(author)) == [2**63 - 1, 2**64 - 1]


def test_what_others_write_is_in_the_next_range(store: OperationSqliteStore, path: Path):
    store.append([first_of(0)])
    before = store.range(SCHEMAS)
    with OperationSqliteStore(path) as other:
        other.append([first_of(1)])
    store.append([first_of(2)])
    assert len(before.view) == 1
    assert len(store.range(SCHEMAS).view) == 3


def test_a_transaction_that_fails_leaves_nothing(
    store: OperationSqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    store.append([first_of(0)])
    store.range(SCHEMAS)
    for statement in ("documents", "logs", "operations"):
        with closing(sqlite3.connect(path)) as other, other:
            other.execute(
                f"CREATE TRIGGER fails BEFORE INSERT ON {statement} WHEN NEW.rowid IS NOT 1"
                " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
            )
        with pytest.raises(sqlite3.IntegrityError):
            store.append([first_of(1)])
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TRIGGER fails")
        assert (store.range(SCHEMAS).position, len(store.range(SCHEMAS).view)) == (1, 1)
    assert store.append([first_of(1)]) == [2]


def replicate(one: OperationStore, other: OperationStore) -> None:
    """Connect a node with the one store to a node with the other, until all is quiet."""
    link = MachinePair.of_machines(
        *(
            Replicator(local_peer=local, remote_peer=remote, policy=Policy(asks=asks, live=False))
            for local, remote, asks in ((b"a", b"b", True), (b"b", b"a", False))
        ),
        respond=(one.perform, other.perform),
    )
    for side in (link.left, link.right):
        side.machine.announce(SCHEMAS, timestamp=1)  # type: ignore[union-attr]
    link.run()


def assert_level(one: OperationStore, other: OperationStore) -> None:
    """Both have the same operations of the same documents."""
    for schema_id in SCHEMAS:
        assert one.documents(schema_id) == other.documents(schema_id) != []
        for each in one.documents(schema_id):
            assert one.operations(each) == other.operations(each)


def test_two_nodes_replicate_from_file_to_file(store: OperationSqliteStore, tmp_path: Path):
    twin = written()
    for batch in twin.batches:
        store.append(batch)
    with OperationSqliteStore(tmp_path / "other.sqlite") as other:
        replicate(store, other)
        assert_level(store, other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.once
def test_a_kill_at_any_statement_loses_nothing_that_was_stored(tmp_path: Path):
    twin = written()
    news = [new for batch in twin.batches for new in batch]
    batches = [news[:1], news[1:6], news[6:8], news[8:]]
    stages = [MemoryStore()]
    for number in range(1, len(batches) + 1):
        stages.append(MemoryStore())
        for batch in batches[:number]:
            stages[-1].append(batch)

    def live(path: Path) -> Iterator[object]:
        store = OperationSqliteStore(path)
        for batch in batches:
            store.range(SCHEMAS)
            yield store.append(batch)

    seen = set()
    for point in count(0, 1 if LONG else 17):
        path = tmp_path / f"{point}.sqlite"
        done = live_and_die(lambda path=path: live(path), point)  # type: ignore[misc]
        if done is None:
            break
        with OperationSqliteStore(path) as store:
            found = list(answers(store, twin))
            assert found in [list(answers(stage, twin)) for stage in stages[done : done + 2]]
            replicate(store, twin)
            assert_level(store, twin)
        seen.add(done)
    assert seen == set(range(len(batches)))


def test_what_was_read_in_a_block_that_fails_is_forgotten_with_it(store: OperationSqliteStore):
    author = Author(KEYS[0], store)
    document_id = author.create(SCHEMAS[0], {"n": 0})
    store.range(SCHEMAS)
    before = store.state_of(document_id)

    def fail() -> None:
        with store.alone():
            author.update(document_id, {"n": 1})
            assert store.state_of(document_id) != before
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    heights = store.range(SCHEMAS)
    ((item,),) = heights.view.batches()
    assert (heights.position, decode_item(item).seqnum) == (1, 1)
    assert store.state_of(document_id) == before
    author.update(document_id, {"n": 2})
    ids = list(store.operations(document_id))
    state = store.state_of(document_id)
    assert state is not None
    assert state.tips == (ids[-1],)


def test_an_author_goes_on_after_a_log_with_the_last_number() -> None:
    key = KEYS[0]
    operation = Operation(action=Action.CREATE, schema_id=SCHEMAS[0], fields={"n": 1})
    entry = sign(key, family=YASMF, log_id=2**64 - 1, seqnum=1, payload=operation.encode())
    with OperationSqliteStore(":memory:") as store:
        store.append([NewOperation(entry, operation, entry.hash())])
        author = Author(key, store)
        made = [author.create(SCHEMAS[0], {"n": number}) for number in (2, 3)]
        assert store.logs_of(author.public_key) == {
            **dict(enumerate(made)),
            2**64 - 1: entry.hash(),
        }
