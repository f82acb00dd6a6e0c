"""Trade-offs: grids are read strictly, carried out once, pooled right, and recommended from with reasons."""

import csv
import dataclasses
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tradeoff_rows as made
from scipy.stats import norm

from attacks.harness import attack
from attacks.metrics import evaluate, roc
from attacks.results import read_scores, write_results
from fedgr_secure.app import cli
from fedgr_secure.app.tradeoff import grid as grids
from fedgr_secure.app.tradeoff.audits import Certified, audit_cells, audit_file, read_audit
from fedgr_secure.app.tradeoff.command import least_claim
from fedgr_secure.app.tradeoff.engine import Plan, carry_out, open_cells
from fedgr_secure.app.tradeoff.recommend import choice, paired, recommend, sieves
from fedgr_secure.app.tradeoff.results import Leak, collect
from fedgr_secure.app.tradeoff.shown import markdown
from fedgr_secure.app.tradeoff.table import MEASURES, VARYING, as_csv, as_json_lines, columns, dictionary, records
from fedgr_secure.config import override
from fedgr_secure.errors import InputError
from fedgr_secure.sections import Config

TINY = """
title = "Tiny"
seeds = 2
reference = "plain"
audit_draws = 30_000

[base]
train_size = 120
model = "mlp"
width = 2
local_epochs = 1
clients = 4
cohort = 2
rounds = 3
warmup = 1
"""
SERIES = """
[[series]]
name = "plain"
channel = "plain"

[[series]]
name = "noisy"
channel = "noisy"
epsilon = [4]
"""


def leak(area, *, others=2000):
    """An attack with about this area: members' scores are normal quantiles, shifted."""
    grid = norm.ppf((np.arange(others) + 0.5) / others)
    scores = np.concatenate([grid + np.sqrt(2) * norm.ppf(area), grid])
    truth = np.arange(2 * others) < others
    return Leak("matching", "any", "loss proxies", evaluate(scores, truth), roc(scores, truth), None)


def measured(series, *, accuracies=(0.9,), pearsons=None, epsilon=None, leaks=(), certified=None, **changes):
    """A row with one run for each accuracy, seeds from 0."""
    axes = {} if epsilon is None else {"epsilon": epsilon}
    row = made.row(series, axes=axes, **{"channel": "plain" if epsilon is None else "histogram"} | changes)
    runs = [
        made.summary(seed, pearson=pearson, epsilon=epsilon, accuracy_last10=accuracy)
        for seed, (accuracy, pearson) in enumerate(zip(accuracies, pearsons or [0.98] * len(accuracies), strict=True))
    ]
    return made.measured(row, runs, leaks=leaks, certified=certified)


@pytest.fixture
def write(tmp_path):
    """`write(text)` is the path of a grid with this content."""

    def path(text):
        file = tmp_path / "grid.toml"
        file.write_text(text)
        return str(file)

    return path


def test_lists_are_axes_and_values_have_their_settings_types(write):
    text = """
    title = "T"
    [base]
    rounds = 7
    [[setting]]
    name = "A"
    [[setting]]
    name = "B, skewed"
    partition = "dirichlet"
    [[series]]
    name = "noisy"
    channel = "noisy"
    epsilon = [1, 4]
    releases = [2, 3]
    """
    grid = grids.load(write(text))
    assert [(row.setting, row.name) for row in grid.rows[:2]] == [
        ("A", "noisy, epsilon 1, releases 2"),
        ("A", "noisy, epsilon 1, releases 3"),
    ]
    assert len(grid.rows) == 8 and grid.settings == ("A", "B, skewed")
    last = grid.rows[-1].config
    assert (last.proxies.epsilon, last.proxies.releases, last.partition.partition) == (4.0, 3, "dirichlet")
    assert type(last.proxies.epsilon) is float and last.federation.rounds == 7
    cell = grid.rows[-1].cell(Path("r"), 2)
    assert cell.config.output.out.as_posix() == "r/b-skewed/noisy-epsilon-4-releases-3-s2"
    assert (cell.config.seed, cell.config.output.record_view) == (2, "uploads")


