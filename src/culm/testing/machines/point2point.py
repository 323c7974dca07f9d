"""Bamboo Point-2-Point: ``point2point`` (the wire machine) and ``point2point-replicator``.

The log is always the same: `culm.testing.stores.make_log`, 14 entries of YAMF.  Verbs
name its entries by sequence number and requests by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from culm.bamboo.effects import perform
from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.store import MemoryStore, NewEntry
from culm.machine import Effect, Event, LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Closed,
    Connection,
    Eagerness,
    EntryStored,
    ForkFound,
    Interest,
    Limits,
    Mode,
    PayloadReceived,
    Proposal,
    Replicator,
    ReplicatorLimits,
    Request,
    Role,
    Setup,
    Want,
    payloads_up_to,
)
from culm.testing.arguments import on_handle
from culm.testing.encodings import BIG_ENDIAN, VARU64
from culm.testing.machines import (
    Call,
    Config,
    Flood,
    Key,
    MachineSpec,
    Scenario,
    Side,
    SpecErrorCode,
    Verb,
    call,
    keys_of,
    register,
)
from culm.testing.point2point_hostile import (
    BOMBS,
    ENDLESS,
    GROWTH,
    LOGS,
    WORK,
    cancelled,
    proposal,
    unwrapped,
)
from culm.testing.stores import make_log
from culm.wire.multihash import YAMF
from culm.wire.varu64 import MAX

__all__ = ["CONNECTION", "REPLICATOR"]

_LOG = {new.entry.seqnum: new for new in make_log(YAMF)}
_OTHER = {new.entry.seqnum: new for new in make_log(YAMF, branch=b"other")}
_KEY: LogKey = _LOG[1].entry.log

_EAGERNESS = {"all": EVERYTHING, "notify": NOTIFY}

# Small limits, for floods: what one machine holds then is counted in kilobytes.
_TIGHT = {
    "requests_max": 4,
    "data_window_max": 8192,
    "packet_size_max": 1024,
    "unsent_size_max": 4096,
    "dropped_max": 4,
    "request_adjustments_max": 4,
    "compression_window_max": 1024,
}


# The wire machine.


_LIMITS = keys_of(Limits)
_CONNECTION_KEYS = (
    Key(name="role", type=Role, default=Role.PROACTIVE, meaning="Which endpoint it is."),
    Key(
        name="send_mode",
        type=Mode,
        default=Mode.SAFE,
        meaning="Whether it may send data before that is verified.",
    ),
    Key(
        name="receive_mode",
        type=Mode,
        default=Mode.SAFE,
        meaning="Whether it takes data before that is verified.",
    ),
    Key(
        name="send_window_max",
        type=int,
        default=4096,
        meaning="Bytes of the compression window that it offers for what it sends.",
    ),
    Key(
        name="receive_window_max",
        type=int,
        default=4096,
        meaning="Bytes of the compression window that it offers for what it receives.",
    ),
    *_LIMITS,
)


def _limits(config: Config) -> Limits:
    return Limits(**{key.name: config[key.name] for key in _LIMITS})


def _setup(config: Config) -> Setup:
    names = "send_mode", "receive_mode", "send_window_max", "receive_window_max"
    return Setup(**{name: config[name] for name in names})


def _build_connection(config: Config) -> Connection:
    return Connection(role=config["role"], setup=_setup(config), limits=_limits(config))


def _request(machine: Connection, request: int) -> Request:
    return machine.request(request)


def _new(seqnum: int) -> NewEntry:
    new = _LOG.get(seqnum)
    if new is None:
        raise LocalProtocolError(SpecErrorCode.NO_SUCH_HANDLE, f"entry {seqnum}")
    return new


def _eagerness(value: str | int) -> Eagerness:
    return _EAGERNESS[value] if isinstance(value, str) else payloads_up_to(value)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a verb, their eagerness as such."""
    made = dict(options)
    if made.get("eagerness") is not None:
        made["eagerness"] = _eagerness(made["eagerness"])
    return made


def _propose(
    machine: Connection,
    start: int = 1,
    lower_certpool: int | None = None,
    start_offset: int | None = None,
    request_id: int | None = None,
    **options: Any,
) -> int:
    if start_offset is None and lower_certpool is None:
        lower_certpool = start
    expected: bytes | None = None
    if start_offset is not None:
        expected = _new(start).entry.hash()
    elif lower_certpool is not None and lower_certpool > 1:
        expected = _new(lipmaa(lower_certpool)).entry.hash()
    proposal = Proposal(
        log=_KEY,
        start=start,
        lower_certpool=lower_certpool,
        start_offset=start_offset,
        expected_hash=expected,
        **_options(options),
    )
    return machine.propose(proposal, request_id=request_id).request_id


