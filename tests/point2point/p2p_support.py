"""Shared by the tests of Point-2-Point.

`Raw` is a peer made of bytes: it frames control and data packets by hand, straight from the tables
of the specification, so that the tests do not rely on the code under test for the format.  `Pair`
joins two connections in memory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from nacl.signing import SigningKey
from p2p_snapshots import nothing_changed

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey, sign
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.bamboo.records import NewEntry, StoredEntry
from culm.machine import Closed, Event, LocalProtocolError
from culm.machines.sample_logs import make_log
from culm.point2point import (
    EVERYTHING,
    Connection,
    EntryWanted,
    ErrorCode,
    HashWanted,
    Limits,
    Mode,
    Proposal,
    Request,
    Role,
    Setup,
    Timing,
)
from culm.testing.suite.meter import Meter
from culm.wire.multihash import YAMF, HashFamily
from stored_entries import stored_form

E = TypeVar("E", bound=Event)

LOG_LENGTH = 45
LOG = {new.entry.seqnum: new for new in make_log(YAMF, count=LOG_LENGTH)}
FORK = {new.entry.seqnum: new for new in make_log(YAMF, count=LOG_LENGTH, branch=b"other")}
KEY: LogKey = LOG[1].entry.log

GREEDY = Setup(send_mode=Mode.GREEDY, receive_mode=Mode.GREEDY)
SAFE = Setup()


def published(
    payloads: Iterable[bytes],
    *,
    family: HashFamily = YAMF,
    log_id: int = 0,
    seed: int = 1,
    ended: bool = False,
) -> tuple[NewEntry, ...]:
    """A log with these payloads; `ended`: its last entry carries the end marker."""
    author = LogAuthor(SigningKey(bytes([seed]) * 32), family=family, log_id=log_id)
    *first, last = payloads
    return (*map(author.publish, first), author.publish(last, end_of_log=ended))


def stored(new: NewEntry) -> StoredEntry:
    """An entry as a store returns it, with its payload."""
    return stored_form(new)._replace(payload=new.payload)


def ended_log(length: int) -> dict[int, NewEntry]:
    """Another log, which ends with entry `length`."""
    payloads = [bytes([n]) for n in range(1, length + 1)]
    return dict(enumerate(published(payloads, seed=7, ended=True), 1))


def beyond_the_end(length: int) -> list[NewEntry]:
    """Two entries that the author of `ended_log` has signed but must not have."""
    before = ended_log(length)[length].entry
    found: list[NewEntry] = []
    for seqnum in (length + 1, length + 2):
        before = sign(
            SigningKey(b"\7" * 32),
            family=YAMF,
            log_id=before.log_id,
            seqnum=seqnum,
            payload=b"more",
            backlink=before.hash(),
        )
        found.append(NewEntry(before, b"more"))
    return found


def entry(seqnum: int) -> Entry:
    return LOG[seqnum].entry


def unsigned(seqnum: int) -> Entry:
    """Entry `seqnum`, with content that its author did not sign."""
    return replace(entry(seqnum), payload_size=entry(seqnum).payload_size + 1)


def payload(seqnum: int) -> bytes:
    data = LOG[seqnum].payload
    assert data is not None
    return data


def link(seqnum: int) -> bytes:
    return LOG[seqnum].entry.hash()


def proposal(start: int = 1, *, entries: Mapping[int, NewEntry] = LOG, **options: Any) -> Proposal:
    """A proposal on the log of those entries, with the right expected hash."""
    if options.get("start_offset") is not None:
        options.setdefault("lower_certpool", None)
        options.setdefault("expected_hash", entries[start].entry.hash())
    else:
        lower = options.setdefault("lower_certpool", start)
        known = entries[lipmaa(lower)].entry.hash() if lower > 1 and lower in entries else None
        options.setdefault("expected_hash", known)
    if options.get("end") is not None:
        options.setdefault("upper_certpool", options["end"])
    options.setdefault("log", entries[1].entry.log)
    return Proposal(start=start, **options)


def drain(connection: Connection, log: Mapping[int, NewEntry] | None = None) -> list[Event]:
    """All events; requests from `log`, if given, are answered with its entries."""
    found: list[Event] = []
    while (event := connection.next_event()) is not None:
        found.append(event)
        if log is None or not isinstance(event, HashWanted | EntryWanted):
            continue
        request, wanted = connection.request(event.request_id), log.get(event.seqnum)
        if wanted is None:
            request.pass_over()
        elif isinstance(event, HashWanted):
            request.provide_hash(event.seqnum, wanted.entry.hash())
        else:
            request.provide_entry(wanted.entry)
    return found


def code_of(events: Sequence[Event]) -> ErrorCode | None:
    """The error code with which a machine that gave these events has closed, if any."""
    closed = [event for event in events if isinstance(event, Closed)]
    if not closed:
        return None
    assert closed == [events[-1]]
    if closed[0].error is None:
        return None
    code = closed[0].error.code
    assert isinstance(code, ErrorCode)
    return code


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> ErrorCode:
    """The code of the `LocalProtocolError` that the call raises."""
    with pytest.raises(LocalProtocolError) as caught:
        call(*args, **options)
    assert isinstance(caught.value.code, ErrorCode)
    return caught.value.code


def refuses(connection: Connection, code: ErrorCode, call: Callable[..., object]) -> None:
    """The call is refused with that code, and changes nothing."""
    with nothing_changed(connection):
        assert refusal(call) is code


def steps(act: Callable[[], object]) -> int:
    """The cost of `act` in the property suite's steps: the same on every machine."""
    meter = Meter()
    gc.disable()  # Hypothesis runs code of its own at every garbage collection
    try:
        meter.count(act)
    finally:
        gc.enable()
    return meter.steps


