"""JSON from outside, under a limit of depth that does not depend on who reads it, or where."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any, Final

from culm.buffer import Buffer

#: The limit of nested lists and objects.  Servers that read the same values have to agree on
#: it.
DEPTH_MAX: Final = 64

_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS: Final = bytes(set(range(256)) - set(b"[{]}"))


class TooDeepError(ValueError):
    """A text with lists and objects nested too deeply."""


def depth(text: bytes) -> int:
    """The greatest depth of nested lists and objects, counted without parsing them.

    Brackets count outside of strings.  Of bytes that are not JSON those before the first fault
    count as a reader would count them.
    """
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(plain.split(b'"')[::2])
    steps = memoryview(outside.translate(_STEPS, _OTHERS)).cast("b")
    return max(accumulate(steps, initial=0))


def check_depth(text: bytes, depth_max: int = DEPTH_MAX) -> None:
    """Raises `TooDeepError`."""
    if text.count(b"[") + text.count(b"{") > depth_max < depth(text):
        raise TooDeepError(f"more than {depth_max} nested lists and objects")


def read_json(data: str | Buffer, *, depth_max: int = DEPTH_MAX) -> Any:
    """The value of a JSON text, in UTF-8 if it is bytes.

    Raises `TooDeepError` for one that is nested more deeply than `depth_max`, whatever else it is,
    and `ValueError` for anything but JSON.  Python's own reader raises `RecursionError` at a depth
    that depends on the version, and on the calls under way.
    """
    text = data.encode() if isinstance(data, str) else bytes(data)
    check_depth(text, depth_max)
    return json.loads(text.decode())
