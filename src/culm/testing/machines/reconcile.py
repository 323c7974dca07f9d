"""Reconciliation: ``reconcile-compact``, and ``reconcile-plain`` for sessions of abstract messages.

Config: the role, which items there are, the parameters and the limits.  Items are made from
their names: ``shared`` ones both sides have, ``own`` ones are those of the role.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import Final

from culm.arguments import check_int, check_type
from culm.machine import StreamMachine
from culm.reconcile import (
    CompactParameters,
    CompactSession,
    Limits,
    Parameters,
    PlainResponder,
    PlainSession,
    Role,
    Tree,
    View,
)
from culm.reconcile.frames import FrameKind, Hello, encode_frame
from culm.testing.encodings import CBOR
from culm.testing.machines import (
    Config,
    Flood,
    Key,
    MachineSpec,
    Scenario,
    Work,
    call,
    keys_of,
    register,
)
from culm.wire import cbor

__all__ = ["COMPACT", "PLAIN", "TWINS", "tree_of"]

#: Two items of 8 bytes whose hashes end with the same four.
TWINS = (bytes.fromhex("800000000000a70e"), bytes.fromhex("800000000000b6c7"))

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
    """The item of that name, of a size that the name decides as well if sizes vary."""
    size = config["item_size"]
    item = blake2b(name.encode(), digest_size=size).digest()
    return item[: item[-1] % (size + 1)] if config["varying"] else item


def tree_of(config: Config) -> Tree:
    """A tree of the items that the config says."""
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


_VIEWS: dict[str, View] = {}  # by what the config says of the items: made once


def _view_of(config: Config) -> View:
    """The items that the config says, which do not change."""
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


_UNKEYED = {"keyed": False}
_INITIATOR = {"role": "initiator", "seed": 1, **_UNKEYED}
_MANY = {"shared": 400, "own": 120, "item_size": 16, "first_split": 4}
_VARYING = {"varying": True, "item_size": 5, "shared": 100, "first_split": 2}
_TIGHT = {"ranges_max": 4096, "symbols_max": 4096}
_RATELESS = {**_INITIATOR, "rateless": True}

_HELLO = Hello(
    sum_size=8,
    monoid=None,
    item_size=8,
    varying=False,
    ranges_max=4096,
    salt=bytes(16),
)
_OPENING = encode_frame(FrameKind.HELLO, _HELLO.encode())
_RATELESS_OPENING = encode_frame(FrameKind.HELLO, replace(_HELLO, rateless=True).encode())


def _piece(body: bytes) -> bytes:
    return encode_frame(FrameKind.PIECE, body)


# One frame costs some 150 steps, and what is said in answer to it is at most all that there is
# to be said of the items: 560 of 16 bytes.
_WORK = Work(base=3000, per_byte=30)

COMPACT = register(
    MachineSpec(
        name="reconcile-compact",
        build=_build,
        # Four times a frame that is not whole, 32 KiB that are not taken and one frame more,
        # 4096 questions, and as much again for what Python keeps in reserve.
        retained_max=600_000,
        work=_WORK,
        keys=_KEYS,
        tight=_TIGHT,
        lazy_output=True,
        scenarios=(
            Scenario(name="a few items differ", left=_INITIATOR, right=_UNKEYED),
            Scenario(
                name="many items differ", left={**_INITIATOR, **_MANY}, right={**_MANY, **_UNKEYED}
            ),
            Scenario(
                name="items of varying size",
                left={**_INITIATOR, **_VARYING},
                right={**_VARYING, **_UNKEYED, "list_threshold": 1, "branching": 3},
            ),
            Scenario(
                name="one side is empty",
                left={**_INITIATOR, "shared": 0, "own": 0},
                right=_UNKEYED,
            ),
            Scenario(
                name="both sides have the same",
                left={**_INITIATOR, "own": 0},
                right={**_UNKEYED, "own": 0},
            ),
            Scenario(name="with a key", left={**_INITIATOR, "keyed": True}),
            Scenario(
                name="the check fails and a run with a key follows",
                left={**_INITIATOR, "sum_size": 4, "more": [TWINS[0]], "own": 0},
                right={**_UNKEYED, "more": [TWINS[1]], "own": 1},
            ),
            Scenario(
                name="sums that cannot be taken apart",
                left={**_INITIATOR, "monoid": "xxh3-xor"},
                right={**_UNKEYED, "monoid": "xxh3-xor"},
            ),
            Scenario(
                name="by coded symbols",
                left={**_RATELESS, "first_symbols": 24},
                right=_UNKEYED,
            ),
            Scenario(
                name="more coded symbols are asked for",
                left={**_RATELESS, "own": 30, "first_symbols": 20, "keyed": True},
                right={"own": 30},
            ),
            Scenario(
                name="coded symbols do not pay",
                left={**_RATELESS, "first_symbols": 4},
                right={**_UNKEYED, "own": 9, "symbols_max": 20},
            ),
            Scenario(
                name="the initiator leaves",
                left={**_INITIATOR, "list_threshold": 1},
                right=_UNKEYED,
                script=(("left", call("close")),),
            ),
        ),
        floods=(
            Flood(unit=b"x"),
            Flood(unit=_piece(b""), opening=_OPENING),
            # Parts of everything that all differ, and then lists.
            Flood(unit=_piece(bytes([1, 0xF2]) + b"\x7f" + b"\x02" * 9), opening=_OPENING),
            Flood(unit=_piece(bytes([1, 0x15, 0x01, 7]) + bytes(4)), opening=_OPENING),
            Flood(unit=_piece(bytes([1, 0x11]) + b"item size"[:8]), opening=_OPENING),
            # Symbols that are none, without end, and without any symbol.
            Flood(unit=_piece(bytes([1, 9]) + b"\0\0\0" * 3), opening=_RATELESS_OPENING),
            Flood(unit=_piece(b"\1"), opening=_RATELESS_OPENING),
            Flood(unit=b"\xff" * 100, opening=_OPENING + bytes([FrameKind.PIECE, 0xFA, 1, 0, 0])),
        ),
    )
)


_PLAIN_PARAMETERS = keys_of(Parameters)


def _build_plain(config: Config) -> StreamMachine:
    view = _view_of(config)
    parameters = Parameters(**{key.name: config[key.name] for key in _PLAIN_PARAMETERS})
    if config["forgets"]:
        return PlainResponder(view=view, parameters=parameters)
    return PlainSession(view=view, role=config["role"], parameters=parameters)


def _plain(*messages: list[object]) -> bytes:
    return b"".join(map(cbor.encode, messages))


_BEGINNING: Final = {"role": "initiator"}
_SEVERAL = {"shared": 40, "own": 12, "first_split": 4, "echo": True}
_LOW, _HIGH = bytes(8), b"\xff" * 8

PLAIN = register(
    MachineSpec(
        name="reconcile-plain",
        build=_build_plain,
        # 16 ranges that differ, with two bounds each, and what Python keeps in reserve.
        retained_max=40_000,
        # What is said in answer to a round is at most all that there is to be said of the items.
        work=_WORK,
        keys=(
            *_SETS,
            Key(
                name="forgets",
                type=bool,
                default=False,
                meaning="A responder that keeps nothing from one round to the next.",
            ),
            *_PLAIN_PARAMETERS,
        ),
        tight={"ranges_max": 16},
        lazy_output=True,
        encodings=CBOR,
        scenarios=(
            Scenario(name="a few items differ", left=_BEGINNING),
            Scenario(
                name="many items differ, and both learn what",
                left={**_BEGINNING, **_SEVERAL},
                right=_SEVERAL,
            ),
            Scenario(
                name="items of varying size",
                left={**_BEGINNING, **_VARYING, "shared": 20},
                right={**_VARYING, "shared": 20, "payload_threshold": 1, "branching": 3},
            ),
            Scenario(name="one side is empty", left={**_BEGINNING, "shared": 0, "own": 0}),
            Scenario(
                name="a responder that forgets",
                left={**_BEGINNING, "own": 5, "payload_threshold": 1},
                right={"forgets": True, "branching": 2},
            ),
            Scenario(
                name="the initiator leaves",
                left={**_BEGINNING, "payload_threshold": 1},
                script=(("left", call("close")),),
            ),
        ),
        floods=(
            Flood(unit=b"\x81"),
            Flood(unit=_plain([1, _LOW], [5, 7, bytes(16), _HIGH], [4, _LOW], [6])),
            # Parts that all differ, and items that nobody has.
            Flood(
                opening=_plain([1, _LOW]),
                unit=lambda number: _plain([5, 9, bytes(16), (number + 1).to_bytes(8)]),
            ),
            Flood(opening=_plain([1, _LOW]), unit=lambda at: _plain([2, (at + 1).to_bytes(8)])),
        ),
    )
)
