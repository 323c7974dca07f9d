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
from culm.bamboo.entry import Entry, LogKey, sign
from culm.machine import Effect, Event, RemoteProtocolError
from culm.p2panda import (
    Author,
    Closed,
    Connection,
    Dialect,
    ErrorCode,
    Height,
    Limits,
    MemoryStore,
    Mode,
    OperationStored,
    Policy,
    Replicator,
    ReplicatorLimits,
    Session,
    SessionEnded,
)
from culm.p2panda.effects import AppendOperations, perform
from culm.p2panda.items import encode_item
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
from culm.p2panda.store import NewOperation
from culm.testing.arguments import on_handle
from culm.testing.contents import CBOR as CONTENTS
from culm.testing.encodings import CBOR
from culm.testing.machines import (
    Advance,
    Call,
    Config,
    Conversation,
    Flood,
    Frame,
    Key,
    MachineSpec,
    Receive,
    Scenario,
    Side,
    Verb,
    Work,
    call,
    keys_of,
    register,
)
from culm.testing.messages import cbor_items
from culm.wire import cbor
from culm.wire.multihash import YASMF

__all__ = ["CONNECTION", "REPLICATOR"]

_LEFT, _RIGHT = b"left", b"right"
_LIMITS = keys_of(Limits)
_KEYS = (
    Key(name="local_peer", type=bytes, default=_LEFT, meaning="Our id, as the transport has it."),
    Key(name="remote_peer", type=bytes, default=_RIGHT, meaning="The peer's id."),
    Key(
        name="dialect",
        type=Dialect,
        default=Dialect.SEED,
        meaning="How keys and log heights are written.",
    ),
    *_LIMITS,
)

# Small limits, for floods: what one machine holds then is counted in kilobytes.
_TIGHT = {
    "receive_buffer_max": 512,
    "schemas_max": 4,
    "schema_id_size_max": 100,
    "operation_size_max": 400,
    "operation_skip_max": 2000,
    "logs_max": 8,
    "sessions_max": 4,
    "faults_max": 8,
    "answers_size_max": 1024,
}


