"""Seeds by the hundred thousand: a simulator run for each, a row of what has become of it.

A simulator is a function of a seed, named ``module:function``.  It returns if all promises were
kept, and raises `AssertionError` if one was broken; any other exception is a fault of its own.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from culm.spark.columns import row_batches, schema_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RUNS", "load_simulator", "run_seed", "simulate"]

#: What is said of a run.  ``verdict`` is ``kept``, ``broken`` or ``failed``; ``steps`` is null
#: unless what the simulator returns has a number of that name; ``transcript`` is the traceback and
#: its notes, null if all was kept.
RUNS = (
    ("seed", "bigint"),
    ("verdict", "string"),
    ("steps", "bigint"),
    ("cpu_s", "double"),
    ("transcript", "string"),
)

_SEEDS_OF_A_TASK = 100


def load_simulator(name: str, paths: Sequence[str] = ()) -> Callable[[int], object]:
    """The function that ``module:function`` names; `paths` are looked at first for the module.

    Raises ``ValueError`` for another form of name, `ImportError` or `AttributeError` if there is
    nothing of that name.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"a simulator is named module:function, not {name!r}")
    sys.path[:0] = [path for path in paths if path not in sys.path]
    found: Callable[[int], object] = getattr(import_module(module), function)
    return found


def run_seed(simulator: Callable[[int], object], seed: int) -> dict[str, Any]:
    """Run a simulator once, here: the row `RUNS`."""
    began = time.process_time()
    row: dict[str, Any] = {"seed": seed, "verdict": "kept"}
    try:
        steps = getattr(simulator(seed), "steps", None)
        row["steps"] = steps if type(steps) is int else None
    except AssertionError:
        row |= {"verdict": "broken", "transcript": traceback.format_exc()}
    except Exception:
        row |= {"verdict": "failed", "transcript": traceback.format_exc()}
    return row | {"cpu_s": time.process_time() - began}


def simulate(
    spark: SparkSession, simulator: str, seeds: range, *, paths: Sequence[str] = ()
) -> DataFrame:
    """Run a simulator for each of the `seeds`: the columns `RUNS`.

    A campaign goes on where another one has ended by beginning with the next seed, and any row
    can be had again by `run_seed` with its seed.  `paths` are directories with modules that every
    executor can see.  Raises as `load_simulator` does.
    """
    load_simulator(simulator, paths)
    tasks = max(1, -(-len(seeds) // _SEEDS_OF_A_TASK))
    given = spark.range(seeds.start, seeds.stop, seeds.step, numPartitions=tasks)
    work = partial(_runs, simulator=simulator, paths=tuple(paths))
    return given.mapInArrow(work, schema_text(RUNS))


def _runs(
    batches: Iterator[pyarrow.RecordBatch], *, simulator: str, paths: Sequence[str]
) -> Iterator[pyarrow.RecordBatch]:
    run = load_simulator(simulator, paths)
    seeds = (seed for batch in batches for seed in batch.column("id").to_pylist())
    return row_batches((run_seed(run, seed) for seed in seeds), RUNS)
