"""Rounds about ranges in a compact form, the specification of `Exchange` in ``_tree``.

Two sides take turns.  Each keeps a list of the ranges that it has *asked* about in its last
round, and makes one of *questions* while it hears the other's.  Ranges are of keys: from a
lower bound up to, not including, an upper one, which may be the end of all keys.  In the
beginning everything is asked about.

**Numbers** are unsigned LEB128 of at most nine bytes in their shortest form; one that may be
negative is 2n, or -2n - 1 below zero.  A **sum** is the low `width` bytes, little-endian, of
the combined states of the items, and left out where the count is 0.  An **id** is 32 bits made
of an item's short, little-endian (`culm.kernels.pure_items`).  A **bound** is a byte, `shared`
in the high and `size` in the low 4 bits (15: the excess over 15 follows as a number, that for
`shared` first), then `size` bytes, which follow the first `shared` of the bound before it: the
lower one of the range, or of the part.  An **item** is its bytes after those with which both
bounds of its range begin (none, if that goes up to the end), for items of varying size with a
number before it, of these bytes.

A **round** answers the ranges that were asked about, in their order: for each group of 8, the
last one shorter, a byte whose bits, the lowest first, say of which of them there is anything to
be said; then that.  In the others the sets are equal.  An answer begins with a byte: its kind
in the low 4 bits, in the high ones `n` (15: the excess over 15 follows as a number, but for 7
and 8).

== ===== ============================================================ =====================
n  name  what follows                                                 asks about
== ===== ============================================================ =====================
0  items `n` items that you lack                                      nothing
1  items the same, and more is said of the range                      nothing
2  keys  `n` parts, between equal steps in the keys                   each part
3  ranks `n` parts, with about as many items each                     each part
4  list  the ids of my `n` items                                      the range
5  list  an upper bound, the ids of my `n` items below; lists follow  that part
6  sum   my count and sum; `n` is 0                                   the range
7  want  which of the items that you have listed I lack               the range, if any
8  want  the same, and my items that you have not listed follow       the range, if any
== ===== ============================================================ =====================

In 2, 3 and 6 the count comes first, as a difference to the other side's last count for the range
(to 0 in the beginning).  Of the parts, one by one, come then: in 2 the difference of the count to
an equal share (not of the last one), in 3 the upper bound (not of the last one), then the sum.  The
share of part i of a count c is ``c * (i + 1) // n - c * i // n``.  In 7 and 8 `n` has the bits if
at most four items were listed, else as many bytes as are needed follow.  On 1 and 8 follows 0 or 1,
on 5 follows 4 or 5.

**Equal steps**: the first 8 bytes of both bounds after their common beginning, with zeros after
their ends, are numbers l < u, where u is 2**64 for the end of all keys; u - l is at least n.
Part i begins at ``l + (u - l) * i // n``, written without the zeros at its end.

In an **explicit** round nothing has to be remembered: it is a row of lower bounds (cut against
the upper bound before), upper bounds (cut against the lower one; an empty one is the end), and
the answer for that range, counts being differences to 0.  A side that is asked so says no
lists.

Faults are numbers: those of `culm.kernels.pure_rounds.Fault`.
"""

from __future__ import annotations

from culm.kernels.pure_hearing import Hearing
from culm.kernels.pure_items import Items, View
from culm.kernels.pure_rounds import Asked, Faulty, Form, Heard, Open, Question, Reader
from culm.kernels.pure_saying import Plan, Saying

__all__ = ["Exchange"]

_NUMBER_MAX = 2**31 - 1


