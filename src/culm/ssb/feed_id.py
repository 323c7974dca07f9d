"""Feed ids: ``@``, the author's public key in base64, and the kind of key."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Collection
from typing import Final

from culm.arguments import check_bytes, check_type

# Base64 of 32 bytes: the last letter holds four bits and two zeros.
_PATTERN: Final = r"@[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=\.ed25519"
_FEED_ID: Final = re.compile(_PATTERN)
_LINES: Final = re.compile(rf"(?:{_PATTERN}\n)*")
_LINE_SIZE: Final = 54
_KEY_SIZE = 32


def is_feed_id(name: str) -> bool:
    """Whether `name` is a feed id: ``@...=.ed25519``, 53 characters.

    A key has exactly one spelling: base64 whose unused bits are not zero is refused.
    """
    return _FEED_ID.fullmatch(name) is not None


def are_feed_ids(names: Collection[object]) -> bool:
    """Whether all `names` are feed ids; faster than one by one."""
    if not all(type(name) is str for name in names):
        return False
    lines = "".join(f"{name}\n" for name in names)
    return len(lines) == _LINE_SIZE * len(names) and _LINES.fullmatch(lines) is not None


def check_feed_id(name: str, value: str) -> None:
    """Raise `TypeError` or `ValueError`, naming the argument, unless `value` is a feed id."""
    check_type(name, value, str)
    if not is_feed_id(value):
        raise ValueError(f"{name} must be the id of a feed, not {value!r}")


def feed_id_of(public_key: bytes) -> str:
    """The id of an author's feed.  Raises `ValueError` unless the key is 32 bytes."""
    check_bytes("public key", public_key, _KEY_SIZE)
    return f"@{b64encode(public_key).decode()}.ed25519"


def public_key_of(feed_id: str) -> bytes:
    """The author's public key, 32 bytes.  Raises `ValueError` for anything but a feed id."""
    check_feed_id("feed", feed_id)
    return b64decode(feed_id[1:45])
