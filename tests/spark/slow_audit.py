"""A plain twin of verification and audit: the specifications word for word, one row at a time.

It uses nothing of culm, only the words of Bamboo about entries, links and logs
(https://github.com/AljoschaMeyer/bamboo) and of the protocol guide about messages of Secure
Scuttlebutt, with PyNaCl, hashlib and blake3.  All of a log is in memory, and work grows with its
square.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

#: By the names of families: the prefix of a digest, and its function.
HASHES: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "YAMF": (b"\x00\x40", lambda data: hashlib.blake2b(data).digest()),
    "YASMF": (b"\x00\x20", lambda data: blake3(data).digest()),
}
PAYLOAD_ONLY = {"PAYLOAD_HASH", "PAYLOAD_SIZE"}


class Signed(NamedTuple):
    """The content of a row, and whether its author has signed it."""

    log: bytes
    n: int
    hash: bytes
    signed: bool
    backlink: bytes | None
    lipmaalink: bytes | None
    ended: bool
    payload: frozenset[str]


class Said(NamedTuple):
    """The verdict on a row, by names of reasons."""

    reasons: frozenset[str]
    verified: bool


class Wrong(Exception):
    """These bytes are not an entry."""


def lipmaa(n: int) -> int:
    """Buldas, Lipmaa and Schoenmakers, "Optimally Efficient Accountable Time-Stamping", 3.1."""
    rest = n  # n without the largest whole tree before it, again and again
    while True:
        k = 1
        while (whole := (3**k - 1) // 2) < rest:
            k += 1
        if whole == rest:
            return n - (3 ** (k - 1) if rest == n else whole)
        rest -= (3 ** (k - 1) - 1) // 2


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if len(self.data) < size:
            raise Wrong
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self) -> int:
        """VarU64; only the shortest form is valid."""
        [first] = self.take(1)
        if first < 248:
            return first
        size = first - 247
        value = int.from_bytes(self.take(size), "big")
        if value < (248 if size == 1 else 256 ** (size - 1)):
            raise Wrong
        return value

    def hash(self, family: str) -> bytes:
        prefix, digest = HASHES[family]
        found = self.take(len(prefix) + len(digest(b"")))
        if not found.startswith(prefix):
            raise Wrong
        return found


def read_entry(data: bytes, payload: bytes | None, family: str) -> Signed:
    rest = _Bytes(data)
    [tag] = rest.take(1)
    author, log_id, n = rest.take(32), rest.number(), rest.number()
    if tag > 1 or n == 0:
        raise Wrong
    lipmaalink = rest.hash(family) if n > 1 and lipmaa(n) != n - 1 else None
    backlink = rest.hash(family) if n > 1 else None
    size, payload_hash = rest.number(), rest.hash(family)
    unsigned = data[: len(data) - len(rest.data)]
    signature = rest.take(64)
    if rest.data:
        raise Wrong
    prefix, digest = HASHES[family]
    faults = set()
    if payload is not None:
        if prefix + digest(payload) == payload_hash:
            faults |= {"PAYLOAD_SIZE_LIE"} if len(payload) != size else set()
        else:
            faults.add("PAYLOAD_HASH" if len(payload) == size else "PAYLOAD_SIZE")
    return Signed(
        author + log_id.to_bytes(8, "big"),
        n,
        prefix + digest(data),
        is_signed(author, unsigned, signature),
        backlink,
        lipmaalink,
        tag == 1,
        frozenset(faults),
    )


def is_signed(author: bytes, text: bytes, signature: bytes) -> bool:
    try:
        VerifyKey(author).verify(text, signature)
    except BadSignatureError:
        return False
    return True


def read_message(data: bytes, payload: bytes | None, family: str) -> Signed:
    """A message; anything but JSON is invalid, and no other fault of form is looked for."""
    try:
        fields = json.loads(data)
    except ValueError:
        raise Wrong from None

    def digest(name: str) -> bytes:
        return b64decode(name[1:].partition(".")[0])

    text = json.dumps(fields, indent=2, ensure_ascii=False)
    signature = b64decode(fields.pop("signature").removesuffix(".sig.ed25519"))
    author = digest(fields["author"])
    signed = json.dumps(fields, indent=2, ensure_ascii=False).encode()
    return Signed(
        author + bytes(8),
        fields["sequence"],
        hashlib.sha256(text.encode("utf-16-le")[::2]).digest(),
        is_signed(author, signed, signature),
        None if fields["previous"] is None else digest(fields["previous"]),
        None,
        False,
        frozenset(),
    )


def judge(
    rows: Sequence[tuple[bytes | None, bytes | None]],
    read: Callable[[bytes, bytes | None, str], Signed],
    family: str = "",
) -> list[Said]:
    """The verdicts on the rows, in their order."""
    logs: defaultdict[bytes, list[tuple[int, Signed]]] = defaultdict(list)
    said: list[Said] = [Said(frozenset({"MALFORMED"}), False)] * len(rows)
    for index, (data, payload) in enumerate(rows):
        try:
            row = read(data or b"", payload, family)
        except Wrong:
            continue
        if row.signed:
            logs[row.log].append((index, row))
        else:
            said[index] = Said(frozenset({"BAD_SIGNATURE"}), False)
    for log in logs.values():
        for index, each in _judge_log(log):
            said[index] = each
    return said


def _judge_log(log: list[tuple[int, Signed]]) -> Iterable[tuple[int, Said]]:
    there: defaultdict[int, set[bytes]] = defaultdict(set)
    for _, row in log:
        there[row.n].add(row.hash)
    invalid = [n for n in there if len(there[n]) > 1]
    invalid += [row.n for _, row in log if "PAYLOAD_SIZE_LIE" in row.payload]
    ends = [row.n for _, row in log if row.ended]
    own = {index: _own_reasons(row, there, invalid, ends) for index, row in log}
    verified = 0  # the newest entry that is, like all before it, without a known fault
    while verified + 1 in there and not any(
        own[index] - PAYLOAD_ONLY or row.n in invalid for index, row in log if row.n == verified + 1
    ):
        verified += 1
    for index, row in log:
        gap = {"GAP"} if row.n - 1 > verified else set()
        yield index, Said(frozenset(own[index] | gap), row.n <= verified)


def _own_reasons(
    row: Signed, there: dict[int, set[bytes]], invalid: list[int], ends: list[int]
) -> set[str]:
    reasons = set(row.payload)
    if len(there[row.n]) > 1:
        reasons.add("FORK")
    if any(n < row.n for n in invalid):
        reasons.add("INVALID_LOG")
    if any(n < row.n for n in ends):
        reasons.add("AFTER_END_OF_LOG")
    if row.backlink is not None and row.n - 1 in there and row.backlink not in there[row.n - 1]:
        reasons.add("WRONG_BACKLINK")
    known = there.get(lipmaa(row.n))
    if row.lipmaalink is not None and known is not None and row.lipmaalink not in known:
        reasons.add("WRONG_LIPMAALINK")
    return reasons
