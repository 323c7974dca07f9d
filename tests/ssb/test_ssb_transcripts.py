"""Whole conversations of two machines or more, as kept in ``tests/transcripts/ssb``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from peer_support import feed_of, packets

from culm.machines.ssb_lines import feed as feed_of_lines
from culm.testing import transcript
from culm.testing.record import meet, play
from culm.testing.spec import MachineSpec, Meeting, Scenario
from specs import spec_of

SPECS = [spec_of(name) for name in ("ssb-handshake", "ssb-box-stream", "ssb-muxrpc")]


@pytest.mark.parametrize(
    ("spec", "scenario"),
    [(spec, scenario) for spec in SPECS for scenario in spec.usage.scenarios],
    ids=lambda value: value.name,
)
def test_conversation(
    spec: MachineSpec, scenario: Scenario, same_transcript: Callable[[str, str], None]
) -> None:
    name = scenario.name.replace(",", "").replace(" ", "-")
    same_transcript(f"ssb/{spec.name}-{name}", transcript.of_link(play(spec.machine, scenario)))


EBT, PEER = spec_of("ssb-ebt"), spec_of("ssb-peer")
NAMES = ("alice", "bob", "carol", "dave", "eve")
SEALED = ("two peers on a sealed connection", "one of them has no EBT")


def named(text: str) -> str:
    """The same, with names in place of feeds, and short ids of messages."""
    for name in NAMES:
        text = text.replace(feed_of_lines(name), f"@{name}").replace(feed_of(name), f"@{name}")
    text = re.sub(r"%([A-Za-z0-9+/]{6})[A-Za-z0-9+/]{37}=\.sha256", r"%\1", text)
    return re.sub(r"\b([0-9a-f]{6})[0-9a-f]{58}\b", r"\1", text)


def worded(value: Any) -> str:
    """A message by its place in its feed, anything else as JSON."""
    if isinstance(value, dict) and "sequence" in value and "content" in value:
        text = f"message {value['sequence']} of {value['author']}"
        return text if value.get("valid", True) else f"{text}, not valid"
    return json.dumps(value)


def lines(data: bytes) -> str:
    """The frames of ``ssb-ebt`` on a link."""
    return ", ".join(worded(json.loads(line)) for line in data.splitlines())


def calls(data: bytes) -> str:
    """The packets of ``ssb-peer`` on an unsealed link."""
    found = []
    for flags, number, body in packets(data):
        words = "goodbye" if body is None else worded(body)
        found.append(f"[{number}{' end' if flags & 4 else ''}] {words}")
    return ", ".join(found)


@pytest.mark.parametrize(
    ("spec", "meeting", "show"),
    [(EBT, meeting, lines) for meeting in EBT.usage.meetings]
    + [
        (PEER, meeting, calls)
        for meeting in PEER.usage.meetings
        if not meeting.name.startswith(SEALED)
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_meeting(
    spec: MachineSpec,
    meeting: Meeting,
    show: Callable[[bytes], str],
    same_transcript: Callable[[str, str], None],
) -> None:
    text = named(transcript.of_mesh(meet(spec.machine, meeting), show))
    name = meeting.name.replace(",", "").replace(" ", "-")
    same_transcript(f"ssb/{spec.name}-{name}", text)
