from __future__ import annotations

from dataclasses import replace

import pytest
from bamboo_support import KEYS, entries, resign
from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, decode
from culm.bamboo.errors import AUTHOR_FAULTS, Reason, VerificationError
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import (
    certificate_gaps,
    certificate_pool,
    has_lipmaalink,
    lipmaa,
    open_targets,
    shortest_path,
)
from culm.bamboo.records import Head
from culm.bamboo.store import MemoryStore
from culm.bamboo.verify import LogVerifier, PayloadVerifier, payload_fault, verify_log
from culm.machines.sample_logs import make_log
from culm.wire.errors import DecodeError
from culm.wire.multihash import YAMF, YASMF, HashFamily

FAMILIES = pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
COUNT = 45  # beyond u(4) = 40
LOG = [new.entry for new in make_log(YAMF, count=COUNT)]
OTHER = [new.entry for new in make_log(YAMF, count=COUNT, branch=b"other")]
KEY = LOG[0].log
HASH = YAMF.hash(b"something else")


def verifier(known: int = 0, *, sparse: bool = False) -> LogVerifier:
    """A verifier of LOG that has verified the entries up to `known`."""
    made = LogVerifier(KEY, family=YAMF, sparse=sparse)
    for entry in LOG[:known]:
        assert made.verify(entry)
    return made


def reason(of: LogVerifier, entry: Entry) -> Reason | None:
    """The reason why `entry` does not verify; the verifier must be unchanged."""
    position, known = of.position, of.known()
    refusal = None
    try:
        of.verify(entry)
    except VerificationError as error:
        refusal = error
    if refusal is None:
        return None
    assert refusal.seqnum == entry.seqnum
    assert (of.position, of.known()) == (position, known)
    return refusal.reason


# -- Whole logs ---------------------------------------------------------------------------


@FAMILIES
def test_a_whole_log_verifies(family: HashFamily) -> None:
    log = [new.entry for new in make_log(family, count=COUNT)]
    head = verify_log(log[0].log, [entry.encode() for entry in log], family=family)
    assert head == Head(COUNT, log[-1].hash(), False)
    assert verify_log(log[0].log, [], family=family) is None


def test_only_the_hashes_that_links_can_still_reach_are_kept() -> None:
    """And they suffice: every later entry of the log verifies."""
    of = verifier()
    for seqnum, entry in enumerate(LOG, 1):
        assert of.verify(entry)
        assert of.position == seqnum
        assert set(open_targets(seqnum)) <= of.known().keys()
        assert all(hash == LOG[n - 1].hash() == of.hash_of(n) for n, hash in of.known().items())
        assert len(of.known()) <= 12  # three for each of the levels 1, 4, 13, 40


