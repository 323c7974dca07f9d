"""Oxen: a datagram is a parcel, or one that is sealed."""

from __future__ import annotations

from culm.capture.dissect.fields import FieldReader
from culm.capture.dissect.xenc import take_xenc
from culm.oxen.messages import Dialect, MessageData, ParcelError, decode_parcel, read_message
from culm.wire.errors import DecodeError, WireErrorCode

_SID_SIZE_MAX = 1 << 16
_SIZE_MAX = 65_507  # that UDP carries


def _name(data: bytes, dialect: Dialect) -> str:
    """The name of a parcel's body.  Raises `ParcelError`."""
    body = decode_parcel(data, dialect, sid_size_max=_SID_SIZE_MAX).body
    if isinstance(body, MessageData):
        return type(read_message(body.d)).__name__
    return "keepalive" if body is None else type(body).__name__


def _name_or_none(data: bytes, dialect: Dialect) -> str | None:
    try:
        return _name(data, dialect)
    except ParcelError:
        return None


def take_datagram(reader: FieldReader, dialect: Dialect) -> None:
    """Take a datagram.  Sealed bytes are shown as they are: reading them takes the key."""
    if reader.left > _SIZE_MAX:
        raise DecodeError(WireErrorCode.LIMIT_EXCEEDED, reader.at, "larger than a datagram")
    if reader.peek(1) == b"d":
        with reader.judged(lambda data, at: _name(data[at:], dialect)):
            take_xenc(reader, _name_or_none(reader.peek(reader.left), dialect) or "parcel")
            return
    from culm.oxen.seal import NONCE  # without keys there is no need to wait for PyNaCl

    with reader.group("sealed"):
        for name, size in NONCE:
            reader.uint(name, size)
        reader.raw("box", reader.left)
