"""Signatures that several threads of a driver verify at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

from culm.effects import Answer
from culm.machine import Effect
from culm.signatures import Signed, Verify, verify

# Fewer signatures are not worth the way to another thread and back.
_SHARE_MIN = 32


class _Shared:
    """An effect in shares, and the results of those that are done."""

    def __init__(self, owner: Verifiers, effect: Verify, count: int) -> None:
        self.owner = owner
        self.effect: Effect[list[bool]] = effect
        self.left = count  # shares that are not done
        self._verdicts: list[list[bool]] = [[]] * count
        self._error: Exception | None = None

    def take(self, number: int, result: list[bool] | Exception) -> None:
        self.left -= 1
        if isinstance(result, Exception):
            self._error = self._error or result
        else:
            self._verdicts[number] = result

    def answer(self) -> Answer[list[bool]]:
        if self._error is not None:
            return Answer(self.effect, None, self._error)
        return Answer(self.effect, list(chain.from_iterable(self._verdicts)), None)


class VerifyJob:
    """A share of the signatures of a `Verify`.

    Call it in any thread, also while others are under way: it never raises.  Pass it to the
    pump's `finish_verifying` in the pump's thread, whenever it is done.
    """

    __slots__ = ("_result", "_signatures", "number", "shared")

    def __init__(self, shared: _Shared, number: int, signatures: Sequence[Signed]) -> None:
        self.shared = shared
        self.number = number
        self._signatures = signatures
        self._result: list[bool] | Exception | None = None

    def __call__(self) -> None:
        try:
            self._result = verify(self._signatures)
        except Exception as error:
            self._result = error

    def failed(self, error: Exception) -> None:
        """Note, in place of a call, that it cannot be done."""
        self._result = error

    def take_result(self) -> list[bool] | Exception:
        """Its result, once; raises `ValueError` if there is none."""
        result, self._result = self._result, None
        if result is None:
            raise ValueError("the job is not done, or was finished before")
        return result


class Verifiers:
    """Cuts effects into shares for `count` threads, and puts the verdicts together again."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._due: deque[VerifyJob] = deque()
        self._open: set[_Shared] = set()  # effects without an answer

    @property
    def at_work(self) -> bool:
        """Whether an answer is yet to come."""
        return bool(self._open)

    def take(self, effect: Verify) -> None:
        """Cut an effect into shares of about the same size."""
        signatures = effect.signatures
        size = max(_SHARE_MIN, -(-len(signatures) // self._count))
        starts = range(0, max(1, len(signatures)), size)
        shared = _Shared(self, effect, len(starts))
        self._open.add(shared)
        for number, start in enumerate(starts):
            self._due.append(VerifyJob(shared, number, signatures[start : start + size]))

    def next(self) -> VerifyJob | None:
        """The next share, if there is one."""
        return self._due.popleft() if self._due else None

    def finish(self, job: VerifyJob) -> Answer[list[bool]] | None:
        """Take a share that is done; the answer to its effect, if that was the last.

        Raises `ValueError` if it is not done, was taken before, or is not from here.
        """
        shared = job.shared
        if shared.owner is not self:
            raise ValueError("the job is another pump's")
        shared.take(job.number, job.take_result())
        if shared.left or shared not in self._open:
            return None
        self._open.remove(shared)
        return shared.answer()

    def give_up(self) -> None:
        """Hand out nothing more, and give no more answers."""
        self._due.clear()
        self._open.clear()
