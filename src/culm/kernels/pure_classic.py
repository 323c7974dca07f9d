"""Plainly written messages of Secure Scuttlebutt: the specification of `culm.kernels._classic`.

Nearly every message comes as V8's ``JSON.stringify(message)`` has written it, without spaces.
Such a text gives the signed text without being parsed: only line breaks and spaces have to be
put in. Texts of any other form, messages or not, are left to the caller.

*Plain* is a message in UTF-8 such that

- the seven fields are there in order (author and sequence may change places), each in its form,
  with nothing between them; sequence has at most 15 digits; previous is null if it is 1, and an id
  otherwise;
- the content is an object with a ``type`` of 3 to 52 UTF-16 units without escapes, or a text
  without escapes that ends with ``.box`` or ``.box2``;
- no key begins with a digit, no key is there twice in an object, and no object has more than 64;
- texts have only the escapes that V8 writes, and no halves of surrogate pairs;
- numbers are integers of at most 15 digits, or have a fraction and at most 17 digits, and are
  written as V8 writes them;
- lists and objects that are not empty are at most 32 deep, the message itself not counted;
- the text of it, indented, has at most 8192 UTF-16 units.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["scan"]

_DATA_SIZE_MAX: Final = 3 * 8192
_UNITS_MAX: Final = 8192
_DEPTH_MAX: Final = 32
_KEYS_MAX: Final = 64
_TYPE_UNITS_MIN, _TYPE_UNITS_MAX = 3, 52
_DIGITS_SAFE: Final = 15  # decimal digits that survive in every double
_DIGITS_MAX: Final = 17

_BASE64_32: Final = rb"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="
_BASE64_64: Final = rb"[A-Za-z0-9+/]{85}[AQgw]=="
_SEQUENCE: Final = rb'"sequence":([1-9][0-9]{0,14})'
_AUTHOR: Final = rb'"author":"(@' + _BASE64_32 + rb'\.ed25519)"'
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_HEAD: Final = re.compile(
    rb'\{"previous":(null|"%' + _BASE64_32 + rb'\.sha256"),'
    rb"(?:" + _SEQUENCE + rb"," + _AUTHOR + rb"|" + _AUTHOR + rb"," + _SEQUENCE + rb"),"
    rb'"timestamp":(' + _NUMBER + rb'),"hash":"sha256","content":'
)
_TAIL: Final = re.compile(rb',"signature":"' + _BASE64_64 + rb'\.sig\.ed25519"\}')
_TOKEN: Final = re.compile(
    rb'(?P<string>"(?:[ !#-\[\]-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]'
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    rb"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
    rb'|\\["\\bfnrt]|\\u00(?:0[0-7bef]|1[0-9a-f]))*")'
    rb"|(?P<number>" + _NUMBER + rb")|(?P<word>true|false|null)|(?P<sign>[\[\]{},:])"
)


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise TypeError(f"data is bytes, not {type(data).__name__}")


def scan(data: bytes) -> tuple[bytes, int, int, int, int, int, int] | None:
    """The parts of a plain message, and its text; ``None`` if it is none.

    Returns the text of the message, indented by two spaces, the sequence, and where in `data`
    the author begins (53 bytes), the timestamp begins and ends, and the content begins and
    ends.  The id of the previous message, if there is one, lies from 13 to 65, the signature, in
    base64, in the 88 bytes that end 14 bytes before the end.  Raises ``TypeError`` for anything
    but bytes.
    """
    _check_bytes(data)
    head = _HEAD.match(data) if len(data) <= _DATA_SIZE_MAX else None
    if head is None or not _is_plain_number(head[6]):
        return None
    previous, sequence, author = head[1], int(head[2] or head[5]), 3 if head[2] else 4
    if (sequence == 1) is not (previous == b"null"):
        return None
    try:
        content, end = _Content(data, head.end()).read()
    except _NotPlain:
        return None
    if not _TAIL.fullmatch(data, end):
        return None
    lines = [b'"sequence": %d' % sequence, b'"author": "%b"' % head[author]]
    first, second = lines if author == 3 else reversed(lines)
    text = (
        b'{\n  "previous": %b,\n  %b,\n  %b,\n  "timestamp": %b,\n  "hash": "sha256",\n'
        b'  "content": %b,\n  "signature": %b\n}'
    ) % (previous, first, second, head[6], content, data[end + 13 : -1])
    if _units(text) > _UNITS_MAX:
        return None
    return text, sequence, head.start(author), head.start(6), head.end(6), head.end(), end


def _units(text: bytes) -> int:
    return len(text.decode().encode("utf-16-le")) // 2


def _is_plain_number(number: bytes) -> bool:
    """Whether V8 writes the number like that."""
    whole, _, fraction = number.lstrip(b"-").partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    if not fraction:
        return number != b"-0" and len(whole) <= _DIGITS_SAFE
    if not digits or fraction.endswith(b"0") or len(digits) > _DIGITS_MAX:
        return False
    if len(digits) > _DIGITS_SAFE:
        return repr(float(number)) == number.decode()
    return whole != b"0" or len(fraction) - len(digits) <= 5


class _NotPlain(Exception):
    """The content is written in another way, or is none."""


class _Content:
    """Reads a content from `start` on, and writes it indented."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._at = start
        self._pieces: list[bytes] = []
        self._open: list[set[bytes] | None] = []  # of objects, the keys; None is a list

    def read(self) -> tuple[bytes, int]:
        """The text, and where the content ends.  Raises `_NotPlain`."""
        kind, token = self._token()
        if kind == "string":
            if not token.endswith((b'.box"', b'.box2"')) or b"\\" in token:
                raise _NotPlain
            return token, self._at
        if token != b"{":
            raise _NotPlain
        self._value(kind, token)
        if not self._open:  # an object without a type
            raise _NotPlain
        while self._open:
            self._go_on()
        return b"".join(self._pieces), self._at

    def _token(self) -> tuple[str | None, bytes]:
        found = _TOKEN.match(self._data, self._at)
        if found is None:
            raise _NotPlain
        self._at = found.end()
        return found.lastgroup, found[0]

    def _value(self, kind: str | None, token: bytes) -> None:
        """Write a value, of a list or object that is not empty only the beginning."""
        if kind == "number" and not _is_plain_number(token):
            raise _NotPlain
        if kind != "sign":
            self._pieces.append(token)
        elif self._data[self._at - 1 : self._at + 1] in (b"[]", b"{}"):
            self._pieces.append(self._data[self._at - 1 : self._at + 1])
            self._at += 1
        elif token in (b"[", b"{"):
            if len(self._open) == _DEPTH_MAX:
                raise _NotPlain
            self._open.append(set() if token == b"{" else None)
            self._item(token)
        else:
            raise _NotPlain

    def _item(self, before: bytes) -> None:
        """Begin a line, write a key if there has to be one, and a value."""
        self._pieces.append(before + self._line())
        keys = self._open[-1]
        kind, token = self._token()
        if keys is None:
            return self._value(kind, token)
        if kind != "string" or token[1:2].isdigit() or token in keys or len(keys) == _KEYS_MAX:
            raise _NotPlain
        keys.add(token)
        if self._token()[1] != b":":
            raise _NotPlain
        self._pieces.append(token + b": ")
        kind, value = self._token()
        if token == b'"type"' and len(self._open) == 1:
            units = _units(value[1:-1]) if kind == "string" and b"\\" not in value else 0
            if not _TYPE_UNITS_MIN <= units <= _TYPE_UNITS_MAX:
                raise _NotPlain
        return self._value(kind, value)

    def _go_on(self) -> None:
        """After a value: a comma and another one, or the end of its container."""
        keys = self._open[-1]
        token = self._token()[1]
        if token == b",":
            return self._item(token)
        if token != (b"]" if keys is None else b"}"):
            raise _NotPlain
        self._open.pop()
        if not self._open and b'"type"' not in (keys or ()):
            raise _NotPlain
        self._pieces.append(self._line() + token)
        return None

    def _line(self) -> bytes:
        return b"\n" + b"  " * (len(self._open) + 1)
