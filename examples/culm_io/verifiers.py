"""Threads that verify signatures: the interpreter's lock is released meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from time import monotonic
from typing import Any

from culm.pump import Engine, VerifyJob

__all__ = ["start_verifying", "verify_now"]


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """That many threads, the same for all connections of the process."""
    return ThreadPoolExecutor(count, thread_name_prefix="verifier")


def start_verifying(pump: Engine[Any, Any], done: Callable[[VerifyJob], object]) -> None:
    """Have all due jobs verified; `done` is called in the threads of the pool."""
    while (job := pump.next_to_verify()) is not None:
        begun = _begin(pump, job)
        if begun is None:
            done(job)
        else:
            begun.add_done_callback(partial(_call, done, job))


def verify_now(pump: Engine[Any, Any]) -> bool:
    """Have it verified, and wait for that; returns whether there was anything."""
    jobs = list(iter(pump.next_to_verify, None))
    wait([begun for job in jobs if (begun := _begin(pump, job)) is not None])
    for job in jobs:
        pump.finish_verifying(job, monotonic())
    return bool(jobs)


def _begin(pump: Engine[Any, Any], job: VerifyJob) -> Future[None] | None:
    """Begin a job; ``None`` if there is no thread for it: then it has failed, as a store may."""
    try:
        return _pool(pump.verifiers).submit(job)
    except RuntimeError as error:  # threads have run out, or the interpreter shuts down
        job.failed(error)
        return None


def _call(done: Callable[[VerifyJob], object], job: VerifyJob, _: object) -> None:
    done(job)
