"""The figures of a run, and the style of all figures: colour-blind safe (Okabe and Ito 2008), readable in print."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedgr_secure.app.attack_report import draw_roc
from fedgr_secure.app.runfolder import LossHistogram, RunData
from fedgr_secure.app.tables import METHOD_NAMES, data_size, duration, number, percent
from fedgr_secure.config import data_name
from fedgr_secure.errors import InputError
from fedgr_secure.files import make_folder, write_atomic
from fedgr_secure.records import MixtureRecord, RoundRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BLACK, GREY = "#000000", "#595959"
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # names of phases and data are text, whatever characters they hold
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.7,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,  # text stays text
}

Subject = TypeVar("Subject")


def run_title(run: RunData) -> str:
    """Method, data and seed, such as "FedGR on digits, seed 0"."""
    config = run.config
    return f"{METHOD_NAMES.get(config.method, config.method)} on {data_name(config)}, seed {config.seed}"


def last_and_best(rounds: Sequence[RoundRecord]) -> tuple[float, RoundRecord]:
    """Mean test accuracy of the last ten rounds (or of all, if fewer), and the best round (the first of equals)."""
    last = rounds[-10:]
    return fmean(record.accuracy for record in last), max(rounds, key=lambda record: record.accuracy)


def accuracy_figure(run: RunData) -> Figure | None:
    """Test accuracy by round, with the end of the warm-up, the best round and the mean of the last ten."""
    if not run.rounds:
        return None
    figure, (axes,) = _new(run, "Test accuracy by round")
    mean, best = last_and_best(run.rounds)
    last = [record.round + 1 for record in run.rounds[-10:]]
    _round_axis(axes, run.rounds)
    _curve(axes, run.rounds, "accuracy", label="test accuracy", colour=BLUE, marker="o")
    label = f"best: {percent(best.accuracy)} (round {best.round + 1})"
    axes.plot(best.round + 1, best.accuracy, "D", color=VERMILION, markersize=7, label=label, zorder=4)
    label = f"mean of the last {len(last)}: {percent(mean)}"
    axes.plot([last[0] - 0.4, last[-1] + 0.4], [mean, mean], color=ORANGE, linewidth=4, label=label, zorder=1.5)
    axes.set_ylabel("test accuracy (%)")
    percent_axis(axes.yaxis)
    axes.legend(loc="lower right")
    return figure


def noise_figure(run: RunData) -> Figure | None:
    """Correlation of the noise rates, right verdicts and memorised wrong labels, by round; what applies of them."""
    curves = (
        ("noise_rate_pearson", "Pearson of estimated and true noise rates", BLUE, "o"),
        ("mislabel_accuracy", "share of clean-or-wrong verdicts that are right", GREEN, "s"),
        ("memorised_share", "share of wrong labels that the model repeats", VERMILION, "^"),
    )
    known = [c for c in curves if any(getattr(record, c[0]) is not None for record in run.rounds)]
    if not known:
        return None
    sieve = any(field != "memorised_share" for field, *_ in known)
    what = "How well the noise is recognised" if sieve else "How much of the noise the model learns"
    figure, (axes,) = _new(run, what, height=4.0)
    _round_axis(axes, run.rounds)
    for field, label, colour, marker in known:
        _curve(axes, run.rounds, field, label=label, colour=colour, marker=marker)
    low = min(getattr(r, c[0]) for c in known for r in run.rounds if getattr(r, c[0]) is not None)
    axes.set_ylim(min(0.0, low) - 0.03, 1.03)
    axes.set_ylabel("share, or correlation (no unit)" if sieve else "share (no unit)")
    figure.legend(loc="outside lower left", ncols=2)
    return figure


def losses_figure(run: RunData) -> Figure | None:
    """Final running-mean losses by the truth, stacked, with the fitted mixture scaled to counts."""
    if run.losses is None:
        return None
    losses = run.losses
    note = losses.mixture.note if losses.mixture is not None and losses.mixture.note else ""
    figure, (axes,) = _new(run, "Running-mean losses of all samples", extra=note)
    widths = [high - low for low, high in zip(losses.edges, losses.edges[1:], strict=False)]
    bars: dict[str, Any] = {"width": widths, "align": "edge", "edgecolor": "white", "linewidth": 0.4}
    axes.bar(losses.edges[:-1], losses.clean, color=SKY, label="label is right", **bars)
    axes.bar(
        losses.edges[:-1],
        losses.wrong,
        bottom=losses.clean,
        color=VERMILION,
        hatch="////",
        label="label is wrong",
        **bars,
    )
    if losses.mixture is not None:
        _mixture_curves(axes, losses, losses.mixture)
    axes.set(xlabel="running-mean loss (nats)", ylabel="samples per bin", xlim=(losses.edges[0], losses.edges[-1]))
    axes.set_ylim(0, 1.08 * max(1, *(c + w for c, w in zip(losses.clean, losses.wrong, strict=True))))
    axes.legend(loc="upper right")
    return figure


def mixture_counts(losses: LossHistogram, mixture: MixtureRecord, x: float) -> tuple[float, float]:
    """Samples per bin that each component of the mixture expects at loss `x`: n * bin width * weight * density.

    >>> losses = LossHistogram((0.0, 1.0, 2.0), (10, 0), (0, 10), None)
    >>> mixture = MixtureRecord((0.5, 1.5), (0.25, 0.25), (0.5, 0.5), None)
    >>> round(mixture_counts(losses, mixture, 0.5)[0], 3)  # 20 * 1 * 0.5 / sqrt(2 pi 0.25)
    7.979
    """
    index = next((i for i, edge in enumerate(losses.edges[1:]) if x < edge), len(losses.clean) - 1)
    scale = (sum(losses.clean) + sum(losses.wrong)) * (losses.edges[index + 1] - losses.edges[index])
    clean, wrong = (
        scale * weight * math.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
        for mean, variance, weight in zip(mixture.means, mixture.variances, mixture.weights, strict=True)
    )
    return clean, wrong


def _mixture_curves(axes: Axes, losses: LossHistogram, mixture: MixtureRecord) -> None:
    low, high = losses.edges[0], losses.edges[-1]
    xs = [low + (high - low) * i / 600 for i in range(601)]
    counts = [mixture_counts(losses, mixture, x) for x in xs]
    axes.plot(xs, [sum(pair) for pair in counts], color="#B0B0B0", linewidth=4, label="fitted mixture")
    axes.plot(xs, [clean for clean, _ in counts], color=BLUE, linestyle="--", label="fitted clean component")
    axes.plot(xs, [wrong for _, wrong in counts], color=BLACK, linestyle=":", label="fitted wrong component")


def clients_figure(run: RunData) -> Figure | None:
    """Estimated against true noise rate, a point per client that has an estimate."""
    known = [client for client in run.clients if client.estimated_rate is not None]
    if not known:
        return None
    pearson = run.summary.noise_rate_pearson if run.summary is not None else None
    extra = f"Pearson {number(pearson) if pearson is not None else 'undefined'}"
    figure, (axes,) = _new(run, "Estimated against true noise rate per client", extra=extra, height=5.0)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.1, label="estimate = truth")
    for index, kind in enumerate(sorted({client.noise_kind for client in known})):
        points = [client for client in known if client.noise_kind == kind]
        axes.scatter(
            [c.realised_rate for c in points],
            [c.estimated_rate or 0.0 for c in points],
            s=42,
            color=(BLUE, VERMILION, GREEN, PURPLE)[index % 4],
            marker="os^D"[index % 4],
            edgecolor="white",
            linewidth=0.6,
            label=f"noise: {kind} ({len(points)} client{'s' * (len(points) != 1)})",
        )
    top = max(max(c.realised_rate, c.estimated_rate or 0.0) for c in known)
    limit = min(1.03, math.ceil(10 * top + 0.5) / 10)
    axes.set(xlabel="true share of wrong labels (%)", ylabel="estimated share of wrong labels (%)", aspect="equal")
    axes.set(xlim=(-0.03, limit), ylim=(-0.03, limit))
    percent_axis(axes.xaxis, axes.yaxis)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return figure


def seconds_by_phase(run: RunData) -> dict[str, float]:
    """Wall seconds per phase: of the summary, or of the rounds that are there."""
    if run.summary is not None:
        return run.summary.seconds_by_phase
    total: dict[str, float] = {}
    for timing in run.timings:
        for phase, seconds in timing.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total


def cost_figure(run: RunData) -> Figure | None:
    """Seconds by phase, and what clients and server sent."""
    seconds = seconds_by_phase(run)
    if not run.rounds or not seconds:
        return None
    figure, (left, right) = _new(run, "What the run cost", columns=2, height=1.9 + 0.28 * max(3, len(seconds)))
    bars(left, list(seconds), list(seconds.values()), [duration(s) for s in seconds.values()], colour=BLUE)
    left.set_xlabel("wall time by phase (s)")
    sent = [sum(r.bytes_up for r in run.rounds), sum(r.bytes_down for r in run.rounds)]
    names = ["sent by clients", "sent by server"]
    bars(right, names, [count / 1e6 for count in sent], [data_size(count) for count in sent], colour=ORANGE)
    right.set_xlabel("data sent (MB; 1 MB = 10^6 bytes)")
    return figure


def attacks_figure(run: RunData) -> Figure | None:
    """ROC curves of attacks on the run."""
    if run.attacks is None or all(outcome.metrics is None for outcome in run.attacks.outcomes):
        return None
    figure, (axes,) = _new(run, "Attacks: members found against others taken for members", height=4.4)
    draw_roc(run, axes)
    return figure


def bars(axes: Axes, names: list[str], values: list[float], texts: list[str], *, colour: str) -> None:
    """Horizontal bars from the top down, each with its value."""
    bars = axes.barh(range(len(names)), values, color=colour, height=0.65)
    axes.set_yticks(range(len(names)), names)
    axes.bar_label(bars, texts, padding=3, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35 * max([*values, 1e-9]))
    axes.grid(visible=False, axis="y")


def _new(
    run: RunData, what: str, *, extra: str = "", columns: int = 1, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, titled with what it shows and of which run."""
    figure, axes = new_figure(what, columns=columns, height=height)
    axes[0].set_title(": ".join([run_title(run), *([extra] if extra else [])]), loc="left", color=GREY)
    return figure, axes


