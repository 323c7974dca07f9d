from __future__ import annotations

from dataclasses import replace

import pytest
from bamboo_support import KEYS, resign, sign_again

from culm.bamboo.entry import Entry, decode, verify_signature
from culm.bamboo.errors import Reason, VerificationError
from culm.bamboo.forks import ForkProof, find_fork, same_place
from culm.bamboo.verify import LogVerifier
from culm.machines.sample_logs import make_log
from culm.wire.errors import DecodeError, Truncated, WireErrorCode
from culm.wire.multihash import YAMF, YASMF, HashFamily

FAMILIES = pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)


def unsigned(entry: Entry) -> Entry:
    return replace(entry, signature=bytes(64))


@FAMILIES
def test_two_signed_entries_of_one_sequence_number_prove_a_fork(family: HashFamily) -> None:
    first = make_log(family)[4].entry
    second = make_log(family, branch=b"other")[4].entry
    proof = find_fork(first, second)
    assert proof is not None
    assert proof.verify()
    assert (proof.log, proof.seqnum) == (first.log, 5)
    assert {proof.first, proof.second} == {first, second}
    assert proof == find_fork(second, first) == ForkProof(first, second) == ForkProof(second, first)
    assert hash(proof) == hash(ForkProof(second, first))


def test_the_end_of_log_flag_alone_makes_a_fork() -> None:
    entry = make_log(YAMF)[4].entry
    assert find_fork(entry, resign(entry, end_of_log=True)) is not None


def test_one_entry_decoded_twice_is_no_fork() -> None:
    entry = make_log(YAMF)[4].entry
    again = decode(entry.encode(), family=YAMF)
    assert find_fork(entry, again) is None
    with pytest.raises(ValueError, match="one entry"):
        ForkProof(entry, again)


def test_entries_of_different_places_are_no_fork() -> None:
    entry = make_log(YAMF)[4].entry
    for other in (
        make_log(YAMF)[5].entry,
        make_log(YAMF, log_id=1)[4].entry,
        make_log(YAMF, seed=2)[4].entry,
        make_log(YASMF)[4].entry,
    ):
        assert not same_place(entry, other)
        assert find_fork(entry, other) is None
        with pytest.raises(ValueError, match="different places"):
            ForkProof(entry, other)


def test_nobody_is_blamed_without_two_valid_signatures() -> None:
    entry = make_log(YAMF)[4].entry
    other = make_log(YAMF, branch=b"other")[4].entry
    forged = resign(other, KEYS[2])
    assert find_fork(entry, replace(forged, author=entry.author)) is None
    for pair in ((unsigned(other), entry), (other, unsigned(entry))):
        assert find_fork(*pair) is None
        assert not ForkProof(*pair).verify()


def test_a_second_signature_of_the_author_is_a_fork() -> None:
    """The hash covers the signature, so a backlink can name only one of the two."""
    log = make_log(YAMF)
    entry, again = log[4].entry, sign_again(log[4].entry)
    assert verify_signature(again)
    assert again.signed_bytes() == entry.signed_bytes()
    assert again.signature != entry.signature
    assert again.hash() != entry.hash()
    proof = find_fork(entry, again)
    assert proof is not None
    assert proof.verify()
    verifier = LogVerifier(entry.log, family=YAMF)
    for new in log[:4]:
        verifier.verify(new.entry)
    verifier.verify(again)
    with pytest.raises(VerificationError) as caught:
        verifier.verify(log[5].entry)
    assert caught.value.reason is Reason.WRONG_BACKLINK


@FAMILIES
def test_a_proof_survives_encoding_and_decoding(family: HashFamily) -> None:
    first = make_log(family)[4].entry
    second = make_log(family, branch=b"other")[4].entry
    proof = ForkProof(first, second)
    data = b"before" + proof.encode() + b"after"
    assert ForkProof.decode_prefix(data, 6, family=family) == (proof, len(data) - 5)
    swapped = proof.second.encode() + proof.first.encode()
    assert ForkProof.decode_prefix(swapped, family=family)[0] == proof
    for size in (0, 10, len(proof.first.encode()), len(proof.encode()) - 1):
        with pytest.raises(Truncated):
            ForkProof.decode_prefix(proof.encode()[:size], family=family)
    for bad in (first.encode() * 2, first.encode() + make_log(family)[5].entry.encode()):
        with pytest.raises(DecodeError) as caught:
            ForkProof.decode_prefix(bad, family=family)
        assert caught.value.code is WireErrorCode.BAD_VALUE
        assert caught.value.offset == len(first.encode())
