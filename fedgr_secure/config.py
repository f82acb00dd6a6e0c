"""What a run is: frozen dataclasses, one per concern, read from TOML and from flags.

Field names are unique over all sections, so that every field is also a command-line flag of its own
(`rho_min` in `[noise]` is `--rho-min`). This module imports neither torch nor numpy.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import tyro

from fedgr_secure.errors import InputError, nearest, require
from fedgr_secure.typed import decode, short


@dataclass(frozen=True)
class Bound:
    """What a number of the configuration may be; stands in the field's type."""

    words: str
    holds: Callable[[float], bool]


Share = Annotated[float, Bound("from 0 to 1", lambda x: 0 <= x <= 1)]
BelowOne = Annotated[float, Bound("from 0 to below 1", lambda x: 0 <= x < 1)]
Positive = Annotated[float, Bound("a finite number above 0, at most 3e38 (32 bits)", lambda x: 0 < x <= 3e38)]
FromZero = Annotated[float, Bound("a finite number from 0 to 3e38 (32 bits)", lambda x: 0 <= x <= 3e38)]


def whole(low: int, high: int, why: str) -> Bound:
    """Whole numbers between two limits, and why there is an upper one.

    >>> whole(1, 9, "one digit").words, whole(1, 9, "one digit").holds(10)
    ('a whole number from 1 to 9 (one digit)', False)
    """
    return Bound(f"a whole number from {low} to {high} ({why})", lambda x: type(x) is int and low <= x <= high)


Seed = Annotated[int, whole(0, 2**63 - 1, "64 bits with a sign")]
Images = Annotated[int, whole(1, 10**9, "more than any data set holds")]
Clients = Annotated[int, whole(1, 10**6, "each keeps a state of its own")]
Rounds = Annotated[int, whole(1, 10**6, "more would run for years")]
RoundsFromZero = Annotated[int, whole(0, 10**6, "no run has more rounds")]
Epochs = Annotated[int, whole(1, 10**4, "more would run for years")]
Width = Annotated[int, whole(1, 1024, "the model grows with its square")]
Operations = Annotated[int, whole(0, 14, "there are 14 operations")]
Padding = Annotated[int, whole(0, 4095, "less than any image's side")]
Side = Annotated[int, whole(8, 1024, "an image is held in memory as it is")]
Colluders = Annotated[int, whole(0, 10**6, "there are no more clients")]
Releases = Annotated[int, whole(1, 10**4, "the budget is shared among them")]
Bins = Annotated[int, whole(2, 4096, "each has noise of its own; a mixture cannot be fitted to one")]
Steps = Annotated[int, whole(16, 2**20, "noise is drawn in whole steps")]
Threads = Annotated[int, whole(1, 1024, "more than any machine has cores")]

UNSET = tyro.conf.arg(help_behavior_hint=lambda default: "" if default == "None" else f"(default: {default})")
"""Stands in the type of a setting whose None has a meaning, which its own help text names."""


@dataclass(frozen=True)
class DataConfig:
    """Which images."""

    dataset: Literal[
        "digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "svhn", "npz", "folder", "clothing1m"
    ] = "digits"
    """digits is bundled with scikit-learn; the torchvision sets, npz, folder and clothing1m are read from --path"""
    path: Annotated[Path | None, UNSET] = None
    """the .npz file, or the folder that holds the images (default: none, as digits needs none)"""
    download: bool = False
    """fetch a torchvision data set into --path when it is not there"""
    train_size: Annotated[Images | None, UNSET] = None
    """use only this many training images, drawn at random, the same for every seed (default: all)"""
    test_size: Annotated[Images | None, UNSET] = None
    """use only this many test images, drawn at random, the same for every seed (default: all)"""
    given_labels: str = "y_train_noisy"
    """key of the npz file that holds the given, possibly wrong labels (used by --label-noise given)"""
    image_size: Annotated[Side | None, UNSET] = None
    """side to which images from a folder are resized (default: 32; clothing1m: 224)"""


