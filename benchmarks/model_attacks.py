"""Membership from the global models alone, FedAvg and FedGR on digits: the baseline that leakage by loss proxies tops.

Scikit-learn's 1437 training digits are cut into random halves. One half is trained on by ten clients (72 digits each,
as in the digits preset) with wrong labels; the other half, whose labels are made wrong by the same process, are the
others. Shadow federations train on other halves of all 1437 under the given labels. The 360 test digits, also with
wrong labels, are RMIA's population. Nothing of the loss proxies is used.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console

from attacks.lira import label_column, lira_offline, lira_online, logit_confidence
from attacks.loss_series import loss_mean, loss_trend
from attacks.loss_threshold import loss_threshold
from attacks.metrics import Metrics, evaluate
from attacks.models import predictor, sent_models
from attacks.rmia import Population, rmia_offline, rmia_online
from attacks.shadows import Labelled, train_shadows, write_npz
from attacks.view import open_view
from benchmarks.common import PUBLISHED, write_result
from fedgr_secure.app import presets
from fedgr_secure.config import override
from fedgr_secure.data.noise import corrupt
from fedgr_secure.data.partition import partition
from fedgr_secure.data.sources import load_source
from fedgr_secure.data.types import Labels
from fedgr_secure.errors import require
from fedgr_secure.federation.federation import load
from fedgr_secure.federation.loop import run
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModelAttacks:
    """Attacks on the models."""

    methods: tuple[str, ...] = ("fedavg", "fedgr")
    seeds: int = 1
    """target federations a method, from seed 0; their candidates are pooled"""
    shadows: int = 8
    """shadow federations for each target"""
    rounds: int = 30
    """of targets and shadows"""
    record: bool = True
    """write the table to benchmarks/results/"""


class Scene(NamedTuple):
    """One target run's candidates and population, with their given labels."""

    config: Config
    candidates: Labelled
    member: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    population: Labelled
    test: Labelled


def main() -> None:
    """Train targets and shadows, attack, print and record."""
    options = tyro.cli(ModelAttacks, description=__doc__)
    require(options.shadows >= 3, f"shadows: {options.shadows}, allowed: from 3 (LiRA needs a variance)")
    base = override(presets.load("digits"), {**PUBLISHED, "clients": 10, "cohort": 5, "rounds": options.rounds})
    rows, notes = [], []
    for method in options.methods:
        found = [_attack(override(base, {"method": method, "seed": seed}), options) for seed in range(options.seeds)]
        member, wrong = (np.concatenate([one[at] for one in found]) for at in (1, 2))
        for name in found[0][0]:
            rows.append(_row(method, name, np.concatenate([one[0][name] for one in found]), member, wrong))
        notes.append(f"{method}: test accuracy {', '.join(f'{one[3]:.1%}' for one in found)}.")
    table = _markdown(rows)
    Console().print(table, highlight=False)
    if options.record:
        counts = f"{int(member.sum())} members and {int((~member).sum())} others a row, {options.seeds} target run(s)"
        notes = [f"{counts}, {options.shadows} shadows for each; 95 % intervals.", *notes]
        write_result("Digits, membership from the models alone", table, rows, base, notes)


