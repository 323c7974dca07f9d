"""The secret handshake: two peers prove who they are, and agree on secrets for one session.

Four messages of 64, 64, 112 and 80 bytes; the client sends the first and the third (Scuttlebutt
Protocol Guide, "Handshake"; Tarr, "Designing a Secret Handshake: Authenticated Key Exchange
as a Capability System").  A client that does not know the network key, or asks for another
server, learns nothing, not even that a server is there: a wrong message gets no answer.
The names of secrets are the guide's: lower-case letters for ephemeral keys, upper-case
ones for long-term keys, the client's (a, A) before the server's (b, B).
"""

from __future__ import annotations

import hmac
from abc import abstractmethod
from collections.abc import Callable
from hashlib import sha256, sha512
from typing import Final

from nacl.bindings import (
    crypto_scalarmult,
    crypto_secretbox,
    crypto_secretbox_open,
    crypto_sign_ed25519_pk_to_curve25519,
)
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey

from culm.arguments import check_bytes, check_type
from culm.machine import Closed, RemoteProtocolError, StreamBase, check_time
from culm.ssb.errors import ErrorCode
from culm.ssb.events import Authenticated, HandshakeEvent, Keys, SessionKeys
from culm.ssb.limits import HANDSHAKE_SIZE_MIN, Limits, Timing
from culm.ssb.states import HandshakeState

#: The key of the main Scuttlebutt network ("caps.shs").
MAIN_NETWORK: Final = bytes.fromhex(
    "d4a1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"
)

_KEY_SIZE = 32
_SIGNATURE_SIZE = 64
_BOX_OVERHEAD = 16
_HELLO_SIZE = 2 * _KEY_SIZE
_PROOF_SIZE = HANDSHAKE_SIZE_MIN  # a box of a signature and a key
_ACCEPTANCE_SIZE = _BOX_OVERHEAD + _SIGNATURE_SIZE
_FIRST_NONCE = bytes(24)
_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()


