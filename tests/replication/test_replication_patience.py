"""The limits of waiting."""

from __future__ import annotations

from math import inf

from culm.replication import Debts, Liveness, Pauses, Quiet


def debts(max_s: float = 100.0) -> Debts[str, int]:
    """A debt is a number: a smaller one means that part of it was paid."""
    return Debts(max_s, is_paid=lambda before, now: now is None or now < before)


class TestDebts:
    def test_the_first_check_is_due_when_there_has_been_something_to_look_at_for_so_long(
        self,
    ) -> None:
        owed = debts()
        assert owed.deadline() is None
        owed.advance(50.0, idle=False)
        assert owed.deadline() == 150.0
        owed.advance(70.0, idle=True)
        assert owed.deadline() == 170.0
        owed.advance(90.0, idle=False)
        assert owed.deadline() == 170.0

    def looked(self, *looks: dict[str, int], moved: bool = False) -> list[int]:
        """The stalled debts at the last of these looks."""
        owed, stalled = debts(), [0]
        owed.advance(0.0, idle=True)
        for number, found in enumerate(looks, 1):
            owed.advance(100.0 * number, idle=False)
            stalled = owed.stalled(lambda found=found: found)
            if moved:
                owed.moved()
        return stalled

    def test_what_is_owed_at_two_looks_in_a_row_is_stalled(self) -> None:
        assert self.looked({"a": 3, "b": 1}) == []
        assert self.looked({"a": 3}, {"a": 3, "b": 1}) == [3]
        assert self.looked({"a": 3}, {"b": 3}) == []

    def test_whatever_is_paid_is_a_reason_to_wait_for_the_rest(self) -> None:
        assert self.looked({"a": 3, "b": 1}, {"a": 2, "b": 1}) == []
        assert self.looked({"a": 3, "b": 1}, {"b": 1}) == []
        assert self.looked({"a": 3}, {"a": 3}, moved=True) == []

    def test_nothing_is_looked_at_before_it_is_time(self) -> None:
        owed = debts()
        owed.advance(0.0, idle=True)
        owed.advance(99.0, idle=False)

        def never() -> dict[str, int]:
            raise AssertionError

        assert owed.stalled(never) == []


class TestLiveness:
    def liveness(self) -> Liveness:
        made = Liveness(idle_timeout_s=10.0, keepalive_s=60.0)
        made.advance(0.0, False)
        return made

    def test_a_silent_peer_is_asked_and_then_given_up(self) -> None:
        peer = self.liveness()
        assert peer.deadline(False) == 60.0
        assert peer.advance(60.0, False)
        assert peer.deadline(False) == 70.0
        assert not peer.advance(69.0, False)
        assert not peer.is_over(False)
        assert not peer.advance(70.0, False)
        assert peer.is_over(False)

    def test_a_sign_of_life_counts_before_and_after_a_question_of_the_same_moment(self) -> None:
        heard_last, asked_last = self.liveness(), self.liveness()
        heard_last.asked(5.0)
        heard_last.heard(5.0)
        asked_last.heard(5.0)
        asked_last.asked(5.0)
        assert heard_last.deadline(False) == asked_last.deadline(False) == 65.0
        asked_last.asked(6.0)
        assert asked_last.deadline(False) == 16.0

    def test_a_question_without_a_sign_of_life_is_a_question(self) -> None:
        peer = self.liveness()
        peer.asked(0.0)
        assert peer.deadline(False) == 10.0

    def test_a_sign_of_life_is_enough(self) -> None:
        peer = self.liveness()
        peer.advance(60.0, False)
        peer.heard()
        assert not peer.is_over(False)
        assert peer.deadline(False) == 120.0

    def test_the_question_may_be_behind_what_has_left(self) -> None:
        peer = self.liveness()
        peer.advance(60.0, False)
        peer.advance(65.0, False)
        peer.taken()
        assert peer.deadline(False) == 75.0
        peer.advance(70.0, False)
        peer.taken(all_left=True)
        peer.advance(72.0, False)
        peer.taken()
        assert peer.deadline(False) == 80.0
        peer.heard()
        peer.asked(90.0)
        peer.taken(92.0)
        assert peer.deadline(False) == 102.0

    def test_times_may_come_with_what_happens(self) -> None:
        peer = self.liveness()
        assert peer.heard_at == 0.0
        peer.heard(30.0)
        assert peer.heard_at == 30.0
        assert peer.deadline() == 90.0
        peer.taken(40.0)
        assert peer.deadline() == 90.0
        assert Liveness(idle_timeout_s=1.0, keepalive_s=1.0).heard_at == -inf

    def test_one_that_was_asked_for_another_reason_has_as_long(self) -> None:
        peer = self.liveness()
        peer.asked(20.0)
        peer.asked(25.0)
        assert peer.deadline() == 30.0
        peer.taken(28.0)
        assert peer.deadline() == 38.0
        assert not peer.advance(37.0)
        assert not peer.is_over()
        assert not peer.advance(38.0)
        assert peer.is_over()
        peer.heard(38.0)
        assert not peer.is_over()

    def test_one_that_has_begun_something_must_go_on(self) -> None:
        peer = self.liveness()
        assert peer.deadline(True) == 10.0
        assert not peer.advance(10.0, True)
        assert peer.is_over(True)


class TestQuiet:
    def test_it_is_told_once_after_each_disturbance(self) -> None:
        quiet = Quiet(2.0)
        assert quiet.deadline(True) is None
        quiet.advance(1.0, quiet=True)
        assert quiet.deadline(True) == 3.0
        assert not quiet.lasts
        quiet.advance(3.0, quiet=True)
        assert quiet.lasts
        quiet.settle()
        assert not quiet.lasts
        assert quiet.deadline(True) is None
        quiet.disturb()
        assert quiet.deadline(True) == 3.0  # the start of the quiet must be given
        quiet.advance(4.0, quiet=True)
        assert quiet.deadline(True) == 6.0

    def test_noise_begins_it_anew(self) -> None:
        quiet = Quiet(2.0)
        quiet.advance(1.0, quiet=True)
        quiet.advance(2.0, quiet=False)
        assert quiet.deadline(False) is None
        quiet.advance(5.0, quiet=True)
        assert quiet.deadline(True) == 7.0
        quiet.begin_anew()
        assert quiet.deadline(True) == 7.0


def test_pauses_double_up_to_the_longest_until_an_attempt_comes_to_something() -> None:
    pauses = Pauses(min_s=2.0, max_s=7.0)
    assert pauses.until is None
    lengths: list[float] = []
    for _ in range(4):
        pauses.begin(100.0)
        pauses.begin(101.0)  # there already is one
        assert pauses.until is not None
        lengths.append(pauses.until - 100.0)
        pauses.end()
        assert pauses.until is None
    assert lengths == [2.0, 4.0, 7.0, 7.0]
    pauses.begin(100.0)
    pauses.reset()
    assert pauses.until is None
    pauses.begin(100.0)
    assert pauses.until == 102.0
