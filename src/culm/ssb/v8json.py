"""JSON as V8 reads and writes it, which Secure Scuttlebutt signs, hashes and compares.

The signed text is the result of ``JSON.stringify`` for the result of ``JSON.parse``, so both have
to be followed to the letter (ECMA-262, "The JSON Object").  Easily forgotten:

- numbers are IEEE doubles, and written as ECMAScript writes them: ``1.0`` is 1, ``1E3`` is 1000,
  ``-0`` is 0 and ``1e400`` is null;
- keys that look like the index of an array ("0" to "4294967294") come first, in numeric order;
- of a duplicate key, the first place and the last value count;
- half a surrogate pair is written as an escape, everything else beyond ASCII as it is;
- the length of a text is counted in UTF-16 units.

No depth of nesting exhausts the stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate, chain, repeat
from json import JSONDecodeError, JSONDecoder
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias

from culm.arguments import check_type, is_dict
from culm.buffer import Buffer

#: The values that `parse` returns and `stringify` takes: ``None``, bool, int, float, str, and
#: lists and dicts of these, with str keys.
JsonValue: TypeAlias = Any

#: Up to this one, and down to its negative, every integer is a double of its own.
SAFE_INTEGER_MAX: Final = 2**53 - 1


class JsonError(ValueError):
    """A text that is not JSON."""


class JsonTooDeepError(JsonError):
    """A text that is nested more deeply than allowed."""


class JsonTooLongError(JsonError):
    """A value whose text has more UTF-16 units than allowed."""


# Reading


def parse(text: str | Buffer, *, depth_max: int | None = None) -> JsonValue:
    """The value of a JSON text, as ``JSON.parse`` reads it.

    Bytes are decoded as peers decode them: invalid UTF-8 becomes U+FFFD.  A number is an int if it
    is written without point and exponent and is at most 2^53, otherwise a float; a number that is
    too large is an infinity.

    Raises `JsonError` for something that is not JSON, `JsonTooDeepError` for lists and objects
    nested more than `depth_max` deep, which are not built; `TypeError` for something that is
    neither str nor a buffer.

    Give `depth_max` for data from a peer: values of more than about a thousand levels are read
    forty times as slowly as others.  With it, no byte costs more than ten times as much as one of a
    list of small numbers.
    """
    if not isinstance(text, str):
        text = str(memoryview(text), "utf-8", "replace")
    if depth_max is not None and text.count("[") + text.count("{") > depth_max < _depth(text):
        raise JsonTooDeepError(f"nested more than {depth_max} deep")
    try:
        return _scan(text)
    except RecursionError:
        return Parser(text).read()


_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS: Final = bytes(set(range(256)) - set(b"[{]}"))


def _depth(text: str) -> int:
    """The depth to which lists and objects are nested, without building them."""
    plain = text.replace("\\\\", "").replace('\\"', "")
    outside = "".join(plain.split('"')[::2]).encode("utf-8", "replace")
    steps = memoryview(outside.translate(_STEPS, _OTHERS)).cast("b")
    return max(accumulate(steps), default=0)


def _integer(text: str) -> int | float:
    if len(text) < 16:
        return int(text)
    number = float(text)
    return int(number) if -_DISTINCT_MAX <= number <= _DISTINCT_MAX else number


def _constant(text: str) -> NoReturn:
    raise JsonError(f"{text} is no JSON")


_DISTINCT_MAX: Final = 2.0**53
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SPACES: Final = frozenset(" \t\n\r")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, tuple[str, JsonValue]]] = {
    "t": ("true", True),
    "f": ("false", False),
    "n": ("null", None),
}
_DECODER: Final = JSONDecoder(parse_int=_integer, parse_constant=_constant)


def _scan(text: str) -> JsonValue:
    """The value of `text`, by the scanner of the standard library.

    Raises `RecursionError` if it is nested too deeply for that.
    """
    start = _after_space(text, 0) if text[:1] in _SPACES else 0
    value, end = _decode(text, start)
    if end != len(text) and _after_space(text, end) != len(text):
        raise JsonError(f"something after the value at {end}")
    return value


def _decode(text: str, start: int) -> tuple[JsonValue, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except JSONDecodeError as error:
        raise JsonError(f"{error.msg} at {error.pos}") from None


def _after_space(text: str, index: int) -> int:
    found = _SPACE.match(text, index)
    assert found is not None
    return found.end()


class Parser:
    """Reads values of any depth: incomplete lists and objects are on a stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = 0
        self._open: list[list[JsonValue] | dict[str, JsonValue]] = []
        self._keys: list[str] = []  # of the objects in _open: the key whose value is due

    def read(self) -> JsonValue:
        while True:
            value, complete = self._begin()
            while complete:
                if not self._open:
                    if self._peek():
                        raise self._wrong("something after the value")
                    return value
                value, complete = self._put(value)

    def _begin(self) -> tuple[JsonValue, bool]:
        """Read a value, or just the beginning of a list or object that is not empty."""
        sign = self._peek()
        if sign == "[":
            return self._begin_list()
        if sign == "{":
            return self._begin_object()
        if sign == '"':
            return self._string(), True
        if sign in _WORDS:
            word, value = _WORDS[sign]
            if self._text.startswith(word, self._index):
                self._index += len(word)
                return value, True
        found = _NUMBER.match(self._text, self._index)
        if found is None:
            raise self._wrong("no value")
        self._index = found.end()
        return (float if found[1] or found[2] else _integer)(found[0]), True

    def _begin_list(self) -> tuple[JsonValue, bool]:
        self._index += 1
        value: list[JsonValue] = []
        if self._peek() == "]":
            self._index += 1
            return value, True
        self._open.append(value)
        return value, False

    def _begin_object(self) -> tuple[JsonValue, bool]:
        self._index += 1
        value: dict[str, JsonValue] = {}
        if self._peek() == "}":
            self._index += 1
            return value, True
        self._open.append(value)
        self._key()
        return value, False

    def _put(self, value: JsonValue) -> tuple[JsonValue, bool]:
        """Put a complete value where it belongs; its list or object may be complete then, too."""
        inside = self._open[-1]
        sign = self._peek()
        if isinstance(inside, list):
            inside.append(value)
            end = "]"
        else:
            inside[self._keys.pop()] = value
            end = "}"
        if sign not in (end, ","):
            raise self._wrong(f"neither a comma nor {end}")
        self._index += 1
        if sign == end:
            self._open.pop()
            return inside, True
        if end == "}":
            self._key()
        return inside, False

    def _key(self) -> None:
        if self._peek() != '"':
            raise self._wrong("no key")
        self._keys.append(self._string())
        if self._peek() != ":":
            raise self._wrong("no colon")
        self._index += 1

    def _string(self) -> str:
        value, self._index = _decode(self._text, self._index)
        assert isinstance(value, str)
        return value

    def _peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        self._index = _after_space(self._text, self._index)
        return self._text[self._index : self._index + 1]

    def _wrong(self, what: str) -> JsonError:
        return JsonError(f"{what} at {self._index}")


