"""Notes: one number tells how much of a feed a peer has, and whether it wants more.

Seed, "Control messages": a negative number means that the feed is not wanted; otherwise the lowest
bit is the receive flag (0: yes), and the bits above it are the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from culm.arguments import is_dict
from culm.machine import RemoteProtocolError
from culm.ssb.ebt.errors import ErrorCode
from culm.ssb.feed_id import is_feed_id

NOTE_MAX: Final = 2**53 - 1
"""The largest number that every implementation of JSON reads exactly."""
SEQUENCE_MAX: Final = NOTE_MAX >> 1
REFUSAL: Final = -1


class Note(NamedTuple):
    """The content of a note; without `replicate` the rest has no meaning."""

    replicate: bool
    receive: bool = False
    sequence: int = 0


_REFUSED: Final = Note(replicate=False)


def encode_note(note: Note) -> int:
    """Encode a note.  Raises `ValueError` for a sequence that is too large."""
    if not note.replicate:
        return REFUSAL
    if not 0 <= note.sequence <= SEQUENCE_MAX:
        raise ValueError(f"sequence must be in [0, {SEQUENCE_MAX}], not {note.sequence}")
    return note.sequence << 1 | (not note.receive)


def decode_note(value: int) -> Note:
    """Decode a note.  Raises `ValueError` above `NOTE_MAX`."""
    if value < 0:
        return _REFUSED
    if value > NOTE_MAX:
        raise ValueError(f"a note is at most {NOTE_MAX}, not {value}")
    return Note(True, not value & 1, value >> 1)


def decode_notes(value: object) -> Mapping[str, int]:
    """Notes by feed, from a JSON value: an object, or one that has it as ``clock``.

    Numbers are doubles, as in JavaScript: one without a fraction is an integer, however it was
    written, even if reading has rounded its fraction away.  One below all doubles is a refusal,
    like every negative number.  Raises `RemoteProtocolError`: ``NOT_NOTES``, ``BAD_FEED_ID``,
    ``BAD_NOTE``.
    """
    if is_dict(value) and is_dict(value.get("clock")):
        value = value["clock"]
    if not is_dict(value):
        raise RemoteProtocolError(ErrorCode.NOT_NOTES, f"{type(value).__name__}")
    notes: dict[str, int] = {}
    for feed, number in value.items():
        if not is_feed_id(feed):
            raise RemoteProtocolError(ErrorCode.BAD_FEED_ID, f"{feed[:64]!r}")
        if type(number) is float and (number.is_integer() or number == -inf):
            number = int(max(number, -NOTE_MAX))
        if type(number) is not int or number > NOTE_MAX:
            raise RemoteProtocolError(ErrorCode.BAD_NOTE, f"{feed}: {str(number)[:64]}")
        notes[feed] = number
    return notes
