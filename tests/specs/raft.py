"""The Raft core: clusters on a network of datagrams, and floods of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from culm.garlic.raft import Persist, Raft, Snapshot, State
from culm.garlic.raft import messages as m
from culm.machine import Effect
from culm.machines import Complete, Config, call
from culm.machines.raft import RAFT, UNANSWERED_MAX, RaftOverDatagrams, encode_message
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions, Network
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Comparison,
    Conversation,
    Flood,
    MachineSpec,
    Usage,
    Work,
)
from specs.garlic_node import TIGHT_SETTINGS, kept

__all__ = ["SPEC", "encode_message"]

Story = Callable[[Cluster], None]

_LEAST = Conditions(delay_min=0.001, delay_max=0.004)


def _confirms(effect: Effect[Any], message: bytes) -> bool:
    """A server answers once the log has its entries; applying them is its own business."""
    return isinstance(effect, Persist) and b'Response"' in message


def _recorded(
    name: str,
    story: Story,
    *,
    founders: Sequence[int] = (1, 2, 3),
    conditions: Conditions = _LEAST,
    **config: Any,
) -> Iterable[Conversation]:
    """The sides of three servers in `story`."""
    cluster, configs = _cluster(conditions, founders, **config)
    with cluster:
        story(cluster)
    for number, made in configs.items():
        yield _told(cluster[number], f"{name}/{number}", made)


def _cluster(
    conditions: Conditions, founders: Sequence[int] = (1, 2, 3), **config: Any
) -> tuple[Cluster, dict[int, Config]]:
    """Three servers with their configs; their stores answer at once."""
    cluster = Cluster(Network(seed=0, conditions=conditions), records=True)
    configs: dict[int, Config] = {}
    for number in (1, 2, 3):
        mine = founders if number in founders else ()
        configs[number] = {"id": number, "founders": list(mine), **config}
        respond = RAFT.store(configs[number])
        assert respond is not None
        cluster.add(
            number,
            lambda host: _made(configs[host.address]),  # type: ignore[index]
            verbs=RAFT.verbs,
            effects=lambda host, effect, respond=respond: host.complete(  # type: ignore[misc]
                effect.ticket, respond(effect)
            ),
        )
    return cluster, configs


def _made(config: Config) -> RaftOverDatagrams:
    machine = RAFT.make(config)
    assert isinstance(machine, RaftOverDatagrams)
    return machine


def _told(host: Host, name: str, config: Config) -> Conversation:
    told = host.conversation(name, config)
    # The store of a machine built anew answers by itself.
    return replace(told, operations=[o for o in told.operations if not isinstance(o, Complete)])


def _leader(cluster: Cluster) -> Host:
    def leads(host: Host) -> bool:
        machine: Raft = host.machine
        return machine.state is State.LEADER and machine.commit_index == machine.last_index

    cluster.run(cluster.network.clock.now + 5.0, done=lambda: any(map(leads, cluster)))
    return next(filter(leads, cluster))


def _wait(cluster: Cluster, seconds: float) -> None:
    cluster.run(cluster.network.clock.now + seconds)


def _election(cluster: Cluster) -> None:
    leader = _leader(cluster)
    leader.call("propose", values=[b"one", b"two"])
    leader.call("read")
    _wait(cluster, 0.1)
    target = next(host for host in cluster if host is not leader)
    target.call("reachable", peer=leader.address)
    target.call("read")
    target.call("forward", values=[b"forwarded", b"twice"])
    target.call("forward", values=[b"later"])
    _wait(cluster, 0.1)
    leader.call("transfer_leadership", target=target.address)
    _wait(cluster, 0.3)
    _leader(cluster).call("propose", values=[b"three"])
    _wait(cluster, 0.1)
    for host in cluster:
        host.call("close")


def _joining(cluster: Cluster) -> None:
    leader = _leader(cluster)
    for number in range(12):
        leader.call("propose", values=[b"value %d" % number])
    _wait(cluster, 0.1)
    leader.call("add_server", server_id=3)
    _wait(cluster, 0.3)
    leader.call("propose", values=[b"x" * 100] * 3)
    _wait(cluster, 0.2)
    leader.call("remove_server", server_id=3)
    _wait(cluster, 1.0)


def _differing(size: int) -> Conversation:
    """The last leader's side, when a server returns whose log has `size` different entries."""
    cluster, configs = _cluster(Conditions(delay_min=0.002, delay_max=0.002))
    with cluster:
        lost = _leader(cluster)
        cluster.network.partition([lost.address], {1, 2, 3} - {lost.address})
        lost.call("propose", values=[b"lost"] * size)
        _wait(cluster, 1.0)
        first = _leader(cluster)
        first.call("propose", values=[b"kept"] * size)
        _wait(cluster, 0.2)
        last = next(host for host in cluster if host not in (lost, first))
        first.call("transfer_leadership", target=last.address)
        _wait(cluster, 0.3)
        cluster.network.heal()
        cluster.run(
            cluster.network.clock.now + 60.0,
            done=lambda: lost.machine.commit_index == last.machine.last_index,
        )
        if lost.machine.commit_index < last.machine.last_index:
            raise AssertionError("the logs still differ")
    return _told(last, "differing", configs[last.address])  # type: ignore[index]


