"""Attack scripts: record what the server saw, attack it with ours and with an attack of your own, and gate on it.

    python examples/attack.py                  # into a temporary folder
    python examples/attack.py --out runs/mine  # keeps the run folders

The same federation is run with losses in the clear and as a histogram at epsilon 1. The script ends with exit code 1
when the strongest membership attack on the private run has its whole interval above `MOST`: a gate for CI.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray

import fedgr_secure
from attacks.games import Candidates, TargetClient
from attacks.harness import Arena, arena, attack
from attacks.metrics import Metrics, evaluate

MOST = 0.65
"""area under the curve that the private run may have"""
SMALL = {
    "train_size": 600,  # leaves 897 training records outside, which the games need
    "model": "mlp",
    "clients": 6,
    "cohort": 3,
    "rounds": 10,
    "warmup": 4,
    "record_view": "uploads",
}


def record(folder: Path, channel: str) -> Path:
    """Run a small federation whose server writes down what it receives; one that is there is attacked again."""
    if (folder / "summary.json").exists():
        return folder
    changes = {**SMALL, "channel": channel, "secagg": channel == "histogram", "out": folder}
    return fedgr_secure.run(fedgr_secure.override(fedgr_secure.Config(), changes)).folder


def nearest_number(ground: Arena, candidates: Candidates) -> NDArray[np.float64]:
    """An attack of one's own: has this client uploaded the running mean that this record would have?

    Args:
        ground: what the server knows; `candidates.member` is the truth, which no attack may read.
        candidates: records, each with the client that is asked about.

    Returns:
        float64 (n,), higher for members: minus the distance to the nearest number of the client's last upload.
    """
    losses, server = ground.losses(candidates), ground.knowledge  # losses: float64 (models, n)
    scores = np.full(len(candidates), -np.inf)
    for client, sent in server.uploads.items():
        asked = np.flatnonzero(candidates.client == client)
        expected = losses[server.drawn(client)][:, asked].mean(axis=0)
        uploaded = np.sort(sent[-1][1]["proxies"].astype(np.float64))
        above = np.searchsorted(uploaded, expected).clip(1, len(uploaded) - 1)
        scores[asked] = -np.minimum(abs(uploaded[above] - expected), abs(uploaded[above - 1] - expected))
    return scores


def strongest(folder: Path) -> tuple[str, Metrics]:
    """Of all membership attacks that ship, the one with the largest area."""
    attacked, _ = attack(folder)
    found = [(f"{one.attack}, {one.game}", one.metrics) for one in attacked.outcomes if one.game in ("any", "target")]
    return max(((name, metrics) for name, metrics in found if metrics), key=lambda pair: pair[1].auc.value)


def gate(name: str, metrics: Metrics) -> int:
    """The exit code: 1 when the whole interval is above the bound."""
    broken = metrics.auc.low > MOST
    print(f"gate: AUC of {name}: {metrics.auc}, allowed: {MOST}: {'ABOVE' if broken else 'kept'}")
    return int(broken)


def main(out: Path | None = None) -> None:
    """Run, attack, and judge.

    Args:
        out: folder of both runs (default: a temporary one).
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = out or Path(scratch)
        plain, private = record(root / "plain", "plain"), record(root / "private", "histogram")
        ground = arena(plain)
        candidates = ground.candidates(TargetClient())
        mine = evaluate(nearest_number(ground, candidates), candidates.member)
        assert mine is not None  # there are members and others
        name, ours = strongest(plain)
        print(f"plain run, {name}: AUC {ours.auc}")
        print(f"plain run, nearest number: AUC {mine.auc}")
        for point in mine.points:
            print(f"  at {point.wanted:.1%} false positives: {point.tpr} of members found" if point else "  undefined")
        code = gate(*strongest(private))
    sys.exit(code)


if __name__ == "__main__":
    tyro.cli(main)
