"""HTTP Digest authentication (RFC 7616, and RFC 2617 for MD5), qop "auth" only."""

from __future__ import annotations

import hashlib
import hmac
import math
import random
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

# Offered in this order; MD5 for the sake of older implementations.
ALGORITHMS: dict[str, Callable[[bytes], str]] = {
    "SHA-256": lambda data: hashlib.sha256(data).hexdigest(),
    "MD5": lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(),
}

# Possessive: a matcher that may have to go back stores 200 bytes for each byte of a text.
_PARAMETER = re.compile(
    r"""\s*(?:(?P<scheme>[A-Za-z0-9!#$%&'*+.^_`|~-]+)[ ]+(?=[A-Za-z0-9_*-]+\s*=))?
        (?P<name>[A-Za-z0-9_*-]+)\s*=\s*
        (?:"(?P<quoted>(?:[^"\\]++|\\.)*+)"|(?P<token>[^\s,"]+))\s*(?:,|$)""",
    re.VERBOSE,
)
_NC = re.compile(r"[0-9a-fA-F]{8}")


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _response(
    algorithm: str, user: str, realm: str, password: str, uri: str, nonce: str, nc: str, cnonce: str
) -> str:
    """RFC 7616, 3.4.1, for ``GET`` and qop "auth"."""
    digest = ALGORITHMS[algorithm]
    # A server's `lookup` may know a password that has no encoding: no client has it.
    secret = digest(f"{user}:{realm}:{password}".encode(errors="surrogatepass"))
    request = digest(f"GET:{uri}".encode())
    return digest(f"{secret}:{nonce}:{nc}:{cnonce}:auth:{request}".encode())


