"""The state of a Raft cluster, for people: a table of servers, and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from culm_io.programs.tables import Table, size_of

__all__ = ["changes", "table_of_servers"]

Status = dict[str, Any]
"""A node's answer to ``status``; of one that does not answer, ``id`` and the role ``down``."""


def table_of_servers(answers: Sequence[Status]) -> Table:
    """Each server as it sees itself, and as the leader sees it."""
    leader = leader_of(answers)
    peers = {peer["id"]: peer for peer in leader["peers"]} if leader else {}
    members = set(leader["servers"]) if leader else None
    rows = []
    for answer in answers:
        number, peer = answer["id"], peers.get(answer["id"])
        member = "" if members is None else "yes" if number in members else "no"
        if leader and number in leader.get("learners", ()):
            member = "learner"
        row: list[object] = [number, answer["role"], member]
        if answer["role"] == "down":
            row += ["-"] * 4
        else:
            row += [
                answer["term"],
                size_of(answer["commit_index"]),
                size_of(answer["applied_index"]),
                size_of(answer["keys"]),
            ]
        if peer is None:
            row += ["", "", ""]
        else:
            sent = peer["snapshot_bytes"]
            doing = f"{peer['doing']} {sent:,} bytes" if sent else peer["doing"]
            row += [doing, size_of(peer["lacks"]), f"{peer['silent_s']:.1f}"]
        rows.append(row)
    columns = ("server", "role", "member", "term", "committed", "applied", "keys")
    title = f"Term {leader['term']}: server {leader['id']} leads" if leader else "Nobody leads"
    return Table(title, (*columns, "leader's work", "lacks", "silent (s)"), rows)


def leader_of(answers: Sequence[Status]) -> Status | None:
    """The leader of the newest term, of those that think that they are one."""
    leaders = [answer for answer in answers if answer["role"] == "leader"]
    return max(leaders, key=lambda answer: int(answer["term"]), default=None)


def changes(before: Sequence[Status], after: Sequence[Status]) -> Iterator[str]:
    """The changes of a cluster between two looks at it, a sentence each."""
    was = {answer["id"]: answer for answer in before}
    old, new = leader_of(before), leader_of(after)
    for answer in after:
        number = answer["id"]
        down, was_down = (
            answer["role"] == "down",
            was.get(number, {"role": "down"})["role"] == "down",
        )
        if down and not was_down:
            yield f"server {number} is down"
        elif was_down and not down:
            yield f"server {number} is there"
    if new is None:
        if old is not None:
            yield "nobody leads"
        return
    if old is None or (old["id"], old["term"]) != (new["id"], new["term"]):
        yield f"server {new['id']} leads term {new['term']}"
    yield from _changes_of_membership(old, new)


def _changes_of_membership(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Iterator[str]:
    members = set(new["servers"])
    if old is None:
        yield f"members: {', '.join(map(str, sorted(members)))}"
        return
    for number in sorted(members - set(old["servers"])):
        yield f"server {number} has become a member"
    for number in sorted(set(old["servers"]) - members):
        yield f"server {number} is no longer a member"
