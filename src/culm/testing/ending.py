"""The end of this package's programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from culm.exits import ExitStatus


def end_with(main: Callable[[], ExitStatus]) -> NoReturn:
    """Run a program that has no sockets, and exit with its status.

    When its output is no longer read (``| head``), SIGPIPE ends it like any other program; but only
    while it runs, as a caller in the same process may have sockets.
    """
    if not hasattr(signal, "SIGPIPE"):
        sys.exit(main())
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(main())
    finally:
        sys.stdout.flush()
        signal.signal(signal.SIGPIPE, before)
