"""The observation behind FedGR: how many wrong labels a central and a federated model memorise.

The same MNIST images with the same wrong labels; the central model per epoch, the federated global model per round.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.common import PUBLISHED, RESULTS, Options, run_table
from fedgr_secure.app import presets
from fedgr_secure.app.sweep import cell_folder, slug
from fedgr_secure.config import override
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.records import RoundRecord


@dataclass(frozen=True)
class Memorisation(Options):
    """Memorised share of the wrong labels."""

    path: tyro.conf.Positional[Path] = Path("mnist.npz")
    """npz file with x_train, y_train, x_test, y_test"""
    rounds: int = 50
    """rounds of the federated model, and epochs of the central one"""


def main() -> None:
    """Run both models, draw the figure and print the two numbers."""
    options = tyro.cli(Memorisation, description=__doc__)
    changes = {"path": options.path, "rounds": options.rounds, "memorised_every": 1}
    base = override(presets.load("mnist"), PUBLISHED | changes)
    variants = {"central": {"method": "central"}, "fedavg": {"method": "fedavg"}, "fedgr": {"method": "fedgr"}}
    title = "MNIST, memorised wrong labels"
    run_table(title, base, variants, options)
    root = options.runs / slug(title)
    curves = {name: RunFolder(cell_folder(root, name, 0)).rounds() for name in variants}
    draw(curves, RESULTS / f"{slug(title)}.png")
    for name, records in curves.items():
        print(f"{name}: memorised {records[-1].memorised_share:.3f}, most {max(map(share, records)):.3f}")


def share(record: RoundRecord) -> float:
    """The memorised share of a round."""
    return record.memorised_share or 0.0


def draw(curves: dict[str, list[RoundRecord]], path: Path) -> None:
    """One line per model: memorised share by epoch or round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    styles = {"central": ("#D55E00", "-"), "fedavg": ("#0072B2", "--"), "fedgr": ("#009E73", "-.")}
    for name, records in curves.items():
        colour, style = styles[name]
        axes.plot([r.round + 1 for r in records], [100 * share(r) for r in records], style, color=colour, label=name)
    axes.set(
        title="Wrong labels memorised (MNIST, 75 % wrong)",
        xlabel="epoch (central) or round (federated)",
        ylabel="memorised share of the wrong labels (%)",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
