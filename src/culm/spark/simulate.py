"""Simulators run for seeds by the hundred thousand, with a row for the outcome of each.

A simulator is a function of a seed, named ``module:function``.  It returns if all promises were
kept, and raises `AssertionError` if one was broken; any other exception counts as a failure.

``python -m culm.spark.simulate MODULE:FUNCTION SEED --modules DIRECTORY`` runs one seed again, here
and without Spark, and prints its row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from culm.exits import ExitStatus, exits
from culm.spark.columns import row_batches, schema_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["KEPT", "RUNS", "load_simulator", "main", "run_seed", "simulate"]

#: The verdict of a run that kept all promises.
KEPT = "kept"
#: The columns of a run.  ``verdict`` is ``kept``, ``broken`` or ``failed``; ``steps`` and
#: ``bytes`` are null unless the simulator's result has a number of that name; ``transcript`` is the
#: traceback and its notes, null if all was kept.
RUNS = (
    ("seed", "bigint"),
    ("verdict", "string"),
    ("steps", "bigint"),
    ("bytes", "bigint"),
    ("cpu_s", "double"),
    ("transcript", "string"),
)

_SEEDS_OF_A_TASK = 100
# The time stamp of modules in an archive, so that the same modules make the same archive.
_MODULE_DATE = (1980, 1, 1, 0, 0, 0)


def load_simulator(name: str, paths: Sequence[str] = ()) -> Callable[[int], object]:
    """The function named ``module:function``; the module is looked for in `paths` first.

    Raises ``ValueError`` for a name of another form, `ImportError` or `AttributeError` if there is
    no such module or function.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"a simulator is named module:function, not {name!r}")
    sys.path[:0] = [path for path in paths if path not in sys.path]
    found: Callable[[int], object] = getattr(import_module(module), function)
    return found


def run_seed(simulator: Callable[[int], object], seed: int) -> dict[str, Any]:
    """Run a simulator once, in this process: the row `RUNS`."""
    began = time.process_time()
    row: dict[str, Any] = {"seed": seed, "verdict": KEPT}
    try:
        ran = simulator(seed)
        for name in ("steps", "bytes"):
            told = getattr(ran, name, None)
            row[name] = told if type(told) is int else None
    except AssertionError:
        row |= {"verdict": "broken", "transcript": traceback.format_exc()}
    except Exception:
        row |= {"verdict": "failed", "transcript": traceback.format_exc()}
    return row | {"cpu_s": time.process_time() - began}


def simulate(
    spark: SparkSession, simulator: str, seeds: range, *, paths: Sequence[str] = ()
) -> DataFrame:
    """Run a simulator for each of the `seeds`: the columns `RUNS`.

    To continue a campaign, begin with the seed after its last one; to repeat any row, call
    `run_seed` with its seed.  `paths` are directories with the modules that the simulator needs
    besides installed ones; they are sent to the executors.  Raises as `load_simulator` does.
    """
    load_simulator(simulator, paths)
    if paths:
        folder = Path(tempfile.mkdtemp(prefix="culm-modules-"))
        spark.addArtifact(str(pack_modules(folder, paths)), pyfile=True)
    tasks = max(1, -(-len(seeds) // _SEEDS_OF_A_TASK))
    given = spark.range(seeds.start, seeds.stop, seeds.step, numPartitions=tasks)
    return given.mapInArrow(partial(_runs, simulator=simulator), schema_text(RUNS))


def pack_modules(folder: Path, paths: Sequence[str]) -> Path:
    """Write the modules of directories to a zip file in `folder`, named by its content.

    Of two modules with the same name, the one in the first directory counts, as for imports.
    """
    modules: dict[str, bytes] = {}
    for path in paths:
        for source in sorted(Path(path).glob("*.py")):
            modules.setdefault(source.name, source.read_bytes())
    digest = sha256()
    for name, text in modules.items():
        digest.update(b"%d %d " % (len(name), len(text)) + name.encode() + text)
    archive = folder / f"modules-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in modules.items():
            packed.writestr(zipfile.ZipInfo(name, _MODULE_DATE), text)
    return archive


def _runs(
    batches: Iterator[pyarrow.RecordBatch], *, simulator: str
) -> Iterator[pyarrow.RecordBatch]:
    run = load_simulator(simulator)
    seeds = (seed for batch in batches for seed in batch.column("id").to_pylist())
    return row_batches((run_seed(run, seed) for seed in seeds), RUNS)


def main(arguments: Sequence[str] | None = None) -> ExitStatus:
    """Run one seed again; the exit status is 0 if all promises were kept."""
    parser = argparse.ArgumentParser(
        prog="python -m culm.spark.simulate",
        description="Run a simulator once, for one seed.",
        epilog=exits(
            {
                ExitStatus.DONE: "all promises were kept",
                ExitStatus.FAILED: "one was not",
                ExitStatus.IMPOSSIBLE: "wrong arguments",
            }
        ),
    )
    parser.add_argument(
        "simulator", metavar="MODULE:FUNCTION", help="the function that is called with the seed"
    )
    parser.add_argument("seed", type=int, help="the seed, a whole number")
    parser.add_argument(
        "--modules",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="where to look for the module first (may be repeated)",
    )
    given = parser.parse_args(arguments)
    row = run_seed(load_simulator(given.simulator, given.modules), given.seed)
    transcript = row.pop("transcript", None)
    print(json.dumps(row))
    if transcript is not None:
        print(transcript, file=sys.stderr, end="")
    return ExitStatus.DONE if row["verdict"] == KEPT else ExitStatus.FAILED


if __name__ == "__main__":
    sys.exit(main())
