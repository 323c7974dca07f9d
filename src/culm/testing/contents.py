"""Contents of a frame with the same size and little else in common, for `Frame.contents`.

Each is a function of its approximate size.  The first of a table is flat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from culm.wire.cbor import ARRAY, BYTES, MAP, TEXT, encode_head

Content = Callable[[int], bytes]


def _filled(before: bytes, unit: bytes, after: bytes = b"") -> Content:
    """As many units as fit."""
    return lambda size: before + unit * ((size - len(before + after)) // len(unit)) + after


def _nested(opens: bytes, inner: bytes, closes: bytes) -> Content:
    def content(size: int) -> bytes:
        count = size // len(opens + closes)
        return opens * count + inner + closes * count

    return content


def _numbered(before: bytes, unit: bytes, after: bytes) -> Content:
    """Units that all differ, as each has a number."""

    def content(size: int) -> bytes:
        width = len(str(size))
        written = unit.replace(b"#", b"0" * width)
        units = [unit.replace(b"#", b"%0*d" % (width, n)) for n in range(size // len(written))]
        return before + b"".join(units) + after

    return content


JSON: Mapping[str, Content] = {
    "flat text": _filled(b'"', b"x", b'"'),
    "brackets in brackets": _nested(b"[", b"", b"]"),
    "brackets that stay open": _filled(b"", b"["),
    "empty brackets": _filled(b"[0", b",[]", b"]"),
    "braces in braces": _nested(b'{"a":', b"0", b"}"),
    "empty braces": _filled(b"[0", b",{}", b"]"),
    "braces and brackets": _nested(b'[{"":', b"0", b"}]"),
    "quotes": _filled(b"[0", b',""', b"]"),
    "escaped quotes": _filled(b'"', b'\\"', b'"'),
    "escaped letters": _filled(b'"', b"\\u0041", b'"'),
    "halves of characters": _filled(b'"', b"\\ud800", b'"'),
    "a long number": _filled(b"", b"1"),
    "a long fraction": _filled(b"0.", b"1"),
    "a long exponent": _filled(b"1e", b"1"),
    "small numbers": _filled(b"[0", b",1", b"]"),
    "fractions": _filled(b"[0", b",1e9", b"]"),
    "words": _filled(b"[0", b",true", b"]"),
    "a key again and again": _filled(b'{"a":0', b',"a":1', b"}"),
    "keys": _numbered(b'{"a":0', b',"#":1', b"}"),
    "numbered keys": _numbered(b'{"a":0', b',"1#":1', b"}"),
    "texts": _numbered(b"[0", b',"#"', b"]"),
    "spaces": _filled(b"", b" ", b"0"),
    "no UTF-8": _filled(b'"', b"\xff", b'"'),
    "wide characters": _filled(b'"', "\N{GRINNING FACE}".encode(), b'"'),
}


def _headed(kind: int, unit: bytes) -> Content:
    """A head in its shortest form, and as many units as fit."""

    def content(size: int) -> bytes:
        count = (size - len(encode_head(kind, size))) // len(unit)
        return encode_head(kind, count) + unit * count

    return content


def _keyed(size: int) -> bytes:
    """A map of small numbers; its keys ascend."""
    count = size // 7
    pairs = (b"\x65%05d\x01" % number for number in range(count))
    return encode_head(MAP, count) + b"".join(pairs)


CBOR: Mapping[str, Content] = {
    "flat bytes": _headed(BYTES, b"x"),
    "flat text": _headed(TEXT, b"x"),
    "arrays in arrays": _filled(b"", b"\x81", b"\x00"),
    "empty arrays": _headed(ARRAY, b"\x80"),
    "maps in maps": _filled(b"", b"\xa1\x60", b"\x00"),
    "empty maps": _headed(ARRAY, b"\xa0"),
    "arrays of an empty one": _headed(ARRAY, b"\x81\x80"),
    "small numbers": _headed(ARRAY, b"\x01"),
    "large numbers": _headed(ARRAY, b"\x1b" + b"\xff" * 8),
    "long numbers": _headed(ARRAY, b"\x1b" + b"\x00" * 8),
    "empty texts": _headed(ARRAY, b"\x60"),
    "empty byte strings": _headed(ARRAY, b"\x40"),
    "fractions": _headed(ARRAY, b"\xfb" + b"\x3f" * 8),
    "words": _headed(ARRAY, b"\xf5"),
    "tags in tags": _filled(b"", b"\xc1", b"\x00"),
    "keys": _keyed,
    "no UTF-8": _headed(TEXT, b"\xff"),
}

BENCODE: Mapping[str, Content] = {
    "flat text": lambda size: b"%d:" % size + b"x" * size,
    "lists in lists": _nested(b"l", b"", b"e"),
    "lists that stay open": _filled(b"", b"l"),
    "empty lists": _filled(b"l", b"le", b"e"),
    "dictionaries in dictionaries": _nested(b"d1:a", b"i0e", b"e"),
    "empty dictionaries": _filled(b"l", b"de", b"e"),
    "empty texts": _filled(b"l", b"0:", b"e"),
    "numbers": _filled(b"l", b"i1e", b"e"),
    "a long number": _filled(b"i", b"1", b"e"),
    "a long length": _filled(b"", b"1", b":"),
    "a key again and again": _filled(b"d", b"1:ai1e", b"e"),
    "keys": _numbered(b"d", b"4:#i1e", b"e"),
}
