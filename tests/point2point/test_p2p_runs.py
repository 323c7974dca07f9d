"""A connection in runs gives the events of one piece by piece, whatever happens to it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from p2p_snapshots import request_as_it_is
from p2p_support import (
    FORK,
    LOG,
    Raw,
    adjust,
    beyond_the_end,
    cancel,
    drain,
    ended_log,
    metadata,
    proposal,
    raw,
    switch,
    varu64,
    write,
)
from runs_support import (
    Conversation,
    assert_alike,
    converse,
    expanded,
    make_log,
    replay,
)

from culm.bamboo.links import open_targets
from culm.bamboo.records import NewEntry
from culm.point2point import (
    EVERYTHING,
    CancelReason,
    Connection,
    EntriesReceived,
    ErrorCode,
    Limits,
    MetadataReceived,
    Part,
    PayloadReceived,
    RequestState,
    Role,
    Setup,
)
from culm.testing.link import byte_by_byte, random_chunks, whole
from culm.wire.multihash import YAMF, YASMF

families = st.sampled_from([YAMF, YASMF])
SETUPS = [
    Setup(),
    Setup(send_window_max=0, receive_window_max=0),
    Setup(send_window_max=100, receive_window_max=1 << 14),
]


@st.composite
def conversations(draw: st.DrawFn, *, steps: int = 25) -> Conversation:
    family = draw(families)
    length, ended = draw(st.sampled_from([(45, False), (45, False), (16, True)]))
    packet_size_max = draw(st.sampled_from([1 << 18, 1 << 18, 1000, 100]))
    kept = Conversation(
        draw(st.sampled_from(Role)),
        draw(st.sampled_from(SETUPS)),
        Limits(
            packet_size_max=packet_size_max, data_window_max=draw(st.sampled_from([1 << 20, 5000]))
        ),
        family,
        make_log(family, length, ended=ended),
        trusted=draw(st.booleans()),
    )
    seed = draw(st.integers(0, 1 << 32))
    return converse(seed, kept, draw(st.sampled_from(SETUPS)), steps=steps)


@settings(max_examples=settings.default.max_examples * 2)  # type: ignore[union-attr]
@given(conversations(), st.integers(0, 1 << 32))
def test_in_runs_is_piece_by_piece(kept: Conversation, seed: int) -> None:
    plain = replay(kept, in_runs=False, chunker=whole)
    assert plain.code is None
    assert_alike(plain, replay(kept, in_runs=True, chunker=whole))
    assert_alike(plain, replay(kept, in_runs=True, chunker=random_chunks(Random(seed))))


@settings(max_examples=max(5, settings.default.max_examples // 10))  # type: ignore[union-attr]
@given(conversations(steps=6))
def test_in_runs_is_piece_by_piece_byte_by_byte(kept: Conversation) -> None:
    plain = replay(kept, in_runs=False, chunker=whole)
    assert_alike(plain, replay(kept, in_runs=True, chunker=byte_by_byte))


def mutate(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 2)):
        if not changed:
            break
        at = chance.randrange(len(changed))
        match chance.randrange(5):
            case 0 | 1:
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                changed[at] = chance.choice([0, 2, 8, 9, 128, 129, 248, 255])
            case 3:
                del changed[at]
            case _:
                changed[at:at] = changed[at : at + chance.randint(1, 200)]
    return bytes(changed)


@pytest.mark.once
@settings(max_examples=settings.default.max_examples * 2)  # type: ignore[union-attr]
@given(conversations(), st.integers(0, 1 << 32))
def test_in_runs_is_piece_by_piece_with_bytes_changed(kept: Conversation, seed: int) -> None:
    chance = Random(seed)
    steps = list(kept.steps)
    received = [n for n, (_, verb, _, _) in enumerate(steps) if verb == "receive_data"]
    for _ in range(5):
        at = chance.choice(received)
        wrong = mutate(steps[at][2][0], chance)
        kept.steps = [*steps[:at], (None, "receive_data", (wrong,), {}), *steps[at + 1 :]]
        plain = replay(kept, in_runs=False, chunker=whole)
        assert_alike(plain, replay(kept, in_runs=True, chunker=whole))
        assert_alike(plain, replay(kept, in_runs=True, chunker=random_chunks(chance)))


def test_the_conversations_are_about_runs() -> None:
    """Otherwise the tests above would prove nothing."""
    told = {True: 0, False: 0}
    in_events = 0
    for seed in range(30):
        for family in (YAMF, YASMF):
            log, trusted = make_log(family), bool(seed % 3)
            kept = Conversation(Role(seed % 2), Setup(), Limits(), family, log, trusted)
            converse(seed, kept, Setup())
            for event in replay(kept, in_runs=True, chunker=whole).events:
                entries = isinstance(event, EntriesReceived)
                in_events += len(event.entries) if isinstance(event, EntriesReceived) else 0
                told[entries] += 1
    assert told[True] > 20
    assert told[False] > 200
    assert in_events > 200


# Faults


def packets(new: NewEntry, body: bytes | None = None) -> bytes:
    """Both packets of an entry, by hand; the payload compressed, if `body` says how."""
    payload = new.payload or b""
    size = varu64(len(payload))
    if body is None:
        return metadata(new.entry, backlink=False) + b"\x08" + size + payload
    return metadata(new.entry, backlink=False) + b"\x09" + size + varu64(len(body)) + body


def literal(data: bytes) -> bytes:
    assert len(data) < 120
    return bytes([len(data)]) + data if data else b""


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def raw_run(count: int) -> list[bytes]:
    return [packets(LOG[n]) for n in range(1, count + 1)]


def packed_run(count: int) -> list[bytes]:
    return [packets(LOG[n], literal(LOG[n].payload or b"")) for n in range(1, count + 1)]


def bad_signature(new: NewEntry, whole: bytes) -> bytes:
    return whole.replace(new.entry.signature, flipped(new.entry.signature, 40))


def bad_payload_hash(new: NewEntry, whole: bytes) -> bytes:
    return whole.replace(new.entry.payload_hash, flipped(new.entry.payload_hash, 40))


def bad_payload(new: NewEntry, whole: bytes) -> bytes:
    return flipped(whole, len(whole) - 1)


def copy_from_before(new: NewEntry, whole: bytes) -> bytes:
    return packets(new, bytes([128 + (new.entry.payload_size) % 120]) + varu64(60_000))


def too_little(new: NewEntry, whole: bytes) -> bytes:
    return packets(new, literal((new.payload or b"")[1:]))


def too_much(new: NewEntry, whole: bytes) -> bytes:
    return packets(new, literal(new.payload or b"") + b"\x01x")


def element_cut_short(new: NewEntry, whole: bytes) -> bytes:
    return packets(new, literal(new.payload or b"")[:-1])


IN_CLEAR = [bad_signature, bad_payload_hash, bad_payload]
IN_COMPRESSION = [*IN_CLEAR, copy_from_before, too_little, too_much, element_cut_short]
FAULTS = [(raw_run, fault) for fault in IN_CLEAR] + [(packed_run, f) for f in IN_COMPRESSION]


@pytest.mark.parametrize(("make", "fault"), FAULTS)
@pytest.mark.parametrize("place", range(2, 12))
@pytest.mark.parametrize("pause", [False, True])
def test_what_comes_before_a_fault_is_told_and_nothing_else(
    make: Callable[[int], list[bytes]],
    fault: Callable[[NewEntry, bytes], bytes],
    place: int,
    pause: bool,
) -> None:
    run = make(13)
    run[place - 1] = fault(LOG[place], run[place - 1])
    verdicts = []
    for in_runs in (True, False):
        peer = Raw(in_runs=in_runs)
        peer.connection.propose(proposal())
        peer.control(adjust(0, "all"))
        peer.data(switch(0))
        if pause:
            peer.data(*run[: place - 1])
            peer.data(*run[place - 1 :])
        else:
            peer.data(*run)
        told = [event for event in expanded(peer.events) if isinstance(event, PayloadReceived)]
        finished = [event.seqnum for event in told if event.finished]
        # Piece by piece, the excess is noticed after a correct payload.
        seen_behind = fault is too_much and not in_runs
        assert finished == list(range(1, place + seen_behind))
        assert all(event.verified for event in told if event.finished)
        seen = [event.entry.seqnum for event in peer.events if isinstance(event, MetadataReceived)]
        assert max(seen, default=0) <= place
        if in_runs:
            entries = [event for event in peer.events if isinstance(event, EntriesReceived)]
            assert [new for event in entries for new in event.entries] == [
                LOG[n] for n in range(1, place)
            ]
        verdicts.append(peer.code)
    assert verdicts[0] is verdicts[1]
    assert verdicts[0] in (ErrorCode.INVALID_DATA, ErrorCode.BAD_COMPRESSION)


@pytest.mark.parametrize("in_runs", [True, False])
def test_nothing_comes_behind_the_end_of_a_log(in_runs: bool) -> None:
    log = ended_log(5)
    peer = Raw(in_runs=in_runs)
    peer.connection.propose(proposal(log=log[1].entry.log))
    peer.control(adjust(0, "all"))
    whole = [*log.values(), *beyond_the_end(5)]
    peer.data(switch(0), *map(packets, whole))
    told = [event for event in expanded(peer.events) if isinstance(event, MetadataReceived)]
    assert [event.entry for event in told] == [new.entry for new in log.values()]
    assert peer.code is ErrorCode.AFTER_END_OF_LOG


def in_runs_received(peer: Raw) -> list[int]:
    """The entries received many at a time."""
    events = [event for event in peer.events if isinstance(event, EntriesReceived)]
    return [new.entry.seqnum for event in events for new in event.entries]


def test_payloads_in_a_run_are_no_larger_than_pieces_are() -> None:
    """However the packets lie in the pieces that the multiplexer gives."""
    in_runs: set[int] = set()
    for shift in range(40):
        peer = Raw(in_runs=True, limits=Limits(packet_size_max=35))
        peer.connection.propose(proposal())
        peer.control(adjust(0, "all"))
        peer.data(switch(0) * (1 + shift), *raw_run(10))
        in_runs |= set(in_runs_received(peer))
        told = [event for event in expanded(peer.events) if isinstance(event, PayloadReceived)]
        assert [event.seqnum for event in told if event.verified] == list(range(1, 11))
    assert in_runs == {1, 2, 3, 4, 5, 6}


def test_what_the_peer_has_sent_counts_for_more_than_what_we_know() -> None:
    peer = Raw(in_runs=True)
    request = peer.connection.propose(proposal())
    peer.control(adjust(0, "all"))
    peer.data(switch(0), *raw_run(3))
    request.provide_hash(3, FORK[3].entry.hash())
    peer.data(*raw_run(13)[3:])
    assert in_runs_received(peer) == list(range(1, 14))


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_was_sent_before_the_peer_cancelled_comes_in_runs_too(confirmed: bool) -> None:
    """The sender of a whole log on the data channel cancels, and the cancel arrives first.

    Likewise, data may arrive before a confirmation that was sent earlier.
    """
    peer = Raw(in_runs=True)
    request = peer.connection.propose(proposal())
    if confirmed:
        peer.control(adjust(0, "all"), cancel(0, CancelReason.END_OF_RANGE))
    peer.data(switch(0), *raw_run(13))
    assert request.state is (RequestState.CANCELLED if confirmed else RequestState.PROPOSED_BY_US)
    assert in_runs_received(peer) == list(range(1, 14))
    assert peer.code is None


def stop(peer: Raw, how: str) -> None:
    """The call of a user that wants nothing more of the request."""
    if how == "cancel":
        peer.connection.request(0).cancel(CancelReason.RESOURCE_LIMIT)
    elif how == "pass over":
        peer.connection.request(0).pass_over()
    else:
        peer.connection.close()


@pytest.mark.parametrize("how", ["cancel", "pass over", "close"])
def test_nothing_is_told_of_what_is_passed_over(how: str) -> None:
    peer = Raw(in_runs=True)
    peer.connection.propose(proposal())
    peer.control(adjust(0, "all"))
    peer.data(switch(0), *raw_run(4))
    stop(peer, how)
    peer.data(*raw_run(8)[4:])
    assert in_runs_received(peer) == [1, 2, 3, 4]
    assert peer.code is None


@pytest.mark.parametrize("how", ["cancel", "pass over", "close"])
@pytest.mark.parametrize(("make", "fault"), FAULTS)
def test_a_fault_in_what_is_passed_over_is_none(
    make: Callable[[int], list[bytes]],
    fault: Callable[[NewEntry, bytes], bytes],
    how: str,
) -> None:
    """Unless it is one of compression, whose history belongs to all later requests."""
    run = make(8)
    run[4] = fault(LOG[5], run[4])
    behind = switch(2) + metadata(LOG[20].entry) + raw(LOG[20].payload or b"")
    data = write(1, switch(0) + b"".join(run) + behind)
    codes = []
    for in_runs in (True, False):
        peer = Raw(in_runs=in_runs)
        peer.connection.propose(proposal(end=19))
        peer.connection.propose(proposal(20))
        peer.control(adjust(0, "all"), adjust(2, "all"))
        peer.connection.receive_data(data)
        while (event := peer.connection.next_event()) is not None:
            peer.events.append(event)
            last = expanded([event])[-1]
            if isinstance(last, PayloadReceived) and last.finished and last.seqnum == 4:
                stop(peer, how)
        codes.append(peer.code)
        told = [event for event in expanded(peer.events) if isinstance(event, MetadataReceived)]
        goes_on = how != "close" and peer.code is None
        assert [event.entry.seqnum for event in told] == [1, 2, 3, 4, *[20] * goes_on]
    assert codes[0] is codes[1]
    assert codes[0] in (None, ErrorCode.BAD_COMPRESSION)
    assert (codes[0] is None) == (fault in IN_CLEAR or how == "close")


def test_links_out_of_reach_are_forgotten_in_runs_too() -> None:
    log = make_log(YASMF, 400)
    requests = []
    for in_runs in (True, False):
        pair = [
            Connection(role=role, family=YASMF, in_runs=in_runs and role is Role.PROACTIVE)
            for role in Role
        ]
        left = pair[Role.PROACTIVE]
        right = pair[Role.REACTIVE]

        def pump(left: Connection = left, right: Connection = right) -> None:
            while (up := left.data_to_send()) + (down := right.data_to_send()):
                right.receive_data(up)
                left.receive_data(down)
                drain(right, log)
                drain(left, log)

        pump()
        request = left.propose(proposal(entries=log))
        pump()
        theirs = right.request(0)
        theirs.confirm(EVERYTHING)
        for seqnum in range(1, 401):
            theirs.send_metadata(log[seqnum].entry)
            theirs.send_payload(log[seqnum].payload or b"")
        pump()
        assert request.receive_cursor.piece == (401, Part.METADATA)
        requests.append(request)
    for request in requests:
        links = request_as_it_is(request).incoming.links
        assert len(links) <= 129
        for target in open_targets(400):
            assert links[target] == log[target].entry.hash()
