"""The protocols by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from culm.buffer import Buffer
from culm.capture.dissect.bamboo import take_entry
from culm.capture.dissect.bymux import take_packet as take_bymux_packet
from culm.capture.dissect.fields import Dissection, dissected
from culm.capture.dissect.garlic import take_frame
from culm.capture.dissect.oxen import take_datagram
from culm.capture.dissect.p2panda import take_message, take_operation
from culm.capture.dissect.point2point import dissect_connection
from culm.capture.dissect.ssb import dissect_boxes, dissect_session
from culm.capture.dissect.ssb import take_packet as take_muxrpc_packet
from culm.oxen.messages import Dialect as OxenDialect
from culm.p2panda.codec import Dialect as P2pandaDialect
from culm.ssb import Keys
from culm.wire.multihash import FAMILIES

__all__ = ["PROTOCOLS", "dissect"]


def _bamboo(data: bytes, family: str = "YAMF") -> Dissection:
    return dissected(data, partial(take_entry, family=FAMILIES[family]))


def _point2point(data: bytes, family: str = "YAMF") -> Dissection:
    return dissect_connection(data, FAMILIES[family])


def _oxen(data: bytes, dialect: str = "keyed") -> Dissection:
    return dissected(data, partial(take_datagram, dialect=OxenDialect(dialect.lower())))


def _p2panda(data: bytes, dialect: str = "seed") -> Dissection:
    return dissected(data, partial(take_message, dialect=P2pandaDialect(dialect.lower())))


def _boxes(data: bytes, key: bytes | None = None, nonce: bytes = bytes(24)) -> Dissection:
    return dissect_boxes(data, None if key is None else Keys(key, nonce))


def _session(
    data: bytes, role: str = "client", key: bytes | None = None, nonce: bytes = bytes(24)
) -> Dissection:
    return dissect_session(data, role.lower(), None if key is None else Keys(key, nonce))


PROTOCOLS: dict[str, Callable[..., Dissection]] = {
    "bamboo": _bamboo,
    "bymux": lambda data: dissected(data, take_bymux_packet),
    "garlic": lambda data: dissected(data, take_frame),
    "oxen": _oxen,
    "p2panda": _p2panda,
    "p2panda-operation": lambda data: dissected(data, take_operation),
    "point2point": _point2point,
    "ssb-box-stream": _boxes,
    "ssb-handshake": _session,
    "ssb-muxrpc": lambda data: dissected(data, take_muxrpc_packet),
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
    return PROTOCOLS[protocol](bytes(data), **options)
