"""Captures: every call of a machine, written down in production and replayed bit for bit.

`record` stands in for a machine and writes all its calls and their outcomes to a sink of bytes;
`read` reads those bytes, and `replay` makes the calls again with a new machine.  Nothing
here opens a file: bytes in, bytes out.

Each name is imported when it is first asked for: `culm.capture.dissect` needs none of them, nor
their libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm import lazy

__all__ = [
    "Capture",
    "CaptureError",
    "Compression",
    "Difference",
    "ErrorCode",
    "Header",
    "RecordedError",
    "Recorder",
    "Redact",
    "Replay",
    "Step",
    "read",
    "record",
    "replay",
]

__getattr__ = lazy.names(
    __name__,
    {
        "compression": ("Compression",),
        "errors": ("CaptureError", "ErrorCode"),
        "recorder": ("Recorder", "record"),
        "records": ("Capture", "Header", "Step", "read"),
        "redaction": ("Redact",),
        "replaying": ("Difference", "Replay", "replay"),
        "values": ("RecordedError",),
    },
)

if TYPE_CHECKING:
    from culm.capture.compression import Compression
    from culm.capture.errors import CaptureError, ErrorCode
    from culm.capture.recorder import Recorder, record
    from culm.capture.records import Capture, Header, Step, read
    from culm.capture.redaction import Redact
    from culm.capture.replaying import Difference, Replay, replay
    from culm.capture.values import RecordedError
