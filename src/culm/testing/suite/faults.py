"""The property that one bad item costs only that item, however the bytes around it are cut."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from hypothesis import strategies as st

from culm.machines.driver import Turn
from culm.machines.operations import Operation, Receive, ReceiveDatagram
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import PropertyError, driver_for, merged, retold, watchdog
from culm.testing.suite.strategies import Draw, Story, chunks, conversation, mutated, pick

_PLACES_MAX = 24  # places in a machine's conversations that are spoilt without chance

_INPUTS = (Receive, ReceiveDatagram)
_Batch = Sequence[Operation]  # operations between which nothing is taken


def faults(spec: MachineSpec, draw: Draw) -> None:
    """The content of the store does not depend on how the peer's bytes were cut, spoilt or not.

    A spoilt item, or a bomb, comes between two messages of a conversation.  The items
    that the machine has stored (`Comparison.kept`) once all messages before it have been dealt
    with are also stored if everything comes in one chunk, byte by byte, or cut at random; and
    the items in the end are the same each time.  Datagrams are not cut: they come one by one, or
    all before anything is taken; and one of which the end is missing makes no difference at all.
    """
    told = conversation(spec, draw)
    said = _said(spec, told)
    places = [at for at, operation in enumerate(said) if isinstance(operation, _INPUTS)]
    if not places:
        return
    at = pick(places, draw)
    way = said[at]
    at += draw(st.integers(0, 1))
    assert isinstance(way, _INPUTS)
    if spec.attacks.bombs and draw(st.integers(0, 3)) == 0:
        bad: Operation = replace(way, data=pick(spec.attacks.bombs, draw))
    else:
        other = said[pick(places, draw)]
        assert isinstance(other, _INPUTS)
        [bad, *_] = mutated([replace(way, data=other.data)], draw)
    story = _spoilt(spec, told, said, at, bad)
    anyhow = [each for part in story for each in _cut(part, draw)]
    _check(spec, told, said[:at], [*_chunked(story), anyhow])
    if isinstance(way, ReceiveDatagram) and way.data:
        short = replace(way, data=way.data[: draw(st.integers(0, len(way.data) - 1))])
        _check_unheard(spec, told, said, at, short)


def every_fault(spec: MachineSpec) -> None:
    """The law of `faults` with a slightly wrong message before and after each of many."""
    spoilt = [
        (told, said, at)
        for told in conversations(spec)
        for said in [_said(spec, told)]
        for at, operation in enumerate(said)
        if isinstance(operation, _INPUTS)
    ]
    for told, said, at in spoilt[:: len(spoilt) // _PLACES_MAX + 1]:
        for bad, after in _wrong(spec, said[at]):
            story = _spoilt(spec, told, said, at + after, bad)
            with watchdog():
                _check(spec, told, said[: at + after], _chunked(story))
        if isinstance(whole := said[at], ReceiveDatagram):
            with watchdog():
                _check_unheard(spec, told, said, at, replace(whole, data=whole.data[:-1]))


def _said(spec: MachineSpec, told: Conversation) -> Story:
    """The conversation with one message in each `Receive`."""
    return [
        replace(operation, data=data) if isinstance(operation, Receive) else operation
        for operation in told.operations
        for data in (
            spec.machine.codec.cut(operation.data) if isinstance(operation, Receive) else [b""]
        )
    ]


def _wrong(spec: MachineSpec, operation: Operation) -> Iterator[tuple[Operation, int]]:
    """Wrong inputs, each with whether it comes after `operation` rather than before."""
    assert isinstance(operation, _INPUTS)
    for after, at in enumerate((len(operation.data) // 2, len(operation.data) - 1)):
        data = bytearray(operation.data)
        data[at] ^= 1
        yield replace(operation, data=bytes(data)), after
    for bomb in spec.attacks.bombs[:1]:
        yield replace(operation, data=bomb), 1


def _spoilt(
    spec: MachineSpec, told: Conversation, said: Story, at: int, bad: Operation
) -> list[Story]:
    """The story with `bad` in it, in parts that may each come at once.

    No message of a part depends on the machine's answer to another message of that part, with
    `bad` or without it.
    """
    drivers = [driver_for(spec, told), driver_for(spec, told)]
    for driver in drivers:
        driver.start()
    parts: list[Story] = [[], []]
    for place, operation in enumerate([*said, None]):
        if place == at:  # right after the operation before it, unless it answers an output of that
            assert isinstance(bad, _INPUTS)
            answers = spec.comparison.is_answer(bad.data)
            parts[-1 if parts[-1] or answers else -2].append(bad)
            if _says(drivers[0].run(bad)) and answers:
                parts.append([])
        if operation is None:
            break
        parts[-1].append(operation)
        says = [_says(driver.run(operation)) for driver in drivers]
        if any(says):
            parts.append([])
    return parts


def _says(turns: Iterable[Turn]) -> bool:
    return any(turn.sent or turn.links or turn.datagrams for turn in turns)


def _chunked(parts: Sequence[Story]) -> list[list[_Batch]]:
    """The story message by message, and with each part as a whole."""
    return [
        [[operation] for part in parts for operation in part],
        [batch for part in parts for batch in _batches(merged(part))],
    ]


def _batches(part: Story) -> Iterator[_Batch]:
    """Consecutive datagrams together, everything else by itself."""
    for is_datagram, run in groupby(part, key=lambda each: isinstance(each, ReceiveDatagram)):
        if is_datagram:
            yield list(run)
        else:
            yield from ([operation] for operation in run)


def _cut(part: Story, draw: Draw) -> Iterator[_Batch]:
    for operation in merged(part):
        if isinstance(operation, Receive):
            yield from ([replace(operation, data=data)] for data in chunks(operation.data, draw))
        else:
            yield [operation]


def _check(
    spec: MachineSpec, told: Conversation, before: Story, stories: Sequence[Sequence[_Batch]]
) -> None:
    with retold(spec, told):
        kept_before = _kept(spec, told, _by_one(before))
        expected = None
        for story in stories:
            kept = _kept(spec, told, story)
            if lost := kept_before - kept:
                raise PropertyError(f"items from before the fault are not kept: {_few(lost)}")
            if expected is not None and kept != expected:
                raise PropertyError(
                    f"kept items depend on how bytes are cut: {_few(expected ^ kept)}"
                )
            expected = kept


def _check_unheard(
    spec: MachineSpec, told: Conversation, said: Story, at: int, short: ReceiveDatagram
) -> None:
    """Raise `PropertyError` if a datagram of which the end is missing makes a difference."""
    with retold(spec, told):
        expected = _kept(spec, told, _by_one(said))
        kept = _kept(spec, told, _by_one([*said[:at], short, *said[at:]]))
        if kept != expected:
            raise PropertyError(
                f"the end of a datagram is missing, and that changes {_few(expected ^ kept)}"
            )


def _by_one(story: Story) -> list[_Batch]:
    return [[operation] for operation in story]


def _few(items: frozenset[Hashable]) -> str:
    return f"{len(items)} items, {sorted(map(repr, items))[0]:.200} among them"


def _kept(spec: MachineSpec, told: Conversation, story: Sequence[_Batch]) -> frozenset[Hashable]:
    """The items that the machine has stored, or handed over, by the end of the story."""
    driver = driver_for(spec, told)
    turns: list[Turn] = driver.start()
    for *first, last in story:
        for operation in first:
            driver.apply(operation)
        turns += driver.run(last)
    kept = spec.comparison.kept
    assert kept is not None
    stored = (item for turn in turns for effect in turn.effects for item in kept(effect))
    handed = (item for turn in turns for event in turn.events for item in kept(event))
    return frozenset((*stored, *handed))
