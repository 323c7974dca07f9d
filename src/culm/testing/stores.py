"""The duties of every `LogStore`, as a suite of tests for any implementation.

Subclass `LogStoreSuite`, define how a store is made, and let pytest collect it::

    class TestMyStore(LogStoreSuite):
        def make_store(self, family):
            return MyStore(family=family)

For a store that outlives the process, `reopen` finds it again; the page on testing shows a class
for one in files.

The suite has tests of one rule each, and a random walk.  Every answer has to be that of a store in
memory, and one that a machine accepts.
"""

from __future__ import annotations

from functools import partial
from random import Random

from nacl.signing import SigningKey

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey, sign
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.records import NewEntry, StoreErrorCode
from culm.bamboo.store import LogStore
from culm.machines.sample_logs import LOG_LENGTH, make_log
from culm.testing.store_asking import RandomEffects, StoreSuite, contents, varied_log
from culm.wire.multihash import YAMF, YASMF, HashFamily

__all__ = ["LogStoreSuite", "contents"]

_GREAT = ((1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1)  # signed numbers end at the first
_PAYLOAD_SIZE = (1 << 21) + 5
_MANY = 1200


def _entry(family: HashFamily, seqnum: int, payload_size: int = 0, *, log_id: int = 0) -> Entry:
    """An entry with arbitrary links: a store checks those to the entries beside it alone."""
    hash = family.hash(b"")
    return sign(
        SigningKey(bytes(32)),
        family=family,
        log_id=log_id,
        seqnum=seqnum,
        backlink=hash,
        lipmaalink=hash if has_lipmaalink(seqnum) else None,
        payload_size=payload_size,
        payload_hash=hash,
    )


class _EntryRules(StoreSuite):
    """Logs and their entries."""

    def test_it_is_a_log_store_of_its_family(self) -> None:
        for family in self.families:
            store = self.make_store(family)
            assert isinstance(store, LogStore)
            assert store.family is family

    def test_an_empty_store_has_nothing(self) -> None:
        for store, _, log in self.stores():
            assert contents(store) == {}
            store.look_at(log, 1, 2)

    def test_what_was_appended_is_read_back(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news)
            store = self.reopened(store)
            assert store.logs() == [log]
            assert [each.encoded for each in store.entries(log)] == [n.entry.encode() for n in news]
            store.look_at(log, *range(1, LOG_LENGTH + 1), 99)
            payloads = [store.read_payload(log, new.entry.seqnum, 0, 1000) for new in news]
            assert payloads == [new.payload for new in news]

    def test_head_is_the_end_of_the_unbroken_run_and_newest_that_of_all(self) -> None:
        for store, news, log in self.stores():
            for part in (news[3:4], news[1:2], news[0:1], news[12:13], news[2:3], news[4:12]):
                store.append(log, part)
                store = self.reopened(store)

    def test_an_end_of_log_is_seen_in_the_head(self) -> None:
        for family in self.families:
            author = LogAuthor(SigningKey(bytes(32)), family=family)
            news = [author.publish(b"first"), author.publish(b"last", end_of_log=True)]
            store = self.made(family)
            store.append(author.log, news)
            head = self.reopened(store).head(author.log)
            assert head is not None
            assert head.end_of_log

    def test_entries_come_ascending_within_bounds(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [new for new in reversed(news) if new.entry.seqnum % 5])
            last = 2**64 - 1
            for start, end in ((5, 11), (5, 5), (9, 3), (1, last), (last, None)):
                store.entries(log, start, end)
            two = sum(len(news[at - 1].entry.encode()) for at in (4, 6))
            for size, count in ((two, None), (two - 1, None), (two, 1), (1, 3), (None, 2)):
                assert store.entries(log, 4, size_max=size, count_max=count)[0].seqnum == 4

    def test_appending_again_changes_nothing(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news)
            before = contents(store)
            for again in (news[2:5], [NewEntry(new.entry) for new in news], []):
                store.append(log, again)
            assert contents(store) == before

    def test_appending_no_entries_makes_no_log(self) -> None:
        for store, _, log in self.stores():
            store.append(log, [])
            assert store.logs() == []

    def test_an_append_is_all_or_nothing(self) -> None:
        for store, news, log in self.stores():
            other = varied_log(store.family, branch=b"other")
            store.append(log, news[:2])
            with self.refused(store, StoreErrorCode.CONFLICT, 2):
                store.append(log, [news[2], news[3], other[1]])
            with self.refused(store, StoreErrorCode.CONFLICT, 4):
                store.append(log, [news[2], news[3], other[3]])
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 4):
                store.append(log, [news[2], NewEntry(news[3].entry, b"short")])
            store.append(log, news[4:5])
            for apart in (other[2:3], other[3:4], (other[7], news[8])):  # of those beside them
                with self.refused(store, StoreErrorCode.CONFLICT, apart[-1].entry.seqnum):
                    store.append(log, apart)

    def test_an_entry_of_another_log_or_family_is_refused(self) -> None:
        for store, news, log in self.stores():
            family = next(each for each in (YAMF, YASMF) if each is not store.family)
            for stranger in (
                varied_log(store.family, 1)[1],
                varied_log(store.family, seed=2)[1],
                varied_log(family)[1],
            ):
                with self.refused(store, StoreErrorCode.WRONG_LOG, 2):
                    store.append(log, [news[0], stranger])


