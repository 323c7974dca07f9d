"""Drivers for asyncio and uvloop.

`MachineProtocol` drives a stream machine over a connection, `LinksDriver` a machine with several
links over as many, `UdpDriver` one over datagrams.  `culm_io.asyncio.garlic` and
`culm_io.asyncio.ssb` add the needs of a node of Garlic Farm and of a peer of Scuttlebutt.
"""

from culm_io.asyncio.driver import MachineProtocol
from culm_io.asyncio.links import LinksDriver
from culm_io.asyncio.udp import UdpDriver

__all__ = ["LinksDriver", "MachineProtocol", "UdpDriver"]