def _attack(config: Config, options: ModelAttacks) -> tuple[dict[str, Array], NDArray[Any], NDArray[Any], float]:
    """Scores by attack, who is a member, whose label is wrong, and the target's accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        scene = _scene(config, Path(folder))
        spec = load(scene.config)[0].spec
        target = run(scene.config)
        weights = [*sent_models(open_view(target.folder)).values(), target.weights]
    predict = predictor(scene.config, spec)
    own = np.stack([predict(each, scene.candidates.images) for each in weights])
    population = predict(target.weights, scene.population.images)
    shadows = train_shadows(
        scene.config,
        spec,
        scene.candidates,
        scene.test,
        shadows=options.shadows,
        seed=config.seed,
        population=scene.population.images,
    )
    x, z, inside = scene.candidates.labels, scene.population.labels, shadows.inside
    losses = -label_column(own, x)
    lira = (logit_confidence(own[-1], x), logit_confidence(shadows.candidates, x), inside)
    likely = (np.exp(-losses[-1]), np.exp(label_column(shadows.candidates, x)), inside)
    points = Population(np.exp(label_column(population, z)), np.exp(label_column(shadows.population, z)))
    scores = {
        "loss threshold": loss_threshold(losses),
        "loss series, mean": loss_mean(losses[1:]),
        "loss series, trend": loss_trend(losses),
        "LiRA online": lira_online(*lira),
        "LiRA offline": lira_offline(*lira),
        "RMIA online": rmia_online(*likely, points),
        "RMIA offline": rmia_offline(*likely, points),
    }
    return scores, scene.member, scene.wrong, target.summary.accuracy_last10


def _scene(config: Config, folder: Path) -> Scene:
    """Cut the digits, give everybody a label by one process, and lay the target's half down as a file."""
    source, randomness = load_source(config.data), Randomness(config.seed)
    images, true = source.train.take(np.arange(len(source.train))), source.true_labels
    member = np.zeros(len(true), np.bool_)
    member[randomness.numpy("members").permutation(len(true))[: len(true) // 2]] = True
    test = Labelled(source.test.take(np.arange(len(source.test))), source.test_labels)
    changes = {"dataset": "npz", "path": folder / "half.npz", "out": folder / "run", "record_view": "uploads"}
    own = override(config, changes)
    write_npz(folder / "half.npz", Labelled(images[member], true[member]), test)
    given = true.copy()
    given[member] = _labels_of(own)
    given[~member] = _made_wrong(true[~member], config, config.federation.clients, "others")
    points = _made_wrong(test.labels, config, config.federation.clients // 2, "population")
    return Scene(own, Labelled(images, given), member, given != true, Labelled(test.images, points), test)


def _labels_of(config: Config) -> Labels:
    """The given labels of the run's training images, in their order."""
    shards = load(config)[0].shards
    order = np.argsort(np.concatenate([shard.index for shard in shards]))
    return np.concatenate([shard.labels for shard in shards])[order]


def _made_wrong(true: Labels, config: Config, clients: int, who: str) -> Labels:
    """Labels as if the images belonged to so many clients of another federation of the same kind."""
    other = Randomness(Randomness(config.seed).integer(who))
    shards = partition(true, clients, config=config.partition, randomness=other)
    made = corrupt(true, shards, classes=int(true.max()) + 1, config=config.noise, randomness=other)
    given = true.copy()
    given[np.concatenate(shards)] = np.concatenate(made.labels)
    return given


def _row(method: str, attack: str, scores: Array, member: NDArray[Any], wrong: NDArray[Any]) -> dict[str, Any]:
    """AUC and rates over all candidates, and the AUC among those with a wrong label, who are easiest to find."""
    everyone, mislabelled = evaluate(scores, member), evaluate(scores[wrong], member[wrong])
    assert everyone is not None and mislabelled is not None, "both halves have wrong labels"
    cells = {"AUC": str(everyone.auc), **_rates(everyone), "AUC, wrong labels": str(mislabelled.auc)}
    return {"method": method, "attack": attack, **cells, "TPR at 1 %, wrong labels": _rates(mislabelled)["TPR at 1 %"]}


def _rates(metrics: Metrics) -> dict[str, str]:
    names = ("TPR at 10 %", "TPR at 1 %")
    pairs = zip(names, metrics.points, strict=False)
    return {name: "undefined" if point is None else str(point.tpr) for name, point in pairs}


def _markdown(rows: list[dict[str, Any]]) -> str:
    head: Mapping[str, Any] = rows[0]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *[f"| {' | '.join(map(str, row.values()))} |" for row in rows]])


if __name__ == "__main__":
    main()
