"""The Oxen node: ``oxen``."""

from __future__ import annotations

from random import Random

from culm.machines import Codec, Config, Key, MachineType, keys_of, register
from culm.machines.encodings import DECIMAL
from culm.oxen import Dialect, Limits, Node, Timing

NAMES = (b"AAA", b"BBB", b"CCC")

EPOCH = 1_700_000_000.0

_LIMITS, _TIMING = keys_of(Limits), keys_of(Timing)

_KEYS = (
    Key(name="me", type=bytes, default=NAMES[0], meaning="The server's ID."),
    Key(name="seed", type=int, default=0, meaning="Of the node's random numbers."),
    Key(
        name="epoch",
        type=float,
        default=EPOCH,
        meaning="Unix time, in seconds, at which the clock of `advance` shows 0.",
    ),
    Key(
        name="dialect", type=Dialect, default=Dialect.KEYED, meaning="How a parcel holds its body."
    ),
    Key(
        name="key",
        type=bytes,
        default=b"",
        meaning="The cluster's secret of 32 bytes, with which datagrams are sealed; empty: none.",
        secret=True,
    ),
    *_LIMITS,
    *_TIMING,
)


def _build(config: Config) -> Node:
    seed = config["seed"]
    return Node(
        me=config["me"],
        rng=Random(seed),
        epoch=config["epoch"],
        limits=Limits(**{key.name: config[key.name] for key in _LIMITS}),
        timing=Timing(**{key.name: config[key.name] for key in _TIMING}),
        dialect=config["dialect"],
        keys=[config["key"]] if config["key"] else [],
    )


OXEN = register(
    MachineType(name="oxen", build=_build, keys=_KEYS, codec=Codec(encodings=[DECIMAL]))
)
