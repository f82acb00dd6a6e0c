"""Configurations: strict reading, lossless writing, and every rule of `check`."""

import ast
import dataclasses
import inspect
import itertools
import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgr_secure.baseline_sections import UNPRIVATE, UNSUMMED
from fedgr_secure.checks import check
from fedgr_secure.config import from_table, override, read_toml, to_table, to_toml
from fedgr_secure.errors import InputError, nearest
from fedgr_secure.sections import (
    Config,
    DataConfig,
    FederationConfig,
    FedGRConfig,
    FedProxConfig,
    Method,
    ModelConfig,
    NoiseConfig,
    OutputConfig,
    PartitionConfig,
    ProxyConfig,
    TrainingConfig,
)
from fedgr_secure.typed import decode, read_json, read_json_lines

SECTIONS = [
    field.name for field in dataclasses.fields(Config) if dataclasses.is_dataclass(getattr(Config(), field.name))
]


def section_of(name):
    """Where a flat flag name lives: None for the top."""
    return next((s for s in SECTIONS if name in vars(getattr(Config(), s))), None)


def with_value(config, name, value):
    section = section_of(name)
    if section is None:
        return replace(config, **{name: value})
    return replace(config, **{section: replace(getattr(config, section), **{name: value})})


def test_field_names_are_unique_over_all_sections():
    names = [field.name for field in dataclasses.fields(Config)]
    for section in SECTIONS:
        names += [field.name for field in dataclasses.fields(getattr(Config(), section))]
    repeated = {name for name in names if names.count(name) > 1}
    # the section `partition` holds the field `partition`; a section's own name is no flag
    assert repeated <= set(SECTIONS) and all(names.count(name) == 2 for name in repeated)
    fields = [name for name in names if name not in SECTIONS] + list(repeated)
    assert len(fields) == len(set(fields))


def documented(section):
    """The fields of a config dataclass that a docstring of one line follows, in the source."""
    (tree,) = ast.parse(inspect.getsource(section)).body
    return {
        field.target.id
        for field, words in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(words, ast.Expr)
        and isinstance(words.value, ast.Constant)
        and words.value.value.count("\n") == 0
    }


@pytest.mark.parametrize("section", [Config, *(type(getattr(Config(), name)) for name in SECTIONS)])
def test_every_setting_has_one_line_of_help(section):
    settings = {field.name for field in dataclasses.fields(section)} - (set(SECTIONS) if section is Config else set())
    assert settings <= documented(section)


def test_a_setting_that_may_be_unset_says_what_then_happens():
    for section in SECTIONS:
        source = inspect.getsource(type(getattr(Config(), section))).split("\n")
        for number, line in enumerate(source):
            if line.endswith(" = None"):
                assert "UNSET" in line and "(default" in source[number + 1], line


# reading and writing

PATHS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).map(Path)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
CONFIGS = st.builds(
    Config,
    method=st.sampled_from(get_args(Method)),
    seed=st.integers(0, 2**63 - 1),
    data=st.builds(DataConfig, path=st.none() | PATHS, download=st.booleans(), given_labels=st.text(max_size=8)),
    noise=st.builds(NoiseConfig, rho_min=FINITE, rho_max=FINITE, label_noise=st.sampled_from(["none", "mixed"])),
    training=st.builds(TrainingConfig, lr=FINITE, weight_decay=FINITE, local_epochs=st.integers(1, 99)),
    fedgr=st.builds(FedGRConfig, tau=FINITE, sieve=st.booleans(), representation=st.sampled_from(["cosine", "kl"])),
    output=st.builds(OutputConfig, out=st.none() | PATHS, threads=st.none() | st.integers(1, 64)),
)


