"""The safety properties of the Raft paper's figure 3, checked after every step."""

from __future__ import annotations

from collections.abc import Sequence

from raft_disk import Disk

from culm.garlic.raft import Committed, Entry, Lost, Raft, State
from culm.garlic.raft.messages import AppendResponse, Message, PreVoteResponse, VoteResponse


class Violation(AssertionError):
    """A safety property does not hold."""


class Checker:
    """Everything that the servers of one simulated cluster have ever said, and whether it fits."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.written: dict[tuple[int, int], tuple[int | None, object]] = {}
        self.committed: dict[int, tuple[int, object]] = {}
        self.committed_in: dict[int, int] = {}
        self.applied: dict[int, Entry] = {}
        self._told: dict[int, set[tuple[int, int]]] = {}  # outcomes of proposals, by server
        self._outcomes: list[Committed | Lost] = []  # told since the last step
        self._tails: dict[int, list[tuple[int, int]]] = {}
        self._commits: dict[int, int] = {}
        self._leading: dict[int, tuple[int, int, int]] = {}

    def restarted(self, core: Raft) -> None:
        self._tails.pop(core.server_id, None)
        self._told.pop(core.server_id, None)
        self._leading.pop(core.server_id, None)
        self._commits[core.server_id] = core.log.base_index

    def step(self, core: Raft) -> None:
        own = core.configuration.find(core.server_id)
        if own is not None and not own.voter and core.state is not State.FOLLOWER:
            raise Violation(f"{core.server_id} is a learner, and {core.state}")
        self._check_log(core)
        if core.leader == core.server_id:
            self._check_leader(core)
        else:
            self._leading.pop(core.server_id, None)
        if core.commit_index > self._commits.get(core.server_id, 0):
            self._check_commits(core)
        self._check_outcomes()

    def tells(self, server: int, event: Committed | Lost) -> None:
        """The fate of each value is reported once, and truthfully."""
        told = self._told.setdefault(server, set())
        values = {(event.index + number, event.term) for number in range(event.count)}
        if not values or values & told:
            raise Violation(f"{server} tells twice: {event}")
        told |= values
        self._outcomes.append(event)

    def _check_outcomes(self) -> None:
        for event in self._outcomes:
            for index in range(event.index, event.index + event.count):
                found = self.committed.get(index)
                is_ours = found is not None and found[0] == event.term
                if isinstance(event, Committed) and found is not None and not is_ours:
                    raise Violation(f"{event}, and {found} is committed there")
                if isinstance(event, Lost) and event.certain and is_ours:
                    raise Violation(f"{event}, and it is committed")
        self._outcomes.clear()

    def _check_log(self, core: Raft) -> None:
        """Log Matching: one term and index means one entry, one predecessor."""
        log = core.log
        tail = self._tails.setdefault(core.server_id, [])
        while tail and log.term_at(tail[-1][0]) != tail[-1][1]:
            tail.pop()
        known = max(tail[-1][0] if tail else 0, log.base_index)
        for index, entry in enumerate(log.slice(known + 1, log.last_index), known + 1):
            said = (log.term_at(index - 1), entry.data)
            if self.written.setdefault((index, entry.term), said) != said:
                raise Violation(f"log matching: entry {index} of term {entry.term}")
            if entry.term > core.term:
                raise Violation(f"an entry of term {entry.term} in term {core.term}")
            tail.append((index, entry.term))

    def _check_leader(self, core: Raft) -> None:
        """Election Safety, Leader Append-Only, Leader Completeness."""
        server, term, log = core.server_id, core.term, core.log
        if self.leaders.setdefault(term, server) != server:
            raise Violation(f"election safety: {server} and {self.leaders[term]} in term {term}")
        before = self._leading.get(server)
        if before is None or before[0] != term:
            for index, (entry_term, _) in self.committed.items():
                if (
                    self.committed_in[index] < term
                    and index > log.base_index
                    and log.term_at(index) != entry_term
                ):
                    raise Violation(f"leader completeness: {server} of term {term} lacks {index}")
        elif log.last_index < before[1] or (
            before[1] > log.base_index and log.term_at(before[1]) != before[2]
        ):
            raise Violation(f"leader append-only: {server} of term {term}")
        self._leading[server] = (term, log.last_index, log.last_term)

    def _check_commits(self, core: Raft) -> None:
        """A committed entry stays committed, on every server."""
        log, server = core.log, core.server_id
        first = max(self._commits.get(server, 0), log.base_index) + 1
        for index, entry in enumerate(log.slice(first, core.commit_index), first):
            said = (entry.term, entry.data)
            if self.committed.setdefault(index, said) != said:
                raise Violation(f"commit: {server} has another entry {index}")
            self.committed_in.setdefault(index, core.term)
        self._commits[server] = core.commit_index

    def applies(self, server: int, first_index: int, entries: Sequence[Entry]) -> None:
        """State Machine Safety."""
        for index, entry in enumerate(entries, first_index):
            if self.applied.setdefault(index, entry) != entry:
                raise Violation(f"state machine safety: {server} applies another {index}")

    def sends(self, message: Message, disk: Disk) -> None:
        """Nothing that depends on a write leaves before the write is complete."""
        if isinstance(message, PreVoteResponse) and message.accepted:
            return  # repeats the term of the request, and promises nothing
        if message.term > disk.term:
            raise Violation(f"{message} before its term is durable")
        if message.term != disk.term:
            return
        match message:
            case VoteResponse(accepted=True, destination=candidate):
                if disk.voted_for != candidate:
                    raise Violation(f"{message} before the vote is durable")
            case AppendResponse(accepted=True, next_index=following):
                if following - 1 > max(disk.last_index, disk.snapshot.index):
                    raise Violation(f"{message} before the entries are durable")
