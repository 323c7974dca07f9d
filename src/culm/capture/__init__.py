"""Captures: every call of a machine, written down in production and replayed bit for bit.

`record` stands in for a machine and tells a sink of bytes all that is done to it and all that comes
of it; `read` reads what the sink was told, and `replay` does it again with a new machine.  Nothing
here opens a file: bytes in, bytes out.
"""

from __future__ import annotations

from culm.capture.blocks import BLOCK_SIZE_MAX
from culm.capture.errors import CaptureError, ErrorCode
from culm.capture.recorder import Recorder, record
from culm.capture.records import Capture, Header, Step, read
from culm.capture.redaction import Redact
from culm.capture.replay import Difference, Replay, machine_of, replay
from culm.capture.values import RecordedError

__all__ = [
    "BLOCK_SIZE_MAX",
    "Capture",
    "CaptureError",
    "Difference",
    "ErrorCode",
    "Header",
    "RecordedError",
    "Recorder",
    "Redact",
    "Replay",
    "Step",
    "machine_of",
    "read",
    "record",
    "replay",
]
