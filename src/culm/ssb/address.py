"""Where a peer of Secure Scuttlebutt listens, in the notation of peers."""

from __future__ import annotations

import re
from typing import NamedTuple

from culm.ssb.feed_id import check_feed_id

__all__ = ["Address"]

_TEXT = re.compile(
    r"net:(?P<host>[^\n\ud800-\udfff]+):(?P<port>\d{1,5})~shs:(?P<key>[A-Za-z0-9+/]{43}=)"
)


class Address(NamedTuple):
    """A host, a port, and the feed ID of the peer that listens there.

    Source: the Scuttlebutt Protocol Guide, "Peer connections", for the key; the notation is that
    of multiserver addresses, for TCP.
    """

    host: str
    port: int
    peer: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``net:HOST:PORT~shs:KEY``; raises `ValueError`."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"not an address (net:HOST:PORT~shs:KEY): {text!r}")
        peer = f"@{found['key']}.ed25519"
        check_feed_id("key", peer)
        return cls(found["host"].strip("[]"), int(found["port"]), peer)

    def __str__(self) -> str:
        return f"net:{self.host}:{self.port}~shs:{self.peer[1:45]}"