@dataclass(frozen=True)
class NoiseConfig:
    """Which labels are wrong (docs/method.md, 'Setting')."""

    label_noise: Literal["none", "symmetric", "asymmetric", "mixed", "given"] = "symmetric"
    """symmetric: any other class; asymmetric: one fixed other class; mixed: a coin per client; given: from the data"""
    phi: Share = 1.0
    """share of clients whose labels are noisy"""
    rho_min: Share = 0.2
    """lowest noise rate of a noisy client"""
    rho_max: Share = 0.7
    """highest noise rate of a noisy client; rates are uniform between the two"""
    client_draw: Literal["exact", "bernoulli"] = "exact"
    """exact: int(phi * clients) clients are noisy; bernoulli: each is noisy with probability phi"""
    include_true_class: bool = False
    """symmetric noise may draw the true class again (so a rate rho wrongs rho * (C-1)/C of the labels)"""
    asymmetric_map: Literal["next", "pairs", "groups", "superclasses"] = "next"
    """next: class + 1; pairs: CIFAR-10's classic; CIFAR-100: next in five fine indices (groups) or true superclasses"""


@dataclass(frozen=True)
class PartitionConfig:
    """Which client owns which image."""

    partition: Literal["iid", "dirichlet", "file"] = "iid"
    """iid: equal shards; dirichlet: class shares per client from Dirichlet(alpha); file: a JSON list of index lists"""
    dirichlet_alpha: Positive = 0.3
    """concentration of the Dirichlet partition; small is skewed"""
    min_samples: Images = 10
    """smallest client that the Dirichlet partition may make"""
    partition_file: Annotated[Path | None, UNSET] = None
    """JSON: one list of training indices per client (default: none; --partition file needs it)"""


@dataclass(frozen=True)
class ViewConfig:
    """Augmentation: the weak and the strong view of an image."""

    crop_padding: Annotated[Padding | None, UNSET] = None
    """pixels of padding before the random crop (default: an eighth of the side)"""
    flip: Annotated[bool | None, UNSET] = None
    """mirror at random (default: yes for natural images, no for digits)"""
    randaugment_ops: Operations = 2
    """random operations in a strong view (the paper: 3)"""
    randaugment_magnitude: Share = 0.5
    """largest strength of an operation, as a share of the published range (the paper: 1)"""
    cutout: Share = 0.25
    """largest side of the erased square, as a share of the image's side (the paper: 0.5)"""
    baseline_view: Literal["auto", "plain", "weak", "strong"] = "auto"
    """what FedAvg, FedProx and central train on; auto: weak (crop and flip) for natural images, plain for digits"""


@dataclass(frozen=True)
class ModelConfig:
    """The classifier."""

    model: Literal["cnn", "mlp", "resnet18", "resnet34", "resnet50"] = "cnn"
    """cnn and mlp suit small images; resnet18 and resnet34 32x32 images, resnet50 images of 224x224"""
    norm: Literal["group", "batch"] = "group"
    """normalisation layer; group has no running statistics, so nothing but weights is averaged"""
    width: Width = 16
    """channels of the small CNN's first layer; hidden units of the MLP are 8 times this"""
    pretrained: Annotated[Path | None, UNSET] = None
    """torchvision ImageNet weights of the ResNet-50, a .pth file on disk (default: none, random weights)"""


@dataclass(frozen=True)
class TrainingConfig:
    """Local training: SGD, a fresh optimiser each round (docs/method.md, 'Settings')."""

    local_epochs: Epochs = 5
    """how often a client of the cohort goes through its samples in a round"""
    batch_size: Images = 32
    """samples per step"""
    lr: Positive = 0.1
    """learning rate, constant over the run"""
    momentum: BelowOne = 0.5
    """momentum of SGD"""
    weight_decay: FromZero = 5e-4
    """L2 weight decay of SGD"""


@dataclass(frozen=True)
class FederationConfig:
    """Who takes part, and for how long."""

    clients: Clients = 20
    """how many clients share the training images"""
    cohort: Clients = 10
    """clients per round"""
    rounds: Rounds = 30
    """rounds of the whole run, warm-up included"""
    warmup: RoundsFromZero = 12
    """alpha: rounds on the given labels; until then clients are drawn without replacement"""
    runner: Literal["sequential", "debug"] = "sequential"
    """debug: every message passes through bytes, every number is checked, an error names client, round and stage"""
    store: Literal["memory", "disk"] = "memory"
    """where the clients' states (teacher, losses, pseudo-labels) live between rounds"""


