"""The protocols by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from culm.buffer import Buffer
from culm.capture.dissect.bamboo import take_entry
from culm.capture.dissect.bymux import take_packet as take_bymux_packet
from culm.capture.dissect.fields import Dissection, DissectionFault, fault_of
from culm.capture.dissect.garlic import take_frame
from culm.capture.dissect.layers import Items, Layer, cut_items
from culm.capture.dissect.oxen import take_datagram
from culm.capture.dissect.p2panda import take_message, take_operation
from culm.capture.dissect.point2point import connection
from culm.capture.dissect.ssb import Boxes, KeysOf, Session
from culm.capture.dissect.ssb import take_packet as take_muxrpc_packet
from culm.oxen.messages import Dialect as OxenDialect
from culm.p2panda.codec import Dialect as P2pandaDialect
from culm.ssb import Keys
from culm.wire.errors import Truncated
from culm.wire.multihash import FAMILIES

__all__ = ["PROTOCOLS", "dissect", "missing"]


def _bamboo(family: str = "YAMF") -> Layer:
    return Items(partial(take_entry, family=FAMILIES[family]))


def _point2point(family: str = "YAMF") -> Layer:
    return connection(FAMILIES[family])


def _oxen(dialect: str = "keyed") -> Layer:
    return Items(partial(take_datagram, dialect=OxenDialect(dialect.lower())))


def _p2panda(dialect: str = "seed") -> Layer:
    return Items(partial(take_message, dialect=P2pandaDialect(dialect.lower())))


def _keys_of(key: bytes | None, nonce: bytes, keys_of: KeysOf | None) -> KeysOf:
    """The function that gives the keys, if there are any."""
    if keys_of is not None:
        return keys_of

    def known() -> Keys:
        if key is None:
            raise LookupError("there is no key")
        return Keys(key, nonce)

    return known


def _boxes(
    key: bytes | None = None, nonce: bytes = bytes(24), keys_of: KeysOf | None = None
) -> Layer:
    return Boxes(_keys_of(key, nonce, keys_of))


def _session(
    role: str = "client",
    key: bytes | None = None,
    nonce: bytes = bytes(24),
    keys_of: KeysOf | None = None,
) -> Layer:
    return Session(role.lower(), _keys_of(key, nonce, keys_of))


PROTOCOLS: dict[str, Callable[..., Layer]] = {
    "bamboo": _bamboo,
    "bymux": lambda: Items(take_bymux_packet),
    "garlic": lambda: Items(take_frame),
    "oxen": _oxen,
    "p2panda": _p2panda,
    "p2panda-operation": lambda: Items(take_operation),
    "point2point": _point2point,
    "ssb-box-stream": _boxes,
    "ssb-handshake": _session,
    "ssb-muxrpc": lambda: Items(take_muxrpc_packet),
}


def dissect(protocol: str, data: Buffer, **options: Any) -> Dissection:
    """The fields of all bytes that one side has sent (Oxen: of one datagram).

    protocol: one of `PROTOCOLS`.
    options: ``family`` of hashes for bamboo and point2point, ``dialect`` for p2panda and oxen,
        ``key`` and ``nonce`` of the sender for ssb-box-stream and ssb-handshake, for the latter its
        ``role``, too.

    >>> from culm.capture.dissect import leaves
    >>> found = dissect("bymux", bytes.fromhex("000105"))
    >>> [(each.name, each.offset, each.value) for each in leaves(found.fields)]
    [('header', 0, <PacketType.CREDIT: 0>), ('stream_id', 1, 1), ('amount', 2, 5)]
    """
    layer, raw = PROTOCOLS[protocol](**options), bytes(data)
    items = deque([*layer.feed(raw), *layer.force()])
    fields = tuple(cut_items(items, 0, len(raw), 0))
    fault = min(layer.faults, key=lambda each: each.offset, default=None)
    return Dissection(fields, fault or missing(layer, len(raw)))


def missing(layer: Layer, size: int) -> DissectionFault | None:
    """The fault of bytes that end too early, after `size`; ``None`` if they do not."""
    return fault_of(Truncated(size), 0, size) if layer.is_amid else None
