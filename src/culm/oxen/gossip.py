"""Random portions of the last contact table, each of the size of a datagram."""

from __future__ import annotations

import math
from collections.abc import Collection
from random import Random

from culm.oxen.contacts import ContactTable
from culm.oxen.messages import Gossip

# Bytes of a parcel around rows and columns: keepalives and the keys of the dictionaries.
_FRAME_SIZE = 64
_ROW_SIZE = 2  # the ends of a list
_PREFIX_SIZE = 3  # of a server ID: its length and a colon


def fragment(
    contacts: ContactTable,
    shared: Collection[bytes],
    now: float,
    *,
    size_max: int,
    resolution_s: float,
    rng: Random,
) -> Gossip | None:
    """Our own row, and as many others as fit into `size_max` bytes.

    Rows of servers in touch with those that we cannot reach directly come first, the others at
    random.

    Columns are servers in touch with any other, picked at random if they do not all fit;
    entries too old to make a link usable are written as time 0, which is short.  Rows and columns
    are those of servers in `shared` and our own.  ``None`` if there is nothing to tell.
    """
    me = contacts.me
    time_size = _time_size(now, resolution_s)
    left = size_max - _FRAME_SIZE
    columns: list[bytes] = []
    candidates = [me, *sorted(shared)]
    rng.shuffle(candidates)
    own_size = _PREFIX_SIZE + len(me) + _ROW_SIZE
    for sid in candidates:
        size = _PREFIX_SIZE + len(sid) + time_size
        if (sid == me or contacts.reachable(sid, now)) and own_size + size <= left:
            columns.append(sid)
            left -= size
    if columns in ([], [me]):
        return None
    left -= own_size
    senders = [me]
    rng.shuffle(candidates)
    ours = {to for to in columns if contacts.usable(me, to, now)}
    # Servers that we are in touch with mostly speak for themselves: rows about others come first.
    news = [to for to in columns if to not in ours and to != me]
    candidates.sort(key=lambda sid: -sum(contacts.usable(sid, to, now) for to in news))
    for sid in candidates:
        size = _PREFIX_SIZE + len(sid) + _ROW_SIZE + len(columns) * time_size
        if sid != me and size <= left and any(contacts.usable(sid, to, now) for to in columns):
            senders.append(sid)
            left -= size

    def written(fr: bytes, to: bytes) -> float:
        time = contacts.get(fr, to)
        return math.floor(time / resolution_s) * resolution_s if contacts.fresh(time, now) else 0.0

    return Gossip({fr: [written(fr, to) for to in columns] for fr in senders}, columns)


def lively(gossip: Gossip, contacts: ContactTable, now: float) -> list[bytes]:
    """Servers in `gossip` with a recent contact: gossip must not bring back the dead."""
    found: dict[bytes, None] = {}
    for fr, times in gossip.rows.items():
        for to, time in zip(gossip.columns, times, strict=True):
            if fr != to and contacts.fresh(time, now):
                found[fr] = found[to] = None
    return list(found)


def _time_size(now: float, resolution_s: float) -> int:
    """Bytes of a timestamp close to `now`."""
    fraction = 1 if resolution_s == int(resolution_s) else 9
    return len(f"t{math.floor(now)}.e") + fraction
