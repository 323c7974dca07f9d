"""Signatures that are verified outside of a machine, on the cores that its driver has.

A machine that leaves them to its driver asks with `Verify`, many at a time.  `verify` answers, in
any thread: the interpreter's lock is released meanwhile.  `Verification` keeps the order of what
waits for verdicts.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count
from typing import Any, Final, Generic, NamedTuple, TypeGuard, TypeVar

from culm.arguments import is_list
from culm.effects import StoreWork
from culm.kernels import hashing
from culm.machine import Effect

__all__ = ["Signed", "Verification", "Verify", "verify", "with_signatures"]

T = TypeVar("T")

_BOOL: Final = {bool}


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

    `verify` tells.  Nothing of what waits for a verdict has been told, stored or passed on.  If it
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
    verdicts = hashing.verify_many(b"".join(keys), b"".join(signed), b"".join(messages), offsets, 0)
    return list(map(bool, verdicts))


def with_signatures(perform: Callable[[Effect[Any]], object]) -> Callable[[Effect[Any]], object]:
    """`perform` of a store, which verifies signatures as well."""

    def performs(effect: Effect[Any]) -> object:
        return verify(effect.signatures) if isinstance(effect, Verify) else perform(effect)

    return performs


class Verification(Generic[T]):
    """Items that go on, in the order in which they came, as soon as their signatures are verified.

    work: what asks.
    count_max: Signatures that are asked about at a time; those of one item may exceed it.
    then: gets each item with the verdicts on its signatures.
    """

    __slots__ = (
        "_asked",
        "_count",
        "_count_max",
        "_numbers",
        "_then",
        "_verdicts",
        "_waiting",
        "_work",
    )

    def __init__(
        self, work: StoreWork, *, count_max: int, then: Callable[[T, list[bool]], None]
    ) -> None:
        self._work = work
        self._count_max = count_max
        self._then = then
        self._numbers = count()
        self._waiting: deque[tuple[T, tuple[Signed, ...]]] = deque()  # not asked about yet
        self._asked: deque[tuple[int, T]] = deque()
        self._verdicts: dict[int, list[bool]] = {}  # on those that others have to go before
        self._count = 0  # of signatures without a verdict

    def add(self, item: T, signatures: Sequence[Signed]) -> None:
        """Take an item; without signatures it waits only for those before it."""
        self._waiting.append((item, tuple(signatures)))
        self._ask()
        self._go_on()

    def _ask(self) -> None:
        while self._waiting:
            item, signatures = self._waiting[0]
            if self._count and self._count + len(signatures) > self._count_max:
                return
            self._waiting.popleft()
            number = next(self._numbers)
            self._asked.append((number, item))
            if signatures:
                self._count += len(signatures)
                self._work.ask(Verify, partial(self._answered, number), signatures=signatures)
            else:
                self._verdicts[number] = []

    def _answered(self, number: int, verdicts: list[bool]) -> None:
        self._verdicts[number] = verdicts
        self._count -= len(verdicts)
        self._ask()
        self._go_on()

    def _go_on(self) -> None:
        while self._asked and self._asked[0][0] in self._verdicts:
            number, item = self._asked.popleft()
            self._then(item, self._verdicts.pop(number))
