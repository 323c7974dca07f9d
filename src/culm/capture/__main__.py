"""``python -m culm.capture``."""

from culm.capture.command import main
from culm.exits import end_with

if __name__ == "__main__":
    end_with(main)
