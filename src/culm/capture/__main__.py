"""``python -m culm.capture``."""

import sys
from contextlib import suppress

from culm.capture.command import main
from culm.exits import ExitStatus

if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # as of ``| head``
        status = ExitStatus.UNHEARD
        with suppress(BrokenPipeError):
            sys.stdout.close()  # the rest has no reader
    sys.exit(status)
