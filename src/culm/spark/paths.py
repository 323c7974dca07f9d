"""Paths as users of Spark write them: several, with patterns, with filters.

A path that exists stands for itself, whatever signs are in it.  Otherwise ``*``, ``?``, ``[ab]``,
``[^a]`` and ``{a,b}`` stand for parts of names as in Hadoop's patterns, and a backslash in front of
such a sign for the sign.  No pattern matches hidden names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import PurePosixPath

from culm.spark.files import (
    PATTERN_SIGN,
    Found,
    canonical,
    exists,
    is_hidden,
    list_files,
    list_folder,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The choice of files in a directory.

    Read are files whose name matches `name_glob`, with `is_recursive` also in all directories
    below, if they were changed `after` and `before` these times, in seconds of Unix time.
    """

    name_glob: str | None = None
    is_recursive: bool = True
    after: float | None = None
    before: float | None = None

    def takes(self, found: Found) -> bool:
        """Whether a file is read, as is any that the file system cannot describe."""
        if found.is_unknown:
            return True
        name = PurePosixPath(found.path).name
        if self.name_glob is not None and not matches(self.name_glob, name):
            return False
        if self.after is not None and found.modified <= self.after:
            return False
        return self.before is None or found.modified < self.before


def find_files(
    paths: Iterable[str], only: Filter, *, errors_kept: bool = False, empty_allowed: bool = False
) -> list[Found]:
    """The files at all `paths`, each once, however often it is named, in the order of their paths.

    Raises `FileNotFoundError` if there is nothing at a path, unless that is a pattern and
    `empty_allowed`; other `OSError` as `list_files`.
    """
    found: dict[str, Found] = {}
    for path in (each for given in paths for each in expanded(given, empty_allowed=empty_allowed)):
        for each in list_files(path, is_deep=only.is_recursive, errors_kept=errors_kept):
            if only.takes(each):
                found.setdefault(canonical(each.path), each)
    return sorted(found.values())


def expanded(path: str, *, empty_allowed: bool = False) -> list[str]:
    """The paths that match a pattern; a path that exists, or is no pattern, stands for itself.

    Raises `FileNotFoundError` if nothing matches, unless that is allowed; other `OSError` if the
    file system fails.
    """
    if not PATTERN_SIGN.search(path) or exists(path):
        return [path]
    found = sorted({each for one in _alternatives(path) for each in _matching(one)})
    if not found and not empty_allowed:
        raise FileNotFoundError(f"there is nothing at {path}")
    return found


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern."""
    return any(_compiled(one).fullmatch(name) is not None for one in _alternatives(pattern))


def _alternatives(pattern: str) -> list[str]:
    """The patterns without braces that one with braces stands for."""
    depth, cuts = 0, []
    for at, sign in _signs(pattern):
        depth += (sign == "{") - (sign == "}")
        if (sign, depth) == ("{", 1) or (sign, depth) == (",", 1):
            cuts.append(at)
        elif (sign, depth) == ("}", 0) and cuts:
            cuts.append(at)
            ways = [pattern[one + 1 : two] for one, two in pairwise(cuts)]
            begins, ends = pattern[: cuts[0]], pattern[at + 1 :]
            return [each for way in ways for each in _alternatives(f"{begins}{way}{ends}")]
    return [pattern]


def _signs(pattern: str) -> Iterator[tuple[int, str]]:
    """The places of signs that are not escaped."""
    is_escaped = False
    for at, sign in enumerate(pattern):
        if not is_escaped and sign != "\\":
            yield at, sign
        is_escaped = sign == "\\" and not is_escaped


def _matching(pattern: str) -> list[str]:
    """The existing names that match a pattern without braces."""
    found: list[str | None] = [None]
    for part in pattern.split("/"):
        if PATTERN_SIGN.search(part):
            found = [
                _joined(each, name)
                for each in found
                for name in list_folder("." if each is None else each or "/")
                if not is_hidden(name) and _compiled(part).fullmatch(name)
            ]
        else:
            found = [_joined(each, part) for each in found]
    return [each for each in found if each is not None and exists(each)]


def _joined(folder: str | None, name: str) -> str:
    return name if folder is None else f"{folder}/{name}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern without braces, as a regular expression."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        end = pattern.find("]", at + 2) if sign == "[" else -1
        if sign == "\\" and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        elif end >= 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"[^{inside[1:]}]" if inside[0] in "^!" else f"[{inside}]")
            at = end
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign)))
        at += 1
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{pattern} is no pattern: {error}") from None
