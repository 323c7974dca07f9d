"""How the programs of this package end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

__all__ = ["end_with"]


def end_with(main: Callable[[], int]) -> NoReturn:
    """Run a program that has no sockets, and exit with its status.

    Where nobody reads its output any more (``| head``), SIGPIPE ends it, as it ends others.
    """
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