def _confirm(
    machine: Connection, request: int, eagerness: str | int = "all", **options: Any
) -> None:
    _request(machine, request).confirm(_eagerness(eagerness), **options)


def _adjust(machine: Connection, request: int, **options: Any) -> None:
    _request(machine, request).adjust(**_options(options))


def _cancel(
    machine: Connection,
    request: int,
    reason: CancelReason = CancelReason.DO_NOT_RETRY,
    entry: int | None = None,
    seqnum: int | None = None,
    fork: int | None = None,
) -> None:
    _request(machine, request).cancel(
        reason,
        entry=None if entry is None else _OTHER[entry].entry,
        seqnum=seqnum,
        proof=None if fork is None else ForkProof(_LOG[fork].entry, _OTHER[fork].entry),
    )


def _send_metadata(machine: Connection, request: int, seqnum: int) -> None:
    _request(machine, request).send_metadata(_new(seqnum).entry)


def _send_endless(machine: Connection, request: int) -> None:
    _request(machine, request).send_metadata(ENDLESS)


def _send_payload(
    machine: Connection,
    request: int,
    seqnum: int,
    offset: int = 0,
    size: int | None = None,
    wrong: bool = False,
    compress: bool = True,
) -> bool:
    payload = _new(seqnum).payload or b""
    if wrong:
        payload = bytes(len(payload))
    data = payload[offset:] if size is None else payload[offset : offset + size]
    entry = _new(seqnum).entry
    return _request(machine, request).send_payload(data, entry=entry, compress=compress)


def _entries(first: int, last: int) -> Iterator[tuple[Side, Call]]:
    """The right side sends these with their payloads."""
    for seqnum in range(first, last + 1):
        yield "right", call("send_metadata", request=_ID, seqnum=seqnum)
        yield "right", call("send_payload", request=_ID, seqnum=seqnum)


def _on_request(verb: Verb) -> Verb:
    return on_handle("request", Connection.request, verb)


def _provide_hash(machine: Connection, request: int, seqnum: int) -> None:
    _request(machine, request).provide_hash(seqnum, _new(seqnum).entry.hash())


def _provide_entry(machine: Connection, request: int, seqnum: int) -> None:
    _request(machine, request).provide_entry(_new(seqnum).entry)


def _by_request(events: Sequence[Event]) -> dict[int | None, list[Event]]:
    """What happened to each request, and (``None``) to none, with whole payload pieces.

    The two channels are independent of each other, so the order across them is not fixed.
    """
    by_request: dict[int | None, list[Event]] = {}
    for event in events:
        told = by_request.setdefault(getattr(event, "request_id", None), [])
        last = told[-1] if told else None
        if (
            isinstance(event, PayloadReceived)
            and isinstance(last, PayloadReceived)
            and last.offset + len(last.data) == event.offset
            and not last.finished
        ):
            told[-1] = replace(event, offset=last.offset, data=last.data + event.data)
        else:
            told.append(event)
    return by_request


def _up_to(seqnum: int) -> dict[str, int]:
    return {"end": seqnum, "upper_certpool": seqnum}


_ID = 0  # the first request of the proactive endpoint, left in all scenarios
_RIGHT = {"role": "reactive"}
_GREEDY = {"send_mode": "greedy", "receive_mode": "greedy"}

