"""Signatures that are verified outside of a machine, on the cores that its driver has.

A machine that leaves them to its driver asks with `Verify`, many at a time.  `verify` answers, in
any thread: the interpreter's lock is released meanwhile.  `Verification` keeps the order of
items that wait for verdicts.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

from culm import kernels
from culm.arguments import is_list
from culm.buffer import take_first
from culm.effects import StoreWork
from culm.machine import Effect

T = TypeVar("T")

_BOOL: Final = {bool}

Ask: TypeAlias = Callable[["tuple[Signed, ...]", Callable[[list[bool]], None]], None]


class Signed(NamedTuple):
    """A message with its Ed25519 signature.

    key: the public key, 32 bytes.
    signature: 64 bytes.
    """

    key: bytes
    signature: bytes
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(Effect[list[bool]]):
    """Whether each message was signed with its key; answered with a verdict for each, in order.

    `verify` tells.  Nothing that waits for a verdict has been told, stored or passed on.  If it
    fails, that is to the machine as if its store had failed.
    """

    signatures: tuple[Signed, ...]

    def accepts(self, result: object) -> TypeGuard[list[bool]]:
        if not is_list(result) or len(result) != len(self.signatures):
            return False
        return set(map(type, result)) <= _BOOL


def verify(signatures: Sequence[Signed]) -> list[bool]:
    """The verdict on each, by libsodium's rules (`culm.bamboo.entry.verify_signature`)."""
    if not signatures:
        return []
    keys, signed, messages = zip(*signatures, strict=True)
    offsets = array("q", accumulate(map(len, messages), initial=0))
    verify_many = kernels.hashing.verify_many  # imported now: most pumps verify nothing
    verdicts = verify_many(b"".join(keys), b"".join(signed), b"".join(messages), offsets, 0)
    return list(map(bool, verdicts))


def with_signatures(perform: Callable[[Effect[Any]], object]) -> Callable[[Effect[Any]], object]:
    """`perform` of a store, which verifies signatures as well."""

    def performs(effect: Effect[Any]) -> object:
        return verify(effect.signatures) if isinstance(effect, Verify) else perform(effect)

    return performs


def asks(work: StoreWork) -> Ask:
    """An `Ask` that issues `Verify` effects of `work`."""
    return lambda signatures, then: work.ask(Verify, then, signatures=signatures)


class _Asked(Generic[T]):
    """Items that were asked about together, and which of them have a signature."""

    __slots__ = ("_items", "_signed", "verdicts")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._signed: list[bool] = []
        self.verdicts: list[bool] | None = None

    def add(self, item: T, *, signed: bool) -> None:
        self._items.append(item)
        self._signed.append(signed)

    def answer(self, verdicts: list[bool]) -> None:
        self.verdicts = verdicts

    def __iter__(self) -> Iterator[tuple[T, bool | None]]:
        """The items with the verdicts, once there are any."""
        verdicts = iter(self.verdicts or ())
        for item, signed in zip(self._items, self._signed, strict=True):
            yield item, next(verdicts) if signed else None


class Verification(Generic[T]):
    """Items that go on, in the order in which they came, as soon as their signatures are verified.

    ask: has signatures verified; see `asks`.
    count_max: Signatures that are out at a time.
    then: gets items, each with the verdict on its signature; ``None`` for one without.
    """

    __slots__ = ("_ask", "_asked", "_count", "_count_max", "_last", "_then", "_waiting")

    def __init__(
        self, ask: Ask, *, count_max: int, then: Callable[[Iterable[tuple[T, bool | None]]], None]
    ) -> None:
        self._ask = ask
        self._count_max = count_max
        self._then = then
        self._last = 0  # number of an item
        # The first has a signature.
        self._waiting: OrderedDict[int, tuple[T, Signed | None]] = OrderedDict()
        self._asked: deque[_Asked[T]] = deque()
        self._count = 0  # of signatures that are out

    def add(self, item: T, signed: Signed | None) -> int:
        """Take an item; without a signature it waits only for those before it.

        Returns a number, for `discard`.
        """
        self._last += 1
        if signed is not None or self._waiting:
            self._waiting[self._last] = item, signed
        elif self._asked:
            self._asked[-1].add(item, signed=False)
        else:
            self._then([(item, None)])
        return self._last

    def discard(self, number: int) -> None:
        """Forget an item, unless it is asked about already; only where all have signatures."""
        self._waiting.pop(number, None)

    def ask(self) -> bool:
        """Ask about new items, as far as there is room; whether there was anything to ask.

        Call it when effects are taken, so that all items until then go together.
        """
        asked, signatures = _Asked[T](), list[Signed]()
        room = self._count_max - self._count
        while self._waiting:
            item, signed = next(iter(self._waiting.values()))
            if signed is not None:
                if len(signatures) == room:
                    break
                signatures.append(signed)
            take_first(self._waiting)
            asked.add(item, signed=signed is not None)
        if signatures:
            self._count += len(signatures)
            self._asked.append(asked)
            self._ask(tuple(signatures), partial(self._answered, asked))
        return bool(signatures)

    def _answered(self, asked: _Asked[T], verdicts: list[bool]) -> None:
        asked.answer(verdicts)
        self._count -= len(verdicts)
        while self._asked and self._asked[0].verdicts is not None:
            self._then(self._asked.popleft())
