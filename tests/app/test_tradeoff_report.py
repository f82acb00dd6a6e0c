"""The trade-off report: what it says of rows that are made up, and what it compares them with."""

import dataclasses
from pathlib import Path

import pytest
import tradeoff_rows as made

from fedgr_secure.app import presets
from fedgr_secure.app.tradeoff.drawing import Study
from fedgr_secure.app.tradeoff.epsilon_figures import sieve_figure, utility_figure
from fedgr_secure.app.tradeoff.figures import FIGURES, certified_figure, front, leakage_figure, on_front
from fedgr_secure.app.tradeoff.published import ACCURACIES, SETTINGS, accuracy, compare, differences
from fedgr_secure.app.tradeoff.report import write_report
from fedgr_secure.config import override
from fedgr_secure.errors import InputError
from fedgr_secure.sections import Config

PAPER = override(presets.load("cifar10-paper"), {"channel": "plain", "secagg": False})


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The report of `made.full()` with everything drawn."""
    rows = made.full()
    return write_report(made.grid(rows), rows, tmp_path_factory.mktemp("full"), "The sentence.")


@pytest.fixture
def undrawn(monkeypatch):
    """Skip the drawing, which is most of a report's time, where a test is about words."""
    monkeypatch.setattr("fedgr_secure.app.tradeoff.report.draw_all", lambda *_: ())


def page(rows, tmp_path, **changes):
    return write_report(made.grid(rows, **changes), rows, tmp_path, "The sentence & <more>.").read_text()


