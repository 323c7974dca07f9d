"""Documents of very many logs, which strangers can make of any: they cost only themselves."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from nacl.signing import SigningKey
from p2panda_nodes import SCHEMA, Node, connect, replicators

from culm.bamboo import LogKey
from culm.p2panda import Author, Mode, Offers, ReplicatorLimits
from culm.p2panda.comparison import Comparison
from culm.p2panda.effects import Located, LocateOperations, ReadOperations, Span
from culm.p2panda.heights import ITEM_SIZE_MAX, encode_item
from culm.p2panda.messages import LowerBound, Payload, Terminal
from culm.p2panda.store import MemoryStore
from culm.reconcile import Parameters, Tree
from culm.testing.link import MachinePair

SMALL = ReplicatorLimits(spans_max=4, batch_count_max=8)
every_mode = pytest.mark.parametrize("mode", Mode)


def crowded(authors: int, changes: int, *, seed: int = 1) -> Node:
    """A node with a document to which many have contributed, by turns."""
    node, rng = Node(1), Random(seed)
    document = node.create()
    others = [Author(SigningKey((2 + n).to_bytes(32, "big")), node.store) for n in range(authors)]
    for number in range(changes):
        rng.choice(others).update(document, {"age": number})
    return node


@every_mode
def test_what_stands_before_an_operation_is_sent_before_it(mode: Mode):
    ours, theirs = crowded(30, 120), Node(0)
    theirs.create()  # otherwise it would get everything without a word about logs
    machines = replicators(mode=mode, limits=SMALL)
    connect(theirs, ours, machines=machines)
    assert theirs.documents() == ours.documents()


@every_mode
def test_entries_that_the_peer_has_are_not_sent_again(mode: Mode):
    ours, theirs = crowded(30, 60), Node(0)
    connect(theirs, ours)
    ours.author.update(ours.store.documents(SCHEMA)[0], {"age": 1})
    for number in range(20):
        author = Author(SigningKey((2 + number).to_bytes(32, "big")), ours.store)
        author.update(ours.store.documents(SCHEMA)[0], {"age": number})
    connect(theirs, ours, machines=replicators(mode=mode, limits=replace(SMALL, repeated_max=1)))
    assert theirs.documents() == ours.documents()


def spans_asked_for(logs: int) -> int:
    """The number of reads of the store to send a document of `logs` logs."""
    ours, theirs = Node(1), Node(0)
    theirs.create()
    document = ours.create()
    for number in range(logs):
        author = Author(SigningKey((2 + number).to_bytes(32, "big")), ours.store)
        author.update(document, {"age": number}, previous=[document])
    count = 0

    def respond(effect: Any) -> Any:
        nonlocal count
        if isinstance(effect, LocateOperations | ReadOperations):
            count += len(effect.spans)
        return ours.store.perform(effect)

    machines = replicators(limits=SMALL)
    link = MachinePair.of_machines(*machines, respond=(theirs.store.perform, respond))
    for machine in machines:
        machine.announce([SCHEMA], timestamp=1)
    link.run()
    assert theirs.documents() == ours.documents()
    return count


def test_the_store_looks_at_a_log_a_few_times_however_many_there_are():
    few, many = spans_asked_for(25), spans_asked_for(100)
    assert many < 5 * few


def test_what_is_read_may_be_as_large_as_was_asked_for():
    store = crowded(1, 3).store
    kept = store.read_new([SCHEMA], count_max=99, size_max=1 << 20)
    size = sum(len(each.entry) + len(each.operation) for each in kept[:2])
    for less, count in ((0, 2), (1, 1)):
        assert len(store.read_new([SCHEMA], count_max=99, size_max=size - less)) == count


def test_places_are_told_by_position():
    store: MemoryStore = crowded(3, 30).store  # type: ignore[assignment]
    kept = store.read_new([SCHEMA], count_max=99, size_max=1 << 20)
    spans = [Span(log, 2, 9) for log in {each.log for each in kept}]
    places = [each[:3] for each in kept if 2 <= each.seqnum <= 9]
    assert store.locate(spans, count_max=99) == places
    assert store.locate(spans, after=places[3][0], count_max=5) == places[4:9]
    assert store.locate([], count_max=5) == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [None],
        [(1, LogKey(bytes(32), 0), 1)],
        "beyond the span",
        "of another log",
        "twice",
        "behind",
        "too many",
    ],
)
def test_what_is_no_place_in_the_spans_is_refused(answer: Any):

    log = LogKey(bytes(32), 0)
    wrong = {
        "beyond the span": [Located(8, log, 4)],
        "of another log": [Located(8, LogKey(bytes(32), 1), 2)],
        "twice": [Located(8, log, 2), Located(8, log, 3)],
        "behind": [Located(7, log, 2)],
        "too many": [Located(8, log, 1), Located(9, log, 2), Located(10, log, 3)],
    }
    effect = LocateOperations(ticket=1, spans=(Span(log, 1, 3),), after=7, count_max=2)  # type: ignore[arg-type]
    assert effect.accepts([Located(8, log, 1), Located(9, log, 3)])
    assert not effect.accepts(wrong.get(answer, answer) if isinstance(answer, str) else answer)


def test_what_a_peer_has_us_name_is_remembered_in_a_few_bytes():
    """It may make us name all our logs, and then keep quiet."""
    logs = 3000
    tree = Tree(item_size=ITEM_SIZE_MAX, varying=True)
    for number in range(logs):
        tree.insert(encode_item(LogKey(number.to_bytes(32, "big"), 0), 1))
    comparison = Comparison(
        tree.snapshot(), first=False, parameters=Parameters(echo=True), offers=Offers()
    )
    lowest = tree.select(0)
    for message in (LowerBound(lowest), Payload(lowest, lowest, True), Terminal()):
        comparison.hear(message)
    comparison.next_message()
    tracemalloc.start()
    try:
        said = sum(1 for _ in iter(comparison.next_message, None))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said >= logs
    assert kept < 20 * logs
    assert len(list(comparison.unmentioned())) == logs - 1
