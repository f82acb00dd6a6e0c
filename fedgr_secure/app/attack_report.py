"""The report's part on attacks: a table of games, and in plain words what the server can and cannot do."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from attacks.metrics import FALSE_POSITIVE_RATES, Interval, Metrics, OperatingPoint, Scores, roc
from attacks.results import FILE, SCORES, Attacked, Outcome, read_scores
from fedgr_secure.app.html import table
from fedgr_secure.app.runfolder import RunData
from fedgr_secure.app.tables import ABSENT, number, percent
from fedgr_secure.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
UNDEFINED = "undefined"
HEAD = (
    *("Attack", "Question", "Attacker also has", "Members, others", "AUC [95 %]"),
    *(f"TPR at {percent(rate)} FPR" for rate in FALSE_POSITIVE_RATES),
    *("Balanced accuracy", "Advantage", "Right answers", "Correlation", "Chance", "Allowed by the claim"),
)


def attack_section(run: RunData) -> str:
    """What attacks on the run came to; empty where there were none."""
    if run.attacks is None:
        return ""
    sentences = "".join(f"\n<li>{escape(words(outcome))}</li>" for outcome in run.attacks.outcomes)
    notes = (
        '<p class="note">TPR: share of members found; FPR: share of others taken for members, as realised where scores '
        "tie. Intervals are 95 %: bootstrap (AUC), Clopper-Pearson (TPR, shares), Fisher (correlation). "
        "Balanced accuracy and advantage are of the best threshold in hindsight. "
        f'"{UNDEFINED}": too few records from outside for such a rate. The attacker has the recorded view, the public '
        "plan, its own models, and what the table says. Intervals take candidates as independent. A claim covers what "
        "it names: an attack on loss proxies also shows what the models themselves tell of members (threshold, "
        "series), which only a claim on the weights covers.</p>"
    )
    return (
        "<section>\n<h2>Attacks: what the server finds out</h2>\n"
        f"<ul>{sentences}\n</ul>\n{table(HEAD, rows(run.attacks))}\n{notes}\n</section>"
    )


def rows(attacked: Attacked) -> list[tuple[str, ...]]:
    """The table, a row for each attack and game; the columns are `HEAD`."""
    return [
        (
            f"{one.attack}, {one.game}" if one.attack != one.game else one.attack,
            one.question,
            one.assumes,
            ABSENT if one.metrics is None else f"{one.metrics.members:,}, {one.metrics.others:,}",
            ABSENT if one.metrics is None else str(one.metrics.auc),
            *_points(one.metrics),
            number(one.metrics.balanced_accuracy if one.metrics is not None else None),
            number(one.metrics.advantage if one.metrics is not None else None),
            _interval(one.share),
            ABSENT if one.correlation is None else str(one.correlation),
            number(one.chance),
            _allowed(one),
        )
        for one in attacked.outcomes
    ]


def words(outcome: Outcome) -> str:
    """One sentence about an outcome."""
    if outcome.metrics is not None:
        return f"{_asked(outcome)} {_of_metrics(outcome.metrics)}{_promise(outcome)}"
    if outcome.share is not None and outcome.chance is not None:
        how = "no better than chance" if outcome.share.low <= outcome.chance else "better than chance"
        return (
            f"{_asked(outcome)} {percent(outcome.share.value)} of the answers are right, {how} "
            f"({percent(outcome.chance)})."
        )
    if outcome.correlation is not None:
        how = "they tell something" if outcome.correlation.low > 0 else "nothing that can be told from chance"
        return f"{_asked(outcome)} Estimates correlate with the truth at {outcome.correlation}: {how}."
    return f"{_asked(outcome)} Undefined: fewer than there must be to compare, or all alike."


def _asked(outcome: Outcome) -> str:
    question = outcome.question[:1].upper() + outcome.question[1:]
    return f"{question} ({outcome.attack})"


def _of_metrics(found: Metrics) -> str:
    point = next((point for point in reversed(found.points) if point is not None), None)
    area = f"area under the ROC {found.auc}"
    sure = next((one for one in reversed(found.points) if one is not None and one.better_than_guessing), None)
    if sure is None and found.auc.low <= 0.5 <= found.auc.high:
        return f"Not told from guessing ({area})."
    if sure is None and found.auc.high < 0.5:
        return f"Worse than guessing ({area}): what tells them apart points the other way."
    point = sure or point
    if point is None:
        return f"A{area[1:]}."
    if point.tpr.value == 0:
        return f"A{area[1:]}; nobody is found where at most {percent(point.wanted, 1)} of the others are taken for one."
    return (
        f"A{area[1:]}; {percent(point.tpr.value)} are found while {percent(point.realised.value, 2)} of the others are "
        "taken for one."
    )


def _promise(outcome: Outcome) -> str:
    if outcome.caps is None:
        return ""
    return (
        f" The claim of epsilon {outcome.caps.epsilon:g} on the {outcome.subject} allows them an area of "
        f"{number(outcome.caps.auc)}, beside what the models tell."
    )


def _points(found: Metrics | None) -> list[str]:
    return [ABSENT] * len(FALSE_POSITIVE_RATES) if found is None else [_point(point) for point in found.points]


def _point(point: OperatingPoint | None) -> str:
    if point is None:
        return UNDEFINED
    short = point.realised.value < point.wanted * 0.9
    return _interval(point.tpr) + (f" at {percent(point.realised.value, 2)}" if short else "")


def _interval(value: Interval | None) -> str:
    if value is None:
        return ABSENT
    return f"{percent(value.value)} [{percent(value.low)}, {percent(value.high)}]"


def _allowed(outcome: Outcome) -> str:
    if outcome.caps is None:
        return "everything" if outcome.metrics is not None else ABSENT
    rates = ", ".join(percent(rate, 2) for rate in outcome.caps.tpr)
    caps = outcome.caps
    best = f"balanced accuracy {number(caps.balanced_accuracy)}, advantage {number(caps.advantage)}"
    return f"AUC {number(caps.auc)}; TPR {rates}; {best}"


def draw_roc(run: RunData, axes: Axes) -> None:
    """Log-log ROC curves of every game of yes and no, over the region that the claim allows."""
    from attacks.caps import tpr_cap

    assert run.attacks is not None
    scores = read_scores(run.folder)
    played = [one for one in run.attacks.outcomes if one.metrics is not None]
    least = min([1e-2, *(1 / one.metrics.others for one in played if one.metrics)])
    line = np.geomspace(least, 1, 200)
    claimed = next((one for one in played if one.caps is not None), None)
    if claimed is not None and claimed.caps is not None:
        caps = claimed.caps
        top = tpr_cap(line, epsilon=caps.epsilon, delta=caps.delta)
        label = f"allowed by epsilon {caps.epsilon:g}\n({claimed.subject})"
        axes.fill_between(line, top, least, color="#DDDDDD", alpha=0.6, linewidth=0, label=label)
    roc_axes(axes, least=least)
    for place, one in enumerate(played):
        name = f"{one.attack}.{one.game}"
        require(name in scores, f"{run.folder / SCORES}: holds no scores of {name}, which {FILE} names")
        scored = scores[name]
        style: dict[str, Any] = {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKERS[place % len(_MARKERS)]}
        roc_curve(
            axes,
            *roc(scored.scores, scored.truth),
            int((~scored.truth).sum()),
            least=least,
            **style,
            label=f"{one.attack}, {one.game}",
        )
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def roc_axes(axes: Axes, *, least: float) -> None:
    """Logarithmic rates from `least` to 1, with the line of guessing."""
    from matplotlib.ticker import FuncFormatter

    axes.plot([least, 1], [least, 1], color="#595959", linestyle="--", linewidth=1.1, label="guessing")
    axes.set(xscale="log", yscale="log", xlim=(least, 1.05), ylim=(least, 1.1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    axes.set(xlabel="false positive rate", ylabel="true positive rate")


def roc_curve(axes: Axes, fpr: Scores, tpr: Scores, others: int, *, least: float, **style: Any) -> None:
    """The curve of an attack asked about so many others; below one of them it would be chance alone."""
    told = fpr >= 0.999 / others
    fpr, tpr = fpr[told], np.maximum(tpr[told], least)
    axes.step(fpr, tpr, where="post", markevery=max(1, len(fpr) // 12), markersize=4, **style)
