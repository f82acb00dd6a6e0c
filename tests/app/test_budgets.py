"""Methods on equal terms: accuracy within a budget, who is first, and how the comparison is recorded."""

import csv
import json
from dataclasses import asdict

import pytest
import tradeoff_rows as made

import benchmarks.common
import benchmarks.methods
from benchmarks.methods_shown import budget_table, results_table, run_lines, setting_record, setting_words
from fedgr_secure.app.tables import METHOD_NAMES
from fedgr_secure.app.tradeoff import grid as grids
from fedgr_secure.app.tradeoff.budget_figures import Spending, budget_figure
from fedgr_secure.app.tradeoff.budgets import Course, budgets, courses, reached, spent, within
from fedgr_secure.app.tradeoff.drawing import Study
from fedgr_secure.app.tradeoff.results import Spread
from fedgr_secure.app.tradeoff.standing import standing, standing_words
from fedgr_secure.errors import InputError
from fedgr_secure.records import RoundRecord


def rounds(*accuracies, updates=10, up=1_000_000):
    """Rounds that cost the same each, or `updates` of their own."""
    each = updates if isinstance(updates, list) else [updates] * len(accuracies)
    blank = dict.fromkeys(("estimated_noise", "noise_rate_pearson", "mislabel_accuracy", "mislabel_auc"))
    return [
        RoundRecord(
            place, "main", (0, 1), accuracy, 1.0, **blank, memorised_share=None, mixture=None, bytes_up=up,
            bytes_down=up, client_updates=count,
        )
        for place, (accuracy, count) in enumerate(zip(accuracies, each, strict=True))
    ]  # fmt: skip


def method(name, accuracies, *, setting="IID", seeds=None, failed=(), published=None):
    """A row with one run for each accuracy."""
    key = next(key for key, words in METHOD_NAMES.items() if words == name)
    seeds = range(len(accuracies)) if seeds is None else seeds
    runs = [
        made.summary(seed, method=key, pearson=0.9 if key == "fedgr" else None, right=None, accuracy_last10=accuracy)
        for seed, accuracy in zip(seeds, accuracies, strict=True)
    ]
    return made.measured(made.row(name, setting, method=key, published=published), runs, failed=failed)


def course(name, runs, **changes):
    """A row whose runs have these rounds; the last round's accuracy stands for the last ten."""
    return Course(method(name, [run[-1].accuracy for run in runs], **changes), tuple(runs))


def averaging(*accuracies):
    """FedAvg with one run of these rounds."""
    return course("FedAvg", [rounds(*accuracies)])


class TestWithin:
    RUN = rounds(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)

    @pytest.mark.parametrize(
        ("budget", "expected"),
        [
            (9, None),  # no round is whole
            (10, 0.1),
            (39, 0.2),  # rounds 1 to 3
            (50, 0.3),  # rounds 1 to 5
            (70, 0.5),  # rounds 3 to 7, and not the first two
            (80, 0.6),
            (10**9, 0.6),  # what is left of a budget buys nothing
        ],
    )
    def test_the_last_five_rounds_that_lie_within_the_budget(self, budget, expected):
        assert within(self.RUN, "client_updates", budget) == (None if expected is None else pytest.approx(expected))

    def test_costs_add_up_whatever_a_round_costs(self):
        run = rounds(0.1, 0.5, 0.9, updates=[20, 10, 3])
        assert spent(run, "client_updates") == [20, 30, 33] and spent(run, "bytes_up") == [10**6, 2 * 10**6, 3 * 10**6]
        assert [within(run, "client_updates", budget) for budget in (19, 20, 32, 33)] == [None, 0.1, 0.3, 0.5]

    def test_twice_the_bytes_are_half_the_rounds(self):
        one, two = rounds(0.2, 0.4, 0.6, 0.8), rounds(0.2, 0.4, 0.6, 0.8, up=2_000_000)
        assert within(one, "bytes_up", 4e6) == 0.5 and within(two, "bytes_up", 4e6) == pytest.approx(0.3)
        assert within(one, "client_updates", 40) == within(two, "client_updates", 40)

    def test_where_a_run_stood_after_each_round(self):
        assert reached(self.RUN) == pytest.approx([0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6])

    def test_seeds_are_averaged_over_the_runs_with_a_round_within_the_budget(self):
        both = course("FedGR", [rounds(0.2, 0.4), rounds(0.4, 0.8, updates=[10, 50])])
        assert both.within("client_updates", 10) == Spread(pytest.approx(0.3), pytest.approx(0.02**0.5), 2)
        assert both.within("client_updates", 5) is None and both.most("client_updates") == 60
        late = course("FedGR", [rounds(0.2, 0.4), rounds(0.4, 0.8, updates=[30, 50])])
        assert late.within("client_updates", 10) == Spread(0.2, None, 1)

    def test_a_line_is_the_mean_of_costs_and_of_accuracies(self):
        both = course("FedGR", [rounds(0.2, 0.4), rounds(0.4, 0.8, updates=[10, 30])])
        costs, accuracies = both.line("client_updates")
        assert costs == [10, 30] and accuracies == pytest.approx([0.3, 0.45])

    def test_budgets_are_shares_of_what_fedavg_spends(self):
        found = [course("FedGR", [rounds(0.1, 0.2, updates=99)]), averaging(0.1, 0.2, 0.3, 0.4)]
        assert budgets(found, "client_updates") == {"quarter": 10, "half": 20, "all": 40}
        assert budgets(found, "bytes_up") == {"quarter": 1e6, "half": 2e6, "all": 4e6}
        assert budgets(found[:1], "bytes_up") == {}


