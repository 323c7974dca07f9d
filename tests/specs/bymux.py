"""Bymux: streams with windows, and floods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from culm.bymux import ErrorCode, StreamCredit, StreamData, StreamEnded
from culm.machine import Event
from culm.machines import Call, call, lookup
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Flood,
    Free,
    MachineSpec,
    Scenario,
    Usage,
    Work,
)
from specs.point2point_contents import PACKETS

__all__ = ["CONNECTION"]

# Small limits, for floods: a machine then holds kilobytes.
_TIGHT = {
    "write_size_max": 64,
    "piece_size_max": 64,
    "streams_max": 8,
    "receive_buffer_max": 256,
    "answers_max": 16,
}


def _by_stream(events: Sequence[Event]) -> dict[int | None, list[Event]]:
    """The events of each stream, and (``None``) the global ones, with all data in one piece.

    The order across streams, the ends of Writes and the merging of Credits depend on the moment at
    which bytes are taken.
    """
    by_stream: dict[int | None, list[Event]] = {}
    for event in events:
        told = by_stream.setdefault(getattr(event, "stream_id", None), [])
        last = told[-1] if told else None
        if isinstance(event, StreamData) and isinstance(last, StreamData):
            told[-1] = replace(event, data=bytes(last.data) + event.data)
        elif isinstance(event, StreamCredit) and isinstance(last, StreamCredit):
            told[-1] = replace(event, amount=last.amount + event.amount)
        else:
            told.append(event)
    return by_stream


def _again(event: Event) -> Call | None:
    """Reuse the id of a stream that has ended."""
    if not isinstance(event, StreamEnded):
        return None
    return call("create_stream", stream=event.stream_id)


_FIXED = {"0": ["infinite", "infinite"], "1": [0, 0]}

_STATIC = {
    "creation_closed": True,
    "streams": _FIXED,
    "write_size_max": 500,
    "piece_size_max": 300,
}

_RIGHT = {"role": "reactive"}

_EVERYTHING = {
    "streams": {"0": ["infinite", "infinite"], "2": [40, 40]},
    "remote_creation_credit": 1 << 32,
    "remote_creator_credit": "infinite",
}


def _lasting_stream(number: int) -> bytes:
    return bytes([0b001_1_0010]) + (2 * number + 1).to_bytes(4, "big")


def _short_lived_stream(number: int) -> bytes:
    """A stream is created, pinged, and ended from the peer's side."""
    stream_id = 2 * (number % 100) + 1
    return b"".join(
        [
            bytes([0b001_1_0000, stream_id]),
            bytes([0b010_0_0000, stream_id]),
            bytes([0b100_0_0000, stream_id]),
            bytes([0b101_0_0000, stream_id]),
        ]
    )


def _ended_by_us(number: int) -> Sequence[Call]:
    stream = 2 * (number % 100) + 1
    return [call("close_stream", stream=stream), call("stop_read", stream=stream)]


def _streams(count: int) -> Scenario:
    """`count` streams at once, each with data, all of which end."""
    return Scenario(
        name="streams",
        right=_RIGHT,
        script=(
            ("right", call("grant_streams", count=count)),
            *(("left", call("create_stream", stream=2 * n)) for n in range(count)),
            *(("left", call("send_data", stream=2 * n, data=bytes(300))) for n in range(count)),
            *(("right", call("grant", stream=2 * n, credit=300)) for n in range(count)),
            *(("left", call("close_stream", stream=2 * n)) for n in range(count)),
        ),
    )


def _writes(count: int) -> Scenario:
    """`count` writes wait for credit on one stream."""
    return Scenario(
        name="writes",
        right=_RIGHT,
        script=(
            ("right", call("grant_streams", count=1)),
            ("left", call("create_stream")),
            *(("left", call("send_data", stream=0, data=bytes(100))) for _ in range(count)),
            ("right", call("grant", stream=0, credit=100 * count)),
        ),
    )


# Twice the measured cost: a packet of one byte costs up to 180 steps, and so does a turn of the
# scheduler; credit may release one turn for each waiting Write.
_WORK = Work(base=700, per_byte=250)

