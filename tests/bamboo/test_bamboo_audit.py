from __future__ import annotations

from random import Random

import pytest
from bamboo_support import KEYS, resign
from hypothesis import given
from hypothesis import strategies as st

from culm.bamboo.audit import Verdict, audit_log
from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, decode
from culm.bamboo.errors import Reason, VerificationError
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import certificate_pool, shortest_path
from culm.bamboo.records import Head
from culm.bamboo.verify import LogVerifier
from culm.machines.sample_logs import make_log
from culm.wire.errors import DecodeError
from culm.wire.multihash import YAMF, YASMF, HashFamily

COUNT = 20
NEWS = make_log(YAMF, count=COUNT)
LOG = [new.entry for new in NEWS]
OTHER = [new.entry for new in make_log(YAMF, count=COUNT, branch=b"other")]
KEY = LOG[0].log
HASH = YAMF.hash(b"something else")

Row = tuple[bytes, bytes | None]


def rows(changes: dict[int, Entry] | None = None) -> list[Row]:
    """The log without payloads, some entries replaced."""
    return [((changes or {}).get(e.seqnum, e).encode(), None) for e in LOG]


def audit(log: list[Row], *, sparse: bool = False) -> list[Verdict]:
    """The verdicts in the order of the rows, one for each."""
    verdicts = sorted(
        audit_log(KEY, log, family=YAMF, sparse=sparse), key=lambda verdict: verdict.index
    )
    assert [verdict.index for verdict in verdicts] == list(range(len(log)))
    return verdicts


def faults(verdicts: list[Verdict]) -> dict[int, tuple[Reason, ...]]:
    return {verdict.index + 1: verdict.reasons for verdict in verdicts if verdict.reasons}


def after(seqnum: int, *reasons: Reason) -> dict[int, tuple[Reason, ...]]:
    return dict.fromkeys(range(seqnum + 1, COUNT + 1), reasons)


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_sound_log_is_verified(family: HashFamily, sparse: bool) -> None:
    news = make_log(family, count=COUNT)
    verdicts = audit_log(
        news[0].entry.log,
        ((new.entry.encode(), new.payload) for new in news),
        family=family,
        sparse=sparse,
    )
    assert list(verdicts) == [Verdict(n, n + 1) for n in range(COUNT)]


def test_a_wrong_link_does_not_make_the_next_links_wrong() -> None:
    for field, reason in (
        ("backlink", Reason.WRONG_BACKLINK),
        ("lipmaalink", Reason.WRONG_LIPMAALINK),
    ):
        bad = resign(LOG[7], **{field: HASH})
        author = LogAuthor(
            KEYS[1],
            family=YAMF,
            head=Head(8, bad.hash()),
            hashes={entry.seqnum: entry.hash() for entry in LOG[:7]},
        )
        log = (
            rows()[:7]
            + [(bad.encode(), None)]
            + [(author.publish(b"").entry.encode(), None) for _ in range(12)]
        )
        verdicts = audit(log)
        assert faults(verdicts) == {8: (reason,)} | after(8, Reason.GAP)
        assert [verdict.verified for verdict in verdicts] == [True] * 7 + [False] * 13


def test_every_reason_is_found_not_only_the_first() -> None:
    bad = {
        5: resign(LOG[4], backlink=HASH),
        13: resign(LOG[12], backlink=HASH, lipmaalink=HASH),
    }
    found = faults(audit(rows(bad)))
    assert found[5] == (Reason.WRONG_BACKLINK,)
    assert found[6] == (Reason.WRONG_BACKLINK, Reason.GAP)  # not of the changed entry 5
    assert found[7] == (Reason.GAP,)
    assert found[13] == (Reason.WRONG_BACKLINK, Reason.WRONG_LIPMAALINK, Reason.GAP)
    assert 4 not in found


