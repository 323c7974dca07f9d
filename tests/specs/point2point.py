"""Point-2-Point: requests for one log, and attacks by hostile peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from culm.machine import Event
from culm.machines import Advance, Call, call, lookup
from culm.point2point import ErrorCode, IdFreed, PayloadReceived
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Flood,
    Free,
    MachineSpec,
    Scenario,
    Side,
    Usage,
)
from culm.wire.varu64 import MAX
from specs.point2point_contents import WRITES
from specs.point2point_hostile import BOMBS, GROWTH, WORK, cancelled, proposal

__all__ = ["CONNECTION", "RIGHT", "TIGHT", "joined"]

# Small limits, for floods: a machine then holds kilobytes.
TIGHT = {
    "requests_max": 4,
    "data_window_max": 8192,
    "packet_size_max": 1024,
    "unsent_size_max": 4096,
    "dropped_max": 4,
    "request_adjustments_max": 4,
    "compression_window_max": 1024,
}


def _entries(first: int, last: int) -> Iterator[tuple[Side, Call]]:
    """The right side sends these with their payloads."""
    for seqnum in range(first, last + 1):
        yield "right", call("send_metadata", request=_ID, seqnum=seqnum)
        yield "right", call("send_payload", request=_ID, seqnum=seqnum)


def joined(events: Sequence[Event]) -> list[Event]:
    """The events, with adjacent pieces of a payload joined."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if (
            isinstance(event, PayloadReceived)
            and isinstance(last, PayloadReceived)
            and (last.request_id, last.seqnum) == (event.request_id, event.seqnum)
            and last.offset + len(last.data) == event.offset  # otherwise a jump
            and not last.finished
        ):
            found[-1] = replace(event, offset=last.offset, data=last.data + event.data)
        else:
            found.append(event)
    return found


def _by_request(events: Sequence[Event]) -> dict[int | None, list[Event]]:
    """The events of each request, and (``None``) the others, with whole payload pieces.

    The two channels are independent of each other, so the order across them is not fixed.
    """
    by_request: dict[int | None, list[Event]] = {}
    for event in events:
        by_request.setdefault(getattr(event, "request_id", None), []).append(event)
    return {request_id: joined(told) for request_id, told in by_request.items()}


def _again(event: Event) -> Call | None:
    """Reuse the id of a request that has ended."""
    if not isinstance(event, IdFreed):
        return None
    return call("propose", start=1, request_id=event.request_id)


def _up_to(seqnum: int) -> dict[str, int]:
    return {"end": seqnum, "upper_certpool": seqnum}


_ID = 0  # the first request of the proactive endpoint, the left one in all scenarios

RIGHT = {"role": "reactive"}

_GREEDY = {"send_mode": "greedy", "receive_mode": "greedy"}

