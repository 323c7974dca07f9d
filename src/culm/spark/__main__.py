"""``python -m culm.spark``; also the file for spark-submit."""

import sys

from culm.spark.command import main

if __name__ == "__main__":
    sys.exit(main())
