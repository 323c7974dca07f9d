"""Captures in files, read and written a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from culm.capture.records import Capture

_PIECE_SIZE = 1 << 16


def open_capture(path: str) -> Capture:
    """The capture in a file.  Raises `OSError`, and `CaptureError` if it is none."""
    return Capture(pieces_of(path))


def pieces_of(path: str) -> Iterator[bytes]:
    """The bytes of a file, a few at a time."""
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_SIZE):
            yield piece


def write_pieces(path: str, pieces: Iterable[bytes]) -> None:
    """Write a file; if the first of the pieces cannot be made, the file stays as it was."""
    rest = iter(pieces)
    begins = list(islice(rest, 1))
    with open(path, "wb") as file:
        file.writelines(chain(begins, rest))