class _PayloadRules(StoreSuite):
    """Payloads, absent, staged and complete."""

    def test_a_payload_given_later_completes_the_entry(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [NewEntry(new.entry) for new in news])
            store.look_at(log, 3)
            store.write_payload(log, 3, 0, b"wrong")
            store.append(log, news)
            assert self.reopened(store).read_payload(log, 3, 0, 1000) == news[2].payload

    def test_a_payload_comes_in_pieces(self) -> None:
        for store, news, log in self.stores():
            payload = news[4].payload or b""
            store.append(log, [NewEntry(news[4].entry)])
            with self.refused(store, StoreErrorCode.WRONG_OFFSET, 5):
                store.write_payload(log, 5, 1, payload[1:])
            store.write_payload(log, 5, 0, payload[:10])
            store.write_payload(log, 5, 10, b"")
            store = self.reopened(store)
            store.look_at(log, 5)
            with self.refused(store, StoreErrorCode.WRONG_OFFSET, 5):
                store.write_payload(log, 5, 0, payload[:10])
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.finish_payload(log, 5)
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.write_payload(log, 5, 10, payload[10:] + b"x")
            store.write_payload(log, 5, 10, payload[10:])
            store.look_at(log, 5)
            for _ in range(2):
                store.finish_payload(log, 5)
            store = self.reopened(store)
            assert store.read_payload(log, 5, 0, 1000) == payload
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.write_payload(log, 5, len(payload), b"x")

    def test_a_beginning_of_a_payload_goes_in_with_its_entry(self) -> None:
        for store, news, log in self.stores():
            (new, payload), other = (news[4].entry, news[4].payload or b""), news[5]
            store.append(log, [NewEntry(new, payload[:9], staged=True), NewEntry(other.entry)])
            store = self.reopened(store)
            for again in (
                NewEntry(new, payload[:12], staged=True),
                NewEntry(other.entry, other.payload, staged=True),
            ):
                store.append(log, [again])
                store.look_at(log, 5, 6)
            store.finish_payload(log, 6)
            store.look_at(log, 6)
            store.append(log, [NewEntry(other.entry, b"begun", staged=True)])
            store.look_at(log, 6)
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.append(log, [NewEntry(new, payload + b"x", staged=True)])
            store.append(log, [news[4]])
            assert self.reopened(store).read_payload(log, 5, 0, 1000) == payload

    def test_a_beginning_that_is_empty_gives_way_to_another(self) -> None:
        for store, news, log in self.stores():
            new, payload = news[4].entry, news[4].payload or b""
            for begun in (b"", payload[:9]):
                store.append(log, [NewEntry(new, begun, staged=True)])
                store = self.reopened(store)
                assert store.read_payload(log, 5, 0, 100) == begun

    def test_a_payload_in_many_pieces_is_read_from_anywhere(self) -> None:
        for store, news, log in self.stores():
            payload = news[9].payload or b""
            store.append(log, [NewEntry(news[9].entry, payload[:5], staged=True)])
            for start, end in ((5, 6), (6, 6), (6, 20), (20, len(payload))):
                store.write_payload(log, 10, start, payload[start:end])
            for finished in (False, True):
                if finished:
                    store.finish_payload(log, 10)
                for offset in range(len(payload) + 2):
                    for size in (0, 1, 2, 14, 15, 100):
                        read = store.read_payload(log, 10, offset, size)
                        assert read == payload[offset : offset + size]
            store.append(log, [news[9]])
            assert store.entries(log, 10, payload_size_max=100)[0].payload == payload

    def test_small_complete_payloads_come_along_with_entries(self) -> None:
        for store, news, log in self.stores():
            staged = NewEntry(news[2].entry, b"begun", staged=True)
            store.append(log, [*news[:2], staged, *news[3:6], NewEntry(news[6].entry)])
            for payload_size in (None, 1000, 21, 0):
                store.entries(log, payload_size_max=payload_size)
            entries = sum(len(new.entry.encode()) for new in news[3:5])
            for size in (entries + 21 + 28, entries + 21 + 27, 1):
                first = store.entries(log, 4, payload_size_max=28, size_max=size)[0]
                assert first.payload == news[3].payload
            store.entries(log, 4, size_max=entries)

    def test_an_empty_payload_is_complete_once_it_is_finished(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [NewEntry(news[0].entry)])
            store.look_at(log, 1)
            store.finish_payload(log, 1)
            self.reopened(store).look_at(log, 1)

    def test_a_discarded_payload_leaves_the_entry(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [*news[:4], NewEntry(news[4].entry)])
            store.write_payload(log, 5, 0, b"staged")
            for seqnum in (3, 5):
                store.discard_payload(log, seqnum)
                store.discard_payload(log, seqnum)
                store = self.reopened(store)
                store.look_at(log, seqnum)
                assert store.read_payload(log, seqnum, 0, 100) == b""
            store.write_payload(log, 3, 0, news[2].payload or b"")
            store.finish_payload(log, 3)
            store.look_at(log, 3)

    def test_only_what_is_staged_is_discarded_with_it(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [*news[:2], NewEntry(news[2].entry), NewEntry(news[3].entry)])
            store.write_payload(log, 3, 0, b"staged")
            for seqnum in (1, 3, 4, 3):
                store.discard_staged(log, seqnum)
                store = self.reopened(store)
            store.look_at(log, 1, 3, 4)

    def test_payloads_of_unknown_entries_are_refused(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news[:1])
            for refuse in (
                partial(store.write_payload, offset=0, data=b""),
                store.finish_payload,
                store.discard_payload,
                store.discard_staged,
            ):
                with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, 2):
                    refuse(log, 2)