# Writing


def stringify(value: JsonValue, *, indent: int = 0, units_max: int | None = None) -> str:
    """The text of a value, as ``JSON.stringify(value, null, indent)`` writes it.

    It can be encoded as UTF-8.  Raises `JsonTooLongError` if it has more than `units_max` UTF-16
    units, after little more work than these would take; `TypeError` for values that JSON does not
    have; `ValueError` for a value that contains itself.
    """
    text = _text_of(value)
    if text is None:
        text = "".join(_Printer(indent, units_max).write(value))
    if not text.isascii():
        text = _HALF_PAIR.sub(_escaped, text)
    if units_max is not None and utf16_size(text) > units_max:
        raise JsonTooLongError(f"more than {units_max} units")
    return text


def utf16_size(text: str) -> int:
    """The number of UTF-16 units of `text`: its length in JavaScript."""
    if text.isascii():
        return len(text)
    return len(text) + len(_ASTRAL.findall(text))


def number_text(number: float) -> str:
    """A double as ECMAScript writes it in JSON (ECMA-262, "Number::toString")."""
    if not isfinite(number):
        return "null"
    if number.is_integer() and -_DISTINCT_MAX <= number <= _DISTINCT_MAX:
        return str(int(number))
    # Python finds the same digits, the shortest that mean this number, but places the point
    # otherwise.
    written = repr(number)
    sign = "-" if written[0] == "-" else ""
    mantissa, _, exponent = written.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Write ``0.digits * 10**point``."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if digits[1:] else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"


