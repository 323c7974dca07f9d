"""A receiver waits for messages that count as delivered: it asks, and both sides start anew."""

from __future__ import annotations

from functools import partial

import pytest
from oxen_simulation import LIMITS, TIMING
from oxen_support import ME, Table, joining

from culm.oxen import (
    Delivered,
    Delivery,
    FailReason,
    LeaveReason,
    Limits,
    MessageReceived,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerState,
    SendFailed,
)
from culm.oxen.messages import (
    Broadcast,
    Message,
    MessageAck,
    MessageData,
    Missing,
    OneToOne,
    Parcel,
    Piece,
    Position,
    Synchronize,
    Turn,
    decode_parcel,
    encode_parcel,
    read_message,
)
from culm.testing.network import Conditions, Network

P, Q = b"P", b"Q"
KINDS = {b"1": OneToOne, b"b": Broadcast}
DELIVERIES = {b"1": Delivery.IN_ORDER, b"b": Delivery.IN_ORDER_BROADCAST}
each_kind = pytest.mark.parametrize("kind", [b"1", b"b"])


def joined(**settings: object) -> tuple[Table, Synchronize]:
    """A node that `P` has joined with numbers 7 and 5, and our start towards it."""
    table = Table(**settings)  # type: ignore[arg-type]
    start = table.join(P, broadcast=7, one=5)
    table.events()
    return table, start


def last(kind: bytes) -> int:
    return 5 if kind == b"1" else 7


def questions(table: Table) -> list[tuple[int | None, Message]]:
    """The questions for missing messages since the last call."""
    return [
        (body.id, read_message(body.d))
        for body in table.bodies(MessageData, P)
        if isinstance(body.d, dict) and body.d[b"m"] in (b"1q", b"bq")
    ]


def wait_for_question(table: Table) -> int:
    table.said()
    table.wait(12.0, alive=(P,))
    id, _ = questions(table)[0]
    assert id is not None
    return id


# -- the waiting side ----------------------------------------------------------------------


@each_kind
def test_one_that_waits_for_long_asks_whether_the_message_will_ever_come(kind: bytes) -> None:
    table, _ = joined()
    table.tell_message(P, KINDS[kind](last(kind) + 3, b"early"))
    table.said()
    table.wait(9.0, alive=(P,))
    assert questions(table) == []  # by then it would have been redelivered several times
    table.wait(3.0, alive=(P,))
    assert [message for _, message in questions(table)] == [Missing(kind, last(kind) + 1)]


@each_kind
def test_one_that_refuses_all_as_too_far_ahead_asks_as_well(kind: bytes) -> None:
    table, _ = joined()
    for _ in range(4):
        table.tell_message(P, KINDS[kind](last(kind) + 10_000, b"too far"))
        table.wait(5.0, alive=(P,))
    assert {message for _, message in questions(table)} == {Missing(kind, last(kind) + 1)}
    table.wait(1000.0, alive=(P,))
    assert len(questions(table)) <= 1  # no repetition: it was forged


@each_kind
def test_nobody_asks_for_what_has_come_or_while_nothing_waits(kind: bytes) -> None:
    table, _ = joined()
    table.tell_message(P, KINDS[kind](last(kind) + 2, b"early"))
    table.wait(6.0, alive=(P,))
    table.tell_message(P, KINDS[kind](last(kind) + 1, b"late"))
    table.said()
    table.wait(300.0, alive=(P,))
    assert questions(table) == []


LARGE = Limits(message_size_max=20_000, assemblies_max=1)


@each_kind
def test_the_rest_of_a_message_that_has_begun_is_asked_for_as_well(kind: bytes) -> None:
    """Nothing later has to come: it keeps a place that others wait for."""
    table, _ = joined(limits=LARGE)
    table.tell_message(P, Piece(kind, last(kind) + 1, Position.FIRST, b"be"))
    table.tell_message(P, Piece(kind, last(kind) + 2, Position.MIDDLE, b"gun"))
    table.said()
    table.wait(9.0, alive=(P,))
    assert questions(table) == []
    table.wait(3.0, alive=(P,))
    assert [message for _, message in questions(table)] == [Missing(kind, last(kind) + 3)]
    table.tell_message(P, Piece(kind, last(kind) + 3, Position.LAST, b"."))
    table.said()
    table.wait(300.0, alive=(P,))
    assert questions(table) == []


