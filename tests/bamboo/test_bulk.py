"""Many entries at once: the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from culm.bamboo.bulk import decode_many, hash_many, signatures_are_valid
from culm.bamboo.entry import Entry, decode, sign, verify_signature
from culm.wire.errors import DecodeError
from culm.wire.multihash import FAMILIES, HashFamily

KEYS = [SigningKey(bytes([number]) * 32) for number in (1, 2)]


def entries(family: HashFamily) -> list[Entry]:
    """Two logs, up to an entry with both links."""
    made = []
    for log_id, key in ((0, KEYS[0]), (2**64 - 1, KEYS[1])):
        for seqnum in (1, 2, 3, 4):
            link = family.hash(b"%d" % seqnum)
            made.append(
                sign(
                    key,
                    family=family,
                    log_id=log_id,
                    seqnum=seqnum,
                    payload=b"x" * seqnum,
                    backlink=link if seqnum > 1 else None,
                    lipmaalink=link if seqnum == 4 else None,
                    end_of_log=seqnum == 4,
                )
            )
    return made


MADE = {family: entries(family) for family in FAMILIES.values()}


@pytest.mark.parametrize("family", MADE)
def test_all_fields_and_hashes_are_those_of_decode(family: HashFamily):
    encodings = [entry.encode() for entry in MADE[family]]
    found = decode_many(encodings, family=family)
    assert found == MADE[family]
    for each, entry in zip(found, MADE[family], strict=True):
        assert each is not None
        assert each.log == entry.log
        assert each.hash() == entry.hash()
        assert each.encode() == entry.encode()
    assert hash_many(encodings, family=family) == [entry.hash() for entry in MADE[family]]
    assert decode_many([], family=family) == hash_many([], family=family) == []


@given(data=st.data(), family=st.sampled_from(list(MADE)))
def test_what_decode_refuses_is_none_and_hurts_no_other(data: st.DataObject, family: HashFamily):
    encodings = [entry.encode() for entry in MADE[family]]
    index = data.draw(st.integers(0, len(encodings) - 1))
    patched = bytearray(encodings[index])
    patched[data.draw(st.integers(0, len(patched) - 1))] ^= data.draw(st.integers(1, 255))
    encodings[index] = bytes(patched[: data.draw(st.integers(0, len(patched)))])
    found = decode_many(encodings, family=family)
    try:
        wanted: Entry | None = decode(encodings[index], family=family)
    except DecodeError:
        wanted = None
    assert found[index] == wanted
    del found[index], encodings[index]
    assert found == decode_many(encodings, family=family)
    assert None not in found


def test_signatures_are_told_apart():
    (family, *_) = MADE
    good = MADE[family]
    other = decode(good[0].encode()[:-1] + b"\0", family=family)
    mixed = [good[0], other, *good[1:]]
    assert signatures_are_valid(mixed) == [verify_signature(entry) for entry in mixed]
    assert signatures_are_valid([]) == []
