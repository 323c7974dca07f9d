"""The words of command lines, each kind checked in one place.

All of these are for `type` of argparse: they make a value of a word, or say why it is none.
"""

from __future__ import annotations

import math
import os
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "address",
    "any_port",
    "count",
    "file",
    "folder",
    "host",
    "number",
    "own_address",
    "port",
    "positive",
    "source",
]

_PORT_MAX = 2**16 - 1
_POSITIVE_MIN, _POSITIVE_MAX = 1e-6, 1e9  # as seconds: no more than clocks can be asked for


def _is_number(text: str) -> bool:
    """Whether these are digits, and not too many for `int`."""
    return text.isascii() and text.isdigit() and len(text) <= 20


def number(least: int, most: int, kind: str = "a number") -> Callable[[str], int]:
    """Reads an integer from `least` to `most`."""

    def read(text: str) -> int:
        if not _is_number(text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not {kind} from {least} to {most}")
        return int(text)

    return read


port = number(1, _PORT_MAX, "a port")
any_port = number(0, _PORT_MAX, "a port")  # 0: any free one
count = number(1, 2**63 - 1)


def positive(text: str) -> float:
    """A time in seconds, or a factor."""
    try:
        found = math.nan if "_" in text else float(text)
    except ValueError:
        found = math.nan
    if not text.isascii() or not _POSITIVE_MIN <= found <= _POSITIVE_MAX:
        raise ArgumentTypeError(f"{text!r} is not a number from {_POSITIVE_MIN:g} to 10^9")
    return found


def host(text: str) -> str:
    """A name or address of a machine, of a form that can be looked up."""
    try:
        is_one = bool(text.encode("idna"))
    except UnicodeError:
        is_one = False
    if not is_one:
        raise ArgumentTypeError(f"{text!r} is not a host")
    return text


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, with brackets around an address of IPv6."""
    name, _, behind = text.rpartition(":")
    if not name or not _is_number(behind) or not 0 < int(behind) <= _PORT_MAX:
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host(name.removeprefix("[").removesuffix("]")), int(behind)


def own_address(text: str) -> tuple[str, int]:
    """``[HOST:]PORT`` to listen at; without a host, for this machine alone."""
    return address(text) if ":" in text else ("127.0.0.1", port(text))


def file(text: str) -> Path:
    """A path of a file that may exist or not; its opener will see."""
    if not text:
        raise ArgumentTypeError("an empty word is not a path")
    return Path(text)


def folder(text: str) -> Path:
    """A folder to write to, which is there or can be made."""
    path = file(text)
    there = next((one for one in (path, *path.parents) if os.path.exists(one)), path)
    if not os.path.isdir(there):
        raise ArgumentTypeError(f"{text!r} cannot be a folder: {str(there)!r} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ArgumentTypeError(f"{text!r} cannot be written to")
    return path


def source(text: str) -> Path:
    """A folder to read from."""
    if not os.path.isdir(text):
        raise ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)
