"""The options of the format ``culm``.

Those that Spark's own formats have, too, are named as there, and mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from culm.spark.archive import READ_SIZE_MAX
from culm.spark.errors import OnError
from culm.spark.files import Found, absolute
from culm.spark.paths import Filter, find_files
from culm.spark.splits import SPLIT_SIZE, Split, check_size, cut
from culm.wire.json import read_json

#: The number of files in a batch of a stream, unless the option ``files_max`` is given.
FILES_MAX = 100

_PARTS = ("split_size", "block_size_max", "column", "on_io_error", "verify")
_READ = ("path", "paths", *_PARTS, "pathGlobFilter")
#: The options of reading, of reading as a stream, and of writing.
READ = (*_READ, "recursiveFileLookup", "modifiedAfter", "modifiedBefore", "timeZone", "rests")
STREAMED = (*_READ, "recursiveFileLookup", "files_max")
WRITTEN = ("path", "kind", "partition_by")
# A catalog adds these, which have no effect on reading.
_CATALOGUED = frozenset({"serialization.format", "owner", "location", "provider", "external"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The input: the files at `paths` that pass the `filter`, or parts of files (`rests`).

    With a kind to `verify`, records are verified as such ones where they are read.  Raises
    `ValueError` unless `split_size` and `block_size_max` are positive.
    """

    paths: tuple[str, ...] = ()
    filter: Filter = field(default_factory=Filter)
    split_size: int = SPLIT_SIZE
    block_size_max: int = READ_SIZE_MAX
    column: str = "entry"
    on_io_error: OnError = OnError.FAIL
    rests: tuple[Split, ...] = ()
    verify: str | None = None

    def __post_init__(self) -> None:
        check_size("split_size", self.split_size)
        check_size("block_size_max", self.block_size_max)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Reading:
        """The input that options describe.  Raises `ValueError` for an impossible value."""
        given = {name.lower(): value for name, value in options.items()}
        rests = [Split(*each) for each in read_json(given.get("rests", "[]"))]
        return cls(
            paths=tuple(map(absolute, paths_of(options))),
            filter=Filter(
                name_glob=given.get("pathglobfilter"),
                is_recursive=_truth("recursiveFileLookup", given, default=True),
                after=_time("modifiedAfter", given),
                before=_time("modifiedBefore", given),
            ),
            split_size=int(given.get("split_size", SPLIT_SIZE)),
            block_size_max=int(given.get("block_size_max", READ_SIZE_MAX)),
            column=given.get("column", "entry"),
            on_io_error=_policy(given.get("on_io_error", OnError.FAIL)),
            rests=tuple(rests),
            verify=given.get("verify"),
        )

    def cut(self, path: str, start: int, stop: int) -> list[Split]:
        """The parts in which a file is read from `start` up to `stop`, its end; at least one."""
        parts = cut(path, start, stop, self.split_size, self.column)
        return [each._replace(block_size_max=self.block_size_max) for each in parts]

    def find(self, *, empty_allowed: bool = False) -> list[Found]:
        """The files, each once, in the order of their paths.

        Raises `FileNotFoundError` if there is nothing at a path, unless that is a pattern and
        `empty_allowed`; other `OSError` if the file system fails and the policy is to fail.
        """
        return find_files(
            self.paths,
            self.filter,
            errors_kept=self.on_io_error is OnError.QUARANTINE,
            empty_allowed=empty_allowed,
        )


def plan(reading: Reading) -> list[Split]:
    """The parts in which files are read; no file is opened but captures larger than a part.

    Raises `OSError` as `Reading.find` does.
    """
    splits = list(reading.rests)
    for found in reading.find():
        if found.size is None:
            splits.append(Split(found.path, 0, 0, fault="UNREADABLE"))
        else:
            splits += reading.cut(found.path, 0, found.size)
    return splits


def paths_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """One path, or several, which Spark passes on as a list in JSON."""
    path, paths = options.get("path"), options.get("paths")
    found = (*([path] if path else []), *(read_json(paths) if paths else []))
    if not found and "rests" not in options:
        raise ValueError(
            "the format culm needs a path: load(path), or the option path; of a table of a catalog"
            " Spark hands on no options: SELECT * FROM name WITH (path = '...')"
        )
    return found


def check_known(options: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    """Raise `ValueError` for an option that `what`, the use of the format, does not have."""
    folded = {name.lower() for name in known} | _CATALOGUED
    unknown = sorted(name for name in options if name.lower() not in folded)
    if unknown:
        raise ValueError(
            f"the format culm has no option {', '.join(unknown)} for {what};"
            f" it has {', '.join(sorted(set(known) - {'rests', 'paths'}))}"
        )


def _policy(text: str) -> OnError:
    try:
        return OnError(text.lower())
    except ValueError:
        known = " or ".join(OnError)
        raise ValueError(f"on_io_error is {known}, not {text}") from None


def _truth(name: str, given: Mapping[str, str], *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name} is true or false, not {text}")
    return text == "true"


def _time(name: str, given: Mapping[str, str]) -> float | None:
    text = given.get(name.lower())
    if text is None:
        return None
    zone = given.get("timezone", "UTC")
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC if zone == "UTC" else ZoneInfo(zone))
        return found.timestamp()
    except (ValueError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"{name} is a time as 2026-11-24T01:25:00, not {text} ({error})") from None
