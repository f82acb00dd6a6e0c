"""FedGR's published results, and how a row's configuration differs from what they were measured with.

Source: FedGR (ICML 2026, arXiv 2412.00452), CIFAR-10 with 100 clients: test accuracy in percent, mean of the last ten
rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedgr_secure.app import presets
from fedgr_secure.app.tables import METHOD_NAMES
from fedgr_secure.config import data_name, override, to_table
from fedgr_secure.errors import nearest, require
from fedgr_secure.sections import Config

if TYPE_CHECKING:
    from fedgr_secure.app.tradeoff.grid import Row

SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10-iid-symmetric": {"label_noise": "symmetric", "rho_min": 0.5, "rho_max": 1.0},
    "cifar10-iid-mixed": {"label_noise": "mixed", "rho_min": 0.2, "rho_max": 0.4},
    "cifar10-noniid-symmetric": {"label_noise": "symmetric", "rho_min": 0.5, "rho_max": 1.0, "partition": "dirichlet"},
    "cifar10-noniid-mixed": {"label_noise": "mixed", "rho_min": 0.2, "rho_max": 0.4, "partition": "dirichlet"},
}
"""the paper's settings, by what they change in the preset `cifar10-paper`"""

FORGOTTEN = {name: {"forget": "given", "forget_rate": 0.75 if "symmetric" in name else 0.3} for name in SETTINGS}
"""the paper's settings of FL-Coteaching: the mean noise rate of all clients"""

ACCURACIES: dict[str, tuple[float, float, float, float]] = {
    "FedAvg": (23.89, 70.66, 17.32, 51.92),
    "FedProx": (23.02, 64.44, 16.69, 49.77),
    "FL-Coteaching": (47.28, 83.99, 33.49, 72.42),
    "FL-DivideMix": (68.47, 85.19, 38.35, 68.86),
    "FedCorr": (55.12, 84.15, 29.42, 83.33),
    "FedNoRo": (33.98, 71.07, 18.60, 57.09),
    "FedGR": (83.91, 93.13, 63.64, 86.50),
    "FedGR w/o FS": (54.59, 91.71, 45.48, 84.01),
    "FedGR w/o LR": (75.23, 90.46, 59.48, 83.21),
    "FedGR w/o R_k": (81.49, 91.84, 58.23, 82.70),
    "FedGR w/o B_k": (78.14, 91.24, 51.07, 79.44),
}
"""percent, by method, in the order of `SETTINGS`"""

ABLATIONS = {"sieve": "FS", "refine": "LR", "represent": "R_k", "distill": "B_k"}
ABLATED_FROM = {"cifar10-iid-mixed": 92.27, "cifar10-noniid-mixed": 84.65}
"""FedGR's accuracy in the ablation's own table, where it differs from the main one"""

_CLEAR = {"channel": "plain", "secagg": False, "store": "memory"}
_WORDS = {
    "dataset": "data {}, not {}",
    "train_size": "{} training images, not {}",
    "test_size": "{} test images, not {}",
    "partition": "partition {}, not {}",
    "dirichlet_alpha": "Dirichlet alpha {}, not {}",
    "label_noise": "{} label noise, not {}",
    "phi": "share of noisy clients {}, not {}",
    "rho_min": "noise rates from {}, not {}",
    "rho_max": "noise rates up to {}, not {}",
    "model": "model {}, not {}",
    "norm": "{} norm, not {} norm",
    "clients": "{} clients, not {}",
    "cohort": "cohorts of {}, not {}",
    "rounds": "{} rounds, not {}",
    "warmup": "warm-up of {} rounds, not {}",
    "local_epochs": "{} local epochs, not {}",
    "lr": "learning rate {}, not {}",
    "randaugment_ops": "operations in a strong view {}, not {}",
    "randaugment_magnitude": "strength of augmentation {}, not {}",
    "cutout": "cutout {}, not {}",
}
_NOTHING = {"train_size": "all", "test_size": "all", "flip": "as the data", "crop_padding": "as the data"}
_SECTIONS = ("data", "partition", "noise", "views", "model", "training", "federation", "dropouts")
_BESIDE = frozenset({"path", "download", "given_labels", "runner", "store"})
"""settings that say where things are, not what is computed"""


