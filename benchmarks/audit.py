"""Audits of claimed epsilons: what an attack through the shipped channels certifies, and how often it is wrong.

The channels are those of a run; their noise comes from the fast seeded source, since the operating system's exact one
makes some 50,000 numbers a second (`fedgr-secure audit` uses that one). A row of noise is a canary, half of them with
the largest loss; in histograms two bins are one. Null audits are audits of sound channels with few canaries, where a
certified epsilon above the claim is an error of the audit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from attacks.audit import AuditResult, audit
from benchmarks.common import write_result
from fedgr_secure.app.accountant import histogram_of, noisy_of
from fedgr_secure.app.plan import Plan
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.mechanisms import InsecureSeededNoise

METHODS = ("two-sample", "trade-off", "one-run", "sum")
_BINS = 1000


@dataclass(frozen=True)
class Audits:
    """Claims against what can be certified."""

    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """claimed"""
    trials: int = 400_000
    """canaries of an audit of rows"""
    histogram_trials: int = 60_000
    """canaries of an audit of histograms"""
    nulls: int = 200
    """null audits of each channel"""
    null_trials: int = 1000
    """canaries of a null audit"""
    confidence: float = 0.99
    """of the table; null audits have 0.95"""
    record: bool = True
    """write the table to benchmarks/results/"""


Channel = NoisyProxies | HistogramProxies

CHANNELS: dict[str, Callable[[float], Channel]] = {
    "Laplace, once": lambda epsilon: noisy_of(Plan(epsilon, channel="noisy")),
    "Laplace, 10 releases": lambda epsilon: _rows(epsilon, "laplace", 10),
    "Gaussian, once": lambda epsilon: noisy_of(Plan(epsilon, channel="noisy", mechanism="gaussian")),
    "Gaussian, 10 releases": lambda epsilon: _rows(epsilon, "gaussian", 10),
    "histogram, once": lambda epsilon: histogram_of(Plan(epsilon, releases=1), bins=_BINS),
    "histogram, 10 releases": lambda epsilon: histogram_of(Plan(epsilon, releases=10), bins=_BINS),
}


def main() -> None:
    """Run the audits."""
    options, console = tyro.cli(Audits, description=__doc__), Console()
    rows = []
    for name, channel in CHANNELS.items():
        for epsilon in options.epsilons:
            trials = options.histogram_trials if name.startswith("histogram") else options.trials
            found = _audit(channel(epsilon), trials, 0, options.confidence)
            rows.append(_row(name, epsilon, found))
            console.print(rows[-1], highlight=False)
    notes = [_words(options), *(_nulls(name, channel(1.0), options) for name, channel in CHANNELS.items())]
    console.print(*notes, sep="\n", highlight=False)
    if options.record:
        write_result("Audit of claimed epsilons", _markdown(rows), rows, None, notes)


def _rows(epsilon: float, mechanism: Any, releases: int) -> NoisyProxies:
    return noisy_of(Plan(epsilon, channel="noisy", mechanism=mechanism, noising="per_loss", releases=releases))


def _audit(channel: Channel, trials: int, seed: int, confidence: float) -> AuditResult:
    noise = InsecureSeededNoise(np.random.default_rng([seed, 0]))
    return audit(channel, noise, trials=trials, coins=np.random.default_rng([seed, 1]), confidence=confidence)


def _row(name: str, epsilon: float, found: AuditResult) -> dict[str, Any]:
    certified = {bound.method: bound.epsilon for bound in found.bounds}
    row = {"channel": name, "claimed": epsilon, "accounted": found.accounted, "verdict": found.verdict}
    return row | {"certified": certified, "trials": found.trials, "seconds": found.seconds}


def _nulls(name: str, channel: Channel, options: Audits) -> str:
    found = [_audit(channel, options.null_trials, seed, 0.95) for seed in range(1, options.nulls + 1)]
    failed = sum(result.verdict == "FAIL" for result in found)
    most = max(result.best.epsilon for result in found)
    return (
        f"Null audits, {name}, claimed 1, {options.null_trials:,} canaries, confidence 0.95: {failed} of "
        f"{options.nulls} certify more than the claim; the most is {most:.3g}."
    )


def _words(options: Audits) -> str:
    shown = {name: value for name, value in asdict(options).items() if name in ("trials", "histogram_trials")}
    return (
        f"Fast seeded noise through the shipped channels; {shown['trials']:,} canaries (rows), "
        f"{shown['histogram_trials']:,} (histograms, five honest clients), half with the largest loss. In brackets: "
        "the share of what is accounted, that is, charged by the ledger: less than the claim where five shares of "
        "noise cannot be as small as the claim allows. All bounds of a row hold with confidence "
        f"{options.confidence:g}. Trade-off and sum hold for noise of the claimed kind, two-sample and one-run for any."
    )


def _markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"| Channel | Claimed | Accounted | {' | '.join(METHODS)} | Verdict |",
        f"| --- | ---: | ---: | {' | '.join('---:' for _ in METHODS)} | --- |",
    ]
    for row in rows:
        cells = [_cell(row["certified"].get(method), row["accounted"]) for method in METHODS]
        head = f"| {row['channel']} | {row['claimed']:g} | {row['accounted']:.3g} |"
        lines.append(f"{head} {' | '.join(cells)} | {row['verdict']} |")
    return "\n".join(lines)


def _cell(epsilon: float | None, accounted: float) -> str:
    return "-" if epsilon is None else f"{epsilon:.3g} ({epsilon / accounted:.2f})"


if __name__ == "__main__":
    main()
