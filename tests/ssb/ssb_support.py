"""Keys, handshakes and streams for the tests of Secure Scuttlebutt."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.machine import Event, StreamMachine
from culm.ssb import Authenticated, BoxStream, ClientHandshake, Closed, ServerHandshake

ALICE, BOB, EVE = (SigningKey(sha256(name).digest()) for name in (b"alice", b"bob", b"eve"))
EPHEMERAL = {role: PrivateKey(sha256(role).digest()) for role in (b"client", b"server")}


def public(identity: SigningKey) -> bytes:
    return bytes(identity.verify_key)


def client(**options: Any) -> ClientHandshake:
    """Bob, who dials Alice."""
    made = {"identity": BOB, "server": public(ALICE), "ephemeral": EPHEMERAL[b"client"]}
    return ClientHandshake(**{**made, **options})


def server(**options: Any) -> ServerHandshake:
    """Alice."""
    return ServerHandshake(**{"identity": ALICE, "ephemeral": EPHEMERAL[b"server"], **options})


def events(machine: StreamMachine) -> list[Event]:
    found: list[Event] = []
    while (event := machine.next_event()) is not None:
        found.append(event)
    return found


def converse(left: StreamMachine, right: StreamMachine) -> tuple[list[Event], list[Event]]:
    """Carry bytes both ways until there are none; the events at each end."""
    happened = events(left), events(right)
    moved = True
    while moved:
        moved = False
        for sender, receiver, seen in ((left, right, happened[1]), (right, left, happened[0])):
            if data := sender.data_to_send():
                receiver.receive_data(data)
                seen += events(receiver)
                moved = True
    return happened


def streams(**options: Any) -> tuple[BoxStream, BoxStream]:
    """Bob's and Alice's, after a handshake."""
    ours, theirs = converse(client(), server())
    assert isinstance(ours[0], Authenticated)
    assert isinstance(theirs[0], Authenticated)
    assert [ours[1:], theirs[1:]] == [[Closed()], [Closed()]]
    return BoxStream(keys=ours[0].keys, **options), BoxStream(keys=theirs[0].keys, **options)
