"""The messages that wait to be sent to the peer, answers among them."""

from __future__ import annotations

from culm.buffer import Buffer, Outbox, Queue


class AnswerOutbox(Outbox):
    """An outbox that counts the bytes of answers in it.

    Entries and log heights are sent as there is room for them.  Answers cannot wait for that, and a
    peer may ask for any number of them: so it is not heard while too many wait.

    taken: the bytes that have left it so far.
    """

    __slots__ = ("_answers", "answers_size", "taken")

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self._answers: Queue[tuple[int, int]] = Queue()  # their starts and ends, among all bytes
        self.answers_size = 0

    def answer(self, data: bytes) -> None:
        """Queue an answer."""
        start = self.taken + self.size
        self.append(data)
        end = start + len(data)
        self.answers_size += len(data)
        if self._answers and self._answers[-1][1] == start:
            start, _ = self._answers.pop()
        self._answers.append((start, end))

    def take_pieces(self, size_max: int | None = None) -> list[Buffer]:
        before = self.size
        pieces = super().take_pieces(size_max)
        self.taken += before - self.size
        while self._answers and self._answers[0][0] < self.taken:
            start, end = self._answers.popleft()
            self.answers_size -= min(end, self.taken) - start
            if end > self.taken:
                self._answers.appendleft((self.taken, end))
        return pieces
