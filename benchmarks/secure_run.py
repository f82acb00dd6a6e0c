"""FedGR with its weights in the clear and under secure aggregation, on the same clients that vanish.

Digits (10 clients a round) or, with a path, the MNIST setting of `benchmarks.mnist`. Secure sums change nothing but the
rounding of the mean, which training amplifies like any other last digit; what they cost is the share of the run's time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.common import PUBLISHED, Options, run_table, write_result
from fedgr_secure.app import presets
from fedgr_secure.app.secure_report import PHASE
from fedgr_secure.app.sweep import cell_folder, slug
from fedgr_secure.app.tables import compare_markdown, compare_rows
from fedgr_secure.config import override
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.records import Summary
from fedgr_secure.sections import Config

CLEAR, SECURE = "fedgr, in the clear", "fedgr, secure sums"
FINER = "fedgr, secure sums in 64 bits"
"""rounds 2^32 times finer: how far it is from 32 bits is how far last digits carry"""


@dataclass(frozen=True)
class SecureRun(Options):
    """Secure runs against runs in the clear."""

    path: tyro.conf.Positional[Path | None] = None
    """MNIST as an npz file; without it digits is run"""
    dropout: float = 0.1
    """share of the clients that vanish before their upload"""


def main() -> None:
    """Run the table."""
    options = tyro.cli(SecureRun, description=__doc__)
    if options.path is None:
        _table(
            "Digits, secure sums", override(presets.load("digits"), PUBLISHED | {"dropout": options.dropout}), options
        )
    else:
        changes = {"path": options.path, "dropout": options.dropout}
        _table("MNIST IID, secure sums", override(presets.load("mnist"), PUBLISHED | changes), options)


def _table(title: str, base: Config, options: Options) -> None:
    variants = {CLEAR: {"method": "fedgr"}, SECURE: {"method": "fedgr", "secagg": True}}
    variants[FINER] = variants[SECURE] | {"ring": 64}
    rows = run_table(title, base, variants, dataclasses.replace(options, record=False))
    notes = [*_compared(rows), *_survivors(title, options)]
    print("\n".join(notes))
    if options.record:
        write_result(title, compare_markdown(rows), compare_rows(rows), base, notes)


def _compared(rows: Mapping[str, Sequence[Summary]]) -> list[str]:
    """How far the accuracies are apart, and what the sums took of the time."""
    apart = {name: _apart(rows[SECURE], rows[name]) for name in (CLEAR, FINER)}
    shares = [
        sum(seconds for phase, seconds in summary.seconds_by_phase.items() if phase.startswith(PHASE)) / summary.seconds
        for summary in rows[SECURE]
    ]
    return [
        *(
            f"Last-10 accuracy of secure sums less that of {name!r}, by seed: {points}"
            for name, points in apart.items()
        ),
        f"Secure sums took {100 * np.mean(shares):.1f} % of the run's time.",
    ]


def _apart(these: Sequence[Summary], others: Sequence[Summary]) -> str:
    points = [100 * (a.accuracy_last10 - b.accuracy_last10) for a, b in zip(these, others, strict=True)]
    return f"{', '.join(f'{p:+.2f}' for p in points)} points, mean {np.mean(points):+.2f}."


def _survivors(title: str, options: Options) -> list[str]:
    """Whether both rows averaged the same clients in every round, and how many sums were given up."""
    root, same, failed, count = options.runs / slug(title), True, 0, 0
    for seed in range(options.seeds):
        clear, hidden = (RunFolder(cell_folder(root, name, seed)).rounds() for name in (CLEAR, SECURE))
        for one, other in zip(clear, hidden, strict=True):
            count += 1
            aborted = other.secure_sum is not None and other.secure_sum.aborted is not None
            failed += aborted
            same &= aborted or one.survivors == other.survivors
    words = "the same" if same else "NOT the same"
    return [f"Survivors were {words} in all {count - failed} opened sums; {failed} of {count} sums were given up."]


if __name__ == "__main__":
    main()