class Exchange:
    """One side of an exchange of rounds, over a view of its items as they are now.

    `width` is how many bytes of a sum travel, 1 to 8, `salt`, of 64 bits, makes the ids of
    items; we may be asked about `ranges_max` ranges in a round.
    A `key` of 16 bytes makes their states: 128 bits of SipHash-2-4, little-endian; if it is
    empty, they are those of the view.  Both sides have the same.  `form` is 0, or 1 if our
    rounds are explicit, 2 if the other side's are.
    """

    def __init__(
        self,
        view: View,
        width: int,
        salt: int,
        ranges_max: int,
        key: bytes = b"",
        form: int = Form.PLAIN,
    ) -> None:
        if not 1 <= width <= 8:
            raise ValueError("1 to 8 bytes of a sum travel")
        if len(key) not in (0, 16):
            raise ValueError("a key has 16 bytes")
        if form not in list(Form):
            raise ValueError(f"{form} is no form of rounds")
        if not 0 <= salt < 2**64:
            raise OverflowError("a salt has 64 bits")
        self._width, self._form, self._ranges_max = width, Form(form), ranges_max
        self._items = Items(view.still(), width, salt, key)
        self._hearing = self._hear_about([])
        self._saying = self._say_about([], 0)

    def _hear_about(self, asked: list[Open]) -> Hearing:
        return Hearing(self._items, self._width, self._form, self._ranges_max, asked)

    def _say_about(self, questions: list[Heard], skipped: int) -> Saying:
        return Saying(self._items, self._width, self._form, questions, skipped)

    def begin(self) -> None:
        """We speak first: that something differs is all that is known."""
        everything = Heard(b"", None, 0, len(self._items.view), Question.UNKNOWN)
        self._hearing = self._hear_about([])
        self._saying = self._say_about([everything], 0)

    def expect(self) -> None:
        """The other side speaks first: everything has been asked about."""
        self._saying = self._say_about([], 0)
        self._saying.asked.append(Open(b"", None, 0, len(self._items.view), Asked.SUM))
        self.listen()

    def listen(self) -> None:
        """Our round is over, the other side's begins."""
        self._hearing = self._hear_about(self._saying.asked)

    def speak(self) -> None:
        """The other side's round is over, ours begins."""
        self._saying = self._say_about(self._hearing.questions, self._hearing.skipped)

    @property
    def asked(self) -> int:
        """About how many ranges we have asked in our round."""
        return len(self._saying.asked)

    @property
    def answered(self) -> int:
        """The ranges asked about by us that have been answered."""
        return self._hearing.answered

    @property
    def left(self) -> int:
        """The number of questions still to be answered by us."""
        return self._saying.left

    @property
    def is_over(self) -> bool:
        """Whether we have said all of our round."""
        return self._saying.is_over

    @property
    def estimate(self) -> tuple[int, int, int, int]:
        """Of the sums in this round of the other side: how many, and how many are not ours.

        Then, of our counts less theirs, the sum and the sum of squares, each of them counting for
        2**20 at most.
        """
        return self._hearing.estimate

    @property
    def union(self) -> tuple[int, bytes]:
        """The count and the state of our items and of all that we have heard."""
        return self._items.union

    def shorts(self, start: int, count: int) -> bytes:
        """The shorts of our items in a range of ranks: 8 bytes each, little-endian."""
        if not 0 <= start <= start + count <= len(self._items.view):
            raise ValueError("no such items")
        shorts = self._items.shorts(start, count)
        return b"".join(short.to_bytes(8, "little") for short in shorts)

    def add(self, item: bytes) -> int:
        """An item that we lack, and have been sent, belongs to the union; its short."""
        if len(item) > self._items.view.item_size:
            raise ValueError("an item that is too large")
        return self._items.add(item)

    def hear(self, data: bytes, until: int) -> tuple[int, list[bytes]]:
        """Hear a piece of a round, with answers about the ranges up to number `until`.

        Pieces are cut where something said ends.  The result is a `Fault`, or 0 and the items
        that we lack.
        """
        if until > self.asked:
            raise ValueError("fewer ranges were asked about")
        items: list[bytes] = []
        try:
            self._hearing.hear(Reader(data), until, items)
        except Faulty as faulty:
            return int(faulty.fault), []
        return 0, items

    def say(
        self,
        size: int,
        asked_max: int,
        threshold: int,
        parts: int,
        expected: int,
        branching: int = 0,
        listing: bool = False,
    ) -> bytes:
        """A piece of our round, of about `size` bytes; empty when it is over.

        The other side may be asked about `asked_max` ranges; once that is so for a quarter of
        them, no more are split.
        Ranges of at most `threshold` items are listed, with `listing` all.  Others are split into
        `branching` parts, or if that is 0, into `parts` for each of the differences `expected`
        in them, both in thousandths.
        """
        if threshold < 1:
            raise ValueError("a threshold is at least 1")
        if not all(0 <= number <= _NUMBER_MAX for number in (parts, expected, branching)):
            raise OverflowError("more than 31 bits")
        plan = Plan(asked_max, threshold, parts, expected, branching, bool(listing))
        return self._saying.say(size, plan)