@pytest.mark.parametrize("name", grids.names())
def test_shipped_grids_are_read(name):
    grid = grids.load(name, data=Path("somewhere"))
    assert grid.rows and grid.reference in [row.series for row in grid.rows]
    assert all(row.config.data.path is None or row.config.data.path.parts[0] == "somewhere" for row in grid.rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "cannot be read as TOML"),
        ('title = "T"', "series"),
        (TINY.replace("seeds", "seed") + SERIES, "seeds"),
        (TINY.replace("seeds = 2", "seeds = 0") + SERIES, "seeds: 0, allowed"),
        (TINY + SERIES.replace("epsilon = [4]", "epsilom = [4]"), "'epsilom' (did you mean epsilon?)"),
        (TINY + SERIES.replace("epsilon = [4]", 'epsilon = ["four"]'), "epsilon"),
        (TINY + SERIES.replace("epsilon = [4]", "epsilon = [-4]"), "epsilon: -4"),
        (TINY + SERIES.replace("epsilon = [4]", "seed = 3"), "noisy: seed is given"),
        (TINY + SERIES.replace("epsilon = [4]", "epsilon = []"), "epsilon: no value"),
        (
            TINY + SERIES.replace('"noisy"', '"plain"').replace("epsilon = [4]", ""),
            "two rows are called default/plain-s0",
        ),
        (TINY + SERIES.replace('name = "noisy"', 'name = "/"'), "name: '/'"),
        (TINY + SERIES + '[[setting]]\nname = ".."', "name: '..', allowed"),
        (TINY + SERIES + '[[setting]]\nname = "S\\n## x"', "allowed: words on one line"),
        (TINY + SERIES + '[[setting]]\nname = "Results.csv"', "name: 'Results.csv', allowed: none of"),
        (TINY + SERIES + '[[setting]]\nname = "A"\npreset = 3', "preset: 3, allowed"),
        (TINY + SERIES + '[[setting]]\nname = "A"\npublished = ["x"]', "published: ['x'], allowed"),
        (TINY.replace("30_000", "9223372036854775807") + SERIES, "audit_draws: 9223372036854775807"),
        (TINY.replace('"plain"', '"plane"') + SERIES, "reference: 'plane' (did you mean plain?)"),
        (TINY.replace("rounds = 3", 'rounds = "three"') + SERIES, "rounds"),
        (TINY + '[[setting]]\nname = "A"\npublished = "cifar10-iid-mix"\n' + SERIES, "did you mean cifar10-iid-mixed?"),
    ],
)
def test_grids_that_cannot_be_are_refused_by_name(write, text, words):
    with pytest.raises(InputError) as refused:
        grids.load(write(text))
    assert words in str(refused.value)


def test_a_plan_is_audited_once_whatever_the_data_it_is_used_with():
    base = override(Config(), {"channel": "noisy"})
    rows = [
        grids.Row(setting, "s", {}, None, override(base, changes))
        for setting, changes in {
            "a": {},
            "b": {"label_noise": "mixed", "partition": "dirichlet"},
            "c": {"epsilon": 2.0},
            "d": {"channel": "plain"},
            "e": {"method": "fedavg"},
            "f": {"noise": "insecure-seeded"},
        }.items()
    ]
    root = Path("r")
    cells = audit_cells(root, [row.cell(root, seed) for row in rows for seed in (0, 1)], 1000)
    assert [cell.config.proxies.epsilon for cell in cells] == [1.0, 2.0]
    assert audit_file(root, rows[0].config, 1000) != audit_file(root, rows[0].config, 2000)
    by_client = [override(row.config, {"adjacency": "client"}) for row in rows[:2]]
    assert len({audit_file(root, config, 1000) for config in by_client}) == 2


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """A grid with a series that diverges, carried out: grid, root, outcomes."""
    folder = tmp_path_factory.mktemp("tradeoff")
    (folder / "grid.toml").write_text(TINY + SERIES + '\n[[series]]\nname = "wild"\nchannel = "plain"\nlr = 1e30\n')
    grid, root = grids.load(str(folder / "grid.toml")), folder / "all"
    said = []
    carry_out(Plan(grid, root), jobs=2, on_done=said.append)
    return grid, root, said


