from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from bamboo_support import KEYS, SIGNED, U64, entries, families, resign
from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo.entry import (
    Entry,
    LogKey,
    decode,
    decode_prefix,
    encoded_size_max,
    sign,
    verify_signature,
)
from culm.machines.sample_logs import make_log
from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from culm.wire.multihash import YAMF, YASMF, HashFamily

# The order of the group of Ed25519 (RFC 8032, section 5.1).
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493


def field_offsets(entry: Entry) -> dict[str, int]:
    """The offsets of an entry's fields, if each of its numbers takes one byte."""
    hash_size = entry.family.encoded_size
    offsets = {"tag": 0, "author": 1, "log_id": 33, "seqnum": 34}
    at = 35
    for name in ("lipmaalink", "backlink"):
        if getattr(entry, name) is not None:
            offsets[name] = at
            at += hash_size
    return offsets | {"size": at, "payload_hash": at + 1, "signature": at + 1 + hash_size}


@given(entries())
def test_entries_survive_encoding_and_decoding(entry: Entry) -> None:
    encoded = entry.encode()
    decoded = decode(encoded, family=entry.family)
    assert decoded == entry
    assert hash(decoded) == hash(entry)
    assert decoded.encode() == encoded
    anew = replace(decoded)
    assert anew.encode() == encoded
    assert anew.encode() is anew.encode()
    assert decoded.hash() == entry.hash() == entry.family.hash(encoded)
    assert decoded.encode() is decoded.encode()
    assert decoded.hash() is decoded.hash()
    assert replace(decoded) == decoded  # with or without remembered values
    assert repr(replace(decoded)) == repr(decoded)
    assert decoded.signed_bytes() + decoded.signature == encoded
    assert decoded.log == LogKey(entry.author, entry.log_id)
    assert len(encoded) <= encoded_size_max(entry.family)
    assert verify_signature(decoded)


@given(entries(), st.binary(max_size=40), st.binary(max_size=40))
def test_an_entry_delimits_itself(entry: Entry, before: bytes, after: bytes) -> None:
    data = before + entry.encode() + after
    end = len(before) + len(entry.encode())
    for buffer in (data, bytearray(data), memoryview(data)):
        assert decode_prefix(buffer, len(before), family=entry.family) == (entry, end)
    if after:
        with pytest.raises(DecodeError) as caught:
            decode(data[len(before) :], family=entry.family)
        assert caught.value.code is WireErrorCode.TRAILING_DATA
        assert caught.value.offset == end - len(before)


@given(entries(), st.binary(max_size=20))
def test_every_proper_prefix_is_truncated(entry: Entry, before: bytes) -> None:
    encoded = before + entry.encode()
    for size in range(len(before), len(encoded)):
        with pytest.raises(Truncated) as caught:
            decode_prefix(encoded[:size], len(before), family=entry.family)
        assert caught.value.offset == size
    with pytest.raises(Truncated) as caught:
        decode_prefix(bytearray(encoded[:-1]), len(before), family=entry.family)
    assert caught.value.offset == len(encoded) - 1


@given(families, st.binary(max_size=400), st.integers(0, 3))
def test_any_bytes_decode_or_are_refused(family: HashFamily, data: bytes, offset: int) -> None:
    # Random bytes seldom get past the tag and the author; give them a start.
    for attempt in (data, bytes(offset + 33) + data):
        try:
            entry, end = decode_prefix(attempt, offset, family=family)
        except DecodeError:
            continue
        assert entry.encode() == attempt[offset:end] == replace(entry).encode()


def test_the_greatest_entry_has_the_greatest_size() -> None:
    for family in (YAMF, YASMF):
        hash = family.hash(b"")
        entry = sign(
            KEYS[0],
            family=family,
            log_id=U64,
            seqnum=U64,
            lipmaalink=hash,
            backlink=hash,
            payload_size=U64,
            payload_hash=hash,
        )
        assert len(entry.encode()) == encoded_size_max(family)


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
def test_no_tag_but_0_and_1_is_valid(family: HashFamily) -> None:
    encoded = make_log(family)[1].entry.encode()
    for tag in range(2, 256):
        with pytest.raises(DecodeError) as caught:
            decode(bytes([tag]) + encoded[1:], family=family)
        assert (caught.value.code, caught.value.offset) == (WireErrorCode.BAD_TYPE, 0)


