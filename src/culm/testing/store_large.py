"""The duties of a log store with large numbers, large payloads and many entries."""

from __future__ import annotations

from nacl.signing import SigningKey

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import Entry, LogKey, sign
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import has_lipmaalink
from culm.bamboo.records import NewEntry, StoreErrorCode
from culm.bamboo.store import LogStore
from culm.machines.sample_logs import make_log
from culm.testing.store_asking import StoreSuite, head_of, stored_form, varied_log
from culm.wire.multihash import HashFamily

_GREAT = ((1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1)  # signed numbers end at the first
_PAYLOAD_SIZE = (1 << 21) + 5
_MANY = 1200


def _entry(family: HashFamily, seqnum: int, payload_size: int = 0, *, log_id: int = 0) -> Entry:
    """An entry with arbitrary links, which a store does not check."""
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


def _nothing(seqnum: int) -> bytes:
    return b""


class LargeRules(StoreSuite):
    """Tests with extreme numbers, as a peer may choose any and ask for any."""

    def test_great_numbers_are_answered_as_any_others(self) -> None:
        for store, news, log in self.stores():
            store.append(log, news)
            for great in _GREAT:
                self._has_nothing_there(store, log, great)
                self._has_nothing_of(store, LogKey(log.author, great))
                everything = [stored_form(new) for new in news]
                assert store.entries(log, 1, great, count_max=great, size_max=great) == everything
                whole = store.entries(log, payload_size_max=great)
                assert [entry.payload for entry in whole] == [new.payload for new in news]
                assert store.read_payload(log, 5, 0, great) == news[4].payload
                assert store.read_payload(log, 5, great, great) == b""
                assert store.logs(count_max=great) == [log]

    def _has_nothing_there(self, store: LogStore, log: LogKey, great: int) -> None:
        assert store.entry(log, great) is None
        assert store.entries(log, great) == []
        assert store.hashes(log, [2, great]).keys() == {2}
        assert store.read_payload(log, great, 0, 1) == b""
        with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, great):
            store.write_payload(log, great, 0, b"x")
        with self.refused(store, StoreErrorCode.WRONG_OFFSET, 5):
            store.write_payload(log, 5, great, b"x")
        with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, great):
            store.finish_payload(log, great)
        with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, great):
            store.discard_payload(log, great)

    def _has_nothing_of(self, store: LogStore, log: LogKey) -> None:
        assert (store.head(log), store.newest(log), store.fork(log)) == (None, None, None)
        assert store.entry(log, 1) is None
        assert store.entries(log) == []
        assert store.hashes(log, [1]) == {}
        assert store.read_payload(log, 1, 0, 1) == b""
        assert store.logs(log) == []
        with self.refused(store, StoreErrorCode.UNKNOWN_ENTRY, 1):
            store.finish_payload(log, 1)

    def test_an_entry_of_the_greatest_numbers_is_kept(self) -> None:
        greatest = _GREAT[-1]
        for family in self.families:
            entry = _entry(family, greatest, greatest, log_id=greatest)
            store = self.made(family)
            store.append(entry.log, [NewEntry(entry)])
            store.write_payload(entry.log, greatest, 0, b"begun")
            store = self.reopened(store)
            assert store.entries(entry.log) == [stored_form(NewEntry(entry), 5)]
            assert store.logs() == [entry.log]

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
            for news in made:
                assert store.entries(news[0].entry.log) == [stored_form(new) for new in news]

    def test_entries_of_great_numbers_are_in_order_and_can_be_forked(self) -> None:
        for family in self.families:
            store, log_id = self.made(family), _GREAT[1]
            news = [NewEntry(_entry(family, seqnum, log_id=log_id)) for seqnum in (2, *_GREAT)]
            log = news[0].entry.log
            store.append(log, news[::-1])
            assert store.entries(log) == [stored_form(new) for new in news]
            assert store.newest(log) == head_of(news[-1])
            for kept in (4, 3, 2, 1):
                seqnum = news[kept].entry.seqnum
                proof = ForkProof(news[kept].entry, _entry(family, seqnum, 1, log_id=log_id))
                store.add_fork(log, proof)
                store = self.reopened(store)
                assert store.fork(log) == proof
                assert store.entries(log) == [stored_form(new) for new in news[:kept]]
                assert store.newest(log) == head_of(news[kept - 1])

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
            news = make_log(family, count=_MANY, payload=_nothing)
            log, store = news[0].entry.log, self.made(family)
            store.append(log, news)
            assert len(store.entries(log)) == len(store.entries(log, count_max=_MANY)) == _MANY
            assert store.head(log) == head_of(news[-1])
            numbers = range(_MANY + 1, 0, -1)
            assert store.hashes(log, numbers) == {
                new.entry.seqnum: new.entry.hash() for new in news
            }
