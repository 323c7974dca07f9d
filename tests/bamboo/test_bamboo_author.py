from __future__ import annotations

import pytest
from bamboo_support import KEYS

from culm.bamboo.author import LogAuthor, publish
from culm.bamboo.entry import LogKey, sign
from culm.bamboo.errors import Reason, VerificationError
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa, open_targets
from culm.bamboo.records import Head, NewEntry
from culm.bamboo.store import MemoryStore
from culm.bamboo.verify import LogVerifier, payload_fault, verify_log
from culm.machines.sample_logs import make_log
from culm.wire.multihash import YAMF, YASMF, HashFamily

KEY = KEYS[0]
LOG = LogKey(bytes(KEY.verify_key), 7)


@pytest.mark.parametrize("family", [YAMF, YASMF], ids=str)
def test_what_an_author_publishes_verifies(family: HashFamily) -> None:
    author = LogAuthor(KEY, family=family, log_id=7)
    assert author.log == LOG
    assert author.head is None
    news = [author.publish(b"payload %d" % n) for n in range(45)]
    assert [new.entry.seqnum for new in news] == list(range(1, 46))
    head = verify_log(LOG, [new.entry.encode() for new in news], family=family)
    assert author.head == head
    for n, new in enumerate(news):
        assert new.payload == b"payload %d" % n
        assert payload_fault(new.entry, new.payload) is None


@pytest.mark.parametrize("step", [1, 3, 13])
def test_an_author_goes_on_where_the_store_ends(step: int) -> None:
    whole, store = LogAuthor(KEY, family=YAMF, log_id=7), MemoryStore(family=YAMF)
    expected = [whole.publish(b"%d" % n).entry for n in range(45)]
    made = []
    while len(made) < 45:
        author = LogAuthor.resume(KEY, store, 7)
        news = [author.publish(b"%d" % n) for n in range(len(made), min(len(made) + step, 45))]
        store.append(LOG, news)
        made += [new.entry for new in news]
    assert made == expected


def test_publish_needs_the_head_and_the_hash_for_the_lipmaalink_alone() -> None:
    log = [new.entry for new in make_log(YAMF, count=45)]
    key = KEYS[1]
    head = None
    for entry in log:
        target = lipmaa(entry.seqnum)
        hashes = {target: log[target - 1].hash()} if entry.lipmaalink else {}
        of = {"family": YAMF, "log_id": 0, "head": head}
        new = publish(
            key,
            **of,
            hashes=hashes,
            payload_size=entry.payload_size,
            payload_hash=entry.payload_hash,
        )
        assert new == NewEntry(entry)
        if hashes:
            with pytest.raises(KeyError) as caught:
                publish(key, **of, hashes={}, payload=b"")
            assert caught.value.args == (target,)
        head = Head(entry.seqnum, entry.hash())


def test_an_author_refuses_to_start_without_the_hashes_it_will_need() -> None:
    log = [new.entry for new in make_log(YAMF, count=23)]
    head = Head(23, log[22].hash())
    hashes = {n: log[n - 1].hash() for n in open_targets(23)}
    LogAuthor(KEYS[1], family=YAMF, head=head, hashes=hashes)
    for missing in open_targets(23)[:-1]:
        fewer = {n: hash for n, hash in hashes.items() if n != missing}
        with pytest.raises(ValueError, match=str(missing)):
            LogAuthor(KEYS[1], family=YAMF, head=head, hashes=fewer)


def test_a_verifier_knows_what_an_author_needs() -> None:
    log = [new.entry for new in make_log(YAMF, count=30)]
    of = LogVerifier(log[0].log, family=YAMF)
    for entry in log[:-1]:
        of.verify(entry)
        author = LogAuthor(
            KEYS[1], family=YAMF, head=Head(of.position, entry.hash()), hashes=of.known()
        )
        following = log[of.position]
        made = author.publish(
            payload_size=following.payload_size, payload_hash=following.payload_hash
        )
        assert made.entry == following


def test_nothing_is_published_after_the_end_of_the_log() -> None:
    author, store = LogAuthor(KEY, family=YAMF, log_id=7), MemoryStore(family=YAMF)
    news = [author.publish(b"first"), author.publish(b"last", end_of_log=True)]
    assert news[1].entry.end_of_log
    store.append(LOG, news)
    for each in (author, LogAuthor.resume(KEY, store, 7)):
        with pytest.raises(VerificationError) as caught:
            each.publish(b"more")
        assert (caught.value.reason, caught.value.seqnum) == (Reason.AFTER_END_OF_LOG, 3)
        assert each.head == Head(2, news[1].entry.hash(), True)


def test_a_forked_log_is_not_continued() -> None:
    store = MemoryStore(family=YAMF)
    first, second = (
        sign(KEY, family=YAMF, log_id=7, seqnum=1, payload=payload) for payload in (b"a", b"b")
    )
    store.add_fork(LOG, ForkProof(first, second))
    with pytest.raises(VerificationError) as caught:
        LogAuthor.resume(KEY, store, 7)
    assert (caught.value.reason, caught.value.seqnum) == (Reason.INVALID_LOG, 1)
    assert caught.value.proof == store.fork(LOG)


def test_a_failed_publication_leaves_the_author_as_it_was() -> None:
    author = LogAuthor(KEY, family=YAMF, log_id=7)
    author.publish(b"first")
    head = author.head
    with pytest.raises(ValueError, match="neither a payload"):
        author.publish(payload_size=3)
    with pytest.raises(ValueError, match="payload size"):
        author.publish(payload_size=-3, payload_hash=YAMF.hash(b""))
    assert author.head == head
    assert author.publish(b"second").entry.backlink == head.hash
