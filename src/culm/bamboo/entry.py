"""One entry of a log: its fields, its encoding, its signature.

The encoding ("Encoding" of the Bamboo specification) is the concatenation of

========== ============= ==========================================================
tag        1 byte        0, or 1 if the entry ends the log
author     32 bytes      Ed25519 public key
log id     VarU64        canonical, like the other two
seqnum     VarU64        1 or more
lipmaalink hash          absent if the backlink has the same target, and in entry 1
backlink   hash          absent in entry 1
size       VarU64        of the payload, in bytes
payload    hash
signature  64 bytes      Ed25519, over all that precedes it
========== ============= ==========================================================

A hash is an encoded YAMF or YASMF hash; which of the two cannot be seen in the bytes
(`culm.wire.multihash`), so the family is a parameter of all that reads or makes entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, ParamSpec, cast

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

from culm.arguments import check_bytes, check_int, check_type
from culm.bamboo.links import has_lipmaalink
from culm.buffer import Buffer
from culm.wire import varu64
from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from culm.wire.multihash import HashFamily

P = ParamSpec("P")

AUTHOR_SIZE = 32
SIGNATURE_SIZE = 64

_VARU64_SIZE_MAX = 9
_TAG_END_OF_LOG = 1  # that of other entries is 0


class LogKey(NamedTuple):
    """Which log: its author's Ed25519 public key (32 bytes) and the log id (64 bits)."""

    author: bytes
    log_id: int


def check_log(log: LogKey) -> None:
    """Raise `TypeError` or `ValueError` unless `log` names one."""
    check_type("log", log, LogKey)
    check_bytes("author", log.author, AUTHOR_SIZE)
    check_int("log id", log.log_id)


class _Fields:
    """An `Entry` while it is being built: with a frozen class that takes several times as long."""

    __slots__ = (
        "_encoded",
        "_hash",
        "_log",
        "author",
        "backlink",
        "end_of_log",
        "family",
        "lipmaalink",
        "log_id",
        "payload_hash",
        "payload_size",
        "seqnum",
        "signature",
    )

    def __init__(
        self: Any,
        family: HashFamily,
        log: LogKey,
        end_of_log: bool,
        seqnum: int,
        lipmaalink: bytes | None,
        backlink: bytes | None,
        payload_size: int,
        payload_hash: bytes,
        signature: bytes,
        encoded: bytes | None,
        hash: bytes | None,
    ) -> None:
        self.family = family
        self.author, self.log_id = log
        self._log: LogKey | None = log
        self.end_of_log = end_of_log
        self.seqnum = seqnum
        self.lipmaalink = lipmaalink
        self.backlink = backlink
        self.payload_size = payload_size
        self.payload_hash = payload_hash
        self.signature = signature
        self._encoded = encoded
        self._hash = hash
        self.__class__ = Entry


@dataclass(frozen=True, slots=True)
class Entry(_Fields):
    """A well-formed entry; its signature and links have not been checked.

    Hashes are whole encodings.  `lipmaalink` is ``None`` if its target is that of the
    backlink, both are ``None`` in entry 1.  Raises `ValueError` for fields that no
    encoding has.
    """

    family: HashFamily
    author: bytes
    log_id: int
    seqnum: int
    lipmaalink: bytes | None
    backlink: bytes | None
    payload_size: int
    payload_hash: bytes
    signature: bytes
    end_of_log: bool = False
    _encoded: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _hash: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _log: LogKey | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_type("family", self.family, HashFamily)
        check_bytes("author", self.author, AUTHOR_SIZE)
        check_bytes("signature", self.signature, SIGNATURE_SIZE)
        check_int("log id", self.log_id)
        check_int("seqnum", self.seqnum, 1)
        check_int("payload size", self.payload_size)
        self.family.check("payload hash", self.payload_hash)
        _check_link("backlink", self.backlink, self.seqnum > 1, self)
        _check_link("lipmaalink", self.lipmaalink, has_lipmaalink(self.seqnum), self)

    @property
    def log(self) -> LogKey:
        """The log of the entry; the same object each time."""
        log = self._log
        if log is None:
            log = LogKey(self.author, self.log_id)
            object.__setattr__(self, "_log", log)
        return log

    def encode(self) -> bytes:
        """The encoding; made once."""
        encoded = self._encoded
        if encoded is None:
            encoded = b"".join(
                (
                    b"\1" if self.end_of_log else b"\0",
                    self.author,
                    varu64.encode(self.log_id),
                    varu64.encode(self.seqnum),
                    self.lipmaalink or b"",
                    self.backlink or b"",
                    varu64.encode(self.payload_size),
                    self.payload_hash,
                    self.signature,
                )
            )
            object.__setattr__(self, "_encoded", encoded)
        return encoded

    def signed_bytes(self) -> bytes:
        """The signed bytes: the encoding without the signature."""
        return self.encode()[:-SIGNATURE_SIZE]

    def hash(self) -> bytes:
        """The encoded hash of the encoding, signature included; made once."""
        hash = self._hash
        if hash is None:
            hash = self.family.hash(self.encode())
            object.__setattr__(self, "_hash", hash)
        return hash


