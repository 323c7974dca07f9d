"""The properties that work is bounded by the input, and alike for all contents of a frame."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice, repeat
from typing import Any

from hypothesis import settings

from culm.machine import Effect
from culm.machines.driver import Driver, Turn
from culm.machines.memory import retained_size
from culm.machines.operations import Call, Complete, Operation, Receive, ReceiveDatagram
from culm.machines.plain import to_plain
from culm.testing.contents import Content
from culm.testing.record import conversations, record
from culm.testing.spec import Conversation, Flood, Frame, MachineSpec, Many, Work
from culm.testing.suite.floods import HEADER_SIZE, poured, told_before, wanted, welcome
from culm.testing.suite.meter import EndlessWorkError, Meter
from culm.testing.suite.runs import PropertyError, driver_for, retold, told_to, watchdog
from culm.testing.suite.strategies import Draw, conversation, hostile, tightened, ways_in

_TOLD_MAX = 200  # operations before a bomb, at all moments of a conversation together
_GROWTH_START = 32
_GROWTH_MAX = 2.1
_GROWTH_SLACK = 600  # steps that do not count as growth
_UNLIMITED = Work(base=1 << 60, per_byte=0)
_StepsOf = Callable[[int], int]  # by number; asked for ever more
_MEMORY_PER_STEP = 16  # bytes
_PIECES = 16  # pieces of a frame that shows how much of it is read


def work(spec: MachineSpec, draw: Draw) -> None:
    """The work of a machine is bounded by its input, as `Bounds.work` states.

    An input of k bytes is worth ``base + per_byte * k`` steps.  These have to suffice for all that
    follows until the next input: all code executed and all values returned, with
    events and effects.  Unused steps of ``per_byte`` are saved for later, since bytes
    may have to wait; those of ``base`` are not.  An answer that the store gives at once
    adds only the worth of its bytes, as the peer has not sent it.

    Work beyond is stopped in the middle, so a machine that hangs is found like any other.
    """
    told = tightened(spec, conversation(spec, draw), draw)
    story = hostile(spec, told, draw)
    with retold(spec, told):
        Worker(spec, told).tell(story)


def at_once(spec: MachineSpec) -> None:
    """The laws without chance: `bombs` and `growth`."""
    bombs(spec)
    growth(spec)


def bombs(spec: MachineSpec) -> None:
    """`work` for the bombs of the spec at every moment of every conversation.

    Of long conversations only some moments are tried, each of them also after every
    interruption: then a bomb meets a machine that discards it.  A bomb
    comes by all ways that are open at that moment, one after the other.
    """
    told_max = min(_TOLD_MAX, 16 * settings().max_examples)
    for number, told in enumerate(conversations(spec)) if spec.attacks.bombs else ():
        size = len(told.operations)
        savings = _savings(spec, number)
        for at in {*range(0, size, size * size // (2 * told_max) + 1), size}:
            for interruption in ([], *([each] for each in spec.usage.interruptions)):
                for bomb in spec.attacks.bombs:
                    _throw(spec, told, at, savings[at], interruption, bomb)


@cache
def _savings(spec: MachineSpec, number: int) -> list[int]:
    """The steps saved before each operation of the conversation of that number, and at its end."""
    told = conversations(spec)[number]
    with retold(spec, told):
        worker = Worker(spec, told)
        savings = [worker.savings]
        for operation in told.operations:
            worker.run(operation)
            savings.append(worker.savings)
    return savings


def _throw(
    spec: MachineSpec,
    told: Conversation,
    at: int,
    savings: int,
    interruption: Sequence[Operation],
    bomb: bytes,
) -> None:
    with retold(spec, told):
        worker = Worker(spec, told)
        worker.repeat(told.operations[:at], savings)
        worker.tell(interruption)
        for way in _ways_in(worker.driver, told):
            worker.run(replace(way, data=bomb))


def _ways_in(driver: Driver, told: Conversation) -> Sequence[Receive | ReceiveDatagram]:
    if driver.is_stream:
        return [Receive(b"")]
    if driver.is_linked:
        return [Receive(b"", link) for link in driver.open_links]
    return ways_in(told)


def growth(spec: MachineSpec) -> None:
    """Twice as much input is at most about twice the work.

    Tried with n, 2n and 4n of the things in `Usage.growth`, of the floods' units,
    and of every call of the conversations, made again and again.  The added work
    may bend once, where something begins; if it does so again from 4n to 8n, it grows.
    """
    for name, steps_of in _growing(spec):
        try:
            _check_growth(steps_of)
        except Exception as error:
            error.add_note(f"growing: {name}")
            raise


class Worker:
    """A driver that lets its machine do only the work that inputs have paid for."""

    def __init__(self, spec: MachineSpec, told: Conversation) -> None:
        self.driver = driver_for(spec, told)
        self.meter = Meter()
        self._work = spec.bounds.work or _UNLIMITED
        self.savings = 0  # unused steps of `per_byte`
        if (respond := self.driver.respond) is not None:

            def answer(effect: Effect[Any]) -> object:
                return self._answer(respond, effect)

            self.driver.answer_by(self.meter.apart(answer))
        self._pay(None, self.driver.start)

    def tell(self, story: Sequence[Operation]) -> None:
        """Do the whole story with `run`."""
        for operation in story:
            self.run(operation)

    def repeat(self, story: Sequence[Operation], savings: int) -> None:
        """Do, without counting, a story counted before, which left those `savings`."""
        for operation in story:
            self.driver.run(operation)
        self.savings = savings

    def run(self, operation: Operation) -> list[Turn]:
        """Do `operation` as `Driver.run` does.  Raises `PropertyError` for too much work."""
        return self._pay(operation, lambda: self.driver.run(operation))

    def _pay(self, operation: Operation | None, act: Callable[[], list[Turn]]) -> list[Turn]:
        meter, before = self.meter, self.meter.steps
        self._save(_input_size(operation))
        meter.allow(before + self._work.base + self.savings)
        try:
            turns = meter.count(act)
        except EndlessWorkError:
            raise PropertyError(
                f"{operation} led to more than {meter.allowed - before} steps: {self._work} and"
                " the rest of earlier bytes allow no more"
            ) from None
        self.savings -= max(0, meter.steps - before - self._work.base)
        return turns

    def _answer(self, respond: Callable[[Effect[Any]], object], effect: Effect[Any]) -> object:
        result = respond(effect)
        self.meter.allow(self.meter.allowed + self._save(retained_size(result)))
        return result

    def _save(self, size: int) -> int:
        saved = self._work.per_byte * size
        self.savings += saved
        return saved


def _input_size(operation: Operation | None) -> int:
    match operation:
        case Receive(data):
            return len(data)
        case ReceiveDatagram(data):
            return len(data) + HEADER_SIZE
        case Call(_, args):
            return len(json.dumps(to_plain(args)))
        case Complete(_, result):
            return retained_size(result)
        case _:
            return 0


def things_of(spec: MachineSpec) -> Iterator[tuple[str, _StepsOf]]:
    """The things of `Usage.growth`, by name, each with its steps by number."""
    for name, many in spec.usage.growth.items():
        yield name, partial(_steps_of_all, spec, many)


def _growing(spec: MachineSpec) -> Iterator[tuple[str, _StepsOf]]:
    """Things that may be many, by name, each with its steps by number."""
    yield from things_of(spec)
    for number, flood in enumerate(spec.attacks.floods):
        yield f"units of flood {number}", _flooded(spec, flood)
    for number, each in enumerate(conversations(spec)):
        last = {op.method: at for at, op in enumerate(each.operations) if isinstance(op, Call)}
        for method, at in last.items():
            yield f"{method} in {each.name}", _insistent(spec, number, at)


class _Counted:
    """The steps of a worker that is told things one after the other: of the first few, of more."""

    def __init__(self, worker: Worker, things: Iterator[Sequence[Operation]]) -> None:
        self._worker, self._things, self._told = worker, things, 0

    def __call__(self, count: int) -> int:
        """The steps up to the thing of that number; a smaller one must not be asked for later."""
        for thing in islice(self._things, count - self._told):
            _tell_while_open(self._worker, thing)
        self._told = count
        return self._worker.meter.steps


def _tell_while_open(worker: Worker, story: Sequence[Operation]) -> None:
    for operation in story:
        if worker.driver.closed is not None:
            return
        if wanted(worker.driver, operation):
            worker.run(operation)


def _steps_of_all(spec: MachineSpec, many: Many, size: int) -> int:
    made, steps = many(size), 0
    for told in [made] if isinstance(made, Conversation) else record(spec.machine, made):
        worker = Worker(spec, told)
        _tell_while_open(worker, told.operations)
        steps += worker.meter.steps
    return steps


def _flooded(spec: MachineSpec, flood: Flood) -> _Counted:
    before = told_before(spec, flood)
    worker = Worker(spec, before)
    _tell_while_open(worker, before.operations)
    return _Counted(worker, poured(spec, flood))


def _insistent(spec: MachineSpec, number: int, at: int) -> _Counted:
    """The call at that place of a conversation, made again and again."""
    told = conversations(spec)[number]
    worker = Worker(spec, told)
    worker.repeat(told.operations[:at], _savings(spec, number)[at])
    return _Counted(worker, repeat([told.operations[at]]))


def _check_growth(steps_of: _StepsOf) -> None:
    one, two, four = (steps_of(_GROWTH_START << doubling) for doubling in range(3))
    if _bends(one, two, four) and _bends(two, four, eight := steps_of(_GROWTH_START << 3)):
        steps = f"from {_GROWTH_START} on, twice as many took these steps"
        raise PropertyError(f"{steps}: {one, two, four, eight}")


def _bends(first: int, second: int, third: int) -> bool:
    return third - second > _GROWTH_MAX * max(0, second - first) + _GROWTH_SLACK


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of a frame: steps, and the peak of memory meanwhile."""

    steps: int
    memory: int
    size: int

    def __float__(self) -> float:
        """Steps for each byte, memory included."""
        return (self.steps + self.memory / _MEMORY_PER_STEP) / self.size


