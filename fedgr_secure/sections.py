"""What a run is: frozen dataclasses, one per concern.

Field names are unique over all sections, so that every field is also a command-line flag of its own
(`rho_min` in `[noise]` is `--rho-min`). This module imports neither torch nor numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from fedgr_secure.baseline_sections import (
    CoteachingConfig,
    DivideMixConfig,
    FedCorrConfig,
    FedDivConfig,
    FedELCConfig,
    FedFixerConfig,
    FedNoRoConfig,
    RoFLConfig,
)
from fedgr_secure.bounds import (
    UNSET,
    BelowOne,
    Bins,
    Clients,
    Colluders,
    Epochs,
    FromZero,
    Images,
    Operations,
    Padding,
    Positive,
    Releases,
    Rounds,
    RoundsFromZero,
    Seed,
    Share,
    Side,
    Steps,
    Threads,
    Width,
)


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
    """what the other methods train on; auto: weak (crop and flip) for natural images, plain for digits"""


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
class DPSGDConfig:
    """Differential privacy of the weights: DP-SGD in every client (Abadi et al. 2016), by Opacus."""

    weights_epsilon: Annotated[Positive | None, UNSET] = None
    """total budget of a client's updates for one record, at --delta (default: none; the weights are not private)"""
    gradient_clip: Positive = 1.0
    """L2 norm that the gradient of one record's loss is clipped to"""
    trainings: Annotated[Rounds | None, UNSET] = None
    """in how many rounds a client trains at most; fewer need less noise; later it returns the model (default: all)"""


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


Method = Literal[
    "fedgr",
    "fedavg",
    "fedprox",
    "central",
    "coteaching",
    "fednoro",
    "dividemix",
    "fedelc",
    "fedfixer",
    "feddiv",
    "rofl",
    "fedcorr",
]


@dataclass(frozen=True)
class Config:
    """One run. `Config()` is FedGR on scikit-learn's digits."""

    method: Method = "fedgr"
    """central trains one model on the pooled data, one epoch a round; fedgr-secure methods tells of each"""
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
    dp_sgd: DPSGDConfig = field(default_factory=DPSGDConfig)
    fedgr: FedGRConfig = field(default_factory=FedGRConfig)
    fedprox: FedProxConfig = field(default_factory=FedProxConfig)
    coteaching: CoteachingConfig = field(default_factory=CoteachingConfig)
    fednoro: FedNoRoConfig = field(default_factory=FedNoRoConfig)
    dividemix: DivideMixConfig = field(default_factory=DivideMixConfig)
    fedelc: FedELCConfig = field(default_factory=FedELCConfig)
    fedfixer: FedFixerConfig = field(default_factory=FedFixerConfig)
    feddiv: FedDivConfig = field(default_factory=FedDivConfig)
    rofl: RoFLConfig = field(default_factory=RoFLConfig)
    fedcorr: FedCorrConfig = field(default_factory=FedCorrConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