def _waiting(size: int) -> Conversation:
    """The leader's side: values one by one, before any answer, and reads."""
    cluster, configs = _cluster(_LEAST)
    with cluster:
        leader = _leader(cluster)
        for number in range(size):
            leader.call("propose", values=[b"value %d" % number])
            leader.call("read")
        _wait(cluster, 0.5)
        if leader.machine.commit_index < size:
            raise AssertionError("values still wait")
    return _told(leader, "waiting", configs[leader.address])  # type: ignore[index]


def _conversations(spec: MachineSpec) -> Iterable[Conversation]:
    yield from _recorded("election", _election)
    yield from _recorded("misfortune", _election, conditions=Conditions(loss=0.1, delay_max=0.01))
    yield from _recorded("join and leave", _joining, founders=(1, 2))
    yield from _recorded(
        "snapshot",
        _joining,
        founders=(1, 2),
        snapshot_distance=4,
        trailing_entries=0,
        chunk_size=16,
        sync_gap=2,
    )


def _vote(number: int) -> bytes:
    return encode_message(
        m.VoteRequest(source=2, destination=1, term=number, last_log_index=0, last_log_term=0)
    )


def _asked(number: int) -> bytes:
    return encode_message(
        m.ClientRequest(source=0, destination=0, term=0, sequence=number, values=[b"value"])
    )


def _forwarded(number: int) -> bytes:
    return encode_message(
        m.ForwardRequest(source=2, destination=1, term=1, sequence=number, values=[b"value"] * 3)
    )


def _chunk(number: int) -> bytes:
    snapshot = Snapshot(1_000 + number, 1)
    return encode_message(
        m.SnapshotRequest(
            source=2,
            destination=1,
            term=1_000,
            snapshot=snapshot,
            offset=0,
            data=bytes(300),
            done=False,
            commit_index=0,
        )
    )


SPEC = register(
    MachineSpec(
        machine=RAFT,
        bounds=Bounds(
            # Twice the measured cost; the next batch of entries, for which an answer suffices,
            # counts towards the base.
            work=Work(base=3000, per_byte=20),
            # Unanswered requests, one of them a snapshot's chunk; proposals; the log.
            retained_max=UNANSWERED_MAX * 700 + 20_000,
            unsent_max=UNANSWERED_MAX * 180 + 2_000,
            tight=TIGHT_SETTINGS,
        ),
        usage=Usage(
            growth={
                "entries in which two logs differ": _differing,
                "values and reads that wait": _waiting,
            },
            conversations=_conversations,
            bad_calls=(
                call("propose", values=[b"not the leader"]),
                call("read"),
                call("forward", values=[b"nobody leads"]),
                call("add_server", server_id=1),
                call("remove_server", server_id=7),
                call("transfer_leadership", target=1),
            ),
        ),
        attacks=Attacks(
            floods=(
                Flood(unit=_vote, source=lambda number: 2),
                Flood(unit=_chunk, source=lambda number: 2),
                Flood(unit=_forwarded, source=lambda number: 2),
                Flood(unit=_asked, source=lambda number: "client", config={"founders": [1]}),
            ),
        ),
        comparison=Comparison(kept=kept, confirms=_confirms),
    )
)
