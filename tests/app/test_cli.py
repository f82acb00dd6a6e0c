"""The command line: what it refuses and how it says so, runs from end to end, and a help that is quick."""

import io
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from run_folders import make_folder

from fedgr_secure.app import cli, commands, presets, report
from fedgr_secure.app.failures import OUT_OF_MEMORY
from fedgr_secure.checks import check
from fedgr_secure.config import read_toml, to_toml
from fedgr_secure.errors import InputError
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.sections import Config, Method

NAMES = ", ".join(map(repr, get_args(Method)))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(capsys):
    """`call("run", ...)` is the command's exit code, standard output and standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def no_figures(monkeypatch):
    """Figures take seconds; one test draws them."""
    monkeypatch.setattr(report, "write_figures", lambda run, folder: ())


def images(count=40):
    return np.random.default_rng(0).integers(256, size=(count, 8, 8)).astype(np.uint8)


def archive(name="data.npz", **changes):
    contents = {"x_train": images(), "y_train": np.arange(40) % 4, "x_test": images(12), "y_test": np.arange(12) % 4}
    np.savez(name, **(contents | changes))


def floats(value):
    pixels = images().astype(np.float32) / 255
    pixels[3, 2, 1] = value
    return pixels


NPZ = ["--dataset", "npz", "--path", "data.npz"]


@pytest.mark.parametrize(
    ("contents", "named"),
    [
        ({"x_train": np.zeros((40, 64), np.uint8)}, ["x_train", "(40, 64)", "(N, height, width)"]),
        ({"x_test": np.zeros((12, 9, 8), np.uint8)}, ["x_test", "(9, 8)", "(8, 8)"]),
        ({"y_train": np.arange(39) % 4}, ["y_train", "39", "40"]),
        ({"y_test": np.full((12, 2), 1)}, ["y_test", "(12, 2)", "(N,)"]),
        ({"y_train": np.where(np.arange(40) == 7, -1, np.arange(40) % 4)}, ["y_train", "-1 at position 7", "0 to 3"]),
        ({"y_train": np.where(np.arange(40) == 7, 900, np.arange(40) % 4)}, ["900", "below the number of images, 52"]),
        ({"y_train": np.arange(40) / 4}, ["y_train", "float64", "whole numbers"]),
        ({"x_train": floats(np.nan)}, ["x_train", "nan in image 3", "finite numbers"]),
        ({"x_train": floats(-1)}, ["x_train", "-1", "0 to 255"]),
        ({"y_train": np.zeros(40, int), "y_test": np.zeros(12, int)}, ["classes", "1", "at least 2"]),
    ],
)
def test_bad_arrays_are_refused_in_one_line(here, call, tiny_flags, contents, named):
    archive(**contents)
    assert_refused(here, call, ["run", *tiny_flags(train_size=None, test_size=None), *NPZ], named)


def assert_refused(here, call, arguments, named):
    before = sorted(here.rglob("*"))
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    for part in named:
        assert part in err
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--dataset npz", ["path", "not given", "npz", "--path"]),
        ("--dataset npz --path nothing.npz", ["path", "nothing.npz", "existing .npz file"]),
        ("--dataset cifar10 --path nowhere", ["path", "nowhere"]),
        ("--dataset folder --path nowhere", ["path", "nowhere"]),
        ("--clients 121", ["clients", "121", "1 to 120"]),
        ("--partition dirichlet --min-samples 31", ["min_samples", "31", "at most 30"]),
        ("--partition file", ["partition_file", "--partition-file"]),
        ("--partition file --partition-file none.json", ["none.json"]),
        ("--phi 1.5", ["phi", "1.5", "from 0 to 1"]),
        ("--phi nan", ["phi", "nan", "from 0 to 1"]),
        ("--rho-min -0.1", ["rho_min", "-0.1", "from 0 to 1"]),
        ("--rho-max 1.01", ["rho_max", "1.01", "from 0 to 1"]),
        ("--rho-min 0.5 --rho-max 0.4", ["rho_min", "0.5", "at most rho_max = 0.4"]),
        ("--label-noise given", ["label_noise", "given", "digits"]),
        ("--cohort 5", ["cohort", "5", "at most clients = 4"]),
        ("--cohort 0", ["cohort", "0", "whole number from 1"]),
        ("--rounds 0", ["rounds", "0", "whole number from 1"]),
        ("--warmup -1", ["warmup", "-1", "whole number from 0"]),
        ("--lr 0", ["lr", "0.0", "above 0"]),
        ("--lr inf", ["lr", "inf", "finite"]),
        ("--lr 1e39", ["lr", "1e+39", "at most 3e38 (32 bits)"]),
        ("--tau nan", ["tau", "nan", "finite"]),
        ("--momentum 1", ["momentum", "1.0", "below 1"]),
        ("--beta 2", ["beta", "2.0", "from 0 to 1"]),
        ("--decide-at server --no-sieve", ["decide_at", "server", "sieve on"]),
        ("--pretrained x.pth", ["pretrained", "x.pth", "resnet50", "mlp"]),
        ("--model resnet50", ["model", "resnet50", "8x8", "32"]),
        ("--seed -1", ["seed", "-1", "from 0"]),
        ("--train-size 99999", ["train_size", "99999", "1437"]),
        ("--device abacus", ["device", "abacus"]),
        ("--device meta", ["device", "meta"]),
        ("--image-size 16", ["image_size", "16", "folder"]),
        ("--width 1180591620717411303424", ["width", "1180591620717411303424", "1 to 1024"]),  # 2^70
        ("--threads 1000000000", ["threads", "1000000000", "1 to 1024"]),
        (f"--out {'x' * 300}", ["x" * 300, "File name too long"]),
    ],
)
def test_bad_settings_are_refused_in_one_line(here, call, tiny_flags, flags, named):
    assert_refused(here, call, ["run", *tiny_flags(), *flags.split()], named)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--methods fedgr fedavg fedgr", ["methods", "fedgr fedavg fedgr", "each once"]),
        ("--seeds 0", ["seeds", "0", "whole number from 1"]),
        ("--seeds 1000000000", ["seeds", "1000000000", "1 to 10000"]),
        ("--jobs 0", ["jobs", "0", "whole number from 1"]),
        ("--jobs -2", ["jobs", "-2", "whole number from 1"]),
        ("--rounds 0", ["rounds", "0", "whole number from 1"]),
    ],
)
def test_bad_comparisons_are_refused_before_any_run(here, call, tiny_flags, flags, named):
    assert_refused(here, call, ["compare", *tiny_flags(), *flags.split()], named)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --method fedagv", f"--method: 'fedagv', allowed: {NAMES}"),
        ("compare --methods fedagv", f"--methods: 'fedagv', allowed: {NAMES}"),
        ("compare --methods", "methods: none, allowed: each once, at least one"),
        ("run --rounds many", "--rounds: 'many', allowed: a whole number"),
        ("run --rounds 2.5", "--rounds: '2.5', allowed: a whole number"),
        ("run --train-size many", "--train-size: 'many', allowed: a whole number"),
        ("run --phi half", "--phi: 'half', allowed: a number"),
        ("run --loss-cap no", "--loss-cap: 'no', allowed: a number"),
        ("run --rounds", "--rounds: no value, allowed: one value"),
        ("run --clinets 3", "--clinets: unknown to run (did you mean --clients?); fedgr-secure run --help names all"),
        ("run --clinets=3", "--clinets: unknown to run (did you mean --clients?); fedgr-secure run --help names all"),
        ("run --no-seive", "--no-seive: unknown to run (did you mean --no-sieve?); fedgr-secure run --help names all"),
        (
            "run --methods fedgr",
            "--methods: unknown to run (did you mean --method?); fedgr-secure run --help names all",
        ),
        (
            "compare --method fedgr",
            "--method: unknown to compare (did you mean --methods?); fedgr-secure compare --help names all",
        ),
        ("resume x --rounds 3", "--rounds: unknown to resume; fedgr-secure resume --help names all"),
        ("report x y", "y: unknown to report; fedgr-secure report --help names all"),
        ("run --sieve no", "no: no flag takes this value; a CONFIG goes right after the command, before every flag"),
        ("rum", "rum: unknown (did you mean run?); fedgr-secure --help names all"),
        ("--versoin", "--versoin: unknown (did you mean --version?); fedgr-secure --help names all"),
        (
            "run --tyro-print-completion bash",
            "--tyro-print-completion: unknown to run; fedgr-secure run --help names all",
        ),
        ("", "command: none, allowed: run, compare, tradeoff, resume, report, attack, accountant, audit, methods"),
        ("resume", "resume: RUN_FOLDER is missing"),
        ("report", "report: RUN_FOLDER is missing"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])  # the parser frames its words, or does not
def test_what_the_parser_cannot_read_is_refused_in_one_line(here, call, arguments, said, encoding, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert call(*arguments.split()) == (2, "", f"error: {said}\n")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"[federation]\nrouns = 3\n", ["bad.toml: federation", "rouns", "did you mean rounds?"]),
        (b"[federatoin]\nrounds = 3\n", ["bad.toml", "federatoin", "did you mean federation?"]),
        (b"metod = 'fedgr'\n", ["bad.toml", "metod", "did you mean method?"]),
        (b"method = 'fedagv'\n", ["bad.toml: method", "fedagv", ", ".join(get_args(Method))]),
        (b"[federation]\nrounds = '3'\n", ["bad.toml: federation: rounds", "'3'", "int"]),
        (b"federation = 3\n", ["bad.toml: federation", "3", "table"]),
        (b"[federation\n", ["bad.toml", "cannot be read as TOML"]),
        (b"\xff\xfe", ["bad.toml", "cannot be read as TOML"]),
        (b"[noise]\nphi = 7.0\n", ["phi", "7.0", "from 0 to 1"]),
    ],
)
def test_bad_config_files_are_refused_in_one_line(here, call, content, named):
    (here / "bad.toml").write_bytes(content)
    assert_refused(here, call, ["run", "bad.toml"], named)


def test_a_config_that_is_not_there_is_refused_with_the_nearest_preset(here, call):
    assert_refused(here, call, ["run", "digit"], ["config", "digit", "did you mean digits?", *presets.names()])
    assert_refused(here, call, ["compare", "zzz.toml"], ["zzz.toml", "neither a file nor a preset"])
    assert_refused(here, call, ["run", "."], ["cannot be read as TOML: it is not a file"])
    assert_refused(here, call, ["run", "x" * 5000], ["neither a file nor a preset"])
    os.mkfifo(here / "pipe")
    assert_refused(here, call, ["run", "pipe"], ["pipe", "it is not a file"])
    (here / "two\nlines.toml").write_text("[")
    assert_refused(here, call, ["run", "two\nlines.toml"], [r"two\nlines.toml"])


def test_a_config_behind_the_flags_is_refused_rather_than_ignored(here, call):
    (here / "a.toml").write_text("[federation]\nrounds = 2\n")
    assert_refused(here, call, ["run", "--rounds", "3", "a.toml"], ["a.toml", "before every flag"])


def test_a_file_gives_the_defaults_and_flags_override_it(here):
    (here / "a.toml").write_text('method = "fedprox"\n[federation]\nrounds = 7\ncohort = 3\n[fedprox]\nmu = 0.5\n')
    config = cli.parse(["run", "a.toml", "--rounds", "9", "--no-sieve"]).config
    assert (config.method, config.federation.rounds, config.federation.cohort) == ("fedprox", 9, 3)
    assert (config.fedprox.mu, config.fedgr.sieve, config.federation.clients) == (0.5, False, 20)
    compared = cli.parse(["compare", "a.toml", "--methods", "fedavg", "central", "--seeds", "2"])
    assert (compared.methods, compared.seeds, compared.config.federation.rounds) == (("fedavg", "central"), 2, 7)
    assert cli.parse(["run"]).config == Config()


@pytest.mark.parametrize("name", presets.names())
def test_presets_load_and_only_lack_the_data(name):
    config = presets.load(name)
    try:
        check(config)
    except InputError as error:
        assert str(error).startswith("path: not given")
        assert config.data.dataset != "digits"


def test_there_are_presets():
    assert "digits" in presets.names()


def test_a_config_written_as_toml_reads_back_equal(tmp_path, tiny):
    config = tiny(method="fedprox", lr=0.125, sieve=False, out=tmp_path / "run")
    (tmp_path / "a.toml").write_text(to_toml(config))
    assert read_toml(tmp_path / "a.toml") == config


def test_folders_that_cannot_take_a_run_are_refused(here, call, tiny_flags, stopped):
    (here / "thesis").mkdir()
    (here / "thesis" / "chapter1").write_text("precious")
    (here / "note").write_text("precious")
    stopped(after=1, out=here / "old", method="fedavg")
    for arguments, named in (
        (["--out", "old"], ["out", "old", "holds a run already", "--force"]),
        (["--out", "thesis"], ["out", "thesis", "not a run folder"]),
        (["--out", "thesis", "--force"], ["out", "thesis", "not a run folder"]),
        (["--out", "note", "--force"], ["out", "note", "is a file"]),
        (["--out", "note/run"], ["out", "note/run"]),
    ):
        assert_refused(here, call, ["run", *tiny_flags(), *arguments], named)
    assert (here / "thesis" / "chapter1").read_text() == (here / "note").read_text() == "precious"


def test_folders_that_cannot_be_resumed_or_reported_are_refused(here, call, stopped, finished):
    (here / "thesis").mkdir()
    assert_refused(here, call, ["resume", "thesis"], ["thesis", "no run was started in it"])
    assert_refused(here, call, ["resume", "nowhere"], ["nowhere", "no run was started in it"])
    assert_refused(here, call, ["report", "nowhere"], ["nowhere", "does not exist"])
    assert_refused(here, call, ["report", "thesis"], ["thesis", "no manifest.json"])
    folder = stopped(after=2, checkpoint_every=1, out=here / "damaged")
    (folder / "checkpoint" / "server.round-0000002").write_bytes(b"junk")
    assert_refused(
        here, call, ["resume", "damaged", "--json"], ["server.round-0000002", "damaged (its checksum differs)"]
    )
    (folder / "checkpoint" / "checkpoint.json").write_text('{"schema": 1')
    assert_refused(here, call, ["resume", "damaged", "--json"], ["checkpoint.json", "cannot be read"])
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 99'))
    assert_refused(here, call, ["resume", "damaged", "--json"], ["manifest.json", "schema 99", "allowed: 1"])
    code, _, err = call("resume", str(finished().folder), "--json")
    assert (code, err.count("\n")) == (2, 1)
    assert f"is complete; nothing to resume; its report: fedgr-secure report {finished().folder}" in err


def test_a_run_from_end_to_end_and_its_report_again(here, call, tiny_flags, monkeypatch):
    drawn = []
    with monkeypatch.context() as patch:  # figures take seconds: drawn once, by the report
        patch.setattr(
            report, "write_figures", lambda run, folder: drawn.append((run.summary.rounds, folder.name)) or ()
        )
        code, out, err = call("run", *tiny_flags(), "--json", "--out", "mine")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary == json.loads((here / "mine" / "summary.json").read_text())
    assert (summary["method"], summary["rounds"], summary["client_updates"]) == ("fedgr", 4, 8)
    assert 0 <= summary["accuracy_last10"] <= summary["accuracy_best"] <= 1
    assert drawn == [(4, "mine")]
    assert "FedGR" in (here / "mine" / "report.html").read_text()
    (here / "mine" / "report.html").unlink()
    code, out, _ = call("report", "mine")
    assert code == 0
    assert out == "report: mine/report.html\n"
    assert "FedGR" in (here / "mine" / "report.html").read_text()
    assert {path.suffix for path in (here / "mine" / "figures").iterdir()} == {".png"}


def test_a_run_for_people_says_where_it_left_things(here, call, tiny_flags, no_figures):
    code, out, err = call("run", *tiny_flags(), "--method", "fedavg", "--seed", "3")
    assert (code, err) == (0, "")
    summary = json.loads(Path("runs/fedavg-digits-s3/summary.json").read_text())
    assert "FedAvg on digits, seed 3" in out
    assert f"{100 * summary['accuracy_last10']:.1f}%" in out
    folder = "runs/fedavg-digits-s3"
    assert out.endswith(f"\nrun folder: {folder}\nreport:     {folder}/report.html\n")


def test_a_run_that_never_leaves_the_warm_up_says_so(here, call, tiny_flags, no_figures):
    said = "all 2 rounds were its first stage (--warmup); what it is for never began"
    code, out, _ = call("run", *tiny_flags(rounds=2, warmup=2))
    assert code == 0 and said in " ".join(out.split())
    code, out, _ = call("run", *tiny_flags(rounds=2, warmup=1), "--force")
    assert code == 0 and "warm-up" not in out


def test_a_sieve_that_finds_nothing_says_so(here, call, tiny_flags, no_figures):
    code, out, _ = call("run", *tiny_flags(rounds=2, channel="noisy", epsilon=0.01, noise="insecure-seeded"))
    assert code == 0 and "FedGR: the last sieve found nothing (all clean: one mode" in " ".join(out.split())


def test_a_long_path_is_printed_in_one_piece(here, call, no_figures):
    folder = make_folder(here / ("long" * 40))
    assert call("report", folder.name) == (0, f"report: {folder.name}/report.html\n", "")


def test_a_stopped_run_is_resumed(here, call, stopped, finished, no_figures):
    stopped(after=3, checkpoint_every=2, out=here / "run")
    code, out, _ = call("resume", "run", "--json")
    assert code == 0
    assert json.loads(out) == json.loads((here / "run" / "summary.json").read_text())
    again, wanted = ((folder / "rounds.jsonl").read_bytes() for folder in (here / "run", finished().folder))
    assert again == wanted


def test_a_diverging_run_exits_with_one_names_who_and_keeps_its_rounds(here, call, tiny_flags):
    code, out, err = call("run", *tiny_flags(), "--rounds", "20", "--lr", "1e6", "--json", "--out", "run")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    records = RunFolder(here / "run").rounds()
    assert records
    assert f"round {len(records)}" in err
    assert "client" in err
    assert "--lr" in err


@pytest.fixture
def interrupted(monkeypatch):
    def interrupt(*anything, **options):
        raise KeyboardInterrupt

    for command in ("run", "compare", "resume"):
        monkeypatch.setattr(commands, command, interrupt)


def test_an_interrupt_says_how_to_go_on(here, call, interrupted):
    assert call("run") == (130, "", "stopped before the first round\n")
    make_folder(here / "my run", finished=False)
    going_on = "stopped; continue with: fedgr-secure resume 'my run'\n"
    assert call("run", "--out", "my run") == call("resume", "my run") == (130, "", going_on)
    make_folder(here / "done")
    report_it = "stopped; the run is complete; for its report: fedgr-secure report done\n"
    assert call("run", "--out", "done") == (130, "", report_it)
    assert call("compare") == (130, "", "stopped; the same command continues\n")
    assert call("compare", "--force") == (130, "", "stopped; the same command without --force continues\n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "a/b"), "a/b: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), OUT_OF_MEMORY),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), OUT_OF_MEMORY),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), OUT_OF_MEMORY),
    ],
)
def test_what_the_machine_refuses_is_one_line(call, monkeypatch, error, said):
    def fail(config, *, as_json):
        raise error

    monkeypatch.setattr(commands, "run", fail)
    assert call("run") == (2, "", f"error: {said}\n")


def test_a_mistake_in_this_program_keeps_its_traceback(monkeypatch):
    def fail(config, *, as_json):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(commands, "run", fail)
    with pytest.raises(RuntimeError, match="shapes"):
        cli.main(["run"])


@pytest.mark.parametrize("name", ["report.html", "figures", "summary.json", "figures/accuracy.png"])
def test_a_folder_in_place_of_a_file_is_named(here, call, name):
    folder = make_folder(here / "run")
    (folder / "summary.json").unlink()
    (folder / name).mkdir(parents=True)
    if name == "figures":
        (folder / name).rmdir()
        (folder / name).touch()
    code, out, err = call("report", "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: run/{name}: ")


def full():
    return Path("/dev/full").open("w")


def closed():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's device that is always full")
@pytest.mark.parametrize(("stream", "why"), [(full, "No space left on device"), (closed, "Broken pipe")])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["report", "run"]])
def test_words_that_nobody_can_read_are_an_error_of_one_line(
    here, capsys, monkeypatch, no_figures, arguments, stream, why
):
    make_folder(here / "run")
    monkeypatch.setattr(sys, "stdout", stream())
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    sys.stdout.close()  # as Python does at its end: nothing is left that could fail
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: standard output: cannot be written: {why}\n"


def test_what_a_terminal_cannot_show_is_escaped(here, monkeypatch, no_figures):
    make_folder(here / "r\xfcn")
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "r\xfcn"])
    assert ended.value.code == 0
    assert shown.buffer.getvalue() == b"report: r\\xfcn/report.html\n"


HELP = """
import sys
from fedgr_secure.app.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    heavy = sorted({"torch", "sklearn", "matplotlib", "numpy", "scipy", "torchvision"} & sys.modules.keys())
    print(end.code, *heavy, file=sys.stderr)