def test_a_message_that_comes_piece_by_piece_is_not_asked_for() -> None:
    table, _ = joined(limits=LARGE)
    table.tell_message(P, Piece(b"1", 6, Position.FIRST, b""))
    for number in range(7, 30):
        table.wait(2.0, alive=(P,))
        table.tell_message(P, Piece(b"1", number, Position.MIDDLE, b"x"))
    assert questions(table) == []


def test_a_message_whose_rest_never_comes_frees_its_place() -> None:
    """Law 4: another's large message waited for it without end."""
    table, _ = joined(limits=LARGE)
    table.join(Q)
    table.tell_message(P, Piece(b"1", 6, Position.FIRST, b"begun"))
    table.tell_message(Q, Piece(b"1", 1, Position.FIRST, b"waits"))
    id = wait_for_question(table)
    table.tell_message(Q, Piece(b"1", 1, Position.FIRST, b"waits"))
    assert table.messages(Q)[-1] == Turn(b"1", 1, False)
    table.tell(P, MessageAck(ME, P, id))
    assert PeerLeft(peer=P, reason=LeaveReason.OUT_OF_STEP) in table.events()
    table.wait(1.0, alive=(P, Q))
    assert Turn(b"1", 1, True) in table.messages(Q)
    assert acknowledges(table, Piece(b"1", 1, Position.FIRST, b"waits"), of=Q)


def test_a_question_for_which_there_is_no_room_is_asked_later() -> None:
    """Those for other peers are due at the same moments, and had the room each time."""
    table, _ = joined(limits=Limits(outbox_max=1))
    table.join(Q)
    for sid, number in ((P, 8), (Q, 3)):
        table.tell_message(sid, OneToOne(number, b"early"))
    table.said()
    table.wait(14.0, alive=(P, Q))
    asked = {to for to, parcel in table.sent if isinstance(parcel.body, MessageData)}
    assert asked == {P, Q}


def test_what_goes_on_is_not_asked_for_though_something_always_waits() -> None:
    table, _ = joined()
    for number in range(6, 60, 2):
        table.tell_message(P, OneToOne(number + 1, b""))
        table.wait(2.0, alive=(P,))
        table.tell_message(P, OneToOne(number, b""))
    assert questions(table) == []


def test_questions_become_ever_rarer() -> None:
    """One forged message draws few of them."""
    table, _ = joined()
    table.tell_message(P, OneToOne(8, b"forged"))
    table.said()
    table.wait(3600.0, alive=(P,))
    assert 5 <= len(found := questions(table)) <= 30
    assert len({id for id, _ in found}) == 1  # so that a late answer counts, too


@each_kind
def test_the_answer_that_it_never_comes_starts_both_anew(kind: bytes) -> None:
    table, ours = joined()
    number = table.node.send_in_order(P, b"of ours")
    table.tell_message(P, KINDS[kind](last(kind) + 2, b"early"))
    id = wait_for_question(table)
    table.tell(P, MessageAck(ME, P, id))
    assert table.events() == [
        SendFailed(peer=P, message=number, reason=FailReason.OUT_OF_STEP),
        PeerLeft(peer=P, reason=LeaveReason.OUT_OF_STEP),
    ]
    assert table.node.peers()[P].state is PeerState.SYNCHRONIZING
    (start,) = table.messages(P)
    assert isinstance(start, Synchronize)
    assert start.one > ours.one + 2**26
    assert start.known == 0
    # The old association takes no more messages; the new one does.
    table.tell_message(P, KINDS[kind](last(kind) + 3, b"of the former"))
    assert table.acknowledged() == []
    table.tell_message(P, Synchronize(70, 2**40, known=start.one))
    table.answer(P, P)
    table.tell_message(P, OneToOne(2**40 + 1, b"again"))
    assert table.events() == [
        PeerJoined(peer=P),
        MessageReceived(peer=P, data=b"again", delivery=Delivery.IN_ORDER),
    ]


