"""Oxen: a datagram is a parcel, or one that is sealed."""

from __future__ import annotations

from culm.capture.dissect.fields import FieldReader
from culm.capture.dissect.syntax import take_xenc
from culm.oxen.messages import Dialect, MessageData, decode_parcel, read_message
from culm.oxen.seal import NONCE

__all__ = ["take_datagram"]

_SID_SIZE_MAX = 1 << 16


def take_datagram(reader: FieldReader, dialect: Dialect) -> None:
    """Take a datagram.  What is sealed is shown as it is: only holders of the key can read it."""

    def decode(data: bytes, at: int) -> object:
        parcel = decode_parcel(data[at:], dialect, sid_size_max=_SID_SIZE_MAX)
        if isinstance(parcel.body, MessageData):
            read_message(parcel.body.d)
        return parcel

    if reader.peek(1) == b"d":
        with reader.judged(decode):
            take_xenc(reader, "parcel")
            return
    with reader.group("sealed"):
        for name, size in NONCE:
            reader.uint(name, size)
        reader.raw("box", reader.left)