def new_figure(what: str, *, rows: int = 1, columns: int = 1, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure as wide as a page, titled with what it shows, and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    figure.suptitle(what, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def percent_axis(*axes: Axis) -> None:
    """Label shares in percent, without the sign."""
    from matplotlib.ticker import FuncFormatter

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}"))


def _round_axis(axes: Axes, rounds: Sequence[RoundRecord]) -> None:
    """Rounds counted from 1, and where the warm-up ends."""
    from matplotlib.ticker import MaxNLocator

    last = rounds[-1].round + 1
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set(xlabel="round", xlim=(0.5 - 0.02 * last, last + 0.5 + 0.02 * last))
    warmup = [record.round + 1 for record in rounds if record.stage == "warm-up"]
    if warmup and warmup[-1] < last:
        axes.axvline(warmup[-1] + 0.5, color=GREY, linestyle="--", linewidth=1.1, label="warm-up ends")


def _curve(axes: Axes, rounds: Sequence[RoundRecord], field: str, *, label: str, colour: str, marker: str) -> None:
    """One field of the records over the rounds that have it, with markers where they are sparse."""
    points = [(r.round + 1, value) for r in rounds if (value := getattr(r, field)) is not None]
    xs, ys = zip(*points, strict=True)
    every = max(1, len(points) // 15)
    axes.plot(xs, ys, color=colour, marker=marker, markersize=4.5, markevery=every, label=label)


@dataclass(frozen=True)
class FigureKind(Generic[Subject]):
    """A figure: its file name, how it is drawn (None: does not apply), what it is in words, and what it says."""

    file: str
    draw: Callable[[Subject], Figure | None]
    alt: str
    caption: str


FIGURES = (
    FigureKind(
        "accuracy.png",
        accuracy_figure,
        "Line chart of the global model's test accuracy over the rounds.",
        "The share of test images that the global model classifies correctly after each round; the result of a run is "
        "the mean of its last ten rounds, since the best round can be luck.",
    ),
    FigureKind(
        "noise.png",
        noise_figure,
        "Line chart over the rounds of noise-rate correlation, right verdicts and memorised wrong labels.",
        "The share of wrong labels that the model repeats (memorises) should stay low; correlation and right "
        "verdicts, for a method that judges labels, should rise to 1.",
    ),
    FigureKind(
        "losses.png",
        losses_figure,
        "Stacked histogram of the samples' losses, split into right and wrong labels.",
        "Wrongly labelled samples keep a high loss under the global model, and the less the two groups overlap, the "
        "better they can be told apart.",
    ),
    FigureKind(
        "clients.png",
        clients_figure,
        "Scatter chart of estimated against true noise rate, one point per client.",
        "Each point is a client, and a point on the dashed line is a perfect estimate of the client's share of wrong "
        "labels.",
    ),
    FigureKind(
        "cost.png",
        cost_figure,
        "Bar charts of the seconds spent by phase and of the data sent by clients and by the server.",
        "Where the time went, and how much data all clients and the server sent in total.",
    ),
    FigureKind(
        "attacks.png",
        attacks_figure,
        "ROC curves of the attacks on logarithmic axes, over the region that the privacy claim allows.",
        "How many members an attack finds (upwards) at how many false alarms (to the right); on the dashed line it "
        "guesses. A shaded region, if there is one, is what the claim allows to attacks on what it names.",
    ),
)


def write_figures(run: RunData, folder: Path) -> tuple[str, ...]:
    """Draw the figures that apply to `run` as PNG files in `folder / "figures"`; returns their names.

    Raises:
        InputError: a number of the run is beyond what can be drawn.
    """
    return draw_all(FIGURES, run, folder)


def draw_all(
    kinds: Sequence[FigureKind[Subject]], subject: Subject, folder: Path, formats: Sequence[str] = ("png",)
) -> tuple[str, ...]:
    """Draw the figures that apply in `folder / "figures"`, in each format; returns the names of the PNG files.

    Raises:
        InputError: a number is beyond what can be drawn.
    """
    import matplotlib

    target = folder / "figures"
    make_folder(target)
    names = []
    with matplotlib.rc_context(STYLE):
        for kind in kinds:
            with showing(folder, kind.file):
                figure = kind.draw(subject)
                if figure is not None:
                    _save(figure, target / kind.file, formats)
                    names.append(kind.file)
    return tuple(names)


def _save(figure: Figure, path: Path, formats: Sequence[str]) -> None:
    """Without a date in it, so that equal figures are equal files."""
    for kind in formats:
        own = path.with_suffix(f".{kind}")
        drawn = io.BytesIO()  # to a full disk matplotlib's own writing ends in errors of all kinds
        figure.savefig(drawn, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
        write_atomic(own, drawn.getvalue())


@contextmanager
def showing(folder: Path, what: str) -> Iterator[None]:
    """Refuse a run whose numbers are beyond what a figure or a page can show.

    Raises:
        InputError: arithmetic with them failed inside; names the run and what was being made.
    """
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise InputError(f"{folder}: {what} cannot be made of this run's numbers: {error}") from None