def test_the_answer_counts_only_while_that_message_is_missing() -> None:
    """It came after all, and the peer got its acknowledgement before the question."""
    table, _ = joined()
    table.tell_message(P, OneToOne(8, b"early"))
    id = wait_for_question(table)
    table.tell_message(P, OneToOne(6, b"late"))
    table.events()
    table.tell(P, MessageAck(ME, P, id))
    assert table.events() == []
    assert table.node.peers()[P].state is PeerState.JOINED


def test_an_answer_that_nobody_asked_for_has_no_effect() -> None:
    table, _ = joined()
    table.join(Q)
    table.events()
    table.tell_message(P, OneToOne(8, b"early"))
    id = wait_for_question(table)
    table.tell(Q, MessageAck(ME, Q, id))
    table.tell(P, MessageAck(ME, P, id ^ 1))
    assert table.events() == []


def test_one_that_leaves_starts_nothing_anew() -> None:
    """Its goodbye may have overtaken the question, and made the answer true: it is no fault then.

    The peer still takes what we had to say before.
    """
    table, _ = joined()
    table.tell_message(P, OneToOne(8, b"early"))
    id = wait_for_question(table)
    number = table.node.send(P, b"x")
    table.node.leave()
    table.drain()
    [sent] = [body.id for body in table.bodies(MessageData, P) if body.d == b"x"]
    table.tell(P, MessageAck(ME, P, id))
    assert table.events() == []
    table.tell(P, MessageAck(ME, P, sent))
    assert table.events() == [Delivered(peer=P, message=number)]


def test_one_that_leaves_asks_nothing() -> None:
    """Its goodbye ends the peer's sending: its own messages would fail with that."""
    table, _ = joined()
    table.node.send(P, b"x")
    table.node.leave()
    table.tell_message(P, OneToOne(8, b"early"))
    table.wait(11.0, alive=(P,))
    assert questions(table) == []


# -- the sending side ----------------------------------------------------------------------


def acknowledges(table: Table, message: Message, *, of: bytes = P) -> bool:
    table.said()
    id = table.tell_message(of, message)
    return table.acknowledged() == [id]


def test_only_what_never_comes_is_said_never_to_come() -> None:
    """That is: delivered, as far as we know, or of another association."""
    table, start = joined()
    one, broadcast = start.one, start.broadcast
    for kind, number in ((b"1", one), (b"b", broadcast)):
        assert not acknowledges(table, Missing(kind, number + 1))  # nothing was sent yet
        assert acknowledges(table, Missing(kind, number))
        assert acknowledges(table, Missing(kind, number + 2))  # ours would be taken for duplicates
    table.said()
    for _ in range(2):
        table.node.send_in_order(P, b"x")
        table.node.broadcast_in_order(b"y")
    table.drain()
    sent = {read_message(body.d): body.id for body in table.bodies(MessageData, P)}
    for message, id in sent.items():
        kind = b"1" if isinstance(message, OneToOne) else b"b"
        assert isinstance(message, OneToOne | Broadcast)
        question = Missing(kind, message.sequence)
        assert not acknowledges(table, question)  # it is under way
        table.tell(P, MessageAck(ME, P, id))
        assert acknowledges(table, question)
        assert table.node.peers()[P].state is PeerState.JOINED  # it may be an old question
        following = Missing(kind, message.sequence + 1)
        assert not acknowledges(table, following)


def test_what_was_lost_or_waits_for_the_window_is_still_to_come() -> None:
    table, start = joined(limits=LIMITS)
    for _ in range(3 * LIMITS.window_max):
        table.node.send_in_order(P, b"x")
    table.drain()
    table.wait(3.0, alive=(P,))
    for number in range(1, 3 * LIMITS.window_max + 1):
        assert not acknowledges(table, Missing(b"1", start.one + number))


