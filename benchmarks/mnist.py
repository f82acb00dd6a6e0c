"""FedGR, its ablations and the averaging baselines on MNIST with 75 % wrong labels.

10,000 training images, 50 clients of 200, 5 a round, 5 local epochs, 90 rounds; every client is noisy with symmetric
rho ~ U(.5, 1). IID, or with --partition dirichlet (alpha .3).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from benchmarks.common import ABLATIONS, PUBLISHED, Options, run_table
from fedgr_secure.app import presets
from fedgr_secure.config import override


@dataclass(frozen=True)
class Mnist(Options):
    """MNIST tables."""

    path: tyro.conf.Positional[Path] = Path("mnist.npz")
    """npz file with x_train, y_train, x_test, y_test"""
    partition: Literal["iid", "dirichlet"] = "iid"
    rounds: int = 90


def main() -> None:
    """Run the table."""
    options = tyro.cli(Mnist, description=__doc__)
    changes = {"path": options.path, "partition": options.partition, "rounds": options.rounds}
    base = override(presets.load("mnist"), PUBLISHED | changes)
    variants = {
        "fedavg": {"method": "fedavg"},
        "fedavg, weak views": {"method": "fedavg", "baseline_view": "weak"},
        "fedavg, strong views": {"method": "fedavg", "baseline_view": "strong"},
        "fedprox": {"method": "fedprox"},
        "fedgr": {"method": "fedgr"},
        **{name: {"method": "fedgr", **switch} for name, switch in ABLATIONS.items()},
        "fedgr, sieve as published": {"method": "fedgr", "loss_cap": None, "variances": "free"},
    }
    run_table(f"MNIST {options.partition}, symmetric U(.5, 1)", base, variants, options)


if __name__ == "__main__":
    main()