class TestStanding:
    @pytest.mark.parametrize(
        ("others", "words"),
        [
            (  # the half-width of two seeds is 12.706 |a - b| / 2
                {"FedAvg": [0.5, 0.602], "FedProx": [0.71, 0.79]},
                "FedGR is first of 3; the next is FedProx: -5.0 points (95 %: -17.7 to +7.7, 2 paired seeds). Cannot "
                "be told from it (the interval holds 0): FedProx.",
            ),
            (
                {"FedAvg": [0.5, 0.602], "FedCorr": [0.9, 1.0]},
                "FedGR is number 2 of 3. Above it: FedCorr +15.0 points (95 %: +15.0 to +15.0, 2 paired seeds). Every "
                "other can be told from it.",
            ),
            (
                {"FedAvg": [0.5], "FedCorr": [0.9]},
                "FedGR is number 2 of 3. Above it: FedCorr +15.0 points (one seed, no interval). One seed: what is "
                "chance cannot be told.",
            ),
            (
                {"FedAvg": [0.5, 0.602], "FedCorr": [0.9]},
                "FedGR is number 2 of 3. Above it: FedCorr +15.0 points (one seed, no interval). One seed beside "
                "FedCorr: what is chance cannot be told.",
            ),
            ({}, "FedGR has nobody to be compared with."),
        ],
    )
    def test_in_words(self, others, words):
        rows = [method("FedGR", [0.75, 0.85]), *(method(name, values) for name, values in others.items())]
        assert standing_words(standing(rows, "FedGR")) == words

    def test_the_order_is_that_of_the_paired_seeds_and_not_of_the_means(self):
        rows = [method("FedGR", [0.3, 0.9]), method("FedCorr", [0.5], seeds=[0], failed=[1])]
        assert list(standing(rows, "FedGR").above) == ["FedCorr"]  # its mean is .5, FedGR's .6

    def test_no_common_seed_is_no_comparison(self):
        rows = [method("FedGR", [0.5]), method("FedAvg", [0.9], seeds=[1]), method("RoFL", [])]
        found = standing(rows, "FedGR")
        assert (found.ahead, found.apart) == ({}, ("FedAvg",))
        assert standing_words(found).endswith("Not compared, for want of a common seed: FedAvg.")

    def test_a_row_without_a_run_stands_nowhere(self):
        assert standing([method("FedGR", []), method("FedAvg", [0.9])], "FedGR") is None


def some():
    """A setting of three methods, of which one sends twice as much a round, and one is told something."""
    gr = course("FedGR", [rounds(0.1, 0.2, 0.3, 0.8), rounds(0.1, 0.2, 0.5, 0.6)], published="cifar10-noniid-mixed")
    two = course("FL-DivideMix", [rounds(0.4, 0.4, 0.4, 0.9, up=5_000_000)], failed=[1])
    return [gr, course("FedAvg", [rounds(0.2, 0.4, 0.2, 0.1), rounds(0.2, 0.4, 0.2, 0.1)]), two]