def test_what_is_left_out_is_said_by_the_message_that_tells_so() -> None:
    """A broadcast for which its queue has no room is skipped: it is reported, and is no loss."""
    table, start = joined()
    table.join(Q)
    while table.node.peers()[P].queued < Limits().queue_max:
        table.node.send_in_order(P, b"x")
    table.wait(4.0, alive=(P, Q))  # it does not answer
    table.node.broadcast_in_order(b"without it")
    table.drain()
    assert not acknowledges(table, Missing(b"b", start.broadcast + 1))


@pytest.mark.parametrize("state", ["synchronizing", "unknown"])
def test_nobody_answers_for_an_association_that_there_is_not(state: str) -> None:
    table = Table()
    if state == "synchronizing":
        table.tell_message(P, Synchronize(7, 5))
    assert not acknowledges(table, Missing(b"1", 2**62))


# -- both sides ----------------------------------------------------------------------------


class Forger:
    """Acknowledges in the receiver's name messages that never arrive there."""

    def __init__(self, kind: bytes, *, seed: int = 1) -> None:
        self.network = network = Network(
            seed=seed, conditions=Conditions(delay_min=0.001, delay_max=0.01)
        )
        self.kind = kind
        self.active = False
        self.forged = 0
        self._send = network.send
        network.send = self._pass  # type: ignore[method-assign]
        self.cluster = joining(network, (P, Q, b"R"), limits=LIMITS, timing=TIMING)
        network.run(5.0)
        for host in self.cluster:
            host.events.clear()

    def _pass(self, source: object, destination: object, payload: bytes) -> None:
        body = decode_parcel(payload).body
        if (
            self.active
            and isinstance(body, MessageData)
            and (body.fr, body.to) == (P, Q)
            and isinstance(read_message(body.d), KINDS[self.kind])
            and body.id is not None
        ):
            self.forged += 1
            ack = encode_parcel(Parcel(body=MessageAck(P, Q, body.id)))
            self.network.timetable.after(0.01, partial(self._send, Q, P, ack))
            return
        self._send(source, destination, payload)  # type: ignore[arg-type]

    def say(self, data: bytes) -> None:
        if self.kind == b"1":
            self.cluster[P].call("send_in_order", to=Q, data=data)
        else:
            self.cluster[P].call("broadcast_in_order", data=data)

    def told(self, sid: bytes, *kinds: type[object]) -> list[object]:
        return [event for _, event in self.cluster[sid].events if isinstance(event, kinds)]


@each_kind
@pytest.mark.parametrize("forged", [1, 3, 2 * LIMITS.window_max])
def test_a_forged_acknowledgement_stops_a_stream_for_seconds_only(kind: bytes, forged: int) -> None:
    """Both users learn of a loss, and messages from then on arrive."""
    forger = Forger(kind)
    network = forger.network
    with network:
        forger.active = True
        for number in range(forged):
            forger.say(b"lost %d" % number)
            network.run(network.clock.now + 0.1)
        forger.active = False
        forger.say(b"waits")
        begin = network.clock.now
        assert network.run(
            begin + 20.0,
            done=lambda: all(forger.told(sid, PeerLeft) for sid in (P, Q)),
        )
        assert forger.told(Q, PeerLeft) == [PeerLeft(peer=P, reason=LeaveReason.OUT_OF_STEP)]
        assert forger.told(P, PeerLeft) == [PeerLeft(peer=Q, reason=LeaveReason.RESTARTED)]
        assert network.run(
            begin + 25.0, done=lambda: all(forger.told(sid, PeerJoined) for sid in (P, Q))
        )
        forger.say(b"after")
        network.run(network.clock.now + 3.0)
    got = MessageReceived(peer=P, data=b"after", delivery=DELIVERIES[kind])
    assert forger.told(Q, MessageReceived)[-1] == got
    assert len(forger.told(P, Delivered)) >= forged
    if kind == b"b":  # no other node notices anything
        assert len(forger.told(b"R", MessageReceived)) == forged + 2
    assert not forger.told(b"R", PeerLeft, PeerForgotten)
