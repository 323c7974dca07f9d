"""Messages and packets as bytes: worked by hand, round trips, truncated, not canonical."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from p2p_support import (
    FORK,
    KEY,
    LOG_LENGTH,
    Pair,
    Raw,
    adjust,
    cancel,
    ended_log,
    entry,
    grant,
    link,
    metadata,
    payload,
    proposal,
    propose,
    raw,
    switch,
    varu64,
)

from culm.bamboo.entry import LogKey, sign
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink
from culm.bymux.packets import PacketType as MuxPacketType
from culm.bymux.packets import encode as encode_packet
from culm.capture.dissect import dissect
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    ErrorCode,
    MetadataReceived,
    Notified,
    PayloadReceived,
    PayloadSkipped,
    Proposal,
    Setup,
    SkipReason,
    payloads_up_to,
)
from culm.point2point.codec import (
    NUMBERS,
    PacketType,
    decode_control,
    decode_metadata,
    encode_control,
    encode_setup,
    message_size_max,
    metadata_size_max,
)
from culm.point2point.errors import Violation
from culm.point2point.messages import ControlMessage, GrantCredit, Propose
from culm.wire.errors import Truncated
from culm.wire.multihash import YAMF, YASMF, HashFamily

NUMBER = st.integers(0, 2**64 - 1) | st.sampled_from([0, 247, 248, 255, 256, 2**64 - 1])
SEQNUM = st.integers(1, 2**64 - 1)
HASH = YAMF.hash(b"somewhere")
EAGERNESS = st.sampled_from([NOTIFY, EVERYTHING]) | st.builds(payloads_up_to, NUMBER)


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    finite, inside = draw(st.booleans()), draw(st.booleans())
    lower = None if inside else draw(SEQNUM)
    return Proposal(
        log=LogKey(draw(st.binary(min_size=32, max_size=32)), draw(NUMBER)),
        start=draw(SEQNUM),
        lower_certpool=lower,
        expected_hash=None if lower == 1 else HASH,
        eagerness=draw(EAGERNESS),
        end=draw(SEQNUM) if finite else None,
        upper_certpool=draw(SEQNUM) if finite else None,
        start_offset=draw(NUMBER) if inside else None,
        payload_only=draw(st.booleans()),
        sparse=draw(st.booleans()),
        payload_mandatory=draw(st.booleans()),
        size_min=draw(NUMBER),
        size_max=draw(NUMBER),
    )


@st.composite
def adjustments(draw: st.DrawFn) -> Adjust:
    made = Adjust(
        request_id=draw(NUMBER),
        eagerness=draw(st.none() | EAGERNESS),
        allow_skipping=draw(st.booleans()),
        end=draw(st.none() | NUMBER),
        upper_certpool=draw(st.none() | NUMBER),
        size_min=draw(st.none() | NUMBER),
        size_max=draw(st.none() | NUMBER),
    )
    is_nothing = made == Adjust(request_id=made.request_id)
    return replace(made, allow_skipping=True) if is_nothing else made


@st.composite
def cancels(draw: st.DrawFn) -> Cancel:
    reason = draw(st.sampled_from(CancelReason))
    seqnum = draw(st.integers(1, LOG_LENGTH))
    extra: dict[str, Any] = {
        CancelReason.HASH_MISMATCH: {"entry": entry(seqnum)},
        CancelReason.END_OF_LOG: {"seqnum": draw(NUMBER)},
        CancelReason.FORK: {"proof": ForkProof(entry(seqnum), FORK[seqnum].entry)},
    }.get(reason, {})
    return Cancel(request_id=draw(NUMBER), reason=reason, **extra)


MESSAGES = (
    st.builds(GrantCredit, amount=NUMBER)
    | adjustments()
    | cancels()
    | st.builds(Propose, request_id=NUMBER, proposal=proposals())
)


@given(MESSAGES, st.binary(max_size=9), st.binary(max_size=9))
def test_control_messages_come_back(message: Any, before: bytes, after: bytes) -> None:
    encoded = encode_control(message)
    assert len(encoded) <= message_size_max(YAMF)
    decoded = decode_control(before + encoded + after, len(before), family=YAMF)
    assert decoded == (message, len(before) + len(encoded))


@given(MESSAGES, st.data())
def test_a_control_message_cut_short_is_not_wrong(message: Any, data: st.DataObject) -> None:
    encoded = encode_control(message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(Truncated):
        decode_control(encoded[:cut], family=YAMF)


@given(st.binary(max_size=300), st.integers(0, 255))
def test_any_bytes_decode_or_are_refused(data: bytes, first: int) -> None:
    try:
        message, end = decode_control(bytes([first]) + data, family=YAMF)
    except (Truncated, Violation):
        return
    assert end <= len(data) + 1
    assert decode_control(encode_control(message), family=YAMF)[0] == message


@given(NUMBER, NUMBER, st.integers(1, 8))
def test_control_numbers_need_not_be_canonical(one: int, two: int, width: int) -> None:
    message = bytes([0b1000]) + varu64(one, width=width) + varu64(two, width=8)
    assert decode_control(message, family=YAMF)[0] == Adjust(request_id=one, end=two)
    message = b"\x00" + varu64(one, width=width)
    assert decode_control(message, family=YAMF)[0] == GrantCredit(amount=one)
    message = bytes([134]) + varu64(one, width=width) + varu64(two, width=8)
    assert decode_control(message, family=YAMF)[0] == Cancel(
        request_id=one, reason=CancelReason.END_OF_LOG, seqnum=two
    )


def check(message: Any, encoded: bytes) -> None:
    assert encode_control(message) == encoded
    assert decode_control(encoded, family=YAMF) == (message, len(encoded))


def test_credit_by_hand() -> None:
    check(GrantCredit(amount=5), bytes.fromhex("00 05"))
    check(GrantCredit(amount=256), bytes.fromhex("00 f90100"))
    check(GrantCredit(amount=2**64 - 1), bytes.fromhex("00 ffffffffffffffffff"))


@pytest.mark.parametrize("flags", range(1, 128))
def test_adjustments_by_hand(flags: int) -> None:
    kind = flags >> 5
    numbers = {"end": 8, "upper_certpool": 4, "size_min": 2, "size_max": 1}
    values = {"end": 248, "upper_certpool": 2, "size_min": 3, "size_max": 65536}
    encodings = {"end": "f8f8", "upper_certpool": "02", "size_min": "03", "size_max": "fa010000"}
    chosen = [name for name, bit in numbers.items() if flags & bit]
    expected = bytes.fromhex(
        f"{flags:02x} 07" + ("f90400" if kind == 2 else "") + "".join(encodings[n] for n in chosen)
    )
    message = Adjust(
        request_id=7,
        eagerness=[None, NOTIFY, payloads_up_to(1024), EVERYTHING][kind],
        allow_skipping=bool(flags & 16),
        **{name: values[name] for name in chosen},
    )
    check(message, expected)


@pytest.mark.parametrize("first", range(160, 256))
def test_requests_by_hand(first: int) -> None:
    kind, inside, finite = first >> 5 & 3, first & 8, first & 16
    message = Propose(
        request_id=300,
        proposal=Proposal(
            log=LogKey(bytes(range(32)), 9),
            start=5,
            lower_certpool=None if inside else 4,
            expected_hash=link(5 if inside else 1),
            eagerness=[NOTIFY, NOTIFY, payloads_up_to(1024), EVERYTHING][kind],
            end=8 if finite else None,
            upper_certpool=13 if finite else None,
            start_offset=255 if inside else None,
            payload_only=bool(first & 4),
            sparse=bool(first & 2),
            payload_mandatory=bool(first & 1),
            size_min=1,
            size_max=2**64 - 1,
        ),
    )
    expected = (
        bytes([first])
        + bytes.fromhex("f9012c")
        + bytes(range(32))
        + bytes.fromhex("09 05" + ("" if inside else "04") + "01 ffffffffffffffffff")
        + b"\x00\x40"
        + link(5 if inside else 1)[2:]
        + bytes.fromhex(("f90400" if kind == 2 else "") + ("080d" if finite else ""))
        + bytes.fromhex("f8ff" if inside else "")
    )
    check(message, expected)


def test_a_request_from_the_first_entry_has_no_hash() -> None:
    message = Propose(request_id=0, proposal=proposal())
    expected = bytes.fromhex("e0 00" + KEY.author.hex() + "00 01 01 00 ffffffffffffffffff")
    check(message, expected)
    assert propose(0) == expected


@pytest.mark.parametrize("first", range(128, 161))
def test_160_is_a_request_and_136_to_159_are_nothing(first: int) -> None:
    """Decision 10."""
    if 136 <= first < 160:
        with pytest.raises(Violation) as caught:
            decode_control(bytes([first]) + bytes(500), family=YAMF)
        assert caught.value.code is ErrorCode.UNUSED_CONTROL_BYTE
    elif first == 160:
        assert decode_control(propose(3, eager="notify"), family=YAMF)[0].request_id == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reason", "first"),
    [("DO_NOT_RETRY", 128), ("RESOURCE_LIMIT", 129), ("END_OF_RANGE", 130), ("CONFIRM", 131),
     ("PAYLOAD_MISSING", 132)],
)  # fmt: skip
def test_cancels_by_hand(reason: str, first: int) -> None:
    check(Cancel(request_id=248, reason=CancelReason[reason]), bytes([first, 0xF8, 0xF8]))


def test_cancels_with_proofs_by_hand() -> None:
    """Decisions 9 and 13."""
    one, two = sorted((entry(3).encode(), FORK[3].entry.encode()))
    check(
        Cancel(request_id=2, reason=CancelReason.HASH_MISMATCH, entry=entry(3)),
        b"\x85\x02" + entry(3).encode(),
    )
    check(
        Cancel(request_id=2, reason=CancelReason.END_OF_LOG, seqnum=300),
        bytes.fromhex("86 02 f9012c"),
    )
    proof = ForkProof(entry(3), FORK[3].entry)
    check(Cancel(request_id=2, reason=CancelReason.FORK, proof=proof), b"\x87\x02" + one + two)
    swapped = b"\x87\x02" + two + one
    assert decode_control(swapped, family=YAMF)[0] == Cancel(
        request_id=2, reason=CancelReason.FORK, proof=proof
    )


@pytest.mark.parametrize(
    "extra", [b"\x07" * 300, entry(3).encode() + entry(4).encode(), 2 * entry(3).encode()]
)
def test_what_cannot_be_a_proof(extra: bytes) -> None:
    with pytest.raises(Violation) as caught:
        decode_control(b"\x87\x02" + extra, family=YAMF)
    assert caught.value.code is ErrorCode.BOGUS_PROOF


@pytest.mark.parametrize("family", [YAMF, YASMF])
def test_the_largest_message_is_a_fork_of_the_largest_entries(family: HashFamily) -> None:
    """No message is larger, so one of this size is never waited for in vain."""
    largest = 2**64 - 1
    seqnum = next(n for n in range(largest, 0, -1) if has_lipmaalink(n))
    hash = family.hash(b"")
    one, other = (
        sign(
            SigningKey(b"\7" * 32),
            family=family,
            log_id=largest,
            seqnum=seqnum,
            payload_size=largest,
            payload_hash=family.hash(payload),
            backlink=hash,
            lipmaalink=hash,
        )
        for payload in (b"", b"x")
    )
    message = Cancel(request_id=largest, reason=CancelReason.FORK, proof=ForkProof(one, other))
    encoded = encode_control(message)
    assert len(encoded) == message_size_max(family)
    assert decode_control(encoded, family=family) == (message, len(encoded))


def test_hashes_are_of_the_family() -> None:
    with pytest.raises(Violation) as caught:
        decode_control(propose(1, 5, hash=YASMF.hash(b"")), family=YAMF)
    assert caught.value.code is ErrorCode.BAD_HASH


# Metadata


@pytest.mark.parametrize("seqnum", range(1, LOG_LENGTH + 1))
def test_metadata_by_hand(seqnum: int) -> None:
    sent = entry(seqnum)
    for tag in (128, 129):
        for with_backlink in {False, has_lipmaalink(seqnum)}:
            packet = metadata(sent, backlink=with_backlink, tag=tag)
            assert len(packet) <= metadata_size_max(YAMF)
            found, size = decode_metadata(packet + b"behind", family=YAMF)
            assert size == len(packet)
            assert found.end_of_log == (tag == 129)
            assert found.backlink == (sent.backlink if with_backlink else None)
            assert sent.encode().endswith(found.tail)
            for cut in range(1, len(packet)):
                with pytest.raises(Truncated):
                    decode_metadata(packet[:cut], family=YAMF)


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("number", [0, 7, 247, 248, 65535])
def test_the_size_in_metadata_is_canonical(number: int, width: int) -> None:
    for before in (b"\x80", b"\x80" + HASH):
        packet = before + varu64(number, width=width) + HASH + bytes(64)
        if number >= 248 and width <= (number.bit_length() + 7) // 8:
            assert decode_metadata(packet, family=YAMF)[1] == len(packet)
        else:
            with pytest.raises(Violation) as caught:
                decode_metadata(packet, family=YAMF)
            assert caught.value.code is ErrorCode.NON_CANONICAL


@given(st.binary(max_size=250), st.booleans())
def test_any_metadata_decodes_or_is_refused(data: bytes, with_prefix: bool) -> None:
    packet = b"\x80" + (b"\x00\x40" if with_prefix else b"") + data
    try:
        found, size = decode_metadata(packet, family=YAMF)
    except (Truncated, Violation):
        return
    assert packet[1:size] == (found.backlink or b"") + found.tail


def test_the_end_of_a_log() -> None:
    log = ended_log(2)
    peer = Raw()
    request = peer.connection.propose(proposal(log=log[1].entry.log))
    peer.control(adjust(0, "all"))
    first, last = (log[n].entry for n in (1, 2))
    peer.data(switch(0), metadata(first), raw(b"\1"), metadata(last), raw(b"\2"))
    told = [event.entry for event in peer.events if isinstance(event, MetadataReceived)]
    assert told == [first, last]
    assert told[1].end_of_log
    peer.data(metadata(last))
    assert peer.code is ErrorCode.AFTER_END_OF_LOG
    assert request.proposal.start == 1


# Other packets, from the receiver's side


def test_packets_have_the_numbers_of_the_table() -> None:
    assert sorted(NUMBERS) == [0, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32]
    assert set(PacketType) == {*NUMBERS, 128, 129}
    assert [NUMBERS[first] for first in (0, 3, 7, 8, 9, 32)] == [1, 1, 1, 1, 2, 1]


@pytest.mark.parametrize("width", [0, 1, 4, 8])
@pytest.mark.parametrize("by_byte", [False, True])
def test_data_packets_by_hand(width: int, by_byte: bool) -> None:
    def number(value: int) -> bytes:
        return varu64(value, width=width)

    def told(start: int, packets: bytes, **options: Any) -> list[Any]:
        peer = Raw()
        peer.connection.propose(proposal(start, **options))
        peer.control(adjust(0, "all"))
        request = peer.connection.request(0)
        if packets[len(metadata(entry(start))) :][:1] == b"\x07":
            request.send_metadata(entry(start))
            request.send_payload(payload(start))
        stream = b"\0" + number(0) + packets
        for piece in [stream[n : n + 1] for n in range(len(stream))] if by_byte else [stream]:
            peer.data(piece)
        assert peer.code is None
        kinds = (Notified, PayloadSkipped, PayloadReceived)
        return [event for event in peer.events if isinstance(event, kinds)]

    [one] = told(5, b"\x02", eagerness=NOTIFY)
    assert (one.seqnum, one.part, one.count) == (5, 0, 1)
    [many] = told(5, b"\x03" + number(247), eagerness=NOTIFY)
    assert (many.seqnum, many.count) == (5, 247)
    for first, reason, options in (
        (4, SkipReason.TOO_SMALL, {"size_min": 8}),
        (5, SkipReason.TOO_LARGE, {"size_max": 6}),
        (6, SkipReason.UNAVAILABLE, {}),
    ):
        [skip] = told(2, metadata(entry(2)) + bytes([first]), **options)
        assert (skip.seqnum, skip.reason) == (2, reason)
    whole = told(2, metadata(entry(2)) + b"\x08" + number(7) + payload(2))
    assert b"".join(event.data for event in whole) == payload(2)
    assert whole[-1].verified
    packed = b"\x02\x01\x01" + b"\x85\x01"  # two literal bytes, five copied from one byte before
    whole = told(2, metadata(entry(2)) + b"\x09" + number(7) + number(len(packed)) + packed)
    assert b"".join(event.data for event in whole) == payload(2) == b"\x01" * 7
    assert whole[-1].verified
    [jump] = told(2, metadata(entry(2)) + b"\x07" + number(7))
    assert (jump.offset, jump.data, jump.finished, jump.verified) == (7, b"", True, None)


@given(st.lists(st.integers(1, 60), max_size=20), st.booleans())
def test_payloads_come_in_any_pieces(cuts: list[int], compress: bool) -> None:
    """However a payload is divided into packets, and these into bytes."""
    pair = Pair()
    _, theirs = pair.confirmed(start=40)
    theirs.send_metadata(entry(40))
    left = payload(40)
    while left:
        size = cuts.pop() if cuts else len(left)
        theirs.send_payload(left[:size], compress=compress)
        left = left[size:]
    pair.pump()
    events = pair.of(PayloadReceived, "left")
    assert b"".join(event.data for event in events) == payload(40)
    assert [event.verified for event in events] == [None] * (len(events) - 1) + [True]
    offset = 0
    for event in events:
        assert event.offset == offset
        offset += len(event.data)


def test_eagerness_is_ordered_by_what_it_asks_for() -> None:
    assert NOTIFY < payloads_up_to(0) < payloads_up_to(2**64 - 1) < EVERYTHING
    assert not NOTIFY.wants_metadata
    assert payloads_up_to(0).wants_metadata
    assert payloads_up_to(5).wants_payload(5)
    assert not payloads_up_to(5).wants_payload(6)
    assert EVERYTHING.wants_payload(2**64 - 1)
    assert not Eagerness(-1).wants_payload(0)


def test_cancels_by_the_hand_of_the_tests() -> None:
    assert cancel(2, 134, varu64(300)) == encode_control(
        Cancel(request_id=2, reason=CancelReason.END_OF_LOG, seqnum=300)
    )
    assert grant(3) == encode_control(GrantCredit(amount=3))


@given(MESSAGES)
def test_a_message_is_dissected_into_the_parts_that_it_was_made_of(message: ControlMessage) -> None:
    encoded = encode_control(message)
    data = encode_setup(Setup()) + encode_packet(MuxPacketType.WRITE, 0, len(encoded)) + encoded
    found = dissect("point2point", data)
    assert found.fault is None
    (control,) = found.fields[1].inside[-1].inside
    assert (control.size, control.inside[-1].offset + control.inside[-1].size) == (
        len(encoded),
        len(data),
    )
    proposal = getattr(message, "proposal", message)
    for field in control.inside:
        if not field.inside and hasattr(proposal, field.name) and isinstance(field.value, int):
            assert field.value == getattr(proposal, field.name)