CONNECTION = register(
    MachineSpec(
        machine=lookup("point2point"),
        bounds=Bounds(
            retained_max=96_000,
            work=WORK,
            tight=TIGHT,
            alike_max=4,
        ),
        usage=Usage(
            scenarios=(
                Scenario(
                    name="a whole log",
                    right=RIGHT,
                    script=(
                        ("left", call("propose")),
                        ("right", call("confirm", request=_ID)),
                        *_entries(1, 14),
                        ("left", call("cancel", request=_ID)),
                        ("left", call("close")),
                    ),
                ),
                Scenario(
                    name="Writes of many pieces through a narrow window",
                    left={"data_window_max": 500, "packet_size_max": 60},
                    right=RIGHT,
                    script=(
                        ("left", call("propose", end=9, upper_certpool=9)),
                        ("right", call("confirm", request=_ID)),
                        *_entries(1, 9),
                        ("right", call("cancel", request=_ID, reason="END_OF_RANGE")),
                        ("right", call("close")),
                    ),
                ),
                Scenario(
                    name="a range with its certificate pools, some of it passed over",
                    right=RIGHT,
                    script=(
                        (
                            "left",
                            call(
                                "propose",
                                start=5,
                                lower_certpool=4,
                                end=8,
                                upper_certpool=13,
                                size_min=40,
                                eagerness=48,
                            ),
                        ),
                        ("left", call("provide_hash", request=_ID, seqnum=1)),
                        ("right", call("confirm", request=_ID, eagerness="notify")),
                        ("right", call("send_metadata", request=_ID, seqnum=4)),
                        ("right", call("send_metadata", request=_ID, seqnum=5)),
                        ("right", call("skip", request=_ID, reason="TOO_SMALL")),
                        ("right", call("send_metadata", request=_ID, seqnum=6)),
                        ("right", call("skip", request=_ID, reason="TOO_SMALL")),
                        ("left", call("adjust", request=_ID, end=7, allow_skipping=True)),
                        ("right", call("send_metadata", request=_ID, seqnum=7)),
                        ("right", call("send_payload", request=_ID, seqnum=7)),
                        ("right", call("send_metadata", request=_ID, seqnum=8)),
                        ("left", call("notify", request=_ID, count=1)),
                        ("right", call("cancel", request=_ID, reason="RESOURCE_LIMIT")),
                        ("right", call("close")),
                    ),
                ),
                Scenario(
                    name="greedy, with apologies",
                    left=_GREEDY,
                    right={**RIGHT, **_GREEDY},
                    script=(
                        ("left", call("propose", end=3, upper_certpool=3)),
                        ("right", call("confirm", request=_ID)),
                        ("right", call("send_metadata", request=_ID, seqnum=1)),
                        ("right", call("send_payload", request=_ID, seqnum=1)),
                        ("right", call("send_metadata", request=_ID, seqnum=2)),
                        ("right", call("send_payload", request=_ID, seqnum=2, wrong=True)),
                        ("right", call("apologize", request=_ID)),
                        ("right", call("send_payload", request=_ID, seqnum=2, compress=False)),
                        *_entries(3, 3),
                        ("right", call("cancel", request=_ID, reason="END_OF_RANGE")),
                        ("left", call("close")),
                    ),
                ),
                Scenario(
                    name="proposals that cross, a fork, payloads from the middle on",
                    right=RIGHT,
                    script=(
                        ("left", call("propose", start=9)),
                        ("right", call("propose", start=4)),
                        ("left", call("confirm", request=1)),
                        ("left", call("cancel", request=1, reason="FORK", fork=3)),
                        ("left", call("propose", start=6, start_offset=5, payload_only=True)),
                        ("right", call("confirm", request=2, allow_skipping=True)),
                        ("right", call("send_payload", request=2, seqnum=6, offset=5)),
                        ("left", call("provide_entry", request=2, seqnum=6)),
                        ("right", call("notify", request=2, count=1)),
                        ("right", call("skip", request=2, reason="UNAVAILABLE")),
                        ("left", call("close")),
                        ("right", call("close")),
                    ),
                ),
                Scenario(
                    name="a path through the longest of logs, shortened",
                    right=RIGHT,
                    script=(
                        ("left", call("propose", sparse=True, **_up_to(MAX))),
                        ("right", call("confirm", request=_ID)),
                        ("left", call("adjust", request=_ID, **_up_to(MAX - 1))),
                        ("right", call("adjust", request=_ID, **_up_to(MAX - 2))),
                    ),
                ),
                Scenario(name="no more than the setup", right=RIGHT),
                Scenario(name="signs of life", right=RIGHT, script=(("left", Advance(70.0)),)),
                Scenario(
                    name="an endless payload",
                    right=RIGHT,
                    script=(
                        ("left", call("propose")),
                        ("right", call("confirm", request=_ID)),
                        ("right", call("send_endless", request=_ID)),
                    ),
                ),
            ),
            interruptions=(call("close"), call("cancel", request=_ID)),
            frees=Free(again=_again, taken={ErrorCode.ID_IN_USE}),
            growth=GROWTH,
            bad_calls=(
                call("propose", start=0),
                call("propose", start=4, lower_certpool=3),
                call("propose", start=3, end=2, upper_certpool=2),
                call("propose", request_id=1),
                call("cancel", request=_ID, reason="CONFIRM"),
                call("send_metadata", request=_ID, seqnum=12),
                call("send_payload", request=_ID, seqnum=12),
                call("notify", request=_ID, count=0),
                call("notify", request=77),
                call("jump", request=_ID, size=1),
                call("apologize", request=_ID),
            ),
        ),
        attacks=Attacks(
            bombs=BOMBS,
            frames=WRITES,
            floods=(
                Flood(unit=b"\x20\x00\x01\x00"),
                Flood(opening=b"\x00\x00\x00", unit=b"\x20\x00\x02\x00\x01"),
                Flood(opening=b"\x00\x00\x00", unit=b"\x40\x00"),  # keepalive questions
                *(Flood(unit=bomb, after="an endless payload/left") for bomb in BOMBS),
                Flood(unit=proposal, calls=cancelled, after="no more than the setup/right"),
            ),
        ),
        comparison=Comparison(
            lazy_output=True,
            normalise=_by_request,
        ),
    )
)