def alike(spec: MachineSpec) -> None:
    """Every content of a frame costs about as much for each byte as a flat one.

    Counted are the steps of `work`, and another one for each 16 bytes of peak memory, which
    reveals objects made by a reader in C.  The factor is `Bounds.alike_max`; a flat content
    counts as at least a step for each 8 bytes.  A frame that is refused at its first bytes costs
    nothing, and proves nothing: half of a flat one has to be read, unless `Frame.refused` is set.
    """
    for frame in spec.attacks.frames:
        contents = iter(frame.contents.items())
        _, flat = next(contents)
        _check_read(spec, frame, frame.wrap(flat(frame.size)))
        floor = max(1 / 8, float(_cost(spec, frame, flat)))
        for name, content in contents:
            cost = _cost(spec, frame, content)
            if cost.size and float(cost) > spec.bounds.alike_max * floor:
                raise PropertyError(
                    f"{frame.name}, {name}: {float(cost):.2f} steps for a byte ({cost}), over"
                    f" {spec.bounds.alike_max} times the {floor:.2f} of flat ones"
                )


def _check_read(spec: MachineSpec, frame: Frame, data: bytes) -> None:
    """Raise `PropertyError` for a frame whose content is not read."""
    with watchdog():
        driver = _before(spec, frame)
        if hasattr(driver.machine, "receive_datagram"):
            turns = driver.run(ReceiveDatagram(data, frame.source))
            comes = any(turn.events or turn.datagrams for turn in turns)
            if not (comes or frame.refused):
                raise PropertyError(f"{frame.name}: nothing comes of a flat one")
            return
        read = _bytes_read(driver, Receive(data, frame.link))
    if not read:
        raise PropertyError(f"{frame.name}: not a byte of it is welcome")
    if 2 * read < len(data) and not frame.refused:
        raise PropertyError(f"{frame.name}: a flat one is refused at byte {read} of {len(data)}")


