"""The order of a document's operations, and their result."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

import culm.p2panda.author as author_module
import culm.p2panda.store as store_module
from culm.arguments import UINT64_MAX
from culm.bamboo.entry import sign
from culm.p2panda import Action, Author, Limits, MemoryStore, Operation, decode, materialise
from culm.p2panda.document import sort_operations, view_id
from culm.p2panda.effects import NewOperation
from culm.wire.multihash import YASMF

SCHEMA = "person_" + YASMF.hash(b"schema").hex()
Graph = dict[bytes, tuple[bytes, ...]]


def graph(**previous: str) -> Graph:
    """A document: each operation, a letter, after the letters of its value."""
    return {
        each.encode(): tuple(letter.encode() for letter in before)
        for each, before in previous.items()
    }


def order(**previous: str) -> str:
    return b"".join(sort_operations(graph(**previous))).decode()


def test_of_branches_the_smallest_comes_first_and_then_the_largest():
    assert order(a="", b="a", c="a", d="a") == "abdc"
    assert order(a="", b="a", c="a", d="a", e="a", f="a") == "abfedc"


def test_a_branch_is_visited_to_its_end():
    assert order(a="", b="a", c="a", d="b", e="d") == "abdec"


def test_a_merge_comes_when_all_branches_have_been_visited():
    assert order(a="", b="a", c="a", d="bc", e="d") == "abcde"
    assert order(m="", b="m", c="m", a="bc", d="a") == "mbcad"


def test_a_merge_that_is_smallest_but_not_due_gives_way_to_the_largest():
    assert order(a="", x="a", y="a", b="xy", c="x", d="x") == "axdcyb"


def test_an_ancestor_beside_its_descendant_changes_nothing():
    """p2panda-rs lists such a merge twice."""
    assert order(z="", u="z", m="zu") == "zum"
    assert order(a="", b="a", c="ab") == "abc"


@pytest.mark.parametrize(
    "broken", [{}, {"a": "", "b": ""}, {"a": "", "b": "x"}, {"a": "", "b": "c", "c": "b"}]
)
def test_what_is_no_document_is_refused(broken: dict[str, str]):
    with pytest.raises(ValueError, match=r"create|missing|circle"):
        sort_operations(graph(**broken))


@st.composite
def documents(draw: st.DrawFn, size_max: int = 12) -> Graph:
    """Operations with random ids, each after some earlier ones."""
    ids = draw(
        st.lists(st.binary(min_size=1, max_size=2), min_size=1, max_size=size_max, unique=True)
    )
    found: Graph = {ids[0]: ()}
    for at, each in enumerate(ids[1:], 1):
        parents = draw(st.sets(st.integers(0, at - 1), min_size=1, max_size=3))
        found[each] = tuple(sorted(ids[parent] for parent in parents))
    return found


def recursive_order(previous: Mapping[bytes, tuple[bytes, ...]]) -> list[bytes]:
    """The same order, recursively: a visited operation hands over to its heirs."""
    order: list[bytes] = []

    def is_due(each: bytes) -> bool:
        return each not in order and all(before in order for before in previous[each])

    def visit(each: bytes, waiting: list[bytes]) -> None:
        order.append(each)
        heirs = sorted(other for other in previous if each in previous[other])
        heirs = [other for other in heirs if other not in order]
        waiting += heirs[1:]
        if heirs and is_due(heirs[0]):
            visit(heirs[0], waiting)

    waiting = [each for each in previous if not previous[each]]
    while waiting:
        each = waiting.pop()
        if is_due(each):
            visit(each, waiting)
    return order


@given(documents())
def test_the_order_is_that_of_the_dumb_twin(document: Graph):
    found = sort_operations(document)
    assert found == recursive_order(document)


@given(documents(), st.randoms(use_true_random=False))
def test_the_order_depends_on_the_set_alone_and_is_topological(document: Graph, rng):  # type: ignore[no-untyped-def]
    found = sort_operations(document)
    assert sorted(found) == sorted(document)
    places = {each: place for place, each in enumerate(found)}
    assert all(places[before] < places[each] for each in document for before in document[each])
    shuffled = list(document.items())
    rng.shuffle(shuffled)
    assert sort_operations(dict(shuffled)) == found


def test_a_long_log_and_a_wide_merge_are_no_burden():
    line = {
        n.to_bytes(3, "big"): (() if not n else ((n - 1).to_bytes(3, "big"),)) for n in range(5000)
    }
    assert sort_operations(line) == sorted(line)
    root, leaves = b"a", [b"b" + n.to_bytes(2, "big") for n in range(5000)]
    wide: Graph = {root: (), **dict.fromkeys(leaves, (root,)), b"c": tuple(leaves)}
    assert sort_operations(wide) == [root, leaves[0], *reversed(leaves[1:]), b"c"]


def test_fields_are_those_of_the_last_operation_that_has_them():
    one, two, three = (YASMF.hash(name) for name in (b"1", b"2", b"3"))
    create = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"a": 1, "b": 1})
    update = Operation(action=Action.UPDATE, schema_id=SCHEMA, previous=(one,), fields={"b": 2})
    delete = Operation(action=Action.DELETE, schema_id=SCHEMA, previous=(one,))
    document = materialise({one: create, two: update})
    assert (document.fields, document.tips) == ({"a": 1, "b": 2}, (two,))
    assert (document.document_id, document.deleted) == (one, False)
    assert document.view_id == view_id([two]) == two.hex()
    gone = materialise({one: create, two: update, three: delete})
    assert (gone.fields, gone.deleted) == (None, True)
    assert gone.tips == tuple(sorted((two, three)))
    assert gone.view_id == "_".join(each.hex() for each in gone.tips)


@pytest.mark.parametrize("number", range(6))  # so that ids sort in both ways
def test_the_one_before_in_its_log_stands_in_for_what_an_operation_follows(number: int):
    """The latter is in the other branch of a fork; without a log it comes after the creation."""
    one, two, three, other = (YASMF.hash(b"%d %d" % (number, each)) for each in range(4))
    create = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"a": 1})
    updates = [
        Operation(action=Action.UPDATE, schema_id=SCHEMA, previous=(before,), fields={"a": value})
        for before, value in ((one, 2), (other, 3))
    ]
    operations = dict(zip((one, two, three), (create, *updates), strict=True))
    document = materialise(operations, backlinks={two: one, three: two})
    assert (document.order, document.fields) == ((one, two, three), {"a": 3})
    assert materialise(operations).order == (one, *sorted((two, three)))
    both = Operation(
        action=Action.UPDATE,
        schema_id=SCHEMA,
        previous=tuple(sorted((two, other))),
        fields={"a": 3},
    )
    assert materialise({**operations, three: both}).order == (one, two, three)


def test_a_document_is_of_one_schema():
    one, two = (YASMF.hash(name) for name in (b"1", b"2"))
    create = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"data": b""})
    other = Operation(
        action=Action.UPDATE, schema_id="blob_piece_v1", previous=(one,), fields={"data": b""}
    )
    with pytest.raises(ValueError, match="blob_piece_v1"):
        materialise({one: create, two: other})


def test_an_update_costs_the_same_however_many_there_were(monkeypatch: pytest.MonkeyPatch):
    decoded: list[bytes] = []

    def counted(encoded: bytes) -> Operation:
        decoded.append(encoded)
        return decode(encoded)

    monkeypatch.setattr(store_module, "decode_operation", counted)
    store = MemoryStore()
    authors = [Author(SigningKey(bytes([number]) * 32), store) for number in range(3)]
    document_id = authors[0].create(SCHEMA, {"n": 0})
    for number in range(20):
        authors[number % 3].update(document_id, {"n": number})
    assert len(decoded) == 20  # each once, except the last
    assert len(materialise(store.operations(document_id)).order) == 21


def crowded(count: int) -> tuple[MemoryStore, Author, bytes]:
    """A document with `count` branches by another author; all begin at the creation."""
    store = MemoryStore()
    author = Author(SigningKey(bytes(32)), store)
    document_id = author.create(SCHEMA, {"n": 0})
    branch = Operation(
        action=Action.UPDATE, schema_id=SCHEMA, previous=(document_id,), fields={"n": 1}
    )
    stranger = SigningKey(b"s" * 32)
    payload = branch.encode()
    entries = [
        sign(stranger, family=YASMF, log_id=number, seqnum=1, payload=payload)
        for number in range(count)
    ]
    store.append([NewOperation(entry, branch, document_id) for entry in entries])
    return store, author, document_id


def test_branches_of_others_make_no_operation_that_is_too_large(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(author_module, "_MERGED_MAX", 16)
    store, author, document_id = crowded(50)
    one, two = (author.update(document_id, {"n": number}) for number in (2, 3))
    operations = store.operations(document_id)
    assert document_id in operations[one].previous  # the author's earlier one
    assert one in operations[two].previous
    assert [len(operations[each].previous) for each in (one, two)] == [16, 16]
    document = materialise(operations)
    assert document.order.index(document_id) < document.order.index(one) < document.order.index(two)
    state = store.state_of(document_id)
    assert state is not None
    assert len(state.tips) == 50 - 15 - 15 + 1  # beside the author's last one, 15 of others


def test_all_branches_that_may_be_merged_are_no_large_operation():
    store, author, document_id = crowded(1025)
    made = author.update(document_id, {"n": 2})
    assert len(store.operations(document_id)[made].previous) == 1024
    state = store.state_of(document_id)
    assert state is not None
    assert len(state.tips) == 3  # the update, and two left for the next
    assert len(store.operations(document_id)[made].encode()) < Limits().operation_size_max // 10


@pytest.mark.parametrize(
    ("taken", "begun"),
    [
        ([0, 1], [2, 3]),
        ([5], [6, 7]),
        ([UINT64_MAX], [0, 1]),
        ([0, 1, UINT64_MAX], [2, 3]),
        ([0, UINT64_MAX - 1, UINT64_MAX], [1, 2]),
        ([0, UINT64_MAX - 2], [UINT64_MAX - 1, UINT64_MAX, 1, 2]),
        ([0, UINT64_MAX - 2, UINT64_MAX], [UINT64_MAX - 1, 1, 2]),
    ],
)
def test_a_new_log_has_a_number_of_64_bits_that_no_other_has(taken: list[int], begun: list[int]):
    key, store = SigningKey(bytes(32)), MemoryStore()
    operation = Operation(action=Action.CREATE, schema_id=SCHEMA, fields={"n": 1})
    for number in taken:
        entry = sign(key, family=YASMF, log_id=number, seqnum=1, payload=operation.encode())
        store.append([NewOperation(entry, operation, entry.hash())])
    author = Author(key, store)
    made = [author.create(SCHEMA, {"n": number}) for number in range(len(begun))]
    for document_id in made:
        author.update(document_id, {"n": -1})
    of_documents = {document: log for log, document in store.logs_of(author.public_key).items()}
    assert [of_documents[each] for each in made] == begun
    assert len(of_documents) == len(taken) + len(begun)


def test_an_operation_that_other_nodes_refuse_is_not_written():
    store = MemoryStore()
    author = Author(SigningKey(bytes(32)), store)
    size_max = Limits().operation_size_max
    too_large = "x" * size_max
    with pytest.raises(ValueError, match="other nodes refuse"):
        author.create(SCHEMA, {"name": too_large})
    document_id = author.create(SCHEMA, {"name": ""})
    overhead = len(store.operations(document_id)[document_id].encode()) + 4  # of a longer text
    with pytest.raises(ValueError, match="other nodes refuse"):
        author.update(document_id, {"name": too_large})
    assert len(author.create(SCHEMA, {"name": too_large[overhead:]})) == len(document_id)
    with pytest.raises(ValueError, match="other nodes refuse"):
        author.create(SCHEMA, {"name": too_large[overhead - 1 :]})
    assert store.range([SCHEMA]).position == 2
    assert list(store.logs_of(author.public_key)) == [0, 1]
