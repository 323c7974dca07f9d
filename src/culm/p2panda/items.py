"""Log heights as items of set reconciliation, and back.

The item of a log is the canonical CBOR of ``[public key as text, log id, sequence number]``.  Items
sort like (public key, log id, sequence number): all keys have the same size, and the greater of
two numbers has the greater canonical encoding.

Sources: seed, "Identifying divergent state"; decisions 3 and 4.
"""

from __future__ import annotations

from typing import NamedTuple

from culm.arguments import check_type
from culm.bamboo.entry import AUTHOR_SIZE, LogKey
from culm.wire.cbor import encode_head

__all__ = [
    "ITEM_SIZE_MAX",
    "ITEM_SIZE_MIN",
    "Height",
    "check_item",
    "decode_item",
    "encode_item",
    "log_prefix",
]

_HEX_SIZE = 2 * AUTHOR_SIZE
_FRONT = b"\x83" + encode_head(3, _HEX_SIZE)
_NUMBERS_AT = len(_FRONT) + _HEX_SIZE
_NUMBER_SIZE_MAX = 9

#: The least and the greatest size of an item, in bytes.
ITEM_SIZE_MIN = _NUMBERS_AT + 2
ITEM_SIZE_MAX = _NUMBERS_AT + 2 * _NUMBER_SIZE_MAX


class Height(NamedTuple):
    """The height of a log: somebody has all entries up to `seqnum`."""

    log: LogKey
    seqnum: int


def log_prefix(log: LogKey) -> bytes:
    """The prefix of all items of a log, and of no other log's."""
    author, log_id = log
    return _FRONT + author.hex().encode() + encode_head(0, log_id)


def encode_item(log: LogKey, seqnum: int) -> bytes:
    """The item of a log of this height."""
    return log_prefix(log) + encode_head(0, seqnum)


def decode_item(item: bytes) -> Height:
    """Decode an item made by `encode_item`."""
    author = bytes.fromhex(item[len(_FRONT) : _NUMBERS_AT].decode())
    log_id, at = _number(item, _NUMBERS_AT)
    seqnum, _ = _number(item, at)
    return Height(LogKey(author, log_id), seqnum)


def check_item(name: str, value: bytes) -> None:
    """Raise `TypeError` or `ValueError` unless `value` is an item as `encode_item` makes it."""
    check_type(name, value, bytes)
    try:
        found = decode_item(value)
        right = encode_item(found.log, found.seqnum) == value
    except (ValueError, IndexError):
        right = False
    if not right:
        raise ValueError(f"{name} is not the item of a log height")


def _number(item: bytes, at: int) -> tuple[int, int]:
    """The number that begins at this index, and the index after it."""
    head = item[at]
    if head < 24:
        return head, at + 1
    end = at + 1 + (1 << (head - 24) % 4)
    return int.from_bytes(item[at + 1 : end], "big"), end