def test_what_the_author_did_not_sign_says_nothing_of_the_log() -> None:
    junk: list[Row] = [
        (b"", None),
        (LOG[0].encode() + b"\0", None),
        (make_log(YAMF, 1)[2].entry.encode(), None),
        (make_log(YAMF, seed=2)[2].entry.encode(), None),
        (OTHER[2].encode()[:-1] + b"\xff", None),
    ]
    verdicts = audit(rows()[:4] + junk + rows()[4:])
    assert [(verdict.seqnum, verdict.reasons) for verdict in verdicts[4:9]] == [
        (None, (Reason.MALFORMED,)),
        (None, (Reason.MALFORMED,)),
        (3, (Reason.WRONG_LOG,)),
        (3, (Reason.WRONG_LOG,)),
        (3, (Reason.BAD_SIGNATURE,)),
    ]
    assert not any(verdict.verified for verdict in verdicts[4:9])
    assert all(verdict.verified for verdict in verdicts[:4] + verdicts[9:])


def test_a_missing_entry_is_a_gap_until_the_end_of_a_whole_log() -> None:
    log = rows()
    del log[8]
    verdicts = audit(log)
    assert faults(verdicts) == dict.fromkeys(range(9, COUNT), (Reason.GAP,))
    assert [v.seqnum for v in verdicts if v.verified] == list(range(1, 9))


def test_in_a_subset_a_missing_entry_is_a_gap_for_the_paths_through_it() -> None:
    log = rows()
    del log[8]
    seqnums = [n for n in range(1, COUNT + 1) if n != 9]
    verdicts = audit(log, sparse=True)
    assert [v.seqnum for v in verdicts if Reason.GAP in v.reasons] == [
        n for n in seqnums if 9 in shortest_path(n, 1)
    ]
    pool = [row for n, row in enumerate(rows(), 1) if n in certificate_pool(17)]
    assert all(v.verified for v in audit(pool, sparse=True))


def test_entries_out_of_order_are_named() -> None:
    log = rows()
    log.insert(10, log[3])
    verdicts = audit(log)
    assert verdicts[10].reasons == (Reason.OUT_OF_ORDER,)
    assert all(v.verified for v in verdicts if v.index != 10)


def test_repeated_rows_are_no_fork() -> None:
    log = [row for row in rows() for _ in range(3)]
    assert all(verdict.verified for verdict in audit(log))


def test_a_log_is_invalid_from_a_fork_on() -> None:
    log = rows()
    third = resign(LOG[7], end_of_log=True)
    log[8:8] = [log[7], (OTHER[7].encode(), None), (third.encode(), None)]
    verdicts = audit(log)
    assert all(verdict.verified for verdict in verdicts[:7])
    assert not any(verdict.verified for verdict in verdicts[7:])
    for verdict in verdicts[7:11]:
        entry = decode(log[verdict.index][0], family=YAMF)
        assert verdict.reasons[0] is Reason.FORK
        assert verdict.proof is not None
        assert verdict.proof.verify()
        assert entry in (verdict.proof.first, verdict.proof.second)
    assert verdicts[7].proof == ForkProof(LOG[7], OTHER[7])
    assert verdicts[7].reasons == verdicts[8].reasons == (Reason.FORK,)
    for verdict in verdicts[11:]:
        assert verdict.reasons[0] is Reason.INVALID_LOG
        assert Reason.WRONG_BACKLINK not in verdict.reasons  # it links to one of the forked entries


def test_a_fork_makes_the_log_invalid_even_where_links_lead_past_it() -> None:
    log = [rows()[n - 1] for n in (1, 2, 4, 13)]
    log.insert(2, (OTHER[1].encode(), None))
    verdicts = audit(log, sparse=True)
    assert [v.reasons for v in verdicts] == [
        (),
        (Reason.FORK,),
        (Reason.FORK, Reason.WRONG_BACKLINK),
        (Reason.INVALID_LOG,),  # its lipmaalink leads to entry 1
        (Reason.INVALID_LOG, Reason.GAP),
    ]


