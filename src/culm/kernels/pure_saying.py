"""The pure twin of `Exchange`, sending: its own rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from culm.kernels.pure_items import Items
from culm.kernels.pure_rounds import (
    FEW_LISTED,
    FULL_SHARE,
    GROUP,
    ID_SIZE,
    KEYS_MAX,
    LIST_MAX,
    RANKS_ROOM,
    Asked,
    Form,
    Heard,
    Open,
    Question,
    Range,
    Said,
    put_bound,
    put_difference,
    put_number,
    put_said,
    separator,
    share,
    steps,
)

_UNIT = 1000
_CLAMP = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers to ranges: see `Exchange.say`."""

    asked_max: int
    threshold: int
    parts: int
    expected: int
    branching: int
    listing: bool


class Saying:
    """One round of ours, as it is said: the ranges that it asks about."""

    def __init__(
        self, items: Items, width: int, form: Form, questions: Sequence[Heard], skipped: int
    ) -> None:
        self._items, self._view, self._width = items, items.view, width
        self._form = form
        self._questions, self._skipped = questions, skipped
        self.asked: list[Open] = []
        self._next = 0
        self._passed = 0  # equal ranges before the next question that have been passed over
        self._group = 0  # questions left in a group that has begun
        self._before = b""

    @property
    def left(self) -> int:
        """The number of unanswered questions."""
        return len(self._questions) - self._next

    @property
    def is_over(self) -> bool:
        """Whether everything has been said."""
        explicit = self._form is Form.ASKING
        return not self.left and (explicit or self._passed == self._skipped)

    def say(self, size: int, plan: Plan) -> bytes:
        """A piece of the round, of about `size` bytes; empty when it is over."""
        out = bytearray()
        self._before = b""
        while len(out) < size and not self.is_over:
            if self._form is not Form.ASKING and not self._group:
                self._begin_group(out)
            elif self._answer(self._questions[self._next], out, size, plan):
                self._next += 1
                self._group -= 1
                if self._form is Form.ASKING:
                    self._group = self._passed = 0
        return bytes(out)

    def _begin_group(self, out: bytearray) -> None:
        """Say of the next ranges which of them are not equal."""
        flags, at = 0, self._next
        for place in range(GROUP):
            is_end = at == len(self._questions)
            if self._passed < (self._skipped if is_end else self._questions[at].skip):
                self._passed += 1
            elif not is_end:
                flags |= 1 << place
                at += 1
                self._passed = 0
        self._group = at - self._next
        out.append(flags)

    def _answer(self, question: Heard, out: bytearray, size: int, plan: Plan) -> bool:
        """Say something of a range; whether that is all."""
        if question.kind is Question.LIST:
            if self._say_wanted(question, out):
                return True
        elif question.kind in (Question.SUM, Question.UNKNOWN) and self._compare(
            question, out, plan
        ):
            return True
        if question.kind is Question.SEND:
            return self._say_items(question, out, size)
        return self._say_list(question, out)

    def _compare(self, question: Heard, out: bytearray, plan: Plan) -> bool:
        """Answer a sum that is not ours; whether that is all, or else how it goes on."""
        start, count, is_told = question.start, question.count, question.kind is Question.SUM
        if is_told and not question.theirs:
            return _go_on(question, Question.SEND, range(start, start + count))
        if not count:
            return self._say_sum(question, out)
        difference = count - question.theirs
        if is_told and self._items.can_name(abs(difference), max(count, question.theirs)):
            if difference > 0:
                wanted = self._items.minus(question.sum, question.their_sum)
                named = self._items.named(difference, wanted, start, count)
                if named:
                    return _go_on(question, Question.SEND, named)
            elif not (question.echo or plan.listing):
                return self._say_sum(question, out)
        is_full = len(self.asked) > plan.asked_max // FULL_SHARE
        if not (plan.listing or count <= plan.threshold or is_full):
            return self._say_parts(question, out, self._parts(question, plan))
        if self._form is Form.ANSWERING:
            return self._say_sum(question, out)
        return _go_on(question, Question.GO_ON, range(start, start + count))

    def _enter(self, out: bytearray, whole: Range) -> None:
        """Begin a statement about that range."""
        if self._form is Form.ASKING:
            put_bound(out, whole.lower, self._before)
            put_bound(out, whole.upper or b"", whole.lower)
            self._before = whole.upper or b""

    def _base(self, question: Heard) -> int:
        """The base of counts that are told as differences."""
        return 0 if self._form is Form.ASKING else question.theirs

    def _put_sum(self, out: bytearray, start: int, count: int) -> None:
        if count:
            out += self._items.sum(start, count).to_bytes(self._width, "little")

    def _ask(self, whole: Range, kind: Asked) -> None:
        self.asked.append(
            Open(whole.lower, whole.upper, whole.start, whole.count, kind, base=whole.count)
        )

    def _say_sum(self, question: Heard, out: bytearray) -> bool:
        self._enter(out, question)
        put_said(out, Said.SUM, 0)
        put_difference(out, question.count - self._base(question))
        self._put_sum(out, question.start, question.count)
        self._ask(question, Asked.SUM)
        return True

    def _parts(self, question: Heard, plan: Plan) -> int:
        """Into how many parts a range is split, if that can be."""
        parts = plan.branching
        if not parts:
            difference = 0
            if question.kind is Question.SUM:
                difference = min(abs(question.count - question.theirs), _CLAMP)
            least = max(difference, 3 if difference % 2 else 2)
            parts = -(-plan.parts * max(plan.expected, _UNIT * least) // _UNIT**2)
        parts_max = min(KEYS_MAX, plan.asked_max // FULL_SHARE)
        return max(2, min(parts, 2 * question.count // plan.threshold, parts_max))

    def _say_parts(self, question: Heard, out: bytearray, parts: int) -> bool:
        """Split a range: at equal steps in the keys if our items are spread over them."""
        start, count, item_size = question.start, question.count, self._view.item_size
        bounds = steps(question, parts, item_size)
        cuts: list[int] = []
        if bounds is not None:
            cuts = [start, *map(self._view.rank, bounds), start + count]
            largest = max(high - low for low, high in pairwise(cuts))
            if largest == count or largest > 2 * count // parts + 16:
                bounds = None
        said = Said.KEYS
        if bounds is None:
            said = Said.RANKS
            parts = max(2, min(parts, count, RANKS_ROOM // (item_size + 24)))
            cuts = [start + count * part // parts for part in range(parts + 1)]
            bounds = [
                separator(self._view.select(cut - 1), self._view.select(cut)) for cut in cuts[1:-1]
            ]
        self._enter(out, question)
        put_said(out, said, parts)
        put_difference(out, count - self._base(question))
        lower = question.lower
        for part, (low, high) in enumerate(pairwise(cuts)):
            upper = question.upper
            if part < parts - 1:
                upper = bounds[part]
                if said is Said.RANKS:
                    put_bound(out, upper, lower)
                else:
                    put_difference(out, high - low - share(count, parts, part))
            self._put_sum(out, low, high - low)
            self._ask(Range(lower, upper, low, high - low), Asked.SUM)
            lower = upper or b""
        return True

    def _say_items(self, question: Heard, out: bytearray, size: int) -> bool:
        """Say as many of our items as there is room for; whether they are all."""
        done, ranks, view = question.done, question.ranks, self._view
        room = (size - len(out)) // (view.item_size + 2)
        count = min(len(ranks) - done, max(room, 1))
        question.done += count
        is_all = question.done == len(ranks)
        part = Range(question.lower, question.upper, 0, 0)
        if self._form is Form.ASKING and not is_all:
            question.lower = part.upper = view.select(ranks[question.done])
        self._enter(out, part)
        is_last = is_all or self._form is Form.ASKING
        put_said(out, Said.ITEMS if is_last else Said.ITEMS_MORE, count)
        cut = part.cut
        for rank in ranks[done : question.done]:
            item = view.select(rank)
            if view.varying:
                put_number(out, len(item) - cut)
            out += item[cut:]
        return is_all

    def _say_list(self, question: Heard, out: bytearray) -> bool:
        """Say the ids of as many of our items as one list has; whether they are all."""
        done, ranks, view = question.done, question.ranks, self._view
        count = min(len(ranks) - done, LIST_MAX)
        question.done += count
        is_all = question.done == len(ranks)
        part = Range(question.lower, question.upper, question.start + done, count)
        if not is_all:
            next_rank = ranks[question.done]
            part.upper = separator(view.select(next_rank - 1), view.select(next_rank))
            question.lower = part.upper
        self._enter(out, part)
        is_last = is_all or self._form is Form.ASKING
        put_said(out, Said.LIST if is_last else Said.LIST_PART, count)
        if not is_last:
            assert part.upper is not None
            put_bound(out, part.upper, part.lower)
        for number in self._items.ids(part.start, count):
            out += number.to_bytes(ID_SIZE, "little")
        self._ask(part, Asked.LIST)
        return is_all

    def _say_wanted(self, question: Heard, out: bytearray) -> bool:
        """Answer a list: which of its items we lack; whether we have none besides."""
        start, own = question.start, self._items.ids(question.start, question.count)
        listed, known = set(question.ids), set(own)
        besides = [start + at for at, number in enumerate(own) if number not in listed]
        bits = sum(1 << at for at, number in enumerate(question.ids) if number not in known)
        if bits or not besides:
            said = Said.WANT_MORE if besides else Said.WANT
            is_few = len(question.ids) <= FEW_LISTED
            out.append(said | bits << 4 if is_few else said)
            if not is_few:
                out += bits.to_bytes(-(-len(question.ids) // 8), "little")
            if bits:
                self._ask(question, Asked.WANT)
        if besides:
            _go_on(question, Question.SEND, besides)
        return not besides


def _go_on(question: Heard, kind: Question, ranks: Sequence[int]) -> bool:
    """Note that more has to be said: of our items of these ranks."""
    question.kind, question.ranks = kind, ranks
    return False