@pytest.mark.parametrize("field", ["log_id", "seqnum", "size"])
def test_numbers_are_canonical_varu64s(field: str) -> None:
    entry = make_log(YAMF)[3].entry
    encoded, at = entry.encode(), field_offsets(entry)[field]
    for longer in (b"\xf8" + encoded[at : at + 1], b"\xf9\x00" + encoded[at : at + 1]):
        with pytest.raises(DecodeError) as caught:
            decode(encoded[:at] + longer + encoded[at + 1 :], family=YAMF)
        assert (caught.value.code, caught.value.offset) == (WireErrorCode.NON_CANONICAL, at)


def test_there_is_no_entry_0() -> None:
    encoded = make_log(YAMF)[0].entry.encode()
    with pytest.raises(DecodeError) as caught:
        decode(encoded[:34] + b"\0" + encoded[35:], family=YAMF)
    assert (caught.value.code, caught.value.offset) == (WireErrorCode.BAD_VALUE, 34)


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
@pytest.mark.parametrize("field", ["lipmaalink", "backlink", "payload_hash"])
def test_hashes_are_canonical_hashes_of_the_family(family: HashFamily, field: str) -> None:
    entry = make_log(family)[3].entry
    encoded, at = entry.encode(), field_offsets(entry)[field]
    for prefix, code, offset in (
        (b"\x01", WireErrorCode.BAD_TYPE, 0),
        (b"\x00\x3f", WireErrorCode.BAD_LENGTH, 1),
        (b"\xf8\x00", WireErrorCode.NON_CANONICAL, 0),
        (b"\x00\xf8\x20", WireErrorCode.NON_CANONICAL, 1),
    ):
        with pytest.raises(DecodeError) as caught:
            decode(encoded[:at] + prefix + encoded[at + len(prefix) :], family=family)
        assert (caught.value.code, caught.value.offset) == (code, at + offset)


def test_the_families_do_not_read_each_other() -> None:
    for family, other in ((YAMF, YASMF), (YASMF, YAMF)):
        for new in make_log(family)[:5]:
            with pytest.raises(DecodeError):
                decode(new.entry.encode(), family=other)


def test_an_error_behind_an_offset_names_the_index_in_the_buffer() -> None:
    encoded = b"xyz" + b"\x07" + make_log(YAMF)[0].entry.encode()[1:]
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        with pytest.raises(DecodeError) as caught:
            decode_prefix(buffer, 3, family=YAMF)
        assert caught.value.offset == 3


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
@pytest.mark.parametrize("seqnum", [1, 3, 4])
def test_no_byte_of_an_entry_can_be_changed(family: HashFamily, seqnum: int) -> None:
    """Bit by bit: it does not decode, or decodes to an entry that the author did not sign."""
    encoded = make_log(family)[seqnum - 1].entry.encode()
    for index in range(len(encoded)):
        for mask in (0x01, 0x10, 0x80, 0xFF):
            mutated = bytearray(encoded)
            mutated[index] ^= mask
            try:
                entry = decode(mutated, family=family)
            except DecodeError:
                continue
            assert entry.encode() == mutated
            assert not verify_signature(entry), (index, mask)


@given(entries(), st.data())
def test_no_field_can_be_changed_without_the_key(entry: Entry, data: st.DataObject) -> None:
    other = data.draw(entries(entry.family))
    for name in (*SIGNED[1:], "author", "signature"):
        try:
            changed = replace(entry, **{name: getattr(other, name)})
        except ValueError:  # links that are too many or too few
            continue
        assert verify_signature(changed) == (changed == entry)


