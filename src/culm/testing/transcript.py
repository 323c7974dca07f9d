"""Whole conversations as text, as `culm.machines.text` writes it, to be kept and compared."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from culm.machines.driver import Turn
from culm.machines.text import Show, turn_lines
from culm.testing.cluster import Cluster
from culm.testing.link import MachinePair
from culm.testing.mesh import Mesh
from culm.testing.record import conversations, replay
from culm.testing.spec import MachineSpec, Side


def of_turns(turns: Iterable[Turn]) -> str:
    """The transcript of one machine's turns."""
    lines: list[str] = []
    deadline: float | None = None
    for turn in turns:
        lines += turn_lines(turn, deadline)
        deadline = turn.deadline
    return "".join(f"{line}\n" for line in lines)


def of_link(link: MachinePair) -> str:
    """The transcript of both ends in the order of their turns, each under its side."""
    return _of_log(link.log)


def of_cluster(cluster: Cluster, show: Show) -> str:
    """The transcript of all nodes in the order of their turns, each under its address.

    The cluster must record.  `show` writes the meaning of datagrams in the protocol's own
    terms.  Deadlines are left out, as nodes that watch each other have a new one at every
    turn.
    """
    log = [(_address(address), turn) for address, turn in cluster.log]
    width = max((len(address) for address, _ in log), default=0)
    return "".join(
        f"{address:{width}} {line}\n"
        for address, turn in log
        for line in turn_lines(turn, turn.deadline, show)
    )


def of_mesh(mesh: Mesh, show: Show) -> str:
    """The transcript of all members in the order of their turns, each under its name.

    `show` writes the meaning of bytes in the protocol's own terms.
    """
    width = max(map(len, mesh.members), default=0)
    lines: list[str] = []
    deadlines: dict[str, float | None] = {}
    for member, turn in mesh.log:
        said = turn_lines(turn, deadlines.get(member), show)
        deadlines[member] = turn.deadline
        lines += [f"{member:{width}} {line}\n" for line in said]
    return "".join(lines)


def _of_log(log: Sequence[tuple[Side, Turn]]) -> str:
    """The transcript of turns of two sides."""
    lines: list[str] = []
    deadlines: dict[Side, float | None] = {"left": None, "right": None}
    for side, turn in log:
        said = turn_lines(turn, deadlines[side])
        deadlines[side] = turn.deadline
        lines += [f"{side:5} {line}" for line in said]
    return "".join(f"{line}\n" for line in lines)


def _address(address: object) -> str:
    return address.decode() if isinstance(address, bytes) else str(address)


def all_conversations(spec: MachineSpec) -> str:
    """The transcripts of all conversations of `spec`."""
    return "\n".join(
        f"# {told.name}\n{of_turns(replay(spec.machine, told))}" for told in conversations(spec)
    )


def check(text: str, path: Path, *, rewrite: bool = False) -> None:
    """Compare `text` with the file `path`, or write it there with `rewrite`.

    Raises `AssertionError` with the difference.
    """
    if rewrite:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    if not path.exists():
        raise AssertionError(f"there is no transcript {path}; write it on purpose")
    kept = path.read_text(encoding="utf-8")
    if kept != text:
        difference = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), str(path), "this run", lineterm=""
        )
        raise AssertionError("the conversation went another way\n" + "\n".join(difference))