_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_INDEX: Final = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
_INDEX_MAX: Final = 2**32 - 2
_quote: Final[Callable[[str], str]] = encode_basestring


def _escaped(half: re.Match[str]) -> str:
    return f"\\u{ord(half[0]):04x}"


def _integer_text(number: int) -> str:
    if -_DISTINCT_MAX <= number <= _DISTINCT_MAX:
        return str(int(number))
    try:
        return number_text(float(number))
    except OverflowError:
        return "null"


_TEXTS: Final[dict[type[Any], Callable[[Any], str]]] = {
    str: _quote,
    int: _integer_text,
    float: number_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


def _text_of(value: object) -> str | None:
    """The text of a scalar; ``None`` for lists and objects."""
    write = _TEXTS.get(type(value))
    if write is not None:
        return write(value)
    if isinstance(value, (list, tuple, dict)):
        return None
    for kind in (str, int, float):  # subclasses, such as members of an enum
        if isinstance(value, kind):
            return _TEXTS[kind](value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _ordered(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The same object, but keys that look like an array index come first, in numeric order."""
    indices: list[str] = []
    for key in value:
        check_type("key", key, str)
        if "0" <= key < ":" and _INDEX.match(key) and int(key) <= _INDEX_MAX:
            indices.append(key)
    if not indices:
        return value
    first = {key: value[key] for key in sorted(indices, key=int)}
    return first | value


class _Level:
    """A list or object that is not yet written completely."""

    __slots__ = ("end", "items", "value")

    def __init__(self, value: Any, depth: int, indent: int) -> None:
        inner, outer = (
            "\n" + " " * (indent * level) if indent else "" for level in (depth, depth - 1)
        )
        self.value = value
        is_object = is_dict(value)
        leads = chain((("{" if is_object else "[") + inner,), repeat("," + inner))
        items = _ordered(value).items() if is_object else value
        self.items = zip(leads, items, strict=False)  # each with the text before it
        self.end = outer + ("}" if is_object else "]")


class _Printer:
    """Writes values of any depth: lists and objects not yet written completely are on a stack."""

    def __init__(self, indent: int, units_max: int | None) -> None:
        self._indent = indent
        self._units_max = units_max
        self._pieces: list[str] = []
        self._levels: list[_Level] = []

    def write(self, value: Any) -> list[str]:
        self._open(value, "")
        while self._levels:
            self._go_on(self._levels[-1])
        return self._pieces

    def _open(self, value: Any, lead: str) -> None:
        if not value:
            self._pieces.append(lead + ("{}" if isinstance(value, dict) else "[]"))
            return
        depth = len(self._levels) + 1
        # Each item is at least a piece of two units, and each level is indented twice.
        least = 2 * (len(self._pieces) + len(value)) + self._indent * depth * (depth - 1)
        if self._units_max is not None and least > 2 * self._units_max:
            raise JsonTooLongError(f"more than {self._units_max} units")
        if depth >= 1024 and not depth & (depth - 1):
            self._check_cycle(value)
        self._pieces.append(lead)
        self._levels.append(_Level(value, depth, self._indent))

    def _check_cycle(self, value: Any) -> None:
        """Look for a cycle; only at depths that are powers of two, so that it costs little."""
        if any(level.value is value for level in self._levels):
            raise ValueError("a value that contains itself")

    def _go_on(self, level: _Level) -> None:
        """Write items up to the next nested list or object."""
        pieces = self._pieces
        is_object = isinstance(level.value, dict)
        colon = ": " if self._indent else ":"
        for lead, item in level.items:
            if is_object:
                key, item = item
                lead += _quote(key) + colon
            text = _text_of(item)
            if text is None:
                return self._open(item, lead)
            pieces.append(lead + text)
        pieces.append(level.end)
        self._levels.pop()
        return None
