"""Tables: means and spreads equal those computed by hand, and a dash stands for what does not apply."""

import csv
import dataclasses
import io
import json

import pytest
from rich.console import Console
from run_folders import make_summary

from fedgr_secure.app.tables import (
    MEASURES,
    compare_csv,
    compare_markdown,
    compare_rows,
    compare_table,
    duration,
    summary_table,
)
from fedgr_secure.errors import InputError

# Accuracies .90, .92, .97: mean .93, squared deviations .0009 + .0001 + .0016 = .0026, over n - 1 = 2: .0013.
SD = 0.0013**0.5
FEDGR = [
    make_summary(seed=0, accuracy_last10=0.90, noise_rate_pearson=0.9, memorised_share=None, bytes_up=1_000_000),
    make_summary(seed=1, accuracy_last10=0.92, noise_rate_pearson=None, memorised_share=None, bytes_up=2_000_000),
    make_summary(seed=2, accuracy_last10=0.97, noise_rate_pearson=0.7, memorised_share=None, bytes_up=3_000_000),
]
FEDAVG = [make_summary("fedavg", accuracy_last10=0.5, seconds=12.34)]
ROWS = {"fedgr [w/o FS]": FEDGR, "fed|avg": FEDAVG}


def printed(table, width=240):
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()


class TestCompare:
    def test_mean_and_sample_deviation(self):
        row = compare_rows(ROWS)[0]
        assert row["method"] == "fedgr [w/o FS]" and row["seeds"] == [0, 1, 2]
        assert row["accuracy_last10"] == {"mean": pytest.approx(0.93), "sd": pytest.approx(SD), "n": 3}
        assert row["bytes_up"] == {"mean": pytest.approx(2e6), "sd": pytest.approx(1e6), "n": 3}

    def test_null_where_nothing_applies(self):
        fedgr, fedavg = compare_rows(ROWS)
        assert fedgr["memorised_share"] is None and fedavg["noise_rate_pearson"] is None
        # Two of three seeds: mean .8, sample deviation sqrt(.01 + .01)
        assert fedgr["noise_rate_pearson"] == {"mean": pytest.approx(0.8), "sd": pytest.approx(0.02**0.5), "n": 2}

    def test_one_seed_has_no_spread(self):
        fedavg = compare_rows(ROWS)[1]
        assert fedavg["accuracy_last10"] == {"mean": 0.5, "sd": None, "n": 1}
        assert "50.00" in printed(compare_table(ROWS)) and "50.00 ±" not in printed(compare_table(ROWS))

    def test_it_is_json(self):
        assert json.loads(json.dumps(compare_rows(ROWS), allow_nan=False)) == compare_rows(ROWS)

    def test_the_table(self):
        text = printed(compare_table(ROWS))
        assert "fedgr [w/o FS]" in text and "fed|avg" in text
        assert "93.00 ±3.61" in text and "2.00 ±1.00" in text and "0.800 ±0.141 (in 2 of 3 runs)" in text
        assert "12.3" in text and " - " in text

    def test_nothing_is_cut_off_in_80_columns(self):
        text = printed(compare_table({"fedgr": FEDGR, "fedprox": FEDAVG}), width=80)
        assert "…" not in text and "±3.61" in text and "Time (s)" in text and "12.3\n" in text
        assert all(len(line) <= 80 for line in text.splitlines())

    def test_the_markdown(self):
        lines = compare_markdown(ROWS).splitlines()
        assert lines[0].startswith("| Method | Runs | Acc. last 10 (%) |")
        assert lines[2].startswith("| fedgr [w/o FS] | 3 | 93.00 ± 3.61 |")
        assert lines[3].startswith(r"| fed\|avg | 1 | 50.00 |")
        assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == len(MEASURES) - 1 + 3
        assert "Sums given up" not in lines[0]
        lost = compare_markdown({"fedgr": [dataclasses.replace(FEDGR[0], sums_given_up=2)]})
        assert lost.splitlines()[0].endswith("| Sums given up |") and lost.splitlines()[2].endswith("| 2.0 |")

    def test_the_csv(self):
        first, second = csv.DictReader(io.StringIO(compare_csv(ROWS)))
        assert first["method"] == "fedgr [w/o FS]" and first["seeds"] == "0 1 2"
        assert float(first["accuracy_last10_sd"]) == pytest.approx(SD)
        assert second["accuracy_last10_sd"] == "" and second["noise_rate_pearson_mean"] == ""
        assert second["noise_rate_pearson_n"] == "" and second["seconds_mean"] == "12.34"

    def test_a_method_without_runs_is_refused(self):
        with pytest.raises(InputError, match="no run for 'fedgr'"):
            compare_rows({"fedgr": []})


def test_the_summary():
    text = printed(summary_table(make_summary("fedavg", accuracy_last10=0.8766, seconds=83.0, bytes_up=1_500_000)))
    assert "FedAvg on digits, seed 0" in text
    assert "87.7%" in text and "1 min 23 s" in text and "1.5 MB" in text
    assert text.count(" - ") == 3  # a method without a sieve: Pearson, verdicts, ranking


@pytest.mark.parametrize(("seconds", "text"), [(59.96, "1 min 0 s"), (3599.6, "1 h 0 min"), (0.0, "0.0 s")])
def test_durations_round_to_the_next_unit(seconds, text):
    assert duration(seconds) == text
