"""The HTTP upgrade: every rule of the proposal's later revision, both sides."""

from __future__ import annotations

import random
import tracemalloc
from copy import deepcopy
from itertools import pairwise

import pytest

from culm.garlic.connection import Connection
from culm.garlic.digest import (
    Challenge,
    CredentialCache,
    Nonces,
    authorize,
    parse_challenges,
    parse_parameters,
)
from culm.garlic.errors import ErrorCode
from culm.garlic.events import Authenticated, Challenged, RequestReceived
from culm.garlic.handshake import ClientHandshake, Credentials, ServerHandshake, path_of
from culm.garlic.limits import Limits
from culm.garlic.messages import Extension, MessageType, RequestFrame
from culm.garlic.raft import Server
from culm.garlic.states import ConnectionRole
from culm.machine import Closed, Event, StreamMachine
from culm.stack import then

PASSWORDS = {"alice": "wonder:land", "bob": 'qu"ote\\d'}


def nonces() -> Nonces:
    return Nonces(rng=random.Random(5))


def server(shared: Nonces, now: float = 0.0, **options: str) -> ServerHandshake:
    return ServerHandshake(lookup=PASSWORDS.get, nonces=shared, now=now, **options)


def client(
    cache: CredentialCache,
    *,
    user: str = "alice",
    password: str | None = None,
    now: float = 0.0,
    seed: int = 0,
    **options: str,
) -> ClientHandshake:
    return ClientHandshake(
        host="farm.i2p",
        user=user,
        password=PASSWORDS[user] if password is None else password,
        cache=cache,
        rng=random.Random(seed),
        now=now,
        **options,
    )


def events_of(machine: StreamMachine) -> list[Event]:
    events = []
    while (event := machine.next_event()) is not None:
        events.append(event)
    return events


def talk(one: StreamMachine, other: StreamMachine) -> tuple[list[Event], list[Event], bytes]:
    """Let both talk until nothing moves; returns their events and the bytes of the other one."""
    ours, theirs, sent = events_of(one), events_of(other), b""
    while True:
        out, back = one.data_to_send(), other.data_to_send()
        if not out and not back:
            return ours, theirs, sent
        sent += back
        other.receive_data(out)
        one.receive_data(back)
        theirs += events_of(other)
        ours += events_of(one)


def code(events: list[Event]) -> ErrorCode | None:
    closed = events[-1]
    assert isinstance(closed, Closed)
    return None if closed.error is None else ErrorCode(closed.error.code)


@pytest.mark.parametrize("user", PASSWORDS)
def test_first_request_is_challenged_and_the_second_connection_upgrades(user: str) -> None:
    shared, cache = nonces(), CredentialCache()
    ours, theirs, answer = talk(client(cache, user=user), server(shared))
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"Connection: close" in answer
    assert ours == [Challenged(), Closed()]
    assert theirs == [Closed()]
    ours, theirs, answer = talk(client(cache, user=user), server(shared))
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Upgrade: websocket" in answer
    welcome = Authenticated(user=user, cluster="farm", version="1", extensions=frozenset(Extension))
    assert ours == theirs == [welcome, Closed()]


def head_of(data: bytes) -> tuple[str, dict[str, str]]:
    """Request line and headers, with lower-case names."""
    first, *lines = data.decode().removesuffix("\r\n\r\n").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return first, {name.lower(): value for name, value in pairs}


def test_the_requests_of_the_handshake_have_their_headers() -> None:
    shared, cache = nonces(), CredentialCache()
    line, headers = head_of(client(cache).data_to_send())
    assert line == "GET /GarlicFarm/farm/1/websocket HTTP/1.1"
    assert (headers["host"], headers["cache-control"]) == ("farm.i2p", "no-cache")
    assert "authorization" not in headers
    talk(client(cache), server(shared))
    again, headers = head_of(client(cache).data_to_send())
    assert again == line
    assert headers["connection"] == "keep-alive, Upgrade"
    assert headers["upgrade"] == "websocket"
    assert headers["authorization"].startswith("Digest ")
    other = client(CredentialCache(), cluster="dev", version="2").data_to_send()
    assert head_of(other)[0] == "GET /GarlicFarm/dev/2/websocket HTTP/1.1"


