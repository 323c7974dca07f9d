"""Dissection: bytes split into named fields, by the tables and decoders of the codecs.

Each part of a message is taken by the function or the table with which the codec itself reads it,
and the codec's decoder is the judge of the whole: its error, named, ends a dissection, and all
that stands before it is in fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm import lazy
from culm.capture.dissect.fields import Dissection, DissectionFault, Field, leaves
from culm.capture.dissect.protocols import PROTOCOLS, dissect

__all__ = [
    "PROTOCOLS",
    "Dissection",
    "DissectionFault",
    "Field",
    "Flows",
    "Moved",
    "Passed",
    "Split",
    "StepFields",
    "bytes_of",
    "dissect",
    "fields_of",
    "leaves",
    "tells_keys",
]

# These need the format of captures, and its libraries.
__getattr__ = lazy.names(
    __name__,
    {
        "flows": (
            *("Flows", "Moved", "Passed", "Split", "StepFields"),
            *("bytes_of", "fields_of", "tells_keys"),
        )
    },
)

if TYPE_CHECKING:
    from culm.capture.dissect.flows import (
        Flows,
        Moved,
        Passed,
        Split,
        StepFields,
        bytes_of,
        fields_of,
        tells_keys,
    )