"""


def cpu_seconds():
    times = os.times()
    return times.children_user + times.children_system


def help_text(*arguments):
    """The help, after checking that nothing heavy was imported for it."""
    done = subprocess.run([sys.executable, "-c", HELP, *arguments], capture_output=True, text=True, check=True)
    code, *imported = done.stderr.split()
    assert code == "0"
    assert not {"torch", "sklearn", "matplotlib", "torchvision"} & set(imported)
    return done.stdout


@pytest.mark.parametrize("command", ["run", "compare"])
def test_the_help_of_a_command_imports_nothing_heavy(command):
    text = help_text(command, "--help")
    assert "--rounds" in text
    assert "None)" not in text  # a setting that may be unset says itself what that means
    assert ("--method " in text) == (command == "run")


def test_the_version_imports_nothing_heavy():
    assert help_text("--version") == f"fedgr-secure {metadata.version('fedgr-secure')}\n"


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_value_from_a_file_is_shown_as_the_default(here, call, command):
    (here / "a.toml").write_text('[data]\ntrain_size = 77\n[output]\nout = "there"\n')
    code, out, _ = call(command, "a.toml", "--help")
    assert code == 0
    assert "(default: 77)" in " ".join(out.split())
    assert "(default: there)" in " ".join(out.split())


def test_the_main_help_is_quick(record_property):
    """About 0.25 s of CPU on a quiet machine; torch alone takes several. The best of three, as machines are shared."""
    spent = []
    while len(spent) < 3 and min(spent, default=1) > 0.75:
        before = cpu_seconds()
        assert {"run", "compare", "resume", "report"} <= set(help_text("--help").split())
        spent.append(cpu_seconds() - before)
    record_property("cpu_seconds", min(spent))
    assert min(spent) <= 0.75
