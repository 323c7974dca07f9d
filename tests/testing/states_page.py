"""The page with the states of all machines: lists and diagrams, made from the code's own tables.

Where a room has a table, its diagram is drawn from it.  The roles of Raft and the associations of
Oxen have none: their diagrams are those of their own pages, which the tests of these rooms compare
with real runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from culm.bymux.states import STREAM_RULES, HalfState
from culm.machines import lookup, names
from culm.p2panda.messages import Mode
from culm.p2panda.states import RULES, SideState
from culm.point2point.replication.steps import PEER_STAGES, STAGES, PeerStage, Stage
from culm.point2point.states import TRANSITIONS, RequestState
from culm.ssb.ebt import states as ebt
from culm.ssb.history import states as history
from culm.ssb.muxrpc import states as muxrpc
from culm.ssb.peer import states as peer

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "states.md"

Rules = Mapping[Any, Mapping[Any, Any]]

HEAD = """\
# The states of all machines

Every machine has a `state`, and many keep further ones: of a stream, a request, a session, a peer.
This page has all of them. The diagrams are drawn from the tables in which the code itself looks
things up, and a test compares the page with these. What leaves a state as it is, and what is
refused, is left out; the pages of the protocols say more. *Any* is every other state from which
something leads on.
"""


def page() -> str:
    """The expected page."""
    return "\n".join([HEAD, *(section(*each) for each in SECTIONS)])


def section(title: str, link: str, machines: Sequence[str], diagrams: Mapping[str, str]) -> str:
    """A protocol: the meanings of its machines' states, then its diagrams."""
    rows = [row for name in machines for row in rows_of(name)]
    drawn = [f"{what}\n\n```mermaid\n{diagram}\n```\n" for what, diagram in diagrams.items()]
    parts = [f"## {title}\n", f"More on [its page]({link}).\n"]
    table = ["| Machine | State | Meaning |", "| --- | --- | --- |", *rows, ""]
    return "\n".join([*parts, *table, *drawn])


def rows_of(name: str) -> list[str]:
    """The states of a machine, each with its meaning."""
    states = type(lookup(name).make({}).state)
    means = meanings(states)
    return [
        f"| {f'`{name}`' if not number else ''} | `{each.name}` | {means.get(each.name, '')} |"
        for number, each in enumerate(states)
    ]


def meanings(states: type[Enum]) -> dict[str, str]:
    """The text after or below each member in the source, or its value."""
    source = inspect.getsource(states)
    found = re.findall(r'^    (\w+) = [^#\n]+(?:  # (.+)|\n    """([^"]+)""")$', source, flags=re.M)
    told = {name: " ".join((behind or below).split()) for name, behind, below in found}
    for each in states:
        if each.name not in told and " " in str(each.value):
            told[each.name] = str(each.value)
    return {name: f"{text[0].upper()}{text[1:]}".rstrip(".") for name, text in told.items()}


def diagram(
    firsts: Sequence[Enum],
    rules: Rules,
    *,
    across: bool = False,
    by_name: bool = False,
    beside: Sequence[str] = (),
) -> str:
    """A table of states; a step from all other states to one is drawn once.

    by_name: steps are named rather than described; beside: steps that are not in the table.
    """
    going = {
        state for state, row in rules.items() if any(is_move(state, to) for to in row.values())
    }
    ways: dict[tuple[str, str], list[str]] = {}
    for step in dict.fromkeys(step for row in rules.values() for step in row):
        moves = [(state, row[step]) for state, row in rules.items() if step in row]
        moves = [(state, to) for state, to in moves if is_move(state, to)]
        targets = {to for _, to in moves}
        if (
            len(moves) > 2
            and len(targets) == 1
            and {state for state, _ in moves} >= going - targets
        ):
            ways.setdefault(("any_", targets.pop().name), []).append(words(step, by_name))
            continue
        for state, to in moves:
            ways.setdefault((state.name, to.name), []).append(words(step, by_name))
    lines = ["stateDiagram-v2", *(["    direction LR"] if across else [])]
    lines += ['    state "any" as any_'] if any(state == "any_" for state, _ in ways) else []
    lines += [f"    [*] --> {first.name}" for first in firsts]
    lines += [f"    {state} --> {to} : {', '.join(steps)}" for (state, to), steps in ways.items()]
    lines += [f"    {each}" for each in beside]
    return "\n".join(lines)


def is_move(state: Enum, to: object) -> bool:
    """Whether an outcome is another state, rather than the same or an error."""
    return type(to) is type(state) and to is not state