CONNECTION = register(
    MachineSpec(
        name="point2point",
        build=_build_connection,
        held_max=96_000,
        work=WORK,
        keys=_CONNECTION_KEYS,
        tight=_TIGHT,
        lazy_output=True,
        normalise=_by_request,
        verbs={
            "propose": _propose,
            "confirm": _confirm,
            "adjust": _adjust,
            "cancel": _cancel,
            "send_metadata": _send_metadata,
            "send_endless": _send_endless,
            "send_payload": _send_payload,
            "notify": _on_request(Request.notify),
            "skip": _on_request(Request.skip_payload),
            "jump": _on_request(Request.jump),
            "apologize": _on_request(Request.apologize),
            "provide_hash": _provide_hash,
            "provide_entry": _provide_entry,
            "refuse": _on_request(Request.refuse),
        },
        scenarios=(
            Scenario(
                name="a whole log",
                right=_RIGHT,
                script=(
                    ("left", call("propose")),
                    ("right", call("confirm", request=_ID)),
                    *_entries(1, 14),
                    ("left", call("cancel", request=_ID)),
                    ("left", call("close")),
                ),
            ),
            Scenario(
                name="Writes of many pieces through a narrow window",
                left={"data_window_max": 500, "packet_size_max": 60},
                right=_RIGHT,
                script=(
                    ("left", call("propose", end=9, upper_certpool=9)),
                    ("right", call("confirm", request=_ID)),
                    *_entries(1, 9),
                    ("right", call("cancel", request=_ID, reason="END_OF_RANGE")),
                    ("right", call("close")),
                ),
            ),
            Scenario(
                name="a range with its certificate pools, some of it passed over",
                right=_RIGHT,
                script=(
                    (
                        "left",
                        call(
                            "propose",
                            start=5,
                            lower_certpool=4,
                            end=8,
                            upper_certpool=13,
                            size_min=40,
                            eagerness=48,
                        ),
                    ),
                    ("left", call("provide_hash", request=_ID, seqnum=1)),
                    ("right", call("confirm", request=_ID, eagerness="notify")),
                    ("right", call("send_metadata", request=_ID, seqnum=4)),
                    ("right", call("send_metadata", request=_ID, seqnum=5)),
                    ("right", call("skip", request=_ID, reason="TOO_SMALL")),
                    ("right", call("send_metadata", request=_ID, seqnum=6)),
                    ("right", call("skip", request=_ID, reason="TOO_SMALL")),
                    ("left", call("adjust", request=_ID, end=7, allow_skipping=True)),
                    ("right", call("send_metadata", request=_ID, seqnum=7)),
                    ("right", call("send_payload", request=_ID, seqnum=7)),
                    ("right", call("send_metadata", request=_ID, seqnum=8)),
                    ("left", call("notify", request=_ID, count=1)),
                    ("right", call("cancel", request=_ID, reason="RESOURCE_LIMIT")),
                    ("right", call("close")),
                ),
            ),
            Scenario(
                name="greedy, with apologies",
                left=_GREEDY,
                right={**_RIGHT, **_GREEDY},
                script=(
                    ("left", call("propose", end=3, upper_certpool=3)),
                    ("right", call("confirm", request=_ID)),
                    ("right", call("send_metadata", request=_ID, seqnum=1)),
                    ("right", call("send_payload", request=_ID, seqnum=1)),
                    ("right", call("send_metadata", request=_ID, seqnum=2)),
                    ("right", call("send_payload", request=_ID, seqnum=2, wrong=True)),
                    ("right", call("apologize", request=_ID)),
                    ("right", call("send_payload", request=_ID, seqnum=2, compress=False)),
                    *_entries(3, 3),
                    ("right", call("cancel", request=_ID, reason="END_OF_RANGE")),
                    ("left", call("close")),
                ),
            ),
            Scenario(
                name="proposals that cross, a fork, payloads from the middle on",
                right=_RIGHT,
                script=(
                    ("left", call("propose", start=9)),
                    ("right", call("propose", start=4)),
                    ("left", call("confirm", request=1)),
                    ("left", call("cancel", request=1, reason="FORK", fork=3)),
                    ("left", call("propose", start=6, start_offset=5, payload_only=True)),
                    ("right", call("confirm", request=2, allow_skipping=True)),
                    ("right", call("send_payload", request=2, seqnum=6, offset=5)),
                    ("left", call("provide_entry", request=2, seqnum=6)),
                    ("right", call("notify", request=2, count=1)),
                    ("right", call("skip", request=2, reason="UNAVAILABLE")),
                    ("left", call("close")),
                    ("right", call("close")),
                ),
            ),
            Scenario(
                name="a path through the longest of logs, shortened",
                right=_RIGHT,
                script=(
                    ("left", call("propose", sparse=True, **_up_to(MAX))),
                    ("right", call("confirm", request=_ID)),
                    ("left", call("adjust", request=_ID, **_up_to(MAX - 1))),
                    ("right", call("adjust", request=_ID, **_up_to(MAX - 2))),
                ),
            ),
            Scenario(name="no more than the setup", right=_RIGHT),
            Scenario(
                name="an endless payload",
                right=_RIGHT,
                script=(
                    ("left", call("propose")),
                    ("right", call("confirm", request=_ID)),
                    ("right", call("send_endless", request=_ID)),
                ),
            ),
        ),
        encodings=(VARU64, *BIG_ENDIAN),
        unwrapped=unwrapped,
        bombs=BOMBS,
        interruptions=(call("close"), call("cancel", request=_ID)),
        growth=GROWTH,
        bad_calls=(
            call("propose", start=0),
            call("propose", start=4, lower_certpool=3),
            call("propose", start=3, end=2, upper_certpool=2),
            call("propose", request_id=1),
            call("cancel", request=_ID, reason="CONFIRM"),
            call("send_metadata", request=_ID, seqnum=12),
            call("send_payload", request=_ID, seqnum=12),
            call("notify", request=_ID, count=0),
            call("notify", request=77),
            call("jump", request=_ID, size=1),
            call("apologize", request=_ID),
        ),
        floods=(
            Flood(unit=b"\x20\x00\x01\x00"),
            Flood(opening=b"\x00\x00\x00", unit=b"\x20\x00\x02\x00\x01"),
            *(Flood(unit=bomb, after="an endless payload/left") for bomb in BOMBS),
            Flood(unit=proposal, calls=cancelled, after="no more than the setup/right"),
        ),
    )
)


