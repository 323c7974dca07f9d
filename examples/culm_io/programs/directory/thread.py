"""The one thread in which a store is used for as long as there is a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from culm.bamboo import LogStore

__all__ = ["StoreThread"]

T = TypeVar("T")


class StoreThread:
    """Serialises the work of several connections on one store.

    Effects go to `executor`, whatever else needs the store to `call`: a store is for one thread
    at a time, and a loop that waited for a disk would keep all connections waiting.
    """

    def __init__(self, store: LogStore, initializer: Callable[[], object] | None = None) -> None:
        self.store = store
        self.executor = ThreadPoolExecutor(1, "store", initializer=initializer)

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` in the thread, after all that it was given before."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, function)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.executor.shutdown()