def test_nothing_follows_an_end_of_log_entry() -> None:
    author = LogAuthor(KEYS[1], family=YAMF)
    first = author.publish(b"", end_of_log=True).entry
    go_on = LogAuthor(KEYS[1], family=YAMF, head=Head(1, first.hash()))
    log: list[Row] = [(first.encode(), b"")]
    log += [(go_on.publish(b"").entry.encode(), b"") for _ in range(3)]
    verdicts = audit(log)
    assert verdicts[0] == Verdict(0, 1)
    assert [v.reasons for v in verdicts[1:]] == [
        (Reason.AFTER_END_OF_LOG,),
        (Reason.AFTER_END_OF_LOG, Reason.GAP),
        (Reason.AFTER_END_OF_LOG, Reason.GAP),
    ]


def test_the_log_is_invalid_from_a_payload_size_lie_on() -> None:
    author = LogAuthor(KEYS[1], family=YAMF)
    lies = {3: 4, 9: 6}
    news = [
        author.publish(payload_size=lies.get(n, 5), payload_hash=YAMF.hash(b"right"))
        for n in range(1, 15)
    ]
    log: list[Row] = [(new.entry.encode(), b"right") for new in news]
    found = faults(audit(log))
    assert list(found) == list(range(3, 15))
    assert found[3] == (Reason.PAYLOAD_SIZE_LIE,)
    assert found[4] == (Reason.INVALID_LOG, Reason.GAP)
    assert found[9] == (Reason.INVALID_LOG, Reason.GAP, Reason.PAYLOAD_SIZE_LIE)
    # The payload may be in only one of several rows of the entry.
    log[2:3] = [(log[2][0], None), log[2]]
    assert [v.verified for v in audit(log)] == [True, True] + [False] * 13
    # Without the payload the lie cannot be seen.
    assert all(v.verified for v in audit([(encoded, None) for encoded, _ in log]))


def test_a_payload_that_is_not_the_one_leaves_the_entry_verified() -> None:
    log: list[Row] = [(new.entry.encode(), new.payload) for new in NEWS]
    log[4] = (log[4][0], b"x" * 28)
    log[6] = (log[6][0], b"")
    verdicts = audit(log)
    assert faults(verdicts) == {5: (Reason.PAYLOAD_HASH,), 7: (Reason.PAYLOAD_SIZE,)}
    assert all(verdict.verified for verdict in verdicts)


def accepted(log: list[Row], *, sparse: bool) -> set[int]:
    """The rows whose entries a verifier accepts, one after the other."""
    of = LogVerifier(KEY, family=YAMF, sparse=sparse)
    taken: set[int] = set()
    for index, (encoded, _) in enumerate(log):
        try:
            of.verify(decode(encoded, family=YAMF))
        except (DecodeError, VerificationError):
            continue
        taken.add(index)
    return taken


@given(st.randoms(use_true_random=False), st.booleans())
def test_the_audit_verifies_what_a_verifier_takes(random: Random, sparse: bool) -> None:
    """Except for the rows of a fork that come before it can be seen, and the rows after them."""
    log: list[Row] = []
    forked = None
    for entry in LOG:
        match random.randrange(30):
            case 0:
                continue
            case 1:
                log.append((resign(entry, payload_size=3).encode(), None))
            case 2 if entry.backlink:
                log.append((resign(entry, backlink=HASH).encode(), None))
            case 3 if entry.lipmaalink:
                log.append((resign(entry, lipmaalink=HASH).encode(), None))
            case 4:
                log.append((resign(entry, end_of_log=True).encode(), None))
            case 5:
                log.append((entry.encode()[:-1] + b"\xff", None))
            case 6:
                log += [(entry.encode(), None), (resign(entry, end_of_log=True).encode(), None)]
                forked = forked or entry.seqnum
            case 7:
                log += [(entry.encode(), None)] * 2
            case _:
                log.append((entry.encode(), None))
    verified = {verdict.index for verdict in audit(log, sparse=sparse) if verdict.verified}
    taken = accepted(log, sparse=sparse)
    before = {
        index
        for index, (encoded, _) in enumerate(log)
        if forked is None or decode(encoded, family=YAMF).seqnum < forked
    }
    if sparse:  # where only a bad entry is present, its hash is still checked
        assert verified <= taken & before
    else:
        assert verified == taken & before
