"""After the end a verb is refused in the same way by every machine."""

from __future__ import annotations

from itertools import islice

import pytest

from culm import bymux, p2panda, point2point
from culm.machine import ContractErrorCode
from culm.machines import VerbErrorCode
from culm.machines.driver import Driver
from culm.machines.operations import Call, Eof, Operation, Receive
from culm.ssb import muxrpc
from culm.testing.record import conversations, driver_for
from culm.testing.spec import Conversation, MachineSpec
from culm.testing.suite.runs import check_idle, expect_equal, finish, visible
from effort import amount
from specs import SPECS

# Handles that are gone are not found: these are the codes of looking one up.
NOT_FOUND = {
    (type(code), code)
    for code in (
        VerbErrorCode.NO_SUCH_HANDLE,
        bymux.ErrorCode.UNKNOWN_STREAM,
        muxrpc.ErrorCode.UNKNOWN_CALL,
        p2panda.ErrorCode.NO_SUCH_SESSION,
        point2point.ErrorCode.UNKNOWN_REQUEST,
    )
}


# Ways to an end; where one of them ends nothing, `finish` follows.
ENDS: dict[str, list[Operation]] = {
    "closed": [Call("close")],
    "left": [Eof()],
    "offended": [Receive(b"\xff" * 64), Receive(bytes(64)), Eof()],
}


def over(spec: MachineSpec, told: Conversation, end: str) -> Driver:
    """A machine after that conversation and its end."""
    driver = driver_for(spec.machine, told)
    driver.start()
    for operation in told.operations:
        driver.run(operation)
    for operation in ENDS[end]:
        if isinstance(operation, Call) or driver.is_stream:
            driver.run(operation)
    if driver.closed is None:
        finish(driver)
    assert driver.closed is not None
    return driver


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_verb_after_the_end_is_refused_as_in_every_machine(spec: MachineSpec, end: str) -> None:
    """Or it has no effect, like a second `close`."""
    for told in islice(conversations(spec), amount(4, 100)):
        driver = over(spec, told, end)
        before = visible(driver)
        for call in told.operations:
            if not isinstance(call, Call):
                continue
            turn = driver.do(call)
            if turn.error is None:
                check_idle(f"{call}", driver, turn)
            elif (type(turn.error.code), turn.error.code) not in NOT_FOUND:
                assert turn.error.code is ContractErrorCode.ALREADY_CLOSED, call
        expect_equal("what is asked afterwards", before, visible(driver))
