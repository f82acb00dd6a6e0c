"""Several runs as one job: in this process or in worker processes, never doing finished work twice."""

from __future__ import annotations

import dataclasses
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

from fedgr_secure.app.failures import Failure, failure
from fedgr_secure.app.tables import is_table
from fedgr_secure.checks import check
from fedgr_secure.errors import require
from fedgr_secure.records import Summary
from fedgr_secure.sections import Config

MARKDOWN, CSV = "compare.md", "compare.csv"


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
    """How a cell ended: with a summary (but where none is its aim), or with the reason why not, or, halfway, both."""

    cell: Cell
    summary: Summary | None
    failure: Failure | None = None

    @property
    def error(self) -> str | None:
        """The reason in words."""
        return self.failure.words if self.failure is not None else None


def run_cell(cell: Cell) -> Outcome:
    """Run, resume or read one cell."""
    from fedgr_secure.federation.loop import complete

    try:
        return Outcome(cell, complete(cell.config))
    except Exception as error:
        unexpected = "".join(traceback.format_exception_only(error)).strip()
        return Outcome(cell, None, failure(error) or Failure(unexpected, 1))


def sweep(
    cells: Iterable[Cell],
    *,
    jobs: int,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
    work: Callable[[Cell], Outcome] = run_cell,
    isolate: bool = False,
) -> list[Outcome]:
    """Run every cell; the outcomes in the order of the cells.

    A cell whose folder holds a complete run of the same configuration is read, one that was stopped is resumed, and a
    cell that fails is reported without stopping the rest.

    Args:
        cells: the runs; each needs a folder of its own.
        jobs: worker processes, each with one torch thread; 1 runs in this process.
        on_done: called when a cell ends, in the order in which they end.
        work: what is done with each cell; in a worker process it is imported by its name.
        isolate: each cell in a process of its own, also with one job, so that its peak of memory is its own.

    Raises:
        InputError: a cell's settings are not acceptable, before anything is run.
    """
    cells = list(cells)
    for cell in cells:
        check(cell.config)
    outcomes: dict[int, Outcome] = {}
    for number, outcome in _here(cells, work) if jobs == 1 and not isolate else _in_workers(cells, jobs, work):
        outcomes[number] = outcome
        on_done(outcome)
    return [outcomes[number] for number in range(len(cells))]


def _here(cells: Sequence[Cell], work: Callable[[Cell], Outcome]) -> Iterator[tuple[int, Outcome]]:
    for number, cell in enumerate(cells):
        yield number, work(cell)


def _in_workers(cells: Sequence[Cell], jobs: int, work: Callable[[Cell], Outcome]) -> Iterator[tuple[int, Outcome]]:
    """Each cell in a process of its own, so that one that is killed takes no other with it."""
    waiting = deque(enumerate(cells))
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, cell = waiting.popleft()
                reader, process = _start(work, _one_thread(cell))
                running[reader] = number, process
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                number, process = running.pop(ready)
                yield number, dataclasses.replace(_outcome(cells[number], ready, process), cell=cells[number])
    finally:
        for _, process in running.values():
            process.terminate()


def _start(work: Callable[[Cell], Outcome], cell: Cell) -> tuple[Connection, BaseProcess]:
    """A worker process, and where its outcome is read; the end of what can be read is the end of the worker."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(work, cell, writer), daemon=True)
    with _no_interrupt():
        process.start()
    writer.close()
    return reader, process


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Keep Ctrl-C from the processes started inside: the one that started them is told, and ends them."""
    resource_tracker.ensure_running()  # otherwise the first process starts it, which lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(work: Callable[[Cell], Outcome], cell: Cell, writer: Connection) -> None:
    _end_with_parent()
    writer.send(work(cell))


def _outcome(cell: Cell, reader: Connection, process: BaseProcess) -> Outcome:
    with reader:
        try:
            outcome: Outcome = reader.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            how = "was killed" if code < 0 else f"ended with exit code {code}"
            return Outcome(cell, None, Failure(f"its worker process {how}", 1))
    process.join()
    return outcome


def _end_with_parent() -> None:
    """In a worker: end when the process that started it does, however it ends; its run resumes from a checkpoint."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


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


def check_root(root: Path) -> None:
    """Refuse a folder in which a sweep would write over what no sweep wrote; changes nothing.

    Raises:
        InputError: it is a file, it is one run's folder, or it holds tables of somebody else's.
    """
    require(not root.exists() or root.is_dir(), f"out: {root} is a file, allowed: a folder for the runs and the table")
    run = (root / "manifest.json").exists()
    require(not run, f"out: {root} is the folder of one run, allowed: another one for the runs and the table")
    for path in (root / MARKDOWN, root / CSV):
        require(is_table(path), f"out: {path} was not written by a comparison; move it away, or name another --out")
