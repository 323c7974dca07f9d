"""The properties that every machine keeps, each a function that raises `PropertyError`.

A property takes the spec and Hypothesis' ``draw``.  Its docstring states the law that it checks,
which ``docs/testing.md`` repeats.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from hypothesis import strategies as st

from culm.machine import ContractErrorCode
from culm.machines.driver import Driver, Turn, check_end
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Operation,
    Receive,
    ReceiveDatagram,
    operation_from_json,
    operation_to_json,
)
from culm.machines.plain import from_plain, to_plain
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import (
    PropertyError,
    check_closed,
    check_declared,
    check_idle,
    check_past,
    check_unchanged,
    driver_for,
    end,
    expect_equal,
    finish,
    merged,
    refused,
    retold,
    run_story,
    told_to,
    visible,
    watchdog,
)
from culm.testing.suite.strategies import (
    Draw,
    Story,
    calls_in,
    chunks,
    conversation,
    cut_short,
    hostile,
    links_in,
    pick,
    sizes,
    tightened,
    variant,
)

_REFUSALS_MAX = 16
_PROBES_MAX = 32
_WAITS_MAX = 4  # deadlines at the end of a story
_SINGLE_MAX = 64  # bytes of a message of a hostile peer that come one by one
_QUESTIONS = frozenset({"next_deadline", "read_size"})
_STEP_S = 0.25


def sound(spec: MachineSpec) -> None:
    """The spec itself is sound.

    An empty config builds; there are conversations, all valid, which survive the conversion
    to JSON and back; the machine's effects have a store; each bad call is refused somewhere; and
    if the machine has deadlines, a conversation waits for one.
    """
    Driver.of(spec.machine, {})
    refusable = list(spec.usage.bad_calls)
    if not conversations(spec):
        raise PropertyError("the spec has no conversations")
    for told in conversations(spec):
        with watchdog():
            _check_valid(spec, told)
            _check_json(told)
            refusable = [bad for bad in refusable if not _refused_in(spec, told, bad)]
    if refusable:
        raise PropertyError(f"these bad calls are refused nowhere: {refusable}")
    _check_waits(spec)


def chunking(spec: MachineSpec, draw: Draw) -> None:
    """Every chunking of the peer's bytes gives the same, valid or not.

    Compared are events, the state after each, effects, errors, trailing data, and the
    bytes and the deadline at the end of each run of bytes: those that the peer sent at once, or
    in a row.  Until then effects are not answered and bytes not taken, since these are inputs
    or choices of their own.
    """
    told = tightened(spec, conversation(spec, draw), draw)
    story = (
        hostile(spec, told, draw)
        if draw(st.integers(0, 2)) == 2
        else variant(told.operations, draw)
    )
    if draw(st.booleans()):
        story = merged(story)
    whole = [[op.data] if isinstance(op, Receive) else [] for op in story]
    cut = [chunks(op.data, draw) if isinstance(op, Receive) else [] for op in story]
    with retold(spec, told):
        expect_equal(
            "the chunking makes a difference",
            _in_chunks(spec, told, story, whole),
            _in_chunks(spec, told, story, cut),
        )


def determinism(spec: MachineSpec, draw: Draw) -> None:
    """Two machines with the same inputs do the same."""
    told = conversation(spec, draw)
    story = variant(told.operations, draw)
    with retold(spec, told):
        first, second = run_story(spec, told, story), run_story(spec, told, story)
        expect_equal("the second run differs", first, second)


def survives(spec: MachineSpec, draw: Draw) -> None:
    """Whatever the peer sends: nothing is raised, the machine comes to rest, `Closed` comes last.

    Calls may be refused with `LocalProtocolError`; nothing else may be raised.
    """
    told = tightened(spec, conversation(spec, draw), draw)
    story: Story = []
    for operation in hostile(spec, told, draw):
        if isinstance(operation, Receive):
            pieces = chunks(operation.data, draw, single_max=_SINGLE_MAX)
            story += [replace(operation, data=data) for data in pieces]
        else:
            story.append(operation)
    with retold(spec, told):
        driver, turns = told_to(spec, told, story)
        check_closed(driver, turns)
        _check_ended(driver, turns)


def ends(spec: MachineSpec, draw: Draw) -> None:
    """`Closed` comes exactly once and last, on every kind of end.

    However a conversation breaks off: after the end of the stream and `close`, with all
    effects answered and every deadline past, a machine is closed.  A second `close` has
    no effect, and the end of the stream may be told twice.  Events and effects are those
    that ``next_event`` and ``next_effect`` declare.
    """
    told = conversation(spec, draw)
    story = cut_short(variant(told.operations, draw), draw) + _ending(spec, told, draw)
    closes = draw(st.booleans())
    with retold(spec, told):
        driver = driver_for(spec, told)
        turns = driver.start()
        for operation in story:
            turns += driver.run(operation)
            check_closed(driver, turns)
        if closes:
            turns += driver.run(Call("close"))
            check_idle("a second close", driver, driver.do(Call("close")))
        _check_ended(driver, turns)
        check_idle("close after the end", driver, driver.do(Call("close")))


def refusals(spec: MachineSpec, draw: Draw) -> None:
    """A `LocalProtocolError` leaves the machine as it was.

    Refused operations at any moment can be left out: all else stays equal.  Tried are
    the spec's bad calls, its conversations' calls at other moments, data after the end of
    the stream, answers to effects that are not there, and past times.
    """
    told = conversation(spec, draw)
    story = list(told.operations)
    at = draw(st.integers(0, len(story)))
    candidates, done = _candidates(spec, told), list[Operation]()
    with retold(spec, told):
        driver, turns = _bothered(spec, told, story[:at], done)
        for _ in range(_REFUSALS_MAX):
            bad = _made_bad(pick(candidates, draw), turns)
            before = visible(driver)
            if not refused(driver, bad):
                driver, turns = _bothered(spec, told, story[:at], done)
                continue
            check_unchanged(f"{bad}", driver, before)
            done.append(bad)
        without = run_story(spec, told, story)
        for operation in story[at:]:
            turns += driver.run(operation)
        expect_equal("a refused call made a difference", without, turns)


def _bothered(
    spec: MachineSpec, told: Conversation, story: Story, bad: Sequence[Operation]
) -> tuple[Driver, list[Turn]]:
    """A machine that was told `story`, then operations that it refuses; and the story's turns."""
    driver, turns = told_to(spec, told, story)
    for operation in bad:
        refused(driver, operation)
    return driver, turns


