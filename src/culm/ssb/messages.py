"""Messages in the classic format: read, checked, made and signed.

A message is a JSON object of seven fields, the last of which signs the others::

    {"previous": ..., "sequence": ..., "author": ..., "timestamp": ..., "hash": "sha256",
     "content": ..., "signature": ...}

The signature covers the text that V8 writes for the object without it, indented by two spaces, in
UTF-8; the id is the SHA-256 of the same text with the signature, taking the lower byte of each
UTF-16 unit (Scuttlebutt Protocol Guide, "Feeds"; `culm.ssb.v8json`).

The form (`read_message`), the signature (`ClassicMessage.verify`) and the place in the feed
(`check_place`) are checked separately, so that signatures can be verified elsewhere, or many at a
time (`verify_messages`).
"""

from __future__ import annotations

import hmac
import re
from array import array
from base64 import b64decode, b64encode
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256, sha512
from itertools import accumulate
from math import isfinite
from typing import Any, Final, NamedTuple

from nacl.signing import SigningKey

from culm.arguments import check_bytes, check_type, is_dict
from culm.buffer import Buffer
from culm.kernels import classic, hashing
from culm.signatures import Signed
from culm.ssb.v8json import (
    SAFE_INTEGER_MAX,
    JsonError,
    JsonTooDeepError,
    JsonTooLongError,
    JsonValue,
    parse,
    stringify,
    utf16_size,
)

TEXT_UNITS_MAX: Final = 8192
"""UTF-16 units in the text of a message with its signature."""
DATA_SIZE_MAX: Final = 6 * TEXT_UNITS_MAX
"""Bytes of a message as received: its size if every unit is written as an escape."""

_DEPTH_MAX: Final = 64  # deeper nesting exceeds TEXT_UNITS_MAX by its indentation alone
_TYPE_UNITS_MIN, _TYPE_UNITS_MAX = 3, 52
_KEY_SIZE = 32
_SIGNATURE_SIZE = 64
# Base64 of 32 and of 64 bytes; unused bits are zeros.
_BASE64_32: Final = r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_BASE64_64: Final = r"[A-Za-z0-9+/]{85}[AQgw]=="
_AUTHOR: Final = re.compile(rf"@{_BASE64_32}\.ed25519")
_ID: Final = re.compile(rf"%{_BASE64_32}\.sha256")
_SIGNATURE: Final = re.compile(rf"{_BASE64_64}\.sig\.ed25519")
_ORDERS: Final = (
    ["previous", "sequence", "author", "timestamp", "hash", "content", "signature"],
    ["previous", "author", "sequence", "timestamp", "hash", "content", "signature"],
)
_BOXES: Final = (".box", ".box2")
# The signature's part of the text: a comma, its line, and a line break.
_SIGNATURE_LINE: Final = len(',\n  "signature": "') + len("=.sig.ed25519") + 87 + len('"\n}')


class MessageErrorCode(IntEnum):
    """Reasons to refuse a message, or its place in the feed."""

    NOT_JSON = 1
    """Data that is not JSON, or not an object."""
    WRONG_FIELDS = 2
    """Fields other than the seven, or in another order; author and sequence may be swapped."""
    BAD_AUTHOR = 3
    """An author that is not the id of an Ed25519 feed."""
    BAD_SEQUENCE = 4
    """A sequence that is not an integer from 1 to 2^53 - 1."""
    BAD_PREVIOUS = 5
    """A previous that is not null in the first message, or not a message id in a later one."""
    BAD_TIMESTAMP = 6
    """A timestamp that is not a finite number."""
    BAD_HASH = 7
    """A hash that is not "sha256"."""
    BAD_CONTENT = 8
    """Content that is neither an object with a type of 3 to 52 units nor a private box's text."""
    BAD_SIGNATURE = 9
    """A signature that is malformed, or not the author's."""
    TOO_LONG = 10
    """A message whose text has more than 8192 UTF-16 units."""
    WRONG_AUTHOR = 11
    """A message from another feed than the one before it."""
    WRONG_SEQUENCE = 12
    """A sequence that does not follow that of the message before."""
    WRONG_PREVIOUS = 13
    """A previous that is not the id of the message before: the feed has forked."""


