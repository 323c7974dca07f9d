"""Random portions of the last contact table, each of the size of a datagram."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import zip_longest
from random import Random

from culm.oxen.contacts import ContactTable
from culm.oxen.messages import Gossip

# Bytes of a parcel around rows and columns: keepalives and the keys of the dictionaries.
_FRAME_SIZE = 64
_ROW_SIZE = 2  # the ends of a list
_PREFIX_SIZE = 3  # of a server ID: its length and a colon
_NANOSECOND = 1e-9  # a timestamp is no finer


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

    Columns are servers in touch with any other, picked at random if they do not all fit; if there
    are some that we cannot reach directly, these are every other one, and there is room for a row
    about them.  Entries too old to make a link usable are written as time 0, which is short.  Rows
    and columns are those of servers in `shared` and our own.  ``None`` if there is nothing to tell.
    """
    me, resolution_s = contacts.me, max(resolution_s, _NANOSECOND)
    time_size = _time_size(now, resolution_s)
    left = size_max - _FRAME_SIZE
    columns: list[bytes] = []
    candidates = [me, *sorted(shared)]
    rng.shuffle(candidates)
    own_size = _PREFIX_SIZE + len(me) + _ROW_SIZE
    news = [sid for sid in candidates if sid != me and _is_far(sid, contacts, now)]
    row_size_max = _PREFIX_SIZE + max(map(len, candidates)) + _ROW_SIZE
    if news:
        others = [sid for sid in candidates if sid not in news]
        candidates = [sid for pair in zip_longest(news, others) for sid in pair if sid is not None]
    for sid in candidates:
        size = _PREFIX_SIZE + len(sid) + time_size
        reserve = row_size_max + (len(columns) + 1) * time_size if news else 0
        if (sid == me or contacts.reachable(sid, now)) and own_size + size + reserve <= left:
            columns.append(sid)
            left -= size
    if columns in ([], [me]):
        return None
    left -= own_size
    senders = [me]
    rng.shuffle(candidates)
    # Servers that we are in touch with mostly speak for themselves: rows about others come first.
    told = [to for to in columns if to in news]
    candidates.sort(key=lambda sid: not any(contacts.usable(sid, to, now) for to in told))
    for sid in candidates:
        size = _PREFIX_SIZE + len(sid) + _ROW_SIZE + len(columns) * time_size
        if sid != me and size <= left and any(contacts.usable(sid, to, now) for to in columns):
            senders.append(sid)
            left -= size

    def written(fr: bytes, to: bytes) -> float:
        time = contacts.get(fr, to)
        return math.floor(time / resolution_s) * resolution_s if contacts.fresh(time, now) else 0.0

    return Gossip({fr: [written(fr, to) for to in columns] for fr in senders}, columns)


def _is_far(sid: bytes, contacts: ContactTable, now: float) -> bool:
    """Whether others alone are in touch with `sid`."""
    return not contacts.usable(contacts.me, sid, now) and contacts.reachable(sid, now)


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
