"""A driver for anyio, on asyncio, uvloop or trio."""

from culm_io.anyio.driver import StreamDriver

__all__ = ["StreamDriver"]
