"""FedGR with its loss proxies in the clear, with noise on each, and as a secure histogram: accuracy against epsilon.

Digits or, with a path, the MNIST setting of `benchmarks.mnist`. Weights travel under secure sums in every row. Epsilon
is the total of a run (delta 1e-5, one record replaced by another); noise comes from the operating system.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.common import Options, run_table
from fedgr_secure.app import presets
from fedgr_secure.config import override


@dataclass(frozen=True)
class Channels(Options):
    """Channels compared."""

    path: tyro.conf.Positional[Path | None] = None
    """MNIST as an npz file; without it digits is run"""
    seeds: int = 5
    histogram_epsilons: tuple[float, ...] = (0.1, 0.5, 1.0, 8.0)
    """of the secure histogram"""
    noisy_epsilons: tuple[float, ...] = (1.0, 4.0, 8.0)
    """of noise on each proxy"""
    releases: tuple[int, ...] = (1, 10)
    """of histograms, a client"""


def main() -> None:
    """Run the table."""
    options = tyro.cli(Channels, description=__doc__)
    if options.path is None:
        base, data = presets.load("digits"), "Digits"
    else:
        base, data = override(presets.load("mnist"), {"path": options.path}), "MNIST IID"
    run_table(f"{data}, channels of the loss proxies", override(base, {"secagg": True}), _variants(options), options)


def _variants(options: Channels) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {"plain": {"channel": "plain"}}
    for epsilon in options.histogram_epsilons:
        for releases in options.releases:
            every = 0 if releases == 1 else 1
            rows[f"histogram, epsilon {epsilon:g}, releases {releases}"] = {
                "channel": "histogram",
                "epsilon": epsilon,
                "releases": releases,
                "release_every": every,
            }
    plans = {
        "Laplace once": {"noising": "once", "mechanism": "laplace"},
        "Gaussian per loss": {"noising": "per_loss", "mechanism": "gaussian", "releases": 10},
    }
    for epsilon in options.noisy_epsilons:
        for plan, settings in plans.items():
            for place in ("client", "server"):
                changes = {"channel": "noisy", "epsilon": epsilon, "decide_at": place, **settings}
                rows[f"noisy, {plan}, epsilon {epsilon:g}, q on the {place}"] = changes
    return rows


if __name__ == "__main__":
    main()
