"""Bamboo Point-2-Point, the wire machine: ``point2point``.

The log is always the same: `culm.machines.sample_logs.make_log`, 14 entries of YAMF.  Verbs
name its entries by sequence number and requests by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nacl.signing import SigningKey

from culm.bamboo.entry import Entry, LogKey, sign
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa
from culm.bamboo.records import NewEntry
from culm.buffer import ReceiveBuffer
from culm.bymux.packets import Packet, PacketType, encode, take_packet
from culm.machine import LocalProtocolError, RemoteProtocolError
from culm.machines import (
    Codec,
    Config,
    Key,
    MachineType,
    Unsealed,
    Verb,
    VerbErrorCode,
    keys_of,
    register,
)
from culm.machines.encodings import BIG_ENDIAN, VARU64
from culm.machines.sample_logs import make_log
from culm.machines.signatures import on_handle
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Connection,
    Eagerness,
    Limits,
    Mode,
    Proposal,
    Request,
    Role,
    Setup,
    Timing,
    payloads_up_to,
)
from culm.wire.multihash import YAMF
from culm.wire.varu64 import MAX

LOG = {new.entry.seqnum: new for new in make_log(YAMF)}

OTHER_BRANCH = {new.entry.seqnum: new for new in make_log(YAMF, branch=b"other")}

LOG_KEY: LogKey = LOG[1].entry.log

#: The first entry of the log, with a payload larger than any disk.
ENDLESS: Entry = sign(
    SigningKey(b"\x01" * 32),
    family=YAMF,
    log_id=0,
    seqnum=1,
    payload_size=MAX,
    payload_hash=YAMF.hash(b""),
)

_EAGERNESS = {"all": EVERYTHING, "notify": NOTIFY}

_LIMITS = keys_of(Limits)
_TIMING = keys_of(Timing, without=["settle_s"])

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
        meaning="Bytes of the compression window that it offers for sending.",
    ),
    Key(
        name="receive_window_max",
        type=int,
        default=4096,
        meaning="Bytes of the compression window that it offers for receiving.",
    ),
    *_LIMITS,
    *_TIMING,
)


def limits_of(config: Config) -> Limits:
    """The limits of the wire machine from `config`."""
    return Limits(**{key.name: config[key.name] for key in _LIMITS})


def timing_of(config: Config) -> Timing:
    """The times of the wire machine, or of a replicator, from `config`."""
    found = (key.name for key in keys_of(Timing) if key.name in config)
    return Timing(**{name: config[name] for name in found})


def setup_of(config: Config) -> Setup:
    """The setup that the wire machine sends first, from `config`."""
    names = "send_mode", "receive_mode", "send_window_max", "receive_window_max"
    return Setup(**{name: config[name] for name in names})


def _build_connection(config: Config) -> Connection:
    return Connection(
        role=config["role"],
        setup=setup_of(config),
        limits=limits_of(config),
        timing=timing_of(config),
    )


def _request(machine: Connection, request: int) -> Request:
    return machine.request(request)


def _new(seqnum: int) -> NewEntry:
    new = LOG.get(seqnum)
    if new is None:
        raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE, f"entry {seqnum}")
    return new


def _eagerness(value: str | int) -> Eagerness:
    return _EAGERNESS[value] if isinstance(value, str) else payloads_up_to(value)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a verb, with eagerness decoded."""
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
    """Propose; `expected` names the entry whose hash is given, in place of the right one."""
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


def _on_request(verb: Verb) -> Verb:
    return on_handle("request", Connection.request, verb)


def _provide_hash(machine: Connection, request: int, seqnum: int) -> None:
    _request(machine, request).provide_hash(seqnum, _new(seqnum).entry.hash())


def _provide_entry(machine: Connection, request: int, seqnum: int) -> None:
    _request(machine, request).provide_entry(_new(seqnum).entry)


def unwrapped(data: bytes) -> Sequence[Unsealed]:
    """The packets of bymux in `data`; the bytes in a Write are a part, sealed by a Write."""
    inbox = ReceiveBuffer()
    inbox.append(data)
    parts: list[Unsealed] = []
    while inbox.size:
        start = len(data) - inbox.size
        packet = _packet(inbox)
        end = len(data) - inbox.size
        carried = packet.amount or 0 if packet and packet.type is PacketType.WRITE else 0
        if packet is None or carried > inbox.size:
            return [*parts, Unsealed(data[start:])]
        if packet.stream_id is None or not carried:
            parts.append(Unsealed(data[start:end]))
        else:
            parts.append(Unsealed(inbox.take(carried), partial(written, packet.stream_id)))
    return parts


def _packet(inbox: ReceiveBuffer) -> Packet | None:
    try:
        return take_packet(inbox)
    except RemoteProtocolError:
        return None


def written(stream_id: int, data: bytes) -> bytes:
    """A Write of bymux that carries these bytes."""
    return encode(PacketType.WRITE, stream_id, len(data)) + data


CONNECTION = register(
    MachineType(
        name="point2point",
        build=_build_connection,
        keys=CONNECTION_KEYS,
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
        codec=Codec(encodings=(VARU64, *BIG_ENDIAN), unwrapped=unwrapped),
    )
)
