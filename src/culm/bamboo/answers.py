"""Whether what a store has said can be what it was asked for.

Only the form is looked at, once for each answer: a store is trusted to keep what it was
given, and hashes and signatures were verified before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeGuard

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.store import Head, StoredEntry
from culm.wire import varu64
from culm.wire.multihash import FAMILIES, HashFamily

__all__ = ["are_logs", "are_stored_entries", "is_hash", "is_head", "is_of_family"]

# The families differ in the sizes of their hashes.
_PREFIXES = {family.encoded_size: family.prefix for family in FAMILIES.values()}

_TAGS = (0, 1)
_MAX, _encode = varu64.MAX, varu64.encode


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


def is_of_family(family: HashFamily, answer: object) -> bool:
    """Whether all hashes in an answer are of `family`; its effect has accepted the answer."""
    size = family.encoded_size
    match answer:
        case list() if answer and type(answer[0]) is StoredEntry:
            return all(len(stored.hash) == size for stored in answer)
        case Head() | StoredEntry():
            return len(answer.hash) == size
        case dict():
            return all(len(hash) == size for hash in answer.values())
        case ForkProof():
            return answer.first.family is answer.second.family is family
    return True


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


def are_stored_entries(
    values: Sequence[object], log: LogKey, payload_size_max: int | None
) -> TypeGuard[Sequence[StoredEntry]]:
    """Entries of `log`, with payloads only where those are complete and may come along."""
    front = log.author + varu64.encode(log.log_id)
    size_max = -1 if payload_size_max is None else payload_size_max
    return all(_is_stored_entry(value, front, size_max) for value in values)


def _is_stored_entry(value: object, front: bytes, payload_size_max: int) -> bool:
    # This is done for every entry that is sent: it has to be quick.
    if type(value) is not StoredEntry:
        return False
    seqnum, encoded, hash, size, on_hand, complete, payload, begun = value
    if type(seqnum) is not int or type(size) is not int or type(on_hand) is not int:
        return False
    if type(encoded) is not bytes or type(hash) is not bytes or type(complete) is not bool:
        return False
    if not 0 < seqnum <= _MAX or not 0 <= on_hand <= size <= _MAX:
        return False
    if type(begun) is not bool or (complete and (begun or on_hand != size)):
        return False
    if payload is not None and not (
        type(payload) is bytes and complete and len(payload) == size <= payload_size_max
    ):
        return False
    link_size = len(hash)
    prefix = _PREFIXES.get(link_size)
    if prefix is None or not hash.startswith(prefix):
        return False
    # From the end: signature, hash of the payload, its size; in between the links.
    front, behind = front + _encode(seqnum), _encode(size) + prefix
    links_at = 1 + len(front)
    behind_at = len(encoded) - SIGNATURE_SIZE - link_size - len(behind) + len(prefix)
    links = (seqnum > 1) + has_lipmaalink(seqnum)
    return (
        behind_at == links_at + links * link_size
        and encoded[0] in _TAGS
        and encoded.startswith(front, 1)
        and encoded.startswith(behind, behind_at)
        and (not links or encoded.startswith(prefix, links_at))
        and (links < 2 or encoded.startswith(prefix, links_at + link_size))
    )