def texts(figure):
    """Everything that is written in a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


class TestFront:
    @pytest.mark.parametrize(
        ("points", "expected"),
        [
            ([(0.5, 0.7), (0.6, 0.9), (0.6, 0.8), (1.0, 0.9)], [0, 1]),  # less use at the leak, more leak for the use
            ([(0.5, 0.9), (0.6, 0.8)], [0]),  # beaten in both
            ([(0.5, 0.9), (0.5, 0.9)], [0, 1]),  # equals do not beat each other
            ([(0.9, 0.9), (0.5, 0.1), (0.7, 0.5)], [0, 1, 2]),
            ([(0.5, 0.7)], [0]),
            ([], []),
        ],
    )
    def test_known_points(self, points, expected):
        assert front(points) == expected

    def test_an_attack_that_is_worse_than_guessing_is_no_better_privacy(self):
        below = made.measured(made.row("Below"), [made.summary(accuracy=0.8)], leaks=[made.leak(-0.5)])
        even = made.measured(made.row("Even"), [made.summary(accuracy=0.9)], leaks=[made.leak(-0.2)])
        assert below.strongest().metrics.auc.value < even.strongest().metrics.auc.value < 0.5
        assert [row.row.name for row in on_front([below, even])] == ["Even"]

    def test_rows_that_were_not_attacked_are_not_on_it(self):
        assert on_front([made.measured(made.row("FedAvg"), [made.summary()])]) == []


class TestFigures:
    @pytest.mark.slow
    def test_all_are_written_as_png_and_pdf(self, full):
        names = ["utility", "sieve", "leakage", "certified", "roc", "cost"]
        written = {path.name for path in (full.parent / "figures").iterdir()}
        assert written == {f"{name}.{kind}" for name in names for kind in ("png", "pdf")}
        for name in names:
            png = full.parent / "figures" / f"{name}.png"
            assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 10_000
            assert png.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
            assert png.with_suffix(".pdf").stat().st_size > 5_000

    def test_an_undefined_correlation_is_marked_and_counted(self):
        rows = [*made.open_rows(), made.private(0.5, pearson=[None, None]), made.private(1.0, pearson=[0.8, None])]
        figure = sieve_figure(Study.of(made.grid(rows), rows))
        words = texts(figure)
        assert "0/2" in words and "1/2" in words and "none" in words
        assert "claimed epsilon\nk/n: defined in k of n runs" in words
        hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
        assert len(hollow) == 2

    def test_without_undefined_correlations_nothing_is_said_of_them(self):
        rows = [*made.open_rows(), made.private(1.0)]
        words = texts(sieve_figure(Study.of(made.grid(rows), rows)))
        assert not any("undefined" in word or "/2" in word for word in words) and "none" not in words

    def test_a_level_line_that_is_undefined_is_named(self):
        plain = made.measured(made.row("FedGR, plain", channel="plain"), [made.summary(pearson=None)])
        rows = [plain, made.private(1.0)]
        words = " ".join(texts(sieve_figure(Study.of(made.grid(rows), rows))))
        assert "undefined: FedGR, plain" in words.replace("\n", " ")

    def test_series_are_told_apart_without_colour(self):
        rows = made.full()
        study = Study.of(made.grid(rows), rows)
        names = ("FedAvg", "FedGR, plain", "FedGR, histogram")
        styles = [study.style(next(row.row for row in rows if row.row.series == name)) for name in names]
        assert len({style["marker"] for style in styles}) == len({str(style["linestyle"]) for style in styles}) == 3
        own = [study.own_style(row.row) for row in rows if row.row.series == "FedGR, histogram"][:3]
        assert [style["fillstyle"] for style in own] == ["bottom", "left", "full"]

    def test_the_reference_is_black_and_named(self):
        rows = [*made.open_rows(), made.private(1.0)]
        figure = utility_figure(Study.of(made.grid(rows), rows))
        line = next(line for line in figure.axes[0].lines if line.get_label() == "FedGR, plain (reference)")
        assert line.get_color() == "#000000" and set(line.get_ydata()) == {0.905}  # the mean of .90 and .91

    def test_points_are_at_their_epsilon_with_the_deviation_of_the_seeds(self):
        rows = [made.private(1.0), made.private(8.0)]
        (bars,) = utility_figure(Study.of(made.grid(rows), rows)).axes[0].containers
        xs, ys = bars[0].get_data()
        assert list(xs) == pytest.approx([1.0, 8.0], rel=0.1) and list(ys) == pytest.approx([0.885, 0.885])
        low, high = bars[2][0].get_segments()[0][:, 1]
        assert (high - low) / 2 == pytest.approx(0.01 / 2**0.5)  # of .88 and .89

    def test_the_front_is_named_in_the_figure(self):
        rows = [*made.open_rows(), made.private(1.0)]
        words = " ".join(texts(leakage_figure(Study.of(made.grid(rows), rows)))).replace("\n", " ")
        assert "Front: FedGR, histogram, epsilon 1 | FedGR, plain" in words

    def test_verdicts_are_in_the_legend_and_an_audit_without_a_bound_is_a_0(self):
        rows = [made.private(0.5, verdict="NO POWER"), made.private(1.0), made.private(8.0, verdict="FAIL")]
        words = texts(certified_figure(Study.of(made.grid(rows), rows)))
        names = {f"FedGR, histogram: {verdict}" for verdict in ("PASS", "FAIL", "NO POWER")}
        assert names | {"0", "FAIL"} <= set(words)

    def test_an_audit_that_settings_share_is_one_point(self):
        rows = [made.private(1.0), made.private(1.0, setting="Non-IID")]
        (axes,) = certified_figure(Study.of(made.grid(rows), rows)).axes
        assert len([line for line in axes.lines if line.get_marker() == "o"]) == 1

    @pytest.mark.parametrize("draw", [utility_figure, sieve_figure, certified_figure])
    def test_what_needs_an_epsilon_is_not_drawn_without_one(self, draw):
        rows = made.open_rows()
        assert draw(Study.of(made.grid(rows), rows)) is None

    def test_what_needs_attacks_is_not_drawn_without_them(self):
        rows = [dataclasses.replace(row, leaks=()) for row in made.open_rows()]
        assert leakage_figure(Study.of(made.grid(rows), rows)) is None

    def test_at_most_three_panels_are_side_by_side(self):
        rows = [made.private(1.0, setting=f"Setting {place}") for place in range(4)]
        figure = utility_figure(Study.of(made.grid(rows), rows))
        assert len(figure.axes) == 4 and figure.axes[0].get_gridspec().ncols == 3


class TestPage:
    def test_names_are_shown_as_text(self, tmp_path, undrawn):
        text = page(made.full(), tmp_path, title="<i>T</i>")
        assert "<script" not in text and "<b>" not in text and "<i>" not in text
        assert "FedGR &lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; $noise$" in text
        assert "The sentence &amp; &lt;more&gt;." in text and "<more>" not in text

    def test_runs_that_are_missing_are_named(self, tmp_path, undrawn):
        text = page(made.full(), tmp_path)
        assert "19 of 22 runs complete" in text and "3 runs failed or not done" in text
        assert "<li>FedGR, histogram, epsilon 8 (Non-IID): seeds 0, 1</li>" in text
        assert "<li>FedAvg (&lt;b&gt;Third&lt;/b&gt;): seed 0</li>" in text

    def test_a_setting_that_was_not_begun_is_one_line(self, tmp_path, undrawn):
        rows = [*made.open_rows(), made.measured(made.row("FedAvg", "Later"), failed=[0, 1])]
        text = page(rows, tmp_path)
        assert "<li>Later: every run</li>" in text and "No run is complete in this setting" in text

    def test_undefined_measures_are_said_and_those_that_do_not_apply_are_dashes(self, tmp_path, undrawn):
        text = page(made.full(), tmp_path)
        assert row_of(text, "FedGR, histogram, epsilon 0.5")[4] == "undefined"
        assert row_of(text, "FedGR, histogram, epsilon 1")[4] == "0.800 (in 1 of 2 runs)"
        assert row_of(text, "FedAvg")[1:5] == ["2 of 2", "70.5 ± 0.7", "72.5 ± 0.7", "-"]

    def test_what_leaks_is_told_in_full(self, tmp_path, undrawn):
        rows = [made.private(1.0, strength=2.0), *made.open_rows()]
        rows[0] = dataclasses.replace(rows[0], leaks=(made.leak(2.0, others=1200),))
        text = page(rows, tmp_path)
        leaky, average = row_of(text, rows[0].row.name, 1), row_of(text, "FedAvg", 1)
        metrics = rows[0].leaks[0].metrics
        assert leaky[1] == "1, losses alone" and leaky[3] == str(metrics.auc) and leaky[6] == "0.9 of 1: PASS"
        assert leaky[4:6] == [f"{100 * point.tpr.value:.1f}%" for point in metrics.points[1:]]
        assert average[1:3] == ["none", "series (any), on model weights"] and average[5] == "undefined"

    def test_open_weights_are_warned_of(self, tmp_path, undrawn):
        weights = made.claim(8.0, "DP-SGD")
        safe = made.private(1.0)
        claims = (dataclasses.replace(weights, subject="model weights"), weights)
        safe = dataclasses.replace(
            safe, summaries=tuple(dataclasses.replace(one, privacy=claims) for one in safe.summaries)
        )
        warning = "The model weights are not differentially private</strong> in "
        assert f"{warning}every row" in page(made.open_rows(), tmp_path)
        assert f"{warning}FedAvg; FedGR, plain." in page([*made.open_rows(), safe], tmp_path)
        assert warning not in page([safe], tmp_path)

    @pytest.mark.slow
    def test_verdicts_and_the_front_are_in_words(self, full):
        text = full.read_text()
        assert "<li>NO POWER: the certified bound is far below the claim" in text
        assert "<li>FAIL: the claim is refuted" in text and "epsilon 8.</li>" in text
        assert "<li>Non-IID: FedGR, plain; FedGR, histogram, epsilon 1</li>" in text
        assert "Not attacked: FedAvg (&lt;b&gt;Third&lt;/b&gt;)." in text

    @pytest.mark.slow
    def test_one_row_in_one_setting(self, tmp_path):
        rows = made.open_rows()[:1]
        text = page(rows, tmp_path, reference=None)
        assert text.count("<img ") == 3 and "failed or not done" not in text  # leakage, ROC, cost
        assert "Beside the paper" not in text and "What the other rows change" not in text

    def test_no_complete_row(self, tmp_path):
        rows = [made.measured(made.row("FedAvg", method="fedavg"), failed=[0, 1])]
        text = page(rows, tmp_path, reference=None)
        assert "No run of this grid is complete" in text and "<li>IID: every run</li>" in text
        assert "<img " not in text and "<h2>Results</h2>" not in text and "fedgr-secure tradeoff GRID" in text

    def test_figures_of_an_earlier_report_that_no_longer_apply_are_removed(self, tmp_path, undrawn):
        (tmp_path / "figures").mkdir()
        for name in ("utility.pdf", "roc.png", "mine.png"):
            (tmp_path / "figures" / name).write_text("")
        page(made.open_rows(), tmp_path)
        assert [path.name for path in (tmp_path / "figures").iterdir()] == ["mine.png"]

    @pytest.mark.slow
    def test_it_is_the_same_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fedgr_secure.app.tradeoff.report.FIGURES", FIGURES[:1])
        rows = [*made.open_rows(), made.private(1.0)]
        files = []
        for name in ("a", "b"):
            path = write_report(made.grid(rows), rows, tmp_path / name, "Same.")
            files.append(
                [path.read_bytes(), *(one.read_bytes() for one in sorted((path.parent / "figures").iterdir()))]
            )
        assert files[0] == files[1] and len(files[0]) == 3  # the page, and a figure in two formats


def row_of(text, name, table=0):
    """The cells of a row in one of a setting's three tables, of the first setting that has it."""
    import re

    rows = re.findall(rf'<tr><th scope="row">{re.escape(name)}</th>(.*?)</tr>', text)
    return [name, *re.findall("<td>(.*?)</td>", rows[table])]


