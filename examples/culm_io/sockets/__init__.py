"""Drivers on plain sockets, in loops that block.

`run` drives a stream machine, `LinksLoop` a machine with several links, `run_datagrams` one over
datagrams.
"""

from culm_io.sockets.driver import run
from culm_io.sockets.links import LinksLoop
from culm_io.sockets.udp import run_datagrams

__all__ = ["LinksLoop", "run", "run_datagrams"]
