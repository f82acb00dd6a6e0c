"""What leaves the client in every method, and what it gives away: attacks on digits, in the clear but where it says.

900 of the training digits are used, so that 897 records are left outside; 300 of these are the attacker's references.
Membership and rates of wrong labels are of IID runs; the mix of labels is of runs with a Dirichlet (.3) partition, as
IID clients have none to find. Every update is recorded, as a server in the clear receives it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tyro
from rich.console import Console

from attacks.harness import LIST, attack
from attacks.metrics import Interval, Metrics, evaluate, share
from attacks.results import Outcome, Scored
from benchmarks.common import PUBLISHED, Options, write_result
from fedgr_secure.app import presets
from fedgr_secure.app.sweep import Cell, cell_folder, slug, sweep
from fedgr_secure.app.tables import ABSENT, METHOD_NAMES
from fedgr_secure.config import override
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import Config

TITLE = "Digits, what leaves the client and what it gives away"
_HEAD = (
    *("Method", "What leaves the client", "Record of this client: AUC [95 %]", "TPR at 1 %", "Record of anybody: AUC"),
    *("Whose record: right", "Wrong labels of a client: correlation", "Mix of labels: correlation"),
)
NOTES = (
    "Members are all records, with the labels that they were trained with; others get one by the noise of a client.",
    "AUC, TPR and right answers: scores of all seeds together. Correlations: mean over seeds, with the least and the "
    "largest.",
    "Of several attacks or estimates of the same upload the one with the largest figure is shown, which is picked in "
    "hindsight.",
    "The local model is attacked by how far a record's loss fell in the client's newest training, and by how much "
    "surer it became of the image, whatever the label. By chance a twentieth of the answers to whose a record is are "
    "right.",
    "From a list (`subsets`): the attacker has a list with every record of the client, each with its label: those and "
    "597 others (a record of this client), all 900 and 597 others (of anybody), or all 900 (whose). No other row needs "
    "one.",
    "The attacks are those that this project ships; stronger ones may exist.",
)
Played = dict[str, list[tuple[Outcome, Scored]]]
"""by attack and game, one a seed"""


@dataclass(frozen=True)
class Uplinks(Options):
    """Methods compared."""

    seeds: int = 3


def variants() -> dict[str, dict[str, Any]]:
    """What is run, by name."""
    others = [name for name in METHODS if name not in ("fedgr", "fedprox", "central")]
    rows: dict[str, dict[str, Any]] = {"FedGR, plain": PUBLISHED}
    rows["FedGR, noisy, Laplace once, epsilon 1"] = PUBLISHED | {"channel": "noisy", "epsilon": 1.0}
    rows["FedGR, histogram, epsilon 1, secure sums"] = {"secagg": True, "channel": "histogram", "epsilon": 1.0}
    return rows | {METHOD_NAMES.get(name, name): PUBLISHED | {"method": name} for name in others}


def main() -> None:
    """Run, attack, record."""
    options = tyro.cli(Uplinks, description=__doc__)
    base = override(presets.load("digits"), {"train_size": 900, "record_view": "all"})
    even = _played(options, base, "iid", variants())
    skewed = {name: changes for name, changes in variants().items() if "classes.classes" in even[name]}
    uneven = _played(options, base, "dirichlet", skewed)
    rows = [row for name, played in even.items() for row in rows_of(name, played, uneven.get(name, {}))]
    lines = ["| " + " | ".join(_HEAD) + " |", "| --- | --- |" + " ---: |" * (len(_HEAD) - 2)]
    lines += ["| " + " | ".join(words) + " |" for words, _ in rows]
    Console().print("\n".join(lines), highlight=False)
    if options.record:
        write_result(TITLE, "\n".join(lines), [data for _, data in rows], base, NOTES)


def _played(
    options: Uplinks, base: Config, partition: str, wanted: Mapping[str, Mapping[str, Any]]
) -> dict[str, Played]:
    """The attacks on every variant, by its name."""
    console, root = Console(), options.runs / slug(TITLE)
    cells = [
        Cell(
            name,
            override(
                base,
                {
                    **changes,
                    "partition": partition,
                    "seed": seed,
                    "out": cell_folder(root, f"{name} {partition}", seed),
                },
            ),
        )
        for seed in range(options.seeds)
        for name, changes in wanted.items()
    ]
    found: dict[str, Played] = defaultdict(lambda: defaultdict(list))
    for outcome in sweep(cells, jobs=options.jobs, on_done=lambda one: console.print(f"{one.cell.name}: done")):
        assert outcome.summary is not None and outcome.cell.config.output.out is not None, outcome.error
        attacked, scores = attack(outcome.cell.config.output.out, seed=outcome.cell.config.seed)
        for one in attacked.outcomes:
            key = f"{one.attack}.{one.game}"
            found[outcome.cell.name][key].append((one, scores[key]))
    return found


def rows_of(name: str, iid: Played, dirichlet: Played) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """The table's rows of one variant, one for each thing that leaves its clients: words, and figures."""
    return [_row(name, subject, _on(iid, subject), _on(dirichlet, subject)) for subject in subjects(iid)]


