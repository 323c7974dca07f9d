"""What a node says of itself: a small table of strings, which every peer has.

Tags as Serf has them, and by them groups as Zyre has them: who is in a group has a tag of its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from culm.arguments import check_text, check_type
from culm.machine import LocalProtocolError
from culm.oxen.errors import ErrorCode
from culm.oxen.messages import write_table
from culm.wire import xenc

__all__ = ["TAGS_MAX", "OwnTags", "fits"]

TAGS_MAX = 64
"""Tags that a node has at most."""


def fits(table: Mapping[str, str], size_max: int) -> bool:
    """Whether there are not too many tags, and no more than so many bytes of them, encoded."""
    return len(table) <= TAGS_MAX and len(xenc.encode(write_table(table))) <= size_max


class OwnTags:
    """The tags of this node, which our user changes.

    size_max: bytes of them, encoded; 0 if there are to be none.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.table: Mapping[str, str] = {}
        self.version = 0
        """How often they were changed: of two tables that a peer is sent the later one counts."""

    def replace(self, tags: Mapping[str, str]) -> bool:
        """Have these and no others; returns whether that changes anything.

        Raises `LocalProtocolError` (``TAGS_LIMIT``), and `TypeError` or `ValueError` for what are
        no strings.
        """
        check_type("tags", tags, Mapping)
        for text in (*tags.keys(), *tags.values()):
            check_text("a tag", text)
        if tags and not fits(tags, self._size_max):
            most = f"at most {TAGS_MAX} tags in {self._size_max} bytes"
            raise LocalProtocolError(ErrorCode.TAGS_LIMIT, most)
        if tags == self.table:
            return False
        self.table = dict(tags)
        self.version += 1
        return True

    def for_one_that_takes(self, size_max: int) -> Mapping[str, str]:
        """What a peer is told that takes so many bytes: all of them or none."""
        return self.table if fits(self.table, size_max) else {}
