"""The quick way to bytes and the long one give the same bytes."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import cbor2
import pytest
from capture_conversations import CASES, recorded

from culm.capture import Recorder
from culm.capture.blocks import BlockReader
from culm.capture.encoding import Forms, encode
from culm.capture.recorder import Tape
from culm.capture.values import to_value
from culm.machine import Closed, ContractErrorCode, LocalProtocolError
from culm.testing.spec import Conversation, MachineSpec
from culm.wire import cbor
from culm.wire.multihash import YAMF


class LongWay(Recorder):
    """Makes a step of every call, and then its bytes."""

    def note(self, *of: Any, **more: Any) -> None:
        Tape.note(self, *of, **more)
        if isinstance(of[-1], Closed):
            self.flush()

    def calls_of(self, machine: Any) -> dict[str, Any]:
        return {}

    def note_idle(self, on: int, name: str, result: object) -> None:
        Tape.note_idle(self, on, name, result)


def records_of(capture: bytes) -> bytes:
    return b"".join(BlockReader().feed(capture))


@pytest.mark.costly
@pytest.mark.parametrize(("spec", "told"), CASES)
def test_a_conversation_has_the_same_bytes(spec: MachineSpec, told: Conversation) -> None:
    assert records_of(recorded(spec, told)) == records_of(recorded(spec, told, LongWay))


class Pair(NamedTuple):
    longer: object
    b: object


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        23,
        24,
        1 << 10,
        (1 << 64) - 1,
        1 << 64,
        -1,
        1.5,
        0.1,
        "",
        "text",
        b"",
        bytes(300),
        bytearray(3),
        [],
        [1, [b"2"]],
        (),
        (1, (2, "3")),
        Pair(1, (b"x",)),
        Colour.RED,
        {"b": 1, "aa": 2},
        {1: 2},
        frozenset({3, 1}),
        range(3),
        YAMF,
        LocalProtocolError(ContractErrorCode.DATA_AFTER_EOF, "late"),
        OSError("full"),
    ],
    ids=repr,
)
def test_a_value_has_the_same_bytes(value: object) -> None:
    encoded = encode(value, Forms(lambda _: None))
    assert encoded == cbor.encode(to_value(value))
    assert cbor2.loads(encoded) == to_value(value)
