"""VarU64: the kernel in use against a loop in plain Python."""

from __future__ import annotations

from array import array

import pytest

from culm.wire import varu64
from samples import loop_decode, loop_encode

ENCODERS = {
    "list": varu64.encode_many,
    "array": varu64.encode_many,
    "one by one": lambda values: b"".join(map(varu64.encode, values)),
    "plain loop": loop_encode,
}


def decode_one_by_one(data):
    values, at, end = [], 0, len(data)
    while at < end:
        value, at = varu64.decode(data, at)
        values.append(value)
    return values, end


DECODERS = {
    "list": varu64.decode_many,
    "list, canonical": lambda data: varu64.decode_many(data, canonical=True),
    "array": varu64.decode_array,
    "one by one": decode_one_by_one,
    "plain loop": lambda data: (loop_decode(data), len(data)),
}


@pytest.mark.benchmark(group="varu64 encode")
@pytest.mark.parametrize("way", ENCODERS)
def test_encode(benchmark, values, way):
    wanted = array("Q", values) if way == "array" else values
    assert benchmark(ENCODERS[way], wanted) == loop_encode(values)


@pytest.mark.benchmark(group="varu64 decode")
@pytest.mark.parametrize("way", DECODERS)
def test_decode(benchmark, values, way):
    data = loop_encode(values)
    found, end = benchmark(DECODERS[way], data)
    assert (list(found), end) == (values, len(data))


@pytest.mark.benchmark(group="varu64 decode one")
@pytest.mark.parametrize("value", [7, 300, 2**40])
def test_decode_one(benchmark, value):
    data = varu64.encode(value)
    assert benchmark(varu64.decode, data) == (value, len(data))
