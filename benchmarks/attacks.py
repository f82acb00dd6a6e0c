"""What each channel of the loss proxies gives away: attacks on digits, scores of all seeds together.

900 of the training digits are used, so that 897 records are left outside; 300 of these are the attacker's references.
Rounded variants are of the plain rows. Every run's weights travel under secure sums.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from attacks.games import LABEL, SOURCE, AnyClient, RowLinkage, TargetClient
from attacks.harness import ATTACKS, Arena, arena
from attacks.matching import Matcher
from attacks.metrics import Metrics, evaluate, share
from attacks.results import Caps, Scored
from benchmarks.common import Options, write_result
from fedgr_secure.app import presets
from fedgr_secure.app.attack_report import UNDEFINED
from fedgr_secure.app.sweep import Cell, cell_folder, slug, sweep
from fedgr_secure.config import override

TITLE = "Digits, what the loss proxies give away"
DECIMALS = (3, 2, 1, 0)
_HEAD = (
    *("Upload", "Attack, game", "Members, others", "AUC [95 %]"),
    *("TPR at 1 %", "TPR at 0.1 %", "realised FPR", "Right answers", "Allowed: AUC", "TPR at 0.1 %"),
)


@dataclass(frozen=True)
class Attacks(Options):
    """Channels compared."""

    seeds: int = 5
    laplace_once: tuple[float, ...] = (0.5, 1.0, 4.0, 10.0)
    """epsilons of noise on each running mean, once"""
    gaussian_per_loss: tuple[float, ...] = (0.5, 4.0, 10.0)
    """epsilons of noise on each loss of ten releases"""
    histogram: tuple[float, ...] = (0.1, 1.0, 8.0)
    """epsilons of the secure histogram, six releases"""


def main() -> None:
    """Run the table."""
    options = tyro.cli(Attacks, description=__doc__)
    base = override(presets.load("digits"), {"train_size": 900, "record_view": "uploads", "secagg": True})
    rows = _variants(options)
    cells = [
        Cell(
            name, override(base, {**changes, "seed": seed, "out": cell_folder(options.runs / slug(TITLE), name, seed)})
        )
        for seed in range(options.seeds)
        for name, changes in rows.items()
    ]
    console = Console()
    outcomes = sweep(cells, jobs=options.jobs, on_done=lambda one: console.print(f"{one.cell.name}: done"))
    pooled: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for outcome in outcomes:
        assert outcome.summary is not None, outcome.error
        ground = arena(outcome.cell.config.output.out or options.runs, seed=outcome.cell.config.seed)
        for key, scored in _play(outcome.cell.name, ground).items():
            pooled[key].append(scored)
        console.print(f"{outcome.cell.name}, seed {outcome.cell.config.seed}: attacked")
    table, data = _table(pooled, rows)
    console.print(table, highlight=False)
    if options.record:
        write_result(TITLE, table, data, base, [])


def _variants(options: Attacks) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {"plain, float32": {"channel": "plain"}}
    for epsilon in options.laplace_once:
        rows[f"Laplace once, epsilon {epsilon:g}"] = {"channel": "noisy", "epsilon": epsilon}
    for epsilon in options.gaussian_per_loss:
        rows[f"Gaussian per loss, epsilon {epsilon:g}"] = {
            "channel": "noisy",
            "epsilon": epsilon,
            "noising": "per_loss",
            "mechanism": "gaussian",
            "releases": 10,
        }
    for epsilon in options.histogram:
        rows[f"histogram, epsilon {epsilon:g}"] = {"channel": "histogram", "epsilon": epsilon}
    return rows


def _play(name: str, ground: Arena) -> dict[tuple[str, str], Scored]:
    """The scores of every attack on a run, and of matching on variants of plain rows."""
    found = {
        (name, f"{outcome.attack}, {outcome.game}"): scored
        for attack in ATTACKS
        if attack.fits(ground) and attack.name not in ("rates", "classes")
        for outcome, scored in attack.play(ground)
    }
    if ground.has_rows and not ground.knowledge.channel.private:
        rows = ground.knowledge.observed
        newest = {client: observed.newest(1) for client, observed in rows.items()}
        for what, some in (("all uploads", rows), ("last upload", newest)):
            variants = {f"{decimals} decimals": decimals for decimals in DECIMALS}
            for words, decimals in variants.items():
                rounded = {client: observed.rounded(decimals) for client, observed in some.items()}
                found |= _matched(f"{words}, {what}", ground, ground.matcher(rounded))
        found |= _matched("plain, float32, last upload", ground, ground.matcher(newest))
    return found


def _matched(name: str, ground: Arena, matcher: Matcher) -> dict[tuple[str, str], Scored]:
    games = (
        (AnyClient(), matcher.any_client),
        (TargetClient(), matcher.named_client),
        (RowLinkage(), matcher.named_row),
    )
    found = {}
    for game, score in games:
        candidates = ground.candidates(game)
        found[name, f"matching, {game.name}"] = Scored(score(candidates), candidates.member)
    members = ground.candidates(SOURCE)
    for named, right in (
        (SOURCE, matcher.source(members) == members.client),
        (LABEL, matcher.label(members) == members.labels),
    ):
        found[name, f"{named.name}, {named.name}"] = Scored(right.astype(np.float64), np.ones(len(right), bool))
    return found


def _table(
    pooled: dict[tuple[str, str], list[Scored]], rows: dict[str, dict[str, Any]]
) -> tuple[str, list[dict[str, Any]]]:
    lines = ["| " + " | ".join(_HEAD) + " |", "| --- | --- |" + " ---: |" * (len(_HEAD) - 2)]
    data = []
    for (upload, played), parts in pooled.items():
        both = Scored(np.concatenate([one.scores for one in parts]), np.concatenate([one.truth for one in parts]))
        metrics = evaluate(both.scores, both.truth)
        right = None if metrics is not None else share(both.scores > 0.5)
        epsilon = rows.get(upload, {}).get("epsilon")
        caps = Caps.of(epsilon, 1e-5) if epsilon is not None and metrics is not None else None
        cells = [upload, played, *_words(metrics), "-" if right is None else str(right)]
        cells += ["-", "-"] if caps is None else [f"{caps.auc:.3f}", f"{caps.tpr[2]:.4f}"]
        lines.append("| " + " | ".join(cells) + " |")
        kept = asdict(metrics) if metrics is not None else None
        data.append({"upload": upload, "played": played, "metrics": kept, "share": right and asdict(right)})
    return "\n".join(lines), data


def _words(metrics: Metrics | None) -> list[str]:
    if metrics is None:
        return ["-"] * 5
    points = metrics.points[1:]
    shown = [UNDEFINED if point is None else str(point.tpr) for point in points]
    realised = "-" if points[-1] is None else f"{points[-1].realised.value:.2%}"
    return [f"{metrics.members:,}, {metrics.others:,}", str(metrics.auc), *shown, realised]


if __name__ == "__main__":
    main()