class TestShown:
    def test_tables_of_a_setting(self):
        lines = setting_words(some(), "FedGR").splitlines()
        assert lines[0] == "## IID"
        assert [line.split(" | ")[0] for line in lines[4:7]] == ["| FL-DivideMix", "| FedGR", "| FedAvg"]
        assert lines[5] == (
            "| FedGR | 2 of 2 | 70.0 ± 14.1 | 92.5 ± 0.7 | 0.900 ± 0.000 | undefined "
            "| 200 | 13.0 | 26.0 | 1 min 2 s | 86.5 |"
        )
        assert lines[6].endswith("| - |") and "| 1 of 2 | 90.0 |" in lines[4]
        assert lines[8].startswith("FedGR is number 2 of 3. Above it: FL-DivideMix +10.0 points (one seed")

    def test_budgets_of_a_setting_the_best_of_the_largest_first(self):
        assert budget_table(some(), "bytes_up") == (
            "| Method | quarter (1 MB) | half (2 MB) | all (4 MB) |\n"
            "| --- | ---: | ---: | ---: |\n"
            "| FedGR | 10.0 ± 0.0 | 15.0 ± 0.0 | 35.0 ± 0.0 |\n"
            "| FedAvg | 20.0 ± 0.0 | 30.0 ± 0.0 | 22.5 ± 0.0 |\n"
            "| FL-DivideMix | - | - | - |\n"
        )
        assert budget_table(some(), "client_updates").splitlines()[2] == "| FL-DivideMix | 40.0 | 40.0 | 52.5 |"

    def test_without_fedavg_there_is_no_budget(self):
        assert "No run of FedAvg to measure MB sent by clients." in setting_words(some()[:1], "FedGR")
        assert run_lines(some()[:1])[0]["accuracy_within_bytes_up_all"] is None

    def test_an_absent_reference_is_said(self):
        assert "FedGR has no complete run here." in setting_words(some()[1:], "FedGR")

    def test_a_line_per_run_for_programs(self):
        lines = run_lines(some())
        assert [(line["method"], line["seed"]) for line in lines] == [
            ("FedGR", 0), ("FedGR", 1), ("FedAvg", 0), ("FedAvg", 1), ("FL-DivideMix", 0)
        ]  # fmt: skip
        assert lines[1]["accuracy_last10"] == 0.6 and lines[1]["client_updates_half"] == 20
        assert lines[1]["accuracy_within_client_updates_half"] == pytest.approx(0.15)

    def test_json_has_numbers_in_shares(self):
        found = json.loads(json.dumps(setting_record(some(), "FedGR")))
        assert found["methods"][1]["accuracy_last10"]["mean"] == pytest.approx(0.7)
        assert found["methods"][1]["paper_cifar10_percent"] == 86.5
        assert found["budgets"]["bytes_up"]["all"]["accuracy"]["FL-DivideMix"] is None
        assert found["standing"]["ahead"]["FL-DivideMix"]["mean"] == pytest.approx(0.1)

    def test_what_a_method_was_told_is_beside_its_name(self):
        told = made.measured(made.row("Told", method="fedavg"), [made.summary(method="fedavg", oracle="the rates")])
        assert "| Told (oracle: the rates) |" in results_table([told])


@pytest.mark.slow
def test_lines_are_costs_and_accuracies_and_told_apart():
    found = some()
    grid = made.grid([one.measured for one in found], reference="FedGR")
    spending = Spending(Study.of(grid, [one.measured for one in found]), tuple(found))
    figure = budget_figure(spending, "bytes_up")
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == ["FedGR (reference)", "FedAvg", "FL-DivideMix"]
    assert list(lines["FL-DivideMix"].get_xdata()) == [5, 10, 15, 20]
    assert list(lines["FedAvg"].get_ydata()) == pytest.approx([0.2, 0.3, 0.8 / 3, 0.225])
    assert budget_figure(Spending(spending.study, ()), "bytes_up") is None


@pytest.mark.parametrize("name", ["digits-methods", "mnist-methods"])
def test_every_method_is_looked_at_and_told_from_the_others(name):
    grid = grids.load(name)
    assert {row.config.method for row in grid.rows} == set(METHOD_NAMES) - {"central"}
    assert all(row.name.split(",")[0] == METHOD_NAMES[row.config.method] for row in grid.rows)
    styles = {json.dumps(Study.of(grid, []).style(row)) for row in grid.rows}
    assert len(styles) == len({row.name for row in grid.rows}) and len(grid.rows) == 4 * len(styles)


@pytest.mark.slow
class TestRecord:
    @pytest.fixture
    def results(self, tmp_path, monkeypatch):
        """The folder of recorded results, of a script that was started with an argument."""
        folder = tmp_path / "results"
        for module in (benchmarks.common, benchmarks.methods):
            monkeypatch.setattr(module, "RESULTS", folder)
        monkeypatch.setattr("sys.argv", ["methods.py", "digits"])
        folder.mkdir()
        return folder

    def test_an_incomplete_grid_is_recorded_with_what_is_missing(self, tmp_path, results):
        found = some()
        for one in found:
            for summary, run in zip(one.measured.summaries, one.runs, strict=True):
                folder = one.measured.row.folder(tmp_path, summary.seed)
                folder.mkdir(parents=True)
                lines = [json.dumps(asdict(record)) + "\n" for record in run]
                (folder / "rounds.jsonl").write_text("".join(lines))
        rows = [one.measured for one in found] + [method("FedGR", [], setting="Later", failed=[0, 1])]
        assert courses(rows, tmp_path) == tuple(found)
        benchmarks.methods.record(made.grid(rows, title="Made, all methods", reference="FedGR"), rows, tmp_path)
        text = (results / "made-all-methods.md").read_text()
        assert "## IID" in text and "## Later" not in text
        assert "* Missing: Later, every run.\n* Missing: FL-DivideMix (IID), seed 1.\n* Where seeds are miss" in text
        assert "](made-all-methods-updates.png)" in text and "benchmarks.methods digits`" in text
        with (results / "made-all-methods.csv").open() as file:
            assert len(list(csv.DictReader(file))) == 5
        assert {path.name.removeprefix("made-all-methods") for path in results.iterdir()} == {
            ".md", ".json", ".csv", "-updates.png", "-bytes.png"
        }  # fmt: skip

    def test_nothing_is_recorded_of_nothing(self, tmp_path, results):
        rows = [method("FedGR", [], failed=[0])]
        with pytest.raises(InputError, match="holds no complete run of the grid"):
            benchmarks.methods.record(made.grid(rows, reference="FedGR"), rows, tmp_path)
        assert not list(results.iterdir())
