"""``python -m culm.capture``."""

import sys

from culm.capture.command import main
from culm.exits import ExitStatus

if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # as of ``| head``
        status, sys.stdout = ExitStatus.UNHEARD, None  # what is left is written to nobody
    sys.exit(status)
