"""Nodes of ours in the places of recorded JRaft servers: the same bytes, or a verdict."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from jraft_replay import FIRST, FOUNDERS, FOUNDING, LIMITS, Actor, frames, recorded_server

import vectors
from culm.garlic.errors import ErrorCode
from culm.garlic.messages import REQUEST_HEADER_SIZE, MessageType, RequestFrame
from culm.garlic.raft import Configuration, Entry, State, Stored
from culm.garlic.values import LogPack, decode_entries, decode_log, replicated

VALUE = b"x"
HEARTBEATS, ONE_REQUEST, THREE_REQUESTS = (
    "b_heartbeats",
    "c_append_3_in_one_request",
    "c2_append_3_requests",
)


def log_of(size: int) -> list[Entry]:
    """A log that begins like the recorded one; its values do not matter."""
    return [FIRST, *[Entry(1, VALUE)] * (size - 1)]


def follower(
    number: int, log: Sequence[Entry], *, leader: int = 1, commit: int | None = None
) -> Actor:
    actor = Actor(number, FOUNDING)
    actor.follow(leader, 1, log, len(log) if commit is None else commit)
    return actor


def leader(number: int, log: Sequence[Entry]) -> Actor:
    actor = Actor(number, FOUNDING)
    actor.lead([entry.data for entry in log[1:]], until=len(log))  # type: ignore[misc]
    return actor


@pytest.mark.parametrize(("number", "ours"), [(1, 11), (2, 6), (3, 7)])
def test_an_election_from_the_start(number: int, ours: int) -> None:
    """The winner, a voter, and the candidate that comes too late."""
    actor = Actor(number, FOUNDING)
    assert actor.play(frames("a_election")) == ours
    assert actor.node.state is (State.LEADER if number == 1 else State.FOLLOWER)
    assert actor.node.commit_index == 1


@pytest.mark.parametrize(
    ("name", "size", "ours"),
    [(HEARTBEATS, 1, (10, 5, 5)), (ONE_REQUEST, 1, (7, 3, 3)), (THREE_REQUESTS, 4, (19, 9, 8))],
)
def test_heartbeats_and_client_requests(name: str, size: int, ours: tuple[int, ...]) -> None:
    recorded = frames(name)
    assert leader(1, log_of(size)).play(recorded) == ours[0]
    assert follower(2, log_of(size)).play(recorded) == ours[1]
    assert follower(3, log_of(size)).play(recorded) == ours[2]


def synced_log() -> list[Entry]:
    """The joiner's input: packs, and the first entry it got by AppendEntries."""
    log: list[Entry] = []
    for frame in frames("d_add_server"):
        data = bytes.fromhex(frame["hex"])
        if frame["dir"] == "resp" or frame["listener"] != 4:
            continue
        request = RequestFrame.decode(
            data[:REQUEST_HEADER_SIZE], data[REQUEST_HEADER_SIZE:], LIMITS
        )
        if request.type is MessageType.SYNC_LOG_REQUEST:
            pack = LogPack.decode(decode_entries(request.log, LIMITS)[0].value, LIMITS)
            log += [replicated(entry, LIMITS) for entry in pack.entries]
        elif request.type is MessageType.APPEND_ENTRIES_REQUEST and request.log:
            return [*log, decode_log(request.log, LIMITS)[0]]
    raise AssertionError("the joiner got no entries")


def test_adding_and_removing_a_server_as_the_leader() -> None:
    """The joiner gets one pack, and the rest by AppendEntries: see docs/decisions."""
    actor, recorded = leader(1, synced_log()), frames("d_add_server")
    begun = [number for number, frame in enumerate(recorded) if frame["hex"].startswith("0a")]
    assert actor.play(recorded[: begun[1]]) == 3
    while (data := actor.take_request(4)) is not None:
        actor.answer(4, data)
    with_others = [frame for frame in recorded[begun[-1] :] if frame["listener"] in {2, 3}]
    assert actor.play(with_others) == 12
    actor.satisfy()
    assert actor.node.configuration.ids == {1, 2, 3, 4}
    actor.node.propose([VALUE])  # between the two transcripts
    actor.drain()
    actor.satisfy()
    assert actor.play(frames("e_remove_server")) == 13
    assert actor.node.configuration.ids == {1, 2, 3}


def test_adding_a_server_as_that_server() -> None:
    """It had an entry of its own before, which the leader's replace."""
    actor = Actor(4, Stored(entries=[Entry(0, VALUE)]))
    assert actor.play(frames("d_add_server")) == 11
    assert actor.node.configuration.ids == {1, 2, 3, 4}


@pytest.mark.parametrize(("number", "ours"), [(2, 7), (3, 6)])
def test_adding_a_server_as_another_follower(number: int, ours: int) -> None:
    assert follower(number, log_of(31)).play(frames("d_add_server")) == ours