@given(config=CONFIGS)
def test_toml_round_trip(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    path.write_text(to_toml(config), encoding="ascii")
    assert read_toml(path) == config


@pytest.mark.parametrize(
    "text", ['quote"', "back\\slash", "line\nbreak", "\x7f", "\x85", "ünï", "\U0001f600", "\\ud83d"]
)
def test_toml_keeps_every_character(tmp_path, text):
    config = Config(data=DataConfig(dataset="npz", path=Path(text), given_labels=text))
    assert read(tmp_path, to_toml(config)) == config


def test_a_table_that_leaves_everything_out_is_the_default():
    assert from_table({}, where="x") == Config()
    assert from_table(to_table(Config()), where="x") == Config()


def read(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return read_toml(path)


def test_an_integer_is_a_float_where_a_float_is_meant(tmp_path):
    lr = read(tmp_path, "[training]\nlr = 1").training.lr
    assert lr == 1.0 and isinstance(lr, float)


@pytest.mark.parametrize(
    "text, parts",
    [
        ("[federation]\nrouns = 3", ["federation", "unknown key 'rouns'", "did you mean rounds?"]),
        ("[fedrgr]\nbeta = 0.5", ["unknown key 'fedrgr'", "did you mean fedgr?"]),
        ("[fedgr]\nzzzzzz = 0.5", ["unknown key 'zzzzzz'"]),
        ("[federation]\nrounds = '3'", ["federation: rounds: '3', allowed: int"]),
        ("[federation]\nrounds = 3.0", ["federation: rounds: 3.0, allowed: int"]),
        ("[federation]\nrounds = true", ["federation: rounds: True, allowed: int"]),
        ("[training]\nlr = 'big'", ["training: lr: 'big', allowed: float"]),
        ("[training]\nlr = true", ["training: lr: True, allowed: float"]),
        ("[training]\nlr = nan", ["training: lr: nan, allowed: a finite number"]),
        ("[training]\nlr = -inf", ["training: lr: -inf, allowed: a finite number"]),
        ("[fedgr]\nsieve = 1", ["fedgr: sieve: 1, allowed: bool"]),
        ("[data]\npath = 3", ["data: path: 3, allowed: Path"]),
        ("[data]\ntrain_size = 'all'", ["data: train_size: 'all', allowed: int"]),
        ("method = 'fedsgd'", [f"method: 'fedsgd', allowed: {', '.join(get_args(Method))}"]),
        ("[fedgr]\nrepresentation = 'cos'", ["representation: 'cos', allowed: cosine, l2, kl"]),
        ("fedgr = 3", ["fedgr: 3, allowed: a table"]),
        ("[fedgr\n", ["cannot be read as TOML"]),
        ("seed = " + "9" * 5000, ["cannot be read as TOML", "4300 digits"]),
        ("seed = 0x" + "f" * 5000, ["seed: a huge int, allowed: int of at most 64 bits"]),
        ("seed = 18446744073709551616", ["seed: 18446744073709551616, allowed: int of at most 64 bits"]),
        ("[training]\nlr = 0x" + "f" * 5000, ["lr: a huge int, allowed: a finite number"]),
        ("seed = " + "[" * 5000 + "]" * 5000, ["cannot be read as TOML: it is nested too deeply"]),
        ("seed" + ".a" * 5000 + " = 1", ["seed: a huge dict, allowed: int"]),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, text, parts):
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    for part in ["run.toml", *parts]:
        assert part in str(error.value)


def test_no_hint_where_nothing_is_near():
    assert nearest("zzzzzz", ["rounds", "clients"]) == ""


def test_a_missing_file_or_one_that_is_not_text_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as TOML"):
        read_toml(tmp_path / "bytes.toml")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for a writer
    for path, message in (
        (tmp_path, "cannot be read as TOML: it is not a file"),
        (tmp_path / "pipe", "cannot be read as TOML: it is not a file"),
        (Path("x" * 5000), "does not exist"),
        (Path("x\0y"), "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            read_toml(path)


# override


@pytest.mark.parametrize(
    "name, value",
    [
        ("method", "fedavg"),
        ("seed", 4),
        ("lr", 0.3),
        ("sieve", False),
        ("mu", 0.7),
        ("partition", "dirichlet"),
        ("model", "mlp"),
        ("out", Path("x")),
    ],
)
def test_override_sets_one_setting_by_its_flat_name(name, value):
    config = override(Config(), {name: value})
    assert config == with_value(Config(), name, value) and config != Config()


def test_override_sets_several_and_refuses_unknown_names():
    config = override(Config(), {"rounds": 3, "warmup": 1, "tau": 0.25})
    assert (config.federation.rounds, config.federation.warmup, config.fedgr.tau) == (3, 1, 0.25)
    assert override(Config(), {}) == Config()
    with pytest.raises(InputError, match=r"unknown name 'rouns' \(did you mean rounds\?\)"):
        override(Config(), {"rouns": 3})


def test_override_takes_a_whole_section():
    section = NoiseConfig(rho_min=0.1)
    assert override(Config(), {"noise": section}).noise is section


# check


def test_the_defaults_and_the_bounds_pass():
    assert check(Config()) == Config()
    zeros = ["phi", "cutout", "beta", "gamma_g", "gamma_l", "confidence", "mu", "lambda_b", "lambda_r", "weight_decay"]
    for name in [*zeros, "rho_min", "momentum", "randaugment_magnitude"]:
        check(with_value(Config(), name, 0.0))
    for name in ["phi", "rho_max", "beta", "gamma_g", "gamma_l", "confidence", "cutout"]:
        check(with_value(Config(), name, 1.0))
    for name in ["warmup", "checkpoint_every", "memorised_every", "randaugment_ops", "crop_padding", "seed"]:
        check(with_value(Config(), name, 0))
    check(replace(Config(), federation=FederationConfig(clients=5, cohort=5)))


SHARES = ["phi", "rho_min", "rho_max", "cutout", "randaugment_magnitude", "beta", "gamma_g", "gamma_l", "confidence"]
LEAST = {
    "clients": 1,
    "cohort": 1,
    "rounds": 1,
    "warmup": 0,
    "local_epochs": 1,
    "batch_size": 1,
    "width": 1,
    "min_samples": 1,
    "randaugment_ops": 0,
    "checkpoint_every": 0,
    "memorised_every": 0,
    "train_size": 1,
    "test_size": 1,
    "image_size": 8,
    "crop_padding": 0,
    "threads": 1,
}
RULES = [
    ("seed", -1, "seed: -1, allowed: a whole number from 0"),
    *((name, -0.1, f"{name}: -0.1, allowed: from 0 to 1") for name in SHARES),
    *((name, 1.1, f"{name}: 1.1, allowed: from 0 to 1") for name in SHARES),
    *((name, math.nan, f"{name}: nan, allowed: from 0 to 1") for name in SHARES),
    *((name, n - 1, f"{name}: {n - 1}, allowed: a whole number from {n}") for name, n in LEAST.items()),
    *((name, 2**70, f"{name}: {2**70}, allowed: a whole number from {n}") for name, n in {**LEAST, "seed": 0}.items()),
    ("rounds", 2.5, "rounds: 2.5, allowed: a whole number from 1 to 1000000 (more would run for years)"),
    ("threads", 10**9, "threads: 1000000000, allowed: a whole number from 1 to 1024 (more than any machine has cores)"),
    ("width", 10**9, "allowed: a whole number from 1 to 1024 (the model grows with its square)"),
    *((name, "runs/x", f"{name}: 'runs/x', allowed: a pathlib.Path") for name in ("out", "path", "partition_file")),
    ("out", Path("a\0b"), r"out: 'a\x00b', allowed: a path without a NUL character"),
    *(
        (name, value, f"{name}: {value}, allowed: a finite number above 0")
        for name in ("lr", "dirichlet_alpha", "tau", "loss_cap")
        for value in (0.0, -1.0, 1e39, math.inf, math.nan)
    ),
    *(
        (name, value, f"{name}: {value}, allowed: a finite number from 0")
        for name in ("weight_decay", "lambda_b", "lambda_r", "mu")
        for value in (-1e-9, 1e39, math.inf, math.nan)
    ),
    *((name, 2**63, f"{name}: {2**63}, allowed: a whole number from ") for name in ("seed", "rounds", "crop_padding")),
    *(("momentum", value, f"momentum: {value}, allowed: from 0 to below 1") for value in (-0.1, 1.0, math.nan)),
]


@pytest.mark.parametrize("name, value, message", RULES, ids=lambda value: str(value)[:24])
def test_check_refuses_by_name(name, value, message):
    with pytest.raises(InputError) as error:
        check(with_value(Config(), name, value))
    assert message in str(error.value)


@pytest.mark.parametrize(
    "config, message",
    [
        (Config(noise=NoiseConfig(rho_min=0.6, rho_max=0.5)), "rho_min: 0.6, allowed: at most rho_max = 0.5"),
        (Config(federation=FederationConfig(clients=4, cohort=5)), "cohort: 5, allowed: at most clients = 4"),
        (Config(data=DataConfig(dataset="cifar10")), "path: not given, but dataset cifar10"),
        (Config(partition=PartitionConfig(partition="file")), "partition_file: not given"),
        (Config(model=ModelConfig(pretrained=Path("w.pth"))), "pretrained: w.pth, allowed: only with model resnet50"),
        (Config(fedgr=FedGRConfig(decide_at="server", sieve=False)), "decide_at: server, allowed: only with the sieve"),
    ],
)
def test_check_refuses_settings_that_do_not_fit_together(config, message):
    with pytest.raises(InputError) as error:
        check(config)
    assert message in str(error.value)


def test_settings_that_do_fit_together_pass():
    check(Config(data=DataConfig(dataset="npz", path=Path("x.npz"))))
    check(Config(partition=PartitionConfig(partition="file", partition_file=Path("p.json"))))
    check(Config(model=ModelConfig(model="resnet50", pretrained=Path("w.pth"))))
    check(Config(fedgr=FedGRConfig(decide_at="server"), proxies=ProxyConfig(channel="plain")))
    check(Config(fedprox=FedProxConfig(mu=0)))


# decode


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()
    pair: tuple[int, int] | None = None
    shade: Literal["dark", "light"] = "dark"
    notes: dict[str, int] = dataclasses.field(default_factory=dict)


def test_decode_reads_nested_values():
    full = {"x": 1, "tags": ["a", "b"], "pair": [1, 2], "shade": "light", "notes": {"k": 3}}
    assert decode(Point, full, "p") == Point(1.0, ("a", "b"), (1, 2), "light", {"k": 3})
    assert decode(Point, full | {"pair": None}, "p").pair is None
    assert decode(Point, {"x": 2.5}, "p", defaults=True) == Point(2.5)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tags": "ab"}, "p: tags: 'ab', allowed: a list"),
        ({"tags": ["a", 1]}, "p: tags[1]: 1, allowed: str"),
        ({"pair": [1]}, "p: pair: 1 entries, allowed: 2"),
        ({"pair": [1, 2.0]}, "p: pair[1]: 2.0, allowed: int"),
        ({"shade": "dim"}, "p: shade: 'dim', allowed: dark, light"),
        ({"shade": []}, "p: shade: [], allowed: dark, light"),
        ({"notes": []}, "p: notes: [], allowed: an object"),
        ({"notes": {"k": "v"}}, "p: notes: k: 'v', allowed: int"),
        ({"x": None}, "p: x: None, allowed: float"),
        ({"x": 10**400}, "allowed: a finite number"),
        ({"x": 10**5000}, "x: a huge int, allowed: a finite number"),
        ({"pair": [1, 2**63]}, "p: pair[1]: 9223372036854775808, allowed: int of at most 64 bits"),
        ({"notes": nested(5000)}, "p: notes: a huge list, allowed: an object"),
        ({"y": 1}, "p: unknown key 'y'"),
    ],
)
def test_decode_names_the_place(change, message):
    full = {"x": 1.0, "tags": [], "pair": None, "shade": "dark", "notes": {}}
    with pytest.raises(InputError) as error:
        decode(Point, full | change, "p")
    assert message in str(error.value)


def test_decode_without_defaults_wants_every_key_that_has_none():
    with pytest.raises(InputError, match="p: x is missing"):
        decode(Point, {"tags": []}, "p")
    assert decode(Point, {"x": 1.0}, "p") == Point(1.0)  # a file from before the other fields


# JSON files


def test_json_is_strict(tmp_path):
    path = tmp_path / "x.json"
    for text, message in [
        ("[NaN]", "line 1: NaN, allowed: finite numbers"),
        ("[1e999]", r"x.json\[0\]: inf, allowed: a finite number"),
        ("[1,\n2", "line 2: damaged JSON"),
        ("[true]", "allowed: float"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_json(path, tuple[float, ...])
    path.write_bytes(b"[\n\xff]")
    with pytest.raises(InputError, match="line 2: is not UTF-8"):
        read_json(path, tuple[float, ...])
    with pytest.raises(InputError, match="is missing"):
        read_json(tmp_path / "none", tuple[float, ...])


@dataclass(frozen=True)
class Numbered:
    schema: Literal[2]
    x: int


@pytest.mark.parametrize("schema", [1, 3, "2", 2.0, True])
def test_another_schema_is_told_before_anything_that_differs_with_it(schema):
    with pytest.raises(InputError, match=f"p: schema: {schema!r}, allowed: 2"):
        decode(Numbered, {"schema": schema, "y": 0}, "p")


def test_the_first_lines_are_read_whatever_follows_them(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"schema": 2, "x": 0}\n{"schema": 2, "x": 1}\n\xff\x00\n{"sch')
    assert [one.x for one in read_json_lines(path, Numbered, first=2)] == [0, 1]
    with pytest.raises(InputError, match="line 3: is not UTF-8"):
        list(read_json_lines(path, Numbered, first=3))
    with pytest.raises(InputError, match=r"x\.jsonl: 3 lines, allowed: 4 at least"):  # the last has no end
        list(read_json_lines(path, Numbered, first=4))


def test_a_torn_last_line_is_left_out_only_on_request(tmp_path):
    path = tmp_path / "x.jsonl"
    line = '{"x": 1, "tags": [], "pair": null, "shade": "dark", "notes": {}}\n'
    for torn in (line[:20], "[" * 100_000, "9" * 5000):
        path.write_text(line + line + torn)
        assert len(list(read_json_lines(path, Point, torn=True))) == 2
    path.write_text(line + line + line[:20])
    with pytest.raises(InputError, match="line 3: damaged JSON"):
        list(read_json_lines(path, Point))
    path.write_text(line + line[:20] + "\n" + line)
    with pytest.raises(InputError, match="line 2: damaged JSON"):
        list(read_json_lines(path, Point, torn=True))


def test_what_a_method_cannot_do_is_refused_by_its_name(monkeypatch):
    monkeypatch.setitem(UNSUMMED, "fedprox", "its server looks at every update")
    monkeypatch.setitem(UNPRIVATE, "fedprox", "its loss mixes records")
    clear, private = {"method": "fedprox", "secagg": False}, {"weights_epsilon": 2.0}
    check(override(Config(), clear))
    check(override(Config(), private | {"method": "fedavg"}))
    for changes, words in (
        ({"method": "fedprox"}, "secagg: on, allowed with method fedprox: off, by --no-secagg (its server looks at"),
        (clear | private, "weights_epsilon: 2.0, allowed with method fedprox: none (its loss mixes records)"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            check(override(Config(), changes))
