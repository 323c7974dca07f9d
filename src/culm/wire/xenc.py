"""XENC: integers, octet strings, timestamps, lists and dictionaries in the manner of Bencode.

======================= ================================= ===========================
XENC                    on the wire                       here
======================= ================================= ===========================
integer (64 bits)       ``i-12e``                         `int`
octet string            ``5:hello``                       `bytes`
timestamp               ``t<seconds>.<nanoseconds>e``     `Timestamp`
list                    ``l...e``                         `list`
dictionary              ``d<octets><value>...e``          `dict` with `bytes` as keys
======================= ================================= ===========================

The encoder is canonical: keys are sorted bytewise, numbers have no zeros in front.  The
decoder takes keys in any order and nothing else that is not canonical.

Source: aji/ircd-oxide, manual/dev-xenc.md.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, Union

from culm.buffer import Buffer
from culm.kernels import xenc as _kernel
from culm.wire.errors import DecodeError, Truncated, WireErrorCode

DEPTH_MAX = 16
"""Lists and dictionaries inside of each other, unless the caller says otherwise."""

VALUES_MAX = 65536
"""Values in one encoding, unless the caller says otherwise: under 300 bytes of memory each."""


class Timestamp(NamedTuple):
    """A point in time: `seconds` since the Unix epoch and 0 to 999,999,999 `nanoseconds`.

    Both count forwards, also before the epoch: half a second before it is
    ``Timestamp(-1, 500_000_000)``.
    """

    seconds: int
    nanoseconds: int = 0


Value: TypeAlias = Union[int, bytes, Timestamp, "list[Value]", "dict[bytes, Value]"]


def encode(value: Value, *, depth_max: int = DEPTH_MAX) -> bytes:
    """The canonical encoding of `value`.

    Raises `TypeError` for values that have no encoding, and `ValueError` for numbers out of range
    and for lists and dictionaries nested more than `depth_max` deep.
    """
    encoded: bytes = _kernel.encode(value, depth_max)
    return encoded


def decode(data: Buffer, *, depth_max: int = DEPTH_MAX, values_max: int = VALUES_MAX) -> Value:
    """The one value of which all of `data` is the encoding.

    Raises `DecodeError` with the offset of the byte at fault; `Truncated` if more bytes
    could complete it.  Nothing is allocated that `data` merely claims: memory is
    bounded by the size of `data` and by `values_max`.
    """
    try:
        value: Value = _kernel.decode(bytes(data), depth_max, values_max, Timestamp)
    except ValueError as error:
        code, offset, message = error.args
        if code == WireErrorCode.TRUNCATED:
            raise Truncated(offset, message) from None
        raise DecodeError(WireErrorCode(code), offset, message) from None
    return value
