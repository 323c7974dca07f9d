"""``python -m culm.spark``; also what spark-submit is given."""

import sys

from culm.spark.command import main

if __name__ == "__main__":
    sys.exit(main())