@pytest.mark.parametrize(("number", "ours"), [(2, 5), (3, 4), (4, 4)])
def test_removing_a_server_as_a_follower(number: int, ours: int) -> None:
    servers = (*FOUNDERS, recorded_server(4))
    log = [*log_of(31), Entry(1, Configuration(32, 1, servers)), Entry(1, VALUE)]
    stored = Stored() if number == 4 else FOUNDING
    actor = Actor(number, stored)
    actor.follow(1, 1, log, len(log))
    assert actor.play(frames("e_remove_server")) == ours
    assert actor.node.configuration.ids == {1, 2, 3}


def test_a_snapshot_is_installed() -> None:
    actor = follower(1, log_of(11), leader=3)
    assert actor.play(frames("f_install_snapshot")) == 8
    assert actor.store.load().snapshot.index == 147
    assert actor.node.commit_index == 157


def test_a_client_asks_a_follower() -> None:
    assert follower(2, log_of(4)).play(frames("g_client_request_to_follower")) == 1


def test_an_old_leaders_entries_are_overwritten() -> None:
    actor = follower(2, log_of(13), commit=11)
    assert actor.play(frames("i2_diverged_old_leader_overwritten")) == 2
    assert [entry.term for entry in actor.store.load().entries] == [1] * 11 + [2, 2]


# Malformed requests. The answers are JRaft's, byte for byte, except for those listed here; where
# JRaft closes the connection, so do we.

CLOSED = {
    5: ErrorCode.UNKNOWN_MESSAGE_TYPE,
    6: ErrorCode.UNKNOWN_MESSAGE_TYPE,
    8: ErrorCode.BAD_LOG_ENTRY,
    9: ErrorCode.UNKNOWN_VALUE_TYPE,
    10: ErrorCode.BAD_LOG_ENTRY,
    11: ErrorCode.BAD_LOG_ENTRY,
    12: ErrorCode.BAD_LOG_ENTRY,
    13: ErrorCode.TRUNCATED,
    14: ErrorCode.TRUNCATED,
    15: ErrorCode.LOG_TOO_LARGE,
    16: ErrorCode.WRONG_ENTRIES,
    17: ErrorCode.WRONG_ENTRIES,
    18: ErrorCode.BAD_VALUE,
}
STRICTER = {  # JRaft refuses these, or worse, accepts them
    19: ErrorCode.WRONG_ENTRIES,  # a server as an application value
    21: ErrorCode.WRONG_ENTRIES,
    24: ErrorCode.WRONG_ENTRIES,  # a client's configuration, taken as a value
    26: ErrorCode.BAD_VALUE,  # a pack that is not gzip
    27: ErrorCode.WRONG_ENTRIES,  # an invitation without a configuration
    28: ErrorCode.WRONG_ENTRIES,  # a snapshot request without one
    29: ErrorCode.WRONG_DESTINATION,  # entries for server 77
}
HINTED = {31: 3}  # the previous term is wrong: we hint past all entries of a lower one
SAME = {1: {7, 30, 32, 33, 34}, 3: {20, 22, 23, 25}}


@pytest.mark.parametrize("number", [1, 3])
def test_malformed_requests_get_the_verdict_that_jraft_gives_or_a_stricter_one(number: int) -> None:
    if number == 1:
        actor = follower(1, log_of(3), leader=3)
    else:
        actor = leader(3, log_of(3))
    lines = vectors.load_json_lines("jraft/m_malformed_and_edge.jsonl")
    answers: dict[int, str] = {}
    for line in lines:
        if line.get("listener") != number or line["ev"] not in {"frame", "partial"}:
            continue
        if line["dir"] == "resp":
            answers[line["conn"]] = answers.get(line["conn"], "") + line["hex"]
            continue
        actor.receive(line["conn"], bytes.fromhex(line["hex"]))
        if line["ev"] == "partial":
            actor.links[line["conn"]].receive_eof()
            actor.drain()
        if line["conn"] == 24:
            actor.node.propose([VALUE])  # in place of the refused one
            actor.drain()
    same = set()
    for conn, link in ((key, link) for key, link in actor.links.items() if isinstance(key, int)):
        sent = bytes(actor.sent[conn]).hex()
        expected = CLOSED.get(conn) or STRICTER.get(conn)
        assert (conn in answers) == (conn not in CLOSED)
        if expected is not None:
            error = actor.closed[link.number].error
            assert error is not None
            assert (error.code, sent) == (expected, "")
        elif conn in HINTED:
            recorded = bytes.fromhex(answers[conn])
            hint = HINTED[conn].to_bytes(8, "big")
            assert sent == (recorded[:17] + hint + recorded[25:]).hex()
        else:
            assert sent == answers[conn], conn
            same.add(conn)
    assert same >= SAME[number]
    assert actor.node.term == 1
    assert actor.node.state is (State.LEADER if number == 3 else State.FOLLOWER)
