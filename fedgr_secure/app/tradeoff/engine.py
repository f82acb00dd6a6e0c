"""Carry a grid out: every run, the attacks on what its server saw, and an audit of every plan; nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedgr_secure.app.failures import Failure, failure
from fedgr_secure.app.sweep import Cell, Outcome, run_cell, sweep
from fedgr_secure.app.tradeoff.audits import AuditCell, audit_cells, run_audit
from fedgr_secure.app.tradeoff.grid import Grid


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


def carry_out(plan: Plan, *, jobs: int, on_done: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
    """Do what is not done yet, each cell in a process of its own; a cell that fails does not stop the rest.

    Raises:
        InputError: a setting is not acceptable, before anything is run.
    """
    return sweep(plan.cells, jobs=jobs, on_done=on_done, work=partial(do, attacks=plan.attacks), isolate=True)


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
    from attacks.results import read_results, write_results

    folder, seed = outcome.cell.config.output.out, outcome.cell.config.seed
    assert folder is not None
    before = read_results(folder)
    if before is None or before.seed != seed:
        write_results(folder, *attack(folder, seed=seed))
    return outcome