@pytest.mark.slow
def test_a_failed_cell_does_not_stop_the_rest_and_is_named(carried):
    grid, root, said = carried
    assert len(said) == 7  # three series times two seeds, and one audit
    assert sorted(o.cell.name for o in said if o.failure) == ["default: wild"] * 2
    assert all("non-finite" in o.error or "nan" in o.error or "inf" in o.error for o in said if o.failure)
    plain, noisy, wild = collect(grid, root)
    assert (len(plain.summaries), len(noisy.summaries), wild.summaries, wild.failed) == (2, 2, (), (0, 1))
    assert noisy.certified.trials > 0 and noisy.certified.epsilon <= 4.0 and plain.certified is None


@pytest.mark.slow
def test_scores_of_all_seeds_are_pooled(carried):
    grid, root, _ = carried
    plain = collect(grid, root)[0]
    scores = [read_scores(plain.row.folder(root, seed))["matching.any"] for seed in (0, 1)]
    both = evaluate(np.concatenate([s.scores for s in scores]), np.concatenate([s.truth for s in scores]))
    found = next(k for k in plain.leaks if (k.attack, k.game) == ("matching", "any"))
    assert found.metrics == both and found.metrics.members == 240
    areas = [k.metrics.auc.value for k in plain.leaks]
    assert areas == sorted(areas, reverse=True) and plain.strongest() is plain.leaks[0]
    assert plain.strongest("model weights").attack in ("threshold", "series")
    assert plain.strongest("model weights").caps is None


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_what_is_lost_is(carried):
    grid, root, _ = carried
    plan = Plan(grid, root)
    names = [cell.name for cell in open_cells(plan)]
    assert names == ["default: wild"] * 2
    run = grid.rows[0].folder(root, 1)
    lost = run / "attacks.json"
    before = lost.read_bytes()
    write_results(run, *attack(run, ["threshold"], seed=1))  # a part of them is not all of them
    assert ("default: plain", 1) in [(cell.name, cell.config.seed) for cell in open_cells(plan)]
    plain = collect(grid, root)[0]
    assert {leak.attack for leak in plain.leaks} == {"threshold"} and "matching (any)" in plain.partly
    assert "not in every run, and left out: matching (any)" in markdown([plain])
    lost.write_bytes(before)
    (run / "attacks.npz").write_bytes(b"torn")
    assert [(cell.name, cell.config.seed) for cell in open_cells(plan)] == [
        ("default: wild", 0),
        ("default: plain", 1),
        ("default: wild", 1),
    ]
    assert "default: plain" not in [cell.name for cell in open_cells(dataclasses.replace(plan, attacks=False))]
    carry_out(plan, jobs=1, cells=open_cells(plan)[1:2])
    again = json.loads(lost.read_bytes())
    assert again["outcomes"] == json.loads(before)["outcomes"]


