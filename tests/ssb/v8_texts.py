"""JSON texts of all kinds, plain and hostile, and a V8 to judge them."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

ORACLE = Path(__file__).with_name("v8_oracle.js")

_LETTERS = (
    'abcxyz019 "\\/\b\f\n\r\t\x00\x1f\x7f\x80éß\u07ff\u0800€\u2028\u2029\ufeff\ufffd\uffff'
    "\U0001f600\U0010ffff"
)
_HALVES = [0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xD83D, 0xDE00]
_KEYS = [
    *("type", "text", "__proto__", "constructor", "toString", "hasOwnProperty", "length", ""),
    *("0", "1", "2", "9", "10", "01", "-0", "-1", "1.5", "1e3", "+1", " 1", "1 ", "٣"),
    *("4294967293", "4294967294", "4294967295", "4294967296", "9007199254740992", "2147483648"),
    *("99999999999", "null", "é", "😀", "\ud800", "\udc00\ud800"),
]
_NUMBERS = [
    *(
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1.0",
        "1E3",
        "1e+3",
        "1e-3",
        "1e400",
        "-1e400",
        "1e-400",
        "5e-324",
    ),
    *("9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993"),
    *("18446744073709551615", "123456789012345678901234567890", "1e21", "999999999999999900000"),
    *(
        "1e-6",
        "1e-7",
        "0.000001",
        "0.0000001",
        "0.1",
        "0.30000000000000004",
        "1.7976931348623157e308",
    ),
    *("1.7976931348623159e308", "2.5e-8", "1514517067954.001", "100000000000000000000"),
    *("0.1e1", "10e-1", "123e-20", "1" + "0" * 400, "0." + "0" * 400 + "1", "9" * 5000),
]
_SPACES = ["", "", "", " ", "\n", "\t\r ", "  "]
_FAULTS = [
    *(",", "]", "}", "[", "{", '"', "\\", ":", "null", "NaN", "Infinity", "-", "+1", "01", ".5"),
    *("1.", "1e", "'a'", "//", "\x00", "\n", "\v", "\xa0", "\u2028", "\ufeff", "undefined", "tru"),
    *("\\u12", "\\x41", "\\U0041", "True", "-Infinity", "１", "٣", "0x10", "1_000"),
]
_NO_UTF8 = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf0\x9f"]


class Texts:
    """Random JSON texts; most are valid, some nearly so."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def make(self) -> bytes:
        text = self._value(self.chance.choice((0, 1, 2, 3, 3, 4)))
        if self.chance.random() < 0.15:
            place = self.chance.randint(0, len(text))
            cut = self.chance.choice((0, 0, 1, 2))
            text = text[:place] + self.chance.choice(["", *_FAULTS]) + text[place + cut :]
        data = (self._space() + text + self._space()).encode("utf-8", "surrogatepass")
        if self.chance.random() < 0.05:
            place = self.chance.randint(0, len(data))
            wrong = self.chance.choice(
                (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf0\x9f")
            )
            data = data[:place] + wrong + data[place:]
        return data

    def _space(self) -> str:
        return self.chance.choice(_SPACES)

    def _value(self, depth: int) -> str:
        kind = self.chance.choice("nssbllooo" if depth else "nnsssb")
        if kind == "n":
            return self._number()
        if kind == "s":
            return self._string("".join(self._letters()))
        if kind == "b":
            return self.chance.choice(("true", "false", "null"))
        items = range(self.chance.choice((0, 1, 2, 3, 5)))
        if kind == "l":
            return self._items("[", [self._value(depth - 1) for _ in items], "]")
        return self._items("{", [self._member(depth - 1) for _ in items], "}")

    def _items(self, start: str, items: Sequence[str], end: str) -> str:
        separator = f"{self._space()},{self._space()}"
        return f"{start}{self._space()}{separator.join(items)}{self._space()}{end}"

    def _member(self, depth: int) -> str:
        named = self.chance.random() < 0.8
        key = self.chance.choice(_KEYS) if named else "".join(self._letters())
        return f"{self._string(key)}{self._space()}:{self._space()}{self._value(depth)}"

    def _letters(self) -> Iterator[str]:
        for _ in range(self.chance.choice((0, 1, 2, 5, 9))):
            half = self.chance.random() < 0.1
            yield chr(self.chance.choice(_HALVES)) if half else self.chance.choice(_LETTERS)

    def _string(self, text: str) -> str:
        """A string literal of `text`, at times with needless escapes."""
        return '"' + "".join(map(self._letter, text)) + '"'

    def _letter(self, letter: str) -> str:
        if letter in '"\\' or letter < " " or self.chance.random() < 0.2 or self._is_half(letter):
            units = letter.encode("utf-16-be", "surrogatepass")
            form = self.chance.choice(("\\u{:04x}", "\\u{:04X}"))
            return "".join(
                form.format(int.from_bytes(units[at : at + 2], "big"))
                for at in range(0, len(units), 2)
            )
        return letter

    @staticmethod
    def _is_half(letter: str) -> bool:
        return "\ud800" <= letter <= "\udfff"

    def _number(self) -> str:
        kind = self.chance.randrange(5)
        if kind == 0:
            return self.chance.choice(_NUMBERS)
        if kind == 1:
            return str(self.chance.randint(-(10**18), 10**18))
        if kind == 2:
            return repr(self.chance.uniform(-1, 1) * 10 ** self.chance.randint(-30, 30))
        if kind == 3:
            digits = str(self.chance.randint(0, 10 ** self.chance.randint(1, 25)))
            return f"{digits}e{self.chance.randint(-330, 330)}"
        return str(self.chance.randint(-9, 99))


def ask_v8(texts: Sequence[bytes]) -> list[dict[str, Any]]:
    """V8's verdict on each text: see ``v8_oracle.js``.  Skips without Node.js."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js: V8 cannot be asked")
    lines = b"\n".join(map(b64encode, texts)) + b"\n"
    done = subprocess.run([node, str(ORACLE)], input=lines, capture_output=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(texts)
    return answers