class _ForkRules(StoreSuite):
    """Forks."""

    def test_a_fork_ends_the_log_before_it(self) -> None:
        for store, news, log in self.stores():
            other = varied_log(store.family, branch=b"other")
            store.append(log, news)
            proof = ForkProof(news[6].entry, other[6].entry)
            store.add_fork(log, proof)
            store = self.reopened(store)
            assert store.fork(log) == proof
            store.look_at(log, 6, 7, 8)
            for new in (*news[6:], other[6]):
                with self.refused(store, StoreErrorCode.FORKED, new.entry.seqnum):
                    store.append(log, [new])
            store.append(log, news[:6])

    def test_the_earliest_fork_is_kept(self) -> None:
        for store, news, log in self.stores():
            other = varied_log(store.family, branch=b"other")
            proofs = [ForkProof(a.entry, b.entry) for a, b in zip(news, other, strict=True)]
            store.append(log, news)
            for added, kept in ((8, 8), (5, 5), (9, 5), (5, 5), (1, 1)):
                store.look_at(log)  # which a store may remember
                store.add_fork(log, proofs[added - 1])
                store.look_at(log, 1, kept)
                store = self.reopened(store)
                assert store.fork(log) == proofs[kept - 1]
            assert store.logs() == [log]
            with self.refused(store, StoreErrorCode.FORKED, 1):
                store.append(log, news[:1])

    def test_of_two_forks_of_one_entry_the_first_is_kept(self) -> None:
        for store, news, log in self.stores():
            others = [varied_log(store.family, branch=branch)[4].entry for branch in (b"a", b"b")]
            proofs = [ForkProof(news[4].entry, other) for other in others]
            for proof in proofs:
                store.add_fork(log, proof)
                store = self.reopened(store)
                assert store.fork(log) == proofs[0]

    def test_a_fork_of_an_unknown_log_is_kept(self) -> None:
        for store, news, log in self.stores():
            other = varied_log(store.family, branch=b"other")
            store.add_fork(log, ForkProof(news[2].entry, other[2].entry))
            store = self.reopened(store)
            assert store.logs() == [log]
            store.append(log, news[:2])
            store.look_at(log, 1, 2, 3)

    def test_a_fork_of_another_log_or_family_is_refused(self) -> None:
        for store, news, log in self.stores():
            family = next(each for each in (YAMF, YASMF) if each is not store.family)
            store.append(log, news)
            for log_id, each in ((1, store.family), (0, family)):
                first, second = (varied_log(each, log_id, branch=b)[1] for b in (b"", b"other"))
                with self.refused(store, StoreErrorCode.WRONG_LOG, 2):
                    store.add_fork(log, ForkProof(first.entry, second.entry))


