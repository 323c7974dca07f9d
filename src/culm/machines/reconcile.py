"""Reconciliation: ``reconcile-compact``, and ``reconcile-plain`` for sessions of abstract messages.

Config: the role, the items, the parameters and the limits.  Items are made from their names:
both sides have the ``shared`` ones, and only one role has its ``own``.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random

from culm.arguments import check_int, check_type
from culm.machine import StreamMachine
from culm.machines import Codec, Config, Key, MachineType, keys_of, register
from culm.machines.encodings import CBOR
from culm.reconcile import (
    CompactParameters,
    CompactSession,
    Limits,
    Parameters,
    PlainResponder,
    PlainSession,
    Role,
    SessionLimits,
    Tree,
    View,
)

_COUNT_MAX = 10_000

_PARAMETERS = keys_of(CompactParameters)

_LIMITS = keys_of(Limits)

_SETS = (
    Key(name="role", type=Role, default=Role.RESPONDER, meaning="Which side it is."),
    Key(name="shared", type=int, default=40, meaning="How many items both sides have."),
    Key(name="own", type=int, default=3, meaning="How many items only this side has."),
    Key(name="more", type=list, default=[], meaning="Items that it has besides."),
    Key(name="item_size", type=int, default=8, meaning="Bytes of each item."),
    Key(name="varying", type=bool, default=False, meaning="Items are of any size up to that."),
    Key(name="monoid", type=str, default="xxh3-sum", meaning="How its tree makes fingerprints."),
)

_KEYS = (
    *_SETS,
    Key(name="seed", type=int, default=0, meaning="Of its random numbers."),
    *_PARAMETERS,
    *_LIMITS,
)


def _item_named(name: str, config: Config) -> bytes:
    """The item with that name, which also decides its size if sizes vary."""
    size = config["item_size"]
    item = blake2b(name.encode(), digest_size=size).digest()
    return item[: item[-1] % (size + 1)] if config["varying"] else item


def tree_of(config: Config) -> Tree:
    """A tree of the items in the config."""
    check_type("role", config["role"], Role)
    check_type("more", config["more"], list)
    for name in ("shared", "own"):
        check_int(name, config[name], 0, _COUNT_MAX)
    tree = Tree(item_size=config["item_size"], varying=config["varying"], monoid=config["monoid"])
    owner = config["role"].value
    for name, count in (("shared", config["shared"]), (owner, config["own"])):
        for number in range(count):
            tree.insert(_item_named(f"{name} {number}", config))
    for item in config["more"]:
        tree.insert(item)
    return tree


_VIEWS: dict[str, View] = {}  # by the config's values for the items


def _view_of(config: Config) -> View:
    """An unchanging view of the items in the config, made once."""
    said = repr([config[key.name] for key in _SETS])
    if said not in _VIEWS:
        _VIEWS[said] = tree_of(config).snapshot()
    return _VIEWS[said]


def _build(config: Config) -> StreamMachine:
    seed = config["seed"]
    check_int("seed", seed)
    return CompactSession(
        view=_view_of(config),
        role=config["role"],
        rng=Random(seed),
        parameters=CompactParameters(**{key.name: config[key.name] for key in _PARAMETERS}),
        limits=Limits(**{key.name: config[key.name] for key in _LIMITS}),
    )


_PLAIN_PARAMETERS = keys_of(Parameters)
_PLAIN_LIMITS = keys_of(SessionLimits)


def _build_plain(config: Config) -> StreamMachine:
    view = _view_of(config)
    parameters = Parameters(**{key.name: config[key.name] for key in _PLAIN_PARAMETERS})
    limits = SessionLimits(**{key.name: config[key.name] for key in _PLAIN_LIMITS})
    if config["forgets"]:
        return PlainResponder(view=view, parameters=parameters, limits=limits)
    return PlainSession(view=view, role=config["role"], parameters=parameters, limits=limits)


COMPACT = register(MachineType(name="reconcile-compact", build=_build, keys=_KEYS))

PLAIN = register(
    MachineType(
        name="reconcile-plain",
        build=_build_plain,
        keys=(
            *_SETS,
            Key(
                name="forgets",
                type=bool,
                default=False,
                meaning="A responder that keeps nothing from one round to the next.",
            ),
            *_PLAIN_PARAMETERS,
            *_PLAIN_LIMITS,
        ),
        codec=Codec(encodings=CBOR),
    )
)
