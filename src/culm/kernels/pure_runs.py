"""Runs of entries on a Point-2-Point data channel, the specification of `culm.kernels._runs`.

The data of a request that wants everything is a row of metadata packets, each followed by
one packet with the whole payload.  `read` takes plain and complete packets from the beginning
of such a row; it stops before anything else, be that right, wrong or cut short.  `choose` says
which stored entries can be sent as such a row, and `stored_size` whether they have the form of
stored entries at all.

Source: Bamboo Point-2-Point, "Encoding on the data channel"; Bamboo, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from culm.kernels.pure_lipmaa import lipmaa

__all__ = ["choose", "read", "stored_size"]

_METADATA, _RAW, _COMPRESSED = 128, 8, 9  # first bytes of packets
_SIGNATURE_SIZE = 64
_WIDE = 248  # the first byte of a VarU64 that has more
_NUMBERS = 1 << 64  # sequence numbers are below

_Record = tuple[int, bytes | None, bytes | None, int, bytes, bytes, bytes, bytes, bytes, bool, int]


def read(
    data: bytes,
    head: bytes,
    seqnum: int,
    count_max: int,
    size_min: int,
    size_max: int,
    links: Mapping[int, bytes],
    prefix: bytes,
    link_size: int,
    hash: Callable[[bytes], bytes],
) -> list[_Record]:
    """Read at most `count_max` entries of the log `head`, the first of them number `seqnum`.

    `head` is author and log id as they are encoded, `links` holds the hashes (by sequence
    number) to which the entries may link, `prefix` is that of encoded hashes and
    `link_size` their size, `hash` makes one of an encoded entry.  Payloads are from
    `size_min` to `size_max` bytes.

    Returns, entry by entry: sequence number, lipmaalink, backlink, payload size, payload
    hash, signature, encoded entry, its hash, payload as it was sent, whether that is
    compressed, and where in `data` the next packet begins.  No signature and no hash
    has been verified.
    """
    _check_link_size(link_size, prefix)
    records: list[_Record] = []
    known = dict(links)
    at = 0
    for number in range(seqnum, min(seqnum + count_max, _NUMBERS) if seqnum else 0):
        # Two bytes tell whether there is a backlink; see `culm.point2point.codec`.
        tail = at + 1
        if data[at:tail] != bytes([_METADATA]) or data[tail : tail + len(prefix)] == prefix:
            break
        size, hash_at = _varu64(data, tail)
        signature_at = hash_at + link_size
        end = signature_at + _SIGNATURE_SIZE
        if hash_at < 0 or not size_min <= size <= size_max or end > len(data):
            break
        body = _body(data, end, size)
        found = _links(known, number)
        if data[hash_at : hash_at + len(prefix)] != prefix or body is None or found is None:
            break
        payload, compressed, at = body
        parts = b"\0", head, _encoded(number), *(link or b"" for link in found), data[tail:end]
        encoded = b"".join(parts)
        known[number] = hash(encoded)
        payload_hash, signature = data[hash_at:signature_at], data[signature_at:end]
        described = (number, *found, size, payload_hash, signature)
        records.append((*described, encoded, known[number], payload, compressed, at))
    return records


def choose(
    rows: Iterable[Sequence[Any]],
    head: bytes,
    seqnum: int,
    count_max: int,
    size_min: int,
    size_max: int,
    room: int,
    sent: Mapping[int, bytes],
    received: Mapping[int, bytes],
    link_size: int,
) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Choose the stored entries that `read` takes, the first of them number `seqnum`.

    `rows` are `StoredEntry`s, in order.  `head`, `count_max`, `size_min`, `size_max` and
    `link_size` are those of `read`.  Chosen is about as much as fits into `room` bytes: the
    last entry begins within it.  A link target before `seqnum` must have no other hash in
    `sent` or in `received`, which say nothing of later entries.

    Returns, entry by entry: its hash, its metadata packet, its payload size as it is encoded,
    its payload.
    """
    _check_link_size(link_size)
    chosen: list[tuple[bytes, bytes, bytes, bytes]] = []
    used = 0
    for number, encoded, hash, size, _, complete, payload, _ in rows:
        if number != seqnum + len(chosen) or len(chosen) >= count_max or used >= room:
            break
        if not complete or payload is None or len(payload) != size:
            break
        if not size_min <= size <= size_max or not encoded.startswith(b"\0" + head):
            break
        size_encoded, target = _encoded(size), lipmaa(number)
        tail = len(encoded) - len(size_encoded) - link_size - _SIGNATURE_SIZE
        if tail < 1 + len(head) + _link_count(number) * link_size:
            break
        backlink = encoded[tail - link_size : tail]
        lipmaalink = encoded[tail - 2 * link_size : tail - link_size]
        if not chosen and number > 1 and not _agree(sent, received, number - 1, backlink):
            break
        if target < min(number - 1, seqnum) and not _agree(sent, received, target, lipmaalink):
            break
        metadata = bytes([_METADATA]) + encoded[tail:]
        chosen.append((hash, metadata, size_encoded, payload))
        used += len(metadata) - 1 + size
    return chosen


