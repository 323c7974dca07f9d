"""The handshake: an HTTP/1.1 upgrade with Digest authentication, then frames.

The later revision (2019-05-20) of the proposal settles the seed's open points.  The
client asks for ``GET /GarlicFarm/CLUSTER/VERSION/websocket``; without good credentials
the server answers 401 with its challenges and closes; with them 101, and from then on
the connection carries frames (no WebSocket framing).  Use `culm.stack.then`::

    then(ServerHandshake(...), lambda event: Connection(...) if
         isinstance(event, Authenticated) else None)
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

import h11

from culm.arguments import check_text, check_type
from culm.garlic.digest import (
    ALGORITHMS,
    Challenge,
    CredentialCache,
    Nonces,
    Verdict,
    authorize,
    parse_challenges,
)
from culm.garlic.errors import ErrorCode
from culm.garlic.events import Authenticated, Challenged, HandshakeEvent
from culm.garlic.limits import Limits
from culm.garlic.messages import Extension
from culm.garlic.raft import Server
from culm.garlic.states import HandshakeState
from culm.machine import Closed, RemoteProtocolError, StreamBase, check_time

_HEAD_END = b"\r\n\r\n"
_FIELD = re.compile("[\t\x20-\x7e\x80-\xff]*")  # the characters of a header's value
_HOST = re.compile(r"[^\x00-\x20\x7f\ud800-\udfff]*")
_PATH = re.compile("[!-~]*")
_DEFAULT_LIMITS: Final = Limits()


_EXTENSIONS_FIELD = b"culm-extensions"
_ALL_EXTENSIONS = frozenset(Extension)


def path_of(cluster: str, version: str) -> str:
    """The path of a cluster; raises `ValueError` for names that no path can hold."""
    _check("cluster", cluster, _PATH)
    _check("version", version, _PATH)
    return f"/GarlicFarm/{cluster}/{version}/websocket"


def _check(name: str, value: str, form: re.Pattern[str]) -> None:
    check_type(name, value, str)
    if not form.fullmatch(value):
        raise ValueError(f"{name} has characters that cannot stand there: {value!a:.100}")


class _Handshake(StreamBase[HandshakeEvent]):
    """One HTTP head in each direction; the reading is common to both sides."""

    def __init__(self, limits: Limits, now: float) -> None:
        super().__init__(receive_max=limits.head_size_max)
        self._head_size_max = limits.head_size_max
        check_time(now, None)
        self._state = HandshakeState.WAITING
        self._now = now
        self._final: Closed | None = None

    @property
    def state(self) -> HandshakeState:
        return self._state

    def next_deadline(self) -> float | None:
        """None: the driver limits the wait for a peer."""
        return None

    def advance(self, now: float) -> None:
        """Tell the time, by which nonces expire.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        check_time(now, self._now)
        self._now = now

    def _take_head(self) -> bytes | None:
        """Take a complete HTTP head.  The limit does not depend on the pieces that it comes in."""
        end = self._inbox.find(_HEAD_END, size_max=self._head_size_max)
        if end >= 0:
            return self._inbox.take(end + len(_HEAD_END))
        if len(self._inbox) >= self._head_size_max:
            raise RemoteProtocolError(ErrorCode.HEAD_TOO_LARGE)
        return None

    def _step(self) -> HandshakeEvent | None:
        if self._closing:
            return Closed()
        if self._final is not None:
            return self._final
        event: HandshakeEvent | None = None
        while event is None and (head := self._take_head()) is not None:
            try:
                event = self._read(head)
            except (h11.RemoteProtocolError, UnicodeDecodeError):
                self._state = HandshakeState.REFUSED
                raise RemoteProtocolError(ErrorCode.BAD_HTTP) from None
        return event

    def _read(self, head: bytes) -> HandshakeEvent | None:
        raise NotImplementedError

    def _finish(self, state: HandshakeState, error: RemoteProtocolError | None = None) -> Closed:
        self._state = state
        self._final = Closed(error=error)
        return self._final

    def _step_eof(self) -> HandshakeEvent | None:
        if self._final is not None:
            return self._final
        raise RemoteProtocolError(ErrorCode.TRUNCATED, "the stream ends in the handshake")

    def _goodbye(self) -> None:
        """HTTP has none."""


