"""The command `attack`: attacks on a recorded run, their record, and gates for scripts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from attacks.harness import attack as play
from attacks.metrics import FALSE_POSITIVE_RATES, Interval
from attacks.results import FILE, SCORES, Attacked, Outcome, Scored, read_results, read_scores, write_results
from fedgr_secure.app import attack_report
from fedgr_secure.app.output import Output
from fedgr_secure.app.report import write_report
from fedgr_secure.app.tables import ABSENT, number
from fedgr_secure.checks import sums_securely
from fedgr_secure.errors import nearest, require
from fedgr_secure.federation.folder import RunFolder

_MEASURES = ("auc", "tpr10", "tpr1", "tpr0.1", "share", "correlation")


@dataclass(frozen=True)
class Gate:
    """A bound that no outcome may be above.

    Attributes:
        game: of the outcomes that it is about; None: of all.
        measure: one of auc, tpr10, tpr1, tpr0.1 (at that false positive rate in percent), share, correlation.
        most: the bound.
    """

    game: str | None
    measure: str
    most: float

    @classmethod
    def read(cls, text: str) -> Gate:
        """From `[GAME:]MEASURE=BOUND`.

        Raises:
            InputError: it is none.

        >>> Gate.read("row:tpr0.1=0.05")
        Gate(game='row', measure='tpr0.1', most=0.05)
        """
        name, equals, bound = text.partition("=")
        game, colon, measure = name.rpartition(":")
        form = "allowed: [GAME:]MEASURE=BOUND, such as auc=0.6 or row:tpr1=0.05"
        require(bool(equals), f"fail_above: {text}, {form}")
        require(
            measure in _MEASURES,
            f"fail_above: {measure!r}{nearest(measure, _MEASURES)}, allowed measures: {', '.join(_MEASURES)}",
        )
        try:
            most = float(bound)
        except ValueError:
            most = float("nan")
        require(-1 <= most <= 1, f"fail_above: bound {bound!r}, allowed: a number from -1 to 1")
        return cls(game if colon else None, measure, most)

    def applies(self, outcome: Outcome) -> bool:
        """Whether it is about this outcome."""
        return self.game in (None, outcome.game) and self.value(outcome) is not None

    def value(self, outcome: Outcome) -> Interval | None:
        """What the outcome measured of it; None where that is undefined."""
        if self.measure in ("share", "correlation"):
            value: Interval | None = getattr(outcome, self.measure)
            return value
        if outcome.metrics is None:
            return None
        if self.measure == "auc":
            return outcome.metrics.auc
        point = outcome.metrics.points[_MEASURES.index(self.measure) - 1]
        return point.tpr if point is not None else None

    def broken(self, outcome: Outcome) -> bool:
        """Whether the outcome lies above it with its whole interval."""
        value = self.value(outcome)
        return value is not None and value.low > self.most


def attack(
    run: Path, *, attacks: Sequence[str], fail_above: Sequence[str], seed: int, shadows: int, as_json: bool
) -> int:
    """Attack a run, leave `attacks.json`, `attacks.npz` and a section of the report.

    Returns:
        1 when a gate is broken, else 0.

    Raises:
        InputError: no such attack or gate, no finished run, or nothing recorded.
    """
    gates = [Gate.read(text) for text in fail_above]
    attacked, scores = play(run, attacks, seed=seed, shadows=shadows)
    write_results(run, *_with_earlier(run, attacked, scores))
    page = write_report(run)
    broken = [
        f"{gate.measure} of {one.attack}, {one.game}: {gate.value(one)}, allowed: {gate.most:g}"
        for gate in gates
        for one in attacked.outcomes
        if gate.applies(one) and gate.broken(one)
    ]
    console = Output(quiet=as_json)
    console.print(_table(attacked.outcomes))
    for outcome in attacked.outcomes:
        console.say(attack_report.words(outcome))
    if not attacks and not any(outcome.subject == "loss proxies" for outcome in attacked.outcomes):
        console.say("No loss proxies were seen: the method sends none, or none was due in these rounds.")
    if not attacks and _unrecorded_models(run):
        console.say("Clients' own models came up in the clear and are not in this view: --record-view all keeps them.")
    console.say(f"report: {page}")
    for gate in gates:
        found = any(gate.applies(outcome) for outcome in attacked.outcomes)
        require(found, f"fail_above: {gate.game or 'any game'}: {gate.measure}: undefined or not measured in this run")
    if as_json:
        Output().say(json.dumps(dataclasses.asdict(attacked) | {"broken": broken}))
    for line in broken:
        Output(stderr=True).say(f"above the gate: {line}", style="red")
    return 1 if broken else 0


def _unrecorded_models(run: Path) -> bool:
    """Whether the server saw more than was recorded: every client's weights."""
    config = RunFolder(run).config()
    return not sums_securely(config) and config.output.record_view != "all" and config.method != "central"


def _with_earlier(run: Path, attacked: Attacked, scores: Mapping[str, Scored]) -> tuple[Attacked, Mapping[str, Scored]]:
    """With what other attacks of the same seed came to before, so that the report keeps them."""
    before = read_results(run)
    if before is None or before.seed != attacked.seed:
        return attacked, scores
    anew = {outcome.attack for outcome in attacked.outcomes}
    kept = [outcome for outcome in before.outcomes if outcome.attack not in anew]
    earlier, names = read_scores(run), [f"{outcome.attack}.{outcome.game}" for outcome in kept]
    require(
        all(name in earlier for name in names), f"{run / SCORES}: lacks scores that {FILE} names; remove both files"
    )
    return (
        dataclasses.replace(
            attacked,
            outcomes=(*kept, *attacked.outcomes),
            tried=tuple(dict.fromkeys((*before.tried, *attacked.tried))),
        ),
        {name: earlier[name] for name in names} | dict(scores),
    )


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for name in ("Attack, game", "AUC", *(f"TPR@{rate:.1%}" for rate in FALSE_POSITIVE_RATES), "Right / corr."):
        table.add_column(name, justify="left" if name.startswith("Attack") else "right")
    for one in outcomes:
        points = one.metrics.points if one.metrics is not None else (None,) * len(FALSE_POSITIVE_RATES)
        shown = [number(point.tpr.value) if point is not None else _missing(one) for point in points]
        other = one.share or one.correlation
        table.add_row(
            f"{one.attack}, {one.game}",
            number(one.metrics.auc.value) if one.metrics is not None else ABSENT,
            *shown,
            number(other.value) if other is not None else ABSENT,
        )
    return table


def _missing(outcome: Outcome) -> str:
    return attack_report.UNDEFINED if outcome.metrics is not None else ABSENT
