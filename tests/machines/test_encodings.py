"""Numbers are found and written as the encodings define."""

from __future__ import annotations

import pytest

from culm.machines.encodings import CBOR, DECIMAL, EVERY, EXTREMES, VARU64, Encoding


@pytest.mark.parametrize("encoding", EVERY, ids=str)
def test_what_is_written_is_found(encoding: Encoding) -> None:
    for number in EXTREMES:
        written = encoding.encode(number)
        if written is not None:
            assert encoding.places(written)[0] == (0, len(written))


def test_extremes_are_the_ends_of_all_widths_and_their_neighbours() -> None:
    assert {0, 1, 2, 127, 128, 129, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64} <= {*EXTREMES}
    assert VARU64.encode(2**64 - 1) == b"\xff" * 9
    assert VARU64.encode(2**64) is None
    assert CBOR[2].encode(2**32 - 1) == b"\x5a\xff\xff\xff\xff"


def test_a_decimal_number_is_one_place() -> None:
    assert DECIMAL.places(b"i-12e5:hello") == [(2, 4), (5, 6)]