@pytest.mark.slow
def test_the_table_says_what_its_columns_are(carried):
    grid, root, _ = carried
    rows = collect(grid, root)
    table = records(rows)
    lines = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert [line["series"] for line in lines] == ["plain", "noisy", "wild"]
    known = list(csv.DictReader(io.StringIO(dictionary(rows))))
    assert [entry["column"] for entry in known] == list(lines[0]) == [column.name for column in columns(rows)]
    assert len({entry["column"] for entry in known}) == len(known) and all(entry["meaning"] for entry in known)
    assert [json.loads(line) for line in as_json_lines(table).splitlines()] == table
    plain, noisy, wild = table
    assert plain["accuracy_last10_mean"] == pytest.approx(np.mean([s.accuracy_last10 for s in rows[0].summaries]))
    assert (plain["proxies_epsilon"], noisy["proxies_epsilon"], noisy["proxies_adjacency"]) == (
        None,
        4.0,
        "replace-one",
    )
    assert (wild["runs"], wild["missing"], wild["accuracy_last10_mean"], wild["accuracy_last10_n"]) == (
        0,
        "0 1",
        None,
        0,
    )
    assert plain["attack_auc_low"] <= plain["attack_auc"] <= plain["attack_auc_high"]
    assert plain["attack_others"] == 2 * (360 + 1437 - 120 - 300) and plain["attack_tpr_at_0_001"] is not None
    assert noisy["proxies_attack_auc_allowed"] < 1.0 and plain["proxies_attack_auc_allowed"] is None


def certified(verdict):
    return Certified(1.0, 0.84, "sum", verdict, 60_000, 0.95, 30.0)


def test_a_recommendation_names_channel_cost_and_evidence():
    rows = [
        measured("plain", accuracies=(0.91, 0.93), leaks=[leak(0.99)]),
        measured("noisy", accuracies=(0.90, 0.91), pearsons=[0.2, None], epsilon=1.0, leaks=[leak(0.6)]),
        measured("histogram", accuracies=(0.90, 0.93), epsilon=1.0, leaks=[leak(0.52)], certified=certified("PASS")),
        measured("histogram", accuracies=(0.94, 0.94), epsilon=8.0),
    ]
    words = recommend(rows, "plain", 1.0)
    assert "take histogram, epsilon 1 (loss proxies: epsilon 1 at delta 1e-05, replace-one)" in words
    # differences -.01 and 0: mean -.5 points, t interval with one degree of freedom: 12.706 * .00707 / sqrt(2)
    assert "Accuracy 91.5 %, -0.5 points beside plain (95 %: -6.9 to +5.9, 2 paired seeds, too few to tell)" in words
    assert "0.520" in words and "(plain: 0.990)" in words and "at least 0.84, of 1 (PASS)" in words
    assert "The models themselves claim nothing." in words


def test_without_a_working_sieve_the_recommendation_says_so():
    rows = [measured("plain"), measured("noisy", accuracies=(0.95,), pearsons=[0.5], epsilon=1.0)]
    assert "No sieve works at that" in recommend(rows, "plain", 1.0)
    lost = measured("plain", pearsons=[0.3])
    assert "nor does that of plain" in recommend([lost, measured("h", pearsons=[0.4], epsilon=1.0)], "plain", 1.0)
    assert "nor does" not in recommend(rows, "plain", 1.0)
    assert "No sieve" not in recommend([rows[0], measured("h", pearsons=[0.94], epsilon=1.0)], "plain", 1.0)
    assert not sieves(measured("h", accuracies=(0.9, 0.9), pearsons=[0.98, None], epsilon=1.0), rows[0])
    unknown = made.measured(made.row("h", axes={"epsilon": 1.0}), [made.summary(pearson=None, right=None, epsilon=1.0)])
    assert sieves(unknown, rows[0])  # nobody knows the truth there
    average = measured("fedavg", pearsons=[None], method="fedavg")
    for base in (average, measured("plain", pearsons=[None]), None):  # a reference without a correlation says nothing
        assert sieves(measured("h", pearsons=[0.6], epsilon=1.0), base)
        assert not sieves(measured("h", pearsons=[None], epsilon=1.0), base)
        assert not sieves(measured("h", pearsons=[-0.3], epsilon=1.0), base)
    assert sieves(measured("fedavg", pearsons=[None], method="fedavg"), rows[0])
    assert "No complete row claims an epsilon" in recommend([measured("plain")], "plain", None)
    missing = measured("h", accuracies=(), epsilon=2.0)
    assert "no row whose runs are all complete claims that" in recommend([missing, *rows], "plain", 0.5)


