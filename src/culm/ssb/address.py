"""The address of a Secure Scuttlebutt peer, in the notation that peers use."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from nacl.bindings import crypto_sign_ed25519_pk_to_curve25519
from nacl.exceptions import CryptoError

from culm.ssb.feed_id import check_feed_id, public_key_of

_TEXT = re.compile(
    r"net:(?P<host>[^~;\[\]\s]+|\[[^~;\[\]\s]+\]):(?P<port>[1-9][0-9]{0,4})"
    r"~shs:(?P<key>[A-Za-z0-9+/]{43}=)"
)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\Z")
_PORT_MAX = 65535


class Address(NamedTuple):
    """A host, a port, and the feed ID of the peer that listens there.

    Source: the Scuttlebutt Protocol Guide, "Peer connections", for the key; the notation is that
    of multiserver addresses, for TCP.
    """

    host: str
    port: int
    peer: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``net:HOST:PORT~shs:KEY``.

        The host is a name in letters, digits and hyphens, or an IP address.  An IPv6 address may
        be read in brackets, but is written without them: JavaScript peers take them for a part of
        the name.  The port is 1 to 65535, and the key one that can have an owner.  Raises
        `ValueError`.
        """
        found = _TEXT.fullmatch(text)
        if found is None or not text.isascii():
            raise ValueError(f"not an address (net:HOST:PORT~shs:KEY): {text!r}")
        host = found["host"].strip("[]")
        if not _is_host(host, bracketed=found["host"] != host):
            raise ValueError(f"not an address, {host!r} is no host: {text!r}")
        if int(found["port"]) > _PORT_MAX:
            raise ValueError(f"not an address, the port is above {_PORT_MAX}: {text!r}")
        peer = f"@{found['key']}.ed25519"
        check_feed_id("key", peer)
        if not _can_prove(public_key_of(peer)):
            raise ValueError(f"not an address, the key is nobody's public key: {text!r}")
        return cls(host, int(found["port"]), peer)

    def __str__(self) -> str:
        return f"net:{self.host}:{self.port}~shs:{self.peer[1:45]}"


def _can_prove(key: bytes) -> bool:
    """Whether a key can have a secret half: it is on the curve, and not of low order."""
    try:
        crypto_sign_ed25519_pk_to_curve25519(key)
    except (CryptoError, TypeError, ValueError):
        return False
    return True


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        return ip_address(host).version == 6 or not bracketed
    except ValueError:
        last = host.rpartition(".")[2]  # a name that ends in a number is a wrong address
        return not (bracketed or last.isdigit()) and _NAME.match(host) is not None