class _SecretHandshake(StreamBase[HandshakeEvent]):
    """The common part of both ends: hellos, secrets, one message after the other."""

    def __init__(
        self,
        *,
        identity: SigningKey,
        ephemeral: PrivateKey,
        network: bytes,
        limits: Limits,
        timing: Timing,
    ) -> None:
        check_bytes("network", network, _KEY_SIZE)
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        # Bytes after the last message are kept for the box stream.
        super().__init__(receive_max=limits.handshake_size_max)
        self._identity = identity
        self._ephemeral = ephemeral
        self._network = network
        self._timing = timing
        self._now: float | None = None
        self._deadline: float | None = None
        self._state = HandshakeState.HELLO
        self._peer_hello = b""
        self._hello = self._tag(bytes(ephemeral.public_key)) + bytes(ephemeral.public_key)
        self._ab = b""  # the secret that the two ephemeral keys share

    @property
    def state(self) -> HandshakeState:
        return self._state

    # Time.

    def next_deadline(self) -> float | None:
        return self._deadline if self._closed is None else None

    def advance(self, now: float) -> None:
        check_time(now, self._now)
        self._now = now
        if self._deadline is None:
            self._deadline = now + self._timing.handshake_s

    # Steps.

    def _step(self) -> HandshakeEvent | None:
        if self._closing or self._state is HandshakeState.DONE:
            return Closed()
        event: HandshakeEvent | None = None
        while event is None and self._inbox.size >= (due := self._due())[0]:
            size, read = due
            event = read(self._inbox.take(size))
        if event is not None:
            return event
        if self._now is not None and self._deadline is not None and self._now >= self._deadline:
            raise RemoteProtocolError(ErrorCode.HANDSHAKE_TIMEOUT)
        return None

    @abstractmethod
    def _due(self) -> tuple[int, Callable[[bytes], HandshakeEvent | None]]:
        """Size of the message that is due, and the method that reads it."""

    def _step_eof(self) -> HandshakeEvent | None:
        raise RemoteProtocolError(ErrorCode.TRUNCATED, f"before the {self._state.value}")

    def _goodbye(self) -> None:
        """There is no goodbye: a side that gives up hangs up."""

    def _ended(self, error: RemoteProtocolError | None) -> None:
        if self._state is not HandshakeState.DONE:
            self._state = HandshakeState.CLOSED

    # Secrets.

    def _tag(self, message: bytes) -> bytes:
        """HMAC-SHA-512-256 under the network key (``crypto_auth`` of NaCl)."""
        return hmac.digest(self._network, message, sha512)[:_KEY_SIZE]

    def _read_hello(self, hello: bytes) -> None:
        tag, key = hello[:_KEY_SIZE], hello[_KEY_SIZE:]
        if not hmac.compare_digest(tag, self._tag(key)):
            raise RemoteProtocolError(ErrorCode.WRONG_NETWORK)
        self._peer_hello = hello
        self._ab = _share(bytes(self._ephemeral), key)

    @property
    def _peer_ephemeral(self) -> bytes:
        return self._peer_hello[_KEY_SIZE:]

    @property
    def _long_term_secret(self) -> bytes:
        return bytes(self._identity.to_curve25519_private_key())

    def _box_key(self, *shared: bytes) -> bytes:
        return sha256(b"".join([self._network, self._ab, *shared])).digest()

    def _proof_text(self, server: bytes) -> bytes:
        """The text that the client signs."""
        return self._network + server + sha256(self._ab).digest()

    def _acceptance_text(self, proof: bytes) -> bytes:
        """The text that the server signs; `proof` is the client's signature and public key."""
        return self._network + proof + sha256(self._ab).digest()

    def _finish(self, peer: bytes, acceptance_key: bytes) -> HandshakeEvent:
        self._state = HandshakeState.DONE
        secret = sha256(acceptance_key).digest()
        ours = bytes(self._identity.verify_key)
        keys = SessionKeys(
            send=Keys(sha256(secret + peer).digest(), self._peer_hello[:24]),
            receive=Keys(sha256(secret + ours).digest(), self._hello[:24]),
        )
        return Authenticated(peer=peer, keys=keys)


class ClientHandshake(_SecretHandshake):
    """The end that dials.

    identity
        Our long-term key.
    server
        The server's long-term public key (32 bytes), known beforehand.
    ephemeral
        A fresh key for this connection only: ``PrivateKey.generate()``.
    network
        The network key (32 bytes).
    limits, timing
        See `culm.ssb.Limits` and `culm.ssb.Timing`.

    `Authenticated` comes when the server has accepted us, then `Closed` without an error;
    bytes from the server after that are trailing data.  Errors: ``WRONG_NETWORK``,
    ``BAD_KEY``, ``BAD_PROOF``, ``HANDSHAKE_TIMEOUT``, ``TRUNCATED``; a server that does not
    accept us just hangs up.  Raises `ValueError` for invalid keys.
    """

    def __init__(
        self,
        *,
        identity: SigningKey,
        server: bytes,
        ephemeral: PrivateKey,
        network: bytes = MAIN_NETWORK,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
    ) -> None:
        super().__init__(
            identity=identity, ephemeral=ephemeral, network=network, limits=limits, timing=timing
        )
        try:
            self._server_curve = _to_curve(server)
        except RemoteProtocolError:
            raise ValueError("that is no public key of a server") from None
        self._server = server
        self._proof = b""
        self._acceptance_key = b""
        self._outbox.append(self._hello)

    def _due(self) -> tuple[int, Callable[[bytes], HandshakeEvent | None]]:
        if self._state is HandshakeState.HELLO:
            return _HELLO_SIZE, self._answer_hello
        return _ACCEPTANCE_SIZE, self._read_acceptance

    def _answer_hello(self, hello: bytes) -> None:
        self._read_hello(hello)
        server_secret = _share(bytes(self._ephemeral), self._server_curve)  # aB
        own_secret = _share(self._long_term_secret, self._peer_ephemeral)  # Ab
        self._acceptance_key = self._box_key(server_secret, own_secret)
        signature = self._identity.sign(self._proof_text(self._server)).signature
        self._proof = signature + bytes(self._identity.verify_key)
        self._outbox.append(
            crypto_secretbox(self._proof, _FIRST_NONCE, self._box_key(server_secret))
        )
        self._state = HandshakeState.ACCEPTANCE

    def _read_acceptance(self, box: bytes) -> HandshakeEvent:
        signature = _open(box, self._acceptance_key)
        _verify(self._server, self._acceptance_text(self._proof), signature)
        return self._finish(self._server, self._acceptance_key)


