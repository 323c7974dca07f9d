"""The arguments of createHistoryStream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from culm.arguments import check_int, check_type, is_dict
from culm.ssb.feed_id import check_feed_id, is_feed_id
from culm.ssb.v8json import SAFE_INTEGER_MAX, JsonValue

METHOD: Final = ("createHistoryStream",)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """A request for the messages of a feed, in order.

    feed
        The feed's id.
    first
        The sequence of the first message that is wanted.
    limit
        The greatest number of messages; ``None``: all.
    live
        Whether later messages are wanted, too: then the stream stays open.
    old
        Whether messages that exist already are wanted.
    keys
        Whether each message comes in an object with its id: ``{"key", "value", "timestamp"}``.
    values
        Whether messages are wanted at all, or only ids.

    Raises `TypeError` and `ValueError`.
    """

    feed: str
    first: int = 1
    limit: int | None = None
    live: bool = False
    old: bool = True
    keys: bool = True
    values: bool = True

    def __post_init__(self) -> None:
        check_feed_id("feed", self.feed)
        check_int("first", self.first, 1, SAFE_INTEGER_MAX)
        if self.limit is not None:
            check_int("limit", self.limit, 1, SAFE_INTEGER_MAX)
        for name in ("live", "old", "keys", "values"):
            check_type(name, getattr(self, name), bool)

    def to_json(self) -> JsonValue:
        """The argument of the call; defaults are left out, except for ``keys``."""
        fields: dict[str, JsonValue] = {"id": self.feed, "sequence": self.first}
        if self.limit is not None:
            fields["limit"] = self.limit
        fields |= {"live": self.live, "old": self.old, "keys": self.keys}
        if not self.values:
            fields["values"] = False
        return fields

    @classmethod
    def from_args(cls, args: Sequence[JsonValue]) -> HistoryRequest:
        """Read the arguments of a peer's call.

        ``sequence`` may be called ``seq``; a limit that is not positive means no limit.  Raises
        `ValueError`, whose text is for the peer.
        """
        fields = args[0] if len(args) == 1 else None
        if not is_dict(fields):
            raise ValueError("createHistoryStream takes one object")
        feed = fields.get("id")
        if not isinstance(feed, str) or not is_feed_id(feed):
            raise ValueError("id is not a feed")
        limit = _number(fields, "limit")
        return cls(
            feed=feed,
            first=max(1, _number(fields, "sequence") or _number(fields, "seq")),
            limit=limit if limit > 0 else None,
            live=_flag(fields, "live", default=False),
            old=_flag(fields, "old", default=True),
            keys=_flag(fields, "keys", default=True),
            values=_flag(fields, "values", default=True),
        )


def _number(fields: dict[str, JsonValue], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > SAFE_INTEGER_MAX:
        raise ValueError(f"{name} is not an integer")
    return value


def _flag(fields: dict[str, JsonValue], name: str, *, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ValueError(f"{name} is not a boolean")
    return value