def _bytes_read(driver: Driver, frame: Receive) -> int:
    """The approximate number of bytes of a frame that the machine reads."""
    step = -(-len(frame.data) // _PIECES)
    for at in range(0, len(frame.data), step):
        if driver.closed is not None or not wanted(driver, frame):
            return at
        for part in welcome(driver, replace(frame, data=frame.data[at : at + step])):
            driver.run(part)
    return len(frame.data)


def _before(spec: MachineSpec, frame: Frame) -> Driver:
    """A driver of a machine after the conversation that precedes the frame."""
    before = told_before(spec, frame)
    return told_to(spec, before, before.operations)[0]


def _cost(spec: MachineSpec, frame: Frame, content: Content) -> _Cost:
    with watchdog():
        return _counted(_before(spec, frame), frame, frame.wrap(content(frame.size)))


def _counted(driver: Driver, frame: Frame, data: bytes) -> _Cost:
    meter = Meter()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        if hasattr(driver.machine, "receive_datagram"):
            meter.count(lambda: driver.run(ReceiveDatagram(data, frame.source)))
        else:
            for part in welcome(driver, Receive(data, frame.link)):
                meter.count(lambda part=part: driver.run(part))  # type: ignore[misc]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return _Cost(meter.steps, max(0, peak - before), len(data))
