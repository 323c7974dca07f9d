"""Whatever a peer sends: memory and output that waits stay within bounds, and reading goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice, product, repeat

from hypothesis import strategies as st

from culm.machines.driver import Driver
from culm.machines.memory import retained_size
from culm.machines.operations import Advance, Complete, Eof, Operation, Receive, ReceiveDatagram
from culm.testing.record import conversations
from culm.testing.spec import Conversation, Flood, Frame, MachineSpec
from culm.testing.suite.runs import PropertyError, driver_for, refused, retold, watchdog
from culm.testing.suite.strategies import (
    Draw,
    Story,
    calls_in,
    conversation,
    cut_short,
    hostile,
    links_in,
    pick,
    tightened,
    ways_in,
)

HEADER_SIZE = 28  # of IP and UDP, the cost of an empty datagram to its sender

_CHUNK_SIZE = 4096
_UNIT_SIZE_MAX = 64
_SLACK_SIZE = 32 * 1024  # beyond twice the limit, so that small limits are passed clearly
_TOGETHER_MAX = 3  # messages that are sent in turns
_TIMES = 6  # the limit comes in: answers of a sixth of each byte are found
_UNTAKEN_SLACK_SIZE = 2048
_TURNS_MAX = 4_000
_PROBES = (16, 64)  # turns; output that does not grow from one to the other is not followed
_SINGLES_MAX = 32
_Flood = Callable[[], Iterable[Sequence[Operation]]]


@dataclass(frozen=True, slots=True)
class _Habit:
    """Actions of the driver, besides taking events, while the flood comes in."""

    name: str
    takes_bytes: bool = True
    answers: bool = True
    drains: bool = True  # after each datagram


_KEEPS_UP = _Habit("the driver keeps up")
_UNREAD = _Habit("the peer does not read", takes_bytes=False)
_UNANSWERED = _Habit("the store does not answer", answers=False)
_HURRIED = _Habit("the driver takes no events between datagrams", drains=False)
_SMALLEST = (b"", b"x")
_FILLERS = (b"\0", b"\1", b"1", b"x", b"\n", b"\xff")
_CHUNKS_MAX = 16
_WAITS_MAX = 16


def limits(spec: MachineSpec, draw: Draw) -> None:
    """A machine's memory stays under its limits as long as `read_size` is honoured.

    Floods are made from conversations: a beginning, then a piece of it or garbage for
    ever.  The memory is the machine's growth over a new one (`culm.machines.memory`), under
    the spec's tight config, and the bound is `retained_max`.  It also holds if the peer does
    not read, and if the store does not answer.
    """
    told = conversation(spec, draw)
    links = links_in(told)
    link = pick(links, draw) if links else None
    told_bytes = b"".join(
        op.data for op in told.operations if isinstance(op, Receive) and op.link == link
    )
    unit = draw(st.binary(min_size=1, max_size=8))
    if told_bytes and draw(st.booleans()):
        at = draw(st.integers(0, len(told_bytes) - 1))
        unit = told_bytes[at : at + draw(st.integers(1, _UNIT_SIZE_MAX))]
    sources = [op.source for op in told.operations if isinstance(op, ReceiveDatagram)]
    source = pick(sources, draw) if sources else "peer"
    flood = Flood(unit=unit, source=lambda number: source, link=link)
    _pour(spec, flood, told, cut_short(told.operations, draw), pick(_habits(spec), draw))


def _habits(spec: MachineSpec) -> list[_Habit]:
    """Those that make a difference: all have a store, or none; datagrams are always taken."""
    unread = [] if spec.has("receive_datagram") else [_UNREAD]
    return [_KEEPS_UP, *unread, *([] if spec.machine.respond is None else [_UNANSWERED])]


def floods(spec: MachineSpec) -> None:
    """`limits` for the floods that the spec itself lists, with all habits of drivers.

    Senders of datagrams are never told to wait, so those may also come without a break, and
    then the smallest ones as well, in every conversation.
    """
    of_datagrams = spec.has("receive_datagram")
    for flood in spec.attacks.floods:
        before = told_before(spec, flood)
        for habit in [*_habits(spec), *([_HURRIED] if of_datagrams else [])]:
            with watchdog():
                _pour(spec, flood, before, list(before.operations), habit)
    for before in conversations(spec) if of_datagrams else ():
        for way, unit in product(ways_in(before), _SMALLEST):
            assert isinstance(way, ReceiveDatagram)
            with watchdog():
                flood = Flood(unit=unit, source=lambda number, way=way: way.source)  # type: ignore[misc]
                _pour(spec, flood, before, list(before.operations), _HURRIED)


def _pour(spec: MachineSpec, flood: Flood, told: Conversation, story: Story, habit: _Habit) -> None:
    told = replace(told, config={**told.config, **spec.bounds.tight, **flood.config})
    with retold(spec, told):
        driver = driver_for(spec, told)
        empty = retained_size(driver.machine)
        driver.tell(story)
        if not habit.takes_bytes:
            driver.take_by(lambda machine: b"")
        if not habit.answers:
            driver.answer_by(None)
        poured = checked = 0
        total = 2 * spec.bounds.retained_max + _SLACK_SIZE
        for poured in _pour_in(driver, _pieces(spec, flood), total, drains=habit.drains):
            if poured - checked >= 2 * _CHUNK_SIZE:
                _check_retained(spec, driver, empty, habit, poured)
                checked = poured
        _check_retained(spec, driver, empty, habit, poured)


def _check_retained(
    spec: MachineSpec, driver: Driver, empty: int, habit: _Habit, poured: int
) -> None:
    retained = retained_size(driver.machine) - empty
    if retained > spec.bounds.retained_max:
        raise PropertyError(
            f"{habit.name}: after {poured} bytes of flood the machine holds {retained} bytes,"
            f" over its limit of {spec.bounds.retained_max}"
        )


def told_before(spec: MachineSpec, attack: Flood | Frame) -> Conversation:
    """The conversation that the attack follows, with the config of the attack."""
    told = Conversation(name="nothing", operations=())
    if attack.after is not None:
        [told] = [each for each in conversations(spec) if each.name == attack.after]
    return replace(told, config={**told.config, **attack.config})


def poured(spec: MachineSpec, flood: Flood) -> Iterator[list[Operation]]:
    """The operations for the units of `flood`, one unit after the other, for ever."""
    of_datagrams = spec.has("receive_datagram")

    def receive(data: bytes, number: int) -> Operation:
        if of_datagrams:
            return ReceiveDatagram(data, flood.source(number))
        return Receive(data, flood.link)

    if flood.opening:
        yield [receive(flood.opening, 0)]
    if isinstance(flood.unit, bytes) and not (of_datagrams or flood.calls):
        yield from repeat([receive(flood.unit, 0)])
    for number in count():
        unit = flood.unit if isinstance(flood.unit, bytes) else flood.unit(number)
        yield [receive(unit, number), *(flood.calls(number) if flood.calls else ())]


def _pieces(spec: MachineSpec, flood: Flood) -> Iterator[list[Operation]]:
    """The units of `flood`; those of a stream joined into larger pieces unless they have calls."""
    pending = b""
    for unit in poured(spec, flood):
        if len(unit) > 1 or not isinstance(unit[0], Receive):
            yield unit
            continue
        pending += unit[0].data
        while len(pending) >= _CHUNK_SIZE:
            yield [replace(unit[0], data=pending[:_CHUNK_SIZE])]
            pending = pending[_CHUNK_SIZE:]


def _pour_in(
    driver: Driver, pieces: Iterator[list[Operation]], total: int, *, drains: bool
) -> Iterator[int]:
    """Pour in `total` bytes, as long as the machine wants them; yields the number so far."""
    poured = 0
    while poured < total:
        for operation in next(pieces):
            for part in welcome(driver, operation):
                if drains or not isinstance(part, ReceiveDatagram):
                    driver.run(part)
                else:
                    driver.apply(part)
                poured += received_size(part)
            if driver.closed is not None or not wanted(driver, operation):
                return
        yield poured


def welcome(driver: Driver, operation: Operation) -> Iterator[Operation]:
    """`operation`, with bytes in the pieces that the machine asks for, until it asks for none."""
    if not isinstance(operation, Receive):
        yield operation
        return
    data = operation.data
    while data and (size := driver.read_size(operation.link)):
        yield replace(operation, data=data[:size])
        data = data[size:]


def wanted(driver: Driver, operation: Operation) -> bool:
    """Whether the machine reads bytes where `operation` has some."""
    return not isinstance(operation, Receive) or driver.read_size(operation.link) > 0


def received_size(operation: Operation) -> int:
    """Number of bytes received with `operation`, a datagram's headers included."""
    if isinstance(operation, Receive):
        return len(operation.data)
    return HEADER_SIZE + len(operation.data) if isinstance(operation, ReceiveDatagram) else 0


