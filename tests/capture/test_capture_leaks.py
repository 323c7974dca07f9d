"""By default, no output of the tools shows credentials from a capture."""

from __future__ import annotations

import random
from base64 import b64encode
from hashlib import md5, sha256
from pathlib import Path

import pytest

from culm import garlic
from culm.capture import Recorder, Redact, read
from culm.capture.command import main
from culm.garlic.events import DialWanted
from culm.garlic.handshake import Credentials
from culm.garlic.raft import Server, Stored

USER, PASSWORD = "white-rabbit", "wonderland-1865"
ANOTHER, ITS_PASSWORD = "mock-turtle", "jabberwock-1871"
SERVERS = [Server(n, f"tcp://h{n}:4000") for n in (1, 2)]
TOOLS = (["show"], ["show", "--json", "--all"], ["qlog"], ["pcap"], ["lines"], ["test"])


def captures(redact: frozenset[Redact]) -> list[bytes]:
    """Both sides of a handshake, with a user name other than the password."""
    sides = []
    for number in (1, 2):
        pieces: list[bytes] = []
        recorder = Recorder(pieces.append, machine="garlic-node", redact=redact)
        rng = recorder.chance(random.Random(number))
        node = recorder.make(
            garlic.Node, server_id=number, stored=Stored.founding(SERVERS), rng=rng, now=0.0
        )
        credentials = recorder.make(
            Credentials,
            user=USER,
            password=PASSWORD,
            accepted={ANOTHER: ITS_PASSWORD},
            rng=random.Random(number + 2),
        )
        sides.append((recorder, node, credentials, pieces))
    (_, one, ours, _), (_, two, theirs, _) = sides
    moved = b""
    for now in (60.0, 120.0):  # the first connection ends with a challenge
        one.advance(now)
        two.advance(now)
        while not isinstance(one.next_event(), DialWanted):
            while (effect := one.next_effect()) is not None:
                one.complete(effect.ticket)
        near = one.dialled(2, handshake=ours.handshake(SERVERS[1], now))
        far = two.accepted(handshake=theirs.handshake(None, now))
        for _ in range(3):
            for node, link, other in ((one, near, far), (two, far, near)):
                while node.next_event() is not None:
                    pass
                if data := link.data_to_send():
                    moved += data
                    other.receive_data(data)
        near.receive_eof()
    assert USER.encode() in moved
    assert b"101 Switching" in moved
    for recorder, *_ in sides:
        recorder.flush()
    return [b"".join(pieces) for *_, pieces in sides]


def spelled(secret: bytes) -> set[bytes]:
    """A secret as it is, and in the ways that tools write bytes."""
    aligned = {b64encode(bytes(at) + secret)[4:-4] for at in range(3)}
    return {secret, secret.hex().encode(), secret.hex().upper().encode(), *aligned}


def keys_of(realm: str) -> set[bytes]:
    """The hashes that are worth as much as the password (HA1 of RFC 7616), raw and as digits."""
    words = f"{USER}:{realm}:{PASSWORD}".encode()
    made = [sha256(words).digest(), md5(words, usedforsecurity=False).digest()]
    return {*made, *(each.hex().encode() for each in made)}


def outputs(folder: Path, sides: list[bytes], capsys: pytest.CaptureFixture[str]) -> list[bytes]:
    paths = []
    for number, capture in enumerate(sides):
        path = folder / f"{number}.culmcap"
        path.write_bytes(capture)
        paths.append(str(path))
    found = [b"".join(repr([read(each).header, *read(each)]).encode() for each in sides)]
    for path in paths:
        for tool, *more in TOOLS:
            made = folder / "made"
            made.unlink(missing_ok=True)
            main([tool, path, *more] + ([] if tool == "show" else ["-o", str(made)]))
            out, error = capsys.readouterr()
            found.append(out.encode() + error.encode())
            if made.exists():
                found.append(made.read_bytes())
        main(["replay", path])
    main(["diff", *paths])
    main(["view", *paths, "-o", str(folder / "page.html")])
    out, error = capsys.readouterr()
    return [*found, out.encode() + error.encode(), (folder / "page.html").read_bytes()]


@pytest.mark.parametrize("redact", [{Redact.KEYS}, set(Redact)], ids=["keys", "payloads"])
def test_credentials_show_nowhere(
    redact: set[Redact], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = captures(frozenset(redact))
    realm = "/GarlicFarm/farm/1/websocket"
    secrets = (
        {PASSWORD.encode(), ANOTHER.encode(), ITS_PASSWORD.encode()}
        | keys_of(realm)
        | keys_of("farm")
        | keys_of("GarlicFarm")
    )
    if Redact.PAYLOADS in redact:  # the name goes over the wire in clear, and nothing else does
        secrets.add(USER.encode())
    for output in outputs(tmp_path, sides, capsys):
        assert not [each for each in secrets for words in spelled(each) if words in output]


def test_a_user_is_in_what_was_sent_and_nowhere_else() -> None:
    for capture in captures(frozenset({Redact.KEYS})):
        made = [step for step in read(capture) if step.name.startswith("+")]
        assert USER not in repr(made)
    for capture in captures(frozenset({Redact.KEYS, Redact.PAYLOADS})):
        assert USER not in repr([*read(capture)])


def test_the_test_would_find_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = b"".join(outputs(tmp_path, captures(frozenset()), capsys))
    assert PASSWORD.encode() in found
    assert ITS_PASSWORD.encode() in found
    assert USER.encode() in found
