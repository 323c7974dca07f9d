"""The purpose of the protocol, and the duties of both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from p2p_rules import BOOK, invariants
from p2p_support import (
    GREEDY,
    Pair,
    Raw,
    entry,
    payload,
    refuses,
    send_entry,
    write,
)

from culm.point2point import (
    Closed,
    ErrorCode,
    Limits,
    MetadataReceived,
    PayloadReceived,
    PayloadSkipped,
    Request,
    SkipReason,
)


def payloads(pair: Pair, side: str = "left") -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for event in pair.of(PayloadReceived, side):
        found[event.seqnum] = found.get(event.seqnum, b"") + event.data
    return found


def test_both_relay_into_the_same_request() -> None:
    pair = Pair()
    ours, theirs = pair.confirmed()
    for seqnum in range(1, 9):
        sender, other = (theirs, ours) if seqnum in (1, 4, 5, 8) else (ours, theirs)
        behind = sender.send_cursor.is_behind(sender.receive_cursor)
        if behind:
            sender.notify(behind)
        send_entry(sender, seqnum)
        pair.pump()
        assert other.receive_cursor.piece == (seqnum + 1, 0)
    assert set(payloads(pair, "left")) == {1, 4, 5, 8}
    assert set(payloads(pair, "right")) == {2, 3, 6, 7}
    assert all(event.verified for event in pair.of(MetadataReceived))


def test_random_access() -> None:
    pair = Pair()
    for seqnum in (40, 3, 17):
        _, theirs = pair.confirmed(start=seqnum, end=seqnum)
        send_entry(theirs, seqnum)
    pair.pump()
    assert payloads(pair) == {n: payload(n) for n in (40, 3, 17)}


def test_what_was_skipped_comes_in_a_request_of_its_own() -> None:
    pair = Pair()
    _, theirs = pair.confirmed()
    theirs.send_metadata(entry(1))
    theirs.send_payload(b"")
    theirs.send_metadata(entry(2))
    theirs.skip_payload(SkipReason.UNAVAILABLE)
    theirs.send_metadata(entry(3))
    code = ErrorCode.PIECE_OUT_OF_TURN
    for late in (
        lambda: theirs.send_payload(payload(2), entry=entry(2)),
        lambda: theirs.send_metadata(entry(2)),
    ):
        refuses(pair.right, code, late)
    _, again = pair.confirmed(start=2, end=2, payload_only=True)
    again.send_payload(payload(2), entry=entry(2))
    pair.pump()
    assert payloads(pair)[2] == payload(2)
    assert [event.seqnum for event in pair.of(PayloadSkipped)] == [2]
    assert not pair.of(Closed)


# Kinds of packets of bymux
CLOSE, STOP_READ = 4, 5

GOING_ON: list[tuple[str, Callable[[Request], object]]] = [
    ("metadata", lambda request: request.send_metadata(entry(3))),
    ("payload", lambda request: request.send_payload(payload(2), entry=entry(2))),
    ("notification", lambda request: request.notify()),
    ("skip", lambda request: request.skip_payload(SkipReason.UNAVAILABLE)),
    ("jump", lambda request: request.jump(1, entry=entry(2))),
]


@pytest.mark.parametrize(("name", "going_on"), GOING_ON, ids=[name for name, _ in GOING_ON])
def test_who_has_sent_a_wrong_payload_does_nothing_but_apologize(
    name: str, going_on: Callable[[Request], object]
) -> None:
    pair = Pair(GREEDY, GREEDY)
    _, theirs = pair.confirmed(start=2)
    theirs.send_metadata(entry(2))
    theirs.send_payload(payload(2)[:3])
    theirs.send_payload(bytes(4))
    refuses(pair.right, ErrorCode.APOLOGY_OWED, lambda: going_on(theirs))
    theirs.apologize()
    theirs.send_payload(payload(2))
    pair.pump()
    assert pair.of(PayloadReceived, "left")[-1].verified, name


@pytest.mark.parametrize("kind", ["create", "write elsewhere", "close", "stop reading"])
def test_there_are_two_streams_and_no_others(kind: str) -> None:
    """No endpoint creates one, or announces again that it will create none."""
    peer = Raw()
    globally = 0x10
    packet = {
        "create": bytes([1 << 5 | globally, 1]) + b"x",
        "write elsewhere": write(2, b"\x00\x01"),
        "close": bytes([CLOSE << 5 | globally]),
        "stop reading": bytes([STOP_READ << 5 | globally]),
    }[kind]
    peer.receive(packet)
    assert peer.code is ErrorCode.MUX_VIOLATION
    # Nor do we with our last words: they are about the two.
    other = Raw().connection
    other.data_to_send()
    other.close()
    said = [(CLOSE << 5, 0), (STOP_READ << 5, 0), (CLOSE << 5, 1), (STOP_READ << 5, 1)]
    assert other.data_to_send() == bytes(byte for packet in said for byte in packet)


def test_each_invariant_has_a_test_that_names_it() -> None:
    """Each of these tests has both halves: see the table in docs/point2point.md."""
    assert [len(invariants(channel)) for channel in ("control", "data")] == [14, 15]
    tests = BOOK.proofs()
    for rule in (*invariants("control"), *invariants("data")):
        assert len(tests[rule.key]) == 1


def test_events_come_in_the_order_of_their_causes() -> None:
    pair = Pair(limits=(Limits(packet_size_max=64), None))
    ours, theirs = pair.confirmed(start=2, end=3)
    send_entry(theirs, 2)
    send_entry(theirs, 3)
    pair.pump()
    kinds = [type(event).__name__ for event in pair.events["left"]]
    assert kinds[-4:] == ["MetadataReceived", "PayloadReceived"] * 2
    assert ours.receive_cursor.piece is None
