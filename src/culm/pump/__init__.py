"""The law of driving, once, without I/O.

A pump stands between a machine and its transport.  A driver tells it of bytes received, bytes
sent and the time, and carries out its requests: send `outgoing`, read `read_size` bytes, come
back at
`next_deadline`.  The pump does the rest: it tells the machine the time, drains it after every
input, holds no more than one piece of output, has effects carried out or hands them on, and sees
a connection through to its very end, last words included.

`Pump` is for a `StreamMachine`, `LinkedPump` for a `LinkedMachine`, with a `LinkPump` for each
connection, and `DatagramPump` for a `DatagramMachine`.  The page on driving shows how to
write a driver around one.
"""

from __future__ import annotations

from culm.pump.channel import ConnectionState
from culm.pump.datagrams import DatagramPump
from culm.pump.engine import AbortedError, Engine, Handlers, UserHandlers
from culm.pump.jobs import Job
from culm.pump.limits import Limits, Timing
from culm.pump.linked import LinkedPump, LinkPump
from culm.pump.stream import Pump, StreamPump
from culm.pump.verifying import VerifyJob

__all__ = [
    "AbortedError",
    "ConnectionState",
    "DatagramPump",
    "Engine",
    "Handlers",
    "Job",
    "Limits",
    "LinkPump",
    "LinkedPump",
    "Pump",
    "StreamPump",
    "Timing",
    "UserHandlers",
    "VerifyJob",
]
