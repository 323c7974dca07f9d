"""Whole conversations as text, as `culm.machines.text` writes it, to be kept and compared."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from culm.machines.driver import Turn
from culm.machines.text import Show, turn_lines
from culm.testing.cluster import Cluster
from culm.testing.link import MachinePair
from culm.testing.mesh import Mesh
from culm.testing.record import conversations, replay
from culm.testing.spec import MachineSpec


def of_turns(turns: Iterable[Turn]) -> str:
    """The transcript of one machine's turns."""
    return _of_log([("", turn) for turn in turns])


def of_link(link: MachinePair) -> str:
    """The transcript of both ends in the order of their turns, each under its side."""
    return _of_log(link.log, names=link.ends)


def of_mesh(mesh: Mesh, show: Show) -> str:
    """The transcript of all members in the order of their turns, each under its name.

    `show` writes the meaning of bytes in the protocol's own terms.
    """
    return _of_log(mesh.log, show, names=mesh.ends)


def of_cluster(cluster: Cluster, show: Show) -> str:
    """The transcript of all nodes in the order of their turns, each under its address.

    The cluster must record.  `show` writes the meaning of datagrams in the protocol's own
    terms.  Deadlines are left out, as nodes that watch each other have a new one at every
    turn.
    """
    log = [
        (node.decode() if isinstance(node, bytes) else str(node), replace(turn, deadline=None))
        for node, turn in cluster.log
    ]
    return _of_log(log, show, names={name for name, _ in log})


def _of_log(
    log: Sequence[tuple[str, Turn]], show: Show | None = None, *, names: Iterable[str] = ()
) -> str:
    """The transcript of the turns of machines, each under its name if they have `names`."""
    width = max((len(name) + 1 for name in names), default=0)
    lines: list[str] = []
    deadlines: dict[str, float | None] = {}
    for name, turn in log:
        said = turn_lines(turn, deadlines.get(name), show)
        deadlines[name] = turn.deadline
        lines += [f"{name:{width}}{line}\n" for line in said]
    return "".join(lines)


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
