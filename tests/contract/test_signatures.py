"""The effect that asks for signatures to be verified."""

from __future__ import annotations

from typing import Any

import pytest
from nacl.signing import SigningKey

from culm.machine import Ticket
from culm.signatures import Signed, Verify, verify, with_signatures

KEY = SigningKey(bytes(32))
GOOD = Signed(bytes(KEY.verify_key), KEY.sign(b"one").signature, b"one")
BAD = GOOD._replace(message=b"two")
VERIFY = Verify(ticket=Ticket(1), signatures=(GOOD, BAD))


def test_there_is_a_verdict_on_each_in_order() -> None:
    assert verify(()) == []
    assert verify([GOOD, BAD, GOOD]) == [True, False, True]
    assert verify([GOOD._replace(message=b"")]) == [False]


@pytest.mark.parametrize(
    "wrong",
    [None, True, [True], [True] * 3, (True, False), [1, 0], [True, None], b"\1\0", {0: True}],
)
def test_only_a_verdict_on_each_is_an_answer(wrong: Any) -> None:
    assert not VERIFY.accepts(wrong)
    assert VERIFY.accepts([False, True])


def test_a_store_need_not_know_it() -> None:
    perform = with_signatures(lambda effect: "stored")
    assert perform(VERIFY) == [True, False]
    assert perform(Verify(ticket=Ticket(2), signatures=())) == []
