"""Whether what a store has said can be what it was asked for.

Only the form is looked at, once for each answer: a store is trusted to keep what it was
given, and hashes and signatures were verified before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeGuard

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE, LogKey
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.store import Head, StoredEntry
from culm.wire import varu64
from culm.wire.multihash import FAMILIES

__all__ = ["are_logs", "is_hash", "is_head", "is_stored_entry"]

# The families differ in the sizes of their hashes.
_PREFIXES = {family.encoded_size: family.prefix for family in FAMILIES.values()}


def is_hash(value: object) -> TypeGuard[bytes]:
    """An encoded hash of one of the families."""
    if type(value) is not bytes:
        return False
    prefix = _PREFIXES.get(len(value))
    return prefix is not None and value.startswith(prefix)


def is_head(value: object) -> TypeGuard[Head]:
    """A `Head`."""
    return (
        isinstance(value, Head)
        and type(value.seqnum) is int
        and 1 <= value.seqnum <= varu64.MAX
        and is_hash(value.hash)
        and type(value.end_of_log) is bool
    )


def are_logs(value: object, after: LogKey | None) -> TypeGuard[list[LogKey]]:
    """Logs in ascending order, all of them behind `after`."""
    if not isinstance(value, list) or not all(map(_is_log, value)):
        return False
    logs = value if after is None else [after, *value]
    return all(earlier < later for earlier, later in pairwise(logs))


def _is_log(value: object) -> TypeGuard[LogKey]:
    return (
        isinstance(value, LogKey)
        and type(value.author) is bytes
        and len(value.author) == AUTHOR_SIZE
        and type(value.log_id) is int
        and 0 <= value.log_id <= varu64.MAX
    )


def is_stored_entry(
    value: object, log: LogKey, payload_size_max: int | None
) -> TypeGuard[StoredEntry]:
    """An entry of `log`, with its payload only if that is complete and may come along."""
    if not isinstance(value, StoredEntry):
        return False
    seqnum, encoded, hash, payload_size, payload_stored, complete, payload = value
    numbers: Sequence[object] = (seqnum, payload_size, payload_stored)
    for number in numbers:
        if type(number) is not int or not 0 <= number <= varu64.MAX:
            return False
    if type(complete) is not bool or payload_stored > payload_size:
        return False
    if complete and payload_stored != payload_size:
        return False
    if payload is not None:
        if type(payload) is not bytes or len(payload) != payload_size or not complete:
            return False
        if payload_size_max is None or payload_size > payload_size_max:
            return False
    return type(encoded) is bytes and is_hash(hash) and _encodes(encoded, log, value)


def _encodes(encoded: bytes, log: LogKey, stored: StoredEntry) -> bool:
    """Whether those bytes have the form of that entry."""
    seqnum, size = stored.seqnum, len(stored.hash)
    prefix = _PREFIXES[size]
    front = log.author + varu64.encode(log.log_id) + varu64.encode(seqnum)
    if not seqnum or encoded[:1] not in (b"\0", b"\1") or not encoded.startswith(front, 1):
        return False
    at = 1 + len(front)
    for _ in range((seqnum > 1) + has_lipmaalink(seqnum)):
        if not encoded.startswith(prefix, at):
            return False
        at += size
    payload = varu64.encode(stored.payload_size) + prefix
    whole = at + len(payload) - len(prefix) + size + SIGNATURE_SIZE
    return encoded.startswith(payload, at) and len(encoded) == whole
