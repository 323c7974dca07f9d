"""The conversations of the playground: a table."""

from __future__ import annotations

from playground.rooms import BYMUX, MUXRPC, OXEN, RAFT
from playground.world import Act, Scenario, Try

__all__ = ["SCENARIOS"]

_ENDS = ("client", "server")
_FRIENDS = ("Ada", "Ben", "Cleo")
_THREE = ("n1", "n2", "n3")
_FIVE = ("n1", "n2", "n3", "n4", "n5")

_TABLE = (
    Scenario(
        name="raft-election",
        title="An election",
        story="Nobody leads, so the first server whose patience ends asks for votes. "
        "The one that gets a majority leads, and is given two values to replicate.",
        room=RAFT,
        members=_THREE,
        until=5.5,
        script=(
            Act(2.4, "do", ("leader",), "propose"),
            Act(3.3, "do", ("leader",), "propose"),
        ),
        tries=(
            Try("Break the first request for a vote", "break", "REQUEST_VOTE_REQUEST"),
            Try("Kill the new leader", "kill", after=2.5, who="leader"),
            Try(
                "Let a heartbeat claim term 9",
                "byte",
                "APPEND_ENTRIES_REQUEST",
                after=2.0,
                offset=16,
                value=9,
            ),
        ),
    ),
    Scenario(
        name="raft-leader-killed",
        title="The leader is killed",
        story="A leader falls silent. The others notice, elect another one and go on; "
        "when the dead one is started again it follows and gets what it has missed.",
        room=RAFT,
        members=_THREE,
        until=9.0,
        script=(
            Act(2.4, "do", ("leader",), "propose"),
            Act(3.0, "kill", ("leader",)),
            Act(5.6, "do", ("leader",), "propose"),
            Act(6.4, "start", ("killed",)),
        ),
        tries=(
            Try("Kill the second leader, too", "kill", after=5.0, who="leader"),
            Try("Cut the new leader off", "cut", after=6.0, who="leader"),
        ),
    ),
    Scenario(
        name="raft-partition",
        title="A partition heals",
        story="The leader and one more are cut off from three others. Both sides are given values: "
        "that of the smaller side is never committed, and is gone when the network heals.",
        room=RAFT,
        members=_FIVE,
        until=12.0,
        latency_s=0.06,
        script=(
            Act(2.2, "do", ("leader",), "propose"),
            Act(3.0, "cut", ("leader", "n5")),
            Act(3.2, "do", ("leader",), "propose"),
            Act(5.6, "do", ("leader",), "propose"),
            Act(7.0, "heal"),
        ),
        tries=(
            Try("Heal at once", "heal", after=3.3),
            Try("Kill the leader of the larger side", "kill", after=5.2, who="leader"),
        ),
    ),
    Scenario(
        name="oxen-join",
        title="A node joins",
        story="Ada starts a cluster, Ben and later Cleo join by way of her, and gossip tells them "
        "of each other. What somebody says to all reaches all that have joined.",
        room=OXEN,
        members=_FRIENDS,
        absent=frozenset({"Cleo"}),
        until=4.0,
        script=(
            Act(1.0, "do", ("Ada",), "say"),
            Act(1.6, "start", ("Cleo",)),
            Act(2.8, "do", ("Cleo",), "say"),
        ),
        tries=(
            Try("Lose the first datagram", "drop", "Synchronize"),
            Try("Let Ben leave before Cleo comes", "do", after=1.2, who="Ben", deed="leave"),
            Try("Kill Ada when all have met", "kill", after=2.4, who="Ada"),
        ),
    ),
    Scenario(
        name="oxen-loss",
        title="Three in ten are lost",
        story="Ada tells Ben five things over a network that loses three datagrams in ten. "
        "All five arrive, once and in order.",
        room=OXEN,
        members=("Ada", "Ben"),
        until=9.0,
        loss=0.3,
        script=(
            Act(2.5, "do", ("Ada",), "tell"),
            Act(2.6, "do", ("Ada",), "tell"),
            Act(2.7, "do", ("Ada",), "tell"),
            Act(2.8, "do", ("Ada",), "tell"),
            Act(2.9, "do", ("Ada",), "tell"),
        ),
        tries=(
            Try("Let the first thing said come twice", "twice", "OneToOne", after=2.4),
            Try("Delay the second one", "late", "OneToOne", after=2.55),
        ),
    ),
    Scenario(
        name="oxen-around",
        title="Around a broken link",
        story="No datagram gets from Ada to Ben or back any more. What she tells him goes "
        "by way of Cleo.",
        room=OXEN,
        members=_FRIENDS,
        until=16.0,
        script=(
            Act(2.0, "unlink", ("Ada", "Ben")),
            Act(9.0, "do", ("Ada",), "tell"),
            Act(12.0, "do", ("Ada",), "tell"),
        ),
        tries=(
            Try("Mend the link before the second message", "heal", after=11.0),
            Try("Kill Cleo, the only way", "kill", after=8.0, who="Cleo"),
        ),
    ),
    Scenario(
        name="oxen-large",
        title="A large message",
        story="1,200 bytes do not fit into datagrams of 512. They go in pieces, and only what "
        "is lost goes again.",
        room=OXEN,
        members=("Ada", "Ben"),
        until=5.0,
        script=(Act(1.5, "do", ("Ada",), "large"), Act(1.6, "do", ("Ada",), "tell")),
        tries=(
            Try("Lose the first piece", "drop", "Piece", after=1.4),
            Try("Change a byte in the middle of it", "byte", "Piece", after=1.4, offset=200),
        ),
    ),
    Scenario(
        name="oxen-restart",
        title="Killed and started again",
        story="Ben is killed without a goodbye. Ada gives him up after a while, "
        "and takes him back when he returns.",
        room=OXEN,
        members=_FRIENDS,
        until=20.0,
        script=(
            Act(2.0, "kill", ("Ben",)),
            Act(3.0, "do", ("Ada",), "say"),
            Act(15.0, "start", ("Ben",)),
            Act(17.0, "do", ("Ada",), "say"),
        ),
        tries=(
            Try("Start Ben before he is given up", "start", after=4.0, who="Ben"),
            Try("Kill Cleo as well", "kill", after=5.0, who="Cleo"),
        ),
    ),
    Scenario(
        name="bymux-credit",
        title="Credit",
        story="A client creates a stream and has 44 bytes to send. Not one leaves before the "
        "server grants credit, and then no more than it grants.",
        room=BYMUX,
        members=_ENDS,
        until=6.0,
        script=(
            Act(0.2, "do", ("client",), "create"),
            Act(0.3, "do", ("client",), "write0"),
            Act(0.8, "do", ("server",), "grant0"),
            Act(1.6, "do", ("server",), "grant0"),
            Act(2.4, "do", ("server",), "grant0"),
            Act(3.2, "do", ("client",), "ping"),
            Act(4.0, "do", ("client",), "close"),
        ),
        tries=(
            Try("Grant 23 instead of 20 in the first Credit", "byte", "CREDIT", offset=2, value=23),
            Try("Grant credit to a stream that nobody has", "byte", "CREDIT", offset=1, value=9),
            Try("Break the connection in the middle", "break", "WRITE", after=1.8),
        ),
    ),
    Scenario(
        name="bymux-stalled",
        title="A slow stream stops itself alone",
        story="Two streams on one connection. Nobody reads the first, so it gets no credit and "
        "waits; the second runs on beside it.",
        room=BYMUX,
        members=_ENDS,
        until=7.0,
        script=(
            Act(0.2, "do", ("client",), "create"),
            Act(0.2, "do", ("client",), "create"),
            Act(0.4, "do", ("client",), "write0"),
            Act(0.5, "do", ("client",), "write2"),
            Act(0.9, "do", ("server",), "unlimited2"),
            Act(1.6, "do", ("client",), "write2"),
            Act(2.3, "do", ("client",), "write2"),
            Act(3.2, "do", ("server",), "grant0"),
            Act(4.0, "do", ("server",), "grant0"),
            Act(4.8, "do", ("server",), "grant0"),
            Act(5.6, "do", ("client",), "close"),
        ),
        tries=(
            Try("Wake the first stream early", "do", after=1.2, who="server", deed="grant0"),
            Try("Send a packet of no known type", "byte", "WRITE", after=1.5, value=255),
        ),
    ),
    Scenario(
        name="muxrpc-replicate",
        title="One call, values both ways",
        story="A client calls ebt.replicate, and both sides send values for as long as the call "
        "lasts. An end is answered with an end, and only then the call is over.",
        room=MUXRPC,
        members=_ENDS,
        until=5.0,
        script=(
            Act(0.2, "do", ("client",), "replicate"),
            Act(0.8, "do", ("client",), "send"),
            Act(0.9, "do", ("server",), "send"),
            Act(1.6, "do", ("server",), "send"),
            Act(2.4, "do", ("client",), "end"),
            Act(2.45, "do", ("server",), "send"),
            Act(3.4, "do", ("client",), "close"),
        ),
        tries=(
            Try("Call a method that there is not", "byte", "packet", offset=25, value=120),
            Try("Let a value claim to be 16 MiB longer", "byte", "notes", offset=1, value=1),
            Try("Break the connection in the middle", "break", "notes", after=1.2),
        ),
    ),
    Scenario(
        name="muxrpc-beside",
        title="Calls beside each other",
        story="The client asks for a feed, and while its values come it asks who the server is. "
        "The answer waits for no stream, and one call that fails leaves the other alone.",
        room=MUXRPC,
        members=_ENDS,
        until=6.0,
        script=(
            Act(0.2, "do", ("client",), "history"),
            Act(0.6, "do", ("server",), "send"),
            Act(0.8, "do", ("client",), "whoami"),
            Act(1.1, "do", ("server",), "send"),
            Act(1.4, "do", ("server",), "reply"),
            Act(2.0, "do", ("server",), "send"),
            Act(2.6, "do", ("client",), "whoami"),
            Act(3.2, "do", ("server",), "fail"),
            Act(4.0, "do", ("server",), "end"),
            Act(4.8, "do", ("client",), "close"),
        ),
        tries=(
            Try("Let the client end the stream early", "do", after=1.3, who="client", deed="end"),
            Try(
                "Answer a call that nobody has made",
                "byte",
                "packet",
                after=1.35,
                offset=8,
                value=9,
            ),
        ),
    ),
)

SCENARIOS = {each.name: each for each in _TABLE}
"""By name; the first one is shown to who names none."""
