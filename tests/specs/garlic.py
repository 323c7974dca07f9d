"""Garlic Farm: frames, and the handshake before them."""

from __future__ import annotations

from collections.abc import Iterator

from culm.garlic.messages import RESPONSE_OF, MessageType, RequestFrame
from culm.machines import Operation, call, lookup
from culm.testing.registry import register
from culm.testing.spec import Attacks, Bounds, Flood, MachineSpec, Scenario, Side, Usage, Work
from specs.garlic_contents import HEADS
from specs.garlic_hostile import FRAME_BOMBS

__all__ = ["FRAMES", "HANDSHAKE"]

# Small limits, for floods.
_TIGHT = {"log_size_max": 4096, "entries_max": 16, "head_size_max": 1024, "unanswered_max": 4}


def _asked_and_answered() -> Iterator[tuple[Side, Operation]]:
    for kind in RESPONSE_OF:
        yield "left", call("ask", kind=kind.name, term=7, last_log_index=5)
        yield "right", call("answer")


# Twice the measured cost: a frame of 27 bytes and its answer cost up to 180 steps; an HTTP request,
# which h11 parses, at least 1,200 for its 88 bytes.
_FRAMES_WORK = Work(base=350, per_byte=10)

_HANDSHAKE_WORK = Work(base=400, per_byte=20)

_LISTENER = {"role": "listener"}

_DIALLER = {"role": "dialler"}

_ENTRY = bytes.fromhex("00000000000000000100000003616263")

_CLIENT = {"role": "client"}

_HANDSHAKE_SCENARIOS = (
    Scenario(
        name="good credentials, then requests",
        left={**_CLIENT, "first": ["CLIENT_REQUEST", "REQUEST_VOTE_REQUEST"]},
        script=(("left", call("close")),),
    ),
    Scenario(
        name="no credentials, with a challenge in return", left={**_CLIENT, "challenged": False}
    ),
)

FRAMES = register(
    MachineSpec(
        machine=lookup("garlic"),
        bounds=Bounds(
            retained_max=32_000,
            work=_FRAMES_WORK,
            tight=_TIGHT,
        ),
        usage=Usage(
            scenarios=(
                Scenario(
                    name="every request, and its response",
                    left=_DIALLER,
                    right=_LISTENER,
                    script=(*_asked_and_answered(), ("left", call("close"))),
                ),
                Scenario(
                    name="several requests before the first response",
                    left=_DIALLER,
                    right=_LISTENER,
                    script=(
                        ("left", call("ask", kind="CLIENT_REQUEST", log=_ENTRY)),
                        ("left", call("ask", kind="CLIENT_REQUEST", log=_ENTRY * 3)),
                        ("left", call("ask", kind="REQUEST_VOTE_REQUEST", source=1, destination=2)),
                        ("right", call("answer")),
                        ("right", call("answer", accepted=False)),
                        ("right", call("answer")),
                        ("right", call("close")),
                    ),
                ),
            ),
            bad_calls=(
                call("ask", kind="REQUEST_VOTE_RESPONSE"),
                call("answer", kind="LEAVE_CLUSTER_RESPONSE"),
                call("answer", kind="CLIENT_REQUEST"),
            ),
        ),
        attacks=Attacks(
            bombs=FRAME_BOMBS,
            floods=(
                Flood(unit=RequestFrame(type=MessageType.CLIENT_REQUEST).encode()),
                Flood(
                    unit=RequestFrame(type=MessageType.CLIENT_REQUEST).encode(),
                    calls=lambda number: [call("answer")],
                ),
                Flood(opening=b"\x05" + bytes(40) + b"\x00\x00\x10\x00", unit=b"x"),
                Flood(unit=b"\x04" * 26, config=_DIALLER),
            ),
        ),
    )
)

HANDSHAKE = register(
    MachineSpec(
        machine=lookup("garlic-handshake"),
        bounds=Bounds(
            retained_max=64_000,
            work=_HANDSHAKE_WORK,
            tight=_TIGHT,
            alike_max=20,  # a header of 4 bytes costs h11 as much as one of 80
        ),
        usage=Usage(scenarios=_HANDSHAKE_SCENARIOS),
        attacks=Attacks(
            frames=HEADS,
            floods=(
                Flood(unit=b"GET / HTTP/1.1 "),
                Flood(opening=b"GET / HTTP/1.1\r\n", unit=b"A: b\r\n"),
                Flood(unit=b"HTTP/1.1 100 Continue\r\n\r\n", config=_CLIENT),
                Flood(unit=b"HTTP/1.1 200 OK ", config=_CLIENT),
            ),
        ),
    )
)
