"""Shadow federations: the run under attack once more, on halves of a pool of candidates, by this simulator.

Every setting of the run is kept but the data and the seed, so that its sieve, its noise and its sums say of a shadow
what they say of the target. Noise and keys of a shadow come from its seed: nobody is to be protected from it, only its
global model is used, and so it can be repeated. Nothing of a shadow stays on disk.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attacks.lira import Array, Mask
from attacks.models import predictor
from fedgr_secure.config import override
from fedgr_secure.data.types import ImageSpec, Labels, UInt8
from fedgr_secure.data.views import Views
from fedgr_secure.errors import require
from fedgr_secure.federation.federation import load
from fedgr_secure.federation.loop import run
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config


class Labelled(NamedTuple):
    """Images uint8 (n, channels, height, width) with their labels int64 (n,)."""

    images: UInt8
    labels: Labels


@dataclass(frozen=True)
class Shadows:
    """What shadow models say.

    Attributes:
        inside: bool (shadows, n), which candidates each was trained with.
        candidates: float64 (shadows, n, classes), log-softmax.
        population: float64 (shadows, m, classes), log-softmax of the points that none was trained with.
    """

    inside: Mask
    candidates: Array
    population: Array


def draw_halves(count: int, shadows: int, *, seed: int) -> Mask:
    """Random halves of `count` candidates, in pairs of a half and its complement.

    Each candidate is so in exactly half of an even number of shadows, and all shadows are of one size (but for one
    candidate where the count is odd).

    Returns:
        bool (shadows, count).

    >>> draw_halves(5, 4, seed=0).sum(axis=0).tolist()
    [2, 2, 2, 2, 2]
    """
    require(count >= 2 and shadows >= 1, f"shadows: {shadows} of {count} candidates, allowed: from 1, of 2 or more")
    draw, inside = Randomness(seed).numpy("shadow halves"), np.zeros((shadows, count), np.bool_)
    for first in range(0, shadows, 2):
        inside[first, draw.permutation(count)[: count // 2]] = True
        inside[first + 1 : first + 2] = ~inside[first]
    return inside


def train_shadows(
    config: Config,
    spec: ImageSpec,
    pool: Labelled,
    test: Labelled,
    *,
    shadows: int = 8,
    seed: int = 0,
    population: UInt8 | None = None,
) -> Shadows:
    """Train federations on halves of the pool and ask their final models about all of it.

    A shadow has the run's number of clients, and so clients of the run's size where the pool has twice its images;
    for a smaller pool, lower `clients` and `cohort` in `config` in proportion. Its images are divided among the clients
    as `partition` says, for an attacker does not know who owns what.

    Args:
        config: of the run under attack.
        spec: of its images.
        pool: the candidates with their given, possibly wrong labels; members and others.
        test: what a run measures its accuracy on; the attacks do not use it.
        shadows: how many.
        seed: of the halves and of the shadows' seeds.
        population: other images to ask about (default: none).

    Raises:
        InputError: labels and images do not fit each other or `spec`, a partition from a file, or what a run refuses.
    """
    _check(config, spec, pool, test)
    inside = draw_halves(len(pool.labels), shadows, seed=seed)
    asked = np.concatenate([pool.images, population]) if population is not None else pool.images
    with tempfile.TemporaryDirectory() as folder:
        said = [
            _shadow(_config(config, spec, number, seed, Path(folder)), _half(pool, half), test, spec, asked)
            for number, half in enumerate(inside)
        ]
    candidates, rest = np.split(np.stack(said), [len(pool.labels)], axis=1)
    return Shadows(inside, candidates, rest)


def write_npz(path: Path, train: Labelled, test: Labelled) -> None:
    """A data set that a run with dataset npz reads."""
    x_train, x_test = (np.moveaxis(part.images, 1, -1) for part in (train, test))
    np.savez(path, x_train=x_train, y_train=train.labels, x_test=x_test, y_test=test.labels)


def _half(pool: Labelled, half: NDArray[np.bool_]) -> Labelled:
    return Labelled(pool.images[half], pool.labels[half])


def _config(config: Config, spec: ImageSpec, number: int, seed: int, folder: Path) -> Config:
    """The run's settings, but its data, a seed of its own, and nothing kept."""
    views = Views.for_images(spec, config.views)
    whole = dict.fromkeys(("train_size", "test_size", "image_size"))
    data = {"dataset": "npz", "download": False, "given_labels": "y_train_noisy"}
    kept = {"checkpoint_every": 0, "record_view": "off", "memorised_every": 0, "force": False, "store": "memory"}
    own = {
        "seed": Randomness(seed).integer("shadow", client=number),
        "path": folder / f"{number}.npz",
        "out": folder / f"run-{number}",
        "label_noise": "none",  # the labels of the file are the given ones
        "flip": views.flip,  # not what an npz file's channels suggest
        "baseline_view": views.baseline,
        "noise": "insecure-seeded",
        "entropy": "insecure-seeded",
    }
    return override(config, whole | data | kept | own)


def _shadow(config: Config, train: Labelled, test: Labelled, spec: ImageSpec, asked: UInt8) -> Array:
    path = config.data.path
    assert path is not None
    write_npz(path, train, test)
    own = load(config)[0].spec
    require(own.classes == spec.classes, f"test labels: {own.classes} classes, allowed: {spec.classes}, as in the run")
    weights = run(config).weights
    path.unlink()
    return predictor(config, own)(weights, asked)


def _check(config: Config, spec: ImageSpec, pool: Labelled, test: Labelled) -> None:
    shape = (spec.channels, spec.height, spec.width)
    for name, part in {"pool": pool, "test": test}.items():
        require(
            part.images.dtype == np.uint8 and part.images.shape == (*part.labels.shape, *shape),
            f"{name}: {part.images.dtype}{list(part.images.shape)} for labels {list(part.labels.shape)}, allowed: "
            f"uint8 (n, {', '.join(map(str, shape))}) for (n,)",
        )
    require(
        config.partition.partition != "file",
        "partition: file, allowed for shadows: iid or dirichlet (a file's indices are not of a half of the pool)",
    )
