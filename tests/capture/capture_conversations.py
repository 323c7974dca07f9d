"""Every conversation of the suite, recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from culm.capture import Recorder, Redact
from culm.machines import lookup
from culm.machines.driver import Driver
from culm.testing.record import conversations, driver_for
from culm.testing.spec import Conversation, MachineSpec
from specs import SPECS

CASES = [
    pytest.param(spec, told, id=f"{spec.name}-{told.name}")
    for spec in SPECS
    for told in conversations(spec)
]


def recorded(
    spec: MachineSpec,
    told: Conversation,
    kind: type[Recorder] = Recorder,
    *,
    with_keys: bool = False,
    arrange: Callable[[Driver], object] = lambda driver: None,
) -> bytes:
    """The capture of a conversation; with secret settings, since a replay needs them.

    arrange: is given the driver before it begins.
    """
    pieces: list[bytes] = []
    driver = driver_for(spec.machine, told)
    keys = lookup(spec.name).keys
    with_keys = with_keys or any(key.secret and key.name in told.config for key in keys)
    redact = frozenset[Redact]() if with_keys else frozenset({Redact.KEYS})
    recorder = kind(pieces.append, machine=spec.name, config=told.config, redact=redact)
    driver.wrap(recorder.stand_in(driver.machine))
    driver.call_by(recorder.verb)
    arrange(driver)
    driver.start()
    for operation in told.operations:
        driver.run(operation)
    recorder.flush()
    return b"".join(pieces)
