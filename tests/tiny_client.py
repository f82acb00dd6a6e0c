"""Builders for tests that need a real model, but the smallest: an MLP on 4x4 images of three classes."""

import dataclasses

import numpy as np
import torch

from fedgr_secure.context import ClientContext
from fedgr_secure.data.types import ArrayImages, ImageSpec, Shard
from fedgr_secure.data.views import Views
from fedgr_secure.federation.releases import MadeAnew
from fedgr_secure.models import build_model
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config, FederationConfig, ModelConfig, TrainingConfig, ViewConfig
from fedgr_secure.training import TrainingTask, Workbench
from privacy.channels.plain import PlainProxies

CLASSES = 3
SPEC = ImageSpec(1, 4, 4, ("a", "b", "c"), mean=(0.5,), std=(0.25,), natural=False)


def pictures(count, seed=0):
    """Random uint8 images (count, 1, 4, 4)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 1, 4, 4), dtype=np.uint8)


def shard(count=10, *, client=3, seed=0):
    """A client's data; every class occurs from three samples on."""
    labels = np.arange(count, dtype=np.int64) % CLASSES
    return Shard(client, np.arange(count), labels, ArrayImages(pictures(count, seed)))


def config(*, epochs=1, batch=4, warmup=0, lr=0.1, seed=0, **sections):
    """A run's configuration; `sections` replace whole sections, such as `fedgr=FedGRConfig(...)`."""
    return Config(
        seed=seed,
        training=TrainingConfig(local_epochs=epochs, batch_size=batch, lr=lr),
        federation=FederationConfig(warmup=warmup),
        **sections,
    )


def workbench(run=None, *, norm="group", model=None, randomness=None, spec=SPEC):
    """A workbench with a tiny MLP (or `model`) and real views with a one-pixel crop."""
    run = run or config()
    return Workbench(
        model or build_model(ModelConfig(model="mlp", norm=norm, width=1), spec, seed=5),
        Views.for_images(spec, ViewConfig(crop_padding=1)),
        run.training,
        randomness or Randomness(run.seed),
    )


class Unasked:
    """A source of noise that the plain channel never asks."""

    secure = True


def context(run=None, *, own=None, bench=None, norm="group", channel=None):
    """One client's surroundings."""
    run = run or config()
    bench = bench or workbench(run, norm=norm)
    channel, own = channel or PlainProxies(), own or shard()
    return ClientContext(own, CLASSES, run, bench, Randomness(run.seed), channel, lambda round: Unasked(), MadeAnew())


def task(bench, objective, *, images=None, view="plain", columns=None, start=None, **changes):
    """A training task of client 3 in round 2 with sensible blanks."""
    images = pictures(10) if images is None else images
    blank = TrainingTask(
        client=3,
        round=2,
        start=bench.weights() if start is None else start,
        images=images,
        view=view,
        columns={"rows": torch.arange(len(images))} if columns is None else columns,
        objective=objective,
        epochs=1,
        finish=lambda weights: weights,
    )
    return dataclasses.replace(blank, **changes)


def shifted(weights, amount):
    """The same weights with every floating-point entry moved by deterministic noise of size `amount`."""
    draw, result = np.random.default_rng(17), {}
    for name, value in weights.items():
        moved = value + amount * draw.standard_normal(value.shape)
        moved = np.abs(moved) if name.endswith("running_var") else moved
        result[name] = moved.astype(value.dtype) if np.issubdtype(value.dtype, np.floating) else value
    return result


def same(left, right):
    """Bit-equal weights."""
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
