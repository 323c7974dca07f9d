"""The pure twin of `Exchange`, receiving: the other side's rounds."""

from __future__ import annotations

from collections.abc import Sequence

from culm.kernels.pure_items import Items
from culm.kernels.pure_rounds import (
    FEW_LISTED,
    GROUP,
    ID_SIZE,
    KEYS_MAX,
    LIST_MAX,
    Asked,
    Fault,
    Faulty,
    Form,
    Heard,
    Open,
    Question,
    Range,
    Reader,
    Said,
    bound_size_max,
    share,
    steps,
)

_CLAMP = 1 << 20

ITEMS = {Said.ITEMS, Said.ITEMS_MORE}
LISTS = {Said.LIST, Said.LIST_PART}
WANTS = {Said.WANT, Said.WANT_MORE}

#: The answers allowed for a range, by the form of the question.
ALLOWED = {
    Asked.SUM: set(Said) - WANTS,
    Asked.LIST: ITEMS | WANTS,
    Asked.WANT: ITEMS,
    Asked.ANYTHING: set(Said) - WANTS,
}
#: The sequels allowed for the same range, after an incomplete answer.
FOLLOWS = {Said.ITEMS_MORE: ITEMS, Said.WANT_MORE: ITEMS, Said.LIST_PART: LISTS}


