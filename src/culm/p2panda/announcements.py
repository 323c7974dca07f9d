"""The interests of two peers: only the latest announcement of each counts."""

from __future__ import annotations

from collections.abc import Sequence

from culm.arguments import check_int, check_type
from culm.machine import LocalProtocolError
from culm.p2panda.errors import ErrorCode
from culm.p2panda.events import Ignored
from culm.p2panda.limits import Limits
from culm.p2panda.messages import VERSION, Announce
from culm.p2panda.schema import SchemaId, schema_order

__all__ = ["Interests", "check_schema_ids"]


class Interests:
    """The announcement state of one peer.

    latest: its latest announcement; ``None`` if it has made none.
    """

    __slots__ = ("_ids", "latest")

    def __init__(self) -> None:
        self.latest: Announce | None = None
        self._ids: frozenset[str] = frozenset()

    def hear(self, announce: Announce) -> Ignored | None:
        """Take an announcement; returns why it has no effect, if it has none."""
        if announce.version != VERSION:
            return Ignored.UNKNOWN_VERSION
        if self.latest is not None and announce.timestamp <= self.latest.timestamp:
            return Ignored.OLD_TIMESTAMP
        self.latest = announce
        self._ids = frozenset(announce.schema_ids)
        return None

    def check_later(self, timestamp: int) -> None:
        """Raise `LocalProtocolError` unless an announcement of this time would be the latest."""
        if self.latest is not None and timestamp <= self.latest.timestamp:
            message = f"{timestamp}, and the last one was {self.latest.timestamp}"
            raise LocalProtocolError(ErrorCode.OLD_TIMESTAMP, message)

    def cover(self, schema_ids: Sequence[str]) -> bool:
        """Whether all of these schemas were announced."""
        return self._ids.issuperset(schema_ids)


def check_schema_ids(schema_ids: Sequence[str], limits: Limits) -> tuple[str, ...]:
    """Our own schema ids, in the order in which they are sent.

    Raises `TypeError` or `ValueError` for something that is not an id, too many ids, or one twice.
    """
    check_type("schema ids", schema_ids, Sequence)
    if isinstance(schema_ids, (str, bytes, bytearray, memoryview)):
        raise TypeError("schema ids must be a sequence of text")
    check_int("number of schema ids", len(schema_ids), 0, limits.schemas_max)
    for each in schema_ids:
        SchemaId.parse(each)
        check_int("size of a schema id", len(each), 0, limits.schema_id_size_max)
    if len(set(schema_ids)) < len(schema_ids):
        raise ValueError("a schema id twice")
    return tuple(sorted(schema_ids, key=schema_order))