def _build(config: Config) -> Connection:
    return Connection(
        local_peer=config["local_peer"],
        remote_peer=config["remote_peer"],
        dialect=config["dialect"],
        limits=Limits(**{key.name: config[key.name] for key in _LIMITS}),
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


_SCHEMAS = ["schema_definition_v1", "blob_v1", "blob_piece_v1"]
_LOW, _HIGH = [bytes(32), 0, 1], [b"\xff" * 32, 2**40, 9]
_MIRRORED = {"local_peer": _RIGHT, "remote_peer": _LEFT}


def _both(*calls: Call) -> list[tuple[Side, Call]]:
    return [(side, each) for each in calls for side in _SIDES]


_SIDES: tuple[Side, Side] = ("left", "right")
_ANNOUNCED = _both(call("announce", schema_ids=_SCHEMAS, timestamp=7))


def _requested(mode: str, side: Side = "left", schema_ids: Sequence[str] = ("blob_v1",)) -> Any:
    return side, call("request", schema_ids=list(schema_ids), mode=mode)


_RECONCILED: list[tuple[Side, Call]] = [
    ("right", call("lower_bound", session=0, bound=_LOW)),
    ("right", call("fingerprint", session=0, lift=bytes(24), upper_bound=_HIGH)),
    ("right", call("range_done", session=0, upper_bound=_LOW)),
    ("right", call("terminal", session=0)),
    ("left", call("lower_bound", session=0, bound=_LOW)),
    ("left", call("payload", session=0, item=_LOW)),
    ("left", call("send_entry", session=0, entry=b"one", operation=b"before the end")),
    ("left", call("payload", session=0, item=_LOW, upper_bound=_HIGH, can_respond=True)),
    ("left", call("empty_payload", session=0, upper_bound=_LOW)),
    ("left", call("terminal", session=0)),
]


def _request_of(number: int) -> bytes:
    """A request for a session of its own, about some of the schemas."""
    wanted = [each for bit, each in enumerate(_SCHEMAS) if (number % 7 + 1) >> bit & 1]
    return cbor.encode([1, number, 1, wanted])


def _announcement(number: int) -> bytes:
    return cbor.encode([0, 1, number + 8, [f"{'x' * 60}{number}-{each}" for each in range(4)]])


_TOP = 2**64 - 1
_BOMBS = (
    b"\x84\x00\x01\x07\x9b" + b"\xff" * 8,
    b"\x84\x00\x01\x07" + b"\x81" * 1000,
    b"\x84\x02\x00\x5b" + b"\x7f" + b"\xff" * 7,
    cbor.encode([1, _TOP, 1, ["blob_v1"]])
    + cbor.encode([22, 0, [bytes(32).hex(), _TOP, _TOP], True, [bytes(32).hex(), _TOP, _TOP]]),
)

_FRAMES = tuple(
    Frame(
        name=name,
        wrap=lambda content, head=head: head + content,  # type: ignore[misc]
        contents=CONTENTS,
        size=size,
        refused=len(head) < 2,  # what has no type is no message
    )
    for name, head, size in (
        ("an announcement", b"\x84\x00\x01\x07", 16384),
        ("a request", b"\x84\x01\x00\x01", 16384),
        ("an entry", b"\x84\x02\x00", 16384),
        ("log heights", b"\x83\x0a\x00", 16384),
        ("an item", b"\x83\x16\x00", 64),
        ("a message", b"\x83", 16384),
        ("anything", b"", 16384),
    )
)

# Measured twofold: an announcement of many schemas costs a line for each, a session that fails and
# is forgotten the most.
_WORK = Work(base=900, per_byte=40)

CONNECTION = register(
    MachineSpec(
        name="p2panda",
        build=_build,
        retained_max=32_000,
        work=_WORK,
        alike_max=3,
        encodings=CBOR,
        messages=cbor_items,
        frames=_FRAMES,
        bombs=_BOMBS,
        keys=_KEYS,
        tight=_TIGHT,
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
        scenarios=(
            Scenario(
                name="set reconciliation, then live mode",
                right=_MIRRORED,
                script=(
                    *_ANNOUNCED,
                    _requested("set_reconciliation"),
                    *_RECONCILED,
                    *_both(call("finish", session=0, live_mode=True)),
                    ("right", call("send_entry", session=0, entry=b"new", operation=b"live")),
                    ("left", call("finish", session=0)),
                    ("left", call("close")),
                ),
            ),
            Scenario(
                name="log heights, of aquadoggo",
                left={"dialect": "aquadoggo"},
                right={**_MIRRORED, "dialect": "aquadoggo"},
                script=(
                    *_ANNOUNCED,
                    _requested("log_height"),
                    ("right", call("send_have", session=0, heights=[_LOW, _HIGH])),
                    ("left", call("send_have", session=0, heights=[])),
                    ("left", call("finish", session=0)),
                    ("right", call("send_entry", session=0, entry=b"entry", operation=b"op")),
                    ("right", call("finish", session=0, live_mode=True)),
                    _requested("log_height", "right"),
                    ("left", call("send_have", session=0, heights=[_LOW])),
                    ("left", call("close")),
                ),
            ),
            Scenario(
                name="a side without anything",
                right=_MIRRORED,
                script=(
                    ("right", call("announce", schema_ids=_SCHEMAS, timestamp=7)),
                    ("right", call("announce", schema_ids=_SCHEMAS[1:], timestamp=8)),
                    _requested("set_reconciliation"),
                    ("right", call("empty_set", session=0, can_respond=True)),
                    ("right", call("finish", session=0)),
                    ("left", call("send_entry", session=0, entry=b"entry", operation=b"op")),
                    ("left", call("finish", session=0)),
                    ("right", call("close")),
                ),
            ),
            Scenario(
                name="a request that is not answered",
                right=_MIRRORED,
                script=(*_ANNOUNCED, _requested("log_height"), ("left", Advance(31.0))),
            ),
            Scenario(
                name="several sessions at once, of which one ends early",
                right=_MIRRORED,
                script=(
                    *_ANNOUNCED,
                    _requested("set_reconciliation"),
                    _requested("log_height", "right", ["blob_piece_v1"]),
                    _requested("log_height", "left", ["blob_v1", "blob_piece_v1"]),
                    ("right", call("empty_set", session=0, can_respond=False)),
                    ("left", call("send_have", session=1, heights=[_LOW])),
                    ("left", call("finish", session=0)),
                    ("right", call("send_entry", session=0, entry=b"not", operation=b"all")),
                    ("right", call("finish", session=0)),
                    ("left", call("close")),
                ),
            ),
        ),
        interruptions=(call("close"), call("break_off", session=0)),
        bad_calls=(
            call("announce", schema_ids=[], timestamp=6),
            call("request", schema_ids=["schema_field_definition_v1"], mode="log_height"),
            call("request", schema_ids=["blob_v1"], mode="log_height"),
            call("send_have", session=0, heights=[]),
            call("terminal", session=0),
            call("send_entry", session=0, entry=b"", operation=b""),
            call("finish", session=77),
            call("finish", session=0, live_mode=True),
        ),
        floods=(
            Flood(unit=cbor.encode([3, 0, False])),
            Flood(unit=_announcement),
            Flood(unit=_request_of, after="set reconciliation, then live mode/right"),
            Flood(unit=_request_of, after="a side without anything/right"),
            Flood(
                unit=cbor.encode([2, 0, b"entry", bytes(1900)]),
                after="several sessions at once, of which one ends early/right",
            ),
            Flood(
                opening=cbor.encode([2, 0, b"entry", bytes(380)])[:-1],
                unit=cbor.encode([2, 0, b"entry", bytes(380)]),
            ),
        ),
    )
)


# The replicator.


_REPLICATOR_LIMITS = keys_of(ReplicatorLimits, without=["connection", "parameters"])
_POLICY = keys_of(Policy)
_REPLICATOR_KEYS = (
    *_KEYS,
    *_REPLICATOR_LIMITS,
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
        policy=Policy(**{key.name: config[key.name] for key in _POLICY}),
    )


class _Recorder(MemoryStore):
    """Remembers what was kept in it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[NewOperation] = []

    def append(self, operations: Sequence[NewOperation]) -> list[int]:
        self.kept += operations
        return super().append(operations)


@lru_cache(maxsize=64)
def _written(count: int, owner: bytes) -> list[NewOperation]:
    """So many documents, half of them by everybody, as they are written once and for all."""
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
    return lambda effect: perform(effect, store)


def _kept(effect: Effect[Any]) -> list[tuple[bytes, Entry]]:
    """The operations that it writes."""
    operations = effect.operations if isinstance(effect, AppendOperations) else ()
    return [(new.document_id, new.entry) for new in operations]


def _outcome(events: Sequence[Event]) -> object:
    """What was stored, and how it ended: the rest depends on what crosses on the wire."""
    stored = sorted(each.operation_id for each in events if isinstance(each, OperationStored))
    ends = [each for each in events if isinstance(each, (SessionEnded, Closed))]
    return stored, [getattr(each, "error", None) for each in ends]


# Measured at half of that.
_REPLICATOR_WORK = Work(base=450, per_byte=20)

_PIECES = ["blob_piece_v1"]


def _operation_with(content: bytes) -> bytes:
    """A session, and a creation in which the value of a field is encoded like that."""
    front = b"".join(map(cbor.encode, (1, 0, _PIECES[0])))
    operation = b"\x84" + front + b"\xa1" + cbor.encode("data") + content
    key = SigningKey(b"writer".ljust(32, b"-"))
    entry = sign(key, family=YASMF, log_id=0, seqnum=1, payload=operation).encode()
    said: list[list[Any]] = [[1, 0, 0, _PIECES], [10, 0, []], [2, 0, entry, operation]]
    return b"".join(map(cbor.encode, said))


_INTERESTED = _both(call("announce", schema_ids=_PIECES, timestamp=7))

REPLICATOR = register(
    MachineSpec(
        name="p2panda-replicator",
        build=_build_replicator,
        unsent_max=12_000,  # entries, one batch more of them, one Have, and answers
        retained_max=400_000,
        work=_REPLICATOR_WORK,
        alike_max=3,
        keys=_REPLICATOR_KEYS,
        tight={
            **_TIGHT,
            "unwritten_size_max": 8192,
            "unsent_size_max": 4096,
            "batch_size_max": 4096,
            "batch_count_max": 4,
            "spans_max": 4,
            "logs_known_max": 8,
            "operations_known_max": 16,
            "repeated_max": 4,
            "left_out_max": 8,
        },
        lazy_output=True,
        normalise=_outcome,
        respond=_respond,
        kept=_kept,
        encodings=CBOR,
        messages=cbor_items,
        frames=(
            *_FRAMES,
            Frame(
                name="a field",
                wrap=_operation_with,
                contents=CONTENTS,
                size=100_000,
                after="nobody answers",
                config={"asks": False},
            ),
        ),
        bombs=_BOMBS[2:],  # the others are dealt with below it
        scenarios=(
            Scenario(
                name="one has all, then live mode",
                left={"documents": 0},
                right={**_MIRRORED, "documents": 6, "asks": False},
                script=(*_INTERESTED, ("left", call("leave", session_id=0))),
            ),
            Scenario(
                name="both have something",
                left={"documents": 8, "live": False},
                right={**_MIRRORED, "documents": 7, "live": False, "asks": False},
                script=(*_INTERESTED, ("left", call("close"))),
            ),
            Scenario(
                name="log heights, of aquadoggo",
                left={
                    "documents": 4,
                    "live": False,
                    "mode": "log_height",
                    "dialect": "aquadoggo",
                },
                right={
                    **_MIRRORED,
                    "documents": 6,
                    "live": False,
                    "asks": False,
                    "dialect": "aquadoggo",
                },
                script=(*_INTERESTED, ("right", call("close"))),
            ),
        ),
        conversations=lambda spec: [
            Conversation(
                name="nobody answers",
                operations=(
                    Advance(0.0),
                    call("announce", schema_ids=_PIECES, timestamp=7),
                    Receive(cbor.encode([0, 1, 7, _PIECES])),
                    Advance(31.0),
                ),
            )
        ],
        bad_calls=(call("leave", session_id=77), call("request", schema_ids=["blob_v1"])),
    )
)
