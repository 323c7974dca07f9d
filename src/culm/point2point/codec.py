"""Setups, messages of the control channel and packets of the data channel, as bytes.

Bits are counted from the most significant one (1st) to the least significant (8th).

Source: seed, "Running Bamboo-Point-2-Point Over Bymux" and "Encodings".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE, LogKey, decode_prefix
from culm.bamboo.forks import ForkProof
from culm.point2point import messages
from culm.point2point.errors import ErrorCode, Violation, decoding
from culm.point2point.messages import Adjust, Cancel, CancelReason, Mode, Proposal, Propose, Setup
from culm.wire import varu64
from culm.wire.errors import Truncated
from culm.wire.multihash import HashFamily

# Setups.

_SEND_GREEDILY = 0b10  # the seventh bit, counted from the most significant one
_RECEIVE_GREEDILY = 0b01


def encode_setup(setup: Setup) -> bytes:
    """Flags byte, send window, receive window."""
    flags = (_SEND_GREEDILY if setup.send_mode is Mode.GREEDY else 0) | (
        _RECEIVE_GREEDILY if setup.receive_mode is Mode.GREEDY else 0
    )
    windows = setup.send_window_max, setup.receive_window_max
    return bytes([flags]) + varu64.encode_many(windows)


def decode_setup(data: bytes) -> tuple[Setup, int]:
    """Decode a setup at the start of `data`; returns it and its size.

    The first six bits are ignored.  Raises `culm.wire.errors.Truncated`.
    """
    (send_window, receive_window), end = varu64.decode_many(data, 1, 2)
    setup = Setup(
        send_mode=Mode.GREEDY if data[0] & _SEND_GREEDILY else Mode.SAFE,
        receive_mode=Mode.GREEDY if data[0] & _RECEIVE_GREEDILY else Mode.SAFE,
        send_window_max=send_window,
        receive_window_max=receive_window,
    )
    return setup, end


# Messages of the control channel.

_GRANT_CREDIT = 0
_REQUEST = 0b1000_0000
EAGERNESS = 0b0110_0000
EAGERNESS_UP_TO = 0b0100_0000  # which appends a size
_EAGERNESSES: Final = {0: None, 0b0010_0000: messages.NOTIFY, 0b0110_0000: messages.EVERYTHING}
_EAGERNESS_FLAGS: Final = {eagerness: flags for flags, eagerness in _EAGERNESSES.items()}

_ADJUST_SKIPPING = 0b0001_0000
# Flags of an adjustment that append a number, in the order of the numbers.
ADJUST_NUMBERS = (
    (0b0000_1000, "end"),
    (0b0000_0100, "upper_certpool"),
    (0b0000_0010, "size_min"),
    (0b0000_0001, "size_max"),
)

REQUEST_FINITE = 0b0001_0000
REQUEST_OFFSET = 0b0000_1000
# Flags of a request that append nothing.
_REQUEST_FLAGS = (
    (0b0000_0100, "payload_only"),
    (0b0000_0010, "sparse"),
    (0b0000_0001, "payload_mandatory"),
)

_FIRST_CANCEL, _LAST_CANCEL = min(CancelReason), max(CancelReason)


def encode_control(message: messages.ControlMessage) -> bytes:
    """Encode a message that is well-formed.

    Raises `OverflowError` for a number that is not one of 64 bits, and `ValueError` for an
    author that is no public key.
    """
    match message:
        case messages.GrantCredit():
            return b"\0" + varu64.encode(message.amount)
        case Adjust():
            return _encode_adjust(message)
        case Cancel():
            return _encode_cancel(message)
        case Propose():
            return _encode_propose(message.request_id, message.proposal)


def decode_control(
    data: bytes, offset: int = 0, *, family: HashFamily
) -> tuple[messages.ControlMessage, int]:
    """Decode the message that starts at `offset`; returns it and the index after it.

    Raises `Truncated` if more bytes could complete it, `Violation` if none can.
    """
    if offset >= len(data):
        raise Truncated(offset)
    first = data[offset]
    if first == _GRANT_CREDIT:
        amount, end = varu64.decode(data, offset + 1)
        return messages.GrantCredit(amount=amount), end
    if first < _REQUEST:
        return _decode_adjust(data, offset)
    if first & EAGERNESS:
        return _decode_propose(data, offset, family)
    if _FIRST_CANCEL <= first <= _LAST_CANCEL:
        return _decode_cancel(data, offset, family)
    raise Violation(ErrorCode.UNUSED_CONTROL_BYTE, f"{first}")


def message_size_max(family: HashFamily) -> int:
    """The size in bytes that no control message exceeds."""
    entry = 1 + AUTHOR_SIZE + 3 * 9 + 3 * family.encoded_size + 64
    return 1 + 9 + 2 * entry


def _encode_eagerness(eagerness: messages.Eagerness | None) -> tuple[int, bytes]:
    """The two flag bits of an eagerness and the bytes that they append."""
    if eagerness is None or eagerness in _EAGERNESS_FLAGS:
        return _EAGERNESS_FLAGS[eagerness], b""
    return EAGERNESS_UP_TO, varu64.encode(eagerness.payload_size_max)


def _decode_eagerness(
    flags: int, data: bytes, offset: int
) -> tuple[messages.Eagerness | None, int]:
    kind = flags & EAGERNESS
    if kind == EAGERNESS_UP_TO:
        size, offset = varu64.decode(data, offset)
        return messages.payloads_up_to(size), offset
    return _EAGERNESSES[kind], offset


def _encode_adjust(message: Adjust) -> bytes:
    flags, size = _encode_eagerness(message.eagerness)
    if message.allow_skipping:
        flags |= _ADJUST_SKIPPING
    numbers = [(flag, getattr(message, name)) for flag, name in ADJUST_NUMBERS]
    flags |= sum(flag for flag, number in numbers if number is not None)
    appended = varu64.encode_many([number for _, number in numbers if number is not None])
    return bytes([flags]) + varu64.encode(message.request_id) + size + appended


def _decode_adjust(data: bytes, offset: int) -> tuple[Adjust, int]:
    flags = data[offset]
    request_id, offset = varu64.decode(data, offset + 1)
    eagerness, offset = _decode_eagerness(flags, data, offset)
    names = [name for flag, name in ADJUST_NUMBERS if flags & flag]
    numbers, offset = varu64.decode_many(data, offset, len(names))
    adjust = Adjust(
        request_id=request_id,
        eagerness=eagerness,
        allow_skipping=bool(flags & _ADJUST_SKIPPING),
        **dict(zip(names, numbers, strict=True)),
    )
    return adjust, offset


def _encode_cancel(message: Cancel) -> bytes:
    encoded = bytes([message.reason]) + varu64.encode(message.request_id)
    if message.entry is not None:
        encoded += message.entry.encode()
    if message.seqnum is not None:
        encoded += varu64.encode(message.seqnum)
    if message.proof is not None:
        encoded += message.proof.first.encode() + message.proof.second.encode()
    return encoded


def _decode_cancel(data: bytes, offset: int, family: HashFamily) -> tuple[Cancel, int]:
    reason = CancelReason(data[offset])
    request_id, offset = varu64.decode(data, offset + 1)
    entry = seqnum = proof = None
    with decoding(ErrorCode.BOGUS_PROOF):
        match reason:
            case CancelReason.HASH_MISMATCH:
                entry, offset = decode_prefix(data, offset, family=family)
            case CancelReason.END_OF_LOG:
                seqnum, offset = varu64.decode(data, offset)
            case CancelReason.FORK:
                first, offset = decode_prefix(data, offset, family=family)
                second, offset = decode_prefix(data, offset, family=family)
                proof = ForkProof(first, second)
            case _:
                pass  # the others carry nothing more
    cancel = Cancel(request_id=request_id, reason=reason, entry=entry, seqnum=seqnum, proof=proof)
    return cancel, offset


def _encode_propose(request_id: int, proposal: Proposal) -> bytes:
    flags, eagerness_size = _encode_eagerness(proposal.eagerness)
    flags |= _REQUEST | sum(flag for flag, name in _REQUEST_FLAGS if getattr(proposal, name))
    log, lower = proposal.log, proposal.lower_certpool
    appended: list[int] = []
    if len(log.author) != AUTHOR_SIZE:
        raise ValueError(f"author of {len(log.author)} bytes, not {AUTHOR_SIZE}")
    if proposal.end is not None and proposal.upper_certpool is not None:
        flags |= REQUEST_FINITE
        appended += [proposal.end, proposal.upper_certpool]
    if proposal.start_offset is not None:
        flags |= REQUEST_OFFSET
        appended.append(proposal.start_offset)
    start = [log.log_id, proposal.start, *([] if lower is None else [lower])]
    parts = (
        bytes([flags]),
        varu64.encode(request_id),
        log.author,
        varu64.encode_many([*start, proposal.size_min, proposal.size_max]),
        proposal.expected_hash or b"",
        eagerness_size,
        varu64.encode_many(appended),
    )
    return b"".join(parts)


def _decode_propose(data: bytes, offset: int, family: HashFamily) -> tuple[Propose, int]:
    flags = data[offset]
    request_id, offset = varu64.decode(data, offset + 1)
    author, offset = data[offset : offset + AUTHOR_SIZE], offset + AUTHOR_SIZE
    if offset > len(data):
        raise Truncated(len(data))
    count = 4 if flags & REQUEST_OFFSET else 5
    (log_id, start, *lower, size_min, size_max), offset = varu64.decode_many(data, offset, count)
    expected_hash = start_offset = end = upper_certpool = None
    if lower != [1]:
        with decoding(ErrorCode.BAD_HASH):
            expected_hash, offset = family.decode(data, offset)
    eagerness, offset = _decode_eagerness(flags, data, offset)
    assert eagerness is not None
    if flags & REQUEST_FINITE:
        (end, upper_certpool), offset = varu64.decode_many(data, offset, 2)
    if flags & REQUEST_OFFSET:
        start_offset, offset = varu64.decode(data, offset)
    proposal = Proposal(
        log=LogKey(author, log_id),
        start=start,
        lower_certpool=lower[0] if lower else None,
        expected_hash=expected_hash,
        eagerness=eagerness,
        end=end,
        upper_certpool=upper_certpool,
        start_offset=start_offset,
        size_min=size_min,
        size_max=size_max,
        **{name: bool(flags & flag) for flag, name in _REQUEST_FLAGS},
    )
    return Propose(request_id=request_id, proposal=proposal), offset


# Packets of the data channel.


class PacketType(IntEnum):
    """The first byte of a packet."""

    SWITCH = 0
    NOTIFY_ONE = 2
    NOTIFY = 3
    SKIP_TOO_SMALL = 4
    SKIP_TOO_LARGE = 5
    SKIP_UNAVAILABLE = 6
    JUMP = 7
    RAW = 8
    COMPRESSED = 9
    APOLOGY = 16
    CANCELLED = 32
    METADATA = 128
    METADATA_END_OF_LOG = 129


# How many VarU64s follow the first byte, but for metadata.
NUMBERS: dict[int, int] = {
    **dict.fromkeys((each for each in PacketType if each < PacketType.METADATA), 0),
    **dict.fromkeys((PacketType.SWITCH, PacketType.NOTIFY, PacketType.JUMP), 1),
    **dict.fromkeys((PacketType.RAW, PacketType.CANCELLED), 1),
    PacketType.COMPRESSED: 2,
}


def metadata_size_max(family: HashFamily) -> int:
    """The size in bytes that no metadata packet exceeds."""
    return 1 + 2 * family.encoded_size + 9 + SIGNATURE_SIZE


_LONG_VARU64 = 248  # the first byte of a VarU64 that has more


class Metadata(NamedTuple):
    """The content of a metadata packet.

    `tail`: payload size, payload hash and signature as they end the encoded entry.
    """

    end_of_log: bool
    backlink: bytes | None
    tail: bytes


def decode_metadata(data: bytes, *, family: HashFamily) -> tuple[Metadata, int]:
    """Take apart the metadata packet at the start of `data`; also returns its size.

    Raises `Truncated` if more bytes could complete it, `Violation` if none can.
    """
    at, backlink = 1, None
    # A backlink starts with the bytes of a hash.  Without it a payload size comes first:
    # one that starts with 0 is 0, and then the zero byte of a hash follows, not its
    # length.  So two bytes tell whether the sender omitted the backlink.
    if data[1:3] == family.prefix:
        at = 1 + family.encoded_size
        backlink = data[1:at]
    hash_at = at + 1
    if at >= len(data) or data[at] >= _LONG_VARU64:
        with decoding(ErrorCode.NON_CANONICAL):
            _, hash_at = varu64.decode(data, at, canonical=True)
    with decoding(ErrorCode.BAD_HASH):
        _, end = family.decode(data, hash_at)
    end += SIGNATURE_SIZE
    if end > len(data):
        raise Truncated(len(data))
    end_of_log = data[0] == PacketType.METADATA_END_OF_LOG
    return Metadata(end_of_log, backlink, data[at:end]), end