# Handmade bytes


def varu64(number: int, *, width: int = 0) -> bytes:
    """The specification's rule as code, in `width` bytes if given, else the fewest possible."""
    if number < 248 and not width:
        return bytes([number])
    size = max(width, (number.bit_length() + 7) // 8)
    return bytes([247 + size]) + number.to_bytes(size, "big")


def metadata(sent: Entry, *, backlink: bool | None = None, tag: int | None = None) -> bytes:
    """A metadata packet; by default with the backlink if the entry has two links."""
    with_backlink = has_lipmaalink(sent.seqnum) if backlink is None else backlink
    first = 128 + sent.end_of_log if tag is None else tag
    return (
        bytes([first])
        + ((sent.backlink or b"") if with_backlink else b"")
        + varu64(sent.payload_size)
        + sent.payload_hash
        + sent.signature
    )


def raw(data: bytes) -> bytes:
    return b"\x08" + varu64(len(data)) + data


def switch(request_id: int) -> bytes:
    return b"\x00" + varu64(request_id)


def marker(request_id: int) -> bytes:
    return b"\x20" + varu64(request_id)


def cancel(request_id: int, reason: int = 128, extra: bytes = b"") -> bytes:
    return bytes([reason]) + varu64(request_id) + extra


def grant(amount: int) -> bytes:
    return b"\x00" + varu64(amount)


EAGER = {"none": 0, "notify": 0b0010_0000, "up to": 0b0100_0000, "all": 0b0110_0000}


def adjust(request_id: int, eager: str = "none", flags: int = 0, extra: bytes = b"") -> bytes:
    return bytes([EAGER[eager] | flags]) + varu64(request_id) + extra


def propose(
    request_id: int,
    start: int = 1,
    *,
    lower: int | None = None,
    hash: bytes | None = None,
    sizes: tuple[int, int] = (0, 2**64 - 1),
    eager: str = "all",
    up_to: int = 0,
    end: tuple[int, int] | None = None,
    offset: int | None = None,
    flags: int = 0,
    log: LogKey = KEY,
) -> bytes:
    """A request on a log; the hash is that of the common log unless given."""
    lower = start if lower is None else lower
    if hash is None:
        hash = b""
        if offset is not None:
            hash = link(start)
        elif 1 < lower <= LOG_LENGTH:
            hash = link(lipmaa(lower))
    first = 128 | EAGER[eager] | (16 if end else 0) | (8 if offset is not None else 0) | flags
    return b"".join(
        (
            bytes([first]),
            varu64(request_id),
            log.author,
            varu64(log.log_id),
            varu64(start),
            b"" if offset is not None else varu64(lower),
            varu64(sizes[0]),
            varu64(sizes[1]),
            hash,
            varu64(up_to) if eager == "up to" else b"",
            varu64(end[0]) + varu64(end[1]) if end else b"",
            varu64(offset) if offset is not None else b"",
        )
    )


SETUP = bytes([0, *varu64(4096), *varu64(4096)])
SETUP_GREEDY = bytes([3, *varu64(4096), *varu64(4096)])


def setup_bytes(setup: Setup) -> bytes:
    flags = 2 * (setup.send_mode is Mode.GREEDY) + (setup.receive_mode is Mode.GREEDY)
    return bytes([flags]) + varu64(setup.send_window_max) + varu64(setup.receive_window_max)


def write(stream_id: int, data: bytes) -> bytes:
    """A bymux Write."""
    return bytes([0x23, stream_id]) + len(data).to_bytes(8, "big") + data


class Told:
    """The events of a machine."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def of(self, kind: type[E]) -> list[E]:
        """The events of that kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def code(self) -> ErrorCode | None:
        """The code with which it closed, if any."""
        return code_of(self.events)


class Bytes(Told):
    """A peer made of bytes, for a machine whose `events` are kept."""

    def __init__(self) -> None:
        super().__init__()
        self._setup_size = 0  # of the machine's first bytes

    def receive(self, data: bytes) -> object:
        raise NotImplementedError

    def opening(self, peer: Setup, credit: int, data_credit: int | None) -> None:
        """The peer's first bytes; `data_credit`: unlimited if ``None``."""
        self.receive(setup_bytes(peer))
        if data_credit != 0:
            self.receive(bytes([0x00, 1]) + varu64(data_credit or 0))
        if credit:
            self.control(grant(credit))

    def control(self, *messages: bytes) -> Any:
        return self.receive(write(0, b"".join(messages)))

    def data(self, *packets: bytes) -> Any:
        return self.receive(write(1, b"".join(packets)))

    @property
    def code(self) -> ErrorCode | None:
        """The code with which it closed; ``None`` if it has not."""
        code = super().code
        assert code is not None or not self.of(Closed)
        return code

    def behind_setup(self, data: bytes) -> bytes:
        """The machine's output after its setup."""
        if not data or self._setup_size:
            return data
        size = 1
        for _ in range(2):
            size += 1 + max(0, data[size] - 247)
        self._setup_size = size
        return data[size:]


class Raw(Bytes):
    """A connection under test, and its peer as bytes."""

    def __init__(
        self,
        role: Role = Role.PROACTIVE,
        *,
        setup: Setup = SAFE,
        peer: Setup = SAFE,
        limits: Limits | None = None,
        timing: Timing | None = None,
        credit: int = 100,
        data_credit: int | None = None,  # unlimited, so that everything shows at once
        in_runs: bool = False,
        trust_caller: bool = False,
    ) -> None:
        super().__init__()
        self.connection = Connection(
            role=role,
            setup=setup,
            limits=limits or Limits(),
            timing=timing or Timing(),
            in_runs=in_runs,
            trust_caller=trust_caller,
        )
        self.sent = b""
        self.opening(peer, credit, data_credit)
        self.take()

    def receive(self, data: bytes) -> list[Event]:
        self.connection.receive_data(data)
        new = drain(self.connection)
        self.events += new
        return new

    def take(self) -> tuple[bytes, bytes]:
        """The connection's output since then on the control and on the data channel."""
        self.sent = self.behind_setup(self.connection.data_to_send())
        return split(self.sent)


def split(data: bytes) -> tuple[bytes, bytes]:
    """The bytes of the control and of the data channel in a run of whole bymux packets."""
    channels = {0: b"", 1: b""}
    at = 0
    while at < len(data):
        header = data[at]
        kind, is_global, id_width, width = (
            header >> 5,
            header >> 4 & 1,
            1 << (header >> 2 & 3),
            1 << (header & 3),
        )
        at += 1
        stream_id = None
        if not is_global:
            stream_id = int.from_bytes(data[at : at + id_width], "big")
            at += id_width
        if kind in (0, 1):
            amount = int.from_bytes(data[at : at + width], "big")
            at += width
            if kind == 1:
                assert stream_id is not None
                channels[stream_id] += data[at : at + amount]
                at += amount
    return channels[0], channels[1]


# Two connections


class Pair:
    """Two joined connections; `pump` runs them until nothing happens."""

    def __init__(
        self,
        left: Setup = SAFE,
        right: Setup = SAFE,
        *,
        limits: tuple[Limits | None, Limits | None] = (None, None),
        answer: bool = True,
    ) -> None:
        self.left = Connection(role=Role.PROACTIVE, setup=left, limits=limits[0] or Limits())
        self.right = Connection(role=Role.REACTIVE, setup=right, limits=limits[1] or Limits())
        self.events: dict[str, list[Event]] = {"left": [], "right": []}
        self._answer = answer
        self.pump()
        self.forget()

    def forget(self) -> None:
        self.events = {"left": [], "right": []}

    def take_events(self, side: str) -> None:
        self.events[side] += drain(getattr(self, side), LOG if self._answer else None)

    def pump(self) -> Pair:
        while (up := self.left.data_to_send()) + (down := self.right.data_to_send()):
            self.right.receive_data(up)
            self.left.receive_data(down)
            self.take_events("left")
            self.take_events("right")
        return self

    def propose(self, side: str = "left", **options: Any) -> tuple[Request, Request]:
        """A proposal by `side`, which has arrived; the handles of both."""
        proposer, other = self.sides(side)
        request = proposer.propose(proposal(**options))
        self.pump()
        return request, other.request(request.request_id)

    def sides(self, side: str) -> tuple[Connection, Connection]:
        return (self.left, self.right) if side == "left" else (self.right, self.left)

    def confirmed(self, side: str = "left", **options: Any) -> tuple[Request, Request]:
        """A request confirmed by both."""
        ours, theirs = self.propose(side, **options)
        theirs.confirm(EVERYTHING)
        self.pump()
        return ours, theirs

    def of(self, kind: type[Event], side: str | None = None) -> list[Any]:
        sides: Iterable[str] = ("left", "right") if side is None else (side,)
        return [e for each in sides for e in self.events[each] if isinstance(e, kind)]


def send_entry(request: Request, seqnum: int) -> None:
    request.send_metadata(entry(seqnum))
    request.send_payload(payload(seqnum), entry=entry(seqnum))