def unsent(spec: MachineSpec, draw: Draw) -> None:
    """Output that waits to be taken stays under a limit, or reading stops.

    From some moment of a conversation on no bytes and no datagrams are taken.  The
    peer sends the same again and again, as long as it is read: up to three messages that some
    conversation of the machine has, perhaps mutated, with extreme numbers or one that counts,
    or bombs.  Time may pass meanwhile, from deadline to deadline.  Then all output is taken, and
    may be up to `Bounds.unsent_max` bytes.  The config is the tight one.
    """
    told = conversation(spec, draw)
    story = list(told.operations[: draw(st.integers(0, len(told.operations)))])
    ways = ways_in(told)
    if not ways:
        return
    way = pick(ways, draw)
    said = [_counted(spec, data, draw) for data in _unit(spec, told, draw)]

    def flood() -> Iterable[Sequence[Operation]]:
        return ([replace(way, data=say(number)) for say in said] for number in count())

    waits = draw(st.integers(0, 3)) == 0
    if draw(st.integers(0, 3)) == 0 or _grows(spec, told, story, flood, waits=waits):
        _check_unsent(spec, told, story, flood, waits=waits)


def repeats(spec: MachineSpec) -> None:
    """The law of `unsent` for the floods of the spec, and for repeated single messages.

    The latter follow a conversation up to the point before it ends.
    """
    for flood in spec.attacks.floods:
        before = told_before(spec, flood)
        again = replace(flood, calls=None)
        with watchdog():
            _check_unsent(spec, before, list(before.operations), partial(poured, spec, again))
    singles = [
        (each, replace(operation, data=data))
        for each in conversations(spec)
        for operation in each.operations
        if isinstance(operation, (Receive, ReceiveDatagram))
        for data in dict.fromkeys(spec.machine.codec.cut(operation.data))
    ]
    for each, single in singles[:: len(singles) // _SINGLES_MAX + 1]:
        story = _unended(spec, each)
        for waits in (False, True) if spec.has("next_deadline") else (False,):
            with watchdog():
                said = partial(repeat, [single])
                if _grows(spec, each, story, said, waits=waits):
                    _check_unsent(spec, each, story, said, waits=waits)


def _unended(spec: MachineSpec, told: Conversation) -> Story:
    """The conversation before the operation that ends the machine, or an interruption."""
    driver = driver_for(spec, told)
    driver.start()
    for at, operation in enumerate(told.operations):
        driver.run(operation)
        if driver.closed is not None or operation in spec.usage.interruptions:
            return list(told.operations[:at])
    return list(told.operations)


def _unit(spec: MachineSpec, told: Conversation, draw: Draw) -> list[bytes]:
    """The messages that are sent again and again."""
    other = told if draw(st.booleans()) else conversation(spec, draw)
    said: list[Operation] = list(other.operations)
    if draw(st.integers(0, 2)) == 0:
        said = hostile(spec, other, draw)
    whole = [op.data for op in said if isinstance(op, (Receive, ReceiveDatagram)) and op.data]
    parts = list(chain.from_iterable(spec.machine.codec.cut(data) for data in whole))
    if not parts:
        return [b"x"]
    return [pick(parts, draw) for _ in range(draw(st.integers(1, _TOGETHER_MAX)))]


def _counted(spec: MachineSpec, data: bytes, draw: Draw) -> Callable[[int], bytes]:
    """A function that gives `data`, perhaps each time with another number somewhere in it."""
    encoding = pick(spec.machine.codec.encodings, draw)
    places = encoding.places(data)
    if not places or draw(st.booleans()):
        return lambda number: data
    start, end = pick(places, draw)
    first = draw(st.sampled_from([0, 100, 1 << 20]))

    def say(number: int) -> bytes:
        return data[:start] + (encoding.encode(first + number) or b"") + data[end:]

    return say


def _grows(
    spec: MachineSpec, told: Conversation, story: Story, flood: _Flood, *, waits: bool = False
) -> bool:
    """Whether more output waits after more of the flood, so that it is worth following."""
    first, second = (
        _pour_untaken(spec, told, story, islice(flood(), turns), waits=waits)[1]
        for turns in _PROBES
    )
    return second > first


def _check_unsent(
    spec: MachineSpec, told: Conversation, story: Story, flood: _Flood, *, waits: bool = False
) -> None:
    told = replace(told, config={**told.config, **spec.bounds.tight})
    with retold(spec, told):
        came, found = _pour_untaken(spec, told, story, islice(flood(), _TURNS_MAX), waits=waits)
        if found > spec.bounds.unsent_max:
            raise PropertyError(
                f"nothing was taken while {came} bytes came: {found} bytes wait to be sent, over"
                f" the limit of {spec.bounds.unsent_max}"
            )


def _pour_untaken(
    spec: MachineSpec,
    told: Conversation,
    story: Story,
    flood: Iterable[Sequence[Operation]],
    *,
    waits: bool,
) -> tuple[int, int]:
    """The number of bytes received, and of those that then wait to be sent."""
    driver = driver_for(spec, replace(told, config={**told.config, **spec.bounds.tight}))
    driver.tell(story)
    came = 0
    for turn in flood:
        before = came
        for operation in chain.from_iterable(welcome(driver, each) for each in turn):
            _tell(driver, operation)
            came += received_size(operation)
        if came == before or came > _TIMES * spec.bounds.unsent_max + _UNTAKEN_SLACK_SIZE:
            break
        if driver.closed is not None:
            break
        if waits and (deadline := driver.deadline()) is not None:
            _tell(driver, Advance(deadline))
    return came, _waiting(driver)


def _tell(driver: Driver, operation: Operation) -> None:
    """Do `operation`, take events and answer effects, and take no bytes."""
    refused(driver, operation)
    while driver.take_events()[0] or driver.take_effects():
        while driver.respond is not None and driver.unanswered:
            effect = driver.unanswered[0]
            refused(driver, Complete(effect.ticket, driver.respond(effect)))
            driver.withhold(effect)


def _waiting(driver: Driver) -> int:
    """Take the bytes that wait to be sent, once; returns their number."""
    if driver.is_stream:
        return len(driver.machine.data_to_send())
    if driver.is_linked:
        driver.machine.links_to_send()
        return sum(len(link.data_to_send()) for link in driver.links.values())
    return sum(HEADER_SIZE + len(data) for _, data in driver.take_datagrams())


def reads(spec: MachineSpec, draw: Draw) -> None:
    """A machine whose driver keeps up reads on, or ends, whatever a peer has said.

    The peer's story, which may be hostile, breaks off somewhere and goes on with one byte
    again and again.  Once events are taken, effects answered and bytes sent, a machine, or a link
    of one, may want no more bytes until a deadline has come, or until one of its users' calls;
    else it waits for ever, most likely for the rest of something larger than all that it reads.
    """
    told = tightened(spec, conversation(spec, draw), draw)
    ways = [way for way in ways_in(told) if isinstance(way, Receive)]
    if not ways:
        return
    way = pick(ways, draw)
    story = list(told.operations) if draw(st.booleans()) else hostile(spec, told, draw)
    story = [each for each in cut_short(story, draw) if not isinstance(each, Eof)]
    filler = replace(way, data=draw(st.sampled_from(_FILLERS)) * _CHUNK_SIZE)
    with retold(spec, told):
        driver = driver_for(spec, told)
        driver.start()
        for operation in [*story, *[filler] * _CHUNKS_MAX]:
            for part in welcome(driver, operation):
                driver.run(part)
            if driver.closed is not None:
                return
            if isinstance(operation, Receive) and not _reads(driver, operation):
                _check_waits(spec, driver, operation)


def _reads(driver: Driver, way: Receive) -> bool:
    """Whether more is wanted on that way, or never will be."""
    link = None if way.link is None else driver.links.get(way.link)
    gone = driver.closed is not None or (way.link is not None and (link is None or link.closed))
    return gone or driver.read_size(way.link) > 0


def _check_waits(spec: MachineSpec, driver: Driver, way: Receive) -> None:
    """Raise `PropertyError` unless time, or its user, lets the machine read on."""
    for _ in range(_WAITS_MAX):
        if (deadline := driver.deadline()) is None:
            break
        driver.run(Advance(deadline))
        if _reads(driver, way):
            return
    for call in calls_in(spec):
        driver.run(call)
        if _reads(driver, way):
            return
    raise PropertyError("nothing waits to be done, and it reads no more, nor ends")