def test_a_long_log_is_verified_in_memory_of_its_logarithm() -> None:
    author = LogAuthor(KEYS[0], family=YASMF)
    of = LogVerifier(author.log, family=YASMF)
    for n in range(1, 3500):
        entry = author.publish(payload_size=0, payload_hash=YASMF.hash(b"")).entry
        assert of.verify(entry)
        assert len(of.known()) <= 3 * (1 + sum(n >= (3**k - 1) // 2 for k in range(1, 9)))
    assert len(of.known()) < 25


@pytest.mark.parametrize("head", [1, 3, 4, 12, 13, 14, 39, 40, 41])
def test_verification_goes_on_from_the_head_of_a_store(head: int) -> None:
    store = MemoryStore(family=YAMF)
    store.append(KEY, make_log(YAMF, count=COUNT)[:head])
    found = store.head(KEY)
    assert found is not None
    hashes = store.hashes(KEY, open_targets(found.seqnum))
    of = LogVerifier(KEY, family=YAMF, head=found, known=hashes)
    assert of.log == KEY
    assert of.position == head
    for entry in LOG[head:]:
        assert of.verify(entry)
    for missing in open_targets(head)[:-1]:
        fewer = {n: hash for n, hash in hashes.items() if n != missing}
        with pytest.raises(ValueError, match=str(missing)):
            LogVerifier(KEY, family=YAMF, head=found, known=fewer)


def test_the_head_need_not_be_among_the_known_hashes() -> None:
    of = LogVerifier(KEY, family=YAMF, head=Head(1, LOG[0].hash()))
    assert of.known() == {1: LOG[0].hash()}
    assert of.verify(LOG[1])


@pytest.mark.parametrize("position", range(1, 44))
def test_what_one_verifier_knows_lets_another_go_on(position: int) -> None:
    of = verifier(position)
    after = LogVerifier(KEY, family=YAMF, known=of.known())
    assert after.position == position
    assert after.verify(LOG[position])


def test_an_entry_just_verified_is_not_new() -> None:
    of = verifier(5)
    assert not of.verify(LOG[4])
    assert not of.verify(decode(LOG[3].encode(), family=YAMF))
    assert of.position == 5
    assert of.verify(LOG[5])


# -- "An entry is considered verified if and only if" -------------------------------------


def test_authenticity_has_been_checked_via_the_signature() -> None:
    of = verifier(5)
    for changed in (
        replace(LOG[5], signature=bytes(64)),
        replace(LOG[5], payload_size=1),
        replace(LOG[5], backlink=HASH, end_of_log=True),
        replace(resign(LOG[5], KEYS[0]), author=KEY.author),
    ):
        assert of.faults(changed) == (Reason.BAD_SIGNATURE,)
        assert reason(of, changed) is Reason.BAD_SIGNATURE
    assert reason(of, replace(LOG[4], signature=bytes(64))) is Reason.BAD_SIGNATURE
    assert of.verify(LOG[5])


def test_matching_the_claimed_author_and_log() -> None:
    of = verifier(5)
    for stranger in (
        make_log(YAMF, seed=2)[5].entry,
        make_log(YAMF, log_id=1)[5].entry,
        make_log(YASMF)[5].entry,
    ):
        assert reason(of, stranger) is Reason.WRONG_LOG


def test_the_backlink_points_to_the_entry_of_the_expected_sequence_number() -> None:
    for at in (2, 4, 5, 13, 14):
        changed = resign(LOG[at - 1], backlink=HASH)
        assert verifier(at - 1).faults(changed) == (Reason.WRONG_BACKLINK,)
        assert reason(verifier(at - 1), changed) is Reason.WRONG_BACKLINK
        if at > 2:
            older = resign(LOG[at - 1], backlink=LOG[at - 3].hash())
            assert reason(verifier(at - 1), older) is Reason.WRONG_BACKLINK


def test_the_lipmaalink_points_to_the_entry_of_the_expected_sequence_number() -> None:
    for at in (4, 8, 13, 40):
        for hash in (HASH, LOG[lipmaa(at)].hash(), LOG[at - 2].hash()):
            changed = resign(LOG[at - 1], lipmaalink=hash)
            assert verifier(at - 1).faults(changed) == (Reason.WRONG_LIPMAALINK,)
            assert reason(verifier(at - 1), changed) is Reason.WRONG_LIPMAALINK


def test_every_fault_of_an_entry_is_told() -> None:
    changed = resign(LOG[12], lipmaalink=HASH, backlink=HASH)
    assert verifier(12).faults(changed) == (Reason.WRONG_BACKLINK, Reason.WRONG_LIPMAALINK)
    of = LogVerifier(
        KEY,
        family=YAMF,
        head=Head(12, LOG[11].hash(), True),
        known=verifier(12).known(),
        expected={13: HASH},
        newest=20,
        invalid_from=11,
    )
    assert of.faults(resign(changed, end_of_log=True)) == (
        Reason.INVALID_LOG,
        Reason.AFTER_END_OF_LOG,
        Reason.EARLY_END_OF_LOG,
        Reason.CONTRADICTED,
        Reason.WRONG_BACKLINK,
        Reason.WRONG_LIPMAALINK,
    )


def test_there_is_a_link_path_to_the_first_entry() -> None:
    of = verifier(5)
    for at in (7, 8, 9, 40):
        assert reason(of, LOG[at - 1]) is Reason.GAP
    assert reason(verifier(), LOG[1]) is Reason.GAP
    assert of.verify(LOG[5])


# -- Forks and ends -----------------------------------------------------------------------


def test_forked_logs_are_invalid_from_the_point_of_the_earliest_fork() -> None:
    of = verifier(5)
    with pytest.raises(VerificationError) as caught:
        of.verify(OTHER[4])
    assert caught.value.reason is Reason.FORK
    assert caught.value.proof == ForkProof(LOG[4], OTHER[4])
    assert reason(of, LOG[4]) is Reason.INVALID_LOG
    assert reason(of, LOG[5]) is Reason.INVALID_LOG
    assert not of.verify(LOG[3])
    with pytest.raises(VerificationError) as caught:
        of.verify(OTHER[3])  # entry 4 was not the last: its hash is known, not the entry
    assert caught.value.reason is Reason.FORK
    assert caught.value.proof is None
    assert reason(of, LOG[3]) is Reason.INVALID_LOG
    with pytest.raises(VerificationError):
        of.verify(OTHER[4])
    assert reason(of, LOG[3]) is Reason.INVALID_LOG  # a later fork makes nothing valid again


def test_a_log_is_verified_up_to_a_known_fork_only() -> None:
    of = LogVerifier(KEY, family=YAMF, invalid_from=7)
    for entry in LOG[:6]:
        of.verify(entry)
    for fork in (LOG[6], OTHER[6]):
        assert reason(of, fork) in (Reason.INVALID_LOG, Reason.WRONG_BACKLINK)
    assert Reason.INVALID_LOG in of.faults(OTHER[6])


def test_an_entry_before_those_that_are_kept_cannot_be_judged() -> None:
    of = verifier(5)
    assert 2 not in of.known()
    assert reason(of, LOG[1]) is Reason.OUT_OF_ORDER
    assert reason(of, OTHER[1]) is Reason.OUT_OF_ORDER


def test_a_verified_later_entry_can_contradict() -> None:
    of = LogVerifier(
        KEY, family=YAMF, known=verifier(5).known(), expected={6: LOG[5].hash(), 7: HASH}
    )
    assert of.verify(LOG[5])
    assert of.faults(LOG[6]) == (Reason.CONTRADICTED,)
    assert reason(of, LOG[6]) is Reason.CONTRADICTED


def ended(at: int) -> list[Entry]:
    """A log with an end-of-log entry at `at` that the author ignores."""
    author = LogAuthor(KEYS[1], family=YAMF)
    made = [author.publish(b"", end_of_log=n == at).entry for n in range(1, at + 1)]
    hashes = {entry.seqnum: entry.hash() for entry in made}
    go_on = LogAuthor(KEYS[1], family=YAMF, head=Head(at, made[-1].hash()), hashes=hashes)
    made += [go_on.publish(b"").entry for _ in range(10)]
    return made


def test_nothing_follows_an_end_of_log_entry() -> None:
    for at in (1, 3, 4, 12, 13):
        log = ended(at)
        of = LogVerifier(KEY, family=YAMF)
        for entry in log[:at]:
            assert of.verify(entry)
        assert reason(of, log[at]) is Reason.AFTER_END_OF_LOG
        assert not of.verify(log[at - 1])
        head = Head(at, log[at - 1].hash(), True)
        after = LogVerifier(KEY, family=YAMF, head=head, known=of.known())
        assert reason(after, log[at]) is Reason.AFTER_END_OF_LOG


def test_nothing_follows_an_end_of_log_entry_not_even_past_a_gap() -> None:
    log = ended(3)
    of = LogVerifier(KEY, family=YAMF, sparse=True)
    for entry in log[:3]:
        of.verify(entry)
    assert Reason.AFTER_END_OF_LOG in of.faults(log[11])


def test_an_end_of_log_before_a_verified_entry_is_refused() -> None:
    log = ended(5)
    of = LogVerifier(KEY, family=YAMF, newest=6)
    for entry in log[:4]:
        of.verify(entry)
    assert reason(of, log[4]) is Reason.EARLY_END_OF_LOG
    harmless = LogVerifier(KEY, family=YAMF, newest=5, head=None)
    for entry in log[:5]:
        assert harmless.verify(entry)


# -- "Partial Replication and Log Verification" -------------------------------------------


@pytest.mark.parametrize("wanted", [[1], [2], [7], [23], [40], [44], [7, 23], [5, 17, 38, 45]])
def test_certificate_pools_verify_a_subset(wanted: list[int]) -> None:
    subset = sorted({n for x in wanted for n in certificate_pool(x) if n <= COUNT})
    of = LogVerifier(KEY, family=YAMF, sparse=True)
    for n in subset:
        assert of.verify(LOG[n - 1])
    assert certificate_gaps(wanted, set(subset)) == []
    encoded = [LOG[n - 1].encode() for n in subset]
    newest = Head(subset[-1], LOG[subset[-1] - 1].hash(), False)
    assert verify_log(KEY, encoded, family=YAMF, sparse=True) == newest


@given(st.sets(st.integers(1, COUNT)))
def test_in_a_subset_an_entry_is_verified_if_and_only_if_a_path_is(subset: set[int]) -> None:
    of = LogVerifier(KEY, family=YAMF, sparse=True)
    verified: set[int] = set()
    for n in sorted(subset):
        path_is_there = set(shortest_path(n, 1)[1:]) <= verified
        assert reason(of, LOG[n - 1]) is (None if path_is_there else Reason.GAP)
        if path_is_there:
            verified.add(n)
        assert len(of.known()) <= 12


@given(st.sets(st.integers(2, COUNT)), st.integers(2, COUNT), st.booleans())
def test_in_a_subset_links_to_known_entries_are_checked(
    subset: set[int], at: int, backlink: bool
) -> None:
    of = LogVerifier(KEY, family=YAMF, sparse=True)
    there = {m for n in {*subset, at} for m in shortest_path(n, 1)}
    for n in sorted(n for n in there if n < at):
        of.verify(LOG[n - 1])
    if backlink:
        changed = resign(LOG[at - 1], backlink=HASH)
        expected = {Reason.WRONG_BACKLINK} if at - 1 in there else set()
    elif has_lipmaalink(at):
        changed = resign(LOG[at - 1], lipmaalink=HASH)
        expected = {Reason.WRONG_LIPMAALINK}
    else:
        return
    assert set(of.faults(changed)) == expected


def test_a_range_is_verified_from_the_hash_of_one_older_entry() -> None:
    """The hash of the entry that the range's first entry links to: the expected starting hash."""
    of = LogVerifier(KEY, family=YAMF, known={4: LOG[3].hash()}, sparse=True)
    assert of.position == 4
    assert reason(of, resign(LOG[12], lipmaalink=HASH)) is Reason.WRONG_LIPMAALINK
    for n in (13, 14, 15, 40):
        assert of.verify(LOG[n - 1])


def test_entries_verified_before_are_passed_over() -> None:
    of = verifier(3)
    of.skip(4, LOG[3].hash())
    assert (of.position, of.hash_of(4)) == (4, LOG[3].hash())
    assert of.verify(LOG[4])
    for seqnum in (0, 3, 5, 7):
        with pytest.raises(ValueError, match="cannot be passed over"):
            of.skip(seqnum, HASH)
    sparse = verifier(4, sparse=True)
    sparse.skip(13, LOG[12].hash())
    assert sparse.verify(LOG[13])
    with pytest.raises(ValueError, match="cannot be passed over"):
        sparse.skip(14, HASH)
    sparse.skip(15, HASH, end_of_log=True)
    assert Reason.AFTER_END_OF_LOG in sparse.faults(LOG[15])


# -- Anything at all ----------------------------------------------------------------------


@given(entries(YAMF), st.integers(0, 44))
def test_an_entry_of_nobody_never_verifies_and_never_breaks(entry: Entry, known: int) -> None:
    of = LogVerifier(KEY, family=YAMF, known=KNOWN[known])
    if entry.log == KEY:
        return
    assert reason(of, entry) is Reason.WRONG_LOG


KNOWN = [verifier(known).known() for known in range(COUNT)]


@given(st.integers(1, COUNT), st.data())
def test_a_changed_byte_is_refused_by_decoding_or_for_a_reason(
    seqnum: int, data: st.DataObject
) -> None:
    encoded = bytearray(LOG[seqnum - 1].encode())
    index = data.draw(st.integers(0, len(encoded) - 1))
    encoded[index] ^= data.draw(st.integers(1, 255))
    of = LogVerifier(KEY, family=YAMF, known=KNOWN[seqnum - 1])
    try:
        entry = decode(encoded, family=YAMF)
    except DecodeError:
        with pytest.raises(VerificationError) as caught:
            verify_log(KEY, [encoded], family=YAMF)
        assert (caught.value.reason, caught.value.seqnum) == (Reason.MALFORMED, None)
        return
    expected = (
        Reason.WRONG_LOG
        if entry.log != KEY
        else Reason.OUT_OF_ORDER
        if entry.seqnum < seqnum and of.hash_of(entry.seqnum) is None
        else Reason.BAD_SIGNATURE
    )
    assert reason(of, entry) is expected
    assert of.verify(LOG[seqnum - 1])


def test_reasons_tell_the_author_from_the_messenger() -> None:
    """An author is blamed only for things that need the author's signature."""
    assert not AUTHOR_FAULTS & {
        Reason.MALFORMED,
        Reason.WRONG_LOG,
        Reason.BAD_SIGNATURE,
        Reason.OUT_OF_ORDER,
        Reason.GAP,
        Reason.INVALID_LOG,
        Reason.PAYLOAD_HASH,
        Reason.PAYLOAD_SIZE,
    }
    assert str(VerificationError(Reason.FORK, 5)) == "entry 5: fork"
    assert str(VerificationError(Reason.MALFORMED, None)) == "malformed"


# -- Payloads -----------------------------------------------------------------------------


def lying(size: int) -> Entry:
    """An entry for the payload b"content" that claims another size."""
    return resign(LOG[0], payload_size=size, payload_hash=YAMF.hash(b"content"))


@pytest.mark.parametrize(
    ("entry", "payload", "expected"),
    [
        (lying(7), b"content", None),
        (lying(7), b"cOntent", Reason.PAYLOAD_HASH),
        (lying(7), b"conten", Reason.PAYLOAD_SIZE),
        (lying(7), b"contents", Reason.PAYLOAD_SIZE),
        (lying(7), b"", Reason.PAYLOAD_SIZE),
        (lying(6), b"content", Reason.PAYLOAD_SIZE_LIE),
        (lying(8), b"content", Reason.PAYLOAD_SIZE_LIE),
        (lying(0), b"content", Reason.PAYLOAD_SIZE_LIE),
        (lying(2**64 - 1), b"content", Reason.PAYLOAD_SIZE_LIE),
        (lying(8), b"contents", Reason.PAYLOAD_HASH),
        (make_log(YASMF)[0].entry, b"", None),
        (make_log(YASMF)[2].entry, b"\2" * 14, None),
    ],
)
def test_a_size_lie_is_told_from_a_payload_that_is_not_the_one(
    entry: Entry, payload: bytes, expected: Reason | None
) -> None:
    assert payload_fault(entry, payload) is expected
    for step in (1, 3, 100):
        of = PayloadVerifier(entry)
        for start in range(0, len(payload), step):
            before = of.copy()
            of.update(memoryview(payload)[start : start + step])
            before.update(payload[start : start + step])
            assert (before.size, before.fault()) == (of.size, of.fault())
            before.update(b"of its own")
        assert of.size == len(payload)
        assert of.fault() is expected
        if expected is None:
            of.finish()
        else:
            with pytest.raises(VerificationError) as caught:
                of.finish()
            assert (caught.value.reason, caught.value.seqnum) == (expected, entry.seqnum)