class ServerHandshake(_SecretHandshake):
    """The end that was dialled.

    identity, ephemeral, network, limits, timing
        As for `ClientHandshake`.
    admits
        Returns whether the client with this public key (32 bytes) may continue; by default every
        client may.  It is called once the client has proved that the key is its own.  Only ``True``
        lets the client in; a coroutine or an exception does not, and the error quotes it.

    Ends as `ClientHandshake` does, and with ``NOT_ADMITTED``.
    """

    def __init__(
        self,
        *,
        identity: SigningKey,
        ephemeral: PrivateKey,
        network: bytes = MAIN_NETWORK,
        admits: Callable[[bytes], bool] = lambda client: True,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
    ) -> None:
        super().__init__(
            identity=identity, ephemeral=ephemeral, network=network, limits=limits, timing=timing
        )
        self._admits = admits

    def _due(self) -> tuple[int, Callable[[bytes], HandshakeEvent | None]]:
        if self._state is HandshakeState.HELLO:
            return _HELLO_SIZE, self._answer_hello
        return _PROOF_SIZE, self._answer_proof

    def _answer_hello(self, hello: bytes) -> None:
        self._read_hello(hello)
        self._outbox.append(self._hello)
        self._state = HandshakeState.PROOF

    def _answer_proof(self, box: bytes) -> HandshakeEvent:
        own_secret = _share(self._long_term_secret, self._peer_ephemeral)  # aB
        proof = _open(box, self._box_key(own_secret))
        signature, client = proof[:_SIGNATURE_SIZE], proof[_SIGNATURE_SIZE:]
        _verify(client, self._proof_text(bytes(self._identity.verify_key)), signature)
        self._check_admitted(client)
        client_secret = _share(bytes(self._ephemeral), _to_curve(client))  # Ab
        key = self._box_key(own_secret, client_secret)
        acceptance = self._identity.sign(self._acceptance_text(proof)).signature
        self._outbox.append(crypto_secretbox(acceptance, _FIRST_NONCE, key))
        return self._finish(client, key)

    def _check_admitted(self, client: bytes) -> None:
        try:
            verdict: object = self._admits(client)
        except Exception as error:  # a peer must not make `next_event` raise
            verdict = error
        if verdict is not True:
            raise RemoteProtocolError(
                ErrorCode.NOT_ADMITTED, f"{client.hex()}: admits says {verdict!r}"
            )


def _share(secret: bytes, public: bytes) -> bytes:
    try:
        return crypto_scalarmult(secret, public)
    except CryptoError:  # the product is zero whatever the secret is
        raise RemoteProtocolError(ErrorCode.BAD_KEY, "of low order") from None


def _to_curve(public: bytes) -> bytes:
    try:
        return crypto_sign_ed25519_pk_to_curve25519(public)
    except (CryptoError, TypeError, ValueError):
        raise RemoteProtocolError(ErrorCode.BAD_KEY, "not on the curve") from None


def _open(box: bytes, key: bytes) -> bytes:
    try:
        return crypto_secretbox_open(box, _FIRST_NONCE, key)
    except CryptoError:
        raise RemoteProtocolError(ErrorCode.BAD_PROOF, "a box that does not open") from None


def _verify(signer: bytes, text: bytes, signature: bytes) -> None:
    try:
        VerifyKey(signer).verify(text, signature)
    except CryptoError:
        raise RemoteProtocolError(ErrorCode.BAD_PROOF, "a wrong signature") from None
