"""The frames that two compact sessions exchange, and their content.

A frame is its kind (one byte), the size of its body (VarU64, canonical) and its body.  No body
has more than `BODY_SIZE_MAX` bytes.

| Kind | | Body |
| --- | --- | --- |
| 1 | hello | 40 bytes, see `Hello`: a run begins; rounds of its sender follow |
| 2 | welcome | the number of ranges that a round may ask about: its logarithm, one byte |
| 3 | piece | a piece of a round: `culm.kernels.pure_exchange`, `culm.reconcile.rateless` |
| 4 | last piece | the same; the round is over |
| 5 | check | 16 bytes of the union: its sender knows it |
| 6 | agreed | empty: the check, or that of the hello, is right: both know the union |
| 7 | goodbye | one byte: its sender leaves for this reason (an `ErrorCode`, or 0) |

The first round of a run is answered by a welcome and another round, or, if both have the same, by
agreed: see `Hello.check`.  A hello of another version, of 1 to 240 bytes that begin with it, is
answered by a goodbye because of `ErrorCode.OTHER_PARAMETERS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from blake3 import blake3

from culm.buffer import ReceiveBuffer
from culm.machine import RemoteProtocolError
from culm.reconcile.checks import CHECK_SIZE, check_of
from culm.reconcile.errors import ErrorCode
from culm.reconcile.limits import RANGES_MIN
from culm.reconcile.monoids import MONOIDS, Fingerprint, Monoid
from culm.wire import varu64
from culm.wire.errors import DecodeError, Truncated

VERSION = 2
BODY_SIZE_MAX = 1 << 16
SALT_SIZE = 16
HEADER_SIZE_MAX = 1 + varu64.size(BODY_SIZE_MAX)

_HELLO_SIZE_MAX = 240  # of any version
_HELLO = Struct(f">BBBBHBx{SALT_SIZE}s{CHECK_SIZE}s")
_KEYED, _VARYING, _RATELESS = 1, 2, 4


class FrameKind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    WELCOME = 2
    PIECE = 3
    LAST_PIECE = 4
    CHECK = 5
    AGREED = 6
    GOODBYE = 7


#: The least and the greatest size of a frame's body, in bytes.
_SIZES = {
    FrameKind.HELLO: (1, _HELLO_SIZE_MAX),
    FrameKind.WELCOME: (1, 1),
    FrameKind.PIECE: (1, BODY_SIZE_MAX),
    FrameKind.LAST_PIECE: (1, BODY_SIZE_MAX),
    FrameKind.CHECK: (CHECK_SIZE, CHECK_SIZE),
    FrameKind.AGREED: (0, 0),
    FrameKind.GOODBYE: (1, 1),
}


def encode_frame(kind: FrameKind, body: bytes = b"") -> bytes:
    """Encode a frame."""
    return bytes([kind]) + varu64.encode(len(body)) + body


def take_frame(inbox: ReceiveBuffer) -> tuple[FrameKind, bytes] | None:
    """Consume the next frame, if it is complete.

    Raises `RemoteProtocolError` as soon as its kind or its size is known to be invalid.
    """
    if not inbox.size:
        return None
    if inbox[0] not in _SIZES:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, f"no frame has the kind {inbox[0]}")
    kind = FrameKind(inbox[0])
    try:
        size, start = varu64.decode(inbox.peek(HEADER_SIZE_MAX), 1, canonical=True)
    except Truncated:
        if inbox.size < HEADER_SIZE_MAX:
            return None
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, "its size is too large") from None
    except DecodeError as error:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, str(error)) from None
    low, high = _SIZES[kind]
    if not low <= size <= high:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, f"a {kind.name} of {size} bytes")
    if inbox.size < start + size:
        return None
    inbox.consume(start)
    return kind, inbox.take(size)


@dataclass(frozen=True, slots=True)
class Hello:
    """The parameters of a run: one byte each for

    the version (2), the flags (1: keyed, 2: items of varying size, 4: the run is one of coded
    symbols, see `culm.reconcile.rateless`, else one of ranges), the bytes of a sum (4 to 8)
    and the monoid's number (as in `culm.reconcile.tree_format`; 255 if keyed), two for the size
    of items, big-endian, one for the logarithm to base 2 of the number of ranges that a round may
    ask about, and a zero; then the salt, and the check of the sender's items, of 16 bytes each.  If
    it is that of the other side's items, too, when the first round has been heard, both have the
    same: without a key or a strong monoid only if that round has not shown any difference.
    """

    sum_size: int
    monoid: Monoid | None
    item_size: int
    varying: bool
    ranges_max: int
    salt: bytes
    rateless: bool = False
    check: bytes = bytes(CHECK_SIZE)

    @property
    def keyed(self) -> bool:
        """Whether states are computed with a key of this run."""
        return self.monoid is None

    @property
    def key(self) -> bytes:
        """The key of a keyed run, otherwise empty."""
        return blake3(self.salt, derive_key_context=_KEY_CONTEXT).digest(16) if self.keyed else b""

    @property
    def id_salt(self) -> int:
        """The salt of the ids of items."""
        salt = blake3(self.salt, derive_key_context=_SALT_CONTEXT).digest(8)
        return int.from_bytes(salt, "big")

    @property
    def shows(self) -> bool:
        """Whether a matching check proves that the sets are equal, even if items were crafted."""
        return self.monoid is None or self.monoid.is_strong

    def check_of(self, count: int, state: bytes) -> bytes:
        """The check of a union; see `culm.reconcile.checks`."""
        if self.monoid is not None:
            state = self.monoid.digest(Fingerprint(count, state))
        return check_of(self.salt, count, state)

    def may_follow(self, other: Hello) -> bool:
        """Whether this run may follow that one: nothing is tried twice."""
        if self.rateless:
            return False
        return self.keyed > other.keyed or (other.rateless and self.keyed == other.keyed)

    def encode(self) -> bytes:
        """The body of the frame."""
        flags = _KEYED * self.keyed | _VARYING * self.varying | _RATELESS * self.rateless
        number = 255 if self.monoid is None else self.monoid.kernel_number
        logarithm = encode_ranges_max(self.ranges_max)
        parameters = VERSION, flags, self.sum_size, number, self.item_size, logarithm
        return _HELLO.pack(*parameters, self.salt, self.check)

    @classmethod
    def decode(cls, body: bytes) -> Hello:
        """Decode the body of a frame; raises `RemoteProtocolError` if it is invalid."""
        if len(body) != _HELLO.size:
            raise RemoteProtocolError(ErrorCode.BAD_FRAME, f"a hello of {len(body)} bytes")
        _, flags, sum_size, number, item_size, logarithm, salt, check = _HELLO.unpack(body)
        monoids: dict[int, Monoid | None] = {each.kernel_number: each for each in MONOIDS.values()}
        if flags & _KEYED:
            monoids = {255: None}
        if number not in monoids or not 4 <= sum_size <= 8 or flags > 7:
            raise RemoteProtocolError(ErrorCode.BAD_FRAME, "a hello that cannot be")
        monoid = monoids[number]
        ranges_max = decode_ranges_max(logarithm)
        varying, rateless = bool(flags & _VARYING), bool(flags & _RATELESS)
        hello = cls(sum_size, monoid, item_size, varying, ranges_max, salt, rateless, check)
        if hello.encode() != body:
            raise RemoteProtocolError(ErrorCode.BAD_FRAME, "a hello that cannot be")
        return hello


def encode_ranges_max(ranges_max: int) -> int:
    """The logarithm of the number of ranges that a round may ask about, rounded down."""
    return ranges_max.bit_length() - 1


def decode_ranges_max(logarithm: int) -> int:
    """The number of ranges; raises `RemoteProtocolError` if a first round may need more."""
    if not RANGES_MIN <= 1 << logarithm <= 1 << 62:
        raise RemoteProtocolError(ErrorCode.BAD_FRAME, f"2**{logarithm} ranges")
    return 1 << logarithm


_KEY_CONTEXT = "culm 2026 reconcile: key of a run"
_SALT_CONTEXT = "culm 2026 reconcile: salt of ids"