def test_sha256_is_offered_before_md5_and_preferred() -> None:
    shared, cache = nonces(), CredentialCache()
    _, _, answer = talk(client(cache), server(shared))
    offered = [line for line in answer.split(b"\r\n") if b"uthenticate" in line]
    assert b"algorithm=SHA-256" in offered[0]
    assert b"algorithm=MD5" in offered[1]
    assert all(b"Digest" in line for line in offered)
    used = cache.use("farm.i2p", 0)
    assert used is not None
    assert used[0].algorithm == "SHA-256"


def test_md5_is_accepted() -> None:
    shared = nonces()
    challenge = Challenge("GarlicFarm", shared.issue(0), "MD5")
    cache = CredentialCache()
    cache.store("farm.i2p", challenge, 0)
    ours, _, _ = talk(client(cache), server(shared))
    assert isinstance(ours[0], Authenticated)


def test_wrong_path_is_404() -> None:
    machine = server(nonces())
    ours, theirs, answer = talk(client(CredentialCache(), cluster="other"), machine)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert code(theirs) is code(ours) is ErrorCode.NOT_FOUND


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("mallory", "wrong"), ("mallory", "")]
)
def test_bad_credentials_are_401_again_and_forgotten(user: str, password: str) -> None:
    shared, cache = nonces(), CredentialCache()
    talk(client(cache, user="alice"), server(shared))
    second = client(cache, user=user, password=password)
    ours, theirs, answer = talk(second, server(shared))
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert code(ours) is code(theirs) is ErrorCode.UNAUTHORIZED
    assert len(ours) == 1
    assert cache.use("farm.i2p", 0) is None


def test_basic_credentials_are_never_accepted() -> None:
    machine = server(nonces())
    machine.receive_data(request_head("Authorization: Basic YWxpY2U6d29uZGVyOmxhbmQ="))
    assert code(events_of(machine)) is ErrorCode.UNAUTHORIZED
    assert b"Basic" not in machine.data_to_send()


def request_head(*lines: str, path: str = path_of("farm", "1")) -> bytes:
    head = [f"GET {path} HTTP/1.1", "Host: farm.i2p", *lines]
    return ("\r\n".join(head) + "\r\n\r\n").encode()


def good_header(shared: Nonces, *, count: int = 1, nonce: str | None = None) -> str:
    challenge = Challenge("GarlicFarm", shared.issue(0) if nonce is None else nonce, "SHA-256")
    text = authorize(
        challenge,
        user="alice",
        password=PASSWORDS["alice"],
        uri=path_of("farm", "1"),
        count=count,
        cnonce="abcd",
    )
    return f"Authorization: {text}"


def upgrade(shared: Nonces, header: str, *lines: str, now: float = 0.0) -> list[Event]:
    machine = server(shared, now)
    machine.receive_data(request_head("Upgrade: websocket", header, *lines))
    return events_of(machine)


def test_a_replayed_request_is_refused_as_stale() -> None:
    shared = nonces()
    header = good_header(shared)
    assert isinstance(upgrade(shared, header)[0], Authenticated)
    assert code(upgrade(shared, header)) is ErrorCode.UNAUTHORIZED


def test_a_nonce_is_good_for_growing_counts_until_it_expires() -> None:
    shared = nonces()
    nonce = shared.issue(0)
    for count, now, good in ((1, 0, True), (2, 10, True), (2, 20, False), (9, 7199, True)):
        events = upgrade(shared, good_header(shared, count=count, nonce=nonce), now=now)
        assert isinstance(events[0], Authenticated) is good
    events = upgrade(shared, good_header(shared, count=10, nonce=nonce), now=7200)
    assert code(events) is ErrorCode.UNAUTHORIZED


def test_a_stale_nonce_is_told_and_the_client_comes_through_at_once() -> None:
    shared, cache = nonces(), CredentialCache(lifetime=1e9)
    talk(client(cache), server(shared))
    late = client(cache, now=8000)
    assert talk(late, server(shared, 8000))[0] == [Challenged(), Closed()]
    ours, _, _ = talk(client(cache, now=8000), server(shared, 8000))
    assert isinstance(ours[0], Authenticated)


