"""Many entries at once: decoded, hashed and verified in a few calls of the kernels."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE, Entry, LogKey, assemble
from culm.kernels import hashing
from culm.signatures import Signed
from culm.wire.multihash import YASMF, HashFamily


def hash_many(messages: Sequence[bytes], *, family: HashFamily) -> list[bytes]:
    """The encoded hash of each message."""
    return _cut(_hashes(b"".join(messages), _offsets(messages), family), family.encoded_size)


def decode_many(encodings: Sequence[bytes], *, family: HashFamily) -> list[Entry | None]:
    """The entries; ``None`` for encodings that `culm.bamboo.entry.decode` refuses."""
    data, offsets = b"".join(encodings), _offsets(encodings)
    columns = hashing.decode_entries(data, offsets, family.digest_size)
    hash_size = family.encoded_size
    log_ids, seqnums, targets, sizes = (
        memoryview(columns[name]).cast("Q").tolist()
        for name in ("log_ids", "seqnums", "targets", "payload_sizes")
    )
    authors, signatures = columns["authors"], columns["signatures"]
    lipmaalinks, backlinks = columns["lipmaalinks"], columns["backlinks"]
    payload_hashes, hashes = columns["payload_hashes"], _hashes(data, offsets, family)
    found: list[Entry | None] = []
    log = LogKey(b"", 0)
    for index, (fault, ends) in enumerate(zip(columns["faults"], columns["ends"], strict=True)):
        if fault:
            found.append(None)
            continue
        at, author_at = hash_size * index, AUTHOR_SIZE * index
        author, log_id = authors[author_at : author_at + AUTHOR_SIZE], log_ids[index]
        if author != log.author or log_id != log.log_id:
            log = LogKey(author, log_id)
        seqnum, until = seqnums[index], at + hash_size
        entry = assemble(
            family,
            log,
            bool(ends),
            seqnum,
            lipmaalinks[at:until] if targets[index] < seqnum - 1 else None,
            backlinks[at:until] if seqnum > 1 else None,
            sizes[index],
            payload_hashes[at:until],
            signatures[SIGNATURE_SIZE * index : SIGNATURE_SIZE * (index + 1)],
            encodings[index],
            hashes[at:until],
        )
        found.append(entry)
    return found


def signatures_are_valid(entries: Sequence[Entry]) -> list[bool]:
    """The verdict of `culm.bamboo.entry.verify_signature` on each entry."""
    encodings = [entry.encode() for entry in entries]
    valid = hashing.verify_many(
        b"".join([entry.author for entry in entries]),
        b"".join([entry.signature for entry in entries]),
        b"".join(encodings),
        _offsets(encodings),
        SIGNATURE_SIZE,
    )
    return list(map(bool, valid))


def signatures_of(entries: Sequence[Entry]) -> list[Signed]:
    """The signatures of the entries, to be verified elsewhere (`culm.signatures.Verify`)."""
    return [Signed(entry.author, entry.signature, entry.signed_bytes()) for entry in entries]


def _offsets(messages: Sequence[bytes]) -> array[int]:
    return array("q", accumulate(map(len, messages), initial=0))


def _hashes(data: bytes, offsets: array[int], family: HashFamily) -> bytes:
    function = hashing.BLAKE3 if family is YASMF else hashing.BLAKE2B
    return hashing.hash_many(function, data, offsets, family.prefix)


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