CONNECTION = register(
    MachineSpec(
        machine=lookup("bymux"),
        bounds=Bounds(
            retained_max=32_000,
            work=_WORK,
            tight=_TIGHT,
            alike_max=4,
        ),
        usage=Usage(
            scenarios=(
                Scenario(
                    name="a created stream with a window",
                    right=_RIGHT,
                    script=(
                        ("right", call("grant_streams", count=2)),
                        ("left", call("create_stream")),
                        ("left", call("send_data", stream=0, data=bytes(range(250)))),
                        ("right", call("set_window", stream=0, size=100)),
                        ("left", call("ping_stream", stream=0)),
                        ("right", call("consumed", stream=0, size=60)),
                        ("right", call("consumed", stream=0, size=40)),
                        ("left", call("close_stream", stream=0)),
                        ("right", call("grant", stream=0, credit=100)),
                        ("right", call("close_stream", stream=0)),
                        ("left", call("create_stream", stream=0)),
                        ("left", call("close")),
                    ),
                ),
                Scenario(
                    name="a fixed set of streams",
                    left=_STATIC,
                    right={**_RIGHT, **_STATIC},
                    script=(
                        ("left", call("send_data", stream=0, data=b"control " * 20)),
                        ("right", call("send_data", stream=0, data=b"answer")),
                        ("left", call("send_data", stream=1, data=bytes(2000))),
                        ("right", call("grant", stream=1, credit=1200)),
                        ("right", call("grant_infinite", stream=1)),
                        ("right", call("ping_stream", stream=1)),
                        ("left", call("stop_read", stream=0)),
                        ("left", call("close_stream", stream=0)),
                        ("right", call("close_stream", stream=1)),
                        ("left", call("close_stream", stream=1)),
                    ),
                ),
                Scenario(
                    name="creations on both sides, and no more of them",
                    left={"local_creator_credit": 5, "local_creation_credit": 3},
                    right={**_RIGHT, "remote_creator_credit": 5, "remote_creation_credit": 3},
                    script=(
                        ("left", call("grant_streams", count=300)),
                        ("left", call("create_stream")),
                        ("left", call("create_stream", stream=600)),
                        ("right", call("create_stream")),
                        ("left", call("send_data", stream=600, data=b"at once, and later")),
                        ("right", call("send_data", stream=1, data=b"never")),
                        ("left", call("stop_read", stream=1)),
                        ("right", call("stop_read", stream=600)),
                        ("right", call("ping")),
                        ("right", call("stop_creating")),
                        ("right", call("stop_accepting")),
                        ("left", call("ping_stream", stream=0)),
                        ("right", call("close")),
                    ),
                ),
            ),
            frees=Free(again=_again, taken={ErrorCode.ID_ACTIVE}),
            growth={"streams": _streams, "writes that wait": _writes},
            bad_calls=(
                call("send_data", stream=77, data=b"x"),
                call("send_data", stream=0, data=b"after close"),
                call("grant", stream=0, credit=1),
                call("grant", stream=1, credit=(1 << 64) - 1),
                call("set_window", stream=0, size=5),
                call("consumed", stream=0, size=1000),
                call("close_stream", stream=0),
                call("stop_read", stream=0),
                call("ping_stream", stream=0),
                call("create_stream"),
                call("create_stream", stream=0),
                call("create_stream", stream=1),
                call("create_stream", stream=2),
                call("grant_streams", count=1),
                call("ping"),
                call("stop_creating"),
                call("stop_accepting"),
            ),
        ),
        attacks=Attacks(
            frames=(PACKETS,),
            floods=(
                Flood(unit=b"\x50", config=_EVERYTHING),
                Flood(unit=b"\x40\x00\x40\x02\x60\x00", config=_EVERYTHING),
                Flood(unit=b"\x20\x00\x00", config=_EVERYTHING),
                Flood(unit=bytes(64), opening=b"\x23\x00" + b"\x7f" * 8, config=_EVERYTHING),
                Flood(unit=b"\x10\x01\x00\x02\x01", config=_EVERYTHING),
                Flood(unit=_lasting_stream, config=_EVERYTHING),
                Flood(unit=_short_lived_stream, config=_EVERYTHING),
                Flood(unit=_short_lived_stream, calls=_ended_by_us, config=_EVERYTHING),
            ),
        ),
        comparison=Comparison(
            lazy_output=True,
            normalise=_by_stream,
        ),
    )
)
