"""Shared by the tests of the bamboo room."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from hypothesis import strategies as st
from nacl.bindings import (
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)
from nacl.signing import SigningKey

from culm.bamboo.entry import Entry, sign
from culm.bamboo.links import has_lipmaalink
from culm.wire.multihash import YAMF, YASMF, HashFamily

KEYS = [SigningKey(bytes([n]) * 32) for n in range(3)]
LOG_KEY = KEYS[1]  # signs the logs made by make_log
U64 = 2**64 - 1

SIGNED = [
    "family",
    "log_id",
    "seqnum",
    "lipmaalink",
    "backlink",
    "payload_size",
    "payload_hash",
    "end_of_log",
]

families = st.sampled_from([YAMF, YASMF])
u64 = st.one_of(
    st.integers(0, 300), st.integers(0, U64), st.integers(0, 64).map(lambda n: 2**n - 1)
)


@st.composite
def entries(draw: st.DrawFn, family: HashFamily | None = None) -> Entry:
    """Signed entries of any form."""
    family = draw(families) if family is None else family
    hashes = st.binary(max_size=4).map(family.hash)
    seqnum = max(1, draw(u64))
    return sign(
        draw(st.sampled_from(KEYS)),
        family=family,
        log_id=draw(u64),
        seqnum=seqnum,
        lipmaalink=draw(hashes) if has_lipmaalink(seqnum) else None,
        backlink=draw(hashes) if seqnum > 1 else None,
        payload_size=draw(u64),
        payload_hash=draw(hashes),
        end_of_log=draw(st.booleans()),
    )


def resign(entry: Entry, key: SigningKey = LOG_KEY, **changes: object) -> Entry:
    """The entry with some fields changed, signed anew."""
    return sign(key, **({name: getattr(entry, name) for name in SIGNED} | changes))


def sign_again(entry: Entry, key: SigningKey = LOG_KEY) -> Entry:
    """The entry with a second valid signature, which only its author can make.

    Ed25519 with a nonce other than the one that RFC 8032 derives.
    """
    scalar = bytearray(hashlib.sha512(bytes(key)).digest()[:32])
    scalar[0] &= 248
    scalar[31] = scalar[31] & 63 | 64
    nonce = crypto_core_ed25519_scalar_reduce(hashlib.sha512(b"another nonce").digest())
    point = crypto_scalarmult_ed25519_base_noclamp(nonce)
    challenge = crypto_core_ed25519_scalar_reduce(
        hashlib.sha512(point + entry.author + entry.signed_bytes()).digest()
    )
    reduced = crypto_core_ed25519_scalar_reduce(bytes(scalar) + bytes(32))
    response = crypto_core_ed25519_scalar_add(
        nonce, crypto_core_ed25519_scalar_mul(challenge, reduced)
    )
    return replace(entry, signature=point + response)
