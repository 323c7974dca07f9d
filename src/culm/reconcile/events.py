"""Events of sessions.  The last one is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReceived(Event):
    """The peer has an item that we lack."""

    item: bytes


SessionEvent: TypeAlias = ItemReceived | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsReceived(Event):
    """The peer has items that our view lacks; each is reported once in a run."""

    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFailed(Event):
    """The sets would still differ after all that both sides have found: a keyed run begins.

    It starts from the view as it is now: a tree into which received items have been inserted gets
    no item twice.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled(Event):
    """Both sides know the same set: their views together with the items received.

    This is proved even if items were crafted: by a key of this run (`keyed`), or because the views'
    monoid is strong.
    """

    keyed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsEqual(Event):
    """The sets that both sides know have the same size and the same sum.

    So they are equal unless items were crafted: to exclude that takes a run with a key, or a monoid
    that is strong.
    """


CompactEvent: TypeAlias = ItemsReceived | CheckFailed | Reconciled | SumsEqual | Closed
