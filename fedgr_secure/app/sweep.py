"""Several runs as one job: in this process or in worker processes, never doing finished work twice."""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread

from fedgr_secure.config import Config, check
from fedgr_secure.errors import InputError
from fedgr_secure.records import Summary


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        name: the row that it counts for, such as "fedgr w/o sieve".
        config: the run, with its folder in `config.output.out`.
    """

    name: str
    config: Config


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: with a summary, or with the reason why not."""

    cell: Cell
    summary: Summary | None
    error: str | None = None


def sweep(
    cells: Iterable[Cell], *, jobs: int, on_done: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Run every cell; the outcomes in the order of the cells.

    A cell whose folder holds a complete run of the same configuration is read, one that was stopped is resumed, and a
    cell that fails is reported without stopping the rest.

    Args:
        cells: the runs; each needs a folder of its own.
        jobs: worker processes, each with one torch thread; 1 runs in this process.
        on_done: called when a cell ends, in the order in which they end.

    Raises:
        InputError: a cell's settings are not acceptable, before anything is run.
    """
    cells = list(cells)
    for cell in cells:
        check(cell.config)
    outcomes: dict[int, Outcome] = {}
    if jobs == 1:
        for number, cell in enumerate(cells):
            outcomes[number] = run_cell(cell)
            on_done(outcomes[number])
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
            waiting = {pool.submit(run_cell, _one_thread(cell)): number for number, cell in enumerate(cells)}
            for future in as_completed(waiting):
                number = waiting[future]
                try:
                    outcomes[number] = dataclasses.replace(future.result(), cell=cells[number])
                except BrokenProcessPool:
                    outcomes[number] = Outcome(cells[number], None, "its worker process was killed")
                on_done(outcomes[number])
    return [outcomes[number] for number in range(len(cells))]


def _end_with_parent() -> None:
    """In a worker: end when the process that started it does, however it ends; its run resumes from a checkpoint."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def run_cell(cell: Cell) -> Outcome:
    """Run, resume or read one cell."""
    from fedgr_secure.federation.loop import complete

    try:
        return Outcome(cell, complete(cell.config))
    except InputError as error:
        return Outcome(cell, None, str(error))
    except Exception as error:
        return Outcome(cell, None, "".join(traceback.format_exception_only(error)).strip())


def _one_thread(cell: Cell) -> Cell:
    output = dataclasses.replace(cell.config.output, threads=1)
    return dataclasses.replace(cell, config=dataclasses.replace(cell.config, output=output))


def slug(text: str) -> str:
    """A name as part of a path.

    >>> slug("FedGR w/o sieve, U(.5, 1)")
    'fedgr-wo-sieve-u.5-1'
    """
    words = "".join(c if c.isalnum() or c in ".-" else " " * (c not in "/()") for c in text.lower()).split()
    return "-".join(words)


def cell_folder(root: Path, name: str, seed: int) -> Path:
    """The folder of one cell.

    >>> cell_folder(Path("runs/compare"), "fedgr w/o sieve", 2).as_posix()
    'runs/compare/fedgr-wo-sieve-s2'
    """
    return root / f"{slug(name)}-s{seed}"
