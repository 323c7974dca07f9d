"""The secret handshake: byte for byte as recorded, and against peers that cheat."""

from __future__ import annotations

import hmac
from base64 import b64decode
from hashlib import sha256
from typing import Any

import pytest
from nacl.bindings import (
    crypto_scalarmult,
    crypto_secretbox,
    crypto_sign_ed25519_pk_to_curve25519,
)
from nacl.public import PrivateKey
from nacl.signing import SigningKey
from ssb_support import ALICE, BOB, EPHEMERAL, EVE, client, converse, events, public, server

import vectors
from culm.machine import ContractErrorCode, LocalProtocolError, RemoteProtocolError
from culm.ssb import (
    MAIN_NETWORK,
    Authenticated,
    BoxStream,
    ClientHandshake,
    Closed,
    DataReceived,
    ErrorCode,
    HandshakeState,
    ServerHandshake,
    SessionKeys,
    Timing,
)

SIZES = {"client": [64, 112], "server": [64, 80]}
LOW_ORDER = [bytes(32), b"\1" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"]


def code_of(machine: Any) -> ErrorCode:
    """The code of the error with which the machine has just ended, its only event."""
    (closed,) = events(machine)
    assert isinstance(closed, Closed)
    assert isinstance(closed.error, RemoteProtocolError)
    assert machine.state is HandshakeState.CLOSED
    assert machine.trailing_data == b""
    return ErrorCode(closed.error.code)


class TestRecorded:
    """The handshakes of ssb-ebt's peers on TCP, with the same keys."""

    @staticmethod
    def session() -> dict[str, bytes]:
        lines = vectors.load_json_lines("ssb/session-3-messages-tcp.jsonl")
        return {
            role: b"".join(
                bytes.fromhex(line["hex"]) for line in lines if line["dir"].startswith(role)
            )
            for role in ("client", "server")
        }

    @staticmethod
    def machines() -> dict[str, Any]:
        keys = vectors.load_json("ssb/keys.json")
        alice, bob = (
            SigningKey(b64decode(keys[name]["private"].removesuffix(".ed25519"))[:32])
            for name in ("alice", "bob")
        )
        ephemeral = {
            role: SigningKey(bytes.fromhex(made["seed_hex"])).to_curve25519_private_key()
            for role, made in keys["shs_ephemeral"].items()
        }
        return {
            "client": ClientHandshake(
                identity=bob, server=public(alice), ephemeral=ephemeral["client"]
            ),
            "server": ServerHandshake(identity=alice, ephemeral=ephemeral["server"]),
        }

    @pytest.mark.parametrize(("role", "peer"), [("client", "server"), ("server", "client")])
    def test_handshake_and_boxes_byte_for_byte(self, role: str, peer: str) -> None:
        recorded, machines = self.session(), self.machines()
        handshake = machines[role]
        handshake.receive_data(recorded[peer])
        authenticated, closed = events(handshake)
        assert authenticated.peer == public(machines[peer]._identity)
        assert closed == Closed()
        sent = handshake.data_to_send()
        assert sent == recorded[role][: sum(SIZES[role])]

        # The peer's view of our bytes, sealed again, equals the recording.
        keys = authenticated.keys
        reader = BoxStream(keys=SessionKeys(send=keys.receive, receive=keys.send))
        reader.receive_data(recorded[role][len(sent) :])
        writer = BoxStream(keys=keys)
        read = events(reader)
        for event in read:
            if isinstance(event, DataReceived):
                writer.send_data(event.data)
        if isinstance(read[-1], Closed):
            writer.close()
        again = writer.data_to_send()
        assert again == recorded[role][len(sent) :]
        assert len(read) > 5


class TestHonest:
    def test_both_learn_who_the_other_is_and_share_keys(self) -> None:
        (ours, _), (theirs, _) = converse(client(), server())
        assert isinstance(ours, Authenticated)
        assert isinstance(theirs, Authenticated)
        assert (ours.peer, theirs.peer) == (public(ALICE), public(BOB))
        assert (ours.keys.send, ours.keys.receive) == (theirs.keys.receive, theirs.keys.send)
        assert ours.keys.send != ours.keys.receive

    def test_secrets_are_not_printed(self) -> None:
        (ours, _), _ = converse(client(), server())
        assert isinstance(ours, Authenticated)
        assert repr(ours.keys.send.key)[2:-1] not in repr(ours)

    def test_other_ephemeral_keys_make_other_secrets(self) -> None:
        other = client(ephemeral=PrivateKey(bytes(range(32))))
        first, second = (converse(each, server())[0][0] for each in (client(), other))
        assert isinstance(first, Authenticated)
        assert isinstance(second, Authenticated)
        assert first.keys.send.key != second.keys.send.key

    def test_states(self) -> None:
        machine = server()
        assert machine.state is HandshakeState.HELLO
        dialler = client()
        machine.receive_data(dialler.data_to_send())
        assert events(machine) == []
        assert machine.state is HandshakeState.PROOF
        dialler.receive_data(machine.data_to_send())
        assert events(dialler) == []
        assert dialler.state is HandshakeState.ACCEPTANCE
        machine.receive_data(dialler.data_to_send())
        machine.next_event()
        assert machine.state is HandshakeState.DONE

    def test_what_comes_behind_is_trailing_data(self) -> None:
        dialler, listener = client(), server()
        converse(dialler, listener)
        dialler.receive_data(b"a box")
        assert dialler.trailing_data == b"a box"


class TestCheats:
    @pytest.mark.parametrize("bit", range(0, 64 * 8, 7))
    def test_a_changed_hello_is_of_another_network(self, bit: int) -> None:
        hello = bytearray(client().data_to_send())
        hello[bit // 8] ^= 1 << bit % 8
        machine = server()
        machine.receive_data(hello)
        assert code_of(machine) is ErrorCode.WRONG_NETWORK
        assert machine.data_to_send() == b""

    @pytest.mark.parametrize("bit", range(0, 112 * 8, 7))
    def test_a_changed_proof(self, bit: int) -> None:
        dialler, machine = client(), server()
        machine.receive_data(dialler.data_to_send())
        events(machine)
        dialler.receive_data(machine.data_to_send())
        events(dialler)
        proof = bytearray(dialler.data_to_send())
        proof[bit // 8] ^= 1 << bit % 8
        machine.receive_data(proof)
        assert code_of(machine) is ErrorCode.BAD_PROOF
        assert machine.data_to_send() == b""

    @pytest.mark.parametrize("bit", range(0, 80 * 8, 7))
    def test_a_changed_acceptance(self, bit: int) -> None:
        dialler, machine = client(), server()
        machine.receive_data(dialler.data_to_send())
        events(machine)
        dialler.receive_data(machine.data_to_send())
        events(dialler)
        machine.receive_data(dialler.data_to_send())
        events(machine)
        acceptance = bytearray(machine.data_to_send())
        acceptance[bit // 8] ^= 1 << bit % 8
        dialler.receive_data(acceptance)
        assert code_of(dialler) is ErrorCode.BAD_PROOF

    def test_another_network(self) -> None:
        _, happened = converse(client(network=bytes(32)), server())
        assert happened == [Closed(error=RemoteProtocolError(ErrorCode.WRONG_NETWORK))]

    def test_who_asks_for_another_server_learns_nothing(self) -> None:
        """The hello is the same for every server; the proof is not for us."""
        dialler, machine = client(server=public(EVE)), server()
        ours, theirs = converse(dialler, machine)
        assert ours == []
        assert [type(event) for event in theirs] == [Closed]
        assert machine.data_to_send() == b""

    def test_a_man_in_the_middle_proves_nothing(self) -> None:
        """Eve speaks with Bob under her own ephemeral key, and does not have Alice's identity."""
        eve = server(identity=EVE)
        dialler = client()
        converse(dialler, eve)
        assert dialler.state is HandshakeState.ACCEPTANCE
        assert eve.state is HandshakeState.CLOSED

    def test_a_signature_of_somebody_else(self) -> None:
        """Eve knows the server, and claims to be Bob."""

        class Liar(ClientHandshake):
            def _read_hello(self, hello: bytes) -> None:
                super()._read_hello(hello)
                self._identity = _Signer()

        class _Signer:
            verify_key = BOB.verify_key

            def sign(self, text: bytes) -> Any:
                return EVE.sign(text)

            def to_curve25519_private_key(self) -> PrivateKey:
                return EVE.to_curve25519_private_key()

        machine = server()
        liar = Liar(identity=EVE, server=public(ALICE), ephemeral=EPHEMERAL[b"client"])
        _, happened = converse(liar, machine)
        assert [type(event) for event in happened] == [Closed]
        assert machine.state is HandshakeState.CLOSED

    def test_who_is_not_admitted_is_told_nothing(self) -> None:
        asked: list[bytes] = []
        machine = server(admits=lambda peer: asked.append(peer) is not None)
        _, (closed,) = converse(client(), machine)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is ErrorCode.NOT_ADMITTED
        assert asked == [public(BOB)]

    @pytest.mark.parametrize("verdict", [None, 1, "yes", object()])
    def test_nothing_but_true_lets_anybody_in(self, verdict: Any) -> None:
        machine = server(admits=lambda peer: verdict)
        _, (closed,) = converse(client(), machine)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is ErrorCode.NOT_ADMITTED

    def test_a_function_that_fails_lets_nobody_in(self) -> None:
        machine = server(admits={}.__getitem__)
        _, (closed,) = converse(client(), machine)
        assert isinstance(closed, Closed)
        assert closed.error is not None
        assert closed.error.code is ErrorCode.NOT_ADMITTED
        assert "KeyError" in closed.error.message

    @pytest.mark.parametrize("point", LOW_ORDER, ids=bytes.hex)
    def test_an_ephemeral_key_of_low_order(self, point: bytes) -> None:
        machine = server()
        machine.receive_data(hmac.digest(MAIN_NETWORK, point, "sha512")[:32] + point)
        assert code_of(machine) is ErrorCode.BAD_KEY
        assert machine.data_to_send() == b""

    @pytest.mark.parametrize("key", [*LOW_ORDER, b"\xff" * 32], ids=bytes.hex)
    def test_a_client_whose_long_term_key_is_none(self, key: bytes) -> None:
        """Any 32 bytes can be put into the sealed box."""
        dialler, machine = client(), server()
        machine.receive_data(dialler.data_to_send())
        events(machine)
        dialler.receive_data(machine.data_to_send())
        events(dialler)
        ephemeral, far = (EPHEMERAL[end] for end in (b"client", b"server"))
        secrets = [
            crypto_scalarmult(bytes(ephemeral), point)  # ab, aB
            for point in (
                bytes(far.public_key),
                crypto_sign_ed25519_pk_to_curve25519(public(ALICE)),
            )
        ]
        box_key = sha256(b"".join([MAIN_NETWORK, *secrets])).digest()
        proof = bytes(64) + key
        machine.receive_data(crypto_secretbox(proof, bytes(24), box_key))
        assert code_of(machine) is ErrorCode.BAD_PROOF

    @pytest.mark.parametrize("size", [0, 1, 63, 64, 100])
    def test_the_bytes_end_before_it_is_over(self, size: int) -> None:
        dialler, machine = client(), server()
        data = dialler.data_to_send() + bytes(112)
        machine.receive_data(data[:size])
        machine.receive_eof()
        assert code_of(machine) is ErrorCode.TRUNCATED

    def test_more_than_the_handshake_is_not_read_before_it_is_over(self) -> None:
        assert server().read_size() == 224


class TestTime:
    def test_a_peer_that_says_nothing(self) -> None:
        machine = server(timing=Timing(handshake_s=15.0))
        assert machine.next_deadline() is None
        machine.advance(100.0)
        assert machine.next_deadline() == 115.0
        machine.advance(114.9)
        assert events(machine) == []
        machine.advance(115.0)
        assert code_of(machine) is ErrorCode.HANDSHAKE_TIMEOUT
        assert machine.next_deadline() is None

    def test_what_has_come_counts_before_what_is_late(self) -> None:
        dialler, machine = client(), server(timing=Timing(handshake_s=15.0))
        machine.advance(0.0)
        ours, theirs = converse(dialler, machine)
        machine.advance(20.0)
        assert isinstance(theirs[-1], Closed)
        assert theirs[-1].error is None
        assert isinstance(ours[0], Authenticated)

    def test_nan_is_no_time(self) -> None:
        machine = server()
        with pytest.raises(LocalProtocolError) as caught:
            machine.advance(float("nan"))
        assert caught.value.code is ContractErrorCode.NOT_A_TIME
        assert machine.next_deadline() is None


class TestMistakes:
    def test_keys_that_are_none(self) -> None:
        with pytest.raises(ValueError, match="public key"):
            client(server=b"short")
        with pytest.raises(ValueError, match="public key"):
            client(server=bytes(32))
        with pytest.raises(ValueError, match="32 bytes"):
            server(network=MAIN_NETWORK[1:])

    @pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
    def test_times_that_are_none(self, seconds: float) -> None:
        with pytest.raises(ValueError, match="no time to wait"):
            Timing(handshake_s=seconds)
