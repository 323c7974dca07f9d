"""Bamboo Point-2-Point, the wire machine: ``point2point``.

The log is always the same: `culm.testing.stores.make_log`, 14 entries of YAMF.  Verbs
name its entries by sequence number and requests by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.store import NewEntry
from culm.machine import Event, LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Connection,
    Eagerness,
    Limits,
    Mode,
    PayloadReceived,
    Proposal,
    Request,
    Role,
    Setup,
    payloads_up_to,
)
from culm.testing.arguments import on_handle
from culm.testing.encodings import BIG_ENDIAN, VARU64
from culm.testing.machines import (
    Advance,
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
    WORK,
    cancelled,
    proposal,
    unwrapped,
)
from culm.testing.stores import make_log
from culm.wire.multihash import YAMF
from culm.wire.varu64 import MAX

__all__ = [
    "CONNECTION",
    "CONNECTION_KEYS",
    "LOG",
    "LOG_KEY",
    "OTHER_BRANCH",
    "RIGHT",
    "TIGHT",
    "joined",
    "limits_of",
    "setup_of",
]

LOG = {new.entry.seqnum: new for new in make_log(YAMF)}
OTHER_BRANCH = {new.entry.seqnum: new for new in make_log(YAMF, branch=b"other")}
LOG_KEY: LogKey = LOG[1].entry.log

_EAGERNESS = {"all": EVERYTHING, "notify": NOTIFY}

# Small limits, for floods: what one machine holds then is counted in kilobytes.
TIGHT = {
    "requests_max": 4,
    "data_window_max": 8192,
    "packet_size_max": 1024,
    "unsent_size_max": 4096,
    "dropped_max": 4,
    "request_adjustments_max": 4,
    "compression_window_max": 1024,
}


_LIMITS = keys_of(Limits)
CONNECTION_KEYS = (
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


def limits_of(config: Config) -> Limits:
    """The limits of the wire machine that `config` names."""
    return Limits(**{key.name: config[key.name] for key in _LIMITS})


def setup_of(config: Config) -> Setup:
    """What that machine says of itself first."""
    names = "send_mode", "receive_mode", "send_window_max", "receive_window_max"
    return Setup(**{name: config[name] for name in names})


def _build_connection(config: Config) -> Connection:
    return Connection(role=config["role"], setup=setup_of(config), limits=limits_of(config))


def _request(machine: Connection, request: int) -> Request:
    return machine.request(request)


def _new(seqnum: int) -> NewEntry:
    new = LOG.get(seqnum)
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
    expected: int | None = None,
    **options: Any,
) -> int:
    """Propose; `expected`: with the hash of that entry, whichever would be the right one."""
    if start_offset is None and lower_certpool is None:
        lower_certpool = start
    if expected is None and start_offset is not None:
        expected = start
    elif expected is None and lower_certpool is not None and lower_certpool > 1:
        expected = lipmaa(lower_certpool)
    proposal = Proposal(
        log=LOG_KEY,
        start=start,
        lower_certpool=lower_certpool,
        start_offset=start_offset,
        expected_hash=None if expected is None else _new(expected).entry.hash(),
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
        entry=None if entry is None else OTHER_BRANCH[entry].entry,
        seqnum=seqnum,
        proof=None if fork is None else ForkProof(LOG[fork].entry, OTHER_BRANCH[fork].entry),
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


def joined(events: Sequence[Event]) -> list[Event]:
    """The same with pieces of a payload that follow each other as one."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if (
            isinstance(event, PayloadReceived)
            and isinstance(last, PayloadReceived)
            and (last.request_id, last.seqnum) == (event.request_id, event.seqnum)
            and last.offset + len(last.data) == event.offset  # else a jump
            and not last.finished
        ):
            found[-1] = replace(event, offset=last.offset, data=last.data + event.data)
        else:
            found.append(event)
    return found


def _by_request(events: Sequence[Event]) -> dict[int | None, list[Event]]:
    """What happened to each request, and (``None``) to none, with whole payload pieces.

    The two channels are independent of each other, so the order across them is not fixed.
    """
    by_request: dict[int | None, list[Event]] = {}
    for event in events:
        by_request.setdefault(getattr(event, "request_id", None), []).append(event)
    return {request_id: joined(told) for request_id, told in by_request.items()}


def _up_to(seqnum: int) -> dict[str, int]:
    return {"end": seqnum, "upper_certpool": seqnum}


_ID = 0  # the first request of the proactive endpoint, left in all scenarios
RIGHT = {"role": "reactive"}
_GREEDY = {"send_mode": "greedy", "receive_mode": "greedy"}

CONNECTION = register(
    MachineSpec(
        name="point2point",
        build=_build_connection,
        retained_max=96_000,
        work=WORK,
        keys=CONNECTION_KEYS,
        tight=TIGHT,
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
                right=RIGHT,
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
                right=RIGHT,
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
                right=RIGHT,
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
                right={**RIGHT, **_GREEDY},
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
                right=RIGHT,
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
                right=RIGHT,
                script=(
                    ("left", call("propose", sparse=True, **_up_to(MAX))),
                    ("right", call("confirm", request=_ID)),
                    ("left", call("adjust", request=_ID, **_up_to(MAX - 1))),
                    ("right", call("adjust", request=_ID, **_up_to(MAX - 2))),
                ),
            ),
            Scenario(name="no more than the setup", right=RIGHT),
            Scenario(name="signs of life", right=RIGHT, script=(("left", Advance(70.0)),)),
            Scenario(
                name="an endless payload",
                right=RIGHT,
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
            Flood(opening=b"\x00\x00\x00", unit=b"\x40\x00"),  # questions whether we live
            *(Flood(unit=bomb, after="an endless payload/left") for bomb in BOMBS),
            Flood(unit=proposal, calls=cancelled, after="no more than the setup/right"),
        ),
    )
)