@dataclass(frozen=True)
class DropoutConfig:
    """Clients that vanish, injected by the seed; rates are per client, round and phase."""

    dropout: BelowOne = 0.0
    """share of clients that vanish before they upload their update"""
    dropout_keys: BelowOne = 0.0
    """share that vanish before they advertise keys for the secure sum (without one: before they train)"""
    dropout_shares: BelowOne = 0.0
    """share that vanish before they share keys for the secure sum (without one: before they train)"""
    dropout_unmask: BelowOne = 0.0
    """share that vanish after their upload, before they help to open the secure sum"""


@dataclass(frozen=True)
class SecureSumConfig:
    """Secure aggregation of the weights (Bonawitz et al. 2017; Bell et al. 2020)."""

    secagg: bool = True
    """sum the clients' updates under pairwise masks, so that the server sees the mean alone (central has one client)"""
    update_limit: Positive = 8.0
    """each coordinate of a client's change of the parameters is clipped to plus or minus this; clipping is counted"""
    buffer_limit: Positive = 65536.0
    """the same for floating-point buffers (BatchNorm's running statistics)"""
    largest_samples: Annotated[Images | None, UNSET] = None
    """public bound on a client's number of samples, its secret weight in the mean (default: the next power of two)"""
    ring: Literal[32, 64] = 32
    """bits of a masked coordinate of the parameters"""
    colluders: Annotated[Colluders | None, UNSET] = None
    """clients that may collude with the server, which may draw all into one cohort (default: a tenth, from 1)"""
    expected_dropout: Share = 0.1
    """share of clients that may vanish; sets the number of neighbours in large cohorts"""
    entropy: Literal["system", "insecure-seeded"] = "system"
    """where keys and masks come from; insecure-seeded repeats every byte of a simulation and protects nothing"""


@dataclass(frozen=True)
class ProxyConfig:
    """How FedGR's loss proxies reach the server (`privacy.channels`), and what they may give away."""

    channel: Literal["plain", "noisy", "histogram"] = "histogram"
    """plain: as published; noisy: each number with noise; histogram: noisy counts, shown as a secure sum alone"""
    epsilon: Positive = 1.0
    """total budget of everything a private channel releases of one record"""
    delta: BelowOne = 1e-5
    """the failure probability that goes with epsilon; below 1/n (Laplace noise needs none)"""
    adjacency: Literal["replace-one", "add-remove", "label", "client"] = "replace-one"
    """what the budget protects: one record for another, one more or less, one label, or a whole client"""
    releases: Releases = 6
    """in how many releases a client takes part at most; the budget is shared among them"""
    release_every: RoundsFromZero = 1
    """rounds between histograms after the warm-up, in whose last sweep every client is counted; 0: none"""
    clip: Positive = 2.0
    """losses are clipped at this many times ln(classes), the loss of a blind guess (private channels)"""
    bins: Bins = 24
    """of the histogram, from 0 to the clip; narrower near 0"""
    window_decay: BelowOne = 0.9
    """weight of older histograms from one release to the next"""
    noising: Literal["once", "per_loss", "diagonal", "fresh_on_mean"] = "once"
    """of the noisy channel: one release; each loss once, averaged; that with uneven noise; each mean anew"""
    mechanism: Literal["laplace", "gaussian"] = "laplace"
    """of the noisy channel; Laplace is better for one release, Gaussian for more than ten"""
    grid_steps: Steps = 1024
    """steps from 0 to the clip; noise is whole steps, so that no low-order digit tells anything"""
    noise: Literal["system", "insecure-seeded"] = "system"
    """where the noise comes from; insecure-seeded is fast, repeats with the seed, and protects nothing"""
    allow_fresh_noise: bool = False
    """allow --noising fresh_on_mean, whose noise is larger by the root of the number of releases"""


