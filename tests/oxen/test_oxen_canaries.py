"""Broken nodes, on purpose: the simulation and its ledger notice each of them.

Unless it is noticed, 100,000 quiet seeds prove nothing about it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from oxen_simulation import simulate

from culm.machines.driver import EndlessError
from culm.oxen import Delivery, DropReason, PeerState, seal
from culm.oxen.associations import Associations
from culm.oxen.contacts import ContactTable
from culm.oxen.courier import Courier
from culm.oxen.flight import Flight
from culm.oxen.incoming import Age, Incoming, InOrder
from culm.oxen.keepalive import Keepalives
from culm.oxen.links import Links
from culm.oxen.messages import (
    Body,
    MessageData,
    OneToOne,
    Piece,
    Position,
    Synchronize,
    Tags,
    read_message,
)
from culm.oxen.outgoing import Outgoing
from culm.oxen.peer import Peer
from culm.oxen.pieces import Assemblies
from culm.oxen.proofs import Proofs
from culm.oxen.reception import Reception
from culm.oxen.seal import Opened, Seal
from culm.oxen.stream import Item, Stream

SEEDS = range(9_000, 9_150)
Break = Callable[[pytest.MonkeyPatch], None]
CANARIES: dict[str, Break] = {}
WEATHER: dict[str, dict[str, bool]] = {}


def canary(break_it: Break) -> Break:
    CANARIES[break_it.__name__.replace("_", " ")] = break_it
    return break_it


def canary_in(weather: str) -> Callable[[Break], Break]:
    """A canary that sings in stories of that kind."""

    def take(break_it: Break) -> Break:
        WEATHER[break_it.__name__.replace("_", " ")] = {weather: True}
        return canary(break_it)

    return take


@canary
def duplicates_are_delivered_again(patch: pytest.MonkeyPatch) -> None:
    receive = Reception.receive

    def again(self: Reception, source: bytes, body: Body, size: int) -> None:
        peer = self._roster.peers.get(body.fr) if isinstance(body, MessageData) else None
        if peer is not None and peer.incoming is not None:
            message, stream = read_message(body.d), peer.incoming.one  # type: ignore[union-attr]
            if isinstance(message, OneToOne | Piece) and message.sequence == stream.position:
                stream.position -= 1
        receive(self, source, body, size)

    patch.setattr(Reception, "receive", again)


@canary
def what_comes_early_is_delivered_at_once(patch: pytest.MonkeyPatch) -> None:
    def accept(self: InOrder, sequence: int, data: bytes) -> list[bytes]:
        self.position = max(self.position, sequence)
        return [data]

    patch.setattr(InOrder, "accept", accept)


@canary
def what_comes_early_is_acknowledged_and_thrown_away(patch: pytest.MonkeyPatch) -> None:
    accept = InOrder.accept

    def forgetful(self: InOrder, sequence: int, data: bytes) -> list[bytes] | None:
        return accept(self, sequence, data) if sequence == self.position + 1 else []

    patch.setattr(InOrder, "accept", forgetful)


@canary
def messages_beyond_the_window_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    accept = InOrder.accept
    patch.setattr(InOrder, "accept", lambda *arguments: accept(*arguments) or [])
    patch.setattr("culm.oxen.outgoing.Stream.take_into", _everything)


def _everything(stream: Any, ready: list[Any], room: int) -> None:
    ready += stream.waiting
    stream.waiting.clear()


@canary
def nothing_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    for verb in ("look", "take_lost"):
        _filter(patch, verb, lambda item: False)


@canary
def nothing_is_sent_again_after_the_second_time(patch: pytest.MonkeyPatch) -> None:
    counts: Counter[int] = Counter()

    def early(item: Item) -> bool:
        counts[item.id] += 1
        return counts[item.id] < 2

    for verb in ("look", "take_lost"):
        _filter(patch, verb, early)


def _filter(patch: pytest.MonkeyPatch, verb: str, passes: Callable[[Item], bool]) -> None:
    """Let only some of the redeliveries through."""
    truly = getattr(Flight, verb)
    patch.setattr(
        Flight, verb, lambda self, now: [item for item in truly(self, now) if passes(item)]
    )


@canary
def nothing_is_forwarded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Links, "_forward", lambda self, source, body: None)


@canary
def gossip_is_not_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ContactTable, "merge", lambda self, rows, columns, now: None)


@canary
def nobody_is_introduced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Links, "lively", lambda self, gossip: [])


@canary
def keepalives_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keepalives, "answer", lambda self, sid, id, now: True)


@canary
def a_restart_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Incoming, "age_of", lambda self, message: Age.SAME)


@canary
def who_was_given_up_is_never_taken_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Associations, "_take_back", lambda self, peer: None)


@canary
def giving_up_is_not_told(patch: pytest.MonkeyPatch) -> None:
    vanish = Peer.vanish

    def silently(self: Peer) -> bool:
        vanish(self)
        return False

    patch.setattr(Peer, "vanish", silently)


@canary
def lost_messages_are_not_told(patch: pytest.MonkeyPatch) -> None:
    def fail(self: Associations, peer: Peer, reason: object) -> None:
        peer.outgoing.restart(self._roster.broadcast_sequence)

    patch.setattr(Associations, "fail", fail)


@canary
def numbers_start_over_after_giving_up(patch: pytest.MonkeyPatch) -> None:
    restart = Outgoing.restart

    def over(self: Outgoing, broadcast: int) -> list[Any]:
        lost = restart(self, broadcast)
        self.one.restart(self.one.last - len(lost))
        return lost

    patch.setattr(Outgoing, "restart", over)


@canary
def goodbyes_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Associations, "settled", property(lambda self: True))


@canary
def strangers_get_what_they_ask_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proofs, "spend", lambda self, hop, size: True)


@canary_in("pieces")
def what_is_begun_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def settle(self: Assemblies, sid: bytes, delivery: Delivery, position: int) -> None:
        self.remove(sid)

    patch.setattr(Assemblies, "settle", settle)


@canary_in("pieces")
def every_piece_counts_as_the_message(patch: pytest.MonkeyPatch) -> None:
    """A message is reported as delivered, or failed, by any of its pieces."""
    add = Outgoing.add_piece

    def numbered(self: Outgoing, number: int, position: Position, data: bytes) -> None:
        self.number = number or getattr(self, "number", 0) or 10**6  # type: ignore[attr-defined]
        add(self, self.number, position, data)  # type: ignore[attr-defined]

    patch.setattr(Outgoing, "add_piece", numbered)


@canary_in("pieces")
def pieces_are_sent_to_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Peer, "message_size_max", 10**6)


@canary_in("tags")
def the_tags_that_came_last_count(patch: pytest.MonkeyPatch) -> None:
    def tag(self: Incoming, message: Tags) -> bool:
        known, self.tags = self.tags, message.table
        return known != self.tags

    patch.setattr(Incoming, "tag", tag)


@canary_in("tags")
def tags_of_a_former_life_count(patch: pytest.MonkeyPatch) -> None:
    age_of = Incoming.age_of
    patch.setattr(
        Incoming,
        "age_of",
        lambda self, message: Age.SAME if isinstance(message, Tags) else age_of(self, message),
    )


@canary_in("tags")
def who_joins_is_told_tags_only_if_there_are_any(patch: pytest.MonkeyPatch) -> None:
    tell = Courier.tell

    def told(self: Courier, peer: Peer, version: int, tags: Mapping[str, str]) -> None:
        if tags or peer.outgoing.flight.under_way:
            tell(self, peer, version, tags)

    patch.setattr(Courier, "tell", told)


@canary_in("tags")
def tags_are_sent_once(patch: pytest.MonkeyPatch) -> None:
    for verb in ("look", "take_lost"):
        _filter(patch, verb, lambda item: not (isinstance(item.d, dict) and b"v" in item.d))


@canary_in("tags")
def tags_are_sent_to_everybody(patch: pytest.MonkeyPatch) -> None:
    start = Incoming.__init__

    def greedy(self: Incoming, message: Synchronize, window: int, **more: bool) -> None:
        start(self, message, window, **more)
        self.tags_size_max = 500

    patch.setattr(Incoming, "__init__", greedy)


@canary_in("tags")
def users_are_told_nothing_of_what_was_said_before_they_joined(patch: pytest.MonkeyPatch) -> None:
    describe = Associations.describe

    def late(self: Associations, peer: Peer) -> None:
        if type(self.events[-1] if self.events else None).__name__ != "PeerJoined":
            describe(self, peer)

    patch.setattr(Associations, "describe", late)


@canary_in("keys")
def what_is_not_sealed_is_believed(patch: pytest.MonkeyPatch) -> None:
    opened = Seal.open

    def believe(self: Seal, source: bytes, datagram: bytes) -> Opened | None:
        parcel = datagram.startswith(b"d")
        return Opened(datagram, True) if parcel else opened(self, source, datagram)

    patch.setattr(Seal, "open", believe)


@canary_in("keys")
def another_key_will_do(patch: pytest.MonkeyPatch) -> None:
    """A key of zeros, which any stranger could use."""
    checked = seal.checked_keys
    patch.setattr(seal, "checked_keys", lambda keys: [*checked(keys), bytes(32)])


@canary_in("keys")
def a_key_is_forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    rekey = Seal.rekey
    patch.setattr(Seal, "rekey", lambda self, keys: rekey(self, keys[:1]))


@canary_in("keys")
def the_dead_are_heard_when_the_living_are_silent(patch: pytest.MonkeyPatch) -> None:
    """As long as only two lives of each are remembered."""
    opened = Seal.open

    def forgetful(self: Seal, source: bytes, datagram: bytes) -> Opened | None:
        found = opened(self, source, datagram)
        if found is None or found.fresh or source not in self._sources:
            return found
        del self._sources[source]  # and data of an earlier life begins a new one
        self._dropped[DropReason.REPLAYED] -= 1
        return opened(self, source, datagram)

    patch.setattr(Seal, "open", forgetful)


@canary
def what_a_member_tells_of_is_sought_at_any_price(patch: pytest.MonkeyPatch) -> None:
    expect = Proofs.expect

    def trusting(self: Proofs, sid: bytes, *, told: bool) -> None:
        expect(self, sid, told=told)
        if told:
            self.trust(sid)

    patch.setattr(Proofs, "expect", trusting)


@canary_in("pieces")
def a_place_is_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assemblies, "settle", lambda self, sid, delivery, position: None)


@canary_in("liars")
def whoever_says_goodbye_is_waited_for_without_end(patch: pytest.MonkeyPatch) -> None:
    enter = Peer.enter

    def patient(self: Peer, state: PeerState, now: float) -> None:
        enter(self, state, math.inf if state is PeerState.FINALIZING else now)

    patch.setattr(Peer, "enter", patient)


@canary_in("liars")
def whoever_is_there_first_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Incoming, "leads_to", lambda self, start: True)


@canary_in("thieves")
def whoever_waits_in_vain_waits_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Courier, "ask_for_missing", lambda *_: None)


@canary_in("thieves")
def what_is_delivered_is_said_to_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outgoing, "never_sends", lambda self, delivery, sequence: False)


@canary_in("narrow")
def datagrams_that_never_arrive_hold_up_the_rest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "take_next", lambda self, taken: None)


@canary_in("narrow")
def datagrams_that_never_arrive_cost_the_peer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outgoing, "expire", lambda self, seconds: [])


@canary_in("rumours")
def hearsay_alone_has_messages_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Links, "question", lambda self, sid, patience_s: False)


@pytest.mark.costly
@pytest.mark.once
@pytest.mark.parametrize("name", CANARIES)
def test_the_simulation_notices_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CANARIES[name](monkeypatch)
    weather = WEATHER.get(name, {})
    for seed in SEEDS:
        try:
            simulate(seed, scars=seed % 2 == 1, **weather)
        except (AssertionError, EndlessError):
            return
    pytest.fail(f"the simulation does not notice that {name}")


@pytest.mark.once
def test_sound_nodes_pass_these_seeds() -> None:
    for seed in SEEDS[:40]:
        kinds = {"pieces": seed % 4 > 1, "keys": seed % 8 > 3, "tags": seed % 3 == 0}
        simulate(seed, scars=seed % 2 == 1, **kinds)
