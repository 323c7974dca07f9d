"""Columns whose values stand in the names of directories, as ``year=2026/replica=vienna/``.

They are written as Spark writes them, and all are strings when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from culm.spark.files import PATTERN_SIGN

# Stands for null, and for empty text.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def folder_of(values: Mapping[str, object]) -> str:
    """The directory of rows with these values."""
    texts = {name: "" if value is None else str(value) for name, value in values.items()}
    return "/".join(f"{_escaped(name)}={_escaped(text) or _NULL}" for name, text in texts.items())


def values_of(path: str, paths: Iterable[str]) -> dict[str, str | None]:
    """The values in the directories of a file, below the one of `paths` that leads to it.

    For a pattern, they are in all directories below its plain beginning.
    """
    plain = (PATTERN_SIGN.split(each, maxsplit=1) for each in paths)
    begins = (each[0] if len(each) == 1 else each[0].rpartition("/")[0] for each in plain)
    begun = max((each for each in begins if path.startswith(each)), key=len, default="")
    pairs = (each.partition("=") for each in path.removeprefix(begun).split("/")[:-1])
    return {
        unquote(name): None if value == _NULL else unquote(value)
        for name, equals, value in pairs
        if equals and name
    }


def names_in(files: Iterable[str], paths: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names of such columns in the paths of `files`, except those `taken`."""
    known = {name.lower() for name in taken}
    found: dict[str, None] = {}
    for file in files:
        found |= dict.fromkeys(values_of(file, paths))
    return [name for name in found if name.lower() not in known]


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda sign: f"%{ord(sign[0]):02X}", text)