@dataclass(frozen=True)
class Comparison:
    """A row beside the paper.

    Attributes:
        method: by the paper's name.
        accuracy: the paper's, in percent.
        differences: what the row does otherwise, in words.
        note: on the paper's number, or empty.
    """

    method: str
    accuracy: float
    differences: tuple[str, ...]
    note: str = ""


def compare(row: Row) -> Comparison | None:
    """The paper's number for the method of a row, and what differs; None where the paper has none.

    Raises:
        InputError: the row follows a setting that the paper does not have.
    """
    if row.published is None:
        return None
    require(
        row.published in SETTINGS,
        f"{row.setting}: published: {row.published!r}{nearest(str(row.published), SETTINGS)}, allowed: "
        f"{', '.join(SETTINGS)}",
    )
    method = _method(row.config)
    if method is None:
        return None
    note = ""
    if "w/o" in method and row.published in ABLATED_FROM:
        note = f"the ablation's own FedGR has {ABLATED_FROM[row.published]:.2f}"
    return Comparison(method, accuracy(method, row.published), differences(row.config, row.published), note)


def accuracy(method: str, setting: str) -> float:
    """The paper's accuracy in percent.

    >>> accuracy("FedGR", "cifar10-noniid-mixed")
    86.5
    """
    return ACCURACIES[method][list(SETTINGS).index(setting)]


def _method(config: Config) -> str | None:
    """The paper's name of a configuration's method; None where it reports none, or where several parts are off."""
    name = METHOD_NAMES.get(config.method, config.method)
    if config.method != "fedgr":
        return name if name in ACCURACIES else None
    off = [part for switch, part in ABLATIONS.items() if not getattr(config.fedgr, switch)]
    return name if not off else f"{name} w/o {off[0]}" if len(off) == 1 else None


def differences(config: Config, setting: str) -> tuple[str, ...]:
    """What a configuration does otherwise than the paper in a setting, in words."""
    parts = {switch: getattr(config.fedgr, switch) for switch in ABLATIONS}  # these are the method, not a difference
    theirs = {**_CLEAR, **SETTINGS[setting], **FORGOTTEN[setting], **parts, "method": config.method}
    paper = override(presets.load("cifar10-paper"), theirs)
    return (*_settings(config, paper), *_privacy(config))


def _settings(config: Config, paper: Config) -> Iterator[str]:
    if data_name(config) != data_name(paper):
        yield _WORDS["dataset"].format(data_name(config), data_name(paper))
    sections = [*_SECTIONS, *([config.method] if hasattr(config, config.method) else [])]
    mine, theirs = to_table(config), to_table(paper)
    for section in sections:
        for field in dataclasses.fields(getattr(config, section)):
            ours, other = mine[section][field.name], theirs[section][field.name]
            if ours != other and field.name not in _BESIDE | {"dataset"} and _applies(field.name, config, paper):
                words = _WORDS.get(field.name, field.name.replace("_", " ") + " {}, not {}")
                yield words.format(_short(field.name, ours), _short(field.name, other))


def _applies(field: str, config: Config, paper: Config) -> bool:
    """Whether a setting does anything in both."""
    if field == "width":
        return config.model.model == paper.model.model
    if field == "forget_rate":
        return config.coteaching.forget == paper.coteaching.forget
    if field in ("dirichlet_alpha", "min_samples"):
        return config.partition.partition == paper.partition.partition == "dirichlet"
    return True


def _privacy(config: Config) -> Iterator[str]:
    """What travels otherwise than in the clear."""
    proxies = config.proxies
    if config.method == "fedgr" and config.fedgr.sieve and proxies.channel != "plain":
        yield f"losses by the {proxies.channel} channel at epsilon {proxies.epsilon:g}, not in the clear"
    if config.secure_sum.secagg and config.method != "central":
        yield "weights under secure sums, not in the clear"
    if config.dp_sgd.weights_epsilon is not None:
        yield f"weights trained by DP-SGD at epsilon {config.dp_sgd.weights_epsilon:g}, not by SGD"


def _short(field: str, value: Any) -> str:
    """A value as in a sentence.

    >>> _short("train_size", None), _short("train_size", 10000), _short("lr", 0.03)
    ('all', '10,000', '0.03')
    """
    if value is None:
        return _NOTHING.get(field, "none")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
