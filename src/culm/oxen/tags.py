"""What a node says of itself: a small table of strings that every peer gets.

Tags are like Serf's; groups, which are like Zyre's, are tags with the group's name.
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
    """Whether there are not too many tags, and they take no more than so many bytes, encoded."""
    return len(table) <= TAGS_MAX and len(xenc.encode(write_table(table))) <= size_max


class OwnTags:
    """The tags of this node, which the user changes.

    size_max: bytes of them, encoded; 0 if there may be none.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.table: Mapping[str, str] = {}
        self.version = 0
        """How often they were changed: of two tables that a peer is sent the later one counts."""

    def replace(self, tags: Mapping[str, str]) -> bool:
        """Replace all tags by these; returns whether that changes anything.

        Raises `LocalProtocolError` (``TAGS_LIMIT``), and `TypeError` or `ValueError` for what is
        not a string.
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

    def renew(self) -> None:
        """What is told from now on counts as later than anything told before."""
        if self.version:
            self.version += 1

    def for_one_that_takes(self, size_max: int) -> Mapping[str, str]:
        """What a peer that takes so many bytes is told: all of the tags or none."""
        return self.table if fits(self.table, size_max) else {}