class Hearing:
    """One round of the other side, as it is heard: the questions that it asks."""

    def __init__(
        self, items: Items, width: int, form: Form, ranges_max: int, asked: Sequence[Open]
    ) -> None:
        self._items, self._view, self._width = items, items.view, width
        self._form, self._ranges_max = form, ranges_max
        self._asked = asked
        self.answered = 0
        self.questions: list[Heard] = []
        self.skipped = 0  # equal ranges after the last question
        self.estimate = (0, 0, 0, 0)
        self._told = 0
        self._group = self._flags = 0
        self._enter(None)

    def hear(self, reader: Reader, until: int, items: list[bytes]) -> None:
        """Hear a piece; raises `Faulty`.  New items are appended to `items`."""
        before: bytes | None = b""
        while reader:
            if self._form is Form.ANSWERING:
                before = self._hear_explicit(reader, before, items)
            elif not self._group:
                self._hear_group(reader, until)
            elif self._hear_said(reader, self._asked[self.answered], items):
                self._pass()
                self._pass_equal()

    def _hear_group(self, reader: Reader, until: int) -> None:
        if self.answered >= until:
            raise Faulty(Fault.MORE)
        self._group = min(GROUP, until - self.answered)
        self._flags = reader.byte()
        if self._flags >> self._group:
            raise Faulty(Fault.KIND)
        self._pass_equal()

    def _pass_equal(self) -> None:
        while self._group and not self._flags & 1:
            self._pass()
        if self._group:
            self._enter(self._asked[self.answered])

    def _pass(self) -> None:
        self.answered += 1
        self._group -= 1
        self._flags >>= 1

    def _enter(self, asked: Open | None) -> None:
        """Take the range that the following statement is about."""
        self._only: set[Said] | None = None
        self._last: bytes | None = None
        self._lower = asked.lower if asked else b""
        self._start = asked.start if asked else 0

    def _hear_explicit(
        self, reader: Reader, before: bytes | None, items: list[bytes]
    ) -> bytes | None:
        """One range with its bounds; the result is its upper one."""
        if before is None:
            raise Faulty(Fault.BOUND)
        size_max = bound_size_max(self._view.item_size)
        lower = reader.bound(before, size_max)
        upper = reader.bound(lower, size_max) or None
        if lower < before or (upper is not None and upper <= lower):
            raise Faulty(Fault.BOUND)
        start = self._view.rank(lower)
        asked = Open(lower, upper, start, self._rank_of(upper) - start, Asked.ANYTHING)
        self._enter(asked)
        while not self._hear_said(reader, asked, items):
            pass
        return upper

    def _rank_of(self, bound: bytes | None) -> int:
        return len(self._view) if bound is None else self._view.rank(bound)

    def _hear_said(self, reader: Reader, asked: Open, items: list[bytes]) -> bool:
        """One thing that is said of a range; whether it is the last one."""
        byte = reader.byte()
        said, half = byte & 15, byte >> 4
        allowed = ALLOWED[asked.kind] if self._only is None else self._only
        if said not in allowed or (self._form is Form.ASKING and said in LISTS):
            raise Faulty(Fault.KIND)
        if said in ITEMS:
            self._hear_items(reader, reader.few(half), asked, items)
        elif said in LISTS:
            self._hear_list(reader, reader.few(half), asked, said == Said.LIST_PART)
        elif said in WANTS:
            self._hear_wanted(reader, half, asked)
        elif said == Said.SUM:
            self._hear_sum(reader, half, asked)
        else:
            self._hear_parts(reader, reader.few(half), asked, said == Said.KEYS)
        self._only = FOLLOWS.get(Said(said))
        return self._only is None

    def _hear_items(self, reader: Reader, count: int, asked: Open, items: list[bytes]) -> None:
        if count < 1:
            raise Faulty(Fault.NUMBER)
        cut, size_max = asked.cut, self._view.item_size
        for _ in range(count):
            size = reader.number() if self._view.varying else size_max - cut
            if not 0 <= size <= size_max - cut:
                raise Faulty(Fault.ITEM)
            item = asked.lower[:cut] + reader.take(size)
            if item < asked.lower or (asked.upper is not None and item >= asked.upper):
                raise Faulty(Fault.ITEM)
            if self._last is not None and item <= self._last:
                raise Faulty(Fault.ITEM)
            self._last = item
            if item not in self._view:
                self._items.add(item)
                items.append(item)

    def _hear_list(self, reader: Reader, count: int, asked: Open, is_part: bool) -> None:
        if not 1 <= count <= LIST_MAX:
            raise Faulty(Fault.NUMBER)
        upper, stop = asked.upper, asked.start + asked.count
        if is_part:
            upper = reader.bound(self._lower, self._view.item_size)
            if upper <= self._lower or (asked.upper is not None and upper >= asked.upper):
                raise Faulty(Fault.BOUND)
            stop = self._view.rank(upper)
        packed = reader.take(ID_SIZE * count)
        ids = [
            int.from_bytes(packed[at : at + ID_SIZE], "little")
            for at in range(0, len(packed), ID_SIZE)
        ]
        self._count_ranges(1)
        self._ask(
            Heard(self._lower, upper, self._start, stop - self._start, Question.LIST, ids=ids)
        )
        self._start = stop
        if upper is not None:
            self._lower = upper

    def _hear_wanted(self, reader: Reader, half: int, asked: Open) -> None:
        bits = half
        if asked.count > FEW_LISTED:
            if half:
                raise Faulty(Fault.NUMBER)
            bits = int.from_bytes(reader.take(-(-asked.count // 8)), "little")
        if bits >> asked.count:
            raise Faulty(Fault.NUMBER)
        if bits:
            ranks = [asked.start + at for at in range(asked.count) if bits >> at & 1]
            self._count_ranges(1)
            self._ask(
                Heard(
                    asked.lower, asked.upper, asked.start, asked.count, Question.SEND, ranks=ranks
                )
            )

    def _hear_sum(self, reader: Reader, half: int, asked: Open) -> None:
        if half:
            raise Faulty(Fault.NUMBER)
        theirs = reader.count(asked.base)
        self._count_ranges(1)
        self._compare(asked, theirs, self._read_sum(reader, theirs), asked.kind is Asked.SUM)

    def _read_sum(self, reader: Reader, count: int) -> int:
        return int.from_bytes(reader.take(self._width), "little") if count else 0

    def _hear_parts(self, reader: Reader, parts: int, asked: Open, by_keys: bool) -> None:
        if not 2 <= parts <= KEYS_MAX:
            raise Faulty(Fault.NUMBER)
        bounds = steps(asked, parts, self._view.item_size) if by_keys else None
        if by_keys and bounds is None:
            raise Faulty(Fault.BOUND)
        theirs = left = reader.count(asked.base)
        if theirs < parts and not by_keys:
            raise Faulty(Fault.NUMBER)
        self._count_ranges(parts)
        lower, start = asked.lower, asked.start
        for part in range(parts):
            is_last = part == parts - 1
            count = share(theirs, parts, part)
            upper, stop = asked.upper, asked.start + asked.count
            if is_last:
                count = left
            elif bounds is not None:
                count, upper = reader.count(count), bounds[part]
            else:
                upper = self._read_between(reader, lower, asked.upper)
            if upper is not asked.upper:
                stop = self._rank_of(upper)
            left -= count
            if left < 0:
                raise Faulty(Fault.NUMBER)
            part_range = Range(lower, upper, start, stop - start)
            self._compare(part_range, count, self._read_sum(reader, count), False)
            assert upper is not None or is_last
            lower, start = upper or b"", stop

    def _read_between(self, reader: Reader, lower: bytes, upper: bytes | None) -> bytes:
        """A bound between two others."""
        bound = reader.bound(lower, self._view.item_size)
        if bound <= lower or (upper is not None and bound >= upper):
            raise Faulty(Fault.BOUND)
        return bound

    def _compare(self, whole: Range, theirs: int, their_sum: int, echo: bool) -> None:
        """They have told us of their items in a range."""
        mine = self._items.sum(whole.start, whole.count)
        difference = whole.count - theirs
        is_equal = not difference and mine == their_sum
        self._note(max(-_CLAMP, min(difference, _CLAMP)), is_equal)
        if is_equal:
            self.skipped += 1
            return
        self._ask(
            Heard(
                *(whole.lower, whole.upper, whole.start, whole.count, Question.SUM),
                sum=mine,
                theirs=theirs,
                their_sum=their_sum,
                echo=echo,
            )
        )

    def _note(self, difference: int, is_equal: bool) -> None:
        ranges, unequal, total, squares = self.estimate
        self.estimate = (
            ranges + 1,
            unequal + (not is_equal),
            total + difference,
            squares + difference * difference,
        )

    def _count_ranges(self, count: int) -> None:
        """Count that many further ranges asked about by the other side."""
        self._told += count
        if self._told > self._ranges_max:
            raise Faulty(Fault.RANGES)

    def _ask(self, question: Heard) -> None:
        question.skip, self.skipped = self.skipped, 0
        self.questions.append(question)
