"""The endpoints by which servers of Garlic Farm are known."""

from __future__ import annotations

__all__ = ["address_of"]


def address_of(endpoint: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT``; raises `ValueError`."""
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in {"tcp", "ssl"} or not host:
        raise ValueError(f"not an endpoint: {endpoint!r}")
    return host, int(port)
