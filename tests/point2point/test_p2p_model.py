"""Two connections and a model: every legal action, in any order, with any delay."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from p2p_model import Dice, Duel, Player
from p2p_snapshots import nothing_changed
from p2p_support import refusal

import effort
from culm.point2point import (
    NOTIFY,
    CancelReason,
    ErrorCode,
    Limits,
    Mode,
    RequestState,
    Setup,
    SkipReason,
)

RUNS = {"default": 200, "brief": 20, "ci": 100, "long": 10_000}

SIDES = st.integers(0, 1)


def throws_of(seed: int) -> list[int]:
    """Any choices; with the seed 0 always the first one."""
    rng = Random(seed)
    return [rng.randrange(2**16) if seed else 0 for _ in range(16)]


DICE = st.integers(0, 2**32 - 1).map(throws_of)
WINDOWS = st.sampled_from([1 << 20, 300, 41])
MODES = st.sampled_from(
    [
        Setup(),
        Setup(send_mode=Mode.GREEDY, receive_mode=Mode.GREEDY),
        Setup(send_mode=Mode.GREEDY, receive_mode=Mode.GREEDY, receive_window_max=0),
        Setup(receive_mode=Mode.GREEDY, send_window_max=100),
    ]
)


class TwoConnections(RuleBasedStateMachine):
    duel: Duel

    @initialize(
        modes=st.tuples(MODES, MODES),
        windows=st.tuples(WINDOWS, WINDOWS),
        packet_size=st.sampled_from([64, 1000]),
        in_runs=st.tuples(st.booleans(), st.booleans()),
        dice=DICE,
    )
    def connect(
        self,
        modes: tuple[Setup, Setup],
        windows: tuple[int, int],
        packet_size: int,
        in_runs: tuple[bool, bool],
        dice: list[int],
    ) -> None:
        left, right = (
            Limits(data_window_max=window, requests_max=4, packet_size_max=packet_size)
            for window in windows
        )
        self.duel = Duel(modes, (left, right), in_runs)
        self.agree_on_something(dice[0] % 2, dice)

    def pick(self, side: int, dice: Dice) -> tuple[Player, Any]:
        player = self.duel.players[side]
        games = list(player.games.values())
        return player, dice.pick(games) if games else None

    @rule(side=SIDES, dice=DICE)
    def propose(self, side: int, dice: list[int]) -> None:
        self.duel.players[side].propose(Dice(dice))

    @rule(side=SIDES, dice=DICE)
    def agree_on_something(self, side: int, dice: list[int]) -> None:
        """A proposal that arrives and is answered, usually with a confirmation."""
        throws = Dice(dice)
        proposer, other = self.duel.players[side], self.duel.players[1 - side]
        proposer.propose(throws)
        self.duel.deliver(side, None)
        open_ones = [
            game for game in other.games.values() if game.state is RequestState.PROPOSED_BY_PEER
        ]
        if open_ones:
            other.control(throws.pick(open_ones), throws)
            other.check()

    @rule(side=SIDES, dice=DICE)
    def control(self, side: int, dice: list[int]) -> None:
        throws = Dice(dice)
        player, game = self.pick(side, throws)
        if game is not None:
            player.control(game, throws)
            player.check()

    @rule(side=SIDES, dice=DICE)
    def want_less(self, side: int, dice: list[int]) -> None:
        throws = Dice(dice)
        player, game = self.pick(side, throws)
        if game is None or not throws.chance(4):
            player.grant(throws)
        else:
            player.pass_over(game)
        player.drain()

    @rule(side=SIDES, dice=DICE, count=st.integers(1, 8))
    def send(self, side: int, dice: list[int], count: int) -> None:
        for turn in range(count):
            throws = Dice(dice[turn:] + dice[:turn])
            player, game = self.pick(side, throws)
            if game is not None:
                player.send(game, throws)
                player.check()

    @rule(side=SIDES, dice=DICE, count=st.integers(1, 12))
    def stream(self, side: int, dice: list[int], count: int) -> None:
        player, game = self.pick(side, Dice(dice))
        for turn in range(count if game is not None else 0):
            player.stream(game, Dice(dice[turn:] + dice[:turn]))
            player.check()

    @rule(side=SIDES, size=st.none() | st.integers(1, 400))
    def deliver(self, side: int, size: int | None) -> None:
        self.duel.deliver(side, size)

    @rule(side=SIDES)
    def change_patience(self, side: int) -> None:
        player = self.duel.players[side]
        player.patient = not player.patient
        if not player.patient:
            player.answer()
            player.drain()

    @rule()
    def settle(self) -> None:
        self.duel.settle()
        self.duel.agree()

    @rule(side=SIDES, dice=DICE)
    def break_a_rule(self, side: int, dice: list[int]) -> None:
        throws = Dice(dice)
        player, game = self.pick(side, throws)
        if game is None:
            return
        call, codes = throws.pick(illegal(player, game))
        with nothing_changed(player.connection):
            assert refusal(call) in codes

    def teardown(self) -> None:
        if not hasattr(self, "duel"):
            return
        self.duel.settle()
        self.duel.agree()
        self.duel.grant_all()
        self.duel.players[len(self.duel.players[0].games) % 2].connection.close()
        self.duel.settle()
        for player in self.duel.players:
            assert player.closed is not None
            assert player.closed.error is None


def illegal(player: Player, game: Any) -> list[tuple[Any, set[ErrorCode]]]:
    """Calls that some rule forbids now, and the codes that may be given for it."""
    request, sent = game.request, game.sent
    code = ErrorCode
    over = {code.REQUEST_CANCELLED, code.NOT_CONFIRMED}
    proposal = game.proposal
    found: list[tuple[Any, set[ErrorCode]]] = [
        (lambda: request.cancel(CancelReason.CONFIRM), {code.BAD_CANCEL_CONFIRMATION}),
        (lambda: request.cancel(CancelReason.FORK), {code.BOGUS_PROOF}),
        (lambda: request.adjust(), {code.EMPTY_PACKET, *over}),
        (lambda: request.adjust(end=0), {code.ZERO_SEQNUM}),
        (
            lambda: player.connection.propose(proposal, request_id=1 - int(player.role)),
            {code.WRONG_ID_PARITY, code.NO_CREDIT},
        ),
        (lambda: request.notify(0), {code.EMPTY_PACKET, code.APOLOGY_OWED, *over}),
    ]
    if proposal.end is not None:
        past_end = {code.PAST_END, code.APOLOGY_OWED, *over}
        found.append((lambda: request.notify(2**64 - 1), past_end))
    if proposal.start > 1:
        found.append((lambda: request.adjust(end=proposal.start - 1), {code.END_BEFORE_START}))
    if game.request.ours:
        found.append(
            (
                lambda: player.connection.propose(proposal, request_id=request.request_id),
                {code.ID_IN_USE, code.NO_CREDIT},
            )
        )
        found.append(
            (
                lambda: request.confirm(NOTIFY),
                {code.UNKNOWN_REQUEST, code.ALREADY_CONFIRMED, code.REQUEST_CANCELLED},
            )
        )
    if game.state is not RequestState.CONFIRMED or sent.due is None:
        ended = {code.PAST_END, code.APOLOGY_OWED, *over}
        found.append((lambda: request.notify(1), ended))
        found.append((lambda: request.skip_payload(SkipReason.UNAVAILABLE), ended))
        found.append((lambda: request.send_metadata(game.entry(1)), ended))
        return found
    seqnum, part = sent.due
    if seqnum > 45:
        return found
    entry = game.entry(seqnum)
    out_of_turn = {code.PIECE_OUT_OF_TURN, code.EAGERNESS_VIOLATED, code.APOLOGY_OWED}
    if part == 0:
        found += [
            (
                lambda: request.send_metadata(game.entry(seqnum + 1 if seqnum < 45 else 1)),
                out_of_turn,
            ),
            (lambda: request.send_payload(b"x", entry=entry), out_of_turn),
            (lambda: request.skip_payload(SkipReason.TOO_SMALL), out_of_turn),
            (lambda: request.jump(1, entry=entry), out_of_turn),
        ]
    else:
        rest = entry.payload_size - sent.offset
        found += [
            (lambda: request.send_metadata(entry), out_of_turn),
            (
                lambda: request.send_payload(bytes(max(0, rest) + 1), entry=entry),
                {
                    code.PAYLOAD_SIZE_EXCEEDED,
                    *out_of_turn,
                    code.UNWANTED_PAYLOAD,
                    code.UNKNOWN_PAYLOAD_SIZE,
                },
            ),
            (
                lambda: request.jump(max(0, rest) + 1, entry=entry),
                {
                    code.PAYLOAD_SIZE_EXCEEDED,
                    code.CATCH_UP_ONLY,
                    code.APOLOGY_OWED,
                    code.UNKNOWN_PAYLOAD_SIZE,
                },
            ),
        ]
        demand = request.peer_demand
        if not demand.skipping_allowed:
            found.append(
                (
                    lambda: request.skip_payload(SkipReason.UNAVAILABLE),
                    {code.PAYLOAD_MANDATORY, code.APOLOGY_OWED},
                )
            )
    if not player.may_apologize(game) and not sent.unsure:
        found.append(
            (
                request.apologize,
                {
                    code.APOLOGY_IN_SAFE_MODE,
                    code.APOLOGY_FOR_VALID_DATA,
                    code.SECOND_APOLOGY,
                    *over,
                },
            )
        )
    return found


TestTwoConnections = pytest.mark.timeout(7200)(TwoConnections.TestCase)
TestTwoConnections.settings = settings(
    report_multiple_bugs=False,
    max_examples=RUNS[effort.PROFILE],
    stateful_step_count=40,
)
