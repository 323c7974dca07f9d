from __future__ import annotations

import copy
import hashlib
import pickle

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from culm.wire import stlv
from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from culm.wire.multihash import FAMILIES, YAMF, YASMF, HashFamily

both = pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
families = st.sampled_from([YAMF, YASMF])


def test_the_families_are_those_of_their_specifications() -> None:
    assert (YAMF.name, YAMF.digest_size, YAMF.encoded_size) == ("YAMF", 64, 66)
    assert (YASMF.name, YASMF.digest_size, YASMF.encoded_size) == ("YASMF", 32, 34)
    assert YAMF.prefix == bytes.fromhex("0040")
    assert YASMF.prefix == bytes.fromhex("0020")
    assert FAMILIES == {"YAMF": YAMF, "YASMF": YASMF}


def test_known_digests() -> None:
    # RFC 7693, appendix A, and the first test vector of the BLAKE3 paper's repository.
    assert YAMF.hash(b"abc").hex() == (
        "0040ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
    )
    assert YASMF.hash(b"").hex() == (
        "0020af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    )


@given(st.binary(max_size=3000))
def test_a_hash_is_the_canonical_stlv_of_the_digest(data: bytes) -> None:
    assert YAMF.hash(data) == stlv.encode(0, hashlib.blake2b(data, digest_size=64).digest())
    assert YASMF.hash(data) == stlv.encode(0, blake3(data).digest(length=32))


@given(families, st.lists(st.binary(max_size=300), max_size=5))
def test_pieces_hash_like_the_whole(family: HashFamily, pieces: list[bytes]) -> None:
    hasher = family.hasher()
    so_far = b""
    assert hasher.hash() == family.hash(b"")
    for piece in pieces:
        hasher.update(memoryview(piece))
        so_far += piece
        assert hasher.hash() == family.hash(so_far) == family.hash(bytearray(so_far))
        copy = hasher.copy()
        copy.update(b"of its own")
        assert copy.hash() == family.hash(so_far + b"of its own")


@given(families, st.binary(), st.binary(max_size=9), st.binary(max_size=9))
def test_hashes_delimit_themselves(
    family: HashFamily, data: bytes, before: bytes, after: bytes
) -> None:
    hash = family.hash(data)
    end = len(before) + len(hash)
    for buffer in (bytes, bytearray, memoryview):
        decoded = family.decode(buffer(before + hash + after), len(before))
        assert decoded == (hash, end)
        assert type(decoded[0]) is bytes
    assert stlv.decode(hash) == (0, hash[2:], len(hash))
    for size in range(len(before), end):
        with pytest.raises(Truncated) as caught:
            family.decode((before + hash)[:size], len(before))
        assert caught.value.offset == size


@both
@pytest.mark.parametrize(
    ("start", "code", "offset"),
    [
        ("01", WireErrorCode.BAD_TYPE, 0),
        ("f0", WireErrorCode.BAD_TYPE, 0),
        ("f8f8", WireErrorCode.BAD_TYPE, 0),
        ("f800", WireErrorCode.NON_CANONICAL, 0),
        ("f90000", WireErrorCode.NON_CANONICAL, 0),
        ("001f", WireErrorCode.BAD_LENGTH, 1),
        ("0000", WireErrorCode.BAD_LENGTH, 1),
        ("00f8f8", WireErrorCode.BAD_LENGTH, 1),
        ("00ffffffffffffffffff", WireErrorCode.BAD_LENGTH, 1),
        ("00f820", WireErrorCode.NON_CANONICAL, 1),
        ("00f840", WireErrorCode.NON_CANONICAL, 1),
    ],
)
@pytest.mark.parametrize("behind", [0, 100])
def test_what_is_no_hash_of_the_family_is_refused_as_soon_as_it_shows(
    family: HashFamily, start: str, code: WireErrorCode, offset: int, behind: int
) -> None:
    with pytest.raises(DecodeError) as caught:
        family.decode(b"..." + bytes.fromhex(start) + bytes(behind), 3)
    assert (caught.value.code, caught.value.offset) == (code, 3 + offset)


def test_the_families_refuse_each_other() -> None:
    for family, other in ((YAMF, YASMF), (YASMF, YAMF)):
        with pytest.raises(DecodeError) as caught:
            family.decode(other.hash(b"") + bytes(100))
        assert caught.value.code is WireErrorCode.BAD_LENGTH


@both
def test_a_family_is_one_object_wherever_it_travels(family: HashFamily) -> None:
    assert pickle.loads(pickle.dumps(family)) is family
    assert copy.deepcopy(family) is family
    assert repr(family) == family.name
    with pytest.raises(AttributeError):
        family.digest_size = 3  # type: ignore[misc]