def parse_parameters(text: str) -> list[tuple[str, dict[str, str]]] | None:
    """Schemes (lower case) and their parameters; ``None`` if `text` is malformed."""
    found: list[tuple[str, dict[str, str]]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _PARAMETER.match(text, position)
        if match is None:
            return None
        position = match.end()
        if match["scheme"] is not None:
            found.append((match["scheme"].lower(), {}))
        if not found:
            return None
        name, quoted = match["name"].lower(), match["quoted"]
        value = match["token"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        if name in found[-1][1]:
            return None
        found[-1][1][name] = value
    return found


@dataclass(frozen=True, slots=True)
class Challenge:
    """A server's challenge."""

    realm: str
    nonce: str
    algorithm: str
    opaque: str | None = None

    def encode(self, *, stale: bool = False) -> str:
        """The value of a WWW-Authenticate header."""
        text = (
            f'Digest realm={_quote(self.realm)}, qop="auth", algorithm={self.algorithm}, '
            f"nonce={_quote(self.nonce)}"
        )
        if self.opaque is not None:
            text += f", opaque={_quote(self.opaque)}"
        return text + ", stale=true" if stale else text


def parse_challenges(headers: list[str]) -> Challenge | None:
    """The best challenge of WWW-Authenticate headers that we can answer."""
    found: dict[str, Challenge] = {}
    for header in headers:
        for scheme, parameters in parse_parameters(header) or ():
            algorithm = parameters.get("algorithm", "MD5").upper()
            qops = [qop.strip().lower() for qop in parameters.get("qop", "").split(",")]
            if scheme != "digest" or algorithm not in ALGORITHMS or "auth" not in qops:
                continue
            if "realm" in parameters and "nonce" in parameters:
                found.setdefault(
                    algorithm,
                    Challenge(
                        parameters["realm"],
                        parameters["nonce"],
                        algorithm,
                        parameters.get("opaque"),
                    ),
                )
    return next((found[name] for name in ALGORITHMS if name in found), None)


def authorize(
    challenge: Challenge, *, user: str, password: str, uri: str, count: int, cnonce: str
) -> str:
    """The value of an Authorization header; `count` is the nonce's number of uses."""
    nc = f"{count:08x}"
    response = _response(
        challenge.algorithm, user, challenge.realm, password, uri, challenge.nonce, nc, cnonce
    )
    text = (
        f"Digest username={_quote(user)}, realm={_quote(challenge.realm)}, "
        f"nonce={_quote(challenge.nonce)}, uri={_quote(uri)}, algorithm={challenge.algorithm}, "
        f'response="{response}", qop=auth, nc={nc}, cnonce={_quote(cnonce)}'
    )
    return text if challenge.opaque is None else f"{text}, opaque={_quote(challenge.opaque)}"


class CredentialCache:
    """A client's challenges, so that later connections begin with the second request.

    :param lifetime: seconds for which a challenge is used again (an hour at least, says
        the proposal).
    :param entries_max: servers remembered; the oldest is forgotten.
    """

    def __init__(self, *, lifetime: float = 3600.0, entries_max: int = 1024) -> None:
        self._lifetime = lifetime
        self._entries_max = entries_max
        self._entries: OrderedDict[str, tuple[Challenge, float, int]] = OrderedDict()

    def store(self, server: str, challenge: Challenge, now: float) -> None:
        self._entries.pop(server, None)
        while len(self._entries) >= self._entries_max:
            self._entries.popitem(last=False)
        self._entries[server] = (challenge, now + self._lifetime, 0)

    def use(self, server: str, now: float) -> tuple[Challenge, int] | None:
        """The challenge of `server`, if known, and its number of uses including this one."""
        entry = self._entries.get(server)
        if entry is None or entry[1] <= now:
            self._entries.pop(server, None)
            return None
        challenge, until, count = entry
        self._entries[server] = (challenge, until, count + 1)
        return challenge, count + 1

    def forget(self, server: str) -> None:
        self._entries.pop(server, None)


class Verdict:
    """A server's verdict on an Authorization header."""

    GOOD = "good"
    STALE = "stale"
    BAD = "bad"


class Nonces:
    """A server's nonces; shared by all of its connections.

    A nonce tells when it expires, and has a code that only this server can make: nothing is kept of
    one before somebody who knows a password has used it, so strangers put out nobody's.

    :param rng: the source of nonces; must be unpredictable outside of tests.
    :param lifetime: seconds for which a nonce is good.
    :param nonces_max: used nonces remembered; beyond that the oldest is forgotten, and those that
        expire no later are good no more unless they are remembered.
    """

    def __init__(
        self, *, rng: random.Random, lifetime: float = 7200.0, nonces_max: int = 4096
    ) -> None:
        self._rng = rng
        self._lifetime = lifetime
        self._nonces_max = nonces_max
        self._secret = b""  # drawn with the first nonce
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._forgotten_until = -math.inf  # when the last of those forgotten expires

    def issue(self, now: float) -> str:
        self._secret = self._secret or self._rng.getrandbits(256).to_bytes(32)
        told = f"{self._rng.getrandbits(128):032x}:{(now + self._lifetime).hex()}"
        return f"{told}:{self._code(told)}"

    def _code(self, told: str) -> str:
        return hmac.digest(self._secret, told.encode(errors="surrogatepass"), "sha256").hex()

    def _use(self, nonce: str, count: int, now: float) -> bool:
        """Whether it may be used for the `count`-th time; no count is valid twice."""
        told, _, code = nonce.rpartition(":")
        given, wanted = code.encode(errors="surrogatepass"), self._code(told).encode()
        if not self._secret or not hmac.compare_digest(given, wanted):
            return False
        until = _expiry(nonce)
        known = self._counts.get(nonce)
        if now >= until or count <= (known or 0):
            return False
        if known is None:
            if until <= self._forgotten_until:
                return False
            while len(self._counts) >= self._nonces_max:
                forgotten, _ = self._counts.popitem(last=False)
                self._forgotten_until = max(self._forgotten_until, _expiry(forgotten))
        self._counts[nonce] = count
        return True

    def verify(
        self, header: str, *, realm: str, uri: str, lookup: Callable[[str], str | None], now: float
    ) -> tuple[str, str]:
        """Judge an Authorization header for ``GET uri``; returns a `Verdict` and the user.

        A nonce's count must grow with each use, so a header that was overheard cannot be reused.
        """
        parsed = parse_parameters(header)
        if not parsed or len(parsed) != 1 or parsed[0][0] != "digest":
            return Verdict.BAD, ""
        given = parsed[0][1]
        user, nc, nonce = (given.get(name, "") for name in ("username", "nc", "nonce"))
        algorithm = given.get("algorithm", "MD5").upper()
        if (
            algorithm not in ALGORITHMS
            or given.get("realm") != realm
            or given.get("uri") != uri
            or given.get("qop", "").lower() != "auth"
            or _NC.fullmatch(nc) is None
            or not given.get("cnonce")
        ):
            return Verdict.BAD, user
        password = lookup(user)
        wanted = _response(algorithm, user, realm, password or "", uri, nonce, nc, given["cnonce"])
        right = hmac.compare_digest(wanted.encode(), given.get("response", "").lower().encode())
        if not right or password is None:
            return Verdict.BAD, user
        if not self._use(nonce, int(nc, 16), now):
            return Verdict.STALE, user
        return Verdict.GOOD, user


def _expiry(nonce: str) -> float:
    """When a nonce of ours expires."""
    return float.fromhex(nonce.split(":")[1])
