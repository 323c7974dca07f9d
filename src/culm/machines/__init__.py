"""The registry: each machine's name, settings, verbs and codec, as data.

Each module named after a protocol registers its machines when it is imported; other packages
name theirs as entry points of the group ``culm.machines`` (a `MachineType`, or a module that
registers some).  All programs that drive machines by name build them from here: the line driver,
the Spark pipeline and the property suite.
"""

from __future__ import annotations

from culm.machines.config import Config, ConfigError, Key, keys_of
from culm.machines.machine_type import (
    AnyMachine,
    Codec,
    Dialling,
    MachineType,
    Responder,
    Unsealed,
    Verb,
    VerbErrorCode,
)
from culm.machines.operations import (
    Advance,
    Call,
    Complete,
    Eof,
    Operation,
    Receive,
    ReceiveDatagram,
    call,
)
from culm.machines.registry import UnknownMachineError, lookup, names, register

__all__ = [
    "Advance",
    "AnyMachine",
    "Call",
    "Codec",
    "Complete",
    "Config",
    "ConfigError",
    "Dialling",
    "Eof",
    "Key",
    "MachineType",
    "Operation",
    "Receive",
    "ReceiveDatagram",
    "Responder",
    "UnknownMachineError",
    "Unsealed",
    "Verb",
    "VerbErrorCode",
    "call",
    "keys_of",
    "lookup",
    "names",
    "register",
]
