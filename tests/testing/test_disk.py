"""The disk that forgets, compared with a twin in memory and with its probabilities."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from culm.testing.disk import Disk

names = st.sampled_from(["x", "y"])
data = st.binary(max_size=8)


class DiskTwin(RuleBasedStateMachine):
    """Bytes read are those written; synced bytes survive a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk(Random(0), loss=1.0)
        self.seen: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}

    @rule(name=names, data=data)
    def append(self, name: str, data: bytes) -> None:
        self.disk.append(name, data)
        self.seen[name] = self.seen.get(name, b"") + data

    @rule(name=names, offset=st.integers(0, 20), data=data)
    def write(self, name: str, offset: int, data: bytes) -> None:
        self.disk.write(name, offset, data)
        old = self.seen.get(name, b"").ljust(offset, b"\0")
        self.seen[name] = old[:offset] + data + old[offset + len(data) :]

    @rule(name=names, size=st.integers(0, 20))
    def truncate(self, name: str, size: int) -> None:
        self.disk.truncate(name, size)
        self.seen[name] = self.seen.get(name, b"")[:size]

    @rule(name=names, data=data)
    def replace(self, name: str, data: bytes) -> None:
        self.disk.replace(name, data)
        self.seen[name] = data

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.disk.delete(name)
        self.seen.pop(name, None)

    @rule(name=st.none() | names)
    def sync(self, name: str | None) -> None:
        self.disk.sync(name)
        for each in ["x", "y"] if name is None else [name]:
            if each in self.seen:
                self.synced[each] = self.seen[each]
            else:
                self.synced.pop(each, None)

    @rule()
    def crash(self) -> None:
        self.disk.crash()
        self.seen = dict(self.synced)

    @invariant()
    def reads_what_was_written(self) -> None:
        assert self.disk.names() == sorted(self.seen)
        for name, content in self.seen.items():
            assert self.disk.read(name) == content
            assert self.disk.size(name) == len(content)


TestDisk = DiskTwin.TestCase


def test_a_file_that_is_not_there_is_not_found() -> None:
    disk = Disk(Random(0))
    assert disk.size("none") == 0
    with pytest.raises(FileNotFoundError):
        disk.read("none")


def after_crash(seed: int, *, loss: float, tearing: float, sector_size: int = 4) -> bytes:
    disk = Disk(Random(seed), loss=loss, tearing=tearing, sector_size=sector_size)
    disk.write("x", 0, b"................")
    disk.sync()
    disk.write("x", 2, b"AAAAAAAA")
    disk.write("x", 12, b"BBBB")
    disk.crash()
    return disk.read("x")


def test_unsynced_writes_may_be_lost_kept_or_torn() -> None:
    assert after_crash(0, loss=1.0, tearing=0.0) == b"................"
    assert after_crash(0, loss=0.0, tearing=0.0) == b"..AAAAAAAA..BBBB"
    torn = {after_crash(seed, loss=0.0, tearing=1.0) for seed in range(200)}
    firsts = {b"..AA", b"...."}
    assert torn == {
        first + middle + last + end
        for first in firsts
        for middle in (b"AAAA", b"....")
        for last in (b"AA..", b"....")
        for end in (b"BBBB", b"....")
    }


def test_writes_need_not_survive_in_order() -> None:
    found = {after_crash(seed, loss=0.5, tearing=0.0) for seed in range(50)}
    assert found == {
        b"................",
        b"..AAAAAAAA......",
        b"............BBBB",
        b"..AAAAAAAA..BBBB",
    }


def test_a_torn_append_may_leave_a_hole_of_zeros() -> None:
    found = set()
    for seed in range(100):
        disk = Disk(Random(seed), loss=0.0, tearing=1.0, sector_size=1)
        disk.append("log", b"ab")
        disk.crash()
        found.add(disk.read("log") if disk.names() else b"")
    assert found == {b"", b"a", b"\0b", b"ab"}


def test_replace_and_delete_happen_or_do_not() -> None:
    found = set()
    for seed in range(50):
        disk = Disk(Random(seed), tearing=1.0, sector_size=1)
        disk.replace("x", b"old")
        disk.sync()
        disk.replace("x", b"new!")
        disk.delete("x")
        disk.crash()
        found.add(disk.read("x") if disk.names() else b"")
    assert found == {b"old", b"new!", b""}


def test_syncing_one_file_leaves_the_others_at_risk() -> None:
    disk = Disk(Random(0), loss=1.0)
    disk.append("x", b"1")
    disk.append("y", b"2")
    disk.sync("x")
    disk.crash()
    assert disk.names() == ["x"]
