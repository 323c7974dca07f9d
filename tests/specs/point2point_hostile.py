"""Hostile peers of Point-2-Point, and the things there may be many of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from culm.machines import Call, call
from culm.machines.point2point import ENDLESS, written
from culm.point2point import CancelReason, Proposal
from culm.point2point.codec import encode_control
from culm.point2point.messages import Cancel, Propose
from culm.testing.spec import Scenario, Side, Work
from culm.wire import varu64

__all__ = ["BOMBS", "GROWTH", "LOGS", "WORK", "cancelled", "proposal"]

_CONTROL, _DATA = 0, 1  # the streams of bymux
_MAX = varu64.MAX
_FAR = 1_000_000  # an entry beyond all those sent

ManyOf = Callable[[int], Scenario]
Change = Callable[[int], Mapping[str, int]]  # the fields of the adjustment of that number

#: Twice the measured cost: an adjustment of the longest path costs 2,300 steps, others up to
#: 1,400, and a packet of one byte 70. An input that is mostly payload costs 10 for each byte.
WORK = Work(base=3000, per_byte=150)


def _compressed(element: bytes) -> bytes:
    """A payload packet that declares the largest size: one byte, then `element`."""
    body = b"\x01x" + element
    return b"\x09" + varu64.encode(_MAX) + varu64.encode(len(body)) + body


# A copy of the byte before, 2**64 - 2 times.
_EXPANDING = _compressed(b"\xff" + (_MAX - 1).to_bytes(8, "big") + b"\x01")
_SWITCH = b"\x00\x00"

_KEY = ENDLESS.log


BOMBS: Sequence[bytes] = (
    written(_DATA, _EXPANDING),
    written(_DATA, _SWITCH + _EXPANDING),
)


def proposal(number: int) -> bytes:
    """A proposal of the proactive endpoint, which agrees that the previous one has ended."""
    proposed = Propose(
        request_id=2 * number,
        proposal=Proposal(log=_KEY, start=1, lower_certpool=1, expected_hash=None),
    )
    said = written(_CONTROL, encode_control(proposed))
    if number:
        before = 2 * number - 2
        ended = Cancel(request_id=before, reason=CancelReason.CONFIRM)
        marker = b"\x20" + varu64.encode(before)
        said = written(_CONTROL, encode_control(ended)) + written(_DATA, marker) + said
    return said


def cancelled(number: int) -> Sequence[Call]:
    """The user's calls for that proposal."""
    return [
        call("confirm", request=2 * number),
        call("cancel", request=2 * number, reason="RESOURCE_LIMIT"),
    ]


_Script = Sequence[tuple[Side, Call]]


def _scenario(name: str, script: _Script, **limits: int) -> Scenario:
    return Scenario(name=name, left=limits, right={"role": "reactive", **limits}, script=script)


def _proposals(count: int) -> Scenario:
    script: _Script = [("left", call("propose")) for _ in range(count)]
    return _scenario("proposals", script, requests_max=count)


def _crossing(count: int) -> Scenario:
    sides: Sequence[Side] = ("left", "right")
    script: _Script = [(sides[n % 2], call("propose", start=1 + n % 14)) for n in range(count)]
    return _scenario("proposals from both sides", script, requests_max=count)


def _one(start: int) -> Call:
    return call("propose", start=start, expected=1, **_end(start))


def _apart(count: int) -> Scenario:
    """Requests on one log that do not overlap."""
    script: _Script = [
        *(("left", _one(2 * n)) for n in range(1, count + 1)),
        *(("right", _one(2 * n + 1)) for n in range(1, count + 1)),
    ]
    return _scenario("proposals that lie apart", script, requests_max=count)


def _losing(count: int) -> Scenario:
    """Each request of one side overlaps the last one of the other side."""
    script: _Script = [
        *(("left", _one(2 * n)) for n in range(1, count + 1)),
        ("left", call("propose", start=_FAR, expected=1)),
        *(("right", _one(_FAR + n)) for n in range(1, count + 1)),
    ]
    return _scenario("proposals that lose to one", script, requests_max=count + 1)


def _open(count: int) -> Scenario:
    """Each of many requests covers all available entries, while all are open."""
    steps: Sequence[tuple[Side, str, Mapping[str, object]]] = [
        ("right", "confirm", {}),
        ("right", "send_metadata", {"seqnum": 1}),
        ("left", "adjust", {"allow_skipping": True}),
        ("right", "send_payload", {"seqnum": 1}),
        ("left", "notify", {}),
        ("left", "cancel", {}),
    ]
    script: _Script = [
        *(("left", call("propose")) for _ in range(count)),
        *(
            (side, call(verb, request=2 * number, **rest))
            for side, verb, rest in steps
            for number in range(count)
        ),
    ]
    return _scenario("open requests", script, requests_max=count)


def _adjustments(side: Side, changes: Change, **proposed: int) -> ManyOf:
    """As many notifications, with as many adjustments pending."""

    def many(count: int) -> Scenario:
        script: _Script = [
            ("left", call("propose", eagerness="notify", **proposed)),
            ("right", call("confirm", request=0)),
            *((side, call("adjust", request=0, **changes(number))) for number in range(count)),
            *(("right", call("notify", request=0, count=1)) for _ in range(count)),
        ]
        return _scenario(f"adjustments by {side}", script, request_adjustments_max=count + 1)

    return many


def _both(count: int) -> Scenario:
    """Each side cuts the range again and again, while no data shows which range holds."""
    sides: Sequence[Side] = ("left", "right")
    script: _Script = [
        ("left", call("propose", eagerness="notify")),
        ("right", call("confirm", request=0)),
        *((sides[n % 2], call("adjust", request=0, **_end(_FAR - n))) for n in range(2 * count)),
        *(("right", call("notify", request=0, count=1)) for _ in range(count)),
    ]
    return _scenario("adjustments by both", script, request_adjustments_max=2 * count + 1)


def _end(seqnum: int) -> Mapping[str, int]:
    return {"end": seqnum, "upper_certpool": seqnum}


GROWTH: Mapping[str, ManyOf] = {
    "proposals": _proposals,
    "proposals from both sides": _crossing,
    "proposals that lie apart": _apart,
    "proposals that lose to one": _losing,
    "open requests": _open,
    "ends, later and later": _adjustments("left", lambda number: _end(_FAR + number)),
    "ends, earlier and earlier": _adjustments("left", lambda number: _end(_FAR - number)),
    "ends told by the sender": _adjustments("right", lambda number: _end(_FAR + number)),
    "ends of the longest path": _adjustments(
        "left", lambda number: _end(_MAX - 1 - number), sparse=True, **_end(_MAX)
    ),
    "ends told by both": _both,
    "demands": _adjustments("left", lambda number: {"size_min": number}),
}


def _logs(count: int) -> Scenario:
    script: _Script = [("left", call("replicate", log_id=number)) for number in range(count)]
    limits = {"requests_max": 2 * count, "logs_max": 2 * count}
    left = {"following": False, "live": False, **limits}
    right = {"role": "reactive", "entries": 14, **limits}
    return Scenario(name="logs", left=left, right=right, script=script)


#: For the replicator, more things there may be many of.
LOGS: Mapping[str, ManyOf] = {"logs": _logs}
