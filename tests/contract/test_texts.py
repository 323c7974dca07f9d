"""Half a surrogate pair, possible in Python's text but in no encoding, is refused at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from culm.arguments import is_encodable
from culm.garlic.digest import Challenge, CredentialCache, Nonces
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.raft import Server
from culm.p2panda import Action, FieldType, Kind, Operation, Schema, SchemaId
from culm.ssb import v8json
from culm.ssb.address import Address
from culm.ssb.feed_id import public_key_of
from culm.ssb.muxrpc import CallError
from culm.ssb.muxrpc.requests import encode_error
from culm.wire import cbor

HALF = "\ud800"
KEY = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="


def operation(text: str) -> bytes:
    return Operation(action=Action.CREATE, schema_id="blob_v1", fields={"a": text}).encode()


def schema_id(text: str) -> bytes:
    return Operation(action=Action.CREATE, schema_id=text, fields={"a": 1}).encode()


def dial(host: str = "host", user: str = "user", password: str = "", cluster: str = "farm") -> None:
    cache = CredentialCache()
    cache.store(host, Challenge("realm", "nonce", "SHA-256"), 0.0)
    ClientHandshake(
        host=host,
        user=user,
        password=password,
        cluster=cluster,
        cache=cache,
        rng=random.Random(1),
    )


def listen(realm: str = "realm", cluster: str = "farm", password: str = "") -> None:
    nonces = Nonces(rng=random.Random(1))
    server = ServerHandshake(
        lookup=lambda user: password, nonces=nonces, realm=realm, cluster=cluster
    )
    server.receive_data(b"GET /GarlicFarm/farm/1/websocket HTTP/1.1\r\nHost: here\r\n\r\n")
    while server.next_event() is not None:
        pass
    server.data_to_send()


REFUSING: dict[str, Callable[[str], object]] = {
    "cbor": cbor.encode,
    "cbor, a key": lambda text: cbor.encode({text: 1}),
    "p2panda, a value": operation,
    "p2panda, a schema's id": schema_id,
    "p2panda, a name": lambda text: Schema("blob_v1", {text: FieldType(Kind.INT)}),
    "p2panda, a relation": lambda text: FieldType(Kind.RELATION, text),
    "p2panda, an id": SchemaId.parse,
    "garlic, host": lambda text: dial(host=text),
    "garlic, user": lambda text: dial(user=text),
    "garlic, password": lambda text: dial(password=text),
    "garlic, cluster": lambda text: dial(cluster=text),
    "garlic, realm": lambda text: listen(realm=text),
    "garlic, a server's cluster": lambda text: listen(cluster=text),
    "garlic, endpoint": lambda text: Server(1, text),
    "ssb, address": lambda text: Address.parse(f"net:{text}:1~shs:{KEY}"),
    "ssb, feed": public_key_of,
}

# JSON has an escape for it.
TAKING: dict[str, Callable[[str], object]] = {
    "ssb, json": lambda text: v8json.stringify({text: text}).encode(),
    "ssb, error": lambda text: encode_error(CallError(text)),
    # A server's password, for comparison only, may be any text.
    "garlic, a server's password": lambda text: listen(password=text),
}

TEXTS = st.text(st.characters() | st.characters(categories=["Cs"]))


@pytest.mark.parametrize("place", REFUSING)
@given(text=TEXTS)
@example(text=HALF)
@example(text="a" + HALF)
@example(text="\r\n")
@example(text="\N{GRINNING FACE}")
def test_text_without_an_encoding_is_refused_by_its_place(place: str, text: str):
    refusal: ValueError | None = None
    try:
        REFUSING[place](text)
    except ValueError as error:
        refusal = error
    # The error of a codec does not name the argument at fault.
    assert not isinstance(refusal, UnicodeError)
    assert refusal is not None or is_encodable(text)


@pytest.mark.parametrize("place", TAKING)
@given(text=TEXTS)
@example(text=HALF)
def test_text_without_an_encoding_is_said_in_another_way(place: str, text: str):
    TAKING[place](text)


def test_a_password_of_a_server_that_nobody_can_have_lets_nobody_in():
    challenge = Challenge("GarlicFarm", Nonces(rng=random.Random(1)).issue(0.0), "SHA-256")
    cache = CredentialCache()
    cache.store("host", challenge, 0.0)
    nonces = Nonces(rng=random.Random(1))
    nonces.issue(0.0)
    client = ClientHandshake(
        host="host", user="user", password="", cache=cache, rng=random.Random(2)
    )
    server = ServerHandshake(lookup=lambda user: HALF, nonces=nonces)
    server.receive_data(client.data_to_send())
    server.next_event()
    assert server.data_to_send().startswith(b"HTTP/1.1 401")
