"""Spreading an experiment's runs over processes, with a progress bar and in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.progress import Progress

T = TypeVar("T")
Job = tuple[Callable[..., T], tuple[Any, ...]]
"""A function that can be imported by name, and its arguments."""


def run(jobs: Sequence[Job[T]], workers: int, progress: Progress, what: str) -> list[T]:
    """The results of all jobs, in their order. One worker: in this process.

    Jobs are started in order, so put long ones first.
    """
    task = progress.add_task(what, total=len(jobs))
    if workers == 1 or len(jobs) == 1:
        found = []
        for function, arguments in jobs:
            found.append(function(*arguments))
            progress.advance(task)
        return found
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(function, *arguments) for function, arguments in jobs]
        try:
            for future in as_completed(futures):
                future.result()
                progress.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]
