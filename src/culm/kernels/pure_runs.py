"""Runs of entries on a Point-2-Point data channel, the specification of `culm.kernels._runs`.

The data of a request that wants everything is a row of metadata packets, each followed by
one packet with the whole payload.  `read` takes what is plain and all there from the
beginning of such a row; it stops before anything else, be that right, wrong or cut short.

Source: Bamboo Point-2-Point, "Encoding on the data channel"; Bamboo, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from culm.kernels.pure_lipmaa import lipmaa

__all__ = ["read"]

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
    records: list[_Record] = []
    known = dict(links)
    at = 0
    if link_size < len(prefix):
        raise ValueError("a link is smaller than its prefix")
    for number in range(seqnum, min(seqnum + count_max, _NUMBERS) if seqnum else 0):
        # Two bytes tell whether there is a backlink; see `culm.point2point.data_codec`.
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
