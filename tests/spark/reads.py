"""Reading of paths, without Spark; and file systems that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyarrow import fs

from culm.spark import files, options
from culm.spark.errors import OnError
from culm.spark.options import Reading
from culm.spark.reading import read_split
from culm.spark.splits import SPLIT_SIZE, Split


def plan(path: str, split_size: int = SPLIT_SIZE, column: str = "entry") -> list[Split]:
    """The splits in which files are read."""
    return options.plan(Reading(paths=(path,), split_size=split_size, column=column))


def rows_of(splits: list[Split], on_error: OnError = OnError.FAIL) -> list[dict[str, Any]]:
    """The rows of all splits."""
    batches = (batch for split in splits for batch in read_split(split, on_error))
    return [row for batch in batches for row in batch.to_pylist()]


class Weather:
    """Fails calls of the file system: call number `first` (from 0), or all from that one on."""

    def __init__(self, error: int, first: int, *, forever: bool) -> None:
        self._error = error
        self._first = first
        self._forever = forever
        self.calls = 0

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function, unless this call fails."""
        at, self.calls = self.calls, self.calls + 1
        if at == self._first or (self._forever and at > self._first):
            raise OSError(self._error, os.strerror(self._error))
        return function(*arguments, **named)

    @property
    def has_failed(self) -> bool:
        """Whether any call did."""
        return self.calls > self._first


class Stormy:
    """An object whose methods of these names are called through a `Weather`."""

    def __init__(self, inner: Any, weather: Weather, names: set[str]) -> None:
        self._inner = inner
        self._weather = weather
        self._names = names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._names:
            return found

        def called(*arguments: Any) -> Any:
            result = self._weather.call(found, *arguments)
            if name == "open_input_file":
                return Stormy(result, self._weather, {"read", "seek"})
            return result

        return called


@contextmanager
def weather(error: int, first: int, *, forever: bool) -> Iterator[Weather]:
    """The file system fails in this way: at listing, stat, opening and reading."""
    bad = Weather(error, first, forever=forever)
    local = fs.LocalFileSystem()

    def opened(path: str) -> tuple[Any, str]:
        return Stormy(local, bad, {"get_file_info", "open_input_file"}), os.path.abspath(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "open_system", opened)
        patched.setattr(files, "os", Stormy(os, bad, {"stat", "lstat", "listdir"}))
        yield bad
