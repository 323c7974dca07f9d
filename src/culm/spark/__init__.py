"""The data pipeline: DataFrame in, DataFrame out, with the same culm inside the executors.

Importing this package imports nothing of Spark; calling it does, and needs the extra
``culm[spark]``.
"""

from culm.spark.errors import ColumnError, SparkSetupError
from culm.spark.session import prepare, ship_culm, start_session

__all__ = ["ColumnError", "SparkSetupError", "prepare", "ship_culm", "start_session"]
