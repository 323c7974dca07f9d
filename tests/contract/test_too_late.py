"""After the end a verb is refused in the same way, whatever the machine."""

from __future__ import annotations

from itertools import islice

import pytest

from culm import bymux, p2panda, point2point
from culm.machine import ContractErrorCode
from culm.machines import VerbErrorCode
from culm.machines.operations import Call
from culm.ssb import muxrpc
from culm.testing.record import conversations, driver_for
from culm.testing.spec import MachineSpec
from culm.testing.suite.runs import finish
from effort import amount
from specs import SPECS

# What there is not any more is not found: these are of looking a handle up.
NOT_FOUND = {
    VerbErrorCode.NO_SUCH_HANDLE,
    bymux.ErrorCode.UNKNOWN_STREAM,
    muxrpc.ErrorCode.UNKNOWN_CALL,
    p2panda.ErrorCode.NO_SUCH_SESSION,
    point2point.ErrorCode.UNKNOWN_REQUEST,
}


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_verb_after_the_end_is_refused_as_in_every_machine(spec: MachineSpec) -> None:
    for told in islice(conversations(spec), amount(4, 100)):
        driver = driver_for(spec.machine, told)
        driver.start()
        for operation in told.operations:
            driver.run(operation)
        finish(driver)
        assert driver.closed is not None
        for call in told.operations:
            error = driver.do(call).error if isinstance(call, Call) else None
            if error is not None and (type(error.code), error.code) not in {
                (type(code), code) for code in NOT_FOUND
            }:
                assert error.code is ContractErrorCode.ALREADY_CLOSED, call