def subjects(played: Played) -> list[str]:
    """What was attacked, models last."""
    found = dict.fromkeys(_attacked(parts[0][0]) for parts in played.values())
    return sorted(found, key=lambda subject: subject == "model weights")


def _attacked(outcome: Outcome) -> str:
    """What was read, and whether that took a list of the records."""
    return outcome.subject + (", from a list" if outcome.assumes == LIST else "")


def _on(played: Played, subject: str) -> Played:
    return {key: parts for key, parts in played.items() if _attacked(parts[0][0]) == subject}


def _row(name: str, subject: str, iid: Played, dirichlet: Played) -> tuple[tuple[str, ...], dict[str, Any]]:
    target, anybody = strongest(iid, "target"), strongest(iid, "any")
    whose, rates, classes = _right(iid), best_correlation(iid, "rates"), best_correlation(dirichlet, "classes")
    words = (
        name,
        subject,
        ABSENT if target is None else str(target.auc),
        ABSENT if target is None or target.points[1] is None else str(target.points[1].tpr),
        ABSENT if anybody is None else str(anybody.auc),
        ABSENT if whose is None else str(whose),
        *(ABSENT if of is None else f"{of.value:.2f} ({of.low:.2f} to {of.high:.2f})" for of in (rates, classes)),
    )
    figures = {"target": target, "any": anybody, "source": whose, "rates": rates, "classes": classes}
    kept = {key: None if value is None else asdict(value) for key, value in figures.items()}
    return words, {"method": name, "subject": subject, **kept}


def strongest(played: Played, game: str) -> Metrics | None:
    """Of the attacks in a game of membership the one with the largest area, over all seeds."""
    found = []
    for parts in played.values():
        if parts[0][0].game == game and parts[0][0].metrics is not None:
            scores, truth = _together([scored for _, scored in parts])
            found.append(evaluate(scores, truth))
    return max((one for one in found if one is not None), key=lambda one: one.auc.value, default=None)


def _right(played: Played) -> Interval | None:
    """The share of records whose client is named rightly, by the attack that names the most."""
    answers = [[scored for _, scored in parts] for parts in played.values() if parts[0][0].game == "source"]
    found = [share(_together(parts)[0] > 0.5) for parts in answers]
    return max((one for one in found if one is not None), key=lambda one: one.value, default=None)


def _together(parts: Sequence[Scored]) -> tuple[Any, Any]:
    return np.concatenate([one.scores for one in parts]), np.concatenate([one.truth for one in parts])


def best_correlation(played: Mapping[str, list[tuple[Outcome, Scored]]], attack: str) -> Interval | None:
    """The mean over seeds, with the least and the largest, of the estimate that correlates best."""
    found = []
    for parts in played.values():
        values = [one.correlation.value for one, _ in parts if one.attack == attack and one.correlation is not None]
        if values:
            found.append(Interval(float(np.mean(values)), min(values), max(values)))
    return max(found, key=lambda one: one.value, default=None)


if __name__ == "__main__":
    main()
