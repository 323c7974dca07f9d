"""``python -m culm.capture``."""

import sys

from culm.capture.command import main

if __name__ == "__main__":
    sys.exit(main())