def test_what_is_more_accurate_without_a_sieve_is_named_beside_what_is_taken():
    asleep = measured("noisy", accuracies=(0.95, 0.95), pearsons=[0.1, 0.2], epsilon=1.0)
    words = recommend(
        [measured("plain", accuracies=(0.9, 0.9)), asleep, measured("h", accuracies=(0.9, 0.9), epsilon=1.0)],
        "plain",
        1.0,
    )
    assert "take h, epsilon 1" in words
    assert words.endswith("left aside, as their sieves know too little: noisy, epsilon 1 (95.0 %).")


def test_an_interval_that_says_nothing_is_said_to():
    rows = [measured("plain", accuracies=(0.8, 0.9)), measured("h", accuracies=(0.9, 0.8), epsilon=1.0)]
    assert "2 paired seeds, too few to tell)" in recommend(rows, "plain", 1.0)
    close = [measured("plain", accuracies=(0.8, 0.9)), measured("h", accuracies=(0.801, 0.9), epsilon=1.0)]
    assert "too few to tell" not in recommend(close, "plain", 1.0)


def test_survivors_and_refuted_rows_are_not_recommended():
    whole = measured("whole", accuracies=(0.90, 0.91), epsilon=1.0)
    some = dataclasses.replace(measured("some", accuracies=(0.99,), epsilon=0.5), failed=(1,))
    false = measured("false", accuracies=(0.95, 0.95), epsilon=1.0, certified=certified("FAIL"))
    words = recommend([measured("plain", accuracies=(0.9, 0.9)), some, false, whole], "plain", 1.0)
    assert "take whole, epsilon 1" in words and "take some" not in words
    assert words.endswith("Refuted by their audits: false, epsilon 1.")
    assert "no row whose runs are all complete" in recommend([some, false], "plain", 1.0)


def test_what_protects_another_thing_is_recommended_apart():
    def under(row, adjacency):
        claims = tuple(
            dataclasses.replace(c, adjacency=adjacency) if c.subject == "loss proxies" else c
            for c in row.summaries[0].privacy
        )
        return dataclasses.replace(row, summaries=(dataclasses.replace(row.summaries[0], privacy=claims),))

    rows = [measured("record", epsilon=1.0), under(measured("label", accuracies=(0.99,), epsilon=0.9), "label")]
    words = recommend(rows, None, 1.0)
    assert "take record, epsilon 1 (loss proxies: epsilon 1 at delta 1e-05, replace-one)" in words
    assert "take label, epsilon 0.9 (loss proxies: epsilon 0.9 at delta 1e-05, label)" in words


def test_of_claims_that_differ_from_run_to_run_the_weakest_counts():
    one, three = (made.summary(seed, epsilon=epsilon) for seed, epsilon in enumerate((1.0, 3.0)))
    row = made.measured(made.row("h"), [one, three])
    assert (row.epsilon, row.claim("loss proxies").epsilon) == (3.0, 3.0)
    none = made.measured(made.row("h"), [one, made.summary(2)])
    assert none.epsilon is None and none.claim_made.subject == "loss proxies"


def test_an_audit_that_cannot_be_or_is_damaged_is_made_again(tmp_path):
    config = override(Config(), {"channel": "noisy"})
    file = audit_file(tmp_path, config, 1000)
    file.parent.mkdir()
    for text in ('{"claimed": 1.0, "eps', json.dumps(dataclasses.asdict(certified("PASS")) | {"epsilon": -5.0})):
        file.write_text(text)
        assert read_audit(tmp_path, config, 1000) is None
    file.write_text(json.dumps(dataclasses.asdict(certified("PASS"))))
    assert read_audit(tmp_path, config, 1000) == certified("PASS")


