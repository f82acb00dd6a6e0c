"""Carry a grid out: every run, the attacks on what its server saw, and an audit of every plan; nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from attacks.results import read_results, read_scores, write_results
from fedgr_secure.app.failures import Failure, failure
from fedgr_secure.app.sweep import Cell, Outcome, run_cell, sweep
from fedgr_secure.app.tradeoff.audits import AuditCell, audit_cells, audited, run_audit
from fedgr_secure.app.tradeoff.grid import Grid
from fedgr_secure.errors import InputError
from fedgr_secure.federation.folder import RunFolder, essence


@dataclass(frozen=True)
class Plan:
    """What is done with a grid.

    Attributes:
        grid: the runs.
        root: the folder of all of them.
        attacks: whether runs are attacked.
        audits: whether plans are audited.
    """

    grid: Grid
    root: Path
    attacks: bool = True
    audits: bool = True

    @property
    def cells(self) -> list[Cell]:
        """Runs, then audits."""
        runs = self.grid.cells(self.root)
        return [*runs, *(audit_cells(self.root, runs, self.grid.audit_draws) if self.audits else [])]


def open_cells(plan: Plan) -> list[Cell]:
    """What is not done yet.

    Raises:
        InputError: runs that are done were made from other data than there are now.
    """
    done = [cell for cell in plan.cells if _done(cell, plan.attacks)]
    _check_data([cell for cell in done if not isinstance(cell, AuditCell)])
    return [cell for cell in plan.cells if cell not in done]


def holds(cell: Cell) -> bool:
    """Whether the cell's folder holds a run of its configuration, finished or not."""
    folder = RunFolder(folder_of(cell))
    return folder.holds_run and essence(folder.config()) == essence(cell.config)


def folder_of(cell: Cell) -> Path:
    """The run folder of a cell."""
    assert cell.config.output.out is not None
    return cell.config.output.out


def _done(cell: Cell, attacks: bool) -> bool:
    if isinstance(cell, AuditCell):
        return audited(cell.file) is not None
    complete = holds(cell) and RunFolder(folder_of(cell)).finished
    return complete and (not attacks or _is_attacked(cell))


def _is_attacked(cell: Cell) -> bool:
    """By every attack that needs no shadows, with the run's own seed, and with scores that can be read."""
    from attacks.harness import USUAL

    try:
        before = read_results(folder_of(cell))
        whole = before is not None and before.seed == cell.config.seed and set(USUAL) <= set(before.tried)
        return whole and bool(read_scores(folder_of(cell)))
    except InputError:
        return False  # damaged: made again


def _check_data(done: Sequence[Cell]) -> None:
    """One run for each way of making the data stands for all."""
    if not done:
        return
    from fedgr_secure.federation.federation import load
    from fedgr_secure.federation.loop import check_data

    ways = {(config.data, config.noise, config.partition): cell for cell in done for config in [cell.config]}
    for cell in ways.values():
        check_data(RunFolder(folder_of(cell)), cell.config, *load(cell.config))


def carry_out(
    plan: Plan,
    *,
    jobs: int,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
    cells: Sequence[Cell] | None = None,
) -> list[Outcome]:
    """Do what is not done yet, each cell in a process of its own; a cell that fails does not stop the rest.

    Args:
        plan: what is done.
        jobs: worker processes, each with one torch thread.
        on_done: called when a cell ends.
        cells: only these of the plan (default: those that are open).

    Raises:
        InputError: a setting is not acceptable, before anything is run.
    """
    work = partial(do, attacks=plan.attacks)
    return sweep(open_cells(plan) if cells is None else cells, jobs=jobs, on_done=on_done, work=work, isolate=True)


def do(cell: Cell, *, attacks: bool) -> Outcome:
    """Run and attack one cell, or audit one plan."""
    if isinstance(cell, AuditCell):
        return _guarded(cell, lambda: run_audit(cell))
    outcome = run_cell(cell)
    if outcome.summary is None or not attacks:
        return outcome
    return _guarded(cell, lambda: _attacked(outcome), ran=outcome)


def _guarded(cell: Cell, work: Callable[[], Outcome], *, ran: Outcome | None = None) -> Outcome:
    """An error as the outcome's failure; a run that is complete stays so."""
    try:
        return work()
    except Exception as error:
        found = failure(error) or Failure(f"{type(error).__name__}: {error}", 1)
        step = "audit" if ran is None else "attacks"
        return replace(ran or Outcome(cell, None), failure=Failure(f"{step}: {found.words}", found.code))


def _attacked(outcome: Outcome) -> Outcome:
    """With the attacks' results in the run folder; candidates are drawn by the run's own seed."""
    from attacks.harness import attack

    if not _is_attacked(outcome.cell):
        folder = folder_of(outcome.cell)
        write_results(folder, *attack(folder, seed=outcome.cell.config.seed))
    return outcome