def test_a_signature_cannot_be_reshaped() -> None:
    """S + L signs the same bytes for a verifier that does not refuse it; then anyone could fork."""
    entry = make_log(YAMF)[3].entry
    scalar = int.from_bytes(entry.signature[32:], "little") + GROUP_ORDER
    reshaped = replace(entry, signature=entry.signature[:32] + scalar.to_bytes(32, "little"))
    assert verify_signature(entry)
    assert not verify_signature(reshaped)


def test_signing_again_gives_the_same_entry() -> None:
    for new in make_log(YASMF):
        assert resign(new.entry) == new.entry


def test_a_payload_is_signed_by_size_and_hash() -> None:
    whole = sign(KEYS[0], family=YAMF, log_id=1, seqnum=1, payload=b"content")
    parts = sign(
        KEYS[0],
        family=YAMF,
        log_id=1,
        seqnum=1,
        payload_size=7,
        payload_hash=YAMF.hash(b"content"),
    )
    assert whole == parts
    assert sign(KEYS[0], family=YAMF, log_id=1, seqnum=1, payload=memoryview(b"content")) == whole
    for missing in ({"payload_size": 7}, {"payload_hash": YAMF.hash(b"")}, {}):
        with pytest.raises(ValueError, match="neither a payload nor"):
            sign(KEYS[0], family=YAMF, log_id=1, seqnum=1, **missing)


@pytest.mark.parametrize(
    ("seqnum", "changes", "message"),
    [
        (3, {"author": bytes(31)}, "author must be 32 bytes, not 31"),
        (3, {"signature": bytes(65)}, "signature must be 64 bytes, not 65"),
        (3, {"log_id": -1}, r"log id must be in \[0, .*, not -1"),
        (3, {"log_id": 2**64}, r"log id must be in \[0, "),
        (1, {"seqnum": 0}, r"seqnum must be in \[1, .*, not 0"),
        (3, {"payload_size": 2**64}, r"payload size must be in \[0, "),
        (3, {"payload_hash": YASMF.hash(b"")}, "payload hash is not an encoded YAMF hash"),
        (3, {"payload_hash": bytes(66)}, "payload hash is not an encoded YAMF hash"),
        (1, {"backlink": YAMF.hash(b"")}, "entry 1 has no backlink"),
        (3, {"backlink": None}, "entry 3 has a backlink"),
        (3, {"backlink": YASMF.hash(b"")}, "backlink is not an encoded YAMF hash"),
        (3, {"lipmaalink": YAMF.hash(b"")}, "entry 3 has no lipmaalink"),
        (4, {"lipmaalink": None}, "entry 4 has a lipmaalink"),
        (4, {"lipmaalink": b"\0\x40"}, "lipmaalink is not an encoded YAMF hash"),
        (4, {"seqnum": 5}, "entry 5 has no lipmaalink"),
        (3, {"family": YASMF}, "is not an encoded YASMF hash"),
    ],
)
def test_fields_that_no_encoding_has_are_refused(
    seqnum: int, changes: dict[str, object], message: str
) -> None:
    entry = make_log(YAMF)[seqnum - 1].entry
    with pytest.raises(ValueError, match=message):
        replace(entry, **changes)


def test_entries_are_frozen_and_can_be_pickled() -> None:
    for family in (YAMF, YASMF):
        entry = decode(make_log(family)[3].entry.encode(), family=family)
        with pytest.raises(FrozenInstanceError):
            entry.seqnum = 5  # type: ignore[misc]
        copy = pickle.loads(pickle.dumps(entry))
        assert copy == entry
        assert copy.family is family
        assert copy.encode() == entry.encode()


def test_an_entry_does_not_end_its_log_unless_it_says_so() -> None:
    entry = make_log(YAMF, count=1)[0].entry
    fields = {name: getattr(entry, name) for name in entry.__match_args__}
    assert fields.pop("end_of_log") is False
    assert not Entry(**fields).end_of_log