def purity(spec: MachineSpec, draw: Draw) -> None:
    """Questions change nothing, inputs only buffer, and drained is drained.

    ``state``, ``read_size``, ``next_deadline`` and ``trailing_data`` may be asked at any
    moment and any number of times; ``receive_data`` and ``receive_eof`` leave ``state``
    alone until an event is taken; a drained machine has no more output, and asking its links for
    some makes no work; a deadline that was reached is gone, also if the law itself waits for it.
    """
    told = conversation(spec, draw)
    story = variant(told.operations, draw)
    if draw(st.booleans()):
        story = cut_short(story, draw)
        story += [Eof()] if spec.has("receive_data") else []
    with retold(spec, told):
        driver = driver_for(spec, told)
        driver.wrap(_Questioned(driver.machine, lambda: _ask(driver)))
        _ask(driver)
        turns = driver.start()
        for operation in story:
            turns += _do_and_ask(driver, operation)
        for _ in range(_WAITS_MAX):
            if (deadline := driver.deadline()) is not None:
                story.append(Advance(deadline))
                turns += _do_and_ask(driver, story[-1])
        expect_equal("questions make a difference", run_story(spec, told, story), turns)


def pieces(spec: MachineSpec, draw: Draw) -> None:
    """Bytes taken in pieces are the bytes taken at once.

    A piece is at most as long as asked for, and empty only if nothing is left.  A machine
    that schedules its bytes when they are taken (``lazy_output``) may give others for
    other sizes: then the same sizes give the same, all else stays equal, and `links` checks
    that the peer understands the same.  Values that are no sizes are refused and take nothing.
    """
    told = conversation(spec, draw)
    wanted = sizes(draw)
    story = variant(told.operations, draw)
    with retold(spec, told):
        whole = run_story(spec, told, story)
        cut = run_story(spec, told, story, take=_in_pieces(wanted))
        if spec.comparison.lazy_output:
            again = run_story(spec, told, story, take=_in_pieces(wanted, no_sizes=()))
            expect_equal("the same sizes give other bytes", cut, again)
            whole, cut = _but_bytes(whole), _but_bytes(cut)
        expect_equal("bytes taken in pieces differ", whole, cut)


def _check_valid(spec: MachineSpec, told: Conversation) -> None:
    turns = run_story(spec, told, told.operations)
    if spec.machine.respond is None and any(turn.effects for turn in turns):
        raise PropertyError(f"{told.name}: there are effects, but the spec has no store (respond)")
    for turn in turns:
        if turn.error is not None:
            raise PropertyError(f"{told.name}: {turn.operation} is refused: {turn.error}")
        if isinstance(turn.operation, Advance):
            continue  # a peer that is silent for too long has broken no rule
        for event in turn.events:
            if (error := getattr(event, "error", None)) is not None:
                raise PropertyError(f"{told.name}: the peer is at fault: {error}")


