"""Peers of Secure Scuttlebutt: ``ssb-peer``, all layers over links.

Members of a meeting are named by words, from which their keys are made; verbs also take words.
``dial`` asks for a connection, ``dialled`` and ``accepted`` open sealed links, ``attached`` opens
an unsealed one, and ``close_link`` ends one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm import ssb
from culm.arguments import check_int, check_text, check_type
from culm.machine import ContractErrorCode, LocalProtocolError, Ticket
from culm.machines import Codec, Config, Key, MachineType, keys_of, register
from culm.machines.encodings import BIG_ENDIAN, DECIMAL
from culm.machines.machine_type import close_link
from culm.machines.messages import sized
from culm.machines.ssb_ebt import MEMBER_KEYS, dial_failed, dialling, peer_clock
from culm.machines.ssb_lines import DialWanted
from culm.ssb import ebt, history, muxrpc
from culm.ssb.ebt import AppendMessages, LoadClock, Message, ReadMessages, SessionRole, State
from culm.ssb.feed_id import feed_id_of
from culm.ssb.messages import ClassicMessage, create_message
from culm.ssb.peer import Limits, Peer, PeerEvent, PeerLink, Settings, Timing
from culm.ssb.store import MemoryStore

_SETTINGS = keys_of(Settings)
_TIMING = keys_of(Timing, without=["ssb", "ebt", "history"])

_EPOCH = 1.7e9

_POSTS_MAX = 1000


def _key(name: str) -> SigningKey:
    check_text("name", name)
    return SigningKey(sha256(name.encode()).digest())


@cache
def feed_of(name: str) -> str:
    """The id of a named feed, the same in every run."""
    return feed_id_of(bytes(_key(name).verify_key))


_NAMES = {feed_of(name): name for name in ("alice", "bob", "carol", "dave")}


class _DiallingPeer(Peer):
    """A peer whose user may ask for connections."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(identity=_key(name), **options)
        self.name = name
        self._dials: list[str] = []

    def dial(self, name: str) -> None:
        """Ask for a connection to the peer `name`."""
        check_type("name", name, str)
        if self.state is not State.OPEN:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        self._dials.append(feed_of(name))

    def next_event(self) -> PeerEvent | DialWanted | None:  # type: ignore[override]
        if self._dials:
            return DialWanted(peer=self._dials.pop(0))
        return super().next_event()


def _store(config: Config) -> MemoryStore:
    """A store with the first messages of the peer's own feed."""
    check_int("posts", config["posts"], 0, _POSTS_MAX)
    store = MemoryStore()
    if config["posts"]:
        made = messages_of(config["me"], config["posts"])
        messages = tuple(Message(each.author, each.sequence, each.id, each.data) for each in made)
        store.perform(AppendMessages(ticket=Ticket(1), messages=messages))
    return store


def _build(config: Config) -> _DiallingPeer:
    small = config["small"]
    peer = _DiallingPeer(
        config["me"],
        stored=_store(config).load(),
        now=0.0,
        epoch=_EPOCH,
        restored=config["restored"],
        settings=Settings(**{key.name: config[key.name] for key in _SETTINGS}),
        timing=Timing(
            ssb=ssb.Timing(handshake_s=config["handshake_s"]),
            **{key.name: config[key.name] for key in _TIMING},
        ),
        limits=replace(_SMALL if small else Limits(), verifying_max=config["verifying_max"]),
    )
    for name in config["follows"]:
        peer.follow(feed_of(name))
    return peer


_SMALL = Limits(
    links_max=4,
    links_of_peer_max=2,
    half_sent_size_max=4096,
    early_size_max=8192,
    ssb=ssb.Limits(packets_max=2),
    fill_size_max=1024,
    rpc=muxrpc.Limits(
        body_size_max=2048,
        control_size_max=512,
        calls_max=8,
        unanswered_max=16,
        answers_max=8,
        unsent_size_max=2048,
    ),
    ebt=ebt.Limits(
        sessions_max=4,
        feeds_max=16,
        unsent_size_max=2048,
        read_count_max=4,
        unwritten_size_max=8192,
        write_count_max=8,
    ),
    history=history.Limits(replies_max=8, read_count_max=4, read_size_max=2048),
)


def _follow(machine: Peer, name: str, value: bool = True) -> None:
    machine.follow(feed_of(name), value)


def _block(machine: Peer, author: str, target: str, value: bool = True) -> None:
    machine.block(feed_of(author), feed_of(target), value)


def _publish(machine: Peer, text: str) -> None:
    check_type("text", text, str)
    machine.publish({"type": "post", "text": text})


def _confirm(machine: Peer) -> None:
    machine.confirm()


def _ephemeral(machine: _DiallingPeer) -> PrivateKey:
    """The key of the next connection, which is no secret here."""
    return PrivateKey(sha256(f"{machine.name} {len(machine.links)}".encode()).digest())


def _dialled(machine: _DiallingPeer, name: str) -> PeerLink:
    return machine.dialled(feed_of(name), ephemeral=_ephemeral(machine))


def _accepted(machine: _DiallingPeer) -> PeerLink:
    return machine.accepted(ephemeral=_ephemeral(machine))


def _attached(machine: Peer, name: str, role: SessionRole) -> PeerLink:
    return machine.attached(feed_of(name), role=role)


@cache
def messages_of(name: str, count: int, text: str = "text") -> tuple[ClassicMessage, ...]:
    """The first messages of a feed."""
    made: list[ClassicMessage] = []
    for number in range(count):
        last = made[-1].place if made else None
        content = {"type": "post", "text": text}
        made.append(create_message(_key(name), content=content, timestamp=number, last=last))
    return tuple(made)


PEER = register(
    MachineType(
        name="ssb-peer",
        build=_build,
        keys=(
            *MEMBER_KEYS,
            Key(name="posts", type=int, default=0, meaning="How many messages its own feed has."),
            Key(
                name="restored",
                type=bool,
                default=False,
                meaning="Whether its feeds come from a backup.",
            ),
            Key(name="small", type=bool, default=False, meaning="Whether its limits are small."),
            *keys_of(ssb.Timing),
            *_SETTINGS,
            *_TIMING,
            *(key for key in keys_of(Limits) if key.name == "verifying_max"),
        ),
        verbs={
            "follow": _follow,
            "block": _block,
            "publish": _publish,
            "confirm": _confirm,
            "dialled": _dialled,
            "dial_failed": dial_failed,
            "accepted": _accepted,
            "attached": _attached,
            "close_link": close_link,
        },
        respond=lambda config: _store(config).perform,
        dialling=dialling(_NAMES),
        codec=Codec(
            encodings=(DECIMAL, *BIG_ENDIAN),
            messages=sized(9, slice(1, 5)),
            results={LoadClock: peer_clock, ReadMessages: tuple},
        ),
    )
)
