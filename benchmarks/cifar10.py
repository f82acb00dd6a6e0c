"""FedAvg, FedProx and FedGR on CIFAR-10 at CPU scale, with human label errors and with symmetric U(.2, .6).

10,000 training images, a small CNN, 50 clients, 5 a round. The human errors are CIFAR-10N's (Wei et al. 2022), read
from a key of the npz file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.common import PUBLISHED, Options, run_table
from fedgr_secure.app import presets
from fedgr_secure.config import override


@dataclass(frozen=True)
class Cifar10(Options):
    """CIFAR-10 tables."""

    path: tyro.conf.Positional[Path] = Path("cifar10.npz")
    """npz file with x_train, y_train, x_test, y_test and the human labels"""
    given_labels: str = "y_train_human_random1"
    """key of the human labels (17 % wrong; y_train_human_aggregate has 9 %)"""
    rounds: int = 60


def main() -> None:
    """Run both tables."""
    options = tyro.cli(Cifar10, description=__doc__)
    base = override(presets.load("cifar10-cpu"), PUBLISHED | {"path": options.path, "rounds": options.rounds})
    methods = {name: {"method": name} for name in ("fedavg", "fedprox", "fedgr")}
    run_table("CIFAR-10 symmetric U(.2, .6)", base, methods, options)
    human = override(base, {"label_noise": "given", "given_labels": options.given_labels})
    run_table("CIFAR-10 human label errors", human, methods, options)


if __name__ == "__main__":
    main()