@dataclass(frozen=True)
class FedGRConfig:
    """FedGR's settings and switches (docs/method.md, 'Settings' and 'Switches'); defaults are the paper's."""

    beta: Share = 0.8
    """a client with an estimated noise rate r_k at or above this trains on pseudo-labels only"""
    gamma_g: Share = 0.9
    """how much of its own past the teacher keeps when the global model revises it"""
    gamma_l: Share = 0.99
    """the teacher's moving average over local steps"""
    tau: Positive = 0.5
    """temperature of the distillation"""
    lambda_b: FromZero = 1.0
    """weight of the distillation term B_k"""
    lambda_r: FromZero = 0.1
    """weight of the representation term R_k"""
    confidence: Share = 0.9
    """a pseudo-label is kept only above this probability (strict)"""
    sieve: bool = True
    """off: each client fits its own mixture and uploads no proxy ('w/o FS')"""
    refine: bool = True
    """off: train on the samples sieved clean, with their given labels ('w/o LR')"""
    distill: bool = True
    """off: no B_k"""
    represent: bool = True
    """off: no R_k"""
    decide_at: Literal["client", "server"] = "client"
    """who computes q and r_k: the client from the mixture's parameters, or the server as published"""
    decisions: Literal["same_round", "next_participation"] = "same_round"
    """when decisions apply: the paper's text, or the authors' code"""
    mixture_data: Literal["cohort", "all_seen"] = "cohort"
    """what enters the mixture: this round's uploads, or the newest upload of every client seen so far"""
    loss_cap: Annotated[Positive | None, UNSET] = None
    """cap on each observed loss, in units of ln(classes), the loss of a blind guess (default, and the paper: no cap)"""
    variances: Literal["auto", "free", "tied"] = "auto"
    """of both components; auto: free for exact losses (the paper), by likelihood under noise; tied resists a tail"""
    representation: Literal["cosine", "l2", "kl"] = "cosine"
    """the form of R_k"""
    represent_from: Literal["start", "warmup"] = "start"
    """R_k from round 0 (the authors' code) or only after the warm-up"""
    teacher_before_warmup: Literal["global", "own"] = "global"
    """until the warm-up ends the teacher is the global model (the authors' code), or has its own history"""
    reset_teacher: bool = False
    """a high-noise client with pseudo-labels for under half its samples gets the global model as teacher"""
    local_observation: bool = False
    """after its first local epoch the local model's losses are observed, too (the authors' code)"""


@dataclass(frozen=True)
class FedProxConfig:
    """FedProx (Li et al. 2020)."""

    mu: FromZero = 0.1
    """weight of the proximal term (mu/2) * ||w - w_g||^2"""


@dataclass(frozen=True)
class OutputConfig:
    """What is kept of a run, and where it runs."""

    out: Annotated[Path | None, UNSET] = None
    """the run folder (default: runs/METHOD-DATA-sSEED)"""
    force: bool = False
    """replace an existing run folder"""
    checkpoint_every: RoundsFromZero = 10
    """rounds between checkpoints, from which `fedgr-secure resume` continues; 0: none"""
    record_view: Literal["off", "uploads", "all"] = "off"
    """record what the server receives: everything but the clients' weights (uploads), or all of it"""
    memorised_every: RoundsFromZero = 10
    """rounds between looks at how many wrong labels the global model has memorised; 0: only after the last"""
    device: str = "cpu"
    """torch device, such as cpu, cuda or cuda:1"""
    threads: Annotated[Threads | None, UNSET] = None
    """torch threads (default: 1 for cnn and mlp, which are too small to share out; else torch's own choice)"""


Method = Literal["fedgr", "fedavg", "fedprox", "central"]