class _LargeRules(StoreSuite):
    """Tests with extreme numbers, as a peer may choose any and ask for any."""

    def test_great_numbers_are_answered_as_any_others(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news)
            for great in _GREAT:
                for each, seqnum in ((log, great), (LogKey(log.author, great), 1)):
                    store.look_at(each, seqnum)
                    with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, seqnum):
                        store.finish_payload(each, seqnum)
                store.hashes(log, [2, great])
                with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, great):
                    store.write_payload(log, great, 0, b"x")
                with self.refused(store, StoreErrorCode.WRONG_OFFSET, 5):
                    store.write_payload(log, 5, great, b"x")
                with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, great):
                    store.discard_payload(log, great)
                store.entries(log, 1, great, count_max=great, size_max=great)
                store.entries(log, payload_size_max=great)
                store.read_payload(log, 5, 0, great)
                store.read_payload(log, 5, great, great)
                assert store.logs(count_max=great) == [log]

    def test_an_entry_of_the_greatest_numbers_is_kept(self) -> None:
        greatest = _GREAT[-1]
        for family in self.families:
            entry = _entry(family, greatest, greatest, log_id=greatest)
            store = self.made(family)
            store.append(entry.log, [NewEntry(entry)])
            store.write_payload(entry.log, greatest, 0, b"begun")
            assert self.reopened(store).logs() == [entry.log]

    def test_logs_come_by_the_bytes_of_authors_and_by_numbers(self) -> None:
        for family in self.families:
            store = self.made(family)
            made = [
                varied_log(family, log_id, 1, seed=seed)
                for log_id in (*reversed(_GREAT), 10, 9, 2)
                for seed in (1, 2, 3, 4)
            ]
            for news in made:
                store.append(news[0].entry.log, news)
            logs = sorted(news[0].entry.log for news in made)
            assert store.logs() == logs
            assert store.logs(count_max=3) == logs[:3]
            assert store.logs(LogKey(logs[0].author, 5), count_max=1) == logs[1:2]
            for place, log in enumerate(logs):
                assert store.logs(log) == logs[place + 1 :]
                assert store.logs(log, count_max=2) == logs[place + 1 : place + 3]
            contents(store)

    def test_entries_of_great_numbers_are_in_order_and_can_be_forked(self) -> None:
        for family in self.families:
            store, log_id = self.made(family), _GREAT[1]
            apart = (2, 4, _GREAT[0], *_GREAT[2:])
            news = [NewEntry(_entry(family, seqnum, log_id=log_id)) for seqnum in apart]
            log = news[0].entry.log
            store.append(log, news[::-1])
            assert [each.seqnum for each in store.entries(log)] == [*apart]
            for kept in (4, 3, 2, 1):
                seqnum = news[kept].entry.seqnum
                proof = ForkProof(news[kept].entry, _entry(family, seqnum, 1, log_id=log_id))
                store.add_fork(log, proof)
                store = self.reopened(store)
                assert store.fork(log) == proof

    def test_a_large_payload_is_kept_whole(self) -> None:
        payload = b"".join(number.to_bytes(4) for number in range(_PAYLOAD_SIZE // 4)) + b"!"
        for family in self.families:
            author = LogAuthor(SigningKey(bytes(32)), family=family)
            news, log = [author.publish(payload), author.publish(payload)], author.log
            store = self.made(family)
            store.append(log, [news[0], NewEntry(news[1].entry)])
            store.write_payload(log, 2, 0, payload[:-1])
            store.write_payload(log, 2, len(payload) - 1, payload[-1:])
            store.finish_payload(log, 2)
            store = self.reopened(store)
            for seqnum in (1, 2):
                assert store.read_payload(log, seqnum, 0, len(payload)) == payload
                assert store.read_payload(log, seqnum, len(payload) - 9, 100) == payload[-9:]
            whole = store.entries(log, payload_size_max=len(payload))
            assert [entry.payload for entry in whole] == [payload, payload]

    def test_many_entries_are_given_at_once(self) -> None:
        for family in self.families:
            news = make_log(family, count=_MANY, payload=b"".__mul__)  # all are empty
            log, store = news[0].entry.log, self.made(family)
            store.append(log, news)
            assert len(store.entries(log)) == len(store.entries(log, count_max=_MANY)) == _MANY
            assert len(store.hashes(log, range(_MANY + 1, 0, -1))) == _MANY


class LogStoreSuite(_EntryRules, _PayloadRules, _ForkRules, _LargeRules):
    """Tests for a `LogStore`; see the module."""

    def test_a_random_walk_agrees_with_a_store_in_memory(self) -> None:
        for family in self.families:
            for seed in range(4):
                random, store = Random(seed), self.made(family)
                walker = RandomEffects(family, random)
                for _ in range(250):
                    store.perform(walker.next_effect())
                    if random.random() < 0.05:
                        store = self.reopened(store)
                contents(store)
