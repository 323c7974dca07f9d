"""Whether a store's answer fits its question.

Only the form is looked at, once for each answer: a store is trusted to keep its data as given,
and hashes and signatures were verified before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeGuard, cast

from culm.arguments import is_dict, is_list, is_tuple
from culm.bamboo.entry import AUTHOR_SIZE, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, StoredEntry
from culm.kernels import runs as kernel
from culm.wire import varu64
from culm.wire.multihash import FAMILIES, HashFamily

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


def are_hashes(value: object, seqnums: Sequence[int]) -> TypeGuard[dict[int, bytes]]:
    """Hashes, and none but those of these entries."""
    return is_dict(value) and value.keys() <= set(seqnums) and all(map(is_hash, value.values()))


def is_of_family(family: HashFamily, answer: object) -> bool:
    """Whether all hashes in an answer are of `family`; its effect has accepted the answer."""
    size = family.encoded_size
    if answer is None or isinstance(answer, bytes):  # bytes of a payload: the most frequent answers
        return True
    if isinstance(answer, (Head, StoredEntry)):
        return len(answer.hash) == size
    if isinstance(answer, ForkProof):
        return answer.first.family is answer.second.family is family
    if is_list(answer):
        # Logs have no hashes.  One entry is of the family if all are.
        return not answer or type(answer[0]) is not StoredEntry or len(answer[0].hash) == size
    if is_dict(answer):
        return all(len(hash) == size for hash in answer.values())
    # Everything about a log.
    return not is_tuple(answer) or all(is_of_family(family, part) for part in answer)


def are_logs(value: object, after: LogKey | None) -> TypeGuard[list[LogKey]]:
    """Logs in ascending order, all of them after `after`."""
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


def stored_size(
    values: Sequence[object],
    log: LogKey,
    *,
    first: int = 1,
    last: int | None = None,
    payload_size_max: int | None = None,
) -> int | None:
    """How many bytes entries of `log` and their payloads take; ``None`` for anything else.

    They are in order, from `first` to `last`; payloads come only with those that are complete,
    and have at most `payload_size_max` bytes.  All have hashes of one family.
    """
    if not values:
        return 0
    if set(map(type, values)) != {StoredEntry}:
        return None
    rows = cast("Sequence[StoredEntry]", values)
    link_size = len(rows[0].hash) if is_hash(rows[0].hash) else 0
    if not link_size:
        return None
    head = log.author + varu64.encode(log.log_id)
    prefix = _PREFIXES[link_size]
    size = kernel.stored_size(rows, head, first, last, prefix, link_size, payload_size_max)
    return None if size < 0 else size