@dataclass(frozen=True)
class Config:
    """One run. `Config()` is FedGR on scikit-learn's digits."""

    method: Method = "fedgr"
    """central trains one model on the pooled data, one epoch a round"""
    seed: Seed = 0
    """root of every random draw of the run, but for which images --train-size and --test-size choose"""
    data: DataConfig = field(default_factory=DataConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    views: ViewConfig = field(default_factory=ViewConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    federation: FederationConfig = field(default_factory=FederationConfig)
    dropouts: DropoutConfig = field(default_factory=DropoutConfig)
    secure_sum: SecureSumConfig = field(default_factory=SecureSumConfig)
    proxies: ProxyConfig = field(default_factory=ProxyConfig)
    fedgr: FedGRConfig = field(default_factory=FedGRConfig)
    fedprox: FedProxConfig = field(default_factory=FedProxConfig)
    output: OutputConfig = field(default_factory=OutputConfig)


def read_toml(path: Path) -> Config:
    """Read a configuration file; what it leaves out keeps its default.

    Raises:
        InputError: the file is missing, is not TOML, or holds a key or a value that is not allowed.
    """
    require(os.path.exists(path), f"config file: {path} does not exist")
    require(path.is_file(), f"config file: {path} cannot be read as TOML: it is not a file")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise InputError(f"config file: {path} cannot be read as TOML: it is nested too deeply") from None
    except (OSError, ValueError) as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise InputError(f"config file: {path} cannot be read as TOML: {error}") from None
    return from_table(table, where=str(path))


def from_table(table: dict[str, Any], *, where: str) -> Config:
    """Build a configuration from nested plain values, checking every key and type; the rest keeps its default."""
    config: Config = decode(Config, table, where, defaults=True)
    return config


def data_name(config: Config) -> str:
    """What the data is called in titles and folders: the data set, or the file's or folder's own name.

    >>> data_name(override(Config(), {"dataset": "npz", "path": Path("data/mnist.npz")}))
    'mnist'
    """
    own = config.data.dataset in ("npz", "folder") and config.data.path is not None
    return config.data.path.stem if own and config.data.path is not None else config.data.dataset


def default_folder(config: Config) -> Path:
    """Where a run without `--out` goes: `runs/METHOD-DATA-sSEED`."""
    return Path("runs") / f"{config.method}-{data_name(config)}-s{config.seed}"


def override(config: Config, changes: Mapping[str, Any]) -> Config:
    """A configuration with some settings changed, by their flat names (as on the command line).

    Raises:
        InputError: a name is not a setting.

    >>> override(Config(), {"rounds": 5, "seed": 3}).federation.rounds
    5
    """
    left = dict(changes)
    for part in dataclasses.fields(config):
        value = getattr(config, part.name)
        section_given = isinstance(left.get(part.name), type(value))
        if part.name in left and (section_given or not dataclasses.is_dataclass(value)):
            config = dataclasses.replace(config, **{part.name: left.pop(part.name)})
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = {inner.name for inner in dataclasses.fields(value)} & left.keys()
            section: Any = dataclasses.replace(value, **{name: left.pop(name) for name in names})
            config = dataclasses.replace(config, **{part.name: section})
    known = [f.name for s in dataclasses.fields(config) for f in (s, *_inner(getattr(config, s.name)))]
    for name in left:
        raise InputError(f"setting: unknown name {name!r}{nearest(name, known)}")
    return config


def _inner(section: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(section) if dataclasses.is_dataclass(section) else ()


def to_table(config: Any) -> dict[str, Any]:
    """A config dataclass as nested plain values, for JSON."""
    return dataclasses.asdict(config, dict_factory=_plain)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in items}


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML that `read_toml` reads back to an equal object.

    >>> print(to_toml(Config()).splitlines()[0])
    method = "fedgr"
    """
    lines, tables = [], []
    for key, value in to_table(config).items():
        if isinstance(value, dict):
            body = [f"{k} = {_toml(v)}" for k, v in value.items() if v is not None]
            tables.append("\n".join([f"\n[{key}]", *body]))
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines + tables) + "\n"


def _toml(value: Any) -> str:
    """A plain value as TOML in ASCII: JSON, but for how TOML escapes other characters."""
    import json

    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isascii() and c != "\x7f" else f"\\U{ord(c):08x}" for c in text)


def check(config: Config) -> Config:
    """Refuse settings that cannot work, before anything is loaded or written.

    Raises:
        InputError: naming the setting, its value and what is allowed.
    """
    _check_bounds(config)
    d, n, p, f = config.data, config.noise, config.partition, config.federation
    m, g = config.model, config.fedgr
    require(n.rho_min <= n.rho_max, f"rho_min: {n.rho_min}, allowed: at most rho_max = {n.rho_max}")
    require(f.cohort <= f.clients, f"cohort: {f.cohort}, allowed: at most clients = {f.clients}")
    require(
        d.dataset == "digits" or d.path is not None,
        f"path: not given, but dataset {d.dataset} is read from disk: name its file or folder with --path",
    )
    require(
        p.partition != "file" or p.partition_file is not None,
        "partition_file: not given, but partition is 'file': name the JSON file with --partition-file",
    )
    require(
        m.pretrained is None or m.model == "resnet50",
        f"pretrained: {m.pretrained}, allowed: only with model resnet50, not {m.model}",
    )
    require(
        not (m.norm == "batch" and config.training.batch_size == 1),
        "batch_size: 1, allowed with norm batch: from 2 (one sample has no variance)",
    )
    _check_averaging(config)
    _check_proxies(config)
    require(
        not (g.decide_at == "server" and not g.sieve),
        "decide_at: server, allowed: only with the sieve on (without it each client decides alone)",
    )
    return config


def sums_securely(config: Config) -> bool:
    """Whether weights travel under secure sums."""
    return config.secure_sum.secagg and config.method != "central"


def _check_averaging(config: Config) -> None:
    """Secure sums and clients that vanish need several clients, and each other."""
    d, secagg = config.dropouts, sums_securely(config)
    pooled = config.method == "central"
    require(
        not secagg or config.federation.cohort > 1, "cohort: 1, allowed with secagg: from 2 clients (or --no-secagg)"
    )
    lost = max(d.dropout, d.dropout_keys, d.dropout_shares, d.dropout_unmask)
    require(not (pooled and lost), f"dropout: {lost}, allowed with method central: 0")
    require(
        secagg or d.dropout_unmask == 0,
        f"dropout_unmask: {d.dropout_unmask}, allowed without secagg: 0 (there is nothing to unmask)",
    )


def _check_proxies(config: Config) -> None:
    """Channels that the other settings rule out."""
    p, g = config.proxies, config.fedgr
    if config.method != "fedgr" or not g.sieve:
        return
    if p.channel == "histogram":
        require(
            config.secure_sum.secagg,
            "channel: histogram, allowed: with --secagg (one client's share of the noise hides nothing by itself); "
            "--channel plain is FedGR as published",
        )
        require(g.decide_at == "client", "decide_at: server, allowed with channel histogram: client (it sees no row)")
    require(
        p.channel == "plain" or g.mixture_data == "cohort",
        f"mixture_data: {g.mixture_data}, allowed with channel {p.channel}: cohort",
    )
    require(
        p.channel == "plain" or not g.local_observation,
        f"local_observation: on, allowed with channel {p.channel}: off (a loss per participation is accounted)",
    )
    require(
        p.channel != "noisy" or p.noising != "fresh_on_mean" or p.allow_fresh_noise,
        "noising: fresh_on_mean, allowed: once, per_loss or diagonal; fresh noise on each mean is sqrt(T) worse at the "
        "same epsilon (--allow-fresh-noise takes it)",
    )


def _check_bounds(section: Any) -> None:
    """Hold every number of a config dataclass against the `Bound` of its type, and every path against the system."""
    hints = get_type_hints(type(section), include_extras=True)
    for field_ in dataclasses.fields(section):
        value = getattr(section, field_.name)
        if dataclasses.is_dataclass(value):
            _check_bounds(value)
        if Path in _kinds(hints[field_.name]):
            fits = value is None or isinstance(value, Path)
            require(fits, f"{field_.name}: {value!r}, allowed: a pathlib.Path")
            require("\0" not in str(value), f"{field_.name}: {str(value)!r}, allowed: a path without a NUL character")
        for bound in _bounds(hints[field_.name]):
            require(value is None or bound.holds(value), f"{field_.name}: {short(value)}, allowed: {bound.words}")


def _kinds(hint: Any) -> list[Any]:
    """The plain types in a type, at any depth."""
    inner = get_args(hint)
    return [kind for part in inner for kind in _kinds(part)] if inner else [hint]


def _bounds(hint: Any) -> list[Bound]:
    """The bounds in a type, at any depth."""
    found = [entry for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, Bound)]
    return found + [bound for inner in get_args(hint) for bound in _bounds(inner)]