def words(step: Any, by_name: bool) -> str:
    """A step as a diagram names it."""
    if isinstance(step, str):
        return str(step)
    if by_name or not isinstance(step.value, str):
        return str(step.name).replace("_", " ").lower()
    return step.value


def calls() -> Rules:
    """Calls of muxrpc by the packets of either side."""
    both: dict[Any, dict[Any, Any]] = {}
    for who, rules in (("we", muxrpc.OUR_RULES), ("peer", muxrpc.PEER_RULES)):
        for state, row in rules.items():
            both.setdefault(state, {}).update({f"{who}: {p.value}": to for p, to in row.items()})
    return both


def of_page(name: str, number: int) -> str:
    """A diagram of another page."""
    text = (DOCS / name).read_text(encoding="utf-8")
    found: list[str] = re.findall(
        r"^```\{?mermaid\}?\n(stateDiagram.*?)\n```", text, flags=re.M | re.S
    )
    return found[number]


BOTH_SIDES = (
    f"{SideState.OFFERING.name} --> {SideState.LIVE.name} : so has the other side",
    f"any_ --> {SideState.BROKEN.name} : the other side has broken a rule",
)

SECTIONS = [
    (
        "bymux",
        "bymux.md#states",
        ["bymux"],
        {"What either side has sent on a stream:": diagram([HalfState.OPEN], STREAM_RULES)},
    ),
    (
        "Point-2-Point",
        "point2point.md",
        ["point2point"],
        {
            "A request:": diagram(
                [RequestState.PROPOSED_BY_US, RequestState.PROPOSED_BY_PEER], TRANSITIONS
            ),
        },
    ),
    (
        "Replication of logs",
        "replicator.md",
        ["point2point-replicator"],
        {
            "What we ask for of a log:": diagram([Stage.IDLE], STAGES, across=True, by_name=True),
            "What the peer asks for:": diagram(
                [PeerStage.WAITING],
                PEER_STAGES,
                across=True,
                by_name=True,
            ),
        },
    ),
    (
        "p2panda",
        "p2panda.md",
        ["p2panda", "p2panda-replicator"],
        {
            "What one side has sent in a session that compares sets:": diagram(
                [SideState.SILENT], RULES[Mode.SET_RECONCILIATION], beside=BOTH_SIDES
            ),
            "And in one that compares log heights:": diagram(
                [SideState.SILENT], RULES[Mode.LOG_HEIGHT], beside=BOTH_SIDES
            ),
        },
    ),
    ("Set reconciliation", "reconcile.md", ["reconcile-plain", "reconcile-compact"], {}),
    (
        "Secure Scuttlebutt",
        "ssb.md",
        ["ssb-handshake", "ssb-box-stream", "ssb-muxrpc", "ssb-ebt", "ssb-peer"],
        {
            "A call of [muxrpc](ssb-muxrpc.md):": diagram(
                [*dict.fromkeys(first for pair in muxrpc.FIRST_STATES.values() for first in pair)],
                calls(),
            ),
            "A session of [Epidemic Broadcast Trees](ssb-ebt.md):": diagram(
                [ebt.SessionState.LOADING], ebt.SESSION_RULES, across=True
            ),
            "A feed, as one chain:": diagram([ebt.FeedState.WHOLE], ebt.FEED_RULES, across=True),
            "Our sending of a feed to a peer:": diagram([ebt.Supply.UNTOLD], ebt.SUPPLY_RULES),
            "A feed that is asked for [one by one](ssb-history.md):": diagram(
                [history.FeedState.QUEUED], history.FEED_RULES
            ),
            "Our answer to one that asks so:": diagram(
                [history.ReplyState.QUEUED], history.REPLY_RULES, across=True
            ),
            "The way in which feeds are exchanged over a link:": diagram(
                [peer.ExchangeMode.NOTHING],
                dict(reversed(peer.EXCHANGE_RULES.items())),  # drawn so, no labels overlap
                across=True,
            ),
        },
    ),
    (
        "Garlic Farm",
        "garlic.md",
        ["garlic-handshake", "garlic", "garlic-node"],
        {
            "The roles of a server:": of_page("garlic.md", 0),
            "The leader's work for a peer:": of_page("garlic.md", 1),
            "A change of the members:": of_page("garlic.md", 2),
        },
    ),
    ("Oxen", "oxen.md", ["oxen"], {"An association with another node:": of_page("oxen.md", 0)}),
]

ALIKE = {"raft": "garlic-node"}
"""Machines with the states of another one, which has them on the page."""


def missing() -> set[str]:
    """The machines missing from the page."""
    return {*names()} - {name for each in SECTIONS for name in each[2]} - ALIKE.keys()