def test_what_a_row_claims_at_least_is_the_larger_of_its_parts():
    both = {"channel": "noisy", "epsilon": 1.0, "weights_epsilon": 4.0}
    assert least_claim(override(Config(), both)) == 4.0
    assert least_claim(override(Config(), {"channel": "plain"})) is None
    assert least_claim(override(Config(), {"method": "fedavg", "weights_epsilon": 4.0})) == 4.0


def test_a_row_that_an_oracle_helped_says_so():
    row = made.measured(made.row("co", method="coteaching"), [made.summary(method="coteaching", oracle="noise rates")])
    assert "co (oracle: noise rates)" in markdown([row])
    assert records([row])[0]["oracle"] == "noise rates" and records([measured("h")])[0]["oracle"] is None


def test_names_become_plain_text_in_markdown():
    words = markdown([measured("a|b <img src=x>")])
    assert r"| a\|b &lt;img src=x> |" in words


def test_of_rows_within_a_standard_error_that_of_the_least_epsilon_is_taken():
    wide = measured("a", accuracies=(0.90, 0.96), epsilon=8.0)  # mean .93, standard error .03
    near = measured("b", accuracies=(0.91, 0.91), epsilon=0.5)
    far = measured("c", accuracies=(0.89, 0.89), epsilon=0.1)
    assert choice([wide, near, far]) is near
    assert choice([measured("a", accuracies=(0.93,), epsilon=8.0), near]).epsilon == 8.0  # one run has no error


def test_paired_differences_use_common_seeds_alone():
    one, other = measured("a", accuracies=(0.5, 0.7, 0.9)), measured("b", accuracies=(0.4, 0.5))
    change = paired(one, other, "accuracy_last10")
    assert (change.seeds, round(change.mean, 9)) == (2, 0.15)
    assert paired(measured("a", accuracies=()), other, "accuracy_last10") is None


def run(*words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["tradeoff", *words])
    return ended.value.code


def test_what_cannot_be_is_refused_before_anything_is_run(write, tmp_path, capsys):
    grid, out = write(TINY + SERIES), tmp_path / "out"
    for words, reason in (
        (["--target-epsilon", "1"], "target_epsilon: 1, allowed: from 4"),
        (["--jobs", "0"], "jobs: 0"),
        (["--seeds", "0"], "seeds: 0"),
        (["--out", grid], "is a file"),
        (["--out", str(tmp_path)], "holds files that no trade-off wrote"),
    ):
        assert run(grid, "--out", str(out), *words) == 2
        assert reason in capsys.readouterr().err
        assert not out.exists()
    assert run("mnist", "--data", str(tmp_path), "--out", str(out)) == 2
    assert f"path: {tmp_path / 'mnist.npz'} does not exist" in capsys.readouterr().err
    assert not out.exists()
    assert run("quack") == 2
    assert "quack is neither a file nor a shipped grid (did you mean quick?)" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_of_another_grid_are_not_mixed_in(carried, write, capsys):
    _, root, _ = carried
    (root / "grid.json").write_text("{}")
    assert run(write(TINY.replace("rounds = 3", "rounds = 4") + SERIES), "--out", str(root)) == 2
    assert "holds a run of another configuration" in capsys.readouterr().err
    assert VARYING == ("seconds", "peak_memory")


def test_the_guide_names_every_measure_and_group_of_columns():
    words = (Path(__file__).parents[2] / "docs" / "tradeoff.md").read_text()
    known = {name.strip() for span in re.findall(r"`([^`]*)`", words) for name in span.split(",")}
    found = [column.name for column in columns([measured("h", epsilon=1.0, leaks=[leak(0.6)])])]
    assert {measure.field for measure in MEASURES} <= known
    groups = ("proxies_", "weights_", "run_", "attack", "proxies_attack", "models_attack")
    assert set(groups) <= known and all(any(name.startswith(group) for name in found) for group in groups)
    plain = [
        name for name in found if not re.search("_(mean|sd|n)$", name) and not name.startswith((*groups, "seconds_"))
    ]
    assert set(plain) <= known
