"""The parts of docs/point2point.md that come from the code.

``python tests/point2point/p2p_page.py`` writes them into the page, between the markers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from p2p_rules import BOOK
from p2p_rules import invariants as rules_of

from culm.machine import Event
from culm.machines import call, lookup
from culm.point2point import Limits, RequestState
from culm.point2point.states import TRANSITIONS
from culm.testing.link import MachinePair
from culm.testing.record import play
from culm.testing.spec import Scenario

PAGE = Path(__file__).parents[2] / "docs" / "point2point.md"

CONVERSATION = Scenario(
    name="a range with its pools, a payload passed over, and the goodbye",
    right={"role": "reactive"},
    script=(
        (
            "left",
            call("propose", start=5, lower_certpool=4, end=7, upper_certpool=13, size_min=40),
        ),
        ("right", call("confirm", request=0, eagerness="notify")),
        ("left", call("provide_hash", request=0, seqnum=1)),
        ("right", call("send_metadata", request=0, seqnum=4)),
        ("right", call("send_metadata", request=0, seqnum=5)),
        ("right", call("skip", request=0, reason="TOO_SMALL")),
        ("left", call("notify", request=0, count=3)),
        ("right", call("send_metadata", request=0, seqnum=6)),
        ("right", call("skip", request=0, reason="TOO_SMALL")),
        ("right", call("send_metadata", request=0, seqnum=7)),
        ("right", call("send_payload", request=0, seqnum=7)),
        ("right", call("send_metadata", request=0, seqnum=8)),
        ("right", call("send_metadata", request=0, seqnum=12)),
        ("right", call("send_metadata", request=0, seqnum=13)),
        ("right", call("cancel", request=0, reason="END_OF_RANGE")),
    ),
)
GREEDY = Scenario(
    name="an apology",
    left={"receive_mode": "greedy"},
    right={"role": "reactive", "send_mode": "greedy"},
    script=(
        ("left", call("propose", start=5, end=5, upper_certpool=5)),
        ("right", call("confirm", request=0)),
        ("right", call("send_metadata", request=0, seqnum=5)),
        ("right", call("send_payload", request=0, seqnum=5, wrong=True)),
        ("right", call("apologize", request=0)),
        ("right", call("send_payload", request=0, seqnum=5)),
        ("left", call("cancel", request=0, reason="END_OF_RANGE")),
    ),
)
CROSSING = Scenario(
    name="proposals that cross",
    right={"role": "reactive"},
)


def conversation(scenario: Scenario) -> MachinePair:
    return play(lookup("point2point"), scenario)


def crossing() -> MachinePair:
    """Both propose at once, so the proposal with the larger start was never made."""
    link = conversation(CROSSING)
    link.call("left", "propose", start=9)
    link.call("right", "propose", start=4)
    link.run()
    link.call("left", "confirm", request=1)
    link.run()
    return link


NAMES = {"left": "A", "right": "B"}
OTHER = {"left": "right", "right": "left"}
SHOWN = ("request_id", "seqnum", "part", "count", "offset", "finished", "verified", "reason")


def words(event: Event) -> str:
    """An event in few words."""
    shown: list[str] = []
    for name in SHOWN:
        value: Any = getattr(event, name, None)
        if name == "seqnum" and hasattr(event, "entry"):
            value = event.entry.seqnum
        if value is not None:
            text = value.name if isinstance(value, Enum) else str(value)
            shown.append(f"{name.replace('request_id', 'request')} {text}")
    return f"{type(event).__name__}({', '.join(shown)})"


def sequence(link: MachinePair) -> str:
    """The effects of the peer's bytes, event by event, from the log of a link."""
    lines = ["sequenceDiagram", "    participant A as A (proactive)",
             "    participant B as B (reactive)"]  # fmt: skip
    for side, turn in link.log:
        for event in turn.events:
            kind = type(event).__name__
            if kind in {"Established", "CreditReceived", "Closed"}:
                continue
            if kind in {"RequestEnded", "IdFreed", "ProposalDropped", "HashWanted", "EntryWanted"}:
                lines.append(f"    Note over {NAMES[side]}: {words(event)}")
            else:
                lines.append(f"    {NAMES[OTHER[side]]}->>{NAMES[side]}: {words(event)}")
    return "\n".join(lines)


def states() -> str:
    """The diagram of `TRANSITIONS`, without the steps that change nothing."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {first}" for first in ("PROPOSED_BY_US", "PROPOSED_BY_PEER")]
    for state, row in TRANSITIONS.items():
        for input, outcome in row.items():
            if isinstance(outcome, RequestState) and outcome is not state:
                lines.append(f"    {state.name} --> {outcome.name} : {input.value}")
    return "\n".join([*lines, "    ENDED --> [*]"])


def transitions() -> str:
    """The whole table."""
    inputs = list(TRANSITIONS[RequestState.CONFIRMED])
    rows = [["In state", *(input.value for input in inputs)], ["---"] * (len(inputs) + 1)]
    for state, row in TRANSITIONS.items():
        cells = [f"`{state.name}`"]
        for input in inputs:
            outcome = row[input]
            cells.append("stays" if outcome is state else f"`{outcome.name}`")
        rows.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def invariants() -> str:
    tests = BOOK.proofs()
    rows = ["| Channel | Invariant | Code | Test |", "| --- | --- | --- | --- |"]
    for channel in ("control", "data"):
        for rule in rules_of(channel):
            codes = ", ".join(f"`{code}`" for code in rule.codes) or "-"
            names = "<br>".join(f"`{name}`" for name in tests[rule.key])
            rows.append(f"| {channel} | {rule.text} | {codes} | {names} |")
    return "\n".join(rows)


def parts() -> dict[str, str]:
    """The text between ``<!-- name -->`` and ``<!-- end -->``."""
    return {
        "states": f"```mermaid\n{states()}\n```",
        "transitions": transitions(),
        "conversation": f"```mermaid\n{sequence(conversation(CONVERSATION))}\n```",
        "greedy": f"```mermaid\n{sequence(conversation(GREEDY))}\n```",
        "crossing": f"```mermaid\n{sequence(crossing())}\n```",
        "invariants": invariants(),
    }


def filled(page: str, parts: Mapping[str, str]) -> str:
    """The page with its generated parts brought up to date."""
    for name, text in parts.items():
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
        page, count = re.subn(
            pattern, lambda found, text=text: f"{found[1]}\n{text}\n{found[2]}", page, flags=re.S
        )
        assert count == 1, name
    return page


def limits() -> dict[str, Any]:
    return {name: getattr(Limits(), name) for name in Limits.__dataclass_fields__}


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts()), encoding="utf-8")
