"""Plain sessions: messages in canonical CBOR, by turns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culm.machine import Closed, RemoteProtocolError
from culm.reconcile import (
    ErrorCode,
    Fingerprint,
    ItemReceived,
    Parameters,
    PlainResponder,
    PlainSession,
    Role,
    SessionLimits,
    State,
    Tree,
)
from culm.reconcile.messages import (
    Done,
    EmptyPayload,
    EmptySet,
    LowerBound,
    Message,
    Payload,
    RangeFingerprint,
    Terminal,
)
from culm.reconcile.plain import decode_message, encode_message
from culm.testing.link import MachinePair
from culm.wire import cbor
from effort import amount

FORMS: list[tuple[Message, list[object]]] = [
    (EmptySet(True), [0, True]),
    (LowerBound(b"low"), [1, b"low"]),
    (Payload(b"item"), [2, b"item"]),
    (Payload(b"item", b"upper", True), [2, b"item", b"upper", True]),
    (EmptyPayload(b"upper"), [3, b"upper"]),
    (Done(b"upper"), [4, b"upper"]),
    (RangeFingerprint(Fingerprint(7, b"state"), b"upper"), [5, 7, b"state", b"upper"]),
    (Terminal(), [6]),
]


def tree_of(*items: bytes) -> Tree:
    tree = Tree(item_size=3)
    for item in items:
        tree.insert(item)
    return tree


def session(*items: bytes, role: Role = Role.RESPONDER) -> PlainSession:
    return PlainSession(view=tree_of(*items), role=role)


@pytest.mark.parametrize(("message", "plain"), FORMS)
def test_messages_are_arrays(message: Message, plain: list[object]):
    assert encode_message(message) == cbor.encode(plain)
    assert decode_message(cbor.encode(plain)) == message


@pytest.mark.parametrize(
    "plain",
    [
        *([kind, *rest, None] for kind, *rest in (plain for _, plain in FORMS)),
        *([], 5, b"", [7], [True, True], [0, 1], [5, True, b"", b""], [1, "text"], [[6]]),
    ],
)
def test_what_has_no_form_is_refused(plain: object):
    with pytest.raises(RemoteProtocolError) as error:
        decode_message(cbor.encode(plain))
    assert error.value.code is ErrorCode.BAD_FRAME


def test_both_sides_learn_what_they_lack():
    left = session(b"one", b"two", b"six", role=Role.INITIATOR)
    link = MachinePair.of_machines(left, session(b"one", b"six", b"ten")).run()
    assert link.left.events == [ItemReceived(item=b"ten"), Closed()]
    assert link.right.events == [ItemReceived(item=b"two"), Closed()]
    assert left.state is State.ENDED


@settings(max_examples=amount(10, 2000))
@given(st.sets(st.binary(min_size=3, max_size=3), max_size=30), st.data())
def test_each_round_may_be_answered_by_another_responder(items: set[bytes], data: st.DataObject):
    """The responders have the same items, and no knowledge of each other or of earlier rounds."""
    held = {item: data.draw(st.integers(0, 3)) for item in sorted(items)}
    ours, theirs = ({item for item in held if held[item] != side} for side in (0, 1))
    parameters = Parameters(payload_threshold=1, first_split=2, branching=2, list_from=4)
    left = PlainSession(view=tree_of(*ours), role=Role.INITIATOR, parameters=parameters)
    told: list[list[object]] = [[], []]
    while said := left.data_to_send():
        responder = PlainResponder(view=tree_of(*theirs), parameters=parameters)
        responder.receive_data(said)
        told[1] += iter(responder.next_event, None)
        left.receive_data(responder.data_to_send())
        told[0] += iter(left.next_event, None)
    assert told[0][-1] == Closed()
    received = [[event.item for event in side if isinstance(event, ItemReceived)] for side in told]
    assert [sorted(side) for side in received] == [sorted(theirs - ours), sorted(ours - theirs)]


def test_a_responder_serves_sessions_until_the_stream_ends():
    responder = PlainResponder(view=tree_of(b"one", b"two"), limits=SessionLimits(rounds_max=20))
    for item in (b"six", b"ten"):
        initiator = session(item, role=Role.INITIATOR)
        told: list[object] = []
        while said := initiator.data_to_send():
            responder.receive_data(said)
            told += iter(responder.next_event, None)
            initiator.receive_data(responder.data_to_send())
            told += iter(initiator.next_event, None)
        assert told[-1] == Closed()
        assert ItemReceived(item=item) in told
        assert responder.state is State.LISTENING
    responder.receive_eof()
    assert responder.next_event() == Closed()


def test_a_responder_answers_so_many_rounds():
    responder = PlainResponder(view=tree_of(b"one"), limits=SessionLimits(rounds_max=3))
    for _ in range(3):
        responder.receive_data(encode_message(EmptySet(True)))
        assert responder.next_event() is None
        assert responder.data_to_send()
    responder.receive_data(encode_message(EmptySet(True)))
    closed = responder.next_event()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is ErrorCode.TOO_MANY_ROUNDS


def test_a_round_that_comes_early_waits_until_ours_is_said():
    ours = session(b"one", role=Role.INITIATOR)
    ours.receive_data(encode_message(EmptySet(False)))
    assert ours.next_event() is None
    assert ours.data_to_send()
    assert ours.next_event() == Closed()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff", ErrorCode.BAD_FRAME),
        (b"\x82\x01\x59\x01\x00", ErrorCode.BAD_FRAME),  # 256 bytes cannot be a bound of these
        (encode_message(Terminal()), ErrorCode.UNEXPECTED_MESSAGE),
        (b"", ErrorCode.END_OF_STREAM),
        (encode_message(LowerBound(b"one"))[:-1], ErrorCode.END_OF_STREAM),
    ],
)
def test_what_is_wrong_ends_the_session(data: bytes, code: ErrorCode):
    ours = session(b"one")
    ours.receive_data(data)
    ours.receive_eof()
    closed = ours.next_event()
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.code is code
