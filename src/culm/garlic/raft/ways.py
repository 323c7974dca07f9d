"""Extensions of reachable peers, and numbers for the questions that they are asked."""

from __future__ import annotations

import random

from culm.garlic.raft.messages import Extension

# Bits that count the questions of one life, below a number drawn for that life.
_SEQUENCE_BITS = 64


class Ways:
    """Owns the ways to peers, as `Raft.reachable` has told of them."""

    def __init__(self, rng: random.Random) -> None:
        self._extensions: dict[int, frozenset[Extension]] = {}
        self._rng = rng
        self._sequence: int | None = None

    def reachable(self, peer: int, extensions: frozenset[Extension]) -> None:
        self._extensions[peer] = extensions

    def unreachable(self, peer: int) -> None:
        self._extensions.pop(peer, None)

    def leads_to(self, peer: int, extension: Extension) -> bool | None:
        """Whether `peer` understands the extension; ``None`` if it cannot be reached."""
        extensions = self._extensions.get(peer)
        return None if extensions is None else extension in extensions

    def lacking(self, extension: Extension) -> set[int]:
        """The peers that can be reached and do not understand the extension."""
        return {peer for peer, found in self._extensions.items() if extension not in found}

    def next_sequence(self) -> int:
        """A number that no question has had since the start and, most likely, none before it.

        An answer to a question from before a restart must not be taken for one to a present
        question.
        """
        if self._sequence is None:
            self._sequence = self._rng.getrandbits(_SEQUENCE_BITS) << _SEQUENCE_BITS
        self._sequence += 1
        return self._sequence
