"""p2panda: ``p2panda`` (the wire machine) and ``p2panda-replicator``.

Verbs name sessions by id.  Log heights, items and bounds are ``[public key, log id, sequence
number]``, with keys as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from nacl.signing import SigningKey

from culm.arguments import check_bytes, check_int, check_type
from culm.bamboo.entry import LogKey
from culm.machine import Effect, RemoteProtocolError
from culm.machines import Codec, Config, Key, MachineType, Verb, keys_of, register
from culm.machines.encodings import CBOR
from culm.machines.messages import cbor_items
from culm.machines.signatures import on_handle
from culm.p2panda import (
    Author,
    Connection,
    Dialect,
    ErrorCode,
    Height,
    Limits,
    MemoryStore,
    Mode,
    Policy,
    Replicator,
    ReplicatorLimits,
    Session,
    Timing,
)
from culm.p2panda.effects import NewOperation
from culm.p2panda.heights import encode_item
from culm.p2panda.messages import (
    Done,
    EmptyPayload,
    EmptySet,
    Fingerprint,
    LowerBound,
    Payload,
    RangeMessage,
    Terminal,
)

LEFT, RIGHT = b"left", b"right"

_LIMITS = keys_of(Limits)
_TIMING = keys_of(Timing, without=["pause_min_s", "pause_max_s"])

_KEYS = (
    Key(name="local_peer", type=bytes, default=LEFT, meaning="Our id, as the transport has it."),
    Key(name="remote_peer", type=bytes, default=RIGHT, meaning="The peer's id."),
    Key(
        name="dialect",
        type=Dialect,
        default=Dialect.SEED,
        meaning="How keys and log heights are written.",
    ),
    *_LIMITS,
    *_TIMING,
)


def _build(config: Config) -> Connection:
    return Connection(
        local_peer=config["local_peer"],
        remote_peer=config["remote_peer"],
        dialect=config["dialect"],
        limits=Limits(**{key.name: config[key.name] for key in _LIMITS}),
        timing=Timing(**{key.name: config[key.name] for key in _TIMING}),
    )


def _height(value: Any) -> Height:
    check_type("height", value, list)
    if len(value) != 3:
        raise ValueError("a height has three parts")
    author, log_id, seqnum = value
    check_bytes("author", author, 32)
    check_int("log id", log_id)
    check_int("seqnum", seqnum)
    return Height(LogKey(author, log_id), seqnum)


def _item(value: Any) -> bytes:
    height = _height(value)
    return encode_item(height.log, height.seqnum)


def _request(machine: Connection, schema_ids: list[str], mode: Mode) -> int:
    return machine.request(schema_ids, mode=mode).session_id


def _send_have(machine: Connection, session: int, heights: list[Any]) -> None:
    check_type("heights", heights, list)
    machine.session(session).send_have([_height(each) for each in heights])


def _say(machine: Connection, session: int, message: RangeMessage) -> None:
    machine.session(session).send_range(message)


def _empty_set(machine: Connection, session: int, can_respond: bool) -> None:
    _say(machine, session, EmptySet(can_respond))


def _lower_bound(machine: Connection, session: int, bound: list[Any]) -> None:
    _say(machine, session, LowerBound(_item(bound)))


def _payload(
    machine: Connection,
    session: int,
    item: list[Any],
    upper_bound: list[Any] | None = None,
    can_respond: bool = False,
) -> None:
    bound = None if upper_bound is None else _item(upper_bound)
    _say(machine, session, Payload(_item(item), bound, can_respond))


def _empty_payload(machine: Connection, session: int, upper_bound: list[Any]) -> None:
    _say(machine, session, EmptyPayload(_item(upper_bound)))


def _range_done(machine: Connection, session: int, upper_bound: list[Any]) -> None:
    _say(machine, session, Done(_item(upper_bound)))


def _fingerprint(machine: Connection, session: int, lift: bytes, upper_bound: list[Any]) -> None:
    _say(machine, session, Fingerprint(lift, _item(upper_bound)))


def _terminal(machine: Connection, session: int) -> None:
    _say(machine, session, Terminal())


def _break_off(machine: Connection, session: int) -> None:
    machine.session(session).break_off(RemoteProtocolError(ErrorCode.BAD_BOUND))


def _on_session(verb: Verb) -> Verb:
    return on_handle("session", Connection.session, verb)


_REPLICATOR_LIMITS = keys_of(ReplicatorLimits, without=["connection", "parameters"])

_PAUSES = keys_of(Timing, without=["answer_max_s", "progress_max_s"])

_POLICY = keys_of(Policy)

_REPLICATOR_KEYS = (
    *_KEYS,
    *_REPLICATOR_LIMITS,
    *_PAUSES,
    *_POLICY,
    Key(
        name="documents",
        type=int,
        default=0,
        meaning="How many documents its own store has, which answers if it is asked to; the first"
        " half of them is the same in every store.",
    ),
)


def _build_replicator(config: Config) -> Replicator:
    return Replicator(
        local_peer=config["local_peer"],
        remote_peer=config["remote_peer"],
        dialect=config["dialect"],
        limits=ReplicatorLimits(
            connection=Limits(**{key.name: config[key.name] for key in _LIMITS}),
            **{key.name: config[key.name] for key in _REPLICATOR_LIMITS},
        ),
        timing=Timing(**{key.name: config[key.name] for key in (*_TIMING, *_PAUSES)}),
        policy=Policy(**{key.name: config[key.name] for key in _POLICY}),
    )


class _Recorder(MemoryStore):
    """A store that remembers the operations kept in it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[NewOperation] = []

    def append(self, operations: Sequence[NewOperation]) -> list[int]:
        self.kept += operations
        return super().append(operations)


@lru_cache(maxsize=64)
def _written(count: int, owner: bytes) -> list[NewOperation]:
    """The operations of `count` documents, half of them the same for every `owner`."""
    store = _Recorder()
    common, own = (Author(SigningKey(seed.ljust(32, b"-")), store) for seed in (b"", owner))
    for number in range(count):
        author = common if number < count // 2 else own
        document = author.create("blob_piece_v1", {"data": b"%d" % number})
        if number % 2:
            own.update(document, {"data": owner})
    return store.kept


def _respond(config: Config) -> Callable[[Effect[Any]], object]:
    store = MemoryStore()
    store.append(_written(config["documents"], config["local_peer"]))
    return store.perform


CONNECTION = register(
    MachineType(
        name="p2panda",
        build=_build,
        keys=_KEYS,
        verbs={
            "request": _request,
            "send_have": _send_have,
            "empty_set": _empty_set,
            "lower_bound": _lower_bound,
            "payload": _payload,
            "empty_payload": _empty_payload,
            "range_done": _range_done,
            "fingerprint": _fingerprint,
            "terminal": _terminal,
            "send_entry": _on_session(Session.send_entry),
            "finish": _on_session(Session.finish),
            "break_off": _break_off,
        },
        codec=Codec(encodings=CBOR, messages=cbor_items),
    )
)

REPLICATOR = register(
    MachineType(
        name="p2panda-replicator",
        build=_build_replicator,
        keys=_REPLICATOR_KEYS,
        respond=_respond,
        codec=Codec(encodings=CBOR, messages=cbor_items),
    )
)
