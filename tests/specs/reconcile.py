"""Reconciliation: sets that differ in a few items or in many, and floods of ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from culm.machines import call, lookup
from culm.reconcile.frames import FrameKind, Hello, encode_frame
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Flood,
    MachineSpec,
    Many,
    Scenario,
    Usage,
    Work,
)
from culm.wire import cbor

__all__ = ["COMPACT", "PLAIN", "TWINS"]

#: Two items of 8 bytes whose hashes end in the same four bytes.
TWINS = (bytes.fromhex("800000000000a70e"), bytes.fromhex("800000000000b6c7"))

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


# One frame costs some 150 steps; the answer to it is at most everything there is to say about the
# items: 560 of 16 bytes.
_WORK = Work(base=3000, per_byte=30)


def _plain(*messages: list[object]) -> bytes:
    return b"".join(map(cbor.encode, messages))


_BEGINNING: Final = {"role": "initiator"}

_SEVERAL = {"shared": 40, "own": 12, "first_split": 4, "echo": True}

_LOW, _HIGH = bytes(8), b"\xff" * 8


def _many(**of_each: int) -> Many:
    """These, times a number of items."""

    def many(count: int) -> Scenario:
        config = {name: factor * count for name, factor in of_each.items()}
        return Scenario(name="items", left={**_COMPARING, **config}, right={**_UNKEYED, **config})

    return many


def _many_plainly(**of_each: int) -> Many:
    def many(count: int) -> Scenario:
        config = {name: factor * count for name, factor in of_each.items()}
        return Scenario(name="items", left={**_BEGINNING, **config}, right=config)

    return many


_COMPARING = {"own": 0, "shared": 0, "item_size": 16, **_INITIATOR}

_SHARED = {"items that both have": {"shared": 8, "own": 0}}
_ITEMS = {"items of which all differ": {"own": 1, "shared": 0}, **_SHARED}
# A plain reconciliation of a few dozen items divides each range once; with more, again.
_ITEMS_PLAINLY = {"items of which all differ, by four": {"own": 4, "shared": 0}, **_SHARED}

COMPACT = register(
    MachineSpec(
        machine=lookup("reconcile-compact"),
        bounds=Bounds(
            # Four times an incomplete frame, 32 KiB of unread output and one frame more, 4096
            # questions, and as much again for Python's reserve.
            retained_max=600_000,
            work=_WORK,
            tight=_TIGHT,
        ),
        usage=Usage(
            growth={name: _many(**of_each) for name, of_each in _ITEMS.items()},
            scenarios=(
                Scenario(name="a few items differ", left=_INITIATOR, right=_UNKEYED),
                Scenario(
                    name="many items differ",
                    left={**_INITIATOR, **_MANY},
                    right={**_MANY, **_UNKEYED},
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
        ),
        attacks=Attacks(
            floods=(
                Flood(unit=b"x"),
                Flood(unit=_piece(b""), opening=_OPENING),
                # Parts of the whole that all differ, and then lists.
                Flood(unit=_piece(bytes([1, 0xF2]) + b"\x7f" + b"\x02" * 9), opening=_OPENING),
                Flood(unit=_piece(bytes([1, 0x15, 0x01, 7]) + bytes(4)), opening=_OPENING),
                Flood(unit=_piece(bytes([1, 0x11]) + b"item size"[:8]), opening=_OPENING),
                # Invalid symbols, without end, and messages without any symbol.
                Flood(unit=_piece(bytes([1, 9]) + b"\0\0\0" * 3), opening=_RATELESS_OPENING),
                Flood(unit=_piece(b"\1"), opening=_RATELESS_OPENING),
                Flood(
                    unit=b"\xff" * 100, opening=_OPENING + bytes([FrameKind.PIECE, 0xFA, 1, 0, 0])
                ),
            ),
        ),
        comparison=Comparison(lazy_output=True),
    )
)

PLAIN = register(
    MachineSpec(
        machine=lookup("reconcile-plain"),
        bounds=Bounds(
            # 16 differing ranges, with two bounds each, and Python's reserve.
            retained_max=40_000,
            # The answer to a round is at most everything there is to say about the items.
            work=_WORK,
            tight={"ranges_max": 16},
        ),
        usage=Usage(
            growth={name: _many_plainly(**of_each) for name, of_each in _ITEMS_PLAINLY.items()},
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
        ),
        attacks=Attacks(
            floods=(
                Flood(unit=b"\x81"),
                Flood(unit=_plain([1, _LOW], [5, 7, bytes(16), _HIGH], [4, _LOW], [6])),
                # Parts that all differ, and items that neither side has.
                Flood(
                    opening=_plain([1, _LOW]),
                    unit=lambda number: _plain([5, 9, bytes(16), (number + 1).to_bytes(8)]),
                ),
                Flood(opening=_plain([1, _LOW]), unit=lambda at: _plain([2, (at + 1).to_bytes(8)])),
            ),
        ),
        comparison=Comparison(lazy_output=True),
    )
)
