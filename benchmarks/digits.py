"""FedAvg, FedProx, FedGR and its ablations on scikit-learn's digits: the default setting, several seeds."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from benchmarks.common import ABLATIONS, PUBLISHED, Options, run_table
from fedgr_secure.app import presets
from fedgr_secure.config import override


@dataclass(frozen=True)
class Digits(Options):
    """Digits table."""

    seeds: int = 3


def main() -> None:
    """Run the table."""
    options = tyro.cli(Digits, description=__doc__)
    variants = {
        **{name: {"method": name} for name in ("fedavg", "fedprox", "fedgr")},
        **{name: {"method": "fedgr", **switch} for name, switch in ABLATIONS.items()},
    }
    run_table("Digits, default setting", override(presets.load("digits"), PUBLISHED), variants, options)


if __name__ == "__main__":
    main()
