"""Status records: application values that routers publishing a Meta LeaseSet share.

The proposal leaves the application's data open ("TBD, probably JSON"); its use is the
coordination of routers that publish entries in one Meta LeaseSet.  This optional module
is one typed form of that: UTF-8 JSON, one object, unknown members ignored, so that
versions can differ.  The core does not look at it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from culm.arguments import is_list
from culm.garlic.errors import ErrorCode
from culm.machine import RemoteProtocolError
from culm.wire.json import read_json

_SIZE_MAX = 64 * 1024
_COUNT_MAX = 2**53  # the integers that every JSON implementation holds exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterStatus:
    """Figures of a router: seconds since start, tunnels, bytes a second."""

    hash: str
    uptime_s: int = 0
    participating_tunnels: int = 0
    bandwidth_bytes_per_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStatus:
    """Figures of a destination in the Meta LeaseSet: its share of requests, and load."""

    hash: str
    cost: int = 0
    expires_s: int = 0
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRecord:
    """The status of the server of `raft_id` in `cluster`, told by itself."""

    raft_id: int
    cluster: str
    router: RouterStatus
    destinations: tuple[DestinationStatus, ...] = ()

    def encode(self) -> bytes:
        """An application value; equal records give equal bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @staticmethod
    def decode(value: bytes) -> StatusRecord:
        """Read a record; raises `RemoteProtocolError` (``BAD_VALUE``) for anything else."""
        if len(value) > _SIZE_MAX:
            raise RemoteProtocolError(ErrorCode.BAD_VALUE, f"{len(value)} bytes of status")
        try:
            data = read_json(value)
            destinations = data["destinations"]
            if not is_list(destinations):
                raise TypeError("destinations")
            return StatusRecord(
                raft_id=_typed(int, data["raft_id"]),
                cluster=_typed(str, data["cluster"]),
                router=_read(RouterStatus, data["router"]),
                destinations=tuple(_read(DestinationStatus, one) for one in destinations),
            )
        except (ValueError, TypeError, KeyError) as error:
            name = type(error).__name__
            raise RemoteProtocolError(ErrorCode.BAD_VALUE, f"status: {name}") from None


def _typed(kind: type[Any], value: object) -> Any:
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < _COUNT_MAX):
        raise TypeError(kind.__name__)
    return value


def _read(kind: type[Any], data: dict[str, object]) -> Any:
    """An object of figures: a hash, and counts that may be left out."""
    made = {"hash": _typed(str, data["hash"])}
    for field in fields(kind):
        if field.name != "hash" and field.name in data:
            made[field.name] = _typed(int, data[field.name])
    return kind(**made)
