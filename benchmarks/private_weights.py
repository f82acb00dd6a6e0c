"""What end-to-end privacy costs: FedAvg and FedGR on digits, their weights trained by DP-SGD at several epsilons.

Four clients of 359 records each, four steps a round, a small network: noise is shared out over the records of
one client, so that few large clients fare better than many small ones. Loss proxies travel as a secure histogram at
epsilon 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tyro

from benchmarks.common import Options, run_table
from fedgr_secure.app import presets
from fedgr_secure.config import override

SETTING = {
    "clients": 4,
    "cohort": 4,
    "model": "mlp",
    "width": 4,
    "local_epochs": 1,
    "batch_size": 90,
    "lr": 0.5,
    "rounds": 60,
    "warmup": 30,
    "release_every": 8,
}


@dataclass(frozen=True)
class PrivateWeights(Options):
    """Epsilons compared."""

    seeds: int = 3
    epsilons: tuple[float, ...] = (8.0, 32.0, 128.0)
    """of the weights"""
    methods: tuple[str, ...] = ("fedavg", "fedgr")


def main() -> None:
    """Run the table."""
    options = tyro.cli(PrivateWeights, description=__doc__)
    rows: dict[str, dict[str, Any]] = {}
    for method in options.methods:
        rows[f"{method}, weights not private"] = {"method": method}
        for epsilon in options.epsilons:
            rows[f"{method}, weights epsilon {epsilon:g}"] = {"method": method, "weights_epsilon": epsilon}
    run_table("Digits, weights trained by DP-SGD", override(presets.load("digits"), SETTING), rows, options)


if __name__ == "__main__":
    main()