class MessageError(ValueError):
    """Data is not a message, or not the next one of its feed; `code` says why."""

    def __init__(self, code: MessageErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code

    def __str__(self) -> str:
        code, message = self.args
        name = MessageErrorCode(code).name.lower().replace("_", " ")
        return f"{name}: {message}" if message else name


class FeedPlace(NamedTuple):
    """The end of a feed: author, sequence and id of the last message."""

    author: str
    sequence: int
    id: str


class ClassicMessage:
    """A well-formed message; `verify` tells whether its author has signed it.

    Compared by id, which covers everything.

    author: the feed, ``@...=.ed25519``.
    sequence: 1 or more.
    previous: the id of the message before; ``None`` in the first one.
    timestamp: milliseconds, as claimed by its author.
    id: ``%...=.sha256``.
    data: the message as it is sent and stored: JSON without spaces, in UTF-8.
    signature: 64 bytes.
    signed: the bytes that are signed, if the network has no key of its own.
    """

    __slots__ = ("_text", "author", "data", "id", "previous", "sequence", "signature", "timestamp")

    def __init__(
        self,
        previous: str | None,
        sequence: int,
        author: str,
        timestamp: int | float,
        signature: bytes,
        data: bytes,
        text: bytes,
    ) -> None:
        """Only for `read_message`, which has checked all arguments.

        text: the text that the id is a hash of, in UTF-8.
        """
        self.previous = previous
        self.sequence = sequence
        self.author = author
        self.timestamp = timestamp
        self.signature = signature
        self.data = data
        self._text = text
        # The lower bytes of the UTF-16 units; for ASCII they are the UTF-8 text itself.
        lower = text if text.isascii() else text.decode().encode("utf-16-le")[::2]
        self.id = f"%{b2a_base64(sha256(lower).digest(), newline=False).decode()}.sha256"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassicMessage) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<ClassicMessage {self.id} {self.sequence} of {self.author}>"

    @property
    def content(self) -> JsonValue:
        """An object with a ``type``, or the text of a private box; parsed anew at every call."""
        return parse(self.data)["content"]

    @property
    def signed(self) -> bytes:
        return self._text[:-_SIGNATURE_LINE] + b"\n}"

    def signed_by_author(self, *, hmac_key: bytes | None = None) -> Signed:
        """The signed part, to be verified elsewhere (`culm.signatures.Verify`)."""
        _check_hmac_key(hmac_key)
        text = _authenticated(self.signed, hmac_key)
        return Signed(_key_of(self.author), self.signature, text)

    @property
    def place(self) -> FeedPlace:
        return FeedPlace(self.author, self.sequence, self.id)

    def verify(self, *, hmac_key: bytes | None = None) -> bool:
        """Whether the author has signed it, for the network of that key; see `verify_messages`."""
        _check_hmac_key(hmac_key)
        text = _authenticated(self.signed, hmac_key)
        ends = array("q", (0, len(text)))
        return hashing.verify_many(_key_of(self.author), self.signature, text, ends, 0) == b"\x01"


def read_message(data: str | Buffer) -> ClassicMessage:
    """Read a message from a JSON text; checks its form, not its signature or place.

    Raises `MessageError`; `TypeError` for something that is neither str nor a buffer.
    """
    if type(data) is bytes:
        plain = classic.scan(data)
        if plain is not None:
            return _take_plain(data, plain)
    return _read_written(data)


def _take_plain(data: bytes, plain: tuple[bytes, int, int, int, int, int, int]) -> ClassicMessage:
    """Read a message that `culm.kernels.classic.scan` has recognised."""
    text, sequence, author, timestamp, timestamp_end, _, _ = plain
    written = data[timestamp:timestamp_end]
    return ClassicMessage(
        None if sequence == 1 else data[13:65].decode(),
        sequence,
        data[author : author + 53].decode(),
        float(written) if b"." in written else int(written),
        a2b_base64(data[-102:-14]),
        data,
        text,
    )


def _read_written(data: str | Buffer) -> ClassicMessage:
    """Read a message from JSON text in any layout."""
    size = len(data) if isinstance(data, str) else memoryview(data).nbytes
    if size > DATA_SIZE_MAX:
        raise MessageError(MessageErrorCode.TOO_LONG, f"{size} bytes")
    text = data if isinstance(data, str) else str(memoryview(data), "utf-8", "replace")
    try:
        value = parse(text, depth_max=_DEPTH_MAX)
    except JsonTooDeepError as error:
        is_object = text.lstrip().startswith("{")
        code = MessageErrorCode.TOO_LONG if is_object else MessageErrorCode.NOT_JSON
        raise MessageError(code, str(error)) from None
    except JsonError as error:
        raise MessageError(MessageErrorCode.NOT_JSON, str(error)) from None
    if not is_dict(value):
        raise MessageError(MessageErrorCode.NOT_JSON, "no object")
    if list(value) not in _ORDERS:
        raise MessageError(MessageErrorCode.WRONG_FIELDS)
    if value["hash"] != "sha256":
        raise MessageError(MessageErrorCode.BAD_HASH)
    _check_content(value["content"])
    author = _matching(_AUTHOR, value["author"], MessageErrorCode.BAD_AUTHOR)
    sequence = _sequence(value["sequence"])
    previous = value["previous"]
    if previous is not None:
        _matching(_ID, previous, MessageErrorCode.BAD_PREVIOUS)
    if (previous is None) is not (sequence == 1):
        raise MessageError(MessageErrorCode.BAD_PREVIOUS)
    timestamp = _timestamp(value["timestamp"])
    signature = _signature(value["signature"])
    try:
        text = stringify(value, indent=2, units_max=TEXT_UNITS_MAX)
    except JsonTooLongError as error:
        raise MessageError(MessageErrorCode.TOO_LONG, str(error)) from None
    data = stringify(value).encode()
    return ClassicMessage(previous, sequence, author, timestamp, signature, data, text.encode())


def _matching(pattern: re.Pattern[str], value: JsonValue, code: MessageErrorCode) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise MessageError(code)
    return value