def _making(fields: Callable[P, _Fields]) -> Callable[P, Entry]:
    return cast("Callable[P, Entry]", fields)  # it becomes one, as its last act


assemble = _making(_Fields)
"""An `Entry` of fields that are known to be right, with its encoding and hash.

That is done for every entry that a replicator receives.
"""


def encoded_size_max(family: HashFamily) -> int:
    """The size in bytes that no encoded entry exceeds."""
    return 1 + AUTHOR_SIZE + 3 * _VARU64_SIZE_MAX + 3 * family.encoded_size + SIGNATURE_SIZE


def decode(data: Buffer, *, family: HashFamily) -> Entry:
    """Decode bytes that are one entry and nothing else.

    Raises as `decode_prefix` does, and `DecodeError` with ``TRAILING_DATA``.
    """
    entry, end = decode_prefix(data, family=family)
    if end != len(data):
        raise DecodeError(WireErrorCode.TRAILING_DATA, end, "bytes follow the entry")
    return entry


def decode_prefix(data: Buffer, offset: int = 0, *, family: HashFamily) -> tuple[Entry, int]:
    """Decode the entry that starts at `offset`; also return the index just after it.

    Raises `Truncated` if more bytes could complete it, else `DecodeError`: ``BAD_TYPE``
    (tag, or hash function), ``BAD_VALUE`` (seqnum 0), ``BAD_LENGTH`` (digest),
    ``NON_CANONICAL``.
    """
    if not isinstance(data, bytes):
        window = bytes(data[offset : offset + encoded_size_max(family)])
        try:
            entry, size = decode_prefix(window, family=family)
        except DecodeError:  # again, for its index
            return decode_prefix(bytes(data), offset, family=family)
        return entry, offset + size
    try:
        tag = data[offset]
        if tag > _TAG_END_OF_LOG:
            raise DecodeError(WireErrorCode.BAD_TYPE, offset, f"unknown tag {tag}")
        at = offset + 1 + AUTHOR_SIZE
        author = data[offset + 1 : at]
        log_id, at = _decode_varu64(data, at)
        seqnum_at = at
        seqnum, at = _decode_varu64(data, at)
        if not seqnum:
            raise DecodeError(WireErrorCode.BAD_VALUE, seqnum_at, "sequence number 0")
        lipmaalink = backlink = None
        if seqnum > 1:
            if has_lipmaalink(seqnum):
                lipmaalink, at = family.decode(data, at)
            backlink, at = family.decode(data, at)
        payload_size, at = _decode_varu64(data, at)
    except IndexError:
        raise Truncated(len(data)) from None
    payload_hash, at = family.decode(data, at)
    end = at + SIGNATURE_SIZE
    if end > len(data):
        raise Truncated(len(data))

    entry = assemble(
        family,
        LogKey(author, log_id),
        tag == _TAG_END_OF_LOG,
        seqnum,
        lipmaalink,
        backlink,
        payload_size,
        payload_hash,
        data[at:end],
        data[offset:end],
        None,
    )
    return entry, end


def sign(
    key: SigningKey,
    *,
    family: HashFamily,
    log_id: int,
    seqnum: int,
    payload: Buffer | None = None,
    payload_size: int | None = None,
    payload_hash: bytes | None = None,
    backlink: bytes | None = None,
    lipmaalink: bytes | None = None,
    end_of_log: bool = False,
) -> Entry:
    """Make and sign an entry for `payload`, or for a payload known by size and hash.

    Raises `ValueError` for fields that no encoding has, as `Entry` does.
    """
    if payload is not None:
        payload_size, payload_hash = memoryview(payload).nbytes, family.hash(payload)
    if payload_size is None or payload_hash is None:
        raise ValueError("neither a payload nor the size and hash of one")
    unsigned = Entry(
        family=family,
        author=bytes(key.verify_key),
        log_id=log_id,
        seqnum=seqnum,
        lipmaalink=lipmaalink,
        backlink=backlink,
        payload_size=payload_size,
        payload_hash=payload_hash,
        signature=bytes(SIGNATURE_SIZE),
        end_of_log=end_of_log,
    )
    return replace(unsigned, signature=key.sign(unsigned.signed_bytes()).signature)


def verify_signature(entry: Entry) -> bool:
    """Whether the author named in the entry signed it.

    libsodium's rules: no signature scalar at or above the group order, no point of small
    order.  So only the author can turn one valid signature into another.
    """
    encoded = entry.encode()
    try:
        crypto_sign_open(encoded[-SIGNATURE_SIZE:] + encoded[:-SIGNATURE_SIZE], entry.author)
    except BadSignatureError:
        return False
    return True


def _decode_varu64(data: bytes, offset: int) -> tuple[int, int]:
    first = data[offset]
    if first < 248:
        return first, offset + 1
    return varu64.decode(data, offset, canonical=True)


def _check_link(name: str, link: bytes | None, due: bool, entry: Entry) -> None:
    if due != (link is not None):
        raise ValueError(f"entry {entry.seqnum} has {'a' if due else 'no'} {name}")
    if link is not None:
        entry.family.check(name, link)
