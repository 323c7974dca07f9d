"""The knowledge of a node as plain data, and as printed tables.

Source: manual/dev-oxen.md, "Last contact table".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from culm.oxen.contacts import NEVER, ContactTable
from culm.oxen.peer import Peer
from culm.oxen.states import PeerState


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerView:
    """A node's knowledge of a peer at one moment."""

    sid: bytes
    state: PeerState
    usable: bool
    """Whether our own link to it may be usable."""
    reachable: bool
    """Whether any server's link to it may be usable."""
    age_s: float | None
    """Seconds since our last contact with it; ``None`` if there was none."""
    queued: int
    """Messages that it has not acknowledged."""
    early: int
    """Messages from it that wait for earlier ones."""
    message_size_max: int
    """Bytes of the largest message in order that it takes in pieces; 0 if none or unknown."""
    tags: Mapping[str, str]
    """Its tags, as far as we know."""


def view_of(peer: Peer, contacts: ContactTable, now: float) -> PeerView:
    """The view of `peer` at `now`, in Unix seconds."""
    time = contacts.get(contacts.me, peer.sid)
    incoming = peer.incoming
    return PeerView(
        sid=peer.sid,
        state=peer.state,
        usable=contacts.usable(contacts.me, peer.sid, now),
        reachable=contacts.reachable(peer.sid, now),
        age_s=None if time == NEVER else now - time,
        queued=len(peer.outgoing),
        early=0 if incoming is None else len(incoming.one) + len(incoming.broadcast),
        message_size_max=peer.message_size_max,
        tags=dict(peer.tags),
    )


def format_contacts(
    contacts: Mapping[bytes, Mapping[bytes, float]], now: float, *, age_max_s: int = 999
) -> str:
    """The last contact table with ages in whole seconds, rows and columns in order.

    ``-`` means no contact, ``>`` a contact more than `age_max_s` seconds ago.  `contacts` and `now`
    are in Unix seconds, as `Node.contacts` and `Node.unix_time` give them.
    """
    sids = sorted(contacts)

    def age(fr: bytes, to: bytes) -> str:
        time = contacts[fr].get(to)
        if time is None:
            return "-"
        seconds = int(now - time)
        return str(seconds) if seconds <= age_max_s else ">"

    rows = [["", *map(_name, sids)]]
    rows += [[_name(fr), *(age(fr, to) for to in sids)] for fr in sids]
    return _table(rows)


def format_peers(peers: Mapping[bytes, PeerView]) -> str:
    """The peers' states as a table, in the order of their server IDs."""
    rows = [["peer", "state", "link", "age", "queued", "early"]]
    for sid in sorted(peers):
        view = peers[sid]
        link = "direct" if view.usable else "by others" if view.reachable else "-"
        age = "-" if view.age_s is None else f"{view.age_s:.0f} s"
        rows.append([_name(sid), view.state.value, link, age, str(view.queued), str(view.early)])
    return _table(rows)


def _name(sid: bytes) -> str:
    text = sid.decode("ascii", "backslashreplace")
    return text if text.isprintable() else sid.hex()


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