def _header_values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _tokens(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> set[str]:
    values = ",".join(_header_values(headers, name)).lower()
    return {value.strip() for value in values.split(",")} if values else set()


def _upgrades(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the headers ask for, or accept, an upgrade to WebSocket."""
    values = [value for key, value in headers if key == b"upgrade"]
    return values == [b"websocket"] or "websocket" in _tokens(headers, b"upgrade")


def agreed_extensions(
    ours: frozenset[Extension], headers: Iterable[tuple[bytes, bytes]]
) -> frozenset[Extension]:
    """The extensions that both sides have named; unknown names are ignored."""
    values = [value for key, value in headers if key == _EXTENSIONS_FIELD]
    if values == [value for _, value in _extensions_field(ours)]:
        return ours  # a peer like us
    theirs = _tokens(headers, _EXTENSIONS_FIELD)
    return frozenset(one for one in ours if one in theirs)


@cache
def _extensions_field(extensions: frozenset[Extension]) -> tuple[tuple[bytes, bytes], ...]:
    names = ", ".join(sorted(extensions))
    return ((b"Culm-Extensions", names.encode()),) if names else ()


class ServerHandshake(_Handshake):
    """The server's side of one connection.

    lookup
        Returns the password of a user, ``None`` for an unknown user.
    nonces
        Shared by all connections of the server.
    now
        The time (monotonic seconds).
    cluster, version
        The cluster and version that the path must name.
    realm
        The realm in challenges.
    limits
        Bounds the size of a head.
    extensions
        The extensions that we understand; a peer that names none of them sees no difference.

    `Authenticated` comes with the 101; then `Closed` without an error, and bytes of the
    client after its request are trailing data.  A request without credentials
    ends without an error after the 401 as well.  Errors: ``NOT_FOUND`` (404 was sent),
    ``UNAUTHORIZED`` (401), ``BAD_HTTP``, ``HEAD_TOO_LARGE``, ``TRUNCATED``.

    Raises `ValueError` for a cluster, a version or a realm that HTTP cannot carry.
    """

    def __init__(
        self,
        *,
        lookup: Callable[[str], str | None],
        nonces: Nonces,
        now: float = 0.0,
        cluster: str = "farm",
        version: str = "1",
        realm: str = "GarlicFarm",
        limits: Limits = _DEFAULT_LIMITS,
        extensions: frozenset[Extension] = _ALL_EXTENSIONS,
    ) -> None:
        super().__init__(limits, now)
        self._lookup = lookup
        self._nonces = nonces
        _check("realm", realm, _FIELD)
        self._cluster = cluster
        self._version = version
        self._path = path_of(cluster, version)
        self._realm = realm
        self._extensions = extensions
        self._http = h11.Connection(h11.SERVER)

    def _read(self, head: bytes) -> HandshakeEvent | None:
        self._http.receive_data(head)
        request = self._http.next_event()
        if not isinstance(request, h11.Request):
            raise RemoteProtocolError(ErrorCode.BAD_HTTP)
        uri = request.target.decode("ascii")
        if uri != self._path:
            self._respond(404, [])
            error = RemoteProtocolError(ErrorCode.NOT_FOUND, uri)
            return self._finish(HandshakeState.REFUSED, error)
        if request.method != b"GET" or not isinstance(self._http.next_event(), h11.EndOfMessage):
            self._respond(400, [])
            error = RemoteProtocolError(ErrorCode.BAD_HTTP, "not a plain GET")
            return self._finish(HandshakeState.REFUSED, error)
        return self._authenticate(request, uri)

    def _authenticate(self, request: h11.Request, uri: str) -> HandshakeEvent:
        headers = list(request.headers)  # h11 makes each anew at every look
        given = _header_values(headers, b"authorization")
        if not given:
            self._challenge(stale=False)
            return self._finish(HandshakeState.REFUSED)
        verdict, user = Verdict.BAD, ""
        if len(given) == 1:
            verdict, user = self._nonces.verify(
                given[0], realm=self._realm, uri=uri, lookup=self._lookup, now=self._now
            )
        if verdict != Verdict.GOOD:
            self._challenge(stale=verdict == Verdict.STALE)
            error = RemoteProtocolError(ErrorCode.UNAUTHORIZED, f"{verdict} credentials")
            return self._finish(HandshakeState.REFUSED, error)
        if not _upgrades(headers):
            self._respond(426, [(b"Upgrade", b"websocket")])
            error = RemoteProtocolError(ErrorCode.BAD_HTTP, "no upgrade asked for")
            return self._finish(HandshakeState.REFUSED, error)
        extensions = agreed_extensions(self._extensions, headers)
        accepted = h11.InformationalResponse(
            status_code=101,
            reason=b"Switching Protocols",
            headers=[
                (b"Connection", b"Upgrade"),
                (b"Upgrade", b"websocket"),
                *_extensions_field(extensions),
            ],
        )
        self._outbox.append(self._http.send(accepted) or b"")
        self._finish(HandshakeState.DONE)
        return Authenticated(
            user=user, cluster=self._cluster, version=self._version, extensions=extensions
        )

    def _challenge(self, *, stale: bool) -> None:
        nonce = self._nonces.issue(self._now)
        challenges = [Challenge(self._realm, nonce, name) for name in ALGORITHMS]
        self._respond(
            401,
            [
                (b"WWW-Authenticate", challenge.encode(stale=stale).encode("latin-1"))
                for challenge in challenges
            ],
        )

    def _respond(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        response = h11.Response(
            status_code=status,
            headers=[*headers, (b"Content-Length", b"0"), (b"Connection", b"close")],
        )
        self._outbox.append(self._http.send(response) or b"")
        self._outbox.append(self._http.send(h11.EndOfMessage()) or b"")


class ClientHandshake(_Handshake):
    """The client's side of one connection.

    host
        The value of the Host header, and the key in the cache.
    user, password
        Our credentials.
    cache
        Challenges of servers; shared by all connections of the client.
    rng
        The source of client nonces.
    now
        The time (monotonic seconds).
    cluster, version
        The cluster and version in the path.
    limits
        Bounds the size of a head.
    extensions
        The extensions that we understand; a peer that names none of them sees no difference.

    With a cached challenge the request has credentials from the start.  Without one, or
    if it has become stale, the server's challenge is put into the cache, and `Challenged`
    comes, then `Closed` without an error: dial again, the second connection will pass.
    Errors: ``UNAUTHORIZED`` if the credentials are bad, ``NOT_FOUND``,
    ``UPGRADE_REFUSED``, ``BAD_HTTP``, ``HEAD_TOO_LARGE``, ``TRUNCATED``.

    Raises `ValueError` for a name or a path that HTTP cannot carry, and for a password that has no
    encoding.
    """

    def __init__(
        self,
        *,
        host: str,
        user: str,
        password: str,
        cache: CredentialCache,
        rng: random.Random,
        now: float = 0.0,
        cluster: str = "farm",
        version: str = "1",
        limits: Limits = _DEFAULT_LIMITS,
        extensions: frozenset[Extension] = _ALL_EXTENSIONS,
    ) -> None:
        super().__init__(limits, now)
        _check("host", host, _HOST)
        _check("user", user, _FIELD)
        check_text("password", password)
        self._host = host
        self._user = user
        self._extensions = extensions
        self._cache = cache
        self._cluster = cluster
        self._version = version
        uri = path_of(cluster, version)
        headers = [(b"Host", host.encode()), (b"Cache-Control", b"no-cache")]
        self._used = cache.use(host, now)
        if self._used is not None:
            challenge, count = self._used
            cnonce = f"{rng.getrandbits(64):016x}"
            authorization = authorize(
                challenge, user=user, password=password, uri=uri, count=count, cnonce=cnonce
            )
            headers += [
                (b"Connection", b"keep-alive, Upgrade"),
                (b"Upgrade", b"websocket"),
                (b"Authorization", authorization.encode("latin-1")),  # as the challenge was read
                *_extensions_field(extensions),
            ]
        self._http = h11.Connection(h11.CLIENT)
        request = h11.Request(method="GET", target=uri, headers=headers)
        self._outbox.append(self._http.send(request) or b"")
        self._outbox.append(self._http.send(h11.EndOfMessage()) or b"")

    def _read(self, head: bytes) -> HandshakeEvent | None:
        self._http.receive_data(head)
        response = self._http.next_event()
        if not isinstance(response, h11.InformationalResponse | h11.Response):
            raise RemoteProtocolError(ErrorCode.BAD_HTTP)
        status = response.status_code
        if status == 101 and self._used is not None:
            headers = list(response.headers)
            if not _upgrades(headers):
                raise RemoteProtocolError(ErrorCode.BAD_HTTP, "101 without upgrade")
            self._finish(HandshakeState.DONE)
            return Authenticated(
                user=self._user,
                cluster=self._cluster,
                version=self._version,
                extensions=agreed_extensions(self._extensions, headers),
            )
        if 100 <= status < 200:
            return None  # another informational response; the real one follows
        code = {401: ErrorCode.UNAUTHORIZED, 404: ErrorCode.NOT_FOUND}.get(
            status, ErrorCode.UPGRADE_REFUSED
        )
        if status == 401 and self._take_challenge(response.headers):
            self._finish(HandshakeState.REFUSED)
            return Challenged()
        return self._finish(HandshakeState.REFUSED, RemoteProtocolError(code, f"status {status}"))

    def _take_challenge(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Remember the challenge, unless it answers credentials that were not stale."""
        values = _header_values(headers, b"www-authenticate")
        challenge = parse_challenges(values)
        stale = any("stale=true" in value.lower().replace('"', "") for value in values)
        if challenge is None or (self._used is not None and not stale):
            self._cache.forget(self._host)
            return False
        self._cache.store(self._host, challenge, self._now)
        return True


class Credentials:
    """The handshakes of one server.

    user, password
        The user as which the server dials others, and one of those that it lets in.
    accepted
        The passwords of the other users that it lets in.  The mapping may be changed at any time;
        new connections go by it.
    rng
        The source of nonces; must be unpredictable outside of tests.

    Owns the shared state of handshakes: the nonces given out, and the challenges of other servers.
    """

    def __init__(
        self,
        *,
        user: str,
        password: str,
        accepted: Mapping[str, str] | None = None,
        rng: random.Random,
    ) -> None:
        check_type("accepted", accepted, Mapping, type(None))
        self._user, self._password, self._rng = user, password, rng
        self._accepted: Mapping[str, str] = {} if accepted is None else accepted
        self._cache, self._nonces = CredentialCache(), Nonces(rng=rng)

    def handshake(self, server: Server | None, now: float) -> ClientHandshake | ServerHandshake:
        """The handshake of a connection to `server`, or, if ``None``, of an accepted one."""
        if server is None:
            return ServerHandshake(lookup=self._password_of, nonces=self._nonces, now=now)
        return ClientHandshake(
            host=server.endpoint.partition("://")[2],
            user=self._user,
            password=self._password,
            cache=self._cache,
            rng=self._rng,
            now=now,
        )

    def _password_of(self, user: str) -> str | None:
        return self._password if user == self._user else self._accepted.get(user)
