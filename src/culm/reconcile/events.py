"""What sessions tell.  The last event is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event

__all__ = [
    "CheckFailed",
    "CompactEvent",
    "ItemReceived",
    "ItemsReceived",
    "Reconciled",
    "SessionEvent",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReceived(Event):
    """The peer has an item that we have not."""

    item: bytes


SessionEvent: TypeAlias = ItemReceived | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsReceived(Event):
    """The peer has items that our view has not; each is told once in a run."""

    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFailed(Event):
    """What both sides have found does not make their sets equal: a keyed run begins.

    It begins on what the view is now: a tree into which the items have been inserted gets no
    item twice.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled(Event):
    """Both sides know the same set: what their views were, and what they have received.

    keyed: whether that was checked with a key of this run, unknown to who made the items.
    """

    keyed: bool


CompactEvent: TypeAlias = ItemsReceived | CheckFailed | Reconciled | Closed
