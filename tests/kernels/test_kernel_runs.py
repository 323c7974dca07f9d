"""Runs of entries: one suite for the compiled kernel and its pure twin, and both side by side."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey
from runs_model import HEAD, Packets, Run, make_run, varu64

from culm.bamboo.author import LogAuthor
from culm.bamboo.entry import decode
from culm.bamboo.links import lipmaa
from culm.kernels import pure_runs
from culm.wire.multihash import YAMF, YASMF

LAST = 2**64 - 1
TOPS = [(3**k - 1) // 2 for k in range(1, 42)]  # the last entries of the first blocks

families = st.sampled_from([YAMF, YASMF])
starts = st.one_of(
    st.integers(1, 130),
    st.sampled_from(TOPS).flatmap(lambda top: st.integers(max(1, top - 6), top + 3)),
    st.sampled_from([247, 248, 2**16 - 3, 2**32 - 3, 2**63 - 2, LAST - 40, LAST - 1, LAST]),
    st.integers(1, LAST),
)
payload_sizes = st.one_of(st.integers(0, 40), st.sampled_from([246, 247, 248, 249, 300, 70_000]))


@st.composite
def runs_to_read(draw: st.DrawFn, *, size_min: int = 0) -> Run:
    start = draw(starts)
    count_max = min(8, LAST - start + 1)
    sizes = draw(st.lists(payload_sizes, min_size=min(size_min, count_max), max_size=count_max))
    return make_run(draw(families), start, sizes, draw(st.integers(0, 9)))


def read(kernel: Any, run: Run, **changes: Any) -> list[tuple[Any, ...]]:
    records: list[tuple[Any, ...]] = kernel.read(*run.arguments(**changes))
    assert [type(part) for record in records for part in record] == [
        type(part) for record in pure_runs.read(*run.arguments(**changes)) for part in record
    ]
    return records


@given(runs_to_read(), st.binary(max_size=3))
def test_what_is_plain_is_read(runs, run, behind):
    assert read(runs, run, data=run.encode() + behind) == run.expected()


@given(runs_to_read(), st.integers(0, 10))
def test_no_more_than_asked_for_is_read(runs, run, count_max):
    assert read(runs, run, count_max=count_max) == run.expected()[:count_max]


@given(runs_to_read(size_min=2), st.data())
def test_what_is_cut_short_is_not_read(runs, run, data):
    cut = data.draw(st.integers(0, len(run.encode())))
    whole = [record for record in run.expected() if record[-1] <= cut]
    assert read(runs, run, data=run.encode()[:cut]) == whole


@pytest.mark.parametrize("family", [YAMF, YASMF])
@pytest.mark.parametrize("seed", [0, 2])
def test_every_cut_of_a_short_run(runs, family, seed):
    run = make_run(family, 12, [0, 3, 248], seed)
    data, records = run.encode(), run.expected()
    for cut in range(len(data) + 1):
        whole = [record for record in records if record[-1] <= cut]
        assert read(runs, run, data=data[:cut]) == whole


@given(runs_to_read(), st.integers(0, 300), st.integers(0, 300))
def test_payloads_are_of_the_sizes_asked_for(runs, run, size_min, size_max):
    expected = []
    for record in run.expected():
        if not size_min <= record[3] <= size_max:
            break
        expected.append(record)
    assert read(runs, run, size_min=size_min, size_max=size_max) == expected


CHANGES: dict[str, Callable[[Packets], None]] = {
    "the log ends": lambda entry: setattr(entry, "first", 129),
    "another packet": lambda entry: setattr(entry, "first", 0),
    "an unused byte": lambda entry: setattr(entry, "first", 130),
    "a backlink": lambda entry: setattr(entry, "backlink", entry.entry.family.hash(b"")),
    "a size too long": lambda entry: entry.octets.update(size=8),
    "a hash of nothing": lambda entry: setattr(entry, "payload_hash", b"\1\x40" + bytes(64)),
    "a digest of another size": lambda entry: setattr(
        entry, "payload_hash", b"\0\x21" + entry.entry.payload_hash[2:]
    ),
    "a jump": lambda entry: setattr(entry, "payload_first", 7),
    "no payload": lambda entry: setattr(entry, "payload_first", 128),
    "another size announced": lambda entry: setattr(
        entry, "announced", entry.entry.payload_size ^ 1
    ),
    "a huge size announced": lambda entry: setattr(entry, "announced", LAST),
    "an announced size too long": lambda entry: entry.octets.update(announced=8),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", CHANGES)
@given(run=runs_to_read(size_min=1), data=st.data())
def test_a_run_ends_before_what_is_not_plain(runs, name, run, data):
    at = data.draw(st.integers(0, len(run.packets) - 1))
    expected = run.expected()[:at]
    CHANGES[name](run.packets[at])
    assert read(runs, run) == expected


@pytest.mark.parametrize("octets", range(1, 9))
@pytest.mark.parametrize("which", ["size", "announced", "packed"])
def test_numbers_are_canonical(runs, which, octets):
    """The numbers 248 and 256: the first takes one more byte, the second two."""
    for size, fewest in ((0, 0), (247, 0), (248, 1), (256, 2)):
        run = make_run(YAMF, 5, [7, size, 7])
        packets = run.packets[1]
        packets.body, packets.compressed = bytes(size), which == "packed"
        packets.octets[which] = octets
        plain = octets <= fewest
        assert len(read(runs, run)) == (3 if plain else 1)


@pytest.mark.parametrize("size", [1000, 2**31, 2**32, 2**63 - 1, 2**63, LAST - 20, LAST])
@pytest.mark.parametrize("compressed", [False, True])
def test_claims_of_more_than_there_is(runs, size, compressed):
    run = make_run(YASMF, 2, [7, 7])
    expected = run.expected()[:1]
    claim = run.packets[1]
    if compressed:
        claim.compressed, claim.packed_size = True, size
    else:
        claim.compressed = False
        object.__setattr__(claim.entry, "payload_size", size)
    assert read(runs, run) == expected


@given(runs_to_read(size_min=1), st.data())
def test_a_run_ends_where_a_link_is_not_known(runs, run, data):
    if not run.links:
        return
    missing = data.draw(st.sampled_from(sorted(run.links)))
    links = {target: hash for target, hash in run.links.items() if target != missing}
    records = read(runs, run, links=links)
    asking = [
        index
        for index, record in enumerate(run.expected())
        if missing in (record[0] - 1, lipmaa(record[0]))
    ]
    assert records == run.expected()[: asking[0]]


def test_links_are_left_as_they_are(runs):
    run = make_run(YAMF, 13, [5, 5])
    before = dict(run.links)
    assert len(read(runs, run)) == 2
    assert run.links == before


def test_entries_of_the_run_count_for_more_than_links_told(runs):
    run = make_run(YAMF, 1, [5, 5, 5])
    links = dict.fromkeys(range(1, 4), YAMF.hash(b"something else"))
    assert read(runs, run, links=links) == run.expected()


def test_the_first_entry_has_no_links_whatever_is_told(runs):
    run = make_run(YAMF, 1, [5])
    assert read(runs, run, links={0: YAMF.hash(b""), 1: YAMF.hash(b"")}) == run.expected()


def test_no_entry_comes_before_the_first_one_or_behind_the_last_one(runs):
    run = make_run(YAMF, LAST, [5])
    twice = run.encode() * 2
    expected = run.expected()
    assert read(runs, run, data=twice) == expected
    assert read(runs, run, data=twice, count_max=LAST) == expected
    first = make_run(YAMF, 1, [5])
    assert read(runs, first, seqnum=0, links={LAST: YAMF.hash(b"")}) == []


@pytest.mark.parametrize("family", [YAMF, YASMF])
def test_a_log_of_an_author_is_read_as_it_is(runs, family):
    author = LogAuthor(SigningKey(b"\3" * 32), family=family, log_id=300)
    news = [author.publish(bytes([n]) * (n * n)) for n in range(45)]
    data = b"".join(Packets(new.entry, new.payload or b"").encode() for new in news)
    head = author.log.author + varu64(300)
    found = runs.read(
        data, head, 1, 100, 0, LAST, {}, family.prefix, family.encoded_size, family.hash
    )
    assert [decode(record[6], family=family) for record in found] == [new.entry for new in news]
    assert [record[7] for record in found] == [new.entry.hash() for new in news]
    assert [record[8] for record in found] == [new.payload for new in news]
    for at in (1, 12, 13, 39, 40):
        links = {record[0]: record[7] for record in found[:at]}
        rest = data[found[at - 1][-1] :]
        again = runs.read(
            rest, head, at + 1, 9, 0, LAST, links, family.prefix, family.encoded_size, family.hash
        )
        assert [record[:-1] for record in again] == [record[:-1] for record in found[at : at + 9]]


def test_what_goes_wrong_while_hashing_comes_out(runs):
    def fail(data: bytes) -> bytes:
        raise MemoryError(len(data))

    with pytest.raises(MemoryError):
        runs.read(*make_run(YAMF, 1, [5]).arguments(hash=fail))


def test_a_link_that_is_smaller_than_its_prefix_is_refused(runs):
    for size in (-1, 0, 1):
        with pytest.raises(ValueError, match="smaller than its prefix"):
            runs.read(*make_run(YAMF, 1, [5]).arguments(link_size=size))


# Side by side


def alike(twins: Any, run: Run, **changes: Any) -> None:
    compiled, pure = (twin.read(*run.arguments(**changes)) for twin in twins)
    assert compiled == pure


def mutate(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(changed))
        match chance.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([chance.choice([0, 8, 9, 128, 129, 247, 248, 255])])
            case 1:
                changed[at : at + 1] = chance.randbytes(1)
            case 2:
                del changed[at : at + chance.randint(1, 9)]
            case 3:
                changed[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                other = chance.randint(0, len(changed))
                changed[at:at] = changed[other : other + chance.randint(1, 200)]
    return bytes(changed)


@given(runs_to_read(), st.randoms(use_true_random=False))
def test_twins_read_mutated_data_alike(runs_twins, run, chance):
    data = run.encode()
    for _ in range(10):
        changed = mutate(data, chance)
        alike(runs_twins, run, data=changed)
        alike(runs_twins, run, data=changed[: chance.randint(0, len(changed))])


@given(
    runs_to_read(),
    st.binary(max_size=400),
    starts,
    st.integers(0, 9) | st.just(LAST),
    st.sampled_from([0, 1, 30, LAST]),
    st.sampled_from([0, 30, 247, 248, LAST]),
    families,
    st.dictionaries(starts, st.sampled_from([b"", YAMF.hash(b""), YASMF.hash(b"")])),
    st.sampled_from([b"", HEAD]),
)
def test_twins_take_all_arguments_alike(
    runs_twins, run, noise, seqnum, count_max, size_min, size_max, family, links, head
):
    parameters: dict[str, Any] = {
        "seqnum": seqnum,
        "count_max": count_max,
        "size_min": size_min,
        "size_max": size_max,
        "links": links,
        "head": head,
    }
    for name, value in parameters.items():
        alike(runs_twins, run, **{name: value})
    parameters |= {"prefix": family.prefix, "link_size": family.encoded_size}
    alike(runs_twins, run, **parameters)
    packets = b"\x80" + bytes([len(noise) % 256]) + family.hash(b"") + bytes(64)
    alike(runs_twins, run, **parameters | {"links": {**links, seqnum - 1: b""}, "data": noise})
    alike(runs_twins, run, **parameters | {"links": run.links, "data": packets + noise})


@pytest.mark.parametrize(
    "changes",
    [
        {"data": bytearray(300)},
        {"data": None},
        {"head": None},
        {"prefix": None},
        {"links": {11: "text", 4: 5}},
    ],
)
def test_the_compiled_kernel_refuses_what_is_no_bytes(runs_twins, changes):
    with pytest.raises(TypeError):
        runs_twins[0].read(*make_run(YAMF, 12, [5, 5]).arguments(**changes))


def test_many_entries_are_read_in_order(runs_twins):
    run = make_run(YASMF, 1, [3] * 400)
    assert [len(twin.read(*run.arguments())) for twin in runs_twins] == [400, 400]
    alike(runs_twins, run, links=[*run.links.items()])