def _check_waits(spec: MachineSpec) -> None:
    has_deadline = False
    for told in conversations(spec):
        deadline = math.inf
        for turn in run_story(spec, told, told.operations):
            if isinstance(turn.operation, Advance) and turn.operation.now >= deadline:
                return
            deadline = math.inf if turn.deadline is None else turn.deadline
            has_deadline |= turn.deadline is not None
    if has_deadline:
        raise PropertyError("there are deadlines, and no conversation waits for any of them")


def _check_json(told: Conversation) -> None:
    for operation in told.operations:
        line = json.dumps(operation_to_json(operation))
        expect_equal(
            "lost on its way through JSON", operation, operation_from_json(json.loads(line))
        )
    config = json.loads(json.dumps(to_plain(told.config)))
    expect_equal("lost on its way through JSON", dict(told.config), from_plain(config))


def _refused_in(spec: MachineSpec, told: Conversation, bad: Operation) -> bool:
    size = len(told.operations)
    for at in {*range(0, size, size // _PROBES_MAX + 1), size}:
        if refused(told_to(spec, told, told.operations[:at])[0], bad):
            return True
    return False


def _in_chunks(
    spec: MachineSpec, told: Conversation, story: Story, cut: Sequence[Sequence[bytes]]
) -> list[object]:
    """The turns when each run of bytes arrives in the chunks of `cut`, then trailing data."""
    driver = driver_for(spec, told)
    turns: list[object] = [*driver.start()]
    for operation, parts in zip(story, cut, strict=True):
        if not isinstance(operation, Receive):
            turns += driver.run(operation)
            continue
        seen: list[tuple[object, object]] = []
        error = None
        for data in parts:
            error = refused(driver, replace(operation, data=data))
            seen += zip(*driver.take_events(), strict=True)
        turns += [*seen, driver.drain(operation, error=error), *driver.answer()]
    return [*turns, driver.machine.trailing_data if driver.is_stream else b""]


def _check_ended(driver: Driver, turns: list[Turn]) -> None:
    turns += end(driver)
    check_closed(driver, turns)
    check_declared(driver.machine, turns)


def _ending(spec: MachineSpec, told: Conversation, draw: Draw) -> Story:
    """Up to three operations that may end a conversation."""
    garbage = draw(st.binary(min_size=1, max_size=32))
    sources = [op.source for op in told.operations if isinstance(op, ReceiveDatagram)]
    choices: list[Operation] = [Call("close"), *spec.usage.interruptions]
    links = links_in(told)
    if spec.has("receive_data"):
        choices += [Eof(), Receive(garbage)]
    elif links:
        link = pick(links, draw)
        choices += [Eof(link), Receive(garbage, link)]
    elif sources:
        choices.append(ReceiveDatagram(garbage, pick(sources, draw)))
    return [pick(choices, draw) for _ in range(draw(st.integers(0, 3)))]


def _candidates(spec: MachineSpec, told: Conversation) -> list[Operation]:
    """Operations that may be refused at some moment."""
    machine = driver_for(spec, told).machine
    found = [*spec.usage.bad_calls, *calls_in(spec)]
    if hasattr(machine, "receive_data"):
        found.append(Receive(b"\x00"))
    if hasattr(machine, "links_to_send"):
        found += [Receive(b"\x00", link) for link in links_in(told)]
    if hasattr(machine, "complete"):
        found.append(Complete(-1))
    if hasattr(machine, "advance"):
        found.append(Advance(0.0))
    return found


def _made_bad(operation: Operation, turns: Sequence[Turn]) -> Operation:
    """`operation`, but for `Advance` with a time before the last one told to the machine."""
    if not isinstance(operation, Advance):
        return operation
    times = [turn.operation.now for turn in turns if isinstance(turn.operation, Advance)]
    return Advance(max(times, default=0.0) - 1.0)


class _Questioned:
    """A machine that is asked all questions before and after each operation on it."""

    def __init__(self, machine: Any, ask: Callable[[], object]) -> None:
        self._machine, self._ask = machine, ask

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._machine, name)
        if name in _QUESTIONS or not callable(found):
            return found

        def asked(*args: Any, **named: Any) -> Any:
            self._ask()
            try:
                return found(*args, **named)
            finally:
                self._ask()

        return asked


def _ask(driver: Driver) -> dict[str, Any]:
    first = visible(driver)
    expect_equal("asked twice, the answers differ", first, visible(driver))
    return first


def _do_and_ask(driver: Driver, operation: Operation) -> list[Turn]:
    """Do `operation` and drain like `Driver.run`, with questions at every moment."""
    before = _ask(driver)
    if isinstance(operation, Call):
        turn = driver.do(operation)
    else:
        error = refused(driver, operation)
        if isinstance(operation, (Receive, Eof)):
            expect_equal("input alone changed the state", before["state"], driver.machine.state)
        _ask(driver)
        turn = driver.drain(operation, error=error)
    if driver.is_linked:  # while the store has yet to answer
        left = [number for number, link in driver.links.items() if link.data_to_send()]
        if left or driver.machine.links_to_send():
            raise PropertyError(f"links {left} had bytes left, or are named for having been asked")
    turns = [turn, *driver.answer()]
    _ask(driver)
    check_idle("draining again", driver, driver.drain(None))
    if isinstance(operation, Advance) and turn.error is None:
        check_past(operation.now, driver.deadline())
    return turns


_NO_SIZES = (-1, 0.5, 2.5, "1")


def _in_pieces(wanted: Sequence[int], no_sizes: Sequence[object] = _NO_SIZES) -> Any:
    """A `take` that first tries `no_sizes`, then takes pieces of the sizes `wanted` in turn."""

    def take(machine: Any) -> bytes:
        for wrong in no_sizes:  # later pieces show that it has changed nothing
            try:
                machine.data_to_send(wrong)
            except (TypeError, ValueError):
                continue
            raise PropertyError(f"data_to_send({wrong!r}) is not refused")
        taken: list[bytes] = []
        for size in cycle(wanted):
            piece: bytes = machine.data_to_send(size)
            if len(piece) > size:
                raise PropertyError(f"data_to_send({size}) gave {len(piece)} bytes")
            if not piece:
                break
            taken.append(piece)
            check_end("pieces", taken)
        if left := machine.data_to_send():
            raise PropertyError(f"a piece was empty, yet {len(left)} bytes were left")
        return b"".join(taken)

    return take


def _but_bytes(turns: Sequence[Turn]) -> list[Turn]:
    return [replace(turn, sent=b"") for turn in turns]


def time(spec: MachineSpec, draw: Draw) -> None:
    """Values that are no times are refused at every moment, and nothing changes.

    NaN and the infinities (``NOT_A_TIME``) and times before the last (``TIME_WENT_BACK``)
    may be told before the first time, between any two inputs and after the end.  The last time
    may be told again: unless something is due, that makes no difference either, now or later.
    """
    told = conversation(spec, draw)
    story = _with_times(variant(told.operations, draw), draw)
    with retold(spec, told):
        plain, bothered = driver_for(spec, told), driver_for(spec, told)
        expected, found = plain.start(), bothered.start()
        _bother(bothered, found)
        for operation in story:
            expected += plain.run(operation)
            found += bothered.run(operation)
            _bother(bothered, found)
        expected += finish(plain)
        found += finish(bothered)
        _bother(bothered, found)
        expect_equal("times that were refused made a difference", expected, found)


def _with_times(story: Story, draw: Draw) -> Story:
    """The story, with times between its operations if it has none."""
    if any(isinstance(operation, Advance) for operation in story):
        return story
    now: float = draw(st.integers(0, 8)) * _STEP_S
    timed: Story = []
    for operation in story:
        timed.append(operation)
        if passed := draw(st.integers(0, 3)):
            now += passed * _STEP_S
            timed.append(Advance(now))
    return timed


def _bother(driver: Driver, turns: Sequence[Turn]) -> None:
    """Tell values that are not times, after `turns`."""
    told = (turn.operation.now for turn in turns if isinstance(turn.operation, Advance))
    last = max(told, default=None)
    _tell_again(driver, last)
    wrong = [(now, ContractErrorCode.NOT_A_TIME) for now in (math.nan, math.inf, -math.inf)]
    if last is not None:
        past = (math.nextafter(last, -math.inf), last - 1e9)
        wrong += [(now, ContractErrorCode.TIME_WENT_BACK) for now in past]
    for now, code in wrong:
        before = visible(driver)
        error = refused(driver, Advance(now))
        if error is None or error.code is not code:
            raise PropertyError(
                f"told that it is {now}, after {last}, the machine said {error!r}, not {code!r}"
            )
        check_unchanged(f"{now}", driver, before)


def _tell_again(driver: Driver, last: float | None) -> None:
    """Tell the last time again, like a driver that tells it before every input."""
    due = driver.deadline()
    if last is None or (due is not None and due <= last):
        return
    before = visible(driver)
    check_idle(f"{last}, told again,", driver, driver.do(Advance(last)))
    expect_equal(f"{last} was told again, which changed", before, visible(driver))
