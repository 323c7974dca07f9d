"""The duties of every `LogStore`, as a suite of tests for any implementation.

Subclass `LogStoreSuite`, define how a store is made, and let pytest collect it::

    class TestMyStore(LogStoreSuite):
        def make_store(self, family):
            return MyStore(family=family)

For a store that outlives the process, `reopen` finds it again; the page on testing shows a class
for one in files.

Every answer has to be one that a machine accepts.  The suite has tests of
one rule each, and a random walk that compares the store, step by step, with one in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from nacl.signing import SigningKey

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.bamboo.store import LogStore, MemoryStore
from culm.machine import Effect
from culm.machines.sample_logs import LOG_LENGTH
from culm.testing.store_asking import (
    RandomEffects,
    StoreSuite,
    contents,
    head_of,
    stored_form,
    varied_log,
)
from culm.testing.store_large import LargeRules
from culm.wire.multihash import YAMF, YASMF, HashFamily

__all__ = ["LogStoreSuite", "contents"]


class _EntryRules(StoreSuite):
    """Logs and their entries."""

    def test_it_is_a_log_store_of_its_family(self) -> None:
        for family in self.families:
            store = self.make_store(family)
            assert isinstance(store, LogStore)
            assert store.family is family

    def test_an_empty_store_has_nothing(self) -> None:
        for store, _, log in self.stores():
            assert store.logs() == []
            assert store.head(log) is None
            assert store.newest(log) is None
            assert store.fork(log) is None
            assert store.entry(log, 1) is None
            assert store.entries(log) == []
            assert store.hashes(log, [1, 2]) == {}
            assert store.read_payload(log, 1, 0, 10) == b""

    def test_what_was_appended_is_read_back(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news)
            store = self.reopened(store)
            assert store.logs() == [log]
            assert store.entries(log) == [stored_form(new) for new in news]
            for new in news:
                seqnum, payload = new.entry.seqnum, new.payload
                assert payload is not None
                assert store.entry(log, seqnum) == stored_form(new)
                assert store.read_payload(log, seqnum, 0, 1000) == payload
                assert store.read_payload(log, seqnum, 2, 3) == payload[2:5]
            newest = news[-1].entry
            assert store.head(log) == store.newest(log) == Head(newest.seqnum, newest.hash())
            assert store.hashes(log, [3, 1, 99]) == {n: news[n - 1].entry.hash() for n in (1, 3)}

    def test_head_is_the_end_of_the_unbroken_run_and_newest_that_of_all(self) -> None:
        for store, news, log in self.stores():
            for part, head, newest in (
                (news[3:4], None, 4),
                (news[1:2], None, 4),
                (news[0:1], 2, 4),
                (news[12:13], 2, 13),
                (news[2:3], 4, 13),
                (news[4:12], 13, 13),
            ):
                store.append(log, part)
                store = self.reopened(store)
                assert store.head(log) == (head and head_of(news[head - 1]))
                assert store.newest(log) == head_of(news[newest - 1])

    def test_an_end_of_log_is_seen_in_the_head(self) -> None:
        for family in self.families:
            author = LogAuthor(SigningKey(bytes(32)), family=family)
            news = [author.publish(b"first"), author.publish(b"last", end_of_log=True)]
            store = self.made(family)
            store.append(author.log, news)
            store = self.reopened(store)
            assert store.head(author.log) == store.newest(author.log) == head_of(news[1])
            head = store.head(author.log)
            assert head is not None
            assert head.end_of_log

    def test_entries_come_ascending_within_bounds(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [new for new in reversed(news) if new.entry.seqnum % 5])
            there = [n for n in range(1, LOG_LENGTH + 1) if n % 5]
            sizes = {new.entry.seqnum: len(new.entry.encode()) for new in news}

            def seqnums(entries: Iterable[StoredEntry]) -> list[int]:
                return [entry.seqnum for entry in entries]

            assert seqnums(store.entries(log)) == there
            assert seqnums(store.entries(log, 5, 11)) == [n for n in there if 5 <= n <= 11]
            assert seqnums(store.entries(log, 5, 5)) == []
            assert seqnums(store.entries(log, 9, 3)) == []
            assert seqnums(store.entries(log, 2**64 - 1)) == []
            assert seqnums(store.entries(log, 1, 2**64 - 1)) == there
            assert seqnums(store.entries(log, 4, count_max=2)) == [4, 6]
            two = sizes[4] + sizes[6]
            assert seqnums(store.entries(log, 4, size_max=two)) == [4, 6]
            assert seqnums(store.entries(log, 4, size_max=two - 1)) == [4]
            assert seqnums(store.entries(log, 4, size_max=two, count_max=1)) == [4]
            assert seqnums(store.entries(log, 4, size_max=1, count_max=3)) == [4]

    def test_appending_again_changes_nothing(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news)
            before = contents(store)
            store.append(log, news[2:5])
            store.append(log, [NewEntry(new.entry) for new in news])
            store.append(log, [])
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
            assert store.entries(log) == [stored_form(NewEntry(new.entry)) for new in news]
            store.write_payload(log, 3, 0, b"wrong")
            store.append(log, news)
            store = self.reopened(store)
            assert store.entries(log) == [stored_form(new) for new in news]
            assert store.read_payload(log, 3, 0, 1000) == news[2].payload

    def test_a_payload_comes_in_pieces(self) -> None:
        for store, news, log in self.stores():
            new = news[4]
            payload = new.payload
            assert payload is not None
            store.append(log, [NewEntry(new.entry)])
            with self.refused(store, StoreErrorCode.WRONG_OFFSET, 5):
                store.write_payload(log, 5, 1, payload[1:])
            store.write_payload(log, 5, 0, payload[:10])
            store.write_payload(log, 5, 10, b"")
            store = self.reopened(store)
            assert store.entry(log, 5) == stored_form(new, 10)
            assert store.read_payload(log, 5, 4, 100) == payload[4:10]
            with self.refused(store, StoreErrorCode.WRONG_OFFSET, 5):
                store.write_payload(log, 5, 0, payload[:10])
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.finish_payload(log, 5)
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.write_payload(log, 5, 10, payload[10:] + b"x")
            store.write_payload(log, 5, 10, payload[10:])
            assert store.entry(log, 5) == stored_form(new, len(payload))
            store.finish_payload(log, 5)
            store.finish_payload(log, 5)
            store = self.reopened(store)
            assert store.entry(log, 5) == stored_form(new)
            assert store.read_payload(log, 5, 0, 1000) == payload
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.write_payload(log, 5, len(payload), b"x")

    def test_a_beginning_of_a_payload_goes_in_with_its_entry(self) -> None:
        for store, news, log in self.stores():
            new, other = news[4], news[5]
            payload = new.payload
            assert payload is not None
            store.append(
                log, [NewEntry(new.entry, payload[:9], staged=True), NewEntry(other.entry)]
            )
            store = self.reopened(store)
            assert store.entries(log) == [stored_form(new, 9), stored_form(NewEntry(other.entry))]
            assert store.read_payload(log, 5, 0, 100) == payload[:9]
            store.append(log, [NewEntry(new.entry, payload[:12], staged=True)])
            assert store.entry(log, 5) == stored_form(new, 9)
            store.append(log, [NewEntry(other.entry, other.payload, staged=True)])
            assert store.entry(log, 6) == stored_form(other, other.entry.payload_size)
            store.finish_payload(log, 6)
            assert store.entry(log, 6) == stored_form(other)
            store.append(log, [NewEntry(other.entry, b"begun", staged=True)])
            assert store.entry(log, 6) == stored_form(other)
            with self.refused(store, StoreErrorCode.PAYLOAD_SIZE, 5):
                store.append(log, [NewEntry(new.entry, payload + b"x", staged=True)])
            store.append(log, [new])
            store = self.reopened(store)
            assert store.entry(log, 5) == stored_form(new)
            assert store.read_payload(log, 5, 0, 1000) == payload

    def test_a_beginning_that_is_empty_gives_way_to_another(self) -> None:
        for store, news, log in self.stores():
            new = news[4]
            payload = new.payload
            assert payload is not None
            store.append(log, [NewEntry(new.entry, b"", staged=True)])
            store = self.reopened(store)
            assert store.entry(log, 5) == stored_form(new, 0)
            store.append(log, [NewEntry(new.entry, payload[:9], staged=True)])
            store = self.reopened(store)
            assert store.entry(log, 5) == stored_form(new, 9)
            assert store.read_payload(log, 5, 0, 100) == payload[:9]

    def test_a_payload_in_many_pieces_is_read_from_anywhere(self) -> None:
        for store, news, log in self.stores():
            new = news[9]
            payload = new.payload
            assert payload is not None
            store.append(log, [NewEntry(new.entry, payload[:5], staged=True)])
            for start, end in ((5, 6), (6, 6), (6, 20), (20, len(payload))):
                store.write_payload(log, 10, start, payload[start:end])
            for finished in (False, True):
                if finished:
                    store.finish_payload(log, 10)
                for offset in range(len(payload) + 2):
                    for size in (0, 1, 2, 14, 15, 100):
                        read = store.read_payload(log, 10, offset, size)
                        assert read == payload[offset : offset + size]
            store.append(log, [new])
            assert store.entries(log, 10, payload_size_max=100)[0].payload == payload

    def test_small_complete_payloads_come_along_with_entries(self) -> None:
        for store, news, log in self.stores():
            staged = NewEntry(news[2].entry, b"begun", staged=True)
            store.append(log, [*news[:2], staged, *news[3:6], NewEntry(news[6].entry)])
            payloads = [new.payload for new in news]

            def found(
                start: int = 1,
                store: LogStore = store,
                log: LogKey = log,
                *,
                payload_size_max: int | None = None,
                size_max: int | None = None,
            ) -> list[bytes | None]:
                entries = store.entries(
                    log, start, size_max=size_max, payload_size_max=payload_size_max
                )
                return [entry.payload for entry in entries]

            assert found() == [None] * 7
            assert found(payload_size_max=1000) == [
                payloads[n] if n not in (2, 6) else None for n in range(7)
            ]
            assert found(payload_size_max=21) == [*payloads[:2], None, payloads[3], *[None] * 3]
            assert found(payload_size_max=0) == [b"", *[None] * 6]
            sizes = [len(new.entry.encode()) for new in news]
            both = sizes[3] + 21 + sizes[4] + 28
            for size_max, count in ((both, 2), (both - 1, 1), (1, 1)):
                expected = payloads[3 : 3 + count]
                assert found(4, payload_size_max=28, size_max=size_max) == expected
            assert found(4, size_max=sizes[3] + sizes[4]) == [None, None]

    def test_an_empty_payload_is_complete_once_it_is_finished(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [NewEntry(news[0].entry)])
            assert store.entry(log, 1) == stored_form(NewEntry(news[0].entry))
            store.finish_payload(log, 1)
            store = self.reopened(store)
            assert store.entry(log, 1) == stored_form(news[0])

    def test_a_discarded_payload_leaves_the_entry(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [*news[:4], NewEntry(news[4].entry)])
            store.write_payload(log, 5, 0, b"staged")
            for seqnum in (3, 5):
                store.discard_payload(log, seqnum)
                store.discard_payload(log, seqnum)
                store = self.reopened(store)
                left_out = stored_form(NewEntry(news[2].entry))
                begun = stored_form(news[4], 0)  # others may send it without the mistake
                assert store.entry(log, seqnum) == {3: left_out, 5: begun}[seqnum]
                assert store.read_payload(log, seqnum, 0, 100) == b""
            assert store.head(log) == head_of(news[4])
            payload = news[2].payload
            assert payload is not None
            store.write_payload(log, 3, 0, payload)
            store.finish_payload(log, 3)
            assert store.entry(log, 3) == stored_form(news[2])

    def test_only_what_is_staged_is_discarded_with_it(self) -> None:
        for store, news, log in self.stores():
            store.append(log, [*news[:2], NewEntry(news[2].entry), NewEntry(news[3].entry)])
            store.write_payload(log, 3, 0, b"staged")
            for seqnum in (1, 3, 4, 3):
                store.discard_staged(log, seqnum)
                store = self.reopened(store)
            assert store.entry(log, 1) == stored_form(news[0])
            assert store.read_payload(log, 1, 0, 100) == news[0].payload
            assert store.entry(log, 3) == stored_form(news[2], 0)
            assert store.entry(log, 4) == stored_form(NewEntry(news[3].entry))

    def test_payloads_of_unknown_entries_are_refused(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news[:1])
            with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, 2):
                store.write_payload(log, 2, 0, b"")
            with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, 2):
                store.finish_payload(log, 2)
            with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, 2):
                store.discard_payload(log, 2)
            with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, 2):
                store.discard_staged(log, 2)


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
            assert store.entries(log) == [stored_form(new) for new in news[:6]]
            assert store.head(log) == store.newest(log) == head_of(news[5])
            assert store.read_payload(log, 8, 0, 10) == b""
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
                assert store.head(log) == store.newest(log)  # which a store may remember
                store.add_fork(log, proofs[added - 1])
                for reopens in (False, True):
                    store = self.reopened(store) if reopens else store
                    assert store.fork(log) == proofs[kept - 1]
                    expected = head_of(news[kept - 2]) if kept > 1 else None
                    assert store.head(log) == store.newest(log) == expected
            assert store.logs() == [log]
            left = store.head(log), store.entry(log, 1), store.entries(log)
            assert left == (None, None, [])
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
            assert store.head(log) is None
            store.append(log, news[:2])
            assert store.head(log) == head_of(news[1])

    def test_a_fork_of_another_log_or_family_is_refused(self) -> None:
        for store, news, log in self.stores():
            family = next(each for each in (YAMF, YASMF) if each is not store.family)
            store.append(log, news)
            for log_id, each in ((1, store.family), (0, family)):
                first, second = (varied_log(each, log_id, branch=b)[1] for b in (b"", b"other"))
                with self.refused(store, StoreErrorCode.WRONG_LOG, 2):
                    store.add_fork(log, ForkProof(first.entry, second.entry))


class LogStoreSuite(_EntryRules, _PayloadRules, _ForkRules, LargeRules):
    """Tests for a `LogStore`; see the module."""

    def make_model(self, family: HashFamily) -> LogStore:
        """The empty store with which the random walk compares."""
        return MemoryStore(family=family)

    def test_a_random_walk_agrees_with_a_store_in_memory(self) -> None:
        for family in self.families:
            for seed in range(4):
                self._walk(family, Random(seed), 250)

    def _walk(self, family: HashFamily, random: Random, steps: int) -> None:
        store, model = self.made(family), self.make_model(family)
        walker = RandomEffects(family, random)
        for step in range(steps):
            effect = walker.next_effect()
            outcomes = [_outcome(effect, each) for each in (store, model)]
            assert outcomes[0] == outcomes[1], (step, effect)
            if random.random() < 0.05:
                store = self.reopened(store)
                assert contents(store) == contents(model), (step, effect)
        assert contents(store) == contents(model)


def _outcome(effect: Effect[Any], store: LogStore) -> object:
    result = store.perform(effect)
    return result.code if isinstance(result, StoreError) else result
