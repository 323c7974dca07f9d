"""Drivers for trio.

`MachineDriver` drives a stream machine over a stream, `LinksDriver` a machine with several links
over as many.  `culm_io.trio.garlic` adds the needs of a node of Garlic Farm.
"""

from culm_io.trio.driver import MachineDriver
from culm_io.trio.links import LinksDriver

__all__ = ["LinksDriver", "MachineDriver"]
