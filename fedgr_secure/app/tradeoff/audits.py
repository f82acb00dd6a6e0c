"""Audits of the plans of a grid: each plan once, whatever data and seeds it is used with; kept as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

from fedgr_secure.app.sweep import Cell, Outcome
from fedgr_secure.checks import claims_proxies
from fedgr_secure.config import to_table
from fedgr_secure.errors import InputError
from fedgr_secure.files import write_atomic
from fedgr_secure.sections import Config
from fedgr_secure.typed import read_json

FOLDER = "audits"
VERDICTS = ("PASS", "FAIL", "NO POWER")


@dataclass(frozen=True)
class Certified:
    """What an audit of a plan came to.

    Attributes:
        claimed: the epsilon that was tested, the smaller of claim and ledger.
        epsilon: the best lower bound.
        method: which gave it.
        verdict: PASS, FAIL or NO POWER.
        trials: canaries.
        confidence: of the bound.
        seconds: of wall time.
    """

    claimed: float
    epsilon: float
    method: str
    verdict: str
    trials: int
    confidence: float
    seconds: float

    def __post_init__(self) -> None:
        if not (0 < self.claimed < math.inf and 0 <= self.epsilon < math.inf and self.verdict in VERDICTS):
            raise ValueError(f"epsilon {self.epsilon} of {self.claimed}, {self.verdict}; allowed: from 0, of above 0")


@dataclass(frozen=True)
class AuditCell(Cell):
    """The audit of a run's plan.

    Attributes:
        file: where its outcome goes.
        draws: random numbers that it takes.
    """

    file: Path = Path()
    draws: int = 0


def audit_file(root: Path, config: Config, draws: int) -> Path | None:
    """Where the audit of a configuration's plan is kept; None where it claims no epsilon."""
    if not claims_proxies(config):
        return None
    proxies = config.proxies
    parts = [to_table(part) for part in (proxies, config.secure_sum, config.federation, config.data)]
    if proxies.adjacency == "client":  # the bound on a client's records is a part of the plan
        parts.append(to_table(config.partition))
    key = hashlib.sha256(json.dumps([parts, draws], sort_keys=True).encode()).hexdigest()[:12]
    return root / FOLDER / f"{proxies.channel}-{proxies.epsilon:g}-{key}.json"


def audit_cells(root: Path, cells: list[Cell], draws: int) -> list[AuditCell]:
    """An audit for each plan among the runs."""
    found: dict[Path, AuditCell] = {}
    for cell in cells:
        file = audit_file(root, cell.config, draws)
        if file is not None and file not in found:
            proxies = cell.config.proxies
            found[file] = AuditCell(
                f"audit of {proxies.channel} at epsilon {proxies.epsilon:g}", cell.config, file, draws
            )
    return list(found.values())


def read_audit(root: Path, config: Config, draws: int) -> Certified | None:
    """What the audit of a configuration's plan came to; None where there was none."""
    file = audit_file(root, config, draws)
    return audited(file) if file is not None else None


def audited(file: Path) -> Certified | None:
    """What a file says of an audit; None without one, and of a damaged one, which is made again."""
    if not file.exists():
        return None
    try:
        found: Certified = read_json(file, Certified)
    except InputError:
        return None
    return found


def run_audit(cell: AuditCell) -> Outcome:
    """Audit the channel that clients of the run have; one that was audited before is not audited again."""
    if audited(cell.file) is None:
        cell.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(cell.file, json.dumps(dataclasses.asdict(_audit(cell)), indent=1))
    return Outcome(cell, None)


def _audit(cell: AuditCell) -> Certified:
    from attacks.audit import audit
    from fedgr_secure.app.auditor import affordable
    from fedgr_secure.cohorts import cohort_sizes
    from fedgr_secure.federation.channels import channel_for
    from fedgr_secure.federation.federation import load
    from privacy.mechanisms import SystemNoise

    data, _ = load(cell.config)
    federation = cell.config.federation
    sizes = cohort_sizes(clients=federation.clients, size=federation.cohort, warmup=federation.warmup)
    channel = channel_for(
        cell.config, classes=data.spec.classes, samples=[len(shard) for shard in data.shards], sizes=sizes
    )
    found = audit(channel, SystemNoise(), trials=affordable(channel, limit=cell.draws))
    best = found.best
    return Certified(
        found.claimed, best.epsilon, best.method, found.verdict, found.trials, found.confidence, found.seconds
    )
