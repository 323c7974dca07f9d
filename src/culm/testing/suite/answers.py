"""Right, wrong, odd and missing answers of a store, failures included, and their effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from hypothesis import strategies as st

from culm.arguments import is_dict, is_list
from culm.machine import Closed, ContractErrorCode, Effect, StoreFailed
from culm.machines.driver import Turn
from culm.machines.operations import Call, Complete, Fail, Operation, StoreFault
from culm.machines.plain import to_plain
from culm.testing.record import conversations
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import (
    PropertyError,
    check_closed,
    check_unchanged,
    driver_for,
    expect_equal,
    finish,
    refused,
    retold,
    visible,
    watchdog,
)
from culm.testing.suite.strategies import Draw, Story, conversation, pick, variant

_TRIED_MAX = 12  # effects withheld or failed without chance in each conversation
_MESSAGE = "the disk is full"
# Numbers that are no tickets, and values that are no numbers.
_NO_TICKETS: tuple[Any, ...] = (-1, 0, 1 << 64, 0.5, "1", None, [], object())
_FIELDS: tuple[Any, ...] = (None, object(), -1, b"", "", True)


def every_answer(spec: MachineSpec) -> None:
    """The law of `answers` for unchanged conversations."""
    for told in conversations(spec):
        story = list(told.operations)
        with retold(spec, told):
            with watchdog():
                plain = _refuse_what_is_wrong(spec, told, story)
            count = len(plain.starts)
            for number in range(0, count, count // _TRIED_MAX + 1):
                with watchdog():
                    _fail(spec, told, story, plain, number)


def answers(spec: MachineSpec, draw: Draw) -> None:
    """A machine takes one answer to an effect, or a failure in its place.

    A wrong answer raises `LocalProtocolError` and changes nothing: a value that is not of
    the type that the effect declares (the ``R`` of ``Effect[R]``), or one that it does not
    accept.  So does an answer to an effect that was never handed out, or is already answered.
    An accepted answer does no harm, however odd it is.

    After a failure `StoreFailed` comes once, and `Closed` at the latest at the end.  There is no
    output that would not come without an answer: no event, and where the machine ends,
    no bytes but those of its goodbye.
    """
    told = conversation(spec, draw)
    story = variant(told.operations, draw)
    with retold(spec, told):
        plain = _refuse_what_is_wrong(spec, told, story)
        if plain.starts:
            number = draw(st.integers(0, len(plain.starts) - 1))
            _fail(spec, told, story, plain, number)
            _answer_oddly(spec, told, story, number, draw)


Responder = Callable[["Play", int, Effect[Any], Complete], None]


class Play:
    """A story whose effects are answered by `responder`, one at a time.

    starts: for each answer that was due, the index of the next turn.
    """

    def __init__(self, spec: MachineSpec, told: Conversation, responder: Responder) -> None:
        self.driver = driver_for(spec, told)
        self.turns: list[Turn] = []
        self.starts: list[int] = []
        self._responder = responder
        self._respond = self.driver.respond
        self.driver.answer_by(None)

    def run(self, story: Story) -> Play:
        self.turns.append(self.driver.drain(None))
        self._answer_all()
        for operation in story:
            match operation:
                case Complete(ticket) if (effect := self._waiting(ticket)) is not None:
                    self._answer(effect, operation)
                case _:
                    self.do(operation)
            self._answer_all()
        return self

    def end(self) -> Play:
        """Do all that must end the machine, while the store answers its effects."""
        self.driver.answer_by(self._respond)
        self.turns += finish(self.driver)
        return self

    def do(self, operation: Operation) -> Turn:
        turn = self.driver.do(operation)
        self.turns.append(turn)
        return turn

    def _answer_all(self) -> None:
        while self._respond is not None and self.driver.unanswered:
            effect = self.driver.unanswered[0]
            self._answer(effect, Complete(effect.ticket, self._respond(effect)))

    def _answer(self, effect: Effect[Any], answer: Complete) -> None:
        self.starts.append(len(self.turns))
        self._responder(self, len(self.starts) - 1, effect, answer)
        self.driver.withhold(effect)  # answered by now, or never

    def _waiting(self, ticket: int) -> Effect[Any] | None:
        return next((each for each in self.driver.unanswered if each.ticket == ticket), None)


def rightly(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
    """Give the right answer."""
    play.do(right)


def unanswered(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
    """Give no answer."""


def otherwise(at: int, answer: Responder) -> Responder:
    """A responder that answers all effects rightly but one."""

    def responder(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        (answer if number == at else rightly)(play, number, effect, right)

    return responder


# Wrong answers.


def _refuse_what_is_wrong(spec: MachineSpec, told: Conversation, story: Story) -> Play:
    """Check that no wrong answer at any moment changes anything; returns the story without them."""
    plain = Play(spec, told, rightly).run(story)
    others = [op.result for turn in plain.turns if isinstance(op := turn.operation, Complete)]
    # One result of each type is enough.
    others = list({type(result): result for result in others}.values())

    def responder(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        before = visible(play.driver)
        for ticket in _no_tickets(play.turns):
            _expect(play, Complete(ticket, right.result), ContractErrorCode.UNKNOWN_TICKET)
        for value in _wrong(effect, right.result, others):
            _expect(play, Complete(effect.ticket, value), ContractErrorCode.WRONG_RESULT)
        check_unchanged("a wrong answer", play.driver, before)
        if play.do(right).error is not None:
            return  # the answer was recorded in another story
        before = visible(play.driver)
        for again in (right, Fail(effect.ticket, _MESSAGE)):
            _expect(play, again, ContractErrorCode.UNKNOWN_TICKET)
        check_unchanged("a second answer", play.driver, before)

    tried = Play(spec, told, responder).run(story)
    expect_equal("wrong answers make a difference", plain.turns, tried.turns)
    return plain


def _no_tickets(turns: Sequence[Turn]) -> Iterator[Any]:
    """Tickets that were not handed out, the next one included."""
    tickets = {int(effect.ticket) for turn in turns for effect in turn.effects}
    for number in (max(tickets, default=0) + 1, *_NO_TICKETS):
        if not isinstance(number, Hashable) or number not in tickets:
            yield number


def _wrong(effect: Effect[Any], right: object, others: Sequence[object]) -> Iterator[object]:
    declared = answer_type(type(effect))
    for value in (*values(right), *others):
        if not conforms(value, declared) or not effect.accepts(value):
            yield value


def _expect(play: Play, answer: Complete | Fail, code: ContractErrorCode) -> None:
    try:
        error = refused(play.driver, answer)
    except Exception as raised:
        raise PropertyError(f"{answer} raised {raised!r}") from raised
    if error is None:
        raise PropertyError(f"{answer} was taken for an answer")
    if error.code is not code:
        raise PropertyError(f"{answer} is refused with {error.code!r}, not {code!r}")


# Failures.


def _fail(spec: MachineSpec, told: Conversation, story: Story, plain: Play, number: int) -> None:
    """Let the store fail in place of the answer with that number."""
    asked: list[tuple[Effect[Any], bool]] = []

    def failing(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        asked.append((effect, play.driver.closed is not None))
        play.do(Fail(effect.ticket, _MESSAGE))

    def closing(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        play.driver.withhold(effect)
        play.do(Call("close"))

    waited, closed, failed = (
        Play(spec, told, otherwise(number, each)).run(story).end()
        for each in (unanswered, closing, failing)
    )
    effect, over = asked[0]
    _check_told(failed, number, StoreFailed(effect=effect, error=StoreFault(_MESSAGE)), over=over)
    # The events of a machine that still waits, or was closed.
    allowed = _events(waited, number) | _events(closed, number)
    if untrue := _events(failed, number) - allowed:
        raise PropertyError(f"{effect} failed, and yet: {[*untrue]}")
    _check_left(failed, closed, plain, number)


def _check_told(play: Play, number: int, failure: StoreFailed, *, over: bool) -> None:
    """Check that the failure is told once, unless the end came first, and that there is an end."""
    turns = play.turns[play.starts[number] :]
    if turns[0].error is not None:
        raise PropertyError(f"{turns[0].operation} is refused: {turns[0].error}")
    told = [event for turn in turns for event in turn.events if isinstance(event, StoreFailed)]
    due = [] if over else [failure]
    if told != due:
        raise PropertyError(
            f"after {turns[0].operation} the machine told {to_plain(told)}, not {to_plain(due)}"
        )
    if play.driver.closed is None:
        raise PropertyError(f"after {turns[0].operation}, eof, close and all deadlines: no Closed")
    check_closed(play.driver, play.turns)


def _events(play: Play, number: int) -> Counter[str]:
    """The events from that answer on, except for the failure and the end."""
    return Counter(
        str(to_plain(event))
        for turn in play.turns[play.starts[number] :]
        for event in turn.events
        if not isinstance(event, (StoreFailed, Closed))
    )


def _check_left(failed: Play, closed: Play, plain: Play, number: int) -> None:
    """Check that no bytes left that would not have left without the answer."""
    after, goodbye, stored = (
        left_in(play.turns[play.starts[number]]) for play in (failed, closed, plain)
    )
    ends = any(isinstance(e, Closed) for e in failed.turns[failed.starts[number]].events)
    for way, data in after.items():
        if ends and not goodbye.get(way, b"").startswith(data):
            raise PropertyError(
                f"{failed.turns[failed.starts[number]].operation}, and yet {way} got {data!r}"
            )
        if not ends and data == stored.get(way):
            raise PropertyError(f"failed or not, {way} got {data!r}")


def left_in(turn: Turn) -> dict[Hashable, bytes]:
    """The bytes that left, by destination."""
    left: dict[Hashable, bytes] = {}
    for way, data in (("the peer", turn.sent), *turn.datagrams, *turn.links):
        left[way] = left.get(way, b"") + data
    return {way: data for way, data in left.items() if data}


def _answer_oddly(
    spec: MachineSpec, told: Conversation, story: Story, number: int, draw: Draw
) -> None:
    """Give another acceptable answer, after which the machine at most ends."""

    def responder(play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        declared = answer_type(type(effect))
        odd = [v for v in values(right.result) if conforms(v, declared) and effect.accepts(v)]
        answer = Complete(effect.ticket, pick(odd or [right.result], draw))
        if (error := play.do(answer).error) is not None:
            raise PropertyError(f"{effect} accepts {answer.result!r}, but: {error}")

    play = Play(spec, told, otherwise(number, responder)).run(story).end()
    check_closed(play.driver, play.turns)
    if play.driver.closed is None:
        raise PropertyError("an odd answer, eof, close and all deadlines past: no Closed")


def answer_type(kind: type[Effect[Any]]) -> Any:
    """The ``R`` that the class `kind` declares as an ``Effect[R]``.

    Raises `PropertyError` if it declares none.
    """
    found = _declared(kind)
    if found is None or isinstance(found, TypeVar):
        raise PropertyError(f"{kind.__name__} is no Effect[R]: the type of its answer is unknown")
    return found


def _declared(kind: type) -> Any:
    """The argument of `Effect` in the bases of a class: a type, a variable or none."""
    bases: tuple[Any, ...] = kind.__dict__.get("__orig_bases__", kind.__bases__)
    for base in bases:
        origin = get_origin(base) or base
        if Effect not in origin.__mro__:
            continue
        given = get_args(base)
        found = _declared(origin) if origin is not Effect else None
        if origin is Effect or isinstance(found, TypeVar):
            return given[0] if given else None
        return found
    return None


def conforms(value: object, declared: Any) -> bool:
    """Whether `value` is of the declared type; a bool is no int here."""
    origin, given = get_origin(declared), get_args(declared)
    if declared is Any or declared is object:
        return True
    if declared is None or declared is NoneType:
        return value is None
    if origin in (Union, UnionType):
        return any(conforms(value, each) for each in given)
    if origin is not None and is_dict(value):
        pairs = len(given) == 2 and issubclass(dict, origin)
        return pairs and all(
            conforms(k, given[0]) and conforms(v, given[1]) for k, v in value.items()
        )
    if origin is not None:
        if not isinstance(value, Iterable) or not isinstance(value, origin):
            return False
        return all(conforms(each, given[0]) for each in cast("Iterable[object]", value))
    return isinstance(value, declared) and not (declared is int and isinstance(value, bool))


def values(right: object) -> Iterator[object]:
    """Values of all kinds, and some that are nearly `right`."""
    yield from (None, False, True, 0, 1, -1, 1 << 64, 0.5, float("nan"), "", "text", b"nonsense")
    yield from ((), [], {}, set(), [None], [object()], {0: None}, {0: b""}, object(), type(right))
    yield from (OSError("disk full"), StoreFault(), lambda: right, iter(()), str(right))
    yield from _near(right)


def _near(right: Any) -> Iterator[object]:
    if isinstance(right, bytes):
        yield from (right + bytes(1 << 17), bytearray(right), memoryview(right), right[:-1])
    elif is_list(right):
        yield from (tuple(right), [*right, object()], [*right, None], [*right, *right], right[::-1])
        yield from ([each] for item in right[:2] for each in _near(item))
    elif type(right) is tuple:
        some: tuple[Any, ...] = cast(Any, right)
        yield from (list(some), (*some, object()), (*some, None), some * 2, some[::-1])
        yield from ((each,) for item in some[:2] for each in _near(item))
    elif is_dict(right):
        yield from ({**right, -1: b""}, {**right, "": b""}, list(right), dict.fromkeys(right))
        yield from (dict.fromkeys(right, each) for each in (b"", "", 0))
    elif hasattr(right, "_fields"):  # a named tuple
        yield tuple(right)
        yield from (right._replace(**{name: each}) for name in right._fields for each in _FIELDS)
    elif is_dataclass(right) and not isinstance(right, type):
        for field in fields(right):
            for each in _FIELDS:
                try:
                    yield replace(right, **{field.name: each})
                except Exception:  # its constructor rightly checks its fields
                    continue


def every_receipt(spec: MachineSpec) -> None:
    """The law of `receipts` for unchanged conversations."""
    for told in conversations(spec):
        with retold(spec, told):
            with watchdog():
                plain = _Answered(spec, told)
            for effect in plain.keeping[:: len(plain.keeping) // _TRIED_MAX + 1]:
                with watchdog():
                    plain.check(effect)


def receipts(spec: MachineSpec, draw: Draw) -> None:
    """No peer is told that something is kept before the store has kept it.

    Output before an answer cannot depend on it.  So if a message that may confirm items
    (`Comparison.confirms`) leaves together with the effect that keeps them (`Comparison.kept`),
    more such messages have to come when the store answers than when it never does.  Otherwise all
    was confirmed beforehand.  Conversations are not changed: a changed one may end before the
    confirmation would come.
    """
    told = conversation(spec, draw)
    with retold(spec, told):
        plain = _Answered(spec, told)
        if plain.keeping:
            plain.check(pick(plain.keeping, draw))


class _Answered:
    """A conversation whose effects have all been answered.

    keeping: those that keep items, by number.
    """

    def __init__(self, spec: MachineSpec, told: Conversation) -> None:
        self._spec, self._told = spec, told
        self._effects: list[Effect[Any]] = []
        self._turns = Play(spec, told, self._note).run(list(told.operations)).turns
        kept = spec.comparison.kept
        assert kept is not None
        self.keeping = [at for at, effect in enumerate(self._effects) if [*kept(effect)]]

    def _note(self, play: Play, number: int, effect: Effect[Any], right: Complete) -> None:
        self._effects.append(effect)
        rightly(play, number, effect, right)

    def check(self, number: int) -> None:
        """Raise `PropertyError` if all confirmations come without the answer to that effect."""
        effect = self._effects[number]
        at = next(at for at, turn in enumerate(self._turns) if effect in turn.effects)
        early = self._confirming(effect, [self._turns[at]])
        if not early:
            return
        withheld = Play(self._spec, self._told, otherwise(number, unanswered))
        waiting = withheld.run(list(self._told.operations)).turns
        if self._confirming(effect, waiting[at:]) == self._confirming(effect, self._turns[at:]):
            raise PropertyError(f"{effect} is not answered, and yet confirmed: {early}")

    def _confirming(
        self, effect: Effect[Any], turns: Sequence[Turn]
    ) -> list[tuple[Hashable, bytes]]:
        """The messages that may confirm the items of an effect, each with its destination."""
        confirms, cut = self._spec.comparison.confirms, self._spec.machine.codec.cut
        return [
            (way, message)
            for turn in turns
            for way, data in left_in(turn).items()
            for message in cut(data)
            if confirms(effect, message)
        ]
