"""Whether what a store has said can be what it was asked for.

Only the form is looked at, once for each answer: a store is trusted to keep what it was
given, and hashes and signatures were verified before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeGuard

from culm.arguments import is_dict, is_list, is_tuple
from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.store import Head, StoredEntry
from culm.wire import varu64
from culm.wire.multihash import FAMILIES, HashFamily

__all__ = ["are_hashes", "are_logs", "are_stored_entries", "is_hash", "is_head", "is_of_family"]

# The families differ in the sizes of their hashes.
_PREFIXES = {family.encoded_size: family.prefix for family in FAMILIES.values()}

_TAGS = (b"\0", b"\1")
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


def are_hashes(value: object, seqnums: Sequence[int]) -> TypeGuard[dict[int, bytes]]:
    """Hashes, and none but those of these entries."""
    return is_dict(value) and value.keys() <= set(seqnums) and all(map(is_hash, value.values()))


def is_of_family(family: HashFamily, answer: object) -> bool:
    """Whether all hashes in an answer are of `family`; its effect has accepted the answer."""
    size = family.encoded_size
    if answer is None or isinstance(answer, bytes):  # of a payload: the most frequent answers
        return True
    if isinstance(answer, (Head, StoredEntry)):
        return len(answer.hash) == size
    if isinstance(answer, ForkProof):
        return answer.first.family is answer.second.family is family
    if is_list(answer):
        # Logs have no hashes.  What is true of the first entry is true of the others.
        return not answer or type(answer[0]) is not StoredEntry or len(answer[0].hash) == size
    if is_dict(answer):
        return all(len(hash) == size for hash in answer.values())
    # All that is to be known of a log.
    return not is_tuple(answer) or all(is_of_family(family, part) for part in answer)


def are_logs(value: object, after: LogKey | None) -> TypeGuard[list[LogKey]]:
    """Logs in ascending order, all of them behind `after`."""
    if not is_list(value) or not all(map(_is_log, value)):
        return False
    logs: list[LogKey] = value if after is None else [after, *value]
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
    """Entries of `log`, with payloads only where those are complete and may come along.

    All of them have hashes of one family.
    """
    first = values[0] if values else None
    if type(first) is not StoredEntry or type(first.hash) is not bytes:
        return not values
    prefix = _PREFIXES.get(len(first.hash))
    if prefix is None:
        return False
    hash_size, prefix_size = len(first.hash), len(prefix)
    front = log.author + _encode(log.log_id)
    fronts, number_at = tuple(tag + front for tag in _TAGS), 1 + len(front)
    rest_size = hash_size - prefix_size + SIGNATURE_SIZE
    payload_size_max = -1 if payload_size_max is None else payload_size_max
    # This is done for every entry that is sent: it has to be quick.
    for value in values:
        if type(value) is not StoredEntry:
            return False
        seqnum, encoded, hash, size, on_hand, complete, payload, begun = value
        if not (
            type(seqnum) is type(size) is type(on_hand) is int
            and type(complete) is type(begun) is bool
            and type(encoded) is type(hash) is bytes
            and 0 < seqnum <= _MAX
            and 0 <= on_hand <= size <= _MAX
            and (not complete or (on_hand == size and not begun))
            and len(hash) == hash_size
            and hash.startswith(prefix)
        ):
            return False
        if payload is not None and not (
            type(payload) is bytes and complete and len(payload) == size <= payload_size_max
        ):
            return False
        # The numbers and the sizes of the hashes are those of the encoded form: number, links,
        # size and hash of the payload, signature.
        number, tail = _encode(seqnum), _encode(size) + prefix
        links, links_at = (seqnum > 1) + has_lipmaalink(seqnum), number_at + len(number)
        tail_at = links_at + links * hash_size
        if not (
            len(encoded) == tail_at + len(tail) + rest_size
            and encoded.startswith(fronts)
            and encoded.startswith(number, number_at)
            and encoded.startswith(tail, tail_at)
            and (not links or encoded.startswith(prefix, links_at))
            and (links < 2 or encoded.startswith(prefix, links_at + hash_size))
        ):
            return False
    return True
