"""A machine refuses constructor arguments of the wrong type."""

from __future__ import annotations

from inspect import signature
from random import Random
from typing import Any, get_type_hints

import pytest

from culm import bymux, p2panda, point2point, reconcile
from culm.point2point import replication

_TREE = reconcile.Tree(item_size=8)
_PEERS = {"local_peer": b"one", "remote_peer": b"other"}
_ROLE = reconcile.Role.INITIATOR

#: The minimal arguments of the machines.
MADE_OF: dict[Any, dict[str, Any]] = {
    bymux.Connection: {"role": bymux.Role.PROACTIVE},
    point2point.Connection: {"role": point2point.Role.PROACTIVE},
    replication.Replicator: {"role": point2point.Role.PROACTIVE},
    p2panda.Connection: _PEERS,
    p2panda.Replicator: _PEERS,
    reconcile.Session: {"view": _TREE, "role": _ROLE},
    reconcile.PlainSession: {"view": _TREE, "role": _ROLE},
    reconcile.PlainResponder: {"view": _TREE},
    reconcile.CompactSession: {"view": _TREE, "role": _ROLE, "rng": Random(1)},
}
CASES = [
    pytest.param(machine, name, id=f"{machine.__module__}.{machine.__name__} {name}")
    for machine in MADE_OF
    for name in signature(machine).parameters
    if get_type_hints(machine.__init__)[name] is not bool
]


@pytest.mark.parametrize("machine", MADE_OF)
def test_a_machine_is_made_of_what_it_says(machine: Any) -> None:
    machine(**MADE_OF[machine])


@pytest.mark.parametrize(("machine", "name"), CASES)
def test_something_else_is_refused_at_once(machine: Any, name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name.partition("_")[0]):
        machine(**{**MADE_OF[machine], name: object()})