# The replicator.


_REPLICATOR_LIMITS = keys_of(ReplicatorLimits, without=["connection"])
_REPLICATOR_KEYS = (
    *_CONNECTION_KEYS,
    *_REPLICATOR_LIMITS,
    Key(
        name="live",
        type=bool,
        default=True,
        meaning="Whether it keeps logs up to date for as long as the connection lasts.",
    ),
    Key(
        name="accept_new_logs",
        type=bool,
        default=True,
        meaning="Whether it takes logs that its store does not have.",
    ),
    Key(
        name="following",
        type=bool,
        default=True,
        meaning="Whether it fetches what there is without a call of `replicate`.",
    ),
    Key(
        name="entries",
        type=int,
        default=0,
        meaning="How many entries of the log its own store has, which answers if it is asked to.",
    ),
    Key(
        name="forked",
        type=bool,
        default=False,
        meaning="Whether these entries are of another branch of the log.",
    ),
)


def _build_replicator(config: Config) -> Replicator:
    limits = {key.name: config[key.name] for key in _REPLICATOR_LIMITS}
    return Replicator(
        role=config["role"],
        setup=_setup(config),
        limits=ReplicatorLimits(connection=_limits(config), **limits),
        interest=Interest(
            live=config["live"],
            accept_new_logs=config["accept_new_logs"],
            want=Want() if config["following"] else None,
        ),
    )


def _respond(config: Config) -> Callable[[Effect[Any]], object]:
    store = MemoryStore(family=YAMF)
    log = _OTHER if config["forked"] else _LOG
    store.append(_KEY, [log[n] for n in range(1, config["entries"] + 1)])
    return lambda effect: perform(effect, store)


def _replicate(machine: Replicator, log_id: int = 0, **want: Any) -> None:
    machine.replicate(LogKey(_KEY.author, log_id), Want(**want) if want else None)


def _outcome(events: Sequence[Event]) -> object:
    """What was stored and how it ended: the rest depends on what crosses on the wire.

    So does which forks were found before the earliest one.
    """
    stored = {(e.seqnum, e.payload_stored) for e in events if isinstance(e, EntryStored)}
    forks = [e.proof for e in events if isinstance(e, ForkFound)]
    ends = [e for e in events if isinstance(e, Closed)]
    return sorted(stored), min(forks, key=lambda proof: proof.seqnum, default=None), ends


def _entry(value: Any) -> Entry:
    return _new(value).entry


REPLICATOR = register(
    MachineSpec(
        name="point2point-replicator",
        build=_build_replicator,
        held_max=256_000,
        work=WORK,
        keys=_REPLICATOR_KEYS,
        tight={
            **_TIGHT,
            "unwritten_size_max": 8192,
            "batch_size_max": 4096,
            "batch_count_max": 8,
            "payload_inline_max": 1024,
            "logs_max": 8,
            "outstanding_max": 32,
        },
        lazy_output=True,
        normalise=_outcome,
        respond=_respond,
        verbs={"replicate": _replicate},
        scenarios=(
            Scenario(
                name="one has all",
                left={"entries": 0},
                right={**_RIGHT, "entries": 14},
                script=(("left", call("close")),),
            ),
            Scenario(
                name="payloads come in pieces, entries in small batches",
                left={
                    "entries": 0,
                    "packet_size_max": 10,
                    "payload_inline_max": 16,
                    "batch_count_max": 3,
                },
                right={**_RIGHT, "entries": 9},
                script=(("left", call("close")),),
            ),
            Scenario(
                name="one is ahead, and fetches nothing",
                left={"entries": 9, "live": False},
                right={**_RIGHT, "entries": 4},
                script=(("right", call("close")),),
            ),
            Scenario(
                name="one entry with its certificate pools, then the payloads of others",
                left={"entries": 0, "live": False, "following": False},
                right={**_RIGHT, "entries": 14},
                script=(
                    ("left", call("replicate", first=10, last=10, sparse=True)),
                    ("left", call("replicate", first=4, last=4, payload_only=True)),
                    ("left", call("close")),
                ),
            ),
            Scenario(
                name="a fork",
                left={"entries": 5},
                right={**_RIGHT, "entries": 9, "forked": True},
                script=(("left", call("close")), ("right", call("close"))),
            ),
        ),
        encodings=(VARU64, *BIG_ENDIAN),
        unwrapped=unwrapped,
        bombs=BOMBS,
        growth=LOGS,
        bad_calls=(),
    )
)
