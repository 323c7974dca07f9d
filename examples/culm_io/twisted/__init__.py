"""A driver for Twisted."""

from culm_io.twisted.driver import MachineProtocol

__all__ = ["MachineProtocol"]
