"""The property that output that is not taken stays small, whatever a peer sends meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice, repeat

from hypothesis import strategies as st

from culm.machines.driver import Driver
from culm.machines.operations import Advance, Complete, Operation, Receive, ReceiveDatagram
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.floods import HEADER_SIZE, poured, received_size, told_before, welcome
from culm.testing.suite.runs import PropertyError, driver_for, refused, retold, watchdog
from culm.testing.suite.strategies import Draw, Story, conversation, hostile, pick, ways_in

_TOGETHER_MAX = 3  # messages that are sent in turns
_TIMES = 6  # the limit comes in: answers of a sixth of each byte are found
_SLACK_SIZE = 2048
_TURNS_MAX = 4_000
_PROBES = (16, 64)  # turns; output that does not grow from one to the other is not followed
_SINGLES_MAX = 32

_Flood = Callable[[], Iterable[Sequence[Operation]]]


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
        _check(spec, told, story, flood, waits=waits)


def repeats(spec: MachineSpec) -> None:
    """The law of `unsent` for the floods of the spec, and for repeated single messages.

    The latter follow a conversation up to the point before it ends.
    """
    for flood in spec.attacks.floods:
        before = told_before(spec, flood)
        again = replace(flood, calls=None)
        with watchdog():
            _check(spec, before, list(before.operations), partial(poured, spec, again))
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
                    _check(spec, each, story, said, waits=waits)


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
        _pour(spec, told, story, islice(flood(), turns), waits=waits)[1] for turns in _PROBES
    )
    return second > first


def _check(
    spec: MachineSpec, told: Conversation, story: Story, flood: _Flood, *, waits: bool = False
) -> None:
    told = replace(told, config={**told.config, **spec.bounds.tight})
    with retold(spec, told):
        came, found = _pour(spec, told, story, islice(flood(), _TURNS_MAX), waits=waits)
        if found > spec.bounds.unsent_max:
            raise PropertyError(
                f"nothing was taken while {came} bytes came: {found} bytes wait to be sent, over"
                f" the limit of {spec.bounds.unsent_max}"
            )


def _pour(
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
        if came == before or came > _TIMES * spec.bounds.unsent_max + _SLACK_SIZE:
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
