"""The protocols by name.

The modules of each are imported on its first use: some need neither libsodium nor the like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from culm.buffer import Buffer
from culm.capture.dissect.fields import Dissection, DissectionFault, fault_of
from culm.capture.dissect.layers import Items, Layer, cut_items
from culm.wire.errors import Truncated

if TYPE_CHECKING:
    from culm.capture.dissect.ssb import KeysOf
    from culm.ssb import Keys


def _bamboo(family: str = "YAMF") -> Layer:
    from culm.capture.dissect.bamboo import take_entry
    from culm.wire.multihash import FAMILIES

    return Items(partial(take_entry, family=FAMILIES[family]))


def _bymux() -> Layer:
    from culm.capture.dissect.bymux import take_packet

    return Items(take_packet)


def _garlic() -> Layer:
    from culm.capture.dissect.garlic import take_frame

    return Items(take_frame)


def _oxen(dialect: str = "keyed") -> Layer:
    from culm.capture.dissect.oxen import take_datagram
    from culm.oxen.messages import Dialect

    return Items(partial(take_datagram, dialect=Dialect(dialect.lower())))


def _p2panda(dialect: str = "seed") -> Layer:
    from culm.capture.dissect.p2panda import take_message
    from culm.p2panda.codec import Dialect

    return Items(partial(take_message, dialect=Dialect(dialect.lower())))


def _operation() -> Layer:
    from culm.capture.dissect.p2panda import take_operation

    return Items(take_operation)


def _point2point(family: str = "YAMF") -> Layer:
    from culm.capture.dissect.point2point import connection
    from culm.wire.multihash import FAMILIES

    return connection(FAMILIES[family])


def _muxrpc() -> Layer:
    from culm.capture.dissect.ssb import take_packet

    return Items(take_packet)


def _keys_of(key: bytes | None, nonce: bytes, keys_of: KeysOf | None) -> KeysOf:
    """The function that gives the keys, if there are any."""
    if keys_of is not None:
        return keys_of
    from culm.ssb import Keys

    def known() -> Keys:
        if key is None:
            raise LookupError("there is no key")
        return Keys(key, nonce)

    return known


def _boxes(
    key: bytes | None = None, nonce: bytes = bytes(24), keys_of: KeysOf | None = None
) -> Layer:
    from culm.capture.dissect.ssb import Boxes

    return Boxes(_keys_of(key, nonce, keys_of))


def _session(
    role: str = "client",
    key: bytes | None = None,
    nonce: bytes = bytes(24),
    keys_of: KeysOf | None = None,
) -> Layer:
    from culm.capture.dissect.ssb import Handshaken

    return Handshaken(role.lower(), _keys_of(key, nonce, keys_of))


PROTOCOLS: dict[str, Callable[..., Layer]] = {
    "bamboo": _bamboo,
    "bymux": _bymux,
    "garlic": _garlic,
    "oxen": _oxen,
    "p2panda": _p2panda,
    "p2panda-operation": _operation,
    "point2point": _point2point,
    "ssb-box-stream": _boxes,
    "ssb-handshake": _session,
    "ssb-muxrpc": _muxrpc,
}


def dissect(protocol: str, data: Buffer, **options: Any) -> Dissection:
    """The fields of all bytes that one side has sent (Oxen: of one datagram).

    protocol: one of `PROTOCOLS`.
    options: ``family`` of hashes for bamboo and point2point, ``dialect`` for p2panda and oxen,
        ``key`` and ``nonce`` of the sender for ssb-box-stream and ssb-handshake, for the latter its
        ``role``, too.

    Raises `ValueError` for another protocol.

    >>> from culm.capture.dissect import leaves
    >>> found = dissect("bymux", bytes.fromhex("000105"))
    >>> [(each.name, each.offset, each.value) for each in leaves(found.fields)]
    [('header', 0, <PacketType.CREDIT: 0>), ('stream_id', 1, 1), ('amount', 2, 5)]
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"no protocol has the name {protocol}; there are: {', '.join(PROTOCOLS)}")
    layer, raw = PROTOCOLS[protocol](**options), bytes(data)
    layer.feed(raw)
    items = deque(iter(layer.next_item, None))
    layer.force()
    items.extend(iter(layer.next_item, None))
    fields = tuple(cut_items(items, 0, len(raw), 0))
    fault = min(layer.faults, key=lambda each: each.offset, default=None)
    return Dissection(fields, fault or missing(layer, len(raw)))


def missing(layer: Layer, size: int) -> DissectionFault | None:
    """The fault of bytes that end too early, after `size`; ``None`` if they do not."""
    return fault_of(Truncated(size), 0, size) if layer.is_amid else None