def test_credentials_are_cached_for_an_hour() -> None:
    shared, cache = nonces(), CredentialCache()
    talk(client(cache), server(shared))
    for now in (1, 1800, 3599):
        assert b"Authorization" in client(cache, now=now).data_to_send()
    assert b"Authorization" not in client(cache, now=3600).data_to_send()


def test_a_nonce_of_another_server_is_refused() -> None:
    assert code(upgrade(nonces(), good_header(nonces(), nonce="f" * 32))) is (
        ErrorCode.UNAUTHORIZED
    )


def test_used_nonces_are_bounded() -> None:
    """One that was forgotten could be replayed: it is good no more, nor is any as old."""
    shared = Nonces(rng=random.Random(1), nonces_max=3)
    issued = [shared.issue(now) for now in range(6)]
    for nonce in issued[1:]:
        assert isinstance(upgrade(shared, good_header(shared, nonce=nonce))[0], Authenticated)
    for at, nonce in enumerate(issued):
        events = upgrade(shared, good_header(shared, nonce=nonce, count=2))
        assert isinstance(events[0], Authenticated) is (at >= 3), at


def test_strangers_put_out_no_challenge() -> None:
    """Law 4: whoever has no password takes no place of those who have one."""
    shared = Nonces(rng=random.Random(1), nonces_max=3)
    nonce = shared.issue(0)
    for _ in range(100):
        assert code([*upgrade(shared, "X: y")]) is None  # challenged
    assert isinstance(upgrade(shared, good_header(shared, nonce=nonce))[0], Authenticated)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nonce_that_was_changed_is_stale(place: int) -> None:
    shared = nonces()
    parts = shared.issue(0).split(":")
    changed = ["0" * 32, (99_999.0).hex(), "0" * 64][place]
    nonce = ":".join([*parts[:place], changed, *parts[place + 1 :]])
    for odd in (nonce, parts[place], "", ":::"):
        events = upgrade(shared, good_header(shared, nonce=odd))
        assert code(events) is ErrorCode.UNAUTHORIZED


def test_websocket_headers_of_proxies_are_tolerated() -> None:
    shared = nonces()
    events = upgrade(
        shared,
        good_header(shared),
        "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    )
    assert isinstance(events[0], Authenticated)


def test_nothing_is_lost_between_handshake_and_frames() -> None:
    shared = nonces()
    frame = RequestFrame(type=MessageType.CLIENT_REQUEST).encode()
    data = request_head("Upgrade: websocket", good_header(shared)) + frame
    for cut in range(len(data)):
        machine = then(
            server(deepcopy(shared)),
            lambda event: (
                Connection(role=ConnectionRole.LISTENER)
                if isinstance(event, Authenticated)
                else None
            ),
        )
        machine.receive_data(data[:cut])
        events = events_of(machine)
        machine.receive_data(data[cut:])
        events += events_of(machine)
        assert [type(event) for event in events] == [Authenticated, RequestReceived]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"rubbish\r\n\r\n", ErrorCode.BAD_HTTP),
        (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.BAD_HTTP),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", ErrorCode.BAD_HTTP),
        (request_head("Content-Length: 5"), ErrorCode.BAD_HTTP),
        (b"GET " + b"a" * 20000, ErrorCode.HEAD_TOO_LARGE),
        (request_head("X: " + "a" * 20000), ErrorCode.HEAD_TOO_LARGE),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_bad_heads_close_with_a_code_for_every_chunking(
    head: bytes, expected: ErrorCode, size: int
) -> None:
    machine = server(nonces())
    events: list[Event] = []
    for at in range(0, len(head), size):
        machine.receive_data(head[at : at + size])
        events += events_of(machine)
    assert code(events) is expected


def test_a_stream_that_ends_inside_the_head_is_truncated() -> None:
    machine = server(nonces())
    machine.receive_data(request_head()[:20])
    machine.receive_eof()
    assert code(events_of(machine)) is ErrorCode.TRUNCATED