class TestPublished:
    def test_the_papers_configuration_differs_in_nothing(self):
        assert differences(PAPER, "cifar10-iid-symmetric") == ()
        mixed = override(PAPER, SETTINGS["cifar10-noniid-mixed"])
        assert differences(mixed, "cifar10-noniid-mixed") == ()

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"model": "cnn", "width": 8}, ["model cnn, not resnet18"]),
            ({"norm": "group"}, ["group norm, not batch norm"]),
            ({"train_size": 10_000}, ["10,000 training images, not all"]),
            ({"rounds": 60, "warmup": 20}, ["60 rounds, not 500", "warm-up of 20 rounds, not 100"]),
            ({"clients": 50, "cohort": 5}, ["50 clients, not 100", "cohorts of 5, not 10"]),
            ({"local_epochs": 5, "lr": 0.03}, ["5 local epochs, not 10", "learning rate 0.03, not 0.01"]),
            ({"cutout": 0.25}, ["cutout 0.25, not 0.5"]),
            ({"rho_min": 0.2}, ["noise rates from 0.2, not 0.5"]),
            ({"partition": "dirichlet", "dirichlet_alpha": 0.5}, ["partition dirichlet, not iid"]),
            ({"loss_cap": 1.5}, ["loss cap 1.5, not none"]),
            ({"flip": False}, ["flip off, not as the data"]),
            ({"dataset": "npz", "path": Path("mnist.npz")}, ["data mnist, not cifar10"]),
            ({"dataset": "npz", "path": Path("cifar10.npz")}, []),
            ({"channel": "noisy", "epsilon": 4.0}, ["losses by the noisy channel at epsilon 4, not in the clear"]),
            ({"secagg": True}, ["weights under secure sums, not in the clear"]),
            ({"weights_epsilon": 8.0}, ["weights trained by DP-SGD at epsilon 8, not by SGD"]),
            ({"method": "fedavg", "loss_cap": 1.5, "channel": "noisy"}, []),  # FedAvg has no losses to cap or send
            ({"sieve": False}, []),  # an ablation is the method, not a difference
            ({"seed": 3, "device": "cpu", "store": "memory"}, []),
        ],
    )
    def test_differences(self, changes, words):
        assert list(differences(override(PAPER, changes), "cifar10-iid-symmetric")) == words

    def test_where_the_forgotten_share_comes_from_is_a_difference(self):
        ours = override(PAPER, {"method": "coteaching"})
        assert differences(ours, "cifar10-iid-symmetric") == ("forget estimated, not given",)
        told = override(ours, {"forget": "given", "forget_rate": 0.5})
        assert differences(told, "cifar10-iid-symmetric") == ("forget rate 0.5, not 0.75",)
        mixed = override(told, SETTINGS["cifar10-noniid-mixed"] | {"forget_rate": 0.3})
        assert differences(mixed, "cifar10-noniid-mixed") == ()

    def test_another_skew_is_a_difference(self):
        skewed = override(PAPER, SETTINGS["cifar10-noniid-symmetric"] | {"dirichlet_alpha": 0.5})
        assert differences(skewed, "cifar10-noniid-symmetric") == ("Dirichlet alpha 0.5, not 0.3",)

    @pytest.mark.parametrize(
        ("changes", "setting", "method", "number"),
        [
            ({"method": "fedavg"}, "cifar10-iid-symmetric", "FedAvg", 23.89),
            ({"method": "fedprox"}, "cifar10-iid-mixed", "FedProx", 64.44),
            ({"method": "coteaching"}, "cifar10-iid-symmetric", "FL-Coteaching", 47.28),
            ({}, "cifar10-noniid-symmetric", "FedGR", 63.64),
            ({"sieve": False}, "cifar10-noniid-mixed", "FedGR w/o FS", 84.01),
            ({"refine": False}, "cifar10-iid-symmetric", "FedGR w/o LR", 75.23),
            ({"represent": False}, "cifar10-iid-mixed", "FedGR w/o R_k", 91.84),
            ({"distill": False}, "cifar10-noniid-symmetric", "FedGR w/o B_k", 51.07),
        ],
    )
    def test_the_papers_number_for_a_method(self, changes, setting, method, number):
        found = compare(made.row("Row", published=setting, **changes))
        assert found is not None and (found.method, found.accuracy) == (method, number)

    @pytest.mark.parametrize(
        ("published", "changes"),
        [
            (None, {}),
            ("cifar10-iid-mixed", {"method": "central"}),
            ("cifar10-iid-mixed", {"sieve": False, "refine": False}),
        ],
    )
    def test_what_the_paper_does_not_have_is_not_compared(self, published, changes):
        assert compare(made.row("Row", published=published, **changes)) is None

    def test_an_unknown_setting_is_refused(self):
        with pytest.raises(InputError, match=r"IID: published: 'cifar10-iid-mixd'.*cifar10-iid-mixed.*, allowed: "):
            compare(made.row("Row", published="cifar10-iid-mixd"))

    def test_the_ablations_own_row_is_noted(self):
        found = compare(made.row("Row", published="cifar10-iid-mixed", distill=False))
        assert found is not None and found.note == "the ablation's own FedGR has 92.27"

    def test_settings_have_a_number_of_every_method(self):
        assert all(len(numbers) == len(SETTINGS) for numbers in ACCURACIES.values())
        assert accuracy("FedCorr", "cifar10-noniid-mixed") == 83.33

    def test_they_stand_side_by_side_on_the_page(self, tmp_path, undrawn):
        rows = made.open_rows("Skewed", "cifar10-noniid-mixed")
        rows[1] = dataclasses.replace(
            rows[1], row=dataclasses.replace(rows[1].row, config=other_term(rows[1].row.config))
        )
        text = page(rows, tmp_path)
        assert "Skewed, beside cifar10-noniid-mixed" in text
        assert "<td>86.50</td><td>90.50 ± 0.71</td><td>representation kl, not cosine</td>" in text
        assert "In all rows: data digits, not cifar10; 900 training images, not all;" in text
        assert "FedProx 49.77" in text and "FedGR 86.50" not in text


def other_term(config: Config) -> Config:
    return override(config, {"representation": "kl"})
