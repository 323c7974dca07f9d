"""Data that a peer does not take is not sent whole in each session, yet arrives in the end."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey
from p2panda_faults import accepted
from p2panda_nodes import SCHEMA, Node, connect, replicators

from culm.bamboo import LogKey
from culm.bamboo.entry import decode
from culm.p2panda import Author, Height, Mode, Offers
from culm.p2panda.comparison import Comparison
from culm.p2panda.effects import NewOperation, Span
from culm.p2panda.heights import ITEM_SIZE_MAX, decode_item, encode_item
from culm.p2panda.messages import Fingerprint, LowerBound, Payload, Terminal
from culm.p2panda.operation import decode as decode_operation
from culm.reconcile import Parameters, Tree
from culm.testing.link import MachinePair
from culm.wire.multihash import YASMF

every_mode = pytest.mark.parametrize("mode", Mode)


def heights(node: Node) -> list[Height]:
    view = node.store.range((SCHEMA,)).view
    return [decode_item(item) for batch in view.batches() for item in batch]


def forked(changes: int = 200) -> tuple[Node, Node]:
    """Two nodes with branches of one log, one of them much longer, and other documents."""
    left, right = Node(1), Node(2)
    left.create(name="ours")
    right.create(name="theirs")
    document = left.create(name="forked")
    connect(left, right)
    key = SigningKey((1).to_bytes(32, "big"))
    Author(key, left.store).update(document, {"age": -1})
    other = Author(key, right.store)
    for number in range(changes):
        other.update(document, {"age": number})
    return left, right


def sessions(left: Node, right: Node, mode: Mode, count: int) -> list[int]:
    """The bytes of `count` sessions on one connection, one after the other."""
    machines = replicators(mode=mode, asks=(False, False))
    link: MachinePair = connect(left, right, machines=machines, schema_ids=(SCHEMA,))
    sizes = []
    for _ in range(count):
        before = len(link.left.sent) + len(link.right.sent)
        machines[0].request((SCHEMA,), mode=mode)
        link.run()
        sizes.append(len(link.left.sent) + len(link.right.sent) - before)
    return sizes


@every_mode
def test_a_forked_log_is_not_sent_whole_in_each_session(mode: Mode):
    left, right = forked()
    first, *_, last = sessions(left, right, mode, 6)
    assert first > 40_000
    assert last < 2000


@every_mode
def test_nor_is_what_a_peer_leaves_out_that_has_nothing(mode: Mode):
    """It stores none of it, and so it says each time that it has nothing."""
    left, right = Node(1), Node(2)
    right.store.append([accepted("1,025 fields", number) for number in range(9)])
    assert right.store.range((SCHEMA,)).position == 9
    first, *_, last = sessions(left, right, mode, 6)
    assert first > 60_000
    assert last <= first  # each log is one entry: it is tried in each session


@every_mode
def test_what_is_remembered_wrongly_costs_a_few_sessions_and_no_more(mode: Mode):
    """As if the peer had been sent everything again and again, and had lost it since."""
    left, right = Node(1), Node(2)
    for number in range(9):
        document = right.create(name=f"{number}")
        for age in range(number):
            (left if age % 2 else right).author.update(document, {"age": age})
            connect(left, right)
    left, offers = Node(1), Offers()
    for log, seqnum in heights(right) * 9:
        offers.span(log, 0, seqnum)
        offers.everything()
    for _ in range(12):
        machines = replicators(mode=mode, offers=offers)
        connect(left, right, machines=machines)
    assert left.documents() == right.documents()


def test_logs_are_remembered_up_to_the_limit_the_last_ones():
    offers = Offers(logs_max=2)
    one, two, three = (LogKey(bytes(32), number) for number in range(3))
    for _ in range(3):
        for log in (one, two):
            span = offers.span(log, 1, 9)
    assert span == Span(two, 2, 2)
    assert offers.span(three, 1, 9) == Span(three, 2, 9)
    assert offers.span(one, 1, 9) == Span(one, 2, 9)
    assert offers.span(three, 4, 9) == Span(three, 5, 9)
    for _ in range(5):
        offers.span(three, 4, 9)
    assert offers.span(three, 4, 9) == Span(three, 5, 5)
    assert offers.span(three, 5, 9) == Span(three, 6, 9)  # it has taken that one


def test_a_log_that_a_peer_names_again_is_sent_once():
    """As often as it likes, in one session."""
    tree = Tree(item_size=ITEM_SIZE_MAX, varying=True)
    for number in range(200):
        tree.insert(encode_item(LogKey(bytes([number]) * 32, 0), 9))
    comparison = Comparison(
        tree.snapshot(), first=False, parameters=Parameters(echo=True), offers=Offers()
    )
    low = LogKey(bytes(32), 0)
    named, next_one = encode_item(low, 3), encode_item(LogKey(b"\1" * 32, 0), 1)
    rest = Fingerprint(bytes(23) + b"\xff", named)
    wanted = []
    for _ in range(3):
        for message in (LowerBound(named), Payload(named, next_one, True), rest, Terminal()):
            comparison.hear(message)
        wanted += comparison.take_wanted()
        assert comparison.speaking
        while comparison.next_message() is not None:
            pass
    assert wanted == [Span(low, 4, 9)]


@every_mode
def test_a_peer_restored_from_a_backup_gets_everything_in_a_live_session(mode: Mode):
    """Again and again; no later session would bring entries held back in this one."""
    right, offers = Node(2), Offers()
    other, document = Node(3, right.store), right.create(name="shared")
    (first,) = right.store.read_new((SCHEMA,), count_max=9, size_max=1 << 20)
    entry, operation = decode(first.entry, family=YASMF), decode_operation(first.operation)
    for age in range(9):
        (other if age % 2 else right).author.update(document, {"age": age})
    for _ in range(5):
        left = Node(1)
        left.store.append([NewOperation(entry, operation, document)])
        connect(left, right, machines=replicators(mode=mode, live=True, offers=offers))
        assert left.documents() == right.documents()


def test_canary_what_was_sent_once_is_not_sent_again(monkeypatch: pytest.MonkeyPatch):
    """As if the memory of it were the truth."""
    span, sent_by = Offers.span, dict[int, set[LogKey]]()

    def once(self: Offers, log: LogKey, theirs: int, ours: int) -> Span:
        sent = sent_by.setdefault(id(self), set())
        if log in sent:
            return Span(log, ours, ours)
        sent.add(log)
        return span(self, log, theirs, ours)

    monkeypatch.setattr(Offers, "span", once)
    monkeypatch.setattr(Offers, "everything", lambda self: False)
    with pytest.raises(AssertionError):
        test_what_is_remembered_wrongly_costs_a_few_sessions_and_no_more(Mode.SET_RECONCILIATION)
