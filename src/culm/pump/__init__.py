"""The law of driving, once, without I/O.

A pump stands between a machine and whatever carries its bytes.  A driver tells it what has
happened (bytes have come, bytes have gone, time has passed) and does what it asks for: send
`outgoing`, read `read_size` bytes, come back at `next_deadline`.  The pump does the rest: it
tells the time, drains the machine after every input, holds no more than one piece of output,
has effects done or hands them on, and sees a connection through to its very end, last words
included.

`Pump` is for a `StreamMachine`, `LinkedPump` for a `LinkedMachine`, with a `LinkPump` for each
connection, and `DatagramPump` for a `DatagramMachine`.  The page on driving tells how to
write a driver around one.
"""

from __future__ import annotations

from culm.pump.channel import ConnectionState
from culm.pump.datagrams import DatagramPump
from culm.pump.engine import AbortedError, Engine, Handlers, UserHandlers
from culm.pump.jobs import Job
from culm.pump.limits import Limits
from culm.pump.linked import LinkedPump, LinkPump
from culm.pump.stream import Pump, StreamPump

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
    "UserHandlers",
]
