"""Tags of a node: a small table of strings that every peer gets.

Tags are like Serf's; groups, which are like Zyre's, are tags with the group's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from culm.arguments import check_text, check_type
from culm.machine import LocalProtocolError
from culm.oxen.errors import ErrorCode
from culm.oxen.messages import write_table
from culm.wire import xenc

TAGS_MAX = 64
"""Largest number of tags of a node."""


def fits(table: Mapping[str, str], size_max: int) -> bool:
    """Whether the tags are few enough, and take at most `size_max` bytes when encoded."""
    return len(table) <= TAGS_MAX and len(xenc.encode(write_table(table))) <= size_max


class OwnTags:
    """The tags of this node, which the user changes.

    size_max: bytes of all tags, encoded; 0 turns tags off.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.table: Mapping[str, str] = {}
        self.version = 0
        """Counts the changes: of two tables, peers use the one with the higher version."""

    def replace(self, tags: Mapping[str, str]) -> bool:
        """Replace all tags by `tags`; returns whether that changes anything.

        Raises `LocalProtocolError` (``TAGS_LIMIT``), and `TypeError` or `ValueError` for tags that
        are not strings.
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
        """Let the same tags, when sent again, count as later than any sent before."""
        if self.version:
            self.version += 1

    def for_one_that_takes(self, size_max: int) -> Mapping[str, str]:
        """The tags for a peer that takes at most `size_max` bytes of them: all or none."""
        return self.table if fits(self.table, size_max) else {}