def _agree(
    sent: Mapping[int, bytes], received: Mapping[int, bytes], number: int, hash: bytes
) -> bool:
    return sent.get(number, hash) == received.get(number, hash) == hash


def stored_size(
    rows: Sequence[Sequence[Any]],
    head: bytes,
    first: int,
    last: int | None,
    prefix: bytes,
    link_size: int,
    payload_size_max: int | None,
) -> int:
    """The size of the encodings and payloads of `rows`; -1 if they have another form.

    Their form is that of `StoredEntry`s of the log `head`, from number `first` to `last`
    (``None``: whatever there may be), ascending.  Payloads are whole, and of at most
    `payload_size_max` bytes; ``None`` if there must not be any.  `head`, `prefix` and
    `link_size` are those of `read`.  The encoding is checked only for the numbers and sizes of
    the row.
    """
    _check_link_size(link_size, prefix)
    total, first = 0, max(first, 1)
    fronts = b"\0" + head, b"\1" + head
    for row in rows:
        if len(row) != 8:
            return -1
        number, encoded, hash, size, on_hand, complete, payload, begun = row
        if not (
            type(number) is type(size) is type(on_hand) is int
            and type(complete) is type(begun) is bool
            and type(encoded) is type(hash) is bytes
            and first <= number < _NUMBERS
            and (last is None or number <= last)
            and 0 <= on_hand <= size < _NUMBERS
            and (not complete or (on_hand == size and not begun))
            and len(hash) == link_size
            and hash.startswith(prefix)
        ):
            return -1
        if payload is not None:
            whole = type(payload) is bytes and complete and len(payload) == size
            if not whole or payload_size_max is None or size > payload_size_max:
                return -1
            total += size
        numbered, sized = _encoded(number), _encoded(size)
        links_at = len(fronts[0]) + len(numbered)
        tail_at = links_at + _link_count(number) * link_size
        if not (
            len(encoded) == tail_at + len(sized) + link_size + _SIGNATURE_SIZE
            and encoded.startswith(fronts)
            and encoded.startswith(numbered, len(fronts[0]))
            and all(encoded.startswith(prefix, at) for at in range(links_at, tail_at, link_size))
            and encoded.startswith(sized + prefix, tail_at)
        ):
            return -1
        total += len(encoded)
        first = number + 1
    return total


def _check_link_size(link_size: int, prefix: bytes = b"") -> None:
    if link_size < len(prefix):
        raise ValueError("a link is smaller than its prefix")


def _link_count(number: int) -> int:
    return 0 if number == 1 else 1 + (lipmaa(number) < number - 1)


def _links(known: Mapping[int, bytes], number: int) -> tuple[bytes | None, bytes | None] | None:
    """Lipmaalink and backlink of an entry, as far as it has them; ``None`` if one is not known."""
    backlink, target = known.get(number - 1), lipmaa(number)
    if number == 1:
        return None, None
    if target == number - 1:
        return None if backlink is None else (None, backlink)
    lipmaalink = known.get(target)
    return None if lipmaalink is None or backlink is None else (lipmaalink, backlink)


def _body(data: bytes, at: int, size: int) -> tuple[bytes, bool, int] | None:
    """The packet at `at` if it holds a whole payload: its body, how that is sent, its end."""
    first = data[at : at + 1]
    if first not in (bytes([_RAW]), bytes([_COMPRESSED])):
        return None
    compressed = first == bytes([_COMPRESSED])
    announced, start = _varu64(data, at + 1)
    body_size = announced
    if compressed and start > 0:
        body_size, start = _varu64(data, start)
    if start < 0 or announced != size or body_size > len(data) - start:
        return None
    end = start + body_size
    return data[start:end], compressed, end


def _varu64(data: bytes, at: int) -> tuple[int, int]:
    """The canonical VarU64 at `at`, and where it ends: -1 if there is none."""
    if at >= len(data):
        return 0, -1
    octets = max(0, data[at] - _WIDE + 1)
    end = at + 1 + octets
    value = int.from_bytes(data[at + 1 : end], "big") if octets else data[at]
    if end > len(data) or data[at:end] != _encoded(value):
        return 0, -1
    return value, end


def _encoded(value: int) -> bytes:
    if value < _WIDE:
        return bytes([value])
    octets = (value.bit_length() + 7) // 8
    return bytes([_WIDE - 1 + octets]) + value.to_bytes(octets, "big")