def test_good_credentials_without_upgrade_are_426() -> None:
    shared = nonces()
    machine = server(shared)
    machine.receive_data(request_head(good_header(shared)))
    assert code(events_of(machine)) is ErrorCode.BAD_HTTP
    assert machine.data_to_send().startswith(b"HTTP/1.1 426 ")


def test_rfc_2617_example() -> None:
    """Section 3.5."""
    challenge = Challenge(
        "testrealm@host.com",
        "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        "MD5",
        "5ccc069c403ebaf9f0171e9517f40e41",
    )
    text = authorize(
        challenge,
        user="Mufasa",
        password="Circle Of Life",
        uri="/dir/index.html",
        count=1,
        cnonce="0a4f113b",
    )
    assert 'response="6629fae49393a05397450978507c4ef1"' in text
    assert 'opaque="5ccc069c403ebaf9f0171e9517f40e41"' in text


def test_challenges_in_one_header_or_in_several_are_understood() -> None:
    both = 'Basic realm="x", Digest realm="a\\"b", nonce=n1, qop="auth,auth-int", algorithm=MD5'
    assert parse_challenges([both]) == Challenge('a"b', "n1", "MD5")
    better = 'Digest realm="r", nonce="n2", qop="auth", algorithm=SHA-256'
    assert parse_challenges([both, better]) == Challenge("r", "n2", "SHA-256")
    assert parse_challenges(['Digest realm="r", nonce="n", qop="auth-int"']) is None
    assert parse_parameters("Digest =,") is None
    assert parse_parameters('Digest a="1", a="2"') is None


def test_the_head_limit_is_the_users() -> None:
    machine = ServerHandshake(
        lookup=PASSWORDS.get, nonces=nonces(), limits=Limits(head_size_max=64)
    )
    machine.receive_data(request_head("X: " + "y" * 64))
    assert code(events_of(machine)) is ErrorCode.HEAD_TOO_LARGE


@pytest.mark.parametrize("name", ["host", "user", "password"])
def test_what_cannot_be_encoded_is_refused_when_the_handshake_is_made(name: str) -> None:
    given = {"host": "farm.i2p", "user": "alice", "password": "secret", name: "\ud800"}
    with pytest.raises(ValueError, match=name):
        ClientHandshake(cache=CredentialCache(), rng=random.Random(1), now=0.0, **given)


@pytest.mark.parametrize("unit", ["x", '\\"', "\xff"])
def test_a_quoted_text_takes_little_more_than_its_size(unit: str) -> None:
    """A backtracking regular expression remembers 230 bytes for each character."""
    header = 'Digest username="' + unit * (12_000 // len(unit)) + '"'
    tracemalloc.start()
    try:
        found = parse_parameters(header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert peak < 20 * len(header)


def test_a_password_is_changed_server_by_server_and_none_is_ever_shut_out() -> None:
    old, new = {"old": "before"}, {"new": "after"}

    def credentials(ours: dict[str, str], accepted: dict[str, str]) -> Credentials:
        [(user, password)] = ours.items()
        return Credentials(user=user, password=password, accepted=accepted, rng=random.Random(1))

    def lets_in(host: Credentials, guest: Credentials) -> bool:
        for _ in range(2):  # at first without a challenge
            dialled = guest.handshake(Server(1, "tcp://farm.i2p:1"), 0.0)
            _, events, _ = talk(dialled, host.handshake(None, 0.0))
            if any(isinstance(each, Authenticated) for each in events):
                return True
        return False

    running: dict[str, str] = {}
    steps = [
        credentials(old, {}),
        credentials(old, running),
        credentials(new, old),
        credentials(new, {}),
    ]
    assert not lets_in(steps[1], steps[2])
    running.update(new)
    for before, after in pairwise(steps):
        for host in (before, after):
            for guest in (before, after):
                assert lets_in(host, guest)
    assert not lets_in(steps[-1], steps[0])
    assert not lets_in(steps[0], steps[-1])
    with pytest.raises(TypeError):
        Credentials(user="one", password="p", accepted=["two"], rng=random.Random(1))
