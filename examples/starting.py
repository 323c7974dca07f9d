"""To be imported before all else: Ctrl-C ends a program that is still loading without a word.

A program loads for a while.  An interrupt meanwhile would be a traceback from the depths of an
import, or be lost there; nothing has been begun that would have to be tidied up.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

__all__ = ["has_started"]


def _is_program() -> bool:
    """Whether a program of this folder is what Python was started for, rather than a test."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    return main is not None and Path(main).resolve().parent == Path(__file__).resolve().parent


def has_started() -> None:
    """From now on an interrupt is a `KeyboardInterrupt`, unless it is ignored."""
    if _LOADS and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_LOADS = _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _LOADS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