def _sequence(value: JsonValue) -> int:
    number = _number(value, MessageErrorCode.BAD_SEQUENCE)
    if not 1 <= number <= SAFE_INTEGER_MAX or number != int(number):
        raise MessageError(MessageErrorCode.BAD_SEQUENCE)
    return int(number)


def _timestamp(value: JsonValue) -> int | float:
    """Infinity could be signed, but is written as null, which is not a timestamp."""
    number = _number(value, MessageErrorCode.BAD_TIMESTAMP)
    if not isfinite(number):
        raise MessageError(MessageErrorCode.BAD_TIMESTAMP)
    return number


def _number(value: JsonValue, code: MessageErrorCode) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise MessageError(code)


def _signature(value: JsonValue) -> bytes:
    text = _matching(_SIGNATURE, value, MessageErrorCode.BAD_SIGNATURE)
    return b64decode(text[: text.index(".")])


def _check_content(content: JsonValue) -> None:
    if isinstance(content, str):
        if content.endswith(_BOXES):
            return
    elif is_dict(content):
        kind = content.get("type")
        if isinstance(kind, str) and _TYPE_UNITS_MIN <= utf16_size(kind) <= _TYPE_UNITS_MAX:
            return
    raise MessageError(MessageErrorCode.BAD_CONTENT)


def check_place(message: ClassicMessage, last: FeedPlace | None) -> None:
    """Raise unless a message is the next one of a feed that ends at `last` (``None``: is empty).

    Raises `MessageError`: ``WRONG_AUTHOR``, ``WRONG_SEQUENCE``, ``WRONG_PREVIOUS``.  The last of
    them proves a fork if the message is signed.
    """
    sequence, previous = 0, None
    if last is not None:
        if message.author != last.author:
            raise MessageError(MessageErrorCode.WRONG_AUTHOR, f"{message.author}")
        sequence, previous = last.sequence, last.id
    if message.sequence != sequence + 1:
        wrong = f"{message.sequence} after {sequence}"
        raise MessageError(MessageErrorCode.WRONG_SEQUENCE, wrong)
    if message.previous != previous:
        raise MessageError(MessageErrorCode.WRONG_PREVIOUS, f"{message.previous}")


def verify_messages(
    messages: Sequence[ClassicMessage], *, hmac_key: bytes | None = None
) -> list[bool]:
    """For each message, whether its author has signed it; other threads may run meanwhile.

    hmac_key: 32 bytes, of a network that has a key: there the first 32 bytes of the text's
        HMAC-SHA-512 are signed instead of the text.

    Raises `TypeError` and `ValueError` for an invalid key.
    """
    _check_hmac_key(hmac_key)
    texts = [_authenticated(message.signed, hmac_key) for message in messages]
    verdicts = hashing.verify_many(
        b"".join([_key_of(message.author) for message in messages]),
        b"".join([message.signature for message in messages]),
        b"".join(texts),
        array("q", accumulate(map(len, texts), initial=0)),
        0,
    )
    return [verdict == 1 for verdict in verdicts]


def _check_hmac_key(hmac_key: bytes | None) -> None:
    if hmac_key is not None:
        check_bytes("hmac_key", hmac_key, _KEY_SIZE)


def _authenticated(text: bytes, hmac_key: bytes | None) -> bytes:
    return text if hmac_key is None else hmac.digest(hmac_key, text, sha512)[:_KEY_SIZE]


@lru_cache(maxsize=4096)
def _key_of(author: str) -> bytes:
    return b64decode(author[1:45])


def create_message(
    identity: SigningKey,
    *,
    content: JsonValue,
    timestamp: int | float,
    last: FeedPlace | None = None,
    hmac_key: bytes | None = None,
) -> ClassicMessage:
    """Make and sign the next message of a feed, which ends at `last` (``None``: it is empty).

    content: an object with a ``type``, or the text of a private box.
    timestamp: milliseconds.
    hmac_key: 32 bytes, of a network that has a key.

    Raises `MessageError` if the result would not be a message; `TypeError` and `ValueError` for
    values that JSON does not have, for an invalid key, and for a `last` of another feed.
    """
    check_type("identity", identity, SigningKey)
    check_type("timestamp", timestamp, int, float)
    check_type("last", last, FeedPlace, type(None))
    _check_hmac_key(hmac_key)
    author = f"@{b64encode(bytes(identity.verify_key)).decode()}.ed25519"
    if last is not None and last.author != author:
        raise ValueError(f"last is of {last.author}, and the key of {author}")
    fields: dict[str, Any] = {
        "previous": None if last is None else last.id,
        "sequence": 1 if last is None else last.sequence + 1,
        "author": author,
        "timestamp": timestamp,
        "hash": "sha256",
        "content": content,
    }
    try:
        text = stringify(fields, indent=2, units_max=TEXT_UNITS_MAX)
    except JsonTooLongError as error:
        raise MessageError(MessageErrorCode.TOO_LONG, str(error)) from None
    signature = identity.sign(_authenticated(text.encode(), hmac_key)).signature
    fields["signature"] = f"{b64encode(signature).decode()}.sig.ed25519"
    return read_message(stringify(fields))
