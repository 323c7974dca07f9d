"""p2panda: sessions of the wire machine and of the replicator, and hostile peers of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nacl.signing import SigningKey

from culm.bamboo.entry import Entry, sign
from culm.machine import Effect, Event
from culm.machines import Advance, Call, Receive, call, lookup
from culm.machines.p2panda import LEFT, RIGHT
from culm.p2panda import Closed, OperationStored, SessionEnded
from culm.p2panda.effects import AppendOperations
from culm.testing.contents import CBOR as CONTENTS
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Conversation,
    Flood,
    Frame,
    MachineSpec,
    Scenario,
    Side,
    Usage,
    Work,
)
from culm.wire import cbor
from culm.wire.multihash import YASMF

__all__ = ["CONNECTION", "REPLICATOR"]

# Small limits, for floods: a machine then holds kilobytes.
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

_SCHEMAS = ["schema_definition_v1", "blob_v1", "blob_piece_v1"]

_LOW, _HIGH = [bytes(32), 0, 1], [b"\xff" * 32, 2**40, 9]

_MIRRORED = {"local_peer": RIGHT, "remote_peer": LEFT}


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
    """A request for a separate session, about some of the schemas."""
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
        refused=len(head) < 2,  # a message must have a type
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

# Twice the measured cost: an announcement of many schemas costs a line for each; the most costly is
# a session that fails and is forgotten.
_WORK = Work(base=900, per_byte=40)


def _kept(effect: Effect[Any] | Event) -> list[tuple[bytes, Entry]]:
    """The operations that it writes."""
    operations = effect.operations if isinstance(effect, AppendOperations) else ()
    return [(new.document_id, new.entry) for new in operations]


def _outcome(events: Sequence[Event]) -> object:
    """The stored operations and the end: the rest depends on messages that cross on the wire."""
    stored = sorted(each.operation_id for each in events if isinstance(each, OperationStored))
    ends = [each for each in events if isinstance(each, (SessionEnded, Closed))]
    return stored, [getattr(each, "error", None) for each in ends]


# As for its wire machine. A session that is asked for and ends at once, again and again, costs 23
# steps a byte.
_REPLICATOR_WORK = Work(base=450, per_byte=40)

_PIECES = ["blob_piece_v1"]


# Requests of two sessions, and everything said in the second.
AGAIN = b"".join(
    map(
        cbor.encode,
        (
            [1, 1, 7, _PIECES],
            [1, 0, 1, _PIECES],
            [20, 0, True],
            [3, 0, True],
            [3, 0, False],
        ),
    )
)


def _operation_with(content: bytes) -> bytes:
    """A session, and a creation in which the value of a field has this encoding."""
    front = b"".join(map(cbor.encode, (1, 0, _PIECES[0])))
    operation = b"\x84" + front + b"\xa1" + cbor.encode("data") + content
    key = SigningKey(b"writer".ljust(32, b"-"))
    entry = sign(key, family=YASMF, log_id=0, seqnum=1, payload=operation).encode()
    said: list[list[Any]] = [[1, 0, 0, _PIECES], [10, 0, []], [2, 0, entry, operation]]
    return b"".join(map(cbor.encode, said))


_INTERESTED = _both(call("announce", schema_ids=_PIECES, timestamp=7))


def _many_schemas(count: int) -> Scenario:
    names = [f"schema{number}_0020{number:064x}" for number in range(count)]
    return Scenario(
        name="schemas",
        left={"schemas_max": 2 * count},
        right={**_MIRRORED, "schemas_max": 2 * count},
        script=_both(call("announce", schema_ids=names, timestamp=7)),
    )


def _many_sessions(count: int) -> Scenario:
    """`count` sessions at once, each about a schema of its own."""
    names = [f"panda{number}_0020{number:064x}" for number in range(count)]
    limits = {"schemas_max": 2 * count, "sessions_max": 2 * count}
    return Scenario(
        name="sessions",
        left=limits,
        right={**_MIRRORED, **limits},
        script=(
            *_both(call("announce", schema_ids=names, timestamp=7)),
            *(_requested("log_height", "left", [name]) for name in names),
            *(("right", call("send_have", session=n, heights=[_LOW])) for n in range(count)),
            *(("left", call("send_have", session=n, heights=[_LOW])) for n in range(count)),
            *_both(*(call("finish", session=n) for n in range(count))),
        ),
    )


def _many_heights(count: int) -> Scenario:
    heights = [[bytes(32), number, 1] for number in range(count)]
    return Scenario(
        name="log heights",
        right=_MIRRORED,
        script=(
            *_ANNOUNCED,
            _requested("log_height"),
            ("right", call("send_have", session=0, heights=heights)),
            ("left", call("send_have", session=0, heights=heights)),
        ),
    )


def _many_entries(count: int) -> Scenario:
    entry = call("send_entry", session=0, entry=b"entry", operation=b"operation")
    return Scenario(
        name="entries",
        right=_MIRRORED,
        script=(
            *_ANNOUNCED,
            _requested("log_height"),
            ("right", call("send_have", session=0, heights=[_LOW])),
            ("left", call("send_have", session=0, heights=[_LOW])),
            *(("right", entry) for _ in range(count)),
        ),
    )


def _many_documents(mode: str) -> Any:
    def many(count: int) -> Scenario:
        return Scenario(
            name="documents",
            left={"documents": 0, "live": False, "mode": mode},
            right={**_MIRRORED, "documents": count, "live": False, "asks": False},
            script=_INTERESTED,
        )

    return many


CONNECTION = register(
    MachineSpec(
        machine=lookup("p2panda"),
        bounds=Bounds(
            retained_max=32_000,
            work=_WORK,
            alike_max=3,
            tight=_TIGHT,
        ),
        usage=Usage(
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
            growth={
                "schemas": _many_schemas,
                "sessions": _many_sessions,
                "log heights": _many_heights,
                "entries": _many_entries,
            },
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
        ),
        attacks=Attacks(
            frames=_FRAMES,
            bombs=_BOMBS,
            floods=(
                Flood(unit=cbor.encode([3, 0, False])),
                Flood(unit=AGAIN),
                Flood(unit=_announcement),
                Flood(unit=_request_of, after="set reconciliation, then live mode/right"),
                Flood(unit=_request_of, after="a side without anything/right"),
                Flood(  # spoils one session after the other
                    unit=cbor.encode([1, 1, 1, ["blob_v1"]]) + cbor.encode([10, 1, []]),
                    after="a request that is not answered/left",
                    config={"faults_max": 1 << 32},
                ),
                Flood(
                    unit=cbor.encode([2, 0, b"entry", bytes(1900)]),
                    after="several sessions at once, of which one ends early/right",
                ),
                Flood(
                    opening=cbor.encode([2, 0, b"entry", bytes(380)])[:-1],
                    unit=cbor.encode([2, 0, b"entry", bytes(380)]),
                ),
            ),
        ),
    )
)

REPLICATOR = register(
    MachineSpec(
        machine=lookup("p2panda-replicator"),
        bounds=Bounds(
            unsent_max=12_000,
            retained_max=400_000,
            work=_REPLICATOR_WORK,
            alike_max=3,
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
        ),
        usage=Usage(
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
                    name="both have something, and drivers that verify",
                    left={"documents": 8, "live": False, "verifying_max": 8},
                    right={
                        **_MIRRORED,
                        "documents": 7,
                        "live": False,
                        "asks": False,
                        "verifying_max": 64,
                    },
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
            growth={
                "documents, by log heights": _many_documents("log_height"),
                "documents, by set reconciliation": _many_documents("set_reconciliation"),
            },
            bad_calls=(call("leave", session_id=77), call("request", schema_ids=["blob_v1"])),
        ),
        attacks=Attacks(
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
            bombs=_BOMBS[2:],
        ),
        comparison=Comparison(
            lazy_output=True,
            normalise=_outcome,
            kept=_kept,
        ),
    )
)
